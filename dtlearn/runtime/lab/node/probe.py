"""A node's part in the trial whether every node can reach every other one: see `head/reachability.py`."""

import socket
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from ...machine.patience import TO_REACH_A_HOST


def failed_connections(targets: dict[str, Any], source: str) -> dict[str, str]:
    """Which of `{host: [address, port]}` cannot be reached from the address `source`, and why."""

    def attempt(at: list[Any]) -> str:
        try:
            socket.create_connection(tuple(at), timeout=TO_REACH_A_HOST, source_address=(source, 0)).close()
        except OSError as error:
            return error.strerror or str(error)
        return ""

    with ThreadPoolExecutor(len(targets)) as pool:
        return {host: why for host, why in zip(targets, pool.map(attempt, targets.values()), strict=True) if why}
