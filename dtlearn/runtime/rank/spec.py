"""The contract between the head and a rank: what it is told, and the files it writes."""

import signal
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

from ..device import DEVICE_VARIABLE
from ..machine.network import interface_variables

LOST_LINE = 71  # exit code of a rank that could not say that it finished
STACK_SIGNAL = signal.SIGUSR2  # asks a rank for its stack; answered in C, so also by a rank that holds the GIL


@dataclass(frozen=True)
class RankOnNode:
    """Where a rank stands among the machines of its world; one machine is a lab of one. Plain values only, as below."""

    local_rank: int  # among the ranks of its node
    local_world_size: int
    node_rank: int
    num_nodes: int
    master_addr: str  # address of the first node: there a script's own `init_process_group` meets
    interface: str  # the network interface that collectives use
    ahead_ns: int = 0  # how far the head's clock is ahead of this node's
    store: str = ""  # "address:port" where the ranks' shared store is reached from this node; "": they share a file

    @classmethod
    def alone(cls, rank: int, world_size: int) -> Self:
        """The place of a rank whose whole world is on the head's own machine."""
        return cls(rank, world_size, 0, 1, "127.0.0.1", "lo0" if sys.platform == "darwin" else "lo")


@dataclass(frozen=True)
class RankSpec:
    """Everything that a rank is told when it starts. Plain values only: it travels as JSON."""

    kind: str  # "run" (one function), "kernel" (notebook cells) or "store" (no rank: a lab's store)
    rank: int  # in the world of this run
    world_size: int
    backend: str  # "nccl" or "gloo"
    device: str  # as torch spells it: "cpu", "cuda:1"
    run_dir: str  # private directory of this run: store, call logs, stack dumps
    env: dict[str, str]  # of the process that asked for the ranks
    cwd: str  # likewise
    sys_path: list[str]  # likewise
    group_timeout: float  # seconds, for the process group
    node: dict[str, Any]  # where it stands among the machines, the fields of a `RankOnNode`
    limits: dict[str, Any] = field(default_factory=dict)  # fields of `Limits`
    isolation: dict[str, Any] = field(default_factory=dict)  # fields of `Isolation`

    @property
    def on_node(self) -> RankOnNode:
        return RankOnNode(**self.node)

    def environment(self) -> dict[str, str]:
        """What `torchrun` would set, and one thread; the network interface unless the user chose another."""
        on_node = self.on_node
        values = {
            "RANK": self.rank,
            "LOCAL_RANK": on_node.local_rank,
            "GROUP_RANK": on_node.node_rank,
            "ROLE_RANK": self.rank,
            "WORLD_SIZE": self.world_size,
            "LOCAL_WORLD_SIZE": on_node.local_world_size,
            "GROUP_WORLD_SIZE": on_node.num_nodes,
            "ROLE_WORLD_SIZE": self.world_size,
            "MASTER_ADDR": on_node.master_addr,
            "MASTER_PORT": 29500,
            "OMP_NUM_THREADS": 1,
            **interface_variables(on_node.interface, self.env),
            DEVICE_VARIABLE: self.device,
            # Collectives that torch's flight recorder remembers; it must be told before the first group is made.
            "TORCH_FR_BUFFER_SIZE": self.env.get("TORCH_FR_BUFFER_SIZE", 256),
        }
        return {name: str(value) for name, value in values.items()}


def stack_file(run_dir: str | Path, rank: int) -> Path:
    """Where a rank writes its stack when it gets `STACK_SIGNAL`."""
    return Path(run_dir) / f"stack-{rank}.txt"


def call_log_file(run_dir: Path, rank: int, cell: int = 0) -> Path:
    """Where a rank writes its calls; the n-th cell of a world writes to a file of its own."""
    return run_dir / f"calls-{rank}-{cell}.jsonl"


def link_file(run_dir: Path) -> Path:
    """What the ranks of an emulated link share."""
    return run_dir / "link"
