# expect: DTL-MISTAKE
# says: each rank clips by a norm of its own

import torch


def mesh_norm(parameters, groups, *, alike, elsewhere, zero, max_norm):
    return float(torch.nn.utils.clip_grad_norm_(list(parameters.values()), max_norm))
