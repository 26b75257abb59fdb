"""Targets that a formula answers: bytes, bubbles, volumes, counts. Each takes a Reader and returns a number.

The number is in the unit of the formula; `units.scale` turns bytes into the unit that the entry prints.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace

from dtlearn.memory.arithmetic.activations import ActivationSizes
from dtlearn.memory.arithmetic.published import zero_bytes
from dtlearn.pipeline_parallel.checking.simulate import StageTimes, simulate
from dtlearn.pipeline_parallel.schedules.from_torch import torch_schedule
from dtlearn.pipeline_parallel.schedules.make import make_schedule

from ..flops import eq3, palm_flops_per_token
from ..goodput import goodput
from .entries import CannotPredict
from .inputs import Reader

AnalyticTarget = Callable[[Reader], float]


def activation_layer(reader: Reader) -> float:
    """Bytes of a layer, Korthikanti et al., 2205.05198, table 2; flags or the entry's name say what is divided."""
    s, h, a = reader.need("seq"), reader.need("hidden"), reader.need("heads")
    b, t = reader.number("microbatch", 1.0) or 1.0, reader.number("tp", 1.0) or 1.0
    sizes = ActivationSizes(int(b), int(s), int(h), int(a))
    return layer_bytes(sizes, t, sequence_parallel=_sequence_parallel(reader), recompute=_recompute(reader))


def layer_bytes(sizes: ActivationSizes, t: float, *, sequence_parallel: bool, recompute: str) -> float:
    """sbh (10 + 24/t + 5as/ht); 34/t with sequence parallelism; no scores with "selective"; 2sbh with "full"."""
    if recompute == "full":
        return 2.0 * sizes.sbh
    scores = 0.0 if recompute == "selective" else 5 * sizes.scores / t
    return sizes.sbh * (34 / t if sequence_parallel else 10 + 24 / t) + scores


def activation_first_stage(reader: Reader) -> float:
    """Bytes of the first stage: L layers of one micro-batch, times 1 + (p-1)/(pv) when interleaved (equation 5)."""
    p, v = reader.number("pp", 1.0) or 1.0, reader.number("virtual_stages", 1.0) or 1.0
    factor = 1 + (p - 1) / (p * v) if v > 1 else 1.0
    return activation_layer(reader) * reader.need("layers") * factor


def activation_fraction(reader: Reader) -> float:
    """Activation memory in per cent of what tensor parallelism alone keeps."""
    s, h, a, t = (reader.need(name) for name in ("seq", "hidden", "heads", "tp"))
    sizes = ActivationSizes(1, int(s), int(h), int(a))
    both = reader.says("combined", "both", "present")
    wanted = layer_bytes(
        sizes,
        t,
        sequence_parallel=both or _sequence_parallel(reader),
        recompute="selective" if both else _recompute(reader),
    )
    return 100 * wanted / layer_bytes(sizes, t, sequence_parallel=False, recompute="none")


def state_bytes(reader: Reader) -> float:
    """Bytes of the training state of a device: ZeRO, 1910.02054, table 1, or DeepSpeed's estimator."""
    params = reader.need("params")
    if largest := reader.number("largest_layer_params"):
        return _deepspeed_estimate(reader, params, largest)
    k, weight, grad = (reader.number(n, d) or d for n, d in (("K", 12), ("param_bytes", 2), ("grad_bytes", 2)))
    parts = {"parameters": params * weight, "gradients": params * grad, "optimizer state": params * k}
    parts = {name: round(part / (reader.number("mp") or 1)) for name, part in parts.items()}
    stage, ranks = _stage(reader), int(reader.number("dp") or reader.number("gpus") or 1)
    return sum(zero_bytes(parts, stage, ranks).values())  # type: ignore[arg-type]


