"""Words that pushed a decision: exact by leaving out, complete by integrated gradients."""

from collections.abc import Sequence

import numpy as np
import pytest
import torch

from seqlab.diagnostics.attribution import integrated_gradients, leave_one_out
from seqlab.models.encoder_classifier import GRUClassifier, TransformerClassifier

SCORES = {"good": 2.0, "bad": -3.0, "not": -0.5}


def counted(texts: Sequence[str]) -> np.ndarray:
    """z of two classes by adding up words."""
    z = [sum(SCORES.get(word, 0.0) for word in text.split()) for text in texts]
    return np.stack([np.zeros(len(z)), np.array(z)], 1)


def test_leaving_out_gives_each_word_its_own_score_back() -> None:
    text = "not good and bad"
    spans = [(0, 3), (4, 8), (9, 12), (13, 16)]
    found = leave_one_out(counted, text, spans, 1, 0)
    assert found.values == pytest.approx([-0.5, 2.0, 0.0, -3.0])
    assert leave_one_out(counted, text, spans, 0, 1).values == pytest.approx([0.5, -2.0, 0.0, 3.0])
    assert found.spans == tuple(spans)


def test_of_a_linear_model_integrated_gradients_are_exact() -> None:
    weights = torch.randn(5, 3, dtype=torch.float64)
    x = torch.randn(7, 5, dtype=torch.float64)
    pushes, gap = integrated_gradients(lambda x, lengths: (x @ weights).sum(1), x, 2, 0)
    assert pushes == pytest.approx((x @ (weights[:, 2] - weights[:, 0])).numpy(), abs=1e-12)
    assert gap < 1e-12


@pytest.mark.parametrize("kind", ["gru", "transformer"])
def test_pushes_add_up_to_the_change_of_the_margin(kind: str) -> None:
    torch.manual_seed(1)
    model = GRUClassifier(3, 20, 8) if kind == "gru" else TransformerClassifier(3, 20, 8, 2, 2)
    model = model.double().eval()
    x = torch.randn(11, 8, dtype=torch.float64)
    coarse, fine = (integrated_gradients(model.decide, x, 0, 2, points=points) for points in (16, 512))
    with torch.no_grad():
        z = model.decide(torch.stack([torch.zeros_like(x), x]), torch.tensor([11, 11]))
    change = float((z[1, 0] - z[1, 2]) - (z[0, 0] - z[0, 2]))
    assert abs(fine[0].sum() - change) == pytest.approx(fine[1], abs=1e-9)
    assert fine[1] < 1e-3 * max(1.0, abs(change))
    assert fine[1] <= coarse[1] + 1e-12


def test_the_plain_definition_agrees() -> None:
    """A mean of gradients at the midpoints, written as a loop."""
    torch.manual_seed(2)
    model = GRUClassifier(2, 20, 6).double().eval()
    x = torch.randn(5, 6, dtype=torch.float64)
    total = torch.zeros_like(x)
    for k in range(10):
        point = ((k + 0.5) / 10 * x)[None].clone().requires_grad_()
        z = model.decide(point, torch.tensor([5]))
        (z[0, 1] - z[0, 0]).backward()
        total += point.grad[0]
    expected = ((x * total).sum(-1) / 10).numpy()
    found, _ = integrated_gradients(model.decide, x, 1, 0, points=10)
    assert found == pytest.approx(expected, abs=1e-12)


def test_of_a_very_long_text_few_are_held_at_a_time_and_the_middle_has_no_push() -> None:
    words = ["good"] * 3_000
    text = " ".join(words)
    spans = [(5 * k, 5 * k + 4) for k in range(len(words))]
    asked: list[int] = []

    def listened(texts: Sequence[str]) -> np.ndarray:
        asked.append(sum(map(len, texts)))
        return counted(texts)

    found = leave_one_out(listened, text, spans, 1, 0)
    assert max(asked) <= 5_000_000
    assert sum(asked) <= 401 * len(text)
    assert found.values[:200] == pytest.approx([2.0] * 200)
    assert found.values[-200:] == pytest.approx([2.0] * 200)
    assert not found.values[200:-200].any()
