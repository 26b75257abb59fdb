import torch
import torch.distributed as dist


def sum_in_group(x, groups):
    made = [dist.new_group(g) for g in groups]
    own = next(m for m, g in zip(made, groups, strict=False) if dist.get_rank() in g)
    parts = [torch.empty_like(x) for _ in range(dist.get_world_size(own))]
    dist.all_gather(parts, x, group=own)
    result = sum(parts)
    dist.barrier()
    dist.destroy_process_group(own)
    return result
