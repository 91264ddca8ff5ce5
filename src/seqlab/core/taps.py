"""Taps: what happens inside a model, seen under stable names, without a line in the model itself.

    with taps(model, "*.weights", "recurrent.l0.z") as seen:
        model(ids)
    seen["blocks.2.attention.weights"]        # (B, N, T, S)

A name is ``<path of the module>.<what it shows>``; `tap_names` lists those of a model. While somebody listens, torch's
hooks stand on exactly the modules that are asked for; before and after there are none, so that nothing is computed,
kept or slowed. What a module shows is computed beside it, from its arguments and its output, by the look that is
registered for its type. A layer of your own is seen once its type says what it shows:

    from seqlab.core.taps import LOOKS, Look
    LOOKS[MyLayer] = Look(("gate",), lambda layer, call, wanted: {"gate": layer.gate(call.arguments["x"])})
"""

from __future__ import annotations

import contextlib
import difflib
import importlib
import inspect
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

import torch
from torch import Tensor, nn

from seqlab.core.errors import UsageError, nearest
from seqlab.core.traits import NORM_LAYERS


class NotSeenError(UsageError, KeyError):
    """A name that nobody asked for, or one that no forward pass has reached."""

    def __str__(self) -> str:  # KeyError would put quotes around the message
        return str(self.args[0])


class NotHere(str):
    """Why a value cannot be shown in one call. The call goes on; who reads the value is told."""


@dataclass(frozen=True)
class Call:
    """One call of a module: what `forward` was given, by name and with its defaults, and what it returned."""

    arguments: Mapping[str, Any]
    output: Any


Value = Tensor | list[Tensor] | NotHere  # a list has one tensor (B, H) for each time step
Values = Mapping[str, Value]


@dataclass(frozen=True)
class Look:
    """What a type of module can show.

    names    of what it shows, perhaps depending on the module
    look     (module, call, wanted names) -> their values. It may draw: it sees the random numbers that the module saw,
             and the global stream stays where the module left it. Modules that it calls are not heard.
    replay   (module, call, wanted names) -> an output computed from the values that it shows, and these values
    """

    names: Sequence[str] | Callable[[Any], Sequence[str]]
    look: Callable[[Any, Call, Collection[str]], Values]
    replay: Callable[[Any, Call, Collection[str]], tuple[Any, Values]] | None = None

    def names_of(self, module: nn.Module) -> Sequence[str]:
        return self.names(module) if callable(self.names) else self.names


# By type, or by its "module:name", which loads nothing; so may the look itself be named.
LOOKS: dict[type[nn.Module] | str, Look | str] = {
    nn.Embedding: "seqlab.layers.looks:OUTPUT",
    nn.RNNBase: "seqlab.layers.looks:TORCH_RECURRENT",
    nn.MultiheadAttention: "seqlab.layers.looks:TORCH_ATTENTION",
    **dict.fromkeys(NORM_LAYERS, "seqlab.layers.looks:INPUT"),
    "seqlab.layers.embedding:TokenEmbedding": "seqlab.layers.looks:OUTPUT",
    "seqlab.layers.feed_forward:FeedForward": "seqlab.layers.looks:OUTPUT",
    "seqlab.layers.pooling:AttentionPooling": "seqlab.layers.looks:POOLING",
    "seqlab.layers.recurrent:Recurrent": "seqlab.layers.looks:RECURRENT",
    "seqlab.layers.attentive:AttentiveRNN": "seqlab.layers.looks:ATTENTIVE",
    "seqlab.layers.attention:MultiHeadAttention": "seqlab.layers.looks:ATTENTION",
    "seqlab.layers.blocks:Block": "seqlab.layers.looks:BLOCK",
    "seqlab.layers.pointer:Pointer": "seqlab.layers.looks:POINTER",
    "seqlab.models.bigram:BigramLM": "seqlab.layers.looks:BIGRAM",
    "seqlab.models.recurrent_translator:SourceAttention": "seqlab.models.recurrent_translator:LOOK",
}


