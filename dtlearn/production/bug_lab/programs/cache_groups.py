"""Serve on two nodes of two ranks: the ranks of a node agree on how much of a prompt is cached."""

import torch
import torch.distributed as dist


def main() -> int:
    """Return how many tokens are cached on all ranks of this node."""
    rank = dist.get_rank()
    node = rank // 2
    members = [2 * node, 2 * node + 1]
    group = dist.new_group(members)

    cached = torch.tensor([64, 48, 96, 80][rank])
    dist.all_reduce(cached, op=dist.ReduceOp.MIN, group=group)
    return int(cached)
