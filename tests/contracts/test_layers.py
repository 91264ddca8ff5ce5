"""What holds for every registered layer, in every variant. Registering a layer without a case here fails.

Agreement with the plain references stands in tests/layers and tests/ops.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import seqlab.core
from seqlab.core.registry import ACTIVATIONS, LAYERS, PLACEMENTS, look_up
from seqlab.core.state import tensors_of

D = 8
# They read ids, or give something else than a vector for each position: tests/contracts/test_encoders.py.
ENDS = {kind for kind in LAYERS if kind.endswith("-pooling")} | {"token-embedding", "output-head"}
Run = Callable[[Any, Tensor, Any, Tensor | None], tuple[Tensor, Any]]


@dataclass(frozen=True)
class Case:
    name: str
    build: Callable[[], nn.Module]
    run: Run
    continues: bool = True  # has a state, and pieces equal the whole
    padded: bool = True  # takes lengths
    gradients: bool = True  # has parameters


def _recurrent(layer: Any, x: Tensor, state: Any, lengths: Tensor | None) -> tuple[Tensor, Any]:
    y, state = layer(x, state, lengths)
    return y, state


def _causal(layer: Any, x: Tensor, state: Any, lengths: Tensor | None) -> tuple[Tensor, Any]:
    y, state, _ = layer(x, x, x, causal=True, state=state, key_lengths=lengths)
    return y, state


def _encoder(layer: Any, x: Tensor, _state: Any, lengths: Tensor | None) -> tuple[Tensor, Any]:
    return layer(x, lengths), None


def _self(layer: Any, x: Tensor, _state: Any, lengths: Tensor | None) -> tuple[Tensor, Any]:
    return layer(x, x, x, key_lengths=lengths)[0], None


def _plain(layer: Any, x: Tensor, _state: Any, _lengths: Tensor | None) -> tuple[Tensor, Any]:
    return layer(x), None


def _decoder(layer: Any, x: Tensor, state: Any, lengths: Tensor | None) -> tuple[Tensor, Any]:
    y, state = layer(x, state, lengths)
    return y, state


def _crossing(layer: Any, x: Tensor, state: Any, lengths: Tensor | None) -> tuple[Tensor, Any]:
    source = torch.linspace(-1, 1, 3 * D).to(x).view(1, 3, D).expand(len(x), 3, D) if state is None else None
    y, state = layer(x, source, state=state, lengths=lengths)
    return y, state


def _position(layer: Any, x: Tensor, state: Any, _lengths: Tensor | None) -> tuple[Tensor, Any]:
    start = 0 if state is None else int(state[0, 0, 0])
    return layer(x, start), x.new_full((1, len(x), 1), start + x.shape[1])


def _rotary(layer: Any, x: Tensor, state: Any, _lengths: Tensor | None) -> tuple[Tensor, Any]:
    start = 0 if state is None else int(state[0, 0, 0])
    return layer(x[:, None], start)[:, 0], x.new_full((1, len(x), 1), start + x.shape[1])


def cases() -> list[Case]:
    from seqlab import layers

    def attention(kind: str) -> layers.MultiHeadAttention:
        return layers.MultiHeadAttention(D, 2, kind=kind)

    found = []
    for kind, options in (
        ("rnn", {}),
        ("rnn", {"nonlinearity": "relu"}),
        ("rnn", {"form": "pre", "nonlinearity": "sigmoid"}),
        ("gru", {}),
        ("lstm", {}),
    ):
        for depth in (1, 2):
            name = "-".join([kind, str(depth), *map(str, options.values())])
            build = lambda k=kind, n=depth, o=options: look_up(LAYERS, k, "layer")(D, D, n, **o)  # noqa: E731
            found.append(Case(name, build, _recurrent))
            both = lambda k=kind, n=depth, o=options: look_up(LAYERS, k, "layer")(D, D, n, bidirectional=True, **o)  # noqa: E731
            found.append(Case(f"{name}-bidirectional", both, _recurrent, continues=False))
    for score in ("dot", "scaled", "additive"):
        found.append(Case(f"attentive-rnn-{score}", lambda s=score: layers.AttentiveRNN(D, D, score=s), _recurrent))
    for kind in ("softmax", "separable", "random_features"):
        found += [
            Case(f"attention-{kind}-causal", lambda k=kind: attention(k), _causal),
            Case(f"attention-{kind}", lambda k=kind: attention(k), _self, continues=False),
            Case(f"encoder-block-{kind}", lambda k=kind: layers.EncoderBlock(attention(k)), _encoder, continues=False),
            Case(f"decoder-block-{kind}", lambda k=kind: layers.DecoderBlock(attention(k)), _decoder),
            Case(
                f"encoder-decoder-block-{kind}",
                lambda k=kind: layers.EncoderDecoderBlock(attention(k), attention(k)),
                _crossing,
            ),
        ]
    for norm in ("rms", "batch"):
        block = lambda n=norm: layers.EncoderBlock(attention("softmax"), norm=n, placement="post")  # noqa: E731
        found.append(Case(f"encoder-block-post-{norm}", block, _encoder, continues=False))
    found += encoder_cases() + told_cases()
    found += [
        Case("batch-norm", lambda: layers.TokenBatchNorm(D), _encoder, continues=False),
        Case("sinusoidal-position", lambda: layers.SinusoidalPosition(D), _position, padded=False, gradients=False),
        Case("learned-position", lambda: layers.LearnedPosition(20, D), _position, padded=False),
        Case("rotary-position", lambda: layers.RotaryPosition(D), _rotary, padded=False, gradients=False),
    ]
    return found


def encoder_cases() -> list[Case]:
    from seqlab import layers

    found = []
    for kind in ("rnn", "gru", "lstm"):
        for both in (False, True):
            build = lambda k=kind, b=both: layers.RecurrentEncoder(  # noqa: E731
                look_up(LAYERS, k, "layer")(D, D, 2, bidirectional=b)
            )
            found.append(Case(f"recurrent-encoder-{kind}-{1 + both}", build, _encoder, continues=False))
    for placement in PLACEMENTS:
        style = layers.BlockStyle(placement=placement)
        stack = lambda s=style: layers.TransformerEncoder(  # noqa: E731
            [layers.EncoderBlock(s.attention(D, 2), **s.block(D)) for _ in range(2)], s.last_norm(D)
        )
        found.append(Case(f"transformer-encoder-{placement}", stack, _encoder, continues=False))
    return found


def told_cases() -> list[Case]:
    """Blocks and networks that were told how to be."""
    from seqlab import layers

    styles = {
        "llama": dict(kv_heads=2, bias=False, hidden=11, activation="silu", gated=True, bias_mlp=False, norm="rms"),
        "parallel": dict(placement="parallel", activation="gelu_tanh", norm_bias=False),
        "wide-heads": dict(head_width=6, kv_heads=1, bias_out=False, activation="relu", eps=1e-12),
    }
    found = []
    for name, options in styles.items():
        style = layers.BlockStyle(**options)  # type: ignore[arg-type]
        for pairing in ("neighbours", "halves"):
            rotary = layers.RotaryPosition(style.head_width or D // 4, pairing=pairing, base=500.0)
            build = lambda s=style, r=rotary: layers.DecoderBlock(s.attention(D, 4, rotary=r), **s.block(D))  # noqa: E731
            found.append(Case(f"decoder-block-{name}-{pairing}", build, _decoder))
        for kind in ("separable", "random_features"):
            linear = lambda s=style, k=kind: layers.DecoderBlock(s.attention(D, 4, kind=k), **s.block(D))  # noqa: E731
            found.append(Case(f"decoder-block-{name}-{kind}", linear, _decoder))
    for activation in ACTIVATIONS:
        for gated in (False, True):
            mlp = lambda a=activation, g=gated: layers.FeedForward(D, 5, activation=a, gated=g)  # noqa: E731
            found.append(Case(f"feed-forward-{activation}-{gated}", mlp, _plain, continues=False, padded=False))
    halves = lambda: layers.SinusoidalPosition(D, layout="halves", base=50.0)  # noqa: E731
    partly = lambda: layers.RotaryPosition(D, pairing="halves", turned=4)  # noqa: E731
    found.append(Case("sinusoidal-position-halves", halves, _position, padded=False, gradients=False))
    found.append(Case("rotary-position-halves", partly, _rotary, padded=False, gradients=False))
    return found


CASES = cases()


@pytest.fixture(params=CASES, ids=lambda c: c.name)
def case(request: pytest.FixtureRequest) -> Case:
    found: Case = request.param
    return found


@pytest.fixture
def layer(case: Case) -> Any:
    return built(case)


def built(case: Case, seed: int = 0) -> Any:
    """In evaluation (batch normalisation by running statistics), with every weight away from its start."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        layer = case.build().double().eval()
        with torch.no_grad():
            for parameter in layer.parameters():
                parameter.add_(0.2 * torch.randn_like(parameter))
    return layer


