# expect: DTL-MISTAKE
# says: the number comes from the argument rank
import torch.distributed as dist


def gpipe(rank, num_ranks, num_microbatches, most_live):
    for start in range(0, num_microbatches, most_live):
        group = range(start, min(start + most_live, num_microbatches))
        yield from ((dist.get_rank(), op, k) for op in "FB" for k in group)
