"""The optimisers: the textbook ones written from their equations, torch's AdamW and Muon as the fast choices.

g is the gradient, η the learning rate, λ the weight decay. Decay is decoupled, θ ← θ(1 − ηλ) before the step, in all
but `adam-l2`, which adds λθ to the gradient.

    sgd               θ ← θ − ηg
    momentum          v ← αv + ηg,           θ ← θ − v                  heavy ball
    momentum-average  v ← βv + (1 − β)g,     θ ← θ − ηv                 running average
    adam, adam-l2     m ← β₁m + (1 − β₁)g,  v ← β₂v + (1 − β₂)g²,  θ ← θ − η m̂/(√v̂ + ε)
    adamw             torch's fused kernel of `adam`
    muon              the matrices: steps of orthogonal matrices (torch's Muon); everything else: adamw

Averages start at 0, so that the first ones are too small; with bias correction v̂ = v/(1 − βᵗ).
"""

from __future__ import annotations

import inspect
from collections import defaultdict
from typing import Any

import torch
from torch import Tensor, nn

from seqlab.core.eager import never_compiled
from seqlab.core.settings.fields import filled
from seqlab.core.settings.training import TrainingSettings
from seqlab.core.traits import LOOKED_UP, NORM_LAYERS

ADAMW_BETAS = (0.9, 0.99)
MOMENTUM = 0.9
EPS = 1e-8
Groups = list[dict[str, Any]]

_MARKED = ("zero_grad", "add_param_group", "state_dict", "load_state_dict")
never_compiled(*(getattr(torch.optim.Optimizer, name) for name in _MARKED))


# --------------------------------------------------------------------------- from their equations


class PlainOptimiser(torch.optim.Optimizer):
    """θ ← θ(1 − ηλ), then what `move` does to it: one parameter after the other, as the equations stand."""

    def __init__(self, groups: Groups, **constants: Any) -> None:
        super().__init__(groups, {"lr": 0.0, "weight_decay": 0.0} | constants)

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        assert closure is None, "the loop computes the gradients itself"
        for group in self.param_groups:
            for weight in group["params"]:
                if weight.grad is not None:
                    gradient = self.decayed(weight, weight.grad, group)
                    self.move(weight, gradient, self.state[weight], group)

    def decayed(self, weight: Tensor, gradient: Tensor, group: dict[str, Any]) -> Tensor:
        """Decoupled: the weight shrinks, the gradient stays."""
        weight.mul_(1 - group["lr"] * group["weight_decay"])
        return gradient

    def move(self, weight: Tensor, gradient: Tensor, state: dict[str, Tensor], group: dict[str, Any]) -> None:
        raise NotImplementedError


class SGD(PlainOptimiser):
    """θ ← θ − ηg"""

    def move(self, weight: Tensor, gradient: Tensor, state: dict[str, Tensor], group: dict[str, Any]) -> None:
        weight.sub_(group["lr"] * gradient)


class HeavyBall(PlainOptimiser):
    """v ← αv + ηg,  θ ← θ − v.    η stands inside v: another learning rate acts with delay."""

    def move(self, weight: Tensor, gradient: Tensor, state: dict[str, Tensor], group: dict[str, Any]) -> None:
        v = _kept(state, "velocity", weight)
        v.mul_(group["momentum"]).add_(group["lr"] * gradient)
        weight.sub_(v)


class RunningAverage(PlainOptimiser):
    """v ← βv + (1 − β)g,  θ ← θ − η v̂,  v̂ = v/(1 − βᵗ) or v."""

    def move(self, weight: Tensor, gradient: Tensor, state: dict[str, Tensor], group: dict[str, Any]) -> None:
        v, t = _kept(state, "average", weight), _counted(state)
        beta = group["momentum"]
        v.mul_(beta).add_((1 - beta) * gradient)
        weight.sub_(group["lr"] * _corrected(v, beta, t, group))


