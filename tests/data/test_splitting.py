"""Splits of labelled rows: nothing on two sides, shares within labels, honest notes; and leaks."""

import re
from collections import Counter, defaultdict
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from seqlab.core.errors import DataError, UsageError
from seqlab.data.duplicates import clusters_of, normalised
from seqlab.data.leaks import ROWS
from seqlab.data.placing import label_targets
from seqlab.data.splitting import Split, duplicate_sets, leaks, split_rows

SHARES = (0.8, 0.1, 0.1)


def distinct(count: int) -> list[str]:
    return [f"text number {k}" for k in range(count)]


def parts_of(split: Split) -> list[list[int]]:
    return [split.train.tolist(), split.validation.tolist(), split.test.tolist()]


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("The film.", "the  FILM\n!", True),
        ("it 's good", "It's good", True),
        ("Straße", "STRASSE", True),
        ("cafe\u0301", "café", True),
        ("well—done", "well done", True),
        ("don't", "dont", False),
        ("1 + 1", "1 1", False),
        ("great ☺", "great ☹", False),
        (":-)", ":-(", False),
        (":-)", " :-) ", True),
        ("", " \t", True),
        ("की", "का", False),
        ("good film", "good\u200b film", True),
        ("good film", "\ufeffgood film", True),
        ("\u2764 it", "\u2764\ufe0f it", True),
    ],
)
def test_what_counts_as_the_same_text(one: str, other: str, same: bool) -> None:
    assert (normalised(one) == normalised(other)) is same


def test_duplicates_point_to_the_first() -> None:
    texts = ["a b", "c", "A, B!", "C", "d", "a b"]
    assert duplicate_sets(texts).tolist() == [0, 1, 0, 1, 4, 0]
    assert duplicate_sets([]).tolist() == []


def plain_clusters(texts: list[str], groups: list[str] | None) -> list[int]:
    """Union by relabelling, quadratic and obvious."""
    of = list(range(len(texts)))
    for i in range(len(texts)):
        for j in range(i):
            same_group = groups is not None and groups[i] and groups[i] == groups[j]
            if normalised(texts[i]) == normalised(texts[j]) or same_group:
                of = [of[j] if c == of[i] else c for c in of]
    numbers: dict[int, int] = {}
    return [numbers.setdefault(c, len(numbers)) for c in of]


rows_strategy = st.lists(
    st.tuples(
        st.sampled_from("abcdefghijklmnopqrstuvwxyzABC"), st.sampled_from("xyz"), st.sampled_from(["", *"1234567"])
    ),
    min_size=3,
    max_size=30,
)


@given(rows=rows_strategy, grouped=st.booleans())
def test_clusters_equal_a_plain_union(rows: list[tuple[str, str, str]], grouped: bool) -> None:
    texts = [text for text, _, _ in rows]
    groups = [group for _, _, group in rows] if grouped else None
    assert clusters_of(duplicate_sets(texts), groups).tolist() == plain_clusters(texts, groups)


@settings(max_examples=200)
@given(rows=rows_strategy, grouped=st.booleans(), shares=st.sampled_from([SHARES, (0.5, 0.5, 0.0), (0.2, 0.4, 0.4)]))
def test_what_always_holds(rows: list[tuple[str, str, str]], grouped: bool, shares: tuple[float, float, float]) -> None:
    texts, labels = [text for text, _, _ in rows], [label for _, label, _ in rows]
    groups = [group for _, _, group in rows] if grouped else None
    clusters = plain_clusters(texts, groups)
    try:
        split = split_rows(texts, labels, groups, shares, 7)
    except DataError as error:
        # Refused only where it cannot be done: with c clusters and 3 labels, 3 may have to stay in training.
        assert "\n" not in str(error)
        assert len(set(clusters)) < len(set(labels)) + 2
        return
    parts = parts_of(split)
    assert sorted(row for part in parts for row in part) == list(range(len(rows)))
    assert all(part == sorted(part) for part in parts)
    of = {row: k for k, part in enumerate(parts) for row in part}
    assert all(len({of[row] for row in range(len(rows)) if clusters[row] == c}) == 1 for c in set(clusters))
    assert [bool(part) for part in parts] == [share > 0 for share in shares]
    unseen = set(labels) - {labels[row] for row in parts[0]}
    assert not unseen or (grouped and any("in no training row" in note for note in split.notes))
    again = split_rows(texts, labels, groups, shares, 7)
    assert parts_of(again) == parts
    assert split.duplicates == len(rows) - len({normalised(text) for text in texts})
    seen_with = defaultdict(set)
    for text, label in zip(texts, labels, strict=True):
        seen_with[normalised(text)].add(label)
    assert split.contradictions == sum(len(seen_with[normalised(text)]) > 1 for text in texts)


