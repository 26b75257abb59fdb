"""What is wrong with a `ds_config`, in a sentence each, before DeepSpeed is started."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping
from typing import Any

from .keys import ALSO_KNOWN, DS_KEYS, OPTIMIZERS, REMOVED, REMOVED_OPTIMIZERS

BATCH_KEYS = ("train_batch_size", "train_micro_batch_size_per_gpu", "gradient_accumulation_steps")
FREE = ("optimizer.params", "scheduler.params", "tensor_parallel.partition_config")  # whatever stands in there
PATHS = (*(key.path for key in DS_KEYS), *ALSO_KNOWN)
SECTIONS = tuple({path[:place] for path in PATHS for place in range(len(path)) if path[place] == "."})


def check_ds_config(
    config: Mapping[str, Any], world_size: int, device: str = "cpu", tp: int = 1, pp: int = 1
) -> list[str]:
    """All faults and traps of a configuration, a sentence each with what to change; [] if there is none.

    Args:
        config: the dictionary that `deepspeed.initialize` would get.
        world_size: number of ranks.
        device: "cpu" or "cuda".
        tp, pp: ranks that share each layer, and stages of a pipeline: the rest are replicas.

    Raises:
        ValueError: `tp * pp` does not divide `world_size`.
    """
    if world_size < 1 or world_size % (tp * pp):
        raise ValueError(f"tp * pp must divide world_size, got {tp} * {pp} and {world_size}")
    dp = world_size // (tp * pp)
    zero = config.get("zero_optimization", {})
    zero = zero if isinstance(zero, Mapping) else {}
    return [
        *_removed(config),
        *_unknown(config, ""),
        *_batch(config, dp),
        *_precision(config, device),
        *_optimizer(config),
        *_zero(config, zero, pp),
        *_clipping(config),
    ]


def batch_numbers(config: Mapping[str, Any], dp: int) -> tuple[int, int, int]:
    """Train batch, micro-batch and accumulation, with what is left out filled in by DeepSpeed's rules.

    They are those of `_set_batch_related_parameters` in deepspeed/runtime/config.py: two of the three give the third,
    rounded down; of one, accumulation is 1.

    Raises:
        ValueError: neither batch is given, a number is not positive, or train is not micro * accumulation * dp.
    """
    given: list[int | None] = [config.get(key) for key in BATCH_KEYS]
    train, micro, steps = given
    if train is None and micro is None:
        raise ValueError(
            "give train_batch_size or train_micro_batch_size_per_gpu: DeepSpeed takes neither from the data"
        )
    if train is None:
        steps = 1 if steps is None else steps
        train = (micro or 0) * steps * dp
    elif steps is None:
        steps = 1 if micro is None else train // max(1, micro) // dp
    if micro is None:
        micro = train // dp // max(1, steps)
    if min(train, micro, steps) < 1 or train != micro * steps * dp:
        raise ValueError(
            f"train_batch_size must be micro-batch * accumulation * dp, but {train} is not {micro} * {steps} * {dp}: "
            "change one of the three keys, or leave one out"
        )
    return train, micro, steps


def _removed(config: Mapping[str, Any]) -> Iterator[str]:
    for path, instead in REMOVED.items():
        section, _, name = path.rpartition(".")
        where = config.get(section, {}) if section else config
        if isinstance(where, Mapping) and name in where:
            yield f"{path} was removed in DeepSpeed 0.19.7, and raises: {instead}."


def _unknown(config: Mapping[str, Any], section: str) -> Iterator[str]:
    for name, value in config.items():
        path = f"{section}{name}"
        if path in REMOVED:
            continue
        if path in PATHS or path in SECTIONS:
            if isinstance(value, Mapping) and path in SECTIONS and path not in ALSO_KNOWN and path not in FREE:
                yield from _unknown(value, f"{path}.")
            continue
        names = {known[len(section) :].partition(".")[0] for known in PATHS if known.startswith(section)}
        near = difflib.get_close_matches(name, names, 1) or _elsewhere(name)
        hint = f"did you mean {near[0]}?" if near else "take it out."
        harm = "DeepSpeed ignores it without a word" if not section else "DeepSpeed may refuse it"
        yield f"{path} is no key of a ds_config: {harm}; {hint}"


def _elsewhere(name: str) -> list[str]:
    """A key of that name, or nearly so, in another section: with its path."""
    by_name = {path.rpartition(".")[2]: path for path in PATHS}
    return [by_name[near] for near in difflib.get_close_matches(name, by_name, 1)]


def _batch(config: Mapping[str, Any], dp: int) -> Iterator[str]:
    for key in BATCH_KEYS:
        value = config.get(key)
        if value == "auto":
            yield f"{key} is \"auto\", which is Accelerate's and Transformers' word: DeepSpeed itself needs a number."
            return
        if value is not None and (not isinstance(value, int) or isinstance(value, bool)):
            yield f"{key} must be a whole number, got {value!r}."
            return
    try:
        batch_numbers(config, dp)
    except ValueError as error:
        yield f"{error}."


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
    value = config.get(section, {})
    return isinstance(value, Mapping) and value.get("enabled") is True


def _optimizer(config: Mapping[str, Any]) -> Iterator[str]:
    optimizer = config.get("optimizer", {})
    kind = optimizer.get("type") if isinstance(optimizer, Mapping) else None
    if kind is None:
        return
    if str(kind).lower() in {name.lower() for name in REMOVED_OPTIMIZERS}:
        yield f"the optimizer {kind} was removed in DeepSpeed 0.19.7: gradients are not compressed any more; use AdamW."
        return
    params = optimizer.get("params", {})
    if isinstance(params, Mapping) and "max_grad_norm" in params:
        yield "max_grad_norm in optimizer.params clips nothing: write gradient_clipping at the top."
    known = str(kind).lower() in {name.lower() for name in OPTIMIZERS}
    stage = config.get("zero_optimization", {})
    divided = isinstance(stage, Mapping) and stage.get("stage", 0) > 0
    if not known and divided and not config.get("zero_allow_untested_optimizer"):
        yield f"ZeRO divides {kind} only with zero_allow_untested_optimizer: true."
    if str(kind).lower() == "adam" and isinstance(params, Mapping) and params.get("adam_w_mode", True):
        yield 'the optimizer "Adam" is AdamW unless optimizer.params has adam_w_mode: false.'


def _zero(config: Mapping[str, Any], zero: Mapping[str, Any], pp: int) -> Iterator[str]:
    stage = zero.get("stage", 0)
    if stage not in (0, 1, 2, 3):
        yield f"zero_optimization.stage must be 0, 1, 2 or 3, got {stage!r}."
        return
    if stage >= 2 and pp > 1:
        yield f"ZeRO {stage} does not go with a pipeline: the PipelineEngine takes stages 0 and 1."
    optimizer, parameters = (_device(zero, name) for name in ("offload_optimizer", "offload_param"))
    if parameters != "none" and stage != 3:
        yield f"offload_param needs stage 3, which divides parameters; the stage is {stage}."
    if optimizer != "none" and stage == 0:
        yield "offload_optimizer needs stage 1, 2 or 3; the stage is 0."
    params = config.get("optimizer", {})
    params = params.get("params", {}) if isinstance(params, Mapping) else {}
    is_torchs = isinstance(params, Mapping) and params.get("torch_adam")
    if optimizer != "none" and is_torchs and config.get("zero_force_ds_cpu_optimizer", True):
        yield "torch_adam with an offloaded optimizer needs zero_force_ds_cpu_optimizer: false in this ds_config."
    if stage in (1, 2) and "reduce_bucket_size" not in zero:
        yield "reduce_bucket_size is 5e8 elements by default, allocated at once: 2 GB in fp32, 1 GB in bf16."


def _device(zero: Mapping[str, Any], name: str) -> str:
    section = zero.get(name)
    return str(section.get("device", "none")) if isinstance(section, Mapping) else "none"


def _clipping(config: Mapping[str, Any]) -> Iterator[str]:
    if "gradient_clipping" not in config:
        yield "gradient_clipping is left out: it is 1.0 since 0.19.3, and was 0 before; state it if runs are compared."
