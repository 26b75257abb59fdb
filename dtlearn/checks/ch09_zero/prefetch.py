"""ch09.prefetch: several lists of units; in which order each rank gathered, waited and computed, and what it held.

The units are made in `on_rank`, and note each call. What is held is seen by weak references, to the weights and to
what a gather returned, and by the bytes of all tensors, which copies and views of weights add to.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist

from dtlearn.grading import Case, Check, Finding, Given, difference
from dtlearn.runtime.record.record import Record

from ..sent import no_stores
from . import MAY_HELP

# Units, depth, and of which kind the skipped ones are: none, others on each rank, or all of this rank's.
_JOBS = ((5, 1, ""), (4, 0, ""), (7, 2, ""), (6, 1, "some"), (3, 5, ""), (9, 4, "some"), (1, 1, ""), (4, 1, "all"))
_OTHER = 64  # bytes of x, before and after a unit; a weight has at least twice as many


def inputs(case: Case) -> Given:
    g, n = case.generator(), case.world_size
    given: Given = [{"jobs": []} for _ in range(n)]
    order = [0, *(1 + k for k in torch.randperm(len(_JOBS) - 1, generator=g).tolist())]
    for count, depth, kind in (_JOBS[k] for k in order):
        x, shards = torch.randn(3, generator=g), [torch.randn(n, 40 + k % 3, generator=g) / 40 for k in range(count)]
        sizes = [shard.nbytes for shard in shards]  # and what may be held when unit k is gathered, and when it computes
        most = {
            "gather": [_OTHER + sum(sizes[max(0, k - depth) : k]) for k in range(count)],
            "compute": [_OTHER + sum(sizes[k : k + depth + 1]) for k in range(count)],
            "end": _OTHER,
        }
        for rank in range(n):
            some = [(k + rank) % 3 == 1 for k in range(count)]
            skipped = some if kind == "some" else [kind == "all" and rank == n - 1] * count
            units = [shard[rank].clone() for shard in shards]
            job = {"shards": units, "skipped": skipped, "depth": depth, "x": x, "most": most}
            given[rank]["jobs"].append(job)
    return given


def on_rank(answer: Any, jobs: Any) -> Any:
    import time
    import weakref

    from dtlearn.memory.ledger.storage_ledger import StorageLedger

    all_gather: Any = getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor
    notes: Any = []
    known: Any = {}

    works: Any = {}
    patience = [0.01] * 150  # seconds; who keeps something is not waited for at each event

    def bytes_held(most: int) -> int:
        while ledger.now > most and patience:  # the backend lets go of a tensor a little after its call
            time.sleep(patience.pop())
        return int(ledger.now)

    class Gathered:
        def __init__(self, place: int, shard: Any, events: Any) -> None:
            buffer = torch.empty(len(shard) * dist.get_world_size())
            self.place, self.events, self.work = place, events, all_gather(buffer, shard, async_op=True)
            self.weight = buffer.view(-1)  # an object of its own: whoever else refers to the buffer does not hold this
            works[place] = self.work
            known[place] = [weakref.ref(self), weakref.ref(self.weight)]

        def wait(self) -> Any:
            self.work.wait()
            works[self.place] = None
            self.events.append(["wait", self.place])
            return self.weight

    class Unit:
        def __init__(self, place: int, shard: Any, skipped: bool, events: Any, most: Any) -> None:
            def held() -> Any:
                return sorted(p for p, refs in known.items() if any(ref() is not None for ref in refs))

            def gather() -> Any:
                events.append(["gather", place, held(), bytes_held(most["gather"][place])])
                return Gathered(place, shard, events)

            def compute(weight: Any, x: Any) -> Any:
                of = [p for p, refs in known.items() if refs[1]() is weight]
                events.append(["compute", place, of, held(), bytes_held(most["compute"][place])])
                return torch.sin(x + weight.sum()) + weight[0]

            self.gather, self.compute, self.skipped = gather, compute, skipped

    for job in jobs:
        events: Any = []
        known.clear()
        parts = zip(job["shards"], job["skipped"], strict=True)
        units = [Unit(place, *part, events, job["most"]) for place, part in enumerate(parts)]
        with StorageLedger() as ledger:
            x = answer(units, job["depth"], job["x"].clone())
            notes.append({"x": x, "events": events, "left": bytes_held(job["most"]["end"])})
        for work in works.values():
            if work is not None:  # the answer left it
                work.wait()
        works.clear()
    return notes


def _right(given: Given, rank: int, k: int) -> torch.Tensor:
    job = given[rank]["jobs"][k]
    x: torch.Tensor = job["x"].double()
    for place, skipped in enumerate(job["skipped"]):
        weight = torch.cat([i["jobs"][k]["shards"][place] for i in given]).double()
        x = x if skipped else torch.sin(x + weight.sum()) + weight[0]
    return x.float()


def _told(job: dict[str, Any]) -> str:
    skipped = [str(place) for place, skips in enumerate(job["skipped"]) if skips]
    text = f"{len(job['skipped'])} unit{'s' * (len(job['skipped']) != 1)}, depth {job['depth']}"
    return text + (f", {', '.join(skipped)} skipped here" if skipped else "")


def verify(case: Case, given: Given, got: list[Any], record: Record) -> Finding | None:
    for rank, notes in enumerate(got):
        for k, (job, note) in enumerate(zip(given[rank]["jobs"], notes, strict=True)):
            if found := _order(job, note["events"], note["left"]):
                return Finding(found[0], f"{_told(job)}: {found[1]}", rank)
            if wrong := difference(_right(given, rank, k), note["x"], 1e-4, 1e-5, "x"):
                return Finding(wrong.code, f"{_told(job)}: {wrong.text}", rank)
    return None


def _order(job: dict[str, Any], events: list[Any], left_over: int) -> tuple[str, str] | None:
    """The first thing that is not in order, with its code."""
    depth, skipped, most, count = job["depth"], job["skipped"], job["most"], len(job["skipped"])
    launched, waited, computed = 0, set[int](), set[int]()
    never = {*range(count)} - {event[1] for event in events if event[0] == "gather"}
    if never and all(skipped[place] for place in never):
        text = f"unit {min(never)} is never gathered on this rank, which skips it: all ranks launch the same gathers, "
        return "DTL-RULE-GATHERS", f"{text}also those that are skipped"
    passed = 0  # units that have computed, or were waited for and skipped
    for event in events:
        what, place = event[:2]
        if what == "gather":
            if place != launched:
                why = "once" if place < launched else "in the order of the list, also those that are skipped"
                after = f"after unit {launched - 1}" if launched else "first"
                return "DTL-RULE-GATHERS", f"unit {place} is gathered {after}: each is gathered {why}"
            if held := [p for p in event[2] if p < passed]:
                text = f"the weight of unit {held[0]} is still held when unit {place} is gathered: {_FREE}"
                return "DTL-RULE-WEIGHT-HELD", text
            if place > passed + depth:
                text = f"unit {place} is gathered before {_done(passed, skipped)}: that is {place - passed} units ahead"
                return "DTL-RULE-TOO-FAR", f"{text}, and at most {depth} may be"
            if event[3] > most["gather"][place]:
                return "DTL-RULE-WEIGHT-HELD", _bytes(f"when unit {place} is gathered", event[3], most["gather"][place])
            launched += 1
        elif what == "wait":
            if place > passed:
                text = f"unit {place} is waited for before {_done(passed, skipped)}: the gather was to go on meanwhile"
                return "DTL-RULE-WAIT-EARLY", text
            waited.add(place)
        else:
            if place != passed or skipped[place]:
                text = "is skipped on this rank, and was computed" if skipped[place] else f"computed, not unit {passed}"
                return "DTL-VALUE-ORDER", f"unit {place} {text}"
            if event[2] != [place]:
                whose = f"that of unit {event[2][0]}" if event[2] else "not what its gather().wait() returned"
                return "DTL-VALUE-OTHER-WEIGHT", f"the weight that unit {place} computed with is {whose}"
            if held := [p for p in event[3] if p < place]:
                text = f"the weight of unit {held[0]} is still held when unit {place} computes: {_FREE}"
                return "DTL-RULE-WEIGHT-HELD", text
            if launched < (need := min(place + depth + 1, count)):
                text = f"when unit {place} computes, the gather of unit {need - 1} has not been launched: with depth "
                return "DTL-RULE-NO-PREFETCH", f"{text}{depth} it goes on meanwhile"
            if event[4] > most["compute"][place]:
                return "DTL-RULE-WEIGHT-HELD", _bytes(f"when unit {place} computes", event[4], most["compute"][place])
            computed.add(place)
        while passed < count and passed in (waited if skipped[passed] else computed):
            passed += 1
    if launched < count:
        return "DTL-RULE-GATHERS", f"unit {launched} was never gathered: the other ranks wait for this one"
    if left := [place for place in range(count) if place not in waited]:
        text = f"unit {left[0]} was gathered and never waited for: its memory is written later, whoever has it then"
        return "DTL-RULE-NOT-WAITED", text
    if passed < count:
        return "DTL-VALUE-ORDER", f"unit {passed} never computed"
    if left_over > most["end"]:
        return "DTL-RULE-WEIGHT-HELD", _bytes("at the end", left_over, 0)
    return None


def _done(place: int, skipped: list[bool]) -> str:
    return f"unit {place}{', which this rank skips, was waited for' if skipped[place] else ' has computed'}"


def _bytes(when: str, held: int, most: int) -> str:
    text = f"{when}, {held:,} bytes of tensors are held"
    text += f", and the weights that may be there have {most - _OTHER:,}" if most > _OTHER else ", and no weight may be"
    return f"{text}: copies or views of weights that were used are kept, or something else that was not asked for"


_FREE = "let no variable refer to it any more, or to what gather() returned (del, or a new value), first"


def why(case: Case, given: Given, record: Record) -> str:
    """Of a run whose calls do not fit together: what is special in it."""
    return f"{MAY_HELP}a unit that this rank skips is gathered all the same" if case.world_size > 1 else ""


CHECK = Check(on_rank, inputs, None, verify=verify, why=why, calls=lambda case: len(_JOBS), reads=[no_stores])
