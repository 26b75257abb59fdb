"""All engines by name, and what each needs."""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from typing import Any

from ..description import RunDescription
from .base import Engine, refuse


@dataclass(frozen=True)
class EngineKind:
    """An engine that can be made.

    Attributes:
        title: for a reader.
        home: module and function, "torch_native.ddp"; loaded when the engine is made.
        module: what Python must be able to import; "": what the course has.
        chapter: of the course, where the way is explained.
        options: given to the function.
    """

    title: str
    home: str
    module: str = ""
    chapter: str = ""
    options: tuple[tuple[str, object], ...] = ()


ENGINES = {
    "reference": EngineKind("one process", "torch_native.reference", chapter="ch01"),
    "ddp": EngineKind("torch DDP", "torch_native.ddp", chapter="ch03"),
    "fsdp2": EngineKind("torch FSDP2", "torch_native.fsdp2", chapter="ch09"),
    "fsdp2_kept": EngineKind(
        "torch FSDP2, units kept whole", "torch_native.fsdp2", chapter="ch09", options=(("reshard", False),)
    ),
    "tp": EngineKind("torch DTensor, tp", "torch_model_parallel.tensor_parallel", chapter="ch12"),
    "pipeline": EngineKind("torch pipelining, 1F1B", "torch_model_parallel.pipeline", chapter="ch10"),
    "accelerate_ddp": EngineKind("Accelerate, DDP", "accelerated.accelerate_ddp", chapter="ch03"),
    "accelerate_fsdp": EngineKind("Accelerate, FSDP2", "accelerated.accelerate_fsdp", chapter="ch09"),
    "accelerate_deepspeed": EngineKind(
        "Accelerate, DeepSpeed", "accelerated.accelerate_deepspeed", "deepspeed", chapter="ch09"
    ),
    "deepspeed": EngineKind("DeepSpeed", "deepspeed_zero.DeepSpeedZero", "deepspeed", chapter="ch09"),
    "deepspeed_pipeline": EngineKind(
        "DeepSpeed PipelineModule", "deepspeed_pipeline.DeepSpeedPipeline", "deepspeed", chapter="ch10"
    ),
    "deepspeed_tp": EngineKind("DeepSpeed AutoTP", "deepspeed_tp.deepspeed_tp", "deepspeed", chapter="ch12"),
    "deepspeed_three_axes": EngineKind(
        "DeepSpeed PipelineModule of divided layers",
        "deepspeed_three_axes.DeepSpeedThreeAxes",
        "deepspeed",
        chapter="ch14",
    ),
    "megatron_tp": EngineKind("Megatron-core layers, tp", "megatron_layers.megatron_tp", "megatron.core", "ch12"),
    "fairscale_tp": EngineKind("FairScale layers, tp", "fairscale_layers.fairscale_tp", "fairscale", "ch12"),
    "fairscale_oss": EngineKind("FairScale OSS", "fairscale_layers.fairscale_oss", "fairscale", "ch09"),
}


# What of a description an engine can do, where it is not all; looked at before ranks start. FSDP2 takes no fp16: its
# shards would need a gradient scaler that asks all ranks. A pipeline would update tied weights as two, on two stages.
ALONE = {"tp": 1, "pp": 1}
UNTIED = {"config.tie_embeddings": False}
TAKES: dict[str, dict[str, Any]] = {
    "reference": {"world_size": 1, "zero_stage": 0},
    "ddp": {**ALONE, "zero_stage": 0},
    "fsdp2": {**ALONE, "offload_optimizer": False, "precision": ("fp32", "bf16")},
    "fsdp2_kept": {**ALONE, "offload_optimizer": False, "precision": ("fp32", "bf16")},
    "tp": {"pp": 1, "precision": "fp32", "clipping": 0.0, "zero_stage": 0},
    "pipeline": {**UNTIED, "tp": 1, "precision": "fp32", "clipping": 0.0, "zero_stage": 0},
    "accelerate_ddp": {**ALONE, "precision": ("fp32", "bf16"), "zero_stage": 0},
    "accelerate_fsdp": {**ALONE, "precision": "fp32"},
    "accelerate_deepspeed": {**ALONE, "precision": ("fp32", "bf16")},
    "deepspeed": ALONE,
    "deepspeed_pipeline": {**UNTIED, "tp": 1, "precision": ("fp32", "bf16")},
    "deepspeed_three_axes": {**UNTIED, "config.dropout": 0.0, "precision": "fp32", "zero_stage": 1},
    "deepspeed_tp": {"pp": 1, "recompute": False, "zero_stage": (0, 1, 2)},
}


def require_able(name: str, run: RunDescription) -> None:
    """Refuse what an engine cannot do.

    Raises:
        ValueError: there is no such engine, or the description asks for what it does not take.
    """
    find_engine(name)
    refuse(run, name, **TAKES.get(name, {}))
    if name == "deepspeed_pipeline" and run.clipping and (run.zero_stage, run.precision) == (0, "fp32"):
        raise ValueError(
            f"the engine {name!r} clips in fp32 with zero_stage=1, got 0: there DeepSpeed 0.19.8 takes the norm of the "
            "first stage for that of the model (clip_grad_norm_ in deepspeed/runtime/utils.py)"
        )


def find_engine(name: str) -> EngineKind:
    """The kind of that name.

    Raises:
        ValueError: there is none.
    """
    if name not in ENGINES:
        raise ValueError(f"engine must be one of {', '.join(ENGINES)}, got {name!r}")
    return ENGINES[name]


def make_engine(name: str, run: RunDescription) -> Engine:
    """The engine of that name for a run, on this rank.

    Raises:
        ValueError: there is no such engine, or it cannot do what the description asks for.
    """
    require_able(name, run)
    kind = find_engine(name)
    module, _, function = kind.home.partition(".")
    make = getattr(importlib.import_module(f"{__package__}.{module}"), function)
    engine: Engine = make(run, **dict(kind.options))
    return engine
