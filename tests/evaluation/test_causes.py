"""Models with known faults: the fault is named for the texts that have it, and for no other."""

import zlib
from collections.abc import Callable, Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from seqlab.core.errors import UsageError
from seqlab.evaluation import predicting
from seqlab.evaluation.causes import KEPT, Causes, find_causes, pick_examples
from seqlab.evaluation.edits import KINDS, MEANINGS, MOST_WORDS, proposals, shuffles
from seqlab.evaluation.predicting import Predict, Probabilities, predict_each
from seqlab.evaluation.text_pieces import find_sentences, word_forms

SCORES = {"good": 1.0, "lovely": 1.0, "fine": 1.0, "bad": -1.0, "dull": -1.0, "poor": -1.0}
NEGATIVE, POSITIVE = 0, 1


def by_score(score: Callable[[str], float]) -> Predict:
    """p(positive) = σ(score); an even score is positive."""

    def predict(texts: Sequence[str]) -> Probabilities:
        p = 1 / (1 + np.exp(-np.array([score(text) for text in texts]) - 1e-3))
        return np.stack([1 - p, p], 1)

    return predict


def sum_of_words(text: str) -> float:
    return sum(SCORES.get(form, 0.0) for form in word_forms(text))


overlooks_not = by_score(sum_of_words)
not_is_blame = by_score(lambda text: sum_of_words(text) - 3.0 * word_forms(text).count("not"))
first_sentence_only = by_score(lambda text: sum_of_words(find_sentences(text)[0].text) if find_sentences(text) else 0.0)


def examine(texts: Sequence[str], truth: Sequence[int], predict: Predict, **how: int) -> Causes:
    return find_causes(texts, np.array(truth), predict(texts), predict, **how)


def supporting(causes: Causes, kind: str) -> list[int]:
    return [one.index for one in causes.examined if kind in one.kinds]


def test_overlooked_negation_is_found_where_it_was_planted() -> None:
    texts = [
        "this is bad and dull but not good and not lovely, not fine",  # planted: praise that is denied
        "bad and poor. I do not say good, nor lovely, never fine",  # planted
        "good good lovely, and not at noon",  # a wrong label: the negation denies nothing that counts
        "good lovely fine",  # a wrong label
        "not seen before, good",  # right
        "bad and dull",  # right
    ]
    causes = examine(texts, [0, 0, 0, 0, 1, 0], overlooks_not)
    assert supporting(causes, "negation") == [0, 1]
    assert causes.counts["negation"] == 2
    assert causes.applicable["negation"] == 3
    assert [one.index for one in causes.examined if not one.supported] == [2, 3]
    assert (causes.errors, causes.none) == (4, 2)
    best = causes.examined[0].supported[0]
    assert best.kind == "negation"
    assert "'not good" in best.words
    assert "'not lovely" in best.words


def test_negation_taken_for_blame_is_mended_by_leaving_it_out() -> None:
    texts = ["you should not miss this good film", "bad, so bad, and bad", "it is not good"]
    causes = examine(texts, [1, 1, 0], not_is_blame)
    assert [one.index for one in causes.examined] == [0, 1]
    assert supporting(causes, "negation") == [0]
    assert "left out 'not'" in [edit.words for edit in causes.examined[0].supported]
    assert "you should miss this good film" in [edit.text for edit in causes.examined[0].supported]
    assert causes.counts["one word"] == 0  # the same edit counts once, as negation


def test_contractions_are_mended_by_their_verb() -> None:
    predict = by_score(lambda text: 2.0 if text.startswith(("He is ", "Do ")) else -2.0)
    for text, words in [("He isn't late", "'isn't' -> 'is'"), ("Don't wait", "'Don't' -> 'Do'")]:
        causes = examine([text], [1], predict)
        assert [edit.words for edit in causes.examined[0].supported] == [words]


def test_a_model_that_reads_the_first_sentence_only() -> None:
    texts = [
        "Good and lovely. Then it turns. It is dull.",  # the last sentence, or the last two
        "Bad. However it is good. In the end lovely.",
        "Fine and good. But on the whole dull",  # also what follows "but"
        "It is dull, the end is bad.",  # a wrong label
    ]
    causes = examine(texts, [0, 1, 0, 1], first_sentence_only)
    assert supporting(causes, "ending") == [0, 1, 2]
    assert supporting(causes, "contrast") == [1, 2]
    assert supporting(causes, "opening") == []
    assert causes.none == 1