def _deepspeed_estimate(reader: Reader, params: float, largest: float) -> float:
    """DeepSpeed's `estimate_zero2_...` and `estimate_zero3_model_states_mem_needs`: what is not offloaded, on a GPU."""
    nodes = reader.number("nodes") or 1
    ranks = (reader.number("gpus") or 1) * nodes
    if "cpu" in reader.entry.unit.lower():
        return _deepspeed_host(reader, params, largest, nodes)
    if _stage(reader) == 2 and reader.number("zero_stage") is not None:
        return 2 * params if reader.says("offload", "optimizer=cpu") else 4 * params + 16 * params / ranks
    if reader.says("param=cpu", "params=cpu"):
        return 4 * largest
    if reader.says("optimizer=cpu"):
        return 4 * largest + 2 * params / ranks
    if reader.says("case2", "offload param", "param and optim") or _truth(reader, "offload_param"):
        return 4 * largest
    if reader.says("case3", "offload_optim") or _truth(reader, "offload_optimizer"):
        return 4 * largest + 2 * params / ranks
    return 4 * largest + 18 * params / ranks


def _deepspeed_host(reader: Reader, params: float, largest: float, nodes: float) -> float:
    """The same functions, a node's memory: half as much again for buffers; loading takes 4 bytes for each GPU."""
    gpus = reader.number("gpus") or 1
    if _stage(reader) == 2:
        return 1.5 * params * (max(4 * gpus * nodes, 16) if reader.says("optimizer=cpu", "offload") else 4 * gpus)
    kept = 18 / nodes if reader.says("param=cpu", "params=cpu") else 16 / nodes if reader.says("optimizer=cpu") else 0.0
    if reader.says("zero_init=1") or _truth(reader, "zero_init"):
        return 1.5 * (params * kept if kept else 4 * largest * gpus)
    return 1.5 * params * max(4 * gpus, kept)


def bytes_per_parameter(reader: Reader) -> float:
    """Megatron Core's table: 20, 18 or 16; with the distributed optimizer 4 + 16/d, 6 + 12/d or 8 + 8/d."""
    dtypes = str(reader.entry.inputs.get("dtypes", "")).lower() + reader.entry.id.lower()
    whole, divided = (6, 12) if "bf16" in dtypes else (4, 16) if "fp16" in dtypes else (8, 8)
    distributed = reader.entry.inputs.get("distributed_optimizer")
    if distributed is None:
        distributed = reader.says("dist_", "distributed") and not reader.says("nondist")
    return whole + divided / (reader.need("dp") if distributed else 1)


def offloaded_bytes(reader: Reader) -> float:
    """ZeRO-Offload, 2101.06840, table 1: 16 on the GPU, less what moves: update 4, gradients and update 2, ..."""
    gradients = reader.says("g16", "gradient", "g_")
    update = reader.says("update", "fo", "os")
    plain = reader.entry.id.lower()
    gradients = gradients or "g16" in plain
    update = update or "update" in plain
    return {(True, True): 2.0, (True, False): 14.0, (False, True): 4.0}.get((gradients, update), 16.0)


def model_bytes(reader: Reader) -> float:
    """Parameters times what each costs; 12 for RMSProp with fp32 weights and gradients."""
    return reader.need("params") * (reader.number("bytes_per_param") or reader.assume("bytes per parameter", 16))


def max_params(reader: Reader) -> float:
    """Largest model whose state fits, ZeRO, table 2: mp times memory by bytes per parameter."""
    memory = reader.number("device_memory_bytes") or reader.assume("memory", 32e9)
    return _by_state(reader, memory)


def max_params_measured(reader: Reader) -> float:
    """The same with room for the rest: a V100's 32 GB, of which activations, buffers and fragments take a quarter."""
    memory = reader.number("device_memory_bytes") or reader.assume("memory", 32e9)
    return _by_state(reader, 0.75 * memory)


def _by_state(reader: Reader, memory: float) -> float:
    mp = reader.number("mp", 1.0) or 1.0
    ranks = reader.number("dp") or max(1.0, (reader.number("gpus") or 64 * mp) / mp)
    k = int(reader.number("K") or 12)
    one = zero_bytes(
        {"parameters": 2 * 10**6, "gradients": 2 * 10**6, "optimizer state": k * 10**6}, _stage(reader), int(ranks)
    )
    return mp * memory / (sum(one.values()) / 1e6)


def parameter_count(reader: Reader) -> float:
    """12 lh^2 (1 + 13/12h + (V+s)/12lh), Narayanan et al., 2104.04473, equation 2; any other model's own sum."""
    model = reader.model()
    return float(replace(model, context=int(reader.number("seq") or model.context)).num_parameters)


