"""What can be varied in each experiment: its sizes, its noise, its seed."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from seqlab.core.errors import UsageError
from seqlab.core.settings.fields import COUNT, POSITIVE, Limits, setting

REPEATED = Limits(100, 1_000_000)  # fewer draws give no interval worth the name
SHARPNESS = Limits(0, 300, words="must be greater than 0 and at most 300 (e to its power is computed)", open_below=True)
MOMENTUM = Limits(0, 0.9999, words="must lie between 0 and 0.9999")
SEED, SEEDS = "seed of everything random", Limits(0, 2**31, words="must lie between 0 and 2,147,483,648")
SCALE = Limits(1e-6, 1e6)
NOISY = 0.25  # λ²α up to which formulas that leave out small terms hold

DRAWN, HELD, WORK = 4e8, 4e7, 1e11  # random numbers in all and at once, products: a minute and 2 GB at most


def refuse_beyond(amount: float, most: float, flags: str) -> None:
    if amount > most:
        raise UsageError(
            f"{flags} together ask for {amount / most:,.0f} times as much as is possible; give smaller ones"
        )


def refuse_noise(noise: float, sharpness: float) -> None:
    if noise * sharpness**2 > NOISY:
        raise UsageError(
            f"--noise {noise:g} is too much for --sharpness {sharpness:g}: the formulas hold up to "
            f"{NOISY / sharpness**2:.2g}, while λ²α is at most {NOISY:g}"
        )


def listed(flag: str, text: str, least: int, most: int) -> list[int]:
    """Whole numbers with commas between, each once, the smallest first."""
    try:
        found = sorted({int(part) for part in text.split(",") if part.strip()})
    except ValueError:
        raise UsageError(f"--{flag} {text} must be whole numbers with commas between, such as 10,50,200") from None
    if not found:
        raise UsageError(f"--{flag} {text} names no number")
    if found[0] < least or found[-1] > most:
        raise UsageError(f"--{flag} {text} must lie between {least:,} and {most:,}")
    return found


@dataclass(frozen=True)
class ScoreVariance:
    """How does the variance of qᵀk grow with the width d, and what does dividing by √d do to it?"""

    widths: str = setting("16,64,256", "widths d, with commas between")
    mean: float = setting(0.5, "every coordinate of μ, the mean of queries and keys", limits=Limits(-1e3, 1e3))
    sigma: float = setting(1.0, "standard deviation σ of each coordinate", limits=SCALE)
    draws: int = setting(100_000, "pairs of query and key drawn for each width", limits=REPEATED)
    seed: int = setting(0, SEED, limits=SEEDS)

    def check(self) -> None:
        widest = listed("widths", self.widths, 1, 4096)[-1]
        refuse_beyond(2.0 * self.draws * widest, DRAWN, "--draws and --widths")


@dataclass(frozen=True)
class Saturation:
    """How one-hot does the softmax become as d grows, and how much gradient does it still pass on?"""

    widths: str = setting("16,64,256,1024", "widths d, with commas between")
    keys: int = setting(16, "keys n that a query chooses among", limits=Limits(2, 1000))
    draws: int = setting(6_000, "queries drawn for each width", limits=REPEATED)
    seed: int = setting(0, SEED, limits=SEEDS)

    def check(self) -> None:
        widest = listed("widths", self.widths, 1, 4096)[-1]
        refuse_beyond(1.0 * self.draws * self.keys * widest, DRAWN, "--draws, --keys and --widths")


@dataclass(frozen=True)
class Copying:
    """How long must a query q = λk_a be so that attention copies one value out of n?"""

    keys: str = setting("2,10,100,400", "numbers of keys n, with commas between")
    share: float = setting(0.99, "share of the attention that the one key shall have", limits=Limits(0.001, 0.999999))
    noise: float = setting(0.0, "variance of noise in each coordinate of a key", limits=Limits(0, 1))
    draws: int = setting(50, "sets of keys drawn, if there is noise", limits=Limits(2, 100_000))
    seed: int = setting(0, SEED, limits=SEEDS)

    def check(self) -> None:
        sizes = listed("keys", self.keys, 2, 1000)
        most = sizes[-1]
        if self.share * sizes[0] <= 1:
            raise UsageError(f"--share {self.share:g} is no more than each of {sizes[0]} keys has without any query")
        needed = math.log(most - 1) + math.log(self.share / (1 - self.share))
        if self.noise * needed > NOISY:
            raise UsageError(
                f"--noise {self.noise:g} is too much for {most} keys: the formula holds up to {NOISY / needed:.2g}"
            )
        if self.noise > 0:
            refuse_beyond(20.0 * self.draws * most**3, 10 * WORK, "--draws and --keys")


@dataclass(frozen=True)
class Averaging:
    """Can one query q = λ(k_a + k_b) average two values out of n?"""

    keys: int = setting(10, "keys n", limits=Limits(3, 500))
    sharpness: float = setting(10.0, "λ, the length of the query along each key", limits=SHARPNESS)
    noise: float = setting(0.0, "variance of noise in each coordinate of a key", limits=Limits(0, 1))
    draws: int = setting(2_000, "sets of keys drawn, if there is noise", limits=REPEATED)
    seed: int = setting(0, SEED, limits=SEEDS)

    def check(self) -> None:
        refuse_noise(self.noise, self.sharpness)
        if self.noise > 0:
            refuse_beyond(1.0 * self.draws * self.keys**2, HELD, "--draws and --keys")


@dataclass(frozen=True)
class NoisyLength:
    """When one key's length is noisy, do two heads average more steadily than one?"""

    keys: int = setting(10, "keys n", limits=Limits(3, 200))
    sharpness: float = setting(50.0, "λ, the length of the queries along each key", limits=SHARPNESS)
    length_variance: float = setting(0.5, "variance of the length of the key k_a", limits=Limits(0.01, 100))
    noise: float = setting(1e-6, "α, variance of noise in each coordinate of every key", limits=Limits(0, 1))
    draws: int = setting(40_000, "sets of keys drawn", limits=REPEATED)
    seed: int = setting(0, SEED, limits=SEEDS)

    def check(self) -> None:
        refuse_noise(self.noise, self.sharpness)
        refuse_beyond(1.0 * self.draws * self.keys**2, HELD, "--draws and --keys")


