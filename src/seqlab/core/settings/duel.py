"""What can be asked of a duel, besides the settings that its models share."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from seqlab.core.errors import UsageError, nearest
from seqlab.core.registry import ALL_MODELS, FITTED_MODELS
from seqlab.core.settings.fields import (
    Limits,
    check_group,
    check_settings,
    check_types,
    dashed,
    flags_of,
    setting,
    with_flags,
)
from seqlab.core.settings.lm import LMSettings, check_watched, model_fields
from seqlab.core.settings.training import OPTIMISERS, TrainingSettings

MATCHES = ("parameters", "flops", "time")
MOST_SEEDS = 1000


@dataclass(frozen=True)
class DuelSettings:
    models: str = setting("", "rnn, gru, lstm, …, bigram or ngram, with commas between")
    match: str = setting("time", "what is equal: parameters, flops or time", choices=MATCHES)
    seeds: int = setting(
        3, "trainings of each model", limits=Limits(1, MOST_SEEDS, words=f"must lie between 1 and {MOST_SEEDS:,}")
    )


@dataclass(frozen=True)
class Rules:
    """Who may compete in the duels of a task, and what may be said of them: all that is checked before data is read."""

    settings_type: type  # of the task: the models share its settings
    kinds: Mapping[str, Any]  # the registry of who may compete; it is read when it is needed, and may grow
    fitted: Collection[str]  # those of them that are fitted at once: no steps, no seeds
    elsewhere: Mapping[str, str]  # settings that are no choice for a duel -> where that is said instead
    example: str  # of --models
    command: tuple[str, ...]  # what is typed before the data
    matches: tuple[str, ...] = ("time",)  # what can be made equal
    budget: str = TrainingSettings().budget  # of each model, if nobody says
    own_kind: Callable[[str], bool] = lambda kind: False  # somebody's own model, which may have any setting
    check_kind: Callable[[str, Mapping[str, Any]], None] = lambda kind, said: None  # refuses what one of them has not
    flag: str = "models"  # that names who competes
    noun: str = "model"  # and what they are


LM_RULES = Rules(
    settings_type=LMSettings,
    kinds=ALL_MODELS,
    fitted=FITTED_MODELS,
    elsewhere={
        "text": "the text comes first",
        "model": "name the models with --models lstm,gru",
        "size": "the sizes follow from --budget and --match; --width fixes the first model's",
        "seed": "say how many with --seeds",
    },
    example="lstm,transformer,gru",
    command=("lm", "compare"),
    matches=MATCHES,
    own_kind=lambda kind: model_fields(kind) is None,
    check_kind=lambda kind, said: check_watched(kind, said.get("watch_gradients")),
)
OPTIMISER_RULES: Rules = dataclasses.replace(
    LM_RULES,
    kinds=dict.fromkeys(OPTIMISERS, ""),
    fitted=(),
    elsewhere={
        "text": "the text comes with --on",
        "optimiser": "name them with --duel adamw,sgd",
        "learning_rate": "each optimiser's own is tuned",
        "size": "it follows from --budget; --width and --depth are choices",
        "seed": "say how many with --seeds",
        "momentum": "each optimiser has its own default",
        "bias_correction": "each optimiser has its own default",
    },
    example="adamw,sgd",
    command=("diagnose", "optimisers", "--on"),
    matches=("time",),
    own_kind=lambda kind: True,  # what can be said depends on the model, not on the optimiser
    flag="duel",
    noun="optimiser",
)


def checked_models(models: str | Sequence[str], rules: Rules) -> tuple[str, ...]:
    kinds = tuple(k.strip() for k in (models.split(",") if isinstance(models, str) else models) if k.strip())
    if not kinds:
        raise UsageError(f"--{rules.flag} names no {rules.noun}; for example --{rules.flag} {rules.example}")
    for kind in kinds:
        if kind not in rules.kinds:
            raise UsageError(f"--{rules.flag}: unknown {rules.noun} '{kind}'{nearest(kind, rules.kinds)}")
        if kinds.count(kind) > 1:
            raise UsageError(f"--{rules.flag} names '{kind}' twice; name each {rules.noun} once")
    if len(kinds) < 2:
        raise UsageError(
            f"--{rules.flag} names {kinds[0]} alone; a duel needs two {rules.noun}s, such as {rules.example}"
        )
    return kinds


def check_duel(duel: DuelSettings, said: Mapping[str, Any], rules: Rules) -> tuple[str, ...]:
    """The kinds that compete; refuses, in one line each, what cannot be asked of a duel."""
    kinds = checked_models(duel.models, rules)
    check_types(duel)
    check_group(duel)
    if duel.match not in rules.matches:
        possible = " or ".join(f"--match {match}" for match in rules.matches)
        raise UsageError(f"--match {duel.match} is not a choice here: there are no sizes to solve for; say {possible}")
    for name in said:
        if name in rules.elsewhere:
            raise UsageError(f"--{dashed(name)} is not a choice for a duel: {rules.elsewhere[name]}")
    check_settings(with_flags(rules.settings_type(), said))
    for kind in kinds:
        rules.check_kind(kind, said)
    known = flags_of(rules.settings_type)
    own = any(rules.own_kind(kind) for kind in kinds)  # may have anything
    for name in said:
        kinds_of_field = known[name][1].metadata["kinds"]
        if known[name][0] == "model" and kinds_of_field and not own and not set(kinds) & set(kinds_of_field):
            raise UsageError(f"--{dashed(name)} does not apply: none of {', '.join(kinds)} has it; leave it out")
    return kinds


def flags_of_kind(kind: str, said: Mapping[str, Any], rules: Rules) -> dict[str, Any]:
    """Those of the settings that a model of this kind has, as far as the fields themselves tell."""
    known = flags_of(rules.settings_type)

    def applies(name: str) -> bool:
        group, f = known[name]
        if group == "training" and kind in rules.fitted:
            return False
        kinds = f.metadata["kinds"]
        return kinds is None or kind in kinds or rules.own_kind(kind)

    return {name: value for name, value in said.items() if applies(name)}
