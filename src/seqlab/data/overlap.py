"""Which passages of the held-out text also stand in the training text.

Every window of `length` bytes gets a 64-bit hash. A held-out window is shared if a training window has
the same hash and, looked up in the text, the same bytes. Large texts are sampled by content: only windows
whose hash is divisible by m are kept, on both sides alike, so that memory stays bounded and the sampled
windows still meet each other. With m = 1 the result is exact.
"""

import mmap
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from seqlab.core.errors import UsageError

Bytes = npt.NDArray[np.uint8]
Hashes = npt.NDArray[np.uint64]
Positions = npt.NDArray[np.int64]
ByteSource = bytes | bytearray | memoryview | Bytes | str | Path
"""Bytes in memory, an array of bytes (np.memmap too), or the path of a file."""

WINDOW = 64
MAX_HASHES = 6_000_000
HASHED_AT_ONCE = 1 << 22
CONFIRM_AT_ONCE = 1 << 16
EXCERPT_CHARACTERS = 80
MULTIPLIER = 0x9E3779B97F4A7C15
WORD = (1 << 64) - 1


@dataclass(frozen=True)
class Overlap:
    """How much of the held-out text a model may have read in training."""

    shared_bytes: int
    """Held-out bytes inside at least one shared window; an estimate unless `exact`."""
    held_out_bytes: int
    window: int
    exact: bool
    longest_bytes: int
    """Length of the longest run of held-out bytes that are all inside shared windows."""
    excerpt: str
    """The beginning of that run, on one line."""

    @property
    def fraction(self) -> float:
        return self.shared_bytes / self.held_out_bytes if self.held_out_bytes else 0.0

    def sentence(self) -> str:
        if not self.shared_bytes:
            found = "stands" if self.exact else "was found, by sampling,"
            return f"no passage of {self.window} bytes of the held-out text {found} in the training text"
        about = "" if self.exact else "about "
        return (
            f"{about}{self.fraction:.2%} of the held-out text ({self.shared_bytes:,} of "
            f"{self.held_out_bytes:,} bytes) stands in the training text in passages of {self.window} bytes "
            f"or more; the longest has {self.longest_bytes:,} bytes: “{self.excerpt}”"
        )


