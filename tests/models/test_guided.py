"""A network that counts lead, against its equation; what it starts as, and what of it is saved."""

import copy
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from seqlab.core.errors import DamageError
from seqlab.diagnostics.cost import cost
from seqlab.models import build_lm
from seqlab.models.folds import count_folds
from seqlab.models.guided import EVEN, GATES, Guide, GuidedLM, guided
from seqlab.models.ngram import NGramLM
from seqlab.training.objectives import NextToken

V = 9
TEXT = np.random.default_rng(0).integers(0, V, 400) // 2 + np.arange(400) % 3
SIZES: dict[str, dict[str, Any]] = {
    "rnn": dict(width=8, depth=1),
    "gru": dict(width=8, depth=2),
    "lstm": dict(width=8, depth=1),
    "attentive-rnn": dict(width=8, depth=1, context=12),
    "transformer": dict(width=8, depth=1, heads=2, context=12),
}


def led(kind: str, order: int = 4, **sizes: Any) -> GuidedLM:
    network = build_lm(kind, vocab_size=V + GATES, **SIZES[kind], **sizes)
    return GuidedLM(network, Guide(NGramLM.fit(TEXT, V, order)))


def drawn(batch: int = 3, length: int = 11, seed: int = 0) -> torch.Tensor:
    return torch.randint(0, V + 1, (batch, length), generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("kind", SIZES)
def test_it_starts_as_the_n_gram(kind: str, dtype: torch.dtype) -> None:
    model, ids = led(kind).to(dtype).eval(), drawn()
    logits, _ = model(ids)
    expected, _ = model.guide.counts(ids)
    assert logits.dtype == dtype
    assert (logits.log_softmax(-1) - expected).abs().max() < 2e-5


def test_a_tied_network_starts_as_it_would_alone() -> None:
    model = led("lstm", tied=True)
    assert model.network.output.weight is None
    assert model.network.embedding.weight.std() > 0.1
    assert torch.isfinite(model(drawn())[0]).all()


@pytest.mark.parametrize(("batch", "length", "vocab"), [(1, 1, 2), (3, 5, 9), (2, 7, 300)])
def test_the_equation_and_its_gradients(batch: int, length: int, vocab: int) -> None:
    draw = torch.Generator().manual_seed(vocab)
    z = torch.randn(batch, length, vocab + 1, dtype=torch.float64, generator=draw).requires_grad_()
    known = torch.randn(batch, length, vocab, dtype=torch.float64, generator=draw).log_softmax(-1)
    wanted = torch.randint(0, vocab, (batch, length), generator=draw)
    fast = nn.functional.cross_entropy(guided(z, known).flatten(0, 1), wanted.flatten(), reduction="sum")
    plain = torch.zeros((), dtype=torch.float64)
    for b in range(batch):
        for t in range(length):
            gate = torch.log(1 + torch.exp(z[b, t, vocab] + EVEN))
            weights = torch.exp(z[b, t, :vocab]) * torch.exp(known[b, t]) ** gate  # p ∝ e^z p_ngram^g
            plain = plain - torch.log(weights[wanted[b, t]] / weights.sum())
    assert torch.allclose(fast, plain, rtol=1e-12, atol=0)
    (one,) = torch.autograd.grad(fast, z)
    (other,) = torch.autograd.grad(plain, z)
    assert torch.allclose(one, other, rtol=0, atol=1e-12)
    assert guided(torch.zeros(1, 1, vocab + 1), known[:1, :1].float())[0, 0].sub(known[0, 0]).abs().max() < 1e-5


def test_what_counts_say_keeps_its_digits_beside_a_network_in_bfloat16() -> None:
    known = torch.randn(2, 5, V, generator=torch.Generator().manual_seed(0)).log_softmax(-1)
    logits = guided(torch.zeros(2, 5, V + 1, dtype=torch.bfloat16), known)
    assert logits.dtype == torch.float32
    assert (logits - known).abs().max() < 1e-5


def test_rows_that_are_given_are_those_it_would_look_up() -> None:
    model, ids = led("gru").double(), drawn()
    rows, _ = model.guide.log_rows(ids, None, torch.float64)
    assert torch.equal(model(ids, None, rows)[0], model(ids)[0])


def test_the_begin_id_is_one_further_on_inside() -> None:
    model = led("gru")
    seen: list[torch.Tensor] = []
    model.network.embedding.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0]))
    model(torch.tensor([[V, 0, V - 1]]))
    assert seen[0].tolist() == [[V + 1, 0, V - 1]]


def test_copies_share_the_counts_and_weights_are_the_networks_alone() -> None:
    model = led("lstm")
    assert copy.deepcopy(model).guide is model.guide
    assert all(name.startswith("network.") for name in model.state_dict())


def test_counts_go_through_bytes_and_damage_is_named() -> None:
    guide = Guide(NGramLM.fit(TEXT, V, 5))
    content = guide.to_bytes()
    again = Guide.from_bytes(content, V, 5, "guide.safetensors")
    assert again.to_bytes() == content == Guide(NGramLM.fit(TEXT, V, 5)).to_bytes()
    assert torch.equal(again.log_rows(drawn(), None, torch.float64)[0], guide.log_rows(drawn(), None, torch.float64)[0])
    with pytest.raises(DamageError, match=r"guide\.safetensors is damaged"):
        Guide.from_bytes(content[: len(content) // 2], V, 5, "guide.safetensors")
    for vocab_size, order in ((V + 1, 5), (V, 4)):
        with pytest.raises(DamageError, match="order 5 over 9 tokens; this run has order"):
            Guide.from_bytes(content, vocab_size, order, "guide.safetensors")


@pytest.mark.parametrize("pieces", [1, 2, 3])
def test_a_batch_in_pieces_gives_the_gradients_of_the_whole(pieces: int) -> None:
    from seqlab.data.batching import WindowBatches

    folded = count_folds(TEXT, V, 4, 5)
    model = GuidedLM(build_lm("gru", vocab_size=V + GATES, **SIZES["gru"]), Guide(folded.model)).double()
    batch = WindowBatches(TEXT, V, 5, 8, 0, folded.expected)(3)
    assert batch.guide is not None
    assert batch.guide.shape == (5, 8, V)
    objective = NextToken(carry=False)
    objective(model, batch, None).total.backward()
    whole = [p.grad.clone() for p in model.parameters() if p.grad is not None]
    model.zero_grad()
    for part in batch.cut(pieces):
        objective(model, part, None).total.backward()
    parts = [p.grad for p in model.parameters() if p.grad is not None]
    assert all(torch.allclose(a, b, rtol=0, atol=1e-10) for a, b in zip(whole, parts, strict=True))


def test_what_a_guide_costs_is_one_product_a_token() -> None:
    model = led("lstm")
    alone = cost(build_lm("lstm", vocab_size=V + GATES, **SIZES["lstm"]), batch=4, length=6)
    both = cost(model, batch=4, length=6)
    assert both.flops_forward - alone.flops_forward == 2 * 4 * 6 * V == both.part("guide").flops_forward
    assert both.part("guide").flops_backward == 2 * 4 * 6 * V
    assert both.parameters == alone.parameters
