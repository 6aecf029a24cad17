"""The compiler: passes over the graph, then lowering to the schedule with the plans of the operations."""

import abele.ops  # noqa: F401  (fills the registries of operations, plans and vertices)
from abele.compile.cache import Cache
from abele.compile.executable import Executable, compile_graph
from abele.compile.lower import lower
from abele.compile.pipelines import CompileOptions, passes_for

__all__ = ["Cache", "CompileOptions", "Executable", "compile_graph", "lower", "passes_for"]
