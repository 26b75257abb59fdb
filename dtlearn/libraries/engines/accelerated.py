"""Accelerate: one loop; a plugin says whether DDP, FSDP2 or DeepSpeed is beneath."""

from __future__ import annotations

from typing import Any

import accelerate
import torch
import torch.distributed as dist
from accelerate import DeepSpeedPlugin, FullyShardedDataParallelPlugin
from accelerate.utils import InitProcessGroupKwargs

from dtlearn.runtime.recording.phases import phase

from ..configuration.from_description import ds_config_of
from ..description import RunDescription
from ..quiet_deepspeed import quiet_deepspeed
from .base import build_model, build_optimizer, loss_of, mean_over_ranks, own_micro_batches, recompute_blocks


class AccelerateLoop:
    """Runs the loop of Accelerate's guide: `prepare`, `accumulate`, `backward`, `clip_grad_norm_`.

    **Communication** and **Memory**: of what is beneath.
    """

    def __init__(self, run: RunDescription, **plugin: Any) -> None:
        words = {"fp32": "no", "bf16": "bf16", "fp16": "fp16"}
        model = build_model(run)
        if run.recompute:
            recompute_blocks(model)
        self.run = run
        self.accelerator = accelerate.Accelerator(
            cpu="deepspeed_plugin" not in plugin,  # with cpu=True a DeepSpeed plugin is ignored, without a word
            mixed_precision=words[run.precision],
            gradient_accumulation_steps=run.accumulation,
            **plugin,
        )
        if "fsdp_plugin" in plugin:
            believe_in_fsdp(self.accelerator, plugin["fsdp_plugin"])
        if self.accelerator.num_processes != run.world_size:
            raise ValueError(
                f"Accelerate found {self.accelerator.num_processes} process, not {run.world_size}. `accelerate launch "
                "--cpu --num_processes N` starts one only: use torchrun"
            )
        self.model, self.optimizer = self.accelerator.prepare(model, build_optimizer(run, model))

    def step(self, tokens: torch.Tensor, targets: torch.Tensor) -> float:
        total = torch.zeros(())
        parts = own_micro_batches(self.run, tokens, targets, dist.get_rank())
        for own_tokens, own_targets in parts:
            with self.accelerator.accumulate(self.model):
                loss = loss_of(self.model(own_tokens), own_targets)
                with phase("backward"):
                    self.accelerator.backward(loss)  # divides by the micro-batches
                with phase("update"):
                    if self.run.clipping and self.accelerator.sync_gradients:
                        self.accelerator.clip_grad_norm_(self.model.parameters(), self.run.clipping)
                    self.optimizer.step()  # does nothing before the last micro-batch
                    self.optimizer.zero_grad()
            total += loss.detach().float() / len(parts)
        return mean_over_ranks(total)


def believe_in_fsdp(accelerator: accelerate.Accelerator, plugin: FullyShardedDataParallelPlugin) -> None:
    """Have Accelerate take its FSDP plugin seriously on the processor, as it does on GPUs.

    Its `AcceleratorState` looks at the plugin only where it has found GPUs or the like; on the processor it forgets it
    and wraps the model in DDP, with the same losses, and without a word. The record shows it: `accelerate_ignored`.
    """
    shared = accelerator.state._shared_state
    shared["distributed_type"], shared["fsdp_plugin"] = accelerate.DistributedType.FSDP, plugin


def accelerate_ddp(run: RunDescription) -> AccelerateLoop:
    """Accelerate without a plugin: DDP."""
    return AccelerateLoop(run)


def accelerate_fsdp(run: RunDescription) -> AccelerateLoop:
    """Accelerate with its FSDP plugin, version 2: `fully_shard`, a unit for each `Block`."""
    plugin = FullyShardedDataParallelPlugin(
        fsdp_version=2, auto_wrap_policy="transformer_based_wrap", transformer_cls_names_to_wrap=["Block"]
    )
    return AccelerateLoop(run, fsdp_plugin=plugin)


def accelerate_deepspeed(run: RunDescription) -> AccelerateLoop:
    """Accelerate with its DeepSpeed plugin: the `ds_config` is ours, the optimizer is handed to `prepare`."""
    quiet_deepspeed()
    config = {key: value for key, value in ds_config_of(run).items() if key != "optimizer"}
    config["zero_allow_untested_optimizer"] = True
    config["zero_force_ds_cpu_optimizer"] = False  # torch's Adam, an object, may update what lies on the host
    # Without a GPU Accelerate knows no backend of its own, and would take every rank for a run alone.
    backend = InitProcessGroupKwargs(backend="gloo")
    return AccelerateLoop(run, deepspeed_plugin=DeepSpeedPlugin(hf_ds_config=config), kwargs_handlers=[backend])
