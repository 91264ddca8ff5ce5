"""What can be varied in each experiment: its sizes, its noise, its seed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from seqlab.core.errors import UsageError
from seqlab.core.settings.fields import COUNT, NOT_NEGATIVE, POSITIVE, Limits, setting

REPEATED = Limits(100, 1_000_000)  # fewer draws give no interval worth the name
SHARPNESS = Limits(0, 300, words="must be greater than 0 and at most 300 (e to its power is computed)", open_below=True)
MOMENTUM = Limits(0, 0.9999, words="must lie between 0 and 0.9999")
SEED = "seed of everything random"


def listed(flag: str, text: str, least: int, most: int) -> list[int]:
    """Whole numbers with commas between, each once, the smallest first."""
    try:
        found = sorted({int(part) for part in text.split(",") if part.strip()})
    except ValueError:
        raise UsageError(f"--{flag} {text} must be whole numbers with commas between, such as 10,50,200") from None
    if not found or found[0] < least or found[-1] > most:
        raise UsageError(f"--{flag} {text} must lie between {least:,} and {most:,}")
    return found


@dataclass(frozen=True)
class ScoreVariance:
    """How does the variance of qᵀk grow with the width d, and what does dividing by √d do to it?"""

    widths: str = setting("16,64,256", "widths d, with commas between")
    mean: float = setting(0.5, "every coordinate of μ, the mean of queries and keys", limits=Limits(-1e3, 1e3))
    sigma: float = setting(1.0, "standard deviation σ of each coordinate", limits=POSITIVE)
    draws: int = setting(100_000, "pairs of query and key drawn for each width", limits=REPEATED)
    seed: int = setting(0, SEED, limits=NOT_NEGATIVE)


@dataclass(frozen=True)
class Saturation:
    """How one-hot does the softmax become as d grows, and how much gradient does it still pass on?"""

    widths: str = setting("16,64,256,1024", "widths d, with commas between")
    keys: int = setting(16, "keys n that a query chooses among", limits=Limits(2, 1000))
    draws: int = setting(10_000, "queries drawn for each width", limits=REPEATED)
    seed: int = setting(0, SEED, limits=NOT_NEGATIVE)


@dataclass(frozen=True)
class Copying:
    """How long must a query q = λk_a be so that attention copies one value out of n?"""

    keys: str = setting("2,10,100,400", "numbers of keys n, with commas between")
    share: float = setting(0.99, "share of the attention that the one key shall have", limits=Limits(0.001, 0.999999))
    noise: float = setting(0.0, "variance of noise in each coordinate of a key", limits=Limits(0, 1))
    draws: int = setting(50, "sets of keys drawn, if there is noise", limits=Limits(2, 100_000))
    seed: int = setting(0, SEED, limits=NOT_NEGATIVE)


@dataclass(frozen=True)
class Averaging:
    """Can one query q = λ(k_a + k_b) average two values out of n?"""

    keys: int = setting(10, "keys n", limits=Limits(3, 2000))
    sharpness: float = setting(10.0, "λ, the length of the query along each key", limits=SHARPNESS)
    noise: float = setting(0.0, "variance of noise in each coordinate of a key", limits=Limits(0, 1))
    draws: int = setting(2_000, "sets of keys drawn, if there is noise", limits=REPEATED)
    seed: int = setting(0, SEED, limits=NOT_NEGATIVE)


@dataclass(frozen=True)
class NoisyLength:
    """When one key's length is noisy, do two heads average more steadily than one?"""

    keys: int = setting(10, "keys n", limits=Limits(3, 200))
    sharpness: float = setting(50.0, "λ, the length of the queries along each key", limits=SHARPNESS)
    length_variance: float = setting(0.5, "variance of the length of the key k_a", limits=Limits(0.01, 100))
    noise: float = setting(1e-6, "α, variance of noise in each coordinate of every key", limits=Limits(0, 1))
    draws: int = setting(40_000, "sets of keys drawn", limits=REPEATED)
    seed: int = setting(0, SEED, limits=NOT_NEGATIVE)


@dataclass(frozen=True)
class Extraction:
    """Which matrix M extracts v_a from v_a + v_b?"""

    width: int = setting(16, "width d of the values", limits=Limits(2, 2000))
    dimensions: int = setting(4, "dimensions m of each of the two subspaces", limits=COUNT)
    angle: float = setting(60.0, "degrees between the subspaces where they are not orthogonal", limits=Limits(5, 85))
    draws: int = setting(2_000, "pairs of values drawn", limits=Limits(2, 100_000))
    seed: int = setting(0, SEED, limits=NOT_NEGATIVE)

    def check(self) -> None:
        if 2 * self.dimensions > self.width:
            raise UsageError(
                f"--dimensions {self.dimensions}: two subspaces of {self.dimensions} dimensions do not fit into "
                f"--width {self.width}"
            )


