"""An elastic job on two hosts, of which one is lost: torchrun on the other goes on with the ranks it has.

Each host has its torchrun, `--nnodes 1:2`. They meet in a rendezvous that host 0 serves, and say there again and again
that they live. When a host's line is cut, its ranks are missed by the collective's time-out; the torchrun of host 0
restarts its own ranks, waits until the lost one has been silent for `LOST_AFTER` seconds, and starts with one node.
"""

from __future__ import annotations

import sys
import time
from dataclasses import replace
from pathlib import Path

from dtlearn.runtime.machine.network import free_port

from .hosts import NUM_HOSTS, Hosts
from .on_torchrun import follow_torchruns, with_restarts, write_program
from .plan import Plan
from .story import StoryLog, read_events

LOST_AFTER = 3  # seconds without a sign of life, after which torchrun's rendezvous drops a node; torchrun's default: 15
LAST_CALL = 6  # seconds for which it waits for more nodes when there are enough; torchrun's default: 30
_LOOK_EVERY = 0.1


def lose_a_node(plan: Plan, ranks_per_node: int, log: StoryLog, hosts: Hosts, timeout: float = 180.0) -> str:
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


def _torchrun(host: int, hosts: Hosts, ranks: int, port: int, plan: Plan) -> list[str]:
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
