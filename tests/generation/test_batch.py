"""Prompts of different lengths side by side: each is continued as if it were alone, token for token. float64."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
from tests.generation.test_sampling import KINDS, Spy, V
from torch import Tensor, nn

from seqlab.core.errors import NotFiniteError, UsageError
from seqlab.core.state import BatchFirstState
from seqlab.core.traits import Traits
from seqlab.generation import reading
from seqlab.generation.sampling import Choice, generate, generate_batch, generate_each
from seqlab.layers import DecoderBlock, LearnedPosition, MultiHeadAttention
from seqlab.models import build_lm
from seqlab.models.ngram import NGramLM
from seqlab.training.determinism import using_threads

TOKENS = 24  # three times the context of the windowed kinds
PROMPTS = [[V], [V, 1, 2, 3], [V, *range(12)], [V, 3, 2, 1], [V, *range(7), *range(7)]]
CHOICES = [Choice(0.0), Choice(1.3), Choice(0.9, top_k=4), Choice(1.0, top_p=0.8)]


@dataclass(frozen=True)
class AllTokens(BatchFirstState):
    """A state that says nothing of how texts of different lengths could be put side by side."""

    ids: Tensor


class Own(nn.Module):
    """A model of one's own: logits from sums over all ids so far. The layout of its state is a choice."""

    vocab_size = V

    def __init__(self, layout: str) -> None:
        super().__init__()
        self.layout = layout
        self.weight = torch.randn(V + 1, V, dtype=torch.float64, generator=torch.Generator().manual_seed(1))

    def forward(self, ids: Tensor, state: Any = None) -> tuple[Tensor, Any]:
        if state is not None:
            before = {"first": lambda: state.ids, "second": lambda: state.T, "list": lambda: torch.tensor(state)}
            ids = torch.cat([before.get(self.layout, lambda: state)(), ids], 1)
        logits = torch.cumsum(self.weight[ids], 1).sin() * 2
        after = {"first": lambda: AllTokens(ids), "second": lambda: ids.T, "list": lambda: ids.tolist()}
        return logits, after.get(self.layout, lambda: ids)()


class Positions(nn.Module):
    """Softmax attention with learned positions and no window: nothing but `max_positions` ever cuts its cache."""

    vocab_size = V
    traits = Traits(max_positions=9)

    def __init__(self) -> None:
        super().__init__()
        self.embedding, self.position = nn.Embedding(V + 1, 8), LearnedPosition(9, 8)
        self.block, self.output = DecoderBlock(MultiHeadAttention(8, 2)), nn.Linear(8, V)
        self.longest = 0

    def forward(self, ids: Tensor, state: Any = None) -> tuple[Tensor, Any]:
        x = self.position(self.embedding(ids), 0 if state is None else state.position)
        x, state = self.block(x, state)
        self.longest = max(self.longest, state.keys.shape[2])
        return self.output(x), state


def counted(order: int) -> NGramLM:
    return NGramLM.fit(np.random.default_rng(0).integers(0, V, 3000) ** 2 % V, V, order)


def spread(lm: Any) -> Any:
    for p in lm.parameters():
        nn.init.normal_(p, std=0.4, generator=torch.Generator().manual_seed(p.numel()))
    return lm.double().eval()


LMS: dict[str, Any] = {
    "-".join(
        [kind, *(str(sizes[key]) for key in ("attention", "positions") if key in sizes)]
    ): lambda k=kind, s=sizes: spread(build_lm(k, vocab_size=V, **s))
    for kind, sizes in KINDS
}
LMS |= {f"ngram-{order}": lambda order=order: counted(order) for order in (1, 2, 5)}
LMS |= {f"own-{layout}": lambda layout=layout: Own(layout) for layout in ("first", "second", "list", "wrong")}
LMS["own-positions"] = lambda: spread(Positions())


@pytest.fixture(params=LMS, scope="module")
def lm(request: pytest.FixtureRequest) -> Any:
    return LMS[request.param]()


def streams(numbers: Iterable[int] = range(5)) -> list[torch.Generator]:
    return [torch.Generator().manual_seed(10 + k) for k in numbers]


def alone(lm: Any, choice: Choice, **how: Any) -> list[list[int]]:
    pairs = zip(PROMPTS, streams(), strict=True)
    return [list(generate(lm, prompt, TOKENS, choice, stream, **how)) for prompt, stream in pairs]


@pytest.mark.parametrize("choice", CHOICES, ids=str)
def test_each_is_continued_as_if_it_were_alone(lm: Any, choice: Choice) -> None:
    mine, theirs = streams(), streams()
    together = generate_batch(lm, PROMPTS, TOKENS, choice, mine, never=(5,))
    for row, prompt in enumerate(PROMPTS):
        assert together[row] == list(generate(lm, prompt, TOKENS, choice, theirs[row], never=(5,)))
        assert torch.equal(mine[row].get_state(), theirs[row].get_state())
    assert all(len(text) == TOKENS and 5 not in text for text in together)


def test_cached_equals_uncached(lm: Any) -> None:
    cached, uncached = (
        generate_batch(lm, PROMPTS, TOKENS, Choice(1.2), streams(), end=3, cached=c) for c in (True, False)
    )
    assert cached == uncached


def test_other_prompts_beside_it_and_their_order_change_nothing(lm: Any) -> None:
    texts = generate_batch(lm, PROMPTS, TOKENS, Choice(1.2), streams())
    order = [3, 0, 4, 2, 1]
    moved = generate_batch(lm, [PROMPTS[k] for k in order], TOKENS, Choice(1.2), streams(order))
    assert moved == [texts[k] for k in order]
    some = generate_batch(lm, PROMPTS[1:3], TOKENS, Choice(1.2), streams((1, 2)))
    assert some == texts[1:3]


