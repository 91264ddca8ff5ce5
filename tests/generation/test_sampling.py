from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from seqlab.core.errors import UsageError
from seqlab.core.registry import MODELS
from seqlab.core.traits import Traits
from seqlab.generation.sampling import Choice, generate
from seqlab.models import build_lm

V = 13
KINDS: list[tuple[str, dict[str, Any]]] = [
    (kind, dict(width=16, depth=2) | (dict(context=8) if kind == "attentive-rnn" else {}))
    for kind in sorted(MODELS)
    if kind not in ("transformer", "bigram")
] + [
    ("transformer", dict(width=16, depth=2, heads=2, context=8, positions=p))
    for p in ("rotary", "sinusoidal", "learned")
]
KINDS.append(("bigram", dict(width=16)))
KINDS += [
    ("transformer", dict(width=16, depth=2, heads=2, context=8, positions="sinusoidal", attention=a))
    for a in ("separable", "random_features")
]


def written(lm: Any, prompt: list[int], choice: Choice, *, cached: bool, tokens: int = 40) -> list[int]:
    return list(generate(lm, prompt, tokens, choice, torch.Generator().manual_seed(3), cached=cached))


@pytest.mark.parametrize("choice", [Choice(0.0), Choice(1.3), Choice(0.9, top_k=4), Choice(1.0, top_p=0.8)], ids=str)
@pytest.mark.parametrize(
    ("kind", "sizes"), KINDS, ids=lambda x: x if isinstance(x, str) else x.get("attention", x.get("positions", ""))
)
@pytest.mark.parametrize("prompt", [[V], [V, 1, 2, 3], [V, *range(12)]], ids=len)
def test_cached_decoding_equals_uncached_token_for_token(
    kind: str, sizes: dict[str, Any], choice: Choice, prompt: list[int]
) -> None:
    lm = build_lm(kind, vocab_size=V, **sizes).double().eval()
    for p in lm.parameters():
        torch.nn.init.normal_(p, std=0.4, generator=torch.Generator().manual_seed(p.numel()))
    cached, uncached = (written(lm, prompt, choice, cached=c) for c in (True, False))
    assert cached == uncached
    assert len(cached) == 40
    assert len(set(cached)) > 1 or choice.temperature == 0


def reference_probabilities(logits: list[float], temperature: float, k: int | None, p: float | None) -> list[float]:
    """By hand: rank, keep the k likeliest, then the shortest prefix whose mass reaches p."""
    weights = torch.tensor(logits, dtype=torch.float64).div(temperature).softmax(0).tolist()
    ranked = sorted(range(len(weights)), key=lambda i: -weights[i])[: k or len(weights)]
    mass = sum(weights[i] for i in ranked)
    kept, reached = [], 0.0
    for i in ranked:
        if p is not None and reached >= p:
            break
        kept.append(i)
        reached += weights[i] / mass
    total = sum(weights[i] for i in kept)
    return [weights[i] / total if i in kept else 0.0 for i in range(len(weights))]


@given(
    logits=st.lists(st.integers(-80, 80).map(lambda n: n / 10), min_size=1, max_size=9, unique=True),
    temperature=st.floats(0.2, 3),
    k=st.none() | st.integers(1, 9),
    p=st.none() | st.floats(0.05, 0.99),
)
def test_probabilities_are_those_of_the_definition(
    logits: list[float], temperature: float, k: int | None, p: float | None
) -> None:
    mine = Choice(temperature, k, p).probabilities(torch.tensor(logits, dtype=torch.float64))
    assert mine.sum().item() == pytest.approx(1)
    assert mine.tolist() == pytest.approx(reference_probabilities(logits, temperature, k, p), abs=1e-9)


def test_greedy_takes_the_likeliest_and_top_k_one_is_greedy() -> None:
    logits, generator = torch.tensor([0.1, 2.0, -1.0]), torch.Generator()
    assert Choice(0.0)(logits, generator) == 1
    assert all(Choice(5.0, top_k=1)(logits, generator) == 1 for _ in range(20))


def test_frequencies_follow_the_probabilities() -> None:
    logits, generator = torch.tensor([0.0, 1.0, 2.0]), torch.Generator().manual_seed(0)
    draws = torch.tensor([Choice(1.0)(logits, generator) for _ in range(4000)])
    frequencies = torch.bincount(draws, minlength=3) / 4000
    assert torch.allclose(frequencies, logits.softmax(0), atol=0.03)


def test_forbidden_tokens_are_never_written() -> None:
    lm = build_lm("gru", vocab_size=4, width=8, depth=1).eval()
    tokens = list(generate(lm, [4], 200, Choice(2.0), torch.Generator().manual_seed(0), never=(0, 2)))
    assert set(tokens) == {1, 3}


def test_the_seed_decides() -> None:
    lm = build_lm("gru", vocab_size=30, width=8, depth=1).eval()
    one, two, other = (list(generate(lm, [30], 30, Choice(), torch.Generator().manual_seed(s))) for s in (1, 1, 2))
    assert one == two != other


@pytest.mark.parametrize(
    ("how", "message"),
    [
        (dict(temperature=-1.0), "--temperature -1.0"),
        (dict(temperature=float("nan")), "--temperature nan"),
        (dict(top_k=0), "--top-k 0"),
        (dict(top_p=0.0), "--top-p 0.0"),
        (dict(top_p=1.5), "--top-p 1.5"),
    ],
)
def test_values_out_of_range_are_refused(how: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        Choice(**how)


class Spy:
    """A model that remembers what it was fed, and in which order."""

    vocab_size = 7

    def __init__(self, max_positions: int | None) -> None:
        self.max_positions = max_positions
        self.traits = Traits(max_positions=max_positions)
        self.fed: list[list[int]] = []

    def __call__(self, ids: torch.Tensor, state: Any = None) -> tuple[torch.Tensor, Any]:
        seen = [*(state or []), *ids[0].tolist()]
        assert self.max_positions is None or len(seen) <= self.max_positions
        self.fed.append(ids[0].tolist())
        logits = torch.zeros(1, ids.shape[1], 7)
        logits[0, -1, sum(seen) % 7] = 5.0
        return logits, seen


@pytest.mark.parametrize("limit", [1, 2, 5, 6])
def test_where_positions_end_the_last_half_is_read_anew(limit: int) -> None:
    cached, uncached = Spy(limit), Spy(limit)
    prompt = [7, 1, 2, 3, 4, 5, 6, 1]
    one = list(generate(cached, prompt, 9, Choice(0.0), torch.Generator()))
    two = list(generate(uncached, prompt, 9, Choice(0.0), torch.Generator(), cached=False))
    assert one == two
    assert cached.fed[0] == prompt[-max(1, limit // 2) :]
    if limit == 5:  # two are read anew, then one at a time until five are in the state, then two again
        assert [len(piece) for piece in cached.fed] == [2, 1, 1, 1, 2, 1, 1, 1, 2]


def test_a_long_prompt_is_read_in_pieces() -> None:
    spy = Spy(None)
    list(generate(spy, [7] + [1] * 600, 2, Choice(0.0), torch.Generator()))
    assert [len(piece) for piece in spy.fed] == [256, 256, 89, 1]


def test_the_nucleus_stops_where_its_mass_is_reached() -> None:
    assert Choice(1.0, top_p=0.5).probabilities(torch.zeros(2)).tolist() == [1.0, 0.0]


def test_a_temperature_near_zero_is_greedy() -> None:
    assert Choice(1e-310).probabilities(torch.tensor([1.0, 2.0, 1.5])).tolist() == [0.0, 1.0, 0.0]
