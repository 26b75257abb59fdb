"""What a run tells: lines on rank 0, a progress bar if somebody watches, metrics in files."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from contextlib import suppress
from dataclasses import asdict
from itertools import count
from pathlib import Path
from typing import Any, Protocol

import torch.distributed as dist

from dtlearn.runtime.machine.whole_file import write_whole

from .checkpoint import prepare_folder
from .ranks.group import RankOnDevice
from .ranks.rank_0 import from_rank_0
from .state import Training
from .task import TrainingTask

METRICS_FILE = "metrics.jsonl"


class _Writer(Protocol):
    """What is used of torch.utils.tensorboard.SummaryWriter."""

    def add_scalar(self, tag: str, scalar_value: float, global_step: int) -> None: ...
    def flush(self) -> None: ...
    def close(self) -> None: ...


class Report:
    """Tells on rank 0; on other ranks every call does nothing.

    `metrics.jsonl` has a JSON object per line: {"kind": "run" | "train" | "test", "step": ..., ...}. TensorBoard gets
    the same numbers, if its package is installed. A resume drops the lines that lie behind its checkpoint: these steps
    are made again.

    Args:
        log_dir: folder for metrics; None: none.
        step: updates already made.

    Raises:
        TrainError: nothing can be written in the folder; on every rank.
    """

    def __init__(self, here: RankOnDevice, log_dir: str | None, step: int) -> None:
        self._speaks = here.rank == 0
        self._file = None
        self._writer: _Writer | None = None
        self._bar: Any = None
        self._since = time.perf_counter()
        if log_dir:
            folder = Path(log_dir)
            for note in from_rank_0(lambda: _prepare(folder, step)):
                self.say(note)
            if self._speaks:
                self._file = (folder / METRICS_FILE).open("a", encoding="utf-8")
                self._writer = _tensorboard(folder, step)
                if self._writer is None:
                    self.say(f"no TensorBoard here (pip install tensorboard); metrics are in {folder / METRICS_FILE}")

    def say(self, text: str, *, error: bool = False) -> None:
        """A line for a person, on rank 0."""
        if self._speaks:
            if self._bar is not None:
                self._bar.clear()
            print(text, file=sys.stderr if error else sys.stdout, flush=True)

    def start_epoch(self, epoch: int, steps: int, done: int) -> None:
        """A bar for the epoch: nothing if stderr is a file or a pipe, or if tqdm is not installed."""
        if self._speaks and sys.stderr.isatty():
            with suppress(ImportError):
                from tqdm import tqdm  # type: ignore[import-untyped]

                self._bar = tqdm(total=steps, initial=done, desc=f"epoch {epoch + 1}", unit="step", leave=False)

    def end_epoch(self) -> None:
        """Take the bar away."""
        if self._bar is not None:
            self._bar.close()
            self._bar = None

    def step(self, step: int, samples: int, **numbers: float) -> None:
        """One update of so many samples."""
        if not self._speaks:
            return
        now = time.perf_counter()
        speed, self._since = samples / max(now - self._since, 1e-9), now
        if self._bar is not None:
            self._bar.set_postfix_str(f"loss {numbers['loss']:.3f}", refresh=False)
            self._bar.update()
        self.write("train", step, **numbers, samples_per_second=round(speed, 1))

    def write(self, kind: str, step: int, **numbers: Any) -> None:
        """A line in `metrics.jsonl`, and points in TensorBoard."""
        if self._file is None:
            return
        try:
            self._file.write(json.dumps({"kind": kind, "step": step, **numbers}) + "\n")
            self._file.flush()
            if self._writer is not None and kind != "run":
                for name, value in numbers.items():
                    self._writer.add_scalar(f"{kind}/{name}", value, step)
        except OSError as error:  # a full disk: the training is worth more than its metrics
            self.close()
            self.say(f"metrics are no longer written: {error.strerror}", error=True)

    def close(self) -> None:
        """Close the files."""
        self.end_epoch()
        with suppress(OSError):
            if self._writer is not None:
                self._writer.close()
            if self._file is not None:
                self._file.close()
        self._file = self._writer = None


def _prepare(folder: Path, step: int) -> list[str]:
    """Make `metrics.jsonl` end at `step`. Returns what a person should know.

    A resume drops the lines behind its checkpoint, and one that a kill cut off; a new run moves an old file aside.
    """
    prepare_folder(folder)
    file = folder / METRICS_FILE
    if not file.exists():
        return []
    if not step:
        aside = next(name for k in count(1) if not (name := folder / f"metrics-{k}.jsonl").exists())
        os.replace(file, aside)
        return [f"the metrics of an earlier run are now in {aside}"]
    kept = []
    for line in file.read_text("utf-8").splitlines():
        with suppress(ValueError, KeyError, TypeError):
            if json.loads(line)["step"] <= step:
                kept.append(line + "\n")
    write_whole(file, "".join(kept), 0o666)
    return []


def _tensorboard(folder: Path, step: int) -> _Writer | None:
    """A writer of event files, or None if the package `tensorboard` is not installed."""
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        return None
    writer: _Writer = SummaryWriter(str(folder), purge_step=step + 1)
    return writer


def announce(training: Training, task: TrainingTask, report: Report, notes: list[str], total: int) -> None:
    """Say what is going to happen."""
    settings, here = training.settings, training.here
    wrapper = {"ours": "this course's DistributedDataParallel", "torch": "torch's DistributedDataParallel"}[
        settings.ddp
    ]
    report.say(f"{task}; {here}" + f", {wrapper}" * dist.is_initialized())
    report.say(
        f"batch {settings.batch_size}: {here.world_size} x {settings.accumulate} x {training.data.micro_batch} "
        "(ranks, micro-batches, samples); "
        f"{settings.epochs} epochs of {training.data.steps_per_epoch} steps, lr {training.lr:g}"
    )
    for note in notes:
        report.say(note)
    if training.step >= total:
        report.say(f"all {total} steps are made: more --epochs go on, another --checkpoint-dir begins anew")
    report.write("run", training.step, world_size=here.world_size, arguments=asdict(settings), baseline=task.baseline)


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
