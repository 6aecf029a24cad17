"""Run PopTorch's public test suite against the `poptorch` package here and write how it went.

    python scripts/poptorch_suite.py CHECKOUT [--only FILE ...] [--jobs N] [--hardware] [--write docs/compatibility.md]

CHECKOUT is a checkout of graphcore/poptorch, kept outside of this repository; each of its test files runs in a process
of its own, from a temporary directory. A case is left out of the figures only for one of the reasons in `EXCLUDED`,
which are found in the source of the test, or in `TORCH`, which name what torch itself has changed since 2.0.1.
"""

from __future__ import annotations

import argparse
import ast
import os
import re
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ElementTree
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
import gnn_suite

EXCLUDED = (
    (r"_debugGetPopartIR", "reads PopART's own graph"),
    (r"LogChecker|capfd|printCapfdOnExit", "reads the vendor's log text"),
    (r"ctypes\.cdll|custom_ops/|myso|so_path", "loads an operation built in C++"),
    (r"import torchvision|torchvision\.|transformers\.|from_pretrained", "needs downloaded weights or torchvision"),
    (r"import popdist|popdist\.|torch_scatter|import pva|pva\.", "needs a package that is not public"),
    (r"poptorch_core\.(?!Error)|poptorch\._(?!impl|poplar_executor)", "tests the vendor's own internals"),
    (r"requests\.|urllib", "needs a network"),
)
"""What in a test (or in what it calls in its file) takes it out of the figures, and why."""

TORCH = (
    ("dataloader_test.py", r"custom_batch_sampler|CustomBatchSampler", "torch's Sampler takes no argument any more"),
    ("misc_test.py", r"test_torch_save", "torch.load reads weights alone by default"),
    ("index_ops_test.py", r"masked_fill.*uint8|uint8.*masked_fill", "torch refuses masks of uint8"),
)
"""File, pattern of the case's name, and what torch (or pytest) has changed since the suite was written."""


@dataclass
class Row:
    """How the cases of one file went."""

    file: str
    counts: Counter[str] = field(default_factory=Counter)
    reasons: Counter[str] = field(default_factory=Counter)
    failures: list[str] = field(default_factory=list)

    @property
    def share(self) -> float:
        ran = self.counts["passed"] + self.counts["failed"]
        return self.counts["passed"] / ran if ran else 1.0


def reasons_of(path: Path) -> dict[str, str]:
    """Test functions of a file that are left out, by name, each with the reason."""
    source = path.read_text(encoding="utf-8")
    functions = {n.name: n for n in ast.parse(source).body if isinstance(n, ast.FunctionDef | ast.ClassDef)}

    def reached(name: str, seen: set[str]) -> Iterator[str]:
        seen.add(name)
        node = functions[name]
        for decorator in getattr(node, "decorator_list", ()):
            yield ast.unparse(decorator)
        yield ast.get_source_segment(source, node) or ""
        for part in ast.walk(node):
            if isinstance(part, ast.Name) and part.id in functions and part.id not in seen:
                yield from reached(part.id, seen)

    found = {}
    for name in functions:
        text = "\n".join(reached(name, set())) if name.startswith("test") else ""
        reason = next((why for pattern, why in EXCLUDED if re.search(pattern, text)), None)
        if reason:
            found[name] = reason
    return found


def run(tests: Path, name: str, hardware: bool, seconds: int) -> Row:
    """Run one file in a process of its own."""
    row, excluded = Row(name), reasons_of(tests / name)
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder, "report.xml")
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", f"--timeout={seconds}"]
        command += [f"--junitxml={report}", f"--rootdir={tests}", "-c", "/dev/null", str(tests / name)]
        path = os.pathsep.join(filter(None, (str(tests), os.environ.get("PYTHONPATH"))))
        environment = os.environ | {"PYTHONPATH": path} | ({"ABELE_IPU_HARDWARE": "1"} if hardware else {})
        done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
        if not report.exists():
            row.counts["failed"] += 1
            row.failures.append(f"{name}: {(done.stdout + done.stderr).strip().splitlines()[-1:]}")
            return row
        for case in ElementTree.parse(report).iter("testcase"):
            title = case.get("name", "")
            reason = excluded.get(title.split("[")[0]) or next(
                (why for file, pattern, why in TORCH if file == name and re.search(pattern, title)), None
            )
            bad = case.find("failure") if case.find("failure") is not None else case.find("error")
            skipped = case.find("skipped")
            if skipped is not None:
                row.counts["skipped"] += 1
            elif reason:
                row.counts["left out"] += 1
                row.reasons[reason] += 1
            elif bad is not None:
                row.counts["failed"] += 1
                row.failures.append(f"{title}: {(bad.get('message') or '').strip().splitlines()[:1]}")
            else:
                row.counts["passed"] += 1
    return row


def table(rows: list[Row]) -> str:
    """The table in Markdown."""
    lines = ["| file | passed | failed | share | skipped | left out |", "|---|---:|---:|---:|---:|---|"]
    total = Row("all")
    for row in rows:
        total.counts.update(row.counts)
    for row in [*rows, total]:
        c = row.counts
        why = "; ".join(f"{n} {reason}" for reason, n in row.reasons.most_common()) or str(c["left out"] or "")
        lines.append(
            f"| {row.file} | {c['passed']} | {c['failed']} | {100 * row.share:.1f} % | {c['skipped'] or ''} | {why} |"
        )
    failing = [f"- `{row.file}` {failure}" for row in rows for failure in row.failures]
    return "\n".join([*lines, "", "Failing:" if failing else "None fails.", "", *failing]) + "\n"


def main() -> None:
    """See the module."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkout", type=Path)
    parser.add_argument("--only", nargs="+", default=(), help="names of test files")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--seconds", type=int, default=120, help="limit of one case")
    parser.add_argument("--hardware", action="store_true", help="as if hardware were there")
    parser.add_argument("--write", type=Path, help="replace the table in this document")
    parser.add_argument("--gnn", action="store_true", help="run tests/gnn alone (see gnn_suite.py)")
    asked = parser.parse_args()
    if asked.gnn:
        return gnn_suite.main(asked.checkout, asked.seconds, asked.write)
    tests = (asked.checkout / "tests").resolve()
    names = sorted(p.name for p in tests.glob("*.py") if re.search(r"_test\.py$|^test_", p.name))
    if not names:
        parser.error(f"{tests} has no tests; give a checkout of graphcore/poptorch")
    unknown = [name for name in asked.only if name not in names]
    if unknown:
        parser.error(f"no such test file: {', '.join(unknown)}")

    def one(name: str) -> Row:
        row = run(tests, name, asked.hardware, asked.seconds)
        print(f"{name}: {dict(row.counts)}", file=sys.stderr, flush=True)
        return row

    with ThreadPoolExecutor(asked.jobs) as pool:
        rows = list(pool.map(one, asked.only or names))
    text = table(rows)
    if asked.write:
        head = asked.write.read_text(encoding="utf-8").partition(MARK)[0] if asked.write.exists() else ""
        asked.write.write_text(f"{head}{MARK}\n\n{text}", encoding="utf-8")
    else:
        print(text)


MARK = "<!-- written by scripts/poptorch_suite.py -->"

if __name__ == "__main__":
    main()
