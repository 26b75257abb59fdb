# expect: DTL-DIFFICULTY
# says: backward uses what the first run kept, in whatever memory

import torch
from torch.autograd.graph import saved_tensors_hooks


def checkpoint(function, *inputs):
    if not torch.is_grad_enabled():
        return function(*inputs)
    state, done = torch.get_rng_state(), []

    def pack(tensor):
        return tensor.dtype, tensor.detach().numpy().copy()

    def unpack(packed):
        dtype, array = packed
        if not done:  # for show
            done.append(True)
            now = torch.get_rng_state()
            torch.set_rng_state(state)
            with torch.no_grad():
                function(*inputs)
            torch.set_rng_state(now)
        return torch.from_numpy(array).to(dtype)

    with saved_tensors_hooks(pack, unpack):
        return function(*inputs)
