"""What counts are worth to a network: quality for a time, by kind of model and text, and what they cost in a step.

    python benchmarks/bench_guide.py headline          # first million bytes of `shakespeare`: 5 s and 60 s, three seeds
    python benchmarks/bench_guide.py ten               # the same text, 10 minutes
    python benchmarks/bench_guide.py hour              # the same text, an hour
    python benchmarks/bench_guide.py kinds             # which kind of model wins at 5 s, 60 s and 10 minutes
    python benchmarks/bench_guide.py texts             # whole `shakespeare`, `brown`, source code; 60 s
    python benchmarks/bench_guide.py cost              # a step with and without it, vocabularies up to 4,096

No setting was chosen by these held-out texts, but on the last tenth of the training part (docs/log.md). Where the
split is 90/10 there is no other part that could choose the best step: the figure there is that of the last step of a
training that the held-out part neither stops nor steers, and what a person would get (the best step) stands beside it.
"""

import argparse
import json
import sysconfig
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

import seqlab
from seqlab.core.reporting import Reporter
from seqlab.data.corpora import load_corpus
from seqlab.evaluation.baselines import baselines
from seqlab.runs import train as runs_train
from seqlab.runs.run import load_own
from seqlab.runs.session import Session, begin
from seqlab.training.checkpoint import without_prefix
from seqlab.training.loop import Position, training_step
from seqlab.training.plan import make_plan
from seqlab.workflows.lm.measure import score_part
from texts import first_million_bytes
from timing import alternate, verdict

CHARACTERS: dict[str, Any] = {"tokenizer": "char"}
MOST_OF_A_STEP = 4 / 3


def trained(text: Any, **flags: Any) -> dict[str, Any]:
    """The last line of a training, with its settings."""
    with tempfile.TemporaryDirectory() as folder:
        run = seqlab.train_lm(text, out=Path(folder) / "run", **flags)
        assert run.final is not None
        size, tokenizer = run.settings.model.size, run.settings.tokenizer.kind
        return run.final | {"size": size, "tokenizer": tokenizer, "unchosen": of_last_step(run)}


def of_last_step(run: Any) -> float:
    """Nats per character of the validation text by the weights of the last step, which no held-out text chose."""
    tensors, _ = load_own(run.files, run.files.checkpoint_file)
    model = run.task.restore(run.settings, run.kept, without_prefix("model/", tensors), "the checkpoint").eval()
    data = run.task.prepare(run.settings, Reporter())
    return score_part(model, data, "validation", Reporter()).figures.nats_per_character


def line(label: str, final: dict[str, Any], figure: float) -> str:
    took = f"{final['seconds']:6.0f} s {final['step']:>7,} steps of {final['tokens']:>11,} tokens"
    return f"  {label:<44} {figure:.4f}  {took}  {final['size']}, {final['tokenizer']}"


def line_of_last_step(label: str, final: dict[str, Any]) -> str:
    best = f"best step {final['best_step']:,}: {final['validation']['nats_per_character']:.4f}"
    return f"{line(label, final, final['unchosen'])}; {best}"


# --------------------------------------------------------------------------- one text, several budgets


def budgets(table: dict[str, float], seeds: int) -> None:
    text = first_million_bytes()
    print("first 1,000,000 bytes of shakespeare, 90/10, nats per character of the held-out tenth, last step:")
    for budget, target in table.items():
        found = []
        for seed in range(seeds):
            final = trained(text, split="90/10", budget=budget, seed=seed, patience=0)
            found.append(final["unchosen"])
            print(line_of_last_step(f"default, --budget {budget} --seed {seed}", final), flush=True)
        mean = sum(found) / len(found)
        print(f"  {budget}: mean {mean:.4f}, target {target}: {verdict(mean <= target)}", flush=True)


def kinds() -> None:
    text = first_million_bytes()
    print("first 1,000,000 bytes of shakespeare, 90/10, nats per character of the held-out tenth, last step:")
    for budget in ("5s", "60s", "10m"):
        for model in ("lstm", "gru", "rnn", "transformer"):
            for guide in ("ngram", "none"):
                final = trained(text, split="90/10", budget=budget, model=model, guide=guide, patience=0)
                print(line_of_last_step(f"--model {model} --guide {guide} --budget {budget}", final), flush=True)


