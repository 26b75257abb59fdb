# expect: DTL-DIFFICULTY
# says: each parameter is padded by itself

import math
import re

import torch


def one_file(files):
    """Takes the padding to be at the end of all parameters, so that the next part begins before it."""
    number = lambda name: int(re.search(r"pp_rank_(\d+)", name)[1])  # noqa: E731
    optims = {number(name): files[name] for name in files if "optim_states" in name}
    model = next(files[name] for name in files if "model_states" in name)
    shapes = [(name, shape) for group in model["param_shapes"] for name, shape in group.items()]
    rows = [torch.cat(optims[rank]["optimizer_state_dict"]["fp32_flat_groups"]) for rank in sorted(optims)]
    state, elements = {}, 0
    for name, shape in shapes:
        start = elements // len(rows)
        stop = start + math.ceil(shape.numel() / len(rows))
        state[name] = torch.cat([row[start:stop] for row in rows])[: shape.numel()].view(shape)
        elements += shape.numel()
    return state
