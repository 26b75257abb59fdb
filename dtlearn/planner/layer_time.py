"""Seconds of one block and one micro-batch on one rank, from the shapes of its operations.

A product of M x K with K x N takes its FLOPs at the chip's measured ceiling, and its three matrices through memory
besides: so thin products, of a large tp or a small micro-batch, are slower, with no constant fitted. Dimensions that
are no multiple of 64 waste a part of the tensor cores (`MISALIGNED`, an assumption; NVIDIA, "Matrix Multiplication
Background", and Anthony et al., 2401.14489, say why). All else is memory traffic: norms, dropout, residuals, the
activation function, and the scores of attention unless it is fused. `STREAM` is what such kernels reach of the data
sheet's bandwidth.
"""

from __future__ import annotations

from typing import NamedTuple

from .network import collective_seconds, tp_calls, tp_in_node
from .run import TrainingRun

MISALIGNED = 0.8
STREAM = 0.85
LOW_PRECISION_GAIN = 1.6  # of products in 8 bits over those in 16, casts and scales included; the peaks differ by 2


class LayerSeconds(NamedTuple):
    """Seconds of one block and one micro-batch.

    Attributes:
        forward, backward: computation.
        recompute: computation again, in backward.
        communication: tensor-parallel, with what recomputation repeats, before anything is hidden.
    """

    forward: float
    backward: float
    recompute: float
    communication: float


def product_seconds(run: TrainingRun, m: float, n: float, k: float) -> float:
    """Seconds of one product of M x K with K x N."""
    chip = run.cluster.chip
    rate = chip.peak * chip.ceiling * (LOW_PRECISION_GAIN if run.software.low_precision and chip.low_peak else 1.0)
    if any(size % 64 for size in (n, k)):
        rate *= MISALIGNED
    return 2 * m * n * k / rate + 2 * (m * n + n * k + m * k) / chip.bandwidth


def layer_seconds(run: TrainingRun) -> LayerSeconds:
    """Seconds of a block for one micro-batch; see the top of this file for what is in them."""
    model, t = run.model, run.axes.tp
    tokens = run.microbatch * run.length / run.axes.cp
    h, f = model.hidden, model.feed_forward or 4 * model.hidden
    kv = h * (model.kv_heads or model.heads) / model.heads
    shapes = [((h + 2 * kv) / t, h), (h, h / t), ((2 if model.kind.swiglu else 1) * f / t, h), (h, f / t)]
    products = sum(product_seconds(run, tokens, n, k) for n, k in shapes)
    attention, attention_backward = _attention(run, tokens)
    streams = _streams(run, tokens)
    again = {
        "full": products + attention + streams,
        "selective": 0.0 if run.fused_attention else attention,
        "ops": products / 2 + streams,
    }.get(run.recompute, 0.0)
    backward = 2 * products + attention_backward + 2 * streams
    scale = 1 / run.software.efficiency
    return LayerSeconds((products + attention + streams) * scale, backward * scale, again * scale, _communication(run))


def head_seconds(run: TrainingRun) -> float:
    """Seconds of the LM head and the loss, forward and backward, for one micro-batch."""
    tokens = run.microbatch * run.length / run.axes.cp
    vocabulary = run.model.vocabulary / run.axes.tp
    product = 3 * product_seconds(run, tokens, -(-vocabulary // 64) * 64, run.model.hidden)
    softmax = 20 * tokens * vocabulary / (run.cluster.chip.bandwidth * STREAM)
    return (product + softmax) / run.software.efficiency


def _attention(run: TrainingRun, tokens: float) -> tuple[float, float]:
    """Seconds forward and backward. Unfused: two batched products of all scores, and their passes through memory."""
    model, t, chip = run.model, run.axes.tp, run.cluster.chip
    flops = 4 * tokens * run.length * model.hidden / t
    if run.fused_attention:  # causal: half of the blocks; backward has five products for two (2205.14135)
        forward = flops / 2 / (chip.peak * chip.attention)
        return forward, 2.5 * forward
    scores = tokens * run.length * model.heads / t
    # Written, masked softmax read and written, dropout with its mask, read: 13 bytes a score (2 + 4 + 5 + 2).
    forward = flops / (chip.peak * chip.ceiling) + 13 * scores / (chip.bandwidth * STREAM)
    return forward, 2 * forward


def _streams(run: TrainingRun, tokens: float) -> float:
    """Seconds of forward passes through memory beside products: 22 bytes of a token's h around tp, 28 inside."""
    model = run.model
    f = model.feed_forward or 4 * model.hidden
    inside = 12 * model.hidden + (6 if model.kind.swiglu else 4) * f
    around = 22 * model.hidden / (run.axes.tp if run.sequence_parallel else 1)
    traffic = tokens * (around + inside / run.axes.tp) * run.software.streams
    return traffic / (run.cluster.chip.bandwidth * STREAM)


def ends_communication(run: TrainingRun) -> float:
    """Seconds of tp's calls at embedding and head for a micro-batch: an all-reduce each way, or as many bytes.

    The embedding's vocabulary is divided, and so is the head's (1909.08053, section 3).
    """
    return 2 * collective_seconds(run, "all-reduce", tp_calls(run).size, run.axes.tp, tp_in_node(run))


def _communication(run: TrainingRun) -> float:
    call = tp_calls(run)
    return call.times * collective_seconds(run, call.collective, call.size, run.axes.tp, tp_in_node(run))
