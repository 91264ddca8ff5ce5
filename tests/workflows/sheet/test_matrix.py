"""Domains against each other: trained or taken, scored on held-out text, gaps that add up."""

import html
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.cli.conftest import Command, seqlab_command  # noqa: F401 (the fixture)
from tests.conftest import nonsense

import seqlab
from seqlab.core.errors import UsageError
from seqlab.workflows.sheet.matrix import Matrix, domain_matrix

FIT: dict[str, Any] = dict(model="ngram", tokenizer="char", order=4)


@pytest.fixture
def texts(tmp_path: Path) -> list[str]:
    plain = nonsense(3000)
    other = nonsense(3000, seed=1).replace("the", "ye").replace("was", "WERT").replace(" of", " 1623 of")
    for name, content in (("plain", plain), ("other", other)):
        (tmp_path / f"{name}.txt").write_text(content, encoding="utf-8", newline="")
    return [str(tmp_path / "plain.txt"), str(tmp_path / "other.txt")]


@pytest.fixture
def matrix(texts: list[str], tmp_path: Path) -> Matrix:
    return domain_matrix(texts, out=tmp_path / "m", **FIT)


def test_every_model_reads_every_domains_test_part(matrix: Matrix, tmp_path: Path) -> None:
    assert matrix.domains == ["plain", "other"]
    for i, model in enumerate(matrix.domains):
        run = seqlab.load(tmp_path / "m" / model)
        for j, text in enumerate(matrix.domains):
            content = (tmp_path / f"{text}.txt").read_bytes()
            held_out = content[round(len(content) * 0.9) :].decode("utf-8", "ignore")
            table = run.score(held_out)
            assert matrix.bits[i, j] == pytest.approx(table.total / np.log(2) / len(held_out.encode()), rel=1e-3)
    assert matrix.bits[0, 0] < matrix.bits[0, 1]
    assert matrix.bits[1, 1] < matrix.bits[1, 0]


def test_gaps_add_up_and_name_the_cause(matrix: Matrix) -> None:
    for model, text, gap in matrix.gaps:
        i, j = matrix.domains.index(model), matrix.domains.index(text)
        assert gap.total == pytest.approx(matrix.bits[i, j] - matrix.bits[j, j], rel=1e-9)
        assert sum(gap.shares.values()) == pytest.approx(gap.total, rel=1e-9)
    shares = next(gap.shares for model, _, gap in matrix.gaps if model == "plain")
    assert shares["unknown words"] > 0.3  # "ye", "WERT" and the year stand in one text only


def test_pictures_and_figures_are_written_and_repeating_trains_nothing_anew(
    matrix: Matrix, texts: list[str], tmp_path: Path
) -> None:
    for name in ("matrix.png", "gaps.png"):
        assert (tmp_path / "m" / name).read_bytes().startswith(b"\x89PNG")
    assert json.loads((tmp_path / "m" / "matrix.json").read_text("utf-8"))["domains"] == matrix.domains
    weights = tmp_path / "m" / "plain" / "model.safetensors"
    before = weights.stat().st_mtime_ns
    again = domain_matrix(texts, out=tmp_path / "m", **FIT)
    assert weights.stat().st_mtime_ns == before
    assert np.array_equal(again.bits, matrix.bits)
    taken = domain_matrix([tmp_path / "m" / "plain", tmp_path / "m" / "other"], out=tmp_path / "taken")
    assert np.array_equal(taken.bits, matrix.bits)


def test_the_matrix_has_a_page_with_every_figure(matrix: Matrix, tmp_path: Path) -> None:
    assert matrix.page == tmp_path / "m" / "report.html"
    page = matrix.page.read_text("utf-8")
    assert page.count("data:image/png;base64,") == 2
    assert "http" not in page
    shown = html.unescape(page)
    for j in range(2):
        for i in range(2):
            interval = matrix.sheet.scored[2 * j + i].interval
            assert f"{matrix.bits[i, j]:.3f} ({interval.low:.3f} – {interval.high:.3f})" in shown
    for model, text, gap in matrix.gaps:
        row = [model, text, f"{gap.total:+.3f}", *(f"{share:+.3f}" for share in gap.shares.values())]
        cells = next(
            found
            for found in (re.findall(r"<td[^>]*>(.*?)</td>", row) for row in shown.split("<tr>"))
            if found[:2] == [model, text]
        )
        assert [*cells[:3], *cells[4:]] == row
    largest = max(gap.shares, key=lambda name: abs(gap.shares[name]))
    assert f"the largest share is {largest} ({gap.shares[largest]:+.3f})" in shown
    assert matrix.method in shown


def test_one_domain_or_two_of_one_name_are_wrong_use(texts: list[str], tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="at least two"):
        domain_matrix(texts[:1], out=tmp_path / "m", **FIT)
    domain_matrix(texts, out=tmp_path / "m", **FIT)
    with pytest.raises(UsageError, match="two domains are called 'plain'"):
        domain_matrix([tmp_path / "m" / "plain"] * 2, out=tmp_path / "m2")


def test_the_command(seqlab_command: Command, texts: list[str]) -> None:  # noqa: F811 (the fixture)
    options = ("lm", "perplexity", "--matrix", *texts, "--model", "ngram", "--out", "m")
    answer = seqlab_command(*options, "--html", "page.html")
    assert answer.code == 0, answer.err
    assert "page: page.html" in answer.out
    assert "What the gaps consist of" in Path("page.html").read_text("utf-8")
    assert not Path("m/report.html").exists()
    assert "model trained on" in answer.out
    assert "unknown words" in answer.out
    assert "method: " in answer.out
    found = seqlab_command(*options, "--json").json
    assert found["matrix"]["domains"] == ["plain", "other"]
    assert {"rows", "comparisons", "matrix"} <= found.keys()
    assert seqlab_command(*options, "--on", texts[0]).code == 2
    wrong = seqlab_command("lm", "perplexity", "m/plain", "--on", texts[0], "--budget", "3s")
    assert (wrong.code, "belongs to --matrix" in wrong.err) == (2, True)


def test_heat_maps_from_the_command(seqlab_command: Command, texts: list[str]) -> None:  # noqa: F811 (the fixture)
    seqlab_command("lm", "train", texts[0], "--model", "ngram", "--tokenizer", "char", "--out", "run")
    one = seqlab_command("lm", "perplexity", "run", "--on", texts[1], "--html", "heat.html", "--no-baselines")
    assert one.code == 0, one.err
    page = Path("heat.html").read_text("utf-8")
    assert "bits per byte" in page
    assert "1623" in page
    two = seqlab_command("lm", "perplexity", "run", "--on", *texts, "--html", "both.html", "--no-baselines")
    assert "both-1.html" in two.err
    assert Path("both-2.html").exists()
    ranged = ("lm", "perplexity", "run", "--on", texts[1], "--no-baselines", "--heat-range")
    assert seqlab_command(*ranged, "1-5", "--html", "narrow.html").code == 0
    assert "checked> 1–5 bits" in Path("narrow.html").read_text("utf-8")
    assert "checked> 1–5 bits" not in page
    for words, message in (
        ((*ranged, "1-5"), "give --html FILE too"),
        ((*ranged, "5-1", "--html", "x"), "such as 0-8"),
    ):
        wrong = seqlab_command(*words)
        assert (wrong.code, wrong.err.count("\n"), message in wrong.err) == (2, 1, True)
    assert seqlab_command("lm", "perplexity", "run").code == 2
