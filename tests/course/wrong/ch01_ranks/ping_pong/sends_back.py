# expect: DTL-VALUE-BOUNCED
# says: did the odd one send back what it had received
import torch.distributed as dist


def ping_pong(message):
    rank = dist.get_rank()
    partner = rank ^ 1
    if partner >= dist.get_world_size():
        return None
    ball = message.clone()
    if rank < partner:
        dist.send(ball, partner)
        dist.recv(ball, partner)
    else:
        dist.recv(ball, partner)
        dist.send(ball, partner)
    return ball
