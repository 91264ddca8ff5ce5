"""The neural bigram against the Kneser–Ney bigram on `brown`: closed vocabulary of 2,000 words, 90/10 by document.

Prints validation perplexities per token (unknown words are one class for both) and the seconds of training.
"""

import itertools
import math
import tempfile
from pathlib import Path

import numpy as np

from seqlab.data.corpora import load_corpus
from seqlab.data.normalise import normalise
from seqlab.workflows.lm.original import part_of
from seqlab.workflows.lm.run import LMRun
from seqlab.workflows.lm.train import train_lm

VOCABULARY = 2_001  # 2,000 words and the unknown class
BUDGET = "30s"


def shuffled_documents(folder: Path) -> tuple[Path, str]:
    """Brown's documents in a random order, lower-cased, and the split that puts whole documents on each side."""
    corpus = load_corpus("brown")
    content = corpus.path.read_bytes()
    edges = [*corpus.documents, len(content)]
    documents = [content[a:b].decode().rstrip("\n") + "\n" for a, b in itertools.pairwise(edges)]
    documents = [normalise(text, ("lower",)).text for text in documents]
    order = np.random.default_rng(0).permutation(len(documents))
    texts = [documents[k].encode() for k in order]
    train = sum(len(text) for text in texts[: len(texts) * 9 // 10])
    path = folder / "brown.txt"
    path.write_bytes(b"".join(texts))
    share = 100 * train / path.stat().st_size
    return path, f"{share:.10f}/{100 - share:.10f}"


def closed_perplexity(run: LMRun, text: str) -> tuple[float, float]:
    table = run.score(text)
    return math.exp((table.nats - table.spelling).mean()), float(table.unknown.mean())


def main() -> None:
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        path, split = shuffled_documents(folder)
        shared = dict(tokenizer="word", vocab_size=VOCABULARY, split=split)
        rows = []
        for name, settings in (
            ("Kneser–Ney bigram (counts)", dict(model="ngram", order=2)),
            ("Kneser–Ney trigram (counts)", dict(model="ngram", order=3)),
            ("neural bigram, GloVe, trained", dict(model="bigram", vectors="glove-6b-50d", budget=BUDGET)),
            ("neural bigram, random start, trained", dict(model="bigram", budget=BUDGET)),
            (
                "neural bigram, GloVe, fixed",
                dict(model="bigram", vectors="glove-6b-50d", train_vectors=False, budget=BUDGET),
            ),
        ):
            run = train_lm(path, out=folder / str(len(rows)), **shared, **settings)
            held_out = part_of(run, "validation")
            perplexity, unknown = closed_perplexity(run, held_out)
            rows.append((name, perplexity, unknown, run.final["seconds"], run.final["step"]))
            ratio = perplexity / rows[0][1]
            print(
                f"{name:40s} {perplexity:8.2f}  {ratio:6.3f} of Kneser–Ney  unknown {unknown:.1%}  "
                f"{rows[-1][3]:5.1f} s, {rows[-1][4]} steps",
                flush=True,
            )


if __name__ == "__main__":
    main()