def test_a_model_that_forgets_how_a_text_began() -> None:
    last_only = by_score(lambda text: sum_of_words(find_sentences(text)[-1].text) if find_sentences(text) else 0.0)
    causes = examine(["Good. Some say it is dull.", "Dull. Some say it is good."], [1, 0], last_only)
    assert supporting(causes, "opening") == [0, 1]
    assert causes.counts["ending"] == 0


def test_one_word_is_named() -> None:
    predict = by_score(lambda text: sum_of_words(text) + 9.0 * ("Kubrick" in text))
    causes = examine(["this film by Kubrick is bad", "this film by him is dull", "so dull"], [0, 0, 1], predict)
    edits = {one.index: [edit.words for edit in one.supported] for one in causes.examined}
    # without "dull" nothing speaks for either class, and an even score is positive
    assert edits == {0: ["left out 'Kubrick'"], 2: ["left out 'dull'"]}
    assert causes.examined[0].supported[0].text == "this film by is bad"
    assert causes.examined[0].supported[0].probabilities == pytest.approx(predict(["bad"])[0])


def test_a_model_that_is_right_has_no_causes() -> None:
    causes = examine(["good", "bad film", "lovely"], [1, 0, 1], overlooks_not)
    assert causes.errors == causes.none == 0
    assert causes.examined == ()
    assert set(causes.counts.values()) == {0}
    assert set(causes.base_rates.values()) == {(0, 0)}


def test_no_cause_is_named_when_no_edit_helps() -> None:
    stubborn = by_score(lambda text: 5.0)
    texts = ["Not good. But bad, never fine!", "one", "", "a b. c d\ne"]
    causes = examine(texts, [0, 0, 0, 0], stubborn)
    assert causes.none == causes.errors == 4
    assert causes.counts == dict.fromkeys(KINDS, 0)
    assert causes.shuffled == (0, 2)


def test_base_rates_are_those_of_right_decisions() -> None:
    texts = ["it is not bad", "good film", "so lovely", "good, good", "dull and poor", "not bad but good good", "good"]
    causes = examine(texts, [1, 1, 1, 1, 0, 1, 0], overlooks_not)
    assert supporting(causes, "negation") == [0]  # only index 0 and 6 are wrong
    upset, controls = causes.base_rates["one word"]
    assert controls == 5
    assert upset == 0  # an even score is positive: no single word upsets a right decision of these
    assert causes.base_rates["negation"] == (0, 1)
    upset_blame = examine(["poor", "dull film", "dull, poor", "bad"], [0, 0, 0, 1], overlooks_not).base_rates
    assert upset_blame["one word"] == (1, 2)  # "dull film" without "dull" is positive; "poor" has no other word


def test_controls_are_as_confident_as_the_errors() -> None:
    sure, unsure = ["good lovely fine " * 3] * 1, "dull film"
    texts = [f"{sure[0]} {i}" for i in range(50)] + [f"{unsure} {i}" for i in range(10)] + ["good now", "dull then"]
    truth = [1] * 50 + [0] * 10 + [0, 1]
    causes = examine(texts, truth, overlooks_not, controls=10)
    assert causes.base_rates["one word"] == (10, 10)  # only the unsure ones were taken; "dull" upsets each


def test_wrong_labels_look_like_the_controls() -> None:
    """Labels flipped at random have no cause: the edits mend them as often as they upset the controls."""
    random = np.random.default_rng(8)
    vocabulary = [f"w{i}" for i in range(40)] + ["not", "but", "end."] * 3
    weights = dict(zip(vocabulary, random.normal(size=len(vocabulary)).tolist(), strict=True))
    predict = by_score(lambda text: 0.5 * sum(weights.get(form, 0.0) for form in word_forms(text)))
    texts = [" ".join(random.choice(vocabulary, size=12)) for _ in range(1500)]
    decided = predict(texts).argmax(1)
    causes = examine(texts, np.where(random.random(1500) < 0.7, decided, 1 - decided).tolist(), predict)
    for kind, (upset, controls) in causes.base_rates.items():
        n = causes.applicable[kind]
        p = (causes.counts[kind] + upset) / (n + controls)
        difference = causes.counts[kind] / n - upset / controls
        assert 0.05 < p < 0.95  # so that there is something to compare
        assert abs(difference) < 3 * np.sqrt(p * (1 - p) * (1 / n + 1 / controls)), kind
        assert causes.excess(kind)[0] == difference


