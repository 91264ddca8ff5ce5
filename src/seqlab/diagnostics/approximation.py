"""How far separable and random-feature attention are from softmax, and whether uniform attention is any farther.

The weights â of an approximation are compared with softmax weights a, over the rows that have a choice:

    total variation     ½ Σ_j |â_ij − a_ij|, the mean over rows i: the share of attention that goes to wrong keys, 0 … 1
    Frobenius           ‖Â − A‖ / ‖A‖
    output              ‖(Â − A) V‖ / ‖A V‖, where there are values

Uniform attention gives every visible key the same weight and knows nothing of queries and keys: an approximation that
misses by as much is worth nothing.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from seqlab.diagnostics.attention_maps import Change, change_of
from seqlab.ops import linear_attention as linear
from seqlab.ops.attention import attention_weights, mix, scaled_scores
from seqlab.ops.masks import banded_causal_mask

FIGURES = ("variation", "frobenius", "output")
PAIRS = 1000  # of a query and a key it sees, looked at in each sequence and head
EVEN = 1e-6  # softmax that misses uniform attention by less is uniform
DIRECTIONS = {False: "independent", True: "orthogonal"}


@dataclass(frozen=True, eq=False)
class Heads:
    """One sequence without padding: q (N, T, d), k (N, S, d), v (N, S, d) or None. Causal: T = S."""

    q: Tensor
    k: Tensor
    v: Tensor | None = None
    causal: bool = False

    @property
    def visible(self) -> Tensor:
        """(T, S)"""
        T, S = self.q.shape[-2], self.k.shape[-2]
        return banded_causal_mask(T, S) if self.causal else torch.ones(T, S, dtype=torch.bool)

    @property
    def choosing(self) -> Tensor:
        """The rows that see more than one key: of one key every kind of attention makes the same.    (T,)"""
        return self.visible.sum(-1) > 1


@dataclass(frozen=True)
class Method:
    kind: str  # uniform, separable or random
    features: int = 0
    orthogonal: bool = False


UNIFORM, SEPARABLE = Method("uniform"), Method("separable")
Draw = Callable[[Method], torch.Generator]  # the random stream of a method's directions


def methods_of(features: Sequence[int], kinds: Sequence[bool]) -> list[Method]:
    """All that are compared: random features with each m, their directions orthogonal or not."""
    return [UNIFORM, SEPARABLE, *(Method("random", m, orthogonal) for orthogonal in kinds for m in features)]


# --------------------------------------------------------------------------- errors of one sequence


def exact_weights(heads: Heads) -> Tensor:
    """softmax(q kᵀ/√d) over the visible keys.    (N, T, S)"""
    return attention_weights(scaled_scores(heads.q, heads.k), heads.visible)


def uniform_weights(heads: Heads) -> Tensor:
    """1/n for each of the n visible keys.    (N, T, S)"""
    visible = heads.visible.to(heads.q.dtype)
    return (visible / visible.sum(-1, keepdim=True)).expand(len(heads.q), -1, -1)


def linear_weights(heads: Heads, features: linear.Features) -> Tensor:
    """(N, T, S)"""
    return linear.attention_weights(features, heads.q[None], heads.k[None], causal=heads.causal)[0]


def weights_of(method: Method, heads: Heads, draw: torch.Generator) -> Tensor:
    """The weights of one method; random features with directions drawn afresh.    (N, T, S)"""
    if method == UNIFORM:
        return uniform_weights(heads)
    if method == SEPARABLE:
        return linear_weights(heads, linear.SEPARABLE)
    width = heads.q.shape[-1]
    w = linear.gaussian_directions(method.features, width, orthogonal=method.orthogonal, generator=draw)
    return linear_weights(heads, linear.random_features(w.to(heads.q.dtype)))


def errors_of(estimate: Tensor, exact: Tensor, heads: Heads) -> Tensor:
    """Total variation, Frobenius and output error of each head; NaN for an output without values.    (N, 3)"""
    rows = heads.choosing
    away, exact = (estimate - exact)[:, rows], exact[:, rows]
    variation = away.abs().sum(-1).mean(-1) / 2
    output = torch.full_like(variation, math.nan)
    if heads.v is not None:
        output = _norm(mix(away, heads.v)) / _norm(mix(exact, heads.v))
    return torch.stack([variation, _norm(away) / _norm(exact), output], -1)


def _norm(x: Tensor) -> Tensor:
    """Frobenius, of each head.    (N, T, ·) -> (N,)"""
    return x.square().sum((-1, -2)).sqrt()


@torch.no_grad()
def sequence_errors(heads: Heads, methods: Iterable[Method], draws: int, draw: Draw) -> dict[Method, Tensor]:
    """The errors of each method on one sequence, random features in the mean over `draws` of them.    (N, 3) each"""
    exact = exact_weights(heads)
    found = {}
    for method in methods:
        generator, repeated = draw(method), draws if method.kind == "random" else 1
        each = [errors_of(weights_of(method, heads, generator), exact, heads) for _ in range(repeated)]
        found[method] = torch.stack(each).mean(0)
    return found


# --------------------------------------------------------------------------- what queries and keys are like


@dataclass(frozen=True, eq=False)
class Pairs:
    """Queries and keys that see each other, already divided by d^{1/4}.    (P, d) each"""

    q: Tensor
    k: Tensor

    @property
    def norms(self) -> Tensor:
        """‖q + k‖², which decides how many features a pair needs.    (P,)"""
        return (self.q + self.k).square().sum(-1)

    def unresolved(self, features: int) -> float:
        """The share of pairs with ‖q + k‖² > ln m: the relative variance (e^{‖q + k‖²} − 1)/m is about 1 or more."""
        return float((self.norms > math.log(features)).double().mean())


def pairs_of(sequences: Sequence[Heads], head: int) -> Pairs:
    """Of one head, at most PAIRS of each sequence, evenly spaced."""
    asks, asked = [], []
    for heads in sequences:
        places = (heads.visible & heads.choosing[:, None]).nonzero()
        some = places[torch.linspace(0, len(places) - 1, min(PAIRS, len(places))).long()]
        asks.append(heads.q[head, some[:, 0]])
        asked.append(heads.k[head, some[:, 1]])
    q, k = torch.cat(asks), torch.cat(asked)
    return Pairs(q * q.shape[-1] ** -0.25, k * k.shape[-1] ** -0.25)


def logit_scale(sequences: Sequence[Heads], head: int) -> float:
    """The standard deviation of the logits qᵀk/√d that a query chooses between: root of the mean variance in a row."""
    total, count = 0.0, 0
    for heads in sequences:
        visible = heads.visible[heads.choosing]
        logits = scaled_scores(heads.q[head], heads.k[head])[heads.choosing]
        seen = visible.sum(-1, keepdim=True)
        away = (logits - (logits * visible).sum(-1, keepdim=True) / seen) * visible
        total += float((away.square().sum(-1) / (seen[:, 0] - 1)).sum())
        count += len(visible)
    return math.sqrt(total / count)


# --------------------------------------------------------------------------- verdicts


@dataclass(frozen=True)
class Error:
    """What one method misses by: means over sequences with 95 % intervals, and the same minus uniform, paired."""

    method: Method
    variation: Change
    frobenius: Change
    output: Change | None
    against_uniform: Change | None  # total variation minus that of uniform attention; None: it is uniform
    output_against_uniform: Change | None = None

    @property
    def word(self) -> str:
        """better or worse than uniform attention, or undecided."""
        return _word(self.against_uniform)

    @property
    def output_word(self) -> str:
        """The same of what is mixed: values that cancel under uniform attention may not under wrong weights."""
        return _word(self.output_against_uniform)

    def as_json(self) -> dict[str, Any]:
        shown = {name: _plain(getattr(self, name)) for name in (*FIGURES, "against_uniform", "output_against_uniform")}
        named: dict[str, Any] = {"features": self.method.features, "directions": DIRECTIONS[self.method.orthogonal]}
        words = {"verdict": self.word, "output_verdict": self.output_word}
        return (named if self.method.kind == "random" else {}) | shown | words


def _word(apart: Change | None) -> str:
    if apart is None or not apart.settled:
        return "undecided"
    return "better" if apart.mean < 0 else "worse"


def _plain(change: Change | None) -> dict[str, float] | None:
    return None if change is None else {"mean": change.mean, "low": change.low, "high": change.high}


@dataclass(frozen=True, eq=False)
class Approximated:
    """One head, or one choice of width and logit scale: how far every method is from its softmax."""

    uniform: Error
    separable: Error
    random: list[Error]
    logit_scale: float
    pairs: Pairs

    @property
    def even(self) -> bool:
        """Softmax is uniform here; there is nothing to approximate."""
        return self.uniform.variation.mean < EVEN

    def of(self, orthogonal: bool) -> list[Error]:
        """With growing m."""
        own = [error for error in self.random if error.method.orthogonal is orthogonal]
        return sorted(own, key=lambda error: error.method.features)

    def beats_from(self, orthogonal: bool) -> Error | None:
        """Random features with the smallest m that beats uniform attention, as every larger one does too."""
        first = None
        for error in reversed(self.of(orthogonal)):
            if self.even or error.word != "better":
                break
            first = error
        return first

    @property
    def beating(self) -> Error | None:
        """The least m of either kind of directions that beats uniform attention; of equal m the better."""
        found = [error for kind in DIRECTIONS if (error := self.beats_from(kind)) is not None]
        return min(found, key=lambda error: (error.method.features, error.variation.mean), default=None)

    @property
    def largest(self) -> Error:
        """Random features with the largest m, of the kind of directions that misses by less."""
        most = max(error.method.features for error in self.random)
        own = [error for error in self.random if error.method.features == most]
        return min(own, key=lambda error: error.variation.mean)

    def as_json(self) -> dict[str, Any]:
        norms = self.pairs.norms
        each = [
            error.as_json() | {"unresolved_pairs": self.pairs.unresolved(error.method.features)}
            for error in self.random
        ]
        kinds = dict.fromkeys(error.method.orthogonal for error in self.random)
        first = {DIRECTIONS[kind]: self.beats_from(kind) for kind in kinds}
        return {
            "logit_scale": self.logit_scale,
            "norm_of_q_plus_k_squared": {"median": float(norms.median()), "largest": float(norms.max())},
            "uniform": self.uniform.as_json(),
            "separable": self.separable.as_json(),
            "random_features": each,
            "beats_uniform_from": {name: error and error.method.features for name, error in first.items()},
        }


def judged(errors: Sequence[dict[Method, Tensor]], sequences: Sequence[Heads], head: int) -> Approximated:
    """What the errors of all sequences say of one head: Student's intervals over sequences."""
    own = {method: torch.stack([each[method][head] for each in errors]) for method in errors[0]}  # (B, 3)
    found = {method: _error(method, values, own[UNIFORM]) for method, values in own.items()}
    random = [error for method, error in found.items() if method.kind == "random"]
    scale, pairs = logit_scale(sequences, head), pairs_of(sequences, head)
    return Approximated(found[UNIFORM], found[SEPARABLE], random, scale, pairs)


def _error(method: Method, values: Tensor, uniform: Tensor) -> Error:
    variation, frobenius = change_of(values[:, 0]), change_of(values[:, 1])
    output = None if bool(values[:, 2].isnan().any()) else change_of(values[:, 2])
    if method == UNIFORM:
        return Error(method, variation, frobenius, output, None)
    apart = values - uniform
    mixed = None if output is None else change_of(apart[:, 2])
    return Error(method, variation, frobenius, output, change_of(apart[:, 0]), mixed)
