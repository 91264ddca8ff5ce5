"""What can be asked of the gradient doctor."""

from __future__ import annotations

from dataclasses import dataclass

from seqlab.core.errors import UsageError
from seqlab.core.registry import MODELS
from seqlab.core.settings.fields import COUNT, NOT_NEGATIVE, POSITIVE, Limits, setting

MOST_WEIGHTS = 20_000_000  # of each head
INITS = ("default", "uniform", "orthogonal")
KINDS = tuple(kind for kind in MODELS if kind != "bigram")


@dataclass(frozen=True)
class GradientSettings:
    model: str = setting("", "an untrained model instead of a run: rnn, gru, …; several with commas between")
    width: int = setting(128, "hidden width of an untrained model", limits=COUNT)
    depth: int = setting(1, "layers of an untrained model", limits=Limits(1, 1000))
    init: str = setting(
        "default", "recurrent matrices of an untrained model: default, uniform (torch's) or orthogonal", choices=INITS
    )
    length: int = setting(200, "positions of each sequence", limits=Limits(3, 100_000))
    sequences: int = setting(16, "sequences measured", limits=Limits(2, 10_000))
    seed: int = setting(0, "seed of the weights and of random sequences", limits=NOT_NEGATIVE)


@dataclass(frozen=True)
class AttentionSettings:
    length: int = setting(64, "most tokens of a sequence", limits=Limits(2, 10_000))
    sequences: int = setting(64, "sequences measured", limits=Limits(2, 10_000))
    heads: str = setting("", "only these heads: LAYER.HEAD as they are numbered, with commas between")
    shown: int = setting(24, "tokens of the example that is drawn", limits=Limits(2, 60))

    def check(self) -> None:
        if self.sequences * self.length**2 > MOST_WEIGHTS:
            raise UsageError(
                f"--sequences {self.sequences:,} of --length {self.length:,} have too many weights to keep; give less"
            )


@dataclass(frozen=True)
class MemorySettings:
    models: str = setting("rnn,gru,lstm,attentive-rnn,transformer", "models, with commas between")
    tasks: str = setting("copy,adding", "copy, adding or both")
    lags: str = setting("10,50,100,200", "positions to remember over, with commas between")
    width: int = setting(64, "hidden width", limits=COUNT)
    steps: int = setting(600, "training steps for each model, task and lag", limits=COUNT)
    learning_rate: float = setting(3e-3, "peak learning rate", limits=POSITIVE)
    examples: int = setting(500, "sequences that are judged", limits=Limits(2, 1_000_000))
    seed: int = setting(0, "seed of weights and sequences", limits=NOT_NEGATIVE)
