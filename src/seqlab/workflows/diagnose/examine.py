"""One model, examined: its curves and verdicts, and what stands behind them."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from seqlab.diagnostics.gradient_flow import Norms, Verdict, judge, lag_curves
from seqlab.diagnostics.inside import (
    Gate,
    Head,
    Parameter,
    StepJacobian,
    bound_of,
    layers_of,
    look_inside,
    parameter_ratios,
    step_jacobians,
)
from seqlab.layers.recurrent import RNN
from seqlab.workflows.diagnose.readings import SHORTEST, Reading

Optimiser = Callable[[nn.Module], torch.optim.Optimizer]
PLACES = 5  # positions whose one-step Jacobian is shown
QUARTILES = (0.25, 0.5, 0.75)


@dataclass(frozen=True, eq=False)
class Examined:
    """What was found in one model on some sequences."""

    name: str
    kind: str
    curves: dict[str, Norms]  # by tap: (B, T), column k is lag k
    verdicts: dict[str, Verdict]
    bounds: dict[str, float]  # by tap of an RNN: δ = γ‖W‖
    jacobians: dict[str, list[StepJacobian]]  # by path of the layer
    gates: list[Gate]
    heads: list[Head]
    parameters: list[Parameter]
    left_out: list[str]  # taps of layers that are called position by position: they have no curve

    @property
    def decisive(self) -> str:
        """The tap whose gradient reaches farthest: what the model as a whole can learn from."""
        return max(self.verdicts, key=lambda name: self.verdicts[name].growth.rate)

    @property
    def verdict(self) -> Verdict:
        return self.verdicts[self.decisive]

    def summary(self) -> dict[str, Any]:
        """The verdict in figures."""
        growth = self.verdict.growth
        return {
            "growth": growth.rate,
            "interval": [growth.low, growth.high],
            "horizon": self.verdict.horizon,
            "verdict": self.verdict.word,
        }

    def as_json(self) -> dict[str, Any]:
        layers = [
            {
                "tap": name,
                "verdict": verdict.word,
                "growth": dataclasses.asdict(verdict.growth),
                "lags": verdict.lags,
                "total": verdict.total,
                "settled": verdict.settled,
                "horizon": verdict.horizon,
                "expected_horizon": verdict.expected_horizon,
                "bound": self.bounds.get(name),
                "quartiles": np.quantile(self.curves[name], QUARTILES, axis=0).tolist(),
            }
            for name, verdict in self.verdicts.items()
        ]
        return {
            "model": self.name,
            "kind": self.kind,
            **self.summary(),
            "decisive": self.decisive,
            "layers": layers,
            "left_out": self.left_out,
            "jacobians": {path: [dataclasses.asdict(j) for j in some] for path, some in self.jacobians.items()},
            "gates": [dataclasses.asdict(gate) for gate in self.gates],
            "heads": [dataclasses.asdict(head) for head in self.heads],
            "parameters": [dataclasses.asdict(parameter) for parameter in self.parameters],
        }


def examine(name: str, kind: str, model: nn.Module, reading: Reading, optimiser: Optimiser) -> Examined:
    """In float64, on a copy. `optimiser` makes that whose first step is shown."""
    model = copy.deepcopy(model).double().eval()
    seen = lag_curves(model, *reading.losses(model))
    curves = {tap: norms for tap, norms in seen.items() if norms.shape[1] >= SHORTEST}
    left_out = [tap for tap in seen if tap not in curves]
    gates, heads = look_inside(model, lambda: reading.run(model))
    return Examined(
        name,
        kind,
        curves,
        {tap: judge(norms) for tap, norms in curves.items()},
        _bounds(model) if reading.ids is not None else {},
        _jacobians(model, reading),
        gates,
        heads,
        parameter_ratios(model, reading.mean, optimiser),
        left_out,
    )


def _bounds(model: nn.Module) -> dict[str, float]:
    """Of the top layer: what lies below is also reached through the layers above, which no single ‖W‖ bounds."""
    return {
        f"{path}.l{layer.num_layers - 1}.hidden": bound_of(layer, layer.num_layers - 1)
        for path, layer in layers_of(model).items()
        if isinstance(layer, RNN)
    }


def _jacobians(model: nn.Module, reading: Reading) -> dict[str, list[StepJacobian]]:
    """At a few positions of the first sequence, of layers that read it at once and in one direction."""
    found = {}
    for path, layer in layers_of(model).items():
        given: list[Tensor] = []
        handle = layer.register_forward_pre_hook(lambda _module, args, kept=given: kept.append(args[0]))
        with torch.no_grad():
            reading.run(model)
        handle.remove()
        x = given[0][0]
        if len(x) >= SHORTEST and not layer.bidirectional:
            places = sorted({int(p) for p in np.linspace(1, len(x) - 1, PLACES)})
            found[path] = step_jacobians(layer, x, places)
    return found
