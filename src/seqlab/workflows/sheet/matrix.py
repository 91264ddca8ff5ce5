"""Domains against each other: every domain's model on every domain's held-out text, and why the figures differ."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from seqlab.core.errors import DataError, UsageError
from seqlab.core.files import make_folder, sha256_of, write_bytes, write_text
from seqlab.core.reporting import Reporter
from seqlab.core.settings.lm import MATRIX_DEFAULTS
from seqlab.data.sources import Text
from seqlab.evaluation.gap import METHOD, Gap, explain_gap, words_of
from seqlab.pages.charts import gap_picture, matrix_picture
from seqlab.runs.folder import RunFolder
from seqlab.runs.run import load
from seqlab.training.determinism import using_threads
from seqlab.workflows.lm.original import documents_of, part_of
from seqlab.workflows.lm.run import LMRun
from seqlab.workflows.lm.train import train_lm
from seqlab.workflows.sheet.matrix_page import matrix_page
from seqlab.workflows.sheet.request import check_matrix
from seqlab.workflows.sheet.scored import Reader, Scored
from seqlab.workflows.sheet.sheet import Sheet, make_sheet, reader_of
from seqlab.workflows.sheet.verdicts import about

HELD_OUT = ("test", "validation")  # the first part that is not empty is scored


@dataclass(frozen=True)
class Domain:
    name: str
    run: LMRun
    held_out: str
    part: str
    documents: tuple[int, ...]  # where they start in the held-out text
    train: str


@dataclass(frozen=True)
class Matrix:
    domains: list[str]
    bits: NDArray[np.float64]  # (model, text) bits per byte
    gaps: list[tuple[str, str, Gap]]  # trained on, text read
    sheet: Sheet
    folder: Path
    page: Path
    method: str = METHOD

    def as_json(self) -> dict[str, Any]:
        return {
            "domains": self.domains,
            "bits_per_byte": self.bits.tolist(),
            "gaps": [
                {
                    "trained_on": model,
                    "text": text,
                    "gap": gap.total,
                    "interval": [gap.interval.low, gap.interval.high],
                    "about": about(gap.interval),
                    "shares": gap.shares,
                    "bytes": gap.bytes,
                }
                for model, text, gap in self.gaps
            ],
            "method": self.method,
            "pictures": [str(self.folder / name) for name in ("matrix.png", "gaps.png")],
            "page": str(self.page),
        }


def domain_matrix(
    domains: Sequence[str | Path],
    *,
    out: str | Path | None = None,
    html: str | Path | None = None,
    threads: int | None = None,
    reporter: Reporter | None = None,
    **flags: Any,
) -> Matrix:
    """`domains` are run folders or texts; a text is trained on first (`flags` as for `lm train`).

    `html` is where the page goes, report.html in the folder `out` unless somebody says otherwise.
    Characters are the tokens unless somebody says otherwise: they are the same for every text. A repeated call
    goes on with what was trained before.
    """
    reporter = reporter or Reporter()
    check_matrix(domains, flags, threads)
    flags = {"tokenizer": MATRIX_DEFAULTS["tokenizer"]} | flags
    folder = Path(out) if out is not None else Path("runs") / f"matrix-{'-'.join(Path(d).stem for d in domains)}"[:100]
    names = [Path(d).resolve().name if RunFolder(d).has_run() else Path(d).stem for d in domains]
    if len(set(names)) < len(names):
        raise UsageError(f"two domains are called '{max(names, key=names.count)}'; rename a file or folder")
    found = [_domain(domain, folder, threads, reporter, flags) for domain in domains]
    readers = [_named(domain) for domain in found]
    with using_threads(threads):
        sheet = make_sheet(readers, [_text(domain) for domain in found], (), (), reporter)
    matrix = _filled(found, sheet, folder, folder / "report.html" if html is None else Path(html))
    _write(matrix)
    return matrix


def _domain(named: str | Path, folder: Path, threads: int | None, reporter: Reporter, flags: dict[str, Any]) -> Domain:
    if RunFolder(named).has_run():
        run: LMRun = load(named, "lm")
    else:
        place = folder / (Path(named).stem or "text")
        begun = RunFolder(place).has_run()
        run = train_lm(str(named), out=place, resume=begun, threads=threads, reporter=reporter, **flags)
        if run.interrupted:
            raise DataError(f"interrupted while training on {named}; repeat the command to go on")
    for part in HELD_OUT:
        held_out = part_of(run, part)
        if held_out:
            return Domain(run.name, run, held_out, part, documents_of(run, part), part_of(run, "train") or "")
    raise DataError(f"the text of {run.folder} is not at hand or has no held-out part: nothing to score")


def _named(domain: Domain) -> Reader:
    reader = reader_of(domain.run)
    return Reader(domain.name, reader.scorer, reader.bound, run=domain.run)


def _text(domain: Domain) -> tuple[Text, str]:
    content = domain.held_out.encode()
    name = f"{domain.name} ({domain.part})"
    text = Text(domain.run.folder, name, len(content), sha256_of(content), documents=domain.documents)
    return text, domain.held_out


def _filled(domains: list[Domain], sheet: Sheet, folder: Path, page: Path) -> Matrix:
    size = len(domains)
    by_place: list[list[Scored]] = [sheet.scored[k * size : (k + 1) * size] for k in range(size)]  # [text][model]
    bits = np.array([[by_place[j][i].figures.bits_per_byte for j in range(size)] for i in range(size)])
    known = [words_of(domain.train) for domain in domains]
    gaps = [
        (
            domains[i].name,
            domains[j].name,
            explain_gap(
                by_place[j][i].content,
                by_place[j][i].surprisals,
                by_place[j][j].surprisals,
                known[i],
                domains[j].documents,
            ),
        )
        for j in range(size)
        for i in range(size)
        if i != j
    ]
    return Matrix([domain.name for domain in domains], bits, gaps, sheet, folder, page)


def _write(matrix: Matrix) -> None:
    make_folder(matrix.folder)
    title = "bits per byte on held-out text"
    picture = matrix_picture(matrix.domains, matrix.domains, matrix.bits, title=title)
    write_bytes(matrix.folder / "matrix.png", picture)
    gaps = gap_picture([(m, t, gap.shares) for m, t, gap in matrix.gaps])
    write_bytes(matrix.folder / "gaps.png", gaps)
    write_text(matrix.page, matrix_page(matrix, picture, gaps))
    content = json.dumps(matrix.as_json(), ensure_ascii=False, indent=1, allow_nan=False)
    write_bytes(matrix.folder / "matrix.json", content.encode())
