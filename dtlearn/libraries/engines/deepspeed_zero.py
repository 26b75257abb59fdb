"""DeepSpeed's engine, ZeRO stages 0 to 3: what it adds to the page is precision, accumulation, offload."""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist

from dtlearn.runtime.recording.phases import phase

from ..configuration.from_description import ds_config_of
from ..description import RunDescription
from ..quiet_deepspeed import quiet_deepspeed
from .base import build_model, loss_of, mean_over_ranks, own_micro_batches, recompute_blocks


def initialize_deepspeed(model: Any, ds_config: dict[str, Any], **more: Any) -> Any:
    """DeepSpeed's engine for a model: `deepspeed.initialize` in a process group that is there already."""
    deepspeed = quiet_deepspeed(allow_fp16=bool(ds_config.get("fp16", {}).get("enabled")))
    parameters = [p for p in model.parameters() if p.requires_grad]
    engine, *_ = deepspeed.initialize(
        model=model, model_parameters=parameters, config=ds_config, dist_init_required=False, **more
    )
    return engine


class DeepSpeedZero:
    """One engine for all stages: `zero_optimization.stage` says what is divided.

    **Communication** of a step, P parameters of b bytes (4, or 2 with bf16 and fp16) on N ranks:

    - stage 0: all-reduce of P b in backward;
    - stages 1 and 2: as stage 0, because `use_multi_rank_bucket_allreduce` is true by default; then an all-gather of
      the P b / N that each rank has updated. With false: N reduces of P b / N, the volume of the paper;
    - stage 3: an all-gather of every parameter above `stage3_param_persistence_threshold` in forward and in backward,
      one reduce-scatter for each full bucket, and after the update an all-gather of every parameter below the
      threshold, which stays whole everywhere.

    Every update asks all ranks for the gradient's norm, four or eight bytes.

    **Memory**: as chapter 9 counts; the fp32 copy of the weights that the optimizer updates is there in fp32 runs too,
    beside the model's own: 4 P / N bytes more than in the paper's table.
    """

    def __init__(self, run: RunDescription) -> None:
        self.run, model, config = run, build_model(run), ds_config_of(run)
        if run.recompute:
            deepspeed = quiet_deepspeed()
            deepspeed.init_distributed(dist_backend="gloo", dist_init_required=False, verbose=False)
            deepspeed.checkpointing.configure(None, deepspeed_config=config)
            # DeepSpeed's own `checkpoint` is the reentrant one: it needs an input that has a gradient, as blocks have.
            recompute_blocks(model, lambda function, x: deepspeed.checkpointing.checkpoint(function, x))
        self.engine = initialize_deepspeed(model, config)

    def step(self, tokens: torch.Tensor, targets: torch.Tensor) -> float:
        total = torch.zeros(())
        for own_tokens, own_targets in own_micro_batches(self.run, tokens, targets, dist.get_rank()):
            loss = loss_of(self.engine(own_tokens), own_targets)
            with phase("backward"):
                self.engine.backward(loss)  # divided by the number of micro-batches in here
            with phase("update"):
                self.engine.step()  # after each micro-batch: it counts them itself
            total += loss.detach().float() / self.run.accumulation
        return mean_over_ranks(total)
