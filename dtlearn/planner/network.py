"""Seconds of collectives on two levels of links: inside a node, and from node to node.

The groups are laid out from the fastest link outwards: tp, cp, pp, dp. So a tp group is inside a node if tp divides it,
and of a dp group min(node / (tp*cp), dp) ranks share a node when pp does not lie between; they share its cards too.

A ring sends (n-1)/n of the bytes for an all-gather or a reduce-scatter, twice that for an all-reduce (Patarasuk and
Yuan, 2009), and passes n-1 messages (2(n-1)). NCCL's rings cross a node's border on all cards at once, so a group with
g ranks in each node has g cards' bandwidth there, up to that of the links inside.
"""

from __future__ import annotations

from typing import Literal

from .run import TrainingRun

GroupOperation = Literal["all-reduce", "all-gather", "reduce-scatter", "all-to-all"]
LATENCY = {"link": 3e-6, "net": 10e-6}  # seconds a message: NCCL inside a node and over InfiniBand, order of magnitude
TREE = 32  # ranks from which NCCL's trees pass 2 log2(n) messages instead of a ring's 2(n-1)


def ring_share(collective: GroupOperation, ranks: int) -> float:
    """Bytes that each rank sends, for each byte of the whole tensor."""
    return (2 if collective == "all-reduce" else 1) * (ranks - 1) / ranks


def collective_seconds(run: TrainingRun, collective: GroupOperation, size: float, ranks: int, in_node: int) -> float:
    """Of `size` bytes (of the whole tensor) over a group of `ranks`, of which `in_node` share a node."""
    if ranks <= 1 or size <= 0:
        return 0.0
    chip, software = run.cluster.chip, run.software
    bandwidth, latency = chip.link * software.link, LATENCY["link"]
    if ranks > in_node:
        bandwidth, latency = min(bandwidth, in_node * chip.network * software.net), LATENCY["net"]
    hops = ranks - 1 if ranks < TREE else 2 * (ranks - 1).bit_length()
    rounds = 2 if collective == "all-reduce" else 1
    return ring_share(collective, ranks) * size / bandwidth + rounds * hops * latency


def tp_in_node(run: TrainingRun) -> int:
    """Ranks of a tensor-parallel group in one node."""
    return min(run.axes.tp, run.cluster.node)


def cp_in_node(run: TrainingRun) -> int:
    """Ranks of a context-parallel group in one node."""
    return max(1, min(run.axes.cp, run.cluster.node // min(run.axes.tp, run.cluster.node)))


def dp_in_node(run: TrainingRun) -> int:
    """Ranks of a data-parallel group in one node; dp is the outermost axis."""
    inside = run.axes.tp * run.axes.cp * run.axes.pp
    return max(1, min(run.axes.dp, run.cluster.node // min(inside, run.cluster.node)))


def pp_seconds(run: TrainingRun, size: float) -> float:
    """To send `size` bytes to the next stage, over the link that is there."""
    inside = run.axes.tp * run.axes.cp
    near = inside * run.axes.pp <= run.cluster.node
    chip, software = run.cluster.chip, run.software
    if near:
        return size / (chip.link * software.link) + LATENCY["link"]
    return size / (chip.network * software.net) + LATENCY["net"]
