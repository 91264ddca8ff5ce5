"""Which preprocessing really helps: a character model of Shakespeare reads an encyclopedia, raw and normalised.

For each step: the flattering figure, the bits that undo it, the honest total, and the paired difference of the total to
the raw text with its 95 % interval. Bits per byte of the original text.
"""

import tempfile
from pathlib import Path

from seqlab.core.reporting import Reporter
from seqlab.data.normalise import parse_steps
from seqlab.data.sources import Text, read_text
from seqlab.evaluation.statistics import compare
from seqlab.workflows.lm.train import train_lm
from seqlab.workflows.sheet.sheet import reader_of, score

BYTES = 500_000
STEPS = ("lower", "digits", "punctuation", "ascii", "nfkc", "lines", "ptb", "prose", "digits,prose")


def main() -> None:
    with tempfile.TemporaryDirectory() as place:
        run = train_lm("shakespeare", tokenizer="char", budget="60s", out=Path(place) / "run")
        text, content = read_text("wikipedia-sample")
        content = content.encode()[:BYTES].decode("utf-8", "ignore")
        text = Text(text.path, text.name, len(content.encode()), "")
        reader = reader_of(run)
        raw = score(reader, text, content, (), Reporter())
        print(f"raw: {raw.figures.bits_per_byte:.4f} bits/byte, {run.final['step']} steps of training")
        print(f"{'step':16s} flattering  restore  honest   difference to raw")
        for steps in STEPS:
            found = score(reader, text, content, parse_steps(steps), Reporter())
            figures = found.figures
            difference = compare(found.blocks, raw.blocks, raw.sizes)
            undo = figures.restoration_bits_per_byte
            print(
                f"{steps:16s} {figures.bits_per_byte - undo:9.4f} {undo:8.4f} {figures.bits_per_byte:8.4f}   "
                f"{difference.value:+.4f} [{difference.interval.low:+.4f}, {difference.interval.high:+.4f}]",
                flush=True,
            )


if __name__ == "__main__":
    main()
