"""The tasks ask what they say, over the lag that they say; a model that can look back learns them."""

import pytest
import torch

from seqlab.core.types import IGNORED
from seqlab.diagnostics.memory_tasks import COPIED, DIGITS, SYMBOLS, TASKS, learn, wilson
from seqlab.models import build_lm


@pytest.mark.parametrize("lag", [3, 4, 10, 57])
def test_copying_asks_for_the_symbols_at_the_beginning(lag: int) -> None:
    ids, targets = TASKS["copy"].make(lag, 40, torch.Generator().manual_seed(0))
    assert ids.shape == targets.shape == (40, lag + COPIED)
    assert torch.equal(targets[:, -COPIED:], ids[:, :COPIED])
    assert (targets[:, :-COPIED] == IGNORED).all()
    assert (ids[:, COPIED:lag] == SYMBOLS).all()
    assert torch.equal(targets[:, lag:], ids[:, :-lag]), "over exactly this lag"
    assert ids.max() < TASKS["copy"].vocab_size


@pytest.mark.parametrize("lag", [2, 3, 10, 57])
def test_adding_asks_for_the_sum_of_two_marked_digits(lag: int) -> None:
    ids, targets = TASKS["adding"].make(lag, 200, torch.Generator().manual_seed(0))
    assert ids.shape == (200, lag + 2)
    marked = (ids[:, :-1] >= DIGITS).nonzero()[:, 1].view(200, 2)
    digits = ids[:, :-1] % DIGITS
    assert torch.equal(targets[:, -1], digits.gather(1, marked).sum(1))
    assert (marked[:, 0] <= 1).all()
    assert (marked[:, 1] >= max(1, (lag + 1) // 2)).all()
    assert (targets[:, :-1] == IGNORED).all()
    assert (ids[:, -1] == 2 * DIGITS).all()


def test_what_is_near_is_learnt_and_chance_is_chance() -> None:
    task = TASKS["adding"]
    model = build_lm("lstm", task.vocab_size, width=32, depth=1, seed=0)
    before = learn(model, task, 3, steps=1, learning_rate=1e-9, examples=300, seed=3)
    assert before.accuracy < 0.4
    after = learn(model, task, 3, steps=250, learning_rate=1e-2, examples=300, seed=3)
    assert after.accuracy > 0.9
    assert after.asked == 300


def test_the_interval_counts_sequences() -> None:
    assert wilson(50, 100, 100) == pytest.approx((0.4038, 0.5962), abs=1e-4)
    narrow, wide = wilson(150, 300, 300), wilson(150, 300, 100)
    assert wide[1] - wide[0] > 1.6 * (narrow[1] - narrow[0])
    assert wilson(10, 10, 10)[1] == 1.0
