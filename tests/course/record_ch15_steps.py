"""Record what one training step of each library sends, for the exercise ch15.name_the_library.

    .venv-libraries/bin/python -m tests.course.record_ch15_steps

writes `dtlearn/checks/ch15_deepspeed/recorded_steps.json`. It runs in the libraries' environment: DeepSpeed itself
sends. `test_ch15_checks.py` runs some of the steps again, and holds them against the file.
"""

from __future__ import annotations

import contextlib
import importlib.metadata
import itertools
import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from datetime import date
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

from dtlearn import run_ranks
from dtlearn.libraries.quiet_deepspeed import quiet_deepspeed

FILE = Path(__file__).parents[2] / "dtlearn/checks/ch15_deepspeed/recorded_steps.json"
STEPS = 4  # the last one is kept: ZeRO 3 traces the modules in the first, and prefetches from the third on


@dataclass(frozen=True)
class Job:
    """One run: which library, on how many ranks, with what."""

    name: str  # what it is, as the exercise names it
    library: str
    world_size: int = 2
    layers: int = 3
    width: int = 16
    micro_batches: int = 1
    options: dict[str, Any] = field(default_factory=dict)


UNIT = {"stage3_param_persistence_threshold": 0, "stage3_prefetch_bucket_size": 0, "stage3_max_reuse_distance": 0}
BY_REDUCE = {"use_multi_rank_bucket_allreduce": False}
JOBS = {
    "DDP": Job("DDP", "ddp"),
    "DDP in small buckets, accumulating": Job("DDP", "ddp", 4, micro_batches=3, options={"bucket_cap_mb": 0.01}),
    "FSDP2": Job("FSDP2", "fsdp2"),
    "FSDP2 with clipping, accumulating": Job("FSDP2", "fsdp2", 4, 2, micro_batches=2, options={"clip": 1.0}),
    "FSDP2 in bf16": Job("FSDP2", "fsdp2", 2, 4, 24, options={"bf16": True}),
    "FSDP2 without resharding": Job("FSDP2 without resharding", "fsdp2", options={"reshard": False}),
    "FSDP2 without resharding, clipping": Job(
        "FSDP2 without resharding", "fsdp2", 2, 2, options={"reshard": False, "clip": 1.0}
    ),
    "ZeRO 0": Job("ZeRO 0", "deepspeed", options={"stage": 0}),
    "ZeRO 1": Job("ZeRO 1 or 2", "deepspeed", options={"stage": 1}),
    "ZeRO 2 in bf16": Job("ZeRO 1 or 2", "deepspeed", 4, options={"stage": 2, "bf16": True}),
    "ZeRO 1, accumulating": Job("ZeRO 1", "deepspeed", micro_batches=2, options={"stage": 1}),
    "ZeRO 2, accumulating": Job("ZeRO 2", "deepspeed", micro_batches=3, options={"stage": 2}),
    "ZeRO 2 by reduce": Job("ZeRO 1 or 2", "deepspeed", options={"stage": 2, **BY_REDUCE}),
    "ZeRO 1 by reduce, accumulating": Job("ZeRO 1", "deepspeed", micro_batches=2, options={"stage": 1, **BY_REDUCE}),
    "ZeRO 2 by reduce, accumulating": Job("ZeRO 2", "deepspeed", micro_batches=2, options={"stage": 2, **BY_REDUCE}),
    "ZeRO 3": Job("ZeRO 3", "deepspeed", options={"stage": 3}),
    "ZeRO 3 layer by layer": Job("ZeRO 3", "deepspeed", 2, 2, 32, options={"stage": 3, **UNIT}),
    "ZeRO 3, accumulating": Job("ZeRO 3", "deepspeed", 2, 2, 32, 2, options={"stage": 3, **UNIT}),
    "ZeRO 1 in small buckets, accumulating": Job(
        "ZeRO 1", "deepspeed", width=15, micro_batches=2, options={"stage": 1, "bf16": True, "reduce_bucket_size": 900}
    ),
    "ZeRO 2 in small buckets, accumulating": Job(
        "ZeRO 2", "deepspeed", width=15, micro_batches=2, options={"stage": 2, "bf16": True, "reduce_bucket_size": 900}
    ),
    "ZeRO 3 in small buckets": Job(
        "ZeRO 3", "deepspeed", 2, 2, 32, options={"stage": 3, **UNIT, "reduce_bucket_size": 4500}
    ),
    "tensor parallel": Job("tensor parallel", "dtensor"),
    "tensor parallel, accumulating": Job("tensor parallel", "dtensor", 4, 2, micro_batches=2),
    "pipeline": Job("pipeline", "pipelining", layers=2, micro_batches=4),
    "tensor parallel and FSDP2": Job("tensor parallel and FSDP2", "dtensor", 4, 2, options={"tp": 2, "fsdp": True}),
    "tensor parallel and FSDP2, clipping": Job(
        "tensor parallel and FSDP2", "dtensor", 4, 2, options={"tp": 2, "fsdp": True, "clip": 1.0}
    ),
    "tensor parallel and DDP": Job("tensor parallel and DDP", "dtensor", 4, 2, options={"tp": 2, "ddp": True}),
}


def blocks(job: Job) -> nn.Sequential:
    torch.manual_seed(0)
    w = job.width
    return nn.Sequential(
        *(nn.Sequential(nn.Linear(w, 2 * w), nn.Tanh(), nn.Linear(2 * w, w)) for _ in range(job.layers))
    )


def batch(job: Job) -> torch.Tensor:
    return torch.randn(4, job.width)


