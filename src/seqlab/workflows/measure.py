"""Scoring the parts of a text that were encoded for a run."""

from __future__ import annotations

from typing import Any

from seqlab.core.reporting import Reporter
from seqlab.core.units import SPELLING_NATS_PER_BYTE
from seqlab.data.prepare import Part
from seqlab.data.tokenizers import Tokenizer
from seqlab.evaluation.perplexity import Figures
from seqlab.evaluation.surprisal import nats_of_ids, policy_for, segment_starts
from seqlab.workflows.prepared import Prepared

QUICK_TOKENS = 12_288  # of the validation text, scored on the way; the whole of it is scored at the end


def quick_validation(model: Any, part: Part, begin_id: int) -> float:
    """Nats per token over evenly spaced segments of the validation text (all of it if it is short)."""
    policy = policy_for(model)
    starts = segment_starts(len(part.ids), policy, QUICK_TOKENS)
    return float(nats_of_ids(model, part.ids, begin_id, policy, starts=starts).mean())


def score_part(model: Any, part: Part, tokenizer: Tokenizer, reporter: Reporter | None = None) -> Figures:
    """The figures of a whole part, every token counted once."""
    reporter = reporter or Reporter()
    with reporter.task(f"scoring the {part.name} text", 1.0):
        nats = nats_of_ids(model, part.ids, tokenizer.begin_id, policy_for(model), progress=reporter.advance)
    facts = part.facts
    total = float(nats.sum()) + SPELLING_NATS_PER_BYTE * facts.unknown_bytes
    return Figures(total, facts.tokens, facts.characters, facts.bytes, facts.words, facts.unknown)


def score_parts(model: Any, prepared: Prepared, reporter: Reporter) -> dict[str, Any]:
    """The figures of the validation text and, once, of the test text; None for a part that is empty."""
    return {
        name: score_part(model, part, prepared.tokenizer, reporter).as_json() if part.facts.tokens else None
        for name, part in ((name, prepared.parts[name]) for name in ("validation", "test"))
    }
