"""512 tokens, batch 1, with and without the cache (targets: 10 times as fast for 6 layers of 384, 5 for 4 of 128).

python benchmarks/bench_generation.py
"""

import torch

from seqlab.generation.sampling import Choice, generate
from seqlab.models import build_lm
from timing import alternate, two_threads, verdict

TOKENS, VOCABULARY = 512, 1000
MODELS = [
    (dict(depth=6, width=384, heads=6), "softmax", 10),
    (dict(depth=4, width=128, heads=4), "softmax", 5),
    (dict(depth=4, width=128, heads=4), "separable", 5),
    (dict(depth=4, width=128, heads=4), "random_features", 5),
]


def main() -> None:
    two_threads()
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


if __name__ == "__main__":
    main()
