"""What can be asked of the gradient doctor."""

from __future__ import annotations

from dataclasses import dataclass

from seqlab.core.errors import UsageError
from seqlab.core.registry import MODELS
from seqlab.core.settings.experiments import SEED, SEEDS, WORK, listed, refuse_beyond
from seqlab.core.settings.fields import COUNT, NOT_NEGATIVE, POSITIVE, Limits, setting

MOST_WEIGHTS = 20_000_000  # of each head
INITS = ("default", "uniform", "orthogonal")
KINDS = tuple(kind for kind in MODELS if kind != "bigram")
DIRECTIONS = {"both": (False, True), "independent": (False,), "orthogonal": (True,)}  # which are orthogonal
DRAWN_ONLY = ("scales", "widths", "causal")  # what a run decides itself


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


@dataclass(frozen=True)
class ApproximationSettings:
    features: str = setting("16,64,256,1024", "numbers of random features m, with commas between")
    directions: str = setting("both", "random directions: independent, orthogonal or both", choices=DIRECTIONS)
    scales: str = setting(
        "0.125,0.25,0.5,1,2,4", "without a run: standard deviations of the logits qᵀk/√d, with commas between"
    )
    widths: str = setting("16,64", "without a run: widths d of queries and keys, with commas between")
    causal: bool = setting(False, "without a run: a query sees the keys up to its own position")
    length: int = setting(64, "queries and keys of a sequence (of a run: at most)", limits=Limits(2, 10_000))
    sequences: int = setting(32, "sequences measured", limits=Limits(2, 10_000))
    draws: int = setting(2, "draws of random directions for each sequence", limits=Limits(1, 10_000))
    seed: int = setting(0, SEED, limits=SEEDS)

    @property
    def every_m(self) -> list[int]:
        return listed("features", self.features, 1, 65_536)

    @property
    def every_width(self) -> list[int]:
        return listed("widths", self.widths, 1, 4096)

    @property
    def every_scale(self) -> list[float]:
        return listed_numbers("scales", self.scales, 0.001, 1000)

    def check(self) -> None:
        if self.sequences * self.length**2 > MOST_WEIGHTS:
            raise UsageError(
                f"--sequences {self.sequences:,} of --length {self.length:,} have too many weights to keep; give less"
            )
        self.refuse_too_much(len(self.every_width) * len(self.every_scale))

    def refuse_too_much(self, heads: int) -> None:
        """Of so many heads, or choices of width and scale: a query times a key, in every feature of every draw."""
        products = heads * self.sequences * self.draws * self.length**2
        each = sum(self.every_m) * len(DIRECTIONS[self.directions])
        refuse_beyond(1.0 * products * each, WORK, "--features, --length, --sequences and --draws")


def listed_numbers(flag: str, text: str, least: float, most: float) -> list[float]:
    """Numbers with commas between, each once, the smallest first."""
    try:
        found = sorted({float(part) for part in text.split(",") if part.strip()})
    except ValueError:
        raise UsageError(f"--{flag} {text} must be numbers with commas between, such as 0.5,1,2") from None
    if not found:
        raise UsageError(f"--{flag} {text} names no number")
    if not all(least <= number <= most for number in found):
        raise UsageError(f"--{flag} {text} must lie between {least:g} and {most:g}")
    return found
