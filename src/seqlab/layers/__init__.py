"""What has parameters: layers with state in and state out, batch first."""

from seqlab.layers.recurrent import GRU, LSTM, RNN

__all__ = ["GRU", "LSTM", "RNN"]
