"""An open vocabulary is a distribution over strings: nothing is counted twice, nothing is lost.

A text ends at any token boundary with probability EPS (after a word and one trailing space it must end).
The tests walk over all token sequences, sum the mass of complete strings and of open prefixes, and
compare every complete string with what the scorer says of it.
"""

import itertools
import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch

from seqlab.data.bpe import BPETokenizer
from seqlab.data.tokenizers import CharacterTokenizer, RareWords, WordTokenizer
from seqlab.evaluation.spelling import CODE_POINTS, END, ORDER, SPACES, Speller, UnseenCharacters, WordSpelling
from seqlab.evaluation.surprisal import ModelScorer
from seqlab.models import build_lm
from seqlab.models.ngram import NGramLM

EPS = 0.2
ALPHABET = "ab \n"


def word_tokenizer() -> WordTokenizer:
    """Known and unknown words and white space, with known words that begin like unknown ones."""
    return WordTokenizer(["a", "ab", "\n", " "], RareWords(["b", "ba", "aab", "bb", "\n\n", "  "], 9, 3))


def models(vocab_size: int) -> Iterator[Any]:
    yield build_lm("gru", vocab_size=vocab_size, width=8, seed=1).double().eval()
    ids = np.random.default_rng(0).integers(0, vocab_size, 60)
    yield NGramLM.fit(ids, vocab_size, 3)
    yield build_lm("bigram", vocab_size=vocab_size, seed=1).double().eval()


def class_probabilities(lm: Any, ids: list[int], barred: np.ndarray) -> np.ndarray:
    """p(next class), with the impossible ones left out."""
    logits, _ = lm(torch.tensor([ids]))
    p = logits[0, -1].softmax(-1).detach().numpy().copy()
    p[barred] = 0
    return p / p.sum()


def spelled(speller: Speller, longest: int, alphabet: str) -> tuple[dict[str, float], float]:
    """Every string up to a length with its mass, and the mass of all that is longer or has other characters.

    Character by character, from the model's own conditionals.
    """
    found: dict[str, float] = {}
    inner = {c: k for c, k in speller._symbol.items() if c in alphabet}
    norm = (1 - speller.empty_mass) * (1 - speller.excluded_mass)
    excluded = {
        w: math.exp(-n) for w, n in zip(speller.vocabulary, speller.plain_nats(speller.vocabulary), strict=True)
    }

    def beneath(prefix: str) -> float:
        """Mass of vocabulary words that begin with the prefix."""
        return sum(m for w, m in excluded.items() if w.startswith(prefix)) * (1 - speller.empty_mass)

    def walk(prefix: str, mass: float) -> float:
        symbols = [END] * (ORDER - 1) + [speller._symbol[c] for c in prefix]
        p = speller.model(torch.tensor([symbols]))[0][0, -1].exp().numpy()
        if prefix and prefix not in excluded:
            found[prefix] = mass * p[END] / norm
        outside = mass * (1 - p[END] - sum(p[k] for k in inner.values()))  # other characters
        outside -= sum(
            m * (1 - speller.empty_mass)
            for w, m in excluded.items()
            if w.startswith(prefix) and len(w) > len(prefix) and w[len(prefix)] not in alphabet
        )
        total = outside / norm
        for character, k in inner.items():
            longer = prefix + character
            if len(longer) > longest:
                total += (mass * p[k] - beneath(longer)) / norm
            else:
                total += walk(longer, mass * p[k])
        return total

    return found, walk("", 1.0)


@pytest.mark.parametrize("vocabulary", [[], ["a"], ["a", "ab", "bab", "xyz"]])
def test_a_speller_shares_out_a_mass_of_one(vocabulary: list[str]) -> None:
    speller = Speller(["b", "ba", "aab", "bb", "bxa"], vocabulary, None)
    found, rest = spelled(speller, 5, "ab")
    assert math.fsum(found.values()) + rest == pytest.approx(1, abs=1e-12)
    names = list(found)
    assert np.allclose(speller.nats(names), -np.log([found[n] for n in names]), rtol=0, atol=1e-12)
    assert not set(found) & set(vocabulary)


