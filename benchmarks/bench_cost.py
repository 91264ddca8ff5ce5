"""What every training says before its first step, against what it then took: seconds of a step, and peak memory.

Every task, model kind and size preset is trained for a few seconds, each in a process of its own, as a person would
start it. The machine is calibrated once, at the beginning. Seconds are those of the steps alone, without validations;
peak memory is the most that the process held from the moment of the estimate to the end of the report (VmHWM of Linux).

"""

import argparse
import json
import math
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from texts import first_million_bytes
from timing import verdict

WITHIN_SECONDS, WITHIN_MEMORY = 0.25, 0.15
BUDGET, LONGER, LAST = "8s", "40s", 1_000_000  # validated once, after the last step
SPLIT = {"lm": "94/3/3"}  # what is measured in the end is not what is asked
FIRST = {"classify": "imdb", "translate": "bible-kjv"}
SECOND = {"lm": "wikipedia-sample", "classify": "rotten-tomatoes", "translate": "bible-bbe"}
SIZES = ("small", "medium", "large", "huge")
TARGET, HELD_OUT = "bible-web", 200  # verses: decoding more takes longer than the training
LM_KINDS = ("rnn", "gru", "lstm", "attentive-rnn", "transformer", "bigram")


def trainings() -> Iterator[dict[str, Any]]:
    """Task and flags of each."""
    for kind in LM_KINDS:
        yield from ({"task": "lm", "model": kind, "size": size} | budget_of(kind, size) for size in SIZES)
    long = {"task": "lm", "model": "transformer", "size": "small", "batch": 2, "context": 4096}
    for attention in ("softmax", "separable", "random_features"):
        yield long | {"attention": attention}
    yield long | {"recompute": True}
    wide = {"task": "lm", "model": "transformer", "size": "medium", "batch": 8, "context": 1024, "budget": LONGER}
    yield wide
    yield wide | {"accumulate": 4}
    yield {"task": "lm", "model": "gru", "size": "medium", "optimiser": "muon", "ema": 0.999}
    for kind in ("average", "rnn", "gru", "lstm", "transformer"):
        yield {"task": "classify", "model": kind}
    for kind in ("transformer", "gru", "lstm"):
        few = {"to": TARGET, "held_out": HELD_OUT}
        yield from ({"task": "translate", "model": kind, "size": size} | few for size in SIZES)


def budget_of(kind: str, size: str) -> dict[str, str]:
    """More where a step takes seconds."""
    return {"budget": LONGER} if kind == "transformer" and size in ("large", "huge") else {}


def named(flags: dict[str, Any]) -> str:
    rest = [
        f"{name} {value}"
        for name, value in flags.items()
        if name not in ("task", "model", "size", "to", "budget", "held_out")
    ]
    return " ".join([flags["task"], flags["model"], flags.get("size", ""), *rest]).strip()


# --------------------------------------------------------------------------- one training, in a process of its own


def train_one(flags: dict[str, Any], data: str) -> dict[str, Any]:
    """Train as `seqlab … train` does; what was said before, and what it took."""
    from seqlab.core.memory import resident_bytes
    from seqlab.core.reporting import Reporter
    from seqlab.runs import session

    class Watching(Reporter):
        """Hears every step."""

        listening = True

        def __init__(self) -> None:
            self.moments: list[tuple[int, float, bool]] = []  # step, clock, whether it was validated
            self._tasks: list[str] = []

        def note(self, line: str) -> None:
            if line.startswith("memory:"):
                Path("/proc/self/clear_refs").write_text("5")  # the high-water mark starts here

        def start(self, task: str, total: float | None) -> None:
            self._tasks.append(task)

        def finish(self) -> None:
            self._tasks.pop()

        def advance(self, done: float, figures: dict[str, str] | None = None) -> None:
            if self._tasks[-1] == "training":
                self.moments.append((int(done), time.perf_counter(), bool(figures and "validation" in figures)))

    expected: list[Any] = []
    whole = session.estimate

    def kept(*arguments: Any) -> Any:
        expected.append(whole(*arguments))
        return expected[-1]

    session.estimate = kept
    reporter = Watching()
    _train(dict(flags), data, reporter)
    high = _status("VmHWM")
    found = expected[0]
    return {
        "predicted": found.step.seconds,
        "low": found.step.low,
        "high": found.step.high,
        "timed": found.step.timed,
        "measured": _seconds_of_steps(reporter.moments),
        "steps": len({step for step, _, _ in reporter.moments}),
        "peak_predicted": found.memory.peak,
        "peak_measured": high,
        "process": found.memory.process,
        "parts": [found.memory.moments, found.memory.step, found.memory.saving, found.memory.reading],
        "end": resident_bytes(),
    }


