"""Decisions made at random, for tests of figures."""

import numpy as np

from seqlab.evaluation.calibration import softmax


def sample(seed: int, n: int, kinds: int, sharpness: float = 2.0) -> tuple[np.ndarray, np.ndarray]:
    """True classes and probabilities that know something of them."""
    draw = np.random.default_rng(seed)
    truth = draw.integers(kinds, size=n)
    logits = draw.standard_normal((n, kinds)) + sharpness * np.eye(kinds)[truth]
    return truth, softmax(logits)


def names_of(kinds: int) -> list[str]:
    return [f"class {k}" for k in range(kinds)]


def one_hot(called: np.ndarray, kinds: int) -> np.ndarray:
    return np.eye(kinds)[called]
