"""The second source: what PyTorch's own flight recorder has noted of this rank's collectives.

Runs on the ranks. The recorder is filled by the process groups themselves, so it also has what no wrapper sees. Its
functions are private and differ between versions of torch: where they are missing, nothing is told. It knows no
messages of gloo (send, recv), and it can be asked only while the rank lives.
"""

import contextlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..faults.diagnosis import describe_call
from ..record.event import Event
from ..record.operations import OPERATIONS


@dataclass(frozen=True)
class TraceEntry:
    """One collective in the flight recorder."""

    op: str  # name in `torch.distributed` as far as the backend tells it, such as "all_reduce"
    seq: int  # its number in its group, from 1
    group: str  # torch's name of the group; "0" is the default one
    shapes: tuple[tuple[int, ...], ...]  # of what was handed in
    done: bool  # whether torch has taken it off its list

    def __str__(self) -> str:
        group = [] if self.group == "0" else [f"group {self.group}"]
        end = "done" if self.done else "under way"
        return " ".join([f"{self.op} #{self.seq}", *map(str, self.shapes), *group, end])


def recent() -> list[dict[str, Any]] | None:
    """The latest eight collectives of this rank, as plain data; None if this torch has no recorder for this backend."""
    entries = None
    with contextlib.suppress(ImportError, AttributeError, RuntimeError, TypeError, ValueError):
        from torch._C import _distributed_c10d

        private: Any = _distributed_c10d
        entries = json.loads(private._dump_fr_trace_json(includeCollectives=True, onlyActive=False)).get("entries")
    if not entries:
        return None
    latest = sorted(entries, key=lambda e: e.get("record_id", 0))[-8:]
    return [
        {
            "op": str(e.get("profiling_name", "")).rpartition(":")[2],
            "seq": e.get("p2p_seq_id") if e.get("is_p2p") else e.get("collective_seq_id"),
            "group": str((e.get("process_group") or ["?"])[0]),
            "shapes": e.get("input_sizes") or [],
            "done": bool(e.get("retired")) or e.get("state") == "completed",
        }
        for e in latest
    ]


def entry(fields: Mapping[str, Any]) -> TraceEntry:
    """An entry as a rank tells it."""
    return TraceEntry(**{**fields, "seq": fields["seq"] or 0, "shapes": tuple(map(tuple, fields["shapes"]))})


def differs(calls: Sequence[Event], entries: Sequence[TraceEntry]) -> str:
    """Where the call log and the flight recorder do not agree on a rank's last collective; "" if they do."""
    logged = [e for e in calls if not e.is_p2p and e.op not in _BENEATH]
    if not logged or not entries:
        return ""
    mine, other = logged[-1], entries[-1]
    under_way = mine.end_ns is None and "raised" not in mine.detail
    if other.op.strip("_") not in _SPELLINGS.get(mine.op, (mine.op,)):
        return f"the flight recorder's last collective is {other}, that of the call log {describe_call(mine)}"
    if under_way == other.done and not mine.asynchronous:
        return f"{mine.op} has {'not ' if under_way else ''}returned by the call log; the flight recorder has: {other}"
    return ""


# Operations of Python that are built of others.
_BENEATH = frozenset(name for name, operation in OPERATIONS.items() if not operation.payload) - {"barrier"}
# What the backends call it: gloo makes an all_reduce of a reduce_scatter.
_SPELLINGS = {
    "all_gather_into_tensor": ("all_gather", "_all_gather_base", "all_gather_into_tensor", "all_gather_base"),
    "all_gather": ("all_gather", "_all_gather_base", "all_gather_base"),
    "reduce_scatter_tensor": ("reduce_scatter", "_reduce_scatter_base", "reduce_scatter_base", "all_reduce"),
    "reduce_scatter": ("reduce_scatter", "reduce_scatter_base", "all_reduce"),
    "all_to_all_single": ("all_to_all", "all_to_all_single", "all_to_all_base"),
    "all_to_all": ("all_to_all", "all_to_all_single"),
    "barrier": ("barrier", "all_reduce"),
}
