# expect: DTL-COLL-SHAPE
# says: rank 0 calls all_reduce with shape (12,)
# says: they meet by position: the 2nd of rank 0 is that of 'right', of rank 1 that of 'left_bias'

import torch
import torch.distributed as dist


def average_gradients(model):
    gradients = [p.grad for p in model.parameters() if p.grad is not None]
    flat = torch.cat([gradient.reshape(-1) for gradient in gradients])
    dist.all_reduce(flat)
    flat /= dist.get_world_size()
    for gradient, mean in zip(gradients, flat.split([g.numel() for g in gradients]), strict=True):
        gradient.copy_(mean.view_as(gradient))
