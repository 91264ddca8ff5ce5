"""What layers show to those who listen (`core.taps`): one scheme for seqlab's layers and for torch's.

    recurrent       l0.hidden, l0_reverse.hidden, l1.hidden …, in the same way r, z, candidate of the GRU, i, f, o, c,
                    candidate of the LSTM, activation of the RNN's pre form          T steps (B, H)
    attentive RNN   hidden, candidate                                                T steps (B, H)
                    scores, weights                                                  T steps (B, L)
    attention       scores (before the mask), weights (after it, before dropout)     (B, N, T, S)
                    output (what attention adds)                                     (B, T, D)
    block           stream (the residual stream as the block reads it), hidden (as it leaves)   (B, T, D)
    feed-forward    output (what it adds)                                            (B, T, D)
    norm            input
    embedding       output
    pooling         weights of attention pooling                                     (B, T)
    pointer, and what a recurrent decoder attends with: weights                      (B, 1, T, S)
    bigram          hidden

Of torch.nn.GRU z is seqlab's, 1 − torch's: 1 overwrites. Values of torch's layers have the batch first, except
`output`, which is as the layer gives it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence

from seqlab.core.eager import without_numbers
from seqlab.core.errors import UsageError
from seqlab.core.taps import Call, Look, NotHere, Value, Values
from seqlab.layers.attention import MultiHeadAttention
from seqlab.layers.attentive import WATCHED, AttentiveRNN
from seqlab.layers.pooling import AttentionPooling
from seqlab.layers.recurrent import GRU, LSTM, RNN, Recurrent
from seqlab.ops import attention as softmax
from seqlab.ops.masks import length_mask

Wanted = Collection[str]
Names = Sequence[str] | Callable[[Any], Sequence[str]]
Replay = Callable[[Any, Call, Wanted], tuple[Any, Values]]
Steps = dict[str, list[Tensor]]

# --------------------------------------------------------------------------- whole modules


def _input(_module: nn.Module, call: Call, _wanted: Wanted) -> Values:
    return {"input": next(iter(call.arguments.values()))}


def _output(_module: nn.Module, call: Call, _wanted: Wanted) -> Values:
    return {"output": call.output}


def _block(block: Any, call: Call, _wanted: Wanted) -> Values:
    hidden = call.output[0] if isinstance(call.output, tuple) else call.output
    return {"stream": block.opened(call.arguments["x"], call.arguments["lengths"]), "hidden": hidden}


def _block_again(block: Any, call: Call, wanted: Wanted) -> tuple[Any, Values]:
    """On the path stands what the block was given, padding and all."""
    return call.output, {**_block(block, call, wanted), "stream": call.arguments["x"]}


def _pooling(pooling: AttentionPooling, call: Call, _wanted: Wanted) -> Values:
    """α (B, T)"""
    y, lengths = call.arguments["y"], call.arguments["lengths"]
    real = y.new_ones(y.shape[:2], dtype=torch.bool) if lengths is None else length_mask(lengths, y.shape[1])
    return {"weights": pooling.weights(y.masked_fill(~real[..., None], 0.0), real)}


def _pooling_again(pooling: AttentionPooling, call: Call, wanted: Wanted) -> tuple[Any, Values]:
    y, lengths = call.arguments["y"], call.arguments["lengths"]
    seen: Any = _pooling(pooling, call, wanted)
    if lengths is not None:
        y = y.masked_fill(~length_mask(lengths, y.shape[1])[..., None], 0.0)
    return torch.einsum("bt,btd->bd", seen["weights"], y), seen


def _pointer(_pointer: nn.Module, call: Call, _wanted: Wanted) -> Values:
    """One head.    (B, 1, T, S)"""
    return {"weights": call.output[1][:, None]}


def _bigram(model: Any, call: Call, _wanted: Wanted) -> Values:
    """σ(x W₁ + b₁) (B, T, H)"""
    return {"hidden": torch.sigmoid(model.hidden(model.embedding(call.arguments["ids"])))}


def _bigram_again(model: Any, call: Call, wanted: Wanted) -> tuple[Any, Values]:
    seen = _bigram(model, call, wanted)
    return (model.output(seen["hidden"]), None), seen


INPUT = Look(("input",), _input)
OUTPUT = Look(("output",), _output)
BLOCK = Look(("stream", "hidden"), _block, replay=_block_again)
POOLING = Look(("weights",), _pooling, replay=_pooling_again)
POINTER = Look(("weights",), _pointer)
BIGRAM = Look(("hidden",), _bigram, replay=_bigram_again)


# --------------------------------------------------------------------------- recurrent layers


def _replaying(names: Names, again: Replay) -> Look:
    """A look that computes an output together with what it shows, whether or not that output is used."""
    return Look(names, lambda *call: again(*call)[1], replay=again)


def _recurrent_again(layer: Any, call: Call, _wanted: Wanted) -> tuple[Any, Values]:
    given = call.arguments
    y, state, steps = layer.watch(given["x"], given["state"], given["lengths"])
    return (y, state), _or_empty(steps, given["x"], layer.hidden_size)


def _or_empty(steps: Mapping[str, list[Tensor]], x: Tensor, width: int) -> Values:
    """Without a single step there is no tensor that says how wide it would be."""
    return {name: values or x.new_zeros(len(x), 0, width) for name, values in steps.items()}


RECURRENT = _replaying(lambda layer: layer.watched_names(), _recurrent_again)


def _torch_recurrent_names(module: nn.RNNBase) -> list[str]:
    """None for a projection or for a cell of somebody's own: seqlab has no such layer."""
    if module.proj_size or _kind_of(module) is None:
        return []
    names: list[str] = _counterpart(module).watched_names()
    return names


