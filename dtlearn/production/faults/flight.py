"""PyTorch's flight recorder, read after a hang: which rank misses which collective call.

Each process keeps its latest collectives in a ring buffer of `TORCH_FR_BUFFER_SIZE` entries: 2000 by default in
torch 2.13, while older releases kept none; 0 switches it off.
`torch._C._distributed_c10d._dump_fr_trace()` gives it as a pickle, with any backend. It needs a live process, and a
thread that is not stuck itself: here that of the heartbeat. torch's own reader of such dumps is the command
`torchfrtrace`; it wants files of all ranks, written by NCCL's watchdog.
"""

from __future__ import annotations

import pickle
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

BUFFER_VARIABLE = "TORCH_FR_BUFFER_SIZE"


class FlightCall(NamedTuple):
    """One collective in a rank's flight recorder.

    Attributes:
        group: torch's name of the process group; "0" is the default one.
        number: of the call in its group, from 1.
        op: such as "all_reduce".
        shapes: of the tensors handed in.
        done: whether the recorder says that it is over. gloo's calls of Python code are marked so when they return.
    """

    group: str
    number: int
    op: str
    shapes: tuple[tuple[int, ...], ...]
    done: bool


class MissingCall(NamedTuple):
    """A call that some ranks of a group made and others did not.

    Attributes:
        group, number, op: of the call.
        made, missing: ranks that made it, and that did not.
        unheard: ranks of which there is no dump.
    """

    group: str
    number: int
    op: str
    made: tuple[int, ...]
    missing: tuple[int, ...]
    unheard: tuple[int, ...]

    def __str__(self) -> str:
        waiting = f"{_names(self.made)} {'waits' if len(self.made) == 1 else 'wait'} in it"
        missing = f"{_names(self.missing)} did not call it" if self.missing else ""
        unheard = f"{_names(self.unheard)} left no dump" if self.unheard else ""
        tail = "; ".join(filter(None, (waiting, missing, unheard)))
        return f"{self.op} #{self.number} of group {self.group}: {tail}"


def dump_trace() -> bytes:
    """This process's flight recorder, pickled; b"" if this torch has none. Any thread may call it."""
    from torch._C import _distributed_c10d

    dump: Any = getattr(_distributed_c10d, "_dump_fr_trace", None)
    return bytes(dump(includeCollectives=True, includeStackTraces=False, onlyActive=False)) if dump else b""


def read_trace(dump: bytes) -> list[FlightCall]:
    """The collectives of a dump, in the order of their calls. The dump must be one of our own: it is a pickle."""
    entries = pickle.loads(dump).get("entries", []) if dump else []
    return [
        FlightCall(
            str(entry["process_group"][0]),
            int(entry["collective_seq_id"]),
            str(entry["profiling_name"]).rpartition(":")[2],
            tuple(tuple(shape) for shape in entry["input_sizes"]),
            bool(entry.get("retired")) or entry["state"] == "completed",
        )
        for entry in sorted(entries, key=lambda e: e["record_id"])
        if not entry["is_p2p"]
    ]


def missing_calls(calls: Mapping[int, Sequence[FlightCall]], world_size: int) -> list[MissingCall]:
    """The first call in each group that not all ranks made.

    Collectives of a group pair up by their number, so the rank whose number is lowest is the one that the others wait
    for. Ranks are taken to be in all groups that the dumps name.

    Args:
        calls: {rank: its collectives}, of the ranks that left a dump.
        world_size: ranks of the job.
    """
    numbers: dict[str, dict[int, dict[int, str]]] = defaultdict(lambda: defaultdict(dict))
    for rank, of_rank in calls.items():
        for call in of_rank:
            numbers[call.group][rank][call.number] = call.op
    unheard = tuple(rank for rank in range(world_size) if rank not in calls)
    found = []
    for group, by_rank in sorted(numbers.items()):
        reached = {rank: max(by_rank.get(rank, {0: ""})) for rank in calls}
        last = min(reached.values())
        ahead = tuple(rank for rank, number in reached.items() if number > last)
        if ahead:
            behind = tuple(rank for rank, number in reached.items() if number == last)
            found.append(MissingCall(group, last + 1, by_rank[ahead[0]].get(last + 1, "?"), ahead, behind, unheard))
        elif unheard and any(not call.done and call.number == last for c in calls.values() for call in c):
            found.append(MissingCall(group, last, by_rank[min(by_rank)][last], tuple(calls), (), unheard))
    return found


def _names(ranks: Sequence[int]) -> str:
    return f"{'rank' if len(ranks) == 1 else 'ranks'} {', '.join(map(str, ranks))}"
