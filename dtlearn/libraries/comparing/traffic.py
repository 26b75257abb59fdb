"""What a rank sent in a step, by kind of call: rows made of a record."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from dtlearn.runtime.record.record import Record
from dtlearn.runtime.record.training_steps import part

REPORT = "report"  # the mean of the losses, for us
SAME_PHASE = {"step": "update"}  # torch's own word, of an optimizer inside a library's update


@dataclass(frozen=True)
class Traffic:
    """The calls of one kind that a rank made in a step.

    Attributes:
        phase: "forward", "backward", "update", or "" for calls outside of them.
        op: name in `torch.distributed`.
        group_size: ranks of the group that calls; of a message 2.
        dtype: of the payload, such as "float32"; "" if there is none.
        reduce_op: such as "SUM"; "" where nothing is reduced.
        sizes: payload bytes of each call, in order: what this rank hands in.
    """

    phase: str
    op: str
    group_size: int
    dtype: str
    reduce_op: str
    sizes: tuple[int, ...]

    @property
    def calls(self) -> int:
        return len(self.sizes)

    @property
    def nbytes(self) -> int:
        """Payload bytes of all these calls."""
        return sum(self.sizes)

    @property
    def wire_bytes(self) -> float:
        """Bytes that a rank sends for them, on average over its group, if every collective is a ring (chapter 2)."""
        n, size = self.group_size, self.nbytes
        if self.op in ("all_gather_into_tensor", "all_gather"):
            return float(size * (n - 1))  # the payload is one shard
        if self.op == "all_reduce":
            return 2 * size * (n - 1) / n
        if self.op in ("reduce_scatter_tensor", "reduce_scatter", "reduce", "broadcast", "all_to_all_single"):
            return size * (n - 1) / n
        return float(size) if self.op in ("send", "isend") else 0.0


def traffic(record: Record, step: str, rank: int) -> tuple[Traffic, ...]:
    """What a rank called in the phase `step`, a row for each kind, in the order of its first call."""
    kinds: dict[tuple[str, str, int, str, str], list[int]] = {}
    for event in part(record, step).select(rank=rank):
        phase = SAME_PHASE.get(event.phase, event.phase)
        if phase == REPORT:
            continue
        size = 2 if event.is_p2p else group_size(event.group, record.world_size)
        reduce_op = event.detail.get("reduce_op", "") if "reduce" in event.op else ""
        kind = ("" if phase == step else phase, event.op, size, event.dtype or "", reduce_op)
        kinds.setdefault(kind, []).append(event.nbytes)
    return tuple(Traffic(*kind, sizes=tuple(sizes)) for kind, sizes in kinds.items())


def group_size(group: str, world_size: int) -> int:
    """Ranks of an event's group: "world", or "0,2"."""
    return group.count(",") + 1 if group not in ("world", "unknown") else world_size


def total_wire_bytes(rows: Iterable[Traffic]) -> float:
    """Bytes that a rank sends in a step, all kinds together."""
    return sum(row.wire_bytes for row in rows)
