"""A text larger than the memory it is given: what stays in memory while it is split, encoded and trained on.

Writes GIGABYTES of random words, trains a few steps on it in a process of its own, and samples that process's
anonymous memory (what cannot be dropped under pressure; mapped files can). The same on a text half as long: the
difference is what grows with the text (the search for shared passages keeps a bounded number of hashes).

    python benchmarks/bench_large_text.py [GIGABYTES]
"""

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

WORDS = 50_000
FLAGS = (
    "--tokenizer byte --model gru --width 32 --batch 8 --context 32 --budget 20steps --split 99.8/0.1/0.1 --threads 1"
)


def write_words(path: Path, size: int) -> None:
    draw = np.random.default_rng(0)
    lexicon = np.array(["".join(draw.choice(list("etaoinshrdlu"), draw.integers(2, 10))) for _ in range(WORDS)])
    with path.open("w") as file:
        while file.tell() < size:
            file.write(" ".join(lexicon[draw.integers(0, WORDS, 100_000)]) + "\n")


def anonymous_megabytes(pid: int) -> float:
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return 0.0
    return next((int(line.split()[1]) / 1024 for line in status.split("\n") if line.startswith("RssAnon")), 0.0)


def peak_of_training(folder: Path, size: int) -> tuple[float, float]:
    text = folder / f"{size}.txt"
    write_words(text, size)
    command = [sys.executable, "-m", "seqlab", "lm", "train", str(text), "--out", str(folder / f"run{size}")]
    environment = os.environ | {"SEQLAB_CACHE": str(folder / "cache")}
    start, peak = time.perf_counter(), 0.0
    process = subprocess.Popen(
        [*command, *FLAGS.split()], env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    while process.poll() is None:
        peak = max(peak, anonymous_megabytes(process.pid))
        time.sleep(0.02)
    assert process.returncode == 0
    return peak, time.perf_counter() - start


def main() -> None:
    size = int(float(sys.argv[1] if len(sys.argv) > 1 else "1") * 1e9)
    with tempfile.TemporaryDirectory() as folder:
        half, _ = peak_of_training(Path(folder), size // 2)
        large, seconds = peak_of_training(Path(folder), size)
    grows = (large - half) * 1e6 / (size / 2)
    print(f"text of {size / 1e6:,.0f} MB: peak anonymous memory {large:,.0f} MB, {large * 1e6 / size:.2f} of its size")
    print(f"text of {size / 2e6:,.0f} MB: peak {half:,.0f} MB; what grows with the text: {grows:.2f} of its size")
    print(f"from text to finished run in {seconds:.0f} s ({size / 1e6 / seconds:.0f} MB/s)")


if __name__ == "__main__":
    main()
