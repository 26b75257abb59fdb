"""What the planner says of one rank of a small run, to the byte: its memory by category, and what it sends by axis.

The planner's rules are for a rank of an inner stage, and leave out what is nothing in a large model. In a small one it
counts, so it stands here beside them, part by part:

    memory        state: bytes a parameter, and ZeRO's division, of the rank's own parameters, one by one
                  activations: a block's bytes times blocks times live micro-batches; the ends; inputs that came early
    bytes         tp: blocks (the planner's); embedding and head; the loss; norms and biases; the norm of the gradient
                  pp: outputs and their gradients (the planner's); a tied embedding; norm and loss
                  dp: parameters and gradients (the planner's); numbers of tokens, loss, norm
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import NamedTuple

from dtlearn.memory.arithmetic.training_state import CONVENTIONS
from dtlearn.pipeline_parallel import tied_embedding
from dtlearn.pipeline_parallel.actions import Op
from dtlearn.pipeline_parallel.runner.communication import MessageBatch, with_communication
from dtlearn.planner.memory import block_bytes
from dtlearn.planner.network import dp_calls, pp_size, ring_share, tp_calls
from dtlearn.tensor_parallel.arithmetic.activations import gpt_activations
from dtlearn.zero import plan_flat, state_bytes

from ..traffic import COUNTERS, LocalShapes, stage_shapes
from .small_run import SmallRun

STATE = ("parameters", "gradients", "optimizer state")
STEPS = 4  # bytes of the number of steps that torch's Adam keeps for each tensor
FACTOR = 4  # bytes of the factor that makes a sum of losses a part of the mean


class RankFigures(NamedTuple):
    """What one rank keeps and sends in one step.

    Attributes:
        memory: bytes by category. State: after the last backward pass, before the optimizer's step. Activations: most
            that live at once.
        sent: bytes by axis, in rings.
    """

    memory: dict[str, float]
    sent: dict[str, float]


def planned_rank(run: SmallRun, rank: int) -> RankFigures:
    """What a rank of a small run keeps and sends, by the planner's rules; in any process.

    **Communication** and **Memory**: none.

    Args:
        run, rank: which one.

    Raises:
        ValueError: there is no such rank.
    """
    memory = planned_state(run, rank) | {"activations": planned_activations(run, rank)}
    return RankFigures(memory, {axis: sum(parts.values()) for axis, parts in planned_bytes(run, rank).items()})


def planned_state(run: SmallRun, rank: int) -> dict[str, float]:
    """Bytes of a rank's parameters, gradients and optimizer state.

    **Communication** and **Memory**: none.
    """
    layout, total = run.layout, dict.fromkeys(STATE, 0.0)
    for shapes in _stages(run, rank).values():
        for sizes in _units(shapes, run.zero):
            partition = plan_flat(list(sizes.values()), layout.num_replicas)
            rule, replica = CONVENTIONS["fp32 Adam"], layout.replica(rank)
            state = state_bytes(partition, run.zero, rule, rank=replica, per_tensor=STEPS)
            total = {name: nbytes + state[name] for name, nbytes in total.items()}
    return total


def planned_activations(run: SmallRun, rank: int) -> float:
    """The most bytes of activations that live at once on a rank: its steps are followed, one after the other.

    A forward pass adds its stage's bytes, a backward pass takes them off. The inputs of a stage are among its bytes;
    they count from when they are received.

    **Communication** and **Memory**: none.
    """
    place = run.layout.coordinates(rank).pp
    stages = {stage: stage_activations(run, stage) for stage in run.made_schedule.stages_of(place)}
    inputs = stage_inputs(run)
    live, most, came = 0.0, 0.0, set[tuple[int, int]]()
    for step in with_communication(run.made_schedule)[place]:
        if isinstance(step, MessageBatch):
            for message in step.receives:
                if message.needed_by.op is Op.F:
                    came.add((message.needed_by.stage, message.needed_by.microbatch))
                    live += inputs
        elif step.action.op is Op.F:
            key = step.action.stage, step.action.microbatch
            live += stages[step.action.stage] - (inputs if key in came else 0.0)
        else:
            live -= stages[step.action.stage]
        most = max(most, live)
    return most


def stage_activations(run: SmallRun, stage: int) -> float:
    """Bytes that autograd keeps of a stage for one micro-batch, on each rank of a tp group.

    **Communication** and **Memory**: none.
    """
    first, end = run.boundaries[stage], run.boundaries[stage + 1]
    num_blocks = len(range(max(first, 1), min(end, run.config.num_layers + 1)))
    has_embedding, has_head = first == 0, end == run.config.num_layers + 2
    ends = 0.0
    for term in gpt_activations(run.config, run.microbatch, run.config.context_length, run.layout.tp):
        at, is_counter = term.module.partition(".")[0], term.kept == "number of tokens that count"
        if not is_counter and ((at == "embedding" and has_embedding) or (at in ("head", "loss") and has_head)):
            ends += term.bytes_with(run.layout.tp, sequence_parallel=run.divides_tokens)
    return num_blocks * block_bytes(run.training_run()).whole + ends + FACTOR * has_head


def stage_inputs(run: SmallRun) -> float:
    """Bytes of what a stage receives for one micro-batch: with divided tokens 1/tp of b T C.

    **Communication** and **Memory**: none.
    """
    whole = 4.0 * run.microbatch * run.config.context_length * run.config.hidden_size
    return whole / (run.layout.tp if run.divides_tokens else 1)


def planned_bytes(run: SmallRun, rank: int) -> dict[str, dict[str, float]]:
    """Bytes that a rank sends in a step after the first, by axis and by part; the first part is the planner's rule.

    **Communication** and **Memory**: none.
    """
    layout, m, plan = run.layout, run.num_microbatches, run.training_run()
    stages = _stages(run, rank)
    norm, counter = 4.0, float(COUNTERS)
    twice = {axis: ring_share("all-reduce", size) for axis, size in _sizes(run).items()}

    call, blocks = tp_calls(plan), sum(map(_num_blocks, stages.values()))
    tokens = run.microbatch * run.config.context_length
    ends = [(run.boundaries[n] == 0) + (run.boundaries[n + 1] == run.config.num_layers + 2) for n in stages]
    has_head = any(run.boundaries[n + 1] == run.config.num_layers + 2 for n in stages)
    tp = {
        "blocks": m * blocks * call.times * ring_share(call.collective, layout.tp) * call.size,
        "embedding and head": m * sum(ends) * call.size * twice["tp"],
        "loss": m * has_head * 3 * 4 * tokens * twice["tp"],
        "norms and biases": sum(_alike(run, shapes, rank) for shapes in stages.values()) * 4 * twice["tp"],
        "norm of the gradient": norm * twice["tp"],
    }

    cuts = sum(_cuts(run, stage) for stage in stages)
    whole = 1 if run.divides_tokens else layout.tp  # the planner sends 1/tp of an output from each tp rank
    pp = {
        "outputs and their gradients": cuts * m * pp_size(plan),
        "outputs that are not divided": cuts * m * pp_size(plan) * (whole - 1),
        "tied embedding": _tied(run, stages),
        "norm and loss": (norm + counter) * twice["pp"],
    }

    padded = sum(
        sum(_padded(sum(sizes.values()), layout.num_replicas if run.zero else 1) for sizes in _units(shapes, run.zero))
        for shapes in stages.values()
    )
    calls = dp_calls(plan, padded)
    each = sum(c.times * ring_share(c.collective, layout.num_replicas) * c.size for c in calls)
    again = (3 * m - 2) * 4 * padded * ring_share("all-gather", layout.num_replicas)  # the planner's is torch's way
    dp = {
        "parameters and gradients": each,
        "gathered for each micro-batch": again if run.zero == 3 and layout.pp > 1 else 0.0,
        "tokens, loss and norm": (2 * counter + (norm if run.zero else 0.0)) * twice["dp"],
    }
    return {"tp": tp, "pp": pp, "dp": dp}


def _sizes(run: SmallRun) -> dict[str, int]:
    return {"tp": run.layout.tp, "pp": run.layout.pp, "dp": run.layout.num_replicas}


def _stages(run: SmallRun, rank: int) -> dict[int, LocalShapes]:
    """The shapes of this rank's parts of its stages' parameters."""
    numbers = run.made_schedule.stages_of(run.layout.coordinates(rank).pp)
    return {stage: stage_shapes(run.config, run.boundaries, stage, run.layout.tp) for stage in numbers}


def _num_blocks(shapes: LocalShapes) -> int:
    return len({name.split(".")[1] for name in shapes if name.startswith("blocks.")})


def _units(shapes: LocalShapes, zero: int) -> Iterator[dict[str, int]]:
    """Names and sizes of the parameters of each flat buffer: ZeRO 3 has one for each block, and one for the rest."""
    units = dict[str, dict[str, int]]()
    for name, (shape, _) in shapes.items():
        unit = ".".join(name.split(".")[:2]) if zero == 3 and name.startswith("blocks.") else ""
        units.setdefault(unit, {})[name] = math.prod(shape)
    yield from units.values()


def _padded(size: int, parts: int) -> int:
    return -(-size // parts) * parts


def _alike(run: SmallRun, shapes: LocalShapes, rank: int) -> int:
    """Elements of gradients that are partial sums along tp, once a step; with ZeRO 2 and 3 only the rank's shard."""
    if not run.divides_tokens:
        return 0
    d, replica = (run.layout.num_replicas, run.layout.replica(rank)) if run.zero > 1 else (1, 0)
    found = 0
    for sizes in _units(shapes, run.zero):
        names = list(sizes)
        pieces = plan_flat(list(sizes.values()), d).slices(replica)
        found += sum(piece.numel for piece in pieces if shapes[names[piece.parameter]][1])
    return found


def _cuts(run: SmallRun, stage: int) -> int:
    """How many messages a stage sends to other ranks for a micro-batch."""
    ranks = run.made_schedule.placement
    neighbours = [other for other in (stage - 1, stage + 1) if 0 <= other < len(ranks)]
    return sum(ranks[other] != ranks[stage] for other in neighbours)


def _tied(run: SmallRun, stages: dict[int, LocalShapes]) -> float:
    """Bytes of a tied embedding's gradient, which is sent to the other end if that is on another rank."""
    tied = tied_embedding(run.config, run.made_schedule.num_stages)
    if not tied or len({run.made_schedule.placement[stage] for stage, _ in tied}) == 1:
        return 0.0
    return sum(4.0 * math.prod(stages[stage][name][0]) for stage, name in tied if stage in stages)
