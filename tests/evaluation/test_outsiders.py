"""Outside models and tokenizers: against plain loops, the model's own loss and seqlab's own scorer."""

import json
import logging
import math
import socket
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tokenizers
import torch
from tests.conftest import nonsense
from tokenizers import decoders, normalizers, pre_tokenizers, processors, trainers
from tokenizers import models as token_models
from torch import Tensor, nn

import seqlab
from seqlab.core.errors import DataError, NotFiniteError, UsageError
from seqlab.core.types import Surprisals
from seqlab.core.units import SPELLING_NATS_PER_BYTE
from seqlab.data.pieces import cut_text
from seqlab.data.tokenizers import BPETokenizer, ByteTokenizer, CharacterTokenizer, WordTokenizer
from seqlab.evaluation.outside_tokenizers import encoder_of, ends_from_offsets
from seqlab.evaluation.outsiders import ModuleScorer, load_hf
from seqlab.evaluation.surprisal import ContextPolicy, ModelScorer
from seqlab.models import build_lm
from seqlab.workflows.sheet.sheet import perplexity_sheet

END = "<|endoftext|>"
CONTEXT = 32
TEXTS = [
    "the café",
    "a",
    "é",
    "😀",
    "naïve 😀😀 漢字かな\n\n  ﬁn ½ e\u0301 \ufffd",
    " two  spaces ",
    "\n",
    f"one{END}two",
]
LONG = nonsense(60) + "漢字 😀 " + nonsense(40, seed=1)
KINDS = ["gpt2", "llama", "gpt_neox"]


def byte_level() -> tokenizers.Tokenizer:
    return tokenizers.Tokenizer.from_str(trained_byte_level())


@cache
def trained_byte_level() -> str:
    library = tokenizers.Tokenizer(token_models.BPE())
    library.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    library.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=300, initial_alphabet=alphabet, special_tokens=[END], show_progress=False)
    library.train_from_iterator([nonsense(300)], trainer)
    return str(library.to_str())


def sentencepiece_like() -> tokenizers.Tokenizer:
    """Spaces as ▁, one put before the text, bytes of unseen characters as <0x..>: as Llama does."""
    letters = sorted(set(nonsense(300)) - {" ", "\n"})
    names = ["<unk>", *(f"<0x{byte:02X}>" for byte in range(256)), "▁", *letters, "▁t", "▁th"]
    vocabulary = {name: i for i, name in enumerate(names)}
    merges = [("▁", "t"), ("▁t", "h")]
    library = tokenizers.Tokenizer(token_models.BPE(vocabulary, merges, unk_token="<unk>", byte_fallback=True))
    library.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    return library


def word_piece() -> tokenizers.Tokenizer:
    return tokenizers.Tokenizer.from_str(trained_word_piece())


@cache  # trained twice, ties would fall differently
def trained_word_piece() -> str:
    library = tokenizers.Tokenizer(token_models.WordPiece(unk_token="[UNK]"))
    library.normalizer = normalizers.BertNormalizer(lowercase=True)
    library.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    trainer = trainers.WordPieceTrainer(vocab_size=120, special_tokens=["[UNK]", "[CLS]"], show_progress=False)
    library.train_from_iterator([nonsense(300)], trainer)
    library.post_processor = processors.TemplateProcessing(single="[CLS] $A", special_tokens=[("[CLS]", 1)])
    return str(library.to_str())


class Causal(nn.Module):
    """A small causal model: the embeddings summed so far, and the last one."""

    def __init__(self, vocab_size: int, output: str = "logits") -> None:
        super().__init__()
        torch.manual_seed(1)
        self.embedding, self.out = nn.Embedding(vocab_size, 8), nn.Linear(8, vocab_size)
        self.output = output

    def forward(self, ids: Tensor) -> Any:
        x = self.embedding(ids)
        logits = self.out(torch.tanh(x + x.cumsum(1) / 8))
        return {"logits": logits, "tuple": (logits, "state"), "flat": logits[0], "text": "no"}[self.output]


def hf_model(kind: str, vocab_size: int, **changes: Any) -> Any:
    import transformers

    torch.manual_seed(0)
    ids = dict(bos_token_id=0, eos_token_id=0, pad_token_id=None)
    if kind == "gpt2":
        config = transformers.GPT2Config(
            vocab_size=vocab_size, n_positions=CONTEXT, n_embd=16, n_layer=2, n_head=2, initializer_range=0.5, **ids
        )
        return transformers.GPT2LMHeadModel(config)
    sizes = dict(hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=24)
    sizes |= dict(vocab_size=vocab_size, max_position_embeddings=CONTEXT, initializer_range=0.5, **ids) | changes
    if kind == "llama":
        return transformers.LlamaForCausalLM(transformers.LlamaConfig(**sizes))
    return transformers.GPTNeoXForCausalLM(transformers.GPTNeoXConfig(**sizes))


