import random
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from seqlab.core.cache import cache_folder
from seqlab.core.errors import DataError
from seqlab.core.registry import TOKENIZERS, look_up
from seqlab.data.batching import BEGIN_EVERY, StreamBatches, WindowBatches
from seqlab.data.pieces import cut_text, read_blocks
from seqlab.data.prepare import PARTS, id_type, prepare, read_pieces, read_slice, split_bounds
from seqlab.data.sources import open_text
from seqlab.data.tokenizers import CharacterTokenizer, WordTokenizer


@pytest.mark.parametrize("kind", sorted(TOKENIZERS))
def test_parts_are_contiguous_counted_and_mapped(kind: str, small_text: Path) -> None:
    text = open_text(str(small_text))
    bounds = split_bounds(text, (0.8, 0.1, 0.1))
    tokenizer = look_up(TOKENIZERS, kind, "tokenizer").fit(read_pieces(text, bounds["train"]))
    parts = prepare(text, tokenizer, bounds)
    content = small_text.read_bytes()
    assert bounds["train"][0] == 0
    assert bounds["test"][1] == len(content)
    for name in PARTS:
        part, slice_ = parts[name], content[slice(*bounds[name])].decode()
        encoding = tokenizer.encode(slice_)
        assert np.array_equal(part.ids, encoding.ids)
        assert isinstance(part.ids, np.memmap)
        facts = part.facts
        assert (facts.tokens, facts.bytes, facts.characters) == (len(encoding), len(slice_.encode()), len(slice_))
        assert facts.words == len(slice_.split())
        assert facts.unknown == encoding.unknown.sum()
        assert facts.unknown_bytes == (encoding.end - encoding.start)[encoding.unknown].sum()


@given(text=st.text("aé漢🙂", min_size=10, max_size=60), share=st.floats(0.05, 0.95))
def test_cuts_fall_between_characters(tmp_path_factory: pytest.TempPathFactory, text: str, share: float) -> None:
    path = tmp_path_factory.mktemp("t") / "t.txt"
    path.write_text(text, encoding="utf-8")
    bounds = split_bounds(open_text(str(path)), (share, 1 - share, 0.0))
    joined = "".join(path.read_bytes()[slice(*bounds[name])].decode() for name in PARTS)
    assert joined == text


