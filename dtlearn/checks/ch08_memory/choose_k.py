"""ch08.choose_k: of each chain of layers the rooms in which another k is best, by one byte where that decides."""

from __future__ import annotations

from typing import Any

import torch

from dtlearn.grading import Case, Check, Edit, Given
from dtlearn.memory import segment_peak

from ..sent import no_silent_rank, no_stores

NONE = "return None on all ranks if no k fits"
LEAST = "the least room of all ranks decides, and all return the same k"
# Per case: `layers`; `share`, of a layer's bytes that are its input; `rooms`: how they lie to the peaks of all k;
# `scale`, about how many bytes a layer has; `more`, whether other ranks have more room than one of them.
CASES: dict[str, dict[str, Any]] = {
    "room to spare": {"layers": 7, "rooms": "between"},
    "exactly the room that a k needs": {"says": "a peak of exactly free_bytes fits", "layers": 7, "rooms": "exactly"},
    "too little room": {"says": NONE, "layers": 10, "share": 0.75, "rooms": "below"},
    "as many layers to recompute": {
        "says": "of several k that recompute the fewest layers take the one with the lowest peak",
        "layers": 10,
        "share": 0.75,
        "rooms": "between",
    },
    "ranks with more room than others": {
        "says": LEAST,
        "layers": 5,
        "rooms": "between",
        "more": "layers",
        "sizes": (2, 4),
    },
    "a smaller k that does not fit": {  # k = 2 recomputes less than k = 3, and needs more room
        "says": f"{LEAST}. Agree on the room: the smallest of the k that the ranks choose need not fit on each",
        "layers": 10,
        "share": 0.64,
        "rooms": "exactly",
        "more": "the next peak",
        "sizes": (2, 4),
    },
    "too little room on one rank": {
        "says": f"{NONE}: a rank without room takes part in what the ranks agree on, as the others wait for it",
        "layers": 7,
        "rooms": "below",
        "more": "layers",
        "sizes": (2, 4),
    },
    "many bytes": {
        "says": "numbers of bytes are whole and up to 10^12, and one byte decides: a float32 has 24 binary digits",
        "layers": 10,
        "rooms": "exactly",
        "scale": 3 * 10**10,
    },
}
TENSOR, REDUCE = "torch.tensor(free_bytes)  # int64", "dist.all_reduce(least, op=dist.ReduceOp.MIN)"
SIZES = "for first in range(0, num_layers, k)]"
PEAK = "max(before * input_bytes + size * layer_bytes for before, size in enumerate(sizes))"
FITS, NOTED = "if peak <= least:", "(num_layers - sizes[-1], peak, k)"
BEST, RETURN = "min(fitting)[2]", "return min(fitting)[2] if fitting else None"
ROOT = "the root of the number of layers is returned: which k recomputes the fewest layers is another question"
ROOTS = ("round(num_layers**0.5)", "int(num_layers**0.5)", "-int(-(num_layers**0.5) // 1)")
CHEN = "min(range(1, num_layers + 1), key=lambda k: num_layers / k * input_bytes + k * layer_bytes)"
ALL_INPUTS = (
    "the peak is computed as the inputs of all segments and one whole segment: while backward works on a segment, the "
)
ALL_INPUTS += "inputs of later ones are freed"
FLOAT32 = "the free bytes are rounded to a float32, which has 24 binary digits: one byte decides"
TIE = "of the k that recompute the fewest layers, the one with the lowest peak is expected, and the {} is chosen"
EDITS = (
    Edit("each rank chooses by its own free bytes, and ranks with more room choose another k: the segments of all must "
         "be the same", {REDUCE: "pass"}),
    Edit("each rank chooses the best k for its own room, and the smallest of these is taken: it need not fit on every "
         "rank, nor recompute the fewest layers of those that do. Agree on the room, then choose",
         {REDUCE: "pass", RETURN: "own = torch.tensor(min(fitting)[2] if fitting else 0); "
          "dist.all_reduce(own, op=dist.ReduceOp.MIN)\n    return own.item() or None"}),
    Edit("each rank chooses the best k for its own room, and the largest of these is taken: agree on the room, then "
         "choose", {REDUCE: "pass", RETURN: "own = torch.tensor(min(fitting)[2] if fitting else 0); "
          "dist.all_reduce(own, op=dist.ReduceOp.MAX)\n    return own.item() or None"}),
    Edit("the largest room of all ranks decides, and the others run out of memory",
         {REDUCE: REDUCE.replace("MIN", "MAX")}),
    Edit("the sum of the ranks' free bytes decides: each rank keeps the activations of its own data",
         {REDUCE: "dist.all_reduce(least)"}),
    Edit("the mean of the ranks' free bytes decides, and those with less run out of memory",
         {REDUCE: "dist.all_reduce(least); least //= dist.get_world_size()"}),
    Edit("rank 0's room decides for all: the smallest counts", {REDUCE: "dist.broadcast(least, 0)"}),
    Edit(FLOAT32, {TENSOR: "torch.tensor(float(free_bytes))"}),
    Edit(FLOAT32, {TENSOR: "torch.tensor(float(free_bytes))", FITS: "if peak <= least.item():"}),
    Edit("the largest k that fits is chosen: with another k the last segment may be longer, and fewer layers are "
         "recomputed", {BEST: "fitting[-1][2]"}),
    Edit("the smallest k that fits is chosen, not the one that recomputes the fewest layers", {BEST: "fitting[0][2]"}),
    Edit("the k with the lowest peak is chosen: the budget allows to recompute fewer layers",
         {BEST: "min(fitting, key=lambda one: one[1])[2]"}),
    Edit("all layers count as recomputed, but with one segment: the last segment is not recomputed, whatever k is",
         {NOTED: "(num_layers if len(sizes) > 1 else 0, peak, k)"}),
    Edit("the k with the fewest segments is chosen: it is the number of recomputed layers that counts, and of several "
         "k with as many the one with the lowest peak", {NOTED: "(len(sizes), peak, k)"}),
    Edit(TIE.format("smallest"), {NOTED: "(num_layers - sizes[-1], k, k)"}),
    Edit(TIE.format("largest"), {NOTED: "(num_layers - sizes[-1], -k, k)"}),
    *(Edit(ROOT, {BEST: root}) for root in ROOTS),
    *(Edit(ROOT, {RETURN: f"return next((k for *_, k in fitting if k == {root}), None)"}) for root in ROOTS),
    *(Edit(f"{ROOT}, and it may not fit", {RETURN: f"return {root}"}) for root in ROOTS),
    Edit("the k with the lowest peak by Chen's formula is returned, whatever room there is",
         {RETURN: f"return {CHEN}"}),
    Edit("only a k that divides the number of layers is considered: the last segment may be shorter",
         {FITS: "if num_layers % k == 0 and peak <= least:"}),
    Edit("k = num_layers is not considered: one segment of all layers recomputes nothing",
         {"range(1, num_layers + 1)": "range(1, max(num_layers, 2))"}),
    Edit("a peak of exactly the free bytes is taken for too large: it fits", {FITS: "if peak < least:"}),
    Edit("the first segment is the shorter one: it is the last", {SIZES: f"{SIZES}[::-1]"}),
    Edit("the peak counts the input of a segment twice: it is part of its first layer's activations",
         {PEAK: PEAK.replace("before *", "(before + 1) *")}),
    Edit(ALL_INPUTS, {PEAK: "len(sizes) * input_bytes + k * layer_bytes"}),
    Edit(ALL_INPUTS, {PEAK: "num_layers / k * input_bytes + k * layer_bytes"}),
    Edit("the peak is computed as the inputs before the last segment and k layers: a last segment with fewer layers "
         "has no such moment", {PEAK: "(len(sizes) - 1) * input_bytes + k * layer_bytes"}),
    Edit("the peak is that of the last segment only: the one before it may be longer",
         {PEAK: "(len(sizes) - 1) * input_bytes + sizes[-1] * layer_bytes"}),
    Edit("the peak is that of the first segment only: later ones come on top of the inputs before them",
         {PEAK: "sizes[0] * layer_bytes"}),
    Edit("the peak is that of the first segment or of the last: the one before the last is as long as the first, and "
         "comes on top of more inputs",
         {PEAK: "max(sizes[0] * layer_bytes, (len(sizes) - 1) * input_bytes + sizes[-1] * layer_bytes)"}),
    Edit("the moment of the last segment is left out: backward begins with it, on top of the inputs of all others",
         {PEAK: PEAK.replace("(sizes))", "(sizes[:-1] or sizes))")}),
    Edit("the peak counts the inputs of segments with all bytes of their layers",
         {PEAK: "max((before * k + size) * layer_bytes for before, size in enumerate(sizes))"}),
    Edit("the peak counts the inputs of segments with all bytes of a layer",
         {PEAK: "max((before + size) * layer_bytes for before, size in enumerate(sizes))"}),
    Edit("no k fits, and k = 1 is returned: None is expected", {RETURN: f"{RETURN[:-4]}1"}),
    Edit("the number of recomputed layers is returned: k is expected", {BEST: "min(fitting)[0]"}),
    Edit("the peak is returned: k is expected", {BEST: "min(fitting)[1]"}),
)  # fmt: skip


