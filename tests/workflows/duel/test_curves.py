"""The duel's curves count what its table counts: spelling, restoration, bytes of the original."""

import math
from pathlib import Path
from typing import Any

import pytest
from tests.conftest import nonsense

import seqlab
from seqlab.runs.folder import RunFolder
from seqlab.workflows.duel.folder import DuelFolder
from seqlab.workflows.duel.judge import curves_of
from seqlab.workflows.duel.terms import BITS_PER_BYTE
from seqlab.workflows.lm.measure import VALIDATION_BITS

UNKNOWN = ["", "zyzzyva", "quagga", "xylem", "漢字", "gnu", "yttrium"]


@pytest.fixture
def odd_text(tmp_path: Path) -> Path:
    """Many words that a small vocabulary does not know, upper case and digits."""
    words = nonsense(2600).split(" ")
    for k in range(0, len(words), 3):
        words[k] = words[k].upper() + f" {UNKNOWN[k % len(UNKNOWN)]}{k}"
    path = tmp_path / "odd.txt"
    path.write_text(" ".join(words))
    return path


@pytest.mark.parametrize("normalise", ["", "lower,digits"])
@pytest.mark.parametrize("tokenizer", ["word", "char"])
def test_a_curve_ends_at_the_figure_of_the_table(
    tokenizer: str, normalise: str, odd_text: Path, tmp_path: Path
) -> None:
    how: dict[str, Any] = dict(tokenizer=tokenizer, width=16, batch=4, context=8, budget="20steps", eval_every=5)
    how |= {"vocab_size": 30} if tokenizer == "word" else {}
    how |= {"normalise": normalise} if normalise else {}
    duel = seqlab.compare_lms(odd_text, models="lstm,ngram", seeds=1, out=tmp_path / "duel", threads=1, **how)
    run = seqlab.load(duel.contestants[0].runs[0])
    at_best = next(line for line in run.metrics if line["step"] == run.step)
    figures = run.final["validation"]
    assert at_best[VALIDATION_BITS] == pytest.approx(figures["bits_per_byte"], rel=0.01)
    record = DuelFolder(duel.folder).read()
    curve = curves_of(DuelFolder(duel.folder), record, BITS_PER_BYTE)["lstm"][0]
    checks = [line for line in run.metrics if VALIDATION_BITS in line]
    assert curve.values == [line[VALIDATION_BITS] for line in checks]
    assert curve.seconds == [line["seconds"] for line in checks]
    assert curve.counts == [line["tokens"] for line in checks] == [32 * line["step"] for line in checks]


def test_the_former_count_was_far_off(odd_text: Path, tmp_path: Path, tiny: dict[str, Any]) -> None:
    """8 bits for each unknown byte: what the curve used to say of the very same validation."""
    run = seqlab.train_lm(odd_text, out=tmp_path / "run", tokenizer="word", vocab_size=30, **tiny)
    line = next(line for line in RunFolder(run.folder).read_metrics() if line["step"] == run.step)
    figures = run.final["validation"]  # type: ignore[index]
    content = odd_text.read_bytes()
    start, end = round(0.8 * len(content)), round(0.9 * len(content))
    encoding = run.tokenizer.encode(content[start:end].decode("utf-8", "ignore"))
    unknown_bytes = int((encoding.end - encoding.start)[encoding.unknown].sum())
    nats = line["validation_nats_per_token"] * figures["tokens"]
    flat = nats / figures["bytes"] / math.log(2) + 8 * unknown_bytes / figures["bytes"]
    assert flat > 1.2 * figures["bits_per_byte"]
    assert line[VALIDATION_BITS] == pytest.approx(figures["bits_per_byte"], rel=0.01)
