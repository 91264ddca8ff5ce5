"""What multi-head attention refuses: sizes and calls that mean nothing, each in one line with its remedy."""

from __future__ import annotations

from torch import Tensor

from seqlab.core.errors import UsageError, nearest
from seqlab.core.registry import ATTENTIONS
from seqlab.core.sizes import check_heads
from seqlab.layers.attention_state import AttentionState, FeatureCache, KeyValueCache
from seqlab.layers.positions import RotaryPosition

Matrix = tuple[Tensor, Tensor | None]  # W (rows, D) and b (rows,)


def check_sizes(d_model: int, n_heads: int, n_kv_heads: int | None, head_width: int | None) -> None:
    """What the layer is made of; heads with a width of their own need not divide the model's."""
    if head_width is not None and head_width < 1:
        raise UsageError(f"head_width {head_width} is too small; the least is 1")
    check_heads(d_model if head_width is None else n_heads * head_width, n_heads, n_kv_heads)


def check_choices(kind: str, dropout: float, features: int | None, window: int | None) -> None:
    if kind not in ATTENTIONS:
        raise UsageError(f"attention '{kind}' is not known{nearest(kind, ATTENTIONS)}")
    for name, least, value in (("features", 1, features), ("window", 1, window)):
        if value is not None and value < least:
            raise UsageError(f"{name} {value} is too small; the least is {least}")
    if not 0 <= dropout <= 1:
        raise UsageError(f"dropout {dropout} is not a share between 0 and 1")
    if features is not None and kind != "random_features":
        raise UsageError(f"features={features} is a choice for attention 'random_features', not '{kind}'")
    if window is not None and kind != "softmax":
        raise UsageError(f"window={window} is a choice for attention 'softmax'; '{kind}' sees the whole past")


def check_rotary(rotary: RotaryPosition | None, head_width: int) -> None:
    if rotary is not None and rotary.head_width != head_width:
        remedy = "choose an even width for them" if head_width % 2 else f"make them with RotaryPosition({head_width})"
        raise UsageError(
            f"rotary positions for heads of {rotary.head_width} do not fit heads of {head_width}; {remedy}"
        )


def check_matrices(q: Matrix, k: Matrix, v: Matrix, out: Matrix, n_heads: int) -> None:
    """Separate matrices that make one layer: q of n_heads heads, k and v of as many heads as each other."""
    rows, width = q[0].shape
    if n_heads < 1 or rows % n_heads:
        raise UsageError(f"queries of {rows} rows cannot be cut into {n_heads} heads of one size")
    head_width, shared = rows // n_heads, len(k[0])
    if shared % head_width or not shared:
        raise UsageError(f"keys of {shared} rows are no heads of {head_width} rows, as the queries have them")
    wanted = {"q": (rows, width), "k": (shared, width), "v": (shared, width), "out": (width, rows)}
    for (name, shape), (weight, bias) in zip(wanted.items(), (q, k, v, out), strict=True):
        if weight.shape != shape or (bias is not None and bias.shape != shape[:1]):
            found = tuple(weight.shape), None if bias is None else tuple(bias.shape)
            raise UsageError(f"{name} has W and b of shapes {found}; beside the others: {shape}, {shape[:1]}")


def check_inputs(width: int, query: Tensor, key: Tensor | None, value: Tensor | None) -> None:
    for name, x in (("query", query), ("key", key), ("value", value)):
        if x is not None and (x.ndim != 3 or x.shape[0] != query.shape[0] or x.shape[2] != width):
            expected = f"({query.shape[0]}, time, {width})"
            raise UsageError(f"{name} has shape {tuple(x.shape)}, but the layer reads {expected}")


def check_state(kind: str, state: AttentionState | None, batch: int) -> None:
    own_state = KeyValueCache if kind == "softmax" else FeatureCache
    if state is None:
        return
    if not isinstance(state, own_state):
        raise UsageError(f"attention '{kind}' continues a {own_state.__name__}, not a {type(state).__name__}")
    if state.batch != batch:
        raise UsageError(f"the state is for {state.batch} sequences, but query holds {batch}")


def check_keys(
    query: Tensor,
    key: Tensor | None,
    value: Tensor | None,
    key_lengths: Tensor | None,
    causal: bool,
    state: AttentionState | None,
    window: int | None,
) -> None:
    """New keys, or those that a state remembers."""
    if key is not None and value is not None:
        _check_new(query, key, value, causal, state)
        if key_lengths is not None and causal and window is not None:
            raise UsageError(f"a window of {window} counts positions; it cannot be combined with key_lengths")
        return
    if key is not None or value is not None:
        raise UsageError("key and value come together: give both, or neither with the state of an earlier call")
    if state is None or causal:
        raise UsageError("without key and value there must be the state of an earlier call, and causal=False")
    if key_lengths is not None:
        raise UsageError("key_lengths count new keys, but there are none; the state knows its own")


def _check_new(query: Tensor, key: Tensor, value: Tensor, causal: bool, state: AttentionState | None) -> None:
    if key.shape[1] != value.shape[1]:
        raise UsageError(f"there are {key.shape[1]} keys but {value.shape[1]} values")
    if causal and query.shape[1] != key.shape[1]:
        raise UsageError(f"causal attention needs a key for each query, not {key.shape[1]} for {query.shape[1]}")
    if state is not None and not causal:
        raise UsageError("a state of cross-attention holds the keys already; pass key=None and value=None with it")
