"""`seqlab --help`, the answer to wrong use, the first line of a training, and encoding speed.

Help and wrong use: median of 9 starts, beside a bare `python -c pass` in the same run; targets 0.5 s and 0.6 s.
First line: median of 5 starts of `lm train` until anything stands on standard error; target 1 s.
Encoding: MB/s of every tokenizer on the Shakespeare and Brown corpora; targets 20 MB/s for byte and char, and twice
the 2.6 MB/s of a loop over strings for word and BPE, after their ids were found to be those of that loop, timed beside.
"""

import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path

from seqlab.core.registry import TOKENIZERS, look_up
from seqlab.data.bpe import BPETokenizer
from seqlab.data.corpora import load_corpus
from seqlab.data.pieces import cut_text
from seqlab.data.tokenizers import Tokenizer, WordTokenizer, _whole_words

HELP_TARGET, WRONG_USE_TARGET, FIRST_LINE_TARGET = 0.5, 0.6, 1.0
TARGETS = {"byte": 20.0, "char": 20.0, "word": 5.2, "bpe": 5.2}  # MB/s
WRONG_USE = (
    "lm train my.txt --width -1",
    "lm train nothing.txt",
    "lm train --config nothing.toml",
    "lm compare my.txt --models lstmm",
    "lm generate nowhere",
    "lm perplexity nowhere --on my.txt",
)
SPACE_AND_WORD, GAP_AND_WORD = re.compile(r"\s*\S+|\s+"), re.compile(r"(\s*)(\S*)")


def seconds_of(command: list[str]) -> float:
    times = []
    for _ in range(9):
        start = time.perf_counter()
        subprocess.run(command, check=False, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        times.append(time.perf_counter() - start)
    return statistics.median(times)


def seconds_to_first_line() -> float:
    times = []
    for _ in range(5):
        with tempfile.TemporaryDirectory() as folder:
            words = ["lm", "train", "pydoc", "--budget", "1step", "--out", str(Path(folder) / "run")]
            start = time.perf_counter()
            with subprocess.Popen(
                [sys.executable, "-m", "seqlab", *words], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
            ) as training:
                assert training.stderr is not None
                training.stderr.readline()
                times.append(time.perf_counter() - start)
                training.kill()
    return statistics.median(times)


# --------------------------------------------------------------------------- the plain loops


def plain_bpe(tokenizer: BPETokenizer, pieces: Iterable[str]) -> list[int]:
    remembered: dict[str, list[int]] = {}
    ids: list[int] = []
    for piece in pieces:
        words = SPACE_AND_WORD.findall(piece)
        new = list(set(words) - remembered.keys())
        remembered |= {w: e.ids for w, e in zip(new, tokenizer._library.encode_batch_fast(new), strict=True)}
        ids += [i for word in words for i in remembered[word]]
    return ids


def plain_words(tokenizer: WordTokenizer, pieces: Iterable[str]) -> list[int]:
    number, expected = {word: k for k, word in enumerate(tokenizer.words, start=1)}, ""
    ids: list[int] = []
    for piece in _whole_words(pieces):
        tokens: list[str] = []
        for gap, word in GAP_AND_WORD.findall(piece):
            if gap not in (expected, "") or (gap and not word):
                tokens.append(gap)
                expected = ""
            if word:
                tokens.append(word)
                expected = " "
        ids += [number.get(token, 0) for token in tokens]
    return ids


def encoded(tokenizer: Tokenizer, text: str) -> tuple[list[int], float]:
    start = time.perf_counter()
    parts = [ids for ids, _ in tokenizer.encode_pieces(cut_text(text))]
    seconds = time.perf_counter() - start
    return [token for part in parts for token in part.tolist()], seconds


def main() -> None:
    bare = seconds_of([sys.executable, "-c", "pass"])
    helped = seconds_of([sys.executable, "-m", "seqlab", "--help"])
    verdict = "reached" if helped < HELP_TARGET else "MISSED"
    print(f"seqlab --help {helped:.3f} s, bare python {bare:.3f} s (target {HELP_TARGET} s: {verdict})")
    for words in WRONG_USE:
        seconds = seconds_of([sys.executable, "-m", "seqlab", *words.split()])
        verdict = "reached" if seconds < WRONG_USE_TARGET else "MISSED"
        print(f"seqlab {words}: {seconds:.3f} s (target {WRONG_USE_TARGET} s: {verdict})")
    first = seconds_to_first_line()
    verdict = "reached" if first < FIRST_LINE_TARGET else "MISSED"
    print(f"first line of seqlab lm train: {first:.3f} s (target {FIRST_LINE_TARGET} s: {verdict})", flush=True)
    text = load_corpus("shakespeare").read() + load_corpus("brown").read()
    size = len(text.encode()) / 1e6
    for kind, target in TARGETS.items():
        tokenizer = look_up(TOKENIZERS, kind, "tokenizer").fit(
            cut_text(text), 4096 if kind in ("bpe", "word") else None
        )
        ids, seconds = encoded(tokenizer, text)
        beside = ""
        if kind in ("bpe", "word"):
            start = time.perf_counter()
            plain = plain_bpe(tokenizer, cut_text(text)) if kind == "bpe" else plain_words(tokenizer, cut_text(text))
            assert plain == ids, f"{kind}: other ids than those of the plain loop"
            beside = f", the plain loop {size / (time.perf_counter() - start):.1f} MB/s, the same ids"
        rate = size / seconds
        verdict = "reached" if rate >= target else "MISSED"
        print(f"{kind:<6}{rate:8.1f} MB/s, {len(ids):,} tokens{beside} (target {target}: {verdict})", flush=True)


if __name__ == "__main__":
    main()
