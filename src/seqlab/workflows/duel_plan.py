"""What each model of a duel is given: sizes, steps and the settings of its training, decided once."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from seqlab.core.errors import UsageError, nearest
from seqlab.core.registry import ALL_MODELS, FITTED_MODELS, MODELS, TOKENIZERS, look_up
from seqlab.core.reporting import Reporter
from seqlab.core.settings import (
    LMSettings,
    check_lm_settings,
    dashed,
    default_vocab_size,
    fit_lm_settings,
    fitted,
    flags_of,
    size_for_budget,
    with_flags,
)
from seqlab.core.units import human_count, parse_budget
from seqlab.models.build import MODEL_SIZES, known_sizes
from seqlab.workflows.job import Job
from seqlab.workflows.prepared import Prepared
from seqlab.workflows.run_folder import RunFolder
from seqlab.workflows.sizes import NEAR, Cost, cost_of, solve_width

MATCHES = ("parameters", "flops", "time")
MOST_SEEDS = 1000
SHOWN_SIZES = ("width", "depth", "heads", "order")
ELSEWHERE = {
    "text": "the text comes first",
    "model": "name the models with --models lstm,gru",
    "size": "the sizes follow from --budget and --match; --width fixes the first model's",
    "seed": "say how many with --seeds",
}


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


# --------------------------------------------------------------------------- what may be asked


def checked_models(models: str | Sequence[str]) -> tuple[str, ...]:
    kinds = tuple(k.strip() for k in (models.split(",") if isinstance(models, str) else models) if k.strip())
    if not kinds:
        raise UsageError("--models names no model; for example --models lstm,transformer,gru")
    for kind in kinds:
        if kind not in ALL_MODELS:
            raise UsageError(f"--models: unknown model '{kind}'{nearest(kind, ALL_MODELS)}")
        if kinds.count(kind) > 1:
            raise UsageError(f"--models names '{kind}' twice; name each model once")
    return kinds


def check_request(kinds: Sequence[str], budget: str, match: str, seeds: int, said: dict[str, Any]) -> None:
    """Refuse, in one line each, what cannot be asked of a duel."""
    if match not in MATCHES:
        raise UsageError(f"--match '{match}' is not known{nearest(match, MATCHES)}")
    if not 1 <= seeds <= MOST_SEEDS:
        raise UsageError(f"--seeds {seeds} must lie between 1 and {MOST_SEEDS:,}")
    parse_budget(budget)
    for name in said:
        if name in ELSEWHERE:
            raise UsageError(f"--{dashed(name)} is not a choice for a duel: {ELSEWHERE[name]}")
    check_lm_settings(with_flags(LMSettings(), said))
    for name in said.keys() & set(MODEL_SIZES):
        if not any(name in known_sizes(kind) for kind in kinds):
            raise UsageError(f"--{dashed(name)} does not apply: none of {', '.join(kinds)} has it; leave it out")


def flags_for(kind: str, said: dict[str, Any]) -> dict[str, Any]:
    """Those of the settings that a model of this kind has."""
    groups = {name: group for name, (group, _) in flags_of(LMSettings).items()}
    is_fitted = kind in FITTED_MODELS
    carries = not is_fitted and getattr(look_up(MODELS, kind, "model"), "carries_state", False)

    def applies(name: str) -> bool:
        if groups[name] == "model":
            return name in known_sizes(kind)
        if groups[name] == "training":
            return not is_fitted and (name != "carry" or carries)
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
            entrants[kind] = _entrant(kind, settings, tokens, said, prepared)
        first = first or entrants[kind]
    for kind, entrant in entrants.items():
        if match != "time" and first is not None:
            deviation = fitted(entrant.cost).by(match) / fitted(first.cost).by(match) - 1
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
        settings = fit_lm_settings(with_flags(LMSettings(), asked))
        if match != "time":
            if target is not None:
                settings = solve_width(settings, vocab_size, match, target, fixed_heads="heads" in said)
            target = target or cost_of(settings, vocab_size).by(match)
        sized[kind] = settings
    return sized


def _entrant(kind: str, settings: LMSettings, tokens: int | None, said: dict[str, Any], prepared: Prepared) -> Entrant:
    """With the steps that its budget buys; a time budget is timed here. Nothing is written."""
    if tokens is not None:
        training = dataclasses.replace(settings.training, budget=f"{tokens}tokens")
        settings = dataclasses.replace(settings, training=training)
    job = Job.begin(RunFolder(""), settings, prepared, None, {}, Reporter())
    model = settings.model
    sizes = {name: getattr(model, name) for name in SHOWN_SIZES if getattr(model, name) is not None}
    flags = flags_for(kind, said) | {"model": kind, "size": model.size} | flags_for(kind, sizes)
    flags |= {"budget": f"{job.plan.steps}steps", "eval_every": job.plan.eval_every}
    if settings.training.full_gradient is not None:
        flags["full_gradient"] = settings.training.full_gradient
    tokens_read = job.plan.steps * job.batches.tokens_per_step
    cost = cost_of(settings, prepared.tokenizer.vocab_size)
    return Entrant(kind, flags, sizes, job.plan.steps, tokens_read, cost)


def _fitted_entrant(kind: str, said: dict[str, Any]) -> Entrant:
    own = flags_for(kind, said)
    settings = fit_lm_settings(with_flags(LMSettings(), own | {"model": kind}))
    return Entrant(kind, own | {"model": kind}, {"order": settings.model.order})


def _say_if_far(entrant: Entrant, match: str, reporter: Reporter) -> None:
    if abs(entrant.deviation or 0.0) > NEAR:
        cost = human_count(fitted(entrant.cost).by(match))
        reporter.warn(f"no width of the {entrant.kind} comes nearer than {cost} {match} ({entrant.deviation:+.1%})")
