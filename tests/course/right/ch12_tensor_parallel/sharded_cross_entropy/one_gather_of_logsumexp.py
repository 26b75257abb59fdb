import torch
import torch.distributed as dist


def sharded_cross_entropy(logits, targets, group=None):
    columns, num_ranks = logits.shape[-1], dist.get_world_size(group)
    hot = targets.unsqueeze(-1) == torch.arange(columns) + columns * dist.get_rank(group)
    own = torch.stack([logits.detach().logsumexp(-1), (logits.detach() * hot).sum(-1)])
    parts = [torch.empty_like(own) for _ in range(num_ranks)]
    dist.all_gather(parts, own, group=group)
    parts = torch.stack(parts)
    whole = parts[:, 0].logsumexp(0)
    counts = (targets != -100).to(logits.dtype)
    loss = ((whole - parts[:, 1].sum(0)) * counts).sum() / counts.sum()
    probabilities = (logits.detach() - whole.unsqueeze(-1)).exp()
    gradient = (probabilities - hot.to(logits.dtype)) * (counts / counts.sum()).unsqueeze(-1)
    return Attached.apply(logits, loss, gradient)


class Attached(torch.autograd.Function):
    @staticmethod
    def forward(ctx, logits, loss, gradient):
        ctx.save_for_backward(gradient)
        return loss

    @staticmethod
    def backward(ctx, upstream):
        return ctx.saved_tensors[0] * upstream, None, None
