"""What torch itself would send on a mesh of a thousand ranks, counted in one process, beside what the planner says.

torch's `fake` process group has as many ranks as one likes, and its collectives do nothing: one process does what rank
0 of the mesh would do, and every call is counted. The model is the course's GPT, its blocks divided by DTensor along tp
(`parallelize_module`) and by `fully_shard` along dp: no line of the course's own strategies is in it.

    found, planned = torch_collectives(config, tp=16, dp=64), planned_collectives(config, tp=16, dp=64)
    print(collectives_table(found, planned))

Sources: `torch.distributed.tensor.debug.CommDebugMode`, whose counts these are; the group is
`torch.testing._internal.distributed.fake_pg`, with which torch's own tests count.
"""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
import torch.distributed as dist
from torch.utils._python_dispatch import TorchDispatchMode

from dtlearn.memory.arithmetic.published import sizes_of
from dtlearn.models import GPT, GPTConfig
from dtlearn.planner import Axes, Cluster, TrainingRun
from dtlearn.planner.network import GroupOperation, dp_calls, tp_calls
from dtlearn.runtime.run import run_ranks
from dtlearn.runtime.words import columns

from ..layout import MeshLayout, is_whole
from ..traffic import stage_shapes
from .small_run import CPU

if TYPE_CHECKING:
    from torch.distributed.device_mesh import DeviceMesh

# One process holds a block whole before it is cut. Every dimension is a multiple of all the ranks that divide it.
WIDE = GPTConfig(vocab_size=1024, context_length=128, num_layers=2, num_heads=16, hidden_size=1024)


class CallCount(NamedTuple):
    """The calls of one kind along one axis, in a step.

    Attributes:
        times: calls.
        nbytes: of the whole tensors, of all calls: what is reduced, or what there is after a gather.
    """

    times: int
    nbytes: float


Collectives = dict[tuple[str, GroupOperation], CallCount]  # by axis and operation


def torch_collectives(
    config: GPTConfig = WIDE, *, tp: int = 16, dp: int = 64, rows: int = 1, zero: int = 3
) -> Collectives:
    """The collectives of rank 0 in a step of torch's own tensor and data parallelism on tp * dp ranks.

    In a fresh process: its default group is the fake one. What `CommDebugMode` counts must be what is counted here.

    **Communication**: none.
    **Memory**: the model once, and the shards and gathered blocks of one rank.

    Args:
        config: of the model; tp divides its heads.
        tp, dp: ranks of each axis. tp is the inner one.
        rows: of the rank's batch, each as long as the context.
        zero: 3: units are freed after their forward pass; 2: kept until backward. `fully_shard` knows no other.

    Raises:
        ValueError: another stage, or ranks that do not divide the model.
    """
    _check_divides(config, tp, dp, rows, zero)
    options: dict[str, Any] = {"init_group": False, "device": "cpu", "timeout": 300.0}
    found: Collectives = run_ranks(_in_one_process, 1, config, tp, dp, rows, zero, **options)[0]
    return found


def planned_collectives(
    config: GPTConfig = WIDE, *, tp: int = 16, dp: int = 64, rows: int = 1, zero: int = 3
) -> Collectives:
    """The same by the planner's rules, `tp_calls` and `dp_calls`: of its calls, the number for each block and unit.

    A unit of `fully_shard` is a block, or the rest of the model.

    **Communication** and **Memory**: none.

    Args:
        config, tp, dp, rows, zero: as for `torch_collectives`.

    Raises:
        ValueError: as there.
    """
    _check_divides(config, tp, dp, rows, zero)
    length, layout = config.context_length, MeshLayout(tp=tp, dp=dp)
    run = TrainingRun(
        sizes_of(config), Cluster(CPU, layout.world_size, layout.world_size), Axes(tp, 1, dp), rows * dp, rows, length,
        recompute="none", zero_stage=zero, precision="fp32 Adam", sequence_parallel=False, element_bytes=4,
    )  # fmt: skip
    call = tp_calls(run)
    times = round(config.num_layers * call.times)
    found: Collectives = {("tp", call.collective): CallCount(times, times * call.size)}
    parameters = divided_parameters(config, tp)
    for each in dp_calls(run, parameters):
        number = round(each.times) * (config.num_layers + 1)
        found["dp", each.collective] = CallCount(number, each.times * each.size)
    return found


def divided_parameters(config: GPTConfig, tp: int) -> int:
    """Parameters of a rank, if the blocks are divided along tp, and embedding and head are not.

    **Communication** and **Memory**: none.
    """
    boundaries = (0, config.num_layers + 2)
    whole, divided = (stage_shapes(config, boundaries, 0, parts) for parts in (1, tp))
    chosen = (divided[name] if name.startswith("blocks.") else shape for name, shape in whole.items())
    return sum(torch.Size(shape).numel() for shape, _ in chosen)


def collectives_table(found: Collectives, planned: Collectives) -> str:
    """Calls and bytes, torch's and the planner's.

    **Communication** and **Memory**: none.
    """
    rows = [["axis", "call", "torch", "planner", "bytes, torch", "planner", ""]]
    nothing = CallCount(0, 0.0)
    for key in sorted(found.keys() | planned.keys(), key=lambda key: (key[0] != "tp", key[1])):
        own, plan = found.get(key, nothing), planned.get(key, nothing)
        numbers = f"{own.times}", f"{plan.times}", f"{own.nbytes:,.0f}", f"{plan.nbytes:,.0f}"
        rows.append([*key, *numbers, "equal" if own == plan else "not equal"])
    return "\n".join(columns(rows, (2, 3, 4, 5), indent=""))


