"""A run as data: model, cluster, layout, batch and recipe, checked before anything is computed of it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, get_args

from dtlearn.memory.arithmetic.published import ModelSizes
from dtlearn.memory.arithmetic.training_state import find_convention
from dtlearn.pipeline_parallel.schedules.make import SCHEDULES

from .checking import check_positive, check_whole, check_word, divisors, nearest
from .hardware import Cluster

RecomputeWay = Literal["none", "selective", "ops", "full"]


@dataclass(frozen=True)
class Axes:
    """How many ranks each axis has; their product is the world. ep is 1: these models have no experts.

    Raises:
        ValueError: an axis that is no whole number of 1 or more.
    """

    tp: int = 1
    pp: int = 1
    dp: int = 1
    cp: int = 1
    ep: int = 1
    virtual_stages: int = 1

    def __post_init__(self) -> None:
        check_whole("axes", **vars(self))

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

    Raises:
        ValueError: a rate that is not above 0, or a hidden part that is not from 0 to 1.
    """

    efficiency: float = 0.92
    tp_hidden: float = 0.25
    dp_hidden: bool = True
    pp_hidden: float = 0.0
    net: float = 0.7
    link: float = 0.8
    streams: float = 1.0
    low_precision: bool = False

    def __post_init__(self) -> None:
        check_positive("software", efficiency=self.efficiency, net=self.net, link=self.link, streams=self.streams)
        for name, part in (("tp_hidden", self.tp_hidden), ("pp_hidden", self.pp_hidden)):
            if not 0 <= part <= 1:
                raise ValueError(f"software: {name} is a part of 1, from 0 to 1; got {part!r}")


@dataclass(frozen=True)
class TrainingRun:
    """All that a step depends on. What divides what is not looked at here: that is for `check_run`.

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

    Raises:
        ValueError: a count that is no whole number of 1 or more, or a word that nothing here knows.
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

    def __post_init__(self) -> None:
        check_whole("a run", batch=self.batch, microbatch=self.microbatch, length=self.length)
        sizes = {name: getattr(self.model, name) for name in ("layers", "hidden", "heads", "vocabulary", "context")}
        check_whole(f"model {self.model.name}", **sizes)
        check_whole(f"model {self.model.name}", 0, kv_heads=self.model.kv_heads, feed_forward=self.model.feed_forward)
        check_word("recompute", self.recompute, get_args(RecomputeWay))
        check_word("zero_stage", self.zero_stage, (0, 1, 2, 3))
        check_word("schedule", self.schedule, SCHEDULES)
        check_word("element_bytes", self.element_bytes, (2, 4))
        check_word("outermost", self.outermost, ("pp", "dp"))
        find_convention(self.precision)

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


def check_world(run: TrainingRun) -> None:
    """Raises ValueError if the axes do not multiply to the cluster: of such a run no step and no memory is planned."""
    if run.axes.world != run.cluster.size:
        raise ValueError(_world_fault(run))


def run_faults(run: TrainingRun) -> list[str]:
    """What does not divide, in words."""
    faults = [] if run.axes.world == run.cluster.size else [_world_fault(run)]
    return faults + model_faults(run) + _batch_faults(run)


def model_faults(run: TrainingRun) -> list[str]:
    """Which axes do not fit the model and the length of its sequences, in words; batch and cluster are not checked."""
    model, axes, faults = run.model, run.axes, []
    if model.heads % axes.tp:
        faults.append(f"{model.heads} heads do not divide by tp {axes.tp}; take one of {divisors(model.heads, 16)}")
    stages = axes.pp * axes.virtual_stages
    if stages > model.layers:
        named = f"pp {axes.pp} x {axes.virtual_stages} chunks are {stages} stages"
        faults.append(f"{named}, and the model has {model.layers} layers; take fewer stages")
    elif axes.virtual_stages > 1 and axes.pp == 1:
        faults.append(f"{axes.virtual_stages} chunks are for a pipeline, and pp is 1; take 1 chunk, or pp of 2 or more")
    elif axes.virtual_stages > 1 and min(n % stages for n in (model.layers, model.layers + 2)):
        faults.append(
            f"{model.layers} layers do not divide by pp {axes.pp} x {axes.virtual_stages} chunks; "
            f"pp x chunks must divide {model.layers}, or {model.layers + 2} with embedding and head as one layer each"
        )
    elif model.layers % axes.pp and (model.layers + 2) % axes.pp:
        faults.append(
            f"{model.layers} layers do not divide by pp {axes.pp}, nor do {model.layers + 2}, embedding and head "
            f"counted as one each; take pp of {divisors(model.layers, 128)} or {divisors(model.layers + 2, 128)}"
        )
    if axes.ep > 1:
        faults.append(f"ep {axes.ep}: {model.name} has no experts, and the planner knows dense models only; take ep 1")
    # Causal attention gives each cp rank an early and a late chunk, and norms see 1/tp of its tokens.
    chunks, parts = 2 if axes.cp > 1 else 1, axes.tp if run.sequence_parallel else 1
    unit = axes.cp * math.lcm(chunks, parts)
    if run.length % unit:
        by = [f"cp {axes.cp} (two chunks a rank)"] * (axes.cp > 1) + [f"tp {parts} (sequence parallelism)"] * (
            parts > 1
        )
        near = " or ".join(str(n * unit) for n in (run.length // unit, run.length // unit + 1) if n)
        faults.append(f"{run.length} tokens do not divide by {' x '.join(by)}; take {near}")
    return faults


def _world_fault(run: TrainingRun) -> str:
    axes, size = run.axes, run.cluster.size
    model = axes.world // axes.dp  # ranks that hold it once
    names = "tp x pp x cp" if axes.ep == 1 else "tp x pp x cp x ep"
    near = " or ".join(str(n) for n in nearest(divisors(size), model))
    remedy = f"{names} = {model} must divide it (next: {near})" if size % model else f"take dp {size // model}"
    return f"{axes}: the axes multiply to {axes.world}, and the cluster has {size} ranks; {remedy}"


def _batch_faults(run: TrainingRun) -> list[str]:
    """Why the batch does not fit the pipelines and replicas, in words; one reason at most."""
    axes = run.axes
    unit, of_a_pipeline = axes.dp * run.microbatch, run.batch // (axes.dp * run.microbatch)
    if run.batch % unit:
        near = " or ".join(str(n * unit) for n in (run.batch // unit, run.batch // unit + 1) if n)
        parts = f"dp {axes.dp} x micro-batch {run.microbatch} = {unit}"
        return [f"a batch of {run.batch} is no multiple of {parts}; take {near}"]
    if of_a_pipeline < axes.pp:
        return [
            f"a batch of {run.batch} gives {of_a_pipeline} micro-batches to each pipeline of {axes.pp} stages, "
            f"which would stand idle; take a batch of {axes.pp * unit} or more, or fewer stages"
        ]
    if axes.virtual_stages > 1 and of_a_pipeline % axes.pp:
        return [
            f"interleaving takes micro-batches in groups of pp {axes.pp}, and {of_a_pipeline} is no multiple; "
            f"take a batch of {-(-of_a_pipeline // axes.pp) * axes.pp * unit}, or one chunk"
        ]
    return []
