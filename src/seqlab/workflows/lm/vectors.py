"""Word vectors as the start of a model: found, fitted in, and what they cover told."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from seqlab.core.errors import UsageError
from seqlab.core.reporting import Reporter
from seqlab.core.settings.lm import ModelSettings
from seqlab.data.prepare import Part
from seqlab.data.tokenizers import Tokenizer, WordTokenizer
from seqlab.data.vectors import WordVectors, load_vectors, refuse_without_match


def read_vectors(model: ModelSettings, tokenizer: Tokenizer, train: Part, reporter: Reporter) -> WordVectors | None:
    """The vectors that `--vectors` names, one row for each word of the vocabulary; None if none are asked for."""
    source = model.vectors
    if source is None:
        return None
    if not isinstance(tokenizer, WordTokenizer):
        raise UsageError(f"--vectors {source} are vectors of words; take --tokenizer word")
    with reporter.downloading() as progress:
        vectors = load_vectors(source, tokenizer.words, width=model.vector_width, progress=progress)
    refuse_without_match(vectors, tokenizer.words)
    counts = np.bincount(train.ids, minlength=tokenizer.vocab_size)[1:].tolist()
    kept = "are trained further" if model.train_vectors else "stay as they are"
    reporter.note(
        f"{vectors.coverage(counts)}; the vectors {kept}; words without one, the unknown class and the begin id "
        "start from random vectors of the same spread"
    )
    return vectors


def start_from_vectors(model: Any, vectors: WordVectors) -> None:
    """Id 0 is the unknown class, which has no vector."""
    matrix = np.concatenate([np.zeros((1, vectors.matrix.shape[1]), np.float32), vectors.matrix])
    known = np.concatenate([[False], ~vectors.missing])
    model.set_vectors(torch.from_numpy(matrix), torch.from_numpy(known))
