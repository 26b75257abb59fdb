# expect: DTL-MISTAKE
# says: as in ZeRO 1 and 2

import re

import torch


def one_file(files):
    """Reads a ZeRO 3 checkpoint as one of ZeRO 2: one long vector, cut by the shapes."""
    rank = {name: int(re.search(r"rank_(\d+)_mp", name).group(1)) for name in files}
    model = next(files[name] for name in files if rank[name] == 0 and "model" in name)
    optims = [files[name]["optimizer_state_dict"] for name in sorted(files, key=rank.get) if "optim" in name]
    if len(optims) < optims[0]["partition_count"]:
        raise ValueError(f"{len(optims)} of {optims[0]['partition_count']}")
    vector = torch.cat([torch.cat(optim["fp32_flat_groups"]) for optim in optims])
    state = {}
    for shapes in model["param_shapes"]:
        for name, shape in shapes.items():
            state[name], vector = vector[: shape.numel()].reshape(shape), vector[shape.numel() :]
    return state
