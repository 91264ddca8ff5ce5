"""How any task is trained: the group of settings that every task has."""

from __future__ import annotations

from dataclasses import dataclass

from seqlab.core.settings.fields import COUNT, NOT_NEGATIVE, POSITIVE, SHARE, setting
from seqlab.core.units import parse_budget

DECAYS = ("cosine", "linear", "constant")
OPTIMISERS = ("adamw", "sgd")
SIZES = ("small", "medium", "large", "huge")


@dataclass(frozen=True)
class TrainingSettings:
    budget: str = setting("60s", "how long to train: 60s, 5m, 1h, 2000steps, 5Mtokens or 3epochs", check=parse_budget)
    batch: int | None = setting(None, "sequences per step", limits=COUNT)
    optimiser: str = setting("adamw", "adamw or sgd (plain gradient descent)", choices=OPTIMISERS)
    accumulate: int = setting(
        1, "cut each batch into this many pieces to save memory (the same step but for dropout)", limits=COUNT
    )
    learning_rate: float | None = setting(None, "peak learning rate", limits=POSITIVE)
    warmup: float = setting(0.05, "share of the steps over which the learning rate rises", limits=SHARE)
    decay: str = setting("linear", "cosine, linear or constant, down to final_lr", choices=DECAYS)
    final_lr: float = setting(0.0, "learning rate at the end, as a share of the peak", limits=SHARE)
    weight_decay: float | None = setting(None, "decoupled weight decay of the matrices", limits=NOT_NEGATIVE)
    clip: float = setting(1.0, "largest global gradient norm", limits=POSITIVE)
    eval_every: int | None = setting(
        None, "steps between validations (chosen so that they cost little time)", limits=COUNT
    )
    patience: int = setting(10, "stop after this many validations without a better one; 0: never", limits=NOT_NEGATIVE)
    seed: int = setting(0, "seed of every random stream", limits=NOT_NEGATIVE)


def size_for_budget(budget: str) -> str:
    """The preset that gets the most out of a budget on a small machine (docs/log.md)."""
    seconds = parse_budget(budget).seconds
    if seconds is None or seconds < 100:
        return "small"
    if seconds < 300:
        return "medium"
    return "large" if seconds < 1800 else "huge"
