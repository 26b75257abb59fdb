"""ch06.partition_with_credit: one part at a time first; then what credit lets out, and what it holds back."""

from __future__ import annotations

import math
from typing import Any

from dtlearn.communication_scheduling.policy import SchedulingPolicy, partitions_of
from dtlearn.communication_scheduling.simulate import play_sends
from dtlearn.grading import Case, Check, Edit, Given, rules
from dtlearn.runtime.record.record import Record

from . import MAY_HELP

# Per case: the arguments; `USUAL` has those that it does not name.
USUAL: dict[str, Any] = {"seconds_per_byte": 0.5, "partition": 4}
CASES: dict[str, dict[str, Any]] = {
    "one part at a time": {"ready": [3.5, 3.0, 0.0], "nbytes": [8, 8, 12], "credit": 1},
    "a last part that is smaller": {
        "says": "the last part of a layer has the bytes that are left, and takes so much less time",
        "ready": [5.5, 2.25, 0.0],
        "nbytes": [5, 9, 6],
        "credit": 1,
    },
    "ready at the moment when a transfer ends": {
        "says": "a gradient that becomes ready at the moment when a transfer ends is ready",
        "ready": [4.0, 2.0, 0.0],
        "nbytes": [4, 8, 12],
        "credit": 1,
    },
    "two parts in flight": {
        "says": "with more credit a part is launched while another one is being sent, and what is launched cannot be "
        "overtaken",
        "ready": [3.0, 1.0, 0.0],
        "nbytes": [8, 12, 16],
        "credit": 6,
    },
    "as many bytes in flight as the credit": {
        "says": "a part is launched while fewer bytes than the credit are in flight, not while as many are",
        "ready": [5.0, 3.0, 0.0],
        "nbytes": [4, 12, 20],
        "credit": 8,
    },
    "the link waits for gradients": {
        "says": "when nothing is ready the link waits for the next gradient, and goes on from that time",
        "ready": [11.0, 9.0, 0.0],
        "nbytes": [4, 16, 8],
        "credit": 5,
    },
    "another partition, another link": {
        "says": "a part has as many bytes as partition says, and a byte takes as long as seconds_per_byte says",
        "ready": [2.0, 0.0],
        "nbytes": [4, 5],
        "seconds_per_byte": 1.0,
        "partition": 3,
        "credit": 2,
    },
    "layers that are smaller than a part": {
        "says": "a layer that is smaller than a part is one part, which takes so much less time",
        "ready": [0.0, 2.5, 1.5],
        "nbytes": [1, 2, 1],
        "seconds_per_byte": 1.0,
        "credit": 2,
    },
    "small parts in flight": {
        "says": "the credit is a number of bytes: a smaller part in flight counts with the bytes that it has",
        "ready": [0.25, 0.0, 0.0],
        "nbytes": [1, 5, 1],
        "credit": 8,
    },
    "credit is left": {
        "says": "while credit is left, what becomes ready is launched at that moment, not when a transfer ends",
        "ready": [1.75, 0.0, 0.5],
        "nbytes": [2, 4, 2],
        "credit": 7,
    },
    "a part of which half is sent": {
        "says": "a part is in flight with all its bytes until its transfer has ended",
        "ready": [1.75, 0.0, 1.0],
        "nbytes": [1, 4, 1],
        "credit": 4,
    },
    "no limit": {
        "says": "with credit math.inf every part is launched as soon as it is ready, in any order of the layers",
        "ready": [1.0, 0.0, 1.0],
        "nbytes": [8, 16, 8],
        "credit": math.inf,
    },
    "a layer with nothing to send": {
        "says": "a layer of 0 bytes has no part, and nobody waits until it is ready",
        "ready": [6.0, 9.0, 3.0, 1.0, 0.0],
        "nbytes": [4, 0, 8, 0, 8],
        "credit": 1,
    },
}
SIZE, PARTS, CHOSEN = "min(partition, n - part * partition)", "-(-n // partition)", "min(one for one in sizes if"
TAKE = f"chosen = {CHOSEN} ready[one[0]] <= now)"
HELD, FREE, FLIES = (
    "sum(size for _, size in in_flight) >= credit",
    "free = max(now, free) + size",
    "append((free, size))",
)
NOW, APPEND = "now = max(now, min(ready[layer] for layer, _ in sizes))", "order.append(chosen)"
EDITS = (
    Edit("the order is FIFO, as if what became ready first were the most urgent, or as if no credit held parts back",
         {CHOSEN: "min((one for one in sizes if", "<= now)": "<= now), key=lambda p: (ready[p[0]], p))"}),
    Edit("of what is ready, the part of the highest layer is launched: the forward pass begins with layer 0",
         {CHOSEN: "min((one for one in sizes if", "<= now)": "<= now), key=lambda p: (-p[0], p[1]))"}),
    Edit("the parts of a layer follow each other without a break: before each launch look for something more urgent",
         {CHOSEN: "min(one for one in sizes if order and one[0] == order[-1][0] or not any(order and two[0] == "
                  "order[-1][0] for two in sizes) and"}),
    Edit("the layers take turns, part by part: all parts of the lowest layer that is ready come first",
         {CHOSEN: "min((one for one in sizes if", "<= now)": "<= now), key=lambda p: (p[1], p[0]))"}),
    Edit("of a layer the last part is launched first: begin with part 0",
         {CHOSEN: "min((one for one in sizes if", "<= now)": "<= now), key=lambda p: (p[0], -p[1]))"}),
    Edit("the parts are numbered from 1: the first one of a layer is part 0",
         {APPEND: "order.append((chosen[0], chosen[1] + 1))"}),
    Edit("the last part of a layer is missing if it is smaller: round the number of parts up",
         {PARTS: "n // partition"}),
    Edit("the smaller part takes as long as a whole one", {SIZE: "partition"}),
    Edit("only one part is in flight, whatever the credit is", {HELD: "in_flight"}),
    Edit("the credit counts parts: it is a number of bytes", {HELD: "len(in_flight) >= credit"}),
    Edit("a part is launched only if it fits into the credit: it is while fewer bytes are in flight, so that the last "
         "one may go beyond", {HELD: "in_flight and sum(s for _, s in in_flight) + sizes[min(one for one in sizes if "
                                     "ready[one[0]] <= now)] > credit"}),
    Edit("a part is launched while exactly as many bytes as the credit are in flight: fewer have to be",
         {HELD: HELD.replace(">=", ">")}),
    Edit("the parts in flight are sent at the same time: the link sends one after the other",
         {FREE: "free = now + size"}),
    Edit("the link is taken for busy from 0 on: after a pause it goes on when the next part is launched",
         {FREE: "free = free + size"}),
    Edit("a part takes one second for each byte: it takes seconds_per_byte", {"size * seconds_per_byte": "size"}),
    Edit("a byte takes half a second, whatever the link is: it takes seconds_per_byte",
         {"size * seconds_per_byte": "size * 0.5"}),
    Edit("a part has 4 bytes, whatever partition says",
         {SIZE: "min(4, n - part * 4)", PARTS: "-(-n // 4)"}),
    Edit("a layer that is smaller than a part is missing: it is one part",
         {PARTS: "n >= partition and -(-n // partition)"}),
    Edit("a layer that is smaller than a part takes as long as a whole part",
         {SIZE: "min(partition, max(n, partition) - part * partition)"}),
    Edit("in flight a smaller part counts as a whole one: the credit is a number of bytes",
         {HELD: "partition * len(in_flight) >= credit"}),
    Edit("a part is launched only when a transfer ends, once the link is busy: it is launched when it is ready, if "
         "credit is left",
         {NOW: NOW.replace("now = max(now, ", "first = (") + "\n        now = in_flight.pop(0)[0] if in_flight and "
               "first > now else max(now, first)\n        if first > now:\n            continue"}),
    Edit("the bytes that are sent already are no longer counted as in flight: a part is, until its transfer has ended",
         {HELD: "free - now >= credit * seconds_per_byte"}),
    Edit("a gradient that becomes ready when a transfer ends is left out at this moment: it is ready (<=, not <)",
         {TAKE: "there = [one for one in sizes if ready[one[0]] <= now]\n        "
                "chosen = min([one for one in there if ready[one[0]] < now] or there)"}),
    Edit("a layer of 0 bytes is launched as a part of its own", {PARTS: "max(1, -(-n // partition))"}),
    Edit("a layer of 0 bytes is waited for: it has no part",
         {NOW: f"{NOW}\n        now = max([now] + [at for at, n in zip(ready, nbytes) if n == 0 and order])"}),
)  # fmt: skip


