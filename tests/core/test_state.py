"""Everything one does with a state, for every kind of state there is."""

import dataclasses
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

import seqlab.core
from seqlab.core.errors import DamageError, UsageError
from seqlab.core.state import (
    SCRATCH,
    BatchFirstState,
    State,
    batch_sizes,
    detach,
    join,
    pack,
    split,
    tensors_of,
    unpack,
)
from seqlab.layers import AttentiveRNN, EncoderDecoderBlock, MultiHeadAttention
from seqlab.layers.attention_state import FeatureCache, KeyValueCache
from seqlab.layers.attentive import AttentiveState
from seqlab.models.ngram import NGramLM, RecentTokens
from seqlab.training.checkpoint import load_tensors, save_tensors


@dataclass(frozen=True)
class Nested(BatchFirstState):
    """A state with everything that a field may be."""

    first: Tensor
    several: tuple[Tensor, ...]
    inner: BatchFirstState
    count: int
    share: float
    word: str
    nothing: None = None
    notes: list[int] | None = field(default=None, metadata=SCRATCH)


def random(*shape: int) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(sum(shape)))


def cache(batch: int, **fields: Any) -> KeyValueCache:
    return KeyValueCache(random(batch, 2, 4, 3), random(batch, 2, 4, 5), **({"position": 4} | fields))


def nested(batch: int) -> Nested:
    several = (random(batch, 2), random(batch, 3))
    return Nested(random(batch, 1), several, RecentTokens(several[0].long()), 3, 0.1, "tensor", None, [1])


def lengths(batch: int) -> Tensor:
    return torch.arange(batch) % 5


KINDS: dict[str, Callable[[int], State]] = {
    "nothing": lambda batch: None,
    "recurrent": lambda batch: random(3, batch, 4),
    "lstm": lambda batch: (random(2, batch, 4), random(2, batch, 4) + 1),
    "tuples": lambda batch: ((random(1, batch, 2), None), (), random(1, batch, 3)),
    "keys": cache,
    "keys and buffers": lambda batch: dataclasses.replace(cache(batch), buffers="room to spare"),
    "padded keys": lambda batch: cache(batch, position=lengths(batch), mask=random(batch, 4) > 0),
    "features": lambda batch: FeatureCache(random(batch, 2, 3, 4), random(batch, 2, 3), 7),
    "padded features": lambda batch: FeatureCache(random(batch, 2, 3, 4), random(batch, 2, 3), lengths(batch)),
    "attentive": lambda batch: AttentiveState(random(batch, 3), random(batch, 2, 3)),
    "padded attentive": lambda batch: AttentiveState(random(batch, 3), random(batch, 2, 3), random(batch, 2) > 0),
    "tokens": lambda batch: RecentTokens(random(batch, 3).long()),
    "mixed": lambda batch: (cache(batch), (random(1, batch, 3), RecentTokens(random(batch, 0).long()))),
    "nested": nested,
}


def same(a: Any, b: Any) -> bool:
    """Equal bit for bit, scratch aside."""
    if type(a) is not type(b):
        return False
    if isinstance(a, Tensor):
        return a.dtype == b.dtype and torch.equal(a, b)
    if isinstance(a, BatchFirstState):
        return same(tuple(a.parts().values()), tuple(b.parts().values()))
    if isinstance(a, tuple):
        return len(a) == len(b) and all(map(same, a, b))
    return bool(a == b)


def through_json(state: State) -> State:
    shape, tensors = pack(state, "carried")
    return unpack(json.loads(json.dumps(shape)), tensors, "carried")


# --------------------------------------------------------------------------- reorder, detach


def test_reorder_knows_where_each_state_has_its_batch() -> None:
    index = torch.tensor([2, 0, 0])
    h = torch.randn(2, 3, 5)
    kept = KeyValueCache(torch.randn(3, 2, 4, 5), torch.randn(3, 2, 4, 5), position=4)
    new_h, (new_c, new_cache) = seqlab.core.reorder((h, (h + 1, kept)), index)
    assert torch.equal(new_h, h[:, index])
    assert torch.equal(new_c, h[:, index] + 1)
    assert torch.equal(new_cache.keys, kept.keys[index])
    assert new_cache.position == 4