def test_texts_that_are_too_long_are_counted_and_not_examined() -> None:
    endless = "bad " + "word " * 25_000
    causes = examine([endless, "a good film"], [1, 0], overlooks_not)
    assert causes.errors == 2
    assert [one.index for one in causes.examined] == [1]


def test_a_fault_that_was_planted_is_more_than_luck() -> None:
    """The classifier overlooks `not`; nothing but negation sets its errors apart from its right decisions."""
    texts = [f"this film is not bad {i}" for i in range(40)] + [f"bad film. Not long {i}" for i in range(40)]
    causes = examine(texts, [1] * 40 + [0] * 40, overlooks_not)
    assert (causes.counts["negation"], causes.base_rates["negation"]) == (40, (0, 40))
    assert causes.telling[0] == "negation"
    assert "one word" not in causes.telling  # "bad" left out mends the errors and upsets the others


def test_shuffling_changes_only_what_depends_on_order() -> None:
    texts = [f"good {'so ' * n} dull dull dull" for n in range(20)]
    assert examine(texts, [0] * 20, overlooks_not).shuffled == (0, 20)
    first_word = by_score(lambda text: sum_of_words(word_forms(text)[0]) if word_forms(text) else 0.0)
    changed, tried = examine(texts, [1] * 20, first_word).shuffled
    assert tried == 20
    assert changed > 5
    assert examine(["good good", "one", ""], [1, 1, 1], first_word).shuffled == (0, 0)


def noisy(text: str) -> float:
    """A model without sense, but the same each time."""
    return (zlib.crc32(text.encode()) % 1000) / 250 - 2


NOISE_TEXTS = [f"Not {i} is fine. But {i * 7 % 11} {'so ' * (i % 4)}dull" for i in range(60)]


@given(st.permutations(range(60)), st.integers(0, 3))
@settings(max_examples=8)
def test_neither_order_nor_chance_matter(order: list[int], seed: int) -> None:
    def summary(order: Sequence[int]) -> tuple[object, ...]:
        texts = [NOISE_TEXTS[i] for i in order]
        causes = examine(texts, [i % 2 for i in order], by_score(noisy), most=12, controls=9, seed=seed)
        edits = {texts[one.index]: [(edit.kind, edit.words) for edit in one.supported] for one in causes.examined}
        return edits, causes.counts, causes.applicable, causes.base_rates, causes.shuffled

    assert summary(order) == summary(range(60))


def test_many_errors_are_sampled_by_the_seed() -> None:
    truth = [i % 2 for i in range(60)]
    causes = [examine(NOISE_TEXTS, truth, by_score(noisy), most=10, seed=seed) for seed in (0, 0, 1)]
    chosen = [[one.index for one in each.examined] for each in causes]
    assert causes[0].errors > 10
    assert [len(indices) for indices in chosen] == [10, 10, 10]
    assert chosen[0] == chosen[1] != chosen[2]
    for each in causes:
        for one in each.examined:
            kept = [edit.kind for edit in one.supported]
            assert max(map(kept.count, KINDS)) <= KEPT
            p = [float(edit.probabilities[truth[one.index]]) for edit in one.supported if edit.kind == "one word"]
            assert p == sorted(p, reverse=True)
            assert all(edit.probabilities.argmax() == truth[one.index] for edit in one.supported)


def test_three_classes_and_progress() -> None:
    def predict(texts: Sequence[str]) -> Probabilities:
        rows = np.array([[0.1 + text.count(letter) for letter in "abc"] for text in texts])
        return rows / rows.sum(1, keepdims=True)

    texts, shares = ["x aa b", "b cc", "y a"], []
    causes = find_causes(texts, np.array([1, 2, 0]), predict(texts), predict, progress=shares.append)
    assert [(one.index, [edit.words for edit in one.supported]) for one in causes.examined] == [(0, ["left out 'aa'"])]
    assert shares == sorted(shares)
    assert shares[-1] == 1


