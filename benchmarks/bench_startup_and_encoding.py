"""`seqlab --help`, the answer to wrong use, and encoding speed.

Help and wrong use: median of 9 starts, beside a bare `python -c pass` in the same run; targets 0.5 s and 0.6 s.
Encoding: MB/s of every tokenizer on the Shakespeare corpus; target 20 MB/s for byte and char.
"""

import statistics
import subprocess
import sys
import time

from seqlab.core.registry import TOKENIZERS, look_up
from seqlab.data.corpora import load_corpus
from seqlab.data.pieces import cut_text

HELP_TARGET, WRONG_USE_TARGET, ENCODING_TARGET = 0.5, 0.6, 20.0
WRONG_USE = (
    "lm train my.txt --width -1",
    "lm train nothing.txt",
    "lm train --config nothing.toml",
    "lm compare my.txt --models lstmm",
    "lm generate nowhere",
    "lm perplexity nowhere --on my.txt",
)


def seconds_of(command: list[str]) -> float:
    times = []
    for _ in range(9):
        start = time.perf_counter()
        subprocess.run(command, check=False, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        times.append(time.perf_counter() - start)
    return statistics.median(times)


def main() -> None:
    bare = seconds_of([sys.executable, "-c", "pass"])
    helped = seconds_of([sys.executable, "-m", "seqlab", "--help"])
    verdict = "reached" if helped < HELP_TARGET else "MISSED"
    print(f"seqlab --help {helped:.3f} s, bare python {bare:.3f} s (target {HELP_TARGET} s: {verdict})")
    for words in WRONG_USE:
        seconds = seconds_of([sys.executable, "-m", "seqlab", *words.split()])
        verdict = "reached" if seconds < WRONG_USE_TARGET else "MISSED"
        print(f"seqlab {words}: {seconds:.3f} s (target {WRONG_USE_TARGET} s: {verdict})")
    text = load_corpus("shakespeare").read()
    for kind in TOKENIZERS:
        tokenizer = look_up(TOKENIZERS, kind, "tokenizer").fit(cut_text(text), 1024 if kind == "bpe" else None)
        start = time.perf_counter()
        encoded = sum(len(ids) for ids, _ in tokenizer.encode_pieces(cut_text(text)))
        rate = len(text.encode()) / 1e6 / (time.perf_counter() - start)
        wanted = f" (target {ENCODING_TARGET:.0f}: {'reached' if rate >= ENCODING_TARGET else 'MISSED'})"
        print(f"{kind:<6}{rate:8.1f} MB/s, {encoded:,} tokens{wanted if kind in ('byte', 'char') else ''}", flush=True)


if __name__ == "__main__":
    main()
