"""Layer 5: hybrid parallelism. A GPT whose layers, stages and replicas lie on a mesh: the only one that knows several.

For any process: `layout`, ranks and coordinates; `fit`, what a layout needs of model and batch; `rank_order`, what the
order of the axes costs; `traffic`, bytes by axis. On the ranks: `page_mesh`, the idea on a page; `groups`, the process
groups; `stages`, this rank's part of the model, and `more_axes/`, cp and ep in it; `replicas`, what is averaged or
divided along dp; `recipe`, which puts the chapters' packages together; `checkpoints`, which do not know the mesh. And
`training`, which starts ranks; `naive`, mixes that go wrong. `against_plan/`: the planner beside real runs.
"""

from .checkpoints import MeshState, load_mesh_states, mesh_state, whole_parameters
from .fit import check_layout, even_boundaries, faults
from .groups import AxisGroups, make_groups
from .layout import FROM_FAST_TO_SLOW, Coordinates, MeshLayout, axes_in_use
from .naive import NormOverWrongGroups
from .rank_order import OrderCost, bytes_between_nodes, compare_orders, links
from .recipe import HybridGPT, HybridStep
from .replicas import TrainedStage
from .stages import build_stages, random_seed
from .traffic import recorded_bytes, stage_shapes, step_bytes
from .training import HybridRun, train, train_on_rank

__all__ = [
    "FROM_FAST_TO_SLOW",
    "AxisGroups",
    "Coordinates",
    "HybridGPT",
    "HybridRun",
    "HybridStep",
    "MeshLayout",
    "MeshState",
    "NormOverWrongGroups",
    "OrderCost",
    "TrainedStage",
    "axes_in_use",
    "build_stages",
    "bytes_between_nodes",
    "check_layout",
    "compare_orders",
    "even_boundaries",
    "faults",
    "links",
    "load_mesh_states",
    "make_groups",
    "mesh_state",
    "random_seed",
    "recorded_bytes",
    "stage_shapes",
    "step_bytes",
    "train",
    "train_on_rank",
    "whole_parameters",
]