@pytest.mark.parametrize("end", range(0, V, 4))
def test_the_end_comes_where_it_would_come_alone(lm: Any, end: int) -> None:
    written = alone(lm, Choice(1.2))
    stopped = [text[: text.index(end)] if end in text else text for text in written]
    assert generate_batch(lm, PROMPTS, TOKENS, Choice(1.2), streams(), end=end) == stopped
    assert alone(lm, Choice(1.2), end=end) == stopped


def test_what_has_ended_is_read_no_more() -> None:
    lm, fed = Own("first"), []
    lm.register_forward_pre_hook(lambda _, arguments: fed.append(len(arguments[0])))
    texts = generate_batch(lm, [[V, k] for k in range(4)], TOKENS, Choice(1.2), streams(range(4)), end=3)
    assert len({len(text) for text in texts}) > 1
    assert sum(fed) == sum(min(len(text) + 1, TOKENS) for text in texts)


@pytest.mark.parametrize(
    ("name", "batches"), [("gru", [5] * 23), ("ngram-5", [5] * 23), ("own-first", [1, 1, 1, 2] * 23)]
)
def test_one_call_serves_all_that_can_be_joined(name: str, batches: list[int]) -> None:
    lm, fed = LMS[name](), []
    lm.register_forward_pre_hook(lambda _, arguments: fed.append(len(arguments[0])))
    generate_batch(lm, PROMPTS, TOKENS, Choice(1.0), streams())
    assert sorted(fed[-len(batches) :]) == sorted(batches)


def test_padding_does_not_pile_up_where_rows_are_read_anew() -> None:
    lm = LMS["own-positions"]()
    generate_batch(lm, PROMPTS, 100, Choice(1.0), streams())
    assert lm.longest <= lm.traits.max_positions + 1


def test_long_prompts_are_read_in_pieces_that_bound_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "READ_AT_ONCE", 12)
    lm, fed = Own("first"), []
    lm.register_forward_pre_hook(lambda _, arguments: fed.append(tuple(arguments[0].shape)))
    generate_batch(lm, [[V] * 5, [V] * 9, [V] * 5], 1, Choice(0.0), streams(range(3)))
    assert fed == [(3, 4), (3, 1), (1, 4)]


def test_the_ids_come_as_they_are_drawn() -> None:
    stream = generate_each(Own("first"), PROMPTS, 2, Choice(0.0), streams())
    seen = list(stream)
    assert sorted(row for row, _ in seen[:5]) == sorted(row for row, _ in seen[5:]) == [0, 1, 2, 3, 4]


def test_nothing_to_write() -> None:
    lm = Own("first")
    assert generate_batch(lm, [], 5, Choice(), []) == []
    assert generate_batch(lm, PROMPTS, 0, Choice(), streams()) == [[]] * 5
    with pytest.raises(UsageError, match="a prompt has no ids; it starts with the begin id"):
        generate_batch(lm, [[V], []], 5, Choice(), streams((0, 1)))
    with pytest.raises(UsageError, match="there are 2 prompts, but 1 generators"):
        generate_batch(lm, [[V], [V]], 5, Choice(), streams((0,)))


def test_a_state_that_keeps_to_no_layout_is_never_joined() -> None:
    prompts, lm = [[V], [V], [V]], Own("wrong")
    expected = [list(generate(lm, [V], TOKENS, Choice(1.2), stream)) for stream in streams(range(3))]
    assert generate_batch(lm, prompts, TOKENS, Choice(1.2), streams(range(3))) == expected


def test_a_state_of_any_kind_serves_one_sequence() -> None:
    assert len(generate_batch(Spy(None), [[7, 1]], 5, Choice(0.0), streams((0,)))[0]) == 5


# --------------------------------------------------------------------------- choosing


@pytest.mark.parametrize("choice", CHOICES[1:], ids=str)
@pytest.mark.parametrize("size", [3, 1000, 40_000])
def test_the_bits_of_a_row_do_not_depend_on_the_others(choice: Choice, size: int) -> None:
    logits = torch.randn(6, size, generator=torch.Generator().manual_seed(0)) * 4
    with using_threads(2):  # by which torch cuts a long sum, where there is one row alone
        together = choice.probabilities(logits)
        for row in range(6):
            assert torch.equal(together[row], choice.probabilities(logits[row]))


@pytest.mark.parametrize("choice", CHOICES[1:], ids=str)
def test_tokens_are_those_of_multinomial(choice: Choice) -> None:
    logits = torch.randn(4, 300, generator=torch.Generator().manual_seed(0)) * 2
    mine, theirs = streams(range(4)), streams(range(4))
    for _ in range(50):
        drawn = [
            int(torch.multinomial(p, 1, generator=g)) for p, g in zip(choice.probabilities(logits), theirs, strict=True)
        ]
        assert choice.of_each(logits, mine) == drawn


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_logits_that_are_not_finite_are_named(bad: float) -> None:
    logits = torch.zeros(2, 5)
    logits[1, 3] = bad
    with pytest.raises(NotFiniteError, match="logits are not finite"):
        Choice(1.0, top_k=3).of_each(logits, streams((0, 1)))


def test_logits_that_are_no_numbers_are_refused_greedily_too() -> None:
    lm = build_lm("gru", vocab_size=9, width=8, depth=1)
    torch.nn.init.constant_(lm.output.bias, torch.nan)
    for temperature in (0.0, 1.0):
        with pytest.raises(NotFiniteError, match="logits are not finite"):
            generate_batch(lm, [[9]], 3, Choice(temperature), [torch.Generator()])
    with pytest.raises(UsageError, match="--tokens -1"):
        generate_batch(lm, [[9]], -1, Choice(), [torch.Generator()])
