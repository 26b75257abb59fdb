# expect: DTL-P2P-SIZE
# says: int64 against float32
import torch
import torch.distributed as dist


def broadcast(x, root):
    rank, world_size = dist.get_rank(), dist.get_world_size()
    place, have = (rank - root) % world_size, 1
    while have < world_size:
        if place < have and place + have < world_size:
            dist.send(x, (rank + have) % world_size)
        elif have <= place < 2 * have:
            arriving = torch.empty(x.shape)
            dist.recv(arriving, (rank - have) % world_size)
            x.copy_(arriving)
        have *= 2
