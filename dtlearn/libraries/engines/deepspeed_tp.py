"""DeepSpeed's AutoTP in training, with the layers of our GPT said by pattern."""

from __future__ import annotations

from typing import Any

import torch

from dtlearn.runtime.recording.phases import phase

from ..configuration.from_description import ds_config_of, laid_over
from ..description import RunDescription
from .base import build_model, loss_of, mean_over_ranks, own_micro_batches
from .deepspeed_zero import initialize_deepspeed

COLUMNS = [r".*attention\.(query|key|value)\.weight$", r".*feed_forward\.up\.weight$"]
ROWS = [r".*attention\.output\.weight$", r".*feed_forward\.down\.weight$"]


def tensor_parallel_section(tp: int) -> dict[str, Any]:
    """The section `tensor_parallel` of a ds_config for the course's GPT: AutoTP knows names of known models only."""
    specs = [{"patterns": COLUMNS, "partition_type": "column"}, {"patterns": ROWS, "partition_type": "row"}]
    return {"autotp_size": tp, "partition_config": {"use_default_specs": False, "layer_specs": specs}}


class DeepSpeedTensorParallel:
    """AutoTP divides linear layers as Megatron does; ZeRO 0 to 2 over the replicas.

    **Communication**: an all-reduce behind each half of a block, in forward and in backward; among replicas as
    `DeepSpeedZero`.
    """

    def __init__(self, run: RunDescription) -> None:
        self.run = run
        # Without an `mpu` DeepSpeed takes all ranks for replicas in train_batch = micro * accumulation * dp.
        config = laid_over(ds_config_of(run), {"tensor_parallel": tensor_parallel_section(run.tp)})
        del config["train_batch_size"]
        self.engine = initialize_deepspeed(build_model(run), config)
        self.replica = self.engine.mpu.get_data_parallel_rank() if self.engine.mpu else 0

    def step(self, tokens: torch.Tensor, targets: torch.Tensor) -> float:
        total = torch.zeros(())
        for own_tokens, own_targets in own_micro_batches(self.run, tokens, targets, self.replica):
            loss = loss_of(self.engine(own_tokens), own_targets)
            with phase("backward"):
                self.engine.backward(loss)
            with phase("update"):
                self.engine.step()
            total += loss.detach().float() / self.run.accumulation
        return mean_over_ranks(total)


def deepspeed_tp(run: RunDescription) -> DeepSpeedTensorParallel:
    """See `DeepSpeedTensorParallel`."""
    return DeepSpeedTensorParallel(run)
