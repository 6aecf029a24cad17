"""The wheel has all that the viewer needs, and works where there is Python and neither Node nor torch."""

import http.client
import json
import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from abele.report.store import write
from tests.report.synthetic import Shape, program

ROOT = Path(__file__).parents[2]

pytest.importorskip("setuptools", minversion="77")  # builds the wheel

ALONE = """
import sys
sys.modules["torch"] = None
import abele
assert abele.__file__.startswith(sys.argv[1]), abele.__file__
from abele.cli import main
main(sys.argv[2:])
"""


def pip(*words):
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", *map(str, words)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    folder = tmp_path_factory.mktemp("wheel")
    tree = folder / "tree"
    tree.mkdir()
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, tree)
    shutil.copytree(ROOT / "src", tree / "src", ignore=shutil.ignore_patterns("*.egg-info", "__pycache__"))
    pip("wheel", tree, "--no-deps", "--no-build-isolation", "--no-index", "--wheel-dir", folder)
    (found,) = folder.glob("abele-*.whl")
    return found


def test_the_wheel_has_the_viewer(wheel):
    room = ROOT / "src/abele/report/static"
    with zipfile.ZipFile(wheel) as held:
        for name in ("viewer.js", "viewer.css"):
            assert held.read(f"abele/report/static/{name}") == (room / name).read_bytes()
        assert not [name for name in held.namelist() if "node_modules" in name or name.startswith("viewer/")]


def test_it_shows_a_report_with_python_alone(wheel, tmp_path):
    pip("install", wheel, "--no-deps", "--no-index", "--target", tmp_path / "site")
    write(tmp_path / "profile.pop", [program(Shape(1, 64, 60))], title="alone", sources={"model.py": ""})
    environment = {"PYTHONPATH": str(tmp_path / "site"), "PATH": str(tmp_path), "HOME": str(tmp_path)}
    assert shutil.which("node", path=environment["PATH"]) is None

    def start(*words):
        command = [sys.executable, "-c", ALONE, str(tmp_path / "site"), "view", str(tmp_path / "profile.pop"), *words]
        return subprocess.Popen(command, cwd=tmp_path, env=environment, stdout=subprocess.PIPE, text=True)

    process = start("--json")
    try:
        assert process.stdout is not None
        said = json.loads(process.stdout.readline())
        connection = http.client.HTTPConnection("127.0.0.1", said["port"], timeout=20)
        connection.request("GET", f"/?token={said['token']}")
        page = connection.getresponse().read().decode()
        assert (ROOT / "src/abele/report/static/viewer.js").read_text(encoding="utf-8") in page
        connection.request("GET", "/data/p/0/operations", headers={"X-Abele-Token": said["token"]})
        assert connection.getresponse().read()[:8] == b"ABELPKT1"
        connection.close()
    finally:
        process.terminate()
        process.communicate(timeout=20)
    saving = start("--save", "page.html", "--json")
    out, _ = saving.communicate(timeout=60)
    assert saving.returncode == 0 and json.loads(out)["bytes"] == os.stat(tmp_path / "page.html").st_size
