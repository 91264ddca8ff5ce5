"""Separate random streams, so that evaluating or sampling more often never changes training.

One seed per run; each purpose draws from a generator of its own. Dropout alone uses torch's default
generator, because torch's layers do; it is seeded here and saved in every checkpoint.
"""

import contextlib
import hashlib
from collections.abc import Iterator

import numpy as np
import torch


def derived_seed(seed: int, *purpose: str | int) -> int:
    """A 63-bit seed for one purpose, for example ``derived_seed(7, "order", epoch)``."""
    words = "/".join(str(word) for word in (seed, *purpose))
    return int.from_bytes(hashlib.sha256(words.encode()).digest()[:8], "little") >> 1


def torch_generator(seed: int, *purpose: str | int) -> torch.Generator:
    return torch.Generator().manual_seed(derived_seed(seed, *purpose))


def numpy_generator(seed: int, *purpose: str | int) -> np.random.Generator:
    return np.random.default_rng(derived_seed(seed, *purpose))


@contextlib.contextmanager
def initialising(seed: int) -> Iterator[None]:
    """Inside, torch's default generator draws the first weights of this seed; afterwards it is as it was."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(derived_seed(seed, "initialisation"))
        yield


def seed_dropout(seed: int) -> None:
    torch.manual_seed(derived_seed(seed, "dropout"))
