"""Who belongs to a lab: starts its nodes, lets them in or says why not, and knows who is there."""

import platform
import shlex
import time
from collections.abc import Callable
from concurrent.futures import wait
from typing import Any

from ...errors import HostLost, LaunchError
from ...words import ranks_text
from ..config import Lab, NodeConfig
from ..facts import software
from .port import HeadPort, JoinedNode
from .start_nodes import Starter, node_command

_TELL_EVERY = 10.0  # seconds between two lines that say for whom we wait


class Members:
    """The nodes of a lab, from the start of the first to the end of all."""

    def __init__(self, lab: Lab, say: Callable[[str], None]) -> None:
        self.lab, self._say = lab, say
        self._refused: dict[str, str] = {}  # why nodes that we wait for were sent away
        self._configs = {node.host: node for node in lab.nodes}
        self._starters: dict[str, Starter] = {}
        self._lost: dict[str, str] = {}  # the latest loss of each host
        self.port = HeadPort(lab.head, self._admit, self._told_of_loss)

    def joined(self, number: int) -> JoinedNode:
        """The node of that number. Raises HostLost if it is not there."""
        host = self.lab.nodes[number].host
        if (node := self.port.nodes.get(host)) is None:
            raise HostLost(self._lost.get(host) or self._told_of_loss(host, "it has not joined"))
        return node

    def loaded(self, number: int) -> JoinedNode:
        """As `joined`, once it can start ranks. Raises LaunchError if it cannot, or sees too few GPUs."""
        node, config, begun = self.joined(number), self.lab.nodes[number], time.monotonic()
        while not wait([node.loaded], _TELL_EVERY).done:
            waits = f"for {node.host} to load torch ({time.monotonic() - begun:.0f} s of {self.lab.head.wait:g} s)"
            if time.monotonic() - begun > self.lab.head.wait:
                raise LaunchError(f"no longer waited {waits}")
            self._say(f"waiting {waits}")
        seen, wanted = node.loaded.result(), max(config.gpus, default=-1) + 1
        if seen < wanted:
            needs = f"its `gpus` in {self.lab.path.name} needs {wanted}"
            raise LaunchError(f"host {node.host} shows {seen} GPUs to torch; {needs}")
        return node

    def gather(self) -> None:
        """Wait until all nodes are there; start those that are not. Raises LaunchError, saying why one did not come."""
        for problem in self.call(all_of_them=False).values():
            raise LaunchError(problem)

    def call(self, all_of_them: bool = True) -> dict[str, str]:
        """Start the nodes that are not there, and wait until each has come, or is known not to.

        `all_of_them`: go on after the first that will not come. Returns {host: why it is not there}.
        """
        problems: dict[str, str] = {}
        self._refused.clear()
        absent = [n for n in self.lab.nodes if n.host not in self.port.nodes]
        by_hand = [n for n in absent if n.start == "manual"]
        for node in by_hand:
            self._say(f"type on {node.host}:\n  {self.command_to_type(node)}")
        if by_hand:
            self._say(f"each needs a copy of {self.lab.head.token_file} for itself alone (chmod 600)")
        for node in absent:
            if node.start != "manual":
                if old := self._starters.pop(node.host, None):
                    old.close(0)
                self._starters[node.host] = Starter(node, self.port.address, self.port.token.text())
        begun = last_line = time.monotonic()
        while missing := [n.host for n in absent if n.host not in self.port.nodes and n.host not in problems]:
            with self.port.changed:
                self.port.changed.wait(0.2)
            now, patience = time.monotonic(), self.lab.head.wait
            for host in missing:
                # Refused first: its start command ends then too, and says less.
                if host in self._refused:
                    problems[host] = self._refused[host]
                elif host in self._starters and (problem := self._starters[host].problem()):
                    problems[host] = f"host {host} did not join: {problem}"
            if now - begun > patience:
                late = (
                    f"{', '.join(missing)} did not join {self.port.address} within {patience:g} s. What the command "
                    "`dtlearn node` says there tells why; a firewall must let that machine reach this address and port."
                )
                return {**dict.fromkeys(missing, late), **problems}
            if problems and not all_of_them:
                break
            if now - last_line > _TELL_EVERY:
                last_line = now
                self._say(f"waiting for {', '.join(missing)} ({now - begun:.0f} s of {patience:g} s)")
        return problems

    def close(self) -> None:
        """Send all nodes home."""
        self.port.close()
        for starter in self._starters.values():
            starter.close()

    def _admit(self, said: dict[str, Any]) -> str | None:
        """In the port's thread: return why a node may not join; None if it may."""
        config = self._configs.get(said.get("host", ""))
        if config is None or config.host in self.port.nodes:
            why = f"{said.get('host')!r} is no node of {self.lab.path.name}; it has {', '.join(self._configs)}"
            if config is not None:
                why = f"a node {config.host} has joined already"
            return why + ". Choose this machine's name with --name; each machine has its own [[node]]."
        if (misfit := self._misfit(config, said)) is not None:
            self._refused[config.host] = misfit
        return misfit

    def _misfit(self, config: NodeConfig, said: dict[str, Any]) -> str | None:
        for name, wanted in software().items():
            version = said.get("software", {}).get(name)
            if version != wanted:
                return (
                    f"host {config.host} has {name} {version}, the head ({platform.node()}) has {wanted}: install the "
                    f"same version of {name} on all hosts, or set `python` of this node in {self.lab.path.name}"
                )
        return None

    def _told_of_loss(self, host: str, cause: str) -> str:
        node = self._configs[host]
        ranks = ranks_text(self.lab.ranks_of(self.lab.nodes.index(node)))
        if node.start == "manual":
            how = f"start it there again, and run a cell:\n  {self.command_to_type(node)}\n"
        else:
            how = "`%world restart` starts it again. "
        self._lost[host] = (
            f"host {host} ({ranks}) is gone: {cause}. Look whether the machine is up and reachable; then {how}"
            f"To go on without it, take its [[node]] out of {self.lab.path.name} and call dtlearn.world again."
        )
        return self._lost[host]

    def command_to_type(self, node: NodeConfig) -> str:
        """What a person types at a node."""
        return shlex.join(node_command(node, self.port.address, str(self.lab.head.token_file)))
