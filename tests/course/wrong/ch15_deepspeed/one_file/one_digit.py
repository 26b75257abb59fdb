# expect: DTL-DIFFICULTY
# says: in the order of the ranks' numbers

import math
import re

import torch


def one_file(files):
    """Reads one digit of the rank, so that rank 10 takes the place of rank 1."""
    optims, models = {}, {}
    for name, content in files.items():
        rank = int(re.search(r"pp_rank_(\d)", name)[1])
        (optims if "optim" in name else models)[rank] = content
    n = optims[0]["optimizer_state_dict"]["partition_count"]
    flats = [torch.cat(optims[rank]["optimizer_state_dict"]["fp32_flat_groups"]) for rank in sorted(optims)]
    model, state, at = models[0], {}, 0
    for name in model["buffer_names"]:
        buffer = model["module"][name]
        state[name] = buffer.to(torch.float32) if buffer.dtype.is_floating_point else buffer
    for name, shape in (model["frozen_param_shapes"] or {}).items():
        pieces = [models[rank]["frozen_param_fragments"][name] for rank in sorted(models)]
        state[name] = torch.cat(pieces)[: math.prod(shape)].reshape(shape)
    for shapes in model["param_shapes"]:
        for name, shape in shapes.items():
            size = -(-math.prod(shape) // n)
            state[name] = torch.cat([flat[at : at + size] for flat in flats])[: math.prod(shape)].reshape(shape)
            at += size
    state.update({alias: state[name] for alias, name in model["shared_params"].items()})
    return state
