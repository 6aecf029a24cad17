"""The operations of torch that a model may use, by section and public name, each with programs that try it.

``page.py`` writes the list into the documentation; the tests here run all of it.
"""

from __future__ import annotations

from tests.torchops import cases_compute, cases_images, cases_layers, cases_tensors
from tests.torchops.cases import Case

CATALOGUE: dict[str, dict[str, list[Case]]] = {}
for module in (cases_tensors, cases_compute, cases_layers, cases_images):
    for section, rows in module.SECTIONS.items():
        CATALOGUE.setdefault(section, {}).update(rows)
