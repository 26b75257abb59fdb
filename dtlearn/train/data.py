"""Which rank reads which samples, and in what portions.

The global batch has B samples for every number N of ranks; each rank takes B / N of them, in `accumulate`
micro-batches. In each epoch n // B whole batches are used; the rest, fewer than B samples, is left out (another rest in
each epoch, as the order is another). So the k-th update sees the same samples for every N, and runs can be compared, or
resumed on another number of ranks.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from functools import partial

import torch
from torch.utils.data import DataLoader

from dtlearn.data_parallel.samples.resumable import ResumableSampler
from dtlearn.data_parallel.samples.sampler import EvaluationSampler
from dtlearn.models.reference import Batch

from .options import Settings
from .ranks.group import RankOnDevice
from .ranks.rank_0 import TrainError
from .ranks.stop_signals import held_back, ignore_stop_signals
from .task import TrainingTask

EVALUATION_BATCH = 256  # samples; nothing depends on it but memory


def check_batch(task: TrainingTask, settings: Settings, world_size: int) -> None:
    """Raise TrainError if the ranks cannot share the batches evenly, or there is no whole batch, or too few samples."""
    size, parts = settings.batch_size, world_size * settings.accumulate
    if world_size > len(task.train):
        raise TrainError(f"{world_size} ranks, but only {len(task.train)} training samples: start fewer ranks")
    if size % parts:
        nearest = max(parts, round(size / parts) * parts)
        raise TrainError(
            f"--batch-size {size} cannot be shared evenly: {world_size} ranks times --accumulate {settings.accumulate} "
            f"must divide it. The nearest that works is --batch-size {nearest}"
        )
    if size > len(task.train):
        raise TrainError(f"--batch-size {size} is more than the {len(task.train)} training samples: no batch is full")


class TrainingData:
    """This rank's micro-batches, from any place in any epoch.

    Attributes:
        sampler: knows the place: `epoch`, and `consumed`, samples of it that all ranks together have used.
        steps_per_epoch: updates in an epoch.
    """

    def __init__(self, task: TrainingTask, settings: Settings, here: RankOnDevice) -> None:
        check_batch(task, settings, here.world_size)
        self.task, self.settings, self.here = task, settings, here
        self.sampler = ResumableSampler(
            task.train, here.world_size, here.rank, seed=settings.seed, drop_last=True
        )  # one seed for all ranks: they share one order
        self.steps_per_epoch = len(task.train) // settings.batch_size
        self.micro_batch = settings.batch_size // (here.world_size * settings.accumulate)

    def updates(self) -> Iterator[list[Batch]]:
        """The rest of the epoch: for each update the list of this rank's micro-batches, on its device."""
        left = self.steps_per_epoch - self.sampler.consumed // self.settings.batch_size
        # Workers get their seeds from this generator: others on each rank and in each epoch, and the rank's own random
        # numbers (dropout) do not depend on whether there are workers.
        words = f"{self.settings.seed} {self.sampler.epoch} {self.here.rank}"
        loader: DataLoader[Batch] = DataLoader(
            self.task.train,  # type: ignore[arg-type]  # a list will do
            batch_size=self.micro_batch,
            sampler=self.sampler,
            collate_fn=self.task.collate,
            drop_last=True,
            num_workers=self.settings.workers,
            worker_init_fn=start_worker,
            pin_memory=self.here.device.type == "cuda",
            generator=torch.Generator().manual_seed(zlib.crc32(words.encode())),
        )
        with held_back():
            batches = iter(loader)  # starts the workers
        move = partial(torch.Tensor.to, device=self.here.device, non_blocking=True)
        for _ in range(left):
            yield [(move(x), move(y)) for x, y in (next(batches) for _ in range(self.settings.accumulate))]


def start_worker(worker: int) -> None:
    """Prepare a new worker process of a DataLoader."""
    ignore_stop_signals()


def evaluation_batches(task: TrainingTask, here: RankOnDevice) -> DataLoader[Batch]:
    """This rank's part of the test samples, each of which is on exactly one rank; the device is the caller's."""
    sampler = EvaluationSampler(task.test, here.world_size, here.rank)
    return DataLoader(
        task.test,  # type: ignore[arg-type]  # a list will do
        batch_size=EVALUATION_BATCH,
        sampler=sampler,
        collate_fn=task.collate,
    )
