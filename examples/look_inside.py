"""Look inside a model: what its heads attend to, how open its gates are.

    python examples/look_inside.py

Taps see any model by stable names, seqlab's and your own; ``seqlab.tap_names(model)`` lists them. Modules of torch that
seqlab knows (nn.GRU, nn.MultiheadAttention, nn.LayerNorm, nn.Embedding …) are seen wherever they stand; a module type
of your own says what it shows in one line. Here one model is untrained
and the other learns for seconds: the point is the looking.
"""

from collections.abc import Collection

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import seqlab
from seqlab.core.taps import LOOKS, Call, Look
from seqlab.models import build_lm

LETTERS = "abcdefgh"
TEXT = "cafcafcafcaf"
STEPS = 300


class Highway(nn.Module):
    """y = g ∘ relu(W x) + (1 − g) ∘ x,  g = σ(G x + b)"""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.gate, self.change = nn.Linear(width, width), nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        g = torch.sigmoid(self.gate(x))
        return g * torch.relu(self.change(x)) + (1 - g) * x


def show_gate(layer: Highway, call: Call, wanted: Collection[str]) -> dict[str, Tensor]:
    """Beside the model's own path: from the module, the arguments of its forward, by name, and its output."""
    return {"gate": torch.sigmoid(layer.gate(call.arguments["x"]))}


LOOKS[Highway] = Look(("gate",), show_gate)  # the registry line


class MyModel(nn.Module):
    """A model of one's own, of torch's modules and the one above: ids (B, T) -> logits (B, T, V)."""

    def __init__(self, letters: int, width: int = 16) -> None:
        super().__init__()
        self.embedding = nn.Embedding(letters, width)
        self.memory = nn.LSTM(width, width, batch_first=True)
        self.highway = Highway(width)
        self.output = nn.Linear(width, letters)

    def forward(self, ids: Tensor) -> Tensor:
        h, _ = self.memory(self.embedding(ids))
        logits: Tensor = self.output(self.highway(h))
        return logits


def look_into_my_model(ids: Tensor) -> None:
    model = MyModel(len(LETTERS))
    print("my model shows", ", ".join(seqlab.tap_names(model)))
    with torch.no_grad(), seqlab.taps(model, "memory.l0.f", "highway.gate") as seen:
        model(ids)
    forget, gate = seen["memory.l0.f"], seen["highway.gate"]  # (B, T, H) each
    print(f"  forget gate open by {forget.mean():.2f} on average, its widest unit by {forget.mean((0, 1)).max():.2f}")
    print(f"  highway gate open by {gate.mean():.2f}")
    with seqlab.taps(model, "memory.l0.hidden", on_path=True) as seen:
        last = F.cross_entropy(model(ids)[:, -2], ids[:, -1])
    gradients = torch.autograd.grad(last, seen.steps("memory.l0.hidden"))
    norms = [gradient.norm().item() for gradient in gradients[-5:-1]]
    print("  what the last letter's loss feels of the hidden vectors 3, 2, 1 and 0 steps before it:")
    print("   ", ", ".join(f"{norm:.4f}" for norm in norms))


def look_into_a_transformer() -> None:
    """It learns to go on with three letters that repeat: the next one stands two before the last."""
    model = build_lm("transformer", len(LETTERS), width=32, depth=2, heads=2, context=32)
    optimiser = torch.optim.Adam(model.parameters(), lr=3e-3)
    for _ in range(STEPS):
        ids = torch.randint(0, len(LETTERS), (16, 3)).repeat(1, 5)
        optimiser.zero_grad()
        loss = F.cross_entropy(model(ids[:, :-1])[0].flatten(0, 1), ids[:, 1:].flatten())
        torch.autograd.backward(loss)
        optimiser.step()
    with torch.no_grad(), seqlab.taps(model.eval(), "*.weights") as seen:
        model(ids_of(TEXT))
    print("a transformer that learned to go on with", TEXT)
    for name, weights in seen.items():  # (B, N, T, S)
        for head, row in enumerate(weights[0, :, -1]):
            most = int(row.argmax())
            back = len(TEXT) - 1 - most
            print(f"  {name}, head {head}: the last letter looks {back} back, at '{TEXT[most]}', by {row[most]:.2f}")


def ids_of(text: str) -> Tensor:
    """(1, T)"""
    return torch.tensor([[LETTERS.index(letter) for letter in text]])


def main() -> None:
    torch.manual_seed(0)
    torch.set_num_threads(1)  # the models are tiny
    look_into_my_model(ids_of(TEXT))
    look_into_a_transformer()


if __name__ == "__main__":
    main()
