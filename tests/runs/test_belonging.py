"""What a run folder records, what older folders still give, and what is done once and not twice."""

import json
import re
import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tomli_w
import torch
from safetensors import safe_open
from safetensors.torch import save_file

import seqlab
from seqlab.core.errors import DamageError, UsageError
from seqlab.core.files import canonical_json, sha256_of
from seqlab.core.reporting import Reporter
from seqlab.core.settings.fields import with_flags
from seqlab.core.settings.lm import LMSettings
from seqlab.runs import run as runs_run
from seqlab.runs import session
from seqlab.runs.folder import RunFolder
from seqlab.runs.record import identity_of
from seqlab.training.checkpoint import _digest
from seqlab.workflows.duel.lm import LMContest
from seqlab.workflows.lm import data as lm_data
from seqlab.workflows.lm import measure
from seqlab.workflows.lm.task import LanguageModelling


def as_format_2(folder: Path) -> None:
    """Write the folder's files as the version before did: without the run's identity."""
    files = RunFolder(folder)
    for path in (files.model_file, files.checkpoint_file):
        with safe_open(path, framework="pt") as file:
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
            about = json.loads(file.metadata()["seqlab"])
        about["record"].pop("run")
        record = canonical_json(about["record"]).decode()
        save_file(tensors, path, {"format": "1", "record": record, "sha256": _digest(tensors, record)})
    table = tomllib.loads(files.settings_file.read_text())
    table.pop("sha256")
    table["seqlab"] = {"kind": "lm", "format": 2}
    for name in ("files", "checksums", "summary", "optimiser"):
        table["record"].pop(name)
    signed = {"sha256": sha256_of(canonical_json(table)), **table}
    lines = files.read_metrics()
    files.settings_file.write_bytes(tomli_w.dumps(signed).encode())
    old = RunFolder(folder)
    files.metrics_file.write_bytes(b"".join(old._signed(line) for line in lines))


def test_a_run_of_the_former_format_is_read_and_not_resumed(
    small_text: Path, tmp_path: Path, tiny: dict[str, Any]
) -> None:
    run = seqlab.train_lm(small_text, out=tmp_path / "old", model="gru", guide="none", **tiny)
    written, score, lines = run.generate("the", 20, seed=1), run.score("the of and").total, run.metrics
    as_format_2(tmp_path / "old")
    old = seqlab.load(tmp_path / "old")
    assert old.generate("the", 20, seed=1) == written
    assert old.score("the of and").total == score
    assert old.metrics == lines
    assert seqlab.perplexity_sheet([tmp_path / "old"], [str(small_text)], baselines=False).rows[0]["bits_per_byte"] > 0
    with pytest.raises(UsageError, match=r"written by an older seqlab: .* --from .* and another --out"):
        seqlab.train_lm(out=tmp_path / "old", resume=True, budget="20steps")
    child = seqlab.train_lm(small_text, out=tmp_path / "new", from_run=tmp_path / "old", budget="2steps", threads=1)
    assert child.final is not None


def test_what_decides_a_run_is_recorded(small_text: Path, tmp_path: Path, tiny: dict[str, Any]) -> None:
    run = seqlab.train_lm(small_text, out=tmp_path / "adam", model="gru", **tiny)
    assert run.record["optimiser"]["betas"] == [0.9, 0.99]
    assert run.record["optimiser"]["eps"] == 1e-8
    vectors = tmp_path / "vectors.txt"
    vectors.write_text("the 0.1 0.2 0.3\nof 0.3 0.1 0.2\n")
    small = {k: v for k, v in tiny.items() if k != "depth"}
    bigram = seqlab.train_lm(small_text, out=tmp_path / "bigram", model="bigram", vectors=str(vectors), **small)
    assert bigram.record["checksums"]["vectors"] == sha256_of(vectors.read_bytes())
    assert bigram.settings.training.full_gradient is True
    assert bigram.settings.model.vector_width == 3
    drawn = seqlab.train_lm(small_text, out=tmp_path / "drawn", model="bigram", full_gradient=False, **small)
    assert drawn.settings.training.full_gradient is False


def test_the_identity_is_of_what_decides_the_bits() -> None:
    task = LanguageModelling()
    settings = task.fill(seqlab_settings(text="a.txt"))
    record = {"steps": 3, "threads": 1, "checksums": {"text": "ab"}, "versions": {"torch": "1"}}
    own = identity_of("lm", settings, record)
    assert re.fullmatch("[0-9a-f]{64}", own)
    assert own == identity_of("lm", task.fill(seqlab_settings(text="/other/place.txt")), record | {"asked": {}})
    others = [
        identity_of("lm", task.fill(seqlab_settings(seed=1)), record),
        identity_of("classify", settings, record),
        identity_of("lm", settings, record | {"from": {"run": "x", "step": 3, "identity": "ff"}}),
        *(identity_of("lm", settings, record | {key: other}) for key, other in CHANGES.items()),
    ]
    assert len({own, *others}) == 1 + len(others)


CHANGES: dict[str, Any] = {"steps": 4, "threads": 2, "checksums": {"text": "cd"}, "versions": {"torch": "2"}}


