"""Two questions about perplexities of passages, answered; they belong to the subject of perplexity.

Why do figures of one model differ so much from passage to passage, and which preprocessing makes them better?
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from itertools import product

import numpy as np
import torch

from seqlab.core.types import Scorer, Surprisals
from seqlab.data.normalise import normalise
from seqlab.evaluation.baselines import character_ngram
from seqlab.evaluation.gap import explain_gap, words_of
from seqlab.evaluation.normalised import NormalisedScorer
from seqlab.evaluation.perplexity import Figures, figures_of
from seqlab.models.ngram import NGramLM
from seqlab.theory.instances import stream, uniform
from seqlab.theory.ledger import LEDGER, Evidence, Finding, at_least, at_most, between, evidence, exactly
from seqlab.theory.texts import (
    PREPARED,
    VERSIONED,
    Numbers,
    by_total_nats,
    closed,
    of_nats,
    passages,
    perplexity,
    with_spelling,
    word_bigram,
)

claim = LEDGER.of("perplexity")

ORDER = 4

# --------------------------------------------------------------------------- why figures differ

Split = Callable[[Numbers, Numbers], float]  # (shares of a text's characters, a model's p of them) -> nats of each
Accounting = Callable[[Surprisals], Numbers]  # what each token of the figure pays


def entropy(p: Numbers) -> float:
    return -float((p * np.log(p)).sum())


def divergence(p: Numbers, q: Numbers) -> float:
    """KL(p ‖ q) = Σ p ln (p / q)"""
    return float((p * np.log(p / q)).sum())


@dataclass(frozen=True)
class Account:
    """What is said of a perplexity, cause by cause."""

    domain: Split = lambda p, q: entropy(p) + divergence(p, q)
    unknown: Accounting = with_spelling
    unit: Callable[[float, float, float], float] = by_total_nats  # (figure, its units, others) -> the figure in those
    memory: Callable[[int], int] = lambda order: order - 1  # of an n-gram: how far what was read changes what follows


def one_character_model(draw: torch.Generator) -> tuple[Numbers, Numbers, float]:
    """Shares of six characters in a text, p of them by a model of another text, and the nats that it scores."""
    text, training = (
        torch.multinomial(uniform(draw, 6, low=0.05), 400, replacement=True, generator=draw).numpy() for _ in range(2)
    )
    training = np.concatenate([np.arange(6), training])  # none is unknown
    model = NGramLM.fit(training, 9, 1)
    shares = np.bincount(text, minlength=6) / len(text)
    log_p = model(torch.tensor([[0]]))[0][0, 0].double().numpy()
    present = shares > 0
    return shares[present], np.exp(log_p[:6][present]), float(model.nats_of(text).mean())


def of_the_domain(said: Account, draw: torch.Generator, training: str, passage: str) -> list[Finding]:
    """A passage, read by a model of its own domain and by one that never saw capitals, digits and punctuation."""
    p, q, nats = one_character_model(draw)
    plain = normalise(training, PREPARED).text
    other, own = character_ngram(plain, ORDER), character_ngram(training, ORDER)
    gap = explain_gap(passage, other.score(passage), own.score(passage), words_of(plain))
    share = {name: nats / gap.total for name, nats in gap.shares.items()}
    never_seen = share["case"] + share["digits"] + share["punctuation"]
    return [
        at_most(
            "domain: cross-entropy that a model scores, less entropy and divergence", said.domain(p, q) - nats, 1e-9
        ),
        at_least("bits per byte that this passage costs more, read by a model of plain prose", gap.total, 0.3),
        at_least("share of that gap in capitals, digits and punctuation", never_seen, 0.5),
        at_most("what is left when the shares are added up", sum(share.values()) - 1, 1e-9),
    ]


def of_unknown_words(said: Account, training: str, passage: str) -> list[Finding]:
    many, few = (word_bigram(training, vocabulary).score(passage) for vocabulary in (1600, 25))
    paid, shut = (perplexity(pay(few)) / perplexity(pay(many)) for pay in (said.unknown, closed))
    return [
        at_most("unknown words: closed perplexity with 25 words over that with 1,600", shut, 0.25),
        at_least("by how much less it falls where each unknown word pays for its spelling", paid / shut, 3.0),
    ]


def of_the_unit(said: Account, training: str, passage: str) -> Finding:
    found = figures_of(word_bigram(training, 800).score(passage), passage)
    per_word, per_character = found.perplexity(found.words) or 0.0, found.perplexity(found.characters) or 0.0
    converted = said.unit(per_word, found.words or 0, found.characters)
    return at_most(
        "unit: a figure per word as one per character, over that, less 1", converted / per_character - 1, 1e-9
    )


PIECE, STRETCH = 100, 20  # characters


def cost_after_a_stretch(scorer: Scorer, passage: str, draw: torch.Generator) -> Numbers:
    """Nats that every character of a piece costs more if characters drawn at random stand before it.    (n, PIECE)"""
    pieces = [passage[k : k + PIECE] for k in range(0, len(passage) - PIECE + 1, PIECE)]
    letters = sorted(set(passage))
    drawn = torch.randint(0, len(letters), (len(pieces), STRETCH), generator=draw).tolist()
    stretches = ["".join(letters[k] for k in row) for row in drawn]
    undisturbed = scorer.score("".join(pieces)).nats.reshape(-1, PIECE)
    disturbed = scorer.score("".join(a + b for a, b in zip(stretches, pieces, strict=True))).nats
    return disturbed.reshape(-1, STRETCH + PIECE)[:, STRETCH:] - undisturbed


def of_memory(said: Account, draw: torch.Generator, training: str, passage: str) -> list[Finding]:
    """A model that remembers 4 characters beside one that remembers 1."""
    short, long = character_ngram(training, 2), character_ngram(training, 5)
    less, more = (cost_after_a_stretch(scorer, passage, draw) for scorer in (short, long))
    reached = [int(np.flatnonzero(np.abs(cost).max(0) > 1e-9).max(initial=-1)) + 1 for cost in (less, more)]
    saved = [figures_of(scorer.score(passage), passage).bits_per_byte for scorer in (short, long)]
    return [
        at_least(
            "memory: bits per byte that 4 remembered characters save, beside 1 remembered", saved[0] - saved[1], 0.5
        ),
        at_least(
            "nats that a strange stretch costs the text after it, 4 remembered less 1", (more - less).sum(1).mean(), 1.0
        ),
        exactly("how far after it the nats differ, 1 remembered", reached[0], said.memory(2)),
        exactly("4 remembered", reached[1], said.memory(5)),
    ]


def with_five_rare(tokens: int) -> float:
    """Perplexity of tokens of chance 1/5, five of which have 10⁻⁸ instead."""
    nats = (tokens - 5) * math.log(5) + 5 * math.log(1e8)
    return Figures(nats, tokens, tokens, tokens).perplexity(tokens) or math.nan


def of_rare_events() -> list[Finding]:
    return [
        between("rare events: perplexity of 200 tokens of chance 1/5, five with 1e-8", with_five_rare(200), 7.6, 7.62),
        between("the same of 20,000 tokens, five with 1e-8", with_five_rare(20_000), 5.0, 5.03),
    ]


@claim(
    "ppl.explain-gap",
    statement=r"Perplexity differs between passages because it is $e$ to the power of the cross-entropy, "
    r"$H(p, q) = H(p) + \mathrm{KL}(p \,\Vert\, q)$, in some unit, over some events. Five causes act together: the "
    r"domain (a large $\mathrm{KL}$), cheap unknown words, the unit, what the model remembers, and rare events in a "
    r"short text.",
    note=r"To tell them apart: score a text of the model's own domain that it never saw; print the share of unknown "
    r"words and let them pay for their spelling; convert to bits per character of the original; change the length of "
    r"the context; ask how far blocks of the passage stray, and list its costliest tokens. A longer memory saves on "
    r"regular text and pays longer after a stretch that fits nowhere, shown on models that count characters. A gap "
    rf"between two models can be split by kinds of characters without a rest. {VERSIONED}",
    verdict="empirical",
    method="identity",
    right=Account(),
    wrong={
        "the entropy of the text alone": Account(domain=lambda p, q: entropy(p)),
        "the divergence the wrong way round": Account(domain=lambda p, q: entropy(p) + divergence(q, p)),
        "the entropy of the model": Account(domain=lambda p, q: entropy(q / q.sum())),
        "unknown words pay for their class only": Account(unknown=closed),
        "a figure is the same in any unit": Account(unit=lambda figure, units, others: figure),
        "what was read is forgotten at once": Account(memory=lambda order: 0),
        "what was read is never forgotten": Account(memory=lambda order: PIECE),
    },
    about=(
        "seqlab.evaluation.gap:explain_gap",
        "seqlab.models.ngram:NGramLM",
        "seqlab.evaluation.perplexity:figures_of",
        "seqlab.evaluation.spelling:WordSpelling",
    ),
)
def why_figures_differ(seed: int, form: Account) -> Evidence:
    """Each cause with findings of its own."""
    draw, texts = stream(seed, "ppl.explain-gap"), passages(seed, "ppl.explain-gap")
    return evidence(
        *of_the_domain(form, draw, *texts),
        *of_unknown_words(form, *texts),
        of_the_unit(form, *texts),
        *of_memory(form, draw, *texts),
        *of_rare_events(),
    )


# --------------------------------------------------------------------------- preprocessing

Payment = Callable[[Surprisals], float]  # nats of a text that was scored after preprocessing


def with_restoration(table: Surprisals) -> float:
    return table.total


def without_restoration(table: Surprisals) -> float:
    assert table.restoration is not None
    return table.total - float(table.restoration.sum())


def one_bit(table: Surprisals) -> float:
    """As if it were enough to say that something was lost."""
    return min(table.total, without_restoration(table) + math.log(2))


def mass_of_all(count: Payment, draw: torch.Generator, length: int = 4) -> float:
    """Σ e^{−nats} over every string of a, A, b and B: at most 1 for anything that is a probability of strings."""
    training = "".join("ab"[int(k)] for k in torch.randint(0, 2, (200,), generator=draw))
    scorer = NormalisedScorer(character_ngram(training, 2), ("lower",))
    return sum(math.exp(-count(scorer.score("".join(letters)))) for letters in product("aAbB", repeat=length))


def bits(nats: float, text: str) -> float:
    """For each byte of the original text."""
    return nats / math.log(2) / len(text.encode())


def before_and_after(training: str, passage: str, step: str) -> tuple[float, float, float]:
    """Bits per byte from a model of text after a step: raw, after the step with what was lost, and without that."""
    scorer = character_ngram(normalise(training, (step,)).text, ORDER)
    table = NormalisedScorer(scorer, (step,)).score(passage)
    raw = figures_of(scorer.score(passage), passage).bits_per_byte
    return raw, figures_of(table, passage).bits_per_byte, bits(without_restoration(table), passage)


@claim(
    "ppl.preprocessing",
    statement=r"The preprocessing that improves the results brings a passage to the form of the training text: Unicode "
    r"forms, quotes, case, numbers and punctuation as they stood there. A figure says so honestly only if it is "
    r"divided by what the original text holds and pays for what the step lost.",
    note=r"A step $\varphi$ that joins texts can only lower the nats, "
    r"$P(\varphi(x)) = \sum_{y: \varphi(y) = \varphi(x)} P(y) \ge P(x)$; sending all characters to one "
    r"gives perplexity $1$ from no model at all. Report nats per character of the original with the cost of undoing "
    r"$\varphi$, the share of unknown tokens, and the number of scored ones. For words: the closed figure may rise "
    rf"when fewer words are unknown, the open one falls. {VERSIONED}",
    verdict="empirical",
    method="exact",
    right=with_restoration,
    wrong={"what was lost is free": without_restoration, "one bit is paid for all that was lost": one_bit},
    about=("seqlab.evaluation.normalised:NormalisedScorer", "seqlab.evaluation.restoration:restoration_costs"),
)
def which_preprocessing(seed: int, form: Payment) -> Evidence:
    training, passage = passages(seed, "ppl.preprocessing")
    raw, honest, free = before_and_after(training, passage, "prose")
    own = figures_of(character_ngram(training, ORDER).score(passage), passage).bits_per_byte
    _, lowered, lowered_free = before_and_after(training, passage, "lower")
    mass = mass_of_all(form, stream(seed, "ppl.preprocessing"))
    merged = of_nats(character_ngram("x" * len(training), ORDER).score("x" * len(passage)).nats)
    return evidence(
        between("mass of all strings of four letters, at most 1 for a probability", mass, 1e-3, 1.0),
        at_least("bits per byte that the form of the training text saves, what was lost paid", raw - honest, 0.2),
        at_least("further bits that vanish if it is not paid", honest - free, 0.05),
        at_least("bits per byte that case takes, which lower case hides", lowered - lowered_free, 0.02),
        between("bits per byte that it costs instead once case is paid for", lowered - own, 0.0, 1.0),
        between("perplexity where every character is sent to one", merged.perplexity(len(passage)) or 0.0, 1.0, 1.01),
        *of_words(training, passage),
    )


def of_words(training: str, passage: str) -> list[Finding]:
    """A bigram of the words of a prepared text reads a passage as it stands, and prepared."""
    model, prepared = word_bigram(normalise(training, PREPARED).text, 400), normalise(passage, PREPARED).text
    raw, table, paid = model.score(passage), model.score(prepared), NormalisedScorer(model, PREPARED).score(passage)
    known = float(raw.unknown.mean() - table.unknown.mean())
    saved = figures_of(raw, passage).bits_per_byte - figures_of(paid, passage).bits_per_byte
    return [
        at_least("words: share of unknown ones that preparing a passage saves", known, 0.05),
        at_least(
            "their closed perplexity, prepared over raw", perplexity(closed(table)) / perplexity(closed(raw)), 1.1
        ),
        at_least("open bits per byte that it saves, what was lost paid", saved, 0.5),
    ]
