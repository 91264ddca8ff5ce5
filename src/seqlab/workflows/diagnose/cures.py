"""What helps against a gradient that vanishes or explodes, and what each remedy does to a model of the same sizes."""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import fmean
from typing import Any

import torch
from torch import Tensor, nn

from seqlab.core.errors import UsageError
from seqlab.core.taps import LOOKS, Call, Look
from seqlab.diagnostics.gradient_flow import EXPLODED, VANISHED, Verdict, judge, lag_curves, last_losses
from seqlab.diagnostics.inside import look_inside
from seqlab.layers.attention import MultiHeadAttention
from seqlab.layers.attentive import AttentiveRNN
from seqlab.layers.recurrent import LSTM, RNN, Recurrent
from seqlab.models import build_lm
from seqlab.workflows.diagnose.examine import Examined

SATURATED = 0.1  # evenness of attention below which its softmax hardly moves


@dataclass(frozen=True)
class Cure:
    name: str
    why: str


@dataclass(frozen=True)
class Tried:
    """A remedy's effect on an untrained model of the same sizes."""

    name: str
    verdict: Verdict
    note: str = ""


# --------------------------------------------------------------------------- what is suggested


def suggested(found: Examined, init: str | None = None) -> list[Cure]:
    """For the verdict on one model; nothing for a healthy one. `init` is how an untrained one was started."""
    verdict, cures = found.verdict, []
    recurrent = found.kind in ("rnn", "gru", "lstm", "attentive-rnn")
    if verdict.word == "exploding":
        cures.append(Cure("clipping", "bounds each step whatever the gradient's size (--clip 1)"))
    if verdict.word != "healthy" and init == "uniform":
        cures.append(Cure("orthogonal initialisation", "every singular value of the recurrent matrix starts at 1"))
    if verdict.word != "healthy" and found.kind == "rnn":
        cures.append(Cure("gated cell", "a GRU or LSTM carries its state on by a sum instead of a product"))
        cures.append(Cure("layer normalisation", "keeps what enters the tanh where its slope is not 0"))
    if verdict.word == "vanishing" and found.kind == "lstm":
        cures.append(Cure("forget-gate bias", "an open forget gate hands the cell on"))
    if verdict.word != "healthy" and recurrent:
        length = shorter_unroll(verdict)
        if length is not None:
            cures.append(Cure("shorter unroll", f"over {length} steps the gradient stays within 0.01 … 100"))
    if any(head.evenness < SATURATED for head in found.heads):
        why = "attention is nearly one-hot, so that its softmax passes hardly any gradient: smaller scores would help"
        cures.append(Cure("scaling by √d", why))
    return cures


def shorter_unroll(verdict: Verdict) -> int | None:
    """The most steps over which g^T stays within the thresholds; None if there are not even three."""
    rate = verdict.growth.rate
    if rate <= 0 or rate == 1:
        return None
    most = math.log(VANISHED if rate < 1 else EXPLODED) / math.log(rate)
    return int(most) if most >= 3 else None


# --------------------------------------------------------------------------- tried


class NormedRNN(nn.Module):
    """g_t = tanh(LayerNorm(W g_{t−1} + U x_t + b))"""

    def __init__(self, layer: RNN) -> None:
        super().__init__()
        w_ih, w_hh, b_ih, b_hh = (weight.detach() for weight in layer.parameters())
        self.w_ih, self.w_hh, self.b = nn.Parameter(w_ih), nn.Parameter(w_hh), nn.Parameter(b_ih + b_hh)
        self.norm = nn.LayerNorm(layer.hidden_size)

    def forward(self, x: Tensor, state: Any = None) -> tuple[Tensor, Any]:
        steps = self.steps(x, state)
        return torch.stack(steps, 1), steps[-1]

    def steps(self, x: Tensor, state: Any = None) -> list[Tensor]:
        g = x.new_zeros(len(x), len(self.b)) if state is None else state
        found = []
        for entry in nn.functional.linear(x, self.w_ih, self.b).unbind(1):
            g = torch.tanh(self.norm(entry + g @ self.w_hh.T))
            found.append(g)
        return found


def _normed_again(module: NormedRNN, call: Call, _wanted: Any) -> tuple[Any, dict[str, Any]]:
    steps = module.steps(call.arguments["x"], call.arguments["state"])
    return (torch.stack(steps, 1), steps[-1]), {"hidden": steps}


LOOKS[NormedRNN] = Look(("hidden",), lambda *call: _normed_again(*call)[1], replay=_normed_again)


