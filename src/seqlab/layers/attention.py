"""Multi-head attention: self and cross, three kinds, state in and state out."""

from __future__ import annotations

from typing import Any, Self

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from seqlab.core.errors import UsageError
from seqlab.layers.attention_checks import check_inputs, check_keys, check_sizes, check_state
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
    causal softmax attention see that many positions, itself included. `rotary` turns the queries and keys of
    self-attention by position.
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
    ) -> None:
        super().__init__()
        check_sizes(d_model, n_heads, kind, dropout, features, window)
        self.d_model, self.n_heads, self.kind = d_model, n_heads, kind
        self.dropout, self.orthogonal, self.window, self.rotary = dropout, orthogonal, window, rotary
        self.project_in = nn.Linear(d_model, 3 * d_model, bias=bias)
        self.project_out = nn.Linear(d_model, d_model, bias=bias)
        if kind == "random_features":
            width = d_model // n_heads
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
    ) -> tuple[Tensor, AttentionState, Tensor | None]:
        """query (B, T, D), key and value (B, S, D) -> out (B, T, D), state, weights (B, N, T, S) or None.

        Causal: query, key and value are the new positions, T = S, and the state holds those before; `key_lengths`
        counts new keys. Cross-attention: the state holds what later calls need, and they pass no key and value.
        """
        self._check(query, key, value, key_lengths, causal, state)
        new_mask = None
        if key_lengths is not None and key is not None and value is not None:
            key_lengths = check_lengths(key_lengths, key.shape[0], key.shape[1])
            new_mask = length_mask(key_lengths, key.shape[1])
            query, key, value = _without_padding(query, key, value, new_mask)
        start: Offset = state.position if state is not None and causal else 0
        q, k, v = self._heads(query, key, value, start)
        following = start
        if k is not None:
            following = start + (k.shape[2] if key_lengths is None else key_lengths)
        attend = self._softmax if self.kind == "softmax" else self._linear
        mixed, state, weights = attend(q, k, v, new_mask, causal, state, following, need_weights)
        return self.project_out(mixed.transpose(1, 2).flatten(2)), state, weights

    # ----------------------------------------------------------------------- the kinds

    def _softmax(
        self,
        q: Tensor,
        k: Tensor | None,
        v: Tensor | None,
        mask: Tensor | None,
        causal: bool,
        past: KeyValueCache | None,
        following: Offset,
        need_weights: bool,
    ) -> tuple[Tensor, KeyValueCache, Tensor | None]:
        cache = extended(past, k, v, mask, following)
        k, v, mask = cache.keys, cache.values, cache.mask
        dropout = self.dropout if self.training else 0.0
        weights = None
        if need_weights:
            visible = banded_causal_mask(q.shape[2], k.shape[2], self.window, q.device) if causal else None
            if mask is not None:
                visible = mask[:, None, None] if visible is None else visible & mask[:, None, None]
            weights = softmax.attention_weights(softmax.scaled_scores(q, k), visible)
            mixed = softmax.mix(F.dropout(weights, dropout), v)
        else:
            mixed = softmax.softmax_attention(
                q, k, v, key_mask=mask, causal=causal, window=self.window, dropout=dropout
            )
        return mixed, cache if not causal else cut_to_window(cache, self.window), weights

    def _linear(
        self,
        q: Tensor,
        k: Tensor | None,
        v: Tensor | None,
        mask: Tensor | None,
        causal: bool,
        past: FeatureCache | None,
        following: Offset,
        need_weights: bool,
    ) -> tuple[Tensor, FeatureCache, Tensor | None]:
        features = linear.SEPARABLE if self.kind == "separable" else linear.random_features(self.directions)
        if need_weights and past is not None:
            raise UsageError(
                f"attention '{self.kind}' remembers sums, not keys: weights need the whole text in one call"
            )
        if k is None or v is None:
            assert past is not None
            return linear.ask(features, q, past), past, None
        weights = linear.attention_weights(features, q, k, key_mask=mask, causal=causal) if need_weights else None
        mixed, sums = linear.attend(features, q, k, v, key_mask=mask, causal=causal, past=past)
        return mixed, FeatureCache(sums.sums, sums.level, following), weights

    # ----------------------------------------------------------------------- projections and checks

    def _heads(
        self, query: Tensor, key: Tensor | None, value: Tensor | None, start: Offset
    ) -> tuple[Tensor, Tensor | None, Tensor | None]:
        """Projected and cut into heads, (B, N, T, d) each; q and k are turned by position.

        One product, and one turn, where all three are the same.
        """

        def turned(u: Tensor) -> Tensor:
            if self.rotary is None:
                return u
            result: Tensor = self.rotary(u, start)
            return result

        if query is key and key is value:
            parts = self._cut(self.project_in(query), 3)
            q, k = turned(parts[:2])
            return q, k, parts[2]
        weights = self.project_in.weight.chunk(3)
        biases = (None,) * 3 if self.project_in.bias is None else self.project_in.bias.chunk(3)
        projected = [
            None if x is None else self._cut(F.linear(x, weight, bias), 1)[0]
            for x, weight, bias in zip((query, key, value), weights, biases, strict=True)
        ]
        assert projected[0] is not None
        return turned(projected[0]), None if projected[1] is None else turned(projected[1]), projected[2]

    def _cut(self, projected: Tensor, parts: int) -> Tensor:
        B, T, _ = projected.shape
        return projected.view(B, T, parts, self.n_heads, self.d_model // self.n_heads).permute(2, 0, 3, 1, 4)

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
        if self.rotary is not None and key is not query:
            raise UsageError("rotary positions are for self-attention: pass the same tensor as query, key and value")
        check_state(self.kind, state, len(query))
        check_keys(query, key, value, key_lengths, causal, state, self.window)

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
