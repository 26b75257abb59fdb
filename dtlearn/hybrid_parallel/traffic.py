"""Bytes that a rank of a mesh sends in a step, axis by axis: by formula, and by the record of a run.

A step has m micro-batches of b rows and T tokens, T' = T/cp of them on a rank; C is the hidden size, t the ranks of tp,
R those of dp, ep and cp together, E the bytes of an element. In a ring of N ranks each sends 2 (N-1)/N of a tensor that
is all-reduced, (N-1)/N of one that is gathered or reduce-scattered.

    tp   8 b T' C E (t-1)/t for each block and micro-batch; half as much for the embedding with the head; the loss
    pp   b T' C E for each micro-batch and cut, forth and back; under sequence parallelism 1/t of it
    dp   2 n E (R-1)/R for n parameters of the rank, once in a step; ZeRO 2 and 3 reduce after each micro-batch.
         Experts that ep divides: over dp and cp. With mixtures, how often each expert was chosen
    cp   keys and values of b T' C/t elements each, by the method: see `context_parallel.traffic`
    ep   4 k b T' C E (ep-1)/ep for each mixture and micro-batch, if choices are even

tp sends with the tokens, dp with the parameters: so it depends on the model and on the batch which axis needs which
link. Where two axes have the same ranks (cp, and all replicas where dp and ep are 1), messages and all-to-alls are of
cp or ep, and all else is dp's: also the keys of the all-gather method.

Sources: Narayanan et al., 2104.04473, section 3.2; `dtlearn.tensor_parallel` and `dtlearn.zero`, `arithmetic`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from dtlearn.context_parallel import ContextMethod
from dtlearn.expert_parallel import ExpertGPTConfig
from dtlearn.expert_parallel.traffic import COUNT_BYTES, Loads
from dtlearn.models import GPTConfig
from dtlearn.pipeline_parallel import Schedule, tied_embedding
from dtlearn.runtime.record.event import Event
from dtlearn.tensor_parallel.arithmetic.sizes import BlockSizes
from dtlearn.tensor_parallel.arithmetic.traffic import block_traffic, sent_elements
from dtlearn.tensor_parallel.checkpoints import gpt_split_dims

from .layout import KINDS_OF_GROUPS, MeshLayout, axes_in_use
from .more_axes.experts import mesh_shapes, mixture_shapes
from .more_axes.traffic import context_bytes, expert_bytes, routed_bytes
from .stages import HEAD, TOKEN

COUNTERS = 8  # bytes of the number of tokens, and of the loss that is reported


LocalShapes = Mapping[str, tuple[tuple[int, ...], bool]]  # of a rank's part, and whether all tp ranks have it alike


def stage_shapes(config: GPTConfig, boundaries: Sequence[int], stage: int, tp: int, ep: int = 1) -> LocalShapes:
    """The shape of a rank's part of each parameter of a stage, by name, and whether all tp ranks have it alike.

    **Communication** and **Memory**: none.

    Args:
        config: of the whole model.
        boundaries: of all stages.
        stage: which one.
        tp, ep: ranks that divide it, and the experts.
    """
    experts = mixture_shapes(config, ep) if isinstance(config, ExpertGPTConfig) else {}
    dims, found = gpt_split_dims(config), dict[str, tuple[tuple[int, ...], bool]]()
    for name, shape in mesh_shapes(config).items():
        for own in [name, HEAD] if name == TOKEN and config.tie_embeddings else [name]:
            link = {"embedding": 0, "head": config.num_layers + 1}.get(own.split(".")[0])
            link = int(own.split(".")[1]) + 1 if link is None else link
            is_here = boundaries[stage] <= link < boundaries[stage + 1]
            if is_here and not (own == HEAD and own != name and boundaries[stage] == 0):  # tied within one stage
                leaf = name.partition(".feed_forward.")[2]
                local, dim = list(experts.get(leaf, shape)), dims.get(name)
                if dim is not None:
                    local[dim] = -(-local[dim] // tp)
                found[own] = tuple(local), dim is None
    return found


def step_bytes(
    config: GPTConfig,
    layout: MeshLayout,
    schedule: Schedule,
    boundaries: Sequence[int],
    rank: int,
    *,
    global_batch: int,
    length: int,
    zero: int = 0,
    sequence_parallel: bool = True,
    context_method: ContextMethod = "ring",
    loads: Sequence[Loads] | None = None,
    element_bytes: int = 4,
) -> dict[str, float]:
    """Bytes that a rank sends along each axis in a step of `HybridGPT` after the first, in rings: {"tp": ..., ...}.

    **Communication** and **Memory**: none.

    Args:
        config, layout, schedule, boundaries: as of the model.
        rank: whose.
        global_batch, length: rows of a step, and tokens of each.
        zero, sequence_parallel, context_method: as for `HybridGPT`.
        loads: of each forward pass of a mixture on this rank, the rows of each rank of its ep group for each expert;
            None: as if all choices were even.
        element_bytes: of parameters and activations.

    Returns:
        tp, pp and dp; cp and ep where there are several ranks.
    """
    m = schedule.num_microbatches
    rows, own_length = global_batch // (layout.num_replicas * m), length // layout.cp
    sp = sequence_parallel and layout.tp > 1
    replicas = layout.group(rank, *KINDS_OF_GROUPS["dp"])
    place = layout.coordinates(rank)
    stages = schedule.stages_of(place.pp)
    shapes = {stage: stage_shapes(config, boundaries, stage, layout.tp, layout.ep) for stage in stages}
    sizes = BlockSizes(rows, own_length, config.hidden_size, config.num_heads)
    norm = max(element_bytes, 4)  # the square of the norm: float32 at least
    passes = sum(_num_blocks(config, stage, boundaries) for stage in stages) * m  # of blocks, forward

    tp = sum(_tp_elements(config, stage, boundaries, sizes, layout.tp, sp) for stage in stages) * m
    if sp:  # once a step, of those gradients that are this rank's
        pieces = (len(replicas), replicas.index(rank)) if zero > 1 else (1, 0)
        tp += sum(_marked(shapes[stage], zero, *pieces) for stage in stages) * _all_reduced(layout.tp)
    tensor = tp * element_bytes + norm * _all_reduced(layout.tp)

    outputs = sizes.bsh * element_bytes / (layout.tp if sp else 1)
    pipeline = sum(_cuts(schedule, stage) for stage in stages) * m * outputs + norm * _all_reduced(layout.pp)
    pipeline += COUNTERS * _all_reduced(layout.pp)
    if tied := tied_embedding(config, schedule.num_stages):
        ends = [schedule.placement[stage] for stage, _ in tied]
        own = [math.prod(shapes[stage][name][0]) for stage, name in tied if stage in stages]
        pipeline += sum(own) * element_bytes if ends[0] != ends[1] else 0

    averaged = sum(_averaged_elements(shapes[stage], layout, zero, m) for stage in stages) * element_bytes
    averaged += (2 * COUNTERS + (norm if zero else 0)) * _all_reduced(len(replicas))
    sent = {"tp": tensor, "pp": pipeline, "dp": averaged}
    if layout.cp > 1:
        ranks = {"tp": layout.tp, "cp": layout.cp}
        each = context_bytes(config, rows, length, **ranks, method=context_method, element_bytes=element_bytes)
        sent["cp"] = 0.0
        # All-gathers among ranks that are all replicas (of experts) cannot be told from dp's.
        sent["dp" if context_method == "all-gather" and layout.dp == 1 else "cp"] += passes * each
    if isinstance(config, ExpertGPTConfig):
        tokens = rows * own_length // (layout.tp if sp else 1)
        of_pass = expert_bytes(config, tokens, layout.ep, element_bytes=element_bytes)
        of_passes = [
            routed_bytes(of_ranks, place.ep, config.hidden_size, element_bytes=element_bytes)
            for of_ranks in loads or ()
        ]
        counts = COUNT_BYTES * (config.num_experts + 1) * _all_reduced(len(replicas) * (layout.tp if sp else 1))
        sent["dp" if len(replicas) > 1 else "tp"] += passes * counts  # who chose whom, of all that have other tokens
        if layout.ep > 1:
            sent["ep"] = passes * of_pass if loads is None else float(sum(of_passes))
        if layout.ep > 1 and zero == 0:
            sent["ep" if len(replicas) > layout.ep else "dp"] += norm * _all_reduced(layout.ep)
    return sent


def recorded_bytes(events: Sequence[Event], layout: MeshLayout, rank: int) -> dict[str, float]:
    """Bytes that a rank sent along each axis, if collectives run in rings, by the record: {"tp": ..., ...}.

    **Communication** and **Memory**: none.

    Args:
        events: of a record, such as `record.events`.
        layout: of the ranks.
        rank: whose.

    Returns:
        tp, pp and dp; cp and ep where there are several ranks.

    Raises:
        ValueError: a call in a group that is none of these axes.
    """
    of_kind = {name: ",".join(map(str, layout.group(rank, *axes))) for name, axes in KINDS_OF_GROUPS.items()}
    axis_of = {name: "dp" if name in ("expert_dp", "tokens") else name for name in of_kind}
    exchanging = ["cp", "ep", "pp"]  # by messages and all-to-alls
    sent = dict.fromkeys(("tp", "pp", "dp", *axes_in_use(layout, ("cp", "ep"))), 0.0)
    for event in events:
        size = event.group.count(",") + 1
        if event.rank != rank or not event.nbytes or event.receives or (size == 1 and event.group != "world"):
            continue  # a message is its sender's, and of a group of one nothing is sent
        kinds = exchanging if event.sends or event.op.startswith("all_to_all") else list(of_kind)
        name = next((name for name in kinds if event.group == of_kind[name]), None)
        if name is None:
            raise ValueError(f"{event} is in the group {event.group}, which is none of {of_kind}")
        sent[axis_of[name]] += event.nbytes * _factor(event, size)
    return sent


def _factor(event: Event, size: int) -> float:
    """The ratio of the bytes that a rank sends in a ring to those that it hands in."""
    if event.sends:
        return 1
    if event.op.startswith("all_to_all"):
        going: list[int] = event.detail.get("splits", [[1] * size])[0]  # elements to each rank
        return 1 - going[event.group.split(",").index(str(event.rank))] / sum(going)
    factors = {"all_reduce": 2 * (size - 1) / size, "all_gather": size - 1, "reduce_scatter": (size - 1) / size}
    return next(factor for name, factor in factors.items() if event.op.startswith(name))


def _all_reduced(size: int) -> float:
    return 2 * (size - 1) / size


def _tp_elements(
    config: GPTConfig, stage: int, boundaries: Sequence[int], sizes: BlockSizes, t: int, sp: bool
) -> float:
    """Elements that a rank of a stage sends along tp for one micro-batch, in rings."""
    has_embedding, has_head = boundaries[stage] == 0, boundaries[stage + 1] == config.num_layers + 2
    calls = block_traffic(sizes, t, sequence_parallel=sp)
    if isinstance(config, ExpertGPTConfig):
        calls = tuple(call for call in calls if call.where == "attention")  # tp does not divide experts
    each = _num_blocks(config, stage, boundaries) * sent_elements(calls)
    each += (has_embedding + has_head) * sizes.bsh * _all_reduced(t)  # one way each, or both halves of it
    return each + has_head * 3 * sizes.batch * sizes.length * _all_reduced(t)  # maximum, sum and target of each token


def _num_blocks(config: GPTConfig, stage: int, boundaries: Sequence[int]) -> int:
    return min(boundaries[stage + 1] - 1, config.num_layers) - max(boundaries[stage], 1) + 1


def _cuts(schedule: Schedule, stage: int) -> int:
    """How many messages a stage sends to other ranks for a micro-batch: outputs on, and gradients back."""
    ranks, last = schedule.placement, schedule.num_stages - 1
    forth = stage < last and ranks[stage + 1] != ranks[stage]
    back = stage > 0 and ranks[stage - 1] != ranks[stage]
    return forth + back


def _units(shapes: LocalShapes, zero: int) -> list[list[tuple[int, bool]]]:
    """Size of each parameter, and whether tp ranks have it alike; together what one flat buffer of ZeRO has."""
    units = dict[str, list[tuple[int, bool]]]()
    for name, (shape, is_alike) in shapes.items():
        unit = ".".join(name.split(".")[:2]) if name.startswith("blocks.") and zero == 3 else ""
        units.setdefault(unit, []).append((math.prod(shape), is_alike))
    return list(units.values())


def _marked(shapes: LocalShapes, zero: int, d: int, replica: int) -> int:
    """Elements that are partial sums along tp, of the replica's d-th part of each buffer."""
    found = 0
    for unit in _units(shapes, zero):
        shard = -(-sum(size for size, _ in unit) // d)
        first, offset = replica * shard, 0
        for size, is_alike in unit:
            own = min(first + shard, offset + size) - max(first, offset)
            found += max(own, 0) * is_alike
            offset += size
    return found


def _averaged_elements(shapes: LocalShapes, layout: MeshLayout, zero: int, m: int) -> float:
    """Elements that a rank sends for averages: over all replicas; experts that ep divides over those of dp and cp."""
    replicas = layout.dp * layout.cp
    if layout.ep == 1:
        return _dp_elements(shapes, replicas, zero, m)
    experts = {name: shape for name, shape in shapes.items() if ".experts." in name}
    others = {name: shape for name, shape in shapes.items() if name not in experts}
    return _dp_elements(others, replicas * layout.ep, zero, m) + _dp_elements(experts, replicas, zero, m)


def _dp_elements(shapes: LocalShapes, d: int, zero: int, m: int) -> float:
    sizes = [sum(size for size, _ in unit) for unit in _units(shapes, zero)]
    padded = sum(-(-size // d) * d for size in sizes) if zero else sum(sizes)
    times = {0: 2, 1: 2, 2: m + 1, 3: 3 * m}[zero]
    return times * padded * (d - 1) / d
