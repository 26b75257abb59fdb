"""Where what a library sends is not what its paper or its documentation says, and why: as data, with the runs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ..require import require_whole
from .result import LibraryResult

NORM = 64  # bytes: what is smaller is a norm, a flag or a loss, and no part of the model


@dataclass(frozen=True)
class LibraryFinding:
    """One surprise.

    Attributes:
        says: what one would expect, and who says so.
        run: the stored run that shows what happens, a name of `REQUESTS`.
        expected, found: volume of a step in units of the model: psi bytes in a ring, psi (N - 1) / N a rank and unit.
            An all-reduce is 2, an all-gather, a reduce-scatter or N reduces 1.
        because: why, in the library's own words for it.
        key: what to write to get what was expected; "" if there is no such switch.
        then: the stored run with that; "" if there is none.
        source: where it stands in the library.
    """

    says: str
    run: str
    expected: float
    found: float
    because: str
    key: str
    then: str
    source: str


FINDINGS = (
    LibraryFinding(
        "ZeRO 1 and 2 reduce-scatter gradients and all-gather parameters: 2, as DDP (the paper, section 7).",
        "zero2",
        2,
        3,
        "Every bucket is all-reduced, a single owner's too, and each rank keeps its part: fewer calls, more bytes. The "
        "update is all-gathered after it.",
        "zero_optimization.use_multi_rank_bucket_allreduce: false",
        "zero2_reduce",
        "deepspeed/runtime/zero/stage_1_and_2.py, average_tensor",
    ),
    LibraryFinding(
        "ZeRO 2 sends as much with accumulation as without: gradients are reduced once an update.",
        "zero2_accumulation",
        2,
        5,
        "Stage 2 keeps no whole gradients, so each micro-batch is reduced: 2 all-reduces and an all-gather. Stage 1 "
        "keeps them, and reduces after the last.",
        "zero_optimization.stage: 1",
        "zero1_accumulation",
        "deepspeed/runtime/zero/stage_1_and_2.py, reduce_ipg_grads",
    ),
    LibraryFinding(
        "ZeRO 3 gathers parameters in forward and in backward and reduce-scatters gradients: 3 (the paper).",
        "zero3",
        3,
        2,
        "Parameters under 100,000 elements stay whole on every rank, and are gathered once, after the update. In a "
        "small model that is every one of them.",
        "zero_optimization.stage3_param_persistence_threshold: 0",
        "zero3_all_divided",
        "deepspeed/runtime/zero/parameter_offload.py, mark_persistent_parameters",
    ),
    LibraryFinding(
        "ZeRO 3 with every parameter divided gathers each of them twice a step: 3.",
        "zero3_all_divided",
        3,
        2,
        "What is used again within stage3_max_reuse_distance, 1e9 elements, is not released after forward: a model "
        "below that size stays whole from forward to backward.",
        "zero_optimization.stage3_max_reuse_distance: 0 and stage3_max_live_parameters: 0",
        "zero3_paper",
        "deepspeed/runtime/zero/partitioned_param_coordinator.py, release_sub_module",
    ),
    LibraryFinding(
        "FSDP2 gathers each unit in forward and in backward, as ZeRO 3 does: 3.",
        "fsdp2",
        3,
        2.829,
        "The outermost unit, here embedding and head, is not resharded after forward: backward begins with it. The "
        "documentation says so: reshard_after_forward=None means False for the root module.",
        "fully_shard(model, reshard_after_forward=True) for the outermost unit too",
        "",
        "torch/distributed/fsdp/_fully_shard/_fsdp_state.py, _lazy_init",
    ),
    LibraryFinding(
        "Accelerate on DeepSpeed sends what DeepSpeed sends.",
        "accelerate_zero2",
        3,
        3,
        "It does; but accelerator.backward() calls engine.step() too, so the update happens in the line called "
        "backward, and optimizer.step() does nothing.",
        "",
        "",
        "accelerate/utils/deepspeed.py, DeepSpeedEngineWrapper.backward",
    ),
)


def volume(result: LibraryResult, num_parameters: int, bytes_per_parameter: int = 4) -> float:
    """What a rank sends in a step, in units of the model, without norms and losses.

    A unit is psi (N - 1) / N bytes: one all-gather or one reduce-scatter of all parameters in a ring of N ranks. One
    rank alone sends nothing: 0.

    Raises:
        ValueError: no whole number of parameters.
    """
    require_whole("num_parameters", num_parameters)
    n = len(result.ranks)
    unit = num_parameters * bytes_per_parameter * (n - 1) / n
    if n == 1:
        return 0.0
    sent = sum(row.wire_bytes for rows in result.ranks for row in rows if max(row.sizes, default=0) > NORM)
    return sent / n / unit


def held(finding: LibraryFinding, results: Mapping[str, LibraryResult], num_parameters: int) -> bool:
    """Whether the stored run sends what the finding says it does, to a per mille of the model (padding)."""
    return abs(volume(results[finding.run], num_parameters) - finding.found) < 2e-3
