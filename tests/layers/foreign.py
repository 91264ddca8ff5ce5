"""Weights of other libraries' modules under seqlab's names.

Each function only moves, joins and transposes tensors, so it converts weights and their gradients alike.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import torch
from torch import Tensor

Weights = dict[str, Tensor]


def parts(weights: Mapping[str, Tensor], prefix: str) -> Weights:
    """What stands under a prefix, without it."""
    return {name.removeprefix(prefix): value for name, value in weights.items() if name.startswith(prefix)}


def moved(weights: Mapping[str, Tensor], old: str, new: str) -> Weights:
    return {f"{new}.{kind}": weights[f"{old}.{kind}"] for kind in ("weight", "bias") if f"{old}.{kind}" in weights}


def stacked(weights: Mapping[str, Tensor], old: list[str], new: str) -> Weights:
    """Several matrices one below the other, as one."""
    kinds = [kind for kind in ("weight", "bias") if f"{old[0]}.{kind}" in weights]
    return {f"{new}.{kind}": torch.cat([weights[f"{name}.{kind}"] for name in old]) for kind in kinds}


def layers_of(weights: Mapping[str, Tensor], prefix: str) -> Iterator[tuple[int, Weights]]:
    number = 0
    while found := parts(weights, f"{prefix}{number}."):
        yield number, found
        number += 1


def under(prefix: str, weights: Weights) -> Weights:
    return {f"{prefix}{name}": value for name, value in weights.items()}


def with_begin_row(table: Tensor) -> Tensor:
    """seqlab's language models have one row more, for the begin id."""
    return torch.cat([table, table.new_zeros(1, table.shape[1])])


def gpt2(weights: Weights) -> Weights:
    found = {
        "embedding.weight": with_begin_row(weights["transformer.wte.weight"]),
        "embedding.position.table": weights["transformer.wpe.weight"],
        **moved(weights, "transformer.ln_f", "norm"),
    }
    for k, layer in layers_of(weights, "transformer.h."):
        turned = {name: value.T if value.ndim == 2 else value for name, value in layer.items()}  # Conv1D
        found |= under(
            f"blocks.{k}.",
            moved(turned, "ln_1", "norm_attention")
            | moved(turned, "ln_2", "norm_mlp")
            | moved(turned, "attn.c_attn", "attention.project_in")
            | moved(turned, "attn.c_proj", "attention.project_out")
            | moved(turned, "mlp.c_fc", "mlp.0")
            | moved(turned, "mlp.c_proj", "mlp.2"),
        )
    return found


def llama(weights: Weights) -> Weights:
    found = {
        "embedding.weight": with_begin_row(weights["model.embed_tokens.weight"]),
        **moved(weights, "model.norm", "norm"),
        **moved(weights, "lm_head", "output"),
    }
    for k, layer in layers_of(weights, "model.layers."):
        found |= under(
            f"blocks.{k}.",
            moved(layer, "input_layernorm", "norm_attention")
            | moved(layer, "post_attention_layernorm", "norm_mlp")
            | stacked(layer, [f"self_attn.{x}_proj" for x in "qkv"], "attention.project_in")
            | moved(layer, "self_attn.o_proj", "attention.project_out")
            | stacked(layer, ["mlp.gate_proj", "mlp.up_proj"], "mlp.0")
            | moved(layer, "mlp.down_proj", "mlp.2"),
        )
    return found


def neox(weights: Weights, heads: int) -> Weights:
    found = {
        "embedding.weight": with_begin_row(weights["gpt_neox.embed_in.weight"]),
        **moved(weights, "gpt_neox.final_layer_norm", "norm"),
        **moved(weights, "lm_head", "output"),
    }
    for k, layer in layers_of(weights, "gpt_neox.layers."):
        together = {  # head after head, q, k and v of each
            name: value.view(heads, 3, -1, *value.shape[1:]).transpose(0, 1).reshape(value.shape)
            for name, value in layer.items()
            if "query_key_value" in name
        }
        found |= under(
            f"blocks.{k}.",
            moved(layer, "input_layernorm", "norm_attention")
            | moved(layer, "post_attention_layernorm", "norm_mlp")
            | moved(together, "attention.query_key_value", "attention.project_in")
            | moved(layer, "attention.dense", "attention.project_out")
            | moved(layer, "mlp.dense_h_to_4h", "mlp.0")
            | moved(layer, "mlp.dense_4h_to_h", "mlp.2"),
        )
    return found


def gptj(weights: Weights) -> Weights:
    """It has one norm for attention and feed-forward network; here both have a copy."""
    found = {
        "embedding.weight": with_begin_row(weights["transformer.wte.weight"]),
        **moved(weights, "transformer.ln_f", "norm"),
        **moved(weights, "lm_head", "output"),
    }
    for k, layer in layers_of(weights, "transformer.h."):
        found |= under(
            f"blocks.{k}.",
            moved(layer, "ln_1", "norm_attention")
            | moved(layer, "ln_1", "norm_mlp")
            | stacked(layer, [f"attn.{x}_proj" for x in "qkv"], "attention.project_in")
            | moved(layer, "attn.out_proj", "attention.project_out")
            | moved(layer, "mlp.fc_in", "mlp.0")
            | moved(layer, "mlp.fc_out", "mlp.2"),
        )
    return found


def bert(weights: Weights) -> Weights:
    found = {
        "embedding.weight": weights["embeddings.word_embeddings.weight"],
        "embedding.types": weights["embeddings.token_type_embeddings.weight"],
        "embedding.position.table": weights["embeddings.position_embeddings.weight"],
        **moved(weights, "embeddings.LayerNorm", "embedding.norm"),
    }
    for k, layer in layers_of(weights, "encoder.layer."):
        separate = [f"attention.self.{x}" for x in ("query", "key", "value")]
        found |= under(
            f"encoder.blocks.{k}.",
            stacked(layer, separate, "attention.project_in")
            | moved(layer, "attention.output.dense", "attention.project_out")
            | moved(layer, "attention.output.LayerNorm", "norm_attention")
            | moved(layer, "intermediate.dense", "mlp.0")
            | moved(layer, "output.dense", "mlp.2")
            | moved(layer, "output.LayerNorm", "norm_mlp"),
        )
    return found


def marian(weights: Weights) -> Weights:
    found = {"embedding.weight": weights["model.shared.weight"]}
    for side in ("encoder", "decoder"):
        for k, layer in layers_of(weights, f"model.{side}.layers."):
            block = (
                stacked(layer, [f"self_attn.{x}_proj" for x in "qkv"], "attention.project_in")
                | moved(layer, "self_attn.out_proj", "attention.project_out")
                | moved(layer, "self_attn_layer_norm", "norm_attention")
                | moved(layer, "fc1", "mlp.0")
                | moved(layer, "fc2", "mlp.2")
                | moved(layer, "final_layer_norm", "norm_mlp")
            )
            if side == "decoder":
                block |= (
                    stacked(layer, [f"encoder_attn.{x}_proj" for x in "qkv"], "cross.project_in")
                    | moved(layer, "encoder_attn.out_proj", "cross.project_out")
                    | moved(layer, "encoder_attn_layer_norm", "norm_cross")
                )
            found |= under("encoder.blocks." if side == "encoder" else "decoder.", under(f"{k}.", block))
    return found