def flops(reader: Reader) -> float:
    """6 N D, or with sizes and a batch Megatron's F of a step."""
    tokens, params = reader.number("tokens"), reader.number("params")
    if tokens and params:
        return palm_flops_per_token(params) * tokens
    batch = reader.need("global_batch")
    return eq3(reader.model(), batch, reader.need("seq"))


def ring(factor: int) -> AnalyticTarget:
    """Bytes that a rank of a ring sends: (n-1)/n of the payload, once or twice; without a payload the factor alone."""

    def share(reader: Reader) -> float:
        n = reader.number("ranks") or reader.need("gpus")
        return factor * (n - 1) / n * (reader.number("payload_bytes") or 1)

    return share


def dp_volume(reader: Reader) -> float:
    """Volume in units of Psi, as ZeRO, section 7, has it for many ranks: 2 in stages 0 to 2, 3 in stage 3."""
    return 3.0 if _stage(reader) == 3 else 2.0


def cross_node_volume(reader: Reader) -> float:
    """ZeRO-3 and ZeRO++, 2306.10209, table 1: gathers and reduction of M elements in 16 bits, between nodes.

    int8 halves the forward gather, a copy in each node does away with the backward one, int4 quarters the reduction.
    """
    parts = {"fwd": (1.0, 0.5), "bwd": (1.0, 0.0), "reduce": (1.0, 0.25)}
    plus = 1 if reader.says("zeropp", r"zero\+\+", "qwz", "hpz", "qgz") and not reader.says("baseline", "zero3") else 0
    text = reader.entry.words
    for name, words in (("fwd", "fwd|forward"), ("bwd", "bwd|backward"), ("reduce", "reduce|_rs|grad")):
        if re.search(words, text):
            return parts[name][plus]
    return sum(part[plus] for part in parts.values())


def bubble(convention: str) -> AnalyticTarget:
    """The bubble: (p-1)/(vm) as a share of the ideal time, or (p-1)/(vm+p-1) as a share of the total."""

    def share(reader: Reader) -> float:
        p, m = reader.need("pp"), reader.need("microbatches")
        ratio = (p - 1) / ((reader.number("virtual_stages") or 1) * m)
        return ratio if convention == "ideal" else ratio / (1 + ratio)

    return share


def schedule_of(reader: Reader) -> str:
    """The schedule that an entry names."""
    text = (str(reader.entry.inputs.get("schedule", "")) + " " + reader.entry.words).lower().replace("-", "_")
    kinds = ("zb_h1", "zb_h2", "zbv", "v_half", "v_min", "interleaved", "gpipe", "1f1b", "naive")
    torchs = ("LoopedBFS", "InterleavedZeroBubble", "DualPipeV")
    plain = text.replace("_", "")
    found = next((name for name in torchs if name.lower() in plain), None)
    found = found or next((kind for kind in kinds if kind.replace("_", "") in plain), None)
    return found or str(reader.assume("schedule", "1f1b"))


def simulated(what: str) -> AnalyticTarget:
    """Idle units or the peak of live activations of a schedule, with F = I = W = 1, from the simulator."""

    def measure(reader: Reader) -> float:
        name, p, m = schedule_of(reader), int(reader.need("pp")), int(reader.need("microbatches"))
        several = name in ("interleaved", "zbv", "v_half", "v_min") or name[0].isupper()
        chunks = int(reader.number("virtual_stages") or 2) if several else None
        if max(p, m) > 256:
            raise CannotPredict(f"{p} stages and {m} micro-batches are more than the simulator is asked for")
        make = torch_schedule if name[0].isupper() else make_schedule
        timeline = simulate(make(name, p, m, chunks), StageTimes.equal_parts(chunks or 1))
        # ZB-H2 has no flush: its paper counts what is idle between a rank's first and last action (2401.10241).
        idle = timeline.idle_between if name == "zb_h2" else timeline.idle
        return max(idle) if what == "idle" else max(timeline.peak_live)

    return measure


def pipeline_speedup(reader: Reader) -> float:
    """GPipe, 1811.06965, table 2: K M / (M + K - 1) over its value for 2 stages and 1 micro-batch, which is 1."""
    k, m = reader.need("pp"), reader.need("microbatches")
    base = reader.number("base_microbatches", 1.0) or 1.0
    if reader.entry.target.endswith("no_nvlink"):
        base = reader.number("base_microbatches") or m
    return (k * m / (m + k - 1)) / (2 * base / (base + 1))


