"""What attention looks at: how even and how far, at which places, and what the loss is without one head.

An attention layer gives weights (B, N, T, S), one row for each query; what has a single head counts as N = 1.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch
from scipy.stats import t as student
from torch import Tensor, nn

from seqlab.core.errors import UsageError
from seqlab.core.taps import tap_names, taps
from seqlab.layers.attention import MultiHeadAttention
from seqlab.layers.attentive import AttentiveRNN
from seqlab.layers.pointer import Pointer
from seqlab.layers.pooling import AttentionPooling, MeanPooling
from seqlab.models.recurrent_translator import SourceAttention

BRACKETS = {"(": ")", "[": "]", "{": "}"}
NOTABLE, ABOVE_CHANCE = 0.25, 0.1  # a head looks somewhere if so much of its attention is there, so much above chance
FEWEST = 10  # queries that such a place must have
NO_COPY = -1e4  # a gate that is shut


@dataclass(frozen=True, eq=False)
class Side:
    """Tokens that ask or that are asked; `words` as they are shown, without padding."""

    ids: Tensor  # (B, T)
    lengths: Tensor  # (B,)
    words: Sequence[Sequence[str]]

    @property
    def real(self) -> Tensor:
        return torch.arange(self.ids.shape[1]) < self.lengths[:, None]


@dataclass(frozen=True, eq=False)
class Attended:
    """One attention layer on some sequences."""

    name: str  # the path of the module
    weights: Tensor  # (B, N, T, S), zero where nothing may be attended to
    queries: Side
    keys: Side
    sees: Literal["all", "past", "before"] = "all"  # past: itself and what stands before it

    @property
    def own(self) -> bool:
        """It attends to the sequence that asks."""
        return self.queries is self.keys

    @property
    def stands(self) -> bool:
        """Queries have positions; a text that is summed up asks once, from nowhere."""
        return self.own or self.queries.ids.shape[1] > 1

    @property
    def heads(self) -> int:
        return self.weights.shape[1]

    @property
    def visible(self) -> Tensor:
        """Which keys a query may attend to; none for padding.    (B, T, S)"""
        seen = self.queries.real[:, :, None] & self.keys.real[:, None, :]
        return seen if self.sees == "all" else seen & (self.offset <= (0 if self.sees == "past" else -1))

    @property
    def offset(self) -> Tensor:
        """Key position minus query position.    (T, S)"""
        T, S = self.weights.shape[2:]
        places: Tensor = torch.arange(S)[None, :] - torch.arange(T)[:, None]
        return places


def attention_layers(model: nn.Module) -> list[str]:
    """The paths of everything in a model that attends."""
    return [name.removesuffix(".weights") for name in tap_names(model) if name.endswith(".weights")]


@torch.no_grad()
def attention_of(model: nn.Module, run: Callable[[], Any]) -> dict[str, Tensor]:
    """The weights of every attention layer in one forward pass, by path.    (B, N, T, S)"""
    paths = attention_layers(model)
    if not paths:
        raise UsageError("this model attends to nothing: it has no attention layer")
    with taps(model, *(f"{path}.weights" for path in paths)) as seen:
        run()
    return {path: torch.cat([_whole(call) for call in seen.calls(f"{path}.weights")], 2).double() for path in paths}


def _whole(weights: Tensor) -> Tensor:
    """What pools has one query, (B, S); what attends step by step one head, (B, T, S)."""
    return weights if weights.ndim == 4 else weights[:, None, None] if weights.ndim == 2 else weights[:, None]


# --------------------------------------------------------------------------- where a head looks


@dataclass(frozen=True)
class Pattern:
    """How much attention goes to one kind of place, over the queries for which there is such a place."""

    share: float
    chance: float  # what even attention would give it
    queries: int


@dataclass(frozen=True)
class HeadFigures:
    """Means over the queries that have a choice."""

    entropy: float  # nats
    evenness: float  # entropy over that of even attention
    distance: float | None  # Σ_j a_ij |i − j|, in positions; of what sums up a text there is none
    patterns: dict[str, Pattern]

    @property
    def looks_at(self) -> str:
        """The place that has most attention above chance, over all queries; "" if there is none worth the name.

        A place that few queries have, such as a matching bracket, counts as much as those queries.
        """
        notable = {
            name: (p.share - p.chance) * p.queries
            for name, p in self.patterns.items()
            if p.queries >= FEWEST and p.share >= NOTABLE and p.share - p.chance >= ABOVE_CHANCE
        }
        return max(notable, key=lambda name: notable[name]) if notable else ""


def head_figures(layer: Attended) -> list[HeadFigures]:
    """Of every head."""
    visible = layer.visible
    choice = visible.sum(-1)
    asking = choice > 1
    if not bool(asking.any()):
        raise UsageError("attention needs two tokens to choose between; the text is too short")
    places = {name: mask & visible for name, mask in patterns_of(layer).items()}
    found = []
    for head in range(layer.heads):
        weights = layer.weights[:, head]
        entropy = -torch.special.xlogy(weights, weights).sum(-1)[asking]
        away = (weights * layer.offset.abs()).sum(-1)[asking]
        patterns = {}
        for name, mask in places.items():
            here = mask.any(-1) & asking
            if bool(here.any()):
                share = (weights * mask).sum(-1)[here]
                chance = mask.sum(-1)[here].double() / choice[here]
                patterns[name] = Pattern(float(share.mean()), float(chance.mean()), int(here.sum()))
        even = float((entropy / choice[asking].double().log()).mean())
        distance = float(away.mean()) if layer.stands else None
        found.append(HeadFigures(float(entropy.mean()), even, distance, patterns))
    return found


def patterns_of(layer: Attended) -> dict[str, Tensor]:
    """The kinds of place that a head can look at.    (B, T, S) each"""
    queries, keys = layer.queries.ids[:, :, None], layer.keys.ids[:, None, :]
    same = queries == keys
    follows = torch.cat([torch.zeros_like(same[:, :, :1]), same[:, :, :-1]], -1)  # the key before it is the same token
    offset = layer.offset.expand(same.shape)
    first = torch.zeros_like(same)
    first[:, :, 0] = True
    last = torch.arange(same.shape[2]) == (layer.keys.lengths - 1)[:, None, None].expand(*same.shape[:2], 1)
    if not layer.own:
        if not layer.stands:
            return {"first": first, "last": last}
        return {"same position": offset == 0, "same token": same, "after the same token": follows} | {
            "first": first,
            "last": last,
        }
    found = {"itself": offset == 0, "previous": offset == -1}
    whole = layer.sees == "all"
    if whole:
        found["next"] = offset == 1
    found |= {
        "first": first,
        "same token" if whole else "earlier occurrence": same & (offset != 0),
        "after the same token" if whole else "after an earlier occurrence": follows & (offset != 1),
        "matching bracket": matching_brackets(layer.queries),
    }
    return found


def matching_brackets(side: Side) -> Tensor:
    """Where the other bracket of each bracket stands; brackets of three kinds, nested.    (B, T, T)"""
    B, T = side.ids.shape
    found = torch.zeros(B, T, T, dtype=torch.bool)
    for row, words in enumerate(side.words):
        open_at: list[tuple[str, int]] = []
        for place, word in enumerate(words):
            mark = word.strip()
            if mark in BRACKETS:
                open_at.append((BRACKETS[mark], place))
            elif open_at and mark == open_at[-1][0]:
                _, other = open_at.pop()
                found[row, place, other] = found[row, other, place] = True
    return found


# --------------------------------------------------------------------------- without a head

WITHOUT: dict[type[nn.Module], str] = {
    MultiHeadAttention: "the head adds nothing",
    SourceAttention: "what the decoder attends to adds nothing",
    AttentiveRNN: "the network is a plain RNN",
    AttentionPooling: "the words of a text are summed up by their plain mean",
    Pointer: "the pointer never copies",
}


def what_is_without(model: nn.Module, paths: Sequence[str]) -> str:
    """What `switched_off` makes of the layers at these paths, in words: each kind of layer that is there, once."""
    layers = [model.get_submodule(path) for path in paths]
    return " or ".join(words for kind, words in WITHOUT.items() if any(isinstance(layer, kind) for layer in layers))


@contextlib.contextmanager
def switched_off(model: nn.Module, path: str, head: int) -> Iterator[None]:
    """Inside, one head of the layer at `path` is without effect, as `what_is_without` says.

    Attention layers: its part of what the output matrix reads is 0.
    """
    layer = model.get_submodule(path)
    if isinstance(layer, MultiHeadAttention):
        part = slice(head * layer.head_width, (head + 1) * layer.head_width)
        handle = layer.project_out.register_forward_pre_hook(lambda _module, given: _without(given, part))
    else:
        handle = layer.register_forward_hook(_plain_form(layer), with_kwargs=True)
    try:
        yield
    finally:
        handle.remove()


def _without(given: tuple[Tensor, ...], part: slice) -> tuple[Tensor, ...]:
    mixed = given[0].clone()
    mixed[..., part] = 0.0
    return (mixed, *given[1:])


def _plain_form(layer: nn.Module) -> Callable[..., Any]:
    """A hook that puts in the place of an output what the layer would give without attention."""
    if isinstance(layer, AttentiveRNN):
        return lambda module, given, named, _output: module.alone(*given, **named)
    if isinstance(layer, AttentionPooling):
        return lambda _module, given, named, _output: MeanPooling()(*given, **named)
    if isinstance(layer, Pointer):
        return lambda _module, _given, _named, output: (torch.full_like(output[0], NO_COPY), *output[1:])
    if isinstance(layer, SourceAttention):
        return lambda _module, _given, _named, output: torch.zeros_like(output)
    raise UsageError(f"a {type(layer).__name__} cannot be switched off")


@dataclass(frozen=True)
class Change:
    """By how much the loss of a sequence is higher without a head: mean and 95 % interval over the sequences."""

    mean: float
    low: float
    high: float

    @property
    def settled(self) -> bool:
        return not self.low <= 0 <= self.high


@torch.no_grad()
def loss_without(model: nn.Module, losses: Callable[[], Tensor], path: str, head: int, before: Tensor) -> Change:
    """The same sequences with and without the head. `losses` runs the model, () -> (B,); `before` is with it."""
    with switched_off(model, path, head):
        differences = losses().double() - before.double()
    return change_of(differences)


def change_of(differences: Tensor) -> Change:
    """Mean of paired differences with Student's interval."""
    n = len(differences)
    mean = float(differences.mean())
    half = float(student.ppf(0.975, n - 1)) * float(differences.std()) / math.sqrt(n) if n > 1 else math.inf
    return Change(mean, mean - half, mean + half)
