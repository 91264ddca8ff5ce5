"""What attention costs: projections, scores, mixing, and what is kept of them for the backward pass."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction

from seqlab.diagnostics.cost_terms import (
    Factor,
    Inside,
    Term,
    Use,
    parameters,
    products,
    saved,
    saved_flags,
    textbook,
)
from seqlab.layers import MultiHeadAttention
from seqlab.layers.pointer import REACH, Pointer
from seqlab.ops.attention import ROWS
from seqlab.ops.linear_attention import CHUNK, SEGMENT


def keys_before(use: Use, window: int | None) -> Factor:
    """Mean number of positions before one, itself not counted, at most `window` of them."""
    n = use.length
    if window is None or not use.windowed or n <= window + 1:
        return (f"({use.name}−1)/2", Fraction(n - 1, 2))
    return (f"({window}−{window * (window + 1) // 2}/{use.name})", window - Fraction(window * (window + 1), 2 * n))


def keys_up_to(use: Use, window: int | None) -> Factor:
    """Mean number of positions up to one, itself included, at most `window` of them."""
    n = use.length
    if window is None or not use.windowed or n <= window:
        return (f"({use.name}+1)/2", Fraction(n + 1, 2))
    return (f"({window}−{window * (window - 1) // 2}/{use.name})", window - Fraction(window * (window - 1), 2 * n))


# --------------------------------------------------------------------------- products


def attention(layer: MultiHeadAttention, use: Use) -> Iterator[Term | Inside]:
    """W_q at every position, W_k and W_v at every key, W_o; scores and mixing of all keys that are seen."""
    kept = _kept_by_softmax if layer.kind == "softmax" else _kept_by_sums
    for terms in (_projections, _core, _textbook, kept, _turns):
        yield from (replace(term, role=_role(layer, use)) for term in terms(layer, use))


def _projections(layer: MultiHeadAttention, use: Use) -> Iterator[Term]:
    d = ("d_model", layer.d_model)
    queries, shared = _heads(layer, layer.n_heads, "heads"), _heads(layer, layer.n_kv_heads, "kv_heads")
    same = layer.n_heads == layer.n_kv_heads
    if same and use.keys is None:
        yield products("projections", *use.rows, d, 3, *queries)
    else:
        yield products("projections", *use.rows, d, *queries)
        yield products("projections", *use.key_rows, d, 2, *(queries if same else shared))
    yield products("projections", *use.rows, *queries, d)
    rows: list[tuple[Factor | int, ...]] = [(3, *queries)] if same else [queries, (2, *shared)]
    for written in rows:
        yield parameters("projections", d, *written)
        if layer.project_in.bias is not None:
            yield parameters("projections", *written)
    yield parameters("projections", *queries, d)
    if layer.project_out.bias is not None:
        yield parameters("projections", d)


def _heads(layer: MultiHeadAttention, heads: int, name: str) -> tuple[Factor, ...]:
    """The numbers of some heads: d_model, unless they are of another size."""
    if heads * layer.head_width == layer.d_model:
        return (("d_model", layer.d_model),)
    return ((name, heads), ("head_width", layer.head_width))


def _core(layer: MultiHeadAttention, use: Use) -> Iterator[Term]:
    """softmax: q kᵀ and weights·v. Linear kinds: the sums over the keys, kᵀv, and reading them; random features are
    products themselves, with directions that do not learn."""
    width = _heads(layer, layer.n_heads, "heads")
    if layer.kind == "softmax":
        seen = _seen(layer, use)
        yield products("scores", *use.rows, seen, *width)
        yield products("mixing", *use.rows, seen, *width)
        return
    features = _features(layer)
    if layer.kind == "random_features":
        for rows in (use.rows, use.key_rows):
            yield products("scores", *rows, features, *width, backward=1)
    for rows in (use.key_rows, use.rows):
        yield products("mixing", *rows, features, *width)


def _seen(layer: MultiHeadAttention, use: Use) -> Factor:
    """Keys that a query sees on average."""
    if use.keys is not None:
        return (use.keys_name, use.keys)
    return keys_up_to(use, layer.window) if use.causal else (use.name, use.length)


def _features(layer: MultiHeadAttention) -> Factor:
    return ("head_width", layer.head_width) if layer.kind == "separable" else ("m", len(layer.directions))


# --------------------------------------------------------------------------- beside the textbook


def _role(layer: MultiHeadAttention, use: Use) -> str:
    if layer.kind != "softmax":
        return "separable attention" if layer.kind == "separable" else "random-feature attention"
    if use.keys is not None:
        return "cross-attention"
    return "decoder self-attention" if use.causal else "encoder self-attention"


def _textbook(layer: MultiHeadAttention, use: Use) -> Iterator[Term]:
    """Multiply-adds of one sequence: n²k + nk²; across two texts MNk + (M+N)k²; separable nd²; random features nmd."""
    n, k = use.time, ("d_model", layer.d_model)
    if layer.kind == "separable":
        yield textbook(*n, k, k)
    elif layer.kind == "random_features":
        yield textbook(*n, _features(layer), k)
    elif use.keys is None:
        yield textbook(*n, *n, k)
        yield textbook(*n, k, k)
    else:
        yield textbook(*n, (use.keys_name, use.keys), k)
        yield textbook((f"({use.name}+{use.keys_name})", use.length + use.keys), k, k)


# --------------------------------------------------------------------------- what is kept


def _turns(layer: MultiHeadAttention, use: Use) -> Iterator[Term]:
    """e^{iθ} of every position, complex, one for all layers."""
    turned = layer.rotary
    if turned is None:
        return
    lengths = {use.length: use.name} | ({} if use.keys is None else {use.keys: use.keys_name})
    for length, name in lengths.items():
        term = saved("projections", use, (name, length), ("turned", turned.turned))
        yield replace(term, once=f"turns {length} {turned.turned} {turned.base}")


def _kept_by_softmax(layer: MultiHeadAttention, use: Use) -> Iterator[Term]:
    """What is projected, queries, keys and values as the kernel reads them, what it mixes, ln Σ e^score of each query.

    The three are views of one product where all read the same vectors; rotary positions copy queries and keys.
    """
    d, heads = ("d_model", layer.d_model), _heads(layer, layer.n_heads, "heads")
    if layer.dropout and use.length <= ROWS:
        yield from _kept_with_weights(layer, use)
        return
    if use.keys is not None or use.masked:
        yield from _kept_apart(layer, use)
    else:
        if use.own_input:
            yield saved("projections", use, *use.rows, d)
        yield from _kept_together(layer, use)
    yield saved("mixing", use, *use.rows, *heads)
    yield saved("scores", use, *use.rows, ("heads", layer.n_heads))
    if use.causal and layer.window is not None and use.windowed and use.length > layer.window:
        blocks = range(0, use.length, ROWS)
        sizes = [(min(first + ROWS, use.length) - first) * min(first + ROWS, use.length) for first in blocks]
        yield saved("scores", use, ("masks", sum(sizes)))
        if len(blocks) > 1:
            yield saved("mixing", use, *use.rows, *heads)


def _read(use: Use) -> tuple[int, ...]:
    """What is projected; with lengths also what it was before padding was cleared, for queries and for keys."""
    return (3,) if use.masked and use.keys is None else ()


def _kept_with_weights(layer: MultiHeadAttention, use: Use) -> Iterator[Term]:
    """Dropout acts on weights, which are formed: before it, after it, and its factors."""
    d, own = ("d_model", layer.d_model), _heads(layer, layer.n_heads, "heads")
    keys = use.time if use.keys is None else ((use.keys_name, use.keys),)
    yield saved("projections", use, *use.rows, *_read(use), d)
    if use.keys is not None:
        yield saved("projections", use, *use.key_rows, d)
    yield saved("projections", use, *use.rows, *own)
    yield saved("projections", use, *use.key_rows, 2, *own)
    yield saved("scores", use, *use.rows, 3, ("heads", layer.n_heads), *keys)
    yield saved("mixing", use, *use.rows, *own)


def _kept_together(layer: MultiHeadAttention, use: Use) -> Iterator[Term]:
    """Heads that share keys: causal ones have them repeated, others are rows of one head."""
    heads, kv, width = ("heads", layer.n_heads), ("kv_heads", layer.n_kv_heads), ("head_width", layer.head_width)
    own, grouped = _heads(layer, layer.n_heads, "heads"), layer.n_heads != layer.n_kv_heads
    turned, repeated = layer.rotary is not None, grouped and use.causal
    if not grouped:
        yield saved("projections", use, *use.rows, 3, *own)
    elif not (turned and repeated):
        yield saved("projections", use, *use.rows, heads, width)
        yield saved("projections", use, *use.rows, 2, kv, width)
    if turned and not grouped:
        yield saved("projections", use, *use.rows, 2, *own)
    elif turned:
        yield saved("projections", use, *use.rows, heads, width)
        yield saved("projections", use, *use.rows, kv, width)
    if grouped:  # keys and values, or queries and the output
        yield saved("projections", use, *use.rows, 2, *own)


def _kept_apart(layer: MultiHeadAttention, use: Use) -> Iterator[Term]:
    """Queries, keys and values of their own. With lengths, keys are read with zeros in the padding, and so are queries
    of the same text where they are not finite."""
    d, keys = ("d_model", layer.d_model), use.key_rows
    own, shared = _heads(layer, layer.n_heads, "heads"), _heads(layer, layer.n_kv_heads, "kv_heads")
    if use.own_input or use.keys is None:
        yield saved("projections", use, *use.rows, d)
    yield saved("projections", use, *keys, d)
    yield saved("projections", use, *use.rows, *own)
    yield saved("projections", use, *keys, 2, *shared)
    if use.masked:
        yield saved_flags("projections", *keys)
        yield saved("scores", use, *keys)
    if use.masked and use.keys is None:
        yield saved("projections", use, *use.rows, d)
        yield saved_flags("projections", *use.rows, d)


def _kept_by_sums(layer: MultiHeadAttention, use: Use) -> Iterator[Term]:
    """Features of queries and keys, values with a column of ones, sums; causally also c × c weights in every chunk."""
    d, out = ("d_model", layer.d_model), _heads(layer, layer.n_heads, "heads")
    yield saved("projections", use, *use.rows, *_read(use), d)
    if use.keys is not None:
        yield saved("projections", use, *use.key_rows, d)
    yield saved("projections", use, *use.rows, *out)
    if layer.kind == "random_features":
        for rows in (use.rows, use.key_rows):
            yield saved("scores", use, *rows, *out)
        segments = -(-use.length // SEGMENT) + -(-int(use.key_rows[1][1]) // SEGMENT)
        yield saved("scores", use, segments, _features(layer), ("columns", layer.head_width + 1))
    yield from _kept_of_chunks(layer, use) if use.causal else _kept_of_all(layer, use)


def _kept_of_chunks(layer: MultiHeadAttention, use: Use) -> Iterator[Term]:
    each = (("B", use.batch), ("heads", layer.n_heads))
    F, column = _features(layer), ("columns", layer.head_width + 1)
    for first in range(0, use.length, SEGMENT):
        time = min(SEGMENT, use.length - first)
        c = min(CHUNK, time)
        chunks = -(-time // c)
        rows = (*each, ("chunks", chunks), ("chunk", c))
        yield saved("scores", use, *rows, ("chunk", c))
        yield saved("mixing", use, *each, ("chunks", chunks), F, column)
        yield saved("mixing", use, *each, ("chunks", chunks), 3 if chunks > 1 or first else 1, F)
        if layer.kind == "separable":
            yield saved("scores", use, *rows, 4 if time % c else 6, F)  # what fills no chunk is copied before
            yield saved("mixing", use, *rows, column)
            yield saved_flags("scores", *rows, F)
        else:
            yield saved("scores", use, *rows, 2, F)
            yield saved("mixing", use, *rows, 2, column)
            yield saved("mixing", use, *rows)
            yield saved_flags("mixing", *rows)


def _kept_of_all(layer: MultiHeadAttention, use: Use) -> Iterator[Term]:
    heads, F, width = ("heads", layer.n_heads), _features(layer), ("head_width", layer.head_width)
    each, column = (("B", use.batch), heads), ("columns", layer.head_width + 1)
    segments = -(-int(use.key_rows[1][1]) // SEGMENT)
    yield saved("mixing", use, *use.key_rows, heads, column)
    yield saved("mixing", use, *each, F, column)
    if segments > 1:
        yield saved("mixing", use, segments - 1, *each, F)
    yield saved("scores", use, *use.rows, heads, F)
    if layer.kind == "separable":
        yield saved("scores", use, *use.key_rows, heads, 2, F)
        yield saved("mixing", use, *each, F, width)
        yield saved("mixing", use, *each, F)
        yield saved_flags("mixing", *each, F)
    else:
        yield saved("scores", use, *use.key_rows, heads, F)
        yield saved("mixing", use, *use.rows, heads, column)
        yield saved("mixing", use, *use.rows, heads)
        yield saved_flags("mixing", *use.rows, heads)


# --------------------------------------------------------------------------- the pointer of a translator


def pointer(layer: Pointer, use: Use) -> Iterator[Term | Inside]:
    """Query and gate at every target position, keys at every source position, scores of all pairs.

    What was read is compared with what stands in the source by REACH × REACH weights, at one more column than there are
    source positions; the comparison itself learns nothing.
    """
    guided = replace(use, part="guide", sizes=("d_model", "d_model"))
    d, keys = ("d_model", layer.query.in_features), ("n_s", use.source or use.length)
    yield Inside("query", guided)
    yield Inside("key", guided.on_source())
    yield Inside("gate", replace(guided, sizes=("d_model", "1"), own_input=False))
    yield products("guide", *use.rows, keys, d)
    yield products("guide", *use.rows, ("(n_s+1)", int(keys[1]) + 1), REACH, REACH, backward=1)
    yield parameters("guide", REACH, REACH)
    yield parameters("guide")
    yield saved("guide", use, *use.rows, d)
    yield saved("guide", use, *use.on_source().rows, d)
    compared = (f"(n_t+{REACH - 1})", use.length + REACH - 1), (f"(n_s+{REACH})", int(keys[1]) + REACH)
    yield saved("guide", use, ("B", use.batch), *compared)
    yield saved("guide", use, *use.time, keys)
    yield saved("guide", use, *use.rows, keys)
    yield saved("guide", use, *use.rows, 8)
    yield saved_flags("guide", *use.rows, keys)
    yield saved_flags("guide", 2, *use.on_source().rows)
