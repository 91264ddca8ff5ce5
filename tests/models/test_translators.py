"""Encoder-decoders: the past, the padding, the neighbours, pieces and the pointer."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from seqlab.core.state import reorder
from seqlab.core.types import IGNORED, PaddedBatch, PairBatch
from seqlab.data.pair_batches import Pairs, Rows, source_batch
from seqlab.layers.pointer import Pointer
from seqlab.models.recurrent_translator import GRUTranslator, LSTMTranslator
from seqlab.models.translator import TransformerTranslator, Translator
from seqlab.ops.pointer import BEFORE, distances, matches, mixed_logarithms, mixed_nats, with_past

V, END, TARGETS = 20, 19, 2
KINDS: dict[str, Callable[..., Translator]] = {
    "transformer": lambda **o: TransformerTranslator(V, TARGETS, 16, 2, 2, **o),
    "post": lambda **o: TransformerTranslator(V, TARGETS, 16, 2, 2, placement="post", decoder_depth=1, **o),
    "untied": lambda **o: TransformerTranslator(V, TARGETS, 16, 1, 4, tied=False, hidden=24, **o),
    "unaligned": lambda **o: TransformerTranslator(V, TARGETS, 16, 2, 2, aligned=False, **o),
    "gru": lambda **o: GRUTranslator(V, TARGETS, 15, score="dot", **o),
    "lstm": lambda **o: LSTMTranslator(V, TARGETS, 16, 2, decoder_depth=1, **o),
    "feeding": lambda **o: LSTMTranslator(V, TARGETS, 16, input_feeding=True, score="additive", **o),
}
every_kind = pytest.mark.parametrize("pointer", [False, True], ids=["plain", "pointer"])


@pytest.fixture(params=KINDS)
def make(request: pytest.FixtureRequest) -> Callable[..., Any]:
    def build(**options: Any) -> Any:
        torch.manual_seed(3)
        model = KINDS[request.param](**options).double().eval()
        for weight in model.parameters():  # a pointer that starts at zero would hide its mistakes
            weight.data += 0.3 * torch.randn_like(weight) * (weight == 0)
        return model

    return build


def batch_of(*sizes: tuple[int, int], seed: int = 0) -> PairBatch:
    draw = np.random.default_rng(seed)
    sources, targets = ([draw.integers(0, V - 1, n) for n in some] for some in zip(*sizes, strict=True))
    everyone = np.arange(len(sizes))
    pairs = Pairs(Rows.of(sources), (Rows.of(targets),) * TARGETS, everyone, everyone % TARGETS, END, V)
    return pairs.batch(everyone)


BATCH = batch_of((3, 4), (7, 6), (5, 1), (1, 0))


@every_kind
def test_the_loss_is_that_of_the_distribution(make: Callable[..., Any], pointer: bool) -> None:
    model = make(pointer=pointer)
    logits, _ = model(BATCH.inputs, model.encode(BATCH.source))
    logs = torch.log_softmax(logits, -1)
    real = BATCH.targets != IGNORED
    expected = -logs.gather(-1, BATCH.targets.clamp(min=0)[..., None])[..., 0][real].sum()
    assert model.nats(BATCH).item() == pytest.approx(expected.item(), abs=1e-10)
    assert int(real.sum()) == BATCH.count
    rows = (-logs.gather(-1, BATCH.targets.clamp(min=0)[..., None])[..., 0] * real).sum(1)
    assert (model.nats_of_rows(BATCH) - rows).abs().max() < 1e-10
    if pointer:  # already logarithms of probabilities
        assert torch.logsumexp(logits, -1).abs().max() < 1e-10


@every_kind
def test_pieces_with_the_state_equal_the_whole(make: Callable[..., Any], pointer: bool) -> None:
    model = make(pointer=pointer)
    memory = model.encode(BATCH.source)
    whole, _ = model(BATCH.inputs, memory)
    for cuts in ([1] * BATCH.inputs.shape[1], [2, 3, BATCH.inputs.shape[1] - 5]):
        state, found = None, []
        for part in BATCH.inputs.split(cuts, 1):
            logits, state = model(part, memory, state)
            found.append(logits)
        assert (torch.cat(found, 1) - whole).abs().max() < 1e-9


@every_kind
def test_the_decoder_never_sees_the_future(make: Callable[..., Any], pointer: bool) -> None:
    model = make(pointer=pointer)
    memory = model.encode(BATCH.source)
    before, _ = model(BATCH.inputs, memory)
    for place in range(1, BATCH.inputs.shape[1]):
        other = BATCH.inputs.clone()
        other[:, place:] = (other[:, place:] + 5) % V
        after, _ = model(other, memory)
        assert (after[:, :place] - before[:, :place]).abs().max() < 1e-12
        assert (after[:, place:] - before[:, place:]).abs().max() > 1e-9


@every_kind
def test_padding_and_neighbours_change_nothing(make: Callable[..., Any], pointer: bool) -> None:
    """Alone, in a batch, with more padding, and in another order: the same logits."""
    model = make(pointer=pointer)
    together, _ = model(BATCH.inputs, model.encode(BATCH.source))
    wider = torch.cat([BATCH.source.ids, torch.randint(0, V, (len(BATCH.inputs), 4))], 1)
    padded, _ = model(BATCH.inputs, model.encode(PaddedBatch(wider, BATCH.source.lengths)))
    assert (padded - together).abs().max() < 1e-10
    for row, length in enumerate(BATCH.source.lengths.tolist()):
        alone = PaddedBatch(BATCH.source.ids[row : row + 1, :length], torch.tensor([length]))
        found, _ = model(BATCH.inputs[row : row + 1], model.encode(alone))
        assert (found - together[row]).abs().max() < 1e-10
    order = torch.tensor([2, 0, 3, 1])
    shuffled, _ = model(BATCH.inputs[order], reorder(model.encode(BATCH.source), order))
    assert (shuffled - together[order]).abs().max() < 1e-12


@every_kind
def test_every_token_of_the_source_and_the_tag_matter(make: Callable[..., Any], pointer: bool) -> None:
    model = make(pointer=pointer)
    before, _ = model(BATCH.inputs, model.encode(BATCH.source))
    for row, length in enumerate(BATCH.source.lengths.tolist()):
        for place in range(length):
            other = BATCH.source.ids.clone()
            other[row, place] = (other[row, place] + 7) % V
            after, _ = model(BATCH.inputs, model.encode(PaddedBatch(other, BATCH.source.lengths)))
            assert (after[row] - before[row]).abs().max() > 1e-9
            assert (after - before)[torch.arange(len(before)) != row].abs().max() < 1e-12
    tagged = BATCH.inputs.clone()
    tagged[:, 0] = V + (tagged[:, 0] - V + 1) % TARGETS
    assert (model(tagged, model.encode(BATCH.source))[0] - before).abs().amax((1, 2)).min() > 1e-9


@every_kind
def test_gradients_are_finite_and_padding_has_none(make: Callable[..., Any], pointer: bool) -> None:
    model = make(pointer=pointer).train()
    model.nats(BATCH, 0.1).backward()
    for name, weight in model.named_parameters():
        assert weight.grad is not None, name
        assert weight.grad.isfinite().all(), name
    pieces = BATCH.cut(3)
    assert sum(piece.count for piece in pieces) == BATCH.count
    assert sum(model.nats(piece) for piece in pieces).item() == pytest.approx(model.nats(BATCH).item(), abs=1e-9)


@every_kind
def test_smoothing_without_a_pointer_is_torchs(make: Callable[..., Any], pointer: bool) -> None:
    model = make(pointer=pointer)
    plain, smooth = (model.nats(BATCH, share).item() for share in (0.0, 0.2))
    memory = model.encode(BATCH.source)
    h, _ = model.read(BATCH.inputs, memory, None)
    z = model.output(h, model.embedding)[BATCH.targets != IGNORED]
    spread = -torch.log_softmax(z, -1).mean(-1).sum().item()
    assert smooth == pytest.approx(0.8 * plain + 0.2 * spread, abs=1e-9)


@every_kind
def test_what_it_attends_to_is_a_share_of_the_source(make: Callable[..., Any], pointer: bool) -> None:
    model = make(pointer=pointer)
    weights, words = model.attention_to_source(BATCH.inputs, model.encode(BATCH.source))
    assert ("pointer" in words) is pointer
    assert weights.shape == (*BATCH.inputs.shape, BATCH.source.ids.shape[1])
    assert (weights.sum(-1) - 1).abs().max() < 1e-10
    beyond = torch.arange(weights.shape[2])[None] >= BATCH.source.lengths[:, None]
    assert weights.transpose(1, 2)[beyond].abs().max() == 0


def test_the_attention_shown_is_the_one_that_was_used() -> None:
    """The last block's cross-attention by its own weights gives what the block puts out."""
    model = KINDS["transformer"]().double().eval()
    memory = model.encode(BATCH.source)
    seen: list[Tensor] = []
    attend = model.decoder[-1].cross

    def listen(module: Any, args: Any, kwargs: Any, output: Any) -> None:
        seen.append(module.look(*args, **kwargs)[1])

    handle = attend.register_forward_hook(listen, with_kwargs=True)
    model(BATCH.inputs, memory)
    handle.remove()
    found = model.last_attention(BATCH.inputs, memory)
    assert (found - seen[-1].mean(1)).abs().max() < 1e-12