def try_cures(kind: str, vocab_size: int, sizes: dict[str, Any], ids: Tensor, init: str, seed: int) -> list[Tried]:
    """The same sequences through untrained models of the same sizes: as it is, and with each remedy."""

    def untrained(other: str = kind, how: str = init) -> Any:
        return build_untrained(other, vocab_size, sizes, how, seed)

    def measured(name: str, model: Any, some: Tensor = ids) -> Tried:
        model = model.double().eval()
        curves = lag_curves(model, *last_losses(model, some))
        verdicts = [judge(norms) for norms in curves.values()]
        _, heads = look_inside(model, lambda: model(some[:, :-1]))
        note = f"attention's evenness {fmean(head.evenness for head in heads):.2f}" if heads else ""
        return Tried(name, max(verdicts, key=lambda verdict: verdict.growth.rate), note)

    as_it_is = measured("as it is", untrained())
    found = [as_it_is]
    if init == "uniform":
        found.append(measured("orthogonal initialisation", untrained(how="orthogonal")))
    if kind == "rnn":
        found += [measured(f"gated cell: {other}", untrained(other, "default")) for other in ("gru", "lstm")]
        if sizes["depth"] == 1:
            found.append(measured("layer normalisation", _normed(untrained())))
    if kind == "lstm":
        for bias in (2.0, 4.0):  # it starts at 1
            found.append(measured(f"forget-gate bias {bias:g}", _with_forget_bias(untrained(), bias)))
    if kind == "attentive-rnn" and sizes.get("score") in ("dot", "additive"):
        found.append(
            measured("scaling by √d", build_untrained(kind, vocab_size, sizes | {"score": "scaled"}, init, seed))
        )
    elif kind in ("attentive-rnn", "transformer"):
        found.append(measured("without its scaling by √d", without_scaling(untrained())))
    length = shorter_unroll(as_it_is.verdict)
    if length is not None and length < ids.shape[1] - 1:
        found.append(measured(f"shorter unroll: {length} steps", untrained(), ids[:, -(length + 1) :]))
    if as_it_is.verdict.word == "exploding":
        found.append(Tried("clipping to norm 1", as_it_is.verdict, _clipped(untrained().double().eval(), ids)))
    return found


def _clipped(model: Any, ids: Tensor) -> str:
    """What clipping does to the gradient of all weights; how it grows over time stays."""
    for loss in last_losses(model, ids):
        torch.autograd.backward(loss().sum() / len(ids))
    before = float(nn.utils.clip_grad_norm_(model.parameters(), 1.0))
    after = float(nn.utils.get_total_norm([p.grad for p in model.parameters() if p.grad is not None]))
    return f"gradient of all weights {before:.3g} → {after:.3g}; its growth over time stays"


def build_untrained(kind: str, vocab_size: int, sizes: dict[str, Any], init: str, seed: int) -> Any:
    """A language model of these sizes; `init` draws its recurrent matrices anew."""
    model = build_lm(kind, vocab_size, seed=seed, **sizes)
    if init == "default":
        return model
    layers = [module for module in model.modules() if isinstance(module, Recurrent)]
    if not layers:
        raise UsageError(f"--init {init} is for rnn, gru and lstm; '{kind}' has no recurrent matrices of that kind")
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        for layer in layers:
            layer.recurrent_init = init
            layer.reset_parameters()
    return model


def _normed(model: Any) -> Any:
    model.recurrent = NormedRNN(model.recurrent)
    return model


@torch.no_grad()
def without_scaling(model: Any) -> Any:
    """Scores qᵀk instead of qᵀk/√d: queries √d times as long."""
    for layer in model.modules():
        if isinstance(layer, AttentiveRNN):
            layer.score = "dot"
        if isinstance(layer, MultiHeadAttention):
            for part in layer.matrices()[0]:  # of the queries: weight and bias, views
                if part is not None:
                    part.mul_(layer.head_width**0.5)
    return model


@torch.no_grad()
def _with_forget_bias(model: Any, bias: float) -> Any:
    """b_f = bias: one of the two vectors, since they are added."""
    for layer in model.modules():
        if isinstance(layer, LSTM):
            for number in range(layer.num_layers):
                forget = slice(layer.hidden_size, 2 * layer.hidden_size)
                getattr(layer, f"bias_ih_l{number}")[forget] = bias
                getattr(layer, f"bias_hh_l{number}")[forget] = 0.0
    return model
