# expect: DTL-RULE-CALLS
# says: calls barrier

import torch.distributed as dist


def barrier():
    dist.barrier()
