"""Run two pipelines of two stages: the first stage of each hands its activations to the second."""

import torch
import torch.distributed as dist


def main() -> float:
    """Return the sum of the activations that this rank has at the end."""
    rank = dist.get_rank()
    pipelines = [[0, 1], [2, 3]]
    groups = [dist.new_group(ranks) for ranks in pipelines]
    pipeline = groups[rank // 2]

    stage = dist.get_rank(pipeline)
    neighbour = 1 - stage
    x = torch.full((4,), 1.0 + rank)
    if stage == 0:
        dist.send(x, neighbour)
    else:
        dist.recv(x, neighbour)
        x *= 10
    return x.sum().item()
