"""Outside modules: against plain loops and seqlab's own scorer; which are refused."""

import math
from typing import Any

import numpy as np
import pytest
import torch
from tests.conftest import nonsense
from tests.evaluation.outside_models import LONG, Causal, by_prefixes, byte_level, word_piece
from torch import Tensor, nn

import seqlab
from seqlab.core.errors import DataError, NotFiniteError, UsageError
from seqlab.data.bpe import BPETokenizer
from seqlab.data.pieces import cut_text
from seqlab.data.tokenizers import ByteTokenizer, CharacterTokenizer, WordTokenizer
from seqlab.evaluation.outsiders import ModuleScorer
from seqlab.evaluation.surprisal import ContextPolicy, ModelScorer
from seqlab.models import build_lm


def test_large_vocabularies_are_scored_in_smaller_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    library = byte_level()
    module = Causal(library.get_vocab_size())
    rows = []
    module.register_forward_hook(lambda _module, inputs, _output: rows.append(len(inputs[0])))
    scorer = ModuleScorer(module, library, context=16)
    whole = scorer.score(LONG)
    assert max(rows) > 3
    rows.clear()
    monkeypatch.setattr("seqlab.evaluation.outsiders.MOST_LOGITS", 16 * library.get_vocab_size() * 3)
    assert scorer.score(LONG).total == pytest.approx(whole.total, rel=1e-6)
    assert max(rows) == 3


def test_without_a_begin_id_the_first_token_costs_ln_v() -> None:
    module, text = Causal(260).double(), "abcé"
    scorer = ModuleScorer(module, ByteTokenizer())
    table = scorer.score(text)
    ids = list(text.encode())
    assert table.nats.tolist() == pytest.approx([math.log(260), *by_prefixes(module, ids[1:], ids[0], len(ids) - 1)])
    assert "costs ln V" in str(scorer.policy)
    assert scorer.score("a").nats.tolist() == pytest.approx([math.log(260)])
    begun = ModuleScorer(module, ByteTokenizer(), begin_id=256)
    assert begun.score(text).nats.tolist() == pytest.approx(by_prefixes(module, ids, 256, len(ids)))
    assert "follows the begin id" in str(begun.policy)


@pytest.mark.parametrize("kind", ["gru", "transformer"])
@pytest.mark.parametrize("maker", [ByteTokenizer, CharacterTokenizer, WordTokenizer, BPETokenizer])
def test_a_seqlab_model_scores_as_with_seqlab_s_own_scorer(kind: str, maker: Any) -> None:
    tokenizer = maker.fit(cut_text(nonsense(300)))
    sizes = dict(context=16, heads=2) if kind == "transformer" else {}
    lm = build_lm(kind, vocab_size=tokenizer.vocab_size, width=16, **sizes).double()
    text = nonsense(500, seed=3) + "unseen 漢字"
    own = ModelScorer(lm, tokenizer)
    outside = ModuleScorer(lm, tokenizer, begin_id=tokenizer.begin_id)
    expected, found = own.score(text), outside.score(text)
    assert outside.policy == own.policy
    assert found.nats == pytest.approx(expected.nats, abs=1e-9)
    for column in ("start", "end", "unknown"):
        assert np.array_equal(getattr(found, column), getattr(expected, column))


def test_three_lines_are_enough() -> None:
    module, tokenizer, text = Causal(300), byte_level(), "the naïve 😀"
    scorer = seqlab.scorer(module, tokenizer, context=256)
    surprisals = scorer.score(text)
    figures = seqlab.figures(surprisals, text)
    assert figures.bits_per_byte == pytest.approx(surprisals.total / math.log(2) / len(text.encode()))
    assert "seqlab.scorer(module, tokenizer, context=256)" in str(seqlab.__doc__)
    assert {"scorer", "figures"} <= set(dir(seqlab))


