"""A run as data: model, cluster, layout, batch and recipe, checked before anything is computed of it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, get_args

from dtlearn.memory.arithmetic.published import ModelSizes

from .hardware import Cluster

RecomputeWay = Literal["none", "selective", "ops", "full"]


@dataclass(frozen=True)
class Axes:
    """How many ranks each axis has; their product is the world. ep is 1: these models have no experts."""

    tp: int = 1
    pp: int = 1
    dp: int = 1
    cp: int = 1
    ep: int = 1
    virtual_stages: int = 1

    @property
    def world(self) -> int:
        """Number of ranks."""
        return self.tp * self.pp * self.dp * self.cp * self.ep

    def __str__(self) -> str:
        extra = f" x cp {self.cp}" * (self.cp > 1) + f", {self.virtual_stages} chunks" * (self.virtual_stages > 1)
        return f"tp {self.tp} x pp {self.pp} x dp {self.dp}{extra}"


@dataclass(frozen=True)
class Software:
    """What a training system hides and reaches. All are assumptions; `score.calibration` has those that were measured.

    Attributes:
        efficiency: of 1, what kernels reach of the model's time, for launches, gaps and jitter.
        tp_hidden: of 1, the part of tensor-parallel communication behind products. Backward's, with the gradient of
            the weight: half of backward (Megatron-LM's asynchronous all-reduce).
        dp_hidden: whether data-parallel communication runs behind the last micro-batch's backward pass.
        pp_hidden: of 1, the part of stage-to-stage transfers behind computation.
        net: of 1, what collectives between nodes reach of the cards' bandwidth.
        link: of 1, what collectives inside a node reach of the links' (nccl-tests: 235 of 300, 367 of 450 GB/s).
        streams: how often kernels that are no products pass through memory: 1 where they are fused (Megatron-LM,
            torch.compile), 2 where each operation reads and writes its own tensors (eager PyTorch).
        low_precision: products in 8 bits.
    """

    efficiency: float = 0.92
    tp_hidden: float = 0.25
    dp_hidden: bool = True
    pp_hidden: float = 0.0
    net: float = 0.7
    link: float = 0.8
    streams: float = 1.0
    low_precision: bool = False


@dataclass(frozen=True)
class TrainingRun:
    """All that a step depends on.

    Attributes:
        model: sizes.
        cluster: chips and links.
        axes: layout.
        batch: sequences of a step, on all ranks.
        microbatch: sequences of a micro-batch on a rank.
        length: tokens of a sequence.
        recompute: "none"; "selective": scores of attention (Korthikanti et al.); "ops": every second product
            (torchtitan); "full": whole blocks.
        zero_stage: 0 to 3, over dp * cp ranks.
        precision: a convention of `dtlearn.memory.arithmetic.training_state`.
        sequence_parallel: norms and dropout on s/tp tokens.
        fused_attention: FlashAttention or alike.
        schedule: a key of `dtlearn.pipeline_parallel.schedules.SCHEDULES`; chunks make "1f1b" "interleaved".
        software: what the system hides.
        gather_again: with sequence parallelism, inputs of products are kept as s/tp tokens and gathered again in
            backward, as in Megatron-LM; False: they are kept whole.
        element_bytes: of activations, and of weights as they are gathered and computed with: 2, or 4 for fp32.
        outermost: "pp" or "dp": which of the two lies outside of the other. Megatron-LM, DeepSpeed and torchtitan have
            pp outermost; Llama 3 had dp there (2407.21783, section 3.3.2).
    """

    model: ModelSizes
    cluster: Cluster
    axes: Axes
    batch: int
    microbatch: int = 1
    length: int = 2048
    recompute: RecomputeWay = "selective"
    zero_stage: int = 1
    precision: str = "mixed 18"
    sequence_parallel: bool = True
    fused_attention: bool = True
    schedule: str = "1f1b"
    software: Software = Software()
    gather_again: bool = True
    element_bytes: int = 2
    outermost: Literal["pp", "dp"] = "pp"

    @property
    def num_microbatches(self) -> int:
        """Micro-batches of a step on each pipeline; at least 1."""
        return max(1, self.batch // (self.axes.dp * self.microbatch))

    @property
    def tokens(self) -> int:
        """Tokens of a step."""
        return self.batch * self.length

    @property
    def layers_per_stage(self) -> float:
        """Layers of a rank: the average where stages can be equal, perhaps with embedding and head as two layers."""
        layers, stages = self.model.layers, self.axes.pp
        return layers / stages if layers % stages == 0 or (layers + 2) % stages == 0 else math.ceil(layers / stages)

    @property
    def rank_parameters(self) -> float:
        """Parameters of the fullest rank, before ZeRO: the first pipeline stage, with the embedding."""
        blocks = math.ceil(self.layers_per_stage) * self.model.block_parameters
        embedding = self.model.vocabulary * self.model.hidden
        ends = embedding * (2 if not self.model.tied and self.axes.pp == 1 else 1)
        return (blocks + ends) / self.axes.tp


def check_run(run: TrainingRun) -> None:
    """Raises ValueError with the numbers, for the first thing in a run that does not divide."""
    faults = run_faults(run)
    if faults:
        raise ValueError(faults[0])


def run_faults(run: TrainingRun) -> list[str]:
    """What does not divide, in words."""
    model, axes, faults = run.model, run.axes, []
    sizes = (axes.tp, axes.pp, axes.dp, axes.cp, axes.ep, axes.virtual_stages, run.batch, run.microbatch, run.length)
    if min(sizes) < 1:
        return [f"every axis, batch and length is 1 or more; got {axes} with batch {run.batch} x {run.length} tokens"]
    if axes.world != run.cluster.size:
        near = " or ".join(str(n) for n in _near_divisors(run.cluster.size, axes.world // axes.dp)) or "another tp x pp"
        faults.append(
            f"{axes}: the axes multiply to {axes.world}, and the cluster has {run.cluster.size} ranks; tp x pp x cp = "
            f"{axes.world // axes.dp} must divide it (next: {near})"
        )
    if model.heads % axes.tp:
        faults.append(f"{model.heads} heads do not divide by tp {axes.tp}; take one of {_divisors(model.heads, 16)}")
    if axes.pp * axes.virtual_stages > model.layers:
        faults.append(
            f"pp {axes.pp} x {axes.virtual_stages} chunks are {axes.pp * axes.virtual_stages} stages, and the model "
            f"has {model.layers} layers; take fewer stages"
        )
    elif axes.virtual_stages > 1 and min(n % (axes.pp * axes.virtual_stages) for n in (model.layers, model.layers + 2)):
        faults.append(
            f"{model.layers} layers do not divide by pp {axes.pp} x {axes.virtual_stages} chunks; "
            f"pp x chunks must divide {model.layers}, or {model.layers + 2} with embedding and head as one layer each"
        )
    elif model.layers % axes.pp and (model.layers + 2) % axes.pp:
        faults.append(
            f"{model.layers} layers do not divide by pp {axes.pp}, nor do {model.layers + 2}, embedding and head "
            f"counted as one each; take pp of {_divisors(model.layers, 128)} or {_divisors(model.layers + 2, 128)}"
        )
    if axes.ep > 1:
        faults.append(
            f"ep {axes.ep}: {model.name} has no experts to divide, and the planner knows dense models only; take ep 1"
        )
    if run.length % axes.cp:
        faults.append(f"{run.length} tokens do not divide by cp {axes.cp}")
    if run.batch % (axes.dp * run.microbatch):
        unit = axes.dp * run.microbatch
        near = " or ".join(str(n * unit) for n in (run.batch // unit, run.batch // unit + 1) if n)
        faults.append(
            f"a batch of {run.batch} is no multiple of dp {axes.dp} x micro-batch {run.microbatch} = {unit}; "
            f"take {near}"
        )
    elif run.num_microbatches < axes.pp:
        faults.append(
            f"a batch of {run.batch} gives {run.num_microbatches} micro-batches to each pipeline of {axes.pp} stages, "
            f"which would stand idle; take a batch of {axes.pp * axes.dp * run.microbatch} or more, or fewer stages"
        )
    elif axes.virtual_stages > 1 and run.num_microbatches % axes.pp:
        faults.append(
            f"interleaving takes micro-batches in groups of pp {axes.pp}, and {run.num_microbatches} is no multiple; "
            f"take a batch of {-(-run.num_microbatches // axes.pp) * axes.pp * axes.dp * run.microbatch}, or one chunk"
        )
    if run.recompute not in get_args(RecomputeWay):
        faults.append(f"recompute must be one of {', '.join(get_args(RecomputeWay))}; got {run.recompute!r}")
    if run.zero_stage not in (0, 1, 2, 3):
        faults.append(f"ZeRO has stages 0 to 3; got {run.zero_stage}")
    return faults


def _divisors(number: int, most: int) -> list[int]:
    return [n for n in range(1, min(number, most) + 1) if number % n == 0]


def _near_divisors(number: int, wanted: int) -> list[int]:
    divisors = _divisors(number, number)
    below, above = [n for n in divisors if n < wanted], [n for n in divisors if n > wanted]
    return below[-1:] + above[:1]
