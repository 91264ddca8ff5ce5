"""What one minute buys: the default against named recipes, same text, same time, same machine, one run.

Trains on the first 900,000 bytes of `shakespeare` and scores the next 100,000 (nats per character, every token
counted once). Target: the default reaches 1.80 or less within 60 s of training on 2 cores.

    python benchmarks/bench_default_quality.py [BUDGET] [--only-default]
"""

import sys
import tempfile
from pathlib import Path

import seqlab
from seqlab.core.settings.training import size_for_budget
from texts import first_million_bytes

TARGET = 1.80
GPT2_STYLE = dict(
    model="transformer", tokenizer="char", width=128, depth=4, heads=4, positions="learned", context=64, batch=12,
    learning_rate=1e-3, tied=True,
)  # fmt: skip
PLAIN_LSTM = dict(
    model="lstm", tokenizer="char", width=256, depth=1, context=64, batch=64, learning_rate=6e-3, dropout=0.0
)
RECIPES: dict[str, dict[str, object]] = {
    "seqlab default": {},
    "seqlab --model gru": {"model": "gru"},
    "seqlab --model transformer": {"model": "transformer"},
    "seqlab --model rnn": {"model": "rnn"},
    "seqlab --tokenizer char": {"tokenizer": "char"},
    "plain character LSTM of width 256": PLAIN_LSTM,
    "GPT-2-style recipe (4 layers of 128, context 64)": GPT2_STYLE,
}


def main() -> None:
    words = [w for w in sys.argv[1:] if not w.startswith("--")]
    budget = words[0] if words else "60s"
    recipes = dict(list(RECIPES.items())[:1]) if "--only-default" in sys.argv else RECIPES
    text = first_million_bytes()
    print(f"budget {budget} (size {size_for_budget(budget)}), nats per character on the held-out last tenth:")
    default = None
    for name, flags in recipes.items():
        with tempfile.TemporaryDirectory() as folder:
            run = seqlab.train_lm(text, out=Path(folder) / "run", split="90/10", budget=budget, **flags)
            final = run.final
        assert final is not None
        nats = final["validation"]["nats_per_character"]
        default = default or nats
        print(
            f"  {nats:.4f}  {nats / default:.3f} of default  {final['seconds']:5.1f} s  {final['tokens']:>10,} tokens  "
            f"{run.record['parameters']:>9,} parameters  {name}",
            flush=True,
        )
    if budget == "60s":
        print(f"target {TARGET}: {'reached' if default and default <= TARGET else 'MISSED'}")


if __name__ == "__main__":
    main()
