"""A small training job that saves and goes on: for tests, benches and pictures, and to read as an example.

    run_ranks(run_job, 4, JobOptions("job", num_steps=8))      begins
    run_ranks(run_job, 2, JobOptions("job", num_steps=16))     goes on with fewer ranks: the same losses

Data parallelism on the digits, in float64, so that losses of different numbers of ranks can be compared to 1e-10.
"""

from __future__ import annotations

import hashlib
import os
import signal
from dataclasses import dataclass
from itertools import islice

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn

from dtlearn.data_parallel.large_batch.learning_rate import go_on_at, make_scheduler
from dtlearn.data_parallel.samples.resumable import ResumableSampler
from dtlearn.gradient_compression import ErrorFeedback, TopK
from dtlearn.mixed_precision import GradScaler
from dtlearn.models import load_digits
from dtlearn.runtime.device import device as own_device
from dtlearn.train.state import seed_rank
from dtlearn.zero import ShardedParameters

from ..batch_plan import BatchPlan, plan_batch
from .checkpointer import Checkpointer
from .layouts import replicated_cuts
from .staging import SaveTimes
from .training_state import TrainingState


@dataclass(frozen=True)
class JobOptions:
    """What to train, and when to save.

    Attributes:
        folder: of the checkpoints.
        num_steps: at which the job ends, counted over all its starts.
        save_every: steps.
        asynchronous: whether saves go on beside training.
        global_batch, max_micro_batch, lr: see `plan_batch`.
        width: of the hidden layer, and so how much there is to save.
        dropout: between the layers; it draws random numbers.
        topk: the share of the gradient that each rank sends, with error feedback; 1: all of it, without.
        total_steps: of the learning rate's schedule, which must not depend on when a job is stopped.
        seed: of parameters, samples and dropout.
        die_at: (rank, step): this rank kills itself after that step, before it saves. None: nobody does.
    """

    folder: str
    num_steps: int = 8
    save_every: int = 2
    asynchronous: bool = False
    global_batch: int = 24
    max_micro_batch: int = 6
    lr: float = 0.1
    width: int = 32
    dropout: float = 0.0
    topk: float = 1.0
    total_steps: int = 100
    seed: int = 0
    die_at: tuple[int, int] | None = None


@dataclass(frozen=True)
class JobResult:
    """What one rank reports.

    Attributes:
        first_step: updates made before this start.
        losses: mean loss of each global batch since then.
        digest: SHA-256 of parameters, optimizer and residuals of this rank: equal if all bits are.
        times: of each save.
        plan: how the batch was shared.
        notes: of the resume; [] if the job began anew.
    """

    first_step: int
    losses: list[float]
    digest: str
    times: list[SaveTimes]
    plan: BatchPlan
    notes: list[str]


def run_job(options: JobOptions) -> JobResult:
    """Train on this rank, together with the others, from the newest checkpoint if there is one.

    **Communication**: an all-reduce of the gradient in each step, P elements, one of the loss, and saves.
    **Memory**: parameters, gradients and momentum, P each; with `topk` P residuals; asynchronous, the shards once more.

    Raises:
        CheckpointError: see `Checkpointer`.
    """
    rank, num_ranks = dist.get_rank(), dist.get_world_size()
    plan = plan_batch(options.global_batch, num_ranks, max_micro_batch=options.max_micro_batch, lr=options.lr)
    digits, device = load_digits(), own_device()
    torch.manual_seed(options.seed)  # the same parameters on all ranks
    model = nn.Sequential(
        nn.Linear(64, options.width), nn.ReLU(), nn.Dropout(options.dropout), nn.Linear(options.width, 10)
    )
    model = model.double().to(device)
    seed_rank(options.seed, rank)  # other dropout on each rank
    optimizer = torch.optim.SGD(model.parameters(), lr=plan.lr, momentum=0.9)
    scheduler = make_scheduler(optimizer, warmup=3, total=options.total_steps)
    scaler = GradScaler(init_scale=2.0**10, growth_interval=3)
    sampler = ResumableSampler(len(digits.train_x), num_ranks, rank, seed=options.seed, drop_last=True)
    feedback = ErrorFeedback(TopK(ratio=options.topk)) if options.topk < 1 else None
    state = TrainingState(
        model,
        ShardedParameters.of_module(model),
        optimizer,
        replicated_cuts(model, copy=rank, copies=num_ranks),
        shared={"scheduler": scheduler, "scaler": scaler, "sampler": sampler},
        feedback=feedback,
        device=device,
        seed=options.seed,
    )
    losses = []
    with Checkpointer(options.folder, asynchronous=options.asynchronous) as checkpointer:
        notes = state.resume(checkpointer)
        go_on_at(scheduler, plan.lr)  # another number of ranks may have another rate
        first_step = state.step
        while state.step < options.num_steps:
            rows = _next_rows(sampler, plan)
            x, y = digits.train_x[rows].double().to(device), digits.train_y[rows].to(device)  # (a b, 64), (a b,)
            loss = torch.zeros((), dtype=torch.float64, device=device)
            for inputs, targets in zip(x.split(plan.micro_batch), y.split(plan.micro_batch), strict=True):
                part = F.cross_entropy(model(inputs), targets, reduction="sum") / len(rows)
                scaler.scale(part).backward()
                loss += part.detach()
            _average_gradients(model, feedback)
            scaler.step(optimizer)
            scaler.update()
            scheduler.step()
            optimizer.zero_grad()
            sampler.advance(len(rows))
            state.step += 1
            dist.all_reduce(loss)
            losses.append(loss.item() / num_ranks)
            if options.die_at == (rank, state.step):
                os.kill(os.getpid(), signal.SIGKILL)
            if state.step % options.save_every == 0:
                state.save(checkpointer)
        times = checkpointer.times
    return JobResult(first_step, losses, _digest(model, optimizer, feedback), times, plan, notes or [])


def _next_rows(sampler: ResumableSampler, plan: BatchPlan) -> list[int]:
    """This rank's samples of the next global batch, from the next epoch if this one has no whole batch left."""
    size = plan.accumulate * plan.micro_batch
    if len(sampler) < size:
        sampler.set_epoch(sampler.epoch + 1)
    return list(islice(sampler, size))


@torch.no_grad()
def _average_gradients(model: nn.Module, feedback: ErrorFeedback | None) -> None:
    """Average over the ranks: whole gradients, or what each rank sends of them."""
    parameters = list(model.parameters())
    flat = torch.cat([p.grad.flatten() for p in parameters if p.grad is not None])  # (P,)
    if feedback is not None:
        payload = feedback.encode(flat, parameters)
        flat = feedback.codec.decode(payload, flat.numel())
    dist.all_reduce(flat)
    flat /= dist.get_world_size()
    for p, mean in zip(parameters, flat.split([p.numel() for p in parameters]), strict=True):
        p.grad = mean.view_as(p).clone()


def _digest(model: nn.Module, optimizer: torch.optim.Optimizer, feedback: ErrorFeedback | None) -> str:
    sha = hashlib.sha256()
    tensors = [*model.parameters(), *(s["momentum_buffer"] for s in optimizer.state.values())]
    tensors += feedback.state_dict(model)["residuals"].values() if feedback else []
    for tensor in tensors:
        sha.update(tensor.detach().cpu().contiguous().numpy().tobytes())
    return sha.hexdigest()