def test_logits_may_come_first_of_several_things_and_in_half_precision() -> None:
    module, text = Causal(256), "some text"
    expected = ModuleScorer(module, ByteTokenizer()).score(text).nats
    module.output = "tuple"
    assert np.array_equal(ModuleScorer(module, ByteTokenizer()).score(text).nats, expected)
    half = ModuleScorer(module.bfloat16(), ByteTokenizer()).score(text).nats
    assert half == pytest.approx(expected, abs=0.1)
    log_p = module(torch.tensor([list(text.encode())]))[0][0].double().log_softmax(-1)  # coarse logits, exact sums
    assert half[1:] == pytest.approx([-log_p[t, c].item() for t, c in enumerate(text.encode()[1:])], abs=1e-5)


def test_scoring_leaves_every_part_in_its_mode() -> None:
    module = nn.Sequential(nn.Embedding(256, 8), nn.Dropout(0.5), nn.Linear(8, 256))
    module.train()
    module[2].eval()
    scorer = ModuleScorer(module, ByteTokenizer())
    before = torch.get_rng_state()
    assert np.array_equal(scorer.score("abc").nats, scorer.score("abc").nats)
    assert [module.training, module[1].training, module[2].training] == [True, True, False]
    assert torch.equal(torch.get_rng_state(), before)


def test_a_context_of_one_is_a_context() -> None:
    scorer = ModuleScorer(Causal(256), ByteTokenizer(), context=1)
    assert scorer.policy.segment == 1
    assert len(scorer.score("abc")) == 3


def test_the_policy_of_seqlab_s_own_models_is_unchanged() -> None:
    assert str(ContextPolicy(3, 2)) == (
        "segments of 3 tokens, each read after the 2 tokens before it; the first token of the text follows the begin id"
    )


# --- errors ---------------------------------------------------------------------------------------------------------


def test_wrong_modules_and_tokenizers_are_named() -> None:
    with pytest.raises(UsageError, match="mine is a str, not a torch.nn.Module"):
        ModuleScorer("module", ByteTokenizer(), name="mine")  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="int is no tokenizer"):
        ModuleScorer(Causal(256), 3)
    with pytest.raises(UsageError, match="context 0 of module is too short"):
        ModuleScorer(Causal(256), ByteTokenizer(), context=0)
    with pytest.raises(UsageError, match=r"gave \(2, 256\) for ids \(2, 2\); logits \(B, T, V\)"):
        ModuleScorer(Causal(256, "flat"), ByteTokenizer()).score("ab")
    with pytest.raises(UsageError, match="gave str for ids"):
        ModuleScorer(Causal(256, "text"), ByteTokenizer()).score("ab")
    with pytest.raises(UsageError, match=r"failed on ids up to 122, begin id None.*is this its tokenizer"):
        ModuleScorer(Causal(100), ByteTokenizer()).score("xyz")
    with pytest.raises(DataError, match=r"no token of this text \(2 bytes\)"):
        ModuleScorer(Causal(256), word_piece()).score("\n\n")


def test_a_module_that_looks_ahead_is_refused() -> None:
    class Ahead(Causal):
        def forward(self, ids: Tensor) -> Tensor:
            x = self.embedding(ids)
            return self.out(x + 1e-3 * x.mean(1, keepdim=True))

    with pytest.raises(UsageError, match="looks ahead"):
        ModuleScorer(Ahead(256), ByteTokenizer()).score("some text")
    masked = Ahead(256)
    nn.init.constant_(masked.out.bias[:1], -math.inf)  # an output that is never chosen
    with pytest.raises(UsageError, match="looks ahead"):
        ModuleScorer(masked, ByteTokenizer()).score("some text")


def test_not_a_number_is_not_a_figure() -> None:
    module = Causal(256)
    nn.init.constant_(module.out.bias, math.nan)
    with pytest.raises(NotFiniteError, match="gives NaN at token 1"):
        ModuleScorer(module, ByteTokenizer()).score("abc")