def test_the_predictions_must_be_those_of_the_model() -> None:
    texts, truth = ["good", "bad"], np.array([0, 1])
    with pytest.raises(UsageError, match="same model"):
        find_causes(texts, truth, overlooks_not(["bad", "good"])[::-1] * 0.9 + 0.05, overlooks_not)
    with pytest.raises(UsageError, match="2 texts, 1 true classes"):
        find_causes(texts, truth[:1], overlooks_not(texts), overlooks_not)
    with pytest.raises(UsageError, match="from 0 to 2 with 2 classes"):
        find_causes(texts, np.array([0, 2]), overlooks_not(texts), overlooks_not)
    with pytest.raises(UsageError, match="most = 0"):
        find_causes(texts, truth, overlooks_not(texts), overlooks_not, most=0)
    with pytest.raises(UsageError, match="one row of probabilities for each"):
        find_causes(texts, truth, overlooks_not(texts), lambda texts: overlooks_not(texts)[:-1])


@given(st.text(alphabet="ab .!\n", max_size=30).map(lambda text: text + " not x. But isn't"))
def test_proposals_differ_from_the_text_and_from_each_other(text: str) -> None:
    made = list(proposals(text))
    edited = [proposal.text for proposal in made]
    assert text not in edited
    assert len(set(edited)) == len(edited)
    assert all(word_forms(each) for each in edited)
    assert {proposal.kind for proposal in made} <= set(KINDS) == set(MEANINGS)
    assert all(proposal.words for proposal in made)


TOKENS = ["not", "never", "without", "isn't", "Nothing", "good", "bad", "a", ",", ".", "but", "\n"]


@given(st.lists(st.sampled_from(TOKENS), max_size=14).map(" ".join))
def test_what_is_left_out_is_gone_and_nothing_else(text: str) -> None:
    for proposal in proposals(text):
        rest = iter(word_forms(text))
        if proposal.words.startswith("left out") and "->" not in proposal.words:
            assert all(form in rest for form in word_forms(proposal.text)), proposal  # in the same order
            named = [
                form for part in proposal.words.removeprefix("left out ").split("', '") for form in word_forms(part)
            ]
            assert sorted(named + word_forms(proposal.text)) == sorted(word_forms(text)), proposal


def test_only_what_follows_the_last_contrast_is_kept() -> None:
    text = "Good but slow, yet fine. In spite of it all dull, though."
    kept = [(proposal.words, proposal.text) for proposal in proposals(text) if proposal.kind == "contrast"]
    assert kept == [("kept only what follows the last 'In spite of'", "it all dull, though.")]


def test_what_is_denied_ends_with_the_clause() -> None:
    text = "It is never without charm, not good but fine."
    left_out = {proposal.words for proposal in proposals(text) if proposal.kind == "negation"}
    assert "left out 'never without charm'" in left_out
    assert "left out 'not good'" in left_out
    assert "left out 'never without charm', 'not good'" in left_out
    assert not any("charm, not" in words or "good but" in words for words in left_out)


def test_of_hundreds_of_edits_that_help_the_best_are_kept() -> None:
    def predict(texts: Sequence[str]) -> Probabilities:
        missing = [set(range(300)) - {int(form[1:]) for form in word_forms(text)} for text in texts]
        p = np.array([0.6 + 0.001 * min(left_out) if left_out else 0.4 for left_out in missing])
        return np.stack([1 - p, p], 1)

    causes = examine([" ".join(f"w{i}" for i in range(300))], [1], predict)
    assert [edit.words for edit in causes.examined[0].supported] == [f"left out 'w{i}'" for i in (299, 298, 297)]


def test_a_decision_that_hangs_on_the_last_bits_supports_nothing() -> None:
    given_p = np.array([[0.4999, 0.5001], [0.9, 0.1]])
    answer = np.array([[0.5001, 0.4999], [0.9, 0.1]])
    texts = ["some tie", "bad"]
    causes = find_causes(
        texts, np.array([0, 0]), given_p, lambda asked: np.array([answer[int(text == "bad")] for text in asked])
    )
    assert (causes.errors, causes.none) == (1, 1)


