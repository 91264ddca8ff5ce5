"""How far back a gradient reaches: ‖∂L_T/∂h_t‖ against the lag T − t, its growth rate, its horizon and a verdict.

    with taps on the path:   L_T = loss at the last position,  ‖∂L_T/∂h_t‖ for every t, exact, by autograd
    growth rate g            ln ‖∂L_T/∂h_{T−k}‖ = a + k ln g, fitted by least squares for each sequence, lags k ≥ 1
    verdict                  over all T lags: g^T < 0.01 vanishing, > 100 exploding, else healthy

A module of somebody's own, (B, T, D) -> (B, T, H), has no loss: there it is ‖∂y_T/∂x_t‖_F of the whole Jacobian.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn

from seqlab.core.errors import UsageError
from seqlab.core.taps import Seen, tap_names, taps
from seqlab.core.traits import traits_of

VANISHED, EXPLODED = 0.01, 100.0  # g^T
FALLEN = 0.01  # the share of the gradient one step back at which the horizon lies
CARRIERS = ("hidden", "c", "stream")  # what a layer hands on to later positions; of blocks, what they read
ROWS_AT_ONCE = 64  # of a Jacobian
SEQUENCES_AT_ONCE = 4  # an attentive RNN keeps T²/2 vectors of each until its gradient is known
Norms = NDArray[np.float64]


# --------------------------------------------------------------------------- the curve


def carriers(model: nn.Module) -> list[str]:
    """The taps through which earlier positions reach later ones, in the order of the layers."""
    if traits_of(model).learns_from != "text":  # it sees a token and its neighbour, nothing more
        return []
    names = [name for name in tap_names(model) if name.rpartition(".")[2] in CARRIERS]
    blocks = {name.rpartition(".")[0] for name in names if name.endswith(".stream")}
    return [name for name in names if not (name.endswith(".hidden") and name.rpartition(".")[0] in blocks)]


def last_loss(model: nn.Module, ids: Tensor) -> Tensor:
    """−ln p of the last token after all those before it, of each sequence.    (B, T + 1) -> (B,)"""
    logits, _ = model(ids[:, :-1])
    return F.cross_entropy(logits[:, -1], ids[:, -1], reduction="none")


def last_losses(model: nn.Module, ids: Tensor) -> list[Callable[[], Tensor]]:
    """The same, a few sequences at a time."""
    return [partial(last_loss, model, some) for some in torch.split(ids, SEQUENCES_AT_ONCE)]


def lag_curves(model: nn.Module, *losses: Callable[[], Tensor]) -> dict[str, Norms]:
    """‖∂L_T/∂h_t‖ of every sequence, by tap: (B, T), column k is lag k. A loss runs the model on some: () -> (b,)

    Exact: the total derivative, through everything that comes later. What reads backwards has its lags from the front.
    """
    names = carriers(model)
    if not names:
        raise UsageError("this model carries nothing from one position to the next: there is no gradient over time")
    found = [_curves_of_some(model, loss, names) for loss in losses]
    curves = {name: np.concatenate([some[name] for some in found]) for name in names}
    _check_finite(curves)
    return curves


def _curves_of_some(model: nn.Module, loss: Callable[[], Tensor], names: Sequence[str]) -> dict[str, Norms]:
    with taps(model, *names, on_path=True) as seen:
        total = loss().sum()
    parts = {name: _parts(seen, name) for name in names}
    gradients = torch.autograd.grad(total, [part for some in parts.values() for part in some], allow_unused=True)
    given = iter(gradients)
    curves: dict[str, Norms] = {}
    for name, some in parts.items():
        norms = [_norms(next(given), part) for part in some]
        forwards = norms[0] if norms[0].ndim == 2 else torch.stack(norms, 1)
        curves[name] = (forwards if "_reverse." in name else forwards.flip(1)).double().numpy()
    return curves


def _parts(seen: Seen, name: str) -> list[Tensor]:
    """T tensors (B, H) of what comes in steps, else one (B, T, D)."""
    return [seen[name]] if name.endswith(".stream") else seen.steps(name)


def _norms(gradient: Tensor | None, part: Tensor) -> Tensor:
    """(B, H) -> (B,), (B, T, D) -> (B, T); what the loss does not depend on has none."""
    return torch.zeros(part.shape[:-1]) if gradient is None else gradient.norm(dim=-1)


def _check_finite(curves: dict[str, Norms]) -> None:
    for name, norms in curves.items():
        if not np.isfinite(norms).all():
            raise UsageError(f"the gradient by '{name}' is not finite: the weights hold NaN or are far too large")


def jacobian_curve(module: Callable[[Tensor], Any], x: Tensor) -> Norms:
    """‖∂y_T/∂x_t‖_F of a module (B, T, D) -> (B, T, H), or (y, state); x (B, T, D) -> (B, T), column k is lag k.

    One copy of the sequence for each row of the Jacobian, so that one backward pass gives many rows.
    """
    if x.ndim != 3:
        raise UsageError(f"x has shape {tuple(x.shape)}; the gradient over time needs (batch, time, width)")
    if x.shape[1] < 2:
        raise UsageError("a sequence of one position has no lag; give at least 2")
    found = []
    for row in x.detach():
        beginning = _last(module, row[None].clone().requires_grad_())
        if not beginning.requires_grad:
            raise UsageError("what the module gives does not depend on x by anything that can be differentiated")
        width = beginning.shape[1]
        squares = torch.zeros(len(row), dtype=torch.float64)
        for first in range(0, width, ROWS_AT_ONCE):
            copies = row.expand(min(ROWS_AT_ONCE, width - first), -1, -1).clone().requires_grad_()
            numbers = torch.arange(len(copies))
            chosen = _last(module, copies)[numbers, first + numbers]
            (gradient,) = torch.autograd.grad(chosen.sum(), copies, allow_unused=True)
            if gradient is not None:
                squares += gradient.double().square().sum((0, 2))
        found.append(squares.sqrt().flip(0).numpy())
    curve = np.stack(found)
    _check_finite({"x": curve})
    return curve


def _last(module: Callable[[Tensor], Any], x: Tensor) -> Tensor:
    """y_T    (B, H)"""
    try:
        y = module(x)
    except RuntimeError as error:
        reason = str(error).partition("\n")[0]
        raise UsageError(f"the module does not take {tuple(x.shape)}: {reason}") from None
    y = y[0] if isinstance(y, tuple) else y
    if not isinstance(y, Tensor) or y.ndim != 3 or y.shape[:2] != x.shape[:2]:
        shape = tuple(y.shape) if isinstance(y, Tensor) else type(y).__name__
        raise UsageError(f"the module makes {shape} of {tuple(x.shape)}; it must give (batch, time, width)")
    return y[:, -1]


def depth_curve(layers: Sequence[Callable[[Tensor], Tensor]], x: Tensor, readout: Tensor) -> Norms:
    """‖∂(Σ readout ∘ y)/∂x_k‖ of layers one above the other, x_k the input of layer k: entry k layers from the top.

    (L + 1,), the first for the output itself.
    """
    inputs = [x.detach().requires_grad_()]
    for layer in layers:
        inputs.append(layer(inputs[-1]))
    gradients = torch.autograd.grad((inputs[-1] * readout).sum(), inputs)
    return np.array([float(gradient.norm()) for gradient in reversed(gradients)])


# --------------------------------------------------------------------------- growth, horizon, verdict


@dataclass(frozen=True)
class Growth:
    """g: by which the norm is multiplied with each step back; the interval is over sequences."""

    rate: float
    low: float
    high: float
    sequences: int


def growth_of(norms: Norms) -> Growth:
    """Fitted to each sequence on its own, as far as it is not 0; 95 % by Student's t on ln g.

    Sequences whose gradient is 0 at once say nothing of a rate and are not counted; if they are most, g = 0.
    """
    if norms.shape[1] < 3:
        raise UsageError(f"{norms.shape[1]} positions are too few for a growth rate; give at least 3")
    slopes = np.array([_slope(row[1:]) for row in norms])
    alive = np.isfinite(slopes)
    if 2 * alive.sum() <= len(slopes):
        return Growth(0.0, 0.0, 0.0, len(slopes))
    slopes = slopes[alive]
    middle, half = float(slopes.mean()), 0.0
    if len(slopes) > 1:
        from scipy.stats import t as student  # every training imports this file, and few ask

        half = float(student.ppf(0.975, len(slopes) - 1) * slopes.std(ddof=1) / math.sqrt(len(slopes)))
    low, high = (middle - half, middle + half) if len(slopes) > 1 else (-math.inf, math.inf)
    return Growth(math.exp(middle), math.exp(low), math.exp(high) if high < 700 else math.inf, len(slopes))


def _slope(norms: Norms) -> float:
    """Of ln norm over the lag, as far as it is not 0; −∞ if it is 0 at once."""
    zeros = np.flatnonzero(norms <= 0)
    end = int(zeros[0]) if len(zeros) else len(norms)
    if end < 2:
        return -math.inf
    lags = np.arange(end, dtype=np.float64)
    centred = lags - lags.mean()
    return float((centred * np.log(norms[:end])).sum() / (centred**2).sum())


@dataclass(frozen=True)
class Verdict:
    """What a curve says. `total` = g^lags; the horizon is a lag, None if the gradient has not fallen so far."""

    word: str  # vanishing, healthy or exploding
    growth: Growth
    lags: int
    total: float
    settled: bool  # the whole interval of g says the same
    horizon: int | None
    expected_horizon: float | None  # from g alone; None: g ≥ 1


def judge(norms: Norms) -> Verdict:
    """The verdict on one layer's curve, (B, T)."""
    growth, lags = growth_of(norms), norms.shape[1] - 1
    nothing_arrives = not np.median(norms, 0)[-1]  # exactly 0, whatever the rate before
    words = {_word(rate, lags) for rate in (growth.low, growth.rate, growth.high)}
    return Verdict(
        "vanishing" if nothing_arrives else _word(growth.rate, lags),
        growth,
        lags,
        0.0 if nothing_arrives else _power(growth.rate, lags),
        nothing_arrives or len(words) == 1,
        horizon_of(norms),
        expected_horizon(growth.rate),
    )


