"""Learn a codebook: each code moves to the mean of all vectors, of all ranks, that chose it."""

import torch
import torch.distributed as dist


def main() -> list[list[float]]:
    """Return the new codebook."""
    rank = dist.get_rank()
    vectors = torch.arange(8.0).view(4, 2) + 10 * rank  # (V/n, D)
    chosen = torch.eye(2)[[0, 0, 1, 1]]  # (V/n, K): a one for the code that each vector chose

    counts = chosen.sum(0)  # (K,)
    sums = (vectors.T @ chosen).T  # (K, D)
    dist.all_reduce(counts)
    dist.all_reduce(sums.contiguous())
    codes = sums / counts[:, None]
    return codes.tolist()
