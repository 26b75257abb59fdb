"""Save a job after two steps, and resume it. Each rank drops units by a generator of its own."""

from typing import Any

import torch
import torch.distributed as dist


def main() -> list[float]:
    """Return this rank's random numbers in the step after the resume."""
    rank = dist.get_rank()
    generator = torch.Generator().manual_seed(100 + rank)
    for _ in range(2):
        torch.rand(3, generator=generator)
    file: list[Any] = [{"step": 2, "generator": generator.get_state()}]

    # The job is started again, and all ranks read the file that rank 0 wrote.
    dist.broadcast_object_list(file, src=0)
    generator = torch.Generator()
    generator.set_state(file[0]["generator"])
    return torch.rand(3, generator=generator).tolist()
