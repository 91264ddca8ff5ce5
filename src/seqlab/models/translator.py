"""Encoder-decoders: one encoding of a source serves every target.

    memory = model.encode(source)                  all that decoding needs of it, whatever the target
    logits, state = model(ids, memory, state)      ids (B, T), the tag of the target first -> (B, T, V)

Ids 0 … V−1 are tokens, the end among them; V + k is the tag of target k, which only the decoder sees. Feeding ids in
pieces with the state equals feeding them whole. With a pointer the logits are logarithms of probabilities.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from seqlab.core.state import BatchFirstState, State
from seqlab.core.types import IGNORED, PaddedBatch, PairBatch
from seqlab.layers import (
    BlockStyle,
    EncoderBlock,
    EncoderDecoderBlock,
    MultiHeadAttention,
    OutputHead,
    RotaryPosition,
    TokenEmbedding,
    TransformerEncoder,
)
from seqlab.layers.pointer import Pointer
from seqlab.layers.recompute import called
from seqlab.ops.masks import length_mask
from seqlab.ops.pointer import mixed_logarithms, mixed_nats

FIRST_LEAVE = 0.5  # how strongly a decoder speaks before it has learnt anything
FIRST_NEARNESS = 6.0  # how much a source token at the decoder's own position scores above a far one (docs/log.md)


@dataclass(frozen=True)
class Memory(BatchFirstState):
    """Encoded sources, one in each row."""

    source: Tensor  # (B, S) ids
    mask: Tensor  # (B, S) which are real
    read: Any  # what the decoder's layers read of them: projected keys and values
    pointed: Tensor | None = None  # (B, S, D) the pointer's keys


class Translator(nn.Module, ABC):
    """What every encoder-decoder has: embedding, output, perhaps a pointer, and the loss."""

    def __init__(
        self,
        vocab_size: int,
        targets: int,
        width: int,
        *,
        dropout: float,
        tied: bool,
        pointer: bool,
    ) -> None:
        super().__init__()
        self.vocab_size, self.targets = vocab_size, targets
        self.embedding = TokenEmbedding(vocab_size + targets, width, scale=width**0.5, dropout=dropout)
        nn.init.normal_(self.embedding.weight, std=width**-0.5)
        self.output = OutputHead(width, vocab_size, bias=True, tied=tied)
        self.output.start(width**-0.5)
        self.pointer = Pointer(width) if pointer else None

    @torch.no_grad()
    def start_from_counts(self, counts: Tensor) -> None:
        """Before it has learnt anything, it generates each token as often as it stands in the targets.    (V,)"""
        self.output.bias.copy_(torch.log((counts + 1) / (counts.sum() + len(counts))))

    def encode(self, source: PaddedBatch) -> Memory:
        """All that decoding needs, keys and values of every layer included: nothing of it is computed again."""
        encoded = self.encoded(source)
        mask = length_mask(source.lengths, source.ids.shape[1])
        pointed = None if self.pointer is None else self.pointer.key(self.keys_of(encoded))
        return Memory(source.ids, mask, self.to_read(encoded, source.lengths), pointed)

    def forward(self, ids: Tensor, memory: Memory, state: State = None) -> tuple[Tensor, State]:
        reading, pointing = (None, None) if state is None else state
        h, reading = self.read(ids, memory, reading)
        z = self.output(h, self.embedding)
        if self.pointer is None:
            return z, (reading, None)
        copy, weights, pointing = self._pointed(h, ids, memory, pointing)
        return mixed_logarithms(z, copy, weights, memory.source), (reading, pointing)

    def nats(self, batch: PairBatch, smoothing: float = 0.0) -> Tensor:
        """Σ −ln p(y_t) over all target tokens; a share `smoothing` of it is spread evenly over the vocabulary.

        (1 − ε)(−ln p_y) + ε/V Σ_v −ln softmax(z)_v
        """
        z, y, generating, nats, _ = self._token_nats(batch)
        if not smoothing:
            return nats.sum()
        spread = generating + z.gather(-1, y[:, None])[:, 0] - z.mean(-1)  # ln Σ e^z − z_v, in the mean over v
        total: Tensor = (1 - smoothing) * nats.sum() + smoothing * spread.sum()
        return total

    def nats_of_rows(self, batch: PairBatch) -> Tensor:
        """Σ −ln p(y_t) of each target.    (B,)"""
        *_, nats, rows = self._token_nats(batch)
        return nats.new_zeros(len(batch.inputs)).index_add(0, rows, nats)

    def _token_nats(self, batch: PairBatch) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
        """Of all N real targets: z (N, V), the tokens y, −ln softmax(z)_y, −ln p(y), and their rows.

        Padding is left out before the output layer.
        """
        memory = self.encode(batch.source)
        h, _ = self.read(batch.inputs, memory, None)
        real = batch.targets != IGNORED
        y, rows = batch.targets[real], real.nonzero()[:, 0]
        z = self.output(h[real], self.embedding)
        generating = nats = F.cross_entropy(z, y, reduction="none")
        if self.pointer is not None:
            copy, weights, _ = self._pointed(h, batch.inputs, memory, None)
            nats = mixed_nats(-generating, copy[real], weights[real], memory.source[rows], y)
        return z, y, generating, nats, rows

    def attention_to_source(self, ids: Tensor, memory: Memory) -> tuple[Tensor, str]:
        """Shares of attention (B, T, S), and what they are: the pointer's, or those of the last decoder layer."""
        if self.pointer is None:
            return self.last_attention(ids, memory), "attention of the last decoder layer, mean over its heads"
        h, _ = self.read(ids, memory, None)
        _, weights, _ = self._pointed(h, ids, memory, None)
        return weights, "attention of the pointer"

    def _pointed(self, h: Tensor, ids: Tensor, memory: Memory, state: Any) -> tuple[Tensor, Tensor, Any]:
        assert self.pointer is not None
        found: tuple[Tensor, Tensor, Any] = self.pointer(h, ids, memory.pointed, memory.source, memory.mask, state)
        return found

    @abstractmethod
    def encoded(self, source: PaddedBatch) -> Tensor:
        """(B, S, D)"""

    def keys_of(self, encoded: Tensor) -> Tensor:
        """The encoded source in the decoder's width, for the pointer."""
        return encoded

    @abstractmethod
    def to_read(self, encoded: Tensor, lengths: Tensor) -> Any:
        """What `read` needs of the encoded source, as a state with the batch first."""

    @abstractmethod
    def last_attention(self, ids: Tensor, memory: Memory) -> Tensor:
        """What the last layer of the decoder attends to in the source, mean over heads.    (B, T, S)"""

    @abstractmethod
    def read(self, ids: Tensor, memory: Memory, state: State) -> tuple[Tensor, State]:
        """What the decoder makes of the ids.    (B, T) -> (B, T, D)"""


