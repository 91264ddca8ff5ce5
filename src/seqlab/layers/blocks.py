"""Transformer blocks: encoder, decoder, and decoder with cross-attention. x (B, T, D) -> (B, T, D).

Pre-norm:   x ← x + F(norm(x))                            (a stack of these ends with a norm of its own)
Post-norm:  x ← norm(x + F(x))
Parallel:   x ← x + A(norm_1(x)) + M(norm_2(x))           (attention and feed-forward network read the same x)

`lengths` says where right padding starts: it is read as zeros, attended to by nobody, and put out as zeros.
"""

from __future__ import annotations

from torch import Tensor, nn

from seqlab.core.errors import UsageError, nearest
from seqlab.core.registry import PLACEMENTS
from seqlab.core.state import State
from seqlab.layers.attention import MultiHeadAttention
from seqlab.layers.feed_forward import FeedForward
from seqlab.layers.norms import build_norm, normalise
from seqlab.ops.masks import check_lengths, length_mask


class Block(nn.Module):
    """Sublayers with residual, dropout and norm: self-attention, perhaps cross-attention, then a feed-forward network.

    The feed-forward network is `mlp`, or a plain one with gelu and expansion·D hidden units. Some models have one
    norm for both parts of a parallel block: two with the same weights compute the same.
    """

    recompute = False  # whether a stack throws away what is inside while it trains (layers.recompute)

    def __init__(
        self,
        attention: MultiHeadAttention,
        *,
        cross: MultiHeadAttention | None = None,
        mlp: FeedForward | None = None,
        dropout: float = 0.0,
        expansion: int = 4,
        norm: str = "layer",
        eps: float | None = None,
        norm_bias: bool = True,
        placement: str = "pre",
    ) -> None:
        super().__init__()
        if placement not in PLACEMENTS:
            raise UsageError(f"placement '{placement}' is not known{nearest(placement, PLACEMENTS)}")
        if placement == "parallel" and cross is not None:
            raise UsageError("placement 'parallel' is for blocks without cross-attention; choose 'pre' or 'post'")
        width = attention.d_model
        self.placement = placement
        self.attention = attention
        self.norm_attention = build_norm(norm, width, eps=eps, bias=norm_bias)
        if cross is not None:
            self.cross = cross
            self.norm_cross = build_norm(norm, width, eps=eps, bias=norm_bias)
        if mlp is not None and mlp[0].in_features != width:
            raise UsageError(f"a feed-forward network of width {mlp[0].in_features} does not fit a block of {width}")
        self.mlp = FeedForward(width, expansion * width) if mlp is None else mlp
        self.norm_mlp = build_norm(norm, width, eps=eps, bias=norm_bias)
        self.dropout = nn.Dropout(dropout)

    def before(self, x: Tensor, norm: nn.Module, lengths: Tensor | None) -> Tensor:
        """What a sublayer reads of the residual stream."""
        return x if self.placement == "post" else normalise(norm, x, lengths)

    def after(self, x: Tensor, added: Tensor, norm: nn.Module, lengths: Tensor | None) -> Tensor:
        """The residual stream with what a sublayer adds to it."""
        x = x + self.dropout(added)
        return normalise(norm, x, lengths) if self.placement == "post" else x

    def feed_forward(self, x: Tensor, entered: Tensor, lengths: Tensor | None) -> Tensor:
        """The last sublayer; a parallel one reads what entered the block."""
        u = self.before(entered if self.placement == "parallel" else x, self.norm_mlp, lengths)
        return cleared(self.after(x, self.mlp(u), self.norm_mlp, lengths), lengths)

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
        entered = self.opened(x, lengths)
        u = self.before(entered, self.norm_attention, lengths)
        mixed, _, _ = self.attention(u, u, u, key_lengths=lengths)
        x = self.after(entered, mixed, self.norm_attention, lengths)
        return self.feed_forward(x, entered, lengths)


class DecoderBlock(Block):
    """A position sees itself and what stands before it."""

    def forward(self, x: Tensor, state: State = None, lengths: Tensor | None = None) -> tuple[Tensor, State]:
        entered = self.opened(x, lengths)
        u = self.before(entered, self.norm_attention, lengths)
        mixed, state, _ = self.attention(u, u, u, causal=True, state=state, key_lengths=lengths)
        x = self.after(entered, mixed, self.norm_attention, lengths)
        return self.feed_forward(x, entered, lengths), state


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
        start = 0 if own is None else own.position
        entered = self.opened(x, lengths)
        u = self.before(entered, self.norm_attention, lengths)
        mixed, own, _ = self.attention(u, u, u, causal=True, state=own, key_lengths=lengths)
        x = self.after(entered, mixed, self.norm_attention, lengths)
        u = self.before(x, self.norm_cross, lengths)
        mixed, source, _ = self.cross(u, memory, memory, key_lengths=memory_lengths, state=source, start=start)
        x = self.after(x, mixed, self.norm_cross, lengths)
        return self.feed_forward(x, entered, lengths), (own, source)

    def cross_weights(self, x: Tensor, source: State) -> Tensor:
        """What each position attends to in a source that the state holds.    x (B, T, D) -> (B, N, T, S)"""
        u = self.before(x, self.norm_attention, None)
        mixed, _, _ = self.attention(u, u, u, causal=True)
        x = self.after(x, mixed, self.norm_attention, None)
        _, weights, _ = self.cross.look(self.before(x, self.norm_cross, None), state=source)
        return weights
