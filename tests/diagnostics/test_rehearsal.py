"""A rehearsed step: operations and held bytes, by hand, against torch's own tools, and scaled against the real size."""

from __future__ import annotations

import gc
import itertools
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.diagnostics.cost_cases import CASES, one_step, source_of
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

import seqlab
from seqlab.diagnostics import rehearsal
from seqlab.diagnostics.rehearsal import Operation, Rehearsed, counted_products, rehearse, scaled

LENGTH, SOURCE = 12, 9
FLOAT = 4  # bytes
ROUNDED = 0.1  # a fused LSTM rounds its workspace up: its bytes are steps, not a line
# Bags are made by the step itself here, row by row, so that more rows are more operations.
LINEAR = [name for name in CASES if "average" not in name]
PLAIN = [  # nothing fused, and no product of the kinds that torch does not count (test_cost_flops)
    *("lm bigram", "lm bigram, fixed", "lm rnn", "lm gru", "classify gru", "classify transformer, dropout"),
    "translate gru",
]


def step_of(model: Any, rows: int) -> Callable[[], None]:
    return lambda: one_step(model, rows, LENGTH, SOURCE).backward()


def prepared(name: str) -> Any:
    """The model, with the tables that it makes once."""
    torch.manual_seed(0)
    model = CASES[name]().train()
    step_of(model, 2)()
    model.zero_grad(set_to_none=True)
    return model


def rehearsed(model: Any, rows: int) -> Rehearsed:
    torch.manual_seed(0)
    return rehearse(step_of(model, rows), model)


def kinds(found: Rehearsed) -> list[str]:
    return [op.kind for op in found.operations]


# --------------------------------------------------------------------------- held bytes


def test_held_bytes_of_a_chain_by_hand() -> None:
    """y = tanh(xW), loss = Σy: after each operation, what is alive beside x and W."""
    W, x = nn.Linear(3, 5, bias=False), torch.ones(7, 3)
    found = rehearse(lambda: W(x).tanh().sum().backward(), W)
    hidden, weight, one = 7 * 5 * FLOAT, 5 * 3 * FLOAT, FLOAT
    assert found.result_bytes == weight
    after = {op.name: held for op, held in zip(found.operations, found.held, strict=True)}
    assert after["tanh"] == 2 * hidden  # xW, and what tanh keeps
    assert after["sum"] == hidden + one  # xW is gone
    assert after["tanh_backward"] == 3 * hidden + 2 * one - hidden  # y, its gradient and the two ones
    assert found.peak_bytes == max(2 * hidden, 2 * hidden + 2 * one)
    assert kinds(found).count("product") == 2  # xW and the gradient of W: x needs none
    assert found.operations[kinds(found).index("product")].sizes == (1, 7, 3, 5)


def test_what_was_there_before_is_not_counted() -> None:
    W, x = torch.ones(4, 4), torch.ones(6, 4)
    found = rehearse(lambda: [x.view(4, 6), x.add_(1), x.t(), x @ W], nn.Identity())
    assert [op.kind for op in found.operations] == ["look", "move", "look", "product"]
    assert found.held == [0, 0, 0, 6 * 4 * FLOAT]
    assert found.operations[1].sizes == (2 * 6 * 4,)  # read and written


def test_a_freed_tensor_is_no_longer_held() -> None:
    kept: list[Tensor] = []

    def step() -> None:
        kept.append(torch.zeros(100))
        torch.zeros(1000)
        kept.append(torch.zeros(10))

    found = rehearse(step, nn.Identity())
    assert found.held == [100 * FLOAT, 1100 * FLOAT, 110 * FLOAT]
    assert found.peak_bytes == 1100 * FLOAT
    assert found.result_bytes == 110 * FLOAT


def test_a_view_keeps_all_of_its_memory() -> None:
    def step() -> None:
        part = torch.zeros(50, 20)[:1]
        part.sum()

    assert rehearse(step, nn.Identity()).held == [4000, 4000, 4004]


