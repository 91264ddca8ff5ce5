"""A model of your own: one file and one registry line.

    python examples/own_model.py my.txt

Every language model is called as ``logits, state = lm(ids, state)``: ids (B, T) in 0…V, where V is the begin
id, to logits (B, T, V). State in, state out: feeding a text in pieces gives the same logits as feeding it whole.
Training, exact resume, generation, scoring and the report then work as for the models that come with seqlab.
"""

import sys

import torch
from torch import Tensor, nn

import seqlab
from seqlab.core.registry import MODELS


class CausalConvolutionLM(nn.Module):
    """x ← x + relu(Σ_k W_k x_{t−k} + b), `depth` times; the state is the last K−1 inputs of every layer.

    The state of layer l has torch's recurrent layout (1, B, (K−1)·D), so that seqlab can carry and save it.
    """

    carries_state = True
    KERNEL = 4

    def __init__(self, vocab_size: int, width: int, depth: int, *, dropout: float = 0.0) -> None:
        super().__init__()
        self.vocab_size, self.width = vocab_size, width
        self.embedding = nn.Embedding(vocab_size + 1, width)
        self.layers = nn.ModuleList(nn.Conv1d(width, width, self.KERNEL) for _ in range(depth))
        self.dropout = nn.Dropout(dropout)
        self.output = nn.Linear(width, vocab_size)

    def forward(self, ids: Tensor, state: tuple[Tensor, ...] | None = None) -> tuple[Tensor, tuple[Tensor, ...]]:
        x = self.embedding(ids).transpose(1, 2)  # (B, D, T)
        before = self.KERNEL - 1
        new_state = []
        for k, layer in enumerate(self.layers):
            empty = x.new_zeros(len(ids), self.width, before)
            past = empty if state is None else state[k][0].view_as(empty)
            seen = torch.cat([past, x], dim=2)
            new_state.append(seen[:, :, -before:].flatten(1)[None])
            x = x + self.dropout(torch.relu(layer(seen)))
        return self.output(x.transpose(1, 2)), tuple(new_state)


MODELS["convolution"] = f"{__name__}:CausalConvolutionLM"  # the registry line


if __name__ == "__main__":
    budget = sys.argv[2] if len(sys.argv) > 2 else "60s"
    run = seqlab.train_lm(sys.argv[1], model="convolution", width=192, depth=4, budget=budget)
    print(f"{run.folder}: {run.metrics[-1]['validation']['bits_per_byte']:.3f} bits per byte")
    print(run.generate("", tokens=200, temperature=0.8))
