"""What a run of each kind is examined on: sequences of one length, and the loss at their end."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from seqlab.core.errors import UsageError
from seqlab.core.reporting import Reporter
from seqlab.core.traits import traits_of
from seqlab.core.types import PaddedBatch
from seqlab.core.units import parse_split
from seqlab.data.labelled import read_labelled
from seqlab.data.normalise import normalise
from seqlab.data.pair_batches import Pairs, Rows
from seqlab.data.prepare import read_slice, split_bounds
from seqlab.data.sources import open_text
from seqlab.diagnostics.gradient_flow import last_losses
from seqlab.runs.run import Run
from seqlab.runs.task import Kept
from seqlab.workflows.classify.run import ClassifierRun
from seqlab.workflows.lm.run import LMRun
from seqlab.workflows.translate.data import Prepared
from seqlab.workflows.translate.run import TranslatorRun

SHORTEST = 3  # positions


@dataclass(frozen=True)
class Reading:
    """Each function takes a model. `losses`: of some sequences each, the loss at their end, () -> (b,)"""

    losses: Callable[[Any], Sequence[Callable[[], Tensor]]]
    mean: Callable[[Any], Tensor]
    run: Callable[[Any], Any]  # a forward pass alone
    what: str  # "16 sequences of 200 tokens from …"
    ids: Tensor | None = None  # of a language model


def reading_of(run: Run, length: int, sequences: int, text: Any, reporter: Reporter) -> Reading:
    """For a run of any kind; `text` is another text than its own."""
    if isinstance(run, LMRun):
        return _of_text(run, length, sequences, text, reporter)
    if text is not None:
        raise UsageError(f"--text is for language models; {run.name} is examined on its own data")
    if isinstance(run, ClassifierRun):
        return _of_labelled(run, length, sequences)
    if isinstance(run, TranslatorRun):
        return _of_pairs(run, length, sequences, reporter)
    raise UsageError(f"the run {run.name} is of a kind that the doctor does not know: {run.task.kind}")


# --------------------------------------------------------------------------- language models


def token_reading(ids: Tensor, where: str) -> Reading:
    """ids (B, T + 1)"""
    batch, time = ids.shape

    def mean(model: Any) -> Tensor:
        logits, _ = model(ids[:, :-1])
        return F.cross_entropy(logits.flatten(0, 1), ids[:, 1:].flatten())

    what = f"{batch} sequences of {time - 1} {where}"
    return Reading(lambda model: last_losses(model, ids), mean, lambda model: model(ids[:, :-1]), what, ids)


def _of_text(run: LMRun, length: int, sequences: int, text: Any, reporter: Reporter) -> Reading:
    ids, where = text_ids(run, text, reporter)
    length = readable_length(run, length, reporter)
    possible = len(ids) // (length + 1)
    if possible < 2:
        raise UsageError(
            f"{where} has {len(ids):,} tokens: too few for two sequences of {length + 1}; give a smaller --length or "
            "another --text"
        )
    return token_reading(rows_of(ids, length + 1, sequences), f"tokens from {where}")


def readable_length(run: LMRun, length: int, reporter: Reporter) -> int:
    """At most what the model reads at a time."""
    window = traits_of(run.model).max_positions or traits_of(run.model).window
    if window is None or window >= length:
        return length
    reporter.note(f"the model reads {window} positions at a time: --length is {window}, not {length}")
    return window


def text_ids(run: LMRun, text: Any, reporter: Reporter) -> tuple[NDArray[np.int64], str]:
    """The tokens of a text, or of the run's own validation part, and what they are called."""
    data = run.settings.data
    with reporter.downloading() as progress:
        if text is None:
            opened = open_text(data.text, data.encoding, data.glob, progress=progress)
        else:
            opened = open_text(str(text), data.encoding, progress=progress)
    bounds, where = (0, opened.bytes), opened.name
    if text is None:
        bounds, where = split_bounds(opened, parse_split(data.split))["validation"], f"the validation part of {where}"
    content = normalise(read_slice(opened, bounds), run.steps).text
    return np.asarray(run.tokenizer.encode(content).ids, np.int64), where


