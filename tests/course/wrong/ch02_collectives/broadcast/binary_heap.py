# expect: DTL-RULE-ROUNDS
# says: 4 messages follow one another (0 to 1, 0 to 2, 2 to 5, 2 to 6)

import torch.distributed as dist


def broadcast(x, root):
    rank, n = dist.get_rank(), dist.get_world_size()
    place = (rank - root) % n
    if place > 0:
        dist.recv(x, ((place - 1) // 2 + root) % n)
    for child in (2 * place + 1, 2 * place + 2):
        if child < n:
            dist.send(x, (child + root) % n)
