"""Nothing here is compiled, so torch's compiler is not loaded, which would take longer than many a command.

Some functions of torch are marked as not to be compiled; the compiler is asked to mark them, and so loaded, when each
is called for the first time. Here they are marked as what they are instead. Where somebody has loaded the compiler
already, it marks them itself. (torch's checkpointing, which --recompute uses, asks for its settings and loads it.)
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

MARK = "__dynamo_disable"  # where torch looks for the function that it would get from the compiler
DRAWS = ("normal_", "uniform_", "random_", "bernoulli_", "exponential_")  # of a tensor, in place
COMPILERS = ("torch._dynamo", "torch._inductor")


def never_compiled(*marked: Callable[..., Any]) -> None:
    """Have these functions, which torch has wrapped, call what they wrap."""
    for function in marked:
        plain = getattr(function, "__wrapped__", None)
        if plain is not None and getattr(plain, MARK, None) is None and not compiler_is_loaded():
            setattr(plain, MARK, plain)


def compiler_is_loaded() -> bool:
    return any(name in sys.modules for name in COMPILERS)


def use_deterministic_algorithms(mode: bool) -> None:
    """torch's switch of this name loads the compiler to tell it too."""
    if compiler_is_loaded():
        torch.use_deterministic_algorithms(mode)
    else:
        torch._C._set_deterministic_algorithms(mode, warn_only=False)


class _Undrawn(TorchFunctionMode):
    """What would fill a tensor without numbers is left out: torch has no kernel for it but by its compiler."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        filled = args[0] if args else kwargs.get("tensor")
        starts = getattr(func, "__module__", None) == torch.nn.init.__name__ or getattr(func, "__name__", "") in DRAWS
        if starts and isinstance(filled, torch.Tensor) and filled.is_meta:
            return filled
        return func(*args, **kwargs)


@contextlib.contextmanager
def without_numbers() -> Iterator[None]:
    """Modules made inside have shapes and no numbers (torch's device "meta"): no memory, no draws, no time."""
    with torch.random.fork_rng(devices=[]), torch.device("meta"), _Undrawn():
        yield