def hf_tokenizer(library: tokenizers.Tokenizer, **special: str) -> Any:
    import transformers

    return transformers.PreTrainedTokenizerFast(tokenizer_object=library, **special)


def save(folder: Path, kind: str = "gpt2", special: dict[str, str] | None = None, **changes: Any) -> Path:
    library = byte_level()
    hf_model(kind, library.get_vocab_size() + 3, **changes).save_pretrained(folder)  # a padded vocabulary
    hf_tokenizer(library, **({"bos_token": END} if special is None else special)).save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return {kind: save(tmp_path_factory.mktemp(kind), kind) for kind in KINDS}


def change_config(folder: Path, **changes: Any) -> None:
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


def assert_partition(table: Any, text: str) -> None:
    ends = [0, *table.end.tolist()]
    assert table.start.tolist() == ends[:-1]
    assert ends == sorted(ends)
    assert ends[-1] == len(text.encode())


@torch.no_grad()
def by_prefixes(module: nn.Module, ids: list[int], begin: int, counted: int) -> list[float]:
    """−ln p of the last `counted` ids, one forward for each prefix."""
    row = [begin, *ids]
    nats = []
    for t in range(len(row) - counted, len(row)):
        output = module(torch.tensor([row[:t]]))
        nats.append(-getattr(output, "logits", output)[0, -1].log_softmax(-1)[row[t]].item())
    return nats


# --- models ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_one_window_equals_a_plain_loop_over_prefixes(kind: str, folders: dict[str, Path]) -> None:
    scorer = load_hf(folders[kind])
    text = "the café 漢"
    ids = byte_level().encode(text).ids
    assert len(ids) <= CONTEXT // 2
    single = scorer.score(text).nats
    scorer.module.double()
    table = scorer.score(text)
    assert table.nats.tolist() == pytest.approx(by_prefixes(scorer.module, ids, 0, len(ids)), abs=1e-10)
    assert single == pytest.approx(table.nats, abs=1e-4)
    assert not table.unknown.any()
    assert not table.lossy


@pytest.mark.parametrize("kind", KINDS)
def test_the_sum_is_the_model_s_own_loss(kind: str, folders: dict[str, Path]) -> None:
    scorer = load_hf(folders[kind])
    scorer.module.double()
    ids = byte_level().encode("naïve, it is").ids
    row = torch.tensor([[0, *ids]])
    with torch.no_grad():
        loss = scorer.module(row, labels=row).loss.item()
    assert scorer.score("naïve, it is").total == pytest.approx(loss * len(ids), rel=1e-6)


