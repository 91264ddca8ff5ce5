"""Looks at the gradients while a language model trains: few sequences, always the same, so that lines compare."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from seqlab.core.traits import traits_of
from seqlab.diagnostics.gradient_flow import carriers, judge, lag_curves, last_loss
from seqlab.diagnostics.inside import look_inside

SEQUENCES, LENGTH = 4, 32


def watched_gradients(model: nn.Module, ids: Any, begin_id: int) -> dict[str, Any]:
    """By layer: growth rate, horizon and verdict; of gates, the shares that are shut and open."""
    if not carriers(model):
        return {}
    if not all(bool(weight.isfinite().all()) for weight in model.parameters()):
        return {"not_finite": True}  # the loop will say so itself
    some = _sequences(ids, min(LENGTH, traits_of(model).window or LENGTH), begin_id)
    verdicts = {name: judge(norms) for name, norms in lag_curves(model, lambda: last_loss(model, some)).items()}
    gates, heads = look_inside(model, lambda: model(some[:, :-1]))
    return {
        "layers": [
            {"tap": name, "verdict": v.word, "growth": v.growth.rate, "lags": v.lags, "horizon": v.horizon}
            for name, v in verdicts.items()
        ],
        "gates": [{"name": gate.name, "shut": gate.shut, "open": gate.open} for gate in gates],
        "heads": [{"name": head.name, "head": head.head, "evenness": head.evenness} for head in heads],
    }


def _sequences(ids: Any, length: int, begin_id: int) -> Tensor:
    """Evenly spaced in the text; one that is too short is read after the begin token.    (B, T + 1)"""
    known = np.asarray(ids, np.int64)
    if len(known) < length + 1:
        known = np.concatenate([np.full(length + 1 - len(known), begin_id), known])
    starts = np.linspace(0, len(known) - length - 1, SEQUENCES).astype(int)
    return torch.from_numpy(np.stack([known[s : s + length + 1] for s in starts]))
