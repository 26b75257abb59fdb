# expect: DTL-RAISED
# says: view size is not compatible

import torch
import torch.distributed as dist


def sharded_cross_entropy(logits, targets, group=None):
    logits, targets = logits.view(-1, logits.shape[-1]), targets.view(-1)
    columns = logits.shape[-1]
    local = targets - dist.get_rank(group) * columns
    foreign = (local < 0) | (local >= columns)
    largest = logits.detach().amax(-1)
    with torch.no_grad():
        dist.all_reduce(largest, op=dist.ReduceOp.MAX, group=group)
    shifted = logits - largest.unsqueeze(-1)
    logit = shifted.gather(-1, local.masked_fill(foreign, 0).unsqueeze(-1)).squeeze(-1).masked_fill(foreign, 0.0)
    total = shifted.exp().sum(-1)
    with torch.no_grad():
        dist.all_reduce(logit, group=group)
        dist.all_reduce(total, group=group)
    return (total.log() - logit)[targets != -100].mean()
