"""What holds for every registered tokenizer: registering one tests it."""

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from seqlab.core.errors import DamageError, DataError, UsageError
from seqlab.core.files import canonical_json, sha256_of
from seqlab.core.registry import TOKENIZERS, look_up
from seqlab.data import pieces
from seqlab.data.pieces import cut_text
from seqlab.data.tokenizers import Tokenizer, WordTokenizer, load_tokenizer

TRAINING = "To be, or not to be:\n\n  that is the question.\tWhether 'tis nobler — naïve café 日本 🙂\r\nend " * 4
KINDS = sorted(TOKENIZERS)
any_text = st.text(st.characters(exclude_categories=["Cs"]), max_size=200)
seen_text = st.text(st.sampled_from(sorted(set(TRAINING))), max_size=200)


def fitted(kind: str, text: str = TRAINING) -> Tokenizer:
    size = {"bpe": 300, "word": 20}.get(kind)
    tokenizer: Tokenizer = look_up(TOKENIZERS, kind, "tokenizer").fit(cut_text(text), size)
    return tokenizer


@pytest.fixture(params=[f"{kind}{end}" for kind in KINDS for end in ("", " with end")], scope="module")
def tokenizer(request: pytest.FixtureRequest) -> Tokenizer:
    kind, _, end = request.param.partition(" ")
    return fitted(kind).with_end() if end else fitted(kind)


@given(text=any_text)
def test_spans_partition_any_text(tokenizer: Tokenizer, text: str) -> None:
    encoding = tokenizer.encode(text)
    size = len(text.encode())
    assert np.array_equal(encoding.start[1:], encoding.end[:-1])
    assert (encoding.end > encoding.start).all()
    assert not size or (encoding.start[0] == 0 and encoding.end[-1] == size)
    assert len(encoding.ids) == len(encoding.start) == len(encoding.unknown)
    assert size != 0 or len(encoding) == 0


@given(text=any_text)
def test_ids_are_in_range_and_known_text_comes_back(tokenizer: Tokenizer, text: str) -> None:
    encoding = tokenizer.encode(text)
    assert ((encoding.ids >= 0) & (encoding.ids < tokenizer.vocab_size)).all()
    assert encoding.unknown.any() or tokenizer.decode(encoding.ids.tolist()) == text


@pytest.mark.parametrize("kind", ["byte", "bpe"])
@given(text=any_text)
def test_byte_and_bpe_know_every_text(kind: str, text: str) -> None:
    tokenizer = ROUND_TRIP[kind]
    encoding = tokenizer.encode(text)
    assert not encoding.unknown.any()
    assert tokenizer.decode(encoding.ids.tolist()) == text


@given(text=seen_text)
def test_characters_of_the_training_text_are_known(text: str) -> None:
    encoding = ROUND_TRIP["char"].encode(text)
    assert not encoding.unknown.any()
    assert ROUND_TRIP["char"].decode(encoding.ids.tolist()) == text


ROUND_TRIP = {kind: fitted(kind) for kind in ("byte", "bpe", "char")}


@given(words=st.lists(st.sampled_from(["to", "be", "the", "é"]), max_size=20), data=st.data())
def test_words_of_the_training_text_come_back_with_their_spaces(words: list[str], data: st.DataObject) -> None:
    gaps = [data.draw(st.sampled_from([" ", "\n", "  ", "\n\n\t"])) for _ in words]
    text = "".join(gap + word for gap, word in zip(gaps, words, strict=True))
    text = data.draw(st.sampled_from([text, text.lstrip(), text + " ", text + "\n"]))
    tokenizer = WordTokenizer.fit(cut_text(text))
    encoding = tokenizer.encode(text)
    assert not encoding.unknown.any()
    assert tokenizer.decode(encoding.ids.tolist()) == text


def test_a_word_owns_the_one_space_before_it() -> None:
    encoding = fitted("word").encode("to be\n\nthe  end")
    spans = list(zip(encoding.start.tolist(), encoding.end.tolist(), strict=True))
    assert spans == [(0, 2), (2, 5), (5, 7), (7, 10), (10, 12), (12, 15)]


def test_saved_and_loaded_it_is_the_same(tokenizer: Tokenizer, tmp_path: Path) -> None:
    path = tmp_path / "tokenizer.json"
    tokenizer.save(path)
    again = load_tokenizer(path)
    assert (type(again), again.sha256, again.vocab_size) == (type(tokenizer), tokenizer.sha256, tokenizer.vocab_size)
    assert (again.end_id, again.padding_id) == (tokenizer.end_id, tokenizer.padding_id)
    assert again.to_bytes() == tokenizer.to_bytes() == path.read_bytes()
    assert np.array_equal(again.encode(TRAINING).ids, tokenizer.encode(TRAINING).ids)


