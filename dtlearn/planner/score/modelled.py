"""Targets that need the model of a step: times, throughput, utilisation, memory of a whole run.

Where the inputs hold a measurement (`iteration_time_s`, `tokens_per_s_per_gpu`, `tflops_per_gpu`, forward and backward
times), the target follows from it by its definition; everything else is predicted from sizes and layout.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace

from ..flops import eq3, korthikanti_hardware, model_flops, palm_flops_per_token
from ..layer_time import layer_seconds
from ..memory import planned_memory
from ..run import TrainingRun
from ..step import planned_step
from .inputs import Reader, read_run

# PaLM, 2204.02311, section 4.1: 238.3 thousand tokens/s on 6,144 TPU v4; its table 3 follows by definition. The row is
# used where an entry has no inputs at all. Heads times their size is not the hidden size there.
PALM = {"params": 540.35e9, "tokens": 238.3e3, "attention": 12 * 118 * 48 * 256 * 2048, "peak": 6144 * 275e12}
UTILISATION = 0.40  # of whole published runs, 6 N D over accelerator-hours: an MFU of 45 %, of which 90 % is goodput

UTILISATION_HOPPER = 0.36  # Llama 3's 40 %, 2407.21783, table 4, and the same goodput


def run_of(reader: Reader) -> TrainingRun:
    """The entry's run; what was assumed goes to the reader."""
    run, assumed = read_run(reader.entry)
    reader.assumed += assumed
    return run


def counted_flops(reader: Reader, run: TrainingRun) -> float:
    """FLOPs of a step as the entry's source counts them: Megatron's F, with recomputation, or the model's."""
    unit = reader.entry.unit.lower()
    megatron = (
        "eq" in unit or "hardware" in unit or run.recompute == "full" or reader.entry.group == "megatron_vs_zero3"
    )
    if megatron and "model flops" not in unit:
        return eq3(run.model, run.batch, run.length)
    return model_flops(run.model, run.tokens, run.length)


def iteration_time(reader: Reader) -> float:
    """Seconds of a step."""
    if given := reader.number("iteration_time_s"):
        return given
    run = run_of(reader)
    if rate := reader.number("tflops_per_gpu"):
        return counted_flops(reader, run) / (rate * 1e12 * run.cluster.size)
    return planned_step(run).total


def per_gpu(reader: Reader) -> float:
    """TFLOP/s of each GPU."""
    run = run_of(reader)
    seconds = reader.number("iteration_time_s") or planned_step(run).total
    return counted_flops(reader, run) / seconds / run.cluster.size / 1e12


def aggregate(reader: Reader) -> float:
    """PFLOP/s of all GPUs."""
    given = reader.number("tflops_per_gpu")
    return (given or per_gpu(reader)) * (reader.number("gpus") or run_of(reader).cluster.size) / 1000


def pct_peak(reader: Reader) -> float:
    """FLOP/s of each GPU in per cent of its peak."""
    return 100 * (reader.number("tflops_per_gpu") or per_gpu(reader)) * 1e12 / reader.chip().peak


def mfu(reader: Reader) -> float:
    """MFU in per cent, as the source defines it: model FLOPs, without recomputation."""
    if not reader.entry.inputs and reader.says("palm"):
        attention = 0 if reader.says("without", "noattn", "no attention") else PALM["attention"]
        reader.assumed.append("238.3k tokens/s, which the paper prints")
        return 100 * (6 * PALM["params"] + attention) * PALM["tokens"] / PALM["peak"]
    peak = reader.chip().peak
    if rate := reader.number("tokens_per_s_per_gpu"):
        sizes = [int(reader.number(name) or 0) for name in ("layers", "hidden", "seq")]
        return 100 * palm_flops_per_token(reader.need("params"), *sizes) * rate / peak
    if rate := reader.number("tflops_per_gpu"):
        return 100 * rate * 1e12 / peak
    run = run_of(reader)
    seconds = reader.number("iteration_time_s") or planned_step(run).total
    flops = model_flops(run.model, run.tokens, run.length)
    params = reader.number("params")
    if params and reader.number("layers") and reader.number("vocab") and not reader.number("iteration_time_s"):
        flops = run.tokens * palm_flops_per_token(params, run.model.layers, run.model.hidden, run.length)
    return 100 * flops / (seconds * run.cluster.size * peak)


