"""Shared passages against a brute-force reference, planted passages and the sampled estimate."""

import mmap
from itertools import groupby
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from seqlab.core.errors import UsageError
from seqlab.data import overlap
from seqlab.data.overlap import longest_common_passage, shared_passages, window_hashes

few_letters = st.text(alphabet="ab\n", max_size=60).map(str.encode)


def covered_by_hand(train: bytes, held_out: bytes, length: int) -> list[bool]:
    covered = [False] * len(held_out)
    for start in range(len(held_out) - length + 1):
        if held_out[start : start + length] in train:
            covered[start : start + length] = [True] * length
    return covered


def random_text(size: int, seed: int) -> bytes:
    return np.random.default_rng(seed).integers(97, 123, size, dtype=np.uint8).tobytes()


@given(few_letters, few_letters, st.integers(1, 9))
@settings(deadline=None, max_examples=300)
def test_exact_result_equals_brute_force(train: bytes, held_out: bytes, length: int) -> None:
    covered = covered_by_hand(train, held_out, length)
    found = shared_passages(train, held_out, length=length)
    runs = [len(list(run)) for is_shared, run in groupby(covered) if is_shared]
    assert found.exact
    assert found.shared_bytes == sum(covered)
    assert found.longest_bytes == max(runs, default=0)
    assert found.fraction == pytest.approx(sum(covered) / max(1, len(held_out)))


@pytest.mark.parametrize("length", [1, 2, 3, 7, 64, 100])
def test_equal_windows_have_equal_hashes_and_others_not(length: int) -> None:
    text = np.frombuffer(random_text(500, seed=1) * 2, np.uint8)
    windows = [text[i : i + length].tobytes() for i in range(len(text) - length + 1)]
    hashes = window_hashes(text, length)
    assert len(hashes) == len(windows)
    assert len(set(zip(windows, hashes.tolist(), strict=True))) == len(set(windows)) == len(set(hashes.tolist()))


@pytest.mark.parametrize("block", [100, 1000, 1 << 22])
def test_planted_passages_are_found_whatever_the_block_size(block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(overlap, "HASHED_AT_ONCE", block)
    train, held_out = random_text(5000, seed=2), random_text(3000, seed=3)
    train = train[:2000] + held_out[950:1150] + train[2000:] + held_out[2500:2600]
    found = shared_passages(train, held_out)
    assert found.shared_bytes == 300
    assert found.longest_bytes == 200
    assert found.excerpt == held_out[950:1030].decode()


def test_passage_shorter_than_the_window_does_not_count() -> None:
    train, held_out = random_text(4000, seed=4), random_text(4000, seed=5)
    assert shared_passages(train + held_out[500:563], held_out).shared_bytes == 0
    assert shared_passages(train + held_out[500:564], held_out).shared_bytes == 64


def test_equal_hashes_are_confirmed_against_the_text(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(overlap, "window_hashes", lambda text, length: np.zeros(len(text) - length + 1, np.uint64))
    assert shared_passages(b"x" * 100, b"y" * 100).shared_bytes == 0


def test_sampling_estimates_the_shared_part() -> None:
    train, held_out = random_text(400_000, seed=6), random_text(200_000, seed=7)
    train = train + held_out[50_000:90_000] + train[:1000] + held_out[120_000:130_000]
    found = shared_passages(train, held_out, max_hashes=30_000)
    assert not found.exact
    assert found.fraction == pytest.approx(0.25, rel=0.1)
    assert 39_000 < found.longest_bytes <= 40_000
    assert found.sentence().startswith("about 2")
    assert shared_passages(random_text(400_000, seed=8), held_out, max_hashes=30_000).shared_bytes == 0


def test_files_arrays_and_bytes_give_the_same(tmp_path: Path) -> None:
    train, held_out = random_text(3000, seed=9), random_text(500, seed=10)
    train += held_out[100:300]
    for name, content in (("train", train), ("held_out", held_out), ("empty", b"")):
        (tmp_path / name).write_bytes(content)
    expected = shared_passages(train, held_out)
    assert expected.shared_bytes == 200
    assert shared_passages(tmp_path / "train", str(tmp_path / "held_out")) == expected
    assert shared_passages(np.frombuffer(train, np.uint8), memoryview(held_out)) == expected
    assert shared_passages(tmp_path / "train", tmp_path / "empty").fraction == 0.0


def test_sentence_says_what_was_found() -> None:
    text = ("Grüße aus dem Wald,\nsagte der Fuchs. " * 5).encode()
    assert shared_passages(b"nothing", text).sentence() == (
        "no passage of 64 bytes of the held-out text stands in the training text"
    )
    found = shared_passages(text, b"-" * 100 + text)
    assert found.sentence().startswith(f"{len(text) / (len(text) + 100):.2%} of the held-out text")
    assert found.excerpt.startswith("Grüße aus dem Wald, sagte der Fuchs. Grüße")
    assert len(found.excerpt) == 80


def test_length_below_one_is_refused() -> None:
    with pytest.raises(UsageError, match="at least 1"):
        shared_passages(b"a", b"a", length=0)


@given(few_letters, few_letters)
@settings(deadline=None)
def test_longest_common_passage_equals_brute_force(sample: bytes, text: bytes) -> None:
    parts = (sample[i:j] for i in range(len(sample)) for j in range(i + 1, len(sample) + 1))
    expected = max((len(part) for part in parts if part in text), default=0)
    found = longest_common_passage(sample, text)
    assert len(found) == expected
    assert found in sample
    assert found in text


def test_longest_common_passage_in_a_mapped_file(tmp_path: Path) -> None:
    (tmp_path / "text").write_bytes(b"to be, or not to be, that is the question")
    with (tmp_path / "text").open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as text:
        assert longest_common_passage(b"and not to be, thus", text) == b" not to be, th"
