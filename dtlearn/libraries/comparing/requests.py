"""The runs that are compared: one GPT, one loop, every library. Stored results and tests are of these."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from ..description import RunDescription
from .run_library import LibraryRequest

BASE = RunDescription()
PER_RANK = {"use_multi_rank_bucket_allreduce": False}
ALL_DIVIDED = {"stage3_param_persistence_threshold": 0}
NOT_AHEAD = {**ALL_DIVIDED, "stage3_prefetch_bucket_size": 0}
AS_IN_THE_PAPER = {**NOT_AHEAD, "stage3_max_live_parameters": 0, "stage3_max_reuse_distance": 0}
SMALL_BUCKETS = {"reduce_bucket_size": 20_000, "allgather_bucket_size": 20_000}
DEFAULT_BUCKETS = {"reduce_bucket_size": 500_000_000, "allgather_bucket_size": 500_000_000}


def _zero(stage: int, zero: dict[str, Any] | None = None, **changes: Any) -> LibraryRequest:
    options = {"zero_optimization": zero} if zero else {}
    return "deepspeed", replace(BASE, zero_stage=stage, options=options, **changes)


REQUESTS: dict[str, LibraryRequest] = {
    "reference": ("reference", replace(BASE, world_size=1)),
    "ddp": ("ddp", BASE),
    "fsdp2": ("fsdp2", BASE),
    "fsdp2_kept": ("fsdp2_kept", BASE),
    "tp": ("tp", replace(BASE, tp=2)),
    "tp_fsdp2": ("tp", replace(BASE, tp=2, world_size=4)),
    "pipeline": ("pipeline", replace(BASE, pp=2, accumulation=2)),
    "pipeline_fsdp2": ("pipeline", replace(BASE, pp=2, accumulation=2, world_size=4)),
    "accelerate_ddp": ("accelerate_ddp", BASE),
    "accelerate_fsdp": ("accelerate_fsdp", BASE),
    "accelerate_zero2": ("accelerate_deepspeed", replace(BASE, zero_stage=2)),
    "zero0": _zero(0),
    "zero1": _zero(1),
    "zero2": _zero(2),
    "zero3": _zero(3),
    "zero1_reduce": _zero(1, PER_RANK),
    "zero2_reduce": _zero(2, PER_RANK),
    "zero2_small_buckets": _zero(2, SMALL_BUCKETS),
    "zero2_default_buckets": _zero(2, DEFAULT_BUCKETS),
    "zero3_all_divided": _zero(3, ALL_DIVIDED),
    "zero3_no_prefetch": _zero(3, NOT_AHEAD),
    "zero3_paper": _zero(3, AS_IN_THE_PAPER),
    "zero2_offload": _zero(2, offload_optimizer=True),
    "zero3_offload": _zero(3, ALL_DIVIDED, offload_optimizer=True, offload_parameters=True),
    "zero2_recompute": _zero(2, recompute=True),
    "zero1_accumulation": _zero(1, accumulation=2),
    "zero2_accumulation": _zero(2, accumulation=2),
    "zero2_clipped": _zero(2, clipping=1.0),
    "zero0_bf16": _zero(0, precision="bf16"),
    "zero2_bf16": _zero(2, precision="bf16"),
    "zero3_bf16": _zero(3, ALL_DIVIDED, precision="bf16"),
    "zero2_fp16": _zero(2, precision="fp16"),
    "fsdp2_bf16": ("fsdp2", replace(BASE, precision="bf16")),
    "ddp_bf16": ("ddp", replace(BASE, precision="bf16")),
    "zero_pipeline": ("deepspeed_pipeline", replace(BASE, pp=2, accumulation=2)),
    "zero1_pipeline": ("deepspeed_pipeline", replace(BASE, pp=2, accumulation=2, world_size=4, zero_stage=1)),
    "zero1_tp": ("deepspeed_tp", replace(BASE, tp=2, world_size=4, zero_stage=1)),
    "zero1_pipeline_tp": (
        "deepspeed_three_axes",
        replace(BASE, pp=2, tp=2, accumulation=2, world_size=8, zero_stage=1),
    ),
    "megatron_tp": ("megatron_tp", replace(BASE, tp=2)),
    "fairscale_tp": ("fairscale_tp", replace(BASE, tp=2)),
    "fairscale_oss": ("fairscale_oss", BASE),
}
# What a table of one screen shows.
MAIN = ("reference", "ddp", "fsdp2", "accelerate_zero2", "zero0", "zero1", "zero2", "zero3", "zero3_paper", "tp")