# --------------------------------------------------------------------------- the pointer


def test_matches_are_those_of_the_definition() -> None:
    draw = np.random.default_rng(2)
    reach, T, S = 3, 5, 6
    kernel = torch.from_numpy(draw.normal(size=(reach, reach)))
    u, x = torch.from_numpy(draw.integers(0, 3, (4, T))), torch.from_numpy(draw.integers(0, 3, (4, S)))
    found = matches(with_past(u, reach, None), x, kernel)
    for b in range(4):
        read = [BEFORE, *u[b, 1:].tolist()]
        for t in range(T):
            for s in range(S):
                total = 0.0
                for j in range(reach):
                    for i in range(1, reach + 1):
                        if t - j < 0 or s - i < -1:
                            continue
                        stands = BEFORE if s - i == -1 else int(x[b, s - i])
                        total += float(kernel[reach - 1 - j, reach - i]) * (read[t - j] == stands)
                assert found[b, t, s].item() == pytest.approx(total)


def test_distances_count_from_where_decoding_stands() -> None:
    found = distances(2, 2, 4, torch.zeros(1))
    assert found.tolist() == [[2, 1, 0, 1], [3, 2, 1, 0]]


def test_a_pointer_that_is_sure_to_copy_decodes_with_the_probabilities_that_it_was_trained_on() -> None:
    """What is not in the source has (1 − σ(40)) p, of which 1 − σ would leave nothing."""
    z, x, y = torch.randn(1, 1, V, dtype=torch.float64), torch.tensor([[0, 1]]), torch.tensor([4])
    copy, weights = torch.tensor([[40.0]], dtype=torch.float64), torch.full((1, 1, 2), 0.5, dtype=torch.float64)
    decoded = mixed_logarithms(z, copy, weights, x)[0, 0, 4]
    trained = mixed_nats(z[0].log_softmax(-1)[:, 4], copy[0], weights[0], x, y)
    assert decoded.item() == pytest.approx(-trained.item(), rel=1e-12)