class Adam(PlainOptimiser):
    """m ← β₁m + (1 − β₁)g,  v ← β₂v + (1 − β₂)g²,  θ ← θ − η m̂/(√v̂ + ε)"""

    def move(self, weight: Tensor, gradient: Tensor, state: dict[str, Tensor], group: dict[str, Any]) -> None:
        m, v, t = _kept(state, "mean", weight), _kept(state, "square", weight), _counted(state)
        first, second = group["betas"]
        m.mul_(first).add_((1 - first) * gradient)
        v.mul_(second).add_((1 - second) * gradient**2)
        scale = _corrected(v, second, t, group).sqrt() + group["eps"]
        weight.sub_(group["lr"] * _corrected(m, first, t, group) / scale)


class AdamL2(Adam):
    """Adam on g + λθ: the decay is divided by √v̂ too, so that weights with large gradients are hardly shrunk."""

    def decayed(self, weight: Tensor, gradient: Tensor, group: dict[str, Any]) -> Tensor:
        return gradient.add(weight, alpha=group["weight_decay"])


def average_rate(heavy_ball_rate: float, alpha: float) -> float:
    """δ = ε/(1 − α): the running average's learning rate on the heavy ball's path (β = α, both from 0)."""
    return heavy_ball_rate / (1 - alpha)


def heavy_ball_rate(average_rate: float, beta: float) -> float:
    """ε = δ(1 − β): the other way round."""
    return average_rate * (1 - beta)


def _kept(state: dict[str, Tensor], name: str, weight: Tensor) -> Tensor:
    """What is remembered of a parameter; 0 before the first step."""
    if name not in state:
        state[name] = torch.zeros_like(weight)
    return state[name]


def _counted(state: dict[str, Tensor]) -> int:
    """t, counting this step."""
    state["step"] = state.get("step", torch.zeros((), dtype=torch.float64)) + 1
    return int(state["step"])


def _corrected(average: Tensor, beta: float, t: int, group: dict[str, Any]) -> Tensor:
    return average / (1 - beta**t) if group["bias_correction"] else average


# --------------------------------------------------------------------------- several in one


class Together(torch.optim.Optimizer):
    """Several optimisers, each with its own parameters, as one."""

    def __init__(self, *parts: torch.optim.Optimizer) -> None:
        self.parts = parts
        self.defaults = {name: value for part in parts for name, value in part.defaults.items()}
        self.state = defaultdict(dict)
        self.param_groups = [group for part in parts for group in part.param_groups]
        for part in parts:  # each knows its parameters only, so that one table serves all
            part.state = self.state

    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        assert closure is None, "the loop computes the gradients itself"
        for part in self.parts:
            part.step()

    def zero_grad(self, set_to_none: bool = True) -> None:
        for part in self.parts:
            part.zero_grad(set_to_none)


# --------------------------------------------------------------------------- what decays


def decay_groups(model: nn.Module, weight_decay: float, on: str = "matrices") -> Groups:
    """The trained parameters in two groups for an optimiser, each in the model's own order; an empty one is left out.

    Matrices decay. Biases and norms do not, nor do tables whose rows are looked up: a row that a batch does not use
    would shrink for nothing. `on` = "all": everything decays.
    """
    exempt = {
        id(parameter)
        for module in model.modules()
        if isinstance(module, (*LOOKED_UP, *NORM_LAYERS))
        for parameter in module.parameters(recurse=False)
    }
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    decayed = {id(parameter) for parameter in trained if parameter.ndim >= 2} - exempt
    if on == "all":
        decayed = {id(parameter) for parameter in trained}
    groups = [
        {"params": [p for p in trained if id(p) in decayed], "weight_decay": weight_decay},
        {"params": [p for p in trained if id(p) not in decayed], "weight_decay": 0.0},
    ]
    return [group for group in groups if group["params"]]


# --------------------------------------------------------------------------- the one that is asked for


class AdamW(torch.optim.AdamW):
    """torch's, with its own step: around it torch puts a guard for its compiler, and loads that for it."""

    step = torch.no_grad()(inspect.unwrap(torch.optim.AdamW.step))


