"""Run PopTorch's public test suite against the `poptorch` package here and write how it went.

    python scripts/poptorch_suite.py CHECKOUT [--only FILE …] [--jobs N] [--hardware] [--results FILE] [--write DOC]

CHECKOUT is a checkout of graphcore/poptorch, kept outside of this repository; each of its test files runs in a process
of its own, from a temporary directory: without hardware by default, and with `--hardware` those cases alone that are
marked to need it, as if it were there. `--results` keeps what ran in a JSON file and adds to what is there, so that a
document can be written from several runs.

A case that passes counts as passed. One that fails is left out of the figures only for a reason that stands below: one
of `EXCLUDED`, found in the source of the test, or of `TORCH`, what torch, pytest or Python has changed since 2.0.1. A
test of `DIFFERS` expects what is not so here and should not be: it counts as failed, and its reason is shown.
"""

from __future__ import annotations

import argparse
import ast
import json
import os
import re
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ElementTree
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
import gnn_suite

EXCLUDED = (
    (r"_debugGetPopartIR", "reads PopART's own graph"),
    (r"LogChecker|capfd|printCapfdOnExit", "reads the vendor's log text"),
    (r"ctypes\.cdll|custom_ops/|myso|so_path", "loads an operation built in C++"),
    (r"import torchvision|torchvision\.|transformers\.|from_pretrained", "needs downloaded weights or torchvision"),
    (r"import popdist|popdist\.|torch_scatter", "needs a package that is not public"),
    (r"import pva|pva\.", "reads PopART's names of operations in a report"),
    (r"poptorch_core\.(?!Error|_validateOptions)|poptorch\._(?!impl|poplar_executor|logging)", "tests internals"),
    (r"requests\.|urllib", "needs a network"),
)
"""What in a test, or in what it calls in its file, takes it out of the figures where it fails, and why."""

TORCH = (
    ("tensor_ops_test.py", r"test_error_mismatch|test_reject_fuzzy_match", "pytest words errors otherwise"),
    ("index_ops_test.py", r"uint8", "torch refuses masks of uint8"),
)
"""File, pattern of the case's name, and what torch has changed."""

DIFFERS = (
    ("poplar_executor_test.py", r"test_get_compilation_time", "expects a compilation to take more than a second"),
    ("poplar_executor_test.py", r"test_get_cycles_no_hw", "expects no cycles without hardware: they are modelled"),
    ("misc_test.py", r"test_error_on_cpu_tensor", "expects a constant made in the forward to be refused"),
    ("misc_nn_layers_test.py", r"test_unsupported_upsample", "expects linear interpolation to be refused"),
)
"""File, pattern of the case's name, and what it expects: counted as failed."""

DISCRIMINATING = (
    *("batching", "buffers", "dataloader", "debug_tensors", "inputs", "misc", "multiconv", "optimizers", "options"),
    *("pipelining", "poplar_executor", "slice", "weights_writing"),
)
"""The files, without their ending, that tell PopTorch from plain PyTorch."""

MARK = "<!-- written by scripts/poptorch_suite.py -->"
MOST = 160
"""Characters of a message that are shown."""

NO_HARDWARE = "Hardware IPU needed"


@dataclass
class Row:
    """How the cases of one file went.

    Attributes:
        counts: cases by ``passed``, ``failed``, ``skipped`` and ``left out``.
        out: what is left out: how many cases, by test function and reason.
        failures: each case that fails, with the first line of the message.
    """

    file: str
    counts: dict[str, int] = field(default_factory=dict)
    out: list[tuple[str, str, int]] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)

    @property
    def share(self) -> float:
        """The part of the cases that count which pass."""
        ran = self.counts.get("passed", 0) + self.counts.get("failed", 0)
        return self.counts.get("passed", 0) / ran if ran else 1.0