@pytest.mark.parametrize("shares", [SHARES, (0.7, 0.2, 0.1), (0.9, 0.1, 0.0)])
def test_shares_hold_within_each_label(shares: tuple[float, float, float]) -> None:
    labels = ["a"] * 500 + ["b"] * 73 + ["c"] * 30 + ["d"] * 11
    split = split_rows(distinct(len(labels)), labels, None, shares, 3)
    for part, share in zip(parts_of(split), shares, strict=True):
        counts = Counter(labels[row] for row in part)
        for name, whole in Counter(labels).items():
            assert abs(counts[name] - share * whole) < 2, (name, share)
        assert abs(len(part) - share * len(labels)) <= 2
    assert split.notes == ()


@given(
    counts=st.lists(st.integers(1, 40), min_size=1, max_size=30),
    held=st.floats(0.01, 0.9),
    tested=st.floats(0, 1),
    seed=st.integers(0, 99),
)
def test_targets_are_shares_rounded_up_or_down(counts: list[int], held: float, tested: float, seed: int) -> None:
    n = np.array(counts)
    shares = (1 - held, held * (1 - tested), held * tested)
    targets = label_targets(n, shares, np.random.default_rng(seed))
    assert (targets.sum(axis=1) == n).all()
    assert (targets >= 0).all()
    assert (targets[:, 0] >= 1).all()
    out = targets[:, 1:].sum(axis=1)
    assert (out >= np.minimum(np.floor(held * n - 1e-5), n - 1)).all()
    assert (out <= np.ceil(held * n + 1e-5)).all()
    assert out.sum() <= held * n[n > 1].sum() + 1


def test_many_small_labels_give_their_shares_together() -> None:
    labels = [f"label {k % 1000}" for k in range(2000)]
    split = split_rows(distinct(2000), labels, None, SHARES, 0)
    assert [len(part) for part in parts_of(split)] == pytest.approx([1600, 200, 200], abs=2)
    assert {labels[row] for row in split.train} == set(labels)
    assert "of 1,000 labels ('label 0'" in " ".join(split.notes)


def test_large_counts_are_exact_and_seeds_differ() -> None:
    labels = ["n"] * 1250 + ["p"] * 1250
    split = split_rows(distinct(2500), labels, None, SHARES, 1)
    assert [Counter(labels[row] for row in part) for part in parts_of(split)] == [
        {"n": 1000, "p": 1000},
        {"n": 125, "p": 125},
        {"n": 125, "p": 125},
    ]
    other = split_rows(distinct(2500), labels, None, SHARES, 2)
    assert len(set(split.test.tolist()) & set(other.test.tolist())) < 60  # 25 by chance


def test_duplicates_are_spread_like_all_rows() -> None:
    """Ties must not all end in training: pairs of equal texts are held out as often as single rows."""
    texts = [f"pair {k // 2}" for k in range(1000)] + distinct(1000)
    labels = [f"{k // 2 % 2}" for k in range(2000)]
    split = split_rows(texts, labels, None, SHARES, 0)
    tied = [sum(row < 1000 for row in part) for part in parts_of(split)]
    assert tied == pytest.approx([800, 100, 100], abs=4)
    assert [len(part) for part in parts_of(split)] == pytest.approx([1600, 200, 200], abs=2)
    assert split.duplicates == 500
    assert "500 rows repeat the text of an earlier one" in split.notes[0]


def test_groups_stay_whole_and_labels_keep_their_shares() -> None:
    draw = np.random.default_rng(5)
    labels = [f"{k}" for k in draw.integers(3, size=3000)]
    groups = [f"author {k}" for k in draw.integers(150, size=3000)]
    split = split_rows(distinct(3000), labels, groups, SHARES, 0)
    sides = [{groups[row] for row in part} for part in parts_of(split)]
    assert sum(map(len, sides)) == len(set(groups))
    for part, share in zip(parts_of(split), SHARES, strict=True):
        counts = Counter(labels[row] for row in part)
        assert all(abs(counts[name] / labels.count(name) - share) < 0.03 for name in "012")


def test_one_large_group_goes_to_training_and_the_note_says_what_came_of_it() -> None:
    labels = ["a", "b"] * 50
    groups = ["large"] * 90 + [f"{k}" for k in range(10)]
    split = split_rows(distinct(100), labels, groups, (0.5, 0.25, 0.25), 0)
    assert set(range(90)) <= set(split.train.tolist())
    assert any("% of the rows, not 50/25/25" in note for note in split.notes)


def test_contradictions_are_told() -> None:
    split = split_rows([*distinct(40), "Same.", "same", "same"], ["a", "b"] * 20 + ["a", "b", "a"], None, SHARES, 0)
    assert (split.duplicates, split.contradictions) == (2, 3)
    assert any("3 rows have the text of another row but another label" in note for note in split.notes)


def test_a_label_of_one_row_is_trained_on() -> None:
    for seed in range(20):
        split = split_rows(distinct(31), ["a"] * 30 + ["rare"], None, (0.4, 0.3, 0.3), seed)
        assert 30 in split.train
        assert any("validation row" in note and "'rare'" in note for note in split.notes)