def inputs(case: Case) -> Given:
    p = {**USUAL, **case.params}
    names = ("ready", "nbytes", "seconds_per_byte", "partition", "credit")
    return [{name: p[name] for name in names}] * case.world_size


def on_rank(answer: Any, **arguments: Any) -> Any:
    order = answer(**arguments)
    if not isinstance(order, list | tuple):
        return order
    return [tuple(pair) if isinstance(pair, list) else pair for pair in order]


def expected(case: Case, given: Given) -> list[Any]:
    """The sends in order, as the package's own simulator plays them."""
    own = given[0]
    credit = None if own["credit"] == math.inf else own["credit"]
    policy = SchedulingPolicy("priority", own["partition"], credit)
    partitions = partitions_of(own["nbytes"], own["partition"])
    sends = play_sends(partitions, own["ready"], policy, lambda nbytes: nbytes * own["seconds_per_byte"])
    return [[(send.partition.layer, send.partition.number) for send in sends]] * case.world_size


def why(case: Case, given: Given, record: Record) -> str:
    """The hint for a run that raised: the arguments of the call."""
    return f"{MAY_HELP}it was called with {', '.join(f'{name} = {value}' for name, value in given[0].items())}"


CHECK = Check(
    on_rank,
    inputs,
    expected,
    cases=CASES,
    edits=EDITS,
    example=[{"ready": [2.0, 0.0], "nbytes": [2, 5], "seconds_per_byte": 1.0, "partition": 2, "credit": 1}],
    why=why,
    rules=[rules.most_messages("0")],
)
