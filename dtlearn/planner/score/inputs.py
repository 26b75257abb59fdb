"""From an entry's inputs to a run: what they name is taken, what is missing gets a default that is said."""

from __future__ import annotations

import math
import re
from dataclasses import replace
from typing import Any

from dtlearn.memory.arithmetic.published import ModelSizes

from ..checking import check_whole, divisors
from ..hardware import Accelerator, Cluster, find_accelerator
from ..memory import planned_memory
from ..models import MORE_MODELS, find_model, model_of_count
from ..run import Axes, RecomputeWay, TrainingRun
from ..search import UNFUSED
from ..step import planned_step
from .calibration import software_for
from .entries import CannotPredict, PublishedNumber

ALIASES = {
    "gpus": ("gpus", "devices", "chips", "num_gpus", "n_gpus", "accelerators", "world_size", "world", "n"),
    "global_batch": ("global_batch", "batch", "batch_size", "global_batch_size", "gbs", "B"),
    "microbatch": ("microbatch", "micro_batch", "micro_batch_size", "mbs", "local_batch", "lbs", "batch_per_gpu", "b"),
    "microbatches": ("microbatches", "num_microbatches", "m"),
    "seq": ("seq", "sequence_length", "seq_len", "length", "context", "s"),
    "hidden": ("hidden", "hidden_size", "d_model", "h"),
    "layers": ("layers", "num_layers", "n_layers", "L"),
    "heads": ("heads", "num_heads", "a"),
    "kv_heads": ("kv_heads", "num_kv_heads", "kv"),
    "feed_forward": ("feed_forward", "ffn", "ffn_hidden", "intermediate_size", "d_ff"),
    "vocab": ("vocab", "vocabulary", "vocab_size", "V"),
    "tp": ("tp", "tensor_parallel", "t"),
    "pp": ("pp", "pipeline_parallel", "stages", "p"),
    "dp": ("dp", "data_parallel", "Nd", "d"),
    "cp": ("cp", "context_parallel"),
    "ep": ("ep", "expert_parallel"),
    "fsdp": ("fsdp",),
    "mp": ("mp", "model_parallel"),
    "virtual_stages": ("virtual_stages", "chunks", "interleave", "v"),
    "params": ("params", "parameters", "num_params", "Psi"),
    "tokens": ("tokens", "training_tokens"),
    "zero_stage": ("zero_stage", "stage"),
    "batch_per_dp": ("batch_per_dp",),
}
WRITTEN = {  # as in "70B FSDP32 TP8 lbs16 seq8192"
    "fsdp": r"fsdp ?(\d+)",
    "tp": r"tp ?(\d+)",
    "pp": r"pp ?(\d+)",
    "cp": r"cp ?(\d+)",
    "dp": r"(?<![a-z])dp ?(\d+)",
    "microbatch": r"(?:lbs|mbs) ?(\d+)",
    "global_batch": r"gbs ?(\d+)",
    "seq": r"seq ?(\d+)",
}


