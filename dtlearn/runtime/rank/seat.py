"""Where a rank sits in a lab of several hosts, and the environment that `torchrun` would set there."""

from __future__ import annotations

from dataclasses import dataclass

from ..device import DEVICE_VARIABLE


@dataclass(frozen=True)
class Seat:
    """A rank's place in a lab. Plain values only: it travels as JSON.

    Attributes:
        host: the node's name in lab.toml.
        local_rank, local_world_size: among the ranks of its node.
        node_rank, num_nodes: of its node.
        master_addr: address of the first node: there a script's own `init_process_group` meets.
        interface: the network interface that collectives use.
        ahead_ns: how far the head's clock is ahead of this host's.
        store: "address:port" where the ranks' shared store is reached from this host.
    """

    host: str
    local_rank: int
    local_world_size: int
    node_rank: int
    num_nodes: int
    master_addr: str
    interface: str
    ahead_ns: int
    store: str = ""

    def environment(self, rank: int, world_size: int, device: str, env: dict[str, str]) -> dict[str, str]:
        """What `torchrun` would set, one thread, and the interface unless the user chose another."""
        interfaces = ("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME", "TP_SOCKET_IFNAME")
        values = {
            "RANK": rank,
            "LOCAL_RANK": self.local_rank,
            "GROUP_RANK": self.node_rank,
            "ROLE_RANK": rank,
            "WORLD_SIZE": world_size,
            "LOCAL_WORLD_SIZE": self.local_world_size,
            "GROUP_WORLD_SIZE": self.num_nodes,
            "ROLE_WORLD_SIZE": world_size,
            "MASTER_ADDR": self.master_addr,
            "MASTER_PORT": 29500,
            "OMP_NUM_THREADS": 1,
            **{name: env.get(name, self.interface) for name in interfaces},
            DEVICE_VARIABLE: device,
        }
        return {name: str(value) for name, value in values.items()}
