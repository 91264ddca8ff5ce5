"""How fast this machine is: what each kind of operation takes by its size, timed once in a few seconds.

    seconds of a step = Σ over its operations  t_kind(sizes) + o

t is a table, read by interpolation between the logarithms of sizes and seconds; o is what a call costs beside its
work (Python, autograd), found on a chain of tiny layers. The tables are kept in the cache folder under the machine's
name; another processor, number of threads or torch makes new ones.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import json
import math
import platform
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from seqlab.core.cache import cache_folder
from seqlab.core.errors import SeqlabError, UsageError
from seqlab.core.files import canonical_json, sha256_of, write_text
from seqlab.core.machine import processor_name
from seqlab.diagnostics.rehearsal import Operation, rehearse

FORMAT = 1
NUMBERS = tuple(4**k for k in range(4, 13))  # sizes of elementwise operations: 256 … 16 million numbers
ROWS, INNER, COLUMNS = (1, 8, 64, 512, 4096), (16, 64, 256, 1024), (16, 64, 256, 1024)
MANY, SMALL = 64, (1, 8, 32, 128)  # products at once, and their sizes
LENGTHS, HEAD_WIDTH = (16, 64, 256, 1024), 32
LSTM_ROWS, LSTM_WIDTHS, LSTM_STEPS = (4, 32, 128), (32, 128, 512), 16
PROBES_KEPT = 50
MODEL_ERROR = 0.25  # how far off a prediction may be where nothing changed since the calibration (docs/benchmarks.md)


@dataclass(frozen=True)
class Table:
    """Seconds at the crossings of a grid of sizes."""

    axes: tuple[tuple[float, ...], ...]
    seconds: tuple[float, ...]  # in the order of the axes, the last one fastest

    def at(self, *sizes: float) -> float:
        """Interpolated between the logarithms; beyond the grid the seconds grow in proportion to the size."""
        here, beyond = np.log(self.seconds).reshape([len(axis) for axis in self.axes]), 0.0
        for axis, size in zip(self.axes, sizes, strict=True):
            x, grid = math.log(max(size, 1e-9)), np.log(axis)
            inside = min(max(x, grid[0]), grid[-1])
            beyond += max(0.0, x - grid[-1])
            k = min(max(int(np.searchsorted(grid, inside, "right")) - 1, 0), max(0, len(grid) - 2))
            if len(grid) > 1:
                share = (inside - grid[k]) / (grid[k + 1] - grid[k])
                here = (1 - share) * here[k] + share * here[k + 1]
            else:
                here = here[0]
        return math.exp(float(here) + beyond)


@dataclass(frozen=True)
class Calibration:
    machine: dict[str, Any]
    tables: dict[str, Table]
    overhead: float  # seconds of a call beside its work
    probe: float  # seconds of a fixed mixture of work, right after
    probes: tuple[float, ...] = ()  # the same at later moments: how much this machine's speed varies
    fresh: bool = dataclasses.field(default=True, compare=False)  # made in this process

    def seconds(self, operations: Sequence[Operation]) -> float:
        return sum(map(self.price, operations))

    def price(self, op: Operation) -> float:
        return _work(self.tables, op) + self.overhead

    @property
    def range(self) -> tuple[float, float]:
        """By which factors a prediction may be off: the model's error, and the speeds that were seen since."""
        seen = [probe / self.probe for probe in (self.probe, *self.probes)]
        return min(seen) * (1 - MODEL_ERROR), max(seen) * (1 + MODEL_ERROR)

    @property
    def now(self) -> float:
        """How much slower the machine is at this moment than when it was calibrated."""
        return self.probes[-1] / self.probe if self.probes else 1.0


def _work(tables: dict[str, Table], op: Operation) -> float:
    """Seconds of an operation's work."""
    kind, sizes = op.kind, op.sizes
    if kind == "look":
        return tables["look"].at(1)
    if kind == "product":
        b, m, k, n = sizes
        if min(sizes) <= 0:
            return tables["look"].at(1)
        if b == 1:
            return tables["product"].at(m, k, n)
        beyond = max(1.0, b / MANY)
        return tables["products"].at(m, k, n) * beyond if b >= MANY else _between(tables, b, m, k, n)
    if kind in ("attention", "attention_backward"):
        b, T, S, d = sizes
        length = math.sqrt(max(T * S, 1.0))
        beyond = max(1.0, length / LENGTHS[-1])  # the table grows in proportion there, the work as the square
        return b * d / HEAD_WIDTH * tables[kind].at(length) * beyond
    if kind in ("lstm", "lstm_backward"):
        T, B, D, H = sizes
        return T / LSTM_STEPS * (D + H) / (2 * H) * tables[kind].at(B, H)
    return tables[_table_of(kind, op.name)].at(sizes[0])


def _between(tables: dict[str, Table], b: float, m: float, k: float, n: float) -> float:
    """Some products at once, between one and many: a line through both."""
    one, many = tables["product"].at(m, k, n), tables["products"].at(m, k, n)
    return one + (b - 1) / (MANY - 1) * max(many - one, 0.0)


