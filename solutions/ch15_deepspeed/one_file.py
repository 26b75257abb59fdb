"""Make one state dict of a ZeRO 3 checkpoint.

Each rank saved its own part in two files. `zero_to_fp32.py`, which DeepSpeed puts beside every checkpoint, puts
them together; you write what it does for stage 3.

**Given** `files`, a dict: name of a file -> what `torch.load` returned for it. The names are as DeepSpeed has
them, in any order, with the rank after `pp_rank_`:

- `zero_pp_rank_0_mp_rank_00_model_states.pt`, and for each other rank;
- `bf16_zero_pp_rank_0_mp_rank_00_optim_states.pt`, or without `bf16_`, and for each other rank.

In each `optim_states`, under `"optimizer_state_dict"`, are

- `"partition_count"`, the number of ranks N;
- `"fp32_flat_groups"`, a list of vectors. One after the other they are this rank's parts of all trained
  parameters: of each parameter the rank has ceil(numel / N) elements, in the order of `param_shapes`.

In each `model_states` are

| key | what it is |
|---|---|
| `param_shapes` | a list of dicts, name -> shape: the trained parameters |
| `frozen_param_shapes` | a dict, name -> shape; empty where nothing is frozen |
| `frozen_param_fragments` | a dict, name -> this rank's part: a vector of ceil(numel / N) |
| `shared_params` | a dict, name -> the other name of the same parameter, which is in one of the two above |
| `buffer_names`, `module` | of `module` only these entries are buffers; they are whole |

All but the fragments is the same on all ranks. The parts of a parameter, in the order of the ranks, are its
elements; where N does not divide them, **padding** follows at the end, with any values.

**Return** a dict, name -> tensor in its whole shape, of all trained, frozen and shared parameters and buffers.
Buffers of floating-point numbers become float32; all else keeps its dtype. A shared parameter is the same
tensor under both names.

**Example** with 2 ranks: `param_shapes = [{"w": (3,), "b": (2,)}]`

| | rank 0 | rank 1 |
|---|---|---|
| the flat vector | `[1., 2., 7.]` | `[3., nan, 8.]` |
| belongs to | w, w, b | w, padding, b |

gives w = `[1., 2., 3.]` and b = `[7., 8.]`.

**Rule**: raise a `ValueError` that names both numbers if there are not N `optim_states` files.
"""

import math
import re
from typing import Any

import torch


def one_file(files: dict[str, Any]) -> dict[str, torch.Tensor]:
    """Return the whole state dict."""
    # BEGIN SOLUTION: sort the files by rank, and put each parameter together from its parts
    ranked = sorted(files, key=lambda name: int(re.findall(r"pp_rank_(\d+)", name)[0]))
    models = [files[name] for name in ranked if name.endswith("model_states.pt")]
    optims = [files[name]["optimizer_state_dict"] for name in ranked if name.endswith("optim_states.pt")]
    if len(optims) != optims[0]["partition_count"]:
        raise ValueError(f"{len(optims)} files of {optims[0]['partition_count']} ranks: some are missing")

    def whole(parts: list[torch.Tensor], shape: Any) -> torch.Tensor:
        return torch.cat(parts)[: math.prod(shape)].view(shape)

    first, state, start = models[0], dict[str, torch.Tensor](), 0
    for name in first["buffer_names"]:
        buffer = first["module"][name]
        state[name] = buffer.float() if buffer.is_floating_point() else buffer
    for name, shape in first["frozen_param_shapes"].items():
        state[name] = whole([model["frozen_param_fragments"][name] for model in models], shape)
    flats = [torch.cat(optim["fp32_flat_groups"]) for optim in optims]
    for name, shape in (item for group in first["param_shapes"] for item in group.items()):
        stop = start + math.ceil(math.prod(shape) / len(flats))
        state[name] = whole([flat[start:stop] for flat in flats], shape)
        start = stop
    for name, other in first["shared_params"].items():
        state[name] = state[other]
    return state
    # END SOLUTION
