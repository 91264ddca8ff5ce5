"""Recurrent encoder-decoders with attention over the source."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from seqlab.core.errors import UsageError, nearest
from seqlab.core.registry import SCORES
from seqlab.core.state import BatchFirstState, State
from seqlab.core.taps import Call, Look, Values
from seqlab.core.types import PaddedBatch
from seqlab.layers import GRU, LSTM, RecurrentEncoder
from seqlab.layers.recurrent import Recurrent
from seqlab.models.translator import Memory, Translator
from seqlab.ops.attention import additive_scores, attention_weights, dot_scores, mix, scaled_scores


@dataclass(frozen=True)
class RecurrentMemory(BatchFirstState):
    """What the decoder reads of a source: its vectors, and the state that it starts from."""

    values: Tensor  # (B, S, H)
    start: Tensor  # (B, parts, layers, H); the LSTM has two parts, h and c


@dataclass(frozen=True)
class Fed(BatchFirstState):
    """What the decoder last said to itself.    (B, H)"""

    vector: Tensor


class SourceAttention(nn.Module):
    """c_t = Σ_s softmax_s(score(h_t, v_s)) v_s;    score: dot qᵀk, scaled qᵀk/√H, additive vᵀtanh(W_1 q + W_2 k)"""

    def __init__(self, width: int, score: str) -> None:
        super().__init__()
        if score not in SCORES:
            raise UsageError(f"score '{score}' is not known{nearest(score, SCORES)}")
        self.score = score
        self.query = nn.Linear(width, width, bias=False)
        if score == "additive":
            self.W_2 = nn.Parameter(torch.empty(width, width))
            self.v = nn.Parameter(torch.empty(width))
            for weight in (self.W_2, self.v):
                nn.init.normal_(weight, std=width**-0.5)

    def forward(self, h: Tensor, values: Tensor, mask: Tensor) -> Tensor:
        """h (B, T, H), values (B, S, H), mask (B, S) -> (B, T, H)"""
        return mix(self.weights(h, values, mask), values)

    def weights(self, h: Tensor, values: Tensor, mask: Tensor) -> Tensor:
        """(B, T, S)"""
        if self.score == "additive":
            scores = additive_scores(h, values, self.query.weight, self.W_2, self.v)
        else:
            scores = (dot_scores if self.score == "dot" else scaled_scores)(self.query(h), values)
        return attention_weights(scores, mask[:, None, :])


def _attention_look(attention: SourceAttention, call: Call, _wanted: Any) -> Values:
    """One head.    (B, 1, T, S)"""
    return {"weights": attention.weights(*call.arguments.values())[:, None]}


LOOK = Look(("weights",), _attention_look)


class RecurrentTranslator(Translator):
    """A bidirectional encoder; a decoder that attends to it:

        h_t = cell(x_t, h_{t−1})                    with input feeding cell([x_t, a_{t−1}], h_{t−1}), a_0 = 0
        a_t = tanh(W [h_t, c_t])                    c_t from `SourceAttention`; logits from a_t

    The decoder starts from tanh(U e), e being what the encoder made of the whole source in both directions.
    """

    layer_type: ClassVar[type[Recurrent]]
    parts: ClassVar[int] = 1  # of a recurrent state

    def __init__(
        self,
        vocab_size: int,
        targets: int,
        width: int,
        depth: int = 1,
        *,
        decoder_depth: int | None = None,
        score: str = "scaled",
        input_feeding: bool = False,
        dropout: float = 0.0,
        tied: bool = True,
        pointer: bool = False,
    ) -> None:
        super().__init__(vocab_size, targets, width, dropout=dropout, tied=tied, pointer=pointer)
        self.width, self.depth, self.input_feeding = width, decoder_depth or depth, input_feeding
        half = (width + 1) // 2
        self.encoder = RecurrentEncoder(self.layer_type(width, half, depth, dropout=dropout, bidirectional=True))
        self.enter = nn.Linear(2 * half, width)
        self.begin = nn.Linear(2 * half, self.parts * self.depth * width)
        read = 2 * width if input_feeding else width
        self.decoder = self.layer_type(read, width, self.depth, dropout=dropout)
        self.attention = SourceAttention(width, score)
        self.combine = nn.Linear(2 * width, width)
        self.dropout = nn.Dropout(dropout)
        self._half = half

    def encoded(self, source: PaddedBatch) -> Tensor:
        y: Tensor = self.encoder(self.embedding(source.ids), source.lengths)
        return y

    def keys_of(self, encoded: Tensor) -> Tensor:
        y: Tensor = self.enter(encoded)
        return y

    def to_read(self, encoded: Tensor, lengths: Tensor) -> RecurrentMemory:
        last = encoded[torch.arange(len(encoded)), lengths - 1, : self._half]
        whole = torch.cat([last, encoded[:, 0, self._half :]], -1)
        start = torch.tanh(self.begin(whole)).view(len(encoded), self.parts, self.depth, self.width)
        return RecurrentMemory(self.keys_of(encoded), start)

    def read(self, ids: Tensor, memory: Memory, state: State) -> tuple[Tensor, State]:
        known: RecurrentMemory = memory.read
        x = self.embedding(ids)
        if state is None:
            state = (self._first(known), Fed(x.new_zeros(len(x), self.width)))
        if not self.input_feeding:
            h, after = self.decoder(x, state[0])
            return self._said(h, memory), (after, state[1])
        said = []
        cell, fed = state
        for t in range(ids.shape[1]):
            h, cell = self.decoder(torch.cat([x[:, t : t + 1], fed.vector[:, None]], -1), cell)
            said.append(self._said(h, memory))
            fed = Fed(said[-1][:, 0])
        return torch.cat(said, 1), (cell, fed)

    def last_attention(self, ids: Tensor, memory: Memory) -> Tensor:
        seen: list[Tensor] = []
        state: State = None
        for t in range(ids.shape[1]):  # step by step: the hidden vectors are the decoder's own
            _, state = self.read(ids[:, t : t + 1], memory, state)
            hidden = state[0] if self.parts == 1 else state[0][0]
            seen.append(self.attention.weights(hidden[-1][:, None], memory.read.values, memory.mask))
        return torch.cat(seen, 1)

    def _said(self, h: Tensor, memory: Memory) -> Tensor:
        context = self.attention(h, memory.read.values, memory.mask)
        said: Tensor = self.dropout(torch.tanh(self.combine(torch.cat([h, context], -1))))
        return said

    def _first(self, known: RecurrentMemory) -> Any:
        parts = [part.transpose(0, 1).contiguous() for part in known.start.unbind(1)]
        return parts[0] if self.parts == 1 else tuple(parts)


class GRUTranslator(RecurrentTranslator):
    layer_type = GRU


class LSTMTranslator(RecurrentTranslator):
    layer_type = LSTM
    parts = 2
