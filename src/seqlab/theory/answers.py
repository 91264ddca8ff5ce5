"""Two questions about perplexities of passages, answered; they belong to the subject of perplexity.

Why do figures of one model differ so much from passage to passage, and which preprocessing makes them better?
"""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import product

import numpy as np
import torch
from numpy.typing import NDArray

from seqlab.core.types import Surprisals
from seqlab.data.normalise import normalise
from seqlab.evaluation.baselines import character_ngram
from seqlab.evaluation.gap import Gap, explain_gap, words_of
from seqlab.evaluation.normalised import NormalisedScorer
from seqlab.evaluation.perplexity import Figures, figures_of
from seqlab.models.ngram import NGramLM
from seqlab.theory.instances import stream, uniform
from seqlab.theory.ledger import LEDGER, Evidence, at_least, at_most, between, evidence
from seqlab.theory.texts import passages

claim = LEDGER.of("perplexity")

Numbers = NDArray[np.float64]
Split = Callable[[Numbers, Numbers], float]  # (shares of a text's characters, a model's p of them) -> nats of each
ORDER = 4

# --------------------------------------------------------------------------- why figures differ


def entropy(p: Numbers) -> float:
    return -float((p * np.log(p)).sum())


def divergence(p: Numbers, q: Numbers) -> float:
    """KL(p ‖ q) = Σ p ln (p / q)"""
    return float((p * np.log(p / q)).sum())


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


def gap_of_known_cause(seed: int) -> Gap:
    """A passage, read by a model of its own domain and by one that never saw capitals, digits and punctuation."""
    training, passage = passages(seed, "ppl.explain-gap")
    plain = normalise(training, ("lower", "digits", "punctuation")).text
    other, own = character_ngram(plain, ORDER), character_ngram(training, ORDER)
    return explain_gap(passage, other.score(passage), own.score(passage), words_of(plain))


def with_five_rare(tokens: int) -> float:
    """Perplexity of tokens of chance 1/5, five of which have 10⁻⁸ instead."""
    nats = (tokens - 5) * math.log(5) + 5 * math.log(1e8)
    return Figures(nats, tokens, tokens, tokens).perplexity(tokens) or math.nan


@claim(
    "ppl.explain-gap",
    statement=r"Perplexity differs between passages because it is $e$ to the power of the cross-entropy, "
    r"$H(p, q) = H(p) + \mathrm{KL}(p \,\Vert\, q)$, in some unit, over some events. Five causes act together: the "
    r"domain (a large $\mathrm{KL}$), cheap unknown words, the unit, what the model remembers, and rare events in a "
    r"short text.",
    note=r"To tell them apart: score a text of the model's own domain that it never saw; print the share of unknown "
    r"words and let them pay for their spelling; convert to bits per character of the original; change the length of "
    r"the context; resample blocks of the passage, and list its costliest tokens. A gap between two models can be "
    r"split by kinds of characters without a rest.",
    verdict="empirical",
    method="identity",
    right=lambda p, q: entropy(p) + divergence(p, q),
    wrong={
        "the entropy of the text alone": lambda p, q: entropy(p),
        "the divergence the wrong way round": lambda p, q: entropy(p) + divergence(q, p),
        "the entropy of the model": lambda p, q: entropy(q / q.sum()),
    },
    about=("seqlab.evaluation.gap:explain_gap", "seqlab.models.ngram:NGramLM"),
)
def why_figures_differ(seed: int, form: Split) -> Evidence:
    p, q, nats = one_character_model(stream(seed, "ppl.explain-gap"))
    gap = gap_of_known_cause(seed)
    share = {name: nats / gap.total for name, nats in gap.shares.items()}
    return evidence(
        at_most("cross-entropy that a model scores, less entropy and divergence", form(p, q) - nats, 1e-9),
        at_least("nats of it that are divergence", divergence(p, q), 1e-3),
        at_least("bits per byte that a passage costs more, read by a model of plain prose", gap.interval.low, 0.3),
        at_least(
            "share of that gap in capitals, digits and punctuation",
            share["case"] + share["digits"] + share["punctuation"],
            0.5,
        ),
        at_most("share of it in the letters of known words", share["content"], 0.2),
        at_most("what is left when the shares are added up", sum(share.values()) - 1, 1e-9),
        between("perplexity of 200 tokens of chance 1/5 when five of them have 1e-8", with_five_rare(200), 7.6, 7.62),
    )


# --------------------------------------------------------------------------- preprocessing

Accounting = Callable[[Surprisals], float]  # nats of a text that was scored after preprocessing


def with_restoration(table: Surprisals) -> float:
    return table.total


def without_restoration(table: Surprisals) -> float:
    assert table.restoration is not None
    return table.total - float(table.restoration.sum())


def one_bit(table: Surprisals) -> float:
    """As if it were enough to say that something was lost."""
    return min(table.total, without_restoration(table) + math.log(2))


def mass_of_all(count: Accounting, draw: torch.Generator, length: int = 4) -> float:
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
    r"$\varphi$, the share of unknown tokens, and the number of scored ones. For "
    r"words: the closed figure may rise when fewer words are unknown, the open one falls.",
    verdict="empirical",
    method="exact",
    right=with_restoration,
    wrong={"what was lost is free": without_restoration, "one bit is paid for all that was lost": one_bit},
    about=("seqlab.evaluation.normalised:NormalisedScorer", "seqlab.evaluation.restoration:restoration_costs"),
)
def which_preprocessing(seed: int, form: Accounting) -> Evidence:
    training, passage = passages(seed, "ppl.preprocessing")
    raw, honest, free = before_and_after(training, passage, "prose")
    own = figures_of(character_ngram(training, ORDER).score(passage), passage).bits_per_byte
    _, lowered, lowered_free = before_and_after(training, passage, "lower")
    mass = mass_of_all(form, stream(seed, "ppl.preprocessing"))
    return evidence(
        between("mass of all strings of four letters, at most 1 for a probability", mass, 1e-3, 1.0),
        at_least("bits per byte that the form of the training text saves, what was lost paid", raw - honest, 0.2),
        at_least("further bits that vanish if it is not paid", honest - free, 0.05),
        at_least("bits per byte that case takes, which lower case hides", lowered - lowered_free, 0.02),
        between("bits per byte that it costs instead once case is paid for", lowered - own, 0.0, 1.0),
    )
