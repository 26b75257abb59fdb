# expect: DTL-RULE-CALLS
# says: calls broadcast

import torch.distributed as dist


def broadcast(x, root):
    dist.broadcast(x, src=root)