def world_size(reader: Reader) -> float:
    """Number of ranks: the product of the axes."""
    product = 1.0
    for axis in ("tp", "pp", "dp", "cp"):
        product *= reader.number(axis, 1.0) or 1.0
    return product


def tokens_per_step(reader: Reader) -> float:
    """Sequences of all data-parallel ranks times tokens; cp ranks share a sequence."""
    batch = reader.number("global_batch") or reader.need("dp") * reader.need("batch_per_dp")
    return batch * reader.need("seq")


def checkpoint_bytes(reader: Reader) -> float:
    """Bytes of 16-bit weights, master weights and two moments: 14 a parameter, as in BLOOM's 2.3 TB, 2211.05100."""
    return reader.need("params") * (reader.number("bytes_per_param") or 14)


def mean_time_hours(reader: Reader) -> float:
    """Hours between failures: of those that are counted, or of as many GPUs as Llama 3's that many fail."""
    failures = reader.number("failures") or reader.number("interruptions")
    if failures:
        return (reader.number("hours") or 24 * reader.need("days")) / failures
    return goodput(int(reader.need("gpus"))).mean_time / 3600


def _stage(reader: Reader) -> int:
    stage = reader.number("zero_stage")
    if stage is not None:
        return int(stage)
    return next((n for n in (3, 2, 1, 0) if reader.says(f"stage ?_?{n}", f"zero ?-?_?{n}")), 0)


def _recompute(reader: Reader) -> str:
    named = reader.entry.inputs.get("recompute") or reader.entry.inputs.get("recomputation")
    if isinstance(named, str):
        return named
    if reader.entry.inputs.get("full_recompute") is True or "full_recompute" in reader.entry.id:
        return "full"
    return "selective" if "selective" in reader.entry.id else "none"


def _sequence_parallel(reader: Reader) -> bool:
    given = reader.entry.inputs.get("sequence_parallel")
    return given if isinstance(given, bool) else bool(re.search(r"_sp(_|$)|sequence_parallel|seqpar", reader.entry.id))


def _truth(reader: Reader, name: str) -> bool:
    return bool(reader.entry.inputs.get(name))


FORMULAS: dict[str, AnalyticTarget] = {
    "memory.activation_per_layer": activation_layer,
    "memory.activation_first_stage": activation_first_stage,
    "memory.activation_fraction_of_tp_baseline": activation_fraction,
    "memory.model_states_per_device": state_bytes,
    "memory.bytes_per_param": bytes_per_parameter,
    "memory.gpu_bytes_per_param": offloaded_bytes,
    "memory.model_params": model_bytes,
    "memory.max_params": max_params,
    "memory.max_params_measured": max_params_measured,
    "params.count": parameter_count,
    "flops.compute_optimal": flops,
    "flops.training": flops,
    "flops.total": flops,
    "flops.per_step": flops,
    "comm.allreduce_bytes_per_rank": ring(2),
    "comm.reduce_scatter_bytes_per_rank": ring(1),
    "comm.allgather_bytes_per_rank": ring(1),
    "comm.all_gather_bytes_per_rank": ring(1),
    "comm.dp_volume_per_step": dp_volume,
    "comm.cross_node_volume": cross_node_volume,
    "pipeline.bubble_over_ideal": bubble("ideal"),
    "pipeline.bubble_over_total": bubble("total"),
    "pipeline.bubble_fraction": bubble("total"),
    "pipeline.idle_units": simulated("idle"),
    "pipeline.peak_activation": simulated("peak"),
    "pipeline.peak_activation_units": simulated("peak"),
    "pipeline.speedup": pipeline_speedup,
    "pipeline.speedup_no_nvlink": pipeline_speedup,
    "topology.world_size": world_size,
    "topology.gpus": world_size,
    "checkpoint.size": checkpoint_bytes,
    "memory.checkpoint_size": checkpoint_bytes,
    "goodput.mean_time_between_failures": mean_time_hours,
    "goodput.mtbf_hours": mean_time_hours,
    "batch.tokens_per_step": tokens_per_step,
}
