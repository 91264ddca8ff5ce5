"""`diagnose approximation`: separable and random-feature attention beside softmax, and beside uniform attention."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from seqlab.core.errors import UsageError
from seqlab.core.files import write_text
from seqlab.core.reporting import Reporter
from seqlab.core.seeding import torch_generator
from seqlab.core.settings.diagnose import DIRECTIONS, DRAWN_ONLY, ApproximationSettings, AttentionSettings
from seqlab.core.settings.fields import check_group
from seqlab.diagnostics.approximation import (
    Approximated,
    Draw,
    Heads,
    Method,
    judged,
    methods_of,
    sequence_errors,
)
from seqlab.diagnostics.attention_maps import Side
from seqlab.diagnostics.drawing import normal
from seqlab.diagnostics.kernel_variance import Variance, kernel_variance
from seqlab.diagnostics.queries_and_keys import Asked, asked_of, layers_with_heads
from seqlab.runs.run import Run, load
from seqlab.training.determinism import using_threads
from seqlab.workflows.diagnose.approximation_page import approximation_page
from seqlab.workflows.diagnose.approximation_words import answer, sentence
from seqlab.workflows.diagnose.asked import check_page
from seqlab.workflows.diagnose.attended import Subject, subject_of

PAGE = "approximation.html"


@dataclass(frozen=True, eq=False)
class Case:
    """One head of a run, or one width and logit scale of drawn queries and keys."""

    number: str  # LAYER.HEAD, or what was asked
    group: str  # the layer's path, or the width
    width: int
    scale: float | None  # of drawn queries and keys, as it was asked
    found: Approximated
    variances: list[Variance]  # none where no pair can be measured

    def as_json(self) -> dict[str, Any]:
        return {
            **{"number": self.number, "group": self.group, "width": self.width, "scale_asked": self.scale},
            **self.found.as_json(),
            "variance_of_the_kernel": [variance.as_json() for variance in self.variances],
            "sentence": sentence(self),
        }


@dataclass(frozen=True, eq=False)
class Approximation:
    cases: list[Case]
    basis: str
    of_run: bool
    page: Path

    @property
    def answer(self) -> str:
        return answer(self.cases, of_run=self.of_run)

    @property
    def sentences(self) -> list[str]:
        return [sentence(case) for case in self.cases]

    def as_json(self) -> dict[str, Any]:
        cases = [case.as_json() for case in self.cases]
        return {"basis": self.basis, "answer": self.answer, "cases": cases, "page": str(self.page)}


def diagnose_approximation(
    run: str | Path | None = None,
    *,
    text: str | Path | None = None,
    out: str | Path | None = None,
    threads: int | None = None,
    reporter: Reporter | None = None,
    **asked: Any,
) -> Approximation:
    """On the queries and keys of a run, on its own held-out data or on `text`; without a run on drawn ones.

    `asked` are the fields of ApproximationSettings. Writes a page with pictures: `out`, or approximation.html in the
    run folder, or here.
    """
    settings = ApproximationSettings(**asked)
    check_group(settings)
    _check_asked(run, text, asked)
    page = Path(out) if out is not None else Path(run or ".") / PAGE
    check_page(page, asked=out is not None or run is None)
    reporter = reporter or Reporter()
    with using_threads(threads):
        if run is None:
            cases, basis = _drawn(settings, reporter)
        else:
            cases, basis = _of_run(load(Path(run)), settings, text, reporter)
    found = Approximation(cases, basis, run is not None, page)
    write_text(page, approximation_page(found))
    return found


def _check_asked(run: Any, text: Any, asked: dict[str, Any]) -> None:
    if run is None and text is not None:
        raise UsageError(f"--text {text} is read by a run; name one, or leave --text out")
    for name in DRAWN_ONLY if run is not None else ():
        if name in asked:
            raise UsageError(f"--{name} is for drawn queries and keys; those of a run are as they are: leave it out")


# --------------------------------------------------------------------------- drawn queries and keys


def _drawn(settings: ApproximationSettings, reporter: Reporter) -> tuple[list[Case], str]:
    scales, cases = settings.every_scale, []
    with reporter.task("approximating attention", len(settings.every_width) * (len(scales) + 1)):
        for step, width in enumerate(settings.every_width):
            found = []
            for number, scale in enumerate(scales):
                reporter.advance(step * (len(scales) + 1) + number)
                sequences = drawn_sequences(settings, width, scale)
                found += _judged(sequences, settings, ("drawn", width, scale))
            reporter.advance(step * (len(scales) + 1) + len(scales))
            variances = _variances(found, settings)
            for scale, one, own in zip(scales, found, variances, strict=True):
                cases.append(Case(f"d = {width}, logit scale {scale:g}", f"width d = {width}", width, scale, one, own))
    basis = (
        f"queries and keys drawn from N(0, s²I) such that logits qᵀk/√d have the given standard deviation; "
        f"{settings.sequences} sequences of {settings.length} queries and {settings.length} keys"
        f"{', causal' if settings.causal else ''}, {settings.draws} draws of directions for each; seed {settings.seed}"
    )
    return cases, basis


def drawn_sequences(settings: ApproximationSettings, width: int, scale: float) -> list[Heads]:
    """q, k ~ N(0, s²I), s² = scale: the logits qᵀk/√d have the standard deviation s²."""
    found = []
    for number in range(settings.sequences):
        draw = torch_generator(settings.seed, "queries and keys", width, number)
        q, k = (scale**0.5 * normal(draw, 1, settings.length, width) for _ in range(2))
        found.append(Heads(q, k, causal=settings.causal))
    return found


# --------------------------------------------------------------------------- those of a run


def _of_run(run: Run, settings: ApproximationSettings, text: Any, reporter: Reporter) -> tuple[list[Case], str]:
    layers = layers_with_heads(run.model)
    if not layers:
        raise UsageError(f"the run {run.name} is a {run.settings.model.kind}: it has no attention to approximate")
    settings.refuse_too_much(sum(layer.n_heads for layer in layers.values()))
    wanted = AttentionSettings(length=settings.length, sequences=settings.sequences)
    subject = subject_of(run, wanted, text, reporter)
    asked = asked_of(run.model, lambda: subject.run(run.model))
    cases = []
    with reporter.task("approximating attention", len(layers)):
        for number, path in enumerate(layers):
            reporter.advance(number)
            found = _judged(run_sequences(subject, path, asked[path]), settings, ("run", path))
            for head, (one, own) in enumerate(zip(found, _variances(found, settings), strict=True)):
                width = layers[path].head_width
                cases.append(Case(f"{number}.{head}", path, width, None, one, own))
    kinds = [layer.kind for layer in layers.values() if layer.kind != "softmax"]
    note = (
        f"; the run's own attention is '{kinds[0]}': measured is the softmax of its queries and keys" if kinds else ""
    )
    basis = f"the run {run.name} (step {run.step:,}) on {subject.what}; {settings.draws} draws of directions for each"
    return cases, f"{basis}; seed {settings.seed}{note}"


def run_sequences(subject: Subject, path: str, asked: Asked) -> list[Heads]:
    """Every sequence of a layer without its padding; those in which no query has a choice say nothing."""
    queries, keys, _ = subject.sides(path)
    found = [
        Heads(q[:, :many], k[:, :seen], v[:, :seen], asked.causal)
        for q, k, v, many, seen in zip(asked.q, asked.k, asked.v, _sizes(queries), _sizes(keys), strict=True)
    ]
    return [heads for heads in found if bool(heads.choosing.any())]


def _sizes(side: Side) -> list[int]:
    return [int(length) for length in side.lengths]


# --------------------------------------------------------------------------- measuring


def _judged(sequences: Sequence[Heads], settings: ApproximationSettings, place: tuple[Any, ...]) -> list[Approximated]:
    """Every head over all sequences; each sequence has directions of its own, so that all are independent."""
    if len(sequences) < 2:
        raise UsageError("an interval needs two sequences in which a query sees two keys; give a longer text")
    methods = methods_of(settings.every_m, DIRECTIONS[settings.directions])
    errors = []
    for number, heads in enumerate(sequences):
        draw = _streams(settings.seed, *place, number)
        errors.append(sequence_errors(heads, methods, settings.draws, draw))
    return [judged(errors, sequences, head) for head in range(len(sequences[0].q))]


def _streams(seed: int, *place: Any) -> Draw:
    """Each method has a stream of its own: what else is measured changes no figure."""

    def stream(method: Method) -> torch.Generator:
        return torch_generator(seed, *map(str, place), method.kind, method.features, str(method.orthogonal))

    return stream


def _variances(found: Sequence[Approximated], settings: ApproximationSettings) -> list[list[Variance]]:
    """For each of some heads of one width, the variance of the kernel with every m and kind of directions."""
    each: list[list[Variance]] = [[] for _ in found]
    for orthogonal in DIRECTIONS[settings.directions]:
        for m in settings.every_m:
            draw = torch_generator(settings.seed, "kernel", m, str(orthogonal))
            some = kernel_variance([one.pairs for one in found], m, orthogonal=orthogonal, generator=draw)
            for own, variance in zip(each, some, strict=True):
                own += [] if variance is None else [variance]
    return each
