"""What each layer costs: its terms, and the layers inside it with how they are used there.

Products are those of the mathematics. Softmax attention takes T·S scores for each head, whatever a fused kernel
computes again in its backward pass; linear attention takes its sums and their reading, whatever chunks a causal kernel
cuts.

What is kept for the backward pass is counted where it is read: a layer counts its input, and what it makes inside. Two
layers that read the same vectors count them once (`Use.own_input`). Masks of single bits and what is kept once for a
sequence are left out, and what torch's fused LSTM keeps is known to a tenth: the bytes are those that autograd keeps to
within 5 %, of LSTMs and linear attention 10 % (tests/diagnostics/test_cost_memory.py).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

from torch import nn

from seqlab.core.traits import LOOKED_UP, NORM_LAYERS
from seqlab.diagnostics.cost_attention import attention, keys_before, pointer
from seqlab.diagnostics.cost_terms import Factor, Inside, Term, Use, parameters, products, saved, saved_ids
from seqlab.layers import (
    AttentionPooling,
    AttentiveRNN,
    EncoderBlock,
    EncoderDecoderBlock,
    FeedForward,
    LastPooling,
    LearnedPosition,
    MaxPooling,
    MultiHeadAttention,
    OutputHead,
    RotaryPosition,
    SinusoidalPosition,
    TokenEmbedding,
    TransformerEncoder,
)
from seqlab.layers.blocks import Block
from seqlab.layers.pointer import Pointer
from seqlab.layers.pooling import Pooling
from seqlab.layers.recurrent import RNN, Recurrent

Terms = Iterator[Term | Inside]
TermsOf = Callable[[Any, Use], Terms]  # (layer, how it is used) -> what it costs


# --------------------------------------------------------------------------- torch's own


def linear(layer: nn.Linear, use: Use) -> Terms:
    """By its sizes: the weight itself may be another's, where the embedding serves as the output layer."""
    part = use.part or "projections"
    read, written = zip(use.sizes or ("d_in", "d_out"), (layer.in_features, layer.out_features), strict=True)
    yield from _matrix(layer, use, part, read, written)


def _matrix(layer: nn.Linear, use: Use, part: str, read: Factor, *written: Factor | int) -> Terms:
    yield products(part, *use.rows, read, *written, backward=_passes(layer, use))
    yield from kept_input(part, use, read)
    if layer.weight is not None:
        yield parameters(part, read, *written)
    if layer.bias is not None:
        yield parameters(part, *written)


def kept_input(part: str, use: Use, *sizes: Factor | int) -> Terms:
    if use.own_input:
        yield saved(part, use, *use.rows, *sizes)


def dropped(rate: float, part: str, use: Use, *sizes: Factor | int) -> Terms:
    """Dropout keeps a factor for every number."""
    if rate and use.kept:
        yield saved(part, use, *use.rows, *sizes)


def _passes(layer: nn.Module, use: Use) -> int:
    """Of the two gradients of a product those that are formed: by a weight that learns, by an input that does."""
    fixed = isinstance(layer.weight, nn.Parameter) and not layer.weight.requires_grad
    return (not fixed) + use.input_gradient


