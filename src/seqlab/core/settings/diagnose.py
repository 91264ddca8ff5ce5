"""What can be asked of the gradient doctor."""

from __future__ import annotations

from dataclasses import dataclass

from seqlab.core.registry import MODELS
from seqlab.core.settings.fields import COUNT, NOT_NEGATIVE, Limits, setting

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
