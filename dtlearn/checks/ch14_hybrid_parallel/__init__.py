"""Checks of chapter 14."""

from .. import MAY_HELP as MAY_HELP
from ..own_work import forbids, forbids_torchs

# Rules on the text of every answer. The last five packages hand on the first ones' names, or clip by a global norm.
READS = [
    forbids(
        "dtlearn.hybrid_parallel",
        "dtlearn.sharing",
        "dtlearn.planner",
        "dtlearn.viz",
        "dtlearn.bench",
        "dtlearn.mixed_precision",
        "dtlearn.zero",
        "dtlearn.tensor_parallel",
    ),
    forbids_torchs(  # a mesh with its groups
        "torch.distributed.device_mesh",
        "torch.distributed.init_device_mesh",
        "torch.distributed.DeviceMesh",
        "torch.distributed.tensor",
        "torch.distributed._tensor",
    ),
]