def random(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def close(a: Tensor, b: Tensor) -> bool:
    return a.shape == b.shape and torch.allclose(a, b, rtol=0, atol=1e-10)


def same_state(a: Any, b: Any) -> bool:
    return all(close(x, y) for x, y in zip(tensors_of(a), tensors_of(b), strict=True))


def test_every_registered_layer_has_a_case() -> None:
    for kind in LAYERS.keys() - ENDS:
        assert any(case.name == kind or case.name.startswith(f"{kind}-") for case in CASES), kind
        assert isinstance(look_up(LAYERS, kind, "layer"), type)


def test_shapes_batch_of_one_and_time_of_one(case: Case, layer: Any) -> None:
    for batch, time in ((1, 1), (1, 6), (4, 1), (3, 5)):
        y, _ = case.run(layer, random(batch, time, D), None, None)
        assert y.shape[:2] == (batch, time)
        assert y.shape[2] in (D, 2 * D)
        assert torch.isfinite(y).all()


def test_no_time_at_all(case: Case, layer: Any) -> None:
    y, state = case.run(layer, random(2, 0, D), None, None)
    assert y.shape[:2] == (2, 0)
    if case.continues:
        x = random(2, 3, D)
        assert close(case.run(layer, x, state, None)[0], case.run(layer, x, None, None)[0])


# torch has no bfloat16 kernel on the CPU for these: none so far.
@pytest.mark.parametrize(
    ("dtype", "tolerance"), [(torch.float64, 0.0), (torch.float32, 1e-4), (torch.bfloat16, 0.25)], ids=str
)
def test_dtypes(case: Case, layer: Any, dtype: torch.dtype, tolerance: float) -> None:
    x = random(2, 5, D)
    expected, _ = case.run(layer, x, None, None)
    layer.to(dtype)
    inputs = x.to(dtype).requires_grad_()
    y, state = case.run(layer, inputs, None, None)
    assert y.dtype == dtype
    assert all(t.dtype == dtype for t in tensors_of(state) if t.is_floating_point())
    assert (y.double() - expected).abs().max() <= tolerance * max(1.0, expected.abs().max().item())
    y.sum().backward()
    assert inputs.grad is not None
    assert inputs.grad.dtype == dtype
    assert torch.isfinite(inputs.grad).all()


@pytest.mark.parametrize("case", [c for c in CASES if c.padded], ids=lambda c: c.name)
def test_padding_is_not_seen(case: Case, layer: Any) -> None:
    x, lengths = random(4, 6, D), torch.tensor([6, 1, 4, 0])
    y, state = case.run(layer, x, None, lengths)
    real = torch.arange(6) < lengths[:, None]
    other = torch.where(real[..., None], x, 30 * random(4, 6, D, seed=1))
    again, same = case.run(layer, other, None, lengths)
    assert close(again[real], y[real])
    longer, _ = case.run(layer, torch.cat([x, random(4, 3, D, seed=2)], 1), None, lengths)
    assert close(longer[:, :6][real], y[real])
    for row, length in enumerate(lengths.tolist()):
        if length:
            alone, _ = case.run(layer, x[row : row + 1, :length], None, None)
            assert close(alone, y[row : row + 1, :length])
    if case.continues:
        more = random(4, 3, D, seed=3)
        following, _ = case.run(layer, more, state, torch.tensor([3, 3, 2, 3]))
        joined = [torch.cat([x[row, :n], more[row]])[None] for row, n in enumerate(lengths.tolist())]
        for row, sequence in enumerate(joined):
            whole, _ = case.run(layer, sequence, None, None)
            end = 2 if row == 2 else 3
            assert close(whole[0, int(lengths[row]) :][:end], following[row, :end])
        assert same is not None


def test_the_order_of_the_batch_does_not_matter(case: Case, layer: Any) -> None:
    x, order = random(4, 5, D), torch.tensor([2, 0, 3, 1])
    y, state = case.run(layer, x, None, None)
    shuffled, shuffled_state = case.run(layer, x[order], None, None)
    assert close(shuffled, y[order])
    if case.continues:
        assert same_state(seqlab.core.reorder(state, order), shuffled_state)


@pytest.mark.parametrize("case", [c for c in CASES if c.continues], ids=lambda c: c.name)
def test_pieces_with_state_equal_the_whole(case: Case, layer: Any) -> None:
    x = random(2, 9, D)
    whole, final = case.run(layer, x, None, None)
    for cuts in ((1,), (4, 5), tuple(range(1, 9))):
        state, parts = None, []
        for a, b in zip((0, *cuts), (*cuts, 9), strict=True):
            y, state = case.run(layer, x[:, a:b], state, None)
            parts.append(y)
        assert close(torch.cat(parts, 1), whole)
        if "random_features" not in case.name and "separable" not in case.name:  # sums may stand at another level
            assert same_state(state, final)


def test_no_hidden_state(case: Case, layer: Any) -> None:
    x = random(2, 5, D)
    first, _ = case.run(layer, x, None, None)
    before = {name: value.clone() for name, value in layer.state_dict().items()}
    case.run(layer, random(3, 4, D, seed=5), None, None)
    assert torch.equal(case.run(layer, x, None, None)[0], first)
    assert all(torch.equal(value, before[name]) for name, value in layer.state_dict().items())


def test_saved_and_loaded_it_is_the_same(case: Case, layer: Any) -> None:
    x = random(2, 5, D)
    other = built(case, seed=1)
    if case.gradients:
        assert not close(case.run(other, x, None, None)[0], case.run(layer, x, None, None)[0])
    other.load_state_dict(layer.state_dict())
    assert torch.equal(case.run(other, x, None, None)[0], case.run(layer, x, None, None)[0])


def test_gradients_by_finite_differences(case: Case, layer: Any) -> None:
    x = random(2, 3, D).requires_grad_()
    parameters = dict(layer.named_parameters())

    def run(x: Tensor, *values: Tensor) -> Tensor:
        named = dict(zip(parameters, values, strict=True))
        proxy = _Functional(layer, named)
        return case.run(proxy, x, None, None)[0]

    # Relu has a kink, which a step of 1e-6 near it would see; these inputs are not near one.
    assert torch.autograd.gradcheck(run, (x, *parameters.values()), fast_mode=True)


class _Functional:
    """A layer with other weights, called as the layer itself is."""

    def __init__(self, layer: nn.Module, weights: dict[str, Tensor]) -> None:
        self.layer, self.weights = layer, weights

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return torch.func.functional_call(self.layer, self.weights, args, kwargs)


def test_every_weight_learns(case: Case, layer: Any) -> None:
    y, _ = case.run(layer, random(3, 4, D), None, None)
    if not case.gradients:
        assert not list(layer.parameters())
        return
    (y * random(*y.shape, seed=8)).sum().backward()
    silent = [name for name, p in layer.named_parameters() if p.grad is None or not p.grad.abs().sum() > 0]
    assert not silent
