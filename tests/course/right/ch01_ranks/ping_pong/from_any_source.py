import torch.distributed as dist


def ping_pong(message):
    rank = dist.get_rank()
    partner = rank + (1 if rank % 2 == 0 else -1)
    if partner == dist.get_world_size():
        return None
    box = message.clone()
    if rank % 2:
        sender = dist.recv(box)
        assert sender == partner
        dist.send(message, partner)
    else:
        dist.send(message, partner, tag=0)
        dist.recv(box)
    return box