def test_a_damaged_cache_is_found_and_encoded_anew(small_text: Path) -> None:
    text = open_text(str(small_text))
    bounds = split_bounds(text, (0.9, 0.1, 0.0))
    tokenizer = look_up(TOKENIZERS, "char", "tokenizer").fit(read_pieces(text, bounds["train"]))
    before = np.array(prepare(text, tokenizer, bounds)["train"].ids)
    for path in (cache_folder() / "ids").glob("*/train.ids"):
        content = bytearray(path.read_bytes())
        if content:  # those of other tests may be of any size
            content[len(content) // 2] ^= 1
        path.write_bytes(content)
    assert np.array_equal(prepare(text, tokenizer, bounds)["train"].ids, before)
    for path in (cache_folder() / "ids").glob("*/manifest.json"):
        path.write_bytes(path.read_bytes()[:10])
    assert np.array_equal(prepare(text, tokenizer, bounds)["train"].ids, before)


@pytest.mark.parametrize(("size", "expected"), [(256, "<u1"), (257, "<u2"), (65536, "<u2"), (65537, "<u4")])
def test_ids_take_no_more_bytes_than_they_need(size: int, expected: str) -> None:
    assert id_type(size) == expected
    assert np.iinfo(expected).max >= size - 1


IDS = np.arange(1000, dtype=np.uint32)
BEGIN = 5000


def test_streams_read_on_where_they_stopped() -> None:
    batches = StreamBatches(IDS, BEGIN, batch=4, context=10, seed=0)
    assert batches.steps_per_epoch == 25
    for step in range(60):
        batch, following = batches(step), batches(step + 1)
        assert batch.inputs.shape == batch.targets.shape == (4, 10)
        assert np.array_equal(batch.inputs[:, 1:], batch.targets[:, :-1])
        if not following.fresh:
            assert np.array_equal(following.inputs[:, 0], batch.targets[:, -1])
        assert (batch.inputs[:, 0] == BEGIN).all() == batch.fresh == (step % 25 == 0)
    assert batches(0).targets[:, 0].tolist() == [0, 250, 500, 750], "the begin id stands before the first token"


def test_an_epoch_of_streams_covers_the_text() -> None:
    batches = StreamBatches(IDS, BEGIN, batch=4, context=10, seed=0)
    for epoch in (0, 1, 2):
        seen = np.concatenate([batches(epoch * 25 + k).targets.numpy().ravel() for k in range(25)])
        assert len(np.unique(seen)) == 1000
    assert not np.array_equal(batches(0).targets, batches(25).targets)


def test_an_epoch_of_windows_covers_the_text_in_another_order_each_time() -> None:
    batches = WindowBatches(IDS[:995], BEGIN, batch=3, context=9, seed=0)
    per_epoch = batches.steps_per_epoch
    assert per_epoch == 36  # 110 windows, of which two make no full batch
    starts = []
    for epoch in range(6):
        targets = np.concatenate([batches(epoch * per_epoch + k).targets.numpy() for k in range(per_epoch)])
        assert len(np.unique(targets)) == targets.size == 108 * 9
        assert (np.diff(targets, axis=1) == 1).all()
        starts.append(int(targets.min()) % 9)
    assert len(set(starts)) > 1, "the cuts fall elsewhere in other epochs"
    assert not np.array_equal(batches(0).targets, batches(per_epoch).targets)


def test_windows_read_what_stands_before_their_targets_or_the_begin_id() -> None:
    batches = WindowBatches(IDS[:90], BEGIN, batch=10, context=9, seed=0)  # no spare tokens: the cuts are fixed
    batch = batches(0)
    assert np.array_equal(batch.inputs[:, 1:], batch.targets[:, :-1])
    for row, (first_input, first_target) in enumerate(zip(batch.inputs[:, 0], batch.targets[:, 0], strict=True)):
        begins = row % BEGIN_EVERY == 0 or first_target == 0
        assert first_input == (BEGIN if begins else first_target - 1)


@pytest.mark.parametrize("make", [StreamBatches, WindowBatches])
def test_a_batch_is_a_function_of_seed_and_step(make: type[StreamBatches]) -> None:
    one, two = make(IDS, BEGIN, 4, 10, seed=3), make(IDS, BEGIN, 4, 10, seed=3)
    two(70)
    assert np.array_equal(one(40).inputs, two(40).inputs)
    assert not np.array_equal(one(40).inputs, make(IDS, BEGIN, 4, 10, seed=4)(40).inputs)


@pytest.mark.parametrize("make", [StreamBatches, WindowBatches])
def test_short_texts_shrink_the_batch_and_too_short_ones_are_refused(make: type[StreamBatches]) -> None:
    batches = make(IDS[:40], BEGIN, batch=64, context=10, seed=0)
    assert 1 <= batches.batch <= 4
    assert batches(5).inputs.shape == (batches.batch, 10)
    with pytest.raises(DataError, match="9 tokens, fewer than one context of 10; give more text: so few teach nothing"):
        make(IDS[:9], BEGIN, batch=2, context=10, seed=0)


def test_a_word_longer_than_a_piece_is_one_word(tmp_path: Path) -> None:
    path = tmp_path / "t.txt"
    path.write_text("start " + "x" * 200_000 + " end  " + "y" * 70_000)
    text = open_text(str(path))
    bounds = split_bounds(text, (1.0, 0.0, 0.0))
    tokenizer = WordTokenizer.fit(read_pieces(text, bounds["train"]), 50)
    facts = prepare(text, tokenizer, bounds)["train"].facts
    assert (facts.words, facts.unknown) == (4, 0)
    assert tokenizer.decode(tokenizer.encode(path.read_text()).ids.tolist()) == path.read_text()


def test_a_text_of_several_blocks_is_cut_as_in_memory(tmp_path: Path) -> None:
    """Blocks of 1 MiB end inside characters, words and runs of white space; the pieces are those of the whole text."""
    draw = random.Random(0)
    words = ["Ünïcödé", "日本語🙂", "plain"] * 40_000 + ["x" * 70_000, " " * 70_000]
    draw.shuffle(words)
    path = tmp_path / "t.txt"
    path.write_text("".join(word + draw.choice([" ", "  ", "\n\n\t", "\u00a0"]) for word in words), newline="")
    text = open_text(str(path))
    bounds = split_bounds(text, (0.9, 0.05, 0.05))
    assert bounds["train"][1] > 1 << 20
    for part in bounds.values():
        assert list(read_pieces(text, part)) == list(cut_text(read_slice(text, part)))
    tokenizer = CharacterTokenizer.fit(["Ünïcödé plain"])
    for name, encoded in prepare(text, tokenizer, bounds).items():
        whole = read_slice(text, bounds[name])
        assert np.array_equal(encoded.ids, tokenizer.encode(whole).ids)
        assert (encoded.facts.characters, encoded.facts.words) == (len(whole), len(whole.split()))


def test_a_file_that_shrinks_while_it_is_read_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "t.txt"
    path.write_text("abc")
    with pytest.raises(DataError, match="became shorter while it was read"):
        list(read_blocks(path, 0, 10))
