"""Memory for time: a block forgets what it computed on its way, and computes it again when the gradient comes by.

A stack of L blocks then holds the inputs of L and the inside of one, not the inside of L. The second time dropout
draws what it drew the first time, so that the gradient is the same in every bit.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from seqlab.core.errors import UsageError
from seqlab.layers.blocks import Block


def called(block: Any, *arguments: Any, **options: Any) -> Any:
    """What the block gives; what is inside it is kept for the gradient unless it is set to `recompute`.

    A block that somebody listens to (a hook stands in it) is called once, so that they hear each value once.
    """
    if not (block.recompute and block.training and torch.is_grad_enabled()) or _is_heard(block):
        return block(*arguments, **options)
    return checkpoint(block, *arguments, use_reentrant=False, preserve_rng_state=True, **options)


def recompute_blocks(model: nn.Module, kind: str) -> None:
    """Let every block of a model compute its inside again; `kind` names the model to a person."""
    blocks = [module for module in model.modules() if isinstance(module, Block)]
    if not blocks:
        raise UsageError(f"--recompute is for Transformers: model '{kind}' has no blocks; leave it out")
    for block in blocks:
        block.recompute = True


def _is_heard(block: nn.Module) -> bool:
    return any(module._forward_hooks or module._forward_pre_hooks for module in block.modules())
