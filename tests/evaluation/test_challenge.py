"""The challenge set is what it says, and models of known powers get what they deserve."""

from collections import Counter
from collections.abc import Sequence

import numpy as np
import pytest

from seqlab.core.errors import UsageError
from seqlab.evaluation.challenge import KINDS, Pair, challenge_pairs, run_challenge, sentiment_classes
from seqlab.evaluation.predicting import Predict, Probabilities
from seqlab.evaluation.text_pieces import find_sentences, word_forms

PAIRS = challenge_pairs()
LABELS = {text: label for p in PAIRS for text, label in ((p.first, p.first_label), (p.second, p.second_label))}


def bag(text: str) -> Counter[str]:
    return Counter(word_forms(text))


def distance(a: str, b: str) -> int:
    return ((bag(a) - bag(b)) + (bag(b) - bag(a))).total()


def of_kind(kind: str) -> list[Pair]:
    return [pair for pair in PAIRS if pair.kind == kind]


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_there_are_fifty_pairs_of_each_kind_with_both_labels_first(kind: str) -> None:
    pairs = of_kind(kind)
    assert len(pairs) >= 50
    firsts = Counter(pair.first_label for pair in pairs)
    assert min(firsts["negative"], firsts["positive"]) >= len(pairs) / 3


def test_every_pair_is_opposite_and_every_text_is_clean() -> None:
    assert {pair.kind for pair in PAIRS} == set(KINDS)
    assert len(LABELS) == 2 * len(PAIRS)  # no text twice
    for pair in PAIRS:
        assert {pair.first_label, pair.second_label} == {"negative", "positive"}
        for text in (pair.first, pair.second):
            assert text == " ".join(text.split())
            assert text[0].isupper()
            assert text[-1] in ".!?"


def test_no_two_pairs_differ_by_a_word() -> None:
    """Between texts of different pairs more than an exchanged word (two, as bags) is different."""
    texts = [text for pair in PAIRS for text in (pair.first, pair.second)]
    vocabulary = {form: i for i, form in enumerate(sorted({form for text in texts for form in word_forms(text)}))}
    counts = np.zeros((len(texts), len(vocabulary)), np.int32)
    for row, text in zip(counts, texts, strict=True):
        np.add.at(row, [vocabulary[form] for form in word_forms(text)], 1)
    for i, row in enumerate(counts):
        apart = np.abs(counts - row).sum(1)
        apart[i - i % 2 : i - i % 2 + 2] = 99  # the pair itself
        assert apart.min() > 2, (texts[i], texts[apart.argmin()])


def test_who_counts_words_cannot_win_the_contrasts() -> None:
    """Nearly all are the same words in another order (tense apart), so that no sum over words gets both."""
    same = [bag(pair.first) == bag(pair.second) for pair in of_kind("contrast")]
    near = [distance(pair.first, pair.second) <= 4 for pair in of_kind("contrast")]
    assert sum(same) >= 0.75 * len(same)
    assert all(near)


def test_the_negations_share_most_of_their_words() -> None:
    for pair in of_kind("negation"):
        shared = (bag(pair.first) & bag(pair.second)).total()
        assert shared >= 0.4 * min(bag(pair.first).total(), bag(pair.second).total()), pair


def test_praise_and_blame_take_several_sentences() -> None:
    for pair in of_kind("praise then blame"):
        assert min(len(find_sentences(pair.first)), len(find_sentences(pair.second))) >= 3
        shared = (bag(pair.first) & bag(pair.second)).total()
        assert shared >= 0.5 * bag(pair.first).total(), pair


def model(positive: Sequence[str]) -> Predict:
    """Classes negative, neutral, positive, of which neutral is always likeliest."""

    def predict(texts: Sequence[str]) -> Probabilities:
        return np.array([[0.1, 0.6, 0.3] if text in positive else [0.3, 0.6, 0.1] for text in texts])

    return predict