@dataclass(frozen=True)
class Extraction:
    """Which matrix M extracts v_a from v_a + v_b?"""

    width: int = setting(16, "width d of the values", limits=Limits(2, 2000))
    dimensions: int = setting(4, "dimensions m of each of the two subspaces", limits=COUNT)
    angle: float = setting(60.0, "degrees between the subspaces where they are not orthogonal", limits=Limits(5, 85))
    draws: int = setting(2_000, "pairs of values drawn", limits=Limits(2, 100_000))
    seed: int = setting(0, SEED, limits=SEEDS)

    def check(self) -> None:
        if 2 * self.dimensions > self.width:
            raise UsageError(
                f"--dimensions {self.dimensions}: two subspaces of {self.dimensions} dimensions do not fit into "
                f"--width {self.width}"
            )
        refuse_beyond(1.0 * self.draws * self.width, HELD / 4, "--draws and --width")


@dataclass(frozen=True)
class ReceptiveField:
    """How many positions can one position hear of through n layers of k heads that each look at one place?"""

    heads: str = setting("1,2,3", "numbers of heads k, with commas between")
    layers: int = setting(5, "layers n at most", limits=Limits(1, 12))
    length: int = setting(128, "positions T", limits=Limits(2, 512))
    draws: int = setting(20, "random patterns of attention that are tried beside the best", limits=Limits(1, 1000))
    seed: int = setting(0, SEED, limits=SEEDS)

    def check(self) -> None:
        heads = listed("heads", self.heads, 1, 8)
        each = sum(heads) * self.layers * self.length**3
        refuse_beyond(8.0 * each * (self.draws + self.layers), 10 * WORK, "--heads, --layers, --length and --draws")


