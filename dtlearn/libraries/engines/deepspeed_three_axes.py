"""All three axes in real DeepSpeed: replicas with ZeRO 1, stages of a PipelineModule, layers divided as Megatron does.

DeepSpeed brings the grid of ranks, the pipeline and ZeRO. The divided layers are the user's: Megatron-DeepSpeed's, or
here those of chapter 12, over the group that the grid has for them.
"""

from __future__ import annotations

import functools
import importlib
import itertools

import torch
import torch.distributed as dist
from torch import nn

from dtlearn.tensor_parallel.gpt import ParallelGPT
from dtlearn.tensor_parallel.layers.parameters import ParallelModule, split_dims
from dtlearn.tensor_parallel.vocabulary.cross_entropy import vocabulary_parallel_cross_entropy

from ..configuration.from_description import ds_config_of
from ..description import RunDescription
from ..quiet_deepspeed import quiet_deepspeed
from .base import build_model, own_micro_batches
from .deepspeed_zero import initialize_deepspeed


class DividedLink(nn.Module):
    """This rank's part of one link of the chain. A `LayerSpec` makes it, on the ranks of its stage alone.

    Args:
        name: of the link in `GPT`: "embedding", "blocks.0", "head".
        group: the ranks among which its layers are divided.
    """

    def __init__(self, run: RunDescription, name: str, group: dist.ProcessGroup) -> None:
        super().__init__()
        whole = build_model(run).get_submodule(name)
        self.link = ParallelGPT(run.config, device="meta", group=group).get_submodule(name)
        assert isinstance(self.link, ParallelModule)
        self.link.load_full(dict(whole.named_parameters()))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """All ranks of the group call it."""
        out: torch.Tensor = self.link(x)
        return out


def mark_divided(module: nn.Module) -> None:
    """Say of each parameter whether it is divided: for gradient clipping, and nobody else says it.

    In the global norm DeepSpeed counts every rank's part of a parameter that has a true `tensor_model_parallel`
    (Megatron's word; or `model_parallel`), and of all others the first tp rank's alone, as of copies: see
    `is_model_parallel_parameter` in deepspeed/runtime/utils.py, asked by `get_grad_norm_direct` in stage_1_and_2.py.
    """
    dims = split_dims(module)
    for name, parameter in module.named_parameters():
        parameter.tensor_model_parallel = dims[name] is not None  # type: ignore[attr-defined]


class DeepSpeedThreeAxes:
    """dp replicas x pp stages x tp ranks of a layer: rank = (stage * dp + replica) * tp + place in the layer.

    **Communication**, per micro-batch, activations of B T C elements: among the tp ranks of a stage 2 all-reduces for
    each block in forward and 2 in backward, 1 for the embedding, 1 in the head's backward, and those of the loss. Each
    of them sends its B T C / tp to the next stage and its part of the gradient back; whoever gets one all-gathers, and
    a sender gathers its own output again before backward (`pipe_partitioned` and `grad_partitioned`, both true).
    Once a step, among the dp ranks that hold the same part: an all-reduce of the gradients, and the all-gather of what
    ZeRO 1 has updated; over all ranks the norm; from the last stage the loss.

    **Memory**: P / (tp pp) parameters and a little: norms, positions and biases of row-parallel layers are whole on all
    tp ranks. For each of them 4 bytes of weight, 4 of gradient, and of Adam's moments and the fp32 copy 12 / dp.

    Raises:
        ValueError: the description is of another number of ranks.
    """

    def __init__(self, run: RunDescription) -> None:
        if (n := dist.get_world_size()) != run.world_size:
            raise ValueError(f"world_size={run.world_size}, and there are {n} ranks")
        deepspeed = quiet_deepspeed()
        deepspeed.init_distributed(dist_backend="gloo", dist_init_required=False, verbose=False)
        grids = importlib.import_module("deepspeed.runtime.pipe.topology")
        topology = grids.PipeModelDataParallelTopology(num_pp=run.pp, num_mp=run.tp, num_dp=run.dp)
        # Layers need their group before PipelineModule makes a grid of its own, of the same ranks.
        self.run, self.grid = run, grids.PipelineParallelGrid(topology=topology)
        group = self.grid.get_slice_parallel_group()
        names = ["embedding", *(f"blocks.{n}" for n in range(run.config.num_layers)), "head"]
        cross_entropy = functools.partial(vocabulary_parallel_cross_entropy, group=group)
        module = deepspeed.pipe.PipelineModule(
            layers=[deepspeed.pipe.LayerSpec(DividedLink, run, name, group) for name in names],
            topology=topology,
            loss_fn=functools.partial(cross_entropy, num_classes=run.config.vocab_size),
            partition_method="uniform",
            activation_checkpoint_interval=int(run.recompute),
            # Its default, the reentrant one, gives the embedding no gradient: token ids need none.
            activation_checkpoint_func=deepspeed.checkpointing.non_reentrant_checkpoint,
        )
        mark_divided(module)
        self.engine = initialize_deepspeed(module, ds_config_of(run))

    def step(self, tokens: torch.Tensor, targets: torch.Tensor) -> float:
        parts = own_micro_batches(self.run, tokens, targets, self.grid.get_data_parallel_rank())
        return float(self.engine.train_batch(itertools.chain(parts)))
