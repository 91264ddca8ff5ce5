"""Did a change of the code make it slower? Two trees, turn by turn, on one machine; ratios above 1 are slower.

    python benchmarks/same_speed.py BEFORE            # BEFORE: a checkout of the other tree

Seconds for a training step in the real loop (lines, checkpoints, progress included), for scoring a text, for writing
text, for a tiny run from beginning to report, and for the command line's first answer. Each figure is the median of
the rounds; the least over the rounds says what the code costs when nobody else wants the machine. Both trees must
give the same losses, or the ratio means nothing.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

ROUNDS = 3
PROGRAM = r"""
import json, sys, time, tempfile
from pathlib import Path
import torch, seqlab
from seqlab.cli.terminal import TerminalReporter
text = sys.argv[1]
found, losses = {}, {}
with tempfile.TemporaryDirectory() as place:
    for kind in ("lstm", "gru", "rnn", "attentive-rnn", "transformer"):
        run = seqlab.train_lm(text, out=Path(place) / kind, model=kind, budget="120steps", eval_every=121,
                              tokenizer="char", reporter=TerminalReporter())
        lines = [line for line in run.metrics if not line.get("final")]
        first, last = lines[20], lines[-2]
        found[f"step {kind}"] = (last["seconds"] - first["seconds"]) / (last["step"] - first["step"])
        losses[kind] = lines[-1]["train_nats_per_token"]
        content = Path(text).read_text()[: 100_000 if kind in ("lstm", "transformer") else 10_000]
        start = time.perf_counter(); table = run.score(content); found[f"score {kind}"] = time.perf_counter() - start
        losses[f"{kind} scored"] = table.total
        if kind in ("lstm", "transformer"):
            start = time.perf_counter(); run.generate("", 400); found[f"write {kind}"] = time.perf_counter() - start
    run = seqlab.train_lm(text, out=Path(place) / "counts", model="ngram", tokenizer="char")
    losses["ngram"] = run.final["test"]["nats"]
    start = time.perf_counter()
    seqlab.train_lm(text, out=Path(place) / "tiny", tokenizer="char", width=16, batch=4, context=8, budget="12steps")
    found["tiny run"] = time.perf_counter() - start
print(json.dumps([found, losses]))
"""
COMMANDS = {"seqlab --help": ["--help"], "seqlab data list": ["data", "list"]}


def run_tree(tree: Path, text: Path) -> tuple[dict[str, float], dict[str, float]]:
    environment = os.environ | {"PYTHONPATH": str(tree / "src")}
    words = [sys.executable, "-c", PROGRAM, str(text)]
    ended = subprocess.run(words, env=environment, capture_output=True, text=True, check=True)
    found, losses = json.loads(ended.stdout)
    for name, command in COMMANDS.items():
        clock = f"import time; s = time.perf_counter(); from seqlab.cli import main\ntry: main({command!r})\nexcept "
        clock += "SystemExit: pass\nimport sys; print(time.perf_counter() - s, file=sys.stderr)"
        told = subprocess.run(
            [sys.executable, "-c", clock], env=environment, capture_output=True, text=True, check=True
        )
        found[name] = float(told.stderr.split()[-1])
    return found, losses


def main() -> None:
    trees = {"before": Path(sys.argv[1]), "now": Path(__file__).parents[1]}
    times: dict[str, list[dict[str, float]]] = {name: [] for name in trees}
    with tempfile.TemporaryDirectory() as place:
        os.environ["SEQLAB_CACHE"] = str(Path(place) / "cache")
        from seqlab.data.corpora import corpus_path

        text = Path(place) / "text.txt"
        text.write_bytes(corpus_path("pydoc").read_bytes()[:150_000])
        for number in range(ROUNDS):
            losses = {}
            for name in list(trees)[:: 1 if number % 2 else -1]:
                found, losses[name] = run_tree(trees[name], text)
                times[name].append(found)
            assert losses["before"] == losses["now"], "the trees do not compute the same"
    print(f"{'':24s}{'before':>10s}{'now':>10s}{'median':>9s}{'least':>8s}   (now / before)")
    for what in times["now"][0]:
        before, now = ([found[what] for found in times[name]] for name in ("before", "now"))
        a, b = statistics.median(before), statistics.median(now)
        print(f"{what:24s}{1000 * a:8.1f} ms{1000 * b:7.1f} ms{b / a:9.3f}{min(now) / min(before):8.3f}")


if __name__ == "__main__":
    main()
