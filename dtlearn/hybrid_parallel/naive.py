"""Mixing parallelisms by hand, and going wrong: a norm that is added up over the wrong group.

Every rank has a part of the gradient, and of the whole model's norm. A loop that was written for one kind of
parallelism adds up over one group, and runs on a mesh without a word:

    over tp alone, on tp x pp         each stage clips by a norm of its own: the stages' steps have other lengths
    over all ranks, with replicas     what d replicas have alike is counted d times: the norm is sqrt(d) too large

No rank fails, and the loss falls. That the norm is another one under another layout is what gives it away.

Source: `clip_grad_norm_` of Megatron-LM, `core/optimizer/clip_grads.py`, which takes a group for model parallelism.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.distributed as dist

from dtlearn.models import GPTConfig

from .layout import MeshLayout
from .recipe import HybridGPT


class NormOverWrongGroups(HybridGPT):
    """`HybridGPT`, but the square of the norm is added up over the axes that it is told: the naive mix.

    `step` then returns a norm that may differ from rank to rank.

    **Communication**: as `HybridGPT`, but an all-reduce of the norm over these axes only.
    **Memory**: as `HybridGPT`.

    Args:
        config, layout: as for `HybridGPT`.
        axes: over which the square is added up, of "tp", "pp" and "dp".
        optimizer_class, options: the other arguments of `HybridGPT`.

    Raises:
        ValueError: another axis; or as `HybridGPT`.
    """

    def __init__(
        self,
        config: GPTConfig,
        layout: MeshLayout,
        *,
        axes: Sequence[str],
        optimizer_class: type[torch.optim.Optimizer],
        **options: Any,
    ) -> None:
        if unknown := [axis for axis in axes if axis not in ("tp", "pp", "dp")]:
            raise ValueError(f"axes are of tp, pp and dp; got {unknown[0]!r}")
        super().__init__(config, layout, optimizer_class=optimizer_class, **options)
        self.norm_axes = tuple(axes)

    def norm_groups(self) -> list[dist.ProcessGroup]:
        """The groups of the axes that it was told."""
        return [group for axis in self.norm_axes if dist.get_world_size(group := getattr(self.groups, axis)) > 1]
