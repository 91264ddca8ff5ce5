"""Sequences whose translation is known: copied, reversed and sorted."""

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from seqlab.workflows.translate.evaluate import evaluate_translator
from seqlab.workflows.translate.train import train_translator

LETTERS = "abcdefgh"
TASKS: dict[str, Callable[[list[str]], list[str]]] = {
    "copy": lambda letters: letters,
    "reverse": lambda letters: letters[::-1],
    "sort": sorted,
}


def accuracy(folder: Path, task: str, rows: int, longest: int, **flags: Any) -> float:
    """The share of test sequences that are translated without any mistake."""
    draw = random.Random(1)
    lines = ["given\tmade"]
    for _ in range(rows):
        letters = [draw.choice(LETTERS) for _ in range(draw.randint(2, longest))]
        made = [letter.upper() for letter in TASKS[task](letters)]
        lines.append(f"{' '.join(letters)}\t{' '.join(made)}")
    table = folder / f"{task}.tsv"
    table.write_text("\n".join(lines), encoding="utf-8")
    sizes: dict[str, Any] = dict(width=64, depth=2, batch=1024, vocab_size=275, smoothing=0.0, dropout=0.0)
    train_translator(table, out=folder / "run", eval_every=100_000, held_out=200, **sizes | flags)
    (found,) = evaluate_translator(folder / "run", beam=1).targets
    wanted = {line.split("\t")[0]: line.split("\t")[1] for line in lines[1:]}
    with (folder / "run" / "translations.tsv").open(encoding="utf-8") as file:
        sources = [line.split("\t")[2] for line in file.read().splitlines()[1:]]
    right = [text == wanted[source] for text, source in zip(found.translations, sources, strict=True)]
    return sum(right) / len(right)


@pytest.mark.parametrize("model", ["transformer", "gru"])
def test_short_sequences_are_learnt(tmp_path: Path, model: str) -> None:
    """Capitals of up to three letters: a few hundred steps are enough."""
    flags: dict[str, Any] = dict(heads=4, depth=1) if model == "transformer" else dict(model="gru", depth=1)
    flags |= dict(width=48, batch=300, learning_rate=1e-2, threads=1)
    assert accuracy(tmp_path, "copy", 800, 3, budget="400steps", **flags) >= 0.9


@pytest.mark.long
@pytest.mark.parametrize("task", TASKS)
def test_sequences_are_copied_reversed_and_sorted(tmp_path: Path, task: str) -> None:
    assert accuracy(tmp_path, task, 8000, 10, budget="1000steps", learning_rate=4e-3, heads=4) >= 0.99


@pytest.mark.long
@pytest.mark.parametrize("task", TASKS)
def test_a_recurrent_translator_does_so_too(tmp_path: Path, task: str) -> None:
    how = dict(model="lstm", depth=1, width=128, learning_rate=5e-3)
    assert accuracy(tmp_path, task, 8000, 8, budget="1000steps", **how) >= 0.99
