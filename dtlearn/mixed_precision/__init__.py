"""Layer 3: mixed precision. Numbers of 16 and of 8 bits, and how training survives in them.

Pure functions for any process: `formats`, what a format can hold; `rounding`, how a number gets into it.
In this process too: `casting/`, which operation of a forward pass runs in which format; `loss_scaling/`, how
small gradients survive float16, and, with `group=` on the ranks, one decision about a skipped step.
"""

from .casting.autocast import autocast, reenter
from .casting.op_dtypes import DtypeLog, OpDtypes
from .formats import BF16, FORMATS, FP8_E4M3, FP8_E5M2, FP16, FP32, TF32, Bits, Format, find_format, torch_dtype
from .loss_scaling.grad_scaler import GradScaler
from .loss_scaling.static_scaling import StaticScaler, largest_static_scale
from .rounding import round_stochastically, round_to_nearest_even

__all__ = [
    "BF16",
    "FORMATS",
    "FP8_E4M3",
    "FP8_E5M2",
    "FP16",
    "FP32",
    "TF32",
    "Bits",
    "DtypeLog",
    "Format",
    "GradScaler",
    "OpDtypes",
    "StaticScaler",
    "autocast",
    "find_format",
    "largest_static_scale",
    "reenter",
    "round_stochastically",
    "round_to_nearest_even",
    "torch_dtype",
]
