"""Evaluate on all ranks: rank 0 collects the scores, and chooses the best checkpoint by them."""

import time
from typing import Any

import torch
import torch.distributed as dist


def main() -> float:
    """Return the mean score of the other ranks on rank 0, and this rank's own score elsewhere."""
    rank, n = dist.get_rank(), dist.get_world_size()
    if rank > 0:
        if rank == 1:
            time.sleep(0.6)  # its texts are longer
        score = torch.tensor([10.0 * rank])
        dist.send(score, 0)
        return score.item()

    scores = [torch.zeros(1) for _ in range(1, n)]
    arrivals: list[Any] = [dist.irecv(score, src) for src, score in enumerate(scores, 1)]
    arrivals[-1].wait()
    mean = torch.cat(scores).mean().item()
    for arrival in arrivals[:-1]:
        arrival.wait()
    return mean
