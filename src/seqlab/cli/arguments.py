"""From typed settings to flags: help, types and choices come from the settings' own fields."""

from __future__ import annotations

import argparse
import dataclasses
import re
from collections.abc import Collection, Iterable, Mapping
from typing import Any, NoReturn

from seqlab.core.errors import UsageError, nearest
from seqlab.core.settings.fields import Field, Preset, dashed, declared_type, flag_of, flags_of
from seqlab.core.settings.lm_presets import LED_PRESETS, PRESETS

READERS: dict[str, Any] = {"int": int, "float": float, "str": str}


class Parser(argparse.ArgumentParser):
    """argparse whose errors are one line, with the nearest flag where one was misspelt."""

    def __init__(self, **options: Any) -> None:
        options.setdefault("formatter_class", argparse.RawDescriptionHelpFormatter)
        super().__init__(allow_abbrev=False, **options)

    def error(self, message: str) -> NoReturn:
        misspelt = re.fullmatch(r"argument \w+: invalid choice: '(.*)' \(choose from (.*)\)", message)
        if misspelt:
            known = re.findall(r"[\w-]+", misspelt[2])
            raise UsageError(f"unknown command '{misspelt[1]}'{nearest(misspelt[1], known)}; see '{self.prog} --help'")
        raise UsageError(f"{message}; see '{self.prog} --help'")

    def refuse_unknown(self, unknown: list[str]) -> None:
        """One line for the first argument that no command takes."""
        first = next((word for word in unknown if word.startswith("-")), unknown[0])
        if first.startswith("--"):
            raise UsageError(f"unknown option {first}{nearest(first.partition('=')[0], self.known_flags())}")
        raise UsageError(f"unexpected argument '{first}'; see '{self.prog} --help'")

    def known_flags(self) -> list[str]:
        listed = [action for action in self._actions if action.help != argparse.SUPPRESS]
        return [flag for action in listed for flag in action.option_strings if flag.startswith("--")]


def add_common(parser: argparse.ArgumentParser, *, threads: bool = True) -> None:
    """What every command takes."""
    group = parser.add_argument_group("every command")
    group.add_argument("--json", action="store_true", help="one JSON object on standard output and nothing else there")
    if threads:
        group.add_argument(
            "--threads", type=int, metavar="N", help="processor threads (default: one per core; to write one text: 1)"
        )
    group.add_argument("--debug", action="store_true", help="show the traceback of an error")


def add_settings(
    parser: argparse.ArgumentParser, settings_type: Any, *, without: Collection[str] = (), hidden: Collection[str] = ()
) -> None:
    """Every setting as a flag. Nothing is filled in here, so that what a person said can be told apart.

    `hidden` are those that the command refuses with a reason: they are read, and help does not list them.
    """
    for group in dataclasses.fields(settings_type):
        fields = [f for f in dataclasses.fields(getattr(settings_type(), group.name)) if flag_of(f) not in without]
        add_fields(parser.add_argument_group(group.name), fields, hidden)


def add_fields(parser: Any, fields: Iterable[Field], hidden: Collection[str] = ()) -> None:
    """A flag for each field: help, type and default come from the field."""
    for f in fields:
        name, declared = flag_of(f), declared_type(f)
        shown = f.metadata["help"] + (f" (default: {f.default})" if f.default not in (None, "") else "")
        words = argparse.SUPPRESS if name in hidden else shown.replace("%", "%%")
        options: dict[str, Any] = {"help": words, "default": argparse.SUPPRESS, "dest": name}
        if declared == "bool":
            options["action"] = argparse.BooleanOptionalAction
        else:
            options |= {"type": READERS[declared], "metavar": _metavar(name, declared)}
        parser.add_argument(f"--{dashed(name)}", **options)


def _metavar(name: str, declared: str) -> str:
    return {"int": "N", "float": "X"}.get(declared, name.upper())


def given_settings(arguments: argparse.Namespace, settings_type: Any) -> dict[str, Any]:
    """The settings that a person named, by flag name."""
    return given(arguments, [f for _, f in flags_of(settings_type).values()])


def given(arguments: argparse.Namespace, fields: Iterable[Field]) -> dict[str, Any]:
    said = vars(arguments)
    return {flag_of(f): said[flag_of(f)] for f in fields if said.get(flag_of(f)) is not None}


def add_run_folder(parser: argparse.ArgumentParser, default: str) -> Any:
    """Where a run goes, and how it goes on."""
    run = parser.add_argument_group("run folder")
    run.add_argument("--out", metavar="FOLDER", help=f"run folder (default: {default}-1, -2, …)")
    run.add_argument("--resume", action="store_true", help="go on with the run in --out, exactly")
    run.add_argument("--config", metavar="FILE", help="take the settings of a settings.toml")
    return run


def preset_table() -> str:
    """The sizes of the presets, for `--help`."""
    rows = ["sizes (--size; if you do not say: small below 100 s, medium below 5 min, large below 30 min, then huge):"]
    rows += _preset_rows(PRESETS)
    rows += ["led by counts (--guide ngram), instead:", *_preset_rows(LED_PRESETS)]
    return "\n".join(rows)


def _preset_rows(presets: Mapping[str, Mapping[str, Preset]]) -> list[str]:
    rows = []
    for kind, sizes in presets.items():
        for size, preset in sizes.items():
            figures = ", ".join(f"{dashed(name)} {value}" for name, value in preset.items())
            rows.append(f"  {kind:<15}{size:<8}{figures}")
    return rows
