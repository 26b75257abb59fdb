import re
from collections import defaultdict

import torch


def one_file(files):
    """Cuts each rank's vector into its parts first, and joins the parts of all ranks afterwards."""
    ranks = defaultdict(dict)
    for name, content in files.items():
        rank, kind = re.search(r"pp_rank_(\d+)_mp_rank_00_(\w+)_states\.pt$", name).groups()
        ranks[int(rank)][kind] = content
    have = [rank for rank in sorted(ranks) if "optim" in ranks[rank]]
    n = ranks[have[0]]["optim"]["optimizer_state_dict"]["partition_count"]
    if len(have) != n:
        raise ValueError(f"expected the files of {n} ranks, found {len(have)}: copy the whole folder")
    model = ranks[have[0]]["model"]
    trained = dict(item for group in model["param_shapes"] for item in group.items())
    frozen = model["frozen_param_shapes"] or {}
    sizes = [(shape.numel() + n - 1) // n for shape in trained.values()]
    parts = defaultdict(list)
    for rank in have:
        vector = torch.cat(ranks[rank]["optim"]["optimizer_state_dict"]["fp32_flat_groups"])
        for name, part in zip(trained, vector.split(sizes), strict=True):
            parts[name].append(part)
        for name in frozen:
            parts[name].append(ranks[rank]["model"]["frozen_param_fragments"][name])
    state = {
        name: torch.cat(parts[name]).narrow(0, 0, s.numel()).reshape(s) for name, s in {**frozen, **trained}.items()
    }
    for name in model["buffer_names"]:
        buffer = model["module"][name]
        state[name] = buffer.to(torch.float32) if buffer.dtype.is_floating_point else buffer.clone()
    return state | {alias: state[name] for alias, name in model["shared_params"].items()}