@pytest.mark.parametrize("kind", KINDS)
def test_a_text_beyond_the_context_counts_every_token_once(kind: str, folders: dict[str, Path]) -> None:
    scorer = load_hf(folders[kind])
    scorer.module.double()
    assert (scorer.policy.segment, scorer.policy.warmup) == (CONTEXT // 2, CONTEXT // 2)
    ids = byte_level().encode(LONG).ids
    assert len(ids) > 5 * CONTEXT
    expected, half = [], CONTEXT // 2
    for start in range(0, len(ids), half):
        counted = ids[start : start + half]
        read = ids[max(0, start - half) : start]
        begin, read = (read[0], read[1:]) if start else (0, read)
        expected += by_prefixes(scorer.module, read + counted, begin, len(counted))
    table = scorer.score(LONG)
    assert table.nats.tolist() == pytest.approx(expected, abs=1e-10)
    assert_partition(table, LONG)


@pytest.mark.parametrize("kind", KINDS)
def test_the_batch_size_does_not_show(kind: str, folders: dict[str, Path]) -> None:
    scorer = load_hf(folders[kind])  # rows of the first and the last segment are shorter: padded on the right
    tables = [scorer.score(LONG, batch=batch).nats for batch in (1, 3, 64)] + [scorer.score(LONG).nats]
    for nats in tables[1:]:
        assert nats.sum() == pytest.approx(tables[0].sum(), rel=1e-6)
        assert nats == pytest.approx(tables[0], abs=1e-4)
    scorer.module.double()
    assert scorer.score(LONG, batch=64).nats == pytest.approx(scorer.score(LONG, batch=1).nats, abs=1e-10)


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


# --- tokenizers -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("text", TEXTS)
def test_byte_level_spans_are_exact(text: str) -> None:
    encode = encoder_of(byte_level())
    found = encode(text)
    assert_partition(found, text)
    assert not found.lossy
    assert not found.unknown.any()
    assert (found.end > found.start).all()
    own = encoder_of(BPETokenizer(byte_level().to_str()))(text) if END not in text else found
    assert np.array_equal(found.end, own.end)


def test_added_tokens_are_read_as_they_stand() -> None:
    library = byte_level()
    library.add_tokens(["    ", "ünï"])
    found = encoder_of(library)("a    ünï b")
    assert len(found) == 5
    assert found.end.tolist() == [1, 5, 10, 11, 12]
    assert not found.lossy


def test_offsets_that_go_back_are_not_followed() -> None:
    assert ends_from_offsets([2, 1, 4, 4], 6).tolist() == [2, 2, 4, 6]


@pytest.mark.parametrize("text", TEXTS)
def test_space_marks_and_byte_fallback_are_exact(text: str) -> None:
    found = encoder_of(sentencepiece_like())(text)
    assert_partition(found, text)
    assert not found.lossy
    assert not found.unknown.any()
    assert (found.end[1:] > found.start[1:]).all()  # only the first may be the space put before the text


def test_spans_of_a_character_in_pieces() -> None:
    assert encoder_of(byte_level())("a😀b").end.tolist() == [1, 2, 3, 4, 5, 6]
    assert encoder_of(sentencepiece_like())("é漢").end.tolist() == [0, 2, 3, 4, 5]


@pytest.mark.parametrize("wrap", [byte_level, sentencepiece_like, word_piece])
def test_a_hugging_face_tokenizer_is_read_as_its_library(wrap: Any) -> None:
    text = "the café,  it was 漢"
    direct, wrapped = encoder_of(wrap())(text), encoder_of(hf_tokenizer(wrap(), unk_token="[UNK]"))(text)
    assert np.array_equal(direct.ids, wrapped.ids)
    assert np.array_equal(direct.end, wrapped.end)
    assert direct.lossy == wrapped.lossy == (wrap is word_piece)


def test_a_tokenizer_that_drops_text_is_flagged_and_its_spans_still_partition() -> None:
    library = word_piece()
    text = "  The of\n\nthe 漢  "
    found = encoder_of(library)(text)
    assert library.encode(text).tokens[0] == "[CLS]"
    assert [library.id_to_token(i) for i in found.ids] == ["the", "of", "the", "[UNK]"]
    assert found.end.tolist() == [5, 8, 13, 19]  # dropped white space goes to the next token, the last to the last
    assert found.unknown.tolist() == [False, False, False, True]
    assert_partition(found, text)
    assert encoder_of(library)("the of [UNK] 漢").unknown.tolist() == [False, False, False, True]  # one is in the text
    table = ModuleScorer(Causal(library.get_vocab_size()), library).score(text)
    assert table.lossy
    assert not ModuleScorer(Causal(256), ByteTokenizer()).score(text).lossy


@pytest.mark.parametrize("text", TEXTS)
def test_offsets_alone_partition_too(text: str) -> None:
    """A normaliser that changes the text leaves only the offsets; pieces of one character share theirs."""
    library = byte_level()
    library.normalizer = normalizers.Sequence([normalizers.NFKD(), normalizers.Replace("t", "T")])
    found = encoder_of(library)(text)
    assert_partition(found, text)
    assert found.lossy == (library.normalizer.normalize_str(text) != text)


def test_unknown_tokens_pay_for_their_spelling() -> None:
    vocabulary = {"?": 0, **{letter: i for i, letter in enumerate("abc", start=1)}}
    library = tokenizers.Tokenizer(token_models.WordLevel(vocabulary, unk_token="?"))
    library.pre_tokenizer = pre_tokenizers.Split("", "isolated")
    module = Causal(4)
    table = ModuleScorer(module, library).score("ab漢c?")
    assert table.unknown.tolist() == [False, False, True, False, False]  # the text's own '?' is known
    assert table.end.tolist() == [1, 2, 5, 6, 7]
    assert not table.lossy
    log_p = module(torch.tensor([[1, 2]]))[0, -1].log_softmax(-1)
    assert table.nats[2] == pytest.approx(-log_p[0].item() + 3 * SPELLING_NATS_PER_BYTE, abs=1e-5)
    unigram = tokenizers.Tokenizer(token_models.Unigram([("a", -1.0), ("<unk>", -2.0)], unk_id=1))
    assert encoder_of(unigram)("aéa").unknown.tolist() == [False, True, False]


def test_truncation_and_padding_of_the_tokenizer_are_set_aside() -> None:
    library = byte_level()
    library.enable_truncation(4)
    library.enable_padding(length=50)
    assert np.array_equal(encoder_of(library)(LONG).ids, byte_level().encode(LONG).ids)
    assert library.truncation["max_length"] == 4


class Plain:
    """encode and decode and nothing else; tokens of the byte-level library."""

    def __init__(self, library: tokenizers.Tokenizer, *, lower: bool = False) -> None:
        self.library, self.lower = library, lower

    def encode(self, text: str) -> list[int]:
        ids: list[int] = self.library.encode(text.lower() if self.lower else text, add_special_tokens=False).ids
        return ids

    def decode(self, ids: list[int]) -> str:
        decoded: str = self.library.decode(ids, skip_special_tokens=False)
        return decoded


@pytest.mark.parametrize("text", [*TEXTS, LONG])
def test_encode_and_decode_are_enough(text: str) -> None:
    library = byte_level()
    found, exact = encoder_of(Plain(library))(text), encoder_of(library)(text)
    assert np.array_equal(found.ids, exact.ids)
    assert_partition(found, text)
    if text.isascii():
        assert np.array_equal(found.end, exact.end)
    assert set(found.end) <= set(np.cumsum([len(c.encode()) for c in text]))  # whole characters


def test_a_decoder_that_joins_words_by_spaces_gives_spans() -> None:
    words = ["one", "two", "three"]

    class Words:
        def encode(self, text: str, add_special_tokens: bool = True) -> Tensor:
            assert not add_special_tokens
            return torch.tensor([words.index(word) for word in text.split()])

        def decode(self, ids: list[int]) -> str:
            return " ".join(words[i] for i in ids)

    assert encoder_of(Words())("one two two three").end.tolist() == [3, 7, 11, 17]
    with pytest.raises(DataError, match="do not re-assemble to the text: they part at character 3"):
        encoder_of(Words())("one  two")


def test_a_token_beyond_the_text_is_refused() -> None:
    class Ended(Plain):
        def encode(self, text: str) -> list[int]:
            return [*super().encode(text), self.library.token_to_id(END)]

    with pytest.raises(DataError, match="they part at character 3"):
        encoder_of(Ended(byte_level()))("the")


def test_pieces_that_do_not_re_assemble_are_refused() -> None:
    with pytest.raises(DataError, match=r"do not re-assemble to the text: they part at character 3 \(' THE"):
        encoder_of(Plain(byte_level(), lower=True))("the THE " + "the " * 200)
    with pytest.raises(DataError, match="they part at character 0"):
        encoder_of(Plain(byte_level(), lower=True))("THE")


@pytest.mark.parametrize("tokenizer", [byte_level(), Plain(byte_level()), ByteTokenizer()])
def test_an_empty_text_and_text_that_is_not_unicode(tokenizer: Any) -> None:
    table = ModuleScorer(Causal(300), tokenizer).score("")
    assert isinstance(table, Surprisals)
    assert len(table) == len(table.start) == len(table.end) == len(table.unknown) == 0
    with pytest.raises(DataError, match="lone surrogate at character 1"):
        encoder_of(tokenizer)("a\ud800")


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


def one_line(error: pytest.ExceptionInfo[Exception]) -> bool:
    return "\n" not in str(error.value)


def test_folders_that_are_no_models(tmp_path: Path, folders: dict[str, Path]) -> None:
    with pytest.raises(UsageError, match="is not a folder"):
        load_hf(tmp_path / "none")
    with pytest.raises(DataError, match="no config.json"):
        load_hf(tmp_path)
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / "pytorch_model.bin").write_bytes(b"pickle")
    with pytest.raises(DataError, match="no model.safetensors; pickled weights are not read"):
        load_hf(tmp_path)
    (tmp_path / "model.safetensors").write_bytes(b"junk")
    with pytest.raises(DataError, match="no tokenizer.json"):
        load_hf(tmp_path)
    (tmp_path / "tokenizer.json").write_bytes((folders["gpt2"] / "tokenizer.json").read_bytes())
    for config in ("{}", "no json", '{"model_type": "nonsense"}', (folders["gpt2"] / "config.json").read_text()):
        (tmp_path / "config.json").write_text(config)
        with pytest.raises(DataError, match="transformers cannot load") as error:
            load_hf(tmp_path)
        assert one_line(error)
    for kind in ("t5", "bart"):  # of the second, transformers would load half
        change_config(tmp_path, model_type=kind)
        with pytest.raises(DataError, match=f"holds a {kind} model, which is not a causal language model"):
            load_hf(tmp_path)


