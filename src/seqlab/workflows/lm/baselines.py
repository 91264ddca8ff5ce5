"""What a run has to beat: simple methods on the very text of its headline, in the text's own bytes."""

from __future__ import annotations

import contextlib
import json
import math
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import seqlab
from seqlab.core.cache import cache_folder
from seqlab.core.errors import SeqlabError
from seqlab.core.files import canonical_json, make_folder, sha256_of, write_bytes
from seqlab.core.memory import available_bytes
from seqlab.core.reporting import Reporter
from seqlab.core.units import human_bytes
from seqlab.data.prepare import Bounds, read_slice
from seqlab.data.sources import Text
from seqlab.evaluation.baselines import (
    BASELINE_ORDER,
    MAX_TRAINING_BYTES,
    NAMES,
    Baseline,
    baselines,
    beside_a_run,
    ngram_name,
)
from seqlab.evaluation.surprisal import ModelScorer
from seqlab.models.ngram import NGramLM

if TYPE_CHECKING:
    from seqlab.workflows.lm.data import Prepared

MAX_HELD_OUT = 20_000_000  # bytes: beyond, simple methods take minutes
LONGEST_CHARACTER = 4  # bytes of UTF-8


def can_be_measured(data: Prepared, part: str, reporter: Reporter) -> bool:
    """Whether there is time and memory for what stands beside a run; says so if not."""
    size, needed = data.original_bytes(part), data.baseline_bytes
    if size > MAX_HELD_OUT:
        reporter.note(f"no baselines: the {part} text has more than {MAX_HELD_OUT:,} bytes")
    elif needed > (available_bytes() or math.inf):
        reporter.note(f"no baselines: they need {human_bytes(needed)} of memory, which cannot be had here")
    else:
        return True
    return False


def baselines_beside(data: Prepared, part: str, model: Any, reporter: Reporter) -> list[dict[str, Any]]:
    """Name and bits per byte of each, best first; a model that is one of them is not listed twice."""
    counted = _counted(data, model)
    names = beside_a_run(data.original_bytes("train"), data.original_bytes(part))
    if counted is not None and counted.model is model:
        names = tuple(name for name in names if name != ngram_name(model.order))
    found = measured_baselines(data.text, data.original, part, names=names, counted=counted, reporter=reporter)
    return [_as_json(one) for one in sorted(found, key=lambda one: one.bits_per_byte)]


def _as_json(one: Baseline) -> dict[str, Any]:
    return {"name": one.name, "bits_per_byte": one.bits_per_byte} | ({"note": one.note} if one.note else {})


def _counted(data: Prepared, model: Any) -> ModelScorer | None:
    """The n-gram of the training text's characters that the run has counted itself, as model or as guide."""
    counts = model if data.folded is None else data.folded.model
    same = isinstance(counts, NGramLM) and counts.order == BASELINE_ORDER and data.tokenizer.kind == "char"
    return ModelScorer(counts, data.tokenizer) if same and data.used is data.text else None


# --------------------------------------------------------------------------- measured once for each split of a text


def measured_baselines(
    text: Text,
    bounds: Bounds,
    part: str,
    *,
    names: Sequence[str] = NAMES,
    counted: ModelScorer | None = None,
    reporter: Reporter | None = None,
) -> list[Baseline]:
    """`baselines` of a part of a text; the cache remembers them, since every run on that text has the same."""
    key = [text.sha256, bounds["train"], bounds[part], seqlab.__version__]
    path = cache_folder() / "baselines" / f"{sha256_of(canonical_json(key))[:32]}.json"
    known = _remembered(path)
    missing = [name for name in names if name not in known]
    if missing:
        held_out = read_slice(text, bounds[part])
        for one in baselines(
            _end_of(text, bounds["train"]), held_out, names=missing, counted=counted, reporter=reporter
        ):
            known[one.name] = one
        with contextlib.suppress(SeqlabError):  # nothing is lost where the cache cannot be written
            make_folder(path.parent)
            write_bytes(path, canonical_json([asdict(one) for one in known.values()]))
    return [known[name] for name in names]


def _end_of(text: Text, bounds: tuple[int, int]) -> str:
    """As much of a part as simple methods are fitted on, and a little more, which tells them that it was cut."""
    start = max(bounds[0], bounds[1] - MAX_TRAINING_BYTES - LONGEST_CHARACTER)
    with text.path.open("rb") as file:
        file.seek(start)
        return file.read(bounds[1] - start).decode("utf-8", "ignore")


def _remembered(path: Path) -> dict[str, Baseline]:
    try:
        return {one["name"]: Baseline(**one) for one in json.loads(path.read_bytes())}
    except (OSError, ValueError, TypeError, KeyError):  # not there, or not whole
        return {}
