# expect: DTL-MISTAKE
# says: the number comes from the argument rank
import torch.distributed as dist


def gpipe(rank, num_ranks, num_microbatches):
    return [(dist.get_rank(), op, k) for op in "FB" for k in range(num_microbatches)]
