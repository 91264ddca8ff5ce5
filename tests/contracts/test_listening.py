"""What holds for every registered model and layer: listening changes nothing, and who stops leaves nothing behind."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import examples.look_inside as look_inside
import pytest
import torch
from tests.contracts import test_language_models as models
from tests.contracts import test_layers as layers
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from seqlab.core.registry import LAYERS, MODELS, look_up
from seqlab.core.state import tensors_of
from seqlab.core.taps import Seen, tap_names, taps
from seqlab.generation.sampling import Choice, generate
from seqlab.models import build_lm
from seqlab.models.build import constructor_sizes

own_model = models.own_model  # registers a model of one's own
V = models.V
ADDED_OR_TURNED = ("sinusoidal", "learned", "rotary")
Run = Callable[[Any], list[Tensor]]


def listening(model: nn.Module, *patterns: str, **options: Any) -> contextlib.AbstractContextManager[Seen]:
    return taps(model, *patterns, **options) if tap_names(model) else contextlib.nullcontext(Seen(()))


def drop(model: nn.Module) -> nn.Module:
    """In training, with dropout wherever there can be some."""
    for part in model.modules():
        if isinstance(part, nn.Dropout):
            part.p = 0.3
        elif isinstance(getattr(part, "dropout", None), float):
            part.dropout = 0.3  # type: ignore[assignment]
    return model.train()


def everything(model: Any, run: Run) -> list[Tensor]:
    """Outputs, states, gradients, buffers and where the random stream ends."""
    model.zero_grad()
    torch.manual_seed(7)
    found = run(model)
    if torch.is_grad_enabled() and any(tensor.requires_grad for tensor in found):
        sum((tensor.sin().sum() for tensor in found if tensor.requires_grad), torch.zeros(())).backward()
    gradients = [weight.grad for weight in model.parameters() if weight.grad is not None]
    kept = [tensor.detach().clone() for tensor in (*found, *gradients, *model.buffers())]
    return [*kept, torch.get_rng_state()]


def reset(model: nn.Module, saved: dict[str, Tensor]) -> None:
    model.load_state_dict(saved)


def same(one: list[Tensor], other: list[Tensor]) -> bool:
    return all(torch.equal(a, b) for a, b in zip(one, other, strict=True))


def hooked(model: nn.Module) -> set[str]:
    found = set()
    for path, module in model.named_modules():
        if any(value for name, value in vars(module).items() if name.endswith(("_hooks", "_with_kwargs", "_called"))):
            found.add(path)
    return found


def check_nothing_changes(model: Any, run: Run) -> None:
    """Training with dropout, then evaluation without gradients, then in inference mode."""
    saved = {name: value.clone() for name, value in model.state_dict().items()}
    drop(model)
    for mode in (contextlib.nullcontext, torch.no_grad, torch.inference_mode):
        with mode():
            reset(model, saved)
            expected = everything(model, run)
            reset(model, saved)
            with listening(model) as seen:
                assert same(everything(model, run), expected)
            assert set(seen) | not_shown(seen) == set(seen.names)
            reset(model, saved)
            assert same(everything(model, run), expected)
        model.eval()
    assert not hooked(model)


def not_shown(seen: Seen) -> set[str]:
    """Linear attention with a state has no weights."""
    return set(seen._hidden)


# --------------------------------------------------------------------------- models


@pytest.fixture(params=models.VARIANTS, ids=models.named)
def lm(request: pytest.FixtureRequest) -> Any:
    kind, sizes = request.param
    return models.build(kind, **sizes)


def read_in_pieces(lm: Any) -> list[Tensor]:
    ids, state, found = models.random_ids(3, 9), None, []
    for a, b in ((0, 5), (5, 6), (6, 9)):
        logits, state = lm(ids[:, a:b], state)
        found += [logits, *(t for t in tensors_of(state) if t.is_floating_point())]
    return found


def test_listening_changes_no_bit_of_a_model(lm: Any) -> None:
    check_nothing_changes(lm, read_in_pieces)


def test_listening_changes_no_token_that_a_model_writes(lm: Any) -> None:
    lm.eval()

    def write() -> list[int]:
        return list(generate(lm, [V], 14, Choice(), torch.Generator().manual_seed(0)))

    expected = write()
    with listening(lm) as seen:
        assert write() == expected
    assert all(len(seen.calls(name)) >= 1 for name in seen)
    assert write() == expected


def test_on_path_a_model_computes_the_same(lm: Any) -> None:
    lm.double().eval()
    expected = everything(lm, read_in_pieces)
    with listening(lm, on_path=True):
        found = everything(lm, read_in_pieces)
    assert all(torch.allclose(a.double(), b.double(), rtol=0, atol=1e-10) for a, b in zip(found, expected, strict=True))


# --------------------------------------------------------------------------- layers


def run_layer(case: layers.Case, lengths: Tensor | None) -> Run:
    def run(layer: Any) -> list[Tensor]:
        x = layers.random(3, 6, layers.D)
        y, state = case.run(layer, x, None, lengths)
        found = [y, *(t for t in tensors_of(state) if t.is_floating_point())]
        if case.continues:
            y, state = case.run(layer, x[:, :2], state, None)
            found += [y, *(t for t in tensors_of(state) if t.is_floating_point())]
        return found

    return run


@pytest.mark.parametrize("case", layers.CASES, ids=lambda c: c.name)
def test_listening_changes_no_bit_of_a_layer(case: layers.Case) -> None:
    for lengths in (None, torch.tensor([6, 2, 4])) if case.padded else (None,):
        check_nothing_changes(layers.built(case), run_layer(case, lengths))


@pytest.mark.parametrize("case", layers.CASES, ids=lambda c: c.name)
def test_on_path_a_layer_computes_the_same(case: layers.Case) -> None:
    for lengths in (None, torch.tensor([6, 2, 4])) if case.padded else (None,):
        layer, run = layers.built(case), run_layer(case, lengths)
        expected = everything(layer, run)
        with listening(layer, on_path=True):
            found = everything(layer, run)
        for a, b in zip(found, expected, strict=True):
            assert torch.allclose(a.double(), b.double(), rtol=0, atol=1e-10)


def test_every_layer_that_computes_with_weights_shows_something() -> None:
    silent = {case.name for case in layers.CASES if not tap_names(layers.built(case))}
    assert {name.removesuffix("-halves") for name in silent} == {f"{kind}-position" for kind in ADDED_OR_TURNED}
    assert all(isinstance(look_up(LAYERS, kind, "layer"), type) for kind in LAYERS)


# --------------------------------------------------------------------------- when nobody listens


class Operations(TorchDispatchMode):
    """The operations that torch is asked for, in their order."""

    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.names.append(str(func))
        return func(*args, **(kwargs or {}))


def operations(model: Any) -> list[str]:
    with Operations() as record:
        everything(model, read_in_pieces)
    return record.names


def test_nobody_listens_before_or_after(lm: Any) -> None:
    drop(lm)
    operations(lm)  # what is computed once and remembered, such as the turns of positions
    before = operations(lm)
    assert not hooked(lm)
    with taps(lm):
        while_listening = operations(lm)
    assert not hooked(lm)
    assert operations(lm) == before
    computed = any(
        name.rpartition(".")[2] in ("hidden", "weights") for name in tap_names(lm)
    )  # others are there anyway
    assert (len(while_listening) > len(before)) == computed


def test_who_listens_to_one_tap_hooks_one_module(lm: Any) -> None:
    paths = {path for path, _ in lm.named_modules()}
    for name in tap_names(lm):
        with taps(lm, name):
            (path,) = hooked(lm)
            assert path in paths
    assert not hooked(lm)


# --------------------------------------------------------------------------- names

_BLOCK = (
    *("stream", "hidden", "mlp.output", "attention.scores", "attention.weights", "attention.output"),
    *("norm_attention.input", "norm_mlp.input"),
)
_ATTENTIVE = ("hidden", "candidate", "scores", "weights")
NAMES: dict[str, set[str]] = {
    "rnn": {"embedding.output", "recurrent.l0.hidden", "recurrent.l1.hidden"},
    "gru": {
        "embedding.output",
        *(f"recurrent.l{k}.{name}" for k in (0, 1) for name in ("r", "z", "candidate", "hidden")),
    },
    "lstm": {
        "embedding.output",
        *(f"recurrent.l{k}.{name}" for k in (0, 1) for name in ("i", "f", "o", "c", "candidate", "hidden")),
    },
    "attentive-rnn": {
        "embedding.output",
        *(f"recurrent.layers.{k}.{name}" for k in (0, 1) for name in _ATTENTIVE),
        *("recurrent.norms.0.input", "recurrent.norms.1.input"),
    },
    "transformer": {"embedding.output", *(f"blocks.{k}.{name}" for k in (0, 1) for name in _BLOCK), "norm.input"},
    "bigram": {"embedding.output", "hidden"},
}


@pytest.mark.parametrize("kind", sorted(MODELS.keys() - {"convolution"}))
def test_names_are_stable(kind: str) -> None:
    """What people wrote down must go on meaning the same; a new kind of model comes with its list."""
    wanted = {"width": 16, "depth": 2, "heads": 2, "context": 12}
    sizes = {name: size for name, size in wanted.items() if name in constructor_sizes(kind)}
    model = build_lm(kind, vocab_size=V, **sizes)
    assert set(tap_names(model)) == NAMES[kind]
    with taps(model) as seen:
        logits, _ = model(models.random_ids(2, 5))
    assert set(seen) == NAMES[kind]
    assert logits.shape == (2, 5, V)


def test_linear_attention_has_no_scores() -> None:
    model = build_lm("transformer", vocab_size=V, width=16, depth=2, heads=2, attention="separable")
    assert set(tap_names(model)) == NAMES["transformer"] - {"blocks.0.attention.scores", "blocks.1.attention.scores"}


# --------------------------------------------------------------------------- a model that writes


def test_calls_of_a_model_that_writes_are_in_order() -> None:
    lm = build_lm("transformer", vocab_size=V, width=16, depth=1, heads=2, context=6).eval()
    prompt = [V, 3, 1]
    with taps(lm, "*.weights", "embedding.output") as seen:
        written = list(generate(lm, prompt, 7, Choice(), torch.Generator().manual_seed(0)))
    shapes = [tuple(weights.shape) for weights in seen.calls("blocks.0.attention.weights")]
    assert shapes == [(1, 2, 3, 3), *((1, 2, 1, min(keys, 6)) for keys in range(4, 10))]
    whole = torch.tensor([prompt + written[:-1]])
    read = torch.cat(seen.calls("embedding.output"), 1)
    assert torch.equal(read, lm.embedding(whole))
    with torch.no_grad(), taps(lm, "*.weights") as at_once:
        lm(whole)
    for row, weights in enumerate(seen.calls("blocks.0.attention.weights")[1:], start=3):
        keys = weights.shape[-1]
        expected = at_once["blocks.0.attention.weights"][:, :, row : row + 1, row + 1 - keys : row + 1]
        assert torch.allclose(weights, expected, atol=1e-6)


# --------------------------------------------------------------------------- the example


def test_the_example_looks_inside(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(look_inside, "STEPS", 2)
    with torch.random.fork_rng(devices=[]):
        look_inside.main()
    printed = capsys.readouterr().out
    assert "memory.l0.f, memory.l0.o" in printed
    assert "blocks.1.attention.weights, head 1: the last letter looks" in printed
