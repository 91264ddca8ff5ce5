import copy
import itertools
import math
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from seqlab.core.errors import NotFiniteError
from seqlab.core.types import TokenBatch
from seqlab.data.batching import PairBatches
from seqlab.models import build_lm
from seqlab.training import loop
from seqlab.training.loop import Logged, Plan, Position, train, training_step
from seqlab.training.objectives import NextToken, Score, counted_pairs, sum_of_nats
from seqlab.training.optim import build_optimiser
from seqlab.training.schedules import Schedule

V = 9
CARRY = NextToken(carry=True)


def batches(step: int, batch: int = 4, context: int = 6) -> TokenBatch:
    block = torch.randint(0, V, (batch, context + 1), generator=torch.Generator().manual_seed(step))
    return TokenBatch(block[:, :-1], block[:, 1:], fresh=step % 5 == 0)


def plan(steps: int = 10, **changes: Any) -> Plan:
    values: dict[str, Any] = dict(
        schedule=Schedule(1e-2, steps, 0.1, "cosine", 0.1), steps=steps, eval_every=2, log_every=1, patience=0, clip=1.0
    )
    return Plan(**(values | changes))


class Recorder:
    """Callbacks that remember what happened."""

    def __init__(self, values: list[float] | None = None) -> None:
        self.values, self.lines, self.kept, self.saved, self.stop_at = values or [], [], [], [], None

    def stepped(self, position: Position) -> None:
        pass

    def validate(self) -> Score:
        return Score(self.values.pop(0) if self.values else 1.0, {})

    def keep_best(self, position: Position) -> None:
        self.kept.append(position.step)

    def log(self, position: Position, logged: Logged) -> None:
        self.lines.append((position.step, logged))

    def after_step(self, position: Position) -> None:
        pass

    def save(self, position: Position) -> None:
        self.saved.append(position.step)

    def interrupted(self) -> bool:
        return self.stop_at is not None and len(self.lines) >= self.stop_at


def tiny(kind: str = "gru", **sizes: Any) -> Any:
    return build_lm(kind, vocab_size=V, width=8, depth=1, **sizes).double()


@pytest.mark.parametrize("carry", [False, True])
@pytest.mark.parametrize("pieces", [2, 3, 4, 9])
@pytest.mark.parametrize("kind", ["gru", "lstm"])
def test_accumulated_pieces_equal_the_whole_batch(kind: str, pieces: int, carry: bool) -> None:
    whole, cut = tiny(kind), tiny(kind)
    for model, accumulate in ((whole, 1), (cut, pieces)):
        optimiser, position = build_optimiser(model, 1e-2, 0.01), Position()
        for step in range(4):
            training_step(
                model, NextToken(carry), optimiser, batches(step), plan(accumulate=accumulate), position, 1e-2
            )
    for a, b in zip(whole.parameters(), cut.parameters(), strict=True):
        assert torch.allclose(a, b, rtol=0, atol=1e-10)


def test_a_step_is_the_textbook_step() -> None:
    """Mean loss, clipping by global norm, decoupled decay, Adam with bias correction: written out by hand."""
    model = tiny()
    expected = {name: p.detach().clone() for name, p in model.named_parameters()}
    batch, rate, decay, clip = batches(1), 0.02, 0.1, 0.05
    logits, _ = model(batch.inputs)
    grads = torch.autograd.grad(
        F.cross_entropy(logits.flatten(0, 1), batch.targets.flatten()), list(model.parameters())
    )
    norm = math.sqrt(sum(float(g.square().sum()) for g in grads))
    for (name, p), g in zip(model.named_parameters(), grads, strict=True):
        g = g * min(1.0, clip / (norm + 1e-6))
        m, v = 0.1 * g / (1 - 0.9), 0.01 * g * g / (1 - 0.99)
        shrinks = p.ndim == 2 and name != "embedding.weight"
        shrunk = expected[name] * (1 - rate * decay) if shrinks else expected[name]
        expected[name] = shrunk - rate * m / (v.sqrt() + 1e-8)
    position = Position()
    training_step(model, CARRY, build_optimiser(model, rate, decay), batch, plan(clip=clip), position, rate)
    for name, p in model.named_parameters():
        assert torch.allclose(p, expected[name], rtol=0, atol=1e-9), name
    assert position.gradient_norm == pytest.approx(norm)
    assert norm > clip


