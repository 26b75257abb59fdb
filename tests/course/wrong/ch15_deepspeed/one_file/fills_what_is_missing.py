# expect: DTL-DIFFICULTY
# says: expected a ValueError that names the optim_states files

import math
import re

import torch


def one_file(files):
    """Takes the number of ranks from the files, and zeros for what is not there."""
    number = re.compile(r"pp_rank_(\d+)_mp_rank_\d+_(model|optim)_states")
    by_kind = {"model": {}, "optim": {}}
    for name, content in files.items():
        rank, kind = number.search(name).groups()
        by_kind[kind][int(rank)] = content
    models = [by_kind["model"][rank] for rank in sorted(by_kind["model"])]
    optims = [by_kind["optim"][rank]["optimizer_state_dict"] for rank in sorted(by_kind["optim"])]
    n, model, state = optims[0]["partition_count"], models[0], {}
    for name in model["buffer_names"]:
        state[name] = model["module"][name]
        if state[name].is_floating_point():
            state[name] = state[name].float()
    for name, shape in (model["frozen_param_shapes"] or {}).items():
        state[name] = torch.cat([m["frozen_param_fragments"][name] for m in models])[: shape.numel()].view(shape)
    vectors = [torch.cat(optim["fp32_flat_groups"]) for optim in optims]
    for name, shape in {k: v for d in model["param_shapes"] for k, v in d.items()}.items():
        size = math.ceil(shape.numel() / n)
        parts = [vector[:size] for vector in vectors] + [torch.zeros(size)] * (n - len(vectors))
        vectors = [vector[size:] for vector in vectors]
        state[name] = torch.cat(parts)[: shape.numel()].view(shape)
    for name, source in model["shared_params"].items():
        state[name] = state[source]
    return state
