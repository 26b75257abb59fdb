# expect: DTL-RULE-NAME
# says: what goes through the store is not counted

import torch.distributed as dist
from torch.distributed.distributed_c10d import _get_default_store

steps = []


def agree_on_overflow(gradients):
    """A store holds what every rank found."""
    found = any(not gradient.isfinite().all() for gradient in gradients if gradient is not None)
    store, step = _get_default_store(), len(steps)
    steps.append(found)
    store.set(f"{step}/{dist.get_rank()}", str(int(found)))
    return any(store.get(f"{step}/{rank}") == b"1" for rank in range(dist.get_world_size()))
