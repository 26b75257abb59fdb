"""A small data-parallel training that faults are planted in: what every rank of a scenario runs.

It does what a real job does to survive: it saves, goes on from the newest checkpoint, keeps its global batch whatever
the number of ranks is, beats, and checks its numbers. It runs under `run_ranks` and, as a program, under torchrun.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn

from dtlearn.runtime.faults.failure import is_peer_loss
from dtlearn.runtime.machine.whole_file import write_new

from .flight import BUFFER_VARIABLE, dump_trace
from .heartbeat import Heartbeat
from .plan import JobPlan
from .plants import FATAL, LASTING, SKIPPED, WRONG_GRADIENT, WRONG_PARAMETER, spoil, strike
from .replay import checksum, compare_by_replay, compare_replicas
from .story import StoryLog
from .work import apply_gradient, gradient, resume, save, share

_MEET = timedelta(seconds=120)  # to start and to meet; a machine with many other jobs is slow


class SuspectRank(RuntimeError):
    """The ranks agree that one of them computes wrong."""


def run_rank(plan: JobPlan, attempt: int | None = None) -> dict[int, float]:
    """Train on this rank, from the newest checkpoint to the last step. Returns {step: loss}.

    **Communication:** each step one all-reduce of the gradient and the loss, P + 1 elements; at the start the newest
    checkpoint, broadcast; each check as `replay` says.
    **Memory:** parameters P, gradients P, momentum P, and P + 1 to reduce.

    Args:
        plan: the same on all ranks.
        attempt: how often the job was restarted; None: torchrun says it.
    """
    os.environ.setdefault(BUFFER_VARIABLE, "256")  # before the first group is made
    if attempt is None:
        attempt = int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0"))
    rank = int(os.environ["RANK"])
    log = StoryLog(Path(plan.folder), rank, attempt)
    heart = None
    try:
        group = join(plan, attempt)
        log("joined")
        if plan.port:
            dump = Path(plan.folder, f"flight-{attempt}-{rank}")
            name = f"{attempt}/{rank}"  # as the monitor knows it
            heart = Heartbeat((plan.host, plan.port), name, plan.beat_every, lambda: keep_trace(dump), plan.stall)
        losses = train(plan, attempt, group, log, heart)
        log("finished", plan.steps)
        return losses
    except RuntimeError as error:
        tell_the_end(error, log, Path(plan.folder, f"flight-{attempt}-{rank}"))
        raise
    finally:
        if heart is not None:
            heart.stop()
        if dist.is_initialized():
            dist.destroy_process_group()


def join(plan: JobPlan, attempt: int) -> dist.ProcessGroup:
    """Meet the other ranks. Returns the group for training, whose collectives give up soon."""
    if "TORCHELASTIC_RUN_ID" in os.environ:
        dist.init_process_group("gloo", timeout=_MEET)
    else:
        size = int(os.environ["WORLD_SIZE"])
        store = dist.FileStore(str(Path(plan.folder, f"store-{attempt}")), size)
        dist.init_process_group("gloo", store=store, rank=int(os.environ["RANK"]), world_size=size, timeout=_MEET)
    group = dist.new_group(timeout=timedelta(seconds=plan.group_timeout))
    assert isinstance(group, dist.ProcessGroup)
    return group


def train(
    plan: JobPlan, attempt: int, group: dist.ProcessGroup, log: StoryLog, heart: Heartbeat | None
) -> dict[int, float]:
    """The steps that are left, from the newest checkpoint on."""
    rank, size, folder = dist.get_rank(), dist.get_world_size(), Path(plan.folder)
    first, state = resume(folder)
    model = state.model
    log("resumed", first)
    start_dying(plan, attempt, log)
    losses, batches = {}, share(plan.batch, size)
    for step in range(first, plan.steps):
        begun = time.monotonic()
        if heart is not None:
            heart.reach(step + 1)
        fault = plan.fault(rank, step, attempt)
        if fault in FATAL:
            strike(fault, lambda kind, step: log("fault", step, detail=kind), step)
        flat = gradient(model, step, rank, batches)  # (P + 1,)
        if fault in WRONG_GRADIENT:
            if plan.plant is not None and step == plan.plant.step:
                log("fault", step, detail=fault)
            flat = spoil(fault, flat)
        saves = (step + 1) % plan.save_every == 0 or step + 1 == plan.steps
        checks = step % plan.check_every == 0 or saves  # what is saved was checked: a rewind must not lead into it
        if checks and (bad := check_gradient(plan, model, flat, step, group, fault)):
            tell(bad, plan, step, log)
            log("skipped", step)  # all ranks leave the update out: the same numbers came to all
            continue
        if fault == SKIPPED:  # its next call meets this one of the others
            log("fault", step, detail=fault)
        else:
            dist.all_reduce(flat, group=group)
        apply_gradient(state, flat, batches.lr)
        if fault in WRONG_PARAMETER:
            log("fault", step, detail=fault)
            parameter = next(model.parameters())
            parameter.data = spoil(fault, parameter.data.flatten()).view_as(parameter)
        if checks and plan.check == "replicas" and (bad := compare_replicas(model.parameters(), group)):
            tell(bad, plan, step, log)
        time.sleep(max(0.0, begun + plan.step_seconds - time.monotonic()))
        losses[step] = flat[-1].item()
        log("step", step, loss=losses[step])
        if saves:
            log("saving", step + 1)
            save(folder, step + 1, state, plan.save_seconds)
            log("saved", step + 1)
    return losses


def check_gradient(
    plan: JobPlan, model: nn.Module, flat: torch.Tensor, step: int, group: dist.ProcessGroup, fault: str
) -> tuple[int, ...]:
    """The ranks whose gradient is wrong, by the plan's check, before they are summed; the same on all ranks."""
    size = dist.get_world_size(group)
    if plan.check == "finite":
        mine = torch.isfinite(flat).all().long()[None]  # (1,)
        finite = [torch.empty_like(mine) for _ in range(size)]
        dist.all_gather(finite, mine, group=group)
        return tuple(rank for rank, flag in enumerate(finite) if not flag)
    if plan.check != "replay":
        return ()

    def replay(which: int) -> int:
        again = gradient(model, step, which, share(plan.batch, size))
        return checksum([spoil(fault, again) if fault in LASTING else again])  # a lasting defect spoils a replay too

    return compare_by_replay(checksum([flat]), replay, group)