def convolution(layer: nn.Conv1d, use: Use) -> Terms:
    """At as many positions as there are: a causal convolution pads its beginning."""
    read = ("d_in", layer.in_channels // layer.groups)
    written, taps = ("d_out", layer.out_channels), ("taps", layer.kernel_size[0])
    part = use.part or "projections"
    yield products(part, *use.rows, read, written, taps, backward=_passes(layer, use))
    yield from kept_input(part, use, ("d_in", layer.in_channels))
    yield parameters(part, read, written, taps)
    if layer.bias is not None:
        yield parameters(part, written)


def of_vectors(layer: nn.Module, use: Use) -> Terms:
    """A norm: products of single numbers only, which are not counted. RMSNorm also keeps what it normalised."""
    width = ("d_model", next((weight.numel() for weight in layer.parameters(recurse=False)), 0))
    yield from (parameters("norms", width) for _ in layer.parameters(recurse=False))
    yield from kept_input("norms", use, width)
    yield saved("norms", use, *use.rows, width if isinstance(layer, nn.RMSNorm) else 2)


def looked_up(layer: nn.Module, use: Use) -> Terms:
    """A row is read, nothing is multiplied."""
    for weight in layer.parameters(recurse=False):
        yield parameters("embedding", *zip(("V_in", use.width_name), weight.shape, strict=True))
    yield saved_ids("embedding", *use.rows)
    if isinstance(layer, TokenEmbedding):
        yield from dropped(layer.dropout, "embedding", use, (use.width_name, layer.width))
    for name, _ in layer.named_children():
        yield Inside(name, use)


def learned_position(layer: LearnedPosition, use: Use) -> Terms:
    yield parameters("embedding", *zip(("positions", "d_model"), layer.table.shape, strict=True))


def nothing(layer: nn.Module, use: Use) -> Terms:
    return iter(())


def torch_recurrent(layer: nn.RNNBase, use: Use) -> Terms:
    gates = {"LSTM": 4, "GRU": 3}.get(layer.mode, 1)
    H, directions = ("H", layer.hidden_size), 2 if layer.bidirectional else 1
    carried = ("H_out", layer.proj_size) if layer.proj_size else H
    for k in range(layer.num_layers):
        read = ("D", layer.input_size) if k == 0 else ("D", int(carried[1]) * directions)
        yield from _kept_by_steps(use, gates, k, read, H, directions, layer.dropout)
        for _ in range(directions):
            yield from _cell(use, gates, read, carried, H, bias=layer.bias)
            if layer.proj_size:
                yield products("recurrent", *use.rows, H, carried)
                yield parameters("recurrent", H, carried)


def _cell(use: Use, gates: int, read: Factor, carried: Factor, H: Factor, *, bias: bool) -> Terms:
    """W x and U h, for every gate."""
    for vector in (read, carried):
        yield products("recurrent", *use.rows, *_times(gates), vector, H)
        yield parameters("recurrent", *_times(gates), vector, H)
        if bias:
            yield parameters("recurrent", *_times(gates), H)


def _kept_by_steps(use: Use, gates: int, k: int, read: Factor, H: Factor, directions: int, rate: float) -> Terms:
    """Of layer k: what it reads, unless that is what the one below keeps, and in each direction its inside.

    RNN: h. GRU: three gates, the candidate, h. LSTM: h and the workspace of torch's fused loop, 10·H + 6·max(D, H);
    called for one step at a time: four gates, h, c, tanh c.
    """
    fused = gates == 4 and not use.step_by_step
    inside = {1: 1, 3: 5, 4: 11 if fused else 7}[gates]
    if k == 0 or directions == 2 or rate:
        yield from kept_input("recurrent", use, read)
    if k:
        yield from dropped(rate, "recurrent", use, read)
    for direction in range(directions):
        yield saved("recurrent", use, *use.rows, *_times(inside), H)
        if fused:
            yield saved("recurrent", use, *use.rows, 6, max(read, H, key=lambda size: size[1]))
        elif direction:  # a copy that runs backwards
            yield saved("recurrent", use, *use.rows, read)


def _times(number: int) -> tuple[int, ...]:
    return () if number == 1 else (number,)


# --------------------------------------------------------------------------- recurrent


def recurrent(layer: Recurrent, use: Use) -> Terms:
    """The pre form's h is computed beside g; only that of the last layer is read, and differentiated."""
    H = (use.units, layer.hidden_size)
    for k in range(layer.num_layers):
        read = ("D", layer.input_size) if k == 0 else ("D", layer.hidden_size * layer.directions)
        yield from _kept_by_steps(use, layer.gates, k, read, H, layer.directions, layer.dropout)
        for _ in range(layer.directions):
            yield from _cell(use, layer.gates, read, H, H, bias=layer.bias)
            if isinstance(layer, RNN) and layer.form == "pre":
                backward = 2 if k == layer.num_layers - 1 else 0
                yield products("recurrent", *use.rows, read, H, backward=backward)
                yield products("recurrent", *use.rows, H, H, backward=backward)


def attentive(layer: AttentiveRNN, use: Use) -> Terms:
    """A position looks at those before it, not at itself: (n−1)/2 on average.

    The additive score vᵀ tanh(W_1 q + W_2 k) multiplies every key by W_2 anew at every position.
    """
    D, H = ("D", layer.input_size), ("H", layer.hidden_size)
    yield products("recurrent", *use.rows, D, H)
    yield products("recurrent", *use.rows, H, H)
    for shape in ((D, H), (H, H), (H,)):
        yield parameters("recurrent", *shape)
    keys = keys_before(use, layer.window)
    yield from kept_input("recurrent", use, D)
    yield saved("recurrent", use, *use.rows, 3, H)  # the candidate, twice, and h
    yield saved("mixing", use, *use.rows, keys, H)  # the memory, anew at every position
    yield saved("scores", use, *use.rows, keys)
    yield products("scores", *use.rows, keys, H)
    yield products("mixing", *use.rows, keys, H)
    if layer.score == "additive":
        yield products("projections", *use.rows, H, H)
        yield products("projections", *use.rows, keys, H, H)
        yield saved("scores", use, *use.rows, keys, H)
        if layer.window is not None and use.windowed and use.length > layer.window:  # the memory, cut: a copy
            after = (f"({use.name}−{layer.window})", use.length - layer.window)
            yield saved("scores", use, ("B", use.batch), after, layer.window, H)
        yield parameters("projections", 2, H, H)
        yield parameters("scores", H)


# --------------------------------------------------------------------------- blocks


def block(layer: Block, use: Use) -> Terms:
    """Self-attention, causal in a decoder's block; cross-attention over the source; the feed-forward network.

    Set to recompute, it keeps what it reads and nothing else.
    """
    d = ("d_model", layer.attention.d_model)
    if layer.recompute:
        yield saved("projections", use, *use.rows, d)
    use = replace(use, kept=not layer.recompute)
    own = replace(use, causal=not isinstance(layer, EncoderBlock))
    yield Inside("norm_attention", own)
    yield Inside("attention", own)
    if isinstance(layer, EncoderDecoderBlock):
        yield Inside("norm_cross", own)
        yield Inside("cross", replace(use, causal=False, keys=use.source or use.length))
    yield Inside("norm_mlp", replace(own, own_input=layer.placement != "parallel"))
    yield Inside("mlp", own)
    for part in ("projections", "feed-forward", "projections")[: 3 if isinstance(layer, EncoderDecoderBlock) else 2]:
        yield from dropped(layer.dropout.p, part, own, d)


def feed_forward(layer: FeedForward, use: Use) -> Terms:
    inner: Any = layer[0]
    outer: Any = layer[2]
    d, hidden = ("d_model", inner.in_features), ("d_ff", outer.in_features)
    gated = inner.out_features // outer.in_features
    yield from _matrix(inner, use, "feed-forward", d, *_times(gated), hidden)
    yield from _matrix(outer, replace(use, own_input=True), "feed-forward", hidden, d)
    inside = 3 if gated == 2 else 0 if isinstance(layer[1], nn.ReLU) else 1  # relu is known from what it gave
    if inside:
        yield saved("feed-forward", use, *use.rows, *_times(inside), hidden)


def transformer_encoder(layer: TransformerEncoder, use: Use) -> Terms:
    yield Inside("blocks", replace(use, causal=False))
    if layer.norm is not None:
        yield Inside("norm", use)


def output_head(layer: OutputHead, use: Use) -> Terms:
    yield from _matrix(layer, use, "output", ("d_model", layer.in_features), ("V", layer.out_features))


def attention_pooling(layer: AttentionPooling, use: Use) -> Terms:
    """vᵀ tanh(W y_t + b), then a mean of the y_t."""
    d = (use.width_name, layer.project.in_features)
    yield Inside("project", replace(use, sizes=(use.width_name, use.width_name)))
    yield parameters("scores", d)
    yield saved("scores", use, *use.rows, d)
    yield products("scores", *use.rows, d)
    yield products("mixing", *use.rows, d)


def one_of_all(layer: Pooling, use: Use) -> Terms:
    """Picking one position, or the largest, keeps them all."""
    yield from kept_input("other", use, (use.width_name, use.width or 0))


TERMS: dict[type[nn.Module], TermsOf] = {
    nn.Linear: linear,
    nn.Conv1d: convolution,
    nn.RNNBase: torch_recurrent,
    **dict.fromkeys(LOOKED_UP, looked_up),
    **dict.fromkeys(NORM_LAYERS, of_vectors),
    Recurrent: recurrent,
    AttentiveRNN: attentive,
    MultiHeadAttention: attention,
    SinusoidalPosition: nothing,
    RotaryPosition: nothing,
    TokenEmbedding: looked_up,
    LearnedPosition: learned_position,
    OutputHead: output_head,
    FeedForward: feed_forward,
    Block: block,
    TransformerEncoder: transformer_encoder,
    Pooling: nothing,
    MaxPooling: one_of_all,
    LastPooling: one_of_all,
    AttentionPooling: attention_pooling,
    Pointer: pointer,
}
