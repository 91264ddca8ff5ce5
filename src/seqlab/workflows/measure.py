"""Scoring the parts of a text that were encoded for a run."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from seqlab.core.reporting import Reporter
from seqlab.data.prepare import Part
from seqlab.evaluation.perplexity import Figures, figures_of
from seqlab.evaluation.surprisal import Scorer, nats_of_ids, policy_for, segment_starts
from seqlab.workflows.prepared import Prepared

QUICK_TOKENS = 12_288  # of the validation text, scored on the way; the whole of it is scored at the end


def quick_validation(model: Any, part: Part, begin_id: int) -> float:
    """Nats per token over evenly spaced segments of the validation text (all of it if it is short)."""
    policy = policy_for(model)
    starts = segment_starts(len(part.ids), policy, QUICK_TOKENS)
    return float(nats_of_ids(model, part.ids, begin_id, policy, starts=starts).mean())


def score_parts(model: Any, prepared: Prepared, reporter: Reporter) -> dict[str, Any]:
    """The figures of the validation text and, once, of the test text; None for a part that is empty."""
    return {
        name: score_part(model, prepared, name, reporter).as_json() if prepared.parts[name].facts.tokens else None
        for name in ("validation", "test")
    }


def score_part(model: Any, prepared: Prepared, name: str, reporter: Reporter | None = None) -> Figures:
    """The figures of a whole part, every token counted once; unknown tokens pay for their spelling.

    If the text was normalised, the price of undoing that is added and the units are those of the original.
    """
    figures = _score_used(model, prepared, name, reporter or Reporter())
    undo = prepared.undoing.get(name)
    if undo is None:
        return figures
    return replace(
        figures,
        nats=figures.nats + undo.nats,
        restoration=undo.nats,
        bytes=undo.bytes,
        characters=undo.characters,
        words=undo.words,
    )


def _score_used(model: Any, prepared: Prepared, name: str, reporter: Reporter) -> Figures:
    part, tokenizer = prepared.parts[name], prepared.tokenizer
    with reporter.task(f"scoring the {name} text", 1.0):
        if tokenizer.unknown_id is not None:  # what is unknown has to be read again
            text = prepared.read(name)
            return figures_of(Scorer(model, tokenizer).score(text, progress=reporter.advance), text)
        nats = nats_of_ids(model, part.ids, tokenizer.begin_id, policy_for(model), progress=reporter.advance)
    facts = part.facts
    return Figures(float(nats.sum()), facts.tokens, facts.characters, facts.bytes, facts.words)