def test_labels_that_groups_keep_out_of_training_are_told() -> None:
    split = split_rows(distinct(9), list("aaabbbccc"), list("111222333"), SHARES, 0)
    assert sorted(map(len, parts_of(split))) == [3, 3, 3]
    assert any("in no training row, since the groups leave no other way: 2 of 3 labels" in n for n in split.notes)


@pytest.mark.parametrize(
    ("labels", "groups", "message"),
    [
        (["a", "b"], None, "2 rows cannot be split into 3 parts"),
        (["a", "b", "c", "d"], None, "4 rows with 4 labels are too few for a validation part"),
        (["a", "a", "b"], None, "3 rows with 2 labels are too few for a test part"),
        (["a", "b", "a", "b"], ["g"] * 4, "leaves 1 to share out"),
    ],
)
def test_too_little_to_split(labels: list[str], groups: list[str] | None, message: str) -> None:
    with pytest.raises(DataError, match=message):
        split_rows(distinct(len(labels)), labels, groups, SHARES, 0)


def test_wrong_use() -> None:
    with pytest.raises(UsageError, match="different lengths"):
        split_rows(["a"], ["x", "y"], None, SHARES, 0)
    for shares in ((0.5, 0.1, 0.1), (0.0, 0.5, 0.5), (1.2, -0.1, -0.1)):
        with pytest.raises(UsageError, match="do not add up to 1"):
            split_rows(distinct(9), ["x"] * 9, None, shares, 0)


def clean_rows(count: int, classes: int = 2) -> tuple[list[str], list[str]]:
    draw = np.random.default_rng(0)
    words = [f"word{k}" for k in range(300)]
    texts = [" ".join(draw.choice(words, size=draw.integers(5, 60))) for _ in range(count)]
    return texts, [f"label {k % classes}" for k in range(count)]


@pytest.mark.parametrize("classes", [2, 7])
def test_clean_data_has_no_leak(classes: int) -> None:
    assert leaks(*clean_rows(1400, classes)) == ()
    assert leaks([], []) == ()
    assert leaks(["same"] * 100, ["a", "b"] * 50) == ()


def test_a_word_that_gives_a_label_away() -> None:
    texts, labels = clean_rows(1000, 4)
    texts = [f"{text} (Stars5)" if label == "label 2" else text for text, label in zip(texts, labels, strict=True)]
    texts[2], texts[0] = texts[0], texts[2]  # one exception on either side is still a leak
    (found,) = leaks(texts, labels)
    assert "one word gives the label 'label 2' away: 'stars5' stands in 99.6 % of its texts and in 0.1 %" in found
    third = [text.replace("Stars5", "") if k % 3 == 0 else text for k, text in enumerate(texts)]
    assert leaks(third, labels) == ()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda text: text * 20, r"have [\d,]+ or more characters"),
        (lambda text: text[:4], "have up to 4 characters"),
        (lambda text: "x" * 5000, r"have 5,000 or more characters"),
    ],
    ids=["long", "short", "constant"],
)
def test_a_length_that_gives_a_label_away(change: Callable[[str], str], message: str) -> None:
    texts, labels = clean_rows(1000, 5)
    texts = [
        change(f"{text:>30}") if label == "label 1" else f"{text:>30}"
        for text, label in zip(texts, labels, strict=True)
    ]
    found = [sentence for sentence in leaks(texts, labels) if "length alone gives the label 'label 1' away" in sentence]
    assert len(found) == 1
    assert re.search(message, found[0])


def test_a_length_between_those_of_the_others() -> None:
    lengths = {"a": range(10, 110), "b": range(200, 300), "c": range(500, 600)}
    texts = ["é" * n for span in lengths.values() for n in span]
    found = leaks(texts, [name for name, span in lengths.items() for _ in span])
    assert [sentence.split(" characters")[0].rsplit("have ", 1)[1] for sentence in found] == [
        "up to 108",
        "200 to 299",
        "501 or more",
    ]


def test_an_imbalance_alone_is_no_leak() -> None:
    texts, _ = clean_rows(3000)
    assert leaks(texts, ["rare" if k % 140 == 0 else "common" for k in range(3000)]) == ()
    few = ["telling word"] * 19 + texts
    assert leaks(few, ["few"] * 19 + ["many"] * 3000) == ()


def test_only_some_rows_are_looked_at_and_many_leaks_are_counted() -> None:
    count = ROWS + 10_000
    labels = [f"label{k % 10}" for k in range(count)]
    found = leaks([f"{label} x{k % 89}" for k, label in enumerate(labels)], labels)
    assert len(found) == 6
    assert found[-1] == "the same is true of 5 more labels"
    assert leaks([f"x{k % 89}" for k in range(count)], labels) == ()
