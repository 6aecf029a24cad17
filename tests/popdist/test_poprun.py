"""The command ``poprun``: instances on this machine and on hosts, what they say, and how they end."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from popdist import poprun
from tests.popdist import train

ROOT = Path(__file__).parents[2]
TRAIN = str(ROOT / "tests" / "popdist" / "train.py")
POPRUN = [sys.executable, "-m", "popdist.poprun"]
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "OMP_NUM_THREADS": "1"}
STEPS = 50


def started(*arguments: str, command: list[str] = POPRUN, **more: str) -> subprocess.CompletedProcess[str]:
    environment = {**ENVIRONMENT, **more}
    return subprocess.run([*command, *arguments], env=environment, capture_output=True, text=True, timeout=120)


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of compiled programs: the first that trains compiles, and the others find what it made."""
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(scope="module")
def alone(cache: Path) -> dict:
    """What one process with four replicas trains."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("POPTORCH_CACHE_DIR", str(cache))
        train.main(str(cache / "one"), STEPS, 4)
    return json.loads((cache / "one.0").read_text())


def equal(one: dict, folder: Path) -> None:
    parts = [json.loads((folder / f"many.{rank}").read_text()) for rank in range(2)]
    assert [part["processes"] for part in parts] == [2, 2]
    losses = np.concatenate([np.array(part["losses"]) for part in parts], axis=2)
    assert losses.shape == (STEPS, 2, 4)
    np.testing.assert_allclose(losses, np.array(one["losses"]), rtol=1e-5)
    for part in parts:
        np.testing.assert_allclose(part["weight"], one["weight"], rtol=1e-5)


def two_hosts(folder: Path) -> list[str]:
    """The command that starts a program on two hosts made of namespaces; empty where this machine forbids them."""
    if not all(shutil.which(tool) for tool in ("unshare", "nsenter", "ip")):
        return []
    cable = ["unshare", "-Urn", "ip", "link", "add", "cable", "type", "veth", "peer", "name", "other"]
    if subprocess.run(cable, capture_output=True).returncode:
        return []
    return ["unshare", "-Urn", sys.executable, str(ROOT / "tests" / "popdist" / "hosts.py"), str(folder)]


def test_instances_train_as_one_process(alone: dict, cache: Path, tmp_path: Path) -> None:
    """On two hosts where they can be made, else on this machine."""
    hosts = two_hosts(tmp_path)
    own = [*POPRUN, "--num-instances", "2", "--num-replicas=4", "--tag-output", "--print-topology=yes", sys.executable]
    program = [TRAIN, str(tmp_path / "many"), str(STEPS), "4"]
    done = started(*program, command=hosts or own, POPTORCH_CACHE_DIR=str(cache))
    assert done.returncode == 0, done.stderr
    first, second = ("10.77.0.1", "10.77.0.2") if hosts else ("localhost", "localhost")
    assert sorted(done.stdout.splitlines()) == [
        "[1,0]<stdout>: trained 0",
        "[1,1]<stdout>: trained 1",
        f"instance 0: {first}, replicas 0 to 1, 1 IPUs each",
        f"instance 1: {second}, replicas 2 to 3, 1 IPUs each",
    ]
    assert len(list(cache.rglob("*.abele"))) == 1
    equal(alone, tmp_path)


def test_each_instance_is_told_its_place(capsys) -> None:
    script = (
        'echo "$POPDIST_REPLICA_INDEX_OFFSET $POPDIST_NUM_LOCAL_REPLICAS $POPDIST_NUM_TOTAL_REPLICAS '
        "$POPDIST_NUM_IPUS_PER_REPLICA $POPDIST_LOCAL_INSTANCE_INDEX $OMPI_COMM_WORLD_RANK/$OMPI_COMM_WORLD_SIZE "
        '$RANK/$WORLD_SIZE $MASTER_ADDR $MINE $POPTORCH_CACHE_DIR"'
    )
    options = ["--num-instances", "2", "--num-replicas", "6", "--ipus-per-replica", "4", "--vipu-partition", "p", "-vv"]
    options += ["--mpi-local-args", "-x MINE=7 -x PATH", "--executable-cache-path", "/c"]
    assert poprun.main([*options, "sh", "-c", script]) == 0
    said = capsys.readouterr()
    assert sorted(said.out.splitlines()) == [
        "0 3 6 4 0 0/2 0/2 127.0.0.1 7 /c",
        "3 3 6 4 1 1/2 1/2 127.0.0.1 7 /c",
    ]
    assert "--vipu-partition has no effect: there is no V-IPU server here" in said.err


def test_one_that_fails_ends_the_others_and_is_named(monkeypatch: pytest.MonkeyPatch, capsys) -> None:
    monkeypatch.setattr(poprun, "GRACE", 0.2)
    program = ["sh", "-c", 'if [ $RANK = 1 ]; then exit 5; fi; trap "" TERM; while :; do sleep 0.05; done']
    began = time.monotonic()
    assert poprun.main(["--num-instances", "3", *program]) == 5
    assert time.monotonic() - began < 60
    assert "poprun: instance 1 on localhost ended with status 5" in capsys.readouterr().err


def test_a_signal_is_the_status_as_a_shell_gives_it(capsys) -> None:
    handler = signal.getsignal(signal.SIGINT)
    assert poprun.main(["--num-instances", "2", "sh", "-c", "if [ $RANK = 1 ]; then kill -9 $$; fi"]) == 128 + 9
    assert "instance 1 on localhost was killed by signal 9" in capsys.readouterr().err
    assert signal.getsignal(signal.SIGINT) is handler


def test_one_instance_alone_may_be_heard(capsys) -> None:
    options = ["--num-instances", "2", "--only-output-from-instance", "1"]
    assert poprun.main([*options, "sh", "-c", "echo out $RANK; echo error $RANK >&2"]) == 0
    assert capsys.readouterr() == ("out 1\n", "error 1\n")


def test_a_reader_that_goes_away_stops_nobody(tmp_path: Path) -> None:
    program = "import sys; [print(i, flush=True) for i in range(20000)]; open(sys.argv[1], 'w')"
    command = [*POPRUN, sys.executable, "-c", program, str(tmp_path / "ended")]
    run = subprocess.Popen(command, env=ENVIRONMENT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert run.stdout is not None and run.stderr is not None
    assert run.stdout.readline() == "0\n"
    run.stdout.close()
    assert run.wait(timeout=60) == 0
    assert run.stderr.read() == ""
    assert (tmp_path / "ended").exists()


def test_ctrl_c_is_passed_on() -> None:
    script = 'trap "echo stopped $RANK; exit 3" INT; echo ready; while :; do sleep 0.05; done'
    command = [*POPRUN, "--num-instances", "2", "sh", "-c", script]
    with subprocess.Popen(
        command, env=ENVIRONMENT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert [process.stdout.readline() for _ in range(2)] == ["ready\n"] * 2
        process.send_signal(signal.SIGINT)
        assert sorted(process.stdout.read().splitlines()) == ["stopped 0", "stopped 1"]
        assert process.wait(60) == 3


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--num-instances", "2"], "say which program to start"),
        (["--num-instances", "2", "--num-replicas", "3", "true"], "3 replicas cannot be divided evenly among 2 inst"),
        (["--num-instances", "3", "--host", "a,b", "true"], "3 instances cannot be divided evenly among 2 hosts"),
        (["--num-instances", "0", "true"], "'0' is not a whole number of 1 or more"),
        (["--numa-aware=perhaps", "true"], "'perhaps' is neither yes nor no"),
        (["/there/is/none"], "there is no program '/there/is/none'"),
    ],
)
def test_mistakes_are_explained(arguments: list[str], said: str, capsys) -> None:
    try:
        status = poprun.main(arguments)
    except SystemExit as error:
        status = error.code
        if isinstance(status, str):
            assert said in status
            return
    assert status != 0 and said in capsys.readouterr().err


def test_lists_of_hosts() -> None:
    assert poprun.hosts_of("a,b") == ["a", "b"]
    assert poprun.hosts_of("pod[0-2,07]x,c") == ["pod0x", "pod1x", "pod2x", "pod07x", "c"]


def test_another_host_gets_the_folder_the_variables_and_stops_with_the_connection(tmp_path: Path) -> None:
    program = [
        "sh",
        "-c",
        'trap "echo end; exit 4" TERM; pwd; echo "$A"; echo "$1"; while :; do sleep 0.05; done',
        "",
        "b c",
    ]
    command = poprun.command_on("host", program, {"A": "it's"}, ["sh", "-c", 'exec sh -c "$1"'])
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None and process.stdout is not None
        assert [process.stdout.readline() for _ in range(3)] == [f"{os.getcwd()}\n", "it's\n", "b c\n"]
        process.stdin.close()
        assert process.stdout.read() == "end\n"
        assert process.wait(60) == 4


def test_processors_of_numa_nodes(tmp_path: Path) -> None:
    for node, listed in enumerate(["0-2,8\n", "3-4\n", "\n"]):
        (tmp_path / f"node{node}").mkdir()
        (tmp_path / f"node{node}" / "cpulist").write_text(listed)
    assert poprun.numa_nodes(str(tmp_path)) == [{0, 1, 2, 8}, {3, 4}]
