# ch02.hierarchical_all_reduce: edit this file, then run `dtlearn grade ch02.hierarchical_all_reduce`.
"""All-reduce where the network between nodes is slow: spare it.

A cluster has nodes of L = `ranks_per_node` ranks each: ranks 0 to L - 1 are node 0, the next L are
node 1, and so on. Inside a node links are fast. Between nodes they are slow, and the ranks of a
node share them.

Comes in: `x`, this rank's contiguous tensor, with the same shape on all ranks and any number of
elements, and `ranks_per_node`, which divides the number of ranks.

Goes out: nothing is returned. Afterwards `x` holds the sum over all ranks, in place.

The way, with M nodes: reduce-scatter inside each node, so that each of its ranks has the node's sum
of one chunk. All-reduce that chunk with the ranks of the same place in the other nodes. All-gather
inside the node. The two halves of a ring are given below; what is left is who takes part in which.

Rules: only dist.send, dist.recv, dist.isend and dist.irecv. All ranks of a node together send at
most 2 (M - 1)/M n bytes to other nodes, where n is the size of x, rounded up to N equal chunks.

Budget, bytes that a rank sends, to whomever: optimal 2 (N - 1)/N n.
"""

from collections.abc import Sequence

import torch
import torch.distributed as dist


def reduce_scatter(chunks: Sequence[torch.Tensor], ranks: Sequence[int]) -> None:
    """Among `ranks`, one chunk for each: the k-th rank ends with the sum of chunk k, in place."""
    size, here = len(ranks), ranks.index(dist.get_rank())
    for step in range(size - 1):
        target = chunks[(here - step - 2) % size]
        arriving = torch.empty_like(target)
        sending = dist.isend(chunks[(here - step - 1) % size], ranks[(here + 1) % size])
        dist.recv(arriving, ranks[(here - 1) % size])
        sending.wait()
        target += arriving


def all_gather(chunks: Sequence[torch.Tensor], ranks: Sequence[int]) -> None:
    """Among `ranks`, one chunk for each: every rank gets chunk k from the k-th rank, in place."""
    size, here = len(ranks), ranks.index(dist.get_rank())
    for step in range(size - 1):
        sending = dist.isend(chunks[(here - step) % size], ranks[(here + 1) % size])
        dist.recv(chunks[(here - step - 1) % size], ranks[(here - 1) % size])
        sending.wait()


def hierarchical_all_reduce(x: torch.Tensor, ranks_per_node: int) -> None:
    """Replace x by the sum over all ranks, in place."""
    raise NotImplementedError(
        "ch02.hierarchical_all_reduce: inside the node, across, inside again"
    )
