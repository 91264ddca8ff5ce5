"""Runs whose network is led by counts: what they train on, keep, load and refuse."""

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.cli.conftest import Command, seqlab_command  # noqa: F401 (a fixture)

import seqlab
from seqlab.core.errors import DamageError, DataError
from seqlab.models.folds import count_folds
from seqlab.models.ngram import NGramLM
from seqlab.runs import train as runs_train
from seqlab.runs.session import Session, begin
from seqlab.workflows.lm import guide as lm_guide


@pytest.fixture
def run(small_text: Path, tmp_path: Path, tiny: dict[str, Any]) -> Any:
    return seqlab.train_lm(small_text, out=tmp_path / "led", model="gru", **tiny)


def test_what_leads_a_batch_was_counted_without_it(
    small_text: Path, tmp_path: Path, tiny: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    sessions: list[Session] = []

    def remember(*arguments: Any) -> Session:
        sessions.append(begin(*arguments))
        return sessions[-1]

    monkeypatch.setattr(runs_train, "begin", remember)
    seqlab.train_lm(small_text, out=tmp_path / "led", model="gru", folds=4, order=3, **tiny)
    (session,) = sessions
    ids, vocab_size = session.data.parts["train"].ids, session.data.tokenizer.vocab_size
    assert session.learning is not None
    batch = session.learning.batches(0)
    starts = np.arange(4) * (len(ids) // 4)  # the four streams of the first batch
    expected = count_folds(ids, vocab_size, 3, 4).expected(starts[:, None] + np.arange(8))
    assert (batch.guide == expected).all()
    whole = NGramLM.fit(ids, vocab_size, 3).nats_of(ids)[(starts[:, None] + np.arange(8)).ravel()]
    crossed = -batch.guide.gather(-1, batch.targets[..., None]).flatten().numpy()
    assert crossed.mean() > whole.mean() + 0.05, "counts that have seen the text are surer of it"


def test_before_it_learns_it_is_the_n_gram(
    small_text: Path,
    tmp_path: Path,
    tiny: dict[str, Any],
    seqlab_command: Command,  # noqa: F811 (the fixture)
) -> None:
    flags = tiny | {"budget": "1steps", "learning_rate": 1e-12, "tokenizer": "char", "eval_every": 1}
    led = seqlab.train_lm(small_text, out=tmp_path / "led", model="lstm", **flags)
    counts = seqlab.train_lm(small_text, out=tmp_path / "counts", model="ngram", tokenizer="char", threads=1)
    for part in ("validation", "test"):
        a, b = (found.final[part]["nats_per_token"] for found in (led, counts))  # type: ignore[index]
        assert math.isclose(a, b, rel_tol=1e-5)


def test_a_led_run_loads_as_it_was(run: Any, tmp_path: Path) -> None:
    again = seqlab.load(run.folder)
    text = "the cat sat, on with his café\n\nand they"
    assert (again.score(text).nats == run.score(text).nats).all()
    assert again.generate("the ", tokens=12, seed=3) == run.generate("the ", tokens=12, seed=3)
    assert (run.settings.model.guide, run.settings.model.order, run.settings.tokenizer.kind) == ("ngram", 7, "char")
    assert not (tmp_path / "led" / "model.safetensors").read_bytes().count(b"keys.1"), "the counts are kept once"


def test_a_guide_that_is_missing_damaged_or_of_another_run_is_refused(
    run: Any, small_text: Path, tmp_path: Path, tiny: dict[str, Any]
) -> None:
    file = run.folder / "guide.safetensors"
    own = file.read_bytes()
    other_text = tmp_path / "other.txt"
    other_text.write_text(small_text.read_text(encoding="utf-8")[::-1], encoding="utf-8")
    other = seqlab.train_lm(other_text, out=tmp_path / "other", model="gru", **tiny)
    for content in (own[:-9], own[:200] + b"x" + own[201:], (other.folder / file.name).read_bytes(), None):
        file.unlink() if content is None else file.write_bytes(content)
        with pytest.raises(DamageError, match=r"guide\.safetensors") as refused:
            seqlab.load(run.folder)
        assert "\n" not in str(refused.value)
        file.write_bytes(own)
    assert seqlab.load(run.folder).generate("a", tokens=2, seed=0)


def test_a_text_shorter_than_its_folds(tmp_path: Path, tiny: dict[str, Any]) -> None:
    text = tmp_path / "short.txt"
    text.write_text("abc def ghi jkl mno pqr stu vwx " * 2, encoding="utf-8")
    with pytest.raises(DataError, match=r"too few for 99 folds; give more text, or say --guide none"):
        seqlab.train_lm(text, out=tmp_path / "run", tokenizer="char", folds=99, **tiny)
    assert not (tmp_path / "run").exists()


def test_an_order_that_does_not_fit_names_the_one_that_does(
    small_text: Path, tmp_path: Path, tiny: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lm_guide, "available_bytes", lambda: 3_000_000)
    with pytest.raises(DataError, match=r"of order 8 in .* tokens needs more than the 3\.0 MB .*--order \d would fit"):
        seqlab.train_lm(small_text, out=tmp_path / "run", tokenizer="char", order=8, **tiny)
    monkeypatch.setattr(lm_guide, "available_bytes", lambda: 1_000)
    with pytest.raises(DataError, match="say --guide none"):
        seqlab.train_lm(small_text, out=tmp_path / "run", tokenizer="char", **tiny)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        (("--guide", "none", "--order", "4"), "--order does not apply to --guide none"),
        (("--guide", "none", "--folds", "4"), "--folds does not apply to --guide none"),
        (("--guide", "ngrams"), "ngram"),
        (("--folds", "1"), "1"),
        (("--order", "9"), "order"),
        (("--model", "bigram", "--guide", "ngram"), "model 'bigram' has no setting 'guide'"),
        (("--model", "ngram", "--guide", "ngram"), "model 'ngram' has no setting 'guide'"),
    ],
)
@pytest.mark.usefixtures("small_text")
def test_wrong_use(seqlab_command: Command, flags: tuple[str, ...], expected: str) -> None:  # noqa: F811
    answer = seqlab_command("lm", "train", "small.txt", *flags)
    assert answer.code == 2
    assert expected in answer.err
    assert answer.err.count("\n") == 1
