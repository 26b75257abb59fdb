"""A server that was killed comes back from its last checkpoint; what it applied since then is lost.

What it comes back with is a whole earlier version, which workers pull. Gradients of versions that no longer exist are
refused: each return begins a new *world*, and a push says of which world its parameters were.
"""

from __future__ import annotations

import io
from dataclasses import dataclass
from pathlib import Path

import torch

from dtlearn.runtime.machine.whole_file import write_whole

from ..shard import Shard
from .server import ParameterServer


def save_server(server: ParameterServer, file: Path) -> None:
    """Write the shard, the states of its optimizers, its version and its world; the file is whole or not there."""
    shard, whole = server.shard, io.BytesIO()
    table = shard.table and {"weight": shard.table.weight, "optimizer": shard.table.optimizer.state_dict()}
    state = {"flat": shard.flat, "optimizer": shard.optimizer.state_dict(), "table": table}
    torch.save(state | {"version": server.progress.version, "world": server.channels.world}, whole)
    write_whole(file, whole.getbuffer())


def load_server(shard: Shard, file: Path) -> tuple[int, int]:
    """Put a checkpoint into a shard that was made as it was then. Returns its version, and the new world.

    `open_channels(..., world=world)` and `ParameterServer(..., version=version)` take them.

    Raises:
        FileNotFoundError: there is no checkpoint: what the server had learnt is lost.
        ValueError: it is of another shard.
    """
    if not file.exists():
        raise FileNotFoundError(
            f"there is no checkpoint {file}: this server's parameters are lost, and the workers have copies that no "
            "optimizer state belongs to. Save with `after_update=SaveEvery(file, 100)`, or start anew"
        )
    state = torch.load(file, map_location=shard.flat.device, weights_only=True)
    if state["flat"].shape != shard.flat.shape or (state["table"] is None) != (shard.table is None):
        raise ValueError(
            f"{file} has {len(state['flat'])} elements, and this shard {len(shard.flat)}; or one of them has a sparse "
            "table and the other not: use the placement that it was saved with"
        )
    shard.flat.copy_(state["flat"])
    shard.optimizer.load_state_dict(state["optimizer"])
    if shard.table is not None:
        shard.table.weight.detach().copy_(state["table"]["weight"])
        shard.table.optimizer.load_state_dict(state["table"]["optimizer"])
    return state["version"], state["world"] + 1


@dataclass(frozen=True)
class SaveEvery:
    """Saves a server after every so many updates; a killed one loses fewer than that. For `after_update`."""

    file: Path
    updates: int

    def __call__(self, server: ParameterServer) -> None:
        if server.progress.version % self.updates == 0:
            save_server(server, self.file)
