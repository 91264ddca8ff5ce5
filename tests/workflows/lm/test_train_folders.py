"""The folders that training writes, and those that it leaves alone."""

from pathlib import Path
from typing import Any

import pytest

import seqlab
from seqlab.core.errors import UsageError
from seqlab.data.sources import open_text


def test_the_run_folder_is_complete(small_text: Path, tmp_path: Path, tiny: dict[str, Any]) -> None:
    run = seqlab.train_lm(small_text, out=tmp_path / "run", **tiny)
    names = {p.name for p in run.folder.iterdir()}
    assert names == {
        "settings.toml", "tokenizer.json", "guide.safetensors", "metrics.csv", "model.safetensors", "checkpoints",
        "metrics.jsonl", "loss.png", "samples.txt", "report.html",
    }  # fmt: skip
    record = run.record
    assert record["steps"] == 12
    assert record["threads"] == 1
    assert record["text_sha256"] == open_text(str(small_text)).sha256
    assert set(record["versions"]) >= {"seqlab", "torch", "python", "numpy"}
    assert record["asked"]["budget"] == "12steps"
    assert (run.folder / "loss.png").read_bytes().startswith(b"\x89PNG")
    page = (run.folder / "report.html").read_text()
    assert "data:image/png;base64," in page
    assert "http" not in page.replace("http-equiv", "")
    for figure in ("nats_per_token", "bits_per_byte"):
        assert f"{run.final['validation'][figure]:.4f}" in page  # type: ignore[index]


def test_a_page_shows_hostile_text_as_text(tmp_path: Path, tiny: dict[str, Any]) -> None:
    path = tmp_path / "<script>alert(1)<script>.txt"
    path.write_text("<script>alert(2)</script> & <b>bold</b>\n" * 300)
    run = seqlab.train_lm(path, out=tmp_path / "run", tokenizer="char", **tiny)
    page = (run.folder / "report.html").read_text()
    assert "<script>" not in page
    assert "&lt;script&gt;" in page


def test_existing_folders_are_never_overwritten(small_text: Path, tmp_path: Path, tiny: dict[str, Any]) -> None:
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "precious.txt").write_text("x")
    with pytest.raises(UsageError, match="exists already; go on with --resume or choose another --out"):
        seqlab.train_lm(small_text, out=tmp_path / "notes", **tiny)
    with pytest.raises(UsageError, match="not a run folder"):
        seqlab.train_lm(small_text, out=tmp_path / "notes", resume=True, **tiny)
    assert (tmp_path / "notes" / "precious.txt").read_text() == "x"
    with pytest.raises(UsageError, match="--resume needs the run's folder"):
        seqlab.train_lm(small_text, resume=True)


def test_default_folders_are_numbered(
    small_text: Path, tmp_path: Path, tiny: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for number in (1, 2):
        run = seqlab.train_lm(small_text, model="rnn", **tiny)
        assert run.folder == Path(f"runs/small-rnn-{number}")


def test_a_folder_that_seqlab_did_not_begin_is_not_touched(
    small_text: Path, tmp_path: Path, tiny: dict[str, Any]
) -> None:
    """Even if its files have the names that a run's have."""
    other = tmp_path / "other"
    other.mkdir()
    (other / "tokenizer.json").write_text("precious")
    (other / "metrics.jsonl").write_text("precious")
    for resume in (False, True):
        with pytest.raises(UsageError, match=r"exists already|not a run folder"):
            seqlab.train_lm(small_text, out=other, resume=resume, **tiny)
    assert {p.read_text() for p in other.iterdir()} == {"precious"}
