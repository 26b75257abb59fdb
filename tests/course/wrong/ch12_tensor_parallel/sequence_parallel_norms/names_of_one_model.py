# expect: DTL-MISTAKE
# says: what is a norm is added up, not what is marked

import torch.distributed as dist

NAMES = {"norm.weight", "norm.bias", "final_norm.weight", "blocks.0.norm.weight", "blocks.0.norm.bias", "position"}


def sequence_parallel_norms(model, group=None):
    for name, p in model.named_parameters():
        if name in NAMES and p.grad is not None:
            dist.all_reduce(p.grad, group=group)