def reasons_of(path: Path) -> dict[str, str]:
    """Test functions of a file that may be left out, by name, each with the reason; under "" the file itself."""
    source = path.read_text(encoding="utf-8")
    body = ast.parse(source).body
    functions = {n.name: n for n in body if isinstance(n, ast.FunctionDef | ast.ClassDef)}

    def reached(name: str, seen: set[str]) -> Iterator[str]:
        seen.add(name)
        node = functions[name]
        for decorator in getattr(node, "decorator_list", ()):
            yield ast.unparse(decorator)
        yield ast.get_source_segment(source, node) or ""
        for part in ast.walk(node):
            if isinstance(part, ast.Name) and part.id in functions and part.id not in seen:
                yield from reached(part.id, seen)

    def reason(text: str) -> str | None:
        return next((why for pattern, why in EXCLUDED if re.search(pattern, text)), None)

    top = "\n".join(ast.unparse(n) for n in body if n not in functions.values())
    found = {"": reason(top)} | {
        name: reason("\n".join(reached(name, set()))) for name in functions if name.lower().startswith("test")
    }
    return {name: why for name, why in found.items() if why}


def run(tests: Path, name: str, *, hardware: bool, seconds: int) -> Row:
    """Run one file in a process of its own."""
    reasons, counts, out = reasons_of(tests / name), Counter[str](), Counter[tuple[str, str]]()
    row = Row(name)
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder, "report.xml")
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", f"--timeout={seconds}"]
        command += [f"--junitxml={report}", f"--rootdir={tests}", "-c", "/dev/null", str(tests / name)]
        command += ["--hw-tests-only"] if hardware else []
        environment = os.environ | {
            "PYTHONPATH": os.pathsep.join(filter(None, (str(tests), os.environ.get("PYTHONPATH")))),
            "PATH": os.pathsep.join((str(Path(sys.executable).parent), os.environ.get("PATH", ""))),
            "ABELE_IPU_HARDWARE": "16@bow" if hardware else "0",
            "TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD": "1",  # as torch.load was
        }
        environment |= {"ABELE_SYSTEM": "bow-pod16"} if hardware else {}
        done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
        cases = list(ElementTree.parse(report).iter("testcase")) if report.exists() else []
    broken = next((c for c in cases if c.find("error") is not None and "collection" in _message(c)), None)
    if broken is not None or not report_is_there(cases, done.returncode):
        functions = len(re.findall(r"^def test", (tests / name).read_text(encoding="utf-8"), re.MULTILINE))
        if "" in reasons:
            row.counts, row.out = {"left out": functions}, [("the whole file", reasons[""], functions)]
        else:
            row.counts = {"failed": functions}
            row.failures.append(f"the whole file: {(done.stdout + done.stderr).strip().splitlines()[-1:]}")
        return row
    for case in cases:
        title = case.get("name", "")
        function = (case.get("classname") or "").rpartition(".")[2] if "::" in title else title.split("[")[0]
        changed, differs = (
            next((why for file, pattern, why in table if file == name and re.search(pattern, title)), None)
            for table in (TORCH, DIFFERS)
        )
        reason = changed or reasons.get(function) or reasons.get(_class_of(case, reasons))
        skipped = case.find("skipped")
        if skipped is not None:
            counts["waiting" if NO_HARDWARE in _message(case) else "skipped"] += 1
        elif case.find("failure") is None and case.find("error") is None:
            counts["passed"] += 1
        elif reason:
            counts["left out"] += 1
            out[function, reason] += 1
        else:
            counts["failed"] += 1
            said = (_message(case).strip().splitlines() or [""])[0].replace(f"{tests}{os.sep}", "")
            row.failures.append(f"{title}: {differs or said[:MOST]}")
    row.counts, row.out = dict(counts), [(f, why, n) for (f, why), n in out.items()]
    return row


def report_is_there(cases: list[ElementTree.Element], code: int) -> bool:
    """Whether the file ran: some cases did, or it has none of those asked for."""
    return bool(cases) or code in (0, 5)


def _message(case: ElementTree.Element) -> str:
    found = next((part for part in map(case.find, ("failure", "error", "skipped")) if part is not None), None)
    return "" if found is None else found.get("message") or ""


def _class_of(case: ElementTree.Element, reasons: dict[str, str]) -> str:
    name = (case.get("classname") or "").rpartition(".")[2]
    return name if name in reasons else "-"


