"""What one rank holds of a DTensor, as plain data: its placements, its own elements, and their place in the whole."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from dtlearn.runtime.recording.clock import now_ns


@dataclass(frozen=True)
class LocalBlock:
    """A rank's part of a matrix, at one moment.

    Attributes:
        placements: in DTensor's words, such as "Shard(0)"; one for each axis of the mesh.
        axes: names of the axes of the mesh.
        shape: of the whole.
        offset: row and column of the whole where this rank's elements begin.
        rows: the rank's elements. Where a placement is partial, the ranks' elements add up to those of the whole.
        at_ns: when, on the clock of records.
    """

    placements: tuple[str, ...]
    axes: tuple[str, ...]
    shape: tuple[int, int]
    offset: tuple[int, int]
    rows: tuple[tuple[float, ...], ...]
    at_ns: int

    @property
    def is_partial(self) -> bool:
        """True if its elements are terms of a sum."""
        return any(placement.startswith("Partial") for placement in self.placements)

    def notation(self, name: str = "Y", dims: str = "TF") -> str:
        """The same in the notation of sharded arrays: "Y[T_t, F]", "Y[T, F] {U_t}"."""
        over: list[str] = ["", ""]
        partial = ""
        for placement, axis in zip(self.placements, self.axes, strict=True):
            if placement.startswith("Shard"):
                over[int(placement[6:-1])] += f"_{axis}"
            elif placement.startswith("Partial"):
                partial += f" {{U_{axis}}}"
        return f"{name}[{dims[0]}{over[0]}, {dims[1]}{over[1]}]{partial}"


def local_block(tensor: Any) -> LocalBlock:
    """What this rank holds of a DTensor now. Sends nothing.

    Args:
        tensor: a DTensor, a matrix small enough to be drawn.

    Raises:
        ValueError: not a matrix, or one that is divided in another way than by Shard, Replicate and Partial.
    """
    mesh, local = tensor.device_mesh, tensor.to_local()
    coordinate = mesh.get_coordinate() or [0] * mesh.ndim
    offset, shape = [0] * tensor.ndim, list(tensor.shape)
    for axis, placement in enumerate(tensor.placements):
        if placement.is_shard():
            dim: int = placement.dim
            part = -(-shape[dim] // mesh.size(axis))  # as torch.chunk: the last ranks have less
            start = min(coordinate[axis] * part, shape[dim])
            offset[dim], shape[dim] = offset[dim] + start, min(part, shape[dim] - start)
    if tensor.ndim != 2 or list(local.shape) != shape:
        raise ValueError(
            f"a matrix is drawn, divided by Shard, Replicate or Partial; got {tuple(tensor.shape)} with placements "
            f"{tensor.placements}, of which this rank holds {tuple(local.shape)}"
        )
    rows = tuple(tuple(float(value) for value in row) for row in local.tolist())
    names = mesh.mesh_dim_names or (("t",) if mesh.ndim == 1 else tuple(map(str, range(mesh.ndim))))
    words = tuple(map(_words, tensor.placements))
    whole = (tensor.shape[0], tensor.shape[1])
    return LocalBlock(words, tuple(names), whole, (offset[0], offset[1]), rows, now_ns())


def _words(placement: Any) -> str:
    if placement.is_shard():
        return f"Shard({placement.dim})"
    return "Replicate()" if placement.is_replicate() else "Partial()"


def check_fit(ranks: Sequence[Sequence[LocalBlock]]) -> None:
    """Raise ValueError if the ranks do not hold parts of the same matrices, in the same order."""
    states = [[(block.placements, block.shape) for block in blocks] for blocks in ranks]
    if not states or not states[0] or any(each != states[0] for each in states):
        raise ValueError(f"each rank needs a block of each state, with the same placements; got {states}")
