"""One update, from the micro-batches to the loss that is reported."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn

from dtlearn.data_parallel.ddp import DistributedDataParallel
from dtlearn.models.reference import Batch

from .options import Settings
from .ranks.group import RankOnDevice
from .ranks.rank_0 import TrainError
from .ranks.stop_signals import StopSignals, signal_of
from .state import Training

WRAPPERS: dict[str, Callable[[nn.Module], nn.Module]] = {
    "ours": DistributedDataParallel,
    "torch": nn.parallel.DistributedDataParallel,
}


def wrap(model: nn.Module, settings: Settings) -> nn.Module:
    """The model in DistributedDataParallel; without a group there is nobody to average with, and it stays bare."""
    if not dist.is_initialized():
        return model
    return WRAPPERS[settings.ddp](model)


def check_amp(settings: Settings, here: RankOnDevice) -> None:
    """Raise TrainError if bfloat16 autocast was asked for where it would not help."""
    if not settings.amp:
        return
    if here.device.type != "cuda":
        raise TrainError("--amp needs a GPU: on a CPU bfloat16 is seldom faster. Leave --amp out, or use --device cuda")
    if not torch.cuda.is_bf16_supported(including_emulation=False):
        raise TrainError(f"{torch.cuda.get_device_name()} has no bfloat16 (Ampere and later do): leave --amp out")


def train_step(training: Training, model: nn.Module, batches: list[Batch], signals: StopSignals) -> tuple[float, int]:
    """One update. Returns the mean loss of the global batch, and the signal that asks to stop (0: none)."""
    settings, here = training.settings, training.here
    training.optimizer.zero_grad()
    total = torch.zeros((), device=here.device)
    for number, (x, y) in enumerate(batches, start=1):
        # Gradients of all but the last micro-batch stay on the rank; the last one's backward averages the sum of all.
        last = number == len(batches)
        with (
            model.no_sync()
            if isinstance(model, DistributedDataParallel | nn.parallel.DistributedDataParallel) and not last
            else nullcontext()
        ):
            with torch.autocast(here.device.type, torch.bfloat16, enabled=settings.amp):
                loss = F.cross_entropy(model(x), y) / len(batches)  # all micro-batches of all ranks are equally large
            loss.backward()
        total += loss.detach()
    if settings.clip is not None:
        nn.utils.clip_grad_norm_(model.parameters(), settings.clip)  # once, of the mean: the same norm on every rank
    training.optimizer.step()
    training.scheduler.step()
    training.step += 1
    training.data.sampler.advance(settings.batch_size // here.world_size)
    sums = torch.cat([total[None] / here.world_size, torch.tensor(signals.as_list(), device=here.device)])  # (3,)
    if dist.is_initialized():
        dist.all_reduce(sums)
    mean_loss, *counts = sums.tolist()
    return mean_loss, signal_of(counts)