def document(off: dict[str, Row], on: dict[str, Row]) -> str:
    """The figures in Markdown: a row for each file, what fails, and what is left out and why.

    Args:
        off: rows of the runs without hardware, by file.
        on: those of the cases that need it.
    """
    lines = ["| file | passed | failed | share | skipped | left out | with hardware: passed | failed | left out |"]
    lines.append("|---|---:|---:|---:|---:|---:|---:|---:|---:|")
    names = sorted({*off, *on})
    lines += [_line(name, off.get(name, Row(name)), on.get(name, Row(name))) for name in names]
    chosen = [n for n in names if n.removesuffix("_test.py") in DISCRIMINATING]
    total, hardware = _sum(list(off.values())), _sum(list(on.values()))
    lines.append(_line(f"**all {len(names)} files**", total, hardware))
    worst = min((off[n] for n in chosen if n in off), key=lambda r: r.share, default=Row("none"))
    lines += [
        "",
        f"{total.counts.get('passed', 0)} cases pass of {_ran(total)} that count ({100 * total.share:.1f} %), and of "
        f"those that need hardware {hardware.counts.get('passed', 0)} of {_ran(hardware)} "
        f"({100 * hardware.share:.1f} %). Of the {len(chosen)} files that tell PopTorch from plain PyTorch the worst "
        f"is `{worst.file}` with {100 * worst.share:.1f} %.",
        "",
        "## Failing",
        "",
    ]
    failing = [f"- `{row.file}` {text}" for rows in (off, on) for row in rows.values() for text in row.failures]
    lines += [*(sorted(failing) or ["None."]), "", "## Left out", ""]
    out: Counter[tuple[str, str, str]] = Counter()
    for rows in (off, on):
        for row in rows.values():
            for function, why, count in row.out:
                out[why, row.file, function] += count
    for why in sorted({why for why, _, _ in out}):
        lines += [f"**{why[0].upper()}{why[1:]}**:", ""]
        for file in sorted({f for w, f, _ in out if w == why}):
            found = [f"{function} ({n})" for (w, f, function), n in sorted(out.items()) if (w, f) == (why, file)]
            lines.append(f"- `{file}`: {', '.join(found)}")
        lines.append("")
    return "\n".join(lines)


def _line(name: str, off: Row, on: Row) -> str:
    a, b = off.counts, on.counts
    cells = [a.get("passed", 0), a.get("failed", 0), f"{100 * off.share:.1f} %", a.get("skipped"), a.get("left out")]
    cells += [b.get("passed"), b.get("failed"), b.get("left out")]
    return f"| {name} | {' | '.join(str(c or '') if c != 0 else '0' for c in cells)} |"


def _sum(rows: list[Row]) -> Row:
    total: Counter[str] = Counter()
    for row in rows:
        total.update(row.counts)
    return Row("all", dict(total))


def _ran(row: Row) -> int:
    return row.counts.get("passed", 0) + row.counts.get("failed", 0)


def main() -> None:
    """See the module."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkout", type=Path)
    parser.add_argument("--only", nargs="+", default=(), help="names of test files")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--seconds", type=int, default=300, help="limit of one case")
    parser.add_argument("--hardware", action="store_true", help="the cases that need hardware, as if it were there")
    parser.add_argument("--results", type=Path, help="JSON file of what ran, which this run adds to")
    parser.add_argument("--write", type=Path, help="replace the figures in this document")
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
    kept: dict[str, dict[str, Row]] = {"off": {}, "on": {}}
    if asked.results is not None and asked.results.exists():
        for key, rows in json.loads(asked.results.read_text(encoding="utf-8")).items():
            kept[key] = {name: Row(**row) for name, row in rows.items()}
    which = kept["on" if asked.hardware else "off"]
    one = partial(run, tests, hardware=asked.hardware, seconds=asked.seconds)
    with ThreadPoolExecutor(asked.jobs) as pool:
        for row in pool.map(one, asked.only or names):
            print(f"{row.file}: {row.counts}", *row.failures, sep="\n  ", file=sys.stderr, flush=True)
            which[row.file] = row
            if asked.results is not None:
                plain = {key: {name: asdict(r) for name, r in rows.items()} for key, rows in kept.items()}
                asked.results.write_text(json.dumps(plain, indent=1), encoding="utf-8")
    text = document(kept["off"], kept["on"])
    if asked.write:
        head = asked.write.read_text(encoding="utf-8").partition(MARK)[0] if asked.write.exists() else ""
        asked.write.write_text(f"{head}{MARK}\n\n{text}", encoding="utf-8")
    else:
        print(text)


if __name__ == "__main__":
    main()