def test_missing_weights_are_not_drawn_at_random(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[logging.LogRecord] = []
    listener = logging.Handler()
    monkeypatch.setattr(listener, "emit", said.append)
    save(tmp_path, "llama")
    hf_model("llama", 303).model.save_pretrained(tmp_path)
    monkeypatch.setattr(logging.getLogger("transformers"), "handlers", [listener])
    with pytest.raises(DataError, match="lacks weights of LlamaForCausalLM: lm_head.weight and 0 more"):
        load_hf(tmp_path)
    assert said == []  # the report of transformers is not shown


def test_an_encoder_loaded_as_a_causal_model_is_refused(tmp_path: Path) -> None:
    import transformers

    config = transformers.BertConfig(
        vocab_size=310,
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=16,
        is_decoder=True,
    )
    save(tmp_path)
    transformers.BertLMHeadModel(config).save_pretrained(tmp_path)
    load_hf(tmp_path).score("as a decoder")
    change_config(tmp_path, is_decoder=False)
    with pytest.raises(UsageError, match="looks ahead"):
        load_hf(tmp_path).score("as an encoder")


def test_without_transformers_the_extra_is_named(folders: dict[str, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "transformers", None)
    with pytest.raises(UsageError, match=r"pip install 'seqlab\[hf\]'"):
        load_hf(folders["gpt2"])


# --- what is said, and what is not ----------------------------------------------------------------------------------


def test_the_begin_token_and_the_context_are_stated(tmp_path: Path) -> None:
    def note(special: dict[str, str], limit: int = CONTEXT) -> str:
        folder = save(tmp_path / f"{len(list(tmp_path.iterdir()))}", "llama", special, max_position_embeddings=limit)
        return str(load_hf(folder).policy)

    assert note({"bos_token": END}).endswith(f"follows the begin token {END}")
    assert note({"eos_token": END}).endswith(f"follows the end token {END}, there being no begin token")
    assert note({}).endswith("which follows nothing, costs ln V")
    capped = note({}, limit=4096)
    assert "segments of 512 tokens, each read after the 512 tokens" in capped
    assert capped.endswith("; the model could read 4,096 tokens")


def test_the_context_may_be_chosen_within_the_model_s_limit(folders: dict[str, Path]) -> None:
    assert load_hf(folders["gpt2"], context=10).policy.segment == 5
    with pytest.raises(UsageError, match="context 33 is more than the 32 positions"):
        load_hf(folders["gpt2"], context=33)


def test_loading_and_scoring_print_nothing_and_open_no_connection(
    folders: dict[str, Path], capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from transformers.utils import logging as transformers_logging

    def refuse(*_: Any) -> None:
        raise AssertionError("a connection was asked for")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    logger = logging.getLogger("transformers")
    level = logger.level
    load_hf(folders["gpt2"]).score(LONG)
    assert logger.level == level
    assert transformers_logging.is_progress_bar_enabled()
    assert capfd.readouterr() == ("", "")


def test_a_folder_stands_in_the_sheet_beside_runs(folders: dict[str, Path], tmp_path: Path) -> None:
    (tmp_path / "text.txt").write_text(LONG, encoding="utf-8", newline="")
    seqlab.train_lm(tmp_path / "text.txt", out=tmp_path / "run", model="ngram", tokenizer="byte", split="50/50")
    sheet = perplexity_sheet(
        [tmp_path / "run"], [str(tmp_path / "text.txt")], hf=[folders["gpt2"], folders["gpt2"]], baselines=False
    )
    row = next(r for r in sheet.rows if r["model"] == str(folders["gpt2"]))
    assert row["nats"] == load_hf(folders["gpt2"]).score(LONG).total
    assert row["bound"].startswith("upper bound")
    assert len(sheet.comparisons) == 1


def test_transformers_is_imported_only_when_a_folder_is_loaded() -> None:
    check = "import seqlab, sys; seqlab.scorer; assert 'torch' in sys.modules; assert 'transformers' not in sys.modules"
    subprocess.run([sys.executable, "-c", check], check=True)


def test_the_policy_of_seqlab_s_own_models_is_unchanged() -> None:
    assert str(ContextPolicy(3, 2)) == (
        "segments of 3 tokens, each read after the 2 tokens before it; the first token of the text follows the begin id"
    )
