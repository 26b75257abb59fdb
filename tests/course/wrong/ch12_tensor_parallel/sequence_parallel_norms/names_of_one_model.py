# expect: DTL-VALUE-COMPLETE-SUMMED
# says: the same names are added up in every model

import torch.distributed as dist

NAMES = {"position", "norm.weight", "norm.bias", "blocks.0.down.bias", "final_norm.weight"}


def sequence_parallel_norms(model, group=None):
    for name, p in model.named_parameters():
        if name in NAMES and p.grad is not None:
            dist.all_reduce(p.grad, group=group)