def _table_of(kind: str, name: str) -> str:
    if kind == "squash":
        return next((known for known in ("tanh", "sigmoid", "gelu") if name.startswith(known)), "exp")
    return kind


# --------------------------------------------------------------------------- timing


def seconds_of(run: Callable[[], Any], least: float = 1e-3, repetitions: int = 3) -> float:
    """Median over repetitions that last `least` seconds or more. What is known to last so long counts as the first."""
    run()
    start = time.perf_counter()
    run()
    once = time.perf_counter() - start
    times = max(1, int(least / max(once, 1e-7)))
    measured = [once] if once >= least else []
    while len(measured) < repetitions:
        start = time.perf_counter()
        for _ in range(times):
            run()
        measured.append((time.perf_counter() - start) / times)
    return statistics.median(measured)


def calibrate(progress: Callable[[float], None] = lambda share: None) -> Calibration:
    """Time every kind of operation on this machine with torch's present number of threads. No random stream moves."""
    with torch.random.fork_rng(devices=[]):
        tables: dict[str, Table] = {}
        kinds = [_elementwise, _products, _attention, _lstm]
        for done, make in enumerate(kinds):
            progress(done / len(kinds))
            tables |= make()
        overhead = _overhead(tables)
        progress(1.0)
        return Calibration(machine_identity(), tables, overhead, probe())


