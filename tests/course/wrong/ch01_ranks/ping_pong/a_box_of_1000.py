# expect: DTL-RAISED
# says: RuntimeError: The expanded size of the tensor
import torch
import torch.distributed as dist


def ping_pong(message):
    rank = dist.get_rank()
    partner = rank ^ 1
    if partner >= dist.get_world_size():
        return None
    box, theirs = torch.zeros(1000, dtype=message.dtype), torch.zeros(1000, dtype=message.dtype)
    box[: message.numel()] = message.flatten()
    sending = dist.isend(box, partner)
    dist.recv(theirs, partner)
    sending.wait()
    return theirs[: message.numel()].view(message.shape)
