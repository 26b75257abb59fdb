# expect: DTL-DIFFICULTY
# says: a norm without the mark has its whole gradient

import torch.distributed as dist

NAMES = {"norm.weight", "norm.bias", "final_norm.weight", "blocks.0.norm.weight", "blocks.0.norm.bias", "position"}


def sequence_parallel_norms(model, group=None):
    for name, p in model.named_parameters():
        if name in NAMES and p.grad is not None:
            dist.all_reduce(p.grad, group=group)
