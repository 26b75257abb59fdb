# expect: DTL-RULE-LOGITS-SENT
# says: the logits are gathered, and 3 numbers suffice

import torch
import torch.distributed as dist
import torch.nn.functional as F


def sharded_cross_entropy(logits, targets, group=None):
    parts = [torch.empty_like(logits) for _ in range(dist.get_world_size(group))]
    dist.all_gather(parts, logits.detach(), group=group)
    parts[dist.get_rank(group)] = logits
    whole = torch.cat(parts, dim=-1)
    return F.cross_entropy(whole.flatten(0, -2), targets.flatten())