def _word(rate: float, lags: int) -> str:
    total = _power(rate, lags)
    return "vanishing" if total < VANISHED else "exploding" if total > EXPLODED else "healthy"


def _power(rate: float, lags: int) -> float:
    return 0.0 if rate <= 0 else math.exp(min(700.0, lags * math.log(rate))) if rate < math.inf else math.inf


def horizon_of(norms: Norms) -> int | None:
    """The first lag at which the median over sequences is at most 1 % of that one step back."""
    median = np.median(norms, 0)
    fallen = np.flatnonzero(median[1:] <= FALLEN * median[1])
    return int(fallen[0]) + 1 if len(fallen) else None


def expected_horizon(rate: float) -> float | None:
    """1 + ln 0.01/ln g: the lag at which g^(k−1) is 1 %."""
    return None if rate >= 1 else 1.0 if rate <= 0 else 1 + math.log(FALLEN) / math.log(rate)


@dataclass(frozen=True, eq=False)
class ModuleFlow:
    """A module's curve, (B, T), and the verdict on it."""

    curve: Norms
    verdict: Verdict


def gradient_flow(module: Callable[[Tensor], Any], x: Tensor) -> ModuleFlow:
    """How far back the gradient of any module (B, T, D) -> (B, T, H), or (y, state), reaches on x (B, T, D).

    A module is measured as a copy in float64 and in evaluation mode; neither it nor a random stream is touched.
    """
    if not isinstance(x, Tensor) or not x.is_floating_point() or not len(x):
        raise UsageError("x must be a tensor of real numbers, (batch, time, width), of one sequence at least")
    if isinstance(module, nn.Module):
        module, x = copy.deepcopy(module).double().eval(), x.double()
    with torch.random.fork_rng(devices=[]), torch.enable_grad():
        curve = jacobian_curve(module, x)
    return ModuleFlow(curve, judge(curve))