def tell(bad: tuple[int, ...], plan: JobPlan, step: int, log: StoryLog) -> None:
    """Write down whom a check accuses. Raise SuspectRank, unless it is enough to leave this step out."""
    if log.rank == 0:
        about = bad[0] if len(bad) == 1 else None
        log("noticed", step, by="check", about=about, detail=f"{plan.check}: rank {', '.join(map(str, bad))}")
    if plan.check != "finite":
        raise SuspectRank(f"rank {', '.join(map(str, bad))} computed wrong in step {step}")


def start_dying(plan: JobPlan, attempt: int, log: StoryLog) -> None:
    """Set the time at which this rank kills itself, at any place of the program, if it is to die in this attempt."""
    if attempt < len(plan.deaths) and plan.deaths[attempt][0] == log.rank:
        timer = threading.Timer(
            plan.deaths[attempt][1], strike, ("kill", lambda kind, _: log("fault", detail=kind), None)
        )
        timer.daemon = True  # a rank that is done before does not wait for it
        timer.start()


def tell_the_end(error: RuntimeError, log: StoryLog, dump: Path) -> None:
    """Write down how a rank ends: by a lost connection, a time-out, or an error of its own."""
    text = str(error).splitlines()[0][:200]
    if "Timed out" in text or "timed out" in text:
        keep_trace(dump)
        log("noticed", by="time-out", detail=text)
    elif is_peer_loss(text):
        log("noticed", by="connection", detail=text)
    elif not isinstance(error, SuspectRank):
        log("noticed", by="itself", about=log.rank, detail=text)
    log("ended", detail=text)


def keep_trace(file: Path) -> None:
    """Write this process's flight recorder into a file, the first time that it is asked for."""
    if not file.exists():
        write_new(file, dump_trace())


def main() -> None:
    """The program that torchrun starts: its one argument is the file of the plan."""
    run_rank(JobPlan.from_json(Path(sys.argv[1]).read_text()))
