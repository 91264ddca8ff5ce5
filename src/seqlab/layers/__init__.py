"""What has parameters: layers with state in and state out, batch first."""

from seqlab.layers.attention import MultiHeadAttention
from seqlab.layers.attentive import AttentiveRNN
from seqlab.layers.blocks import DecoderBlock, EncoderBlock, EncoderDecoderBlock
from seqlab.layers.norms import TokenBatchNorm
from seqlab.layers.positions import LearnedPosition, RotaryPosition, SinusoidalPosition
from seqlab.layers.recurrent import GRU, LSTM, RNN

__all__ = [
    "GRU",
    "LSTM",
    "RNN",
    "AttentiveRNN",
    "DecoderBlock",
    "EncoderBlock",
    "EncoderDecoderBlock",
    "LearnedPosition",
    "MultiHeadAttention",
    "RotaryPosition",
    "SinusoidalPosition",
    "TokenBatchNorm",
]
