"""The layouts in which one GPT is trained, ours and torch's, and what runs on the ranks: for `hybrid_parallel`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ....hybrid_parallel.against_plan import SmallRun
    from ....models.in_turns import Times

MICROBATCHES = 4
_WARM = 2  # steps that do not count: the first makes the optimizer's state, tells shapes, and settles DDP's buckets
# Ours, and what of torch does the same.
COUNTERPARTS = {
    "tp": "torch's DTensor",
    "pp": "torch's Schedule1F1B",
    "dp": "torch's DDP",
    "dp, ZeRO 3": "torch's fully_shard",
    "tp x dp, ZeRO 3": "torch's DTensor, fully_shard",
}
LAYOUTS = (
    "tp",
    "pp",
    "dp",
    "dp, ZeRO 1",
    "dp, ZeRO 2",
    "dp, ZeRO 3",
    "tp x pp",
    "tp x dp",
    "tp x dp, ZeRO 3",
    "pp x dp",
)
WAYS = (*LAYOUTS, *COUNTERPARTS.values())

LossStep = Callable[[], float]


def runs_of(base: SmallRun, ranks: int) -> dict[str, SmallRun]:
    """The runs of all `LAYOUTS` on so many ranks, by name: a layout of two axes has two ranks on the inner one.

    Raises:
        ValueError: an odd number of ranks, or one that the model does not fit.
    """
    from ....hybrid_parallel.layout import MeshLayout

    if ranks < 2 or ranks % 2:
        raise ValueError(f"two axes share the ranks, two on the inner one; got {ranks} ranks, take 2, 4 or 8")
    found = {}
    for name in LAYOUTS:
        axes, _, stage = name.partition(", ZeRO ")
        inner, _, outer = axes.partition(" x ")
        sizes = {inner: 2, outer: ranks // 2} if outer else {inner: ranks}
        tp, pp, dp = (sizes.get(axis, 1) for axis in ("tp", "pp", "dp"))
        m = MICROBATCHES if pp > 1 else 1
        found[name] = replace(base, layout=MeshLayout(tp, pp, dp), zero=int(stage or 0), num_microbatches=m)
    return found


def steps_of(runs: Mapping[str, SmallRun]) -> dict[str, LossStep]:
    """On each rank: a step in each of `WAYS`, which returns the mean loss of the whole batch, the same on all ranks."""
    steps: dict[str, LossStep] = {name: _our_step(run) for name, run in runs.items()}
    return steps | {other: _torch_step(other, runs[own]) for own, other in COUNTERPARTS.items()}


def _our_step(run: SmallRun) -> LossStep:
    model, batch = run.make(), run.batch()
    return lambda: model.step(*batch).loss


def _torch_step(way: str, run: SmallRun) -> LossStep:
    """A step of the same model, batch and optimizer with torch's own classes. They find no norm of the gradient."""
    import torch
    import torch.distributed as dist

    from ....models import GPT, next_token_loss

    torch.manual_seed(0)
    model, batch = GPT(run.config), run.batch()
    if run.layout.pp > 1:
        return _torch_pipeline(model, run)
    divided = _divided(way, model, run)
    optimizer = torch.optim.AdamW(divided.parameters(), lr=1e-3)
    each = len(batch[0]) // run.layout.dp
    first = run.layout.replica(dist.get_rank()) * each
    tokens, targets = (rows[first : first + each] for rows in batch)

    def step() -> float:
        optimizer.zero_grad()
        loss = next_token_loss(divided(tokens), targets)
        loss.backward()
        optimizer.step()
        mean = loss.detach() / dist.get_world_size()
        dist.all_reduce(mean)
        return mean.item()

    return step


def _divided(way: str, model: Any, run: SmallRun) -> Any:
    from torch.distributed.device_mesh import init_device_mesh
    from torch.nn.parallel import DistributedDataParallel

    from ....hybrid_parallel.against_plan import divide_by_torch

    if way == "torch's DDP":
        return DistributedDataParallel(model)
    mesh = init_device_mesh("cpu", (run.layout.dp, run.layout.tp), mesh_dim_names=("dp", "tp"))
    return divide_by_torch(model, mesh, zero=run.zero)


def _torch_pipeline(model: Any, run: SmallRun) -> LossStep:
    import torch
    import torch.distributed as dist
    from torch.distributed.pipelining import Schedule1F1B

    from ....models import next_token_loss
    from ....pipeline_parallel.schedules.torch_stage import torch_stage
    from ....pipeline_parallel.split_model import split_gpt

    rank, last = dist.get_rank(), run.layout.pp - 1
    module = split_gpt(model, run.boundaries)[rank]
    runner = Schedule1F1B(torch_stage(module, rank, last + 1, "cpu"), run.num_microbatches, next_token_loss)
    optimizer = torch.optim.AdamW(module.parameters(), lr=1e-3)
    tokens, targets = run.batch()

    def step() -> float:
        optimizer.zero_grad()
        losses: list[torch.Tensor] = []
        inputs = (tokens,) if rank == 0 else ()
        runner.step(*inputs, target=targets if rank == last else None, losses=losses, return_outputs=False)
        optimizer.step()
        mean = torch.stack([loss.detach() for loss in losses]).mean() if rank == last else torch.zeros(())
        dist.all_reduce(mean)
        return mean.item()

    return step


def once_on_rank(runs: Mapping[str, SmallRun]) -> dict[str, float]:
    """On each rank of a recorded run: the loss of a second step in each of `WAYS`, in a phase of the record."""
    import torch.distributed as dist

    from ....runtime.recording.phases import phase

    losses = {}
    for name, step in steps_of(runs).items():
        step()
        dist.barrier()
        with phase(name):
            losses[name] = step()
    return losses


def time_on_rank(runs: Mapping[str, SmallRun], rounds: int) -> Times:
    """On each rank: seconds of a step in each of `WAYS`, in turns."""
    from ....models.in_turns import time_in_turns

    return time_in_turns(steps_of(runs), rounds, _WARM)
