"""The notation: which dims of an array are divided over which axes of the mesh, and what is still to be summed.

    A[I, J]            every rank has all of A
    A[I_t, J]          rank r of axis t has part r of dim I, and all of J
    A[I, J] {U_t}      every rank of axis t has an array of A's shape, and A is their sum ("unreduced over t")

A dim is a direction of the array, an axis one of the mesh of ranks. Dims that have the same name have the same length.

    in this notation     DTensor, on axis t
    A[I_t, J]            Shard(0)
    A[I, J]              Replicate()
    A[I, J] {U_t}        Partial()

Source: Austin et al., "How to Scale Your Model", https://jax-ml.github.io/scaling-book/sharding/.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace

from dtlearn.sharing.shards import divide

_ARRAY = re.compile(r"\s*([A-Za-z]\w*)\s*\[([^\]]*)\]\s*(?:\{([^}]*)\})?\s*")
_DIM = re.compile(r"([A-Za-z0-9]+)(?:_([A-Za-z]+))?")
_PARTIAL = re.compile(r"U_([A-Za-z]+)")


@dataclass(frozen=True)
class Sharded:
    """An array in the notation; `str()` writes it, `parse` reads it.

    Attributes:
        name: of the array, such as "A" or "x".
        dims: names of its dims, in order.
        axes: of each dim the axis that it is divided over; None: it is whole on every rank.
        partial: axes over which the array is still to be summed.

    Raises:
        ValueError: no dims, a dim or an axis twice, or another number of axes than of dims.
    """

    name: str
    dims: tuple[str, ...]
    axes: tuple[str | None, ...]
    partial: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not self.dims or len(self.dims) != len(self.axes):
            raise ValueError(f"{self.name} needs dims, and an axis or None for each; got {self.dims} and {self.axes}")
        if twice := [dim for dim, times in Counter(self.dims).items() if times > 1]:
            raise ValueError(f"{self} has two dims of the name {twice[0]}")
        used = [axis for axis in (*self.axes, *self.partial) if axis is not None]
        if repeated := [axis for axis, times in Counter(used).items() if times > 1]:
            raise ValueError(
                f"{self} uses axis {repeated[0]} twice: along one axis an array is divided by one dim, or is partial"
            )

    def __str__(self) -> str:
        dims = ", ".join(
            dim if axis is None else f"{dim}_{axis}" for dim, axis in zip(self.dims, self.axes, strict=True)
        )
        partial = ", ".join(f"U_{axis}" for axis in self.partial)
        return f"{self.name}[{dims}]" + (f" {{{partial}}}" if partial else "")

    def axis_of(self, dim: str) -> str | None:
        """The axis that a dim is divided over; None: none. Raises ValueError for a dim that the array does not have."""
        if dim not in self.dims:
            raise ValueError(f"{self} has no dim {dim}")
        return self.axes[self.dims.index(dim)]

    def divided_dim(self, axis: str) -> str | None:
        """The dim that is divided over an axis; None: none."""
        return self.dims[self.axes.index(axis)] if axis in self.axes else None

    def placement(self, axis: str) -> str:
        """DTensor's word for it, on one axis: "Shard(0)", "Replicate()" or "Partial()"."""
        if axis in self.partial:
            return "Partial()"
        return f"Shard({self.axes.index(axis)})" if axis in self.axes else "Replicate()"

    def local_shape(self, sizes: Mapping[str, int], num_ranks: Mapping[str, int]) -> tuple[int, ...]:
        """Return the shape that one rank holds.

        Args:
            sizes: length of each dim in the whole array.
            num_ranks: on each axis.

        Raises:
            ValueError: the ranks of an axis do not divide a dim.
        """
        pairs = zip(self.dims, self.axes, strict=True)
        return tuple(
            sizes[dim] if axis is None else divide(sizes[dim], num_ranks[axis], f"elements of dim {dim}")
            for dim, axis in pairs
        )

    def gathered(self, dim: str) -> Sharded:
        """The array with one dim whole on every rank."""
        return self._with_axis(dim, None)

    def divided(self, dim: str, axis: str) -> Sharded:
        """The array with one dim divided over an axis, and no longer partial there."""
        return replace(self, partial=tuple(a for a in self.partial if a != axis))._with_axis(dim, axis)

    def reduced(self, axis: str) -> Sharded:
        """Summed over an axis."""
        return replace(self, partial=tuple(a for a in self.partial if a != axis))

    def _with_axis(self, dim: str, axis: str | None) -> Sharded:
        self.axis_of(dim)
        axes = [axis if name == dim else old for name, old in zip(self.dims, self.axes, strict=True)]
        return replace(self, axes=tuple(axes))


def parse(text: str) -> Sharded:
    """Read the notation: `parse("A[I_t, J]")`, `parse("y[B, T, C] {U_t}")`.

    Args:
        text: one array.

    Raises:
        ValueError: it is not the notation, or means nothing.
    """
    match = _ARRAY.fullmatch(text)
    inside = match and [_DIM.fullmatch(part.strip()) for part in match[2].split(",")]
    partial = [_PARTIAL.fullmatch(part.strip()) for part in match[3].split(",")] if match and match[3] else []
    if match is None or inside is None or None in inside or None in partial:
        raise ValueError(f'an array is written as "A[I, J]", "A[I_t, J]" or "A[I, J] {{U_t}}"; got {text!r}')
    dims = [(part[1], part[2]) for part in inside if part]
    names, axes = zip(*dims, strict=True)
    return Sharded(match[1], names, axes, tuple(part[1] for part in partial if part))
