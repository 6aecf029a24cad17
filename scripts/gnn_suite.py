"""The part of PopTorch's public test suite that is about graphs, `tests/gnn`: see `poptorch_suite.py --gnn`.

It was written for PyTorch Geometric 2.4. What its tests import besides and do not use (nbformat, nbconvert), and the
fixture of pytest-benchmark, have stand-ins. The data sets that it would find downloaded, QM9 and Cora, are generated
with the same attributes. A case is left out when it fails for want of a package in C++: pyg-lib, torch-scatter,
torch-sparse, torch-cluster or torch-spline-conv.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ElementTree
from collections import Counter
from pathlib import Path

PLUGIN = """
import sys, types
for name in ("nbformat", "nbconvert", "nbconvert.preprocessors"):
    sys.modules[name] = types.ModuleType(name)
sys.modules["nbconvert.preprocessors"].ExecutePreprocessor = object

import pytest, torch, torch_geometric
from torch_geometric.data import Data

@pytest.fixture
def benchmark():
    return lambda function, *args, **kwargs: function(*args, **kwargs)

def molecule(index, nodes, edges):
    made = torch.Generator().manual_seed(index)
    rand = lambda *shape: torch.rand(*shape, generator=made)
    ends = torch.randint(nodes, (2, edges), generator=made)
    return Data(x=rand(nodes, 11), edge_index=ends, edge_attr=rand(edges, 4), y=rand(1, 19), pos=rand(nodes, 3),
                idx=torch.tensor([index]), name=f"gdb_{index}", z=torch.randint(1, 9, (nodes,), generator=made))

class QM9:
    def __init__(self, root):
        self.graphs = [molecule(i, 9 + i % 12, 18 + 2 * (i % 15)) for i in range(200)]
    def __len__(self):
        return len(self.graphs)
    def __getitem__(self, at):
        if at == 55967:
            largest = molecule(at, 29, 56)
            largest.name = "gdb_57518"
            return largest
        return self.graphs[at]

class Planetoid:
    num_node_features, num_classes = 64, 7
    def __init__(self, root, name, transform=None):
        made = torch.Generator().manual_seed(0)
        mask = torch.arange(300) < 140
        data = Data(x=torch.rand(300, 64, generator=made), edge_index=torch.randint(300, (2, 1200), generator=made),
                    y=torch.randint(7, (300,), generator=made), train_mask=mask, val_mask=~mask, test_mask=~mask)
        self.data = transform(data) if transform else data
    def __getitem__(self, at):
        return self.data

torch_geometric.datasets.QM9, torch_geometric.datasets.Planetoid = QM9, Planetoid

from torch_geometric.data.data import BaseData
if not isinstance(BaseData.keys, property):  # a property when the suite was written
    class Keys(list):
        def __call__(self):
            return self
    BaseData.keys = property(lambda self, keys=BaseData.keys: Keys(keys(self)))