def test_the_mixture_is_a_distribution_and_its_loss_is_its_own() -> None:
    torch.manual_seed(0)
    B, T, S = 3, 4, 6
    z, copy = torch.randn(B, T, V, dtype=torch.float64), torch.randn(B, T, dtype=torch.float64)
    weights = torch.softmax(torch.randn(B, T, S, dtype=torch.float64), -1)
    x, y = torch.randint(0, 5, (B, S)), torch.randint(0, V, (B, T))
    logs = mixed_logarithms(z, copy, weights, x)
    assert torch.logsumexp(logs, -1).abs().max() < 1e-12
    plain = torch.zeros(B, T, V, dtype=torch.float64)
    for b in range(B):
        for t in range(T):
            c = torch.sigmoid(copy[b, t])
            plain[b, t] = (1 - c) * torch.softmax(z[b, t], -1)
            for s in range(S):
                plain[b, t, x[b, s]] += c * weights[b, t, s]
    assert (logs.exp() - plain).abs().max() < 1e-12
    generated = torch.log_softmax(z, -1).gather(-1, y[..., None])[..., 0]
    rows = mixed_nats(
        generated.flatten(), copy.flatten(), weights.flatten(0, 1), x.repeat_interleave(T, 0), y.flatten()
    )
    assert (rows + logs.gather(-1, y[..., None])[..., 0].flatten()).abs().max() < 1e-10