def _train(flags: dict[str, Any], data: str, reporter: Any) -> None:
    import seqlab

    task = flags.pop("task")
    trains = {"lm": seqlab.train_lm, "classify": seqlab.train_classifier, "translate": seqlab.train_translator}
    with tempfile.TemporaryDirectory() as folder:
        flags |= {"split": SPLIT[task]} if task in SPLIT else {}
        said = {"budget": BUDGET, "eval_every": LAST} | flags
        trains[task](data, out=Path(folder) / "run", reporter=reporter, **said)


def _seconds_of_steps(moments: list[tuple[int, float, bool]]) -> float:
    """Mean over the steps that no validation followed; the first is left out (whatever is made once)."""
    ends: dict[int, float] = {}
    validated = {step for step, _, said in moments if said}
    for step, clock, _ in moments:
        ends[step] = clock
    spans = [ends[step] - ends[step - 1] for step in ends if step - 1 in ends and step not in validated]
    return statistics.fmean(spans) if spans else math.nan


def _status(name: str) -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(1024 * int(line.split()[1]) for line in lines if line.startswith(name + ":"))


# --------------------------------------------------------------------------- all of them


def in_a_process(flags: dict[str, Any], data: str) -> dict[str, Any]:
    command = [sys.executable, __file__, "--one", json.dumps(flags), "--data", data]
    done = subprocess.run(command, capture_output=True, text=True, env=os.environ | {"PYTHONHASHSEED": "0"})
    if done.returncode:
        raise SystemExit(f"{named(flags)}: {done.stderr.strip()[-2000:]}")
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def show(flags: dict[str, Any], found: dict[str, Any]) -> tuple[float, float]:
    seconds = found["predicted"] / found["measured"]
    memory = found["peak_predicted"] / found["peak_measured"]
    parts = ", ".join(f"{part / 1e6:.0f}" for part in found["parts"])
    how = "timed" if found["timed"] else "calibrated"
    times = f"{1e3 * found['predicted']:8.1f} ms {1e3 * found['measured']:8.1f} ms ×{seconds:.2f} {how:<10}"
    peaks = f"{found['peak_predicted'] / 1e6:7.0f} MB {found['peak_measured'] / 1e6:7.0f} MB ×{memory:.2f}"
    print(f"{named(flags):<66} {times} {peaks}   ({found['process'] / 1e6:.0f}; {parts})", flush=True)
    return seconds, memory


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--on", choices=("first", "second"), default="first")
    parser.add_argument("--only", default="", help="a regular expression of names")
    parser.add_argument("--one", type=json.loads)
    parser.add_argument("--data")
    asked = parser.parse_args()
    if asked.one is not None:
        print(json.dumps(train_one(asked.one, asked.data)))
        return
    from seqlab.diagnostics.machine import calibration_of

    calibration_of(anew=True)
    texts = SECOND if asked.on == "second" else FIRST | {"lm": str(first_million_bytes())}
    print(
        f"{'training':<66} {'predicted':>11} {'measured':>11}                   predicted   measured      "
        "(process before; optimiser, step, saving, reading; MB)"
    )
    ratios = [
        show(flags, in_a_process(flags, texts[flags["task"]]))
        for flags in trainings()
        if re.search(asked.only, named(flags))
    ]
    for what, k, bound in (("seconds", 0, WITHIN_SECONDS), ("memory", 1, WITHIN_MEMORY)):
        off = [abs(ratio[k] - 1) for ratio in ratios]
        inside = sum(error <= bound for error in off)
        print(
            f"{what}: {inside} of {len(off)} within {bound:.0%}; median error {statistics.median(off):.1%}, "
            f"largest {max(off):.1%}: {verdict(inside == len(off))}"
        )


if __name__ == "__main__":
    main()