def build_optimiser(
    model: nn.Module,
    learning_rate: float,
    weight_decay: float,
    betas: tuple[float, float] = ADAMW_BETAS,
    *,
    kind: str = "adamw",
    momentum: float = MOMENTUM,
    bias_correction: bool | None = None,
    decay_on: str = "matrices",
) -> torch.optim.Optimizer:
    """The optimiser called `kind`. Averages are corrected in `adam` and `adam-l2`, not in `momentum-average`, unless
    `bias_correction` says otherwise."""
    groups = decay_groups(model, weight_decay, decay_on)
    if kind == "adamw":
        return AdamW(groups, lr=learning_rate, betas=betas, fused=True)
    if kind == "muon":
        return _muon(model, learning_rate, weight_decay, betas, decay_on)
    if kind == "sgd":
        return SGD(groups, lr=learning_rate)
    if kind == "momentum":
        return HeavyBall(groups, lr=learning_rate, momentum=momentum)
    if kind == "momentum-average":
        return RunningAverage(groups, lr=learning_rate, momentum=momentum, bias_correction=bool(bias_correction))
    plain = AdamL2 if kind == "adam-l2" else Adam
    return plain(groups, lr=learning_rate, betas=betas, eps=EPS, bias_correction=bias_correction is not False)


def _muon(
    model: nn.Module, learning_rate: float, weight_decay: float, betas: tuple[float, float], decay_on: str
) -> torch.optim.Optimizer:
    """Muon for the matrices that are multiplied with, scaled so that AdamW's learning rate and decay suit it too."""
    matrices = {id(p) for group in decay_groups(model, 1.0) if group["weight_decay"] for p in group["params"]}
    groups = decay_groups(model, weight_decay, decay_on)

    def part(taken: bool) -> Groups:
        chosen = [[p for p in g["params"] if (id(p) in matrices and p.ndim == 2) == taken] for g in groups]
        return [g | {"params": params} for g, params in zip(groups, chosen, strict=True) if params]

    parts: list[torch.optim.Optimizer] = []
    if turned := part(True):
        parts.append(torch.optim.Muon(turned, lr=learning_rate, adjust_lr_fn="match_rms_adamw"))
    if others := part(False):
        parts.append(AdamW(others, lr=learning_rate, betas=betas, fused=True))
    return Together(*parts)


def optimiser_for(model: nn.Module, training: TrainingSettings) -> torch.optim.Optimizer:
    """The one that filled training settings ask for."""
    rate, decay = filled(training.learning_rate), filled(training.weight_decay)
    chosen: dict[str, Any] = {"kind": training.optimiser, "bias_correction": training.bias_correction}
    if training.momentum is not None:
        chosen["momentum"] = training.momentum
    return build_optimiser(model, rate, decay, decay_on=training.decay_on, **chosen)


def set_learning_rate(optimiser: torch.optim.Optimizer, learning_rate: float) -> None:
    for group in optimiser.param_groups:
        group["lr"] = learning_rate


def optimiser_facts(optimiser: torch.optim.Optimizer, model: nn.Module) -> dict[str, object]:
    """What the settings do not say of it, for the record: its constants, and which tensors decay."""
    name_of = {id(parameter): name for name, parameter in model.named_parameters()}
    found: dict[str, list[str]] = {"decaying": [], "not_decaying": []}
    for group in optimiser.param_groups:
        found["decaying" if group["weight_decay"] else "not_decaying"] += [name_of[id(p)] for p in group["params"]]
    return _constants(optimiser) | found


def _constants(optimiser: torch.optim.Optimizer) -> dict[str, object]:
    known = ("betas", "eps", "momentum", "bias_correction", "nesterov", "ns_steps", "adjust_lr_fn")
    values = {name: optimiser.defaults[name] for name in known if name in optimiser.defaults}
    return {name: list(value) if isinstance(value, tuple) else value for name, value in values.items()}