def hfu(reader: Reader) -> float:
    """HFU in per cent, recomputation included: a third more with full checkpoints."""
    if reader.number("tokens_per_s_per_gpu"):
        again = reader.entry.inputs.get("activation_checkpointing")
        return mfu(reader) * (4 / 3 if again else 1)
    run = run_of(reader)
    seconds = reader.number("iteration_time_s") or planned_step(run).total
    flops = korthikanti_hardware(run.model, run.batch, run.length)
    if run.recompute == "none":
        flops = model_flops(run.model, run.tokens, run.length)
    if run.recompute == "full":
        flops = eq3(run.model, run.batch, run.length)
    return 100 * flops / (seconds * run.cluster.size * reader.chip().peak)


def tokens_per_s(reader: Reader) -> float:
    """Tokens per second of all GPUs."""
    run = run_of(reader)
    return run.tokens / (reader.number("iteration_time_s") or planned_step(run).total)


def tokens_per_s_per_gpu(reader: Reader) -> float:
    """Tokens per second of one GPU."""
    return tokens_per_s(reader) / run_of(reader).cluster.size


def sequences_per_s(reader: Reader) -> float:
    """Sequences per second of all GPUs."""
    run = run_of(reader)
    return run.batch / (reader.number("iteration_time_s") or planned_step(run).total)


def training_days(reader: Reader) -> float:
    """8 T P / (n X), 2104.04473, equation 4, where X is known; else tokens by predicted tokens per second."""
    match = re.search(r"(\d+(?:\.\d+)?) ?([bt]) ?tokens", reader.entry.unit.lower())
    named = float(match[1]) * (1e9 if match[2] == "b" else 1e12) if match else None
    tokens = reader.number("tokens") or named or reader.assume("tokens", 300e9)
    if rate := reader.number("tflops_per_gpu"):
        return 8 * tokens * reader.need("params") / (reader.need("gpus") * rate * 1e12) / 86400
    return tokens / tokens_per_s(reader) / 86400


def gpu_hours(reader: Reader) -> float:
    """6 N D over the peak, at the utilisation that whole runs have."""
    usual = UTILISATION if reader.chip().peak < 500e12 else UTILISATION_HOPPER
    share = reader.number("utilisation") or reader.number("mfu") or reader.assume("whole-run utilisation", usual)
    share = share / 100 if share > 1 else share
    return palm_flops_per_token(reader.need("params")) * reader.need("tokens") / (reader.chip().peak * share) / 3600


def gain(reader: Reader) -> float:
    """Throughput gained over full recomputation without sequence parallelism, in per cent."""
    run = run_of(reader)
    before = replace(run, recompute="full", sequence_parallel=False)
    after = replace(run, recompute="selective", sequence_parallel=True)
    return 100 * (planned_step(before).total / planned_step(after).total - 1)


def layer_ms(reader: Reader) -> float:
    """Milliseconds of a layer, forward and backward."""
    forward, backward = reader.number("forward_ms"), reader.number("backward_ms")
    if forward is not None and backward is not None:
        return forward + backward
    inputs = {"layers": 1, "recompute": "none", **reader.entry.inputs}
    run = run_of(Reader(replace(reader.entry, inputs=inputs)))
    layer = layer_seconds(run)
    exposed = layer.communication * (1 - run.software.tp_hidden)
    return 1000 * (layer.forward + layer.backward + layer.recompute + exposed)


def peak_memory(reader: Reader) -> float:
    """Bytes of the fullest device."""
    return planned_memory(run_of(reader)).total


MODELLED: dict[str, Callable[[Reader], float]] = {
    "throughput.iteration_time": iteration_time,
    "throughput.per_gpu": per_gpu,
    "throughput.aggregate": aggregate,
    "throughput.pct_peak": pct_peak,
    "throughput.mfu": mfu,
    "throughput.hfu": hfu,
    "throughput.tokens_per_s": tokens_per_s,
    "throughput.tokens_per_s_per_gpu": tokens_per_s_per_gpu,
    "throughput.sequences_per_s": sequences_per_s,
    "throughput.training_days": training_days,
    "throughput.gpu_hours": gpu_hours,
    "throughput.ratio": gain,
    "time.layer_fwd_bwd": layer_ms,
    "memory.peak_per_device": peak_memory,
}
