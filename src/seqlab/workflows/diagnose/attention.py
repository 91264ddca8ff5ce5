"""`diagnose attention`: what every head of a run looks at, and what the loss is without it."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from seqlab.core.errors import UsageError
from seqlab.core.files import write_text
from seqlab.core.reporting import Reporter
from seqlab.core.settings.diagnose import AttentionSettings
from seqlab.core.settings.fields import check_group
from seqlab.diagnostics.attention_maps import (
    Attended,
    Change,
    HeadFigures,
    attention_layers,
    attention_of,
    head_figures,
    loss_without,
    what_is_without,
)
from seqlab.pages.attention_charts import change_chart, head_maps, place_chart
from seqlab.pages.render import embedded, render
from seqlab.runs.run import Run, load
from seqlab.training.determinism import using_threads
from seqlab.workflows.diagnose.asked import check_page
from seqlab.workflows.diagnose.attended import Subject, subject_of

HEADER = ["head", "layer", "looks at", "entropy", "evenness", "distance", "loss without it", "95 % interval"]
RARE = 0.2  # of the tokens
NOTES = (
    "Entropy in nats; evenness: its share of the entropy of even attention; distance in tokens; loss: by how much it "
    "is higher when {without}, paired over the sequences, each interval for itself"
)


@dataclass(frozen=True, eq=False)
class HeadRow:
    number: str  # LAYER.HEAD
    layer: str  # path
    head: int
    figures: HeadFigures
    change: Change

    @property
    def place(self) -> str:
        """What it looks at; where few tokens have such a place, how many."""
        name, patterns = self.figures.looks_at, self.figures.patterns
        if not name:
            return "no one place"
        count = patterns[name].queries
        return name if count > RARE * max(p.queries for p in patterns.values()) else f"{name} ({count} tokens)"

    def words(self) -> list[str]:
        f, c = self.figures, self.change
        return [
            *(self.number, self.layer, self.place, f"{f.entropy:.2f}", f"{f.evenness:.2f}"),
            *("–" if f.distance is None else f"{f.distance:.1f}", f"{c.mean:+.4f}", f"{c.low:+.4f} to {c.high:+.4f}"),
        ]

    def as_json(self) -> dict[str, Any]:
        return {
            **{"number": self.number, "layer": self.layer, "head": self.head, "looks_at": self.figures.looks_at},
            **dataclasses.asdict(self.figures),
            "loss_without": dataclasses.asdict(self.change),
        }


@dataclass(frozen=True, eq=False)
class AttentionDiagnosis:
    run: str
    heads: list[HeadRow]
    loss: float
    unit: str
    basis: str
    notes: str  # what the columns are, of the layers that are there
    page: Path

    @property
    def answer(self) -> str:
        """The heads that matter, in a sentence or two."""
        most = max(self.heads, key=lambda row: row.change.mean)
        idle = sum(not row.change.settled for row in self.heads)
        spared = sum(row.change.high < 0 for row in self.heads)
        said = f"The loss is {self.loss:.4f} {self.unit}. "
        if most.change.low > 0:
            said += (
                f"Head {most.number} ({most.layer}) matters most: without it the loss is {most.change.mean:.4f} higher "
                f"({most.change.low:.4f} to {most.change.high:.4f}). "
            )
        else:
            said += "No single head raises the loss by a settled amount when it is switched off. "
        if len(self.heads) == 1:
            return said.strip()
        said += f"Of {len(self.heads)} heads {idle or 'none'} could be switched off without a settled change"
        return said + (f", {spared} with a settled gain." if spared else ".")

    def as_json(self) -> dict[str, Any]:
        heads = [row.as_json() for row in self.heads]
        facts = {"run": self.run, "basis": self.basis, "loss": self.loss, "unit": self.unit, "answer": self.answer}
        return {**facts, "heads": heads, "page": str(self.page)}


def diagnose_attention(
    run: str | Path,
    *,
    text: str | Path | None = None,
    out: str | Path | None = None,
    threads: int | None = None,
    reporter: Reporter | None = None,
    **asked: Any,
) -> AttentionDiagnosis:
    """Look at a run's attention on its own held-out data or on `text`; `asked` are the fields of AttentionSettings.

    Writes a page with pictures: `out`, or attention.html in the run folder.
    """
    settings = AttentionSettings(**asked)
    check_group(settings)
    page = Path(run) / "attention.html" if out is None else Path(out)
    check_page(page, asked=out is not None)
    reporter = reporter or Reporter()
    with using_threads(threads):
        loaded: Run = load(Path(run))
        paths = attention_layers(loaded.model)
        if not paths:
            raise UsageError(f"the run {run} is a {loaded.settings.model.kind}: it has no attention to look at")
        subject = subject_of(loaded, settings, text, reporter)
        weights = attention_of(loaded.model, lambda: subject.run(loaded.model))
        layers = [subject.attended(path, weights[path]) for path in paths]
        chosen = _chosen(settings.heads, layers)
        with torch.no_grad():
            before = subject.losses(loaded.model)
        rows = []
        with reporter.task("switching heads off", len(chosen)):
            for done, (number, head) in enumerate(chosen, 1):
                rows.append(_row(loaded, subject, layers[number], number, head, before))
                reporter.advance(done)
    basis = f"the run {loaded.name} (step {loaded.step:,}) on {subject.what}"
    notes = NOTES.format(without=what_is_without(loaded.model, [row.layer for row in rows]))
    found = AttentionDiagnosis(loaded.name, rows, float(before.double().mean()), subject.unit, basis, notes, page)
    write_text(page, _page(found, layers, settings.shown))
    return found


def _row(run: Run, subject: Subject, layer: Attended, number: int, head: int, before: torch.Tensor) -> HeadRow:
    change = loss_without(run.model, lambda: subject.losses(run.model), layer.name, head, before)
    return HeadRow(f"{number}.{head}", layer.name, head, head_figures(layer)[head], change)


def _chosen(listed: str, layers: list[Attended]) -> list[tuple[int, int]]:
    """(layer, head) of those that were named, or of all."""
    if not listed.strip():
        return [(number, head) for number, layer in enumerate(layers) for head in range(layer.heads)]
    found = []
    for part in listed.split(","):
        layer, dot, head = part.strip().partition(".")
        if not (dot and layer.isdecimal() and head.isdecimal()):
            raise UsageError(f"--heads {listed}: '{part.strip()}' is no LAYER.HEAD, such as 0.1")
        if int(layer) >= len(layers):
            raise UsageError(f"--heads {part.strip()}: there are {len(layers)} attention layers, counted from 0")
        here = layers[int(layer)]
        if int(head) >= here.heads:
            heads = f"{here.heads} head{'s' if here.heads > 1 else ''}"
            raise UsageError(f"--heads {part.strip()}: layer {layer} ({here.name}) has {heads}, counted from 0")
        found.append((int(layer), int(head)))
    return list(dict.fromkeys(found))


# --------------------------------------------------------------------------- the page


def _page(found: AttentionDiagnosis, layers: list[Attended], most: int) -> str:
    rows = found.heads
    names = [f"{row.number}  {row.layer}" for row in rows]
    places = list(dict.fromkeys(name for row in rows for name in row.figures.patterns))
    shares = np.full((len(rows), len(places)), np.nan)
    for number, row in enumerate(rows):
        for name, pattern in row.figures.patterns.items():
            shares[number, places.index(name)] = pattern.share
    means, lows, highs = ([getattr(row.change, name) for row in rows] for name in ("mean", "low", "high"))
    return render(
        "attention.html.j2",
        run=found.run,
        basis=found.basis,
        answer=found.answer,
        header=HEADER,
        rows=[row.words() for row in rows],
        notes=found.notes,
        changes=embedded(change_chart(names, means, lows, highs, found.unit)),
        places=embedded(place_chart(names, places, shares)),
        maps=[_maps(number, layer, rows, most) for number, layer in enumerate(layers) if _of(rows, layer)],
    )


def _of(rows: list[HeadRow], layer: Attended) -> list[HeadRow]:
    return [row for row in rows if row.layer == layer.name]


def _maps(number: int, layer: Attended, rows: list[HeadRow], most: int) -> dict[str, str]:
    """The sequence that is nearest to the size that can be drawn, cut to it; padding is not there."""
    sizes = torch.maximum(layer.queries.lengths, layer.keys.lengths)
    example = int((sizes - most).abs().argmin())
    queries, keys = (side.words[example][:most] for side in (layer.queries, layer.keys))
    own = _of(rows, layer)
    weights = layer.weights[example, [row.head for row in own], : len(queries), : len(keys)].numpy()
    titles = [f"{row.number}: {row.place}" for row in own]
    return {
        "name": f"Layer {number}: {layer.name}",
        "image": embedded(head_maps(titles, queries, keys, weights, "asks")),
    }
