# expect: DTL-VALUE-FORGOTTEN
# says: one tensor of 42 numbers, as many as these have together
import torch.distributed as dist
from torch.nn.utils import parameters_to_vector


def start_equal(model):
    flat = parameters_to_vector(model.parameters()).detach()
    dist.broadcast(flat, src=0)
    for buffer in model.buffers():
        dist.broadcast(buffer, src=0)
