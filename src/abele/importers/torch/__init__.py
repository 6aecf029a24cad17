"""The importer of PyTorch programs: an ordinary module or function becomes a graph.

>>> captured = capture(model, (x,))
>>> captured.graph
"""

from abele.importers.torch.capture import Capture, HostTensor, capture
from abele.importers.torch.structure import flatten, unflatten

__all__ = ["Capture", "HostTensor", "capture", "flatten", "unflatten"]
