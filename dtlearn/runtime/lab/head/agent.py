"""All nodes of a lab behind the interface of one agent: `World` and `start_ranks` see ranks, not machines."""

import contextlib
import signal
from collections.abc import Callable, Collection, Iterable
from pathlib import Path
from typing import Any

from ...agent.client import Agent
from ...device import Placement
from ...errors import HostLost
from ...link.link import Link
from ...machine.patience import HEARTBEAT, Patience
from ...rank.spec import RankOnNode
from ..config import Lab
from .members import Members
from .node_agent import NodeAgent
from .reachability import probe_mesh
from .store import LabStore

_PID_BITS = 32  # a rank's number for the head: its node (from 1) above these bits, its process id there below


class LabAgent(Agent):
    """The nodes of a lab, together.

    Args:
        say: receives what a person wants to know meanwhile; None: it is printed.
        members: of nodes that were called already; it is closed with this.
    """

    def __init__(self, lab: Lab, say: Callable[[str], None] | None = None, members: Members | None = None) -> None:
        self.lab, self._say = lab, say or (lambda text: print(text, flush=True))
        self._members = members
        self._store: LabStore | None = None
        self._agents: dict[int, NodeAgent] = {}
        self.seconds_to_notice_a_loss = lab.head.patience + HEARTBEAT

    @property
    def gathered(self) -> bool:
        """Whether the nodes are here, with ranks or ready for them."""
        return self._store is not None

    def place(self, size: int, device: str, link: Link | None) -> Placement:
        assert size == self.lab.size, "a lab has as many ranks as its file says"
        if link is not None:  # the hosts have a real one
            raise ValueError(
                "an emulated link is for ranks on one machine; those of a lab have real ones: leave it out"
            )
        return self.lab.place(device)

    def gather(self, run_dir: Path) -> None:
        """Have all nodes joined, and able to reach each other. Raises LaunchError, saying which is not, and why."""
        self._drop_run()
        try:
            self._members = self._members or Members(self.lab, self._say)
            self._members.gather()
            self._store = LabStore(run_dir)
            if len(self.lab.nodes) > 1:
                probe_mesh([self._members.joined(node) for node in range(len(self.lab.nodes))])
            self.check(list(range(self.lab.size)))
        except BaseException:
            self.close()
            raise

    def check(self, ranks: list[int]) -> None:
        for rank in ranks:
            self.agent(self.lab.node_of(rank))

    def free_memory(self) -> int | None:
        return None  # the nodes look for themselves

    def start(self, common: dict[str, Any], ranks: list[dict[str, Any]], descriptors: list[int]) -> list[int]:
        handles = [0] * len(ranks)
        for node in range(len(self.lab.nodes)):
            mine = [k for k, values in enumerate(ranks) if self.lab.node_of(values["rank"]) == node]
            if not mine:
                continue
            agent = self.agent(node)
            ends = [descriptors[0], *(descriptors[1 + 2 * k + j] for k in mine for j in (0, 1))]
            there = [{**ranks[k], "node": vars(self._on_node(agent, ranks[k]["rank"]))} for k in mine]
            common_here = {**common, "env": self.environment(node)}
            for k, pid in zip(mine, agent.start(common_here, there, mine, ends), strict=True):
                handles[k] = _handle(node, pid)
        return handles

    def signal(self, pids: list[int], number: int, *, group: bool = False) -> list[int]:
        """Send a signal to ranks, and return those that live; those of a host that is gone have ended."""
        alive = []
        for node, agent in list(self._agents.items()):
            mine = [handle for handle in pids if _node(handle) == node]
            if mine and agent.joined.lost is None:
                with contextlib.suppress(HostLost):
                    there = [self.where(handle)["pid"] for handle in mine]
                    alive += [_handle(node, p) for p in agent.signal(there, number, group)]
                    if number == signal.SIGKILL:
                        agent.forget(there)
        return alive

    def reach(self, pid: int, connection: dict[str, Any], folder: Path) -> dict[str, Any]:
        return self.agent(_node(pid)).reach(self.where(pid)["pid"], connection, folder)

    def patience(self, seconds: float, pids: Iterable[int] = ()) -> Patience:
        return Patience(seconds, pids, self._seconds_in_queue)

    def _seconds_in_queue(self, handles: Collection[int]) -> dict[int, float]:
        waited: dict[int, float] = {}
        for node, agent in list(self._agents.items()):
            if mine := [handle for handle in handles if _node(handle) == node]:
                there = agent.seconds_in_queue([self.where(handle)["pid"] for handle in mine])
                waited |= {_handle(node, pid): seconds for pid, seconds in there.items()}
        return waited

    def where(self, pid: int) -> dict[str, Any]:
        return {"host": self.lab.nodes[_node(pid)].host, "pid": pid & ((1 << _PID_BITS) - 1)}

    def close(self) -> None:
        """Send the nodes home; they end their ranks."""
        self._drop_run()
        if self._members is not None:
            self._members.close()
            self._members = None

    def abandon(self, run_dir: str) -> None:
        if self._members is not None:
            self._members.port.abandon()
        if self._store is not None:
            self._store.agent.abandon(run_dir)

    def _drop_run(self) -> None:
        for agent in self._agents.values():
            agent.close()
        self._agents.clear()
        if self._store is not None:
            self._store.close()
            self._store = None

    def agent(self, node: int) -> NodeAgent:
        """The agent of a node. Raises HostLost if that node is not there."""
        if self._members is None or self._store is None:
            raise HostLost("the nodes of this lab were sent home; `%world restart` calls them again")
        joined = self._members.joined(node)
        old = self._agents.get(node)
        if old is None or old.joined is not joined:
            if old is not None:  # it was lost, and has joined again
                old.close()
            self._agents[node] = NodeAgent(self._members.loaded(node), node, self._store.address)
        return self._agents[node]

    def _on_node(self, agent: NodeAgent, rank: int) -> RankOnNode:
        node = self.lab.node_of(rank)
        said = agent.joined.said
        return RankOnNode(
            local_rank=rank - self.lab.first_rank(node),
            local_world_size=self.lab.nodes[node].ranks,
            node_rank=node,
            num_nodes=len(self.lab.nodes),
            master_addr=str(self.agent(0).joined.said["address"]),
            interface=str(said["interface"]),
            ahead_ns=agent.joined.ahead_ns,
        )

    def environment(self, node: int) -> dict[str, str]:
        """What lab.toml adds to the environment of a node's ranks."""
        config = self.lab.nodes[node]
        gpus = {"CUDA_VISIBLE_DEVICES": ",".join(map(str, config.gpus))} if config.gpus else {}
        return {**gpus, **config.env}


def _handle(node: int, pid: int) -> int:
    """The handle of a rank on a node: never a number that a process of this machine could have."""
    return ((node + 1) << _PID_BITS) + pid


def _node(handle: int) -> int:
    return (handle >> _PID_BITS) - 1
