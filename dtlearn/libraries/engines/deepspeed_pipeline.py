"""DeepSpeed's PipelineModule, with replicas and ZeRO 1: BLOOM's way, 8 x 12 x 4, in small."""

from __future__ import annotations

import itertools

import torch

from dtlearn.models.reference import Batch

from ..configuration.from_description import ds_config_of
from ..description import RunDescription
from ..quiet_deepspeed import quiet_deepspeed
from .base import build_model, loss_of, own_micro_batches
from .deepspeed_zero import initialize_deepspeed


class DeepSpeedPipeline:
    """A pipeline of pp stages, each with dp replicas; ZeRO 1 divides a stage's optimizer state over them.

    DeepSpeed takes the whole step over, `train_batch`: it draws the micro-batches of accumulation from an iterator and
    plays 1F1B. Ranks of one replica lie far apart: rank = stage * dp + replica.

    **Communication**: per micro-batch an activation to the next stage, and its gradient back; once more in front of
    the first of them what shape it has. Then an all-reduce of the stage's gradients among its replicas, the gathering
    of ZeRO 1, the norm over all ranks, and the mean loss from the last stage to all.
    """

    def __init__(self, run: RunDescription) -> None:
        deepspeed = quiet_deepspeed()
        if run.zero_stage > 1:
            raise ValueError(
                f"DeepSpeed's pipeline takes zero_stage=0 or 1, got {run.zero_stage}: stages 2 and 3 would reduce and "
                "gather for every micro-batch"
            )
        self.run, model = run, build_model(run)
        deepspeed.init_distributed(dist_backend="gloo", dist_init_required=False, verbose=False)
        links = [model.embedding, *model.blocks, model.head]
        module = deepspeed.pipe.PipelineModule(
            layers=links,
            num_stages=run.pp,
            loss_fn=loss_of,
            partition_method="uniform",
            activation_checkpoint_interval=int(run.recompute),
            # The reentrant one, its default, gives no gradient to a link whose input has none: the embedding.
            activation_checkpoint_func=deepspeed.checkpointing.non_reentrant_checkpoint,
        )
        self.engine = initialize_deepspeed(module, ds_config_of(run))
        self.replica = self.engine.grid.get_data_parallel_rank()

    def step(self, tokens: torch.Tensor, targets: torch.Tensor) -> float:
        parts: list[Batch] = own_micro_batches(self.run, tokens, targets, self.replica)
        loss = self.engine.train_batch(itertools.chain(parts))
        return float(loss)
