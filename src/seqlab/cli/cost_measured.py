"""`seqlab cost --scaling` and `seqlab cost --crossover`: measured on this machine instead of predicted."""

from __future__ import annotations

import argparse
import dataclasses
from collections.abc import Collection
from typing import Any

from seqlab.cli.arguments import Parser, add_fields, given
from seqlab.cli.terminal import TerminalReporter, emit_json, table
from seqlab.core.errors import UsageError
from seqlab.core.files import check_targets
from seqlab.core.settings.cost_measured import CrossoverSettings, ScalingSettings
from seqlab.core.settings.fields import Field, check_group, check_threads, dashed, flag_of

MODES: dict[str, Any] = {"scaling": ScalingSettings, "crossover": CrossoverSettings}
MODE_HELP = {
    "scaling": "measure how time and memory of layers grow with length, width and heads, beside the formulas",
    "crossover": "measure from which length on linear attention is faster than softmax here, or needs less memory",
}
FIELDS: dict[str, dict[str, Field]] = {
    mode: {flag_of(f): f for f in dataclasses.fields(settings)} for mode, settings in MODES.items()
}
OTHERS = ("task", "calibrate", "calibration")  # flags of a prediction that are no settings


def add_flags(cost: Parser) -> None:
    """The modes and their flags; width, heads, features, batch and length are those that the command has already."""
    group = cost.add_argument_group(
        "measured (--scaling, --crossover)",
        "Both also take --width, --heads, --features and --batch, --scaling also --length, with defaults of their own: "
        f"{_defaults()}.",
    )
    for mode, words in MODE_HELP.items():
        group.add_argument(f"--{mode}", action="store_true", help=f"{words} (page: {mode}.html)")
    known, new = set(cost.known_flags()), {name: f for fields in FIELDS.values() for name, f in fields.items()}
    add_fields(group, [f for name, f in new.items() if f"--{dashed(name)}" not in known])


def _defaults() -> str:
    scaling = ScalingSettings()
    return f"width {scaling.width}, {scaling.heads} heads, batch {scaling.batch}, length {scaling.length}"


def mode_of(arguments: argparse.Namespace, predicted: Collection[str]) -> str | None:
    """The mode that is asked for, if any. Refuses flags of a mode without it, and in a mode what it does not have;
    `predicted` are the settings of a prediction."""
    asked = [mode for mode in MODES if getattr(arguments, mode)]
    if len(asked) == 2:
        raise UsageError("--scaling and --crossover are two measurements; ask for one of them")
    said = {name for name, value in vars(arguments).items() if value is not None and value is not False}
    measured = [name for fields in FIELDS.values() for name in fields]
    if not asked:
        for name in (name for name in measured if name in said and name not in predicted):
            modes = " or ".join(f"--{mode}" for mode in MODES if name in FIELDS[mode])
            raise UsageError(f"--{dashed(name)} is for {modes}; add it, or leave --{dashed(name)} out")
        return None
    mode = asked[0]
    if arguments.folder is not None:
        raise UsageError(f"--{mode} measures layers, not a run; leave {arguments.folder} out")
    for name in sorted(said.intersection([*predicted, *measured, *OTHERS]) - FIELDS[mode].keys()):
        raise UsageError(f"--{mode} has no --{dashed(name)}; see 'seqlab cost --help'")
    return mode


def measured_command(mode: str, arguments: argparse.Namespace) -> int:
    """Wrong use is answered before torch is loaded."""
    settings = MODES[mode](**given(arguments, FIELDS[mode].values()))
    check_group(settings)
    check_threads(arguments.threads)
    out = arguments.out or f"{mode}.html"
    check_targets({"--out": out})
    found = _measure(mode)(settings, out=out, threads=arguments.threads, reporter=TerminalReporter())
    if arguments.json:
        emit_json(found.as_json())
        return 0
    print(f"{found.basis}\n")
    print("\n".join(found.answer), end="\n\n")
    print(table(found.header, found.rows, left=4 if mode == "scaling" else 3))
    print(f"({found.notes})\n\npage: {found.page}  (open it in a browser)")
    return 0


def _measure(mode: str) -> Any:
    from seqlab.workflows.cost.crossover import measure_crossover
    from seqlab.workflows.cost.scaling import measure_scaling

    return {"scaling": measure_scaling, "crossover": measure_crossover}[mode]
