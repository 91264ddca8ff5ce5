"""A model of your own: one file and one registry line.

    python examples/own_model.py my.txt

Every language model is called as ``logits, state = lm(ids, state)``: ids (B, T) in 0…V, where V is the begin
id, to logits (B, T, V). State in, state out: feeding a text in pieces gives the same logits as feeding it whole. A
state of one's own is a dataclass whose tensors have the batch first; seqlab then cuts, joins, reorders and saves it.
Training, exact resume, generation, scoring and the report then work as for the models that come with seqlab.
"""

import sys
from dataclasses import dataclass

import torch
from torch import Tensor, nn

import seqlab
from seqlab.core.registry import MODELS
from seqlab.core.state import BatchFirstState
from seqlab.core.traits import Traits


@dataclass(frozen=True)
class LastInputs(BatchFirstState):
    """The last K−1 inputs of every layer."""

    inputs: Tensor  # (B, depth, D, K−1)


class CausalConvolutionLM(nn.Module):
    """x ← x + relu(Σ_k W_k x_{t−k} + b), `depth` times."""

    traits = Traits(carries_state=True)
    KERNEL = 4

    def __init__(self, vocab_size: int, width: int, depth: int, *, dropout: float = 0.0) -> None:
        super().__init__()
        self.vocab_size, self.width = vocab_size, width
        self.embedding = nn.Embedding(vocab_size + 1, width)
        self.layers = nn.ModuleList(nn.Conv1d(width, width, self.KERNEL) for _ in range(depth))
        self.dropout = nn.Dropout(dropout)
        self.output = nn.Linear(width, vocab_size)

    def forward(self, ids: Tensor, state: LastInputs | None = None) -> tuple[Tensor, LastInputs]:
        x = self.embedding(ids).transpose(1, 2)  # (B, D, T)
        before = self.KERNEL - 1
        if state is None:
            state = LastInputs(x.new_zeros(len(ids), len(self.layers), self.width, before))
        last = []
        for layer, past in zip(self.layers, state.inputs.unbind(1), strict=True):
            seen = torch.cat([past, x], dim=2)
            last.append(seen[:, :, -before:])
            x = x + self.dropout(torch.relu(layer(seen)))
        return self.output(x.transpose(1, 2)), LastInputs(torch.stack(last, 1))


MODELS["convolution"] = f"{__name__}:CausalConvolutionLM"  # the registry line


if __name__ == "__main__":
    budget = sys.argv[2] if len(sys.argv) > 2 else "60s"
    run = seqlab.train_lm(sys.argv[1], model="convolution", width=192, depth=4, budget=budget)
    print(f"{run.folder}: {run.metrics[-1]['validation']['bits_per_byte']:.3f} bits per byte")
    print(run.generate("", tokens=200, temperature=0.8))