def rows_of(ids: NDArray[np.int64], length: int, rows: int) -> Tensor:
    """At most so many rows of one length, evenly spaced in a text.    (B, length)"""
    possible = len(ids) // length
    chosen = np.linspace(0, possible - 1, min(rows, possible)).astype(int)
    return torch.from_numpy(np.stack([ids[k * length : (k + 1) * length] for k in chosen]))


# --------------------------------------------------------------------------- classifiers and translators


def _of_labelled(run: ClassifierRun, length: int, sequences: int) -> Reading:
    """Texts of the run's data that are long enough, their first words each; the loss is that of their own label."""
    data = run.settings.data
    columns = {name: getattr(data, name) or None for name in ("text", "label", "group")}
    source = read_labelled(data.data, **columns, encoding=data.encoding)
    if run.settings.model.kind == "average":
        raise UsageError(f"the run {run.name} is an average of words: nothing is carried over time")
    rows: Any = run.reader.read(source.texts)
    length = _common_length(rows.sizes, length, sequences)
    chosen = evenly(rows.sizes >= length, sequences)
    ids = torch.from_numpy(np.stack([rows.ids[rows.offsets[k] : rows.offsets[k] + length] for k in chosen]))
    batch = PaddedBatch(ids, torch.full((len(ids),), length))
    truth = torch.tensor([run.labels.index(source.labels[k]) for k in chosen])

    def last(model: Any) -> Tensor:
        return F.cross_entropy(model(batch), truth, reduction="none")

    what = f"{len(ids)} texts of {source.name}, the first {length - 1} words of each"
    return Reading(
        lambda model: [partial(last, model)], lambda model: last(model).mean(), lambda model: model(batch), what
    )


def _of_pairs(run: TranslatorRun, length: int, sequences: int, reporter: Reporter) -> Reading:
    """Validation pairs that are long enough, their first pieces each; the loss is that of the last piece."""
    data: Prepared = run.task.prepare(run.settings, reporter, Kept(run.kept, run.record["checksums"]))
    pairs = data.pairs
    candidates = data.pairs_of("validation")
    sizes = np.minimum(*pairs.sizes)[candidates] - 1
    length = _common_length(sizes, length, sequences)
    chosen = candidates[evenly(sizes >= length, sequences)]
    sources = Rows.of([pairs.sources[pairs.source[p]][:length].astype(np.int64) for p in chosen])
    targets = Rows.of([pairs.targets[pairs.target[p]][pairs.source[p]][:length].astype(np.int64) for p in chosen])
    everyone = np.arange(len(chosen))
    cut = Pairs(sources, (targets,) * len(pairs.targets), everyone, pairs.target[chosen], pairs.end, pairs.first_tag)
    batch = cut.batch(everyone)
    inputs, wanted = batch.inputs[:, :length], batch.targets[:, length - 1]

    def run_model(model: Any) -> Any:
        return model(inputs, model.encode(batch.source))

    def last(model: Any) -> Tensor:
        return F.cross_entropy(run_model(model)[0][:, -1], wanted, reduction="none")

    what = f"{len(chosen)} validation pairs of {data.parallel.name}, the first {length} pieces of each"
    return Reading(lambda model: [partial(last, model)], lambda model: model.nats(batch) / batch.count, run_model, what)


def _common_length(sizes: NDArray[np.int64], length: int, sequences: int) -> int:
    """The largest, up to `length`, that so many have, or half of all if there are fewer."""
    enough = min(sequences, max(2, len(sizes) // 2))
    if len(sizes) < 2:
        raise UsageError("there are fewer than two sequences to examine the model on")
    found = min(length, int(np.sort(sizes)[-enough]))
    if found < SHORTEST:
        raise UsageError(f"the sequences are too short: most have fewer than {SHORTEST} positions")
    return found


def evenly(possible: NDArray[np.bool_], sequences: int) -> NDArray[np.int64]:
    """Evenly spaced among those that are possible."""
    places = np.flatnonzero(possible)
    found: NDArray[np.int64] = places[np.linspace(0, len(places) - 1, min(sequences, len(places))).astype(int)]
    return found