def inputs(case: Case) -> Given:
    g, p = case.generator(), case.params

    def number(low: float, high: float) -> int:
        return int(torch.randint(int(low), int(high), (), generator=g))

    layer = 2 * number(p.get("scale", 200) / 2, p.get("scale", 200)) + 1
    inside = int(layer * p.get("share", 0.1))
    job = {"num_layers": p["layers"], "layer_bytes": layer, "input_bytes": inside}
    peaks = sorted({segment_peak(p["layers"], k, layer, inside) for k in range(1, p["layers"] + 1)})
    rooms = {
        "between": [(a + b) // 2 for a, b in zip(peaks, [*peaks[1:], 2 * peaks[-1]], strict=True) if b - a > 1],
        "exactly": peaks if "more" in p else [peaks[0], *(peak - less for peak in peaks[1:] for less in (1, 0))],
        "below": [peaks[0] // 2, peaks[0] - 1],
    }[p["rooms"]]
    free = [list(rooms) for _ in range(case.world_size)]
    for at, room in enumerate(rooms):
        following = next((other for other in rooms[at:] if other > room), 2 * room)
        for rank in {*range(case.world_size)} - {number(0, case.world_size)}:
            more = {"": 0, "layers": number(layer, 4 * layer), "the next peak": following - room}[p.get("more", "")]
            free[rank][at] += more
            while more and free[rank][at] in (*free[rank][:at], *rooms):  # each room once
                free[rank][at] += 1
    return [{**job, "free_bytes": own} for own in free]


def on_rank(answer: Any, num_layers: int, layer_bytes: int, input_bytes: int, free_bytes: Any) -> Any:
    layers = f"{num_layers} layers of {layer_bytes:,} bytes, of which {input_bytes:,} are the input"
    return {f"{layers}, free_bytes={room:,}": answer(num_layers, layer_bytes, input_bytes, room) for room in free_bytes}


def expected(case: Case, given: Given) -> list[dict[str, int | None]]:
    own = given[0]
    n, rooms = own["num_layers"], zip(*(one["free_bytes"] for one in given), strict=True)
    peaks = {k: segment_peak(n, k, own["layer_bytes"], own["input_bytes"]) for k in range(1, n + 1)}
    fitting = [[k for k in peaks if peaks[k] <= min(of_ranks)] for of_ranks in rooms]
    # The last segment has n % k of the n layers, or k if that is 0.
    best = [min(ks, key=lambda k: (n - (n % k or k), peaks[k]), default=None) for ks in fitting]
    return [dict(zip(on_rank(max, **one), best, strict=True)) for one in given]


CHECK = Check(
    on_rank,
    inputs,
    expected,
    cases=CASES,
    edits=EDITS,
    example=[{"num_layers": 5, "layer_bytes": 10, "input_bytes": 1, "free_bytes": [room]} for room in (36, 25)],
    # Where no rank has room, each can know without a call that None is right.
    rules=[no_silent_rank(lambda case, given: case.params["rooms"] != "below" and len(given[0]["free_bytes"]))],
    calls=lambda case: len(inputs(case)[0]["free_bytes"]),
    reads=[no_stores],
)
