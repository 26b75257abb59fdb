"""What is wrong with a `ds_config`, in a sentence each, before DeepSpeed is started."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from ..require import require_whole
from .keys import OPTIMIZERS, REMOVED_OPTIMIZERS
from .shape import idle_keys, removed_keys, unknown_keys, wrong_values

BATCH_KEYS = ("train_batch_size", "train_micro_batch_size_per_gpu", "gradient_accumulation_steps")


def check_ds_config(
    config: Mapping[str, Any], world_size: int, device: str = "cpu", tp: int = 1, pp: int = 1
) -> list[str]:
    """All faults and traps of a configuration, a sentence each with what to change; [] if there is none.

    How keys fit together is checked once every value is of the kind that its key takes.

    Args:
        config: the dictionary that `deepspeed.initialize` would get.
        world_size: number of ranks.
        device: "cpu" or "cuda".
        tp, pp: ranks that share each layer by an `mpu` that DeepSpeed is given (Megatron's), and stages of a pipeline:
            the rest are replicas. AutoTP's size stands in the configuration, `tensor_parallel.autotp_size`.

    Raises:
        ValueError: the configuration is no dictionary, or `tp * pp` does not divide `world_size`.
    """
    if device not in ("cpu", "cuda"):
        raise ValueError(f'device must be "cpu" or "cuda", got {device!r}')
    if stops := _of_single_keys(config, world_size, tp, pp):
        return [*stops, *idle_keys(config)]
    return [
        *removed_keys(config),
        *unknown_keys(config),
        *idle_keys(config),
        *_batch(config, world_size, tp, pp),
        *_autotp(config, world_size, tp),
        *_stages(config, pp),
        *_precision(config, device),
        *_optimizer(config),
        *_zero(config, pp),
        *_surprises(config),
    ]


def faults_that_stop(config: Mapping[str, Any], world_size: int, tp: int = 1, pp: int = 1) -> list[str]:
    """The faults of `check_ds_config` with which a run fails, or is not what was written: no traps, no advice.

    Raises:
        ValueError: as `check_ds_config`.
    """
    if stops := _of_single_keys(config, world_size, tp, pp):
        return stops
    keys = (*removed_keys(config), *unknown_keys(config))
    together = (*_batch(config, world_size, tp, pp), *_stages(config, pp), *_optimizer(config), *_zero(config, pp))
    return [*keys, *together]


def _of_single_keys(config: Mapping[str, Any], world_size: int, tp: int, pp: int) -> list[str]:
    """Keys and values that are wrong for themselves, if there is any wrong value.

    Raises:
        ValueError: no dictionary, or sizes that do not fit.
    """
    if not isinstance(config, Mapping):
        raise ValueError(f"a ds_config must be a dictionary, got {config!r}")
    for name, value in (("world_size", world_size), ("tp", tp), ("pp", pp)):
        require_whole(name, value)
    if world_size % (tp * pp):
        raise ValueError(f"tp * pp must divide world_size, got {tp} * {pp} and {world_size}")
    wrong = list(wrong_values(config))
    return [*removed_keys(config), *unknown_keys(config), *wrong] if wrong else []


def batch_numbers(config: Mapping[str, Any], dp: int) -> tuple[int, int, int]:
    """Train batch, micro-batch and accumulation, with what is left out filled in by DeepSpeed's rules.

    They are those of `_set_batch_related_parameters` in deepspeed/runtime/config.py: two of the three give the third,
    rounded down; of one, accumulation is 1.

    Raises:
        ValueError: neither batch is given, a number is not whole and positive, or train is not
            micro * accumulation * dp.
    """
    if not isinstance(config, Mapping):
        raise ValueError(f"a ds_config must be a dictionary, got {config!r}")
    require_whole("dp", dp)
    for key in BATCH_KEYS:
        if config.get(key) is not None:
            require_whole(key, config[key])
    given: list[int | None] = [config.get(key) for key in BATCH_KEYS]
    train, micro, steps = given
    if train is None and micro is None:
        raise ValueError(
            "give train_batch_size or train_micro_batch_size_per_gpu: DeepSpeed takes neither from the data"
        )
    if train is None:
        steps = steps or 1
        train = (micro or 1) * steps * dp
    elif steps is None:
        steps = train // micro // dp if micro else 1
    if micro is None:
        micro = train // dp // steps if steps else 0
    rule = "train_batch_size must be micro-batch * accumulation * dp, but"
    if min(micro, steps) < 1:  # rounded down
        others = f"{micro} * {dp}" if micro else f"{steps} * {dp}"
        raise ValueError(f"{rule} {train} is less than {others}: make it larger, or take fewer ranks")
    if train != micro * steps * dp:
        raise ValueError(
            f"{rule} {train} is not {micro} * {steps} * {dp}: change one of the three keys, or leave one out"
        )
    return train, micro, steps


def _autotp_size(config: Mapping[str, Any]) -> int:
    return int(config.get("tensor_parallel", {}).get("autotp_size", 0))


def _batch(config: Mapping[str, Any], world_size: int, tp: int, pp: int) -> Iterator[str]:
    """The rule of the three sizes. DeepSpeed reads it before AutoTP has made groups: its ranks count as replicas."""
    by_autotp = _autotp_size(config) > 1
    try:
        batch_numbers(config, world_size // pp if by_autotp else world_size // (tp * pp))
    except ValueError as error:
        why = " (with tensor_parallel.autotp_size DeepSpeed 0.19.8 takes the ranks of a layer for replicas)"
        yield f"{error}{why if by_autotp else ''}."


def _autotp(config: Mapping[str, Any], world_size: int, tp: int) -> Iterator[str]:
    size, train = _autotp_size(config), config.get("train_batch_size")
    if size < 2:
        return
    if world_size % size:
        yield f"tensor_parallel.autotp_size must divide the ranks, got {size} and {world_size}."
    if tp not in (1, size):
        yield f"tensor_parallel.autotp_size is {size}, and tp is {tp}: give one size."
    if train is not None:
        yield (
            f"train_batch_size counts each sequence {size} times with tensor_parallel.autotp_size {size}: DeepSpeed "
            "0.19.8 takes the ranks of a layer for replicas; leave it out, and give micro-batch and accumulation."
        )


def _stages(config: Mapping[str, Any], pp: int) -> Iterator[str]:
    """AutoTP makes its groups of the ranks' numbers alone: `_init_tp_mesh_device` in deepspeed/utils/groups.py."""
    if pp > 1 and _autotp_size(config) > 1:
        yield (
            "tensor_parallel.autotp_size does not go with a pipeline: DeepSpeed 0.19.8 takes the stages for replicas; "
            "divide the layers yourself, and give PipelineModule a PipeModelDataParallelTopology."
        )


def _precision(config: Mapping[str, Any], device: str) -> Iterator[str]:
    enabled = {name: _flag(config, name) for name in ("fp16", "bf16", "torch_autocast")}
    if enabled["fp16"] and enabled["bf16"]:
        yield "fp16 and bf16 exclude each other: enable one."
    if enabled["fp16"] and device == "cpu":
        yield (
            'fp16 on a processor: DeepSpeed refuses it ("Type fp16 is not supported on your device."); use bf16, or '
            "quiet_deepspeed(allow_fp16=True), which is slow."
        )
    if enabled["torch_autocast"] and (enabled["fp16"] or enabled["bf16"]):
        yield "torch_autocast keeps fp32 parameters, fp16 and bf16 cast the model: enable one."


def _flag(config: Mapping[str, Any], section: str) -> bool:
    return config.get(section, {}).get("enabled") is True


def _optimizer(config: Mapping[str, Any]) -> Iterator[str]:
    optimizer = config.get("optimizer")
    if optimizer is None:
        return
    kind, params = optimizer["type"], optimizer.get("params") or {}
    if kind.lower() in {name.lower() for name in REMOVED_OPTIMIZERS}:
        yield f"the optimizer {kind} was removed in DeepSpeed 0.19.7: gradients are not compressed any more; use AdamW."
        return
    if "max_grad_norm" in params:
        yield "max_grad_norm in optimizer.params is refused: write gradient_clipping at the top."
    known = kind.lower() in {name.lower() for name in OPTIMIZERS}
    divided = config.get("zero_optimization", {}).get("stage", 0) > 0
    if not known and divided and not config.get("zero_allow_untested_optimizer"):
        yield f"ZeRO divides {kind} only with zero_allow_untested_optimizer: true."


def _zero(config: Mapping[str, Any], pp: int) -> Iterator[str]:
    zero = config.get("zero_optimization", {})
    stage = zero.get("stage", 0)
    if stage >= 2 and pp > 1:
        yield f"ZeRO {stage} does not go with a pipeline: the PipelineEngine takes stages 0 and 1."
    if _device(zero, "offload_param") != "none" and stage != 3:
        yield f"offload_param needs stage 3, which divides parameters; the stage is {stage}."
    if _device(zero, "offload_optimizer") != "none" and stage == 0:
        yield "offload_optimizer needs stage 1, 2 or 3; the stage is 0."


def _device(zero: Mapping[str, Any], name: str) -> str:
    return str((zero.get(name) or {}).get("device", "none"))


def _surprises(config: Mapping[str, Any]) -> Iterator[str]:
    """Defaults that one does not expect."""
    zero, optimizer = config.get("zero_optimization", {}), config.get("optimizer") or {"type": ""}
    if optimizer["type"].lower() == "adam" and "adam_w_mode" not in (optimizer.get("params") or {}):
        yield 'the optimizer "Adam" is AdamW unless optimizer.params has adam_w_mode: false.'
    is_offloaded = _device(zero, "offload_optimizer") != "none"
    if is_offloaded and "optimizer" not in config and config.get("zero_force_ds_cpu_optimizer", True):
        yield (
            "there is no optimizer here, and it is offloaded: one that you hand to deepspeed.initialize must be a "
            "DeepSpeedCPUAdam, unless zero_force_ds_cpu_optimizer is false."
        )
    if zero.get("stage", 0) and "reduce_bucket_size" not in zero:
        yield "reduce_bucket_size is 5e8 elements by default, allocated at once: 2 GB in fp32, 1 GB in bf16."
    if "gradient_clipping" not in config:
        yield "gradient_clipping is left out: it is 1.0 since 0.19.3, and was 0 before; state it if runs are compared."
