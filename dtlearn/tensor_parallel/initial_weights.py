"""Initial weights that do not depend on the number of ranks: all ranks draw the whole tensor, and each keeps its part.

If each rank drew its own part, a model on 4 ranks would begin as another model than on 2; and if all ranks had the same
seed, their parts would be equal. Ranks may be seeded differently, since the seed for the weights is the first rank's.

Source: `_initialize_affine_weight_cpu` in Megatron-LM's `core/tensor_parallel/layers.py`. (On GPUs Megatron-LM draws
each part with a seed of the rank, so that its initial model depends on t.)
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.overrides import TorchFunctionMode

from dtlearn.models.gpt import GPT, INIT_STD, GPTConfig
from dtlearn.runtime.device import device_for
from dtlearn.sharing.shards import rank_and_size


def shared_generator(seed: int | None = None, *, group: dist.ProcessGroup | None = None) -> torch.Generator:
    """A generator on the CPU that gives the same numbers on all ranks of the group.

    **Communication**: without a seed one broadcast of 8 bytes; all ranks of the group call it.
    **Memory**: 5 kB, the generator's state.

    Args:
        seed: the same on all ranks; None: the group's first rank draws one from torch's default state.
        group: None: all ranks.
    """
    if seed is None:
        _, num_ranks = rank_and_size(group)
        # On all ranks, so that their default states go on alike.
        drawn = torch.randint(2**62, ())
        if num_ranks > 1:
            drawn = drawn.to(device_for(group))
            dist.broadcast(drawn, group_src=0, group=group)
        seed = int(drawn)
    return torch.Generator().manual_seed(seed)


def gpt_parameters(config: GPTConfig, seed: int) -> Iterator[tuple[str, torch.Tensor]]:
    """Name and values of each parameter that `GPT(config)` has after `torch.manual_seed(seed)`, one at a time.

    **Communication**: none. **Memory**: one whole parameter.

    Args:
        config: of the whole model.
        seed: torch's default state is left alone.
    """
    generator = torch.Generator().manual_seed(seed)
    with shapes_only():
        modules = list(GPT(config).named_modules())
    for _, module in modules:  # what the constructors draw, before GPT draws all weights anew
        for parameter in module.parameters(recurse=False):
            if isinstance(module, nn.Embedding):
                torch.empty(parameter.shape).normal_(generator=generator)
            elif isinstance(module, nn.Linear):
                torch.empty(parameter.shape).uniform_(generator=generator)
    residual_std = INIT_STD / math.sqrt(2 * config.num_layers)
    for name, module in modules:
        if isinstance(module, nn.Linear | nn.Embedding):
            std = residual_std if name.endswith(("attention.output", "feed_forward.down")) else INIT_STD
            weight = torch.empty(module.weight.shape).normal_(std=std, generator=generator)
            if name != "head.projection" or not config.tie_embeddings:
                yield f"{name}.weight", weight
        elif isinstance(module, nn.LayerNorm):
            yield f"{name}.weight", torch.ones(module.weight.shape)
        if isinstance(module, nn.Linear | nn.LayerNorm) and module.bias is not None:
            yield f"{name}.bias", torch.zeros(module.bias.shape)


@contextmanager
def shapes_only() -> Iterator[None]:
    """Modules that are built in this block have parameters on the meta device, and nothing is drawn for them.

    `torch.device("meta")` alone gives the same modules. But it runs `nn.init.normal_` on tensors without memory, for
    which torch imports its compiler: one second, in every process.

    **Communication** and **Memory**: none.
    """
    with torch.device("meta"), _NothingDrawn():
        yield


class _NothingDrawn(TorchFunctionMode):
    def __torch_function__(self, func: Callable[..., Any], types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if getattr(func, "__module__", "") == "torch.nn.init":
            return args[0] if args else kwargs["tensor"]
        return func(*args, **(kwargs or {}))
