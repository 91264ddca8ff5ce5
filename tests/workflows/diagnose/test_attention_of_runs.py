"""What `diagnose attention` measures, computed once more from the run itself."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tests.workflows.classify.conftest import reviews
from tests.workflows.translate.conftest import pairs

import seqlab
from seqlab.core.reporting import Reporter
from seqlab.core.types import PaddedBatch
from seqlab.diagnostics.attention_maps import head_figures
from seqlab.workflows.diagnose.attended import subject_of
from seqlab.workflows.diagnose.attention import AttentionSettings, diagnose_attention

TEXT = "the cat f(a) [x] sat on the mat (b) and {c} the dog sat on the log\n" * 40


def test_a_language_model_is_asked_for_the_next_token(tmp_path: Path) -> None:
    (tmp_path / "text.txt").write_text(TEXT, encoding="utf-8")
    (tmp_path / "other.txt").write_text(TEXT[:130], encoding="utf-8")
    sizes: dict[str, Any] = dict(model="transformer", tokenizer="char", width=16, depth=1, heads=2, context=16)
    run = seqlab.train_lm(
        tmp_path / "text.txt", out=tmp_path / "run", budget="5steps", threads=1, guide="none", **sizes
    )
    found = diagnose_attention(tmp_path / "run", text=tmp_path / "other.txt", length=12, sequences=4, threads=1)
    ids = run.tokenizer.encode(TEXT[:130]).ids
    rows = np.stack([ids[k * 13 : (k + 1) * 13] for k in (0, 3, 6, 9)]).astype(np.int64)
    with torch.no_grad():
        logits, _ = run.model(torch.from_numpy(rows)[:, :-1])
    logs = torch.log_softmax(logits, -1)
    nats = [-float(logs[row, t, rows[row][t + 1]]) for row in range(4) for t in range(12)]
    assert found.loss == pytest.approx(np.mean(nats), rel=1e-5)
    subject = subject_of(run, AttentionSettings(length=12, sequences=4), tmp_path / "other.txt", Reporter())
    seen = seqlab.diagnostics.attention_maps.attention_of(run.model, lambda: subject.run(run.model))
    layer = subject.attended("blocks.0.attention", seen["blocks.0.attention"])
    assert [row.figures for row in found.heads] == head_figures(layer)
    assert found.heads[0].figures != found.heads[1].figures
    assert layer.queries.words[0][:4] == ["t", "h", "e", "␣"]


def test_an_attentive_rnn_sees_what_stands_before(tmp_path: Path) -> None:
    (tmp_path / "text.txt").write_text(TEXT, encoding="utf-8")
    sizes: dict[str, Any] = dict(model="attentive-rnn", tokenizer="char", width=8, depth=1, context=16)
    seqlab.train_lm(tmp_path / "text.txt", out=tmp_path / "run", budget="2steps", threads=1, guide="none", **sizes)
    (row,) = diagnose_attention(tmp_path / "run", length=12, sequences=4, threads=1).heads
    assert "itself" not in row.figures.patterns
    assert row.figures.patterns["previous"].queries == 4 * 10, "the first two positions have no choice"


def test_a_classifier_reads_the_first_words(tmp_path: Path) -> None:
    lines = [f'"{text}",{label}' for text, label in reviews(60)]
    (tmp_path / "my.csv").write_text("\n".join(["text,label", *lines]), encoding="utf-8")
    sizes: dict[str, Any] = dict(model="transformer", width=8, heads=2, depth=1)
    run = seqlab.train_classifier(tmp_path / "my.csv", out=tmp_path / "run", budget="3steps", threads=1, **sizes)
    texts = [text for text, _ in reviews(60)[:3]]
    (tmp_path / "lines.txt").write_text("\n".join(texts) + "\n", encoding="utf-8")
    found = diagnose_attention(tmp_path / "run", text=tmp_path / "lines.txt", length=4, threads=1)
    rows: Any = run.reader.read(texts)
    ids = torch.tensor(np.stack([rows.ids[start : start + 4] for start in rows.offsets[:-1]]))
    with torch.no_grad():
        logs = torch.log_softmax(run.model(PaddedBatch(ids, torch.full((3,), 4))), -1)
    assert found.loss == pytest.approx(-float(logs.max(-1).values.mean()), rel=1e-5), (
        "the begin and three words of each"
    )


def test_a_translator_is_asked_for_every_piece(tmp_path: Path) -> None:
    lines = ["english\tfrench", *("\t".join(row[:2]) for row in pairs(120))]
    (tmp_path / "pairs.tsv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    sizes: dict[str, Any] = dict(width=16, depth=1, heads=2, held_out=10, pointer=False)
    run = seqlab.train_translator(tmp_path / "pairs.tsv", out=tmp_path / "run", budget="3steps", threads=1, **sizes)
    few = [lines[0], *lines[5:8]]
    (tmp_path / "few.tsv").write_text("\n".join(few) + "\n", encoding="utf-8")
    found = diagnose_attention(tmp_path / "run", text=tmp_path / "few.tsv", length=200, threads=1)
    tokenizer, end = run.tokenizer, run.tokenizer.end_id
    means = []
    for line in few[1:]:
        source, target = (tokenizer.encode_each([text])[0].tolist() for text in line.split("\t"))
        memory = run.model.encode(PaddedBatch(torch.tensor([[*source, end]]), torch.tensor([len(source) + 1])))
        with torch.no_grad():
            logits, _ = run.model(torch.tensor([[tokenizer.begin_id, *target]]), memory)
        logs = torch.log_softmax(logits[0], -1)
        means.append(-float(logs[torch.arange(len(target) + 1), torch.tensor([*target, end])].mean()))
    assert found.loss == pytest.approx(np.mean(means), rel=1e-4)
    assert {row.layer for row in found.heads} == {
        "encoder.blocks.0.attention",
        "decoder.0.attention",
        "decoder.0.cross",
    }