class Reader:
    """Reads the inputs of one entry under all their names, and keeps what it assumed."""

    def __init__(self, entry: PublishedNumber) -> None:
        self.entry = entry
        self.assumed: list[str] = []

    def number(self, name: str, default: float | None = None) -> float | None:
        """A number under any of its names, or in a description; None or `default` if it is nowhere."""
        for alias in ALIASES.get(name, (name,)):
            value = self.entry.inputs.get(alias)
            if isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value):
                return float(value)
            if isinstance(value, str) and re.fullmatch(r"\s*\d+(\.\d+)?(e\d+)?\s*", value):
                return float(value)
        if name in WRITTEN and (match := re.search(WRITTEN[name], self._texts())):
            return float(match[1])
        return default

    def need(self, name: str) -> float:
        """A number without which nothing can be predicted.

        Raises:
            CannotPredict: it is missing.
        """
        value = self.number(name)
        if value is None:
            raise CannotPredict(f"the inputs lack {name}")
        return value

    def assume(self, name: str, value: Any) -> Any:
        """Take a default, and say so."""
        self.assumed.append(f"{name} {value:g}" if isinstance(value, int | float) else f"{name} {value}")
        return value

    def says(self, *words: str) -> bool:
        """Whether identifier, unit or a textual input has one of these words."""
        return any(re.search(rf"(?<![a-z]){word}", self.entry.words) for word in words)

    def chip(self) -> Accelerator:
        """The accelerator that is named, or whose peak is given, or an A100. A given peak replaces its own."""
        named = next(
            (str(self.entry.inputs[k]) for k in ("device", "gpu", "hardware", "chip") if k in self.entry.inputs), ""
        )
        peak = self.number("peak_tflops")
        flops = self.number("peak_flops") or (peak * 1e12 if peak else None)
        try:
            chip = find_accelerator(
                named or (_by_peak(flops) if flops else self.assume("device", _usual_chip(self.entry)))
            )
        except ValueError:
            if not flops:
                raise
            chip = find_accelerator(self.assume("device, with the peak that is given,", _by_peak(flops)))
        return replace(chip, peak=flops, ceiling=chip.ceiling * chip.peak / flops) if flops else chip

    def model(self) -> ModelSizes:
        """The model, by its sizes, its name or its number of parameters.

        Raises:
            CannotPredict: there is none of the three.
        """
        hidden, layers, params = self.number("hidden"), self.number("layers"), self.number("params")
        name = self.entry.inputs.get("model")
        if hidden and (layers or params):
            check_whole("the inputs", hidden=int(hidden))
            layers = layers or max(1.0, round((params or 0) / (12 * hidden * hidden)))
            heads = self.number("heads") or self.assume("heads", usual_heads(int(hidden)))
            known = self._known(name, params, hidden, layers)
            vocabulary = self.number("vocab") or (known.vocabulary if known else self.assume("vocabulary", 51200))
            if known:
                return replace(known, vocabulary=int(vocabulary), context=int(self.number("seq") or known.context))
            name = str(name or "model")
            context, kv, wide = (int(self.number(key) or 0) for key in ("seq", "kv_heads", "feed_forward"))
            return ModelSizes(name, int(layers), int(hidden), int(heads), int(vocabulary), context or 2048, kv, wide)
        if isinstance(name, str):
            try:
                return find_model(name)
            except ValueError as error:
                if not params:
                    raise CannotPredict(str(error)) from error
        if params:
            return model_of_count(params)
        if match := re.search(r"(?<![a-z0-9.])(\d+(?:\.\d+)?) ?([bt])(?![a-z0-9])", self._texts().replace("_", " ")):
            return model_of_count(float(match[1]) * (1e9 if match[2] == "b" else 1e12))
        raise CannotPredict("the inputs name no model: neither sizes, nor a name, nor a number of parameters")

    def _known(self, name: Any, params: float | None, hidden: float, layers: float) -> ModelSizes | None:
        """A model of the table with these sizes, if the entry names it or has no heads of its own."""
        alike = [m for m in MORE_MODELS.values() if m.hidden == hidden and m.layers == layers]
        named = [m for m in alike if isinstance(name, str) and m.name.lower().replace(" ", "-") == name.lower()]
        swiglu = [m for m in alike if m.kind.swiglu and params and abs(m.num_parameters - params) < 0.04 * params]
        return next(iter(named or swiglu), None)

    def _texts(self) -> str:
        texts = [str(v) for k, v in self.entry.inputs.items() if isinstance(v, str) and k not in ("device", "gpu")]
        return " ".join([*texts, self.entry.id]).lower().replace("_", " ")


