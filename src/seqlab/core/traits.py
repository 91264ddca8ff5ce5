"""What a model can do, declared by the model; nobody probes its attributes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, Protocol, runtime_checkable

from torch import nn

LearnsFrom = Literal["text", "pairs", "counts", "runs"]


@dataclass(frozen=True)
class Traits:
    """What others must know of a language model to train it, to score with it and to let it write.

    window          tokens that it is trained on and scored in at a time; None: it reads on and on, piece by piece
    looks_back      its prediction depends on exactly so many tokens before it; None: on all, or on the window
    carries_state   what it remembers is carried from one training batch to the next
    max_positions   the position from which on it cannot read at all; None: there is none
    learns_from     text: rows of tokens; pairs: counted neighbours; counts: fitted at once, by counting; runs: made
                    of finished ones, whose weights are fitted at once
    stateless       it remembers nothing from one call to the next: a window must be fed whole
    reads_at_once   it has `nats_of` and `mass_of`, which score a whole text faster than feeding it
    """

    window: int | None = None
    looks_back: int | None = None
    carries_state: bool = False
    max_positions: int | None = None
    learns_from: LearnsFrom = "text"
    stateless: bool = False
    reads_at_once: bool = False


@runtime_checkable
class HasTraits(Protocol):
    @property
    def traits(self) -> Traits: ...


def traits_of(model: object) -> Traits:
    """The model's traits; one that declares none reads on and on and carries nothing between batches."""
    declared = model.traits if isinstance(model, HasTraits) else None
    return declared if isinstance(declared, Traits) else Traits()


# --------------------------------------------------------------------------- of modules, by their type alone


class LookUpTable(nn.Module):
    """A module whose matrix is looked up, not multiplied with: it costs no products, and its rows do not decay."""


LOOKED_UP: tuple[type[nn.Module], ...] = (LookUpTable, nn.Embedding, nn.EmbeddingBag)
NORM_LAYERS: tuple[type[nn.Module], ...] = (
    nn.LayerNorm,
    nn.RMSNorm,
    nn.GroupNorm,
    nn.BatchNorm1d,
    nn.BatchNorm2d,
    nn.BatchNorm3d,
    nn.SyncBatchNorm,
)
