"""ch09.prefetch: what comes out; then when each gather is launched and waited for; then what is held.

The units are made in `on_rank`, and note each call. What is held is seen by weak references, to the weights and to
what a gather returned, and by the bytes of all tensors, which copies and views of weights add to.
"""

from __future__ import annotations

from typing import Any

import torch

from dtlearn.grading import Case, Check, Edit, Given
from dtlearn.runtime.record.record import Record

from ..sent import no_stores
from . import MAY_HELP

VALUES = ["x", "gathered", "computed", "computed with another weight"]
LAUNCHED = ["launched too early, and how many units ahead", "not launched when the unit depth before it computes"]
WAITED = ["waited for before the unit before it has computed", "never waited for"]
HELD = ["still held when a later one is gathered or computes", "more bytes are held than the weights that may be"]
DEPTH = (
    "when unit i computes, the gathers of units i + 1 to i + depth have been launched, as far as there are such "
    "units, and no later one"
)
SKIPPED = "a unit that this rank skips is gathered and waited for all the same, and leaves x as it is"
# Per case: the number of `units`; `depth`; `skipped`: some are, others on each rank; `look`, what is compared.
CASES: dict[str, dict[str, Any]] = {
    "three units": {},
    "units that are skipped": {"says": SKIPPED, "units": 5, "skipped": True},
    "gathers with depth 1": {"says": DEPTH, "units": 5, "look": LAUNCHED},
    "gathers with depth 0": {"says": DEPTH, "depth": 0, "look": [*VALUES, *LAUNCHED]},
    "gathers with a depth of more than all units": {"says": DEPTH, "depth": 5, "look": [*VALUES, *LAUNCHED]},
    "gathers of skipped units": {"says": DEPTH, "units": 7, "depth": 2, "skipped": True, "look": LAUNCHED},
    "waits": {
        "says": "each unit is waited for, and only when the unit before it has computed",
        "units": 5,
        "skipped": True,
        "look": WAITED,
    },
    "weights that are held": {
        "says": "weights are kept after their use, or copies or views of them, or something else of that size",
        "units": 5,
        "look": HELD,
    },
    "weights that are held, and units that are skipped": {
        "says": "the weight of a unit that is skipped is freed, too, before another one is gathered",
        "units": 7,
        "depth": 2,
        "skipped": True,
        "look": HELD,
    },
}
UNTIL, GATHER = "min(place + depth + 1, len(units))", "on_their_way.append(units[launched].gather())"
WAIT, DELETE = "weight = on_their_way.popleft().wait()", "del weight"
EDITS = (
    Edit("each gather is launched when its unit is needed: nothing is on its way while a unit computes",
         {UNTIL: "place + 1"}),
    Edit("all gathers are launched at first: at most depth units may be gathered ahead", {UNTIL: "len(units)"}),
    Edit("one unit more than depth is gathered ahead", {UNTIL: "min(place + depth + 2, len(units))"}),
    Edit("one unit less than depth is gathered ahead", {UNTIL: "min(max(place + depth, place + 1), len(units))"}),
    Edit("with depth 0 a unit is gathered ahead: none is to be", {UNTIL: "min(place + max(depth, 1) + 1, len(units))"}),
    Edit("each gather is waited for where it is launched, so nothing is on its way while a unit computes",
         {GATHER: GATHER.replace("gather()", "gather().wait()"), WAIT: "weight = on_their_way.popleft()"}),
    Edit("a unit computes with the weight that was gathered last, not with its own", {"popleft": "pop"}),
    Edit("units that this rank skips are computed", {"if not unit.skipped:": "if True:"}),
    Edit("a unit that is skipped is not waited for: its memory is written later, whoever has it then",
         {WAIT: "gathered = on_their_way.popleft(); weight = None if unit.skipped else gathered.wait(); del gathered"}),
    Edit("the weight of a unit is still held when the next one is gathered: let no variable refer to it any more, or "
         "to what gather() returned (del, or a new value), first", {DELETE: "pass"}),
    Edit("the weight of a unit that is skipped is still held when the next one is gathered: free it, too",
         {f"x)\n        {DELETE}": f"x)\n            {DELETE}"}),
    Edit("copies or views of weights that were used are kept",
         {DELETE: "prefetch.kept = [*getattr(prefetch, 'kept', []), weight.clone()]; del weight"}),
)  # fmt: skip


def inputs(case: Case) -> Given:
    g, n, p = case.generator(), case.world_size, case.params
    count, skipped, given = p.get("units", 3), p.get("skipped", False), list[dict[str, Any]]()
    shards = [torch.randn(n, 40 + k % 3, generator=g) / 40 for k in range(count)]
    x = torch.randn(3, generator=g)
    for rank in range(n):
        which = [(k + rank) % 3 == 1 and skipped for k in range(count)]
        own = {"shards": [shard[rank].clone() for shard in shards], "skipped": which, "look": p.get("look", VALUES)}
        given.append({**own, "depth": p.get("depth", 1), "x": x})
    return given


