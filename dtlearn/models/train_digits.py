"""One training script for every launcher: it trains an MLP on the digits with as many ranks as it is given.

    python -m dtlearn.models.train_digits                                    one process
    torchrun --nproc-per-node 4 -m dtlearn.models.train_digits               four ranks
    run_ranks(train, 4), a %%ranks cell, accelerate.notebook_launcher        four ranks

Any launcher will do that has initialised the default group, or has set RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR and
MASTER_PORT. Slurm's `srun` sets other names: RANK=$SLURM_PROCID, WORLD_SIZE=$SLURM_NTASKS, LOCAL_RANK=$SLURM_LOCALID.
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import dataclass

import torch
import torch.distributed as dist
import torch.nn.functional as F

from .default_group import default_group
from .digits import load_digits
from .mlp import MLP


@dataclass(frozen=True)
class DigitsResult:
    """One rank's report: the mean loss of each global batch, and the accuracy (0 to 1) on the test images."""

    losses: list[float]
    accuracy: float
    world_size: int
    rank: int

    def __str__(self) -> str:
        return (
            f"world_size={self.world_size} steps={len(self.losses)} first loss {self.losses[0]:.4f} "
            f"last loss {self.losses[-1]:.4f} test accuracy {100 * self.accuracy:.1f} %"
        )


def broadcast_model(model: torch.nn.Module) -> None:
    """Give every rank the parameters of rank 0."""
    for parameter in model.parameters():  # the same order on every rank
        dist.broadcast(parameter.detach(), src=0)


def average_flat_gradients(model: torch.nn.Module, world_size: int) -> None:
    """Replace each gradient by its mean over the ranks: one all-reduce over one flat buffer."""
    gradients = [p.grad for p in model.parameters() if p.grad is not None]  # None: frozen
    flat = torch.cat([g.flatten() for g in gradients])  # (P,)
    dist.all_reduce(flat)
    flat /= world_size
    for gradient, mean in zip(gradients, flat.split([g.numel() for g in gradients]), strict=True):
        gradient.copy_(mean.view_as(gradient))


def train(steps: int = 100, global_batch: int = 96, lr: float = 0.1, seed: int = 0) -> DigitsResult:
    """Train on this rank, together with the others: the losses are those of one process, for every world size.

    The global batch stays the same; of its B rows, rank r takes r, r + world_size, and so on: (B / world_size, 64).

    Communication (default group, float32, P = 26,122 parameters):
        before the first step: one broadcast per parameter from rank 0, 4 P bytes in all
        in each step: one all-reduce of 4 P = 104,488 bytes (gradients), and one of 4 bytes (the loss that is reported)
    Memory (per rank):
        parameters 4 P, momentum 4 P, gradients 4 P, and 4 P more while the flat buffer is filled: 16 P bytes, 418 kB,
        the same for every world size; only the images and activations shrink

    Args:
        steps: number of training steps.
        global_batch: images per step, over all ranks; the world size must divide it.
        lr: learning rate of SGD with momentum 0.9.
        seed: of the initial model on rank 0, and of the order of the images.

    Raises:
        ValueError: `steps` is below 1, or `global_batch` is too large or cannot be divided by the world size.
    """
    with default_group() as (rank, world_size, device):
        if steps < 1:
            raise ValueError(f"steps must be 1 or more, got {steps}")
        if global_batch % world_size:
            raise ValueError(
                f"the world size ({world_size}) must divide global_batch ({global_batch})",
            )
        digits = load_digits()
        torch.manual_seed(seed + rank)  # another model on each rank, until the broadcast
        model = MLP().to(device)
        if world_size > 1:
            broadcast_model(model)
        optimizer = torch.optim.SGD(model.parameters(), lr=lr, momentum=0.9)
        losses = []
        for x, y in digits.batches(steps, global_batch, seed=seed):  # the same on every rank
            local_x, local_y = x[rank::world_size].to(device), y[rank::world_size].to(device)
            optimizer.zero_grad()
            loss = F.cross_entropy(model(local_x), local_y)  # mean over B / world_size rows
            loss.backward()
            global_loss = loss.detach() / world_size
            if world_size > 1:
                average_flat_gradients(model, world_size)
                dist.all_reduce(global_loss)  # the mean over all B rows
            optimizer.step()
            losses.append(global_loss.item())
        with torch.no_grad():
            predicted = model(digits.test_x.to(device)).argmax(dim=1).cpu()
        accuracy = (predicted == digits.test_y).float().mean().item()
    return DigitsResult(losses, accuracy, world_size, rank)


def main(argv: list[str] | None = None) -> None:
    """The command line; rank 0 prints the result."""
    parser = argparse.ArgumentParser(description="Train an MLP on the digits, on one process or on many ranks.")
    parser.add_argument("--steps", type=int, default=100, help="training steps")
    parser.add_argument("--global-batch", type=int, default=96, help="images per step, over all ranks")
    parser.add_argument("--lr", type=float, default=0.1, help="learning rate")
    parser.add_argument("--seed", type=int, default=0, help="of the initial model and of the order of the images")
    try:
        result = train(**vars(parser.parse_args(argv)))
    except (ValueError, ModuleNotFoundError) as error:
        sys.exit(f"train_digits: {error}")
    if result.rank == 0:
        print(result, flush=True)


if __name__ == "__main__":
    main()