def usual_heads(hidden: int) -> int:
    """The number of heads with nearly 128 features each."""
    return min(divisors(hidden, hidden // 32) or [1], key=lambda heads: abs(hidden / heads - 128))


def read_run(entry: PublishedNumber) -> tuple[TrainingRun, list[str]]:
    """The run that an entry describes, and what was assumed for it.

    Raises:
        CannotPredict: the inputs name no model.
        ValueError: an accelerator that is unknown.
    """
    reader = Reader(entry)
    model, chip = reader.model(), reader.chip()
    axes, size = _axes(reader, model)
    length = int(reader.number("seq") or reader.assume("sequence length", model.context))
    zero = _zero_stage(reader)
    fused = _fused(reader, chip, model)
    run = TrainingRun(
        model=model, cluster=Cluster(chip, size), axes=axes, batch=1, length=length, zero_stage=zero,
        sequence_parallel=_sequence_parallel(reader, fused), fused_attention=fused,
        software=software_for(entry, reader.says("fp8", "float8")),
        precision="fp32 Adam" if reader.says("fsdp") and zero == 3 else "mixed 18",
    )  # fmt: skip
    return _with_batch(reader, run), reader.assumed


def _axes(reader: Reader, model: ModelSizes) -> tuple[Axes, int]:
    size, mp = reader.number("gpus"), int(reader.number("mp") or 1)
    tp = int(reader.number("tp") or (min(8, mp) if mp > 1 else 1))
    pp = int(reader.number("pp") or max(1, mp // tp))
    cp, ep = int(reader.number("cp") or 1), int(reader.number("ep") or 1)
    fsdp = reader.number("fsdp")
    dp = reader.number("dp") or fsdp or max(1, (size or tp * pp * cp) // (tp * pp * cp))
    world = int(size or tp * pp * cp * dp)
    if tp * pp * cp * dp != world and size:
        given = int(dp)
        dp = max(1, world // (tp * pp * cp))
        reader.assumed.append(f"dp {dp:g} (the printed {given} does not multiply to {world} GPUs)")
    chunks = int(reader.number("virtual_stages") or 1)
    return Axes(tp, pp, int(dp), cp, ep, chunks), world


def _zero_stage(reader: Reader) -> int:
    stage = reader.number("zero_stage")
    if stage is not None:
        return int(stage)
    if reader.number("fsdp") or reader.says("fsdp", "zero3", "zero-3", "full_shard"):
        return 3
    return 1 if reader.says("zero1", "zero-1", "distributed optimizer") or not _is_early(reader) else 0


def _is_early(reader: Reader) -> bool:
    """Full recomputation and a pipeline: the systems of 2021, before the distributed optimizer and FlashAttention."""
    return reader.entry.inputs.get("full_recompute") is True or "recompute" in reader.entry.inputs


def _fused(reader: Reader, chip: Accelerator, model: ModelSizes) -> bool:
    if chip.name.startswith(UNFUSED):
        return False
    if chip.name.startswith(("H", "B200")) or model.kind.fused_attention:
        return True
    return not (
        _is_early(reader) or reader.entry.group in ("recompute_throughput", "megatron_vs_zero3", "deepspeed_azure")
    )


def _sequence_parallel(reader: Reader, fused: bool) -> bool:
    given = reader.entry.inputs.get("sequence_parallel")
    return given if isinstance(given, bool) else fused or reader.entry.group == "recompute_throughput"


def _recompute(reader: Reader) -> RecomputeWay | None:
    inputs = reader.entry.inputs
    named = inputs.get("recompute") or inputs.get("recomputation")
    full = (inputs.get("full_recompute"), inputs.get("activation_checkpointing"))
    if True in full or named == "full" or reader.says("fullac", "full ac"):
        return "full"
    if reader.says("selac", "selective ac"):
        return "ops"
    if named in ("none", "selective", "ops"):
        return named  # type: ignore[no-any-return]
    if reader.entry.group == "recompute_throughput":  # the paper's present work
        return "selective"
    if reader.entry.group == "megatron_vs_zero3":  # of the same paper as equation 3, which has it always
        return "full"
    return "none" if False in full else None


def _with_batch(reader: Reader, run: TrainingRun) -> TrainingRun:
    """The micro-batch and recomputation that are given, or else the fastest that fit."""
    axes = run.axes
    per_dp = reader.number("batch_per_dp")
    micro, batch = reader.number("microbatch"), reader.number("global_batch") or (axes.dp * per_dp if per_dp else None)
    if batch is None and (tokens := reader.number("batch_tokens")):
        batch = max(1.0, tokens // run.length)
    if reader.number("microbatches"):
        batch = batch or axes.dp * (micro or 1) * reader.need("microbatches")
    if micro and batch is None and axes.pp > 1 and reader.says("lbs"):  # torchtitan's local batch: a pipeline's
        batch, micro = axes.dp * micro, max(1.0, micro // axes.pp)
    if batch is None:
        per_pipeline = max(1, 4 * axes.pp if axes.pp > 1 else 1)
        batch = reader.assume("batch", axes.dp * (micro or 1) * (1 if axes.pp == 1 else per_pipeline))
    given = _recompute(reader)
    recomputes: list[RecomputeWay] = [given] if given else ["none", "selective", "full"]
    share = max(1, int(batch // axes.dp))
    micros = [n for n in (1, 2, 4, 8) if share % n == 0 and (share // n >= axes.pp or n == 1)]
    micros = [int(micro)] if micro else [1] if axes.virtual_stages > 1 else micros  # interleaving lives off many
    candidates = [
        replace(run, batch=int(batch), microbatch=n, recompute=r, zero_stage=z, axes=replace(axes, virtual_stages=v))
        for n in micros
        for r in recomputes
        for z in _stages_to_try(reader, run)
        for v in _chunks_to_try(reader, run)
    ]
    if len(candidates) == 1:
        return candidates[0]
    fitting = [candidate for candidate in candidates if planned_memory(candidate).fits] or candidates[-1:]
    best = min(fitting, key=lambda candidate: planned_step(candidate).total)
    if not micro:
        reader.assume("micro-batch", best.microbatch)
    if not given:
        reader.assume("recomputation", best.recompute)
    if best.axes.virtual_stages != axes.virtual_stages:
        reader.assume("chunks", best.axes.virtual_stages)
    if best.zero_stage != run.zero_stage:
        reader.assume("ZeRO stage", best.zero_stage)
    return best


def _stages_to_try(reader: Reader, run: TrainingRun) -> list[int]:
    """The ZeRO stages to try: also stage 2 beside the distributed optimizer, where the entry does not say."""
    return [1, 2] if run.zero_stage == 1 and reader.number("zero_stage") is None else [run.zero_stage]


def _chunks_to_try(reader: Reader, run: TrainingRun) -> list[int]:
    """The numbers of chunks to try: systems since 2023 interleave as far as the layers go, earlier ones as they say."""
    if run.axes.pp == 1 or reader.number("virtual_stages") or reader.says("1f1b") or _is_early(reader):
        return [run.axes.virtual_stages]
    if not run.fused_attention:
        return [run.axes.virtual_stages]
    return divisors(-(-run.model.layers // run.axes.pp))


def _by_peak(flops: float) -> str:
    table = {125e12: "V100", 312e12: "A100", 989.5e12: "H100", 275e12: "TPUv4", 123e12: "TPUv3", 2250e12: "B200"}
    return table[min(table, key=lambda peak: abs(peak - flops))]


def _usual_chip(entry: PublishedNumber) -> str:
    return "V100" if entry.group.startswith(("zero_", "megatron19")) else "TPUv4" if "palm" in entry.group else "A100"
