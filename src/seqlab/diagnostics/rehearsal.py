"""A step rehearsed on a small batch: which operations torch runs, of which sizes, and how much memory they hold.

Sizes grow linearly with the batch, so two small rehearsals say what every operation of a large step will be, and no
layer has to declare it: what torch is asked to do is watched from below (`TorchDispatchMode`), backward pass included.
"""

from __future__ import annotations

import itertools
import time
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from seqlab.core.eager import never_compiled


@dataclass(frozen=True)
class Operation:
    """One call: what sort of work it is, and how much.

    kind        sizes
    product     b, m, k, n            b products (m × k)·(k × n)
    attention   b, T, S, d            fused softmax attention of b heads (backward: kind attention_backward)
    lstm        T, B, D, H            torch's fused LSTM (backward: kind lstm_backward)
    squash      numbers               exp, tanh, gelu …: arithmetic decides
    norm        numbers               softmax and norms: some passes over the same rows
    draw        numbers               random numbers
    move        numbers               everything else: read and written, memory decides
    look        (none)                views: only the call itself
    """

    kind: str
    sizes: tuple[float, ...]
    name: str = ""


@dataclass(frozen=True)
class Rehearsed:
    """Of one step: its operations, and what was held after each beside weights and inputs."""

    operations: list[Operation]
    held: list[float]  # bytes, one for each operation
    result_bytes: float  # what is still there at the end: the gradients
    seconds: float  # that it took under watch

    @property
    def peak_bytes(self) -> float:
        return max(self.held, default=0.0)


def rehearse(step: Callable[[], Any], model: nn.Module, calls: int | None = None) -> Rehearsed:
    """Run `step` (forward and backward) once and watch it, or only the first `calls` times that it calls the model.

    Gradients are removed; no random stream is touched.
    """
    kept, begun = 0.0, time.perf_counter()
    with torch.random.fork_rng(devices=[]), _stopped_after(calls, model), _Watcher(model) as watcher:
        try:
            step()
            kept = watcher.now
        finally:  # also where the step was stopped, or failed
            model.zero_grad(set_to_none=True)
    return Rehearsed(watcher.operations, watcher.held, kept, time.perf_counter() - begun)


class _Enough(Exception):
    """Seen what was to be seen."""


@contextmanager
def _stopped_after(calls: int | None, model: nn.Module) -> Iterator[None]:
    left = itertools.count(-1 if calls is None else calls, -1)

    def count(*_: Any) -> None:
        if next(left) == 0:
            raise _Enough

    hook = model.register_forward_pre_hook(count)
    try:
        yield
    except _Enough:
        pass
    finally:
        hook.remove()


class _Watcher(TorchDispatchMode):  # type: ignore[no-untyped-call]
    def __init__(self, model: nn.Module) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.operations: list[Operation] = []
        self.held: list[float] = []
        self.now = 0
        known = [*model.parameters(), *model.buffers()]
        self._sizes = {tensor.untyped_storage()._cdata: 0 for tensor in known}
        self._ends: dict[int, weakref.finalize[..., Any]] = {}

    def __exit__(self, *error: Any) -> None:
        """What lives on, such as a batch, must not keep the record of every watch."""
        super().__exit__(*error)  # type: ignore[no-untyped-call]
        for end in self._ends.values():
            end.detach()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        given = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, Tensor)]
        made = [leaf for leaf in tree_leaves(out) if isinstance(leaf, Tensor)]
        for tensor in given:
            self._hold(tensor.untyped_storage(), counted=False)
        new = [self._hold(tensor.untyped_storage()) for tensor in made]
        self.operations.append(_operation(func, args, given, made, anew=any(new)))
        self.held.append(self.now)
        return out

    def _hold(self, storage: Any, *, counted: bool = True) -> bool:
        """Count memory that was not there before, until it is freed; what comes from elsewhere is only known."""
        key = storage._cdata
        if key in self._sizes:
            return False
        self._sizes[key] = storage.nbytes() if counted else 0
        self.now += self._sizes[key]
        self._ends[key] = weakref.finalize(storage, self._release, key)
        return True

    def _release(self, key: int) -> None:
        del self._ends[key]
        self.now -= self._sizes.pop(key)


