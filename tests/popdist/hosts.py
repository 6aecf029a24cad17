"""Two hosts made of network namespaces, joined by a cable: run as ``unshare -Urn python hosts.py PROGRAM ARGUMENT…``.

This namespace is the first host, a new one the second; ``poprun`` starts one instance of the program on each.
"""

import os
import subprocess
import sys
from pathlib import Path

ADDRESSES = "10.77.0.1", "10.77.0.2"


def main(arguments: list[str], folder: Path) -> int:
    other = subprocess.Popen(["unshare", "-n", "sleep", "600"])
    inside = ["nsenter", f"--net=/proc/{other.pid}/ns/net"]
    try:
        while os.readlink(f"/proc/{other.pid}/ns/net") == os.readlink("/proc/self/ns/net"):
            os.sched_yield()
        for command in (
            "ip link set lo up",
            f"ip link add cable type veth peer name cable netns {other.pid}",
            f"ip address add {ADDRESSES[0]}/24 dev cable",
            "ip link set cable up",
        ):
            subprocess.run(command.split(), check=True)
        for command in ("ip link set lo up", f"ip address add {ADDRESSES[1]}/24 dev cable", "ip link set cable up"):
            subprocess.run([*inside, *command.split()], check=True)
        agent = folder / "agent"  # in the place of ssh: agent HOST COMMAND
        here, there = 'sh -c "$2"', f'{" ".join(inside)} sh -c "$2"'
        agent.write_text(f'#!/bin/sh\nif [ "$1" = {ADDRESSES[1]} ]; then exec {there}; else exec {here}; fi\n')
        agent.chmod(0o700)
        options = ["--host", ",".join(ADDRESSES), "--num-instances", "2", "--num-replicas", "4", "--tag-output"]
        options += ["--mpi-global-args", f"--mca plm_rsh_agent {agent}", "--print-topology=yes"]
        return subprocess.run([sys.executable, "-m", "popdist.poprun", *options, sys.executable, *arguments]).returncode
    finally:
        other.kill()
        other.wait()


if __name__ == "__main__":
    sys.exit(main(sys.argv[2:], Path(sys.argv[1])))