"""
NEEDS = r"pyg-lib|pyg_lib|torch[-_](?:scatter|sparse|cluster|spline[-_]conv)"
MARK, END = "<!-- written by scripts/poptorch_suite.py --gnn -->", "<!-- end of gnn -->"


def run(tests: Path, seconds: int) -> dict[str, Counter[str]]:
    """Counts by test file; ``failures`` of a file are kept under the file's name with a colon."""
    counts: dict[str, Counter[str]] = {}
    folders = sorted({p.parent for p in (tests / "gnn").rglob("test_*.py")})
    for folder in folders:
        with tempfile.TemporaryDirectory() as scratch:
            Path(scratch, "gnn_plugin.py").write_text(PLUGIN, encoding="utf-8")
            for name in ("qm9", "planetoid"):
                Path(scratch, "data", name).mkdir(parents=True)
            report = Path(scratch, "report.xml")
            command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "gnn_plugin"]
            command += [f"--timeout={seconds}", f"--junitxml={report}", f"--rootdir={tests}", "-c", "/dev/null"]
            command += ["--continue-on-collection-errors", f"--external-datasets-dir={Path(scratch, 'data')}"]
            files = sorted(map(str, folder.glob("test_*.py")))
            path = os.pathsep.join(filter(None, (scratch, os.environ.get("PYTHONPATH"), str(tests))))
            environment = os.environ | {"PYTHONPATH": path}
            done = subprocess.run(
                [*command, *files], cwd=scratch, env=environment, capture_output=True, text=True, check=False
            )
            print(f"{folder.relative_to(tests)}: {done.stdout.strip().splitlines()[-1:]}", file=sys.stderr, flush=True)
            if not report.exists():
                raise SystemExit(f"{folder} could not be run:\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
            for case in ElementTree.parse(report).iter("testcase"):
                _count(case, counts)
    return counts


def _count(case: ElementTree.Element, counts: dict[str, Counter[str]]) -> None:
    file = next(
        p for p in reversed((case.get("classname") or case.get("name", "")).split(".")) if p.startswith("test_")
    )
    title = case.get("name", "")
    row = counts.setdefault(file, Counter())
    bad = case.find("failure") if case.find("failure") is not None else case.find("error")
    text = "" if bad is None else f"{bad.get('message') or ''} {bad.text or ''}"
    if case.find("skipped") is not None:
        kind = "skipped"
    elif bad is None:
        kind = "passed"
    elif re.search(NEEDS, text.strip().splitlines()[0] if text.strip() else "") or re.search(
        rf"(?:ImportError|ModuleNotFoundError|RuntimeError): .*(?:{NEEDS})", text
    ):
        kind = "needs"
    else:
        kind = "failed"
        row[f"- `{file}` {title}: {(bad.get('message') or '').strip().splitlines()[:1]}"] += 1
    row[kind] += 1
    row[f"function {title.split('[')[0]} {kind}"] += 1


def functions(counts: dict[str, Counter[str]]) -> Counter[str]:
    """Functions by how they went: ``passed`` when all their cases did, ``needs`` when one wants another package."""
    found: Counter[str] = Counter()
    for row in counts.values():
        kinds: dict[str, set[str]] = {}
        for key in row:
            if key.startswith("function "):
                _, name, kind = key.split(" ")
                kinds.setdefault(name, set()).add(kind)
        for seen in kinds.values():
            found[next(k for k in ("needs", "failed", "passed", "skipped") if k in seen)] += 1
    return found


def table(counts: dict[str, Counter[str]]) -> str:
    """The section in Markdown."""
    total, whole = Counter[str](), functions(counts)
    lines = ["| file | passed | failed | skipped | needs a package in C++ |", "|---|---:|---:|---:|---:|"]
    failing = []
    for file, row in sorted(counts.items()):
        total.update({k: row[k] for k in ("passed", "failed", "skipped", "needs")})
        failing += [key for key in row if key.startswith("- ")]
        if row["failed"] or row["needs"]:
            lines.append(f"| {file} | {row['passed']} | {row['failed']} | {row['skipped']} | {row['needs']} |")
    lines.append(
        f"| all {len(counts)} | {total['passed']} | {total['failed']} | {total['skipped']} | {total['needs']} |"
    )
    ran = whole["passed"] + whole["failed"]
    said = (
        f"Of the {ran} functions that ran and need no package in C++, {whole['passed']} pass "
        f"({100 * whole['passed'] / max(ran, 1):.1f} %); {whole['needs']} need one, {whole['skipped']} are skipped. "
        "Files all of whose cases pass or are skipped are counted in the last row alone."
    )
    return "\n".join([said, "", *lines, "", *(["Failing:", "", *failing] if failing else ["None fails."])]) + "\n"


def main(checkout: Path, seconds: int, write: Path | None) -> None:
    """Run all of it and print the section, or write it into a document."""
    import torch_geometric

    text = table(run((checkout / "tests").resolve(), seconds))
    title = f"## Graphs: `tests/gnn`, with PyTorch Geometric {torch_geometric.__version__}"
    section = f"{MARK}\n\n{title}\n\n{__doc__.partition(chr(10) * 2)[2].strip()}\n\n{text}\n{END}\n"
    if write is None:
        print(section)
        return
    before = write.read_text(encoding="utf-8") if write.exists() else "# Compatibility with PopTorch\n\n"
    if MARK in before:
        head, _, rest = before.partition(MARK)
        section = head + section + rest.partition(END)[2].lstrip("\n")
    else:
        first = before.find("<!-- written by scripts/poptorch_suite.py -->")
        at = len(before) if first < 0 else first
        section = before[:at] + section + "\n" + before[at:]
    write.write_text(section, encoding="utf-8")