def test_any_flipped_byte_of_the_file_is_found(tokenizer: Tokenizer, tmp_path: Path) -> None:
    path = tmp_path / "tokenizer.json"
    tokenizer.save(path)
    content = bytearray(path.read_bytes())
    for position in range(0, len(content), max(1, len(content) // 23)):
        if chr(content[position]).isspace():
            continue  # white space between JSON tokens means nothing
        path.write_bytes(content[:position] + bytes([content[position] ^ 1]) + content[position + 1 :])
        with pytest.raises(Exception, match=r"tokenizer\.json|unknown tokenizer"):
            load_tokenizer(path)
    path.write_bytes(content[: len(content) // 2])
    with pytest.raises(DamageError, match="damaged"):
        load_tokenizer(path)


def test_fitting_twice_gives_the_same(tokenizer: Tokenizer) -> None:
    again = fitted(tokenizer.kind)
    assert (again if tokenizer.end_id is None else again.with_end()).sha256 == tokenizer.sha256


@pytest.mark.parametrize("kind", KINDS)
def test_the_end_is_one_more_id_that_is_predicted_and_writes_nothing(kind: str) -> None:
    plain, ended = fitted(kind), fitted(kind).with_end()
    assert (plain.end_id, plain.padding_id, plain.begin_id) == (None, None, plain.vocab_size)
    assert (ended.end_id, ended.begin_id, ended.padding_id) == tuple(plain.vocab_size + k for k in range(3))
    assert ended.vocab_size == ended.begin_id
    assert ended.with_end() is ended
    ids = plain.encode(TRAINING).ids
    assert np.array_equal(ended.encode(TRAINING).ids, ids)
    assert ended.decode([*ids.tolist(), ended.end_id]) == plain.decode(ids.tolist())
    assert ended.token_bytes(ended.end_id, None) == b""  # type: ignore[arg-type]
    for before in (ended.begin_id, ended.end_id, ended.padding_id):  # a text that follows begins like any other
        assert ended.decode(ids[:9].tolist(), previous=before) == plain.decode(ids[:9].tolist())


@pytest.mark.parametrize("kind", KINDS)
def test_a_tokenizer_without_end_is_written_as_it_always_was(kind: str) -> None:
    plain = fitted(kind)
    before = plain.to_bytes()
    assert list(json.loads(before)) == ["format", "kind", "sha256", "content"]
    assert plain.sha256 != plain.with_end().sha256
    assert plain.to_bytes() == before
    assert plain.sha256 == sha256_of(canonical_json({"kind": kind, "content": plain.content()}))


@pytest.mark.parametrize("kind", ["bpe", "word"])
def test_the_least_size_is_enough_and_one_less_is_refused(kind: str) -> None:
    maker = look_up(TOKENIZERS, kind, "tokenizer")
    least = maker.least_vocab_size
    tokenizer = maker.fit(cut_text(TRAINING), least)
    assert tokenizer.vocab_size == least == {"bpe": 257, "word": 2}[kind]
    assert len(set(tokenizer.encode(TRAINING).ids.tolist())) >= 2
    with pytest.raises(UsageError, match=f"--vocab-size {least - 1} is too small for {kind}; the least is {least}"):
        maker.fit(cut_text(TRAINING), least - 1)


def test_what_was_never_seen_is_unknown_or_spelled(tokenizer: Tokenizer) -> None:
    encoding = tokenizer.encode("漢")
    assert encoding.unknown.all() if tokenizer.unknown_id is not None else len(encoding) == 3


def test_streamed_tokens_are_the_text(tokenizer: Tokenizer) -> None:
    encoding = tokenizer.encode(TRAINING)
    parts = list(tokenizer.token_stream(encoding.ids.tolist()))
    lengths = (encoding.end - encoding.start)[~encoding.unknown]
    assert [len(p) for p, u in zip(parts, encoding.unknown, strict=True) if not u] == lengths.tolist()


def test_cutting_into_pieces_changes_no_token(tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = tokenizer.encode(TRAINING)
    monkeypatch.setattr(pieces, "PIECE", 40)
    monkeypatch.setattr(pieces, "_TAIL", 20)
    cut = tokenizer.encode(TRAINING)
    assert len(list(cut_text(TRAINING))) > 5
    assert np.array_equal(cut.ids, whole.ids)
    assert np.array_equal(cut.end, whole.end)


def test_a_lone_surrogate_is_refused_in_one_line(tokenizer: Tokenizer) -> None:
    with pytest.raises(DataError, match="surrogate at character 2"):
        tokenizer.encode("ab\ud800")


# Python counts the four separator controls as white space, the library does not: there the cuts may differ.
no_separators = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x1c\x1d\x1e\x1f"), max_size=200)


@given(text=no_separators)
def test_bpe_word_by_word_is_bpe_of_the_whole(text: str) -> None:
    tokenizer = ROUND_TRIP["bpe"]
    assert tokenizer.encode(text).ids.tolist() == tokenizer._library.encode(text).ids  # type: ignore[attr-defined]


def test_bpe_forgets_words_when_it_remembers_too_many(monkeypatch: pytest.MonkeyPatch) -> None:
    tokenizer = fitted("bpe")
    expected = tokenizer.encode(TRAINING).ids
    monkeypatch.setattr(pieces, "PIECE", 40)
    monkeypatch.setattr(type(tokenizer), "most_remembered", 3)
    assert np.array_equal(tokenizer.encode(TRAINING).ids, expected)