def shared_passages(
    train: ByteSource, held_out: ByteSource, *, length: int = WINDOW, max_hashes: int = MAX_HASHES
) -> Overlap:
    """Find the held-out windows of `length` bytes that stand in the training text.

    At most about `max_hashes` windows of each text are held in memory: one in m, m as small as possible.
    """
    if length < 1:
        raise UsageError(f"the passage length is {length} bytes; it must be at least 1")
    train_bytes, held_bytes = _as_bytes(train), _as_bytes(held_out)
    m = max(1, -(-max(train_bytes.size, held_bytes.size) // max_hashes))
    tested, shared = _shared_windows(train_bytes, held_bytes, length, m)
    begins, ends = _runs(tested, shared, length)
    covered_begins, covered_ends = _merged(begins, ends)
    covered = int((covered_ends - covered_begins).sum())
    if m > 1:
        # Each sampled window stands for m of them; a run of r windows covers r + length - 1 bytes.
        covered = min(held_bytes.size, m * int(shared.sum()) + (length - 1) * len(begins))
    longest, excerpt = _longest(held_bytes, covered_begins, covered_ends)
    return Overlap(covered, held_bytes.size, length, m == 1, longest, excerpt)


def _as_bytes(text: ByteSource) -> Bytes:
    if isinstance(text, np.ndarray):
        return text.view(np.uint8)
    if isinstance(text, str | Path):
        # An empty file cannot be mapped.
        return np.memmap(text, np.uint8, "r") if os.path.getsize(text) else np.zeros(0, np.uint8)
    return np.frombuffer(text, np.uint8)


def _shared_windows(train: Bytes, held_out: Bytes, length: int, m: int) -> tuple[Positions, npt.NDArray[np.bool_]]:
    """The held-out windows that were tested, by position, and whether each one stands in `train`."""
    known, first_position = _sampled(train, length, m)
    known, first = np.unique(known, return_index=True)
    hashes, tested = _sampled(held_out, length, m)
    shared = np.zeros(len(tested), bool)
    if len(known):
        slot = np.searchsorted(known, hashes).clip(max=len(known) - 1)
        alike = np.flatnonzero(known[slot] == hashes)
        origins = first_position[first[slot[alike]]]
        shared[alike] = _confirmed(train, origins, held_out, tested[alike], length)
    return tested, shared


def _sampled(text: Bytes, length: int, m: int) -> tuple[Hashes, Positions]:
    """Hash and position of the windows whose hash is divisible by m, read block by block."""
    hashes, positions = [np.zeros(0, np.uint64)], [np.zeros(0, np.int64)]
    for start, block in _blocks(text, length):
        block_hashes = window_hashes(block, length)
        kept = np.flatnonzero(block_hashes % np.uint64(m) == 0)
        hashes.append(block_hashes[kept])
        positions.append(kept + start)
    return np.concatenate(hashes), np.concatenate(positions)


def _blocks(text: Bytes, length: int) -> Iterator[tuple[int, Bytes]]:
    """Blocks that overlap by length - 1 bytes, so that every window lies in exactly one of them."""
    for start in range(0, text.size - length + 1, HASHED_AT_ONCE):
        yield start, np.asarray(text[start : start + HASHED_AT_ONCE + length - 1])


def window_hashes(text: Bytes, length: int) -> Hashes:
    """The hash of every window of `length` bytes, modulo 2^64, by doubling:

        h_1(i)     = r[text_i]                       a fixed random word for each byte
        h_{a+b}(i) = h_a(i) · B^b + h_b(i + a)       B = MULTIPLIER

    and a final mixing, without which the low bits would depend on the low bits of r only.
    text (n,) -> hashes (n - length + 1,)
    """
    doubled = _mixed(np.arange(1, 257, dtype=np.uint64) * np.uint64(MULTIPLIER))[text]
    total: Hashes | None = None
    total_length, doubled_length = 0, 1
    while True:
        if length & doubled_length:
            total = doubled if total is None else _joined(total, total_length, doubled, doubled_length)
            total_length += doubled_length
        if total is not None and total_length == length:
            return _mixed(total)
        doubled = _joined(doubled, doubled_length, doubled, doubled_length)
        doubled_length *= 2


def _joined(left: Hashes, left_length: int, right: Hashes, right_length: int) -> Hashes:
    """h_{a+b}(i) = h_a(i) · B^b + h_b(i + a)."""
    right = right[left_length:]
    return left[: len(right)] * np.uint64(pow(MULTIPLIER, right_length, WORD + 1)) + right[: len(left)]


def _mixed(words: Hashes) -> Hashes:
    """The finaliser of splitmix64: every bit of the result depends on every bit of the word."""
    words = (words ^ (words >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    words = (words ^ (words >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return words ^ (words >> np.uint64(31))


def _confirmed(
    train: Bytes, origins: Positions, held_out: Bytes, places: Positions, length: int
) -> npt.NDArray[np.bool_]:
    """Compare the bytes themselves: equal hashes are not yet equal passages."""
    equal = np.zeros(len(places), bool)
    offsets = np.arange(length)
    for start in range(0, len(places), CONFIRM_AT_ONCE):
        part = slice(start, start + CONFIRM_AT_ONCE)
        ours, theirs = held_out[places[part, None] + offsets], train[origins[part, None] + offsets]
        equal[part] = (ours == theirs).all(axis=1)
    return equal


def _runs(tested: Positions, shared: npt.NDArray[np.bool_], length: int) -> tuple[Positions, Positions]:
    """Begin and end in bytes of every unbroken run of shared windows among those tested."""
    change = np.diff(np.concatenate([[False], shared, [False]]).astype(np.int8))
    first, last = np.flatnonzero(change == 1), np.flatnonzero(change == -1) - 1
    return tested[first], tested[last] + length


def _merged(begins: Positions, ends: Positions) -> tuple[Positions, Positions]:
    """Join runs that touch or overlap; both arrays ascend."""
    if not len(begins):
        return begins, ends
    apart = np.flatnonzero(begins[1:] > ends[:-1])
    return begins[np.append(0, apart + 1)], ends[np.append(apart, len(ends) - 1)]


def _longest(text: Bytes, begins: Positions, ends: Positions) -> tuple[int, str]:
    if not len(begins):
        return 0, ""
    best = int(np.argmax(ends - begins))
    begin, end = int(begins[best]), int(ends[best])
    # A character has at most four bytes; a window may begin or end inside one.
    shown = text[begin : min(end, begin + 4 * EXCERPT_CHARACTERS)].tobytes().decode("utf-8", "ignore")
    return end - begin, " ".join(shown.split())[:EXCERPT_CHARACTERS]


def longest_common_passage(sample: bytes, text: bytes | mmap.mmap) -> bytes:
    """The longest part of `sample` that stands in `text`; the first one where several are as long.

    A longer passage than the best so far must contain one that is longer by a single byte, so the window
    only ever grows or moves on: len(sample) + len(result) searches.
    """
    begin, size = 0, 0
    for start in range(len(sample)):
        while start + size < len(sample) and text.find(sample[start : start + size + 1]) >= 0:
            begin, size = start, size + 1
    return sample[begin : begin + size]
