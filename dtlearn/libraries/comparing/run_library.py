"""Run a description under a library from the head: on ranks of this Python, or of the libraries' environment."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from dtlearn.models.gpt import GPTConfig
from dtlearn.runtime.run import run_ranks

from ..configuration.check import faults_that_stop
from ..configuration.from_description import ds_config_of
from ..description import RunDescription
from ..engines.registry import find_engine, require_able
from ..environment import PACKAGES, answer_of, python_with, versions
from .on_ranks import run_on_rank, step_name
from .result import LibraryResult
from .traffic import traffic

TIMEOUT = 300.0
MODULE = "dtlearn.libraries.comparing.run_library"  # this file: as a program its `__name__` is another
LibraryRequest = tuple[str, RunDescription]


def run_here(name: str, run: RunDescription, timeout: float = TIMEOUT) -> LibraryResult:
    """Run on ranks of this Python, recorded. They are processes on the CPU, also on a machine with GPUs."""
    kind = find_engine(name)
    result = run_ranks(run_on_rank, run.world_size, name, run, device="cpu", record=True, timeout=timeout)
    of_ranks = result.values
    package = PACKAGES.get(kind.module, "accelerate" if name.startswith("accelerate") else "torch")
    return LibraryResult(
        engine=name,
        title=title_of(name, run),
        losses=of_ranks[0].losses,
        ranks=tuple(traffic(result.record, step_name(run), rank) for rank in range(run.world_size)),
        state_bytes=tuple(found.state_bytes for found in of_ranks),
        peak_bytes=tuple(found.peak_bytes for found in of_ranks),
        seconds=of_ranks[0].seconds,
        versions=versions("torch", package),
    )


def title_of(name: str, run: RunDescription) -> str:
    """The engine and what the description makes of it, such as "DeepSpeed, ZeRO 2, bf16"."""
    parts = [find_engine(name).title]
    if "deepspeed" in name:
        parts.append(f"ZeRO {run.zero_stage}")
    parts += [f"{axis} {getattr(run, axis)}" for axis in ("pp", "tp") if getattr(run, axis) > 1]
    parts += [run.precision] if run.precision != "fp32" else []
    parts += [f"FSDP2 over dp {run.dp}"] if name in ("tp", "pipeline") and run.dp > 1 else []
    parts += ["recomputation"] if run.recompute else []
    parts += ["optimizer offload"] if run.offload_optimizer else []
    parts += ["parameter offload"] if run.offload_parameters else []
    return ", ".join(parts)


def refuse_faults(name: str, run: RunDescription) -> None:
    """Refuse what an engine cannot do, and options that it would fail with, or would not read.

    Raises:
        ValueError: with what the engine takes, or what `check_ds_config` has against the options.
    """
    require_able(name, run)
    if "deepspeed" not in name:
        if run.options:
            raise ValueError(
                f"options are keys of a ds_config, and the engine {name!r} reads none: got {', '.join(run.options)}. "
                "Leave them out, or take a DeepSpeed engine"
            )
        return
    if faults := faults_that_stop(ds_config_of(run), run.world_size, run.tp, run.pp):
        raise ValueError(" ".join(faults))


def run_library(name: str, run: RunDescription, timeout: float = TIMEOUT) -> LibraryResult:
    """Train as described under one library, with every call recorded.

    Raises:
        ValueError: there is no such engine, or a key of `run.options` is faulty: before anything starts.
        LibraryMissing: it needs a library that is installed nowhere.
        RankError: a rank failed. RuntimeError: one did, in the libraries' environment.
    """
    return run_libraries([(name, run)], timeout)[0]


def run_libraries(requests: Sequence[LibraryRequest], timeout: float = TIMEOUT) -> list[LibraryResult]:
    """As `run_library`, several in turn; one process of the libraries' environment does all that need it."""
    for name, run in requests:
        refuse_faults(name, run)
    pythons = [python_with(find_engine(name).module) for name, _ in requests]
    here = Path(sys.executable)
    elsewhere = {python for python in pythons if python != here}
    found: dict[int, LibraryResult] = {}
    for python in elsewhere:
        numbers = [number for number, own in enumerate(pythons) if own == python]
        found |= zip(numbers, _in_python(python, [requests[number] for number in numbers], timeout), strict=True)
    for number, (name, run) in enumerate(requests):
        if pythons[number] == here:
            found[number] = run_here(name, run, timeout)
    return [found[number] for number in range(len(requests))]


def _in_python(python: Path, requests: Sequence[LibraryRequest], timeout: float) -> list[LibraryResult]:
    """Have another Python run these."""
    question = [(name, asdict(run)) for name, run in requests]
    rows = answer_of(python, MODULE, question, timeout * len(requests) + 60)
    return [LibraryResult.from_json(row) for row in rows]


def main(asked: str, answered: str) -> None:
    """Read requests, run each here, write the results: what `answer_of` starts."""
    requests = json.loads(Path(asked).read_text("utf-8"))
    runs = [(name, RunDescription(**{**run, "config": GPTConfig(**run["config"])})) for name, run in requests]
    results = [run_here(name, run).as_json() for name, run in runs]
    Path(answered).write_text(json.dumps(results), "utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
