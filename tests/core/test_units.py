import pytest

from seqlab.core.errors import UsageError
from seqlab.core.units import (
    Budget,
    human_count,
    human_flops,
    human_p,
    human_perplexity,
    human_seconds,
    number_of,
    parse_budget,
    parse_split,
)


@pytest.mark.parametrize(
    ("text", "budget"),
    [
        ("60s", Budget(60, "seconds")),
        ("5m", Budget(300, "seconds")),
        ("1.5h", Budget(5400, "seconds")),
        ("2000steps", Budget(2000, "steps")),
        ("1 step", Budget(1, "steps")),
        ("5Mtokens", Budget(5_000_000, "tokens")),
        ("300k tokens", Budget(300_000, "tokens")),
        ("3epochs", Budget(3, "epochs")),
    ],
)
def test_budgets_people_write(text: str, budget: Budget) -> None:
    assert parse_budget(text) == budget


@pytest.mark.parametrize(
    "text",
    ["", "60", "fast", "0s", "-5s", "5Ms", "nan s", "10 parsecs", "1e3s"],
)
def test_what_is_no_budget_is_refused_with_examples(text: str) -> None:
    with pytest.raises(UsageError, match="60s, 5m, 1h"):
        parse_budget(text)


@pytest.mark.parametrize(
    ("text", "most"),
    [
        ("9" * 400 + "s", "the most is a year"),
        ("999999999999h", "the most is a year"),
        ("8785h", "the most is a year"),
        ("99999999999999steps", "the most is 1,000,000,000 steps"),
        ("1000Gtokens", None),
        ("10001Gtokens", "the most is 10,000,000 M tokens"),
        ("1000001epochs", "the most is 1,000,000 epochs"),
        ("8784h", None),
    ],
)
def test_a_budget_that_nobody_means_is_refused(text: str, most: str | None) -> None:
    if most is None:
        assert parse_budget(text).amount > 1e6
        return
    with pytest.raises(UsageError, match=most):
        parse_budget(text)


def test_one_of_a_thing_is_singular() -> None:
    assert [number_of(n, "step") for n in (0, 1, 2, 2000)] == ["0 steps", "1 step", "2 steps", "2,000 steps"]


def test_splits() -> None:
    assert parse_split("80/10/10") == (0.8, 0.1, 0.1)
    assert parse_split("90/10") == (0.9, 0.1, 0.0)


@pytest.mark.parametrize("text", ["90", "90/20", "0/100", "100/0", "a/b", "50/25/25/0", "110/-10", "nan/10", "inf/10"])
def test_bad_splits_are_refused(text: str) -> None:
    with pytest.raises(UsageError, match="split"):
        parse_split(text)


def test_amounts_are_readable() -> None:
    assert [human_seconds(s) for s in (0.84, 45.2, 185, 7800)] == ["0.8 s", "45 s", "3 min 05 s", "2 h 10 min"]
    assert [human_count(n) for n in (950, 12_345, 4_050_000)] == ["950", "12.3 K", "4.05 M"]
    assert [human_flops(n) for n in (950, 310e6, 5.12e12, 1.5e19)] == [
        "950 FLOP",
        "310 MFLOP",
        "5.12 TFLOP",
        "15,000 PFLOP",
    ]


@pytest.mark.parametrize("scale", [1e3, 1e6, 1e9, 1e12, 1e15])
def test_a_count_that_rounds_to_a_thousand_takes_the_next_letter(scale: float) -> None:
    letter = human_count(2 * scale).removeprefix("2 ")
    assert human_count(0.99951 * scale) == human_count(scale) == f"1 {letter}"
    assert human_flops(0.99951 * scale) == human_flops(scale) == f"1 {letter.replace('K', 'k')}FLOP"
    assert human_count(0.9994 * scale).startswith("999")
    assert human_flops(0.9994 * scale).startswith("999")


@pytest.mark.parametrize(
    ("value", "words"),
    [
        *(
            (1.0, "1.000"),
            (3.71346, "3.713"),
            (9.9996, "10.00"),
            (72.714, "72.71"),
            (99.996, "100.0"),
            (461.04, "461.0"),
        ),
        *((999.96, "1,000"), (2070.4, "2,070"), (1_234_567.8, "1,234,568"), (1.234e12, "1.23e+12")),
        (float("inf"), "∞"),
    ],
)
def test_a_perplexity_has_no_digits_that_say_nothing(value: float, words: str) -> None:
    assert human_perplexity(value) == words


def test_a_p_value_is_never_shown_on_the_other_side_of_its_limit() -> None:
    shown = {p: human_p(p) for p in (1.0, 0.311, 0.05, 0.0504, 0.0497, 0.049999, 0.0312, 0.0022, 0.0004)}
    assert list(shown.values()) == [
        *("p = 1", "p = 0.31", "p = 0.05", "p = 0.0504", "p = 0.0497", "p = 0.049999", "p = 0.031", "p = 0.0022"),
        "p < 0.001",
    ]
