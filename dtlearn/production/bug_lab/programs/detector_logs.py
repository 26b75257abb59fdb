"""Train a detector, and log the mean of each loss over the ranks."""

import torch
import torch.distributed as dist


def main() -> dict[str, float]:
    """Return the mean of each loss."""
    rank, n = dist.get_rank(), dist.get_world_size()
    boxes = [[0.4, 0.6], [0.9], []][rank]  # errors of the boxes in this rank's images
    losses = {"class": torch.tensor(0.5 + rank)}
    if boxes:
        losses["box"] = torch.tensor(boxes).mean()
    losses["all"] = torch.stack(list(losses.values())).sum()

    logs = {}
    for name, loss in losses.items():
        mean = loss / n
        dist.all_reduce(mean)
        logs[name] = mean.item()
    return logs
