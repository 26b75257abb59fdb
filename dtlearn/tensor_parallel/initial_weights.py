"""Initial weights that do not depend on the number of ranks: all ranks draw the whole tensor, and each keeps its part.

If each rank drew its own part, a model on 4 ranks would begin as another model than on 2; and if all ranks had the same
seed, their parts would be equal. Ranks may be seeded differently, since the seed for the weights is the first rank's.

Source: `_initialize_affine_weight_cpu` in Megatron-LM's `core/tensor_parallel/layers.py`. (On GPUs Megatron-LM draws
each part with a seed of the rank, so that its initial model depends on t.)
"""

from __future__ import annotations

import torch
import torch.distributed as dist

from .sharding import place_in


def shared_generator(seed: int | None = None, *, group: dist.ProcessGroup | None = None) -> torch.Generator:
    """A generator on the CPU that gives the same numbers on all ranks of the group.

    **Communication**: without a seed one broadcast of 8 bytes; all ranks of the group call it.
    **Memory**: 5 kB, the generator's state.

    Args:
        seed: the same on all ranks; None: the group's first rank draws one from torch's default state.
        group: None: all ranks.
    """
    if seed is None:
        _, num_ranks = place_in(group)
        # On all ranks, so that their default states go on alike.
        drawn = torch.randint(2**62, ())
        if num_ranks > 1:
            drawn = drawn.cuda() if dist.get_backend(group) == "nccl" else drawn
            dist.broadcast(drawn, group_src=0, group=group)
        seed = int(drawn)
    return torch.Generator().manual_seed(seed)
