"""Shared fixtures: a cache of its own for every worker, one thread, and small texts made on the spot."""

import os
import random
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from hypothesis import settings

settings.register_profile("seqlab", deadline=None, max_examples=40, derandomize=True)  # no clock, no luck
settings.load_profile("seqlab")


@pytest.fixture(scope="session", autouse=True)
def own_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("cache")
    former = os.environ.get("SEQLAB_CACHE")
    os.environ["SEQLAB_CACHE"] = str(folder)
    torch.set_num_threads(1)
    yield folder
    if former is None:
        del os.environ["SEQLAB_CACHE"]
    else:
        os.environ["SEQLAB_CACHE"] = former


@pytest.fixture(scope="session", autouse=True)
def interruptible() -> Iterator[None]:
    """A shell has what it starts in the background ignore Ctrl-C, and so would every process started by a test."""
    former = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, former)


@pytest.fixture(scope="session", autouse=True)
def short_samples() -> None:
    """Three samples of 300 tokens take longer than the tiny trainings that they are drawn from."""
    from seqlab.workflows.lm import report

    report.SAMPLE_TOKENS = 24


@pytest.fixture(scope="session", autouse=True)
def coarse_pictures() -> None:
    """Every training draws some: fewer pixels are drawn sooner."""
    from seqlab.pages import canvas

    canvas.DPI = 40


LEXICON = "the of and to in that it is was he for on are with as his they at be this from café naïve"


def nonsense(words: int, seed: int = 0) -> str:
    """English-looking text with lines, paragraphs and a few characters beyond ASCII."""
    draw = random.Random(seed)
    lexicon = tuple(LEXICON.split())
    out = []
    for _ in range(words):
        out.append(draw.choice(lexicon) + draw.choice(["", "", "", ",", "."]))
        out.append(draw.choice([" ", " ", " ", " ", "\n", "\n\n"]))
    return "".join(out)


@pytest.fixture
def small_text(tmp_path: Path) -> Path:
    """A file of about 12 KB."""
    path = tmp_path / "small.txt"
    path.write_text(nonsense(2200), encoding="utf-8", newline="")
    return path


def tiny_for(kind: str, **changes: object) -> dict[str, object]:
    """Settings of a training of any kind that takes a moment."""
    absent = {"depth", "dropout"} if kind == "bigram" else set()
    return {name: value for name, value in (TINY | changes).items() if name not in absent}


TINY = dict(width=16, depth=1, batch=4, context=8, budget="12steps", eval_every=4, threads=1)


@pytest.fixture
def tiny() -> dict[str, object]:
    """Settings of a training that takes a moment."""
    return dict(TINY)
