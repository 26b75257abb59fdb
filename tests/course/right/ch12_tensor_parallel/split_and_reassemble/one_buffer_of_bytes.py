import torch
import torch.distributed as dist


class Parts:
    def __init__(self, full, dim, group):
        self.dim, self.group, self.n = dim % full.dim(), group, dist.get_world_size(group)
        self.shape = full.movedim(self.dim, 0).shape

    def __call__(self, part):
        moved = part.movedim(self.dim, 0).contiguous()
        whole = moved.new_empty(self.shape)
        dist.all_gather_into_tensor(whole.view(torch.uint8), moved.view(torch.uint8), group=self.group)
        return whole.movedim(0, self.dim)


def split_and_reassemble(full, dim, group):
    n = dist.get_world_size(group)
    if full.shape[dim] % n:
        raise ValueError(f"size {full.shape[dim]} and {n} ranks")
    indices = torch.arange(full.shape[dim]).reshape(n, -1)[dist.get_rank(group)]
    return full.index_select(dim, indices), Parts(full, dim, group)
