"""The machinery that every task's settings share: flags, help, TOML, limits.

Settings are frozen dataclasses made of groups, which are frozen dataclasses too. Each field carries its help text,
its limits and, where it is not for all, the kinds of model that have it; from these the flags, their help, the
checks and the record in `settings.toml` are made. Nothing here needs torch.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar, get_args, runtime_checkable

from seqlab.core.errors import UsageError, nearest

Value = TypeVar("Value")
Settings = TypeVar("Settings")
Field = dataclasses.Field[Any]
Table = dict[str, dict[str, Any]]
Preset = dict[str, Any]
NOT_SETTINGS = {"sha256", "seqlab", "record"}  # what a settings.toml holds besides them


# --------------------------------------------------------------------------- limits


@dataclass(frozen=True)
class Limits:
    """What a number may be."""

    least: float = -math.inf
    most: float = math.inf
    words: str = ""  # what it must be, where "too small" and "too large" would not explain it
    open_below: bool = False  # the least itself is not allowed

    def check(self, flag: str, value: float) -> None:
        finite = self.most < math.inf or value < math.inf
        if self.least <= value <= self.most and finite and not (self.open_below and value == self.least):
            return
        if self.words:
            raise UsageError(f"--{flag} {value} {self.words}")
        if math.isnan(value):
            raise UsageError(f"--{flag} {value} is no number")
        if value < self.least:
            raise UsageError(f"--{flag} {value} is too small; the least is {self.least}")
        raise UsageError(f"--{flag} {value} is too large; the most is {self.most:,}")


LARGEST = 1_000_000  # of any count
COUNT = Limits(1, LARGEST)
POSITIVE = Limits(0, words="must be a number greater than 0", open_below=True)
NOT_NEGATIVE = Limits(0, words="must be a number of 0 or more")
SHARE = Limits(0, 1, words="must lie between 0 and 1")
BELOW_ONE = Limits(0, 1 - 1e-9, words="must be at least 0 and below 1")
THREADS = Limits(1, 1024, words="must lie between 1 and 1024")


def check_threads(threads: int | None) -> None:
    if threads is not None:
        if not isinstance(threads, int) or isinstance(threads, bool):
            raise UsageError(f"--threads {threads!r} must be a whole number")
        THREADS.check("threads", threads)


# --------------------------------------------------------------------------- fields


def setting(
    default: Any,
    help: str,
    *,
    flag: str | None = None,
    choices: Collection[str] | None = None,
    limits: Limits | None = None,
    check: Callable[[Any], Any] | None = None,
    kinds: tuple[str, ...] | None = None,
    place: bool = False,
    cost: bool = False,
) -> Any:
    """A field with its help text and everything that may be said of it.

    flag     its name on the command line, where the field name would mislead
    check    a function that raises UsageError for a value that is not understood
    kinds    the models that come with seqlab and have this setting; None: all of them
    place    it says where something lies, not what it is: another place makes no other run
    cost     it says what training costs, and changes no bit of what it gives: a run may go on with another value
    """
    known = {"help": help, "flag": flag, "choices": choices, "limits": limits, "check": check, "kinds": kinds}
    return field(default=default, metadata=known | {"place": place, "cost": cost})


def filled(value: Value | None) -> Value:
    """A value that a preset has filled in."""
    assert value is not None, "presets are filled in before use"
    return value


def fill(group: Any, preset: Preset) -> Any:
    """The group with every None that the preset decides; what a person said stays."""
    missing = {f.name for f in dataclasses.fields(group) if getattr(group, f.name) is None}
    return dataclasses.replace(group, **{name: preset[name] for name in missing & preset.keys()})


def dashed(name: str) -> str:
    return name.replace("_", "-")


def flag_of(f: Field) -> str:
    flag: str = f.metadata["flag"] or f.name
    return flag


def flags_of(settings_type: Any) -> dict[str, tuple[str, Field]]:
    """Flag name -> (group, field) for every field of a settings dataclass made of groups."""
    return {
        flag_of(f): (group.name, f)
        for group in dataclasses.fields(settings_type)
        for f in dataclasses.fields(getattr(settings_type(), group.name))
    }


def value_of(settings: Any, group: str, f: Field) -> Any:
    return getattr(getattr(settings, group), f.name)


# --------------------------------------------------------------------------- checks


@runtime_checkable
class ChecksItself(Protocol):
    """A group whose fields must fit each other."""

    def check(self) -> None: ...


def check_settings(settings: Any) -> None:
    """Refuse values out of range, each with one line that names the value, the limit and the remedy."""
    for group in dataclasses.fields(settings):
        check_group(getattr(settings, group.name))


def check_group(group: Any) -> None:
    for f in dataclasses.fields(group):
        check_value(f, getattr(group, f.name))
    if isinstance(group, ChecksItself):
        group.check()


def check_types(group: Any) -> None:
    """Refuse values of another type than their fields have: what came from a program, not from a command line."""
    for f in dataclasses.fields(group):
        value = getattr(group, f.name)
        if value is not None or f.default is not None:
            _check_type(flag_of(f), value, f)


def check_value(f: Field, value: Any) -> None:
    if value is None:
        return
    choices, limits, check = (f.metadata[key] for key in ("choices", "limits", "check"))
    if choices is not None and value not in choices:
        raise UsageError(f"--{dashed(flag_of(f))} '{value}' is not known{nearest(str(value), choices)}")
    if limits is not None:
        limits.check(dashed(flag_of(f)), value)
    if check is not None:
        check(value)


def check_said_of_model(settings: Any, said: Collection[str]) -> None:
    """Refuse what a person said of a model, one that comes with seqlab, that has no such thing."""
    kind = settings.model.kind
    kinds_of = {f.name: f.metadata["kinds"] for f in dataclasses.fields(settings.model)}
    own = [name for name, kinds in kinds_of.items() if kinds is None or kind in kinds]
    for name, (group, f) in flags_of(type(settings)).items():
        if name in said and group == "model" and f.name not in own:
            raise UsageError(f"model '{kind}' has no setting '{dashed(name)}'{nearest(name, own)}")
        if name in said and group == "training":
            check_trains_so(f, kind)


def check_trains_so(f: Field, kind: str) -> None:
    """Refuse a way of training that a model which comes with seqlab does not know."""
    kinds = f.metadata["kinds"]
    if kinds is not None and kind not in kinds:
        raise UsageError(f"--{dashed(flag_of(f))} is for {', '.join(kinds)}, not for model '{kind}'; leave it out")


# --------------------------------------------------------------------------- flags and tables


def with_flags(settings: Settings, given: Mapping[str, Any]) -> Settings:
    """The settings with `given` (flag name -> value) put over them; an unknown name is refused."""
    known = flags_of(type(settings))
    changes: Table = {}
    for name, value in given.items():
        if name not in known:
            raise UsageError(f"unknown setting '{name}'{nearest(name, known)}")
        group, f = known[name]
        _check_type(f"setting '{name}'", value, f)
        changes.setdefault(group, {})[f.name] = value
    return with_changes(settings, changes)


def with_changes(settings: Settings, changes: Mapping[str, Mapping[str, Any]]) -> Settings:
    """The settings with some fields of some groups replaced: group -> field -> value."""
    groups = {g: dataclasses.replace(getattr(settings, g), **values) for g, values in changes.items()}
    return dataclasses.replace(settings, **groups)  # type: ignore[type-var]


def to_table(settings: Any) -> Table:
    """Groups of plain values, for TOML (which has no null: what is None is left out)."""
    groups = dataclasses.asdict(settings)
    return {g: {k: v for k, v in values.items() if v is not None} for g, values in groups.items()}


def from_table(settings_type: type[Settings], table: Mapping[str, Any], source: str) -> Settings:
    """The settings of a `settings.toml`; `source` names the file in errors."""
    settings: Any = settings_type()
    changes: Table = {}
    groups = {group.name for group in dataclasses.fields(settings)}
    for name in table.keys() - groups - NOT_SETTINGS:
        raise UsageError(f"{source}: unknown setting or table '{name}'{nearest(name, groups)}")
    for group in dataclasses.fields(settings):
        values = table.get(group.name, {})
        if not isinstance(values, dict):
            raise UsageError(f"{source}: '{group.name}' is {values!r}; it must be a table of settings")
        known = {f.name: f for f in dataclasses.fields(getattr(settings, group.name))}
        for name, value in values.items():
            if name not in known:
                raise UsageError(f"{source}: unknown setting '{group.name}.{name}'{nearest(name, known)}")
            _check_type(f"{source}: {group.name}.{name}", value, known[name])
        changes[group.name] = values
    found: Settings = with_changes(settings, changes)
    return found


def what_decides(settings: Any) -> Table:
    """The table of what a run computes, without what only says where things lie or what computing costs."""
    fields = flags_of(type(settings)).values()
    beside = {(group, f.name) for group, f in fields if f.metadata["place"] or f.metadata["cost"]}
    table = to_table(settings)
    return {g: {k: v for k, v in values.items() if (g, k) not in beside} for g, values in table.items()}


def cost_flags(settings_type: Any) -> set[str]:
    """The flags that change no bit of what is computed."""
    return {name for name, (_, f) in flags_of(settings_type).items() if f.metadata["cost"]}


def declared_type(f: Field) -> str:
    """int, float, bool or str, whether annotations are words (``from __future__ import annotations``) or types."""
    kind: Any = f.type
    if isinstance(kind, str):
        return kind.partition(" ")[0]
    name: str = (kind if isinstance(kind, type) else get_args(kind)[0]).__name__
    return name


def _check_type(where: str, value: Any, f: Field) -> None:
    wanted = {"int": (int,), "float": (int, float), "bool": (bool,), "str": (str,)}
    allowed = wanted[declared_type(f)]
    if not isinstance(value, allowed) or (isinstance(value, bool) and bool not in allowed):
        raise UsageError(f"{where} is {value!r}; it must be of type {declared_type(f)}")
