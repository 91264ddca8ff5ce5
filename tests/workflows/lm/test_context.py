"""A run read with another context than it was trained with."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import seqlab
from seqlab.core.errors import UsageError
from seqlab.evaluation import surprisal
from seqlab.workflows.lm.run import LMRun

TRAINED = 8


def trained(text: Path, folder: Path, tiny: dict[str, Any], **sizes: Any) -> LMRun:
    sizes = {"model": "transformer", "heads": 2, "tokenizer": "byte"} | sizes
    return seqlab.train_lm(text, out=folder / "run", **(tiny | sizes))


@pytest.mark.parametrize("positions", ["rotary", "sinusoidal"])
def test_a_longer_context_reads_further_back(
    positions: str, small_text: Path, tmp_path: Path, tiny: dict[str, Any]
) -> None:
    run = trained(small_text, tmp_path, tiny, positions=positions)
    longer = run.with_context(4 * TRAINED)
    text = small_text.read_text(encoding="utf-8")[:1000]
    other = "Q" + text[1:]  # 12 tokens and more before the changed place's readers below

    def reach(scored: LMRun) -> int:
        """How far from the first byte a prediction still depends on it."""
        return int(np.flatnonzero(scored.score(text).nats != scored.score(other).nats).max())

    assert reach(run) < TRAINED <= reach(longer) < 4 * TRAINED
    short = text[: TRAINED // 2]  # one segment for both: the same reading
    assert np.allclose(longer.score(short).nats, run.score(short).nats)
    assert np.array_equal(longer.with_context(TRAINED).score(text).nats, run.score(text).nats)
    assert run.settings.training.context == run.model.traits.window == TRAINED


def test_a_linear_attention_and_an_attentive_rnn_can_be_told_as_well(
    small_text: Path, tmp_path: Path, tiny: dict[str, Any]
) -> None:
    run = trained(small_text, tmp_path, tiny, attention="random_features")
    assert run.with_context(32).score("any text " * 20).total > 0
    other = seqlab.train_lm(small_text, out=tmp_path / "attentive", model="attentive-rnn", tokenizer="byte", **tiny)
    assert "segments of 16 tokens" in str(other.with_context(32).scorer.policy)


def test_what_has_no_other_context_says_so(small_text: Path, tmp_path: Path, tiny: dict[str, Any]) -> None:
    learned = trained(small_text, tmp_path, tiny, positions="learned")
    with pytest.raises(UsageError, match=f"--context 16: .*run has {TRAINED} learned positions and is defined for no"):
        learned.with_context(16)
    assert learned.with_context(TRAINED).score("any text").total == learned.score("any text").total
    with pytest.raises(UsageError, match="context"):
        trained(small_text, tmp_path / "rotary", tiny).with_context(0)
    recurrent = seqlab.train_lm(small_text, out=tmp_path / "gru", model="gru", **tiny)
    with pytest.raises(UsageError, match="--context 16: model 'gru' in .* reads on and on; leave it out"):
        recurrent.with_context(16)


def test_the_sheet_takes_a_context(small_text: Path, tmp_path: Path, tiny: dict[str, Any]) -> None:
    run = trained(small_text, tmp_path, tiny)
    sheet = seqlab.perplexity_sheet([run.folder], [str(small_text)], baselines=False, context=32)
    text = small_text.read_text(encoding="utf-8")
    assert sheet.rows[0]["nats"] == pytest.approx(run.with_context(32).score(text).total)
    assert sheet.rows[0]["context"].startswith("segments of 16 tokens, each read after the 16 tokens before it")


def test_long_segments_are_scored_few_at_a_time(
    small_text: Path, tmp_path: Path, tiny: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    run = trained(small_text, tmp_path, tiny).with_context(64)
    text = small_text.read_text(encoding="utf-8")[:3000]
    wide = run.score(text).nats
    rows: list[int] = []
    run.model.register_forward_pre_hook(lambda _, given: rows.append(len(given[0])))
    monkeypatch.setattr(surprisal, "FED_WHOLE", 130)
    assert np.allclose(run.score(text).nats, wide, atol=1e-6)
    assert max(rows) == 2