def by_torch(job: Job, model: nn.Module, *, foreach: bool = True) -> None:
    """Train a model with a plain loop."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, foreach=foreach)
    for _ in range(STEPS):
        dist.barrier()  # where a step begins, in the record
        for number in range(job.micro_batches):
            no_sync = getattr(model, "no_sync", contextlib.nullcontext)
            with no_sync() if number < job.micro_batches - 1 else contextlib.nullcontext():
                model(batch(job)).square().mean().backward()
        if "clip" in job.options:
            nn.utils.clip_grad_norm_(model.parameters(), job.options["clip"]).full_tensor()
        optimizer.step()
        optimizer.zero_grad()


def ddp(job: Job) -> None:
    by_torch(job, nn.parallel.DistributedDataParallel(blocks(job), **job.options))


def fsdp2(job: Job) -> None:
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

    half = {"param_dtype": torch.bfloat16, "reduce_dtype": torch.float32} if job.options.get("bf16") else {}
    model, options = blocks(job), {"reshard_after_forward": job.options.get("reshard", True)}
    for block in (*model, model):
        fully_shard(block, mp_policy=MixedPrecisionPolicy(**half), **options)
    by_torch(job, model)


def dtensor(job: Job) -> None:
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

    tp, model = job.options.get("tp", job.world_size), blocks(job)
    mesh = init_device_mesh("cpu", (job.world_size // tp, tp), mesh_dim_names=("dp", "tp"))
    for block in model:
        parallelize_module(block, mesh["tp"], {"0": ColwiseParallel(), "2": RowwiseParallel()})
    if job.options.get("fsdp"):
        for block in (*model, model):
            fully_shard(block, mesh=mesh["dp"])
    if job.options.get("ddp"):
        from torch.distributed.tensor.parallel.ddp import _pre_dp_module_transform

        _pre_dp_module_transform(model)  # DDP takes plain tensors
        model = nn.parallel.DistributedDataParallel(model, process_group=mesh["dp"].get_group())
    torch.manual_seed(1 + mesh["dp"].get_local_rank())  # the ranks of one replica have the same samples
    by_torch(job, model, foreach=False)


def pipelining(job: Job) -> None:
    from torch.distributed.pipelining import PipelineStage, Schedule1F1B

    rank, model = dist.get_rank(), blocks(job)
    each = job.layers // job.world_size
    part = model[rank * each : (rank + 1) * each]
    stage = PipelineStage(part, rank, job.world_size, torch.device("cpu"))
    schedule = Schedule1F1B(stage, job.micro_batches, loss_fn=lambda y, target: (y - target).square().mean())
    optimizer = torch.optim.AdamW(part.parameters(), lr=1e-3)
    for _ in range(STEPS):
        dist.barrier()
        x = torch.randn(4 * job.micro_batches, job.width)
        schedule.step(*(x,) if rank == 0 else (), **{} if rank == 0 else {"target": torch.zeros_like(x)})
        optimizer.step()
        optimizer.zero_grad()


def deepspeed(job: Job) -> None:
    library = quiet_deepspeed()
    options = dict(job.options)
    bf16 = options.pop("bf16", False)
    config = {
        "train_micro_batch_size_per_gpu": 4,
        "gradient_accumulation_steps": job.micro_batches,
        "gradient_clipping": 0.0,
        "bf16": {"enabled": bf16},
        "zero_optimization": options,
        "optimizer": {"type": "AdamW", "params": {"lr": 1e-3, "torch_adam": True}},
    }
    library.init_distributed(dist_backend="gloo")
    model = blocks(job)
    engine, *_ = library.initialize(model=model, model_parameters=model.parameters(), config=config)
    for _ in range(STEPS):
        dist.barrier()
        for _ in range(job.micro_batches):
            loss = engine(batch(job).to(torch.bfloat16 if bf16 else torch.float32)).float().square().mean()
            engine.backward(loss)
            engine.step()


def recorded(job: Job) -> dict[str, Any]:
    """Run a job; return rank 0's calls with data in the last step."""

    def on_rank(job: Job) -> int:
        from tests.course import record_ch15_steps

        getattr(record_ch15_steps, job.library)(job)
        dist.barrier()
        return sum(p.numel() for p in record_ch15_steps.blocks(job).parameters())

    run = run_ranks(on_rank, job.world_size, job, record=True, timeout=120)
    events = list(run.record.select(rank=0))
    starts = [at for at, event in enumerate(events) if event.op == "barrier"]
    whole = ",".join(map(str, range(job.world_size)))
    calls = [
        {
            "phase": e.phase,
            "op": e.op,
            "group": whole if e.group == "world" else e.group,
            "dtype": e.dtype,
            "nbytes": e.nbytes,
        }
        for e in events[starts[-2] :]  # the last barrier is that after the last step
        if e.nbytes
    ]
    return {**asdict(job), "numel": run[0], "calls": calls}


def groups_of(calls: list[dict[str, Any]]) -> Iterator[str]:
    """The groups, in the order of their first calls."""
    return iter(dict.fromkeys(call["group"] for call in calls))


def main() -> None:
    packages = ("torch", "deepspeed")
    versions = {name: importlib.metadata.version(name) for name in packages}
    steps = {title: recorded(job) for title, job in JOBS.items()}
    lines = [f"  {json.dumps(title)}: {json.dumps(step)}" for title, step in steps.items()]
    head = json.dumps({"recorded": date.today().isoformat(), **versions})
    FILE.write_text('{"about": ' + head + ',\n"steps": {\n' + ",\n".join(lines) + "\n}}\n", "utf-8")
    for title, step in steps.items():
        print(title, list(groups_of(step["calls"])), step["numel"])
        for key, some in itertools.groupby(step["calls"], key=lambda c: tuple(c.values())):
            print("    ", len(list(some)), *key)


if __name__ == "__main__":
    main()