@dataclass(frozen=True)
class ReceptiveField:
    """How many positions can one position hear of through n layers of k heads that each look at one place?"""

    heads: str = setting("1,2,3", "numbers of heads k, with commas between")
    layers: int = setting(5, "layers n at most", limits=Limits(1, 12))
    length: int = setting(128, "positions T", limits=Limits(2, 512))
    draws: int = setting(20, "random patterns of attention that are tried beside the best", limits=Limits(1, 1000))
    seed: int = setting(0, SEED, limits=NOT_NEGATIVE)


@dataclass(frozen=True)
class Normalisation:
    """What do the outputs of LayerNorm and BatchNorm depend on, and how long is what LayerNorm gives?"""

    rows: int = setting(6, "examples B", limits=Limits(3, 60))
    width: int = setting(9, "features d", limits=Limits(3, 200))
    gain: float = setting(-2.0, "γ, one number", limits=Limits(-1e6, 1e6))
    shift: float = setting(0.5, "β, one number", limits=Limits(-1e6, 1e6))
    epsilon: float = setting(0.1, "ε where it is not 0", limits=POSITIVE)
    seed: int = setting(0, SEED, limits=NOT_NEGATIVE)


@dataclass(frozen=True)
class Permutation:
    """Does attention see the order of its input?"""

    width: int = setting(32, "width of the encoder", limits=Limits(4, 512))
    depth: int = setting(2, "layers", limits=Limits(1, 12))
    length: int = setting(20, "positions", limits=Limits(3, 1000))
    draws: int = setting(20, "permutations tried", limits=Limits(1, 10_000))
    seed: int = setting(0, SEED, limits=NOT_NEGATIVE)

    def check(self) -> None:
        if self.width % 4:
            raise UsageError(f"--width {self.width}: two heads that turn pairs of numbers need a multiple of 4")


@dataclass(frozen=True)
class WeightDecay:
    """Which weights does weight decay shrink: those with large or those with small past gradients?"""

    large: float = setting(2.0, "scale of the large gradients", limits=POSITIVE)
    small: float = setting(0.2, "scale of the small gradients", limits=POSITIVE)
    weights: int = setting(20_000, "weights of each kind", limits=REPEATED)
    steps: int = setting(1_000, "training steps", limits=Limits(100, 100_000))
    learning_rate: float = setting(0.01, "learning rate η", limits=POSITIVE)
    decay: float = setting(0.01, "weight decay λ", limits=POSITIVE)
    seed: int = setting(0, SEED, limits=NOT_NEGATIVE)

    def check(self) -> None:
        if self.large <= self.small:
            raise UsageError(f"--large {self.large:g} must be greater than --small {self.small:g}")


@dataclass(frozen=True)
class MomentumForms:
    """Are the heavy ball and the running average of gradients the same method?"""

    size: int = setting(20, "weights", limits=COUNT)
    steps: int = setting(200, "training steps", limits=Limits(1, 100_000))
    momentum: float = setting(0.9, "α = β, what is kept of the last step", limits=MOMENTUM)
    learning_rate: float = setting(0.02, "learning rate ε of the ball", limits=POSITIVE)
    seed: int = setting(0, SEED, limits=NOT_NEGATIVE)


@dataclass(frozen=True)
class BiasCorrection:
    """What does bias correction do in Adam's first steps?"""

    steps: int = setting(100, "steps", limits=Limits(10, 100_000))
    beta1: float = setting(0.9, "β₁ of the average of gradients", limits=MOMENTUM)
    beta2: float = setting(0.99, "β₂ of the average of squares", limits=MOMENTUM)
    learning_rate: float = setting(0.001, "learning rate η", limits=POSITIVE)
    seed: int = setting(0, SEED, limits=NOT_NEGATIVE)


EXPERIMENTS: dict[str, type[Any]] = {
    "score-variance": ScoreVariance,
    "saturation": Saturation,
    "copying": Copying,
    "averaging": Averaging,
    "noisy-length": NoisyLength,
    "extraction": Extraction,
    "receptive-field": ReceptiveField,
    "normalisation": Normalisation,
    "permutation": Permutation,
    "decay": WeightDecay,
    "momentum": MomentumForms,
    "bias-correction": BiasCorrection,
}


def question_of(name: str) -> str:
    return " ".join((EXPERIMENTS[name].__doc__ or "").split())
