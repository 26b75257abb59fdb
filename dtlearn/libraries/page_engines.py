"""One GPT, one loop, four libraries: what each builds from one description, what you still write.

`step(tokens, targets)`: (B, T) and (B, T) of this rank -> its loss, (). What a library takes over
is what is *not* there: DeepSpeed's engine scales, reduces, clips and steps by itself.
"""

from typing import Any

import torch
from accelerate import Accelerator, DeepSpeedPlugin, InitProcessGroupKwargs
from torch import nn, optim
from torch.distributed.fsdp import fully_shard
from torch.nn.functional import cross_entropy

from dtlearn.libraries.description import RunDescription


class TorchEngine:
    """torch's own DDP and FSDP2 wrap the model. Optimizer, clipping and loop are ours."""

    def __init__(self, model: nn.Module, run: RunDescription) -> None:
        self.model, self.run = model, run
        self.optimizer = optim.AdamW(model.parameters(), run.lr, weight_decay=run.weight_decay)

    def step(self, tokens: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        loss = cross_entropy(self.model(tokens).flatten(0, 1), targets.flatten())
        loss.backward()  # DDP: all-reduce; FSDP2: all-gather and reduce-scatter, unit by unit
        if self.run.clipping:
            nn.utils.clip_grad_norm_(self.model.parameters(), self.run.clipping)
        self.optimizer.step()
        self.optimizer.zero_grad()
        return loss.detach()


def ddp(model: nn.Module, run: RunDescription) -> TorchEngine:
    return TorchEngine(nn.parallel.DistributedDataParallel(model), run)


def fsdp2(model: Any, run: RunDescription) -> TorchEngine:
    for block in model.blocks:  # a unit for each block, and one for the rest
        fully_shard(block)
    fully_shard(model)
    return TorchEngine(model, run)  # after wrapping: the optimizer gets the shards


class AccelerateEngine:
    """Accelerate wraps model and optimizer: in DDP, or with a `ds_config` in DeepSpeed."""

    def __init__(self, model: nn.Module, run: RunDescription, ds_config: Any = None) -> None:
        how: dict[str, Any] = {"cpu": True}
        if ds_config:  # and no cpu=True: beside it the plugin is ignored, without a word
            gloo = [InitProcessGroupKwargs(backend="gloo")]
            how = {"deepspeed_plugin": DeepSpeedPlugin(ds_config), "kwargs_handlers": gloo}
        self.accelerator, self.run = Accelerator(**how), run
        optimizer = optim.AdamW(model.parameters(), run.lr, weight_decay=run.weight_decay)
        self.model, self.optimizer = self.accelerator.prepare(model, optimizer)

    def step(self, tokens: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        loss = cross_entropy(self.model(tokens).flatten(0, 1), targets.flatten())
        self.accelerator.backward(loss)
        if self.run.clipping:
            self.accelerator.clip_grad_norm_(self.model.parameters(), self.run.clipping)
        self.optimizer.step()
        self.optimizer.zero_grad()
        return loss.detach()


class DeepSpeedEngine:
    """DeepSpeed takes over all but forward and loss; `ds_config_of(run)` says how."""

    def __init__(self, model: nn.Module, ds_config: dict) -> None:
        import deepspeed

        self.engine, *_ = deepspeed.initialize(model=model, config=ds_config)

    def step(self, tokens: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        loss = cross_entropy(self.engine(tokens).flatten(0, 1), targets.flatten())
        self.engine.backward(loss)  # divides by the micro-batches, reduces as the ZeRO stage says
        self.engine.step()  # clips (at 1.0 unless told!), updates, gathers, zeroes
        return loss.detach()