def test_of_a_long_text_the_beginning_and_the_end_are_tried() -> None:
    text = " ".join(f"w{i}" for i in range(MOST_WORDS + 100))
    tried = [proposal.words for proposal in proposals(text)]
    assert len(tried) == MOST_WORDS
    assert {"left out 'w0'", "left out 'w199'", "left out 'w300'", "left out 'w499'"} <= set(tried)
    assert "left out 'w250'" not in tried


@given(st.text(alphabet="abc ,.", max_size=30), st.integers(0, 5))
def test_shuffles_keep_the_words_and_what_is_between(text: str, seed: int) -> None:
    for shuffled in shuffles(text, 5, seed):
        assert sorted(word_forms(shuffled)) == sorted(word_forms(text))
        assert [c for c in shuffled if not c.isalnum()] == [c for c in text if not c.isalnum()]
    assert shuffles(text, 5, seed) == shuffles(text, 5, seed)


def test_shuffles_depend_on_the_seed() -> None:
    text = " ".join(map(str, range(20)))
    assert len(set(shuffles(text, 5, 0) + shuffles(text, 5, 1))) == 10


@given(st.lists(st.text("ab", max_size=3), max_size=30), st.integers(1, 7))
def test_predicting_in_pieces_is_predicting(texts: list[str], at_once: int) -> None:
    calls: list[int] = []

    def predict(asked: Sequence[str]) -> Probabilities:
        calls.append(len(asked))
        assert len(set(asked)) == len(asked)
        return overlooks_not(asked) + np.array([[len(text), 0] for text in asked])

    found = list(predict_each(predict, enumerate(texts), texts_at_once=at_once))
    assert [(i, text) for i, text, _ in found] == list(enumerate(texts))
    assert [answer[0] for _, _, answer in found] == pytest.approx([predict([text])[0, 0] for text in texts])
    assert max(calls, default=0) <= at_once


def test_long_texts_make_small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(predicting, "CHARACTERS_AT_ONCE", 10)
    calls: list[int] = []

    def predict(asked: Sequence[str]) -> Probabilities:
        calls.append(len(asked))
        return overlooks_not(asked)

    texts = ["aaaa", "bbbb", "cccc", "d" * 30, "e", "f"]
    assert [text for _, text, _ in predict_each(predict, enumerate(texts))] == texts
    assert calls == [3, 1, 2]


def test_examples_are_the_surest_and_the_least_sure_of_each_direction() -> None:
    p = np.array([0.9, 0.8, 0.7, 0.6, 0.55, 0.51, 0.95, 0.2, 0.4, 0.1])
    truth = np.array([0, 0, 0, 0, 0, 0, 1, 1, 1, 0])
    picked = pick_examples([str(i) for i in range(10)], truth, np.stack([1 - p, p], 1), per=2)
    assert [(e.direction, e.kind, e.index) for e in picked] == [
        ((0, 1), "confident", 0),
        ((0, 1), "confident", 1),
        ((0, 1), "near neutral", 5),
        ((0, 1), "near neutral", 4),
        ((1, 0), "confident", 7),
        ((1, 0), "near neutral", 8),
    ]
    assert picked[4].confidence == pytest.approx(0.8)


def test_examples_of_many_classes_come_from_the_commonest_directions() -> None:
    random = np.random.default_rng(3)
    truth, probabilities = random.integers(0, 6, 300), random.dirichlet(np.ones(6), 300)
    picked = pick_examples([f"{i:03}" for i in range(300)], truth, probabilities, per=3)
    decided = probabilities.argmax(1)
    sizes = [int(((truth == a) & (decided == b)).sum()) for a, b in dict.fromkeys(e.direction for e in picked)]
    every = sorted(
        (int(((truth == a) & (decided == b)).sum()) for a in range(6) for b in range(6) if a != b), reverse=True
    )
    assert sizes == every[:12]
    assert len({e.index for e in picked}) == len(picked)
    assert all((truth[e.index], decided[e.index]) == e.direction for e in picked)
