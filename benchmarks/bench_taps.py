"""Taps cost nothing while nobody listens: a model that was listened to against one that never was.

Forward and backward of the small presets, float32, both sides shown to give the same bits and to ask torch for the same
operations first. One thread, and the processor's own time. Target: within 0.97 and 1.03, or as near to 1 as another
model that nobody listened to. What listening itself costs is told for information.

    python benchmarks/bench_taps.py [repetitions]
"""

import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from seqlab import taps
from seqlab.models import build_lm
from timing import verdict

VOCABULARY, BATCH, CONTEXT = 500, 8, 32
LISTENED_TO = {"lstm": "recurrent.l0.*", "transformer": "*.weights"}
NEAR = 0.03


class Operations(TorchDispatchMode):
    """The operations that torch is asked for, in their order."""

    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.names.append(str(func))
        return func(*args, **(kwargs or {}))


def forward_and_backward(model: Any, ids: Tensor) -> Callable[[], Tensor]:
    def run() -> Tensor:
        model.zero_grad()
        logits: Tensor = model(ids)[0]
        F.cross_entropy(logits[:, :-1].flatten(0, 1), ids[:, 1:].flatten()).backward()
        return logits

    return run


def operations(run: Callable[[], Tensor]) -> list[str]:
    with Operations() as record:
        run()
    return record.names


def check_the_same(models: list[Any], sides: list[Callable[[], Tensor]]) -> int:
    """Logits and gradients bit for bit, and the operations one for one; how many they are."""
    logits = [side().detach() for side in sides]
    assert torch.equal(*logits)
    pairs = zip(*(model.parameters() for model in models), strict=True)
    assert all(torch.equal(a.grad, b.grad) for a, b in pairs)
    recorded = [operations(side) for side in sides]
    assert recorded[0] == recorded[1]
    return len(recorded[0])


def listening(model: Any, pattern: str, run: Callable[[], Tensor]) -> Callable[[], None]:
    def listen() -> None:
        with taps(model, pattern):
            run()

    return listen


def alternate_cpu(sides: list[Callable[[], Any]], repetitions: int) -> list[list[float]]:
    """Seconds of the processor for each side, taking turns: others who want it too do not show as much."""
    seconds: list[list[float]] = [[] for _ in sides]
    for repetition in range(2 + repetitions):
        for side, measured in zip(sides, seconds, strict=True):
            start = time.process_time()
            side()
            if repetition >= 2:
                measured.append(time.process_time() - start)
    return seconds


def compare(kind: str, pattern: str, ids: Tensor, repetitions: int) -> None:
    models = [build_lm(kind, VOCABULARY).train() for _ in range(3)]  # never, afterwards, never either
    sides = [forward_and_backward(model, ids) for model in models]
    listen = listening(models[1], pattern, sides[1])
    for _ in range(3):
        listen()
    count = check_the_same(models[:2], sides[:2])
    never, afterwards, other, while_listening = alternate_cpu([*sides, listen], repetitions)
    ratio, noise = (statistics.median(measured) / statistics.median(never) for measured in (afterwards, other))
    reached = abs(ratio - 1) <= max(NEAR, abs(noise - 1))
    print(
        f"  {kind:12} after a listening session ×{ratio:.3f} (another that nobody listened to ×{noise:.3f}), "
        f"{count} operations before and after: {verdict(reached)}"
    )
    cost = statistics.median(while_listening) / statistics.median(never)
    print(f"  {kind:12} while listening to {pattern} ×{cost:.2f}", flush=True)


def main() -> None:
    torch.set_num_threads(1)
    repetitions = int(sys.argv[1]) if len(sys.argv) > 1 else 101
    ids = torch.randint(0, VOCABULARY, (BATCH, CONTEXT), generator=torch.Generator().manual_seed(0))
    print(f"forward and backward of {BATCH} × {CONTEXT} tokens, small presets, medians of {repetitions}")
    for kind, pattern in LISTENED_TO.items():
        compare(kind, pattern, ids, repetitions)


if __name__ == "__main__":
    main()
