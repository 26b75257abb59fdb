"""What a run says at its start and at its end."""

from __future__ import annotations

import signal
from dataclasses import asdict

import torch.distributed as dist

from dtlearn.train.report import Report
from dtlearn.train.state import Training
from dtlearn.train.tasks import Task


def announce(training: Training, task: Task, report: Report, notes: list[str], total: int) -> None:
    """Say what is going to happen."""
    settings, place = training.settings, training.place
    wrapper = {"ours": "this course's DistributedDataParallel", "torch": "torch's DistributedDataParallel"}[
        settings.ddp
    ]
    report.say(f"{task}; {place}" + f", {wrapper}" * dist.is_initialized())
    report.say(
        f"batch {settings.batch_size}: {place.world_size} x {settings.accumulate} x {training.data.micro_batch} "
        "(ranks, micro-batches, samples); "
        f"{settings.epochs} epochs of {training.data.steps_per_epoch} steps, lr {training.lr:g}"
    )
    for note in notes:
        report.say(note)
    if training.step >= total:
        report.say(f"all {total} steps are made: more --epochs go on, another --checkpoint-dir begins anew")
    report.write("run", training.step, world_size=place.world_size, arguments=asdict(settings), baseline=task.baseline)


def tell_the_end(training: Training, report: Report, total: int, stopped_by: int, unsaved: str) -> None:
    """Say how to go on, if something is left."""
    folder = training.settings.checkpoint_dir
    if training.step >= total and not stopped_by and not unsaved:
        return
    asked = f" ({signal.Signals(stopped_by).name})" if stopped_by else ""
    command = "the same command" if stopped_by else "the same command without --max-steps"
    how = f"{command} goes on from {folder}" if folder else "nothing was saved: there is no --checkpoint-dir"
    if unsaved:
        how = f"the last steps are NOT saved: {unsaved}"
    report.say(f"stopped after step {training.step} of {total}{asked}; {how}", error=True)
