"""Seconds of collectives on two levels of links: inside a node, and from node to node.

The groups are laid out from the fastest link outwards: tp, cp, then dp and pp (`TrainingRun.outermost`). So a tp group
is inside a node if tp divides it, and with pp outermost min(node / (tp*cp), dp) ranks of a dp group share a node, and
its cards too.

A ring sends (n-1)/n of the bytes for an all-gather or a reduce-scatter, twice that for an all-reduce (Patarasuk and
Yuan, 2009), and passes n-1 messages (2(n-1)). NCCL's rings cross a node's border on all cards at once, so a group with
g ranks in each node has g cards' bandwidth there, up to that of the links inside.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

from dtlearn.memory.arithmetic.training_state import find_convention

from .run import TrainingRun, check_world

GroupOperation = Literal["all-reduce", "all-gather", "reduce-scatter"]
TREE = 32  # ranks from which NCCL's trees pass 2 log2(n) messages instead of a ring's 2(n-1)


def ring_share(collective: GroupOperation, ranks: int) -> float:
    """Bytes that each rank sends, for each byte of the whole tensor."""
    return (2 if collective == "all-reduce" else 1) * (ranks - 1) / ranks


def collective_seconds(run: TrainingRun, collective: GroupOperation, size: float, ranks: int, in_node: int) -> float:
    """Seconds of a collective on `size` bytes (of the whole tensor) over `ranks`, of which `in_node` share a node."""
    if ranks <= 1 or size <= 0:
        return 0.0
    chip, software = run.cluster.chip, run.software
    bandwidth, latency = chip.link * software.link, run.cluster.link_latency
    if ranks > in_node:
        bandwidth, latency = min(bandwidth, in_node * chip.network * software.net), run.cluster.network_latency
    hops = ranks - 1 if ranks < TREE else 2 * (ranks - 1).bit_length()
    rounds = 2 if collective == "all-reduce" else 1
    return ring_share(collective, ranks) * size / bandwidth + rounds * hops * latency


class RepeatedCall(NamedTuple):
    """A collective of a step, how often it is called, and on how many bytes of the whole tensor."""

    collective: GroupOperation
    size: float
    times: float


def tp_calls(run: TrainingRun) -> RepeatedCall:
    """tp's calls for a block and micro-batch: two all-reduces each way, or gathers and scatters of as many bytes.

    Full recomputation repeats those of forward: all of them with dropout behind the last, as in Megatron's early code;
    without it the block's last collective is not needed (`dtlearn.tensor_parallel.arithmetic.traffic`).
    """
    tokens = run.microbatch * run.length / run.axes.cp
    again = 0.0
    if run.recompute == "full":
        again = 2.0 if not run.fused_attention else 1.5 if run.sequence_parallel else 1.0
    return RepeatedCall("all-reduce", run.element_bytes * tokens * run.model.hidden, 4 + again)


def dp_calls(run: TrainingRun, parameters: float | None = None) -> list[RepeatedCall]:
    """dp's calls in a step. Stages 2 and 3 reduce after every micro-batch, to keep no whole gradients; 3 gathers twice.

    In a pipeline torch's `fully_shard` gathers once and reduces once: `torch.distributed.pipelining` switches both off
    until the last micro-batch.

    Args:
        run: of which step.
        parameters: of the rank, where they are known one by one; None: `run.rank_parameters`.
    """
    parameters = run.rank_parameters if parameters is None else parameters
    reduced = min(4, find_convention(run.precision).gradient)
    if run.zero_stage == 0:
        return [RepeatedCall("all-reduce", reduced * parameters, 1)]
    each, m = run.axes.pp == 1 or run.zero_stage == 2, run.num_microbatches
    gathers = 2 * m if run.zero_stage == 3 and each else 1
    reductions = m if run.zero_stage >= 2 and each else 1
    return [
        RepeatedCall("all-gather", run.element_bytes * parameters, gathers),
        RepeatedCall("reduce-scatter", reduced * parameters, reductions),
    ]


def bytes_by_axis(run: TrainingRun) -> dict[str, float]:
    """Bytes that a rank of an inner stage sends in a step along tp, cp, pp and dp: which axis needs which link.

    Raises:
        ValueError: axes that do not multiply to the cluster.
    """
    check_world(run)
    axes, m = run.axes, run.num_microbatches
    blocks = run.layers_per_stage * m
    tp, dp_ranks = tp_calls(run), axes.dp * axes.cp
    return {
        "tp": blocks * tp.times * ring_share(tp.collective, axes.tp) * tp.size,
        "cp": blocks * 3 * ring_share("all-gather", axes.cp) * cp_size(run) if axes.cp > 1 else 0.0,
        "pp": 2.0 * m * axes.virtual_stages * pp_size(run) if axes.pp > 1 else 0.0,
        "dp": sum(call.times * ring_share(call.collective, dp_ranks) * call.size for call in dp_calls(run)),
    }


def cp_size(run: TrainingRun) -> float:
    """Bytes of the keys and values of all cp ranks, for one block and micro-batch."""
    model = run.model
    kv = model.hidden * (model.kv_heads or model.heads) / model.heads / run.axes.tp
    return 2 * run.element_bytes * run.microbatch * run.length * kv


def pp_size(run: TrainingRun) -> float:
    """Bytes that a rank sends to the next stage for a micro-batch: 1/tp of the activations (2104.04473, 4.1)."""
    return run.element_bytes * run.microbatch * run.length / run.axes.cp * run.model.hidden / run.axes.tp


def tp_in_node(run: TrainingRun) -> int:
    """Ranks of a tensor-parallel group in one node."""
    return min(run.axes.tp, run.cluster.node)


def cp_in_node(run: TrainingRun) -> int:
    """Ranks of a context-parallel group in one node."""
    return max(1, min(run.axes.cp, run.cluster.node // min(run.axes.tp, run.cluster.node)))


def dp_in_node(run: TrainingRun) -> int:
    """Ranks of a data-parallel group in one node."""
    inside = run.axes.tp * run.axes.cp * (run.axes.pp if run.outermost == "dp" else 1)
    return max(1, min(run.axes.dp, run.cluster.node // min(inside, run.cluster.node)))


def pp_seconds(run: TrainingRun, size: float) -> float:
    """Seconds to send `size` bytes to the next stage, inside a node if the whole pipeline is in one."""
    inside = run.axes.tp * run.axes.cp * (run.axes.dp if run.outermost == "pp" else 1)
    near = inside * run.axes.pp <= run.cluster.node
    chip, software = run.cluster.chip, run.software
    if near:
        return size / (chip.link * software.link) + run.cluster.link_latency
    return size / (chip.network * software.net) + run.cluster.network_latency
