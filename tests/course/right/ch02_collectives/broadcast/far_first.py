import torch.distributed as dist


def broadcast(x, root):
    """MPICH: receive from the parent, then serve children, the farthest first."""
    rank, n = dist.get_rank(), dist.get_world_size()
    me = (rank - root) % n
    mask = 1
    while mask < n:
        if me & mask:
            dist.recv(x, src=(rank - mask) % n)
            break
        mask <<= 1
    mask >>= 1
    while mask:
        if me + mask < n:
            dist.send(x, dst=(rank + mask) % n)
        mask >>= 1
