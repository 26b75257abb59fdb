import torch.distributed as dist


def all_to_all(parts):
    r, n = dist.get_rank(), dist.get_world_size()
    res = list(parts)
    res[r] = parts[r].clone()
    for t in range(n):
        partner = (t - r) % n
        if partner == r:
            continue
        room = parts[partner].clone()
        if r < partner:
            dist.send(parts[partner], partner)
            dist.recv(room, partner)
        else:
            dist.recv(room, partner)
            dist.send(parts[partner], partner)
        res[partner] = room
    return res