def _torch_recurrent_again(module: nn.RNNBase, call: Call, wanted: Wanted) -> tuple[Any, Values]:
    x = call.arguments["input"]
    if isinstance(x, PackedSequence) or x.ndim != 3:
        given = "a packed sequence" if isinstance(x, PackedSequence) else "a sequence without a batch"
        return call.output, dict.fromkeys(wanted, NotHere(f"{given} cannot be looked into; feed a tensor (B, T, D)"))
    layer = _counterpart(module)
    x = x if module.batch_first else x.transpose(0, 1)
    y, state, steps = layer.watch(x, call.arguments["hx"])
    return (y if module.batch_first else y.transpose(0, 1), state), _or_empty(steps, x, layer.hidden_size)


def _kind_of(module: nn.RNNBase) -> type[Recurrent] | None:
    kinds: tuple[type[Recurrent], ...] = (RNN, GRU, LSTM)
    return next((kind for kind in kinds if isinstance(module, kind.torch_type)), None)


def _counterpart(module: nn.RNNBase) -> Any:
    """seqlab's layer with the weights of torch's, not copies of them: gradients find their way."""
    kind = _kind_of(module)
    assert kind is not None
    sizes = ("input_size", "hidden_size", "num_layers", "bias", "dropout", "bidirectional")
    options: dict[str, Any] = {name: getattr(module, name) for name in sizes} | kind._options_of(module)
    with without_numbers():  # no first weights are drawn or held
        layer = kind(**options, recurrent_init="uniform")
    for name, _ in list(layer._shapes()):
        delattr(layer, name)
        setattr(layer, name, _update_negated(getattr(module, name)) if kind is GRU else getattr(module, name))
    return layer.train(module.training)


def _update_negated(weight: Tensor) -> Tensor:
    """σ(−a) = 1 − σ(a): torch's GRU keeps where seqlab's overwrites."""
    reset, update, candidate = weight.chunk(3)
    return torch.cat([reset, -update, candidate])


TORCH_RECURRENT = _replaying(_torch_recurrent_names, _torch_recurrent_again)


def _attentive_again(layer: AttentiveRNN, call: Call, _wanted: Wanted) -> tuple[Any, Values]:
    given = call.arguments
    y, state, steps = layer.watch(given["x"], given["state"], given["lengths"])
    columns = state.memory.shape[1]
    sizes = dict.fromkeys(WATCHED, layer.hidden_size) | {"scores": columns, "weights": columns}
    return (y, state), {name: steps[name] or y.new_zeros(len(y), 0, sizes[name]) for name in WATCHED}


ATTENTIVE = _replaying(WATCHED, _attentive_again)

# --------------------------------------------------------------------------- attention

Parts = tuple[Tensor | None, Tensor, Tensor]  # scores and weights (B, N, T, S), output (B, T, D)


def _attention_names(attention: MultiHeadAttention) -> tuple[str, ...]:
    return ("scores", "weights", "output") if attention.kind == "softmax" else ("weights", "output")


def _attention(attention: MultiHeadAttention, call: Call, wanted: Wanted) -> Values:
    shown: dict[str, Value] = {"output": call.output[0]}
    if set(wanted) == {"output"}:
        return shown
    reason = _why_no_weights(attention, call)
    if reason is not None:
        return shown | {"weights": reason}
    return shown | _named(_parts_of(attention, call), wanted)


