"""The state of multi-head attention: pieces, sources, windows and caches. float64."""

from typing import Any

import pytest
import torch
from tests.layers.small_attention import KINDS, B, D, N, build, close, random
from torch import Tensor

from seqlab.core.state import join, reorder, split, tensors_of
from seqlab.layers import MultiHeadAttention, RotaryPosition


@pytest.mark.parametrize("rotary", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_pieces_with_state_equal_the_whole(kind: str, rotary: bool) -> None:
    layer = build(kind, rotary=RotaryPosition(D // N) if rotary else None)
    x = random(2, 11, D)
    whole, final, _ = layer(x, x, x, causal=True)
    for cuts in ((1,), (4, 5), tuple(range(1, 11))):
        state, parts = None, []
        for a, b in zip((0, *cuts), (*cuts, 11), strict=True):
            piece = x[:, a:b]
            out, state, _ = layer(piece, piece, piece, causal=True, state=state)
            parts.append(out)
        assert close(torch.cat(parts, 1), whole)
        assert state is not None
        assert state.position == final.position == 11


@pytest.mark.parametrize("rotary", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_sequences_of_different_lengths_continue_each_on_its_own(kind: str, rotary: bool) -> None:
    layer = build(kind, rotary=RotaryPosition(D // N) if rotary else None)
    first, second = random(B, 5, D), random(B, 4, D, seed=1)
    one, two = torch.tensor([5, 0, 2]), torch.tensor([4, 3, 1])
    _, state, _ = layer(first, first, first, causal=True, key_lengths=one)
    out, state, _ = layer(second, second, second, causal=True, key_lengths=two, state=state)
    assert state.position.tolist() == [9, 3, 3]
    for row in range(B):
        a, b = int(one[row]), int(two[row])
        text = torch.cat([first[row, :a], second[row, :b]])[None]
        expected = layer(text, text, text, causal=True)[0]
        assert close(out[row, :b], expected[0, a:])


@pytest.mark.parametrize("kind", KINDS)
def test_cross_attention_remembers_its_source(kind: str) -> None:
    layer = build(kind)
    query, source = random(B, 5, D), random(B, 7, D, seed=1)
    lengths = torch.tensor([7, 3, 0])
    whole, state, _ = layer(query, source, source, key_lengths=lengths)
    for t in range(5):
        step, state, _ = layer(query[:, t : t + 1], state=state)
        assert close(step, whole[:, t : t + 1])
    order = torch.tensor([2, 0, 0])
    again, _, _ = layer(query[order], state=reorder(state, order))
    assert close(again, whole[order])


@pytest.mark.parametrize("kind", ["separable", "random_features"])
def test_the_state_of_linear_attention_does_not_grow(kind: str) -> None:
    layer = build(kind)
    sizes = []
    for T in (1, 50):
        x = random(1, T, D)
        sizes.append(sum(t.numel() for t in tensors_of(layer(x, x, x, causal=True)[1])))
    assert sizes[0] == sizes[1]


def test_a_window_hides_what_is_further_back_and_the_cache_forgets_it() -> None:
    layer, x = build(window=4), random(2, 12, D)
    _, state, weights = layer(x, x, x, causal=True, need_weights=True)
    visible = torch.ones(12, 12).tril() * torch.ones(12, 12).triu(-3)
    assert weights is not None
    assert torch.equal(weights[0, 0] > 0, visible > 0)
    assert state.keys.shape == state.values.shape == (2, N, 3, D // N)
    out = layer(x, x, x, causal=True)[0]
    tail = x[:, 5:]
    assert close(out[:, 8:], layer(tail, tail, tail, causal=True)[0][:, 3:])
    narrow = build(window=1)
    assert narrow(x, x, x, causal=True)[1].keys.shape[2] == 0


# --------------------------------------------------------------------------- caches without gradients


MODES = {"no_grad": torch.no_grad, "inference": torch.inference_mode, "gradients": torch.enable_grad}


@pytest.mark.parametrize("window", [None, 4])
@pytest.mark.parametrize("first_mode", MODES)
@pytest.mark.parametrize("second_mode", MODES)
def test_continuing_one_state_twice_changes_neither(first_mode: str, second_mode: str, window: int | None) -> None:
    layer, x = build(window=window), random(2, 9, D)
    others = [random(2, 3, D, seed=seed) for seed in (1, 2)]
    with torch.no_grad():
        expected = [self_attention(layer, torch.cat([x, other], 1))[0][:, 9:] for other in others]
    with MODES[first_mode]():
        _, state = self_attention(layer, x[:, :5])
        for t in range(5, 9):  # so that there are buffers with room in them
            _, state = self_attention(layer, x[:, t : t + 1], state)
    shown = [t.clone() for t in tensors_of(state)]
    with MODES[second_mode]():
        branches, outputs = [state, state], [[], []]
        for t in range(3):
            for n in (0, 1):  # by turns
                out, branches[n] = self_attention(layer, others[n][:, t : t + 1], branches[n])
                outputs[n].append(out)
    for n in (0, 1):
        assert close(torch.cat(outputs[n], 1), expected[n])
    assert all(torch.equal(a, b) for a, b in zip(tensors_of(state), shown, strict=True))


def self_attention(layer: MultiHeadAttention, x: Tensor, state: Any = None) -> tuple[Tensor, Any]:
    out, state, _ = layer(x, x, x, causal=True, state=state)
    return out, state


@torch.no_grad()
def test_a_state_cut_or_reordered_continues_on_its_own() -> None:
    layer, x, more = build(), random(4, 6, D), random(4, 2, D, seed=1)
    whole = self_attention(layer, torch.cat([x, more], 1))[0][:, 6:]
    _, state = self_attention(layer, x[:, :5])
    _, state = self_attention(layer, x[:, 5:], state)
    for parts in (2, 4):
        rows = more.chunk(parts)
        for n, part in enumerate(split(state, parts)):
            assert close(self_attention(layer, rows[n], part)[0], whole.chunk(parts)[n])
    order = torch.tensor([1, 1, 3])
    assert close(self_attention(layer, more[order], reorder(state, order))[0], whole[order])


# --------------------------------------------------------------------------- texts of different lengths side by side


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("window", [None, 1, 3, 5])
@pytest.mark.parametrize("rotary", [False, True])
def test_joined_caches_go_on_each_as_if_alone(window: int | None, rotary: bool, mode: str) -> None:
    layer = build(window=window, rotary=RotaryPosition(D // N) if rotary else None)
    lengths, more = (1, 4, 9, 4), 6
    texts = [random(1, length + more, D, seed=length) for length in lengths]
    with MODES[mode]():
        state = join([self_attention(layer, x[:, :n])[1] for x, n in zip(texts, lengths, strict=True)])
        for t in range(more):
            new = torch.cat([x[:, n + t : n + t + 1] for x, n in zip(texts, lengths, strict=True)])
            out, state = self_attention(layer, new, state)
            for row, (x, n) in enumerate(zip(texts, lengths, strict=True)):
                assert close(out[row], self_attention(layer, x[:, : n + t + 1])[0][0, -1:])
    assert state.position.tolist() == [n + more for n in lengths]
    if window is not None:
        assert state.keys.shape[2] == window - 1
        assert state.mask is None  # all have filled their window: nothing is hidden any more


@pytest.mark.parametrize("window", [None, 4])
def test_a_joined_cache_may_read_several_at_once(window: int | None) -> None:
    layer, texts = build(window=window), [random(1, n + 3, D, seed=n) for n in (2, 7)]
    state = join([self_attention(layer, x[:, :-3])[1] for x in texts])
    out, _ = self_attention(layer, torch.cat([x[:, -3:] for x in texts]), state)
    for row, x in enumerate(texts):
        assert close(out[row], self_attention(layer, x)[0][0, -3:])


@torch.no_grad()
def test_a_joined_cache_grows_in_place() -> None:
    layer, texts = build(), [random(1, n, D, seed=n) for n in (2, 7)]
    state = join([self_attention(layer, x)[1] for x in texts])
    for t in range(2):  # what was joined or reordered grows by one copy; only the second time room is made for more
        _, state = self_attention(layer, random(2, 1, D, seed=9 + t), state)
    room = state.buffers
    for t in range(5):
        _, state = self_attention(layer, random(2, 1, D, seed=t), state)
        assert state.buffers is room


def test_a_source_read_in_inference_mode_serves_a_training_step() -> None:
    layer = MultiHeadAttention(8, 2)
    x, source = torch.randn(1, 2, 8), torch.randn(1, 3, 8)
    with torch.inference_mode():
        expected, state, _ = layer(x, source, source)
    out, _, _ = layer(x, state=state)
    assert torch.allclose(out, expected, atol=1e-6)
    out.sum().backward()
