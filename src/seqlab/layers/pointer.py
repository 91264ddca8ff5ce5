"""A pointer to the source: a translator between close texts starts as the copier and learns where to deviate."""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from seqlab.core.state import BatchFirstState
from seqlab.ops.attention import attention_weights, scaled_scores
from seqlab.ops.pointer import distances, matches, with_past

REACH = 4  # tokens back that are compared with the source
# α, β and b as they fit pairs of editions of one book, beside nothing but the frequencies of words (docs/log.md).
FIRST_MATCH = ((0.7, 0.8, 0.5, -0.8), (1.0, 1.4, 1.0, -0.6), (1.5, 2.0, 2.6, 0.8), (0.0, 0.4, 1.8, 4.7))
FIRST_SLOPE, FIRST_COPY = 0.25, 1.0


@dataclass(frozen=True)
class PointerState(BatchFirstState):
    """The last ids that were read, and how many there were."""

    recent: Tensor  # (B, REACH − 1)
    position: int


class Pointer(nn.Module):
    """e_ts = q_tᵀ k_s/√d + Σ_{j<J} Σ_{1≤i≤J} α_ij [u_{t−j} = x_{s−i}] − β |s − t|,    a_t = softmax_s(e_t)
    c_t = σ(wᵀ h_t + b)                                     the probability of copying

    u are the ids that were read, x those of the source: where the last few tokens stand in the source, the next one
    probably stands after them. q = 0 and w = 0 at the start, so that it begins by following the source from its
    beginning to its end.
    """

    def __init__(self, width: int) -> None:
        super().__init__()
        self.query = nn.Linear(width, width)
        self.key = nn.Linear(width, width)
        self.gate = nn.Linear(width, 1)
        self.match = nn.Parameter(torch.tensor(FIRST_MATCH))
        self.slope = nn.Parameter(torch.tensor(FIRST_SLOPE).expm1().log())
        self.start()

    @torch.no_grad()
    def start(self) -> None:
        for weight in (*self.query.parameters(), *self.gate.parameters()):
            nn.init.zeros_(weight)
        nn.init.constant_(self.gate.bias, FIRST_COPY)

    def forward(
        self, h: Tensor, u: Tensor, keys: Tensor, x: Tensor, mask: Tensor, state: PointerState | None = None
    ) -> tuple[Tensor, Tensor, PointerState]:
        """h (B, T, D), u (B, T), keys (B, S, D) from `key`, x (B, S), mask (B, S) -> copy (B, T), weights (B, T, S)."""
        seen = with_past(u, REACH, None if state is None else state.recent)
        position = 0 if state is None else state.position
        scores = scaled_scores(self.query(h), keys) + matches(seen, x, self.match)
        scores = scores - F.softplus(self.slope) * distances(position, u.shape[1], x.shape[1], scores)
        weights = attention_weights(scores, mask[:, None, :])
        after = PointerState(seen[:, u.shape[1] :], position + u.shape[1])
        return self.gate(h)[..., 0], weights, after
