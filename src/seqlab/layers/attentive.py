"""A recurrent layer that attends to its own past."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Self

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from seqlab.core.errors import UsageError, nearest
from seqlab.core.registry import SCORES
from seqlab.core.state import BatchFirstState, join_at_the_end, join_masks
from seqlab.ops.attention import additive_scores, attention_weights, dot_scores, mix, scaled_scores
from seqlab.ops.masks import check_lengths, length_mask

WATCHED = ("hidden", "candidate", "scores", "weights")


@dataclass(frozen=True)
class AttentiveState(BatchFirstState):
    """The last hidden vector and all those that can still be attended to; `mask` (B, L) says which are real."""

    hidden: Tensor  # (B, H)
    memory: Tensor  # (B, L, H)
    mask: Tensor | None = None

    @classmethod
    def joined(cls, states: Sequence[Self]) -> Self:
        """Memories of different length end together: a window counts from the end."""
        memories = [state.memory for state in states]
        mask = join_masks([state.mask for state in states], memories)
        return cls(torch.cat([state.hidden for state in states]), join_at_the_end(memories, 1), mask)


class AttentiveRNN(nn.Module):
    """h̃_t = tanh(U x_t + W h_{t−1} + b)
    a_t = Σ_{l<t} softmax_l(score(h̃_t, h_l)) h_l,   a_1 = 0
    h_t = h̃_t + a_t

    score: dot qᵀk, scaled qᵀk/√H, additive vᵀtanh(W_1 q + W_2 k). x (B, T, D) -> y (B, T, H), state. h̃ is bounded by
    1, h is not: it adds a mean of the past to it. `window` limits what is remembered to so many hidden vectors.
    """

    def __init__(self, input_size: int, hidden_size: int, *, score: str = "dot", window: int | None = None) -> None:
        super().__init__()
        for name, size in (("input_size", input_size), ("hidden_size", hidden_size), ("window", window)):
            if size is not None and size < 1:
                raise UsageError(f"{name} {size} is too small; the least is 1")
        if score not in SCORES:
            raise UsageError(f"score '{score}' is not known{nearest(score, SCORES)}")
        self.input_size, self.hidden_size, self.score, self.window = input_size, hidden_size, score, window
        self.weight_ih = nn.Parameter(torch.empty(hidden_size, input_size))
        self.weight_hh = nn.Parameter(torch.empty(hidden_size, hidden_size))
        self.bias = nn.Parameter(torch.empty(hidden_size))
        if score == "additive":
            self.W_1 = nn.Parameter(torch.empty(hidden_size, hidden_size))
            self.W_2 = nn.Parameter(torch.empty(hidden_size, hidden_size))
            self.v = nn.Parameter(torch.empty(hidden_size))
        self.reset_parameters()

    @torch.no_grad()
    def reset_parameters(self) -> None:
        """W starts small: h grows by the mean of its past, and tanh(W h) would saturate (docs/log.md)."""
        nn.init.normal_(self.weight_ih, std=self.input_size**-0.5)
        nn.init.orthogonal_(self.weight_hh, gain=0.1)
        nn.init.zeros_(self.bias)
        if self.score == "additive":
            for weight in (self.W_1, self.W_2, self.v):
                nn.init.normal_(weight, std=self.hidden_size**-0.5)

    def forward(
        self, x: Tensor, state: AttentiveState | None = None, lengths: Tensor | None = None
    ) -> tuple[Tensor, AttentiveState]:
        return self._walked(lambda u, before: self._step(u, before)[0], x, state, lengths)

    def watch(
        self, x: Tensor, state: AttentiveState | None = None, lengths: Tensor | None = None
    ) -> tuple[Tensor, AttentiveState, dict[str, list[Tensor]]]:
        """The same as calling the layer, with what happens inside at each step: `WATCHED`, T tensors each.

        hidden and candidate are (B, H). Scores and weights (B, L) have one column for each of the P vectors that the
        state remembers and then one for each of the T new positions, L = P + T; where nothing may be attended to,
        weights are 0 and scores −inf. All are zero (scores −inf) beyond a length. The output is computed from the very
        tensors listed.
        """
        inputs, state, real = self._opened(x, state, lengths)
        remembered = state.memory.shape[1]
        seen: dict[str, list[Tensor]] = {name: [] for name in WATCHED}
        for t, u in enumerate(inputs):
            alive = None if real is None else real[:, t]
            here = self._step(u, state, (remembered + t, remembered + len(inputs)))
            for name, value in zip(WATCHED, here, strict=True):
                seen[name].append(_or_zero(value, alive, -torch.inf if name == "scores" else 0.0))
            state = self._remember(state, seen["hidden"][-1], alive)
        return self._stacked(seen["hidden"], x), state, seen

    def alone(
        self, x: Tensor, state: AttentiveState | None = None, lengths: Tensor | None = None
    ) -> tuple[Tensor, AttentiveState]:
        """The same without attention: a_t = 0, h_t = h̃_t."""
        return self._walked(self._candidate, x, state, lengths)

    def _walked(
        self,
        step: Callable[[Tensor, AttentiveState], Tensor],
        x: Tensor,
        state: AttentiveState | None,
        lengths: Tensor | None,
    ) -> tuple[Tensor, AttentiveState]:
        """Position by position: h_t from U x_t + b and the state before it, which then remembers h_t."""
        inputs, state, real = self._opened(x, state, lengths)
        outputs = []
        for t, u in enumerate(inputs):
            alive = None if real is None else real[:, t]
            outputs.append(_or_zero(step(u, state), alive))
            state = self._remember(state, outputs[-1], alive)
        return self._stacked(outputs, x), state

    def _candidate(self, u: Tensor, state: AttentiveState) -> Tensor:
        """h̃_t = tanh(U x_t + b + W h_{t−1})    (B, H)"""
        return torch.tanh(torch.addmm(u, state.hidden, self.weight_hh.t()))

    def _opened(
        self, x: Tensor, state: AttentiveState | None, lengths: Tensor | None
    ) -> tuple[Sequence[Tensor], AttentiveState, Tensor | None]:
        """U x_t + b for each step, (B, H), the state before it, and where a sequence has a step, (B, T)."""
        self._check(x, state, lengths)
        B, T, _ = x.shape
        real = None if lengths is None else length_mask(check_lengths(lengths, B, T), T)
        if real is not None:
            x = x.masked_fill(~real[..., None], 0.0)
        state = state or AttentiveState(x.new_zeros(B, self.hidden_size), x.new_zeros(B, 0, self.hidden_size))
        return F.linear(x, self.weight_ih, self.bias).unbind(1), state, real

    def _stacked(self, outputs: list[Tensor], x: Tensor) -> Tensor:
        return torch.stack(outputs, 1) if outputs else x.new_zeros(len(x), 0, self.hidden_size)

    def _step(self, u: Tensor, state: AttentiveState, place: tuple[int, int] | None = None) -> tuple[Tensor, ...]:
        """u = U x_t + b (B, H) -> h_t, h̃_t (B, H), scores and weights over the L vectors of the memory (B, L).

        `place` = (end, L): the memory stands before column `end` of L; nothing else may be attended to.
        """
        memory, mask = state.memory, state.mask
        candidate = self._candidate(u, state)
        if memory.shape[1] == 0 and place is None:
            return (candidate,)
        scores = self._scores(candidate[:, None], memory)[:, 0]
        own = slice(0, memory.shape[1])
        if place is not None:
            own = slice(place[0] - memory.shape[1], place[0])
            visible = scores.new_zeros(len(u), place[1], dtype=torch.bool)
            visible[:, own] = True if mask is None else mask
            mask = visible
            scores = F.pad(scores, (own.start, place[1] - own.stop)).masked_fill(~visible, -torch.inf)
        weights = attention_weights(scores, mask)
        return candidate + mix(weights[:, None, own], memory)[:, 0], candidate, scores, weights

    def _scores(self, q: Tensor, k: Tensor) -> Tensor:
        if self.score == "additive":
            return additive_scores(q, k, self.W_1, self.W_2, self.v)
        return dot_scores(q, k) if self.score == "dot" else scaled_scores(q, k)

    def _remember(self, state: AttentiveState, h: Tensor, alive: Tensor | None) -> AttentiveState:
        memory = torch.cat([state.memory, h[:, None]], 1)
        hidden, mask = h, None
        if alive is not None or state.mask is not None:
            old = memory.new_ones(state.memory.shape[:2], dtype=torch.bool) if state.mask is None else state.mask
            new = old.new_ones(len(h)) if alive is None else alive
            hidden, mask = torch.where(new[:, None], h, state.hidden), torch.cat([old, new[:, None]], 1)
        if self.window is not None and memory.shape[1] > self.window:
            memory = memory[:, -self.window :]
            mask = None if mask is None else mask[:, -self.window :]
        return AttentiveState(hidden, memory, mask)

    def _check(self, x: Tensor, state: AttentiveState | None, lengths: Tensor | None) -> None:
        if x.ndim != 3 or x.shape[2] != self.input_size:
            raise UsageError(f"x has shape {tuple(x.shape)}, but the layer reads (batch, time, {self.input_size})")
        if state is not None and state.hidden.shape != (x.shape[0], self.hidden_size):
            expected = (x.shape[0], self.hidden_size)
            raise UsageError(f"the state has shape {tuple(state.hidden.shape)}, but the layer and x need {expected}")
        if lengths is not None and self.window is not None:
            raise UsageError(f"a window of {self.window} counts positions; it cannot be combined with lengths")


def _or_zero(value: Tensor, alive: Tensor | None, filler: float = 0.0) -> Tensor:
    """The value where a sequence has a step, else the filler.    (B, ·), (B,)"""
    return value if alive is None else value.masked_fill(~alive[:, None], filler)
