"""Multi-head attention: self and cross, three kinds, state in and state out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from seqlab.core.errors import UsageError
from seqlab.layers.attention_checks import (
    Matrix,
    check_choices,
    check_inputs,
    check_keys,
    check_matrices,
    check_rotary,
    check_sizes,
    check_state,
)
from seqlab.layers.attention_state import (
    AttentionState,
    FeatureCache,
    KeyValueCache,
    Offset,
    cut_to_window,
    extended,
)
from seqlab.layers.positions import RotaryPosition
from seqlab.ops import attention as softmax
from seqlab.ops import linear_attention as linear
from seqlab.ops.masks import banded_causal_mask, check_lengths, length_mask

FEATURES_PER_WIDTH = 4


@dataclass(frozen=True)
class Question:
    """One call, projected and cut into heads."""

    q: Tensor  # (B, N, T, d)
    k: Tensor | None  # (B, N_kv, S, d) of the new keys; None: those that the past holds
    v: Tensor | None
    mask: Tensor | None  # (B, S) which of the new keys are real
    causal: bool
    past: Any  # what the layer remembers
    following: Offset  # the position after the new keys


class MultiHeadAttention(nn.Module):
    """out = W_o [head_1 … head_N],  head = Attention(q, k, v) on d_model/N features of W_q q, W_k k, W_v v each.

    kind
        softmax           softmax(q kᵀ/√d) v, on torch's fused kernel
        separable         softmax_row(q) (softmax_col(k)ᵀ v); causally each feature is normalised by its prefix sum,
                          which is a variant: the original has no causal form
        random_features   softmax attention estimated with m positive random features (4·d_head by default). The
                          directions are drawn once, when the layer is made, and saved with the weights; they change
                          only by `redraw()`.

    `dropout` acts on softmax weights in training; the linear kinds form no weights and drop nothing. `window` lets
    causal softmax attention see that many positions, itself included. `rotary` turns queries and keys by position;
    across two texts both count from 0, so that a decoder can look where it stands itself. `n_kv_heads` heads of keys
    and values are shared by n_heads/n_kv_heads heads of queries each: head h reads those of number
    ⌊h·n_kv_heads/n_heads⌋. `head_width` replaces d_model/n_heads; `bias_out` is the output's own choice of a bias.
    """

    directions: Tensor

    def __init__(
        self,
        d_model: int,
        n_heads: int,
        *,
        kind: str = "softmax",
        bias: bool = True,
        dropout: float = 0.0,
        features: int | None = None,
        orthogonal: bool = True,
        window: int | None = None,
        rotary: RotaryPosition | None = None,
        n_kv_heads: int | None = None,
        head_width: int | None = None,
        bias_out: bool | None = None,
    ) -> None:
        super().__init__()
        check_sizes(d_model, n_heads, n_kv_heads, head_width)
        check_choices(kind, dropout, features, window)
        self.d_model, self.n_heads, self.kind = d_model, n_heads, kind
        self.n_kv_heads = n_heads if n_kv_heads is None else n_kv_heads
        self.head_width = d_model // n_heads if head_width is None else head_width
        check_rotary(rotary, self.head_width)
        self.dropout, self.orthogonal, self.window, self.rotary = dropout, orthogonal, window, rotary
        self.project_in = nn.Linear(d_model, (n_heads + 2 * self.n_kv_heads) * self.head_width, bias=bias)
        self.project_out = nn.Linear(n_heads * self.head_width, d_model, bias=bias if bias_out is None else bias_out)
        if kind == "random_features":
            width = self.head_width
            self.register_buffer("directions", torch.empty(features or FEATURES_PER_WIDTH * width, width))
            self.redraw()

    @torch.no_grad()
    def redraw(self, generator: torch.Generator | None = None) -> None:
        """New random directions. The layer is another function afterwards."""
        fresh = linear.gaussian_directions(*self.directions.shape, orthogonal=self.orthogonal, generator=generator)
        self.directions.copy_(fresh)

    def forward(
        self,
        query: Tensor,
        key: Tensor | None = None,
        value: Tensor | None = None,
        *,
        key_lengths: Tensor | None = None,
        causal: bool = False,
        state: Any = None,
        need_weights: bool = False,
        start: Offset = 0,
    ) -> tuple[Tensor, AttentionState, Tensor | None]:
        """query (B, T, D), key and value (B, S, D) -> out (B, T, D), state, weights (B, N, T, S) or None.

        Causal: query, key and value are the new positions, T = S, and the state holds those before; `key_lengths`
        counts new keys. Cross-attention: the state holds what later calls need, and they pass no key and value; `start`
        is the position of the first query.
        """
        asked = self._asked(query, key, value, key_lengths, causal, state, start)
        attend = self._softmax if self.kind == "softmax" else self._linear
        mixed, after, weights = attend(asked, need_weights)
        return self.project_out(_side_by_side(mixed)), after, weights

    def look(
        self,
        query: Tensor,
        key: Tensor | None = None,
        value: Tensor | None = None,
        *,
        key_lengths: Tensor | None = None,
        causal: bool = False,
        state: Any = None,
        start: Offset = 0,
    ) -> tuple[Tensor | None, Tensor, Tensor]:
        """What a call is made of: scores and weights (B, N, T, S), and what the heads mix, (B, T, N·d).

        Scores are q kᵀ/√d before the mask (the linear kinds have none), weights what softmax makes of them under it.
        The values are the same as those of `forward`, by the formula instead of the fused kernel, without dropout.
        """
        asked = self._asked(query, key, value, key_lengths, causal, state, start)
        if self.kind != "softmax":
            weights = self._linear_weights(asked)
            assert asked.v is not None
            return None, weights, _side_by_side(softmax.mix(weights, self._shared(asked.v)))
        cache = extended(asked.past, asked.k, asked.v, asked.mask, asked.following)
        scores, weights = self._scores_and_weights(asked, cache)
        return scores, weights, _side_by_side(softmax.mix(weights, self._shared(cache.values)))

    # ----------------------------------------------------------------------- the kinds

    def _softmax(self, asked: Question, need_weights: bool) -> tuple[Tensor, AttentionState, Tensor | None]:
        cache = extended(asked.past, asked.k, asked.v, asked.mask, asked.following)
        dropout = self.dropout if self.training else 0.0
        weights = None
        if need_weights:
            _, weights = self._scores_and_weights(asked, cache)
            mixed = softmax.mix(F.dropout(weights, dropout), self._shared(cache.values))
        else:
            reach: Any = dict(key_mask=cache.mask, causal=asked.causal, window=self.window)
            mixed = softmax.softmax_attention(asked.q, cache.keys, cache.values, dropout=dropout, **reach)
        return mixed, cut_to_window(cache, self.window) if asked.causal else cache, weights

    def _scores_and_weights(self, asked: Question, cache: KeyValueCache) -> tuple[Tensor, Tensor]:
        """q kᵀ/√d, and what softmax makes of it under the mask.    (B, N, T, S) each"""
        keys, visible = self._shared(cache.keys), None
        if asked.causal:
            visible = banded_causal_mask(asked.q.shape[2], keys.shape[2], self.window, keys.device)
        if cache.mask is not None:
            real = cache.mask[:, None, None]
            visible = real if visible is None else visible & real
        scores = softmax.scaled_scores(asked.q, keys)
        return scores, softmax.attention_weights(scores, visible)

    def _linear(self, asked: Question, need_weights: bool) -> tuple[Tensor, AttentionState, Tensor | None]:
        weights = self._linear_weights(asked) if need_weights else None
        if asked.k is None or asked.v is None:
            return linear.ask(self._features, asked.q, asked.past), asked.past, None
        k, v = self._shared(asked.k), self._shared(asked.v)
        mixed, sums = linear.attend(
            self._features, asked.q, k, v, key_mask=asked.mask, causal=asked.causal, past=asked.past
        )
        return mixed, FeatureCache(sums.sums, sums.level, asked.following), weights

    def _linear_weights(self, asked: Question) -> Tensor:
        """The weights that the sums amount to.    (B, N, T, S)"""
        if asked.past is not None or asked.k is None:
            raise UsageError(
                f"attention '{self.kind}' remembers sums, not keys: weights need the whole text in one call"
            )
        k = self._shared(asked.k)
        return linear.attention_weights(self._features, asked.q, k, key_mask=asked.mask, causal=asked.causal)

    @property
    def _features(self) -> linear.Features:
        return linear.SEPARABLE if self.kind == "separable" else linear.random_features(self.directions)

    def _shared(self, u: Tensor) -> Tensor:
        """Keys or values, one for each head of the queries.    (B, N_kv, S, d) -> (B, N, S, d)"""
        return softmax.shared_by(u, self.n_heads)

    # ----------------------------------------------------------------------- projections and checks

    def _asked(
        self,
        query: Tensor,
        key: Tensor | None,
        value: Tensor | None,
        key_lengths: Tensor | None,
        causal: bool,
        state: AttentionState | None,
        start: Offset,
    ) -> Question:
        self._check(query, key, value, key_lengths, causal, state)
        mask = None
        if key_lengths is not None and key is not None and value is not None:
            key_lengths = check_lengths(key_lengths, key.shape[0], key.shape[1])
            mask = length_mask(key_lengths, key.shape[1])
            query, key, value = _without_padding(query, key, value, mask)
        before: Offset = state.position if state is not None and causal else 0
        q, k, v = self._heads(query, key, value, before, before if causal else start)
        following = before
        if k is not None:
            following = before + (k.shape[2] if key_lengths is None else key_lengths)
        return Question(q, k, v, mask, causal, state, following)

    def _heads(
        self, query: Tensor, key: Tensor | None, value: Tensor | None, before: Offset, start: Offset
    ) -> tuple[Tensor, Tensor | None, Tensor | None]:
        """Projected and cut into heads, (B, ·, T, d) each; q is turned from `start` on, k from `before` on.

        One product, and one turn, where all three are the same.
        """
        if query is key and key is value:
            turned, v = self._cut(self.project_in(query)).tensor_split([self.n_heads + self.n_kv_heads], 1)
            q, k = self._turned(turned, before).tensor_split([self.n_heads], 1)
            return q, k, v
        (w_q, b_q), (w_k, b_k), (w_v, b_v) = self.matrices()
        q = self._turned(self._cut(F.linear(query, w_q, b_q)), start)
        if key is None or value is None:
            return q, None, None
        k = self._turned(self._cut(F.linear(key, w_k, b_k)), before)
        return q, k, self._cut(F.linear(value, w_v, b_v))

    def _turned(self, u: Tensor, start: Offset) -> Tensor:
        if self.rotary is None:
            return u
        result: Tensor = self.rotary(u, start)
        return result

    def _cut(self, projected: Tensor) -> Tensor:
        """(B, T, heads·d) -> (B, heads, T, d)"""
        B, T, rows = projected.shape
        return projected.view(B, T, rows // self.head_width, self.head_width).transpose(1, 2)

    def _check(
        self,
        query: Tensor,
        key: Tensor | None,
        value: Tensor | None,
        key_lengths: Tensor | None,
        causal: bool,
        state: AttentionState | None,
    ) -> None:
        check_inputs(self.d_model, query, key, value)
        check_state(self.kind, state, len(query))
        check_keys(query, key, value, key_lengths, causal, state, self.window)

    # ----------------------------------------------------------------------- three matrices in one

    def matrices(self) -> list[Matrix]:
        """(W, b) of the queries, the keys and the values, as views of the one matrix that holds them."""
        edges = [self.n_heads * self.head_width, (self.n_heads + self.n_kv_heads) * self.head_width]
        weights, bias = self.project_in.weight.tensor_split(edges), self.project_in.bias
        return list(zip(weights, (None,) * 3 if bias is None else bias.tensor_split(edges), strict=True))

    @classmethod
    def from_matrices(cls, q: Matrix, k: Matrix, v: Matrix, out: Matrix, n_heads: int, **options: Any) -> Self:
        """The layer of three separate matrices, each W (rows, D) with its b or None, and that of the output.

        Their rows say how wide a head is and how many heads keys and values have. Where only some have a bias, the
        others have zeros.
        """
        weight, head_width = q[0], len(q[0]) // max(n_heads, 1)
        check_matrices(q, k, v, out, n_heads)
        sizes: Any = dict(head_width=head_width, n_kv_heads=len(k[0]) // head_width)
        bias = any(b is not None for _, b in (q, k, v))
        with torch.random.fork_rng(devices=[]):  # the first weights are thrown away
            layer = cls(weight.shape[1], n_heads, bias=bias, bias_out=out[1] is not None, **sizes, **options)
        layer.to(weight)
        if layer.kind == "random_features":
            layer.redraw()
        with torch.no_grad():
            for mine, given in zip(
                (*layer.matrices(), (layer.project_out.weight, layer.project_out.bias)), (q, k, v, out), strict=True
            ):
                _copy_matrix(mine, given)
        return layer

    # ----------------------------------------------------------------------- to and from torch

    @classmethod
    def from_torch(cls, module: nn.MultiheadAttention) -> Self:
        """The same layer with the weights of torch.nn.MultiheadAttention, in its dtype and on its device."""
        if not isinstance(module, nn.MultiheadAttention):
            raise UsageError(f"from_torch takes a torch.nn.MultiheadAttention, not {type(module).__name__}")
        if module.in_proj_weight is None or module.bias_k is not None or module.add_zero_attn:
            raise UsageError("kdim, vdim, add_bias_kv and add_zero_attn have no counterpart here")
        bias = module.in_proj_bias is not None
        with torch.random.fork_rng(devices=[]):  # the first weights are thrown away
            layer = cls(module.embed_dim, module.num_heads, bias=bias, dropout=module.dropout)
        layer.to(module.in_proj_weight).train(module.training)
        layer.load_state_dict({_OUR_NAMES[name]: value for name, value in module.state_dict().items()})
        return layer

    def to_torch(self) -> nn.MultiheadAttention:
        """A torch.nn.MultiheadAttention (batch_first=True) that computes the same."""
        if self.kind != "softmax" or self.rotary is not None or self.window is not None:
            raise UsageError(
                "torch.nn.MultiheadAttention has softmax attention only, without window and rotary positions"
            )
        bias = self.project_in.bias is not None
        own_size = (self.n_kv_heads, self.head_width * self.n_heads) != (self.n_heads, self.d_model)
        if own_size or bias != (self.project_out.bias is not None):
            raise UsageError(
                "torch.nn.MultiheadAttention has as many key/value heads as heads, heads of d_model/n_heads, and "
                "biases everywhere or nowhere"
            )
        with torch.random.fork_rng(devices=[]):
            module = nn.MultiheadAttention(self.d_model, self.n_heads, self.dropout, bias=bias, batch_first=True)
        module.to(self.project_in.weight).train(self.training)
        ours = self.state_dict()
        module.load_state_dict({theirs: ours[name] for theirs, name in _OUR_NAMES.items() if name in ours})
        return module


_OUR_NAMES = {
    "in_proj_weight": "project_in.weight",
    "in_proj_bias": "project_in.bias",
    "out_proj.weight": "project_out.weight",
    "out_proj.bias": "project_out.bias",
}


def _side_by_side(mixed: Tensor) -> Tensor:
    """[head_1 … head_N].    (B, N, T, d) -> (B, T, N·d)"""
    return mixed.transpose(1, 2).flatten(2)


def _copy_matrix(mine: Matrix, given: Matrix) -> None:
    mine[0].copy_(given[0])
    if mine[1] is not None:
        mine[1].copy_(mine[1].new_zeros(()) if given[1] is None else given[1])


def _without_padding(query: Tensor, key: Tensor, value: Tensor, mask: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """What stands in the padding must not matter, not even NaN, which zero weights would not hide.

    A query in the padding may be any number, as in torch, but must be one.
    """
    padding = ~mask[..., None]
    keys = key.masked_fill(padding, 0.0)
    values = keys if value is key else value.masked_fill(padding, 0.0)
    if query is key:
        query = query.masked_fill(padding & ~query.isfinite(), 0.0)
    return query, keys, values
