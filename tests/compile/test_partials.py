"""The pass that sets the type in which products are summed."""

from __future__ import annotations

import pytest

from abele.compile.passes.partials import Partials
from abele.errors import InvalidOption
from abele.ir.builder import Builder
from abele.ir.graph import Port
from abele.ir.types import f16


def _graph():
    inner = Builder("layer")
    x, w = inner.input(f16(8, 8)), inner.input(f16(8, 8))
    function = inner.finish([inner.matmul(x, w)])
    b = Builder("main", {"layer": function})
    x, w = b.input(f16(8, 8), "data", "x"), b.input(f16(8, 8), "state", "w")
    (y,) = b.call("layer", (x, w))
    return b.finish([b.relu(b.matmul(y, w))], [Port("anchor", "y")])


def test_partials_of_all_products_also_in_functions() -> None:
    changed = Partials("f16").run(_graph())
    found = [op.attributes["partials"] for g in changed.all_graphs() for op in g.operations if op.name == "matmul"]
    assert found == ["f16", "f16"]
    assert "partials" not in changed.operations[-1].attributes


def test_an_unknown_type_is_refused() -> None:
    with pytest.raises(InvalidOption, match="f8"):
        Partials("f8").run(_graph())
