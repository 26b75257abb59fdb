import torch
import torch.distributed as dist


def tied_embedding(copies, group):
    if len(copies) == 0:
        return
    gradients = [torch.zeros_like(copy) if copy.grad is None else copy.grad for copy in copies]
    total = torch.stack(gradients).sum(0).flatten()
    num_numbers = total.numel()
    if group is not None:
        num_ranks = dist.get_world_size(group)
        total = torch.cat([total, total.new_zeros(-num_numbers % num_ranks)])
        part = total.new_zeros(total.numel() // num_ranks)
        dist.reduce_scatter_tensor(part, total, group=group)
        dist.all_gather_into_tensor(total, part, group=group)
    for copy, gradient in zip(copies, gradients, strict=True):
        gradient.copy_(total[:num_numbers].view_as(copy))
        copy.grad = gradient
