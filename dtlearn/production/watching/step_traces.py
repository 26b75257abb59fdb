"""One training step, seen by PyTorch's profiler and by the course's record.

Both can be written in the Chrome trace format, and opened in ui.perfetto.dev. They look at other things: the profiler
at the operators of one process (on a GPU also at its kernels), the record at what all processes say to each other.

Source: the documentation of `torch.profiler`.
"""

from __future__ import annotations

import json
import tempfile
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
from torch.profiler import ProfilerActivity, profile

from dtlearn.data_parallel.ddp import DistributedDataParallel
from dtlearn.models import GPT, GPTConfig, load_corpus, next_token_loss
from dtlearn.runtime.device import device
from dtlearn.runtime.record.chrome_trace import chrome_trace
from dtlearn.runtime.record.record import Record
from dtlearn.runtime.record.training_steps import part
from dtlearn.runtime.recording.phases import phase
from dtlearn.runtime.run import run_ranks

STEP = "traced step"  # the phase of it
Trace = dict[str, Any]  # "traceEvents": a list of slices with "name", "cat", "ts", "dur" (microseconds), "args"


class Sight(NamedTuple):
    """How many of something each trace shows."""

    what: str
    profiler: int
    record: int


@dataclass(frozen=True)
class StepTraces:
    """Both traces of the same step.

    Attributes:
        profiler: of each rank a trace: a profiler sees one process.
        record: of all ranks.
    """

    profiler: tuple[Trace, ...]
    record: Record

    @property
    def course(self) -> Trace:
        """The record as a trace."""
        return chrome_trace(self.record)

    def save(self, folder: str | Path) -> list[Path]:
        """Write all traces, for ui.perfetto.dev: `profiler_rank0.json` and so on, and `course.json`."""
        traces = {f"profiler_rank{rank}": trace for rank, trace in enumerate(self.profiler)} | {"course": self.course}
        files = [Path(folder) / f"{name}.json" for name in traces]
        for file, trace in zip(files, traces.values(), strict=True):
            file.write_text(json.dumps(trace), encoding="utf-8")
        return files

    def sights(self) -> list[Sight]:
        """What each trace shows of the step, on all ranks together.

        With `with_stack=True`, which costs time, a profiler also has the Python functions around a collective, each
        with the line at which it begins.
        """
        ours, theirs = slices(self.course), [event for trace in self.profiler for event in slices(trace)]
        calls, seen = [e for e in ours if e["cat"] in ("call", "asynchronous call")], collectives(theirs)
        named = [event for event in theirs if event["name"].startswith("Optimizer.step#")]
        waits = [event for event in theirs if "wait" in event["name"].lower()]
        processes = max(len({e["pid"] for e in slices(trace) if e["cat"] == "cpu_op"}) for trace in self.profiler)
        return [
            Sight("operators, such as aten::addmm", sum(e["cat"] == "cpu_op" for e in theirs), 0),
            Sight("kernels on a GPU", sum(e["cat"] == "kernel" for e in theirs), 0),
            Sight("phases: forward, backward, step", len(named), sum(e["cat"] == "phase" for e in ours)),
            Sight("collectives", len(seen), len(calls)),
            Sight("collectives with the size of their data", _knowing(seen, "Input Dims"), _knowing(calls, "bytes")),
            Sight(
                "collectives with the line that called (without with_stack)",
                _knowing(seen, "line"),
                _knowing(calls, "line"),
            ),
            Sight("waits for a collective", len(waits), sum(e["cat"] == "wait" for e in ours)),
            Sight("ranks in one trace", processes, len({event["pid"] for event in ours})),
        ]


def slices(trace: Trace) -> list[dict[str, Any]]:
    """The slices of a trace: what has a name, a beginning and a duration."""
    return [event for event in trace["traceEvents"] if event.get("ph") == "X" and "cat" in event]


def collectives(events: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """The profiler's slices that are a collective of gloo or of NCCL."""
    return [event for event in events if event["name"].startswith(("gloo:", "nccl:"))]


def operator_seconds(trace: Trace) -> Counter[str]:
    """Seconds in each operator of a profiler's trace, with those that it calls: {"aten::addmm": ...}."""
    seconds = Counter[str]()
    for event in slices(trace):
        if event["cat"] == "cpu_op":
            seconds[event["name"]] += event["dur"] / 1e6
    return seconds


def _knowing(events: Iterable[dict[str, Any]], argument: str) -> int:
    return sum(argument in event.get("args", {}) for event in events)


def trace_step(num_ranks: int = 2, config: GPTConfig | None = None, *, batch: int = 8, **options: Any) -> StepTraces:
    """Train a GPT for three steps with DistributedDataParallel, the last one under both eyes.

    Args:
        num_ranks: that train.
        config: of the model; None: two blocks.
        batch: sequences of a step, on each rank.
        options: of `run_ranks`.
    """
    config = config or GPTConfig(num_layers=2)
    run = run_ranks(profiled_step, num_ranks, config, batch, record=True, **options)
    return StepTraces(tuple(run), part(run.record, STEP))


def profiled_step(config: GPTConfig, batch: int) -> Trace:
    """On a rank: two steps, so that nothing happens for the first time, and one under the profiler; its trace."""
    torch.manual_seed(0)
    model = DistributedDataParallel(GPT(config).to(device()))
    optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
    batches = load_corpus().batches(3, batch, config.context_length, seed=dist.get_rank())
    steps = [[x.to(device()) for x in both] for both in batches]

    def step(number: int) -> None:
        inputs, targets = steps[number]
        optimizer.zero_grad()
        next_token_loss(model(inputs), targets).backward()
        optimizer.step()

    step(0)
    step(1)
    activities = [ProfilerActivity.CPU, *[ProfilerActivity.CUDA] * torch.cuda.is_available()]
    with profile(activities=activities, record_shapes=True) as profiler, phase(STEP):
        step(2)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "trace.json"
        profiler.export_chrome_trace(str(file))
        trace: Trace = json.loads(file.read_text("utf-8"))
    return trace
