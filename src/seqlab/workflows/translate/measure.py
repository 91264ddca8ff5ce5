"""Figures of a translator: loss and translations of held-out sentences, beside copying the source."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from seqlab.core.memory import give_back
from seqlab.core.reporting import Reporter
from seqlab.core.types import IGNORED, PairBatch
from seqlab.evaluation.translation import Difference, TranslationFigures, bleu_of, difference_of, figures_of
from seqlab.training.objectives import Score
from seqlab.workflows.translate.data import Prepared
from seqlab.workflows.translate.interpreter import NOTHING, Interpreter, Translation
from seqlab.workflows.translate.run import TranslatorRun

QUICK_PAIRS = 400  # scored on the way
QUICK_SENTENCES = 48  # translated on the way, greedily
TOKENS_AT_ONCE, PIECE = 2_000, 256  # tokens scored together; of one very long target
BATCHES_HELD = 8  # batches of different shapes leave holes in the memory, which is then given back
VALIDATION_BLEU, VALIDATION_BITS = "validation_bleu", "validation_bits_per_byte"
COPYING = "copying the source"

Places = NDArray[np.int64]


def some_of(places: Places, count: int) -> Places:
    """At most so many, evenly spaced."""
    if len(places) <= count:
        return places
    return places[np.linspace(0, len(places) - 1, count).astype(np.int64)]


@torch.inference_mode()
def nats_of_each(model: Any, data: Prepared, pairs: Places) -> NDArray[np.float64]:
    """Σ −ln p of each target, in the order of the pairs; pairs of similar length are read together."""
    found = np.zeros(len(pairs))
    sizes = np.maximum(*data.pairs.sizes)[pairs]
    order = np.argsort(-sizes, kind="stable")
    start = done = 0
    while start < len(order):
        places = order[start : start + max(1, TOKENS_AT_ONCE // int(sizes[order[start]]))]
        batch = data.pairs.batch(pairs[places])
        nats = model.nats_of_rows(batch) if len(places) > 1 else nats_in_pieces(model, batch)
        found[places] = nats.double().numpy()
        start, done = start + len(places), done + 1
        if done % BATCHES_HELD == 0:
            give_back()
    return found


def read_longest(model: Any, data: Prepared) -> None:
    """The longest validation pairs, as many as are read at once."""
    pairs = data.pairs_of("validation")
    sizes = np.maximum(*data.pairs.sizes)[pairs]
    longest = np.argsort(-sizes, kind="stable")
    nats_of_each(model, data, pairs[longest[: max(1, TOKENS_AT_ONCE // int(sizes[longest[0]]))]])


def nats_in_pieces(model: Any, batch: PairBatch) -> torch.Tensor:
    """The same, the target read piece by piece: of a very long one no matrix of target × source is held.    (B,)"""
    memory, state = model.encode(batch.source), None
    total = torch.zeros(len(batch.inputs), dtype=torch.float64)
    for start in range(0, batch.inputs.shape[1], PIECE):
        inputs, targets = (ids[:, start : start + PIECE] for ids in (batch.inputs, batch.targets))
        logits, state = model(inputs, memory, state)
        logs = torch.log_softmax(logits.double(), -1).gather(-1, targets.clamp(min=0)[..., None])[..., 0]
        total -= (logs * (targets != IGNORED)).sum(1)
    return total


def nats_of_pairs(model: Any, data: Prepared, pairs: Places) -> tuple[float, int]:
    """Σ −ln p of the targets, and how many pieces they have, ends included."""
    return float(nats_of_each(model, data, pairs).sum()), int(data.pairs.sizes[1][pairs].sum())


def bytes_of_pairs(data: Prepared, pairs: Places) -> NDArray[np.int64]:
    """UTF-8 bytes of each target."""
    texts = list(data.parallel.targets.values())
    both = zip(data.pairs.source[pairs], data.pairs.target[pairs], strict=True)
    return np.array([len(texts[target][row].encode()) for row, target in both], np.int64)


def quick_validation(model: Any, data: Prepared) -> Score:
    """Nats per piece of some validation pairs, and the BLEU of some greedy translations."""
    chosen = some_of(data.pairs_of("validation"), QUICK_PAIRS)
    total, count = nats_of_pairs(model, data, chosen)
    bits = total / math.log(2) / bytes_of_pairs(data, chosen).sum()
    give_back()
    interpreter = Interpreter(model, data.tokenizer, data.languages)
    translations: list[str] = []
    references: list[str] = []
    for number, name in enumerate(data.languages.targets):
        rows = some_of(data.rows_of("validation", number), -(-QUICK_SENTENCES // len(data.languages.targets)))
        found = interpreter.hypotheses(interpreter.encode(data.sources(rows)), name, beam=1)
        translations += [some[0].text for some in found]
        references += data.references(rows, number)
    return Score(total / count, {VALIDATION_BLEU: bleu_of(translations, references), VALIDATION_BITS: float(bits)})


@dataclass(frozen=True)
class MeasuredTarget:
    """One target on one part."""

    name: str
    rows: Places
    translations: list[str]
    nats: float
    pieces: int
    bytes: int  # of the references
    figures: TranslationFigures
    copying: TranslationFigures
    ahead: Difference  # of copying, in BLEU
    unfinished: int  # translations that reached the limit

    def as_json(self) -> dict[str, Any]:
        return {
            "target": self.name,
            **self.figures.as_json(),
            "pieces": self.pieces,
            "nats_per_piece": self.nats / self.pieces,
            "perplexity_per_piece": math.exp(min(self.nats / self.pieces, 700.0)),
            "bits_per_byte": self.nats / (math.log(2) * self.bytes),
            "perplexity_per_byte": math.exp(self.nats / self.bytes),
            "unfinished": self.unfinished,
            "copying": self.copying.as_json(),
            "ahead_of_copying": self.ahead.as_json(),
        }


def measure_part(run: TranslatorRun, data: Prepared, part: str, reporter: Reporter, **how: Any) -> list[MeasuredTarget]:
    """Every target of a part."""
    together: dict[bytes, list[int]] = {}  # targets that have the same rows
    for number in range(len(data.languages.targets)):
        together.setdefault(data.rows_of(part, number).tobytes(), []).append(number)
    measured: dict[int, MeasuredTarget] = {}
    for numbers in together.values():
        rows = data.rows_of(part, numbers[0])
        if len(rows):
            found = _translated(run, data, part, numbers, rows, reporter, **how)
            measured |= {number: _measured(run, data, part, number, rows, some) for number, some in found.items()}
    return [measured[number] for number in sorted(measured)]


def _translated(
    run: TranslatorRun, data: Prepared, part: str, numbers: list[int], rows: Places, reporter: Reporter, **how: Any
) -> dict[int, list[Translation]]:
    """The best translation of every row into some targets. A source is encoded once; few encodings are held at once."""
    names = {number: data.languages.targets[number] for number in numbers}
    found = {number: [NOTHING] * len(rows) for number in numbers}
    done = 0
    with reporter.task(f"translating the {part} sentences into {', '.join(names.values())}", len(rows) * len(numbers)):
        for encoding in run.interpreter.encode_in_turn(data.sources(rows)):
            for number, name in names.items():
                some = run.hypotheses(encoding, name, **how)
                for batch in encoding.batches:
                    for place in batch.places:
                        found[number][place] = some[place][0]
                    done += len(batch.places)
                reporter.advance(done)
            give_back()
    return found


def _measured(
    run: TranslatorRun, data: Prepared, part: str, number: int, rows: Places, found: list[Translation]
) -> MeasuredTarget:
    translations = [one.text for one in found]
    sources, references = data.sources(rows), data.references(rows, number)
    total, count = nats_of_pairs(run.model, data, data.pairs_of(part, number))
    return MeasuredTarget(
        name=data.languages.targets[number],
        rows=rows,
        translations=translations,
        nats=total,
        pieces=count,
        bytes=sum(len(text.encode()) for text in references),
        figures=figures_of(translations, references, sources),
        copying=figures_of(sources, references, sources),
        ahead=difference_of(translations, sources, references),
        unfinished=sum(not one.ended for one in found),
    )


def measure_run(run: TranslatorRun, data: Prepared, reporter: Reporter) -> dict[str, Any]:
    """The last line of a run: losses on both held-out parts, and translations of the test sentences, scored once."""
    pairs = data.pairs_of("validation")
    total, count = nats_of_pairs(run.model, data, pairs)
    measured = measure_part(run, data, "test", reporter)
    run.measured["test"] = measured
    tested = [sum(getattr(one, name) for one in measured) for name in ("nats", "pieces", "bytes")]
    best = max(measured, key=lambda one: one.figures.bleu.score)
    return {
        "validation": _loss(total, count, int(bytes_of_pairs(data, pairs).sum())),
        "test": _loss(*tested),
        "targets": [one.as_json() for one in measured],
        "verdict": [verdict(one) for one in measured],
        "headline": {"label": f"BLEU (test, {best.name})", "value": best.figures.bleu.score},
    }


def _loss(nats: float, pieces: int, target_bytes: int) -> dict[str, Any]:
    bits = nats / (math.log(2) * target_bytes)
    return {"pieces": pieces, "nats_per_piece": nats / pieces, "bits_per_byte": bits}


def verdict(one: MeasuredTarget) -> str:
    """In plain words: is it better than copying the source?"""
    low, high = one.ahead.interval
    warned = f"; {one.ahead.caution}" if one.ahead.caution else ""
    reach = f"{abs(one.ahead.value):.1f} BLEU on {one.ahead.n:,} sentences (95 %: {low:+.1f} to {high:+.1f}{warned})"
    if low <= 0 <= high:
        return f"{one.name}: {reach} from copying the source, which could well be luck"
    if one.ahead.value < 0:
        return f"{one.name}: BEHIND copying the source by {reach}: copying wins"
    return f"{one.name}: ahead of copying the source by {reach}"


def table_rows(targets: Sequence[dict[str, Any]]) -> list[list[str]]:
    """The table of a run: each target, and copying the source below it."""
    rows = []
    for one in targets:
        rows.append([one["target"], *_scores(one), f"{one['perplexity_per_byte']:.3f}"])
        rows.append([f"  {COPYING}", *_scores(one["copying"]), ""])
    return rows


TABLE_HEADER = ["target", "BLEU", "95 % interval", "chrF", "length", "repeated", "copied", "perplexity/byte"]


def _scores(one: dict[str, Any]) -> list[str]:
    low, high = one["interval"]
    shares = [f"{100 * one[name]:.1f} %" for name in ("repeated", "copied")]
    return [
        f"{one['bleu']:.2f}",
        f"{low:.1f} to {high:.1f}",
        f"{one['chrf']:.2f}",
        f"{one['length_ratio']:.3f}",
        *shares,
    ]
