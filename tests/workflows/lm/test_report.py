"""The report of a run: it speaks of what it shows."""

from pathlib import Path

from tests.conftest import nonsense

import seqlab


def test_the_report_of_an_n_gram_mentions_no_curve(tmp_path: Path) -> None:
    text = nonsense(1500)
    (tmp_path / "t.txt").write_text(f"{text} ÆØÅ", encoding="utf-8")  # letters that training never saw
    run = seqlab.train_lm(tmp_path / "t.txt", model="ngram", tokenizer="char", out=tmp_path / "run")
    page = run.files.report_file.read_text("utf-8")
    assert "Unknown tokens pay for their spelling." in page
    assert "curve" not in page.split("</style>")[1]
