"""How much of a training step is model and optimiser, and how much is everything around it.

Runs the real loop (batches from disk, logging, metrics, checkpoints, progress) for N steps, and the same N steps as
bare forward, backward, clip and optimiser on batches held in memory. The share is bare / real; target 0.90 or more.
Both sides are first shown to end with the same weights.
"""

import tempfile
import time
from pathlib import Path
from typing import Any

import torch

import seqlab
from seqlab.cli.terminal import TerminalReporter
from seqlab.core.seeding import seed_dropout
from seqlab.core.settings.fields import filled
from seqlab.core.state import detach
from seqlab.models.build import build_lm_from_settings
from seqlab.models.guided import Guide
from seqlab.runs import train as runs_train
from seqlab.runs.session import Session, begin
from seqlab.training.objectives import sum_of_nats
from seqlab.training.optim import optimiser_for, set_learning_rate
from seqlab.training.plan import make_plan
from texts import first_million_bytes

STEPS = 400  # logged every other step, as in a run of a minute every fifth
TARGET = 0.90
REPEATS = 2


def real_run(kind: str, folder: Path) -> tuple[Session, float]:
    sessions: list[Session] = []

    def remember(*args: Any) -> Session:
        sessions.append(begin(*args))
        return sessions[-1]

    runs_train.begin = remember  # type: ignore[assignment]
    try:
        seqlab.train_lm(
            first_million_bytes(), out=folder, model=kind, budget=f"{STEPS}steps", eval_every=STEPS + 1, dropout=0.0,
            split="90/10", reporter=TerminalReporter(),
        )  # fmt: skip
    finally:
        runs_train.begin = begin
    lines = [line for line in seqlab.load(folder).metrics if not line.get("final")]
    # The last line includes the one validation at the end; the speed is taken over the steps before it.
    first, last = lines[4], lines[-2]
    return sessions[0], (last["seconds"] - first["seconds"]) / (last["step"] - first["step"])


def bare_steps(session: Session) -> tuple[Any, float]:
    """Forward, backward, clip and step, on batches already in memory, with the rows of the guide."""
    seed_dropout(0)
    guide = Guide(session.data.folded.model)
    model = build_lm_from_settings(session.settings, session.data.tokenizer.vocab_size, guide).train()
    training, learning = session.settings.training, filled(session.learning)
    optimiser = optimiser_for(model, training)
    batches: list[Any] = [learning.batches(k) for k in range(STEPS)]
    schedule = make_plan(training, STEPS).schedule
    state, start = None, 0.0
    for k, batch in enumerate(batches):
        if k == 5:
            start = time.perf_counter()
        logits, state = model(batch.inputs, None if batch.fresh else state, batch.guide)
        state = detach(state)
        (sum_of_nats(logits, batch.targets) / batch.count).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), training.clip)
        set_learning_rate(optimiser, schedule(k))
        optimiser.step()
        optimiser.zero_grad(set_to_none=True)
    return model, (time.perf_counter() - start) / (STEPS - 5)


def main() -> None:
    for kind in ("lstm", "gru", "rnn", "transformer"):
        shares = []
        for _ in range(REPEATS):
            with tempfile.TemporaryDirectory() as folder:
                session, real = real_run(kind, Path(folder) / "run")
            model, bare = bare_steps(session)
            same = all(torch.equal(a, b) for a, b in zip(model.parameters(), session.model.parameters(), strict=True))
            assert same, "the bare steps do not compute what the loop computes"
            shares.append(bare / real)
        mean = sum(shares) / REPEATS
        verdict = "reached" if mean >= TARGET else "MISSED"
        each = ", ".join(f"{share:.3f}" for share in shares)
        print(
            f"{kind:<12} inside model and optimiser {mean:.3f} of a step ({each}; target {TARGET}: {verdict})",
            flush=True,
        )


if __name__ == "__main__":
    main()
