"""The words and rows of the error page, from figures that are made up."""

import re
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from seqlab.diagnostics.attribution import Pushes
from seqlab.evaluation.causes import Causes, Examined, Example
from seqlab.evaluation.challenge import ChallengeResult, KindResult
from seqlab.evaluation.classification import Rate
from seqlab.evaluation.edits import KINDS, MEANINGS
from seqlab.evaluation.slices import Slice
from seqlab.workflows.classify.errors import ErrorAnalysis, Mistake
from seqlab.workflows.classify.errors_page import error_values
from seqlab.workflows.classify.explain import GRADIENTS

LABELS = ("negative", "positive")


def causes(counts: dict[str, tuple[int, int, int, int]], *, errors: int, examined: int, none: int) -> Causes:
    """kind -> mended of so many, upset of so many; nothing for the others."""
    table = {kind: counts.get(kind, (0, 0, 0, 0)) for kind in KINDS}
    return Causes(
        errors=errors,
        examined=tuple(Examined(k, ()) for k in range(examined)),
        counts={kind: row[0] for kind, row in table.items()},
        applicable={kind: row[1] for kind, row in table.items()},
        none=none,
        base_rates={kind: row[2:] for kind, row in table.items()},
        shuffled=(3, 1200),
    )


def values(found: Causes, mistakes: list[Mistake] | None = None, challenge: Any = None) -> dict[str, Any]:
    run: Any = SimpleNamespace(settings=SimpleNamespace(model=SimpleNamespace(kind="gru")))
    measured: Any = SimpleNamespace(figures=SimpleNamespace(accuracy=SimpleNamespace(value=0.75)))
    data: Any = SimpleNamespace(labels=LABELS)
    slices = [(Slice("short", "texts of one word", np.ones(4, bool)), Rate(1, 4))]
    return error_values(run, data, ErrorAnalysis(slices, challenge, found, mistakes or [], measured))


def test_only_an_excess_that_may_be_nothing_could_be_luck() -> None:
    counts = {"negation": (90, 100, 5, 100), "contrast": (10, 20, 9, 20), "ending": (2, 50, 40, 50)}
    shown = values(causes(counts, errors=200, examined=200, none=80))
    rows = {row[0]: row for row in shown["causes"]}
    assert [row[0] for row in shown["causes"]] == list(KINDS)
    assert rows["negation"][1:4] == [MEANINGS["negation"], "90 of 100 (90 %)", "5 of 100 (5 %)"]
    assert re.fullmatch(r"\+85 % \(\+7\d to \+9\d\)", rows["negation"][4])
    assert re.fullmatch(r"\+5 % \(-\d+ to \+\d+\): could be luck", rows["contrast"][4])
    assert re.fullmatch(r"-76 % \(-8\d to -6\d\)", rows["ending"][4])
    assert rows["opening"][2:] == ["0 of 0 (–)", "0 of 0 (–)", "–"]
    assert shown["shuffled"] == "Shuffling the words changed the decision in 3 of 1,200 texts."
    assert shown["no_cause"] == "80 of 200"


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (causes({}, errors=0, examined=0, none=0), "There is no error to examine."),
        (
            causes({"negation": (90, 100, 5, 100)}, errors=120, examined=120, none=30),
            "All 120 errors were examined: 90 have a cause that a test on the model supports, 30 have none. "
            "Mended more often than luck explains: negation.",
        ),
        (
            causes({"negation": (9, 100, 5, 100)}, errors=5000, examined=500, none=491),
            "Of 5,000 errors 500, drawn at random from texts up to 100,000 characters, were examined: 9 have a cause "
            "that a test on the model supports, 491 have none. No kind of edit mends errors more often than it upsets "
            "right decisions: none of them explains the errors.",
        ),
    ],
)
def test_what_is_said_of_the_causes(found: Causes, expected: str) -> None:
    assert values(found)["causes_sentence"] == expected


def test_a_mistake_says_what_mends_it_and_in_which_direction_it_goes() -> None:
    def mistake(direction: tuple[int, int], kind: str, mended: tuple[str, ...] | None, gap: float = 0.0) -> Mistake:
        pushes = Pushes(((0, 3), (4, 8)), np.array([0.5, -0.25]), gap)
        return Mistake(Example(direction, kind, 0, 0.875), 1234, "not good", pushes, mended)

    some = [
        mistake((0, 1), "confident", ("a", "b", "c", "d")),
        mistake((0, 1), "confident", (), 0.125),
        mistake((0, 1), "near neutral", None),
        mistake((1, 0), "confident", ("left out 'not'",), 0.03),
    ]
    shown = values(causes({}, errors=4, examined=3, none=1), some)
    assert [(title, len(rows)) for title, rows in shown["directions"]] == [
        ("negative taken for positive (false positives): the most confident", 2),
        ("negative taken for positive (false positives): the nearest to undecided", 1),
        ("positive taken for negative (false negatives): the most confident", 1),
    ]
    rows = [row for _, rows in shown["directions"] for row in rows]
    assert [row["what"] for row in rows] == ["row 1,234; positive with 87.5 %"] * 3 + [
        "row 1,234; negative with 87.5 %"
    ]
    mended = ["What mends it: a; b; c.", "No edit that was tried mends it.", "", "What mends it: left out 'not'."]
    assert [row["causes"] for row in rows] == mended
    assert shown["method"] == f"{GRADIENTS}; they add up to the change of the margin, off by 0.12 at most"
    styles = re.findall(r'rgba\((\d+),(\d+),(\d+),([\d.]+)\)" title="([-+.\d]+)"', str(rows[0]["words"]))
    assert styles == [("213", "94", "0", "0.55", "+0.500"), ("0", "114", "178", "0.28", "-0.250")]


def test_pairs_of_the_challenge_set_are_counted_as_pairs_and_as_texts() -> None:
    kinds = (KindResult("negation", 16, 11, 8, 3, 5), KindResult("contrast", 2384, 1989, 1192, 897, 115))
    nothing = np.zeros((1200, 2))
    challenge = ChallengeResult(kinds, nothing, nothing.astype(bool))
    shown = values(causes({}, errors=0, examined=0, none=0), challenge=challenge)
    assert shown["challenge"] == [
        ["negation", "8", "11 of 16", "3 (38 %)", "5 (62 %)"],
        ["contrast", "1,192", "1,989 of 2,384", "897 (75 %)", "115 (10 %)"],
        ["all", "1,200", "2,000 of 2,400", "900 (75 %)", "120 (10 %)"],
    ]
    assert shown["challenge_sentence"].startswith("Of 1,200 pairs both texts are right in 900 (75 %); in 120 the ")
