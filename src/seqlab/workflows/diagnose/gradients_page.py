"""The page of the gradient doctor."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from seqlab.pages.gradient_charts import gate_picture, heat_picture, lag_picture
from seqlab.pages.render import embedded, render
from seqlab.workflows.diagnose.cures import Cure, Tried
from seqlab.workflows.diagnose.examine import Examined
from seqlab.workflows.diagnose.words import HEADER, THRESHOLDS, TRIED, sentence, tried_rows, verdict_rows

MOST_PARAMETERS = 60


def gradients_page(
    models: Sequence[Examined], basis: str, cures: Mapping[str, Sequence[Cure]], tried: Mapping[str, Sequence[Tried]]
) -> str:
    title = "Gradients of " + ", ".join(found.name for found in models)
    return render(
        "gradients.html.j2",
        title=title,
        basis=basis,
        thresholds=THRESHOLDS,
        header=HEADER,
        rows=verdict_rows(models),
        sentences=[(sentence(found), found.verdict.word != "healthy") for found in models],
        overview=embedded(_overview(models)),
        cures=[(name, some) for name, some in cures.items() if some],
        tried_header=TRIED,
        tried=[(name, tried_rows(rows)) for name, rows in tried.items()],
        models=[_details(found) for found in models],
    )


def _overview(models: Sequence[Examined]) -> bytes:
    """One model: all its layers; several: the curve of each that reaches farthest."""
    if len(models) == 1:
        (found,) = models
        return lag_picture(found.curves, found.bounds, f"{found.name}: gradient of the last loss by earlier states")
    curves = {found.name: found.curves[found.decisive] for found in models}
    bounds = {f.name: f.bounds[f.decisive] for f in models if f.decisive in f.bounds}
    return lag_picture(curves, bounds, "Gradient of the last loss by earlier states")


def _details(found: Examined) -> dict[str, Any]:
    jacobians = [
        [
            path,
            str(j.layer),
            f"{j.position:,}",
            f"{j.frobenius:.3f}",
            f"{j.spectral_norm:.3f}",
            f"{j.spectral_radius:.3f}",
        ]
        for path, some in found.jacobians.items()
        for j in some
    ]
    gates = [[g.name, f"{100 * g.shut:.1f} %", f"{100 * g.open:.1f} %", f"{g.mean:.3f}"] for g in found.gates]
    heads = [[h.name, str(h.head), f"{h.entropy:.3f}", f"{h.evenness:.3f}", f"{h.jacobian:.3f}"] for h in found.heads]
    parameters = [
        [p.name, f"{p.weight:.3g}", f"{p.gradient:.3g}", "–" if p.update != p.update else f"{p.update:.2g}"]
        for p in found.parameters[:MOST_PARAMETERS]
    ]
    histograms = [(gate.name, gate.histogram) for gate in found.gates]
    return {
        "name": found.name,
        "heat": embedded(heat_picture(found.curves, f"{found.name}: over time and layers")),
        "gate_picture": embedded(gate_picture(histograms, f"{found.name}: gates")) if histograms else None,
        "jacobians": jacobians,
        "gates": gates,
        "heads": heads,
        "parameters": parameters,
    }
