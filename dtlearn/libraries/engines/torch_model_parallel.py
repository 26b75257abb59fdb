"""torch's DTensor tensor parallelism and its pipelines, alone and with replicas."""

from __future__ import annotations

import itertools

import torch
from torch import nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.pipelining import PipelineStage, Schedule1F1B
from torch.distributed.tensor.parallel import ColwiseParallel, ParallelStyle, RowwiseParallel, parallelize_module

from dtlearn.models.gpt import GPT
from dtlearn.runtime.recording.phases import phase

from ..description import RunDescription
from .base import build_model, build_optimizer, loss_of, mean_over_ranks, recompute_blocks, refuse
from .torch_native import TorchLoop

COLUMNS = ("attention.query", "attention.key", "attention.value", "feed_forward.up")
ROWS = ("attention.output", "feed_forward.down")


def parallelize(model: GPT, mesh: DeviceMesh) -> None:
    """Divide each block's six linear layers over the mesh, in place, as Megatron does (chapter 12).

    Raises:
        ValueError: the heads do not divide by the ranks.
    """
    if model.config.num_heads % mesh.size():
        raise ValueError(f"tp must divide num_heads, got {mesh.size()} and {model.config.num_heads}")
    plan: dict[str, ParallelStyle] = {name: ColwiseParallel() for name in COLUMNS} | {
        name: RowwiseParallel() for name in ROWS
    }
    for block in model.blocks:
        parallelize_module(block, mesh, plan)


def tensor_parallel(run: RunDescription) -> TorchLoop:
    """DTensor's tensor parallelism over tp ranks next to each other; FSDP2 over the replicas, if there are several.

    **Communication**: an all-reduce of the activations behind each half of a block, in forward and in backward; the
    replicas' as `fsdp2`'s.
    """
    mesh = init_device_mesh("cpu", (run.dp, run.tp), mesh_dim_names=("dp", "tp"))
    model = build_model(run)
    parallelize(model, mesh["tp"])
    if run.recompute:
        recompute_blocks(model)
    if run.dp > 1:
        for unit in (*model.blocks, model):
            fully_shard(unit, mesh=mesh["dp"])
    return TensorParallelLoop(run, model, mesh.get_local_rank("dp"), foreach=False)


class TensorParallelLoop(TorchLoop):
    """Clips by the norm of all shards: `clip_grad_norm_` knows DTensors of one mesh at a time."""

    def __init__(self, run: RunDescription, model: nn.Module, replica: int | None, foreach: bool | None = None) -> None:
        refuse(run, "tp", clipping=0.0)
        super().__init__(run, model, replica, foreach)


class TorchPipeline:
    """torch.distributed.pipelining with 1F1B; replicas of a stage are FSDP2's, whole from forward to the last backward.

    DDP will not do: its reducer and the pipeline's micro-batches disagree in the second step (torch 2.13).
    The micro-batches of accumulation are those of the pipeline.

    **Communication**: activations to the next stage and their gradients back, a message each for every micro-batch;
    an all-gather of the stage's parameters and a reduce-scatter of their gradients among its replicas, once a step.
    """

    def __init__(self, run: RunDescription) -> None:
        self.run, self.mesh = run, init_device_mesh("cpu", (run.pp, run.dp), mesh_dim_names=("pp", "dp"))
        self.stage_index, self.replica = self.mesh.get_local_rank("pp"), self.mesh.get_local_rank("dp")
        module = own_stage(run, self.stage_index)
        if run.dp > 1:
            fully_shard(module, mesh=self.mesh["dp"], reshard_after_forward=False)
        self.optimizer = build_optimizer(run, module)
        group = self.mesh.get_group("pp")
        stage = PipelineStage(module, self.stage_index, run.pp, torch.device("cpu"), group=group)
        self.schedule = Schedule1F1B(stage, run.accumulation, loss_fn=loss_of)

    def step(self, tokens: torch.Tensor, targets: torch.Tensor) -> float:
        rows = slice(self.replica * (own := len(tokens) // self.run.dp), (self.replica + 1) * own)
        losses: list[torch.Tensor] = []
        is_last = self.stage_index == self.run.pp - 1
        inputs = (tokens[rows],) if self.stage_index == 0 else ()
        self.schedule.step(*inputs, target=targets[rows] if is_last else None, losses=losses if is_last else None)
        with phase("update"):
            self.optimizer.step()
            self.optimizer.zero_grad()
        # Only last stages know a loss; each of the others adds nothing to the mean.
        mean = torch.stack(losses).mean() * self.run.pp if losses else 0.0
        return mean_over_ranks(mean)


def own_stage(run: RunDescription, stage: int) -> nn.Sequential:
    """This stage's links of the model's chain: embedding, blocks, head.

    Raises:
        ValueError: there are more stages than links.
    """
    model = build_model(run)
    if run.recompute:
        recompute_blocks(model)
    links = [model.embedding, *model.blocks, model.head]
    begin, end = cut(len(links), run.pp)[stage]
    return nn.Sequential(*links[begin:end])


def cut(num_links: int, stages: int) -> list[tuple[int, int]]:
    """Which links each stage has: as even as the number goes, the longer ones first."""
    if stages > num_links:
        raise ValueError(f"pp must be at most {num_links}, the links of the model, got {stages}")
    whole, rest = divmod(num_links, stages)
    ends = [0]
    for stage in range(stages):
        ends.append(ends[-1] + whole + (stage < rest))
    return list(itertools.pairwise(ends))


def pipeline(run: RunDescription) -> TorchPipeline:
    """See `TorchPipeline`."""
    return TorchPipeline(run)
