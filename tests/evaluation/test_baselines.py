"""Baselines against known values, other implementations and the laws of probability."""

import bz2
import gzip
import lzma
import math
from pydoc_data.topics import topics
from typing import Any

import pyppmd
import pytest

from seqlab.core.errors import DataError
from seqlab.data.tokenizers import CharacterTokenizer
from seqlab.evaluation import baselines as baselines_file
from seqlab.evaluation.baselines import (
    COMPRESSORS,
    Baseline,
    baselines,
    beside_a_run,
    character_ngram,
    compressor_nats,
    last_bytes,
    uniform,
)

TOPICS = "".join(topics[title] for title in sorted(topics))
MOST_THAT_ENDS_A_FILE = 8  # bytes of PPMd: a mark, and what the coder still holds
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


def test_only_what_is_named_is_measured_and_in_the_order_of_the_names(monkeypatch: pytest.MonkeyPatch) -> None:
    found = baselines(TRAIN[:9000], HELD_OUT, names=("ppmd", "3-gram", "uniform"))
    assert [b.name for b in found] == ["uniform", "3-gram", "ppmd"]
    ready = character_ngram(TRAIN[:9000], 3)
    monkeypatch.setattr(baselines_file.NGramLM, "fit", lambda *_: pytest.fail("it was counted again"))
    (again,) = baselines(TRAIN[:9000], HELD_OUT, names=("3-gram",), counted=ready)
    assert again == found[1]


def test_counts_of_other_characters_or_of_another_order_do_not_serve() -> None:
    for ready in (character_ngram(TRAIN[:9000] + "☃", 3), character_ngram(TRAIN[:9000], 5)):
        (found,) = baselines(TRAIN[:9000], HELD_OUT, names=("3-gram",), counted=ready)
        assert found == baselines(TRAIN[:9000], HELD_OUT, names=("3-gram",))[0]


def test_beside_a_run_stands_what_costs_little() -> None:
    assert beside_a_run(9_000, 1_000) == ("uniform", "7-gram", "xz", "ppmd")
    assert beside_a_run(9_000, 999) == ("uniform", "7-gram")
    assert beside_a_run(2_000_000, 1_000) == ("uniform", "7-gram", "ppmd")


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
    how: dict[str, Any] = dict(max_order=baselines_file.PPMD_ORDER, variant="I")
    memory = baselines_file.PPMD_MEMORY_PER_BYTE * len(content)
    packed = pyppmd.compress(content, mem_size=memory, **how)
    assert pyppmd.decompress(packed, mem_size=memory, **how) == content
    assert len(pyppmd.compress(content, mem_size=8 * memory, **how)) == len(packed)
    added = len(packed) - len(pyppmd.compress(TRAIN.encode(), mem_size=memory, **how))
    assert abs(COMPRESSORS["ppmd"](TRAIN.encode(), HELD_OUT.encode()) - added) <= MOST_THAT_ENDS_A_FILE


def test_ppmd_tells_in_one_pass_what_each_text_took() -> None:
    whole, train = (pyppmd.Ppmd8Encoder(baselines_file.PPMD_ORDER, 1 << 23) for _ in range(2))
    added = len(whole.encode((TRAIN + HELD_OUT).encode())) - len(train.encode(TRAIN.encode()))
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
