"""From a run's description to the dictionary that DeepSpeed takes: its `ds_config`."""

from __future__ import annotations

import copy
from typing import Any

from ..description import RunDescription

LARGEST_BUCKET = 25 * 2**20 // 4  # elements: DDP's 25 MiB, in fp32


def ds_config_of(run: RunDescription) -> dict[str, Any]:
    """The `ds_config` of a run, with all that a comparison needs said and nothing left to defaults that have moved.

    `gradient_clipping` stands there even if it is 0: left out, it is 1.0 since 0.19.3. `torch_adam` takes torch's own
    Adam: DeepSpeed's is compiled when it is first used. A bucket holds the whole model, and 25 MiB at most, as DDP's:
    by default it has 5e8 elements, which are allocated at once, 2 GB in fp32, for the smallest model too. All else
    keeps its default unless `run.options` says otherwise.

    Returns:
        A dictionary of its own, of plain values: it can be written as JSON.
    """
    kind = "AdamW" if run.optimizer == "adamw" else "SGD"
    parameters: dict[str, Any] = {"lr": run.lr, "weight_decay": run.weight_decay}
    if kind == "AdamW":
        parameters |= {"torch_adam": True, "adam_w_mode": True}
    zero: dict[str, Any] = {"stage": run.zero_stage}
    if run.zero_stage:
        bucket = min(LARGEST_BUCKET, run.config.num_parameters)
        zero |= {"reduce_bucket_size": bucket, "allgather_bucket_size": bucket}
    if run.offload_optimizer:
        zero["offload_optimizer"] = {"device": "cpu", "pin_memory": False}
    if run.offload_parameters:
        zero["offload_param"] = {"device": "cpu", "pin_memory": False}
    config: dict[str, Any] = {
        "train_batch_size": run.global_batch,
        "train_micro_batch_size_per_gpu": run.micro_batch,
        "gradient_accumulation_steps": run.accumulation,
        "gradient_clipping": run.clipping,
        "optimizer": {"type": kind, "params": parameters},
        "zero_optimization": zero,
    }
    if kind == "SGD" and run.zero_stage:
        config["zero_allow_untested_optimizer"] = True
    if run.precision != "fp32":
        config[run.precision] = {"enabled": True}
    return laid_over(config, run.options)


def laid_over(config: dict[str, Any], options: Any) -> dict[str, Any]:
    """A copy of `config` with `options`; sections in both are laid over key by key."""
    found = copy.deepcopy(config)
    for key, value in options.items():
        both = isinstance(value, dict) and isinstance(found.get(key), dict)
        found[key] = laid_over(found[key], value) if both else copy.deepcopy(value)
    return found
