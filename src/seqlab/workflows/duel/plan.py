"""What each language model of a duel is told: the settings that it has, one tokenizer for all, and sizes."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

from seqlab.core.registry import FITTED_MODELS, TOKENIZERS, look_up
from seqlab.core.reporting import Reporter
from seqlab.core.settings.fields import filled, flags_of, with_flags
from seqlab.core.settings.lm import LMSettings, default_vocab_size, fill_lm, model_fields
from seqlab.core.settings.training import size_for_budget
from seqlab.core.units import human_count
from seqlab.models.build import known_sizes
from seqlab.workflows.duel.entrants import Entrant
from seqlab.workflows.duel.sizes import NEAR, cost_of, solve_width

UNLED = {"guide": "none"}  # what is compared is the networks, unless somebody says otherwise


def flags_for(kind: str, said: dict[str, Any]) -> dict[str, Any]:
    """Those of the settings that a model of this kind has."""
    known = flags_of(LMSettings)
    own_kind = model_fields(kind) is None  # takes what its constructor takes

    def applies(name: str) -> bool:
        group, f = known[name]
        if group == "model":
            return name in known_sizes(kind)
        if group == "training":
            kinds = f.metadata["kinds"]
            return kind not in FITTED_MODELS and (kinds is None or own_kind or kind in kinds)
        return True

    return {name: value for name, value in said.items() if applies(name)}


def with_one_tokenizer(said: dict[str, Any], train_bytes: int) -> dict[str, Any]:
    """The same tokens for every model: bpe, if nobody says otherwise."""
    kind = said.get("tokenizer", "bpe")
    size = default_vocab_size(kind, train_bytes, guide=said.get("guide"))
    has_choice = look_up(TOKENIZERS, kind, "tokenizer").least_vocab_size is not None
    return {"tokenizer": kind} | ({"vocab_size": size} if has_choice else {}) | UNLED | said


def sized_settings(
    kinds: Sequence[str], budget: str, match: str, said: dict[str, Any], vocab_size: int
) -> dict[str, LMSettings]:
    """Settings of every kind that is trained; the first one's preset sets the size of the others."""
    sized: dict[str, LMSettings] = {}
    target: float | None = None
    for kind in (kind for kind in kinds if kind not in FITTED_MODELS):
        own = flags_for(kind, said)
        if match != "time" and target is not None:
            own.pop("width", None)
        if match == "flops" and kind == "bigram":  # all pairs at once are too many tokens for one step
            own.setdefault("full_gradient", False)
        asked = own | {"model": kind, "size": size_for_budget(budget), "budget": budget}
        settings = fill_lm(with_flags(LMSettings(), asked))
        if match != "time":
            if target is not None:
                settings = solve_width(settings, vocab_size, match, target, fixed_heads="heads" in said)
            target = target or cost_of(settings, vocab_size, match).by(match)
        sized[kind] = settings
    return sized


def with_deviation(entrant: Entrant, first: Entrant, match: str, reporter: Reporter) -> Entrant:
    """How far its cost is from the first model's; says so if it is far."""
    deviation = filled(entrant.cost).by(match) / filled(first.cost).by(match) - 1
    if abs(deviation) > NEAR:
        cost = human_count(filled(entrant.cost).by(match))
        reporter.warn(f"no width of the {entrant.kind} comes nearer than {cost} {match} ({deviation:+.1%})")
    return dataclasses.replace(entrant, deviation=deviation)
