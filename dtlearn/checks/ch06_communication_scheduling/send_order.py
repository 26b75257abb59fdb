"""ch06.send_order: links that find one gradient, several, and none; then ties, branches and frozen layers."""

from __future__ import annotations

import heapq
from typing import Any

from dtlearn.grading import Case, Check, Edit, Given, rules
from dtlearn.runtime.record.record import Record

from . import MAY_HELP

# Per case: the arguments.
CASES: dict[str, dict[str, Any]] = {
    "gradients wait for the link": {"ready": [2.5, 2.0, 1.5, 1.0], "transfer": [1.0, 2.0, 3.0, 6.0]},
    "the link waits for gradients": {
        "says": "the link takes what is ready when it is free, and does not wait for a more urgent gradient",
        "ready": [6.0, 4.0, 2.0],
        "transfer": [1.0, 1.0, 1.0],
    },
    "now the one, now the other": {
        "says": "what is ready when the link is free depends on all transfers before it: follow the time",
        "ready": [9.0, 5.0, 4.0, 2.0, 1.0],
        "transfer": [2.0, 3.0, 2.5, 0.5, 3.5],
    },
    "ready at the moment when the link is free": {
        "says": "a gradient that becomes ready at the moment when the link is free may be taken",
        "ready": [3.0, 2.0, 1.0],
        "transfer": [1.0, 1.0, 2.0],
    },
    "branches": {
        "says": "gradients need not become ready from the last layer to the first: ready says when",
        "ready": [6.0, 1.0, 5.0, 2.0, 2.5],
        "transfer": [1.0, 2.0, 1.0, 1.0, 1.0],
    },
    "ready at the same time": {
        "says": "gradients may become ready at the same time, at 0 too: the lowest layer is first, none is lost",
        "ready": [2.0, 0.0, 2.0, 0.0],
        "transfer": [1.0, 0.25, 1.0, 2.25],
    },
    "frozen layers": {
        "says": "a layer whose ready is None is not sent, and has no part in what is ready next",
        "ready": [None, 4.0, 1.0, None, 2.0],
        "transfer": [1.0, 2.0, 1.5, 9.0, 1.0],
    },
    "all layers are frozen": {
        "says": "where all layers are frozen nothing is sent: the list is empty",
        "ready": [None, None],
        "transfer": [1.0, 1.0],
    },
}
WAITING = "waiting = {layer: at for layer, at in enumerate(ready) if at is not None}"
FREE, TAKEN = (
    "now = max(now, min(waiting.values()))",
    "layer = min(layer for layer, at in waiting.items() if at <= now)",
)
BUSY = "        now += transfer[layer]\n"
EDITS = (
    Edit("the order is FIFO: take the lowest layer of all that have become ready while a transfer was under way",
         {TAKEN: "layer = min(waiting, key=lambda layer: (waiting[layer], -layer))"}),
    Edit("the order is that of the layers: a gradient that is not ready cannot be sent",
         {TAKEN: "layer = min(waiting)"}),
    Edit("after the first transfer the layers are sent in their order, as if all were ready by then",
         {TAKEN: f"{TAKEN[:-1]} or order)"}),
    Edit("of what is ready, the highest layer is taken: the forward pass begins with layer 0",
         {TAKEN: TAKEN.replace("min(layer", "max(layer")}),
    Edit("of what is ready, the gradient that is sent in the shortest time is taken: the lowest layer is more urgent",
         {TAKEN: "layer = min((n for n, at in waiting.items() if at <= now), key=transfer.__getitem__)"}),
    Edit("of what is ready, the gradient that takes longest is taken: the lowest layer is more urgent",
         {TAKEN: "layer = max((n for n, at in waiting.items() if at <= now), key=transfer.__getitem__)"}),
    Edit("the next one is chosen when a transfer starts: choose when it has ended, something more urgent may be ready",
         {BUSY: "        now, free = max(now, free), max(now, free) + transfer[layer]\n",
          "order, now = [], 0.0": "order, now, free = [], 0.0, 0.0"}),
    Edit("every transfer takes 1 second: that of a layer takes transfer[layer]", {BUSY: "        now += 1.0\n"}),
    Edit("the link is free transfer seconds after the gradient was ready: it starts later if the link is busy",
         {BUSY: "        now = ready[layer] + transfer[layer]\n"}),
    Edit("the transfers are added up without the time in which the link waits",
         {FREE: "at_least = min(waiting.values())",
         TAKEN: "layer = min(layer for layer, at in waiting.items() if at <= max(now, at_least))"}),
    Edit("a gradient that becomes ready at the moment when the link is free is left out: it is ready (<=, not <)",
         {TAKEN: "layer = min(n for some in (0, 1) for n, at in waiting.items() "
                 "if at < now or some and not any(at < now for at in waiting.values()) and at == now)"}),
    Edit("where a gradient is ready, those of all layers above it are taken to be ready: with branches they need not "
         "be", {WAITING: f"{WAITING}\n    least = lambda n: min(waiting[m] for m in waiting if m <= n)\n    "
                        "waiting = {n: least(n) for n in waiting}"}),
    Edit("a frozen layer is sent: it has no gradient",
         {WAITING: "waiting = {layer: 0.0 if at is None else at for layer, at in enumerate(ready)}"}),
    Edit("the transfer of a frozen layer keeps the link busy: it has no gradient, and is not sent",
         {"return order": "return [n for n in order if ready[n] is not None]",
          WAITING: "waiting = {layer: 0.0 if at is None else at for layer, at in enumerate(ready)}"}),
    Edit("the layers are numbered without the frozen ones: return their numbers in the list",
         {WAITING: "kept = [n for n, at in enumerate(ready) if at is not None]\n    ready, transfer = "
                   "[ready[n] for n in kept], [transfer[n] for n in kept]\n    waiting = dict(enumerate(ready))"}),
    Edit("of gradients that become ready at the same time, while the link waits, the highest layer is taken",
         {TAKEN: "first = max((n for n, at in waiting.items() if at == now), default=0)\n        layer = first if "
                 "min(waiting.values()) == now else " + TAKEN[8:]}),
    Edit("of gradients that become ready at the same time one is sent: a dict with the times as keys keeps one of them",
         {WAITING: "waiting = {n: at for at, n in {at: n for n, at in enumerate(ready) if at is not None}.items()}"}),
    Edit("a gradient that is ready at 0 is not sent: 0 is a time, None is none",
         {"if at is not None": "if at"}),
)  # fmt: skip


