"""The gradient doctor: seconds for a long lag curve, and what watching costs a training.

python benchmarks/bench_diagnose.py [curves] [looks] [watching]
"""

import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import torch

from seqlab.diagnostics.gradient_flow import gradient_flow, lag_curves, last_losses
from seqlab.models import build_lm
from seqlab.workflows.lm.train import train_lm
from seqlab.workflows.lm.watching import watched_gradients
from timing import alternate, two_threads, verdict

LENGTH, WIDTH, SEQUENCES = 500, 256, 16
TARGET_SECONDS, TARGET_SHARE = 10.0, 0.05


def long_curves() -> None:
    ids = torch.randint(0, 256, (SEQUENCES, LENGTH + 1), generator=torch.Generator().manual_seed(0))
    for kind in ("rnn", "gru", "lstm", "attentive-rnn", "transformer"):
        sizes: dict[str, Any] = {"context": LENGTH} if kind in ("attentive-rnn", "transformer") else {}
        model = build_lm(kind, 256, width=WIDTH, depth=1, **sizes).double().eval()
        begun = time.perf_counter()
        lag_curves(model, *last_losses(model, ids))
        told(f"{kind}, {SEQUENCES} sequences, T = {LENGTH}, H = {WIDTH}, float64", time.perf_counter() - begun)
    module = torch.nn.GRU(WIDTH, WIDTH, batch_first=True)
    begun = time.perf_counter()
    gradient_flow(module, torch.randn(1, LENGTH, WIDTH))
    told("torch.nn.GRU, whole Jacobian of one sequence, float32", time.perf_counter() - begun)


def told(what: str, seconds: float) -> None:
    reached = verdict(seconds <= TARGET_SECONDS)
    print(f"{what}: {seconds:.1f} s (target ≤ {TARGET_SECONDS:g}): {reached}", flush=True)


def watching() -> None:
    """The same steps with and without a look every hundred, in turns."""
    for kind in ("gru", "lstm", "transformer"):

        def trained(every: int) -> None:
            with tempfile.TemporaryDirectory() as folder:
                how: dict[str, Any] = dict(model=kind, budget="300steps", eval_every=300, watch_gradients=every)  # noqa: B023
                run = train_lm("pydoc", out=Path(folder) / "run", threads=2, **how)
                spent.setdefault(every, []).append(run.final["seconds"])  # noqa: B023

        spent: dict[int, list[float]] = {}
        alternate([lambda: trained(0), lambda: trained(100)], 3, warm_up=0)
        share = statistics.median(spent[100]) / statistics.median(spent[0]) - 1
        reached = verdict(share <= TARGET_SHARE)
        print(f"{kind}: --watch-gradients 100 costs {share:+.1%} of the time (target ≤ 5 %): {reached}", flush=True)


def one_look() -> None:
    """A look by itself beside a step of the same model: less is left to chance than in whole trainings."""
    for kind in ("gru", "lstm", "transformer"):
        with tempfile.TemporaryDirectory() as folder:
            run = train_lm("pydoc", out=Path(folder) / "run", model=kind, budget="60steps", eval_every=60, threads=2)
            two_threads()
            ids = torch.randint(0, run.tokenizer.vocab_size, (5000,)).numpy()
            spent = []
            for _ in range(9):
                begun = time.perf_counter()
                watched_gradients(run.model, ids, run.tokenizer.begin_id)
                spent.append(time.perf_counter() - begun)
            look, step = statistics.median(spent), run.final["seconds"] / 60
            share = look / step / 100
            said = (
                f"{kind}: a look takes {1e3 * look:.0f} ms, a step {1e3 * step:.0f} ms: {share:.1%} of a hundred steps"
            )
            print(f"{said} (target ≤ 5 %): {verdict(share <= TARGET_SHARE)}", flush=True)


if __name__ == "__main__":
    two_threads()
    for name in sys.argv[1:] or ("curves", "looks", "watching"):
        {"curves": long_curves, "looks": one_look, "watching": watching}[name]()