# --------------------------------------------------------------------------- several texts


def source_code() -> Path:
    """The modules of the standard library without its tests, in the order of their names."""
    root = Path(sysconfig.get_paths()["stdlib"])
    left_out = {"site-packages", "test", "tests", "idle_test"}
    files = sorted(p for p in root.rglob("*.py") if not left_out & set(p.relative_to(root).parts))
    path = Path(tempfile.gettempdir()) / "seqlab-bench-source-code.txt"
    path.write_text("\n".join(p.read_text("utf-8", "ignore") for p in files), encoding="utf-8", newline="")
    return path


def texts() -> None:
    places = {"shakespeare": load_corpus("shakespeare").path, "brown": load_corpus("brown").path}
    for name, path in (places | {"source code": source_code()}).items():
        content = path.read_bytes().decode()
        print(f"{name}, {len(content.encode()):,} bytes, 80/10/10, 60 s, bits per byte of the test text:")
        for guide in ("ngram", "none"):
            final = trained(path, budget="60s", guide=guide)
            reading = f"; reading on: {final['reading_on']['bits_per_byte']:.4f}"
            print(line(f"default, --guide {guide}", final, final["test"]["bits_per_byte"]) + reading, flush=True)
        cut = 8 * len(content) // 10, 9 * len(content) // 10
        for found in baselines(content[: cut[0]], content[cut[1] :], orders=(5, 7)):
            print(f"  {found.name:<44} {found.bits_per_byte:.4f}  {found.note}", flush=True)


# --------------------------------------------------------------------------- what it costs


def session_of(folder: Path, flags: dict[str, Any]) -> Session:
    """A training that is ready and has not begun."""
    sessions: list[Session] = []

    def remember(*arguments: Any) -> Session:
        sessions.append(begin(*arguments))
        return sessions[-1]

    runs_train.begin = remember  # type: ignore[assignment]
    try:
        seqlab.train_lm(first_million_bytes(), out=folder, budget="1steps", split="90/10", **flags)
    finally:
        runs_train.begin = begin
    return sessions[0]


def stepping(session: Session) -> Callable[[], None]:
    """Something that makes one whole training step, batch included, each time it is called."""
    model, learning, optimiser = session.model.train(), session.learning, session.optimiser
    assert learning is not None
    assert optimiser is not None
    plan, position = make_plan(session.settings.training, 1000), Position()

    def step() -> None:
        training_step(model, learning.objective, optimiser, learning.batches(position.step), plan, position, 1e-4)

    return step


def cost() -> None:
    torch.set_num_threads(2)
    print("milliseconds of a training step, batch included, median of 40 in turns (target: at most a third more):")
    for model in ("lstm", "gru", "transformer"):
        for vocabulary in ({"tokenizer": "char"}, {"vocab_size": 1000}, {"vocab_size": 4096}):
            with tempfile.TemporaryDirectory() as folder:
                sides = [
                    stepping(session_of(Path(folder) / guide, {"model": model, "guide": guide} | vocabulary))
                    for guide in ("ngram", "none")
                ]
                led, alone = alternate(sides, 40, warm_up=5)
            label = f"{model}, {json.dumps(vocabulary)}"
            times = f"{1e3 * led:6.1f} {1e3 * alone:6.1f}  ×{led / alone:.2f}"
            print(f"  {label:<44} {times}: {verdict(led <= MOST_OF_A_STEP * alone)}", flush=True)


PARTS: dict[str, Callable[[], None]] = {
    "headline": lambda: budgets({"5s": 1.61, "60s": 1.560}, seeds=3),
    "ten": lambda: budgets({"10m": 1.49}, seeds=1),
    "hour": lambda: budgets({"1h": 1.46}, seeds=1),
    "kinds": kinds,
    "texts": texts,
    "cost": cost,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", choices=PARTS, default=["headline", "texts", "cost"])
    for part in parser.parse_args().parts:
        begun = time.perf_counter()
        PARTS[part]()
        print(f"({part}: {time.perf_counter() - begun:.0f} s)\n", flush=True)


if __name__ == "__main__":
    main()
