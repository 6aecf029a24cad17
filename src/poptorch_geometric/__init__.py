"""Graphs of PyTorch Geometric for wrapped models: batches of fixed size, and layers whose shapes are known in advance.

Importing the package lets wrapped models take and return ``Data``, ``HeteroData`` and batches of them. It needs
``torch_geometric``: ``pip install abele[gnn]``.
"""

from importlib.util import find_spec

if find_spec("torch_geometric") is None:
    raise ImportError("poptorch_geometric needs PyTorch Geometric: pip install 'abele[gnn]' (or torch_geometric).")

from poptorch._hooks import during_capture
from poptorch_geometric._fixed_shapes import fixed_shapes
from poptorch_geometric.collate import make_exclude_keys
from poptorch_geometric.dataloader import FixedSizeDataLoader, FixedSizeStrategy, OverSizeStrategy
from poptorch_geometric.fixed_size_options import FixedSizeOptions
from poptorch_geometric.types import PyGArgsParser, registerCustomArgParsers
from poptorch_geometric.utils import TrainingStepper, set_aggregation_dim_size

__version__ = "3.4.0"

__all__ = [
    "FixedSizeDataLoader",
    "FixedSizeOptions",
    "FixedSizeStrategy",
    "OverSizeStrategy",
    "PyGArgsParser",
    "TrainingStepper",
    "__version__",
    "make_exclude_keys",
    "set_aggregation_dim_size",
]

registerCustomArgParsers()
during_capture(fixed_shapes)