@contextlib.contextmanager
def taps(model: nn.Module, *patterns: str, on_path: bool = False) -> Iterator[Seen]:
    """Listen to the taps whose names match a pattern (`*`, `?`, `[…]`; a star also spans dots), to all without one.

    Listening changes no bit of an output, a state or a gradient, and no random draw. Values are kept as they are, in
    the graph where gradients are recorded. A module that stands at several places has the name of the first.

    `on_path`: outputs are computed from the very values seen, so that ``torch.autograd.grad(loss, seen.steps(name))``
    is the total derivative, through all later steps. Recurrent layers and attention then run in plain steps, and
    outputs agree to rounding (1e-10 in float64) instead of bit for bit; what stands inside such a layer is not
    on the path, nor is what a look without a `replay` computes beside it. Of two that listen so to one module, the
    later has the path.

    torch.nn.TransformerEncoderLayer leaves its fused kernel while a hook stands in it: there, in evaluation without
    gradients, outputs agree to rounding; bit for bit after ``torch.backends.mha.set_fastpath_enabled(False)``.
    """
    found = _taps_of(model)
    seen = Seen(_matching(patterns, found))
    handles: list[Any] = []
    try:
        for ear in _ears(found, seen, on_path):
            handles.append(ear.module.register_forward_pre_hook(ear.before, with_kwargs=True))
            handles.append(ear.module.register_forward_hook(ear.after, with_kwargs=True))
        yield seen
    finally:
        for handle in handles:
            handle.remove()


def tap_names(model: nn.Module) -> list[str]:
    """Every name under which something of this model can be seen."""
    return list(_taps_of(model))


# --------------------------------------------------------------------------- what was seen


class Seen(Mapping[str, Tensor]):
    """The values seen so far, by name: of the last call, of all calls, or step by step.

    Iterating gives the names that a forward pass has reached; `names` are all those that are listened to.
    """

    def __init__(self, names: Iterable[str]) -> None:
        self.names = tuple(names)
        self._kept: dict[str, list[_Kept]] = {}
        self._hidden: dict[str, NotHere] = {}  # why the last call could not be shown

    def __getitem__(self, name: str) -> Tensor:
        """The value in the last call; what comes in steps is put together, (B, T, H)."""
        return self._last(name).whole(name)

    def __contains__(self, name: object) -> bool:
        return name in self._kept

    def __iter__(self) -> Iterator[str]:
        return iter(self._kept)

    def __len__(self) -> int:
        return len(self._kept)

    def calls(self, name: str) -> list[Tensor]:
        """The values of all calls that could be shown, in their order: of batches, or of the tokens a model writes."""
        return [kept.whole(name) for kept in self._calls(name)]

    def steps(self, name: str) -> list[Tensor]:
        """The last call's value for each time step, T tensors (B, H): what gradients are taken by, with `on_path`."""
        last = self._last(name)
        if not last.in_steps:
            raise UsageError(f"'{name}' does not come in time steps; read seen['{name}']")
        return last.parts(name)

    def clear(self) -> None:
        """Forget all values; go on listening."""
        self._kept.clear()
        self._hidden.clear()

    def _keep(self, name: str, value: Value) -> None:
        self._hidden.pop(name, None)
        if isinstance(value, NotHere):
            self._hidden[name] = value
        else:
            self._kept.setdefault(name, []).append(_Kept(value))

    def _last(self, name: str) -> _Kept:
        if name in self._hidden:
            raise NotSeenError(f"'{name}' has not been seen in the last call: {self._hidden[name]}")
        return self._calls(name)[-1]

    def _calls(self, name: str) -> list[_Kept]:
        if name in self._kept:
            return self._kept[name]
        if name not in self.names:
            raise NotSeenError(f"nobody listened to '{name}'{_hint(name, self.names)}")
        reason = self._hidden.get(name, "no forward pass has reached it yet")
        raise NotSeenError(f"'{name}' has not been seen: {reason}")


class _Kept:
    """One value. Without gradients it is a copy, safe from what the model writes over it later."""

    def __init__(self, value: Tensor | list[Tensor]) -> None:
        self.in_steps = isinstance(value, list)
        given = value if isinstance(value, list) else [value]
        self._parts = [part if part.requires_grad else part.clone() for part in given]
        self._versions = [part._version if part.requires_grad else None for part in given]

    def parts(self, name: str) -> list[Tensor]:
        for part, version in zip(self._parts, self._versions, strict=True):
            if version is not None and part._version != version:
                raise UsageError(
                    f"'{name}' was overwritten in place after it was seen; listen under torch.no_grad(), where copies "
                    "are kept"
                )
        return list(self._parts)

    def whole(self, name: str) -> Tensor:
        parts = self.parts(name)
        return torch.stack(parts, 1) if self.in_steps else parts[0]


# --------------------------------------------------------------------------- hearing a module

_LOOKING: ContextVar[bool] = ContextVar("looking", default=False)


