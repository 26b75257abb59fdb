"""Megatron-core's ColumnParallelLinear and RowParallelLinear in our GPT; its own GPTModel needs a GPU."""

from __future__ import annotations

import importlib

import torch
import torch.distributed as dist
from torch import nn

from ..description import RunDescription
from .base import build_model, refuse
from .foreign_layers import divide_blocks
from .torch_native import TorchLoop


def megatron_tp(run: RunDescription) -> TorchLoop:
    """Tensor parallelism by Megatron-core's layers, on all ranks.

    **Communication**: an all-reduce behind each half of a block in forward; in backward one for each column layer, as
    query, key and value are three of them here (Megatron's own model has one for the three).
    """
    refuse(run, "megatron_tp", tp=run.world_size, precision="fp32", clipping=0.0, recompute=False)
    importlib.import_module("megatron.core.parallel_state").initialize_model_parallel(run.tp)
    layers = importlib.import_module("megatron.core.tensor_parallel")
    config = importlib.import_module("megatron.core.model_parallel_config").ModelParallelConfig(
        tensor_model_parallel_size=run.tp, use_cpu_initialization=True, params_dtype=torch.float32
    )

    def column(inputs: int, outputs: int) -> nn.Module:
        layer: nn.Module = layers.ColumnParallelLinear(
            inputs, outputs, config=config, init_method=nn.init.zeros_, gather_output=False
        )
        return layer

    def row(inputs: int, outputs: int) -> nn.Module:
        layer: nn.Module = layers.RowParallelLinear(
            inputs,
            outputs,
            config=config,
            init_method=nn.init.zeros_,
            bias=True,
            input_is_parallel=True,
            skip_bias_add=False,
        )
        return layer

    model = build_model(run)
    divide_blocks(model, column, row, dist.get_rank(), run.tp)
    return TorchLoop(run, model, replica=0)