def inputs(case: Case) -> Given:
    return [{"ready": case.params["ready"], "transfer": case.params["transfer"]}] * case.world_size


def on_rank(answer: Any, ready: Any, transfer: Any) -> Any:
    return answer(ready, transfer)


def expected(case: Case, given: Given) -> list[list[int]]:
    """The order in which gradients leave a heap of those that wait, filled as time goes on."""
    ready, transfer = given[0]["ready"], given[0]["transfer"]
    coming = sorted((at, layer) for layer, at in enumerate(ready) if at is not None)
    heap, order, now = list[int](), list[int](), 0.0
    while coming or heap:
        if not heap:
            now = max(now, coming[0][0])
        while coming and coming[0][0] <= now:
            heapq.heappush(heap, coming.pop(0)[1])
        order.append(heapq.heappop(heap))
        now += transfer[order[-1]]
    return [order] * case.world_size


def why(case: Case, given: Given, record: Record) -> str:
    """The hint for a run that raised: the arguments of the call."""
    return f"{MAY_HELP}it was called with {', '.join(f'{name} = {value}' for name, value in given[0].items())}"


CHECK = Check(
    on_rank,
    inputs,
    expected,
    cases=CASES,
    edits=EDITS,
    example=[{"ready": [4.0, 3.0, 1.0], "transfer": [1.0, 2.0, 4.0]}],
    why=why,
    rules=[rules.most_messages("0")],
)
