"""Recurrent language models: embedding, recurrent layers, output layer."""

from collections.abc import Sequence
from typing import ClassVar

from torch import Tensor, nn

from seqlab.core.state import State
from seqlab.core.traits import Traits
from seqlab.layers import GRU, LSTM, RNN, AttentiveRNN, OutputHead, TokenEmbedding
from seqlab.layers.recurrent import Recurrent


class RecurrentLM(nn.Module):
    """logits_t = W_o h_t + b_o,  h_t = layer(E[id_t], h_{t−1}).

    ids (B, T) in 0…V (V is the begin id) -> logits (B, T, V). With `tied`, W_o = E without the begin row.
    """

    def __init__(
        self, recurrent: nn.Module, vocab_size: int, width: int, *, dropout: float = 0.0, tied: bool = False
    ) -> None:
        super().__init__()
        self.vocab_size = vocab_size
        self.embedding = TokenEmbedding(vocab_size + 1, width, dropout=dropout)
        self.recurrent = recurrent
        self.output = OutputHead(width, vocab_size, tied=tied)
        self.dropout = nn.Dropout(dropout)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        std = self.embedding.width**-0.5
        nn.init.normal_(self.embedding.weight, std=std if self.output.tied else 1.0)
        self.output.start(std)

    @property
    def traits(self) -> Traits:
        return Traits(carries_state=True)

    def forward(self, ids: Tensor, state: State = None) -> tuple[Tensor, State]:
        y, state = self.recurrent(self.embedding(ids), state)
        return self.output(self.dropout(y), self.embedding), state


class _OneLayerTypeLM(RecurrentLM):
    layer_type: ClassVar[type[Recurrent]]

    def __init__(self, vocab_size: int, width: int, depth: int, *, dropout: float = 0.0, tied: bool = False) -> None:
        layers = self.layer_type(width, width, depth, dropout=dropout)
        super().__init__(layers, vocab_size, width, dropout=dropout, tied=tied)


class RNNLM(_OneLayerTypeLM):
    layer_type = RNN


class GRULM(_OneLayerTypeLM):
    layer_type = GRU


class LSTMLM(_OneLayerTypeLM):
    layer_type = LSTM


class AttentiveLM(RecurrentLM):
    """Recurrent layers that attend to their own last `context` hidden vectors.

    What they remember grows with the text up to the context, so training starts every batch anew, as for the
    Transformer, and texts are scored in windows. h adds up means of its past, so what is read above is LayerNorm(h).
    """

    def __init__(
        self,
        vocab_size: int,
        width: int,
        depth: int,
        context: int,
        *,
        score: str = "scaled",
        dropout: float = 0.0,
        tied: bool = False,
    ) -> None:
        layers = _NormedStack([AttentiveRNN(width, width, score=score, window=context) for _ in range(depth)], dropout)
        super().__init__(layers, vocab_size, width, dropout=dropout, tied=tied)
        self.context = context

    @property
    def traits(self) -> Traits:
        return Traits(window=self.context)


class _NormedStack(nn.Module):
    """Layers one above the other, each followed by LayerNorm, dropout between; the state is one for each."""

    def __init__(self, layers: Sequence[AttentiveRNN], dropout: float) -> None:
        super().__init__()
        self.layers = nn.ModuleList(layers)
        self.norms = nn.ModuleList(nn.LayerNorm(layer.hidden_size) for layer in layers)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor, state: State = None) -> tuple[Tensor, State]:
        states = []
        for number, (layer, norm) in enumerate(zip(self.layers, self.norms, strict=True)):
            x = self.dropout(x) if number else x
            x, after = layer(x, None if state is None else state[number])
            x = norm(x)
            states.append(after)
        return x, tuple(states)