@pytest.mark.parametrize("name", ["lm gru", "lm transformer, dropout", "classify rnn", "translate transformer"])
def test_the_peak_is_what_autograd_saves_and_little_more(name: str) -> None:
    """The saved tensors are summed by torch's hooks, each storage once."""
    model = prepared(name)
    saved: dict[int, Any] = {}
    known = {tensor.untyped_storage().data_ptr() for tensor in (*model.parameters(), *model.buffers())}

    def pack(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in known:
            saved[storage.data_ptr()] = storage
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        loss = one_step(model, 6, LENGTH, SOURCE)
    kept = sum(storage.nbytes() for storage in saved.values())
    del loss
    gradients = seqlab.cost(model, 6, LENGTH, source_length=source_of(model, SOURCE)).gradient_bytes
    found = rehearsed(model, 6)
    assert found.result_bytes == gradients
    assert kept <= found.peak_bytes <= kept + gradients + 6 * LENGTH * 32 * FLOAT * 3


def test_held_bytes_are_those_that_torch_s_profiler_adds_up(tmp_path: Path) -> None:
    """The largest sum of what the allocator gives and takes."""
    model, x = nn.Sequential(nn.Linear(64, 96), nn.GELU(), nn.Linear(96, 64), nn.LayerNorm(64)), torch.randn(32, 64)

    def step() -> None:
        model(x).square().sum().backward()

    step()
    model.zero_grad(set_to_none=True)
    found = rehearse(step, model)
    with torch.profiler.profile(profile_memory=True, activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        step()
    profile.export_chrome_trace(str(tmp_path / "trace.json"))
    events = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    changes = sorted((event["ts"], event["args"]["Bytes"]) for event in events if event["name"] == "[memory]")
    peak = max(itertools.accumulate(size for _, size in changes))
    assert found.peak_bytes == pytest.approx(peak, rel=0.02)


# --------------------------------------------------------------------------- scaled


@pytest.mark.parametrize("name", LINEAR)
def test_two_small_steps_say_what_a_large_one_is(name: str) -> None:
    model = prepared(name)
    found, real = scaled(rehearsed(model, 2), rehearsed(model, 4), (9 - 2) / (4 - 2)), rehearsed(model, 9)
    assert found is not None
    assert [(op.kind, op.name) for op in found.operations] == [(op.kind, op.name) for op in real.operations]
    for ours, torchs in zip(found.operations, real.operations, strict=True):
        assert ours.sizes == pytest.approx(torchs.sizes), ours.name
    assert found.result_bytes == real.result_bytes
    fused = any(kind.startswith("lstm") for kind in kinds(real))
    assert found.held == pytest.approx(real.held, **({"rel": ROUNDED} if fused else {"abs": 1}))


def test_other_operations_cannot_be_scaled() -> None:
    one = Rehearsed([Operation("move", (3.0,), "add")], [4.0], 0.0, 1.0)
    other = Rehearsed([Operation("move", (3.0,), "mul")], [4.0], 0.0, 1.0)
    assert scaled(one, other, 2) is None
    assert scaled(one, Rehearsed([], [], 0.0, 1.0), 2) is None


def test_scaled_by_hand() -> None:
    small = Rehearsed([Operation("product", (1, 2, 3, 4), "mm")], [10.0], 8.0, 1.0)
    large = Rehearsed([Operation("product", (1, 4, 3, 4), "mm")], [16.0], 8.0, 1.5)
    assert scaled(small, large, 3) == Rehearsed([Operation("product", (1, 8, 3, 4), "mm")], [28.0], 8.0, 2.5)


# --------------------------------------------------------------------------- products


@pytest.mark.parametrize("name", [name for name in CASES if "rnn" not in name and "gru" not in name])
def test_products_are_those_that_torch_counts(name: str) -> None:
    """Recurrent layers are left out: torch counts no product that is written in place."""
    model = prepared(name)
    torch.manual_seed(0)
    with FlopCounterMode(display=False) as counter:
        step_of(model, 3)()
    assert counted_products(rehearsed(model, 3).operations) == counter.get_total_flops()


@pytest.mark.parametrize("groups", [1, 2])
@pytest.mark.parametrize("kind", [nn.Conv1d, nn.ConvTranspose1d])
def test_convolutions_are_products(kind: type[Any], groups: int) -> None:
    x, layer = torch.randn(3, 4, 11, requires_grad=True), kind(4, 6, 5, groups=groups)
    found = rehearse(lambda: layer(x).sum().backward(), layer)
    places = 11 if kind is nn.ConvTranspose1d else 7
    forward = 2 * 3 * places * 5 * 4 * 6 // groups
    assert counted_products(found.operations) == 3 * forward  # backward: by the input, by the weights
    first = found.operations[kinds(found).index("product")]
    assert first.sizes[:2] == (groups, 3 * places)
    x.requires_grad_(False)
    assert counted_products(rehearse(lambda: layer(x).sum().backward(), layer).operations) == 2 * forward


@pytest.mark.parametrize("name", PLAIN)
def test_products_are_those_of_the_cost(name: str) -> None:
    model = prepared(name)
    cost = seqlab.cost(model, 3, LENGTH, source_length=source_of(model, SOURCE))
    counted = counted_products(rehearsed(model, 3).operations)
    assert counted == pytest.approx(cost.flops_forward + cost.flops_backward, rel=1e-4)


def test_sizes_of_fused_attention_and_of_a_fused_lstm() -> None:
    q = torch.randn(2, 3, 10, 8, requires_grad=True)
    k = torch.randn(2, 3, 14, 8, requires_grad=True)
    attend = nn.functional.scaled_dot_product_attention

    def found(step: Callable[[], Tensor], kind: str) -> list[Operation]:
        operations = rehearse(lambda: step().sum().backward(), nn.Identity()).operations
        return [op for op in operations if op.kind.startswith(kind)]

    assert [(op.kind, op.sizes) for op in found(lambda: attend(q, k, k), "attention")] == [
        ("attention", (6, 10, 14, 8)),
        ("attention_backward", (6, 10, 14, 8)),
    ]
    causal = found(lambda: attend(q, q, q, is_causal=True), "attention")
    assert {op.sizes for op in causal} == {(6, 10, 5, 8)}  # half of the keys
    lstm, x = nn.LSTM(5, 7), torch.randn(11, 2, 5, requires_grad=True)
    assert {(op.kind, op.sizes) for op in found(lambda: lstm(x)[0], "lstm")} == {
        ("lstm", (11, 2, 5, 7)),
        ("lstm_backward", (11, 2, 5, 7)),
    }


def test_sorts_of_work() -> None:
    x, table = torch.randn(6, 4), nn.Embedding(1000, 4)

    def sort(step: Callable[[], Any]) -> tuple[str, tuple[float, ...]]:
        op = rehearse(step, table).operations[-1]
        return op.kind, op.sizes

    assert sort(x.tanh) == ("squash", (24.0,))
    assert sort(lambda: torch.softmax(x, -1)) == ("norm", (24.0,))
    assert sort(lambda: torch.rand_like(x)) == ("draw", (24.0,))
    assert sort(lambda: x + x) == ("move", (72.0,))
    assert sort(lambda: x[1:, :2]) == ("look", ())
    assert sort(lambda: table(torch.tensor([3, 5]))) == ("move", (16.0,))  # two rows, not the table
    assert sort(lambda: torch.bmm(x.view(2, 3, 4), x.view(2, 4, 3))) == ("product", (2, 3, 4, 3))
    assert sort(lambda: torch.baddbmm(torch.zeros(1, 3, 3), x.view(2, 3, 4), x.view(2, 4, 3)))[1] == (2, 3, 4, 3)


# --------------------------------------------------------------------------- what it leaves alone


def test_reading_is_stopped_after_so_many_calls() -> None:
    model, seen = nn.Linear(3, 3), []
    model.register_forward_hook(lambda *_: seen.append(1))

    def read() -> None:
        with torch.no_grad():
            for _ in range(5):
                model(torch.ones(2, 3))

    for calls, expected in ((0, 0), (2, 2), (5, 5), (9, 5), (None, 5)):
        seen.clear()
        found = rehearse(read, model, calls)
        assert len(seen) == expected
        assert kinds(found).count("product") == expected
    assert len(model._forward_pre_hooks) == 0


def test_an_error_of_the_step_is_its_own() -> None:
    model = nn.Linear(3, 3)

    def fail() -> None:
        model(torch.ones(2, 3)).sum().backward()
        raise RuntimeError("not ours")

    with pytest.raises(RuntimeError, match="not ours"):
        rehearse(fail, model)
    assert len(model._forward_pre_hooks) == 0
    assert all(weight.grad is None for weight in model.parameters())


@pytest.mark.parametrize("calls", [None, 1])
def test_no_random_stream_and_no_weight_moves_and_no_gradient_stays(calls: int | None) -> None:
    model = CASES["lm transformer, dropout"]().train()
    weights = [weight.clone() for weight in model.parameters()]
    torch.manual_seed(3)
    before = torch.get_rng_state()

    def twice() -> None:
        step_of(model, 2)()
        step_of(model, 2)()

    rehearse(twice, model, calls)
    assert torch.equal(torch.get_rng_state(), before)
    assert all(weight.grad is None for weight in model.parameters())
    assert all(torch.equal(a, b) for a, b in zip(weights, model.parameters(), strict=True))


def test_nothing_of_a_rehearsal_outlives_it() -> None:
    """What lives on, such as a batch, must not keep the record of every rehearsal that saw it."""
    model, x = nn.Linear(3, 3), torch.ones(4, 3)
    for _ in range(3):
        rehearse(lambda: model(x).sum().backward(), model)
    gc.collect()
    assert not [thing for thing in gc.get_objects() if type(thing) is rehearsal._Watcher]