@pytest.mark.parametrize("kind", KINDS)
def test_it_starts_as_the_copier(kind: str) -> None:
    """Before the first step the likeliest next token is always the next one of the source, and at last the end."""
    torch.manual_seed(5)
    model = KINDS[kind](pointer=True).eval()
    model.start_from_counts(torch.ones(V))
    draw = np.random.default_rng(4)
    for length in (1, 2, 5, 9, 12):
        ids = draw.permutation(V - 1)[:length]
        memory = model.encode(source_batch([ids], END))
        read = torch.tensor([[V, *ids.tolist()]])
        logits, _ = model(read, memory)
        assert logits[0].argmax(-1).tolist() == [*ids.tolist(), END]


def test_before_it_has_learnt_it_generates_by_frequency() -> None:
    torch.manual_seed(1)
    model = TransformerTranslator(200, 1, 64, 2, 4).eval()
    counts = torch.arange(200.0)
    model.start_from_counts(counts)
    source = source_batch([np.arange(10), np.arange(4)], 199)
    logits, _ = model(torch.randint(0, 200, (2, 30)), model.encode(source))
    logs = torch.log_softmax(logits, -1)
    expected = torch.log((counts + 1) / (counts + 1).sum())
    assert (logs - expected).square().mean() < 0.5
    assert (logs.mean((0, 1)) - expected)[50:].abs().mean() < 0.4


def test_a_pointer_in_pieces_remembers_what_it_read() -> None:
    torch.manual_seed(2)
    pointer = Pointer(8).double()
    for weight in pointer.parameters():
        weight.data += torch.randn_like(weight)
    h, u = torch.randn(2, 7, 8, dtype=torch.float64), torch.randint(0, 4, (2, 7))
    x, keys = torch.randint(0, 4, (2, 5)), torch.randn(2, 5, 8, dtype=torch.float64)
    mask = torch.tensor([[True] * 5, [True] * 3 + [False] * 2])
    copy, weights, _ = pointer(h, u, keys, x, mask)
    state, found = None, []
    for part, ids in zip(h.split([1, 4, 2], 1), u.split([1, 4, 2], 1), strict=True):
        some, seen, state = pointer(part, ids, keys, x, mask, state)
        found.append((some, seen))
    assert (torch.cat([a for a, _ in found], 1) - copy).abs().max() < 1e-12
    assert (torch.cat([b for _, b in found], 1) - weights).abs().max() < 1e-12


def test_attention_to_the_source_starts_near_the_diagonal() -> None:
    """Before any step; without positions it looks everywhere alike."""
    torch.manual_seed(0)
    source = PaddedBatch(torch.randint(0, 200, (8, 24)), torch.full((8,), 24))
    ids = torch.randint(0, 200, (8, 24))
    mean_distance = {}
    for aligned in (True, False):
        model = TransformerTranslator(200, 1, 64, 2, 4, aligned=aligned).eval()
        weights, _ = model.attention_to_source(ids, model.encode(source))
        mean_distance[aligned] = (weights * distances(0, 24, 24, weights)).sum(-1).mean().item()
    assert mean_distance[False] == pytest.approx(8.0, abs=0.5), "that of an even distribution"
    assert mean_distance[True] < 0.8 * mean_distance[False]
