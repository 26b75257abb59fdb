"""Two machines on one: network namespaces with an address each, on a bridge; a plug can be pulled.

It takes root and the command `ip` (Debian's iproute2). `why_not` says what is missing.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from typing import Self

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
