"""The recurrent layers against the plain loops and against torch.nn: values and gradients, float64."""

from collections.abc import Callable
from itertools import product
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from seqlab.core.errors import UsageError
from seqlab.core.state import tensors_of
from seqlab.layers import GRU, LSTM, RNN
from seqlab.ops.reference.recurrence import CellWeights, gru_step, loop, lstm_loop, rnn_step, rnn_step_pre

SHAPES = [(1, 1, 1, 1), (1, 6, 3, 4), (5, 1, 2, 3), (4, 9, 3, 5)]  # B, T, D, H
KINDS: dict[str, Callable[..., Any]] = {
    "rnn": RNN,
    "rnn-relu": lambda *a, **k: RNN(*a, nonlinearity="relu", **k),
    "rnn-sigmoid": lambda *a, **k: RNN(*a, nonlinearity="sigmoid", **k),
    "rnn-pre": lambda *a, **k: RNN(*a, form="pre", **k),
    "rnn-pre-relu": lambda *a, **k: RNN(*a, form="pre", nonlinearity="relu", **k),
    "rnn-pre-sigmoid": lambda *a, **k: RNN(*a, form="pre", nonlinearity="sigmoid", **k),
    "gru": GRU,
    "lstm": LSTM,
}
STRUCTURES = list(product((1, 2), (False, True), (True, False)))  # layers, bidirectional, bias


def build(kind: str, *sizes: int, **options: Any) -> Any:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(7)
        layer = KINDS[kind](*sizes, **options).double()
        with torch.no_grad():  # biases start at zero, which would hide a mistake with them
            for parameter in layer.parameters():
                parameter.add_(0.3 * torch.randn_like(parameter))
    return layer


