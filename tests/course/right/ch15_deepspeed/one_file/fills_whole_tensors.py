import math

import torch


def rank_of(name):
    return int(name.split("pp_rank_")[1].split("_")[0])


def one_file(files):
    """Makes the whole tensors first, and copies each rank's part to its place."""
    optims = {rank_of(name): files[name] for name in files if "optim_states" in name}
    models = {rank_of(name): files[name] for name in files if "model_states" in name}
    model = models[min(models)]
    n = optims[min(optims)]["optimizer_state_dict"]["partition_count"]
    if n != len(optims):
        raise ValueError(f"{len(optims)} optim_states, and {n} ranks saved the checkpoint")
    state = {}

    def put(name, shape, part_of):
        numel = math.prod(shape)
        flat = torch.empty(numel, dtype=part_of(0).dtype)
        size = math.ceil(numel / n)
        for rank in range(n):
            start = min(rank * size, numel)
            own = min(size, numel - start)
            flat[start : start + own] = part_of(rank)[:own]
        state[name] = flat.reshape(tuple(shape))

    for name, shape in (model["frozen_param_shapes"] or {}).items():
        put(name, shape, lambda rank, name=name: models[rank]["frozen_param_fragments"][name])
    offset = 0
    for shapes in model["param_shapes"]:
        for name, shape in shapes.items():
            vectors = {r: torch.cat(o["optimizer_state_dict"]["fp32_flat_groups"]) for r, o in optims.items()}
            put(name, shape, lambda rank, at=offset, vectors=vectors: vectors[rank][at:])
            offset += math.ceil(math.prod(shape) / n)
    for name in model["buffer_names"]:
        buffer = model["module"][name]
        state[name] = buffer.float() if torch.is_floating_point(buffer) else buffer
    for alias in model["shared_params"]:
        state[alias] = state[model["shared_params"][alias]]
    return state
