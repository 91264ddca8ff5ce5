"""What holds for every registered language model: registering one tests it."""

import itertools
import json
from typing import Any

import examples.own_model  # noqa: F401 (registers itself)
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

import seqlab.core
from seqlab.core.errors import UsageError
from seqlab.core.registry import MIXTURE, MODELS
from seqlab.core.state import detach, join, pack, split, tensors_of, unpack
from seqlab.core.traits import traits_of
from seqlab.models import build_lm
from seqlab.models.gate import Gate
from seqlab.models.guided import GATES, Guide, GuidedLM
from seqlab.models.mixture import MixtureLM, features_in
from seqlab.models.ngram import NGramLM

V = 11
OWN = "examples.own_model:CausalConvolutionLM"
MODELS.pop("convolution", None)  # importing the example registered it; here a fixture does, for each test
CONTEXT = 12
VARIANTS: list[tuple[str, dict[str, Any]]] = []
for _kind in sorted(MODELS.keys() - {"bigram"}):
    for _tied in (False, True):
        if _kind == "transformer":
            sizes = dict(width=16, depth=2, heads=2, context=CONTEXT, tied=_tied)
            VARIANTS += [(_kind, sizes | {"positions": p}) for p in ("rotary", "sinusoidal", "learned")]
            VARIANTS += [(_kind, sizes | {"attention": a}) for a in ("separable", "random_features")]
            VARIANTS.append((_kind, sizes | {"attention": "random_features", "features": 6}))
        elif _kind == "attentive-rnn":
            sizes = dict(width=16, depth=2, context=CONTEXT, tied=_tied)
            VARIANTS += [(_kind, sizes | {"score": s}) for s in ("dot", "scaled", "additive")]
        else:
            VARIANTS += [(_kind, dict(width=16, depth=depth, tied=_tied)) for depth in (1, 2)]
VARIANTS.append(("convolution", dict(width=16, depth=2)))
VARIANTS.append(("bigram", dict(width=16, vector_width=6)))
_GUIDED = [(kind, sizes) for kind, sizes in VARIANTS if kind != "bigram" and "features" not in sizes]
VARIANTS += [(kind, sizes | {"guide": order}) for (kind, sizes), order in zip(_GUIDED, itertools.cycle((1, 3, 6)))]
_MEMBERS: dict[str, tuple[str, dict[str, Any]]] = {
    "3-gram": ("ngram", dict(order=3)),
    "lstm": ("lstm", dict(width=8, depth=1)),
    "led gru": ("gru", dict(width=8, depth=1, guide=4)),
    "transformer": ("transformer", dict(width=8, depth=1, heads=2, context=CONTEXT)),
    "learned": ("transformer", dict(width=8, depth=1, heads=2, context=CONTEXT, positions="learned")),
    "attentive": ("attentive-rnn", dict(width=8, depth=1, context=CONTEXT)),
}
VARIANTS += [
    (MIXTURE, {"members": members})
    for members in (("3-gram", "lstm"), ("transformer", "3-gram", "led gru"), ("attentive", "learned"))
]


