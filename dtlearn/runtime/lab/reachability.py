"""Whether every node of a lab can reach every other one, tried before the ranks do and wait for minutes."""

from __future__ import annotations

import socket
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from ..errors import LaunchError
from ..machine.patience import TO_REACH_A_HOST
from .head.port import JoinedNode

ADVICE = (
    "Between the nodes every TCP port must be open. If a machine has several networks, name the one that they share "
    "with `interface` in lab.toml."
)


def probe_mesh(joined: list[JoinedNode]) -> None:
    """Let each node connect to each other one. Raises LaunchError that names the pairs that fail."""
    if lines := failed_pairs(joined):
        first = "nodes cannot reach each other, so no group of their ranks can form:"
        raise LaunchError("\n".join([first, *(f"  {line}" for line in lines), ADVICE]))


def failed_pairs(joined: list[JoinedNode]) -> list[str]:
    """Let each node connect to each other one. Returns a line for each pair that fails."""
    places = {p.host: [p.said["address"], p.ask({"do": "listen"})["port"]] for p in joined}
    with ThreadPoolExecutor(len(joined)) as pool:
        tries = {
            p.host: pool.submit(
                p.ask, {"do": "probe", "targets": {host: at for host, at in places.items() if host != p.host}}
            )
            for p in joined
        }
        failed_from = {host: future.result()["failed"] for host, future in tries.items()}
    return [
        f"{source} ({places[source][0]}, {next(p for p in joined if p.host == source).said['interface']}) "
        f"-> {target} ({places[target][0]}): {error}"
        for source, failed in failed_from.items()
        for target, error in failed.items()
    ]


class Probe:
    """A node's part: a port that others try, and trying theirs."""

    def __init__(self) -> None:
        self._listener: socket.socket | None = None

    def listen(self, address: str) -> int:
        """Take connections on any free port of one address. Returns the port."""
        self.close()
        self._listener = socket.create_server((address, 0), backlog=64)
        return int(self._listener.getsockname()[1])

    def close(self) -> None:
        if self._listener is not None:
            self._listener.close()
            self._listener = None


def failed_connections(targets: dict[str, Any], source: str) -> dict[str, str]:
    """Which of `{host: [address, port]}` cannot be reached from the address `source`, and why."""
    failed: dict[str, str] = {}

    def attempt(host: str, address: str, port: int) -> None:
        try:
            socket.create_connection((address, port), timeout=TO_REACH_A_HOST, source_address=(source, 0)).close()
        except OSError as error:
            failed[host] = error.strerror or str(error)

    threads = [threading.Thread(target=attempt, args=(host, *at)) for host, at in targets.items()]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return failed
