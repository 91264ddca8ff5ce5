"""Scoring the parts of a text that were encoded for a run."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from seqlab.core.files import sha256_of_file
from seqlab.core.reporting import Reporter
from seqlab.core.types import Encoding, Surprisals
from seqlab.data.normalise import normalise, parse_steps
from seqlab.data.prepare import documents_in, read_slice
from seqlab.data.sources import Text
from seqlab.data.tokenizers import Tokenizer
from seqlab.evaluation.normalised import laid_on_original
from seqlab.evaluation.perplexity import Figures, figures_of
from seqlab.evaluation.reading_on import FIRST_FIT, reading_on
from seqlab.evaluation.spelling import spelling_of
from seqlab.evaluation.statistics import Interval, block_edges, block_sums, documents_of, interval_of
from seqlab.evaluation.surprisal import (
    Impossible,
    charge,
    impossible_in,
    nats_of_ids,
    policy_for,
    segment_starts,
)
from seqlab.runs.folder import Line
from seqlab.runs.run import Run
from seqlab.training.objectives import Score
from seqlab.workflows.lm.baselines import baselines_beside, can_be_measured
from seqlab.workflows.lm.data import Prepared

QUICK_TOKENS = 12_288  # of the validation text, scored on the way; the whole of it is scored at the end
HELD_OUT = ("validation", "test")
VALIDATION_BITS = "validation_bits_per_byte"  # logged beside each validation


def quick_validation(model: Any, data: Prepared) -> Score:
    """Nats per token over evenly spaced segments of the validation text (all of it if it is short).

    Beside it what that comes to for the whole text, with what no model decides: spelling and restoration.
    """
    part, policy = data.parts["validation"], policy_for(model)
    starts = segment_starts(len(part.ids), policy, QUICK_TOKENS)
    mean = float(nats_of_ids(model, part.ids, data.tokenizer.begin_id, policy, starts=starts).mean())
    overhead, size = data.validation_overhead
    bits = (mean * part.facts.tokens + overhead) / (math.log(2) * size)
    return Score(mean, {VALIDATION_BITS: bits})


def measure_run(run: Run, data: Prepared, reporter: Reporter) -> dict[str, Any]:
    """The figures of the validation text and, once, of the test text; None for a part that is empty."""
    scored = {name: score_part(run.model, data, name, reporter) for name in HELD_OUT if data.parts[name].facts.tokens}
    run.measured.update(scored)
    for name, part in scored.items():
        _warn_of_guessing(part, name, data.tokenizer.vocab_size, reporter)
    counted = {} if run.record["steps"] else {"tokens": data.parts["train"].facts.tokens}
    return {"context": str(policy_for(run.model)), **counted, **final_figures(scored, run, data, reporter)}


def final_figures(scored: dict[str, PartScore], run: Run, data: Prepared, reporter: Reporter) -> Line:
    """The figures of each part (None of one that is empty), the headline with its interval, and what it has to beat.

    Compressors go on learning from the text; beside them the model, too, is measured as it reads on.

    Intervals and baselines need the text itself: where it has changed since it was read there are none.
    """
    best = data.headline_part
    headline = {"label": f"bits/byte ({best})", "value": scored[best].figures.bits_per_byte, "part": best}
    figures: Line = {name: scored[name].figures.as_json() if name in scored else None for name in HELD_OUT}
    if not _is_unchanged(data.text):
        reporter.warn(f"{data.text.name} is not what it was when training began: no interval, no baselines")
        return figures | {"headline": headline | {"interval": None, "caution": None}, "baselines": []}
    headline |= _how_sure(_interval(scored[best], run, data, best))
    if not can_be_measured(data, best, reporter):
        return figures | {"headline": headline, "baselines": []}
    enough = len(scored[best].nats) > FIRST_FIT
    reading = reads_on(scored[best], data, best, reporter).figures.as_json() if enough else None
    simple = baselines_beside(data, best, run.model, reporter)
    return figures | {"headline": headline, "reading_on": reading, "baselines": simple}


def reads_on(score: PartScore, data: Prepared, name: str, reporter: Reporter | None = None) -> PartScore:
    """The same part, scored by the model as it goes on learning from it."""
    with (reporter or Reporter()).task(f"reading on through the {name} text", None):
        nats = score.nats if score.spelling is None else score.nats - score.spelling
        return score_of(reading_on(nats, held_out(data, name).ids), data, name)


def _how_sure(interval: Interval) -> dict[str, Any]:
    """A text of one block does not show how far its figure may stray."""
    ends = [interval.low, interval.high] if interval.blocks > 1 else None
    return {"interval": ends, "speaks_of": interval.speaks_of, "caution": interval.caution}


def _is_unchanged(text: Text) -> bool:
    try:
        return sha256_of_file(text.path) == text.sha256
    except OSError:
        return False


def _interval(score: PartScore, run: Run, data: Prepared, name: str) -> Interval:
    """The 95 % interval of bits per byte, from blocks of the original text, or from its documents."""
    content, starts = read_slice(data.text, data.original[name]), documents_in(data.text, data.original[name])
    table = on_original(score, data.tokenizer, content, parse_steps(run.settings.data.normalise))
    edges = block_edges(content.encode(), starts)
    return interval_of(block_sums(table, edges), np.diff(edges), documents=documents_of(edges, starts))


def on_original(score: PartScore, tokenizer: Tokenizer, content: str, steps: tuple[str, ...]) -> Surprisals:
    """The table of a part that was scored, as it lies on the part before it was normalised."""
    normalised = normalise(content, steps)
    table = score.surprisals(tokenizer, normalised.text)
    return laid_on_original(table, normalised) if steps else table


def _warn_of_guessing(part: PartScore, name: str, vocab_size: int, reporter: Reporter) -> None:
    """A uniform guess among V tokens costs ln V nats each; spelling comes on top for any model."""
    nats = part.nats.mean() - (0.0 if part.spelling is None else part.spelling.mean())
    if nats >= math.log(vocab_size):
        reporter.warn(
            f"{nats:.3f} nats per token of the {name} text, no better than guessing among {vocab_size:,} tokens "
            f"({math.log(vocab_size):.3f}): nothing was learnt that holds there; give more text or a longer --budget"
        )


def read_part(model: Any, data: Prepared) -> None:
    """The validation text as it is read for the final figures."""
    nats_of_ids(model, data.parts["validation"].ids, data.tokenizer.begin_id, policy_for(model))


@dataclass(frozen=True)
class PartScore:
    """One part as it was encoded: nats of every token, and the figures of the original."""

    nats: NDArray[np.float64]  # with spelling
    spelling: NDArray[np.float64] | None
    figures: Figures

    def surprisals(self, tokenizer: Tokenizer, text: str) -> Surprisals:
        """The table that `Scorer.score` would make of the same text, without asking the model again."""
        encoding = tokenizer.encode(text)
        spelling = np.zeros(len(self.nats)) if self.spelling is None else self.spelling
        return Surprisals(self.nats, encoding.start, encoding.end, encoding.unknown, spelling, encoding.lossy)


def score_part(model: Any, data: Prepared, name: str, reporter: Reporter | None = None) -> PartScore:
    """A whole part, every token counted once; unknown tokens pay for their spelling.

    If the text was normalised, the price of undoing that is added and the units are those of the original.
    """
    return _undone(_score_used(model, data, name, reporter or Reporter()), data, name)


def score_of(nats: NDArray[np.float64], data: Prepared, name: str) -> PartScore:
    """The same, of a part whose tokens have these nats as a model sees them."""
    return _undone(_with_spelling(nats, held_out(data, name), data, name), data, name)


def _undone(scored: PartScore, data: Prepared, name: str) -> PartScore:
    undo = data.undoing.get(name)
    if undo is None:
        return scored
    figures = replace(
        scored.figures,
        nats=scored.figures.nats + undo.nats,
        restoration=undo.nats,
        bytes=undo.bytes,
        characters=undo.characters,
        words=undo.words,
    )
    return replace(scored, figures=figures)


def _score_used(model: Any, data: Prepared, name: str, reporter: Reporter) -> PartScore:
    held, begin_id = held_out(data, name), data.tokenizer.begin_id
    how: dict[str, Any] = dict(impossible=held.impossible, progress=reporter.advance)
    with reporter.task(f"scoring the {name} text", 1.0):
        nats = nats_of_ids(model, held.ids, begin_id, policy_for(model), **how)
    return _with_spelling(nats, held, data, name)


@dataclass(frozen=True)
class HeldOut:
    """A part as it is read; where some of it may be unknown, with its text and what that rules out."""

    ids: NDArray[Any]
    text: str = ""
    encoding: Encoding | None = None
    impossible: Impossible | None = None


def held_out(data: Prepared, name: str) -> HeldOut:
    if data.tokenizer.unknown_id is None:
        return HeldOut(data.parts[name].ids)
    text = data.read(name)  # what is unknown has to be read again
    encoding = data.tokenizer.encode(text)
    return HeldOut(encoding.ids, text, encoding, impossible_in(encoding, text, data.tokenizer))


def _with_spelling(nats: NDArray[np.float64], held: HeldOut, data: Prepared, name: str) -> PartScore:
    facts = data.parts[name].facts
    if held.encoding is None:
        total = float(nats.sum())
        return PartScore(nats, None, Figures(total, facts.tokens, facts.characters, facts.bytes, facts.words))
    table = charge(nats, held.encoding, held.text, spelling_of(data.tokenizer), held.impossible)
    return PartScore(table.nats, table.spelling, figures_of(table, held.text))
