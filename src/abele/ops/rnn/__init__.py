"""Recurrent layers: LSTM and GRU."""

from abele.ops.rnn import op

__all__ = ["op"]