def look_near(cross: MultiHeadAttention) -> None:
    """b_q = b_k = c in every number: turned by their positions they add √d c² · mean_i cos(θ_i (t − s)) to the scores.

    That is FIRST_NEARNESS where t = s and falls with the distance: attention starts near the diagonal.
    """
    (_, b_q), (_, b_k), _ = cross.matrices()
    for bias in (b_q, b_k):
        assert bias is not None
        bias.fill_((FIRST_NEARNESS / cross.head_width**0.5) ** 0.5)


class TransformerTranslator(Translator):
    """Encoder blocks with key padding; decoder blocks, causal, with key padding over the source; rotary positions.

    `aligned`: cross-attention has them too, target position against source position, and starts near the diagonal: it
    finds the words that stand where it stands long before it finds them by what they mean.
    """

    def __init__(
        self,
        vocab_size: int,
        targets: int,
        width: int,
        depth: int,
        heads: int,
        *,
        decoder_depth: int | None = None,
        dropout: float = 0.0,
        tied: bool = True,
        pointer: bool = False,
        placement: str = "pre",
        hidden: int | None = None,
        aligned: bool = True,
    ) -> None:
        super().__init__(vocab_size, targets, width, dropout=dropout, tied=tied, pointer=pointer)
        style = BlockStyle(placement=placement, hidden=hidden)
        turned = RotaryPosition(width // heads)
        options: Any = dict(dropout=dropout, rotary=turned)
        self.encoder = TransformerEncoder(
            [
                EncoderBlock(style.attention(width, heads, **options), **style.block(width, dropout))
                for _ in range(depth)
            ],
            style.last_norm(width),
        )
        self.decoder = nn.ModuleList(
            EncoderDecoderBlock(
                style.attention(width, heads, **options),
                style.attention(width, heads, dropout=dropout, rotary=turned if aligned else None),
                **style.block(width, dropout),
            )
            for _ in range(decoder_depth or depth)
        )
        self.norm = style.last_norm(width)
        self.leave = nn.Linear(width, width, bias=False)
        self.start()

    @torch.no_grad()
    def start(self) -> None:
        """Xavier's uniform for every matrix of the blocks; what writes to the residual stream is scaled by 1/√depth.

        The residual stream starts as the vector of the token that was read. `leave` turns it away from there: with
        tied tables the decoder would otherwise start by repeating that token.
        """
        nn.init.xavier_uniform_(self.leave.weight, gain=FIRST_LEAVE)
        for stack, writes in ((self.encoder, 2 * len(self.encoder.blocks)), (self.decoder, 3 * len(self.decoder))):
            for name, weight in stack.named_parameters():
                if weight.ndim >= 2:
                    to_stream = name.endswith(("project_out.weight", "mlp.2.weight"))
                    nn.init.xavier_uniform_(weight, gain=writes**-0.5 if to_stream else 1.0)
        for cross in self._crossing:
            if cross.rotary is not None:
                look_near(cross)

    def encoded(self, source: PaddedBatch) -> Tensor:
        y: Tensor = self.encoder(self.embedding(source.ids), source.lengths)
        return y

    def to_read(self, encoded: Tensor, lengths: Tensor) -> Any:
        """The keys and values of each layer's cross-attention: asked by nobody yet."""
        nobody = encoded[:, :0]
        caches = (cross(nobody, encoded, encoded, key_lengths=lengths)[1] for cross in self._crossing)
        return tuple(cache if torch.is_grad_enabled() else cache.packed() for cache in caches)

    @property
    def _crossing(self) -> list[Any]:
        return [block.cross for block in self.decoder]

    def read(self, ids: Tensor, memory: Memory, state: State) -> tuple[Tensor, State]:
        x = self.embedding(ids)
        caches: Any = (None,) * len(self.decoder) if state is None else state
        after = []
        for block, own, source in zip(self.decoder, caches, memory.read, strict=True):
            x, (own, _) = called(block, x, state=(own, source))
            after.append(own)
        return self.leave(x if self.norm is None else self.norm(x)), tuple(after)

    def last_attention(self, ids: Tensor, memory: Memory) -> Tensor:
        x = self.embedding(ids)
        for block, source in zip(self.decoder, memory.read, strict=True):
            entered, (x, _) = x, block(x, state=(None, source))
            last: Any = block
        weights: Tensor = last.cross_weights(entered, source)
        return weights.mean(1)
