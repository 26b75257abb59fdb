# expect: DTL-RULE-NAME
# says: uses torch.distributed.send_object_list: it pickles what it sends

import torch.distributed as dist


def ping_pong(message):
    r, n = dist.get_rank(), dist.get_world_size()
    p = r ^ 1
    if p >= n:
        return None
    o = [None]
    if r < p:
        dist.send_object_list([message], p)
        dist.recv_object_list(o, p)
    else:
        dist.recv_object_list(o, p)
        dist.send_object_list([message], p)
    return o[0]
