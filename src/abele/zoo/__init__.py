"""The zoo: models of the fields that the machines were used for, each in a full size and one small enough for tests.

>>> model = ZOO["bert-base"]
>>> module = model.build(small=True)
>>> output = module(**model.inputs(2, small=True))

Importing the zoo does not import torch; building a model does. Weights are random: no files are read.
"""

from abele.zoo.model import Model, find
from abele.zoo.registry import ZOO

__all__ = ["ZOO", "Model", "find"]
