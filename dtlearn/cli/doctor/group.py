"""The doctor's checks of all machines of a lab together: who reaches whom, ranks on all of them, an all-reduce."""

import time
from statistics import median
from typing import Any

from ...runtime.errors import DtlearnError
from ...runtime.lab.head.agent import LabAgent
from ...runtime.lab.head.port import JoinedNode
from ...runtime.lab.head.reachability import ADVICE, failed_pairs
from ...runtime.machine.patience import TO_TRY_A_LAB
from ...runtime.words import by_value, first_line
from ...runtime.world.world import World
from .check import Line

_BYTES, _TIMES, _WARM_UP = 1_000_000, 10, 3
_HANGS = 'docs/lab.md, "When it hangs", goes from message to action.'


def check_mesh(joined: list[JoinedNode]) -> Line:
    """Every node connects to every other one."""
    if len(joined) < 2:
        return Line("reach each other", "ok", "one node has nobody to reach")
    if pairs := failed_pairs(joined):
        return Line("reach each other", "problem", "; ".join(pairs), ADVICE)
    pairs_tried = len(joined) * (len(joined) - 1)
    return Line("reach each other", "ok", f"{pairs_tried} connections, each node to each other one")


def try_ranks(agent: LabAgent) -> list[Line]:
    """Start the ranks of the lab on its nodes, which are there, and let them add 1 MB. Sends the nodes home."""
    begun = time.monotonic()
    world = None
    try:
        world = World(agent.lab.size, agent=agent)
        ready = time.monotonic() - begun
        started = Line("ranks", "ok", f"{world.size} ranks ready in {ready:.1f} s, {world.placement}")
        answers = world.run(time_all_reduce, _BYTES, timeout=TO_TRY_A_LAB)
    except (DtlearnError, ValueError) as error:
        name = "ranks" if world is None else "all-reduce"
        failed = Line(name, "problem", first_line(error), _HANGS)
        return [failed] if world is None else [started, failed]
    finally:
        if world is not None:
            world.stop()
    return [started, check_builds(answers), check_all_reduce(answers, _BYTES)]


def time_all_reduce(size: int) -> dict[str, Any]:
    """On each rank: the median time of an all-reduce of `size` bytes, whether the sum is right, and what torch is."""
    import torch
    import torch.distributed as dist

    from ...models.in_turns import time_in_turns
    from ...runtime.device import device

    tensor = torch.zeros(size // 4, device=device())  # their sum stays zero
    seconds = time_in_turns({"all-reduce": lambda: dist.all_reduce(tensor)}, _TIMES, _WARM_UP)["all-reduce"]
    dist.all_reduce(tensor.fill_(dist.get_rank() + 1))
    total = dist.get_world_size() * (dist.get_world_size() + 1) // 2
    nccl = ".".join(map(str, torch.cuda.nccl.version())) if dist.get_backend() == "nccl" else ""
    return {
        "seconds": median(seconds),
        "right": bool((tensor == total).all()),
        "torch": torch.__version__,
        "nccl": nccl,
    }


def check_builds(answers: list[dict[str, Any]]) -> Line:
    """The builds of torch, and NCCL's versions, which must be one. `answers`: by rank, see `time_all_reduce`."""
    nccl, builds = _by_value(answers, "nccl"), _by_value(answers, "torch")
    text = f"torch {'; '.join(builds)}" + (f"; NCCL {'; '.join(nccl)}" if answers[0]["nccl"] else "; gloo")
    if len(nccl) > 1:
        return Line("builds", "problem", text, "Install the same build of torch on all nodes: it brings its NCCL.")
    if len(builds) > 1:
        return Line("builds", "note", text, "It should work; results may differ in the last digits.")
    return Line("builds", "ok", text)


def check_all_reduce(answers: list[dict[str, Any]], size: int) -> Line:
    """Whether the sum is right, how long it took, and what that is for the network. Arguments as above."""
    num_ranks, seconds = len(answers), max(t["seconds"] for t in answers)
    if wrong := [rank for rank, t in enumerate(answers) if not t["right"]]:
        return Line("all-reduce", "problem", f"the sum is wrong on ranks {', '.join(map(str, wrong))}", _HANGS)
    text = f"{size / 1e6:g} MB over {num_ranks} ranks in {seconds * 1e3:.1f} ms"
    if num_ranks == 1:
        return Line("all-reduce", "ok", text)
    from ...collectives.cost import bus_bandwidth  # loads torch

    bus = bus_bandwidth("all_reduce", num_ranks, size, seconds) / 1e9
    return Line("all-reduce", "ok", f"{text}: bus bandwidth {bus:.3g} GB/s (1 Gb/s Ethernet carries 0.125)")


def _by_value(answers: list[dict[str, Any]], key: str) -> list[str]:
    """["2.13.0"], or with ranks if they differ: ["2.13.0 (ranks 0, 1)", "2.12.1 (ranks 2, 3)"]."""
    ranks_of = by_value({rank: t[key] for rank, t in enumerate(answers)})
    if len(ranks_of) == 1:
        return list(ranks_of)
    return [f"{value} (rank{'s' * bool(ranks[1:])} {', '.join(map(str, ranks))})" for value, ranks in ranks_of.items()]