@pytest.mark.parametrize("kind", KINDS)
def test_reordering_there_and_back_changes_nothing(kind: str) -> None:
    state, index = KINDS[kind](4), torch.tensor([2, 0, 3, 1])
    assert same(seqlab.core.reorder(seqlab.core.reorder(state, index), index.argsort()), state)


def test_detach_cuts_the_history_of_every_tensor() -> None:
    h = torch.randn(1, 2, 3, requires_grad=True) * 2
    inside = Nested(h, (h, h), RecentTokens(h), 1, 1.0, "")
    found = tensors_of(detach((h, (h, inside))))
    assert len(found) == 6
    assert not any(t.requires_grad for t in found)


# --------------------------------------------------------------------------- split, join


@pytest.mark.parametrize("kind", KINDS)
@given(size=st.integers(1, 4), parts=st.integers(1, 4), missing=st.integers(0, 3))
def test_what_was_split_joins_to_the_same_bits(kind: str, size: int, parts: int, missing: int) -> None:
    """Parts of `size`; the last one lacks some."""
    batch = size * parts - min(missing, size - 1)
    state = KINDS[kind](batch)
    pieces = split(state, parts)
    assert len(pieces) == parts
    assert same(join(pieces), state)
    rows = torch.arange(batch).chunk(parts)
    for piece, index in zip(pieces, rows, strict=True):
        assert same(piece, seqlab.core.reorder(state, index))


def test_parts_that_the_batch_cannot_be_cut_into_are_refused() -> None:
    with pytest.raises(UsageError, match="of 5 sequences cannot be cut into 4 parts .* cut it into 3"):
        split(random(1, 5, 2), 4)


@pytest.mark.parametrize(
    ("states", "message"),
    [
        ([nested(2), dataclasses.replace(nested(2), count=4)], "Nested.count is 3 in one and 4 in another"),
        ([nested(2), dataclasses.replace(nested(2), word=None)], "Nested.word is str in one and None in another"),
        (
            [random(1, 2, 3), random(1, 2, 4)],
            r"the state is of shape \(1, batch, 3\) in one and of shape \(1, batch, 4\)",
        ),
        ([(random(1, 2, 3),), ()], "the state is a tuple of 1 in one and a tuple of 0 in another"),
        ([None, random(1, 2, 3)], "the state is None in one and a tensor in another"),
        ([(random(1, 2, 3), cache(2)), (random(1, 2, 3), RecentTokens(lengths(2)))], "KeyValueCache in one and Recent"),
    ],
)
def test_parts_that_differ_are_not_joined(states: list[State], message: str) -> None:
    with pytest.raises(UsageError, match=message) as caught:
        join(states)
    assert "\n" not in str(caught.value)


def uneven(length: int, batch: int = 1) -> list[State]:
    """States of texts of this length, of every kind that can stand beside one of another length."""
    keys, values = random(batch, 2, length, 3), random(batch, 2, length, 5)
    return [
        random(2, batch, 4) * length,
        KeyValueCache(keys, values, length),
        FeatureCache(random(batch, 2, 3, 4) * length, random(batch, 2, 3) * length, length),
        AttentiveState(random(batch, 3) * length, random(batch, length, 3)),
        RecentTokens(random(batch, length).long()),
    ]


def test_texts_of_different_lengths_end_together() -> None:
    _, keys, sums, attentive, tokens = join([tuple(uneven(n, batch)) for n, batch in ((2, 1), (5, 2), (3, 1))])
    real = torch.tensor([[0, 0, 0, 1, 1], [1] * 5, [1] * 5, [0, 0, 1, 1, 1]]).bool()
    for mask in (keys.mask, attentive.mask):
        assert torch.equal(mask, real)
    for state in (keys, sums):
        assert state.position.tolist() == [2, 5, 5, 3]
    assert torch.equal(keys.keys[0, :, 3:], uneven(2)[1].keys[0])
    assert torch.equal(keys.values[1:3], uneven(5, 2)[1].values)
    assert torch.equal(attentive.memory[3, 2:], uneven(3)[3].memory[0])
    assert torch.count_nonzero(keys.keys[~real[:, None].expand(-1, 2, -1)]) == 0
    assert tokens.ids[0].tolist() == [-1, -1, -1, *uneven(2)[4].ids[0].tolist()]


