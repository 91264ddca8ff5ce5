"""A line of the library is broken, and the claims that it belongs to turn red.

A break names a function, a text in its source and what stands there instead. The function keeps its place and its
callers; only its code is another. So the table also says when the library has moved on: the text must be there, once.
"""

from __future__ import annotations
import __future__

import inspect
import textwrap
from dataclasses import dataclass
from functools import reduce
from importlib import import_module
from types import FunctionType
from typing import Any

import pytest

from seqlab.theory.ledger import Claim, claims
from seqlab.workflows.claims.check import check_one
from seqlab.workflows.claims.processes import Question

LEDGER = {claim.id: claim for claim in claims()}
QUESTION = Question(seed=1, forms=False, file=None)


@dataclass(frozen=True)
class Line:
    """`wrong` in place of `right` in a function, module:name."""

    place: str
    right: str
    wrong: str


class Break:
    """Some lines, and the claims that notice, with spaces between."""

    def __init__(self, what: str, *lines: Line, red: str) -> None:
        self.what, self.lines, self.red = what, lines, red.split()


KERNELS, STEPS = "seqlab.ops.recurrence:", "seqlab.ops.recurrence_steps:"
BREAKS = (
    Break(
        "GRU: the update gate with the other sign",
        Line(KERNELS + "_GRU.forward", "torch.lerp(h, n, a", "torch.lerp(n, h, a"),
        Line(STEPS + "gru", "h + z * (candidate - h)", "candidate + z * (h - candidate)"),
        red="gru.update-gate-closed gru.reset-overwrites gru.torch-equivalence sigmoid.reflection",
    ),
    Break(
        "LSTM: forget and input gate change places",
        Line(
            KERNELS + "_LSTM.forward",
            "torch.mul(a[:, H : 2 * H], c[: len(a)], out=out[1]).addcmul_(a[:, :H], candidate)",
            "torch.mul(a[:, :H], c[: len(a)], out=out[1]).addcmul_(a[:, H : 2 * H], candidate)",
        ),
        Line(STEPS + "lstm", "f * c + i * candidate", "i * c + f * candidate"),
        Line(KERNELS + "lstm", "if len(x) == 1 and alive is None", "if False"),
        red="lstm.zero-input lstm.dC-dC lstm.dC-dW-immediate lstm.grad-Wg-double-count",
    ),
    Break(
        "RNN: another activation",
        Line(KERNELS + "_RNN.forward", "squash(a.addmm_(h[: len(a)], w_hh_t))", "a.addmm_(h[: len(a)], w_hh_t).sin_()"),
        Line(STEPS + "rnn", "getattr(torch, phi)(a", "torch.sin(a"),
        Line(STEPS + "rnn_pre", "getattr(torch, phi)(h)", "torch.sin(h)"),
        red="rnn.bptt-product rnn.product-range rnn.reparam rnn.vanish-sufficient rnn.explode-necessary",
    ),
    Break(
        "attention without its scale",
        Line("seqlab.ops.attention:scaled_scores", "q * q.shape[-1] ** -0.5", "q"),
        red="attn.score-functions mha.code-layout dot.scale-variance sdp.variance prf.softmax-temperature",
    ),
    Break(
        "the causal mask shifted by one",
        Line("seqlab.ops.masks:banded_causal_mask", "key <= position", "key <= position + 1"),
        red="mask.causal-diagonal mask.decoder-causal-suffices separable.causal linattn.causal-prefix",
    ),
    Break(
        "separable attention: softmax over the wrong axis",
        Line("seqlab.ops.linear_attention:read", "torch.softmax(rows, -1)", "torch.softmax(rows, -2)"),
        red="separable.rows separable.cost separable.less-expressive",
    ),
    Break(
        "random features without the norm of the vector",
        Line("seqlab.ops.linear_attention:log_features", "u.square().sum(-1, keepdim=True)", "0 * u[..., :1]"),
        red="linattn.reorder kernel.positive-features prf.scale prf.expectation-inside prf.softmax-temperature",
    ),
    Break(
        "Adam: the constant inside the root",
        Line(
            "seqlab.training.optim:Adam.move",
            '_corrected(v, second, t, group).sqrt() + group["eps"]',
            '(_corrected(v, second, t, group) + group["eps"]).sqrt()',
        ),
        red="adam.l2-line adam.denominator",
    ),
    Break(
        "momentum: a sum in place of a running average",
        Line("seqlab.training.optim:RunningAverage.move", "(1 - beta) * gradient", "gradient"),
        red="momentum.equivalence momentum.sign momentum.unroll momentum.bias momentum.bias-correction",
    ),
    Break(
        "weight decay that forgets the learning rate",
        Line("seqlab.training.optim:PlainOptimiser.decayed", '1 - group["lr"] * group', "1 - group"),
        red="l2.sgd-equivalence adam.decoupled-uniform",
    ),
    Break(
        "perplexity over one unit too many",
        Line("seqlab.evaluation.perplexity:Figures.perplexity", "self.nats / units", "self.nats / (units + 1)"),
        red="lm.dev-perplexity ppl.base-invariance ppl.units-not-comparable ppl.explain-gap",
    ),
    Break(
        "layer normalisation with the variance of d − 1",
        Line(
            "seqlab.layers.norms:build_norm",
            "return nn.LayerNorm(",
            "return type('Wrong', (nn.LayerNorm,), {'forward': lambda self, x: nn.LayerNorm.forward(self, x)"
            " * (1 - 1 / width) ** 0.5})(",
        ),
        red="ln.norm ln.z-properties",
    ),
    Break(
        "batch normalisation that counts padding",
        Line(
            "seqlab.layers.norms:TokenBatchNorm.forward",
            "self._normalise(x[real])",
            "self._normalise(x.flatten(0, 1)).view_as(x)[real]",
        ),
        red="bn.dependence",
    ),
    Break(
        "cost: scores and mixing of attention are free",
        Line("seqlab.diagnostics.cost_attention:_core", "seen = _seen(layer, use)", 'seen = ("0", 0)'),
        red="mha.cost mha.bottleneck-short cost-attention.total-time cost.cross wordlm.attention-cost",
    ),
    Break(
        "sinusoidal positions: sine and cosine change places",
        Line(
            "seqlab.layers:SinusoidalPosition.forward",
            "torch.stack([theta.sin(), theta.cos()]",
            "torch.stack([theta.cos(), theta.sin()]",
        ),
        red="pe.sinusoid pe.index-meaning",
    ),
    Break(
        "sinusoidal positions: i is read as the dimension",
        Line("seqlab.layers.positions:angles", "base ** (-i / width)", "base ** (-2 * i / width)"),
        red="pe.sinusoid pe.index-meaning",
    ),
)


