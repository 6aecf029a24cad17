"""Optimisers on the host: the whole update of a parameter in one loop over its elements, in place."""

from __future__ import annotations

from abele.ops.hosts.expressions import expanded_map
from abele.ops.hosts.kernels import kernel_for

kernel_for("sgd", "adam", "rmsprop")(expanded_map)
