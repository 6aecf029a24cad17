"""The command ``poprun``: starts a program as several instances, on this machine or on hosts, and watches over them.

Each instance finds in its environment which one it is (``POPDIST_*``, and what MPI and ``torchrun`` would set) and
where the first one waits for the others. When one fails the rest is stopped, after it had time to notice by itself.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import random
import re
import shlex
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TextIO

import popdist

GRACE = 10.0
"""Seconds that instances have to end by themselves when another has failed, and again when they are asked to."""
_LOCAL = ("localhost", "127.0.0.1", "::1")
_PASSED_ON = ("ABELE_", "POPTORCH_", "POPLAR_", "POPART_", "POPLIBS_", "PYTHON", "OMP_", "GLOO_")
"""What the names of variables begin with that instances on other hosts get too, beside ``PATH``."""
_NO_EFFECT = (
    *("num-ilds", "sync-type", "vipu-server-host", "vipu-server-port", "vipu-server-timeout", "vipu-partition"),
    *("vipu-partition-attempts", "vipu-cluster", "vipu-allocation"),
    *("update-partition", "reset-partition", "remove-partition"),
)


@dataclass(frozen=True)
class Instance:
    """One instance: its number, its host, and its number there."""

    index: int
    host: str
    local: int
    first_replica: int


def _switch(text: str) -> bool:
    known = {"1": True, "yes": True, "on": True, "true": True, "0": False, "no": False, "off": False, "false": False}
    if text.lower() not in known:
        raise argparse.ArgumentTypeError(f"{text!r} is neither yes nor no")
    return known[text.lower()]


def _count(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number of 1 or more")
    return int(text)


def hosts_of(text: str) -> list[str]:
    """The hosts of a list such as ``a,b`` or ``pod[0-2,4],c``."""
    found: list[str] = []
    for part in re.findall(r"[^,\[\]]+(?:\[[^\]]*\][^,\[\]]*)?", text):
        inside = re.fullmatch(r"(.*)\[([\d,-]+)\](.*)", part)
        if inside is None:
            found.append(part)
            continue
        for piece in inside[2].split(","):
            low, _, high = piece.partition("-")
            found += [f"{inside[1]}{i:0{len(low)}d}{inside[3]}" for i in range(int(low), int(high or low) + 1)]
    return found


def parser() -> argparse.ArgumentParser:
    """The options of the command."""
    made = argparse.ArgumentParser(
        prog="poprun", description="Start a program as several instances, which train one model together."
    )
    option = made.add_argument
    said = "hosts to run on: a,b or pod[0-3]; the instances are divided evenly (default: this one)"
    option("-H", "--host", "--hosts", type=hosts_of, default=["localhost"], metavar="HOSTS", help=said)
    option("--num-instances", type=_count, default=1, help="how many processes (default 1)")
    option("--num-replicas", type=_count, help="replicas of all instances (default: one for each)")
    option("--ipus-per-replica", type=_count, default=1, help="IPUs of each replica (default 1)")
    option("--executable-cache-path", metavar="DIR", help="folder of compiled programs, shared by all")
    option("--only-output-from-instance", type=int, metavar="N", help="show what this instance says alone")
    for name, said in (
        ("print-topology", "print which instance has which replicas"),
        ("numa-aware", "bind the instances of this machine to its NUMA nodes in turn"),
        ("offline-mode", "compile and do not run"),
    ):
        option(f"--{name}", type=_switch, default=False, metavar="yes|no", help=said)
    option("--tag-output", action="store_true", help="begin each line with the number of the instance that says it")
    said = (
        "of mpirun's, --tag-output, --mca plm_rsh_agent COMMAND (in the place of ssh) and --mca btl_tcp_if_include "
        "INTERFACE are followed"
    )
    option("--mpi-global-args", default="", metavar="ARGS", help=said)
    said = "of mpirun's, -x NAME and -x NAME=VALUE are followed: variables for all instances"
    option("--mpi-local-args", default="", metavar="ARGS", help=said)
    option("-v", "--verbose", "--vv", action="count", default=0, help="say what is started")
    without = made.add_argument_group("accepted without an effect, since there is no V-IPU server here")
    for name in _NO_EFFECT:
        without.add_argument(f"--{name}", metavar="X")
    option("program", nargs=argparse.REMAINDER, help="the program and its arguments")
    return made


@dataclass
class Mpi:
    """What is followed of the arguments for mpirun."""

    variables: dict[str, str]
    agent: list[str]
    tagged: bool = False

    @classmethod
    def of(cls, text: str) -> Mpi:
        """From the arguments as one text; others are left out."""
        found = cls({}, ["ssh", "-o", "BatchMode=yes"])
        words = shlex.split(text)
        for i, word in enumerate(words):
            after = [*words[i + 1 :], "", ""]
            if word == "-x":
                name, given, value = after[0].partition("=")
                if given or name in os.environ:
                    found.variables[name] = value if given else os.environ[name]
            elif word in ("--tag-output", "-tag-output"):
                found.tagged = True
            elif word in ("--mca", "-mca") and after[0] in ("plm_rsh_agent", "orte_rsh_agent"):
                found.agent = shlex.split(after[1])
            elif word in ("--mca", "-mca") and after[0].endswith("tcp_if_include") and "/" not in after[1]:
                found.variables.setdefault("GLOO_SOCKET_IFNAME", after[1].split(",")[0])
        return found


def instances_of(chosen: argparse.Namespace) -> list[Instance]:
    """The instances, divided evenly among the hosts."""
    each, rest = divmod(chosen.num_instances, len(chosen.host))
    if rest:
        raise SystemExit(
            f"poprun: {chosen.num_instances} instances cannot be divided evenly among {len(chosen.host)} hosts"
        )
    replicas = chosen.num_replicas // chosen.num_instances
    return [Instance(i, chosen.host[i // each], i % each, i * replicas) for i in range(chosen.num_instances)]


def environment(instance: Instance, instances: Sequence[Instance], chosen: argparse.Namespace) -> dict[str, str]:
    """The variables that tell an instance which one it is, by the names of PopDist, MPI and torch."""
    size, local = len(instances), sum(other.host == instance.host for other in instances)
    named = {
        popdist.TOTAL: chosen.num_replicas,
        popdist.LOCAL: chosen.num_replicas // size,
        popdist.OFFSET: instance.first_replica,
        popdist.IPUS: chosen.ipus_per_replica,
        popdist.LOCAL_INSTANCE: instance.local,
        popdist.OFFLINE: int(chosen.offline_mode),
        "POPDIST_UNIFORM_REPLICAS_PER_INSTANCE": 1,
        "OMPI_COMM_WORLD_SIZE": size,
        "OMPI_COMM_WORLD_RANK": instance.index,
        "OMPI_COMM_WORLD_LOCAL_SIZE": local,
        "OMPI_COMM_WORLD_LOCAL_RANK": instance.local,
        "WORLD_SIZE": size,
        "RANK": instance.index,
        "LOCAL_WORLD_SIZE": local,
        "LOCAL_RANK": instance.local,
    }
    variables = {name: str(value) for name, value in named.items()}
    if chosen.executable_cache_path:
        variables["POPTORCH_CACHE_DIR"] = chosen.executable_cache_path
    if "OMP_NUM_THREADS" not in os.environ:
        variables["OMP_NUM_THREADS"] = str(max(1, (os.cpu_count() or 1) // local))
    return variables


def meeting_point(hosts: Sequence[str]) -> dict[str, str]:
    """Where the first instance waits for the others."""
    if all(host in _LOCAL for host in hosts):
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            return {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(probe.getsockname()[1])}
    first = socket.gethostname() if hosts[0] in _LOCAL else hosts[0]
    return {"MASTER_ADDR": first, "MASTER_PORT": str(random.randint(20_000, 32_000))}


_REMOTE = (
    "exec 3<&0; {command} </dev/null & p=$!; {{ cat <&3 >/dev/null; kill -TERM $p 2>/dev/null; }} & c=$!; "
    "wait $p; s=$?; kill $c 2>/dev/null; exit $s"
)
"""What a shell on another host runs: the command, which is stopped when the connection to ``poprun`` ends."""


def command_on(host: str, program: Sequence[str], variables: Mapping[str, str], agent: Sequence[str]) -> list[str]:
    """The command that starts an instance on another host, in the same folder."""
    passed = {k: v for k, v in os.environ.items() if k == "PATH" or k.startswith(_PASSED_ON)} | dict(variables)
    settings = " ".join(f"{name}={shlex.quote(value)}" for name, value in sorted(passed.items()))
    command = f"cd {shlex.quote(os.getcwd())} && exec env {settings} {shlex.join(program)}"
    return [*agent, host, _REMOTE.format(command=f"sh -c {shlex.quote(command)}")]


def numa_nodes(folder: str = "/sys/devices/system/node") -> list[set[int]]:
    """The processors of each NUMA node of this machine."""
    found = []
    for path in sorted(Path(folder).glob("node[0-9]*/cpulist")):
        processors: set[int] = set()
        for piece in filter(None, path.read_text().strip().split(",")):
            low, _, high = piece.partition("-")
            processors |= set(range(int(low), int(high or low) + 1))
        if processors:
            found.append(processors)
    return found


class Run:
    """The instances while they run."""

    def __init__(self, tagged: bool, only: int | None) -> None:
        self._tagged, self._only = tagged, only
        self.processes: list[tuple[Instance, subprocess.Popen[bytes]]] = []
        self._readers: list[threading.Thread] = []

    def start(self, instance: Instance, command: Sequence[str], variables: Mapping[str, str]) -> subprocess.Popen:
        """Start one instance; what it says is passed on line by line."""
        process = subprocess.Popen(
            command,
            env={**os.environ, **variables},
            stdin=subprocess.DEVNULL if instance.host in _LOCAL else subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,  # Ctrl-C comes here, and is passed on once
        )
        self.processes.append((instance, process))
        for source, target, name in ((process.stdout, sys.stdout, "stdout"), (process.stderr, sys.stderr, "stderr")):
            assert source is not None
            reader = threading.Thread(target=self._pass_on, args=(instance.index, source, target, name), daemon=True)
            reader.start()
            self._readers.append(reader)
        return process

    def _pass_on(self, index: int, source: IO[bytes], target: TextIO, name: str) -> None:
        shown = self._only is None or self._only == index
        tag = f"[1,{index}]<{name}>: " if self._tagged else ""
        for line in source:
            if not shown:
                continue
            try:
                target.write(tag + line.decode(errors="replace"))
                target.flush()
            except BrokenPipeError:  # whoever read (`| head`) has gone; the instances go on
                with open(os.devnull, "wb") as nowhere:
                    os.dup2(nowhere.fileno(), target.fileno())

    def wait(self) -> int:
        """Wait for all; the status is that of the first that failed, 0 when none did."""
        failed: tuple[Instance, int] | None = None
        until = float("inf")
        asked = False
        while True:
            running = None in [process.poll() for _, process in self.processes]
            if failed is None:
                failed = next(((i, p.returncode) for i, p in self.processes if p.returncode), None)
                until = time.monotonic() + GRACE if failed is not None else until
            if not running:
                break
            if time.monotonic() > until:
                self.signal(signal.SIGKILL if asked else signal.SIGTERM)
                until, asked = time.monotonic() + GRACE, True
            time.sleep(0.05)
        for reader in self._readers:
            reader.join(1.0)  # a process that an instance has left behind may hold its output open
        if failed is None:
            return 0
        instance, status = failed
        how = f"was killed by signal {-status}" if status < 0 else f"ended with status {status}"
        print(f"poprun: instance {instance.index} on {instance.host} {how}", file=sys.stderr)
        return 128 - status if status < 0 else status

    def signal(self, number: int) -> None:
        """Send a signal to all that still run, and to what they have started."""
        for _, process in self.processes:
            if process.poll() is None:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, number)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; returns its exit status."""
    made = parser()
    chosen = made.parse_args(arguments)
    if chosen.program[:1] == ["--"]:
        del chosen.program[0]
    if not chosen.program:
        made.error("say which program to start: poprun --num-instances 2 python train.py")
    chosen.num_replicas = chosen.num_replicas or chosen.num_instances
    if chosen.num_replicas % chosen.num_instances:
        made.error(f"{chosen.num_replicas} replicas cannot be divided evenly among {chosen.num_instances} instances")
    mpi = Mpi.of(f"{chosen.mpi_global_args} {chosen.mpi_local_args}")
    instances = instances_of(chosen)
    if chosen.print_topology:
        for instance in instances:
            last = instance.first_replica + chosen.num_replicas // len(instances) - 1
            print(f"instance {instance.index}: {instance.host}, replicas {instance.first_replica} to {last}, "
                  f"{chosen.ipus_per_replica} IPUs each")  # fmt: skip
    for name in _NO_EFFECT:
        if getattr(chosen, name.replace("-", "_")) is not None and chosen.verbose:
            print(f"poprun: --{name} has no effect: there is no V-IPU server here", file=sys.stderr)
    run = Run(chosen.tag_output or mpi.tagged, chosen.only_output_from_instance)
    where = meeting_point(chosen.host)
    nodes = numa_nodes() if chosen.numa_aware else []
    before = {
        number: signal.signal(number, lambda received, _: run.signal(received))
        for number in (signal.SIGINT, signal.SIGTERM)
    }
    try:
        for instance in instances:
            variables = {**environment(instance, instances, chosen), **where, **mpi.variables}
            own = instance.host in _LOCAL
            command = chosen.program if own else command_on(instance.host, chosen.program, variables, mpi.agent)
            if chosen.verbose:
                print(f"poprun: instance {instance.index}: {shlex.join(command)}", file=sys.stderr)
            process = run.start(instance, command, variables)
            if own and len(nodes) > 1:
                os.sched_setaffinity(process.pid, nodes[instance.local % len(nodes)])
        return run.wait()
    except FileNotFoundError as error:
        run.signal(signal.SIGTERM)
        print(f"poprun: there is no program {error.filename!r}", file=sys.stderr)
        return 127
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


if __name__ == "__main__":
    sys.exit(main())