def test_masks_and_positions_that_some_have_are_joined() -> None:
    masked = cache(2, mask=random(2, 4) > 0)
    both = join([masked, cache(1, position=5)])
    assert both.mask.tolist() == [*masked.mask.tolist(), [True] * 4]
    assert both.position.tolist() == [4, 4, 5]
    assert join([cache(2, position=lengths(2)), cache(1)]).position.tolist() == [0, 1, 4]


def test_padding_that_nobody_needs_any_more_is_dropped() -> None:
    joined = join([uneven(2)[1], uneven(5)[1]])
    again = join([seqlab.core.reorder(joined, torch.tensor([0])), uneven(3)[1]])
    assert again.keys.shape[2] == 3
    assert again.mask.tolist() == [[False, True, True], [True] * 3]


@pytest.mark.parametrize("kind", range(5))
def test_joined_texts_are_cut_reordered_and_saved_like_any_other(kind: int) -> None:
    state = join([uneven(n)[kind] for n in (2, 5, 3, 1)])
    assert batch_sizes(state) == {4}
    assert same(through_json(state), state)
    assert same(join(split(state, 2)), state)
    index = torch.tensor([2, 0, 3, 1])
    assert same(seqlab.core.reorder(seqlab.core.reorder(state, index), index.argsort()), state)


@pytest.mark.parametrize("kind", sorted(KINDS.keys() - {"nothing"}))
def test_every_tensor_has_one_entry_for_each_sequence(kind: str) -> None:
    assert batch_sizes(KINDS[kind](3)) == {3}
    assert batch_sizes(None) == set()
    assert batch_sizes((random(4), random(1, 3))) == {0, 3}


def test_buffers_are_neither_kept_nor_joined() -> None:
    state = KINDS["keys and buffers"](4)
    assert join(split(state, 2)).buffers is None
    assert through_json(state).buffers is None
    assert "buffers" not in pack(state)[0]["fields"]


# --------------------------------------------------------------------------- pack, unpack


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("batch", [1, 3])
def test_what_was_packed_comes_back_bit_for_bit(kind: str, batch: int, tmp_path: Path) -> None:
    state = KINDS[kind](batch)
    assert same(through_json(state), state)
    shape, tensors = pack(state, "carried")
    assert len(tensors) == len(tensors_of(state))
    save_tensors(tmp_path / "state", tensors, {"carried": shape})
    loaded, record = load_tensors(tmp_path / "state")
    assert same(unpack(record["carried"], loaded, "carried"), state)


def test_recurrent_states_are_packed_as_they_always_were() -> None:
    h, c = random(1, 2, 3), random(2, 2, 3)
    assert pack(None, "carried") == (None, {})
    shape, tensors = pack(h, "carried")
    assert (shape, list(tensors)) == ("tensor", ["carried"])
    shape, tensors = pack(((h, c), None, h), "carried")
    assert shape == [["tensor", "tensor"], None, "tensor"]
    assert list(tensors) == ["carried.0.0", "carried.0.1", "carried.2"]
    old = {"carried.0": h, "carried.1": c}
    assert same(unpack(["tensor", "tensor"], old, "carried"), (h, c))


def test_a_tensor_that_a_state_holds_twice_can_be_saved(tmp_path: Path) -> None:
    h = random(1, 2, 3)
    shape, tensors = pack((h, h))
    save_tensors(tmp_path / "state", tensors, {})
    assert same(unpack(shape, load_tensors(tmp_path / "state")[0]), (h, h))