def test_unseen_characters_share_out_a_mass_of_one() -> None:
    seen = "abcé漢😀"
    law = UnseenCharacters(seen)
    examples = ["~", "ß", "字", "🙂"]
    left = [n - k for n, k in zip(CODE_POINTS, (3, 1, 1, 1), strict=True)]
    assert math.fsum(n * math.exp(-law.nats(c)) for n, c in zip(left, examples, strict=True)) == pytest.approx(
        1, abs=1e-12
    )
    everything_ascii = UnseenCharacters([chr(i) for i in range(128)])
    assert everything_ascii.nats("a") == math.inf
    masses = [n * math.exp(-everything_ascii.nats(c)) for n, c in zip(CODE_POINTS[1:], examples[1:], strict=True)]
    assert math.fsum(masses) == pytest.approx(1, abs=1e-12)
    assert sum(CODE_POINTS) == 0x110000 - 0x800
    assert set(SPACES) == {chr(i) for i in range(0x110000) if chr(i).isspace()}


@pytest.mark.parametrize("longest", [0, 1, 4, 5])
@pytest.mark.parametrize("which", [0, 1, 2], ids=["gru", "ngram", "bigram"])
def test_a_word_model_is_a_distribution_over_strings(which: int, longest: int) -> None:
    tokenizer = word_tokenizer()
    lm = list(models(tokenizer.vocab_size))[which]
    complete, open_mass = walk_word_model(lm, tokenizer, longest)
    assert math.fsum(complete.values()) + open_mass == pytest.approx(1, abs=1e-12)
    strings = ["".join(s) for n in range(longest + 1) for s in itertools.product(ALPHABET, repeat=n)]
    assert set(complete) == set(strings)
    scorer = ModelScorer(lm, tokenizer)
    for string in strings:
        table = scorer.score(string)
        boundaries = len(table)
        trailing = string.endswith(" ") and tokenizer.encode(string).ids.size > 1 and not string[:-1][-1:].isspace()
        ends = 1.0 if trailing and string[:-1] else EPS
        mass = math.exp(-table.total) * (1 - EPS) ** boundaries * ends
        assert mass == pytest.approx(complete[string], rel=1e-11), repr(string)


def walk_word_model(lm: Any, tokenizer: WordTokenizer, longest: int) -> tuple[dict[str, float], float]:
    spelling = WordSpelling(tokenizer)
    words, words_beyond = spelled(spelling.words, longest, "ab")
    gaps, gaps_beyond = spelled(spelling.gaps, longest, " \n")
    complete: dict[str, float] = {}
    open_mass = 0.0

    def visit(text: str, ids: list[int], last: str, mass: float) -> None:
        """`last` is what stands before: "" at the start, "word", "gap", or "trailing" for a space that must end."""
        nonlocal open_mass
        ends = 1.0 if last == "trailing" else EPS
        complete[text] = complete.get(text, 0.0) + mass * ends
        if last == "trailing":
            return
        going_on = mass * (1 - EPS)
        barred = tokenizer.gap_ids if last == "gap" else np.zeros(0, int)
        p = class_probabilities(lm, ids, barred)
        for token in range(1, tokenizer.vocab_size):
            step(text, ids, last, going_on * p[token], token, tokenizer.words[token - 1])
        unknown = going_on * p[0]
        share = 0.0 if last == "gap" else spelling.gap_share
        for strings, part in ((words, 1 - share), (gaps, share)):
            for string, q in strings.items():
                step(text, ids, last, unknown * part * q, 0, string)
        open_mass += unknown * ((1 - share) * words_beyond + share * gaps_beyond)

    def step(text: str, ids: list[int], last: str, mass: float, token: int, written: str) -> None:
        nonlocal open_mass
        if mass == 0:
            return
        gap = written.isspace()
        longer = text + (" " if last == "word" and not gap else "") + written
        if len(longer) > longest:
            open_mass += mass
        else:
            kind = ("trailing" if last == "word" and written == " " else "gap") if gap else "word"
            visit(longer, [*ids, token], kind, mass)

    visit("", [tokenizer.begin_id], "", 1.0)
    return complete, open_mass


@pytest.mark.parametrize("which", [0, 1], ids=["gru", "ngram"])
def test_a_character_model_is_a_distribution_over_strings(which: int) -> None:
    """Strings over two known characters; every other character goes to the open mass."""
    tokenizer = CharacterTokenizer("ab")
    lm = list(models(tokenizer.vocab_size))[which]
    scorer, longest = ModelScorer(lm, tokenizer), 6
    complete = 0.0
    prefix_mass = {"": 1.0}
    open_mass = 0.0
    for n in range(longest + 1):
        for string in map("".join, itertools.product("ab", repeat=n)):
            mass = math.exp(-scorer.score(string).total) * (1 - EPS) ** n
            assert mass == pytest.approx(prefix_mass[string], rel=1e-11)
            complete += mass * EPS
            p = class_probabilities(lm, [tokenizer.begin_id, *tokenizer.encode(string).ids], np.zeros(0, int))
            open_mass += mass * (1 - EPS) * p[0]  # an unknown character, spelled in any way
            for k, c in enumerate("ab", start=1):
                prefix_mass[string + c] = mass * (1 - EPS) * p[k]
                open_mass += prefix_mass[string + c] if n == longest else 0.0
    assert complete + open_mass == pytest.approx(1, abs=1e-12)


