# expect: DTL-P2P-UNMATCHED
# says: sends to rank 3, but the job has only 3 ranks

import torch.distributed as dist


def all_to_all(parts):
    rank, world_size = dist.get_rank(), dist.get_world_size()
    received = [part.clone() for part in parts]
    steps = 1 << (world_size - 1).bit_length()
    for step in range(1, steps):
        partner = rank ^ step
        sending = dist.isend(parts[min(partner, world_size - 1)], partner)
        dist.recv(received[min(partner, world_size - 1)], partner)
        sending.wait()
    return received