def _attention_again(attention: MultiHeadAttention, call: Call, wanted: Wanted) -> tuple[Any, Values]:
    if set(wanted) == {"output"} or _why_no_weights(attention, call) is not None:
        return call.output, _attention(attention, call, wanted)
    if attention.kind == "softmax":
        _refuse_dropout(attention)
    parts = _parts_of(attention, call)
    return (parts[2], *call.output[1:]), _named(parts, wanted) | {"output": parts[2]}


def _why_no_weights(attention: MultiHeadAttention, call: Call) -> NotHere | None:
    if attention.kind == "softmax" or call.arguments["state"] is None:
        return None
    return NotHere(f"attention '{attention.kind}' remembers sums, not keys: weights need the whole text in one call")


def _refuse_dropout(attention: Any) -> None:
    if attention.training and attention.dropout > 0:
        raise UsageError("attention drops weights at random in training, so it shows no path; call model.eval() first")


def _named(parts: Parts, wanted: Wanted) -> dict[str, Value]:
    named = zip(("scores", "weights"), parts[:2], strict=True)
    return {name: value for name, value in named if name in wanted and value is not None}


def _parts_of(attention: MultiHeadAttention, call: Call) -> Parts:
    given = call.arguments
    options = {name: given[name] for name in ("key_lengths", "causal", "state")}
    scores, weights, mixed = attention.look(given["query"], given["key"], given["value"], **options)
    return scores, weights, attention.project_out(mixed)


ATTENTION = Look(_attention_names, _attention, replay=_attention_again)

# --------------------------------------------------------------------------- torch's attention


def _torch_attention_names(module: nn.MultiheadAttention) -> tuple[str, ...]:
    """One that adds keys of its own shows its output only."""
    if module.bias_k is not None or module.add_zero_attn:
        return ("output",)
    return ("scores", "weights", "output")


def _torch_attention(module: nn.MultiheadAttention, call: Call, wanted: Wanted) -> Values:
    shown: dict[str, Value] = {"output": call.output[0]}
    if set(wanted) == {"output"}:
        return shown
    reason = _why_not_torch(call.arguments["query"])
    if reason is not None:
        return shown | dict.fromkeys(("scores", "weights"), reason)
    return shown | _named(_torch_parts(module, call.arguments), wanted)


def _torch_attention_again(module: nn.MultiheadAttention, call: Call, wanted: Wanted) -> tuple[Any, Values]:
    if set(wanted) == {"output"} or _why_not_torch(call.arguments["query"]) is not None:
        return call.output, _torch_attention(module, call, wanted)
    _refuse_dropout(module)
    parts = _torch_parts(module, call.arguments)
    return (parts[2], call.output[1]), _named(parts, wanted) | {"output": parts[2]}


def _why_not_torch(query: Tensor) -> NotHere | None:
    if query.is_nested:
        return NotHere("a nested tensor cannot be looked into; call torch.backends.mha.set_fastpath_enabled(False)")
    return NotHere("a sequence without a batch cannot be looked into; feed 3 dimensions") if query.ndim != 3 else None


def _torch_parts(module: nn.MultiheadAttention, given: Mapping[str, Any]) -> Parts:
    """softmax(q kᵀ/√d + masks) v; torch's masks say what is hidden, or what is added to the scores."""
    sources = [given[name] if module.batch_first else given[name].transpose(0, 1) for name in ("query", "key", "value")]
    separate = (module.q_proj_weight, module.k_proj_weight, module.v_proj_weight)
    matrices = module.in_proj_weight.chunk(3) if module._qkv_same_embed_dim else separate
    biases = (None,) * 3 if module.in_proj_bias is None else module.in_proj_bias.chunk(3)
    q, k, v = (
        F.linear(x, matrix, bias).view(*x.shape[:2], module.num_heads, -1).transpose(1, 2)
        for x, matrix, bias in zip(sources, matrices, biases, strict=True)
    )
    scores = masked = softmax.scaled_scores(q, k)
    if given["attn_mask"] is not None:
        mask = given["attn_mask"]
        masked = _masked(masked, mask if mask.ndim == 2 else mask.view_as(scores))
    if given["key_padding_mask"] is not None:
        masked = _masked(masked, given["key_padding_mask"][:, None, None])
    weights = torch.softmax(masked, -1)
    mixed = softmax.mix(weights, v).transpose(1, 2).flatten(2)
    added = F.linear(mixed, module.out_proj.weight, module.out_proj.bias)
    return scores, weights, added if module.batch_first else added.transpose(0, 1)


def _masked(scores: Tensor, mask: Tensor) -> Tensor:
    return scores.masked_fill(mask, -torch.inf) if mask.dtype == torch.bool else scores + mask


TORCH_ATTENTION = Look(_torch_attention_names, _torch_attention, replay=_torch_attention_again)