@pytest.fixture(autouse=True)
def own_model(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(MODELS, "convolution", OWN)


def named(variant: tuple[str, dict[str, Any]]) -> str:
    kind, sizes = variant
    if kind == MIXTURE:
        return " + ".join(sizes["members"])
    special = [str(sizes[key]) for key in ("positions", "attention", "features", "score") if key in sizes]
    led = [f"led by {sizes['guide']}-grams"] if "guide" in sizes else []
    return "-".join([kind, *(special or [str(sizes.get("depth", 1))]), *(["tied"] if sizes.get("tied") else []), *led])


@pytest.fixture(params=VARIANTS, ids=named)
def variant(request: pytest.FixtureRequest) -> tuple[str, dict[str, Any]]:
    found: tuple[str, dict[str, Any]] = request.param
    return found


@pytest.fixture
def lm(variant: tuple[str, dict[str, Any]]) -> Any:
    kind, sizes = variant
    return build(kind, **sizes).double().eval()


def build(kind: str, guide: int | None = None, seed: int = 0, **sizes: Any) -> Any:
    """With an order, led by n-grams of some text; its output layer is drawn, since it would start with zeros."""
    if kind == MIXTURE:
        return mixture(sizes["members"], seed)
    text = torch.randint(0, V, (300,), generator=torch.Generator().manual_seed(5)).numpy()
    if kind == "ngram":
        return NGramLM.fit(text, V, sizes["order"])
    if guide is None:
        return build_lm(kind, vocab_size=V, seed=seed, **sizes)
    led = GuidedLM(build_lm(kind, vocab_size=V + GATES, seed=seed, **sizes), Guide(NGramLM.fit(text, V, guide)))
    for weight in (p for p in led.network.parameters() if not p.any() and p.ndim > 1):
        torch.nn.init.normal_(weight, std=0.5, generator=torch.Generator().manual_seed(6))
    return led


def mixture(names: tuple[str, ...], seed: int) -> MixtureLM:
    """Some models, with weights that depend on the context."""
    members = [build(_MEMBERS[name][0], seed=seed, **_MEMBERS[name][1]) for name in names]
    draw = torch.Generator().manual_seed(7)
    bias, slopes = (
        torch.randn(*shape, dtype=torch.float64, generator=draw) / 4
        for shape in ((len(members),), (features_in(members), len(members)))
    )
    return MixtureLM(members, Gate(bias, slopes))


def longest(lm: Any) -> int:
    return CONTEXT if traits_of(lm).max_positions else 3 * CONTEXT + 5


def random_ids(batch: int, length: int, seed: int = 0) -> Tensor:
    return torch.randint(0, V + 1, (batch, length), generator=torch.Generator().manual_seed(seed))


def close(a: Tensor, b: Tensor) -> bool:
    return torch.allclose(a, b, rtol=0, atol=1e-9)


def test_logits_have_one_column_per_token_and_none_for_the_begin_id(lm: Any) -> None:
    for batch, length in ((1, 1), (3, 1), (1, 5), (2, 7)):
        logits, _ = lm(random_ids(batch, length))
        assert logits.shape == (batch, length, V)
    begin, _ = lm(torch.full((1, 2), V))
    assert torch.isfinite(begin).all()


@pytest.mark.parametrize("cuts", [(1,), (5,), (1, 2, 3), (7, 8, 11)])
def test_pieces_with_state_equal_the_whole(lm: Any, cuts: tuple[int, ...]) -> None:
    ids = random_ids(2, longest(lm))
    whole, _ = lm(ids)
    state, parts = None, []
    for a, b in zip((0, *cuts), (*cuts, ids.shape[1]), strict=True):
        logits, state = lm(ids[:, a:b], state)
        parts.append(logits)
    assert close(torch.cat(parts, 1), whole)


def test_token_by_token_equals_the_whole_with_gradients(lm: Any) -> None:
    ids = random_ids(2, longest(lm))
    whole, _ = lm(ids)
    whole.square().sum().backward()
    expected = {name: p.grad.clone() for name, p in lm.named_parameters()}
    lm.zero_grad()
    state, parts = None, []
    for t in range(ids.shape[1]):
        logits, state = lm(ids[:, t : t + 1], state)
        parts.append(logits)
    torch.cat(parts, 1).square().sum().backward()
    for name, p in lm.named_parameters():
        assert torch.allclose(p.grad, expected[name], rtol=1e-9, atol=1e-9), name


def test_the_future_never_changes_the_past(lm: Any) -> None:
    ids = random_ids(2, min(longest(lm), 20))
    before, _ = lm(ids)
    for t in (1, 5, ids.shape[1] - 1):
        changed = ids.clone()
        changed[:, t:] = (changed[:, t:] + 3) % V
        after, _ = lm(changed)
        assert close(after[:, :t], before[:, :t])
        assert not close(after[:, t:], before[:, t:])


def test_rows_of_a_batch_do_not_see_each_other(lm: Any) -> None:
    ids = random_ids(4, 9)
    order = torch.tensor([2, 0, 3, 1])
    logits, state = lm(ids)
    shuffled, shuffled_state = lm(ids[order])
    assert close(shuffled, logits[order])
    single, _ = lm(ids[2:3])
    assert close(single, logits[2:3])
    for mine, theirs in zip(tensors_of(seqlab.core.reorder(state, order)), tensors_of(shuffled_state), strict=True):
        assert close(mine, theirs)


def test_a_reordered_state_continues_the_other_row(lm: Any) -> None:
    ids, more = random_ids(3, 6), random_ids(3, 3, seed=1)
    order = torch.tensor([2, 2, 0])
    _, state = lm(ids)
    continued, _ = lm(more, seqlab.core.reorder(state, order))
    expected, _ = lm(torch.cat([ids[order], more], 1))
    assert close(continued, expected[:, 6:])


@pytest.mark.parametrize("parts", [2, 3, 5])
def test_a_state_cut_and_joined_continues_the_same(lm: Any, parts: int) -> None:
    ids, more = random_ids(5, 6), random_ids(5, 3, seed=1)
    _, state = lm(ids)
    expected, _ = lm(more, state)
    assert torch.equal(lm(more, join(split(state, parts)))[0], expected)
    pieces = [lm(rows, part) for rows, part in zip(more.chunk(parts), split(state, parts), strict=True)]
    assert close(torch.cat([logits for logits, _ in pieces]), expected)
    join([after for _, after in pieces])


def test_a_saved_state_continues_the_same(lm: Any) -> None:
    ids, more = random_ids(3, 6), random_ids(3, 3, seed=1)
    _, state = lm(ids)
    shape, tensors = pack(state, "state")
    loaded = unpack(json.loads(json.dumps(shape)), tensors, "state")
    assert torch.equal(lm(more, loaded)[0], lm(more, state)[0])


def test_no_hidden_state(lm: Any) -> None:
    ids = random_ids(2, 8)
    first, _ = lm(ids)
    lm(random_ids(2, 8, seed=5))
    again, _ = lm(ids)
    assert torch.equal(first, again)


def test_every_weight_learns(lm: Any) -> None:
    ids = random_ids(4, CONTEXT)
    logits, _ = lm(ids)
    F.cross_entropy(logits.flatten(0, 1), (ids.flatten() + 1) % V).backward()
    silent = [name for name, p in lm.named_parameters() if p.grad is None or not p.grad.abs().sum() > 0]
    assert not silent


def test_loading_the_weights_gives_the_same_model(lm: Any, variant: tuple[str, dict[str, Any]]) -> None:
    kind, sizes = variant
    other = build(kind, seed=9, **sizes).double().eval()
    ids = random_ids(2, 8)
    assert not close(other(ids)[0], lm(ids)[0])
    other.load_state_dict(lm.state_dict())
    assert torch.equal(other(ids)[0], lm(ids)[0])


def test_the_weights_depend_on_the_seed_alone(variant: tuple[str, dict[str, Any]]) -> None:
    kind, sizes = variant
    torch.manual_seed(1)
    before = torch.get_rng_state()
    one = build(kind, seed=4, **sizes)
    assert torch.equal(torch.get_rng_state(), before)
    torch.manual_seed(2)
    two = build(kind, seed=4, **sizes)
    assert all(torch.equal(a, b) for a, b in zip(one.parameters(), two.parameters(), strict=True))


def test_detached_state_carries_values_but_no_gradient(lm: Any) -> None:
    _, state = lm(random_ids(2, 5))
    assert not any(t.requires_grad for t in tensors_of(detach(state)))


@pytest.mark.parametrize("kind", sorted(MODELS))
def test_every_size_has_a_default(kind: str) -> None:
    logits, _ = build_lm(kind, vocab_size=65)(torch.zeros(1, 3, dtype=torch.long))
    assert logits.shape == (1, 3, 65)


def test_tying_saves_the_output_matrix() -> None:
    def parameters(**sizes: Any) -> int:
        return sum(p.numel() for p in build_lm("gru", vocab_size=100, width=16, depth=1, **sizes).parameters())

    assert parameters(tied=False) - parameters(tied=True) == 100 * 16


def test_unknown_kinds_and_sizes_are_named() -> None:
    with pytest.raises(UsageError, match="unknown model 'grru'; did you mean 'gru'"):
        build_lm("grru", vocab_size=5)
    with pytest.raises(UsageError, match="model 'gru' has no setting 'heads'"):
        build_lm("gru", vocab_size=5, heads=2)
    with pytest.raises(UsageError, match="width 10 cannot be cut into 4 heads"):
        build_lm("transformer", vocab_size=5, width=10, heads=4)
    with pytest.raises(UsageError, match="--width 0 is too small"):
        build_lm("gru", vocab_size=5, width=0)
