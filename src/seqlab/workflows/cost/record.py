"""An estimate as one JSON object."""

from __future__ import annotations

import dataclasses
from typing import Any

from seqlab.diagnostics.cost import Cost
from seqlab.workflows.cost.estimate import CostEstimate
from seqlab.workflows.cost.predict import Prediction

PREDICTED = ("seconds_per_step", "seconds_low", "seconds_high", "timed", "peak_bytes", "needed_bytes")


def as_json(found: CostEstimate) -> dict[str, Any]:
    """Totals are those of the parts; what was not predicted is null, and `unpredicted` says why."""
    cost, request = found.cost, found.request
    return {
        "task": request.task,
        "model": request.settings.model.kind,
        "run": None if request.run is None else str(request.run),
        "threads": found.threads,
        "batch": cost.batch,
        "length": cost.length,
        "source_length": cost.source_length,
        "assumed": list(request.shapes.assumed),
        "parameters": cost.parameters,
        "flops_forward": cost.flops_forward,
        "flops_backward": cost.flops_backward,
        "memory_bytes": cost.memory_bytes,
        "weight_bytes": cost.weight_bytes,
        "gradient_bytes": cost.gradient_bytes,
        "optimiser_bytes": cost.optimiser_bytes,
        "saved_bytes": cost.saved_bytes,
        "parts": parts(cost),
        "symbols": cost.symbols,
        "not_measured": list(cost.not_measured),
        "bottleneck": None if found.bottleneck is None else dataclasses.asdict(found.bottleneck),
        "textbook": [dataclasses.asdict(row) for row in found.textbook],
        "recompute": recompute(found),
        **predicted(found.prediction),
        "steps": found.steps,
        "seconds": found.seconds,
        "fits": found.fits,
        "available_bytes": found.spare,
        "remedy": None if found.prediction is None else found.prediction.remedy,
        "unpredicted": found.unpredicted,
        "page": None if found.page is None else str(found.page),
    }


def parts(cost: Cost) -> list[dict[str, Any]]:
    shares = optimiser_shares(cost)
    return [
        {
            **{name: getattr(part, name) for name in ("name", "parameters", "flops_forward", "flops_backward")},
            "saved_bytes": part.saved,
            "optimiser_bytes": shares[part.name],
            **{name: getattr(part, name) for name in ("formula", "formula_parameters", "formula_saved")},
        }
        for part in cost.parts
    ]


def optimiser_shares(cost: Cost) -> dict[str, int]:
    """The optimiser's bytes by part, by how many parameters each has; they add up to all of them.

    Exact where every weight is kept alike. Muon keeps less of matrices than of vectors, and nothing is kept of word
    vectors that stay as they are: there the shares are near.
    """
    found, done, given = {}, 0, 0
    for part in cost.parts:
        done += part.parameters
        upto = cost.optimiser_bytes * done // cost.parameters if cost.parameters else 0
        found[part.name] = upto - given
        given = upto
    return found


def recompute(found: CostEstimate) -> dict[str, Any] | None:
    """What --recompute trades, counted: bytes kept with it and without, operations that are done twice."""
    if found.recomputed is None:
        return None
    on = bool(found.request.settings.training.recompute)
    with_it, without = (found.cost, found.recomputed) if on else (found.recomputed, found.cost)
    return {
        "on": on,
        "saved_bytes": with_it.saved_bytes,
        "saved_bytes_without": without.saved_bytes,
        "extra_flops": found.extra_forward,
    }


def predicted(prediction: Prediction | None) -> dict[str, Any]:
    if prediction is None:
        return dict.fromkeys(PREDICTED)
    step, memory = prediction.step, prediction.memory
    return dict(
        zip(PREDICTED, (step.seconds, step.low, step.high, step.timed, memory.peak, memory.needed), strict=True)
    )
