"""An elastic job on two hosts, of which one is lost: torchrun on the other goes on with the ranks it has.

Each host has its torchrun, `--nnodes 1:2`. They meet in a rendezvous that host 0 serves, and say there again and again
that they live. When a host's line is cut, its ranks are missed by the collective's time-out; the torchrun of host 0
restarts its own ranks, waits until the lost one has been silent for `LOST_AFTER` seconds, and starts with one node.

The hosts are network namespaces on a bridge. That takes root and the command `ip` (Debian's iproute2); `why_not` says
what is missing.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Self

from dtlearn.runtime.machine.network import free_port

from .on_torchrun import follow_torchruns, with_restarts, write_program
from .plan import JobPlan
from .story import StoryLog, read_events

LOST_AFTER = 3  # seconds without a sign of life, after which torchrun's rendezvous drops a node; torchrun's default: 15
LAST_CALL = 6  # seconds for which it waits for more nodes when there are enough; torchrun's default: 30
_LOOK_EVERY = 0.1
NUM_HOSTS = 2
_FIRST_NET = 78  # 10.78.x.0/24 and on


def why_not() -> str:
    """Why hosts cannot be played here, in a sentence; "" if they can."""
    if sys.platform != "linux":
        return f"a lost node is played with network namespaces, which {sys.platform} has not"
    if shutil.which("ip") is None:
        return "a lost node is played with network namespaces: the command `ip` (package iproute2) is missing"
    trial = f"dtf{os.getpid()}try"
    done = subprocess.run(["ip", "netns", "add", trial], capture_output=True, text=True, check=False)
    subprocess.run(["ip", "netns", "del", trial], capture_output=True, check=False)
    if done.returncode:
        return f"a lost node is played with network namespaces, which need root: {done.stderr.strip()}"
    return ""


class Hosts:
    """Two hosts, 0 and 1, and this process as a third machine, on one network; gone when the block is left.

    Attributes:
        head: the address of this process.

    Raises:
        ValueError: they cannot be made here; the message says why.
    """

    def __enter__(self) -> Self:
        if reason := why_not():
            raise ValueError(reason)
        self._prefix = f"dtf{os.getpid()}"
        taken = _ip("-4", "addr")
        nets = (f"10.{_FIRST_NET + k // 256}.{k % 256}" for k in range(os.getpid() % 4096, 8192))
        self._net = next(net for net in nets if f"{net}." not in taken)
        self.head = f"{self._net}.254"
        try:
            self._make()
        except BaseException:
            self._remove()
            raise
        return self

    def __exit__(self, *error: object) -> None:
        self._remove()

    def address(self, host: int) -> str:
        """The address of a host."""
        return f"{self._net}.{host + 1}"

    def on(self, host: int, command: list[str]) -> list[str]:
        """The command line that runs `command` on a host. Its collectives use the host's one interface."""
        return ["ip", "netns", "exec", self._space(host), "env", "GLOO_SOCKET_IFNAME=eth0", *command]

    def cut(self, host: int) -> None:
        """Pull the host's plug: it runs on, and nobody hears of it."""
        _ip("link", "set", self._port(host), "down")

    def _make(self) -> None:
        bridge = f"{self._prefix}b"
        _ip("link", "add", bridge, "type", "bridge")
        _ip("addr", "add", f"{self.head}/24", "dev", bridge)
        _ip("link", "set", bridge, "up")
        for host in range(NUM_HOSTS):
            space = self._space(host)
            _ip("netns", "add", space)
            _ip("link", "add", self._port(host), "type", "veth", "peer", "name", "eth0", "netns", space)
            _ip("link", "set", self._port(host), "master", bridge, "up")
            _ip("-n", space, "addr", "add", f"{self.address(host)}/24", "dev", "eth0")
            _ip("-n", space, "link", "set", "lo", "up")
            _ip("-n", space, "link", "set", "eth0", "up")

    def _remove(self) -> None:
        for host in range(NUM_HOSTS):
            subprocess.run(["ip", "netns", "del", self._space(host)], capture_output=True, check=False)
            subprocess.run(["ip", "link", "del", self._port(host)], capture_output=True, check=False)
        subprocess.run(["ip", "link", "del", f"{self._prefix}b"], capture_output=True, check=False)

    def _space(self, host: int) -> str:
        return f"{self._prefix}n{host}"

    def _port(self, host: int) -> str:
        return f"{self._prefix}v{host}"


def _ip(*arguments: str) -> str:
    return subprocess.run(["ip", *arguments], check=True, capture_output=True, text=True).stdout


def lose_a_node(plan: JobPlan, ranks_per_node: int, log: StoryLog, hosts: Hosts, timeout: float = 180.0) -> str:
    """Run the job on both hosts; pull the plug of host 1 when its rank says so. Returns why it failed, or "".

    Args:
        plan: with a "cut" planted on a rank of host 1, and `port` that of a heartbeats' store on this machine.
        ranks_per_node: on each host.
        log: of the supervisor.
        hosts: as they were made.
        timeout: seconds for all of it.
    """
    plan = replace(plan, host=hosts.head)
    script, plan_file = write_program(plan)
    port = free_port()
    commands = [
        hosts.on(host, [*_torchrun(host, hosts, ranks_per_node, port, plan), str(script), str(plan_file)])
        for host in range(NUM_HOSTS)
    ]
    looked, cut = time.monotonic(), False

    def pull_the_plug() -> None:
        nonlocal looked, cut
        if cut or time.monotonic() - looked < _LOOK_EVERY:
            return
        looked = time.monotonic()
        if any(event.what == "fault" for event in read_events(Path(plan.folder), 0.0)):
            hosts.cut(1)
            cut = True
            log("cut", detail="host 1 has no network any more")

    log("start", detail=f"{NUM_HOSTS} nodes of {ranks_per_node} ranks")
    return follow_torchruns(commands, log, timeout, pull_the_plug)


def _torchrun(host: int, hosts: Hosts, ranks: int, port: int, plan: JobPlan) -> list[str]:
    conf = {
        "is_host": int(host == 0),
        "last_call_timeout": LAST_CALL,
        "keep_alive_interval": 1,
        "keep_alive_max_attempt": LOST_AFTER,
        "read_timeout": 20,
    }
    command = [
        *(sys.executable, "-m", "torch.distributed.run", "--nnodes", f"1:{NUM_HOSTS}", "--nproc-per-node", str(ranks)),
        *("--rdzv-backend", "c10d", "--rdzv-endpoint", f"{hosts.address(0)}:{port}", "--rdzv-id", "job"),
        *("--rdzv-conf", ",".join(f"{name}={value}" for name, value in conf.items())),
        *("--local-addr", hosts.address(host), "--log-dir", str(Path(plan.folder, f"torchrun-{host}"))),
    ]
    return with_restarts(command, 2)
