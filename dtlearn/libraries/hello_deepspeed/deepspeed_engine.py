"""DeepSpeed's engine: precision, clipping, accumulation, sharding and checkpoints are asked for in one dictionary."""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from torch import nn

from ..quiet_deepspeed import quiet_deepspeed
from .bert import masked_loss
from .masked_text import MaskedBatch
from .options import HelloOptions

TAG = "last"
MARK = "updates"  # what we add to DeepSpeed's own state
# FP16_UnfusedOptimizer takes a step with gradients of 0 to make Adam's state, so the first real one is Adam's second,
# and 0.1 / 0.19 / sqrt(0.001 / 0.001999) = 0.744 of what it should be (https://github.com/deepspeedai/DeepSpeed/pull/5104,
# open). For fp16 it divides gradients by the loss scale, which `engine.backward` has not put in (pull 8393, open): Adam
# hides a constant factor, but for its eps.
LEFT_BEHIND = {
    "bf16": "Adam has taken a step with no gradient before the first one, which comes out at 0.744 of its size",
    "fp16": "the same, and gradients are divided by a loss scale that the loss was never multiplied by",
}


def hello_config(options: HelloOptions, world_size: int, num_parameters: int) -> dict[str, Any]:
    """The `ds_config` of a run: plain values, as they would stand in a ds_config.json.

    Args:
        num_parameters: of the model. DeepSpeed's buckets have 5e8 elements by default and are allocated at once, 2 GB
            in fp32 for the smallest model too; here they hold the model.
    """
    zero: dict[str, Any] = {"stage": options.zero}
    if options.zero:
        zero |= {"reduce_bucket_size": num_parameters, "allgather_bucket_size": num_parameters}
    if options.zero == 3:
        zero["stage3_param_persistence_threshold"] = 0  # by default all tensors below 1e5 elements stay whole
    on_the_host = {"device": "cpu", "pin_memory": torch.cuda.is_available()}
    if options.offload:
        zero["offload_optimizer"] = on_the_host
        if options.zero == 3:
            zero["offload_param"] = on_the_host
    config: dict[str, Any] = {
        "train_batch_size": options.batch_size,
        "train_micro_batch_size_per_gpu": options.micro_batch(world_size),
        "gradient_accumulation_steps": options.accumulation,
        "gradient_clipping": options.clip,  # left out, it is 1.0 since 0.19.3, and was 0 before
        "optimizer": {
            "type": "AdamW",
            # torch's own: DeepSpeed's must be compiled first.
            "params": {"lr": options.lr, "weight_decay": options.weight_decay, "torch_adam": True},
        },
        "zero_optimization": zero,
    }
    if options.offload:
        config["zero_force_ds_cpu_optimizer"] = False  # torch's AdamW may update what lies on the host
    if options.precision != "fp32":
        config[options.precision] = {"enabled": True}
    return config


class DeepSpeedTrainer:
    """The same run as the plain engine's, as the `ds_config` says.

    Stage 0 in 16 bits is another matter in DeepSpeed 0.19.8: see `LEFT_BEHIND`.

    **Communication** and **Memory**: those of the ZeRO stage; `engines.deepspeed_zero` counts them.
    """

    def __init__(self, model: nn.Module, options: HelloOptions, device: torch.device) -> None:
        self.options = options
        on_processor = device.type == "cpu"
        deepspeed = quiet_deepspeed(allow_fp16=on_processor and options.precision == "fp16", on_processor=on_processor)
        num_parameters = sum(p.numel() for p in model.parameters())
        self.engine, *_ = deepspeed.initialize(
            model=model,
            model_parameters=list(model.parameters()),
            config=hello_config(options, dist.get_world_size(), num_parameters),
            dist_init_required=False,  # the loop has done it
        )

    def step(self, micro_batches: list[MaskedBatch]) -> float:
        """Update the weights once with this rank's micro-batches; their mean loss."""
        total = 0.0
        for batch in micro_batches:
            loss = masked_loss(self.engine(batch.inputs, batch.places), batch)
            self.engine.backward(loss)  # divides by the number of micro-batches, scales, reduces
            self.engine.step()  # after each micro-batch; after the last it clips and updates
            total += loss.item() / len(micro_batches)
        return total

    @torch.no_grad()
    def logits(self, batch: MaskedBatch) -> torch.Tensor:
        """What the model says to a batch, (B, K, V). Called on all ranks: ZeRO 3 gathers the parameters for it."""
        self.engine.eval()
        logits: torch.Tensor = self.engine(batch.inputs, batch.places)
        self.engine.train()
        return logits

    def save(self, step: int) -> None:
        """Write a checkpoint; called on all ranks, each of which writes its part."""
        self.engine.save_checkpoint(self.options.checkpoint_dir, tag=TAG, client_state={MARK: step})

    def load(self) -> int:
        """Go on from the checkpoint, if there is one; the number of updates that it has seen."""
        path, client_state = self.engine.load_checkpoint(self.options.checkpoint_dir)
        return int(client_state[MARK]) if path else 0
