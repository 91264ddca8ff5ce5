"""What a call does and holds, counted while it runs on shapes without numbers (torch's device "meta")."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from seqlab.diagnostics.rehearsal import rehearse

BYTES = 4  # of a number


def shape(*sizes: int) -> Tensor:
    return torch.empty(*sizes, device="meta")


def outline(build: Callable[[], Any]) -> Any:
    """The module that `build` makes, without numbers and ready to be run."""
    with torch.random.fork_rng(devices=[]), torch.device("meta"):
        return build().eval()


def multiply_adds(run: Callable[[], Any]) -> dict[str, int]:
    """Of every product that torch's own counter sees, by torch's name for it.

    bmm: products of queries, keys, weights and values; mm and addmm: products with a matrix of weights. Attention runs
    by its formula, since the counter gives nothing for torch's fused kernel on a CPU.
    """
    with torch.no_grad(), sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as counter:
        run()
    counted: dict[Any, int] = counter.get_flop_counts().get("Global", {})
    return {str(name).removeprefix("aten."): flops // 2 for name, flops in counted.items()}


def total(counted: dict[str, int]) -> int:
    return sum(counted.values())


def most_held(run: Callable[[], Any]) -> int:
    """How many numbers are alive at once, beside what was there before; what `run` gives back stays."""
    with torch.no_grad():
        return round(rehearse(run, nn.Module()).peak_bytes / BYTES)