def random(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def random_state(layer: Any, batch: int, seed: int = 3) -> Any:
    shape = (layer.num_layers * layer.directions, batch, layer.hidden_size)
    if isinstance(layer, LSTM):
        return random(*shape, seed=seed), random(*shape, seed=seed + 1)
    return random(*shape, seed=seed)


def uneven_lengths(batch: int, time: int) -> Tensor:
    return torch.tensor([(time - 3 * b) % (time + 1) for b in range(batch)])


def plain(layer: Any, x: Tensor, state: Any, lengths: Tensor | None) -> tuple[Tensor, list[Tensor]]:
    """Layer over layer, direction by direction, with the steps of ops/reference alone."""
    lengths = torch.full((len(x),), x.shape[1]) if lengths is None else lengths
    finals: list[Any] = []
    for number in range(layer.num_layers):
        outputs, upwards = [], []
        for direction in range(layer.directions):
            weights = weights_of(layer, number, direction)
            inputs = flipped(x, lengths) if direction else x
            start = [part[len(finals)] for part in tensors_of(state)] if state is not None else None
            y, upward, final = one_direction(layer, inputs, start, weights, lengths)
            finals.append(final)
            outputs.append(flipped(y, lengths) if direction else y)
            upwards.append(flipped(upward, lengths) if direction else upward)
        x = torch.cat(upwards, -1)
    return torch.cat(outputs, -1), [torch.stack(parts) for parts in zip(*finals, strict=True)]


def weights_of(layer: Any, number: int, direction: int) -> CellWeights:
    suffix = f"l{number}" + ("_reverse" if direction else "")
    w = [getattr(layer, f"weight_{part}_{suffix}") for part in ("ih", "hh")]
    zero = w[0].new_zeros(len(w[0]))
    return CellWeights(*w, *(getattr(layer, f"bias_{part}_{suffix}", zero) for part in ("ih", "hh")))


def flipped(x: Tensor, lengths: Tensor) -> Tensor:
    rows = [torch.cat([row[:n].flip(0), row[n:]]) for row, n in zip(x, lengths.tolist(), strict=True)]
    return torch.stack(rows)


def one_direction(
    layer: Any, x: Tensor, start: list[Tensor] | None, weights: CellWeights, lengths: Tensor
) -> tuple[Tensor, Tensor, tuple[Tensor, ...]]:
    zero = x.new_zeros(len(x), layer.hidden_size)
    h = zero if start is None else start[0]
    if isinstance(layer, LSTM):
        y, final = lstm_loop(x, h, zero if start is None else start[1], weights, lengths)
        return y, y, final
    if isinstance(layer, GRU):
        y, last = loop(lambda x_t, h_t: gru_step(x_t, h_t, weights), x, h, lengths)
        return y, y, (last,)
    phi = layer.nonlinearity
    if layer.form == "post":
        y, last = loop(lambda x_t, h_t: rnn_step(x_t, h_t, weights, phi), x, h, lengths)
        return y, y, (last,)
    return pre_form(x, None if start is None else h, weights, phi, lengths)


def pre_form(
    x: Tensor, h: Tensor | None, weights: CellWeights, phi: str, lengths: Tensor
) -> tuple[Tensor, Tensor, tuple[Tensor, ...]]:
    """Without a state φ(h_0) = 0, which for the sigmoid is at −inf."""
    nothing = x.new_full((len(x), weights.w_hh.shape[1]), -torch.inf if phi == "sigmoid" else 0.0)
    y, last = loop(lambda x_t, h_t: rnn_step_pre(x_t, h_t, weights, phi), x, nothing if h is None else h, lengths)
    real = torch.arange(x.shape[1]) < lengths[:, None]
    return y, torch.where(real[..., None], getattr(torch, phi)(y), 0.0), (last,)


def compare(mine: list[Tensor], theirs: list[Tensor], over: list[Tensor], tolerance: float) -> None:
    """Equal values, and equal gradients of a random combination of the values."""
    weights = [random(*out.shape, seed=50 + i) for i, out in enumerate(theirs)]
    gradients = []
    for outputs in (mine, theirs):
        total = sum((out * w).sum() for out, w in zip(outputs, weights, strict=True))
        gradients.append(torch.autograd.grad(total, over, allow_unused=True, materialize_grads=True))
    for a, b in [*zip(mine, theirs, strict=True), *zip(*gradients, strict=True)]:
        difference = torch.where(a == b, 0.0, a - b).abs().max()
        assert difference <= tolerance * max(1.0, b.nan_to_num(posinf=0.0, neginf=0.0).abs().max().item())


@pytest.mark.parametrize("structure", STRUCTURES, ids=str)
@pytest.mark.parametrize("kind", KINDS)
def test_layers_agree_with_the_plain_steps(kind: str, structure: tuple[int, bool, bool]) -> None:
    num_layers, bidirectional, bias = structure
    for (B, T, D, H), padded, given in product(SHAPES, (False, True), (False, True)):
        layer = build(kind, D, H, num_layers, bidirectional=bidirectional, bias=bias)
        x = random(B, T, D).requires_grad_()
        state = random_state(layer, B) if given else None
        leaves = [t.requires_grad_() for t in tensors_of(state)] if given else []
        lengths = uneven_lengths(B, T) if padded else None
        y, final = layer(x, state, lengths)
        expected, expected_final = plain(layer, x, state, lengths)
        compare([y, *tensors_of(final)], [expected, *expected_final], [x, *leaves, *layer.parameters()], 1e-11)


@pytest.mark.parametrize("structure", STRUCTURES, ids=str)
@pytest.mark.parametrize(("kind", "peer"), [("rnn", nn.RNN), ("rnn-relu", nn.RNN), ("gru", nn.GRU), ("lstm", nn.LSTM)])
def test_layers_agree_with_torch_both_ways(
    kind: str, peer: type[nn.RNNBase], structure: tuple[int, bool, bool]
) -> None:
    num_layers, bidirectional, bias = structure
    for B, T, D, H in SHAPES:
        options: dict[str, Any] = {"nonlinearity": "relu"} if kind == "rnn-relu" else {}
        torch.manual_seed(1)
        theirs = peer(D, H, num_layers, bidirectional=bidirectional, bias=bias, batch_first=True, **options).double()
        mine = type(build(kind, D, H)).from_torch(theirs)
        x = random(B, T, D)
        state = random_state(mine, B)
        back = mine.to_torch()
        assert isinstance(back, peer)
        assert back.batch_first
        for name, parameter in theirs.named_parameters():
            assert torch.equal(dict(back.named_parameters())[name], parameter)
        x.requires_grad_()
        compare(
            [(out := mine(x, state))[0], *tensors_of(out[1])],
            [(out := theirs(x, state))[0], *tensors_of(out[1])],
            [x],
            1e-11,
        )
        grad = random(B, T, H * (2 if bidirectional else 1), seed=9)
        theirs(x, state)[0].backward(grad)
        mine(x, state)[0].backward(grad)
        for name, parameter in mine.named_parameters():
            expected = mine._converted(dict(theirs.named_parameters())[name].grad)
            assert (parameter.grad - expected).abs().max() <= 1e-11 * max(1.0, expected.abs().max().item()), name


@pytest.mark.parametrize("kind", KINDS)
def test_what_stands_in_the_padding_does_not_matter(kind: str) -> None:
    layer = build(kind, 3, 4, 2, bidirectional=True)
    x, lengths = random(4, 6, 3), torch.tensor([6, 3, 0, 5])
    x.requires_grad_()
    y, state = layer(x, None, lengths)
    (y.square().sum() + sum(t.sum() for t in tensors_of(state))).backward()
    expected = [p.grad.clone() for p in layer.parameters()]
    layer.zero_grad()
    poison = x.detach().clone()
    for row, length in enumerate(lengths.tolist()):
        assert torch.count_nonzero(x.grad[row, length:]) == 0
        assert torch.count_nonzero(y[row, length:]) == 0
        poison[row, length:] = torch.nan
    y2, state2 = layer(poison, None, lengths)
    assert torch.equal(y2, y)
    (y2.square().sum() + sum(t.sum() for t in tensors_of(state2))).backward()
    for parameter, grad in zip(layer.parameters(), expected, strict=True):
        assert torch.allclose(parameter.grad, grad, rtol=0, atol=1e-12)
    for row, length in enumerate(lengths.tolist()):
        alone, final = layer(x[row : row + 1, :length])
        assert torch.allclose(y[row : row + 1, :length], alone, rtol=0, atol=1e-12)
        for a, b in zip(tensors_of(state), tensors_of(final), strict=True):
            assert torch.allclose(a[:, row : row + 1], b, rtol=0, atol=1e-12)


def test_padded_and_full_lstm_in_float32() -> None:
    """Torch has a fused loop for float32 alone, and without padding alone."""
    layer = build("lstm", 3, 4, 2, bidirectional=True)
    x, state, lengths = random(5, 9, 3).requires_grad_(), random_state(layer, 5), torch.tensor([9, 2, 0, 5, 1])
    single, x_single = LSTM.from_torch(layer.to_torch().float()), x.detach().float().requires_grad_()
    start = tuple(part.float() for part in state)
    found: list[list[Tensor]] = []
    for which, inputs, begin in ((layer, x, state), (single, x_single, start)):
        y, final = which(inputs, begin, lengths)
        (y.square().sum() + sum(part.square().sum() for part in final)).backward()
        found.append([y, *final, inputs.grad, *(p.grad for p in which.parameters())])
    for a, b in zip(*found, strict=True):
        assert (a - b).abs().max() <= 1e-5 * max(1.0, a.abs().max().item())
    for before, after in zip(start, found[1][1:3], strict=True):
        assert torch.equal(after[:, 2], before[:, 2])
    full, padded = single(x_single, start), single(torch.cat([x_single, x_single], 1), start, torch.full((5,), 9))
    for a, b in zip([full[0], *full[1]], [padded[0][:, :9], *padded[1]], strict=True):
        assert (a - b).abs().max() <= 1e-5


@pytest.mark.parametrize("kind", KINDS)
def test_gradients_by_finite_differences(kind: str) -> None:
    layer = build(kind, 2, 3)
    x, lengths = random(3, 4, 2).requires_grad_(), torch.tensor([4, 2, 3])
    state = [t.requires_grad_() for t in tensors_of(random_state(layer, 3))]
    names = [name for name, _ in layer.named_parameters()]

    def run(x: Tensor, *rest: Tensor) -> tuple[Tensor, ...]:
        parts, weights = rest[: len(state)], rest[len(state) :]
        start = tuple(parts) if len(parts) == 2 else parts[0]
        weights_by_name = dict(zip(names, weights, strict=True))
        y, final = torch.func.functional_call(layer, weights_by_name, (x, start, lengths))
        return y, *tensors_of(final)

    assert torch.autograd.gradcheck(run, [x, *state, *layer.parameters()])


@pytest.mark.parametrize("kind", ["rnn", "rnn-sigmoid", "rnn-pre", "gru", "lstm"])
def test_gradients_of_gradients(kind: str) -> None:
    """A penalty on the gradient needs them; those of the fast kernels come through a loop of ordinary operations."""
    layer = build(kind, 2, 3, 2)
    x, lengths = random(4, 5, 2).requires_grad_(), torch.tensor([2, 5, 0, 3])  # no two sizes alike
    names = [name for name, _ in layer.named_parameters()]

    def run(x: Tensor, *weights: Tensor) -> Tensor:
        named = dict(zip(names, weights, strict=True))
        y: Tensor = torch.func.functional_call(layer, named, (x, None, lengths))[0]
        return y

    assert torch.autograd.gradgradcheck(run, [x, *layer.parameters()], fast_mode=True)


@pytest.mark.parametrize("lengths", [None, (2, 5, 0, 3), (0, 0, 0, 0)], ids=str)
@pytest.mark.parametrize("kind", ["rnn", "rnn-sigmoid", "rnn-relu", "rnn-pre", "gru", "lstm"])
def test_gradients_that_can_be_differentiated_again_are_the_same(kind: str, lengths: tuple[int, ...] | None) -> None:
    layer, x = build(kind, 2, 3, 2), random(4, 5, 2).requires_grad_()
    start = random_state(layer, 4)
    wanted = [x, *(part.requires_grad_() for part in tensors_of(start)), *layer.parameters()]
    y, final = layer(x, start, None if lengths is None else torch.tensor(lengths))
    outputs = [y, *tensors_of(final)]
    loss = sum((out * random(*out.shape, seed=1 + i)).sum() for i, out in enumerate(outputs))
    fast = torch.autograd.grad(loss, wanted, retain_graph=True)
    slow = torch.autograd.grad(loss, wanted, create_graph=True)
    for a, b in zip(fast, slow, strict=True):
        assert (a - b).abs().max() <= 1e-10


def test_frozen_weights_and_inputs_get_no_gradient() -> None:
    layer, x = build("gru", 2, 3), random(2, 4, 2)
    layer.weight_hh_l0.requires_grad_(False)
    layer(x)[0].sum().backward()
    assert layer.weight_hh_l0.grad is None
    assert layer.weight_ih_l0.grad is not None
    y = layer(x)[0]
    torch.relu_(y)  # what a layer puts out may be changed in place


@pytest.mark.parametrize("kind", ["rnn", "gru", "lstm"])
def test_conversion_keeps_dropout_mode_and_the_random_stream(kind: str) -> None:
    theirs = {"rnn": nn.RNN, "gru": nn.GRU, "lstm": nn.LSTM}[kind](3, 4, 2, dropout=0.3).eval()
    before = torch.get_rng_state()
    mine = type(build(kind, 3, 4)).from_torch(theirs)
    assert (mine.dropout, mine.training) == (0.3, False)
    back = mine.train().to_torch()
    assert (back.dropout, back.training) == (0.3, True)
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize("kind", ["rnn", "gru", "lstm"])
def test_dropout_acts_on_padded_batches_too(kind: str) -> None:
    layer, x, lengths = build(kind, 3, 4, 2, dropout=0.5), random(2, 5, 3), torch.tensor([5, 3])
    assert not torch.equal(layer(x, None, lengths)[0], layer(x, None, lengths)[0])
    layer.eval()
    assert torch.equal(layer(x, None, lengths)[0], layer(x, None, lengths)[0])


@pytest.mark.parametrize("dtype", [torch.int8, torch.uint8, torch.int32], ids=str)
@pytest.mark.parametrize("kind", ["rnn", "gru", "lstm"])
def test_lengths_of_any_whole_type(kind: str, dtype: torch.dtype) -> None:
    layer, x, lengths = build(kind, 3, 4, bidirectional=True), random(3, 5, 3), torch.tensor([5, 0, 3])
    assert torch.equal(layer(x, None, lengths.to(dtype))[0], layer(x, None, lengths)[0])


@pytest.mark.parametrize("kind", ["rnn", "gru", "lstm"])
def test_dropout_acts_between_layers_only(kind: str) -> None:
    x = random(2, 5, 3)
    single = build(kind, 3, 4, 1, dropout=0.5)
    assert torch.equal(single(x)[0], single.eval()(x)[0])
    double = build(kind, 3, 4, 2, dropout=0.5)
    noisy = double(x)[0]
    assert not torch.allclose(noisy, double.eval()(x)[0])
    torch.manual_seed(3)
    dead = build(kind, 3, 4, 2, dropout=1.0)  # the second layer then reads zeros
    assert torch.allclose(dead(x)[0][0], dead(2 * x)[0][0], rtol=0, atol=1e-15)


@pytest.mark.parametrize("kind", ["rnn", "gru", "lstm"])
def test_recurrent_matrices_start_orthogonal(kind: str) -> None:
    layer = KINDS[kind](3, 8, 2, bidirectional=True).double()
    for name, weight in layer.named_parameters():
        if name.startswith("weight_hh"):
            for gate in weight.chunk(layer.gates):
                assert torch.allclose(gate @ gate.T, torch.eye(8, dtype=torch.float64), atol=1e-5)
    spread = KINDS[kind](3, 64, recurrent_init="uniform").weight_hh_l0
    assert spread.abs().max() <= 1 / 8
    assert spread.std() > 0.06


def test_the_forget_gate_starts_open_by_one_of_the_two_biases() -> None:
    for options, expected in (({}, 1.0), ({"forget_bias": 2.5}, 2.5), ({"recurrent_init": "uniform"}, 1.0)):
        layer = LSTM(3, 4, 2, **options)
        for number in range(2):
            total = getattr(layer, f"bias_ih_l{number}") + getattr(layer, f"bias_hh_l{number}")
            assert torch.equal(total[4:8], torch.full((4,), expected))


def test_a_state_of_the_gru_stays_inside_the_unit_cube() -> None:
    layer = build("gru", 3, 4)
    y, _ = layer(10 * random(8, 50, 3))
    assert y.abs().max() <= 1


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: GRU(3, 4)(torch.zeros(2, 5)), r"x has shape \(2, 5\), but the layer reads \(batch, time, 3\)"),
        (lambda: GRU(3, 4)(torch.zeros(2, 5, 4)), r"x has shape \(2, 5, 4\), but the layer reads \(batch, time, 3\)"),
        (
            lambda: GRU(3, 4)(torch.zeros(2, 5, 3), torch.zeros(1, 3, 4)),
            r"state has shape \(1, 3, 4\), but the layer and x need \(1, 2, 4\)",
        ),
        (lambda: LSTM(3, 4)(torch.zeros(2, 5, 3), torch.zeros(1, 2, 4)), r"is the tuple \(h, c\), not Tensor"),
        (
            lambda: RNN(3, 4)(torch.zeros(2, 5, 3), None, torch.tensor([6, 1])),
            "a length of 6 does not fit sequences of 5",
        ),
        (lambda: RNN(3, 4)(torch.zeros(2, 5, 3), None, torch.tensor([-1, 1])), "a length of -1 does not fit"),
        (lambda: RNN(3, 4)(torch.zeros(2, 5, 3), None, torch.tensor([1])), r"shape \(1,\), but the batch holds 2"),
        (lambda: RNN(3, 4)(torch.zeros(2, 5, 3), None, torch.tensor([1.0, 2.0])), "lengths are torch.float32"),
        (lambda: RNN(3, 4)(torch.zeros(2, 5, 3), None, [1, 2]), "lengths have shape list"),
        (lambda: RNN(3, 4)(torch.zeros(2, 5, 3), None, torch.tensor([True, False])), "lengths are torch.bool"),
        (lambda: GRU(3, 4)(torch.zeros(2, 5, 3), (torch.zeros(1, 2, 4),) * 2), "the state is one tensor, not tuple"),
        (lambda: RNN(3, 4, nonlinearity="tan"), "nonlinearity 'tan' is not known; did you mean 'tanh'"),
        (lambda: RNN(3, 4, form="past"), "form 'past' is not known; did you mean 'post'"),
        (lambda: GRU(3, 0), "hidden_size 0 is too small; the least is 1"),
        (lambda: GRU(3, 4, dropout=1.5), "dropout 1.5 is not a share"),
        (lambda: GRU(3, 4, recurrent_init="ortogonal"), "did you mean 'orthogonal'"),
        (lambda: GRU.from_torch(nn.LSTM(3, 4)), "takes a torch.nn.GRU, not LSTM"),
        (lambda: LSTM.from_torch(nn.LSTM(3, 4, proj_size=2)), "proj_size 2 has no counterpart"),
        (lambda: RNN(3, 4, form="pre").to_torch(), "torch.nn.RNN has no pre form"),
        (lambda: RNN(3, 4, nonlinearity="sigmoid").to_torch(), "has no nonlinearity 'sigmoid'"),
    ],
    ids=lambda v: v[:40] if isinstance(v, str) else "",
)
def test_wrong_use_is_named(call: Callable[[], Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        call()
