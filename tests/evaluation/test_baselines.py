"""Baselines against known values, other implementations and the laws of probability."""

import bz2
import gzip
import lzma
import math
from pydoc_data.topics import topics

import pyppmd
import pytest

from seqlab.core.errors import DataError
from seqlab.data.tokenizers import CharacterTokenizer
from seqlab.evaluation import baselines as baselines_file
from seqlab.evaluation.baselines import (
    COMPRESSORS,
    Baseline,
    baselines,
    character_ngram,
    compressor_nats,
    last_bytes,
    uniform,
)

TOPICS = "".join(topics[title] for title in sorted(topics))
TRAIN, HELD_OUT = TOPICS[:120_000], TOPICS[120_000:140_000]


def test_uniform_by_hand() -> None:
    table = uniform(CharacterTokenizer("abc"), "abca")
    assert table.total == pytest.approx(4 * math.log(4))
    with_unknown = uniform(CharacterTokenizer("abc"), "ab☃")
    assert with_unknown.total == pytest.approx(3 * math.log(4) + math.log(8 * 61_440))


def test_every_better_method_is_better_on_real_text() -> None:
    found = baselines(TRAIN, HELD_OUT)
    names = [b.name for b in found]
    assert names == ["uniform", "unigram", "3-gram", "5-gram", "7-gram", "xz", "ppmd"]
    bits = {b.name: b.bits_per_byte for b in found}
    assert bits["uniform"] > bits["unigram"] > bits["3-gram"] > bits["5-gram"] > bits["7-gram"]
    assert bits["7-gram"] < bits["xz"] < bits["unigram"]
    assert bits["ppmd"] < bits["xz"]
    assert all(b.bytes == len(HELD_OUT.encode()) and b.characters == len(HELD_OUT) for b in found)


def test_units_derive_from_the_same_total() -> None:
    one = Baseline("x", nats=100.0, bytes=60, characters=50)
    assert one.nats_per_character == 2
    assert one.perplexity_per_character == pytest.approx(math.exp(2))
    assert one.bits_per_byte == pytest.approx(100 / math.log(2) / 60)


def test_compressors_count_what_the_held_out_text_adds() -> None:
    for name, plain in (("gzip", gzip.compress), ("bz2", bz2.compress), ("xz", lzma.compress)):
        added = len(plain((TRAIN + HELD_OUT).encode())) - len(plain(TRAIN.encode()))
        found = compressor_nats(name, TRAIN, HELD_OUT) / (8 * math.log(2))
        assert found == pytest.approx(added, rel=0.05), name
    assert set(COMPRESSORS) == {"gzip", "bz2", "xz", "ppmd"}


def test_ppmd_gives_back_what_it_packed_and_forgets_nothing() -> None:
    """What was counted is a real file: it can be read again. With room for all contexts, more room changes nothing."""
    content = (TRAIN + HELD_OUT).encode()
    order, memory = baselines_file.PPMD_ORDER, baselines_file.PPMD_MEMORY_PER_BYTE * len(content)
    packed = pyppmd.compress(content, max_order=order, mem_size=memory, variant="I")
    assert pyppmd.decompress(packed, max_order=order, mem_size=memory, variant="I") == content
    assert COMPRESSORS["ppmd"](len(content))(content) == len(packed)
    assert len(pyppmd.compress(content, max_order=order, mem_size=8 * memory, variant="I")) == len(packed)
    added = len(packed) - COMPRESSORS["ppmd"](len(content))(TRAIN.encode())
    assert compressor_nats("ppmd", TRAIN, HELD_OUT) == pytest.approx(added * 8 * math.log(2))


def test_ppmd_predicts_the_more_the_more_it_has_read() -> None:
    costs = [compressor_nats("ppmd", TRAIN[-size:], HELD_OUT) for size in (1_000, 10_000, 100_000)]
    assert costs == sorted(costs, reverse=True)
    assert compressor_nats("ppmd", TRAIN, TRAIN[:5000]) < 0.1 * compressor_nats("ppmd", TRAIN, HELD_OUT[:5000])


def test_xz_finds_a_passage_however_far_back() -> None:
    assert compressor_nats("xz", TRAIN, TRAIN[:5000]) < 0.01 * compressor_nats("gzip", TRAIN, HELD_OUT)


def test_a_character_ngram_scores_any_text() -> None:
    scorer = character_ngram("abcabcabc", 3)
    table = scorer.score("abc☃")
    assert table.unknown.tolist() == [False, False, False, True]
    assert table.nats[1] < table.nats[0]


def test_long_training_texts_are_cut_and_it_is_said() -> None:
    text, note = last_bytes("äb" * 10, 7)
    assert text == "bäbäb"[-5:]
    assert len(text.encode()) <= 7
    assert note == "fitted on the last 7 bytes of the training text"
    assert last_bytes("abc", 3) == ("abc", "")


def test_nothing_to_measure() -> None:
    with pytest.raises(DataError, match="training text is empty"):
        baselines("", "abc")
    with pytest.raises(DataError, match="held-out text is empty"):
        baselines("abc", "")
