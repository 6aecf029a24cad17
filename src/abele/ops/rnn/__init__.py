"""Recurrent layers: LSTM and GRU."""

from abele.ops.rnn import op, plan

__all__ = ["op", "plan"]
