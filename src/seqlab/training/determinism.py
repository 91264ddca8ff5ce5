"""The same bits every time: deterministic kernels, a known number of threads, a generator of one's own."""

import contextlib
from collections.abc import Iterator

import torch

from seqlab.core.eager import use_deterministic_algorithms
from seqlab.core.settings.fields import check_threads


@contextlib.contextmanager
def using_threads(threads: int | None) -> Iterator[None]:
    """So many processor threads inside the block (None: as many as there are now); then as many as before."""
    check_threads(threads)
    former = torch.get_num_threads()
    torch.set_num_threads(threads or former)
    try:
        yield
    finally:
        torch.set_num_threads(former)


@contextlib.contextmanager
def deterministic(threads: int | None) -> Iterator[None]:
    """Deterministic kernels, and random draws that leave torch's own generator as it was."""
    former = torch.are_deterministic_algorithms_enabled()
    with using_threads(threads), torch.random.fork_rng(devices=[]):
        use_deterministic_algorithms(True)
        try:
            yield
        finally:
            use_deterministic_algorithms(former)
