"""ch06.partition_with_credit: one part at a time first; then what credit lets out, and what it holds back."""

from __future__ import annotations

import math
from typing import Any

from dtlearn.communication_scheduling.policy import SchedulingPolicy, partitions_of
from dtlearn.communication_scheduling.simulate import play_sends
from dtlearn.grading import Case, Check, Edit, Given, rules
from dtlearn.runtime.record.record import Record

from . import MAY_HELP

# Of each case: arguments; a partition has 4 bytes, and a byte takes half a second, if it does not say otherwise.
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
    Edit("a gradient that becomes ready when a transfer ends is left out at this moment: it is ready (<=, not <)",
         {TAKE: "there = [one for one in sizes if ready[one[0]] <= now]\n        "
                "chosen = min([one for one in there if ready[one[0]] < now] or there)"}),
    Edit("a layer of 0 bytes is launched as a part of its own", {PARTS: "max(1, -(-n // partition))"}),
    Edit("a layer of 0 bytes is waited for: it has no part",
         {NOW: f"{NOW}\n        now = max([now] + [at for at, n in zip(ready, nbytes) if n == 0 and order])"}),
)  # fmt: skip


def inputs(case: Case) -> Given:
    p = case.params
    same = {"seconds_per_byte": 0.5, "partition": 4}
    return [{"ready": p["ready"], "nbytes": p["nbytes"], **same, "credit": p["credit"]}] * case.world_size


def on_rank(answer: Any, **arguments: Any) -> Any:
    order = answer(**arguments)
    if not isinstance(order, list | tuple):
        return order
    return [tuple(pair) if isinstance(pair, list) else pair for pair in order]


def expected(case: Case, given: Given) -> list[Any]:
    """By the package's own simulator."""
    own = given[0]
    credit = None if own["credit"] == math.inf else own["credit"]
    policy = SchedulingPolicy("priority", own["partition"], credit)
    partitions = partitions_of(own["nbytes"], own["partition"])
    sends = play_sends(partitions, own["ready"], policy, lambda nbytes: nbytes * own["seconds_per_byte"])
    return [[(send.partition.layer, send.partition.number) for send in sends]] * case.world_size


def why(case: Case, given: Given, record: Record) -> str:
    """Of a run that raised: with what."""
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