def test_carried_state_reaches_the_next_batch_and_fresh_batches_forget_it() -> None:
    model, position = tiny(), Position()
    optimiser = build_optimiser(model, 0.0, 0.0)
    seen = []
    model.register_forward_pre_hook(lambda _m, args: seen.append(args[1]))
    for step in (5, 6, 7, 10):  # 5 and 10 are fresh
        training_step(model, CARRY, optimiser, batches(step), plan(), position, 0.0)
    assert [state is None for state in seen] == [True, False, False, True]
    _, expected = model(batches(5).inputs, None)
    assert torch.equal(seen[1], expected)
    assert not seen[1].requires_grad


def test_losses_are_sums_over_counted_tokens() -> None:
    logits, targets = torch.randn(2, 3, V), torch.randint(0, V, (2, 3))
    by_hand = -sum(logits[b, t].log_softmax(0)[targets[b, t]] for b in range(2) for t in range(3))
    assert torch.allclose(sum_of_nats(logits, targets), by_hand)


def test_the_best_is_kept_and_patience_ends_the_run() -> None:
    recorder = Recorder([3.0, 2.0, 2.5, 2.1, 2.2, 9.9])
    model, p = tiny(), Position()
    outcome = train(model, CARRY, build_optimiser(model, 0.0, 0.0), batches, plan(40, patience=3), p, recorder)
    assert outcome == "stopped early"
    assert recorder.kept == [2, 4]
    assert (p.step, p.best, p.best_step) == (10, 2.0, 4)
    assert recorder.saved[-1] == 10


def test_interruption_saves_where_it_stands() -> None:
    recorder = Recorder()
    recorder.stop_at = 3
    model = tiny()
    assert (
        train(model, CARRY, build_optimiser(model, 0.01, 0.0), batches, plan(), Position(), recorder) == "interrupted"
    )
    assert recorder.saved == [3]


def test_training_on_a_pattern_learns_it() -> None:
    model = tiny("lstm")
    block = (torch.arange(4)[:, None] + torch.arange(13)) % V
    pattern = TokenBatch(block[:, :-1], block[:, 1:], fresh=True)
    recorder = Recorder()
    optimiser = build_optimiser(model, 0.03, 0.0)
    train(
        model,
        CARRY,
        optimiser,
        lambda _: pattern,
        plan(120, schedule=Schedule(0.03, 120, 0.1, "cosine", 0.1)),
        Position(),
        recorder,
    )
    assert recorder.lines[0][1].loss > 1.5
    assert recorder.lines[-1][1].loss < 0.1


def test_a_loss_that_is_not_finite_names_step_layer_and_remedy() -> None:
    model = tiny()
    with torch.no_grad():
        model.recurrent.weight_ih_l0[0, 0] = torch.nan
    before = copy.deepcopy(model.state_dict())
    with pytest.raises(
        NotFiniteError, match=r"loss became nan at step 8; .*'recurrent'; try a smaller --learning-rate"
    ):
        training_step(model, CARRY, build_optimiser(model, 0.1, 0.0), batches(0), plan(), Position(step=7), 0.1)
    for name, tensor in model.state_dict().items():
        assert torch.equal(tensor.nan_to_num(7.0), before[name].nan_to_num(7.0)), "no step was taken"


def test_a_gradient_that_is_not_finite_stops_before_the_step() -> None:
    model = tiny()
    model.output.bias.register_hook(lambda g: g * torch.inf)
    before = model.output.weight.detach().clone()
    with pytest.raises(
        NotFiniteError, match=r"gradient norm became .* at step 1; every activation is finite.*output\.bias"
    ):
        training_step(model, CARRY, build_optimiser(model, 0.1, 0.0), batches(0), plan(), Position(), 0.1)
    assert torch.equal(model.output.weight, before)


def test_position_survives_json() -> None:
    position = Position(step=3, count=5, seconds=1.5, total=2.5, counted=4)
    assert Position.from_record(position.record(), None) == position
    assert position.record()["best"] is None


@pytest.mark.parametrize("decay", ["cosine", "linear", "constant"])
def test_the_learning_rate_rises_then_falls(decay: str) -> None:
    schedule = Schedule(0.5, 100, 0.1, decay, 0.2)
    rates = [schedule(step) for step in range(100)]
    assert all(a < b for a, b in itertools.pairwise(rates[:11]))
    assert max(rates) == rates[10] == 0.5
    assert all(a >= b for a, b in itertools.pairwise(rates[10:]))
    assert schedule(100) == pytest.approx(0.5 if decay == "constant" else 0.1)
    middle = {"cosine": 0.3, "linear": 0.3, "constant": 0.5}[decay]
    assert schedule(55) == pytest.approx(middle)


