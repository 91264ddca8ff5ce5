"""The sheet does its work once and leaves the process as it found it; the same from Python as from the command."""

import inspect
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.conftest import nonsense

import seqlab
from seqlab.cli import main
from seqlab.core.settings.lm import MATRIX_DEFAULTS
from seqlab.workflows.sheet import scored


@pytest.fixture
def runs(small_text: Path, tmp_path: Path) -> list[Path]:
    for order in (2, 3):
        seqlab.train_lm(
            small_text, out=tmp_path / f"o{order}", model="ngram", tokenizer="word", vocab_size=9, order=order
        )
    return [tmp_path / "o2", tmp_path / "o3"]


def test_an_interval_is_found_once(runs: list[Path], small_text: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found: list[int] = []
    original = scored.interval_of
    monkeypatch.setattr(scored, "interval_of", lambda *args, **said: (found.append(1), original(*args, **said))[1])
    sheet = seqlab.perplexity_sheet(runs, [str(small_text)])
    with_interval = [row for row in sheet.rows if row["interval"]]
    assert len(with_interval) >= 3
    assert len(found) == len(with_interval)
    for one in sheet.scored:
        assert one.interval is one.interval
    assert len(found) == len(with_interval)


def test_threads_are_given_back(runs: list[Path], small_text: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[int] = []
    edges = scored.block_edges

    def spy(*args: Any) -> Any:
        seen.append(torch.get_num_threads())
        return edges(*args)

    monkeypatch.setattr(scored, "block_edges", spy)
    before = torch.get_num_threads()
    seqlab.perplexity_sheet(runs, [str(small_text)], threads=2, baselines=False)
    assert set(seen) == {2}
    assert torch.get_num_threads() == before
    assert main(["lm", "generate", str(runs[0]), "--tokens", "3", "--threads", "2"]) == 0
    assert torch.get_num_threads() == before


def test_the_matrix_has_the_same_defaults_from_python(
    tmp_path: Path, tiny: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for k, name in enumerate(("one", "two")):
        Path(f"{name}.txt").write_text(nonsense(1500, k))
    matrix = seqlab.domain_matrix(["one.txt", "two.txt"], out=tmp_path / "matrix", **tiny)
    for name in ("one", "two"):
        assert seqlab.load(tmp_path / "matrix" / name).settings.tokenizer.kind == MATRIX_DEFAULTS["tokenizer"] == "char"
    assert matrix.bits.shape == (2, 2)


def test_defaults_have_one_home() -> None:
    """What a function takes if nobody says otherwise is what the settings say."""
    from seqlab.core.settings.duel import DuelSettings
    from seqlab.core.settings.generation import GenerationSettings
    from seqlab.workflows.lm.run import LMRun

    for function, settings in (
        (seqlab.compare_lms, DuelSettings()),
        (LMRun.generate, GenerationSettings()),
        (LMRun.stream, GenerationSettings()),
    ):
        for name, parameter in inspect.signature(function).parameters.items():
            if name in vars(settings) and parameter.default is not inspect.Parameter.empty:
                assert parameter.default == vars(settings)[name], (function, name)
