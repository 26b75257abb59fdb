"""`--compress`: which communication hook averages the gradients, and what of it a checkpoint holds."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.utils._pytree import tree_map_only

from dtlearn.data_parallel.ddp import DistributedDataParallel
from dtlearn.gradient_compression.codecs.qsgd import QSGD
from dtlearn.gradient_compression.codecs.sign import PackedSign
from dtlearn.gradient_compression.codecs.sparse import TopK
from dtlearn.gradient_compression.hooks import CompressionState, compress_hook
from dtlearn.gradient_compression.powersgd.hook import powersgd_hook
from dtlearn.gradient_compression.powersgd.state import PowerSGDState
from dtlearn.sharing.comm_hooks import Hook, fp16_compress_hook

from .options import Settings
from .ranks.rank_0 import TrainError

HookState = CompressionState | PowerSGDState

# Bytes that a rank gives, of float32: 1/50 (a value and an index), 1/32, 1/7 and, of a large matrix, little.
STATES: dict[str, Callable[[int], HookState]] = {
    "topk": lambda seed: CompressionState(TopK(ratio=0.01)),
    "sign": lambda seed: CompressionState(PackedSign()),
    "qsgd": lambda seed: CompressionState(QSGD(levels=7, chunk=64), seed=seed),
    "powersgd": lambda seed: PowerSGDState(4, seed=seed),
}


def check_compress(settings: Settings) -> None:
    """Raise TrainError if the gradients cannot be compressed as asked for."""
    if settings.compress == "none":
        return
    if not dist.is_initialized():
        raise TrainError(
            f"--compress {settings.compress}: one process alone sends nothing. Start ranks with torchrun, or leave "
            "--compress out"
        )
    resumable = settings.checkpoint_dir is not None or settings.resume not in ("auto", "none")
    if settings.ddp == "torch" and settings.compress in STATES and resumable:
        raise TrainError(
            f"--compress {settings.compress} with --ddp torch cannot be resumed: torch plans its buckets anew after "
            "the first step of each run, and what a bucket's gradients become depends on the bucket. Use --ddp ours, "
            "or no checkpoints"
        )


def make_hook_state(settings: Settings) -> HookState | None:
    """What the hook keeps on this rank from step to step; None if it keeps nothing."""
    make = STATES.get(settings.compress)
    return make(settings.seed) if make else None


def register(model: nn.Module, settings: Settings, state: HookState | None) -> None:
    """Let the hook average the gradients of a wrapped model."""
    hook: Hook | None = None
    if isinstance(state, PowerSGDState):
        hook = powersgd_hook
    elif state is not None:
        hook = compress_hook
    elif settings.compress == "fp16":
        hook = fp16_compress_hook
    if hook is not None:
        assert isinstance(model, DistributedDataParallel | nn.parallel.DistributedDataParallel)
        model.register_comm_hook(state, hook)


def saved_hook_state(state: HookState | None, model: nn.Module) -> dict[str, Any] | None:
    """What a checkpoint holds of this rank's state: plain values, and tensors on the CPU."""
    saved: dict[str, Any] | None = None if state is None else state.state_dict(model)
    on_cpu: dict[str, Any] | None = tree_map_only(torch.Tensor, torch.Tensor.cpu, saved)
    return on_cpu


def load_hook_state(
    state: HookState | None, model: nn.Module, saved: list[dict[str, Any] | None], rank: int, world_size: int
) -> list[str]:
    """Take up this rank's part of what a checkpoint holds, if there is one. Returns what a person should know.

    Raises:
        TrainError: it is of another model, or of another hook.
    """
    if state is None or not saved or saved[0] is None:
        return []
    if len(saved) != world_size:
        return [
            f"what {len(saved)} ranks had not sent yet is lost: on {world_size} ranks compression begins without it, "
            "and losses differ"
        ]
    mine = saved[rank]
    assert mine is not None
    try:
        state.load_state_dict(mine, model)
    except (ValueError, KeyError) as error:
        raise TrainError(f"the checkpoint's compression is another one: {error}") from error
    return []