def seqlab_settings(**flags: Any) -> Any:
    return with_flags(LMSettings(), flags)


def test_a_run_from_other_weights_is_another_run(small_text: Path, tmp_path: Path, tiny: dict[str, Any]) -> None:
    for seed in (0, 1):
        seqlab.train_lm(small_text, out=tmp_path / f"parent{seed}", seed=seed, **tiny)
        how: dict[str, Any] = dict(from_run=tmp_path / f"parent{seed}", budget="2steps", threads=1)
        seqlab.train_lm(small_text, out=tmp_path / f"child{seed}", **how)
    one, two = (tmp_path / f"child{seed}" for seed in (0, 1))
    (one / "model.safetensors").write_bytes((two / "model.safetensors").read_bytes())
    with pytest.raises(DamageError, match=r"model\.safetensors belongs to another run"):
        seqlab.load(one)


def test_the_table_of_an_n_gram_belongs_to_its_run(small_text: Path, tmp_path: Path) -> None:
    """Same order, same vocabulary, other counts: nothing but the identity tells them apart."""
    for split in ("80/10/10", "70/20/10"):
        seqlab.train_lm(small_text, out=tmp_path / split[:2], model="ngram", tokenizer="byte", order=3, split=split)
    one, two = tmp_path / "80", tmp_path / "70"
    (one / "model.safetensors").write_bytes((two / "model.safetensors").read_bytes())
    for attempt in (lambda: seqlab.load(one), lambda: seqlab.train_lm(out=one, resume=True)):
        with pytest.raises(DamageError, match=r"model\.safetensors belongs to another run"):
            attempt()


def test_a_fitted_run_takes_the_same_way(small_text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Killed after its table was written, it measures without counting again; a lost table is counted again."""
    folder = tmp_path / "counts"
    fits: list[int] = []
    build = LanguageModelling.build

    def counted(self: LanguageModelling, *args: Any) -> Any:
        fits.append(1)
        return build(self, *args)

    monkeypatch.setattr(LanguageModelling, "build", counted)
    with monkeypatch.context() as patch:
        patch.setattr(session.Session, "_finish", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            seqlab.train_lm(small_text, out=folder, model="ngram", tokenizer="char")
    assert RunFolder(folder).final() is None
    run = seqlab.train_lm(out=folder, resume=True)
    assert (run.final["outcome"], run.final["step"], len(fits)) == ("fitted", 0, 1)  # type: ignore[index]
    weights = (folder / "model.safetensors").read_bytes()
    (folder / "model.safetensors").unlink()
    again = seqlab.train_lm(out=folder, resume=True)
    assert len(fits) == 2
    assert (folder / "model.safetensors").read_bytes() == weights
    assert again.final["test"] == run.final["test"]  # type: ignore[index]


def test_weights_are_read_once(
    small_text: Path, tmp_path: Path, tiny: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[str] = []
    original = runs_run.load_tensors

    def spy(path: Path) -> Any:
        read.append(path.name)
        return original(path)

    monkeypatch.setattr(runs_run, "load_tensors", spy)
    run = seqlab.train_lm(small_text, out=tmp_path / "run", **tiny)
    assert read == ["model.safetensors"]
    assert np.isfinite(run.score("the of").total), "the run that is returned has the weights that were measured"
    for name, tensor in original(tmp_path / "run" / "model.safetensors")[0].items():
        assert torch.equal(tensor, run.model.state_dict()[name])


def test_a_duel_prepares_its_text_once_and_scores_the_test_text_once(
    small_text: Path, tmp_path: Path, tiny: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    fitted, scored = [], []
    fit, score = lm_data._learnt_tokenizer, measure._score_used
    monkeypatch.setattr(lm_data, "_learnt_tokenizer", lambda *args: (fitted.append(1), fit(*args))[1])
    monkeypatch.setattr(measure, "_score_used", lambda *args: (scored.append(args[2]), score(*args))[1])
    monkeypatch.setattr("seqlab.workflows.duel.lm.LMRun.scorer", property(lambda _: pytest.fail("scored again")))
    how = {k: v for k, v in tiny.items() if k != "depth"}
    duel = seqlab.compare_lms(
        small_text, models="lstm,gru,ngram", seeds=2, out=tmp_path / "duel", tokenizer="bpe", **how
    )
    assert duel.finished
    assert len(fitted) == 1
    assert scored.count("test") == 5


@pytest.mark.parametrize("normalise", ["", "lower,digits"])
def test_blocks_from_the_measurement_are_those_of_scoring_again(
    small_text: Path, tmp_path: Path, tiny: dict[str, Any], normalise: str
) -> None:
    """What a duel judges by is the same whether the run was measured just now or scored from disk."""
    for tokenizer in ("bpe", "word"):
        flags = {"tokenizer": tokenizer, "vocab_size": 300 if tokenizer == "bpe" else 12, "normalise": normalise}
        run = seqlab.train_lm(small_text, out=tmp_path / tokenizer, **flags, **tiny)
        contest = LMContest(str(small_text), flags, Reporter())
        assert contest.score(run) == pytest.approx(contest.score(seqlab.load(tmp_path / tokenizer)), rel=1e-12)
