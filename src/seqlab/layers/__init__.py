"""What has parameters: layers with state in and state out, batch first."""

from seqlab.layers.attention import MultiHeadAttention
from seqlab.layers.attentive import AttentiveRNN
from seqlab.layers.blocks import DecoderBlock, EncoderBlock, EncoderDecoderBlock
from seqlab.layers.embedding import OutputHead, TokenEmbedding
from seqlab.layers.encoders import RecurrentEncoder, TransformerEncoder
from seqlab.layers.feed_forward import FeedForward
from seqlab.layers.norms import TokenBatchNorm
from seqlab.layers.pooling import (
    AttentionPooling,
    FirstPooling,
    LastPooling,
    MaxPooling,
    MeanPooling,
    build_pooling,
)
from seqlab.layers.positions import LearnedPosition, RotaryPosition, SinusoidalPosition
from seqlab.layers.recurrent import GRU, LSTM, RNN
from seqlab.layers.style import BlockStyle

__all__ = [
    "GRU",
    "LSTM",
    "RNN",
    "AttentionPooling",
    "AttentiveRNN",
    "BlockStyle",
    "DecoderBlock",
    "EncoderBlock",
    "EncoderDecoderBlock",
    "FeedForward",
    "FirstPooling",
    "LastPooling",
    "LearnedPosition",
    "MaxPooling",
    "MeanPooling",
    "MultiHeadAttention",
    "OutputHead",
    "RecurrentEncoder",
    "RotaryPosition",
    "SinusoidalPosition",
    "TokenBatchNorm",
    "TokenEmbedding",
    "TransformerEncoder",
    "build_pooling",
]
