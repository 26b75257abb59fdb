"""The doctor's checks that start ranks, and of what they run on: GPUs, the device rule, an all-reduce, cells."""

import contextlib
import os
import time
from typing import Any

from ...runtime.device import place
from ...runtime.lab.facts import query_gpus
from ...runtime.machine.limits import MEMORY_VARIABLE, default_limits
from ...runtime.machine.memory import GIB
from ...runtime.output import Sink
from ...runtime.run import run_ranks
from ...runtime.words import first_line
from ...runtime.world.world import World
from .check import Check
from .software import TorchFacts

_PATIENCE = 20.0  # seconds for each trial
_ADVICE = "If the checks above are well, try again; a firewall or a full machine can be the cause."


def list_gpus() -> list[str] | None:
    """One line for people per GPU of this machine; None where there is no driver."""
    lines = query_gpus()
    return None if lines is None else [gpu_text(line) for line in lines]


def gpu_text(line: str) -> str:
    """ "0, NVIDIA H200, 143771, 512, 570.1" -> "NVIDIA H200, 140.4 GiB (0.5 in use), driver 570.1"."""
    _, name, total, used, driver = [part.strip() for part in line.split(",")]
    with contextlib.suppress(ValueError):  # "[N/A]", as on GPUs that share the machine's memory
        return f"{name}, {int(total) / 1024:.1f} GiB ({int(used) / 1024:.1f} in use), driver {driver}"
    return f"{name}, driver {driver}"


def check_gpus(seen: int, listed: list[str] | None, facts: TorchFacts, visible: str | None) -> Check:
    """The GPUs. `seen`: by torch; `listed`: by the driver, None without one; `visible`: CUDA_VISIBLE_DEVICES."""
    if seen and not listed:
        return Check("GPUs", "ok", f"torch sees {seen}")
    if seen and listed:
        some = f"torch sees {seen} of {len(listed)} (CUDA_VISIBLE_DEVICES={visible})"
        how_many = f"{seen}" if seen == len(listed) else some
        return Check("GPUs", "ok", f"{how_many}: {'; '.join(listed)}")
    if not listed:
        return Check("GPUs", "ok", "none: ranks run on CPU, which every chapter supports")
    there = f"{len(listed)} ({listed[0]}), but torch sees none"
    if visible is not None:
        return Check("GPUs", "note", f"{there}: CUDA_VISIBLE_DEVICES={visible!r}", "unset CUDA_VISIBLE_DEVICES")
    if facts.cuda is None:
        return Check("GPUs", "note", f"{there}: it was built without CUDA", "make lab TORCH=cuda")
    advice = f"The driver may be too old for CUDA {facts.cuda}: update it. Until then ranks run on CPU."
    return Check("GPUs", "note", there, advice)


def check_placement(num_gpus: int) -> Check:
    """The device rule's decision for 2 and 4 ranks."""
    two, four = place(2, num_gpus), place(4, num_gpus)
    if (two.backend, two.reason) == (four.backend, four.reason):
        both = f"2 and 4 ranks: {two}" if two.backend == "gloo" else f"2 ranks: {two}; 4 too"
        return Check("device rule", "ok", both)
    return Check("device rule", "ok", f"2 ranks: {two}; 4 ranks: {four}")


def check_start(hello: dict[str, Any]) -> Check:
    """How ranks start: `hello` is what the agent says of itself."""
    if hello["forks"]:
        return Check("start of ranks", "ok", "forked from a process that has torch loaded: 0.1 s")
    return Check("start of ranks", "ok", "each loads torch itself: a few seconds (this system has no safe fork)")


def check_limits(num_ranks: int, free: int | None) -> Check:
    """What each rank may use. `num_ranks`: what the largest chapter that is ready starts; `free`: bytes of memory."""
    try:
        limits = default_limits(num_ranks, free)
    except ValueError as error:
        return Check("limits", "problem", str(error), f"unset {MEMORY_VARIABLE}")
    if limits.memory is None:
        return Check("limits", "ok", "none for the memory of a rank; no core dumps")
    text = f"each of {num_ranks} ranks on the CPU may use {limits.memory / GIB:.1f} GiB of memory"
    advice = "" if os.environ.get(MEMORY_VARIABLE) else f"; {MEMORY_VARIABLE}=GiB changes it"
    return Check("limits", "ok", f"{text}{advice}; no core dumps")


def try_all_reduce() -> Check:
    """A real run: two ranks add 1 and 2."""
    try:
        result = run_ranks(add_up, 2, timeout=_PATIENCE)
    except Exception as error:  # whatever it is, chapters would meet it too
        return Check("all-reduce", "problem", f"2 ranks failed: {first_line(error)}", _ADVICE)
    if result.values != [3.0, 3.0]:
        return Check("all-reduce", "problem", f"1 + 2 gave {result.values} on the two ranks", _ADVICE)
    return Check("all-reduce", "ok", f"2 ranks, from call to result {result.seconds:.2f} s, {result.placement.backend}")


def add_up() -> float:
    """On each rank: the sum over ranks of rank + 1."""
    import torch
    import torch.distributed as dist

    from ...runtime.device import device

    tensor = torch.tensor([dist.get_rank() + 1.0], device=device())
    dist.all_reduce(tensor)
    return float(tensor.item())


def try_cells() -> Check:
    """Real persistent ranks: start two, run a cell on them."""
    begun = time.monotonic()
    world = None
    try:
        world = World(2)
        ready = time.monotonic() - begun
        world.execute("pass", timeout=_PATIENCE, sink=Sink())
        cell = time.monotonic() - begun - ready
    except Exception as error:  # whatever it is, chapters would meet it too
        return Check("cells on ranks", "problem", f"2 ranks failed: {first_line(error)}", _ADVICE)
    finally:
        if world is not None:
            world.stop()
    return Check("cells on ranks", "ok", f"2 ranks ready in {ready:.2f} s, an empty cell takes {cell * 1e3:.0f} ms")
