import torch
import torch.distributed as dist


def gather_and_free(compute, shard, x, *, group=None):
    """Views of the weights are packed as their layout, and unpacked in weights that are gathered again."""
    n, again = dist.get_world_size(group), []

    def gathered():
        full = torch.empty(n * len(shard))
        dist.all_gather(list(full.chunk(n)), shard.detach(), group=group)
        return full

    class Reduce(torch.autograd.Function):
        @staticmethod
        def forward(ctx, shard, full):
            return full.view_as(full)

        @staticmethod
        def backward(ctx, gradient):
            again.clear()
            mean = torch.empty(len(shard))
            dist.reduce_scatter(mean, list(gradient.chunk(n)), group=group)
            return mean / n, None

    full = gathered()
    storage = full.untyped_storage().data_ptr()

    def pack(t):
        if t.untyped_storage().data_ptr() != storage:
            return t
        return t.storage_offset(), t.shape, t.stride()

    def unpack(packed):
        if isinstance(packed, torch.Tensor):
            return packed
        if not again:
            again.append(gathered())
        offset, shape, stride = packed
        return again[0].as_strided(shape, stride, offset)

    with torch.autograd.graph.saved_tensors_hooks(pack, unpack):
        return compute(Reduce.apply(shard, full), x)