@dataclass(frozen=True)
class Normalisation:
    """What do the outputs of LayerNorm and BatchNorm depend on, and how long is what LayerNorm gives?"""

    rows: int = setting(6, "examples B", limits=Limits(3, 60))
    width: int = setting(9, "features d", limits=Limits(3, 200))
    gain: float = setting(-2.0, "γ, one number", limits=Limits(-1e6, 1e6))
    shift: float = setting(0.5, "β, one number", limits=Limits(-1e6, 1e6))
    epsilon: float = setting(0.1, "ε where it is not 0", limits=POSITIVE)
    seed: int = setting(0, SEED, limits=SEEDS)


@dataclass(frozen=True)
class Permutation:
    """Does attention see the order of its input?"""

    width: int = setting(32, "width of the encoder", limits=Limits(4, 512))
    depth: int = setting(2, "layers", limits=Limits(1, 12))
    length: int = setting(20, "positions", limits=Limits(3, 1000))
    draws: int = setting(20, "permutations tried", limits=Limits(1, 10_000))
    seed: int = setting(0, SEED, limits=SEEDS)

    def check(self) -> None:
        if self.width % 4:
            raise UsageError(f"--width {self.width}: two heads that turn pairs of numbers need a multiple of 4")
        each = self.depth * self.length * self.width * (12 * self.width + self.length)
        refuse_beyond(16.0 * each * (self.draws + 10), 10 * WORK, "--width, --depth, --length and --draws")


@dataclass(frozen=True)
class WeightDecay:
    """Which weights does weight decay shrink: those with large or those with small past gradients?"""

    large: float = setting(2.0, "scale of the large gradients", limits=SCALE)
    small: float = setting(0.2, "scale of the small gradients", limits=SCALE)
    weights: int = setting(20_000, "weights of each kind", limits=REPEATED)
    steps: int = setting(1_000, "training steps", limits=Limits(100, 100_000))
    learning_rate: float = setting(0.01, "learning rate η", limits=POSITIVE)
    decay: float = setting(0.01, "weight decay λ", limits=POSITIVE)
    seed: int = setting(0, SEED, limits=SEEDS)

    def check(self) -> None:
        if self.large <= self.small:
            raise UsageError(f"--large {self.large:g} must be greater than --small {self.small:g}")
        refuse_beyond(4.0 * self.weights * self.steps, DRAWN, "--weights and --steps")
        if self.decay > self.small / 2:
            raise UsageError(
                f"--decay {self.decay:g} must be at most half of --small {self.small:g}: noise must prevail"
            )
        if self.steps * self.learning_rate * self.decay / self.small > 1 or self.learning_rate**2 * self.steps > 1:
            raise UsageError(
                f"--learning-rate {self.learning_rate:g} with --steps {self.steps:,} moves weights too far from "
                "1, where the formula holds; give less of either"
            )


@dataclass(frozen=True)
class MomentumForms:
    """Are the heavy ball and the running average of gradients the same method?"""

    size: int = setting(20, "weights", limits=COUNT)
    steps: int = setting(200, "training steps", limits=Limits(1, 100_000))
    momentum: float = setting(0.9, "α = β, what is kept of the last step", limits=MOMENTUM)
    learning_rate: float = setting(
        0.02, "learning rate ε of the ball (the steepest slope is 1.05)", limits=Limits(0, 1)
    )
    seed: int = setting(0, SEED, limits=SEEDS)

    def check(self) -> None:
        refuse_beyond(6.0 * self.size * self.steps, HELD, "--size and --steps")


@dataclass(frozen=True)
class BiasCorrection:
    """What does bias correction do in Adam's first steps?"""

    steps: int = setting(100, "steps", limits=Limits(10, 10_000))
    beta1: float = setting(0.9, "β₁ of the average of gradients", limits=MOMENTUM)
    beta2: float = setting(0.99, "β₂ of the average of squares", limits=MOMENTUM)
    learning_rate: float = setting(0.001, "learning rate η", limits=POSITIVE)
    seed: int = setting(0, SEED, limits=SEEDS)


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