class _Ear:
    """The two hooks on one module, for one look; `wanted` has the look's own name under each full name."""

    def __init__(self, module: nn.Module, look: Look, wanted: dict[str, str], seen: Seen, on_path: bool) -> None:
        self.module, self.look, self.wanted, self.seen = module, look, wanted, seen
        self.replay = look.replay if on_path else None
        self.own_names = frozenset(wanted.values())
        self.signature = inspect.signature(module.forward)
        self.random_states: list[Tensor] = []  # a module may call itself

    def before(self, module: nn.Module, args: Any, kwargs: Any) -> None:
        if module is self.module and not _LOOKING.get():
            self.random_states.append(torch.get_rng_state())

    def after(self, module: nn.Module, args: Any, kwargs: Any, output: Any) -> Any:
        """What takes the place of the output: nothing, or what a replay computed."""
        if module is not self.module or _LOOKING.get():
            return None
        bound = self.signature.bind(*args, **kwargs)
        bound.apply_defaults()
        call, instead = Call(bound.arguments, output), None
        with _aside(self.random_states.pop()):
            if self.replay is None:
                values = self.look.look(module, call, self.own_names)
            else:
                instead, values = self.replay(module, call, self.own_names)
        for full, own in self.wanted.items():
            self.seen._keep(full, values.get(own, NotHere("its look gave no such value")))
        return instead

    def __reduce__(self) -> tuple[Any, ...]:
        """A copy of a model that is listened to is not listened to."""
        return _Deaf, ()


class _Deaf:
    module = None

    def before(self, module: nn.Module, args: Any, kwargs: Any) -> None:
        return None

    def after(self, module: nn.Module, args: Any, kwargs: Any, output: Any) -> None:
        return None


@contextlib.contextmanager
def _aside(random_state: Tensor) -> Iterator[None]:
    """Inside, random numbers are drawn from this state on, and nobody hears the modules that are called."""
    token = _LOOKING.set(True)
    try:
        with torch.random.fork_rng(devices=[]):
            torch.set_rng_state(random_state)
            yield
    finally:
        _LOOKING.reset(token)


# --------------------------------------------------------------------------- names


@dataclass(frozen=True)
class _Tap:
    module: nn.Module
    look: Look
    own_name: str


def _taps_of(model: nn.Module) -> dict[str, _Tap]:
    """Every tap by its full name, in the order of the modules."""
    found: dict[str, _Tap] = {}
    for path, module in model.named_modules():
        look, prefix = look_for(type(module)), f"{path}." if path else ""
        if look is None:
            continue
        for name in look.names_of(module):
            found[prefix + name] = _Tap(module, look, name)
    return found


def look_for(kind: type[nn.Module]) -> Look | None:
    """The look registered for a type, or for the nearest of those that it derives from."""
    for ancestor in kind.__mro__:
        for key in (ancestor, f"{ancestor.__module__}:{ancestor.__qualname__}"):
            if key in LOOKS:
                return _resolved(LOOKS[key])
    return None


def _resolved(look: Look | str) -> Look:
    if isinstance(look, Look):
        return look
    module, _, name = look.partition(":")
    found: Look = getattr(importlib.import_module(module), name)
    return found


def _matching(patterns: Sequence[str], found: Mapping[str, _Tap]) -> list[str]:
    if not found:
        raise UsageError(
            "nothing in this model can be seen: the types of its modules are not known; register one: "
            "seqlab.core.taps.LOOKS[MyLayer] = Look(…)"
        )
    for pattern in patterns:
        if not any(fnmatchcase(name, pattern) for name in found):
            raise UsageError(f"no tap matches '{pattern}'{_hint(pattern, found)}")
    return [name for name in found if not patterns or any(fnmatchcase(name, pattern) for pattern in patterns)]


def _hint(pattern: str, names: Iterable[str]) -> str:
    """The name or pattern nearest to this one; else one pattern for each last word of a name."""
    names = list(names)
    by_last_word = {f"*{name.rpartition('.')[2]}" for name in names}
    close = difflib.get_close_matches(pattern, [*names, *sorted(by_last_word)], n=1, cutoff=0.5)
    return nearest(pattern, close or by_last_word)


def _ears(found: Mapping[str, _Tap], seen: Seen, on_path: bool) -> Iterator[_Ear]:
    """One for each module and look that is wanted."""
    wanted: dict[tuple[int, int], dict[str, str]] = {}
    for name in seen.names:
        tap = found[name]
        wanted.setdefault((id(tap.module), id(tap.look)), {})[name] = tap.own_name
    for names in wanted.values():
        tap = found[next(iter(names))]
        yield _Ear(tap.module, tap.look, names, seen, on_path)
