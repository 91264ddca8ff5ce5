"""A matrix of domains as a self-contained page: the table, the pictures, what each gap consists of."""

from __future__ import annotations

from typing import TYPE_CHECKING

from seqlab.evaluation.statistics import Interval
from seqlab.pages.render import embedded, render

if TYPE_CHECKING:
    from seqlab.workflows.sheet.matrix import Matrix


def matrix_page(matrix: Matrix, picture: bytes, gaps_picture: bytes) -> str:
    classes = list(matrix.gaps[0][2].shares)
    return render(
        "matrix.html.j2",
        title=f"{', '.join(matrix.domains)}: every model on every text",
        folder=matrix.folder,
        header=["model trained on", *(f"reads {name}" for name in matrix.domains)],
        rows=_cells(matrix),
        picture_of_bits=embedded(picture),
        gap_header=["trained on", "reads", "gap", "95 % interval", *classes],
        gap_rows=[
            [model, text, f"{gap.total:+.3f}", f"{gap.interval.low:+.3f} – {gap.interval.high:+.3f}"]
            + [f"{share:+.3f}" for share in gap.shares.values()]
            for model, text, gap in matrix.gaps
        ],
        sentences=[_sentence(model, text, gap.total, gap.shares) for model, text, gap in matrix.gaps],
        picture_of_gaps=embedded(gaps_picture),
        method=matrix.method,
        notes=matrix.sheet.notes,
        contexts=list(dict.fromkeys(f"{one.reader.name}: {one.reader.scorer.policy}" for one in matrix.sheet.scored)),
        runs=[str(one.reader.run.folder) for one in matrix.sheet.scored[: len(matrix.domains)] if one.reader.run],
    )


def _cells(matrix: Matrix) -> list[list[str]]:
    """The figure of each model on each text, with its interval."""
    size = len(matrix.domains)
    return [
        [name, *(_cell(matrix.bits[i, j], matrix.sheet.scored[j * size + i].interval) for j in range(size))]
        for i, name in enumerate(matrix.domains)
    ]


def _cell(bits: float, interval: Interval) -> str:
    return f"{bits:.3f} ({interval.low:.3f} – {interval.high:.3f})"


def _sentence(model: str, text: str, gap: float, shares: dict[str, float]) -> str:
    """The gap and the class that makes most of it."""
    name, most = max(shares.items(), key=lambda share: abs(share[1]))
    return (
        f"On {text} the model of {model} pays {abs(gap):.3f} bits per byte {'more' if gap > 0 else 'less'} than the "
        f"model of {text} itself; the largest share is {name} ({most:+.3f})"
    )
