"""Optimizers with the attributes that training on the device needs: loss scaling, accumulator types, clipping."""

from ._base import Optimizer, VariableAttributes
from ._optimizers import LAMB, SGD, Adam, AdamW, RMSprop

__all__ = ["LAMB", "SGD", "Adam", "AdamW", "Optimizer", "RMSprop", "VariableAttributes"]