def found_at(place: str) -> FunctionType:
    module, _, names = place.partition(":")
    found: Any = reduce(getattr, names.split("."), import_module(module))
    assert isinstance(found, FunctionType), f"{place} is no plain function"
    return found


def break_line(monkeypatch: pytest.MonkeyPatch, line: Line) -> None:
    function = found_at(line.place)
    source = textwrap.dedent(inspect.getsource(function))
    assert source.count(line.right) == 1, f"{line.place} has no line '{line.right}'"
    defined: dict[str, Any] = {}
    words, flags = source.replace(line.right, line.wrong), __future__.annotations.compiler_flag
    exec(compile(words, line.place, "exec", flags), dict(function.__globals__), defined)
    (made,) = defined.values()
    monkeypatch.setattr(function, "__code__", inspect.unwrap(getattr(made, "__func__", made)).__code__)


def is_red(claim: Claim) -> bool:
    return not check_one(claim, QUESTION).holds


@pytest.mark.parametrize("broken", BREAKS, ids=lambda broken: broken.what)
def test_a_broken_line_is_noticed(broken: Break, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        for line in broken.lines:
            break_line(patch, line)
        assert [id for id in broken.red if not is_red(LEDGER[id])] == []
    assert not is_red(LEDGER[broken.red[0]]), "the library is whole again"


def test_code_compiled_anew_from_the_same_words_breaks_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    for line in {line.place: line for broken in BREAKS for line in broken.lines}.values():
        break_line(monkeypatch, Line(line.place, line.right, line.right))
    assert [id for id in {broken.red[0] for broken in BREAKS} if is_red(LEDGER[id])] == []


def test_a_line_that_is_not_there_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(AssertionError, match=r"angles has no line 'base \*\* i'"):
        break_line(monkeypatch, Line("seqlab.layers.positions:angles", "base ** i", ""))
