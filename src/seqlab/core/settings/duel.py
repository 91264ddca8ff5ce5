"""What can be asked of a duel, besides the settings that its models share."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from seqlab.core.errors import UsageError, nearest
from seqlab.core.registry import ALL_MODELS
from seqlab.core.settings.fields import Limits, check_group, check_settings, dashed, flags_of, setting, with_flags
from seqlab.core.settings.lm import LMSettings, model_fields

MATCHES = ("parameters", "flops", "time")
MOST_SEEDS = 1000
ELSEWHERE = {
    "text": "the text comes first",
    "model": "name the models with --models lstm,gru",
    "size": "the sizes follow from --budget and --match; --width fixes the first model's",
    "seed": "say how many with --seeds",
}


@dataclass(frozen=True)
class DuelSettings:
    models: str = setting("", "rnn, gru, lstm, …, bigram or ngram, with commas between")
    match: str = setting("time", "what is equal: parameters, flops or time", choices=MATCHES)
    seeds: int = setting(
        3, "trainings of each model", limits=Limits(1, MOST_SEEDS, words=f"must lie between 1 and {MOST_SEEDS:,}")
    )


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


def check_duel(duel: DuelSettings, said: dict[str, Any]) -> tuple[str, ...]:
    """The kinds that compete; refuses, in one line each, what cannot be asked of a duel."""
    kinds = checked_models(duel.models)
    check_group(duel)
    for name in said:
        if name in ELSEWHERE:
            raise UsageError(f"--{dashed(name)} is not a choice for a duel: {ELSEWHERE[name]}")
    check_settings(with_flags(LMSettings(), said))
    known = flags_of(LMSettings)
    own = [kind for kind in kinds if model_fields(kind) is None]  # may have anything
    for name in said:
        kinds_of_field = known[name][1].metadata["kinds"]
        if known[name][0] == "model" and kinds_of_field and not own and not set(kinds) & set(kinds_of_field):
            raise UsageError(f"--{dashed(name)} does not apply: none of {', '.join(kinds)} has it; leave it out")
    return kinds
