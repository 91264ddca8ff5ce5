"""Outside tokenizers: spans that partition the text, exact where they can be."""

from typing import Any

import numpy as np
import pytest
import tokenizers
import torch
from tests.evaluation.outside_models import (
    END,
    LONG,
    TEXTS,
    Causal,
    assert_partition,
    byte_level,
    hf_tokenizer,
    sentencepiece_like,
    word_piece,
)
from tokenizers import models as token_models
from tokenizers import normalizers, pre_tokenizers
from torch import Tensor

from seqlab.core.errors import DataError
from seqlab.core.types import Surprisals
from seqlab.core.units import SPELLING_NATS_PER_BYTE
from seqlab.data.bpe import BPETokenizer
from seqlab.data.tokenizers import ByteTokenizer
from seqlab.evaluation.outside_tokenizers import encoder_of, ends_from_offsets
from seqlab.evaluation.outsiders import ModuleScorer


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
