"""What a model costs, counted on its shapes: parameters, and floating-point operations for each token.

One multiply-add is two operations. Only products are counted: what norms, gates and softmax add is small beside them.
"""

from __future__ import annotations

from typing import Any

from torch import nn

from seqlab.layers import AttentiveRNN, LearnedPosition, MultiHeadAttention

BACKWARD = 2  # the gradients by the inputs and by the weights: each as many products as the forward pass


def count_parameters(model: Any) -> int:
    return sum(weight.numel() for weight in model.parameters())


def forward_flops(model: Any, context: int) -> float:
    """Operations of the forward pass for one token, in training on windows of `context` tokens.

        2 · (entries of the matrices that a token is multiplied with)  +  what attending adds

    Looking up an embedding costs nothing; where it is also the output layer, it is multiplied with as such.
    """
    looked_up = {id(m.weight) for m in model.modules() if isinstance(m, nn.Embedding)}
    looked_up |= {id(m.table) for m in model.modules() if isinstance(m, LearnedPosition)}
    multiplied: int = sum(w.numel() for w in model.parameters() if w.ndim >= 2 and id(w) not in looked_up)
    if getattr(model, "tied", False):
        multiplied += model.vocab_size * model.embedding.embedding_dim
    return 2.0 * multiplied + sum(attention_flops(module, context) for module in model.modules())


def training_flops(model: Any, context: int) -> float:
    """Operations of forward and backward pass for one token."""
    return (1 + BACKWARD) * forward_flops(model, context)


def attention_flops(module: nn.Module, context: int) -> float:
    """Scores and mixing for one token, on average over a window: 4 · width · keys seen.

    Softmax attention sees (C+1)/2 keys, an attentive recurrent layer (C−1)/2: it does not see itself; its additive
    score multiplies every key by W_2 anew. Linear attention adds to its sums and reads them, 2·F·d each for every
    head, F features of d numbers; random features are products themselves, of queries and of keys.
    """
    if isinstance(module, AttentiveRNN):
        keys, width = (context - 1) / 2, module.hidden_size
        if module.score == "additive":  # vᵀ tanh(W_1 q + W_2 k), and mixing; one W_2 is among the matrices
            return 2.0 * width * width * (keys - 1) + 4 * width * keys
        return 4 * width * keys
    if not isinstance(module, MultiHeadAttention):
        return 0.0
    if module.kind == "softmax":
        return 4 * module.d_model * (context + 1) / 2
    head_width = module.d_model // module.n_heads
    features = head_width if module.kind == "separable" else len(module.directions)
    drawn = 4 * features * module.d_model if module.kind == "random_features" else 0
    return float(4 * features * module.d_model + drawn)
