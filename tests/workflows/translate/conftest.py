"""Small tables of sentence pairs, made on the spot."""

import random
from pathlib import Path

import pytest

WORDS = ["sun", "moon", "star", "sea", "wind", "rain", "snow", "fire"]
NOMS = ["soleil", "lune", "étoile", "mer", "vent", "pluie", "neige", "feu"]
TINY = dict(width=16, depth=1, heads=2, batch=300, vocab_size=300, threads=1, budget="10steps", eval_every=5)


def pairs(count: int, seed: int = 0) -> list[tuple[str, str, str]]:
    """English words, the same in French, and the English ones backwards."""
    draw = random.Random(seed)
    rows = []
    for _ in range(count):
        chosen = [draw.randrange(len(WORDS)) for _ in range(draw.randint(2, 6))]
        said = [WORDS[k] for k in chosen]
        rows.append((" ".join(said), " ".join(NOMS[k] for k in chosen), " ".join(said[::-1])))
    return rows


@pytest.fixture
def table(tmp_path: Path) -> Path:
    path = tmp_path / "words.tsv"
    lines = ["english\tfrench\tbackwards", *("\t".join(row) for row in pairs(300))]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path
