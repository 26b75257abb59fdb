"""The orders that torch.distributed.pipelining computes, read into our type.

torch's schedules get stages that have a number and nothing else: no process group, no model. Those with several stages
on a rank keep their order in an attribute. Those with one run a loop, which is run here with a stage that writes down
what it is asked to do. (They have the attribute too, for drawing; in torch 2.13 1F1B's is wrong on the last rank, whose
forward passes it numbers from 1.) All of it is private, and another version may differ; the error then says so.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

import torch

from ..actions import Action, Op
from ..schedule import Schedule


class TorchKind(NamedTuple):
    """A schedule of torch.

    Attributes:
        class_name: in torch.distributed.pipelining.
        chunks: stages on each rank; None: any number.
    """

    class_name: str
    chunks: int | None


# Names as `get_schedule_class` of torch.distributed.pipelining.schedules takes them.
TORCH_SCHEDULES = {
    "GPipe": TorchKind("ScheduleGPipe", 1),
    "1F1B": TorchKind("Schedule1F1B", 1),
    "LoopedBFS": TorchKind("ScheduleLoopedBFS", None),
    "Interleaved1F1B": TorchKind("ScheduleInterleaved1F1B", None),
    "InterleavedZeroBubble": TorchKind("ScheduleInterleavedZeroBubble", None),
    "ZBVZeroBubble": TorchKind("ScheduleZBVZeroBubble", 2),
    "DualPipeV": TorchKind("ScheduleDualPipeV", 2),
}


def torch_schedule(name: str, num_ranks: int, num_microbatches: int, chunks: int | None = None) -> Schedule:
    """A schedule as torch has it. Pairs of actions that torch overlaps stand one after the other.

    Args:
        name: a key of TORCH_SCHEDULES.
        num_ranks: p.
        num_microbatches: m.
        chunks: v, the stages on each rank. None: as the schedule needs, or 2.

    Raises:
        ValueError: an unknown name, or numbers that torch refuses, in its words.
        RuntimeError: this torch keeps its orders elsewhere.
    """
    if name not in TORCH_SCHEDULES:
        raise ValueError(f"expected one of {', '.join(TORCH_SCHEDULES)}; got {name!r}")
    kind = TORCH_SCHEDULES[name]
    chunks = kind.chunks or 2 if chunks is None else chunks
    if chunks != (kind.chunks or chunks) or min(num_ranks, num_microbatches, chunks) < 1:
        raise ValueError(
            f"{name}: expected 1 or more ranks, micro-batches and chunks, and chunks={kind.chunks or 'any'}; "
            f"got {num_ranks}, {num_microbatches} and {chunks}"
        )
    from torch.distributed import pipelining  # here, because loading it takes seconds

    make = getattr(pipelining, kind.class_name)
    try:
        if kind.chunks == 1:
            orders = tuple(tuple(_run(make, rank, num_ranks, num_microbatches)) for rank in range(num_ranks))
        else:
            numbers = range(0, num_ranks * chunks, num_ranks)
            stages = [RecordingStage(number, num_ranks, num_ranks * chunks) for number in numbers]
            pipeline_order: dict[int, list[Any]] = make(stages, num_microbatches).pipeline_order
            orders = tuple(tuple(_read(pipeline_order[rank])) for rank in range(num_ranks))
    except (AttributeError, TypeError, KeyError) as error:
        raise RuntimeError(f"torch {torch.__version__} does not keep {name}'s order where 2.13 does") from error
    holders = {action.stage: rank for rank, order in enumerate(orders) for action in order}
    return Schedule(f"torch {name}", num_microbatches, tuple(holders[stage] for stage in sorted(holders)), orders)


class RecordingStage:
    """What torch's schedules look at in a stage. It writes down what it is asked to do, and does nothing.

    Attributes:
        actions: what it was asked to do.
    """

    def __init__(self, number: int, num_ranks: int, num_stages: int):
        self.actions = list[Action]()
        self.stage_index, self.num_stages, self.submod = number, num_stages, None
        self.is_first, self.is_last = number == 0, number == num_stages - 1
        self.group_rank, self.group_size = number % num_ranks, num_ranks

    def forward_one_chunk(self, microbatch: int, *args: object, **kwargs: object) -> None:
        """A forward pass."""
        self.actions.append(Action(self.stage_index, Op.F, microbatch))

    def backward_one_chunk(self, microbatch: int, *args: object, **kwargs: object) -> None:
        """A backward pass."""
        self.actions.append(Action(self.stage_index, Op.B, microbatch))

    def perform_reduce_grad(self, *args: object) -> None:
        """The sum of the gradients over a data-parallel group: no action of a pipeline."""

    def _no_messages(self, microbatch: int) -> list[Any]:
        return []

    get_fwd_recv_ops = get_fwd_send_ops = get_bwd_recv_ops = get_bwd_send_ops = _no_messages


def _run(make: Callable[..., Any], rank: int, num_ranks: int, num_microbatches: int) -> list[Action]:
    """What one of torch's schedules with one stage on each rank asks of the stage."""
    stage = RecordingStage(rank, num_ranks, num_ranks)
    made = make(stage, num_microbatches)
    made._initialize_stage = lambda *args: None  # it would ask the other ranks for the shapes of their tensors
    made._step_microbatches()
    return stage.actions


def _read(actions: Iterable[Any]) -> Iterator[Action]:
    """The computations among torch's actions; idle moments (None) and the sum of gradients are left out."""
    for action in actions:
        if action is None:
            continue
        if action.sub_actions is not None:
            yield from _read(action.sub_actions)
        elif action.computation_type.value in list(Op):
            yield Action(action.stage_index, Op(action.computation_type.value), action.microbatch_index)
