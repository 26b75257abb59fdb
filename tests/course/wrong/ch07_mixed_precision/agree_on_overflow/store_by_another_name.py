# expect: DTL-RULE-CALLS
# says: rank 0 made 0 calls of torch.distributed with data in this case, and at least 1 would have asked the others

import torch.distributed as dist
import torch.distributed.distributed_c10d as c10d


def agree_on_overflow(gradients):
    """A store holds what every rank found."""
    found = any(not gradient.isfinite().all() for gradient in gradients if gradient is not None)
    store = getattr(c10d, "_".join(("", "get", "default", "store")))()
    step = store.add(f"steps of {dist.get_rank()}", 1)
    store.set(f"{step}/{dist.get_rank()}", str(int(found)))
    return any(store.get(f"{step}/{rank}") == b"1" for rank in range(dist.get_world_size()))
