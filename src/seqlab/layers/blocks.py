"""Transformer blocks: encoder, decoder, and decoder with cross-attention. x (B, T, D) -> (B, T, D).

Pre-norm:   x ← x + F(norm(x))        (a stack of these ends with a norm of its own)
Post-norm:  x ← norm(x + F(x))

`lengths` says where right padding starts: it is read as zeros, attended to by nobody, and put out as zeros.
"""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor, nn

from seqlab.core.errors import UsageError, nearest
from seqlab.core.state import State
from seqlab.layers.attention import MultiHeadAttention
from seqlab.layers.norms import build_norm, normalise
from seqlab.ops.masks import check_lengths, length_mask

PLACEMENTS = ("pre", "post")


class Block(nn.Module):
    """Sublayers with residual, dropout and norm: self-attention, perhaps cross-attention, then a feed-forward network.

    MLP(x) = W_2 gelu(W_1 x + b_1) + b_2, with expansion·D hidden units.
    """

    def __init__(
        self,
        attention: MultiHeadAttention,
        *,
        cross: MultiHeadAttention | None = None,
        dropout: float = 0.0,
        expansion: int = 4,
        norm: str = "layer",
        placement: str = "pre",
    ) -> None:
        super().__init__()
        if placement not in PLACEMENTS:
            raise UsageError(f"placement '{placement}' is not known{nearest(placement, PLACEMENTS)}")
        width = attention.d_model
        self.placement = placement
        self.attention = attention
        self.norm_attention = build_norm(norm, width)
        if cross is not None:
            self.cross = cross
            self.norm_cross = build_norm(norm, width)
        self.mlp = nn.Sequential(nn.Linear(width, expansion * width), nn.GELU(), nn.Linear(expansion * width, width))
        self.norm_mlp = build_norm(norm, width)
        self.dropout = nn.Dropout(dropout)

    def residual(
        self, x: Tensor, norm: nn.Module, sublayer: Callable[[Tensor], Tensor], lengths: Tensor | None
    ) -> Tensor:
        """One sublayer with its residual connection, its norm placed before or after."""
        before = normalise(norm, x, lengths) if self.placement == "pre" else x
        x = x + self.dropout(sublayer(before))
        return x if self.placement == "pre" else normalise(norm, x, lengths)

    def feed_forward(self, x: Tensor, lengths: Tensor | None) -> Tensor:
        return self.residual(x, self.norm_mlp, self.mlp, lengths)

    def look_back(self, x: Tensor, state: State, lengths: Tensor | None) -> tuple[Tensor, State]:
        """The sublayer of causal self-attention, and its state after x."""
        after: list[State] = []

        def attend(u: Tensor) -> Tensor:
            mixed: Tensor
            mixed, new, _ = self.attention(u, u, u, causal=True, state=state, key_lengths=lengths)
            after.append(new)
            return mixed

        return self.residual(x, self.norm_attention, attend, lengths), after[0]

    def opened(self, x: Tensor, lengths: Tensor | None) -> Tensor:
        """What a block reads: checked, with zeros in the padding."""
        width = self.attention.d_model
        if x.ndim != 3 or x.shape[2] != width:
            raise UsageError(f"x has shape {tuple(x.shape)}, but the block reads (batch, time, {width})")
        return cleared(x, lengths)


def cleared(x: Tensor, lengths: Tensor | None) -> Tensor:
    """x with zeros in the padding.    (B, T, D), (B,)"""
    if lengths is None:
        return x
    real = length_mask(check_lengths(lengths, x.shape[0], x.shape[1]), x.shape[1])
    return x.masked_fill(~real[..., None], 0.0)


class EncoderBlock(Block):
    """Every real position sees every real position; what stands in the padding changes nothing."""

    def forward(self, x: Tensor, lengths: Tensor | None = None) -> Tensor:
        x = self.opened(x, lengths)

        def attend(u: Tensor) -> Tensor:
            mixed: Tensor = self.attention(u, u, u, key_lengths=lengths)[0]
            return mixed

        x = self.residual(x, self.norm_attention, attend, lengths)
        return cleared(self.feed_forward(x, lengths), lengths)


class DecoderBlock(Block):
    """A position sees itself and what stands before it."""

    def forward(self, x: Tensor, state: State = None, lengths: Tensor | None = None) -> tuple[Tensor, State]:
        x, after = self.look_back(self.opened(x, lengths), state, lengths)
        return cleared(self.feed_forward(x, lengths), lengths), after


class EncoderDecoderBlock(Block):
    """A decoder block that also reads an encoded source: causal over its own positions, key padding over the source.

    x (B, T, D), memory (B, S, D), memory_lengths (B,) -> (B, T, D), state. The state holds the projected source, so
    later calls pass memory=None.
    """

    def __init__(self, attention: MultiHeadAttention, cross: MultiHeadAttention, **options: object) -> None:
        super().__init__(attention, cross=cross, **options)  # type: ignore[arg-type]

    def forward(
        self,
        x: Tensor,
        memory: Tensor | None = None,
        memory_lengths: Tensor | None = None,
        state: State = None,
        lengths: Tensor | None = None,
    ) -> tuple[Tensor, State]:
        if memory is not None and state is not None:
            raise UsageError("the state holds the memory already; pass memory=None with it")
        own, source = (None, None) if state is None else state
        x, own = self.look_back(self.opened(x, lengths), own, lengths)
        sources: list[State] = []

        def read(u: Tensor) -> Tensor:
            mixed: Tensor
            mixed, remembered, _ = self.cross(u, memory, memory, key_lengths=memory_lengths, state=source)
            sources.append(remembered)
            return mixed

        x = self.residual(x, self.norm_cross, read, lengths)
        return cleared(self.feed_forward(x, lengths), lengths), (own, sources[0])
