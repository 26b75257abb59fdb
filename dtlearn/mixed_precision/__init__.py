"""Layer 4: mixed precision. Numbers of 16 and of 8 bits, and how training survives in them.

Pure functions for any process: `formats`, what a format can hold; `rounding`, how a number gets into it.
In this process too: `casting/`, which operation of a forward pass runs in which format; `loss_scaling/`, how
small gradients survive float16, and, with `group=` on the ranks, one decision about a skipped step. `fp8/`: tensors of
8 bits with their scales, which ranks agree on, and a linear layer that trains in them. `weights/`: how weights of 16
bits take small updates, with float32 masters and in two ways around them. `reduction/`: gradients averaged in 16 bits,
and what a sum over many ranks loses in them. `measure/`: what all of this does to a real model, as data for figures;
`timing`: how long it takes, beside PyTorch's.
"""

from .casting.autocast import autocast, reenter
from .casting.op_dtypes import DtypeLog, OpDtypes
from .formats import BF16, FORMATS, FP8_E4M3, FP8_E5M2, FP16, FP32, TF32, Bits, Format, find_format, torch_dtype
from .fp8.block_scaled import BlockScaled, quantize_blocks
from .fp8.linear import Fp8Linear, convert_to_fp8
from .fp8.scaling import CurrentScaling, DelayedScaling, Scaled, quantize, scale_for, update_scales
from .loss_scaling.clipping import clip_grad_norm_, global_norm
from .loss_scaling.grad_scaler import GradScaler, next_scale
from .loss_scaling.skipped_steps import step_unless_skipped
from .reduction.average import average
from .reduction.fp32_sum import average_with_fp32_sum
from .reduction.per_rank_gradients import per_rank_gradients
from .reduction.rounding_error import error_by_ranks, simulate_all_reduce, simulate_average, sum_on_rank
from .rounding import round_stochastically, round_to_nearest_even
from .weights.compensated_update import CompensatedUpdate
from .weights.master_weights import MasterWeights
from .weights.rounded_update import RoundedUpdate
from .weights.stochastic_update import StochasticUpdate

__all__ = [
    "BF16",
    "FORMATS",
    "FP8_E4M3",
    "FP8_E5M2",
    "FP16",
    "FP32",
    "TF32",
    "Bits",
    "BlockScaled",
    "CompensatedUpdate",
    "CurrentScaling",
    "DelayedScaling",
    "DtypeLog",
    "Format",
    "Fp8Linear",
    "GradScaler",
    "MasterWeights",
    "OpDtypes",
    "RoundedUpdate",
    "Scaled",
    "StochasticUpdate",
    "autocast",
    "average",
    "average_with_fp32_sum",
    "clip_grad_norm_",
    "convert_to_fp8",
    "error_by_ranks",
    "find_format",
    "global_norm",
    "next_scale",
    "per_rank_gradients",
    "quantize",
    "quantize_blocks",
    "reenter",
    "round_stochastically",
    "round_to_nearest_even",
    "scale_for",
    "simulate_all_reduce",
    "simulate_average",
    "step_unless_skipped",
    "sum_on_rank",
    "torch_dtype",
    "update_scales",
]
