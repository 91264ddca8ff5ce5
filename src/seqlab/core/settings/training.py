"""How any task is trained: the group of settings that every task has."""

from __future__ import annotations

from dataclasses import dataclass

from seqlab.core.errors import UsageError
from seqlab.core.settings.fields import BELOW_ONE, COUNT, NOT_NEGATIVE, POSITIVE, SHARE, dashed, setting
from seqlab.core.units import parse_budget

DECAYS = ("cosine", "linear", "constant", "stable")
OPTIMISERS = ("adamw", "muon", "adam", "adam-l2", "momentum", "momentum-average", "sgd")
HAVE = {  # settings that only some optimisers have
    "momentum": ("momentum", "momentum-average"),
    "bias_correction": ("adam", "adam-l2", "momentum-average"),
}
DECAYED = ("matrices", "all")
SIZES = ("small", "medium", "large", "huge")


@dataclass(frozen=True)
class TrainingSettings:
    budget: str = setting("60s", "how long to train: 60s, 5m, 1h, 2000steps, 5Mtokens or 3epochs", check=parse_budget)
    batch: int | None = setting(None, "sequences per step", limits=COUNT)
    optimiser: str = setting(
        "adamw",
        "adamw, muon, or from their equations: adam, adam-l2 (decay in the gradient), momentum (heavy ball), "
        "momentum-average, sgd",
        choices=OPTIMISERS,
    )
    momentum: float | None = setting(None, "share of its speed that momentum keeps (0.9)", limits=BELOW_ONE)
    bias_correction: bool | None = setting(None, "correct averages for starting at 0 (adam: yes; momentum-average: no)")
    accumulate: int = setting(
        1, "cut each batch into this many pieces to save memory (the same step but for dropout)", limits=COUNT
    )
    recompute: bool = setting(
        False,
        "save memory: compute the inside of each block again for its gradient (transformer; the same bits)",
        kinds=("transformer",),
        cost=True,
    )
    learning_rate: float | None = setting(None, "peak learning rate", limits=POSITIVE)
    warmup: float = setting(0.05, "share of the steps over which the learning rate rises", limits=SHARE)
    decay: str = setting(
        "linear", "how the learning rate falls to final_lr: cosine, linear, constant, stable (late)", choices=DECAYS
    )
    cooldown: float | None = setting(
        None, "stable: share of the steps over which the learning rate falls (0.2)", limits=SHARE
    )
    final_lr: float = setting(0.0, "learning rate at the end, as a share of the peak", limits=SHARE)
    weight_decay: float | None = setting(None, "weight decay, of the matrices", limits=NOT_NEGATIVE)
    decay_on: str = setting(
        "matrices", "what decays: matrices (not norms, biases and tables that are looked up) or all", choices=DECAYED
    )
    clip: float = setting(1.0, "largest global gradient norm", limits=POSITIVE)
    clip_value: float | None = setting(None, "largest single gradient, before the norm is clipped", limits=POSITIVE)
    ema: float = setting(
        0.0, "measure and keep a running average of the weights, of this memory (0.999; 0: none)", limits=BELOW_ONE
    )
    eval_every: int | None = setting(
        None, "steps between validations (chosen so that they cost little time)", limits=COUNT
    )
    patience: int = setting(10, "stop after this many validations without a better one; 0: never", limits=NOT_NEGATIVE)
    tensorboard: bool = setting(
        False, "write the metrics for TensorBoard too, in the run folder (needs seqlab[tensorboard])", cost=True
    )
    seed: int = setting(0, "seed of every random stream", limits=NOT_NEGATIVE)

    def check(self) -> None:
        """Refuse what is said of an optimiser that has no such thing."""
        for name, kinds in HAVE.items():
            if getattr(self, name) is not None and self.optimiser not in kinds:
                raise UsageError(
                    f"--{dashed(name)} does not apply to --optimiser {self.optimiser}; it is for {', '.join(kinds)}"
                )
        if self.cooldown is not None and self.decay != "stable":
            raise UsageError(f"--cooldown does not apply to --decay {self.decay}; it is for stable")
        if self.batch is not None and self.accumulate > self.batch:
            raise UsageError(
                f"--accumulate {self.accumulate} cuts a batch of {self.batch} into more pieces than it has; "
                f"the most is {self.batch}, or choose a larger --batch"
            )


def size_for_budget(budget: str) -> str:
    """The preset that gets the most out of a budget on a small machine (docs/log.md)."""
    seconds = parse_budget(budget).seconds
    if seconds is None or seconds < 100:
        return "small"
    if seconds < 300:
        return "medium"
    return "large" if seconds < 1800 else "huge"
