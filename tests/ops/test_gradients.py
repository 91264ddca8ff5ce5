"""The hand-derived backward passes against autograd (1e-10, float64) and against finite differences."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from seqlab.ops.reference import gradients
from seqlab.ops.reference.recurrence import CellWeights, gru_step, loop, lstm_loop, rnn_step

SHAPES = [(1, 1, 1, 1), (1, 5, 3, 2), (4, 1, 2, 3), (3, 7, 4, 5), (2, 12, 1, 6)]  # B, T, D, H


def random(*shape: int, seed: int) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed)).requires_grad_()


def cell(gates: int, D: int, H: int) -> CellWeights:
    shapes = [(gates * H, D), (gates * H, H), (gates * H,), (gates * H,)]
    return CellWeights(*(random(*shape, seed=10 + i) for i, shape in enumerate(shapes)))


def agree(mine: Any, theirs: Any) -> None:
    for a, b in zip(mine, theirs, strict=True):
        assert a.shape == b.shape
        assert (a - b).abs().max() <= 1e-10 * max(1.0, b.abs().max().item())


def flat(found: gradients.RecurrentGradients) -> list[Tensor]:
    return [found.x, *found.state, *found.weights]


def by_hand(run: Callable[..., Any], backward: Callable[..., Any]) -> Callable[..., Any]:
    """`run` as autograd sees it, with `backward` in place of autograd's own: for gradcheck."""

    class Hand(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, *inputs: Tensor) -> Any:
            ctx.save_for_backward(*inputs)
            return run(*inputs)

        @staticmethod
        def backward(ctx: Any, *grads: Tensor) -> Any:
            return tuple(backward(*ctx.saved_tensors, *grads))

    return Hand.apply  # type: ignore[no-any-return]


@pytest.mark.parametrize("phi", ["tanh", "relu", "sigmoid"])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_rnn(shape: tuple[int, ...], phi: str) -> None:
    B, T, D, H = shape

    def run(x: Tensor, g: Tensor, *weights: Tensor) -> tuple[Tensor, Tensor]:
        return loop(lambda x_t, h: rnn_step(x_t, h, CellWeights(*weights), phi), x, g)

    def backward(x: Tensor, g: Tensor, *rest: Tensor) -> list[Tensor]:
        return flat(gradients.rnn_gradients(x, g, CellWeights(*rest[:4]), *rest[4:], phi))

    inputs = [random(B, T, D, seed=1), random(B, H, seed=2), *cell(1, D, H)]
    outputs = run(*inputs)
    grads = [random(*out.shape, seed=30 + i).detach() for i, out in enumerate(outputs)]
    agree(backward(*inputs, *grads), torch.autograd.grad(outputs, inputs, grads))
    if phi != "relu":  # finite differences see its kink
        assert torch.autograd.gradcheck(by_hand(run, backward), inputs)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_gru(shape: tuple[int, ...]) -> None:
    B, T, D, H = shape

    def run(x: Tensor, h: Tensor, *weights: Tensor) -> tuple[Tensor, Tensor]:
        return loop(lambda x_t, h_t: gru_step(x_t, h_t, CellWeights(*weights)), x, h)

    def backward(x: Tensor, h: Tensor, *rest: Tensor) -> list[Tensor]:
        return flat(gradients.gru_gradients(x, h, CellWeights(*rest[:4]), *rest[4:]))

    inputs = [random(B, T, D, seed=1), random(B, H, seed=2), *cell(3, D, H)]
    outputs = run(*inputs)
    grads = [random(*out.shape, seed=30 + i).detach() for i, out in enumerate(outputs)]
    agree(backward(*inputs, *grads), torch.autograd.grad(outputs, inputs, grads))
    assert torch.autograd.gradcheck(by_hand(run, backward), inputs)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_lstm(shape: tuple[int, ...]) -> None:
    B, T, D, H = shape

    def run(x: Tensor, h: Tensor, c: Tensor, *weights: Tensor) -> tuple[Tensor, ...]:
        y, (h, c) = lstm_loop(x, h, c, CellWeights(*weights))
        return y, h, c

    def backward(x: Tensor, h: Tensor, c: Tensor, *rest: Tensor) -> list[Tensor]:
        y, *final = rest[4:]
        return flat(gradients.lstm_gradients(x, (h, c), CellWeights(*rest[:4]), y, (final[0], final[1])))

    inputs = [random(B, T, D, seed=1), random(B, H, seed=2), random(B, H, seed=3), *cell(4, D, H)]
    outputs = run(*inputs)
    grads = [random(*out.shape, seed=30 + i).detach() for i, out in enumerate(outputs)]
    agree(backward(*inputs, *grads), torch.autograd.grad(outputs, inputs, grads))
    assert torch.autograd.gradcheck(by_hand(run, backward), inputs)


