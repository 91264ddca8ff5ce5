"""BLEU and chrF with intervals, paired differences, and habits of translations."""

import random

import numpy as np
import pytest
import sacrebleu
from sacrebleu.metrics import BLEU
from sacrebleu.significance import PairedTest

from seqlab.core.errors import UsageError
from seqlab.evaluation.translation import bleu_of, difference_of, figures_of, habits, sentence_scores

WORDS = [
    "the",
    "a",
    "king",
    "went",
    "to",
    "his",
    "house",
    "and",
    "saw",
    "that",
    "it",
    "was",
    "good",
    "in",
    "those",
    "days",
    "of",
    "old",
]


def sentences(count: int, seed: int) -> list[str]:
    draw = random.Random(seed)
    return [" ".join(draw.choice(WORDS) for _ in range(draw.randint(6, 16))) + " ." for _ in range(count)]


def spoilt(texts: list[str], share: float, seed: int) -> list[str]:
    """Every word is exchanged with this probability."""
    draw = random.Random(seed)
    return [" ".join(draw.choice(WORDS) if draw.random() < share else word for word in t.split()) for t in texts]


REFERENCES = sentences(200, 0)
GOOD, BAD = spoilt(REFERENCES, 0.2, 1), spoilt(REFERENCES, 0.3, 2)


def test_scores_and_signatures_are_those_of_sacrebleu() -> None:
    found = figures_of(GOOD, REFERENCES, BAD)
    assert found.bleu.score == sacrebleu.corpus_bleu(GOOD, [REFERENCES]).score == bleu_of(GOOD, REFERENCES)
    assert found.chrf.score == sacrebleu.corpus_chrf(GOOD, [REFERENCES]).score
    assert "tok:13a" in found.bleu.signature
    assert found.as_json()["n"] == 200
    lowered = figures_of([text.upper() for text in GOOD], REFERENCES, BAD, lowercase=True)
    assert lowered.bleu.score == pytest.approx(found.bleu.score)
    assert "case:lc" in lowered.bleu.signature


def test_the_interval_is_that_of_sacrebleus_own_bootstrap() -> None:
    found = figures_of(GOOD, REFERENCES, BAD).bleu
    metric = BLEU()
    theirs = metric.corpus_score(GOOD, [REFERENCES], n_bootstrap=1000)
    low, high = found.interval
    assert low < found.score < high
    assert (high - low) / 2 == pytest.approx(theirs._ci, rel=0.15)
    assert (high + low) / 2 == pytest.approx(theirs._mean, abs=0.4)


def test_intervals_cover_the_score_of_many_sentences() -> None:
    """Sentences of one source of translations: the score of 4,000 is nearly the truth."""
    references = sentences(4000, 5)
    made = spoilt(references, 0.25, 6)
    truth = bleu_of(made, references)
    draw = np.random.default_rng(7)
    covered = 0
    for _ in range(40):
        rows = draw.permutation(4000)[:150]
        low, high = figures_of([made[k] for k in rows], [references[k] for k in rows], [""] * 150).bleu.interval
        covered += low <= truth <= high
    assert covered >= 34  # 95 % of 40 are 38; three standard errors less is 34


def test_the_paired_difference_is_sacrebleus_test() -> None:
    found = difference_of(GOOD, BAD, REFERENCES)
    assert found.value == pytest.approx(bleu_of(GOOD, REFERENCES) - bleu_of(BAD, REFERENCES))
    assert found.interval[0] > 0
    assert found.p < 0.01
    _, scores = PairedTest(
        [("bad", BAD), ("good", GOOD)],
        {"BLEU": BLEU(references=[REFERENCES])},
        [REFERENCES],
        test_type="bs",
        n_samples=1000,
    )()
    assert scores["BLEU"][1].p_value == pytest.approx(found.p, abs=0.01)
    same = difference_of(GOOD, GOOD, REFERENCES)
    assert (same.value, same.interval, same.p) == (0, (0, 0), 1)


def test_alike_systems_are_not_called_different() -> None:
    """Two spoilings of the same strength: at the level of 5 % few of 40 pairs stand out."""
    wrong = 0
    for seed in range(40):
        pair = (spoilt(REFERENCES[:100], 0.3, 100 + seed), spoilt(REFERENCES[:100], 0.3, 900 + seed))
        wrong += difference_of(*pair, REFERENCES[:100]).p < 0.05
    assert wrong <= 6


def test_habits_by_hand() -> None:
    found = habits(["a b c d a b c d", "x", "y y"], ["a b c d", "x z", "y"], ["a", "x", "y y"])
    assert found.length_ratio == pytest.approx(11 / 7)
    assert found.repeated == pytest.approx(1 / 5)  # of five phrases of four words, "a b c d" comes twice
    assert found.copied == pytest.approx(2 / 3)


def test_sentences_are_ranked_by_chrf() -> None:
    scores = sentence_scores(["the king", "zzz"], ["the king", "the king"])
    assert scores[0] == pytest.approx(100)
    assert scores[1] < 10


def test_other_counts_are_refused() -> None:
    with pytest.raises(UsageError, match="2 translations and 1 references"):
        figures_of(["a", "b"], ["a"], ["a", "b"])
    with pytest.raises(UsageError, match="0 translations"):
        bleu_of([], [])