def test_several_segmentations_leave_a_bpe_model_below_one() -> None:
    """The scored segmentation is one of several: the strings' mass is at most 1, the figure an upper bound."""
    tokenizer = BPETokenizer.fit(["ab ab ab aab"], 258)
    lm = next(iter(models(tokenizer.vocab_size)))
    scorer = ModelScorer(lm, tokenizer)
    one_byte = [math.exp(-scorer.score(chr(c)).total) for c in range(128)]
    assert 0 < math.fsum(one_byte) < 1
    assert not BPETokenizer.one_spelling
    assert WordTokenizer.one_spelling


def test_unknown_words_like_the_rare_ones_cost_less() -> None:
    tokenizer = WordTokenizer(["the"], RareWords([f"king{x}" for x in "abcdefgh"] + ["queenly", "kingdom"], 10, 0))
    words = WordSpelling(tokenizer).words
    likely, unlikely, foreign = words.nats(["kingx", "zqjvw", "字漢字漢字"])
    assert likely < unlikely < foreign < math.inf


def test_closed_perplexity_falls_as_the_vocabulary_shrinks_while_the_open_one_rises() -> None:
    draw = np.random.default_rng(0)
    lexicon = ["".join(draw.choice(list("abcdefghij"), draw.integers(3, 8))) for _ in range(300)]
    weights = 1 / np.arange(1, 301)
    text = " ".join(draw.choice(lexicon, 20_000, p=weights / weights.sum()))
    train, held_out = text[: len(text) * 9 // 10], text[len(text) * 9 // 10 :]
    closed, opened = [], []
    for size in (300, 100, 30):
        tokenizer = WordTokenizer.fit([train], size)
        table = ModelScorer(NGramLM.fit(tokenizer.encode(train).ids, tokenizer.vocab_size, 1), tokenizer).score(
            held_out
        )
        closed.append((table.nats - table.spelling).mean())
        opened.append(table.nats.mean())
    assert closed == sorted(closed, reverse=True)
    assert opened == sorted(opened)


def test_a_speller_looks_back_four_characters_and_no_further() -> None:
    """The odds of c against d after five characters depend on the last four of them, the earliest included."""
    examples = [f"{first}{second}xyz{last}" for first, second, last in ("abc", "ebc", "afd", "efd", "aed", "bbd")]
    speller = Speller(examples, [], None)

    def odds(before: str) -> float:
        given_c, given_d = speller.plain_nats([f"{before}c", f"{before}d"])
        return float(given_d - given_c)

    assert odds("abxyz") == pytest.approx(odds("ebxyz"), abs=1e-12)
    assert odds("bbxyz") == pytest.approx(odds("fbxyz"), abs=1e-12)
    assert odds("abxyz") > odds("afxyz") + 0.5


def test_what_the_vocabulary_left_out_is_counted_by_kind() -> None:
    tokenizer = WordTokenizer.fit(["a b a b a\n\nc a\t\td a\n\ne a b"], 3)  # a, b and the unknown class
    assert tokenizer.words == ["a", "b"]
    assert (tokenizer.rare.word_tokens, tokenizer.rare.gap_tokens) == (3, 3)
    assert sorted(tokenizer.rare.words) == ["\t\t", "\n\n", "c", "d", "e"]
    assert WordSpelling(tokenizer).gap_share == pytest.approx(3.5 / 7)


@pytest.mark.parametrize("text", ["\n" * 65_537, "a" + " " * 65_600 + "\n b", "a b" * 30_000])
def test_runs_of_white_space_longer_than_a_piece_are_one_token(text: str) -> None:
    tokenizer = word_tokenizer()
    lm = next(iter(models(tokenizer.vocab_size)))
    table = ModelScorer(lm, tokenizer).score(text)
    assert np.isfinite(table.nats).all()
    written = [text[a:b] for a, b in zip(table.start, table.end, strict=True)]
    gaps = [w.isspace() for w in written]
    assert not any(one and other for one, other in itertools.pairwise(gaps))
    assert "".join(written) == text