def test_the_loops_over_no_step_leave_the_state_as_it_is() -> None:
    B, D, H = 3, 2, 5
    x, h, c = random(B, 0, D, seed=1), random(B, H, seed=2), random(B, H, seed=3)
    weights = cell(1, D, H)
    y, last = loop(lambda x_t, g: rnn_step(x_t, g, weights), x, h)
    assert (y.shape, y.dtype) == ((B, 0, H), torch.float64)
    assert torch.equal(last, h)
    for lengths in (None, torch.zeros(B, dtype=torch.long)):
        y, (last, cell_state) = lstm_loop(x, h, c, cell(4, D, H), lengths)
        assert y.shape == (B, 0, H)
        assert torch.equal(last, h)
        assert torch.equal(cell_state, c)


@pytest.mark.parametrize(("batch", "classes"), [(1, 2), (5, 3), (4, 17)])
def test_cross_entropy(batch: int, classes: int) -> None:
    theta = random(batch, classes, seed=1)
    targets = torch.arange(batch) % classes
    loss = F.cross_entropy(theta, targets, reduction="sum")
    agree([gradients.cross_entropy_gradient(theta, targets)], torch.autograd.grad(loss, [theta]))
    hand = by_hand(
        lambda t: F.cross_entropy(t, targets, reduction="sum"),
        lambda t, grad: [grad * gradients.cross_entropy_gradient(t, targets)],
    )
    assert torch.autograd.gradcheck(hand, [theta])


@pytest.mark.parametrize(("B", "D", "H", "V"), [(1, 1, 1, 2), (5, 3, 4, 6), (2, 7, 3, 2)])
def test_sigmoid_network(B: int, D: int, H: int, V: int) -> None:
    inputs = [random(*shape, seed=i) for i, shape in enumerate([(B, D), (D, H), (H,), (H, V), (V,)])]
    targets = torch.arange(B) % V

    def loss(*parts: Tensor) -> Tensor:
        return F.cross_entropy(gradients.sigmoid_network(*parts), targets, reduction="sum")

    def backward(*parts: Tensor) -> list[Tensor]:
        return [parts[-1] * g for g in gradients.sigmoid_network_gradients(*parts[:-1], targets)]

    agree(backward(*inputs, torch.ones(())), torch.autograd.grad(loss(*inputs), inputs))
    assert torch.autograd.gradcheck(by_hand(loss, backward), inputs)


@pytest.mark.parametrize("shape", [(2, 2), (5, 3), (4, 7)], ids=str)
@pytest.mark.parametrize("eps", [1e-5, 0.3])
def test_norms(shape: tuple[int, int], eps: float) -> None:
    rows, width = shape
    x, gain, bias = random(rows, width, seed=1), random(width, seed=2), random(width, seed=3)
    grad = random(rows, width, seed=4).detach()
    cases = [
        (lambda x, g, b: F.layer_norm(x, (width,), g, b, eps), gradients.layer_norm_gradients),
        (lambda x, g, b: F.batch_norm(x, None, None, g, b, training=True, eps=eps), gradients.batch_norm_gradients),
    ]
    for run, derived in cases:
        expected = torch.autograd.grad(run(x, gain, bias), [x, gain, bias], grad)
        agree(derived(x, gain, grad, eps), expected)

        def backward(x: Tensor, gain: Tensor, bias: Tensor, grad: Tensor, derived: Any = derived) -> Any:
            return derived(x, gain, grad, eps)

        assert torch.autograd.gradcheck(by_hand(run, backward), [x, gain, bias])


@pytest.mark.parametrize(("T", "S", "d"), [(1, 1, 1), (4, 6, 3), (5, 2, 4)])
@pytest.mark.parametrize("masked", [False, True])
def test_attention(T: int, S: int, d: int, masked: bool) -> None:
    q, k, v = random(2, T, d, seed=1), random(2, S, d, seed=2), random(2, S, 3, seed=3)
    grad = random(2, T, 3, seed=4).detach()
    mask = torch.rand(2, T, S, generator=torch.Generator().manual_seed(5)) < 0.7 if masked else None
    if mask is not None:
        mask[0, 0] = False  # a row with nothing to attend to

    def run(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return F.scaled_dot_product_attention(q, k, v, attn_mask=mask)

    def backward(q: Tensor, k: Tensor, v: Tensor, grad: Tensor) -> Any:
        return gradients.attention_gradients(q, k, v, grad, mask)

    agree(backward(q, k, v, grad), torch.autograd.grad(run(q, k, v), [q, k, v], grad))
    assert torch.autograd.gradcheck(by_hand(run, backward), [q, k, v])
