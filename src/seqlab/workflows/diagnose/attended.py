"""What a run's attention is measured on: sequences with their words, their losses, and who asks whom."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from seqlab.core.errors import UsageError
from seqlab.core.reporting import Reporter
from seqlab.core.settings.diagnose import AttentionSettings
from seqlab.core.types import IGNORED, PaddedBatch
from seqlab.data.labelled import read_labelled, read_unlabelled
from seqlab.data.pair_batches import Pairs, Rows
from seqlab.data.parallel import is_table, read_parallel
from seqlab.data.words import read_words
from seqlab.diagnostics.attention_maps import Attended, Side
from seqlab.runs.run import Run
from seqlab.runs.task import Kept
from seqlab.workflows.classify.run import ClassifierRun
from seqlab.workflows.diagnose.readings import evenly, readable_length, rows_of, text_ids
from seqlab.workflows.lm.run import LMRun
from seqlab.workflows.translate.run import TranslatorRun

BEGIN, END, WHOLE = "⊢", "⊣", "the text"
Sees = Literal["all", "past", "before"]
BLANKS = {" ": "␣", "\n": "↵", "\t": "⇥"}


@dataclass(frozen=True)
class Subject:
    run: Callable[[Any], Any]  # a forward pass of a model
    losses: Callable[[Any], Tensor]  # the loss of each sequence for a model, (B,)
    sides: Callable[[str], tuple[Side, Side, Sees]]  # of the layer at a path: who asks, who is asked, what is seen
    what: str  # "64 sequences of …"
    unit: str  # of the loss

    def attended(self, path: str, weights: Tensor) -> Attended:
        queries, keys, sees = self.sides(path)
        return Attended(path, weights, queries, keys, sees)


def subject_of(run: Run, settings: AttentionSettings, text: Any, reporter: Reporter) -> Subject:
    if isinstance(run, LMRun):
        return _of_text(run, settings, text, reporter)
    if isinstance(run, ClassifierRun):
        return _of_labelled(run, settings, text, reporter)
    if isinstance(run, TranslatorRun):
        return _of_pairs(run, settings, text, reporter)
    raise UsageError(f"the run {run.name} is of a kind whose attention is not known: {run.task.kind}")


def shown(piece: str) -> str:
    """A token as it can be drawn: blanks alone are named."""
    if piece and not piece.strip():
        return "".join(BLANKS.get(mark, "␣") for mark in piece[:3])
    return piece.strip().replace("\n", "↵") or "·"


# --------------------------------------------------------------------------- language models


def _of_text(run: LMRun, settings: AttentionSettings, text: Any, reporter: Reporter) -> Subject:
    ids, where = text_ids(run, text, reporter)
    most = len(ids) // 2 - 1
    if most < 2:
        tokens = f"{len(ids):,} token{'' if len(ids) == 1 else 's'}"
        raise UsageError(f"{where} has {tokens}: attention needs two sequences of two tokens and one to predict: 6")
    length = min(readable_length(run, settings.length, reporter), most)
    rows = rows_of(ids, length + 1, settings.sequences)
    inputs, wanted = rows[:, :-1], rows[:, 1:]
    words = [[shown(run.tokenizer.decode([int(k)])) for k in row] for row in inputs]
    side = Side(inputs, torch.full((len(rows),), length), words)

    def losses(model: Any) -> Tensor:
        logits, _ = model(inputs)
        return F.cross_entropy(logits.transpose(1, 2), wanted, reduction="none").mean(1)

    sees: Sees = "before" if run.settings.model.kind == "attentive-rnn" else "past"  # h_l, l < t
    what = f"{len(rows)} sequences of {length} tokens from {where}"
    return Subject(lambda model: model(inputs), losses, lambda _path: (side, side, sees), what, "nats per token")


# --------------------------------------------------------------------------- classifiers


def _of_labelled(run: ClassifierRun, settings: AttentionSettings, text: Any, reporter: Reporter) -> Subject:
    if run.settings.model.kind == "average":
        raise UsageError(f"the run {run.name} is an average of words: it attends to nothing")
    texts, truth, where = _texts(run, text, reporter)
    read: Any = run.reader.read(texts)
    chosen = evenly(read.sizes > 1, settings.sequences)
    if len(chosen) < 2:
        raise UsageError(f"{where} has fewer than two texts with a word in them")
    spelt = [_words(run, texts[k])[: settings.length] for k in chosen]
    sizes = np.minimum(read.sizes[chosen], settings.length)
    whole = read.batch(chosen)
    ids = whole.ids[:, : int(sizes.max())]
    batch = PaddedBatch(ids, torch.from_numpy(sizes))
    side = Side(ids, batch.lengths, spelt)
    summing = Side(
        torch.zeros(len(ids), 1, dtype=torch.long), torch.ones(len(ids), dtype=torch.long), [[WHOLE]] * len(ids)
    )
    if truth is None:
        with torch.no_grad():
            right = run.model(batch).argmax(-1)
    else:
        right = torch.tensor([truth[k] for k in chosen])

    def sides(path: str) -> tuple[Side, Side, Sees]:
        return (summing if path.startswith("pooling") else side, side, "all")

    of = "their own decisions" if truth is None else "their labels"
    what = (
        f"{len(ids)} texts of {where}, at most the first {settings.length - 1} words of each; the loss is that of {of}"
    )
    return Subject(
        lambda model: model(batch),
        lambda model: F.cross_entropy(model(batch), right, reduction="none"),
        sides,
        what,
        "nats per text",
    )


def _texts(run: ClassifierRun, text: Any, reporter: Reporter) -> tuple[Sequence[str], list[int] | None, str]:
    """Texts with their classes: those of the test part, or of a table; the lines of a file have none."""
    data = run.settings.data
    if text is None:
        prepared: Any = run.task.prepare(run.settings, reporter, Kept(run.kept, run.record["checksums"]))
        return prepared.texts("test"), [int(k) for k in prepared.truth[prepared.rows("test")]], "the test part"
    name = Path(str(text)).name
    if not is_table(str(text)):
        return read_unlabelled(str(text), encoding=data.encoding)[0], None, name
    columns = {field: getattr(data, field) or None for field in ("text", "label")}
    try:
        source = read_labelled(str(text), **columns, encoding=data.encoding)
    except UsageError:
        raise UsageError(f"{name} has other columns than the data of the run {run.name}; give it the same") from None
    for label in source.labels:
        if label not in run.labels:
            raise UsageError(f"{name} has the label '{label}', which the run {run.name} does not know")
    return source.texts, [run.labels.index(label) for label in source.labels], name


def _words(run: ClassifierRun, text: str) -> list[str]:
    """As the reader cuts them: of a long text the first and the last."""
    found = read_words([text])
    spelt = [text.lower()[start:end] for start, end in zip(found.starts, found.ends, strict=True)]
    most = run.settings.model.length
    if most is not None and len(spelt) > most:
        spelt = [*spelt[: most - most // 2], *spelt[len(spelt) - most // 2 :]]
    return [BEGIN, *spelt]


# --------------------------------------------------------------------------- translators


def _of_pairs(run: TranslatorRun, settings: AttentionSettings, text: Any, reporter: Reporter) -> Subject:
    pairs, candidates, where = _pairs(run, text, settings.length, reporter)
    sizes = np.maximum(*pairs.sizes)
    fitting = np.zeros(len(pairs), bool)
    fitting[candidates] = (sizes[candidates] <= settings.length) & (np.minimum(*pairs.sizes)[candidates] > 1)
    chosen = evenly(fitting, settings.sequences)
    if len(chosen) < 2:
        raise UsageError(f"{where} has fewer than two pairs of 2 to {settings.length} pieces; give more or a --length")
    batch = pairs.batch(chosen)
    counts = (batch.targets != IGNORED).sum(1)
    names = run.languages.targets

    def spelt(ids: Tensor, lengths: Tensor) -> list[list[str]]:
        return [[_piece(run, int(k), names) for k in row[:size]] for row, size in zip(ids, lengths, strict=True)]

    source = Side(batch.source.ids, batch.source.lengths, spelt(batch.source.ids, batch.source.lengths))
    target = Side(batch.inputs, counts, spelt(batch.inputs, counts))

    def sides(path: str) -> tuple[Side, Side, Sees]:
        if path.startswith("encoder"):
            return source, source, "all"
        own = path.startswith("decoder") and path.endswith(".attention")
        return (target, target, "past") if own else (target, source, "all")

    what = f"{len(chosen)} pairs of {where}, at most {settings.length} pieces long"
    return Subject(
        lambda model: model.nats(batch),
        lambda model: model.nats_of_rows(batch) / counts,
        sides,
        what,
        "nats per piece",
    )


def _piece(run: TranslatorRun, k: int, names: Sequence[str]) -> str:
    if k == run.tokenizer.end_id:
        return END
    first = run.tokenizer.begin_id
    return f"→{names[k - first]}" if k >= first else shown(run.tokenizer.decode([k]))


def _pairs(run: TranslatorRun, text: Any, length: int, reporter: Reporter) -> tuple[Pairs, NDArray[np.int64], str]:
    """Validation pairs of the run, those of a table, or the lines of a file with the run's own translations."""
    if text is None:
        data: Any = run.task.prepare(run.settings, reporter, Kept(run.kept, run.record["checksums"]))
        return data.pairs, data.pairs_of("validation"), f"the validation part of {data.parallel.name}"
    name, names = Path(str(text)).name, run.languages.targets
    if is_table(str(text)):
        read = read_parallel(str(text), source=run.languages.source, to=names)
        sources, targets = list(read.sources), {to: list(read.targets[to]) for to in names}
    else:
        lines = [line for line in read_unlabelled(str(text))[0] if line.strip()]
        sizes = [len(ids) + 1 for ids in run.tokenizer.encode_each(lines)]
        sources = [line for line, size in zip(lines, sizes, strict=True) if size <= length]
        if len(sources) < 2:
            raise UsageError(f"{name} has fewer than two lines of 1 to {length - 1} pieces; give more or a --length")
        targets = {to: run.translate(sources, to, beam=1) for to in names}
        name += ", with the run's own translations"
    encoded = [Rows.of(run.tokenizer.encode_each([t or "" for t in some])) for some in (sources, *targets.values())]
    count, kinds = len(sources), len(names)
    end, first_tag = run.tokenizer.end_id, run.tokenizer.begin_id
    assert end is not None
    places = np.tile(np.arange(count), kinds)
    pairs = Pairs(encoded[0], tuple(encoded[1:]), places, np.repeat(np.arange(kinds), count), end, first_tag)
    return pairs, np.arange(len(pairs)), name
