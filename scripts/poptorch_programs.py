"""Run PopTorch programs of public repositories, unmodified, and write how they went.

    python scripts/poptorch_programs.py POPTORCH EXAMPLES [--packages DIR ...] [--only NAME ...]
        [--write docs/programs.md]

POPTORCH and EXAMPLES are checkouts of graphcore/poptorch and graphcore/examples, kept outside of this repository. Each
program runs from a copy of its folder, in a home of its own that holds generated data: MNIST and FashionMNIST as
pictures of ten noisy patterns, which a classifier learns, in the files that torchvision reads. A program has gone
well when it ends without an error and prints what `expects` asks for; a number in it is held against a bound.

--packages names folders with packages that only some programs import: torchvision (whose operators in C++ do not load
beside the CPU build of torch; their names are declared, so that its data sets and transforms import), tqdm and others
that the table names.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import struct
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parent))
from program_list import PROGRAMS, Program

STAND_IN = """
import importlib.util
if importlib.util.find_spec("torchvision") is not None:
    import torch
    _names = torch.library.Library("torchvision", "DEF")
    for _name in ("nms", "qnms"):
        _names.define(_name + "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
"""
"""Run at the start of each program: torchvision asks for these names, which its unloadable library would declare."""

GRAPHS = """
import torch
from torch_geometric import datasets
from torch_geometric.data import Data, InMemoryDataset

class Generated(InMemoryDataset):
    def __init__(self, graphs, classes, transform=None):
        super().__init__(None, transform)
        self.data, self.slices = self.collate(graphs)
        self.classes = classes

    num_classes = property(lambda self: self.classes)

class TUDataset(Generated):
    def __init__(self, root, name, transform=None, pre_transform=None, **_):
        made, graphs = torch.Generator().manual_seed(0), []
        features, edges = {"MUTAG": (7, 4), "NCI1": (37, 0)}[name]
        for i in range(188 if name == "MUTAG" else 1500):
            nodes, label = 10 + i % 18, i % 2
            kinds = torch.randint(features // 2, (nodes,), generator=made) + label * (features // 2)
            ends = torch.randint(nodes, (2, nodes), generator=made)
            ends = torch.cat([ends, ends.flip(0)], 1)
            graph = Data(x=torch.eye(features)[kinds], edge_index=ends, y=torch.tensor([label]))
            if edges:
                graph.edge_attr = torch.eye(edges)[torch.randint(edges, (ends.shape[1],), generator=made)]
            graphs.append(pre_transform(graph) if pre_transform else graph)
        super().__init__(graphs, 2, transform)

class Planetoid(Generated):
    def __init__(self, root, name, transform=None, **_):
        made, nodes = torch.Generator().manual_seed(0), 700
        y = torch.arange(nodes) % 7
        x = torch.rand(nodes, 70, generator=made) + 2 * torch.eye(7).repeat(1, 10)[y]
        near = torch.randint(nodes // 7, (2100,), generator=made) * 7
        start = torch.randint(nodes, (2100,), generator=made)
        ends = torch.stack([start, near + y[start]])
        part = torch.randperm(nodes, generator=made)
        masks = dict(train_mask=part < 140, val_mask=(part >= 140) & (part < 400), test_mask=part >= 400)
        graph = Data(x=x, edge_index=torch.cat([ends, ends.flip(0)], 1), y=y, **masks)
        super().__init__([graph], 7, transform)

datasets.TUDataset, datasets.Planetoid = TUDataset, Planetoid
"""
"""In the place of data sets of graphs that would be downloaded, for programs that ask for ``graphs``."""

TRAIN, TEST = 4000, 800
"""Generated pictures, as many as the pipelining tutorial needs."""


@dataclass
class Result:
    """How one program went."""

    program: Program
    seconds: float = 0.0
    wrong: list[str] = field(default_factory=list)
    seen: list[str] = field(default_factory=list)


def write_idx(path: Path, array: np.ndarray) -> None:
    """Bytes in the IDX format: two zeros, the type (8: bytes), the rank, the sizes, the elements."""
    head = struct.pack(">BBBB", 0, 0, 8, array.ndim) + struct.pack(f">{array.ndim}I", *array.shape)
    path.write_bytes(head + array.astype(np.uint8).tobytes())


def generate_pictures(home: Path) -> None:
    """MNIST and FashionMNIST below ``home``: each class a smooth pattern of its own, shifted and with noise."""
    random = np.random.default_rng(0)
    coarse = random.uniform(0, 255, (10, 7, 7))
    patterns = np.kron(coarse, np.ones((4, 4)))
    for name in ("MNIST", "FashionMNIST"):
        for folder in (home / ".torch/datasets" / name / "raw", home / "mnist_data" / name / "raw"):
            folder.mkdir(parents=True, exist_ok=True)
        raw = home / ".torch/datasets" / name / "raw"
        for part, count in (("train", TRAIN), ("t10k", TEST)):
            labels = random.integers(0, 10, count)
            shifts = random.integers(-1, 2, (count, 2))
            pictures = np.stack([np.roll(patterns[c], tuple(s), (0, 1)) for c, s in zip(labels, shifts, strict=True)])
            pictures = np.clip(pictures + random.normal(0, 30, pictures.shape), 0, 255)
            write_idx(raw / f"{part}-images-idx3-ubyte", pictures)
            write_idx(raw / f"{part}-labels-idx1-ubyte", labels)
        shutil.copytree(raw, home / "mnist_data" / name / "raw", dirs_exist_ok=True)


def run(program: Program, checkouts: dict[str, Path], home: Path, packages: list[Path], keep: Path | None) -> Result:
    """Run one program from a copy of its folder."""
    result = Result(program)
    source = checkouts[program.checkout] / program.folder
    if not source.is_dir():
        result.wrong.append(f"{source} is not there")
        return result
    with tempfile.TemporaryDirectory() as scratch:
        work = Path(scratch, source.name)
        shutil.copytree(source, work, ignore=shutil.ignore_patterns(".git"))
        for target, origin in program.copies:
            Path(work, target).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(work / origin, work / target)
        stand_ins = STAND_IN + (GRAPHS if program.graphs else "")
        (Path(scratch) / "sitecustomize.py").write_text(stand_ins, encoding="utf-8")
        if program.pictures_here:
            (work / "mnist_data").symlink_to(home / "mnist_data")
        if program.driver:
            (work / "driver.py").write_text(program.driver, encoding="utf-8")
        path = [str(Path(scratch)), str(work), *map(str, packages), os.environ.get("PYTHONPATH", "")]
        environment = os.environ | {"HOME": str(home), "PYTHONPATH": os.pathsep.join(filter(None, path))}
        environment |= {"MPLBACKEND": "Agg", "WANDB_MODE": "disabled"} | program.environment
        if program.hardware:
            environment["ABELE_IPU_HARDWARE"] = "1"
        started = time.perf_counter()
        try:
            done = subprocess.run(
                [sys.executable, *program.command],
                cwd=work / program.inside,
                env=environment,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                timeout=program.seconds,
                check=False,
            )
            output, code = done.stdout, done.returncode
        except subprocess.TimeoutExpired as late:
            output, code = str(late.stdout or b"", "utf-8", "replace"), -1
            result.wrong.append(f"still running after {program.seconds} s")
        result.seconds = time.perf_counter() - started
    if keep is not None:
        keep.mkdir(parents=True, exist_ok=True)
        (keep / f"{program.name.replace('/', '_').replace(' ', '_')}.txt").write_text(output, encoding="utf-8")
    if code > 0:
        result.wrong.append(f"exit {code}: {output.strip().splitlines()[-1] if output.strip() else ''}")
    for expected in program.expects:
        pattern, least = expected if isinstance(expected, tuple) else (expected, None)
        found = re.findall(pattern, output)
        if not found:
            result.wrong.append(f"nothing like `{pattern}` in what it prints")
        elif least is None:
            result.seen.append(str(found[-1]).strip())
        else:
            result.seen.append(f"{found[-1]} (at least {least:g})")
            if float(found[-1]) < least:
                result.wrong.append(f"`{pattern}` is {found[-1]}, less than {least:g}")
    return result


def table(results: list[Result], before: str = "") -> str:
    """The table in Markdown. ``before``: an older one, of which programs that were not run now keep their lines."""
    lines = dict(
        line.split(" | ", 1) for line in before.splitlines() if line.startswith(("| poptorch:", "| examples:"))
    )
    for one in results:
        p = one.program
        outcome = (
            "FAILS: " + "; ".join(one.wrong) if one.wrong else ": ".join(["runs", *filter(None, ["; ".join(one.seen)])])
        )
        cells = [_name(p), p.exercises, p.needs or "–", f"{one.seconds:.0f}", outcome]
        name, *cells = [c.replace("|", "\\|").replace("\n", " ") for c in cells]
        lines[f"| {name}"] = " | ".join(cells) + " |"
    kept = [f"| {_name(p)} | {lines[f'| {_name(p)}']}" for p in PROGRAMS if f"| {_name(p)}" in lines]
    good = sum(" | runs" in line for line in kept)
    head = ["| program | exercises | needs | seconds | result |", "|---|---|---|---:|---|"]
    return "\n".join([*head, *kept, "", f"{good} of {len(kept)} run."]) + "\n"


def _name(program: Program) -> str:
    return f"{program.checkout}: {program.shown}"


MARK = "<!-- written by scripts/poptorch_programs.py -->"


def main() -> None:
    """See the module."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("poptorch", type=Path)
    parser.add_argument("examples", type=Path)
    parser.add_argument("--packages", nargs="+", type=Path, default=[])
    parser.add_argument("--only", nargs="+", default=(), help="names (or parts of names) of programs")
    parser.add_argument("--keep", type=Path, help="folder for what the programs print")
    parser.add_argument("--write", type=Path, help="bring their lines up to date in this document")
    asked = parser.parse_args()
    checkouts = {"poptorch": asked.poptorch.resolve(), "examples": asked.examples.resolve()}
    chosen = [p for p in PROGRAMS if not asked.only or any(o in p.name for o in asked.only)]
    results = []
    with tempfile.TemporaryDirectory() as home:
        generate_pictures(Path(home))
        for program in chosen:
            results.append(run(program, checkouts, Path(home), [p.resolve() for p in asked.packages], asked.keep))
            print(f"{program.name}: {results[-1].wrong or 'runs'} ({results[-1].seconds:.0f} s)", file=sys.stderr)
    if asked.write:
        head, _, before = (asked.write.read_text(encoding="utf-8") if asked.write.exists() else "").partition(MARK)
        asked.write.write_text(f"{head}{MARK}\n\n{table(results, before)}", encoding="utf-8")
    else:
        print(table(results))
    sys.exit(any(r.wrong for r in results))


if __name__ == "__main__":
    main()
