"""What a model costs, counted on its shapes: parameters, and floating-point operations for each token.

One multiply-add is two operations. Only products are counted: what norms, gates and softmax add is small beside them.

A layer of your own is counted once its type says what it costs, everything inside it included:

    from seqlab.diagnostics.cost import FORWARD_FLOPS
    FORWARD_FLOPS[MyLayer] = lambda layer, context: 2.0 * layer.weight.numel()
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import nn

from seqlab.core.errors import UsageError
from seqlab.core.traits import LOOKED_UP, NORM_LAYERS
from seqlab.layers import AttentiveRNN, MultiHeadAttention, RotaryPosition, SinusoidalPosition
from seqlab.layers.recurrent import Recurrent

BACKWARD = 2  # the gradients by the inputs and by the weights: each as many products as the forward pass


def count_parameters(model: Any) -> int:
    return sum(weight.numel() for weight in model.parameters())


def training_flops(model: Any, context: int) -> float:
    """Operations of forward and backward pass for one token."""
    return (1 + BACKWARD) * forward_flops(model, context)


def forward_flops(model: nn.Module, context: int) -> float:
    """Operations of the forward pass for one token, in training on windows of `context` tokens.

        Σ over the layers  2 · (entries of the matrices that a token is multiplied with)  +  what attending adds

    A layer is counted once. One whose type is not known is refused: a silent zero would pass for a figure.
    """
    total = 0.0
    answered_for: set[int] = set()
    for path, module in model.named_modules():
        if id(module) in answered_for:
            continue
        count = _count_of(module)
        if count is not None:
            total += count(module, context)
            answered_for |= {id(part) for part in module.modules()}
        elif not _costs_nothing_itself(module):
            raise UsageError(_unknown(path, module))
    return total


def _count_of(module: nn.Module) -> FlopCount | None:
    return next((FORWARD_FLOPS[kind] for kind in type(module).__mro__ if kind in FORWARD_FLOPS), None)


def _costs_nothing_itself(module: nn.Module) -> bool:
    """A container, which costs what its parts cost, or one of torch's modules without parameters (dropout, …)."""
    if next(module.parameters(recurse=False), None) is not None:
        return False
    return next(module.children(), None) is not None or type(module).__module__.startswith("torch.nn.")


def _unknown(path: str, module: nn.Module) -> str:
    kind = type(module)
    place = f"layer '{path}'" if path else "the model"
    return (
        f"what a token costs in {place} ({kind.__module__}.{kind.__qualname__}) is not known; register it: "
        f"seqlab.diagnostics.cost.FORWARD_FLOPS[{kind.__name__}] = lambda module, context: FLOPs of one token"
    )


# --------------------------------------------------------------------------- the layers


def _nothing(module: nn.Module, context: int) -> float:
    return 0.0


def _linear(layer: nn.Linear, context: int) -> float:
    """By its sizes: the weight itself may be another's, where the embedding serves as the output layer."""
    return 2.0 * layer.in_features * layer.out_features


def _every_matrix(layer: nn.Module, context: int) -> float:
    """A token meets every entry of every matrix once."""
    return 2.0 * sum(weight.numel() for weight in layer.parameters(recurse=False) if weight.ndim >= 2)


def _attentive(layer: AttentiveRNN, context: int) -> float:
    """Scores and mixing take 4 · width · keys seen; that is (C−1)/2 on average, since a position does not see itself.

    The additive score vᵀ tanh(W_1 q + W_2 k) multiplies every key by W_2 anew; one W_2 is among the matrices.
    """
    keys, width = (context - 1) / 2, layer.hidden_size
    again = 2.0 * width * width * (keys - 1) if layer.score == "additive" else 0.0
    return _every_matrix(layer, context) + 4 * width * keys + again


def _attention(layer: MultiHeadAttention, context: int) -> float:
    """The projections, and scores and mixing of (C+1)/2 keys on average: 4 · width · keys.

    Linear attention adds to its sums and reads them instead, 2·F·d each for every head, F features of d numbers;
    random features are products themselves, of queries and of keys.
    """
    projections = _linear(layer.project_in, context) + _linear(layer.project_out, context)
    width = layer.n_heads * layer.head_width
    if layer.kind == "softmax":
        return projections + 4 * width * (context + 1) / 2
    features = layer.head_width if layer.kind == "separable" else len(layer.directions)
    drawn = 4 * features * width if layer.kind == "random_features" else 0
    return projections + 4 * features * width + drawn


FlopCount = Callable[[Any, int], float]  # (module, context) -> operations of its forward pass for one token

FORWARD_FLOPS: dict[type[nn.Module], FlopCount] = {
    nn.Linear: _linear,
    nn.Conv1d: _every_matrix,
    nn.RNNBase: _every_matrix,
    Recurrent: _every_matrix,
    AttentiveRNN: _attentive,
    MultiHeadAttention: _attention,
    SinusoidalPosition: _nothing,
    RotaryPosition: _nothing,
    **dict.fromkeys((*LOOKED_UP, *NORM_LAYERS), _nothing),
}
