"""One graded run of a learner's answer, as it can be drawn: its record, and that of the model answer after a pass."""

import json
from dataclasses import asdict, dataclass, replace
from typing import Any, Self

from ..runtime.record.event import Event
from ..runtime.record.record import Record

MOST_EVENTS = 400  # of all ranks; a picture of more shows nothing


@dataclass(frozen=True)
class OwnRun:
    """What is drawn below a verdict."""

    # case, world_size: of the run
    case: str
    world_size: int
    code: str  # what was wrong; "" after a pass
    record: Record  # the answer's calls
    # model: the model answer's, with the same inputs; None if there was a fault, or no solution to compare with
    model: Record | None = None

    def to_json(self) -> str:
        models = None if self.model is None else _pack(self.model)
        parts = {"case": self.case, "world_size": self.world_size, "code": self.code}
        return json.dumps({**parts, "record": _pack(self.record), "model": models})

    @classmethod
    def from_json(cls, text: str) -> Self:
        parts: dict[str, Any] = json.loads(text)
        model = parts["model"]
        return cls(**{**parts, "record": _unpack(parts["record"]), "model": None if model is None else _unpack(model)})


def shortened(record: Record) -> Record:
    """A record of at most `MOST_EVENTS` calls: each rank's first, or its last where some call never returned."""
    if len(record) <= MOST_EVENTS:
        return record
    each = MOST_EVENTS // record.world_size
    kept: list[Event] = []
    for rank in range(record.world_size):
        own = record.select(rank=rank).events
        kept += own[-each:] if record.unfinished() else own[:each]
    which = "last" if record.unfinished() else "first"
    return replace(record, events=tuple(kept), label=f"{record.label}, the {which} {each} calls of each rank")


def _pack(record: Record) -> dict[str, Any]:
    """The record as plain values, without phases and marks, of which nothing is drawn."""
    return asdict(replace(record, spans=(), marks=()))


def _unpack(parts: dict[str, Any]) -> Record:
    events = [Event(**{**e, "shape": None if e["shape"] is None else tuple(e["shape"])}) for e in parts["events"]]
    return Record(**{**parts, "events": tuple(events), "spans": (), "marks": ()})
