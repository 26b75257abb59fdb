"""The defaults of a `ds_config`, read from the DeepSpeed that is installed."""

from __future__ import annotations

import importlib
from enum import Enum
from typing import Any

from ..quiet_deepspeed import quiet_deepspeed
from .keys import DS_KEYS

# Where a key's value is read, if its attribute has another name than the key.
ATTRIBUTES = {
    "optimizer.type": "optimizer_name",
    "optimizer.params": "optimizer_params",
    "scheduler.type": "scheduler_name",
    "scheduler.params": "scheduler_params",
    "torch_autocast.enabled": "torch_autocast_enabled",
    "torch_autocast.dtype": "torch_autocast_dtype",
    "data_types.grad_accum_dtype": "grad_accum_dtype",
    "checkpoint.load_universal": "load_universal_checkpoint",
    "comms_logger.enabled": "comms_config.comms_logger_enabled",
    "flops_profiler.enabled": "flops_profiler_config.enabled",
    "tensorboard.enabled": "monitor_config.tensorboard.enabled",
    "csv_monitor.enabled": "monitor_config.csv_monitor.enabled",
}
SECTIONS = {
    "bf16": "bfloat16_config",
    "fp16": "float16_config",
    "activation_checkpointing": "activation_checkpointing_config",
    "tensor_parallel": "tensor_parallel_config",
}


def real_defaults() -> dict[str, Any]:
    """The default of every key of the table, by path, as the installed DeepSpeed has it.

    Raises:
        ValueError: DeepSpeed is not installed here.
    """
    quiet_deepspeed()
    config: Any = importlib.import_module("deepspeed.runtime.config").DeepSpeedConfig({"train_batch_size": 1})
    return {key.path: _plain(_default(config, key.path)) for key in DS_KEYS}


def _default(config: Any, path: str) -> Any:
    section, _, name = path.rpartition(".")
    if path in ATTRIBUTES:
        return _along(config, ATTRIBUTES[path])
    if section == "pipeline":
        return config.pipeline[name]
    if path == "checkpoint.tag_validation":  # kept as two answers
        return "FAIL" if config.checkpoint_tag_validation_fail else "WARN"
    if path in ("train_batch_size", "train_micro_batch_size_per_gpu", "gradient_accumulation_steps"):
        constants = importlib.import_module("deepspeed.runtime.constants")  # in `config` they are worked out
        return getattr(constants, f"{path.upper()}_DEFAULT")
    if section.startswith("zero_optimization"):
        return _zero_default(section.partition(".")[2], name)
    return getattr(_along(config, SECTIONS[section]) if section else config, name)


def _zero_default(part: str, name: str) -> Any:
    """A field's default in DeepSpeed's pydantic models, before validators work out what depends on other fields."""
    if part:
        models = importlib.import_module("deepspeed.runtime.zero.offload_config")
        words = {"offload_optimizer": "Optimizer", "offload_param": "Param"}
        model = getattr(models, f"DeepSpeedZeroOffload{words[part]}Config")
    else:
        model = importlib.import_module("deepspeed.runtime.zero.config").DeepSpeedZeroConfig
    fields = {field.alias or field_name: field for field_name, field in model.model_fields.items()}
    return fields[name].default


def _along(value: Any, path: str) -> Any:
    for name in path.split("."):
        value = getattr(value, name)
    return value


def _plain(value: Any) -> Any:
    """A value that compares with those of the table: no enum, no integer with another way to print it."""
    if isinstance(value, Enum):
        value = value.value
    return int(value) if isinstance(value, int) and not isinstance(value, bool) else value
