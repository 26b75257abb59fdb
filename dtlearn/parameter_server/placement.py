"""Which server keeps which parameters: pieces as data, made by pure functions, with a validator.

w has 6 elements, b has 3, and there are 2 servers

by_range   | w w w w w | w b b b |      equal loads; a tensor may be cut, so optimizers go element by element
balanced   | w w w w w w | b b b |      whole tensors, the largest first to the server with the least
by_hash    | w w w w w w b b b |  |     whole tensors; who has one is known without a table, balance is luck
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from typing import NamedTuple

import torch

Shapes = Mapping[str, tuple[int, ...]]  # of the parameters, by name, in the model's order


class KeyRange(NamedTuple):
    """Elements `start` to `stop` (exclusive) of a tensor as one vector, which one server keeps."""

    key: str
    start: int
    stop: int
    server: int


@dataclass(frozen=True)
class ServerPlacement:
    """Who keeps what.

    Attributes:
        shapes: of all tensors, by key.
        num_servers: servers, 1 or more.
        ranges: the pieces, in the order in which a server has them in its buffer.

    Raises:
        ValueError: an element has no server or two, a piece lies outside of its tensor, a server keeps nothing, or the
            pieces of a tensor do not follow each other in the servers' buffers, one behind the other.
    """

    shapes: dict[str, tuple[int, ...]]
    num_servers: int
    ranges: tuple[KeyRange, ...]

    def __post_init__(self) -> None:
        validate_placement(self)

    def of_server(self, server: int) -> list[KeyRange]:
        """The pieces of one server, in the order of its buffer."""
        return [piece for piece in self.ranges if piece.server == server]

    def elements_per_server(self) -> list[int]:
        """Number of elements that each server keeps."""
        return [sum(p.stop - p.start for p in self.of_server(server)) for server in range(self.num_servers)]

    def bytes_per_server(self, itemsize: int = 4) -> list[int]:
        """Bytes that each server keeps, for elements of so many bytes: what one pull or push of it moves, too."""
        return [itemsize * elements for elements in self.elements_per_server()]

    def offsets(self) -> dict[str, int]:
        """Where each tensor begins if the servers' buffers lie one behind the other: there it is in one piece."""
        offsets, at = dict.fromkeys(self.shapes, 0), 0
        for server in range(self.num_servers):
            for key, start, stop, _ in self.of_server(server):
                offsets[key] = at - start
                at += stop - start
        return offsets

    def pieces(self, server: int, tensors: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        """What one server keeps of these tensors, as views: a whole tensor has its shape, a cut one is a vector.

        Raises:
            ValueError: the tensors are not those of the placement; see `require_same_keys`.
        """
        self.require_same_keys(tensors)
        found = {}
        for key, start, stop, _ in self.of_server(server):
            whole = stop - start == tensors[key].numel()
            found[key if whole else f"{key}[{start}:{stop}]"] = (
                tensors[key] if whole else tensors[key].view(-1)[start:stop]
            )
        return found

    def require_same_keys(self, tensors: Mapping[str, torch.Tensor]) -> None:
        """Raises ValueError if a tensor has no server, if a key of the placement is missing, or if a shape differs."""
        nobody, missing = tensors.keys() - self.shapes.keys(), self.shapes.keys() - tensors.keys()
        if nobody or missing:
            raise ValueError(
                f"no server keeps {sorted(nobody)}, and the placement has {sorted(missing)}, which the model lacks: "
                "make it from this model's parameters, on every rank"
            )
        for key, shape in self.shapes.items():
            if tuple(tensors[key].shape) != shape:
                raise ValueError(f"{key} has shape {tuple(tensors[key].shape)}, and in the placement {shape}")


def shapes_of(tensors: Mapping[str, torch.Tensor]) -> dict[str, tuple[int, ...]]:
    """The shapes of named tensors, such as `dict(model.named_parameters())`."""
    return {key: tuple(tensor.shape) for key, tensor in tensors.items()}


def by_range(shapes: Shapes, num_servers: int) -> ServerPlacement:
    """Cut all elements, in their order, into as many ranges as there are servers; lengths differ by one at most.

    Source: Li et al. 2014 (OSDI), section 4.3 keeps ranges of keys, and ps-lite divides a message by them. MXNet's
    KVStore (`kvstore_dist.h`) and BytePS cut large tensors.
    """
    total, offset, ranges = sum(prod(shape) for shape in shapes.values()), 0, []
    cuts = [total * server // num_servers for server in range(num_servers + 1)]
    for key, shape in shapes.items():
        for server in range(num_servers):
            start, stop = max(cuts[server], offset) - offset, min(cuts[server + 1], offset + prod(shape)) - offset
            if start < stop:
                ranges.append(KeyRange(key, start, stop, server))
        offset += prod(shape)
    return ServerPlacement(dict(shapes), num_servers, tuple(ranges))


def by_hash(shapes: Shapes, num_servers: int) -> ServerPlacement:
    """Whole tensors, each at the server that a hash of its name says: the same on every rank, and with no table.

    The hash is CRC-32. (Python's own `hash` of a string differs between processes.)
    """
    return whole_tensors(shapes, num_servers, {key: zlib.crc32(key.encode()) % num_servers for key in shapes})


def balanced(shapes: Shapes, num_servers: int) -> ServerPlacement:
    """Whole tensors, the largest first, each to the server that has the fewest elements so far.

    The fullest server has at most 4/3 - 1/(3 S) times what the best division gives it. Source: Graham 1969, "Bounds on
    Multiprocessing Timing Anomalies".
    """
    loads, servers = [0] * num_servers, {}
    for key in sorted(shapes, key=lambda key: -prod(shapes[key])):
        servers[key] = loads.index(min(loads))
        loads[servers[key]] += prod(shapes[key])
    return whole_tensors(shapes, num_servers, servers)


def whole_tensors(shapes: Shapes, num_servers: int, servers: Mapping[str, int]) -> ServerPlacement:
    """The placement with each tensor whole at the server that `servers` names."""
    ranges = tuple(KeyRange(key, 0, prod(shape), servers[key]) for key, shape in shapes.items() if prod(shape))
    return ServerPlacement(dict(shapes), num_servers, ranges)


def validate_placement(placement: ServerPlacement) -> None:
    """Raises ValueError unless every element has one server, and every server an element."""
    for key, start, stop, server in placement.ranges:
        if key not in placement.shapes or not 0 <= start < stop <= prod(placement.shapes[key]):
            raise ValueError(f"elements {start} to {stop} of {key!r} do not exist: {placement.shapes.get(key)}")
        if not 0 <= server < placement.num_servers:
            raise ValueError(f"{key!r} is at server {server}, and there are {placement.num_servers}, from 0")
    for key, shape in placement.shapes.items():
        at = 0
        for _, start, stop, server in sorted(p for p in placement.ranges if p.key == key):
            if start != at:
                lack = f"elements {at} to {start} have no server" if start > at else f"element {start} has two servers"
                raise ValueError(f"{key!r}: {lack} (server {server})")
            at = stop
        if at < prod(shape):
            raise ValueError(f"{key!r}: elements {at} to {prod(shape)} have no server")
    at, ends = 0, dict[str, tuple[int, int]]()
    for server in range(placement.num_servers):
        for key, start, stop, _ in placement.of_server(server):
            if ends.get(key, (0, at)) != (start, at):
                raise ValueError(
                    f"{key!r}: its pieces have to follow each other, from server to server; see `by_range`"
                )
            at += stop - start
            ends[key] = (stop, at)
    kept = {piece.server for piece in placement.ranges}
    if idle := [server for server in range(placement.num_servers) if server not in kept]:
        raise ValueError(
            f"servers {idle} keep nothing: use fewer servers, or `by_range`, which cuts tensors "
            f"({len(placement.shapes)} tensors, {placement.num_servers} servers)"
        )
