"""The store in which ranks on several hosts find each other: a process of the head's agent, on the loopback only.

Ranks reach it through the nodes' encrypted connections. It is no part of any rank, so that it outlives them all.
"""

import socket
from datetime import timedelta
from typing import Any

from .. import wire
from .spec import RankSpec


def main(spec: RankSpec, channel: socket.socket) -> None:
    """Serve the store until the head closes `channel`."""
    import torch.distributed as dist

    listener = socket.create_server(("127.0.0.1", 0))
    port = listener.getsockname()[1]
    store = dist.TCPStore(
        "127.0.0.1", port, is_master=True, wait_for_workers=False, master_listen_fd=listener.detach(), use_libuv=True
    )
    channel.sendall(wire.encode({"kind": "ready", "connection": {"port": port}}))
    channel.recv(1)
    del store


def connect(address: str, prefix: str, timeout: float) -> Any:
    """A rank's view of the store at "address:port": keys of its own under `prefix`."""
    import torch.distributed as dist

    host, _, port = address.rpartition(":")
    store = dist.TCPStore(host, int(port), is_master=False, timeout=timedelta(seconds=timeout), use_libuv=True)
    return dist.PrefixStore(prefix, store)
