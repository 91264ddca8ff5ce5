"""Tasks that need memory over a known lag: copying symbols, adding two marked numbers.

copy     s₁ s₂ s₃ · · · … · ? ? ?      at each ?, the symbol that stood `lag` positions before
adding   d₁ d₂* d₃ … d_k* … ?          digits, one of the first two and one of the second half are marked; at the
                                       end, `lag` positions after the first of them at least, their sum
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from seqlab.core.types import IGNORED
from seqlab.training.optim import build_optimiser
from seqlab.training.schedules import Schedule

SYMBOLS, COPIED = 8, 3
LEAST_LAG = COPIED
DIGITS = 5
BATCH = 32
VALIDATION_BATCH = 100
Draw = torch.Generator
Examples = tuple[Tensor, Tensor]  # ids and targets (B, T); IGNORED where nothing is asked


@dataclass(frozen=True)
class MemoryTask:
    name: str
    vocab_size: int
    chance: float  # accuracy of the best constant answer
    make: Callable[[int, int, Draw], Examples]  # (lag, batch, generator)


def copy_examples(lag: int, batch: int, draw: Draw) -> Examples:
    """Each question stands `lag` positions after its symbol."""
    symbols = torch.randint(0, SYMBOLS, (batch, COPIED), generator=draw)
    blank, ask = SYMBOLS, SYMBOLS + 1
    blanks = torch.full((batch, lag - COPIED), blank)
    asked = torch.full((batch, COPIED), ask)
    ids = torch.cat([symbols, blanks, asked], 1)
    targets = torch.full_like(ids, IGNORED)
    targets[:, -COPIED:] = symbols
    return ids, targets


def adding_examples(lag: int, batch: int, draw: Draw) -> Examples:
    """Token d + 5·marked, then the question; the answer is the sum, 0 … 8."""
    digits = torch.randint(0, DIGITS, (batch, lag + 1), generator=draw)
    half = (lag + 1) // 2
    first = torch.randint(0, min(2, max(1, half)), (batch,), generator=draw)
    second = torch.randint(max(1, half), lag + 1, (batch,), generator=draw)
    second = torch.where(second == first, second + 1, second).clamp(max=lag)
    rows = torch.arange(batch)
    marked = torch.zeros_like(digits)
    marked[rows, first], marked[rows, second] = 1, 1
    ids = torch.cat([digits + DIGITS * marked, torch.full((batch, 1), 2 * DIGITS)], 1)
    targets = torch.full_like(ids, IGNORED)
    targets[:, -1] = digits[rows, first] + digits[rows, second]
    return ids, targets


TASKS = {
    "copy": MemoryTask("copy", SYMBOLS + 2, 1 / SYMBOLS, copy_examples),
    "adding": MemoryTask("adding", 2 * DIGITS + 1, 1 / DIGITS, adding_examples),
}


@dataclass(frozen=True)
class Remembered:
    """How often a trained model answers rightly."""

    right: int
    asked: int
    steps: int
    interval: tuple[float, float]

    @property
    def accuracy(self) -> float:
        return self.right / self.asked


def learn(
    model: nn.Module,
    task: MemoryTask,
    lag: int,
    *,
    steps: int,
    learning_rate: float,
    examples: int,
    seed: int,
    progress: Callable[[int], None] = lambda _: None,
) -> Remembered:
    """Train on fresh examples, then answer others. 95 % by Wilson's formula."""
    draw = torch.Generator().manual_seed(seed)
    optimiser = build_optimiser(model, learning_rate, 0.0)
    schedule = Schedule(learning_rate, steps, 0.1, "linear", 0.0)
    model.train()
    for step in range(steps):
        ids, targets = task.make(lag, BATCH, draw)
        loss = F.cross_entropy(model(ids)[0].flatten(0, 1), targets.flatten(), ignore_index=IGNORED)
        optimiser.zero_grad()
        torch.autograd.backward(loss)
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        for group in optimiser.param_groups:
            group["lr"] = schedule(step)
        optimiser.step()
        progress(step + 1)
    return answered(model, task, lag, examples, draw, steps)


@torch.no_grad()
def answered(model: nn.Module, task: MemoryTask, lag: int, examples: int, draw: Draw, steps: int) -> Remembered:
    model.eval()
    right = asked = 0
    for first in range(0, examples, VALIDATION_BATCH):
        ids, targets = task.make(lag, min(VALIDATION_BATCH, examples - first), draw)
        wanted = targets != IGNORED
        right += int((model(ids)[0].argmax(-1) == targets)[wanted].sum())
        asked += int(wanted.sum())
    return Remembered(right, asked, steps, wilson(right, asked, examples))


def wilson(right: int, asked: int, independent: int) -> tuple[float, float]:
    """95 % for a share; answers of one sequence are not independent, so that only sequences count."""
    z, n, p = 1.959964, min(asked, independent), right / asked
    middle = (p + z * z / (2 * n)) / (1 + z * z / n)
    half = z / (1 + z * z / n) * math.sqrt(p * (1 - p) / n + z * z / (4 * n * n))
    return 0.0 if right == 0 else middle - half, 1.0 if right == asked else middle + half


def lag_loss(model: nn.Module, ids: Tensor, targets: Tensor) -> Tensor:
    """The loss of the last answer of each sequence.    (B,)"""
    return F.cross_entropy(model(ids)[0][:, -1], targets[:, -1], reduction="none")