def divide_by_torch(model: GPT, mesh: DeviceMesh, *, zero: int = 3) -> GPT:
    """Divide the blocks of a GPT along the mesh's "tp" by DTensor, and everything along its "dp" by `fully_shard`.

    **Communication**: that of torch's `parallelize_module` and `fully_shard`.
    **Memory**: the shards of this rank; all of the model before.

    Args:
        model: the same on all ranks; changed in place.
        mesh: with the dimensions "dp" and "tp".
        zero: as for `torch_collectives`; 0: nothing is divided along dp, and gradients are not averaged either.
    """
    from torch.distributed.fsdp import fully_shard
    from torch.distributed.tensor import Replicate
    from torch.distributed.tensor.parallel import (
        ColwiseParallel,
        PrepareModuleInput,
        RowwiseParallel,
        parallelize_module,
    )

    # Query, key and value share one input, whose gradient is to be summed once: it is prepared before them.
    prepared = PrepareModuleInput(input_layouts=(Replicate(),), desired_input_layouts=(Replicate(),))
    by_columns = ("attention.query", "attention.key", "attention.value", "feed_forward.up")
    plan: dict[str, Any] = {"attention": prepared, "feed_forward": prepared}
    plan |= {name: ColwiseParallel() for name in by_columns}
    plan |= {name: RowwiseParallel() for name in ("attention.output", "feed_forward.down")}
    for block in model.blocks if mesh["tp"].size() > 1 else ():
        parallelize_module(block, mesh["tp"], plan)
    for module in (*model.blocks, model) if zero else ():
        fully_shard(module, mesh=mesh["dp"], reshard_after_forward=zero == 3)
    return model


def _check_divides(config: GPTConfig, tp: int, dp: int, rows: int, zero: int) -> None:
    MeshLayout(tp=tp, dp=dp)  # refuses what are no numbers of ranks
    if not is_whole(rows) or rows < 1:
        raise ValueError(f"rows is a whole number of 1 or more; got {rows!r}")
    if zero not in (2, 3):
        raise ValueError(f"fully_shard is ZeRO 3, or 2 if it keeps what it gathered; got zero={zero}")
    sizes = (config.vocab_size, config.context_length)
    if config.num_heads % tp or config.hidden_size % (tp * dp) or any(size % dp for size in sizes):
        raise ValueError(
            f"tp={tp} has to divide {config.num_heads} heads, tp * dp = {tp * dp} a hidden size of "
            f"{config.hidden_size}, and dp={dp} vocabulary and context, {sizes}: fully_shard would pad parameters"
        )


def _in_one_process(config: GPTConfig, tp: int, dp: int, rows: int, zero: int) -> Collectives:
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor.debug import CommDebugMode
    from torch.testing._internal.distributed.fake_pg import FakeStore

    dist.init_process_group("fake", rank=0, world_size=tp * dp, store=FakeStore())
    mesh = init_device_mesh("cpu", (dp, tp), mesh_dim_names=("dp", "tp"))
    model = divide_by_torch(GPT(config), mesh, zero=zero)
    tokens = torch.zeros(rows, config.context_length, dtype=torch.int64)
    axes = {str(mesh[axis].get_group().group_name): axis for axis in ("tp", "dp")}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of hooks of CommDebugMode, and of logits that are a view
        calls = _Calls(axes)
        with CommDebugMode() as counts, calls:
            model(tokens).sum().backward()
    dist.destroy_process_group()
    times = sum(call.times for call in calls.found.values())
    assert counts.get_total_counts() == times, f"CommDebugMode has {counts.get_comm_counts()}, and here {calls.found}"
    return calls.found


class _Calls(TorchDispatchMode):
    """Counts the collectives of a block with their bytes; `CommDebugMode` has their number only."""

    def __init__(self, axes: dict[str, str]) -> None:
        super().__init__()
        self._axes = axes
        self.found: Collectives = {}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        named = {argument.name: value for argument, value in zip(func._schema.arguments, args, strict=False)}
        if func._schema.name.startswith(("c10d::", "_c10d_functional::")) and named.keys() & _GROUP:
            tensors = [t for t in (*args, result) if isinstance(t, torch.Tensor)]
            key = self._axes[_group_name(named)], _OPERATIONS[func._schema.name.partition("::")[2]]
            before = self.found.get(key, CallCount(0, 0.0))
            size = max(t.numel() * t.element_size() for t in tensors)  # the whole one, not the shard
            self.found[key] = CallCount(before.times + 1, before.nbytes + size)
        return result


_GROUP = {"group_name", "process_group"}
_OPERATIONS: dict[str, GroupOperation] = {
    "all_reduce": "all-reduce",
    "allreduce_": "all-reduce",
    "all_gather_into_tensor": "all-gather",
    "_allgather_base_": "all-gather",
    "reduce_scatter_tensor": "reduce-scatter",
    "_reduce_scatter_base_": "reduce-scatter",
}


def _group_name(named: dict[str, Any]) -> str:
    if "group_name" in named:
        return str(named["group_name"])
    return str(dist.ProcessGroup.unbox(named["process_group"]).group_name)
