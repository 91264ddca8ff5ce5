"""The mechanism of taps on small modules of one's own: names, patterns, hooks that come and go, what is kept."""

import copy
import pickle
import subprocess
import sys
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from seqlab.core import taps as mechanism
from seqlab.core.errors import UsageError
from seqlab.core.registry import look_up
from seqlab.core.taps import LOOKS, Call, Look, NotHere, NotSeenError, look_for, tap_names, taps


class Gated(nn.Module):
    """y = σ(G x) ∘ x, with dropout on y."""

    def __init__(self, width: int = 4) -> None:
        super().__init__()
        self.gate = nn.Linear(width, width)

    def forward(self, x: Tensor, scale: float = 1.0, *, shift: float = 0.0) -> Tensor:
        y = torch.sigmoid(self.gate(x)) * x * scale + shift
        return F.dropout(y, 0.5, self.training)


class Pair(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = Gated(), Gated()

    def forward(self, x: Tensor, twice: bool = True) -> Tensor:
        x = self.first(x, 2.0, shift=0.5)
        return self.second(x) if twice else x


def show_gate(layer: Gated, call: Call, wanted: Any) -> dict[str, Any]:
    gate = torch.sigmoid(layer.gate(call.arguments["x"]))  # through the module itself, which nobody hears
    return {"gate": gate, "steps": list(call.output.unbind(1)), "other": gate}


@pytest.fixture(autouse=True)
def registered(monkeypatch: pytest.MonkeyPatch) -> None:
    """A module of one's own, registered in one line."""
    monkeypatch.setitem(LOOKS, Gated, Look(("gate", "steps"), show_gate))


@pytest.fixture
def model() -> Pair:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return Pair()


@pytest.fixture
def x() -> Tensor:
    return torch.randn(2, 3, 4, generator=torch.Generator().manual_seed(1))


def hooks(model: nn.Module) -> dict[str, int]:
    """How many hooks stand on each module, where there are any."""
    counted = {path: len(m._forward_hooks) + len(m._forward_pre_hooks) for path, m in model.named_modules()}
    return {path: count for path, count in counted.items() if count}


# --------------------------------------------------------------------------- names and patterns


def test_names_are_path_and_own_name(model: Pair) -> None:
    assert tap_names(model) == ["first.gate", "first.steps", "second.gate", "second.steps"]
    assert tap_names(model.first) == ["gate", "steps"]


@pytest.mark.parametrize(
    ("patterns", "expected"),
    [
        ((), ["first.gate", "first.steps", "second.gate", "second.steps"]),
        (("second.gate",), ["second.gate"]),
        (("*.gate",), ["first.gate", "second.gate"]),
        (("f*", "*.gate"), ["first.gate", "first.steps", "second.gate"]),
        (("*",), ["first.gate", "first.steps", "second.gate", "second.steps"]),
    ],
)
def test_patterns(model: Pair, x: Tensor, patterns: tuple[str, ...], expected: list[str]) -> None:
    with taps(model, *patterns) as seen:
        model(x)
    assert sorted(seen) == sorted(dict(seen)) == sorted(seen.names) == expected


@pytest.mark.parametrize(
    ("pattern", "hint"),
    [
        ("first.gat", "did you mean 'first.gate'?"),
        ("*.steps2", "did you mean '*steps'?"),
        ("zzz", "known: *gate, *steps"),
        ("First.gate", "did you mean 'first.gate'?"),
    ],
)
def test_a_pattern_that_matches_nothing_is_refused(model: Pair, pattern: str, hint: str) -> None:
    with pytest.raises(UsageError) as error, taps(model, "first.gate", pattern):
        pass
    assert str(error.value) == f"no tap matches '{pattern}'; {hint}"
    assert not hooks(model)


def test_a_model_of_unknown_types_says_how_to_register_one() -> None:
    assert tap_names(nn.Linear(2, 2)) == []
    with pytest.raises(UsageError, match=r"LOOKS\[MyLayer\] = Look") as error, taps(nn.Linear(2, 2)):
        pass
    assert "\n" not in str(error.value)


def test_a_derived_type_is_seen_as_its_nearest_ancestor(model: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    class Special(Gated):
        pass

    assert look_for(Special) is LOOKS[Gated]
    monkeypatch.setitem(LOOKS, f"{__name__}:{Special.__qualname__}", Look(("own",), show_gate))
    assert tap_names(Special()) == ["own"]
    assert look_for(nn.Linear) is None


def test_every_registered_name_leads_somewhere() -> None:
    for key, look in LOOKS.items():
        if isinstance(key, str):
            kind = look_up({"it": key}, "it", "type")
            assert f"{kind.__module__}:{kind.__qualname__}" == key
            assert issubclass(kind, nn.Module)
        assert isinstance(mechanism._resolved(look), Look)


def test_the_mechanism_loads_no_layers() -> None:
    program = "import sys, seqlab.core.taps; sys.exit(any(m.startswith('seqlab.layers') for m in sys.modules))"
    assert subprocess.run([sys.executable, "-c", program]).returncode == 0


# --------------------------------------------------------------------------- what is seen


def test_values_calls_steps_and_clear(model: Pair, x: Tensor) -> None:
    model.eval()
    with taps(model, "second.*") as seen:
        model(x)
        model(-x)
        assert [len(seen.calls(name)) for name in seen] == [2, 2]
        expected = model.second.gate(model.first(-x, 2.0, shift=0.5)).sigmoid()
        assert torch.equal(seen["second.gate"], expected)
        assert torch.equal(seen.calls("second.gate")[1], expected)
        assert not torch.equal(seen.calls("second.gate")[0], expected)
        assert len(seen.steps("second.steps")) == 3
        assert torch.equal(seen["second.steps"], model(-x))
        assert torch.equal(seen["second.steps"], torch.stack(seen.steps("second.steps"), 1))
        seen.clear()
        assert len(seen) == 0
        assert "second.gate" not in seen
        model(x)
        assert len(seen.calls("second.gate")) == 1
    model(x)
    assert len(seen.calls("second.gate")) == 1


def test_arguments_are_bound_by_name_with_defaults(monkeypatch: pytest.MonkeyPatch, model: Pair, x: Tensor) -> None:
    calls: list[dict[str, Any]] = []

    def show(layer: Gated, call: Call, wanted: Any) -> dict[str, Any]:
        calls.append(dict(call.arguments))
        return {"gate": call.output}

    monkeypatch.setitem(LOOKS, Gated, Look(("gate",), show))
    with taps(model):
        model(x)
    assert [list(call) for call in calls] == [["x", "scale", "shift"]] * 2
    assert [(call["scale"], call["shift"]) for call in calls] == [(2.0, 0.5), (1.0, 0.0)]


def test_reading_what_was_not_seen(model: Pair, x: Tensor) -> None:
    with taps(model, "*.gate") as seen:
        with pytest.raises(NotSeenError, match="'second.gate' has not been seen: no forward pass has reached it yet"):
            seen["second.gate"]
        model(x, twice=False)
        assert "first.gate" in seen
        assert "second.gate" not in seen
        assert seen.get("second.gate") is None
        for read in (seen.__getitem__, seen.calls, seen.steps):
            with pytest.raises(KeyError):
                read("second.gate")
        with pytest.raises(NotSeenError) as error:
            seen["first.steps"]
        assert str(error.value) == "nobody listened to 'first.steps'; did you mean 'first.gate'?"
        with pytest.raises(UsageError, match=r"'first.gate' does not come in time steps; read seen\['first.gate'\]"):
            seen.steps("first.gate")


def test_a_look_may_say_why_it_cannot_show_something(model: Pair, x: Tensor, monkeypatch: pytest.MonkeyPatch) -> None:
    look = Look(("gate",), lambda layer, call, wanted: {"gate": NotHere("it is Sunday")})
    monkeypatch.setitem(LOOKS, Gated, look)
    with taps(model) as seen:
        model(x)
    with pytest.raises(NotSeenError, match="^'first.gate' has not been seen in the last call: it is Sunday$"):
        seen["first.gate"]


def test_values_stay_in_the_graph_where_gradients_are_recorded(model: Pair, x: Tensor) -> None:
    with taps(model, "first.gate") as seen:
        model(x)
        (gradient,) = torch.autograd.grad(seen["first.gate"].sum(), model.first.gate.bias)
        assert gradient.abs().sum() > 0
        with torch.no_grad():
            model(x)
        assert not seen["first.gate"].requires_grad
        with torch.inference_mode():
            model(x)
        assert torch.equal(seen["first.gate"], seen.calls("first.gate")[0])


class Overwriting(nn.Module):
    """What it embeds is changed in place afterwards."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(5, 3)

    def forward(self, ids: Tensor) -> Tensor:
        x: Tensor = self.embedding(ids)
        x += 100.0
        return x


def test_what_the_model_writes_over_is_copied_or_refused() -> None:
    model, ids = Overwriting(), torch.tensor([[1, 4]])
    for mode in (torch.no_grad, torch.inference_mode):
        with mode(), taps(model) as seen:
            model(ids)
        assert torch.equal(seen["embedding.output"], model.embedding.weight[ids])
    with taps(model) as seen:
        model(ids)
    with pytest.raises(UsageError, match="'embedding.output' was overwritten in place after it was seen"):
        seen["embedding.output"]


# --------------------------------------------------------------------------- hooks come and go


def test_only_the_modules_asked_for_have_hooks(model: Pair, x: Tensor) -> None:
    with taps(model, "second.gate"):
        assert hooks(model) == {"second": 2}
        model(x)
        assert hooks(model) == {"second": 2}
    assert not hooks(model)


def test_exceptions_leave_no_hooks(model: Pair, x: Tensor, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ZeroDivisionError), taps(model):
        model(x)
        raise ZeroDivisionError
    assert not hooks(model)
    with taps(model) as seen:
        with pytest.raises(RuntimeError):
            model(x[..., :2])
        model(x)
        assert len(seen.calls("first.gate")) == 1
    assert not hooks(model)

    def fail(layer: Gated, call: Call, wanted: Any) -> dict[str, Any]:
        raise ZeroDivisionError

    monkeypatch.setitem(LOOKS, Gated, Look(("gate",), fail))
    state = torch.get_rng_state()
    with pytest.raises(ZeroDivisionError), taps(model.eval()):
        model(x)
    assert not hooks(model)
    assert torch.equal(torch.get_rng_state(), state)
    assert not mechanism._LOOKING.get()


def test_nested_and_repeated_use(model: Pair, x: Tensor) -> None:
    with taps(model, "first.gate") as outer:
        with taps(model, "*.gate") as inner:
            model(x)
        assert hooks(model) == {"first": 2}
        model(x)
    assert not hooks(model)
    assert (len(outer.calls("first.gate")), len(inner.calls("first.gate"))) == (2, 1)
    assert torch.equal(outer.calls("first.gate")[0], inner["first.gate"])
    for _ in range(3):
        with taps(model) as again:
            model(x)
        assert len(again.calls("first.gate")) == 1


def test_modules_that_a_look_calls_are_not_heard(model: Pair, x: Tensor, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(LOOKS, nn.Linear, Look(("output",), lambda m, call, wanted: {"output": call.output}))
    with taps(model, "first.gate.output") as other, taps(model) as seen:
        model(x)
    assert len(seen.calls("first.gate.output")) == len(other.calls("first.gate.output")) == 1


def test_a_module_at_two_places_has_one_name_and_two_calls(x: Tensor) -> None:
    shared = Gated()
    model = nn.Sequential(shared, shared)
    assert tap_names(model) == ["0.gate", "0.steps"]
    with taps(model) as seen:
        model(x)
    assert len(seen.calls("0.gate")) == 2


class Recursive(Gated):
    def forward(self, x: Tensor, depth: int = 2) -> Tensor:  # type: ignore[override]
        return super().forward(self(x, depth - 1) if depth else x)


def test_a_module_that_calls_itself_shows_the_innermost_first(x: Tensor, monkeypatch: pytest.MonkeyPatch) -> None:
    look = Look(("depth",), lambda m, call, wanted: {"depth": torch.tensor(call.arguments["depth"])})
    monkeypatch.setitem(LOOKS, Recursive, look)
    model = Recursive()
    with taps(model) as seen:
        model(x)
    assert [int(depth) for depth in seen.calls("depth")] == [0, 1, 2]


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda m: pickle.loads(pickle.dumps(m))], ids=["copy", "pickle"])
def test_a_copy_of_a_model_that_is_listened_to_is_not_listened_to(model: Pair, x: Tensor, copied: Any) -> None:
    with taps(model.eval()) as seen:
        other = copied(model)
        hooked = [hook for part in other.modules() for hook in part._forward_hooks.values()]
        assert not any(isinstance(hook.__self__, mechanism._Ear) for hook in hooked)
        y = other(x)
        assert len(seen) == 0
        assert torch.equal(y, model(x))
    assert torch.equal(other(x), y)
    assert len(seen.calls("first.gate")) == 1


# --------------------------------------------------------------------------- random draws and the path


def test_a_look_draws_what_the_module_drew_and_moves_no_stream(
    model: Pair, x: Tensor, monkeypatch: pytest.MonkeyPatch
) -> None:
    def again(layer: Gated, call: Call, wanted: Any) -> dict[str, Any]:
        return {"gate": layer.forward(**call.arguments)}

    monkeypatch.setitem(LOOKS, Gated, Look(("gate",), again))
    model.train()
    torch.manual_seed(5)
    expected = model(x)
    after = torch.get_rng_state()
    torch.manual_seed(5)
    with taps(model) as seen:
        assert torch.equal(model(x), expected)
    assert torch.equal(torch.get_rng_state(), after)
    assert torch.equal(seen["second.gate"], expected)


def test_on_path_the_output_is_computed_from_what_was_seen(
    model: Pair, x: Tensor, monkeypatch: pytest.MonkeyPatch
) -> None:
    def replay(layer: Gated, call: Call, wanted: Any) -> tuple[Tensor, dict[str, Any]]:
        gate = torch.sigmoid(layer.gate(call.arguments["x"]))
        return gate * call.arguments["x"] * call.arguments["scale"] + call.arguments["shift"], {"gate": gate}

    model.eval()
    expected = model(x)
    with taps(model, "*.gate", on_path=True) as seen:
        assert torch.equal(model(x), expected)  # a type without a replay shows what it shows
    monkeypatch.setitem(LOOKS, Gated, Look(("gate",), lambda *call: replay(*call)[1], replay))
    with taps(model, on_path=True) as seen:
        y = model(x)
    assert torch.allclose(y, expected)
    gradients = torch.autograd.grad(y.sum(), [seen["first.gate"], seen["second.gate"]])
    inner = model.first(x, 2.0, shift=0.5)
    assert torch.allclose(gradients[1], inner)
    inner = inner.detach().requires_grad_()
    (outer,) = torch.autograd.grad(model.second(inner).sum(), inner)
    assert torch.allclose(gradients[0], outer * 2.0 * x)
    with taps(model) as seen:
        y = model(x)
    with pytest.raises(RuntimeError, match="not have been used in the graph"):
        torch.autograd.grad(y.sum(), seen["first.gate"])