@pytest.mark.parametrize("decay", ["cosine", "linear", "constant", "stable"])
@pytest.mark.parametrize(("share", "steps", "expected"), [(0.1, 40, 4), (0.25, 10, 2), (0.5, 7, 4), (0.0, 5, 0)])
def test_warm_up_rises_in_equal_steps_and_ends_at_the_peak(decay: str, share: float, steps: int, expected: int) -> None:
    """η(s) = peak · (s + 1) / (w + 1) up to s = w, w the share of the steps, rounded."""
    schedule = Schedule(0.6, steps, share, decay, 0.1)
    rates = [schedule(step) for step in range(expected + 1)]
    assert rates == pytest.approx([0.6 * (step + 1) / (expected + 1) for step in range(expected + 1)], rel=1e-12)
    assert schedule(expected + 1) == 0.6 if decay in ("constant", "stable") else schedule(expected + 1) < 0.6


def test_seconds_go_on_from_where_they_stood(monkeypatch: pytest.MonkeyPatch) -> None:
    """A clock that says one second more each time it is read; after a resume it starts anew, far below."""
    seen: list[float] = []

    class Timed(Recorder):
        def log(self, position: Position, logged: Logged) -> None:
            seen.append(position.seconds)

        def after_step(self, position: Position) -> None:
            seen.append(position.seconds)

    position = Position()
    for steps in (2, 5):
        clock = itertools.count(100 if steps == 2 else 3)
        monkeypatch.setattr(loop, "time", SimpleNamespace(perf_counter=lambda clock=clock: float(next(clock))))
        model = tiny()
        train(model, CARRY, build_optimiser(model, 0.01, 0.0), batches, plan(steps), position, Timed())
    # one reading before the first step, one after each step, one after its log line
    assert seen == [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0, 10.0]


def test_an_improvement_gives_new_patience_and_an_equal_value_does_not() -> None:
    values = [3.0, 3.1, 2.0, 2.1, 1.0, 1.0, 1.2, 0.5]
    recorder, model, p = Recorder(list(values)), tiny(), Position()
    outcome = train(model, CARRY, build_optimiser(model, 0.0, 0.0), batches, plan(40, patience=2), p, recorder)
    assert outcome == "stopped early"
    assert recorder.kept == [2, 6, 10]
    assert p.step == 14


def test_the_last_step_is_logged_and_validated_and_rates_are_those_of_the_schedule() -> None:
    recorder, model = Recorder(), tiny()
    wanted = plan(11, eval_every=4, log_every=3)
    train(model, CARRY, build_optimiser(model, 0.01, 0.0), batches, wanted, p := Position(), recorder)
    assert [step for step, _ in recorder.lines] == [3, 4, 6, 8, 9, 11]
    assert [step for step, logged in recorder.lines if logged.validation] == [4, 8, 11]
    assert all(logged.learning_rate == wanted.schedule(step - 1) for step, logged in recorder.lines)
    assert p.lines == 6


def test_every_step_starts_from_no_gradient() -> None:
    model = tiny()
    optimiser = build_optimiser(model, 0.01, 0.0)
    training_step(model, CARRY, optimiser, batches(0), plan(), Position(), 0.01)
    assert all(p.grad is None for p in model.parameters())


@pytest.mark.parametrize("tied", [False, True])
def test_a_bad_output_layer_is_named(tied: bool) -> None:
    model = tiny(tied=tied)
    with torch.no_grad():
        model.output.bias[0] = torch.nan
    with pytest.raises(NotFiniteError, match=r"activation is not finite is 'output'"):
        training_step(model, CARRY, build_optimiser(model, 0.1, 0.0), batches(0), plan(), Position(), 0.1)


@pytest.mark.parametrize("layer", ["embedding", "hidden", "output"])
def test_an_objective_that_calls_no_module_still_names_the_layer(layer: str) -> None:
    """The bigram's loss is formed from its weights, not by calling its layers."""
    model = build_lm("bigram", vocab_size=V, width=8).double()
    batch = PairBatches(np.arange(40) % V, V, V, None, 0)(0)
    with torch.no_grad():
        getattr(model, layer).weight.fill_(torch.nan)
    with pytest.raises(NotFiniteError, match=f"loss became nan at step 1; .* is '{layer}'"):
        training_step(model, counted_pairs, build_optimiser(model, 0.1, 0.0), batch, plan(), Position(), 0.1)
