# expect: DTL-MISTAKE
# says: in a tournament of N days a day is missing

import torch.distributed as dist


def all_to_all(parts):
    rank, n = dist.get_rank(), dist.get_world_size()
    out = [p.clone() for p in parts]
    for step in range(1, n):
        partner = (step - rank) % n
        if partner == rank:
            continue
        if rank < partner:
            dist.send(parts[partner], partner)
            dist.recv(out[partner], partner)
        else:
            dist.recv(out[partner], partner)
            dist.send(parts[partner], partner)
    return out
