"""Which words pushed a decision.

The decision between two classes is the margin F = z_a − z_b. Of a model that reads a bag, each word's push is exact:
F of the text minus F of the text without that word. Of a model that reads vectors in order, it is its integrated
gradient along the straight path from no words (x⁰: zero vectors) to the text,

    push_t = (x_t − x⁰_t)ᵀ · ∫₀¹ ∂F(x⁰ + α (x − x⁰))/∂x_t dα        Σ_t push_t = F(x) − F(x⁰),

as a mean over midpoints; `gap` says how far the sum is off.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

POINTS = 64
MOST_WORDS = 400  # left out one at a time; of a longer text the first 200 and the last 200
FEWEST_WORDS, MOST_CHARACTERS = 20, 40_000_000  # read in all: of a very long text fewer words are left out
CHARACTERS_AT_ONCE = 5_000_000  # of the texts that lack a word
Logits = Callable[[Sequence[str]], NDArray[np.float64]]


@dataclass(frozen=True)
class Pushes:
    """Of each word: its span in the text, and how far it pushed towards a (negative: towards b)."""

    spans: tuple[tuple[int, int], ...]
    values: NDArray[np.float64]
    gap: float = 0.0  # |Σ − (F(x) − F(x⁰))|, where the sum has to come to that


def leave_one_out(logits: Logits, text: str, spans: Sequence[tuple[int, int]], a: int, b: int) -> Pushes:
    """F(text) − F(text without the word), for every word; those in the middle of a very long text have no push.

    Each text without a word is nearly as long as the text: all at once they would take the square of its length.
    """
    most = min(MOST_WORDS, max(FEWEST_WORDS, MOST_CHARACTERS // max(1, len(text))))
    half = most // 2
    tried = np.arange(len(spans))
    if len(spans) > most:
        tried = np.concatenate([tried[:half], tried[-half:]])
    piece = max(1, CHARACTERS_AT_ONCE // max(1, len(text)))
    whole = logits([text])[0]
    pushes = np.zeros(len(spans))
    for places in (tried[k : k + piece] for k in range(0, len(tried), piece)):
        z = logits([f"{text[:start]} {text[end:]}" for start, end in (spans[place] for place in places)])
        pushes[places] = (whole[a] - whole[b]) - (z[:, a] - z[:, b])
    return Pushes(tuple(spans), pushes)


def integrated_gradients(
    decide: Callable[[torch.Tensor, torch.Tensor], torch.Tensor],
    x: torch.Tensor,
    a: int,
    b: int,
    *,
    start: torch.Tensor | None = None,
    points: int = POINTS,
) -> tuple[NDArray[np.float64], float]:
    """Pushes of the T vectors x (T, D) from `start` (zeros), and the gap.

    `decide` maps (B, T, D) and lengths (B,) to logits (B, K).
    """
    start = torch.zeros_like(x) if start is None else start
    steps = (torch.arange(points, dtype=x.dtype) + 0.5) / points
    gradient = torch.zeros_like(x)
    for some in torch.split(steps, 16):
        path = (start + some[:, None, None] * (x - start)).requires_grad_()
        margin = _margin(decide, path, a, b)
        gradient += torch.autograd.grad(margin.sum(), path)[0].sum(0)
    pushes = ((x - start) * gradient).sum(-1) / points
    with torch.no_grad():
        ends = _margin(decide, torch.stack([start, x]), a, b)
    gap = abs(float(pushes.sum() - (ends[1] - ends[0])))
    found: NDArray[np.float64] = pushes.double().numpy()
    return found, gap


def _margin(decide: Any, x: torch.Tensor, a: int, b: int) -> torch.Tensor:
    z: torch.Tensor = decide(x, torch.full((len(x),), x.shape[1]))
    return z[:, a] - z[:, b]
