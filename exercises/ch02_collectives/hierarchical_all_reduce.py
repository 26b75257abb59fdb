# ch02.hierarchical_all_reduce: edit this file, then run `dtlearn grade ch02.hierarchical_all_reduce`.
"""All-reduce on two levels, with few bytes between the nodes.

Each node has L = `ranks_per_node` ranks: ranks 0 to L - 1 are node 0, the next L are node 1, and so
on. Links inside a node are fast, and links between nodes are slow.

**Given** `x`, this rank's contiguous tensor, with the same shape on all ranks and any number of
elements, and `ranks_per_node`, which divides the number of ranks.

**Return** nothing. Afterwards `x` holds the sum over all ranks, in place.

**Example** with N = 4 and L = 2, seen from rank 1, which has place (local rank) 1 in node 0:

| phase | with | what rank 1 holds afterwards |
|---|---|---|
| reduce-scatter inside the node | 0, 1 | chunk 1 of 2, summed over node 0 |
| all-reduce between the nodes | 1, 3 | chunk 1 of 2, summed over all ranks |
| all-gather inside the node | 0, 1 | both chunks, summed over all ranks |

**Tools**: your answers to `ch02.ring_reduce_scatter` and `ch02.ring_all_gather`. Copy them into the
cell and give them a list of ranks instead of the whole world; sums have to end up in views of `x`.

**Rules**

- Communicate only with `dist.send`, `recv`, `isend`, `irecv` and `batch_isend_irecv`.
- With M nodes, all ranks of a node together send at most 2 (M - 1)/M n bytes to other nodes, where
  n is the size of `x`, rounded up to N equal chunks.

**Budget**, bytes that a rank sends in all: 2 (N - 1)/N n.
"""

from collections.abc import Sequence

import torch
import torch.distributed as dist


def hierarchical_all_reduce(x: torch.Tensor, ranks_per_node: int) -> None:
    """Replace x by the sum over all ranks, in place."""
    raise NotImplementedError(
        "ch02.hierarchical_all_reduce: reduce-scatter in the node, all-reduce between "
        "nodes, all-gather in the node"
    )