@pytest.mark.parametrize(
    ("shape", "message"),
    [
        ({"state": "os.system", "fields": {}}, "a 'os.system', which is not known here; import the model"),
        ({"state": "BatchFirstState", "fields": {}}, "not known here"),
        ({"state": ["RecentTokens"], "fields": {"ids": "tensor"}}, "not known here"),
        ({"state": "RecentTokens", "fields": {"id": "tensor"}}, "RecentTokens has the fields id, not ids"),
        ({"state": "KeyValueCache", "fields": {"buffers": None}}, "KeyValueCache has the fields buffers, not keys"),
        ({"state": "RecentTokens", "fields": {"ids": {"value": [1]}}}, "'x.ids' cannot have the shape"),
        ({"state": "RecentTokens", "fields": {"ids": "tensor"}}, "its tensor 'x.ids' is missing"),
        (["tensor"], "its tensor 'x.0' is missing"),
        ({"value": 3}, "'x' cannot have the shape"),
        ("float", "'x' cannot have the shape float"),
    ],
)
def test_a_shape_that_nobody_packed_is_refused(shape: Any, message: str) -> None:
    with pytest.raises(DamageError, match=message):
        unpack(shape, {}, "x")


def test_what_is_no_state_is_refused() -> None:
    for call in (pack, detach, lambda state: join([state, state])):
        with pytest.raises(TypeError, match="not a state: int"):
            call((3,))


def test_two_states_of_one_name_are_refused() -> None:
    with pytest.raises(UsageError, match="two states are called KeyValueCache, in seqlab.layers.* and .*; rename one"):
        type("KeyValueCache", (BatchFirstState,), {})


# --------------------------------------------------------------------------- feeding on (language models: contracts)


@pytest.mark.parametrize("mode", [torch.enable_grad, torch.no_grad])
@pytest.mark.parametrize("kind", ["softmax", "separable", "random_features"])
def test_attention_over_padded_texts_goes_on_the_same(kind: str, mode: Callable[[], Any]) -> None:
    block = EncoderDecoderBlock(MultiHeadAttention(12, 3, kind=kind), MultiHeadAttention(12, 3, kind=kind)).double()
    x, source, more = random(5, 4, 12), random(5, 6, 12), random(5, 2, 12)
    with mode():
        _, state = block(x, source, torch.tensor([6, 1, 0, 2, 3]), lengths=torch.tensor([4, 0, 2, 1, 3]))
        _, state = block(more, state=state)
        expected, _ = block(more, state=state)
        for again in (through_json(state), join(split(state, 3))):
            assert torch.equal(block(more, state=again)[0], expected)


def test_an_attentive_layer_over_padded_texts_goes_on_the_same() -> None:
    layer, x = AttentiveRNN(3, 4, score="additive").double(), random(5, 6, 3)
    _, state = layer(x, lengths=torch.tensor([6, 0, 2, 1, 3]))
    expected, _ = layer(x, state)
    for again in (through_json(state), join(split(state, 3))):
        assert torch.equal(layer(x, again)[0], expected)


def test_an_n_gram_goes_on_the_same() -> None:
    model = NGramLM.fit(np.arange(200) ** 2 % 7, 7, order=3)
    ids = (random(5, 6) > 0).long()
    _, state = model(ids)
    expected, _ = model(ids[:, :2], state)
    for again in (through_json(state), join(split(state, 3))):
        assert torch.equal(model(ids[:, :2], again)[0], expected)


@pytest.mark.parametrize("order", [2, 3, 5])
def test_n_grams_of_short_texts_go_on_side_by_side(order: int) -> None:
    model = NGramLM.fit(np.random.default_rng(0).integers(0, 3, 500), 3, order=order)
    texts = [torch.tensor([ids]) for ids in ([1], [2, 0], [0, 1, 2, 0, 1, 1])]  # without the begin id
    state = join([model(ids)[1] for ids in texts])
    together, _ = model(torch.tensor([[2, 1]] * 3), state)
    for row, ids in enumerate(texts):
        assert torch.equal(together[row], model(torch.cat([ids, torch.tensor([[2, 1]])], 1))[0][0, -2:])
