"""What each model of a duel is given: sizes, steps and the settings of its training, decided once."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from seqlab.core.registry import FITTED_MODELS, TOKENIZERS, look_up
from seqlab.core.reporting import Reporter
from seqlab.core.settings.fields import filled, flags_of, with_changes, with_flags
from seqlab.core.settings.lm import LMSettings, default_vocab_size, fill_lm, model_fields
from seqlab.core.settings.training import size_for_budget
from seqlab.core.units import human_count
from seqlab.models.build import known_sizes
from seqlab.training.plan import plan_steps
from seqlab.workflows.duel.sizes import NEAR, Cost, cost_of, solve_width
from seqlab.workflows.lm.data import Prepared
from seqlab.workflows.lm.task import LanguageModelling

SHOWN_SIZES = ("width", "depth", "heads", "order")


@dataclass(frozen=True)
class Entrant:
    """One model of the duel. `flags` is what `train_lm` is told, but for the seed."""

    kind: str
    flags: dict[str, Any]
    sizes: dict[str, Any]
    steps: int | None = None
    tokens: int | None = None
    cost: Cost | None = None  # None: fitted, which has neither
    deviation: float | None = None  # of its cost from the first model's, where they are to be equal

    @property
    def fitted(self) -> bool:
        return self.cost is None

    @property
    def size_words(self) -> str:
        return ", ".join(f"{name} {self.sizes[name]}" for name in SHOWN_SIZES if name in self.sizes)

    def as_json(self) -> dict[str, Any]:
        return dataclasses.asdict(self)

    @classmethod
    def from_json(cls, record: dict[str, Any]) -> Entrant:
        cost = None if record["cost"] is None else Cost(**record["cost"])
        return cls(**(record | {"cost": cost}))


# --------------------------------------------------------------------------- who is told what


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
    size = default_vocab_size(kind, train_bytes)
    has_choice = look_up(TOKENIZERS, kind, "tokenizer").least_vocab_size is not None
    return {"tokenizer": kind} | ({"vocab_size": size} if has_choice else {}) | said


# --------------------------------------------------------------------------- the plan


def plan_duel(
    kinds: Sequence[str], budget: str, match: str, said: dict[str, Any], prepared: Prepared, reporter: Reporter
) -> list[Entrant]:
    """Solve for the sizes, and turn the budget into steps, once for each model.

    parameters  every model has as many as the first, and the whole budget
    flops       every model has the first one's operations per token, and as many tokens as the budget buys it
    time        every model has its own preset, and the whole budget
    """
    sized = sized_settings(kinds, budget, match, said, prepared.tokenizer.vocab_size)
    entrants: dict[str, Entrant] = {}
    first: Entrant | None = None
    for kind, settings in sized.items():
        tokens = first.tokens if match == "flops" and first is not None else None
        with reporter.task(f"timing a step of the {kind}", None):
            entrants[kind] = _entrant(kind, settings, tokens, match, said, prepared)
        first = first or entrants[kind]
    for kind, entrant in entrants.items():
        if match != "time" and first is not None:
            deviation = filled(entrant.cost).by(match) / filled(first.cost).by(match) - 1
            entrants[kind] = dataclasses.replace(entrant, deviation=deviation)
            _say_if_far(entrants[kind], match, reporter)
    return [entrants[kind] if kind in entrants else _fitted_entrant(kind, said) for kind in kinds]


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


def _entrant(
    kind: str, settings: LMSettings, tokens: int | None, match: str, said: dict[str, Any], prepared: Prepared
) -> Entrant:
    """With the steps that its budget buys; a time budget is timed here. Nothing is written."""
    if tokens is not None:
        settings = with_changes(settings, {"training": {"budget": f"{tokens}tokens"}})
    task, vocab_size = LanguageModelling(), prepared.tokenizer.vocab_size
    settings = task.settle(settings, prepared)
    cost = cost_of(settings, vocab_size, match)
    model, network = settings.model, task.build(settings, prepared, Reporter())
    learning = filled(task.learning(settings, prepared, network))
    count, every = plan_steps(network, learning, settings.training, lambda: task.validate(network, prepared))
    sizes = {name: getattr(model, name) for name in SHOWN_SIZES if getattr(model, name) is not None}
    flags = flags_for(kind, said) | {"model": kind, "size": model.size} | flags_for(kind, sizes)
    flags |= {"budget": f"{count.steps}steps", "eval_every": every}
    if settings.training.full_gradient is not None:
        flags["full_gradient"] = settings.training.full_gradient
    tokens_read = count.steps * learning.batches.count_per_step
    return Entrant(kind, flags, sizes, count.steps, tokens_read, cost)


def _fitted_entrant(kind: str, said: dict[str, Any]) -> Entrant:
    own = flags_for(kind, said)
    settings = fill_lm(with_flags(LMSettings(), own | {"model": kind}))
    return Entrant(kind, own | {"model": kind}, {"order": settings.model.order})


def _say_if_far(entrant: Entrant, match: str, reporter: Reporter) -> None:
    if abs(entrant.deviation or 0.0) > NEAR:
        cost = human_count(filled(entrant.cost).by(match))
        reporter.warn(f"no width of the {entrant.kind} comes nearer than {cost} {match} ({entrant.deviation:+.1%})")
