"""What can be asked of `cost --scaling` and `cost --crossover`."""

from __future__ import annotations

import itertools
from dataclasses import dataclass

from seqlab.core.errors import UsageError, nearest
from seqlab.core.settings.experiments import SEED, SEEDS
from seqlab.core.settings.fields import Limits, setting
from seqlab.core.sizes import check_heads

MEASURED_LAYERS = ("softmax", "separable", "random_features", "gru", "lstm", "rnn", "block")
AXES = ("length", "width", "heads")
FEWEST = 3  # sizes of a grid: two of them make a line that fits whatever is measured
LONGEST, WIDEST, MOST_HEADS = 1 << 20, 1 << 14, 1 << 10
ROUNDS = Limits(2, 1000)
SIZE = Limits(1, WIDEST)
FEATURES = Limits(1, 65_536)
BATCH = Limits(1, 1 << 16)
ROUNDS_HELP = "rounds; each times every layer at every size once"
BATCH_HELP = "sequences in a batch"
FEATURES_HELP = "random features m of each head (default: 4 for each of its numbers)"
LENGTHS_HELP = "lengths n, increasing, with commas between"


@dataclass(frozen=True)
class ScalingSettings:
    layers: str = setting(
        "softmax,separable,random_features,gru,lstm,block",
        "layers, with commas between: softmax, separable, random_features, gru, lstm, rnn, block (of a Transformer)",
    )
    axes: str = setting("length,width,heads", "sizes that are varied: length, width, heads, with commas between")
    lengths: str = setting("128,256,512,1024,2048", LENGTHS_HELP)
    widths: str = setting("64,128,256,512", "widths d, increasing, with commas between")
    head_counts: str = setting("1,2,4,8,16", "numbers of heads, increasing, with commas between")
    length: int = setting(512, "length while another size is varied", limits=Limits(1, LONGEST))
    width: int = setting(128, "width while another size is varied", limits=SIZE)
    heads: int = setting(4, "heads while another size is varied", limits=Limits(1, MOST_HEADS))
    batch: int = setting(1, BATCH_HELP, limits=BATCH)
    features: int | None = setting(None, FEATURES_HELP, limits=FEATURES)
    causal: bool = setting(False, "a position sees itself and those before it")
    rounds: int = setting(7, ROUNDS_HELP, limits=ROUNDS)
    seed: int = setting(0, SEED, limits=SEEDS)

    @property
    def every_layer(self) -> list[str]:
        return named("layers", self.layers, MEASURED_LAYERS)

    @property
    def every_axis(self) -> list[str]:
        return named("axes", self.axes, AXES)

    @property
    def grids(self) -> dict[str, list[int]]:
        """Axis -> its sizes."""
        grids = {
            "length": lambda: increasing("lengths", self.lengths, LONGEST),
            "width": lambda: increasing("widths", self.widths, WIDEST),
            "heads": lambda: increasing("head-counts", self.head_counts, MOST_HEADS),
        }
        return {axis: grids[axis]() for axis in self.every_axis}

    def check(self) -> None:
        if self.features is not None and "random_features" not in self.every_layer:
            raise UsageError(f"--features {self.features} is for layer 'random_features', which --layers leaves out")
        grids = self.grids
        if not {"rnn", "gru", "lstm"}.issuperset(self.every_layer):
            for width in [self.width, *grids.get("width", [])]:
                check_heads(width, self.heads)
            for heads in grids.get("heads", []):
                check_heads(self.width, heads)
        elif self.every_axis == ["heads"]:
            raise UsageError(
                f"--layers {self.layers} have no heads; leave --axes heads out, or name an attention layer"
            )


@dataclass(frozen=True)
class CrossoverSettings:
    lengths: str = setting("64,128,256,512,1024,2048,4096", LENGTHS_HELP)
    width: int = setting(128, "width d of the layers", limits=SIZE)
    heads: int = setting(4, "heads of the layers", limits=Limits(1, MOST_HEADS))
    features: int | None = setting(None, FEATURES_HELP, limits=FEATURES)
    batch: int = setting(1, BATCH_HELP, limits=BATCH)
    rounds: int = setting(9, ROUNDS_HELP, limits=ROUNDS)
    seed: int = setting(0, SEED, limits=SEEDS)

    @property
    def every_length(self) -> list[int]:
        return increasing("lengths", self.lengths, LONGEST)

    def check(self) -> None:
        check_heads(self.width, self.heads)
        increasing("lengths", self.lengths, LONGEST)


def named(flag: str, text: str, known: tuple[str, ...]) -> list[str]:
    """Names with commas between, each once, in the order given."""
    found = list(dict.fromkeys(part.strip() for part in text.split(",") if part.strip()))
    if not found:
        raise UsageError(f"--{flag} names nothing; known: {', '.join(known)}")
    for name in found:
        if name not in known:
            raise UsageError(f"--{flag} '{name}' is not known{nearest(name, known)}")
    return found


def increasing(flag: str, text: str, most: int) -> list[int]:
    """FEWEST sizes or more, each larger than the one before."""
    try:
        found = [int(part) for part in text.split(",") if part.strip()]
    except ValueError:
        raise UsageError(f"--{flag} {text} must be whole numbers with commas between, such as 64,128,256") from None
    if any(a >= b for a, b in itertools.pairwise(found)):
        raise UsageError(f"--{flag} {text} must increase; give {','.join(map(str, sorted(set(found))))}")
    if len(found) < FEWEST:
        raise UsageError(f"--{flag} {text}: {len(found)} sizes are too few for a slope; give {FEWEST} or more")
    if found[0] < 1 or found[-1] > most:
        raise UsageError(f"--{flag} {text} must lie between 1 and {most:,}")
    return found