def test_a_perfect_model_a_constant_one_and_one_that_is_always_wrong() -> None:
    n = len(PAIRS)
    perfect = run_challenge(model([text for text, label in LABELS.items() if label == "positive"]), 0, 2)
    assert (perfect.total.texts_right, perfect.total.pairs_right, perfect.total.unchanged) == (2 * n, n, 0)
    constant = run_challenge(model([]), 0, 2)
    assert (constant.total.texts_right, constant.total.pairs_right, constant.total.unchanged) == (n, 0, n)
    assert constant.positive == pytest.approx(0.25)
    inverted = run_challenge(model([text for text, label in LABELS.items() if label == "positive"]), 2, 0)
    assert (inverted.total.texts_right, inverted.total.pairs_right, inverted.total.unchanged) == (0, 0, 0)
    undecided = run_challenge(lambda texts: np.zeros((len(texts), 2)), 0, 1)
    assert (undecided.total.texts_right, undecided.total.unchanged) == (0, n)
    assert (undecided.positive == 0.5).all()


def test_each_kind_is_counted_apart() -> None:
    contrasts = of_kind("contrast")
    known = [p.first if p.first_label == "positive" else p.second for p in contrasts]
    negation = next(p for p in of_kind("negation") if p.first_label == "positive")
    result = run_challenge(model([*known, negation.first, negation.second]), 0, 2)
    rows = {kind.kind: kind for kind in result.kinds}
    assert tuple(rows) == KINDS
    assert rows["contrast"].pairs_right == rows["contrast"].pairs == len(contrasts)
    assert rows["negation"].pairs_right == 0
    assert rows["negation"].texts_right == rows["negation"].pairs == rows["negation"].unchanged
    place = PAIRS.index(negation)
    assert result.right[place].tolist() == [True, False]
    as_json = result.as_json()
    assert as_json["kinds"][1] == {
        "kind": "contrast",
        "texts": 2 * len(contrasts),
        "texts_right": 2 * len(contrasts),
        "pairs": len(contrasts),
        "pairs_right": len(contrasts),
        "unchanged": 0,
    }
    assert as_json["all"]["pairs"] == len(PAIRS)


@pytest.mark.parametrize("seed", range(5))
def test_no_sum_over_words_wins_pairs_of_the_same_words(seed: int) -> None:
    weights: dict[str, float] = {}
    random = np.random.default_rng(seed)

    def predict(texts: Sequence[str]) -> Probabilities:
        sums = [sum(weights.setdefault(w, random.normal()) for w in sorted(word_forms(text))) for text in texts]
        p = 1 / (1 + np.exp(-np.array(sums)))
        return np.stack([1 - p, p], 1)

    result = run_challenge(predict, 0, 1)
    same = np.array([bag(pair.first) == bag(pair.second) for pair in PAIRS])
    assert (result.right[same].sum(1) == 1).all()


@pytest.mark.parametrize(
    ("names", "classes"),
    [
        (["negative", "positive"], (0, 1)),
        (["Pos", "NEG"], (1, 0)),
        (["good", "so-so", "Bad "], (2, 0)),
        (["neutral", "positive", "negative"], (2, 1)),
        (["ham", "spam"], None),
        (["good", "negative"], None),
        (["0", "1"], None),
        ([], None),
    ],
)
def test_classes_recognised_as_sentiment(names: list[str], classes: tuple[int, int] | None) -> None:
    assert sentiment_classes(names) == classes


def test_a_positive_class_that_was_said() -> None:
    assert sentiment_classes(["1", "0"], positive="1") == (1, 0)
    assert sentiment_classes(["great", "meh", "bad"], positive="great") == (2, 0)
    assert sentiment_classes(["a", "b", "c"], positive="a") is None
    assert sentiment_classes(["bad", "b", "c"], positive="bad") is None
    with pytest.raises(UsageError, match="did you mean 'great'"):
        sentiment_classes(["great", "bad"], positive="grat")


def test_wrong_classes_are_refused() -> None:
    with pytest.raises(UsageError, match="two different classes"):
        run_challenge(model([]), 1, 1)
    with pytest.raises(UsageError, match="with 3 classes"):
        run_challenge(model([]), 0, 3)
