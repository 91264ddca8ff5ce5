"""Recurrent language models: embedding, recurrent layers, output layer."""

from typing import ClassVar

from torch import Tensor, nn

from seqlab.core.state import State
from seqlab.layers.recurrent import GRU, LSTM, RNN, Recurrent


class RecurrentLM(nn.Module):
    """logits_t = W_o h_t + b_o,  h_t = layer(E[id_t], h_{t−1}).

    ids (B, T) in 0…V (V is the begin id) -> logits (B, T, V). With `tied`, W_o = E without the begin row.
    """

    layer_type: ClassVar[type[Recurrent]]
    carries_state: ClassVar[bool] = True

    def __init__(self, vocab_size: int, width: int, depth: int, *, dropout: float = 0.0, tied: bool = False) -> None:
        super().__init__()
        self.vocab_size = vocab_size
        self.embedding = nn.Embedding(vocab_size + 1, width)
        self.recurrent = self.layer_type(width, width, depth, dropout=dropout)
        self.output = nn.Linear(width, vocab_size)
        self.dropout = nn.Dropout(dropout)
        self.tied = tied
        self.reset_parameters()

    def reset_parameters(self) -> None:
        width = self.embedding.embedding_dim
        nn.init.normal_(self.embedding.weight, std=width**-0.5 if self.tied else 1.0)
        nn.init.zeros_(self.output.bias)
        nn.init.normal_(self.output.weight, std=width**-0.5)
        if self.tied:
            del self.output.weight  # the embedding serves

    def forward(self, ids: Tensor, state: State = None) -> tuple[Tensor, State]:
        x = self.dropout(self.embedding(ids))
        y, state = self.recurrent(x, state)
        y = self.dropout(y)
        if self.tied:
            return nn.functional.linear(y, self.embedding.weight[: self.vocab_size], self.output.bias), state
        return self.output(y), state


class RNNLM(RecurrentLM):
    layer_type = RNN


class GRULM(RecurrentLM):
    layer_type = GRU


class LSTMLM(RecurrentLM):
    layer_type = LSTM
