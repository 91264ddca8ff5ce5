"""Generation: with the cache against without it, and sixteen prompts side by side against one.

512 tokens, batch 1, cached: 10 times as fast as uncached for 6 layers of 384, 5 for 4 of 128. Sixteen prompts of
different lengths: 5 times the tokens per second of one.

python benchmarks/bench_generation.py
"""

import os
from typing import Any

os.environ.setdefault("GOMP_SPINCOUNT", "1000")  # as `import seqlab` does; it counts only before torch is loaded

import torch

from seqlab.generation.sampling import Choice, generate, generate_batch
from seqlab.models import build_lm
from timing import alternate, two_threads, verdict

TOKENS, VOCABULARY = 512, 1000
MODELS = [
    (dict(depth=6, width=384, heads=6), "softmax", 10),
    (dict(depth=4, width=128, heads=4), "softmax", 5),
    (dict(depth=4, width=128, heads=4), "separable", 5),
    (dict(depth=4, width=128, heads=4), "random_features", 5),
]
ROWS, BATCH_TOKENS, BATCH_TARGET = 16, 256, 5
SIDE_BY_SIDE: list[tuple[str, dict[str, Any]]] = [
    ("lstm", dict(width=256)),  # small
    ("lstm", dict(width=384)),  # large
    ("gru", dict(width=256)),
    ("gru", dict(width=384)),
    ("transformer", dict(depth=4, width=128, heads=4, context=1024)),
    ("transformer", dict(depth=6, width=384, heads=6, context=1024)),
]


def main() -> None:
    two_threads()
    cached_against_uncached()
    many_against_one()


def cached_against_uncached() -> None:
    print(f"cached against uncached generation of {TOKENS} tokens, Transformer, context 1,024")
    for sizes, attention, target in MODELS:
        lm = build_lm("transformer", VOCABULARY, context=1024, attention=attention, **sizes).eval()

        def write(cached: bool, lm: object = lm) -> list[int]:
            stream = torch.Generator().manual_seed(0)
            return list(generate(lm, [VOCABULARY], TOKENS, Choice(1.0), stream, cached=cached))  # type: ignore[arg-type]

        fast, slow = alternate([lambda w=write: w(True), lambda w=write: w(False)], 3, warm_up=0)  # type: ignore[misc]
        print(
            f"  {sizes['depth']} layers of {sizes['width']}, {attention}: {slow / fast:.1f} times as fast "
            f"({TOKENS / fast:.0f} tokens/s), target {target}: {verdict(slow >= target * fast)}",
            flush=True,
        )


def many_against_one() -> None:
    print(f"{ROWS} prompts of 9 to 69 tokens against one of 37, {BATCH_TOKENS} tokens each")
    drawn = torch.Generator().manual_seed(0)
    prompts = [[VOCABULARY, *torch.randint(VOCABULARY, (8 + 4 * k,), generator=drawn).tolist()] for k in range(ROWS)]
    for kind, sizes in SIDE_BY_SIDE:
        lm = build_lm(kind, VOCABULARY, **sizes).eval()

        def write(chosen: list[list[int]], lm: object = lm) -> list[list[int]]:
            streams = [torch.Generator().manual_seed(k) for k in range(len(chosen))]
            return generate_batch(lm, chosen, BATCH_TOKENS, Choice(1.0), streams)  # type: ignore[arg-type]

        one, many = alternate([lambda w=write: w(prompts[7:8]), lambda w=write: w(prompts)], 5, warm_up=1)  # type: ignore[misc]
        ratio = ROWS * one / many
        print(
            f"  {kind}, width {sizes['width']}: {ratio:.1f} times the tokens/s ({BATCH_TOKENS / one:.0f} and "
            f"{ROWS * BATCH_TOKENS / many:.0f}), target {BATCH_TARGET}: {verdict(ratio >= BATCH_TARGET)}",
            flush=True,
        )


if __name__ == "__main__":
    main()
