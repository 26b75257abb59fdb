"""The plain engine: what DeepSpeed does, by torch alone, with everything whole on every rank."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from .bert import masked_loss
from .masked_text import MaskedBatch
from .options import HelloOptions, checkpoint_file

DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}
FIRST_LOSS_SCALE = 2.0**16  # DeepSpeed's


class PlainTrainer:
    """DDP and AdamW; for 16 bits fp32 masters that the optimizer updates, for fp16 a loss scale too.

    **Communication** of an update: one all-reduce of the gradients, in the precision of the model.

    **Memory**: everything on every rank, 16 bytes a parameter and more.
    """

    def __init__(self, model: nn.Module, options: HelloOptions, device: torch.device) -> None:
        self.options = options
        self.dtype = DTYPES[options.precision]
        self.masters = [p.detach().clone().to(device) for p in model.parameters()]
        self.module = model.to(device, self.dtype)
        self.model = DistributedDataParallel(self.module)  # the mean over the ranks, sent during backward
        self.optimizer = torch.optim.AdamW(self.masters, lr=options.lr, weight_decay=options.weight_decay)
        self.scaler = torch.amp.GradScaler(
            device.type, init_scale=FIRST_LOSS_SCALE, enabled=options.precision == "fp16"
        )

    def step(self, micro_batches: list[MaskedBatch]) -> float:
        """Update the weights once with this rank's micro-batches; their mean loss."""
        total = 0.0
        for number, batch in enumerate(micro_batches, 1):
            last = number == len(micro_batches)
            with contextlib.nullcontext() if last else self.model.no_sync():  # send with the last
                logits = self.model(batch.inputs, batch.places)
                loss = masked_loss(logits, batch) / len(micro_batches)
                self.scaler.scale(loss).backward()
            total += loss.item()
        for master, parameter in zip(self.masters, self.module.parameters(), strict=True):
            master.grad, parameter.grad = parameter.grad.float(), None  # type: ignore[union-attr]
        self.scaler.unscale_(self.optimizer)
        if self.options.clip:
            nn.utils.clip_grad_norm_(self.masters, self.options.clip)  # once, after all micro-batches
        self.scaler.step(self.optimizer)  # skipped, on all ranks, if a gradient is infinite
        self.scaler.update()
        with torch.no_grad():
            for master, parameter in zip(self.masters, self.module.parameters(), strict=True):
                parameter.copy_(master)
        return total

    @torch.no_grad()
    def logits(self, batch: MaskedBatch) -> torch.Tensor:
        """What the model says to a batch, (B, K, V); no update."""
        logits: torch.Tensor = self.module(batch.inputs, batch.places)
        return logits

    def save(self, step: int) -> None:
        """Write a checkpoint; called on all ranks, written by rank 0, whole or not at all."""
        if torch.distributed.get_rank() == 0:
            file = checkpoint_file(self.options)
            file.parent.mkdir(parents=True, exist_ok=True)
            state = {
                "step": step,
                "masters": self.masters,
                "optimizer": self.optimizer.state_dict(),
                "scaler": self.scaler.state_dict(),
            }
            new = file.with_suffix(f".{os.getpid()}")
            torch.save(state, new)
            new.replace(file)
        torch.distributed.barrier()

    def load(self) -> int:
        """Go on from the checkpoint, if there is one; the number of updates that it has seen."""
        file = checkpoint_file(self.options)
        if not Path(file).is_file():
            return 0
        state = torch.load(file, map_location=self.masters[0].device, weights_only=True)
        with torch.no_grad():
            for master, parameter, saved in zip(self.masters, self.module.parameters(), state["masters"], strict=True):
                master.copy_(saved)
                parameter.copy_(saved)
        self.optimizer.load_state_dict(state["optimizer"])
        self.scaler.load_state_dict(state["scaler"])
        return int(state["step"])