@torch.no_grad()
def _elementwise() -> dict[str, Table]:
    def curve(make: Callable[[int], Callable[[], Any]]) -> Table:
        return Table((NUMBERS,), tuple(seconds_of(make(n)) for n in NUMBERS))

    def of(function: Callable[[Tensor], Any], rows: int = 1) -> Callable[[int], Callable[[], Any]]:
        return lambda n: functools.partial(function, torch.randn(max(1, n // rows), rows))

    def added(n: int) -> Callable[[], Any]:
        a, b = torch.randn(max(1, n // 3)), torch.randn(max(1, n // 3))  # two are read, one is written
        return lambda: a + b

    def drawn(n: int) -> float:
        x = torch.empty(n)
        return seconds_of(lambda: x.bernoulli_(0.5))

    look = torch.zeros(2, 4)
    return {
        "move": curve(added),
        "exp": curve(of(torch.exp)),
        "tanh": curve(of(torch.tanh)),
        "sigmoid": curve(of(torch.sigmoid)),
        "gelu": curve(of(F.gelu)),
        "norm": curve(of(lambda x: torch.log_softmax(x, -1), rows=256)),
        "draw": Table((NUMBERS[:5],), tuple(map(drawn, NUMBERS[:5]))),
        "look": Table(((1.0,),), (seconds_of(lambda: look.view(4, 2)),)),
    }


@torch.no_grad()
def _products() -> dict[str, Table]:
    seconds = []
    for m in ROWS:
        for k in INNER:
            for n in COLUMNS:
                a, b, out = torch.randn(m, k), torch.randn(n, k).t(), torch.empty(m, n)
                seconds.append(seconds_of(functools.partial(torch.mm, a, b, out=out)))
    at_once = []
    for m, k, n in itertools.product(SMALL, SMALL, SMALL):
        at_once.append(seconds_of(functools.partial(torch.bmm, torch.randn(MANY, m, k), torch.randn(MANY, k, n))))
    return {
        "product": Table((ROWS, INNER, COLUMNS), tuple(seconds)),
        "products": Table((SMALL, SMALL, SMALL), tuple(at_once)),
    }


def _attention() -> dict[str, Table]:
    """Of one head: forward, and what the backward pass adds."""
    forward, backward = [], []
    for length in LENGTHS:
        heads = max(4, 4096 // length)
        q, k, v = (torch.randn(1, heads, length, HEAD_WIDTH, requires_grad=True) for _ in range(3))
        alone, both = _forward_and_both(lambda q=q, k=k, v=v: F.scaled_dot_product_attention(q, k, v))  # type: ignore[misc]
        forward.append(alone / heads)
        backward.append(max(both - alone, alone) / heads)
    return {"attention": Table((LENGTHS,), tuple(forward)), "attention_backward": Table((LENGTHS,), tuple(backward))}


def _lstm() -> dict[str, Table]:
    forward, backward = [], []
    for rows in LSTM_ROWS:
        for width in LSTM_WIDTHS:
            layer, x = nn.LSTM(width, width), torch.randn(LSTM_STEPS, rows, width, requires_grad=True)
            alone, both = _forward_and_both(lambda layer=layer, x=x: layer(x)[0])  # type: ignore[misc]
            forward.append(alone)
            backward.append(max(both - alone, alone))
    axes = (LSTM_ROWS, LSTM_WIDTHS)
    return {"lstm": Table(axes, tuple(forward)), "lstm_backward": Table(axes, tuple(backward))}


def _forward_and_both(run: Callable[[], Tensor]) -> tuple[float, float]:
    grad = torch.ones_like(run().detach())
    return seconds_of(run), seconds_of(lambda: torch.autograd.backward(run(), grad))


def _overhead(tables: dict[str, Table]) -> float:
    """What a call costs beside its work: (measured − Σ work)/calls, on a chain of tiny layers."""
    chain = nn.Sequential(*(part for _ in range(20) for part in (nn.Linear(8, 8), nn.Tanh(), nn.LayerNorm(8))))
    x = torch.randn(4, 8)

    def step() -> None:
        chain(x).sum().backward()

    seen = rehearse(step, chain).operations
    return max(0.0, (seconds_of(step, 5e-3) - sum(_work(tables, op) for op in seen)) / len(seen))


def probe() -> float:
    """Seconds of a fixed mixture: a product, a pass over memory, small calls. Takes some hundredths of a second."""
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        a, b, large, small = torch.ones(512, 512), torch.ones(512, 512), torch.ones(2_000_000), torch.ones(64)

        def mixture() -> None:
            a @ b
            large.exp()
            for _ in range(100):
                small + small

        return seconds_of(mixture, 5e-3, 5)


# --------------------------------------------------------------------------- the machine's name, and what is kept


def machine_identity() -> dict[str, Any]:
    """What decides how fast operations are, as far as it can be read."""
    return {
        "processor": processor_name(),
        "system": platform.system(),
        "threads": torch.get_num_threads(),
        "torch": str(torch.__version__),
    }


def calibration_file() -> Path:
    return cache_folder() / "calibration" / f"{sha256_of(canonical_json(machine_identity()))[:16]}.json"


def calibration_of(path: Path | None = None, *, anew: bool = False, **watched: Any) -> Calibration:
    """The calibration in a file or, of this machine, in the cache; made (and kept) where there is none.

    One that was made earlier is probed again, so that its range says how this machine's speed varies.
    """
    file = calibration_file() if path is None else path
    if not anew and (path is not None or file.is_file()):
        try:
            return _probed(read_calibration(file), file)
        except SeqlabError:
            if path is not None:
                raise
    made = calibrate(**watched)
    _keep(made, file)
    return made


def _probed(found: Calibration, file: Path) -> Calibration:
    again = dataclasses.replace(found, probes=(*found.probes, probe())[-PROBES_KEPT:], fresh=False)
    _keep(again, file)
    return again


def _keep(calibration: Calibration, file: Path) -> None:
    """A cache that cannot be written is only slower next time."""
    record = dataclasses.asdict(calibration) | {"format": FORMAT}
    del record["fresh"]
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        write_text(file, json.dumps(record) + "\n")
    except (OSError, SeqlabError):
        pass


# The tables, and by how many sizes each is read.
KINDS = dict.fromkeys(("move", "exp", "tanh", "sigmoid", "gelu", "norm", "draw", "look"), 1)
KINDS |= {"product": 3, "products": 3, "attention": 1, "attention_backward": 1, "lstm": 2, "lstm_backward": 2}


def read_calibration(file: Path) -> Calibration:
    """Refuses one that is damaged or of another machine."""
    try:
        record = json.loads(file.read_text(encoding="utf-8"))
        found, whole = _from_record(record), record["format"] == FORMAT
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise UsageError(f"{file} holds no calibration ({error}); make one with 'seqlab cost --calibrate'") from error
    if not (whole and _is_whole(found)):
        raise UsageError(f"{file} holds a damaged or older calibration; make one with 'seqlab cost --calibrate'")
    here = machine_identity()
    for name, value in here.items():
        if found.machine.get(name) != value:
            raise UsageError(
                f"{file} was calibrated on another machine ({name} {found.machine.get(name)}, here {value}); "
                "make one with 'seqlab cost --calibrate'"
            )
    return found


def _from_record(record: dict[str, Any]) -> Calibration:
    def numbers(values: Sequence[Any]) -> tuple[float, ...]:
        return tuple(map(float, values))

    tables = {
        name: Table(tuple(map(numbers, table["axes"])), numbers(table["seconds"]))
        for name, table in record["tables"].items()
    }
    overhead, probe, probes = float(record["overhead"]), float(record["probe"]), numbers(record["probes"])
    return Calibration(dict(record["machine"]), tables, overhead, probe, probes, fresh=False)


def _is_whole(found: Calibration) -> bool:
    """Every table is there, and every number is one to compute with."""
    times = (found.probe, *found.probes, *(s for table in found.tables.values() for s in table.seconds))
    sizes = {name: len(table.axes) for name, table in found.tables.items()}
    return (
        sizes.items() >= KINDS.items()
        and all(math.isfinite(s) and s > 0 for s in times)
        and math.isfinite(found.overhead)
        and found.overhead >= 0
        and all(map(_is_grid, found.tables.values()))
    )


def _is_grid(table: Table) -> bool:
    rising = all(axis[0] > 0 and all(a < b for a, b in itertools.pairwise(axis)) for axis in table.axes if axis)
    return rising and len(table.seconds) == math.prod(map(len, table.axes)) > 0
