"""One training run as plain data: the request that every library is given."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from dtlearn.models.gpt import GPTConfig

from .require import require_flag, require_number, require_whole

SMALL = GPTConfig(num_layers=2)
PRECISIONS = ("fp32", "bf16", "fp16")


@dataclass(frozen=True)
class RunDescription:
    """A model, its batches, and how they are trained.

    Attributes:
        config: sizes of the GPT.
        world_size: number of ranks; dp * tp * pp.
        steps: updates of the weights.
        global_batch: sequences of one update, over all ranks and all micro-batches.
        accumulation: micro-batches of a rank in one update.
        context_length: tokens of a sequence, T.
        lr, weight_decay: of AdamW; for "sgd" plain SGD and the weight decay alone.
        optimizer: "adamw" or "sgd".
        precision: of the forward and backward pass; the optimizer keeps fp32 weights.
        clipping: the largest global gradient norm; 0: no clipping. DeepSpeed's own default is 1.0.
        zero_stage: what DeepSpeed divides: 0 nothing, 1 optimizer state, 2 gradients too, 3 parameters too.
        offload_optimizer, offload_parameters: held and updated in the memory of the host (parameters: stage 3 only).
        recompute: run each block's forward pass again in backward.
        tp, pp: ranks that share each layer, and stages of a pipeline.
        options: keys of a ds_config that are laid over what the description says; of a section, such as
            `zero_optimization`, the keys inside.
        seed: of the initial weights and of the batches.

    Raises:
        ValueError: sizes that do not fit together, or an unknown word.
    """

    config: GPTConfig = SMALL
    world_size: int = 2
    steps: int = 3
    global_batch: int = 8
    accumulation: int = 1
    context_length: int = 16
    lr: float = 1e-3
    weight_decay: float = 0.01
    optimizer: Literal["adamw", "sgd"] = "adamw"
    precision: Literal["fp32", "bf16", "fp16"] = "fp32"
    clipping: float = 0.0
    zero_stage: int = 0
    offload_optimizer: bool = False
    offload_parameters: bool = False
    recompute: bool = False
    tp: int = 1
    pp: int = 1
    options: Mapping[str, Any] = field(default_factory=dict)
    seed: int = 0

    def __post_init__(self) -> None:
        self._check_types()
        if self.world_size % (self.tp * self.pp):
            raise ValueError(f"tp * pp must divide world_size, got {self.tp} * {self.pp} and {self.world_size}")
        if self.global_batch % (self.dp * self.accumulation):
            raise ValueError(
                f"global_batch must be micro-batch * accumulation * dp: {self.global_batch} is no multiple of "
                f"{self.accumulation} * {self.dp}. Change global_batch or accumulation"
            )
        if self.context_length > self.config.context_length:
            raise ValueError(f"context_length is at most the model's {self.config.context_length}")
        if self.optimizer not in ("adamw", "sgd"):
            raise ValueError(f'optimizer must be "adamw" or "sgd", got {self.optimizer!r}')
        if self.precision not in PRECISIONS:
            raise ValueError(f"precision must be one of {', '.join(PRECISIONS)}, got {self.precision!r}")
        if self.zero_stage > 3:
            raise ValueError(f"zero_stage must be 0, 1, 2 or 3, got {self.zero_stage}")
        if self.offload_parameters and self.zero_stage != 3:
            raise ValueError(
                f"offload_parameters needs zero_stage=3, got {self.zero_stage}: only it divides parameters"
            )
        if self.offload_optimizer and self.zero_stage == 0:
            raise ValueError("offload_optimizer needs zero_stage=1 or more: stage 0 has no optimizer state of its own")
        if self.pp > 1 and self.zero_stage > 1:
            raise ValueError(
                f"a pipeline takes zero_stage=0 or 1, got {self.zero_stage}: stages 2 and 3 would reduce and gather "
                "for every micro-batch"
            )
        if self.pp > (links := self.config.num_layers + 2):
            raise ValueError(f"pp must be at most {links}, the blocks, the embedding and the head; got {self.pp}")
        if self.config.num_heads % self.tp:
            raise ValueError(f"tp must divide num_heads, got {self.tp} and {self.config.num_heads}")

    def _check_types(self) -> None:
        """Refuse what is no number, flag, dictionary or GPTConfig where one is asked for."""
        if not isinstance(self.config, GPTConfig):
            raise ValueError(f"config must be a GPTConfig, got {self.config!r}: GPTConfig(num_layers=2)")
        for name in ("world_size", "steps", "global_batch", "accumulation", "context_length", "tp", "pp"):
            require_whole(name, getattr(self, name))
        for name in ("zero_stage", "seed"):
            require_whole(name, getattr(self, name), least=0)
        for name in ("lr", "weight_decay", "clipping"):
            require_number(name, getattr(self, name))
        for name in ("offload_optimizer", "offload_parameters", "recompute"):
            require_flag(name, getattr(self, name))
        if not isinstance(self.options, Mapping):
            raise ValueError(f"options must be a dictionary of keys of a ds_config, got {self.options!r}")

    @property
    def dp(self) -> int:
        """Ranks that hold the same part of the model and work on different sequences."""
        return self.world_size // (self.tp * self.pp)

    @property
    def micro_batch(self) -> int:
        """Sequences that a rank works on at once: DeepSpeed's `train_micro_batch_size_per_gpu`."""
        return self.global_batch // (self.accumulation * self.dp)