def on_rank(answer: Any, shards: Any, skipped: Any, depth: Any, x: Any, look: Any) -> Any:
    import contextlib
    import time
    import weakref

    from dtlearn.memory.ledger.storage_ledger import StorageLedger

    all_gather: Any = getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor  # type: ignore[name-defined] # noqa: F821
    names = ["gathered", "computed", "computed with another weight", "launched too early, and how many units ahead"]
    names += [
        "not launched when the unit depth before it computes",
        "waited for before the unit before it has computed",
    ]
    names += ["still held when a later one is gathered or computes", "more bytes are held than the weights that may be"]
    notes: Any = {name: [] for name in names}
    gathered, computed, other, early, missing, waited_early, held, heavy = notes.values()
    works, refs, waited, patience = {}, {}, set(), [0.01] * 100  # type: ignore[var-annotated]
    sizes = [4 * len(shard) * dist.get_world_size() for shard in shards]  # type: ignore[name-defined] # noqa: F821

    def done() -> int:
        """The number of units, from the first on, that have computed, or were waited for and skipped."""
        over = [k in (waited if skips else computed) for k, skips in enumerate(skipped)]
        return [*over, False].index(False)

    def look_around(place: int, first: int, most: int) -> None:
        held.extend(k for k, one in refs.items() if k < first and any(ref() is not None for ref in one))
        while ledger is not None and ledger.now > most and patience:  # the backend lets go of a tensor a little later
            time.sleep(patience.pop())
        if ledger is not None and ledger.now > most:
            heavy.append(place)

    class Gathered:
        def __init__(self, place: int) -> None:
            buffer = torch.empty(sizes[place] // 4)
            self.place, works[place] = place, all_gather(buffer, shards[place], async_op=True)
            self.weight = buffer.view(-1)  # an object of its own: whoever else refers to the buffer does not hold this
            refs[place] = [weakref.ref(self), weakref.ref(self.weight)]

        def wait(self) -> Any:
            works[self.place].wait()
            works[self.place] = None
            if self.place > done():
                waited_early.append(self.place)
            waited.add(self.place)
            return self.weight

    class Unit:
        def __init__(self, place: int) -> None:
            def gather() -> Any:
                gathered.append(place)
                if place > done() + depth:
                    early.append([place, place - done()])
                look_around(place, done(), 64 + sum(sizes[max(0, place - depth) : place]))
                return Gathered(place)

            def compute(weight: Any, x: Any) -> Any:
                if place not in refs or refs[place][1]() is not weight:  # type: ignore[operator]
                    other.append(place)
                missing.extend(k for k in range(place + 1, min(place + depth + 1, len(shards))) if k not in refs)
                look_around(place, place, 64 + sum(sizes[place : place + depth + 1]))
                computed.append(place)
                return torch.sin(x + weight.sum()) + weight[0]

            self.gather, self.compute, self.skipped = gather, compute, skipped[place]

    with (
        StorageLedger()
        if "more bytes are held than the weights that may be" in look
        else contextlib.nullcontext() as ledger
    ):
        x = answer([Unit(place) for place in range(len(shards))], depth, x.clone())
        look_around(len(shards), len(shards), 64)
    for work in works.values():
        if work is not None:  # the answer left it
            work.wait()
    notes = {name: sorted({*units}) if "d when" in name else units for name, units in notes.items()}
    notes[names[-1]] = bool(heavy)
    never = [k for k in range(len(shards)) if k not in waited]
    return {name: value for name, value in {**notes, "x": x, "never waited for": never}.items() if name in look}


def expected(case: Case, given: Given) -> list[dict[str, Any]]:
    results = []
    for own in given:
        x = own["x"].double()
        for place, skips in enumerate(own["skipped"]):
            weight = torch.cat([other["shards"][place] for other in given]).double()
            x = x if skips else torch.sin(x + weight.sum()) + weight[0]
        computed = [k for k, skips in enumerate(own["skipped"]) if not skips]
        facts = {"x": x.float(), "gathered": list(range(len(own["skipped"]))), "computed": computed, HELD[1]: False}
        results.append({name: facts.get(name, []) for name in own["look"]})
    return results


def why(case: Case, given: Given, record: Record) -> str:
    """The hint for a run whose calls do not match: the number of units, the depth, and whether ranks skip units."""
    special = "; units that a rank skips are gathered all the same" if any(any(one["skipped"]) for one in given) else ""
    return f"{MAY_HELP}there are {len(given[0]['shards'])} units, and depth is {given[0]['depth']}{special}"


CHECK = Check(
    on_rank,
    inputs,
    expected,
    cases=CASES,
    edits=EDITS,
    why=why,
    reads=[no_stores],
    rtol=1e-4,
    atol=1e-5,
)