PRODUCTS = {"mm", "addmm", "addmm_", "bmm", "baddbmm", "baddbmm_", "addbmm"}
SQUASHES = {"exp", "tanh", "sigmoid", "gelu", "silu", "erf", "log", "pow", "sqrt", "rsqrt", "sin", "cos", "polar"}
NORMS = {"native_layer_norm", "_softmax", "_log_softmax", "_safe_softmax", "_fused_rms_norm", "logsumexp", "var_mean"}
DRAWS = {"bernoulli", "native_dropout", "rand_like", "uniform", "normal"}
FUSED_ATTENTION, FUSED_LSTM = "_scaled_dot_product_flash_attention_for_cpu", "mkldnn_rnn_layer"


never_compiled(_Watcher.__torch_dispatch__)


def _operation(func: Any, args: Any, given: list[Tensor], made: list[Tensor], *, anew: bool) -> Operation:
    name = func._schema.name.partition("::")[2]
    stem = name.removesuffix("_")
    backward = stem.endswith(("_backward", "_backward_data"))
    base = stem.removesuffix("_data").removesuffix("_backward")
    if name in PRODUCTS:
        return Operation("product", _product_sizes(given, stem), name)
    if base == FUSED_ATTENTION:
        return Operation("attention" + "_backward" * backward, _attention_sizes(args, given, backward), name)
    if base == FUSED_LSTM:
        x, w_hh = given[0], given[2]
        return Operation("lstm" + "_backward" * backward, (*x.shape, w_hh.shape[1]), name)
    if base == "convolution":
        return Operation("product", _convolution_sizes(args, given, made, backward), name)
    numbers = float(sum(tensor.numel() for tensor in made))
    if base in SQUASHES:
        return Operation("squash", (numbers,), name)
    if base in NORMS:
        return Operation("norm", (numbers,), name)
    if base in DRAWS:
        return Operation("draw", (numbers,), name)
    if not anew and not name.endswith("_") and not func._schema.is_mutable:
        return Operation("look", (), name)  # a view of what was there
    moved = numbers + sum(tensor.numel() for tensor in given)
    if base == "embedding":
        moved = 2 * numbers  # the rows that are looked up, not the table
    return Operation("move", (float(moved),), name)


def _attention_sizes(args: Any, given: list[Tensor], backward: bool) -> tuple[float, ...]:
    """A causal kernel passes over about half of the keys."""
    q, k = (given[1], given[2]) if backward else (given[0], given[1])
    causal = any(value is True for value in args)
    return (q.shape[0] * q.shape[1], q.shape[2], k.shape[2] / (2 if causal else 1), q.shape[3])


def _convolution_sizes(args: Any, given: list[Tensor], made: list[Tensor], backward: bool) -> tuple[float, ...]:
    """One product for each group, at every place of the kernel; backward one for each gradient that is asked for."""
    x, weight, out = (given[1], given[2], given[0]) if backward else (given[0], given[1], made[0])
    transposed, groups = args[7 if backward else 6], args[9 if backward else 8]
    wide = x if transposed else out
    places, out_of_group = wide.numel() // wide.shape[1], weight.shape[0] // groups
    gradients = sum(args[10][:2]) if backward else 1
    return (gradients * groups, places, weight[0].numel(), out_of_group)


def _product_sizes(given: list[Tensor], stem: str) -> tuple[float, ...]:
    a, b = given[1:3] if stem in ("addmm", "baddbmm", "addbmm") else given[:2]
    batch = a.shape[0] if a.ndim == 3 else 1
    return (batch, a.shape[-2], a.shape[-1], b.shape[-1])


# --------------------------------------------------------------------------- from small to large


def scaled(small: Rehearsed, larger: Rehearsed, factor: float) -> Rehearsed | None:
    """What the step is at a size t, from rehearsals at s and l: every size is a line, x(t) = x(s) + f·(x(l) − x(s)).

    factor f = (t − s)/(l − s). None where the two did not run the same operations.
    """
    if [(op.name, op.kind) for op in small.operations] != [(op.name, op.kind) for op in larger.operations]:
        return None
    operations = [
        replace(a, sizes=tuple(x + factor * (y - x) for x, y in zip(a.sizes, b.sizes, strict=True)))
        for a, b in zip(small.operations, larger.operations, strict=True)
    ]
    held = [x + factor * (y - x) for x, y in zip(small.held, larger.held, strict=True)]
    seconds = small.seconds + factor * (larger.seconds - small.seconds)
    return Rehearsed(operations, held, small.result_bytes, seconds)


def counted_products(operations: Sequence[Operation]) -> float:
    """FLOPs of the products that were run, two for each multiply-add."""
    total = 0.0
    for op in operations:
        if op.kind == "product":
            b, m, k, n = op.sizes
            total += 2 * b * m * k * n
    return total
