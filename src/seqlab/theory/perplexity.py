"""Claims about perplexity: what a figure is, in which unit, of which events, and what may be compared.

Figures of others are converted; what they can mean is shown on passages of CPython's own help topics, with models that
are counted at once.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np
import sympy
import torch

from seqlab.core.types import Surprisals
from seqlab.data.normalise import normalise
from seqlab.data.tokenizers import CharacterTokenizer
from seqlab.evaluation.baselines import character_ngram, uniform
from seqlab.evaluation.perplexity import Figures, figures_of
from seqlab.theory import answers, characters
from seqlab.theory.instances import stream
from seqlab.theory.instances import uniform as drawn
from seqlab.theory.ledger import AS_STATED, LEDGER, Evidence, at_least, at_most, between, evidence
from seqlab.theory.symbols import step, vanishes
from seqlab.theory.texts import (
    PREPARED,
    VERSIONED,
    Numbers,
    by_total_nats,
    closed,
    passages,
    perplexity,
    with_spelling,
    word_bigram,
)

claim = LEDGER.of("perplexity")
PARTS = (answers, characters)  # the other claims of this subject

# --------------------------------------------------------------------------- what a figure is

Perplexity = Callable[[Numbers], float]  # −ln p of every token -> the figure


@claim(
    "lm.dev-perplexity",
    statement=r"A neural bigram model that reports a perplexity of $113.31395$ on its validation text has a mean "
    r"surprise of $4.7302$ nats, or $6.8242$ bits, per token.",
    note=r"It means something only beside the size of the vocabulary, the share of unknown tokens and the number of "
    r"tokens: a model that has learnt nothing scores $|V|$, whatever the text.",
    verdict="empirical",
    method="identity",
    right=perplexity,
    wrong={
        "2 to the power of nats": lambda nats: 2 ** nats.mean(),
        "the mean of the tokens' perplexities": lambda nats: np.exp(nats).mean(),
        "of the whole text, not of a token": lambda nats: np.exp(min(nats.sum(), 700.0)),
    },
    about=("seqlab.evaluation.perplexity:Figures", "seqlab.evaluation.baselines:uniform"),
)
def reported_on_validation(seed: int, form: Perplexity) -> Evidence:
    nats = drawn(stream(seed, "lm.dev-perplexity"), 500, low=0.1, high=9.0).numpy()
    nats *= math.log(113.31395087517392) / nats.mean()
    tokenizer = CharacterTokenizer.fit([passage := passages(seed, "lm.dev-perplexity")[1]])
    blank = uniform(tokenizer, passage)
    return evidence(
        at_most("the figure less 113.31395087517392", form(nats) - 113.31395087517392, 1e-9),
        between("nats per token", math.log(form(nats)), 4.73015, 4.73025),
        between("bits per token", math.log2(form(nats)), 6.82415, 6.82425),
        at_most(
            "figure of a uniform model less the size of its vocabulary", form(blank.nats) - tokenizer.vocab_size, 1e-9
        ),
    )


BASES = sympy.symbols("a b", positive=True)
P = sympy.symbols("p_1:4", positive=True)


@claim(
    "ppl.base-invariance",
    statement=r"$2^{-\frac{1}{M}\sum \log_2 p_i} = e^{-\frac{1}{M}\sum \ln p_i} = \left(\prod p_i\right)^{-1/M}$: "
    r"perplexity does not depend on the base.",
    note=r"As long as the logarithm and the power have the same one. The common mistake is $e$ to the power of a loss "
    r"in bits.",
    verdict="true",
    method="symbolic",
    right=lambda power, logarithm: (power, power),
    wrong={
        "e to the power of bits": lambda power, logarithm: (sympy.E, 2),
        "two bases": lambda power, logarithm: (power, logarithm),
    },
    about=("seqlab.evaluation.perplexity:Figures",),
)
def any_base(seed: int, form: Callable[..., tuple[Any, Any]]) -> Evidence:
    power, base = form(*BASES)
    mean = -sum(sympy.log(p) / sympy.log(base) for p in P) / 3
    geometric = -sum(sympy.log(p) for p in P) / 3
    chances = drawn(stream(seed, "ppl.base-invariance"), 40, low=0.01).numpy()
    at = {BASES[0]: 7, BASES[1]: 3}
    power_at, base_at = (float(sympy.sympify(b).subs(at)) for b in (power, base))
    written = power_at ** (-(np.log(chances) / math.log(base_at)).mean())
    return evidence(
        vanishes("terms that differ in the logarithm of the two sides", mean * sympy.log(power) - geometric),
        at_most(
            "written out with numbers, over seqlab's figure, less 1", written / perplexity(-np.log(chances)) - 1, 1e-12
        ),
        steps=[
            step(r"\ln b^{-\frac{1}{M} \sum \log_b p_i}", r"-\frac{1}{M} \sum \frac{\ln p_i}{\ln b} \ln b"),
            step(r"-\frac{1}{M} \sum \ln p_i", r"\ln \left(\prod p_i\right)^{-1/M}"),
        ],
    )


REPORTED = {  # figure: (nats, bits) of a unit
    5.7706: (1.7528, 2.5287),
    24.6950: (3.2066, 4.6261),
    6.8976: (1.9312, 2.7861),
    15.8439: (2.7628, 3.9859),
}


def nats_and_bits(figure: float) -> tuple[float, float]:
    """Of a text of a thousand units whose perplexity this is."""
    found = Figures(1000 * math.log(figure), 1000, 1000, 1000)
    return found.nats_per_token, found.bits_per_byte


@claim(
    "ppl.reported",
    statement=r"A word bigram reports perplexities of $5.7706$ on Shakespeare and $24.6950$ on an encyclopedia, a "
    r"character model $6.8976$ and $15.8439$. That is $1.7528$ and $3.2066$ nats per word, $1.9312$ and $2.7628$ nats "
    r"per character.",
    note=r"Figures per word and per character stand on different scales and must not be compared as they are.",
    verdict="empirical",
    method="identity",
    right=nats_and_bits,
    wrong={
        "bits called nats": lambda figure: (math.log2(figure), math.log(figure)),
        "decimal logarithms": lambda figure: (math.log10(figure), math.log10(figure) / math.log10(2)),
    },
    about=("seqlab.evaluation.perplexity:Figures",),
)
def reported_on_passages(seed: int, form: Callable[[float], tuple[float, float]]) -> Evidence:
    found = {figure: form(figure) for figure in REPORTED}
    strays = [abs(found[figure][k] - REPORTED[figure][k]) for figure in REPORTED for k in (0, 1)]
    first = found[5.7706]
    return evidence(
        between("nats per word of the bigram on Shakespeare", first[0], 1.75275, 1.75285),
        at_most("largest difference from the eight conversions", max(strays), 6e-5),
        at_most("bits over nats, less 1 / ln 2", first[1] / first[0] - 1 / math.log(2), 1e-12),
    )


# --------------------------------------------------------------------------- unknown words

Accounting = Callable[[Surprisals], Numbers]  # what each token of the figure pays
VOCABULARIES = (1600, 400, 100, 25)


def known_only(table: Surprisals) -> Numbers:
    return closed(table)[~table.unknown]


def drawn_text(draw: torch.Generator, length: int) -> list[str]:
    """Words of five random letters, so that no spelling says which is common; the k-th of 500 as often as 1/k."""
    spelled = torch.randint(97, 123, (500, 5), generator=draw).tolist()
    chosen = torch.multinomial(1 / torch.arange(1.0, 501.0), length, replacement=True, generator=draw)
    return ["".join(map(chr, spelled[k])) for k in chosen.tolist()]


def shrinking(words: list[str], count: Accounting) -> list[float]:
    """Perplexities of the last words by bigrams of the others that know 400, 100 and 25 of 500."""
    training, passage = " ".join(words[:-3000]), " ".join(words[-3000:])
    return [perplexity(count(word_bigram(training, vocabulary).score(passage))) for vocabulary in VOCABULARIES[1:]]


@claim(
    "ppl.dev-against-passages",
    statement=r"One word bigram can have a perplexity of $113.3$ on its own validation text and yet $5.77$ and $24.69$ "
    r"on passages of other domains: a closed vocabulary makes a text that it cannot read look easy.",
    note=r"Unknown words are one class, and after an unknown word that class is cheap. As more words become unknown, "
    r"the closed figure falls. The figure in which each unknown word also pays for its spelling does not fall so, and "
    r"rises where the spelling does not tell common words from rare ones. So the share of unknown words and the open "
    r"figure belong beside it. That this happened with these three figures is likely; to know it one needs the "
    rf"vocabulary and the passages. {VERSIONED}",
    verdict="empirical",
    method="exact",
    right=with_spelling,
    wrong={"closed": closed, "unknown words are skipped": known_only},
    about=("seqlab.evaluation.surprisal:ModelScorer", "seqlab.evaluation.spelling:WordSpelling"),
)
def unknown_words_are_cheap(seed: int, form: Accounting) -> Evidence:
    words = drawn_text(stream(seed, "ppl.dev-against-passages", "words"), 23_000)
    stated, shut = (shrinking(words, count) for count in (form, closed))
    training, passage = passages(seed, "ppl.dev-against-passages")
    many, few = (word_bigram(training, vocabulary).score(passage) for vocabulary in (VOCABULARIES[0], VOCABULARIES[-1]))
    paid, cheap = (perplexity(count(few)) / perplexity(count(many)) for count in (form, closed))
    model = word_bigram(normalise(training, PREPARED).text, 400)
    own, foreign = model.score(normalise(passage, PREPARED).text), model.score(passage.upper())
    return evidence(
        at_least("drawn words: least factor of the stated figure as fewer are known", growth(stated), 1.05),
        at_most("largest factor of the closed one", 1 / growth(shut[::-1]), 0.9),
        at_least(
            "passage of pydoc: by how much less the stated figure falls, 25 words known, not 1,600", paid / cheap, 3.0
        ),
        at_most("closed perplexity there, 25 words over 1,600", cheap, 0.25),
        at_least("share of unknown words, 25 known, less 1,600 known", few.unknown.mean() - many.unknown.mean(), 0.1),
        at_least(
            "a model of small letters: closed perplexity of its own validation text over that of a text in capitals",
            perplexity(closed(own)) / perplexity(closed(foreign)),
            2.5,
        ),
        at_least("the other way round, as stated", perplexity(form(foreign)) / perplexity(form(own)), 10.0),
    )


def growth(figures: list[float]) -> float:
    """The least factor from one to the next."""
    return min(b / a for a, b in pairwise(figures))


# --------------------------------------------------------------------------- units

Convert = Callable[[float, float, float], float]  # (figure, its units, other units of the same text) -> the figure


@claim(
    "ppl.units-not-comparable",
    statement=r"Perplexities per word and per character stand on one scale, so that a bigram with $5.77$ is better "
    r"than a character model with $6.90$.",
    correction=r"The nats of the text are common to all units: $\mathrm{PPL}_{\mathrm{char}} = "
    r"\mathrm{PPL}_{\mathrm{word}}^{N_{\mathrm{words}} / N_{\mathrm{chars}}}$. At $5.5$ characters for each word "
    r"$5.77$ per word is $1.375$ per character, and $6.90$ per character is about $4.1 \cdot 10^4$ per word.",
    note=VERSIONED,
    verdict="false",
    method="counterexample",
    right=by_total_nats,
    wrong={
        AS_STATED: lambda figure, units, others: figure,
        "in proportion to the units": lambda figure, units, others: figure * units / others,
        "the exponent turned round": lambda figure, units, others: figure ** min(others / units, 30.0),
    },
    about=("seqlab.evaluation.perplexity:figures_of", "seqlab.evaluation.surprisal:ModelScorer"),
)
def one_scale(seed: int, form: Convert) -> Evidence:
    training, passage = passages(seed, "ppl.units-not-comparable")
    words = figures_of(word_bigram(training, 800).score(passage), passage)
    letters = figures_of(character_ngram(training, 1).score(passage), passage)
    per_word, per_letter = words.perplexity(words.words) or 0.0, letters.perplexity(letters.characters) or 0.0
    converted = form(per_word, words.words or 0, words.characters)
    return evidence(
        at_most(
            "converted figure of a word model over that by its nats, less 1",
            converted / (words.perplexity(words.characters) or 0.0) - 1,
            1e-9,
        ),
        between(
            "its rank beside a character model: nats over the same of converted figures",
            math.copysign(1, words.nats - letters.nats) * math.copysign(1, converted - per_letter),
            1,
            1,
        ),
        between("5.7706 per word as a figure per character", form(5.7706, 1, 5.5), 1.3745, 1.3765),
        between("6.8976 per character as a figure per word", form(6.8976, 5.5, 1), 4.0e4, 4.2e4),
        counterexample=rf"On one passage a word bigram has ${per_word:.0f}$ per word and single characters have "
        rf"${per_letter:.1f}$ per character, yet the bigram needs ${words.nats:.0f}$ nats and the characters "
        rf"${letters.nats:.0f}$.",
    )
