"""ch08.choose_k: several models in a run, with budgets that one byte more or less decides.

What a wrong answer leads to is computed with another peak, another budget or another choice.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from dtlearn.grading import Case, Check, Finding, Given, Mistake, compare
from dtlearn.runtime.record.record import Record

from ..sent import no_silent_rank, no_stores


@dataclass(frozen=True)
class Choice:
    """One k: how many layers are recomputed, and the peak in bytes."""

    k: int
    again: int
    peak: int


Job = dict[str, int]  # the arguments of the answer
Sizes = Callable[[int, int], list[int]]
Peak = Callable[[list[int], int, int], float]
Pick = Callable[[Sequence[Choice], int], Choice | None]


def lengths(num_layers: int, k: int) -> list[int]:
    """Layers of each segment."""
    return [min(k, num_layers - first) for first in range(0, num_layers, k)]


def peak_of(sizes: list[int], layer: int, inside: int) -> int:
    """The most bytes of activations at once: `inside`, of a segment's input, `layer`, of a layer."""
    return max(before * inside + size * layer for before, size in enumerate(sizes))


def fewest_again(fitting: Sequence[Choice], num_layers: int) -> Choice:
    return min(fitting, key=lambda c: (c.again, c.peak))


def choices(job: Job, sizes: Sizes = lengths, peak: Peak = peak_of) -> list[Choice]:
    """All k of a job."""
    n, layer, inside = job["num_layers"], job["layer_bytes"], job["input_bytes"]
    cut = {k: sizes(n, k) for k in range(1, n + 1)}
    return [Choice(k, n - parts[-1], int(peak(parts, layer, inside))) for k, parts in cut.items()]


# Of the rank with the least room, each number of layers with each: "fits", exactly; "less", by one byte; "between".
_SLACKS = ("fits", "less", "between", "fits", "less")
# "tie": of 10 layers k = 2 and k = 4 recompute as many and fit, and the longer segments have the lower peak.
# "alone": of the two only k = 4 fits, exactly; here too large a peak, the smaller k and a rounded room differ.
# "lots": for all activations; "nothing"; "least": exactly for the lowest peak; "below": one byte less.
_CASES: dict[str, dict[str, Any]] = {
    "room for some of the layers": {"layers": (12, 24, 10, 7, 16, 13, 30), "slacks": _SLACKS, "ties": True},
    "one layer, many layers, and no room": {
        "layers": (2, 1, 10, 36),
        "slacks": ("between", "lots", "nothing", "least", "below", "fits", "less"),
    },
}


def _jobs(params: Mapping[str, Any]) -> list[tuple[int, int, str]]:
    """Of each job: its layers, a number, and its slack."""
    also = [(10, 2, "tie"), (10, 2, "tie"), (10, 2, "alone"), (11, 1, "lots")] if params.get("ties") else []
    return [(layers, at, slack) for layers in params["layers"] for at, slack in enumerate(params["slacks"])] + also


def inputs(case: Case) -> Given:
    g = case.generator()

    def number(low: int, high: int) -> int:
        return int(torch.randint(low, high, (), generator=g))

    given: Given = [{"jobs": []} for _ in range(case.world_size)]
    for num_layers, at, slack in _jobs(case.params):
        layer = number(10**9, 3 * 10**9) | 1
        inside = layer * number(12, 18) // 20 if at % 3 == 2 else layer // number(3, 34)
        inside = 3 * layer // 4 if slack in ("tie", "alone") else inside
        while slack == "alone" and (inside + 4 * layer) % 1024 < 800:  # a float32 is rounded up to a multiple of 512
            layer, inside = layer + 2, 3 * (layer + 2) // 4
        job = {"num_layers": num_layers, "layer_bytes": layer, "input_bytes": inside}
        peaks = sorted(choice.peak for choice in choices(job))
        peak = peaks[number(len(peaks) // 4, max(len(peaks) - 1, 1))]
        least = {"lots": 2 * peaks[-1], "nothing": peaks[0] // 2, "least": peaks[0], "below": peaks[0] - 1}
        least |= {"tie": number(5 * layer, 11 * layer // 2), "alone": inside + 4 * layer}
        room = (least | {"fits": peak, "less": peak - 1, "between": peak + layer // 7})[slack]
        who = number(0, case.world_size)
        for rank in range(case.world_size):
            more = 0 if rank == who else number(layer, layer * num_layers + 1)
            given[rank]["jobs"].append({**job, "free_bytes": room + more})
    return given


def on_rank(answer: Any, jobs: Any) -> Any:
    return [answer(**job) for job in jobs]


def title(jobs: Sequence[Job]) -> str:
    """A job, in words; `jobs`: as each rank has it."""
    one, room = jobs[0], [job["free_bytes"] for job in jobs]
    rooms = f"room for {room[0]:,}" if len(set(room)) == 1 else f"room for {', '.join(f'{r:,}' for r in room)} by rank"
    text = f"{one['num_layers']} layers of {one['layer_bytes']:,} bytes (input {one['input_bytes']:,})"
    return f"{text}, {rooms}"


def _at(given: Given) -> list[list[Job]]:
    return [[rank["jobs"][i] for rank in given] for i in range(len(given[0]["jobs"]))]


def _play(
    given: Given,
    pick: Pick = fewest_again,
    room: Callable[[list[int], int], float] = lambda rooms, rank: min(rooms),
    fits: Callable[[int, float], bool] = lambda peak, room: peak <= room,
    result: Callable[[Choice | None], int | None] = lambda choice: choice.k if choice else None,
    **how: Any,
) -> list[dict[str, int | None]]:
    """By rank, what each job leads to."""
    played: list[dict[str, int | None]] = [{} for _ in given]
    for jobs in _at(given):
        name, rooms, tried = title(jobs), [job["free_bytes"] for job in jobs], choices(jobs[0], **how)
        for rank in range(len(given)):
            fitting = [choice for choice in tried if fits(choice.peak, room(rooms, rank))]
            chosen = pick(fitting, jobs[0]["num_layers"]) if fitting else None
            played[rank][name] = result(chosen)
    return played


def expected(case: Case, given: Given) -> list[dict[str, int | None]]:
    return _play(given)


def mistakes(case: Case, given: Given) -> list[Mistake]:
    found = []

    def add(code: str, text: str, **way: Any) -> None:
        found.append(Mistake(f"DTL-VALUE-{code}", text, _play(given, **way)))

    add(
        "BUDGET",
        "each rank chooses by its own free bytes, and ranks with more room choose another k: the segments of all "
        "must be the same",
        room=lambda rooms, rank: rooms[rank],
    )
    for text, room in (
        ("the largest room of all ranks decides, and the others run out of memory", max),
        ("the mean of the ranks' free bytes decides, and those with less run out of memory", _mean),
        ("the sum of the ranks' free bytes decides: each rank keeps the activations of its own data", sum),
        *((f"rank {r}'s room decides for all: the smallest counts", _of(r)) for r in range(case.world_size)),
    ):
        add("BUDGET", text, room=lambda rooms, rank, room=room: room(rooms))
    text = "the free bytes are rounded to a float32, which has 24 binary digits: one byte decides"
    add("FLOAT32", text, room=_float32)
    add("FLOAT32", text, room=_float32, fits=lambda p, r: torch.tensor(float(p)).item() <= r)  # a tensor rounds both
    largest = "the largest k that fits is chosen: with another k the last segment is longer, and fewer layers are "
    add("K-LARGEST", f"{largest}recomputed", pick=lambda fitting, n: fitting[-1])
    add("K-LARGEST", "the smallest k that fits is chosen, not the one that recomputes least", pick=lambda f, n: f[0])
    text = "the k with the lowest peak is chosen: the budget allows to recompute fewer layers"
    add("K-LOWEST", text, pick=lambda fitting, n: min(fitting, key=lambda c: c.peak))
    text = "all layers count as recomputed, but with one segment: the last segment is not recomputed, whatever k is"
    add("K-LAST", text, pick=lambda fitting, n: min(fitting, key=lambda c: (c.again > 0, c.peak)))
    for what, fit in (("wherever it fits", lambda p, r: p <= r), ("whatever the budget is", lambda p, r: True)):
        for rounded in (math.floor, round, math.ceil):
            add("K-ROOT", f"the root of the number of layers is returned {what}", pick=_root(rounded), fits=fit)
    text = "only a k that divides the number of layers is considered: the last segment may be shorter"
    add("DIVISORS", text, pick=_divisors)
    add("STRICT", "a peak of exactly the free bytes is taken for too large: it fits", fits=lambda p, r: p < r)
    add("SHORT-FIRST", "the first segment is the shorter one: it is the last", sizes=lambda n, k: lengths(n, k)[::-1])
    for text, peak in _PEAKS.items():
        add("PEAK", text, peak=peak)
    several = "of the k that recompute the fewest layers, the one with the lowest peak is asked, and "
    text = f"{several}one with the fewest segments is chosen"
    add("K-TIE", text, pick=lambda f, n: min(f, key=lambda c: (len(lengths(n, c.k)), c.peak)))
    add("K-TIE", text, pick=lambda f, n: min(f, key=lambda c: (c.again, -c.k)))
    add("K-TIE", f"{several}the smallest is chosen", pick=lambda f, n: min(f, key=lambda c: (c.again, c.k)))
    for text, result in (
        ("the number of recomputed layers is returned", lambda c: c and c.again),
        ("the peak is returned", lambda c: c and c.peak),
    ):
        add("OTHER-NUMBER", f"{text}: it is k that is asked", result=result)
    return found


def _mean(rooms: Sequence[int]) -> float:
    return sum(rooms) / len(rooms)


def _of(rank: int) -> Callable[[list[int]], int]:
    return lambda rooms: rooms[rank]


def _float32(rooms: list[int], rank: int) -> float:
    return torch.tensor(rooms, dtype=torch.float32).min().item()


def _root(rounded: Callable[[float], int]) -> Pick:
    return lambda fitting, n: replace(fitting[0], k=rounded(math.sqrt(n)))


def _divisors(fitting: Sequence[Choice], n: int) -> Choice | None:
    divisors = [choice for choice in fitting if n % choice.k == 0]
    return fewest_again(divisors, n) if divisors else None


_ALL_AND_ONE = (
    "the peak is computed as all inputs and one whole segment: while backward works on a segment, the inputs of later "
    "ones are freed"
)
_PEAKS: dict[str, Peak] = {
    "the peak counts the input of a segment twice: it is part of its first layer's activations": (
        lambda sizes, layer, inside: max((i + 1) * inside + size * layer for i, size in enumerate(sizes))
    ),
    f"{_ALL_AND_ONE}, and the last may be shorter": lambda sizes, layer, inside: len(sizes) * inside + sizes[0] * layer,
    f"{_ALL_AND_ONE}, and the number of segments is no fraction": (
        lambda sizes, layer, inside: sum(sizes) / sizes[0] * inside + sizes[0] * layer
    ),
    "the peak is computed as the inputs before the last segment and k layers: a last segment with fewer layers has no "
    "such moment": lambda sizes, layer, inside: (len(sizes) - 1) * inside + sizes[0] * layer,
    "the peak is that of the last segment only: the one before it may be longer": (
        lambda sizes, layer, inside: (len(sizes) - 1) * inside + sizes[-1] * layer
    ),
    "the peak is that of the first segment only: later ones come on top of the inputs before them": (
        lambda sizes, layer, inside: sizes[0] * layer
    ),
    "the peak counts the inputs of segments with all bytes of a layer": (
        lambda sizes, layer, inside: max((i + size) * layer for i, size in enumerate(sizes))
    ),
    "the peak adds up the activations of all layers: those of a recomputed segment are there only while backward works "
    "on it": lambda sizes, layer, inside: sum(sizes) * layer,
}


def verify(case: Case, given: Given, got: list[Any], record: Record) -> Finding | None:
    """Compares, with the jobs' descriptions, and says what the k that was returned would lead to."""
    names, right = [title(jobs) for jobs in _at(given)], expected(case, given)
    named = [dict(zip(names, one, strict=True)) for one in got]
    found = compare(_VALUES, case, given, right, named)
    if not found or (found.code not in ("DTL-VALUE", "DTL-VALUE-NONE", "DTL-VALUE-ONE-RANK", "DTL-VALUE-TYPE")):
        return found
    for rank, one in enumerate(named):
        for jobs, name in zip(_at(given), names, strict=True):
            k, wanted = one[name], right[rank][name]
            if k == wanted or not (k is None or type(k) is int):
                continue
            if wanted is None:
                text = f"no k fits, and rank {rank} returned {k}; with the lowest peak is "
                lowest = min(choices(jobs[0]), key=lambda c: c.peak)
                return Finding("DTL-VALUE-K-ANYWAY", f"{name}: {text}{_told(lowest)}", rank)
            best = choices(jobs[0])[wanted - 1]
            if k is None:
                text = f"rank {rank} returned None, and this fits: {_told(best)}"
                return Finding("DTL-VALUE-K-NONE", f"{name}: {text}", rank)
            if not 1 <= k <= jobs[0]["num_layers"]:
                text = f"rank {rank} returned {k:,}, which is no number of layers from 1 to {jobs[0]['num_layers']}"
                return Finding("DTL-VALUE-OTHER-NUMBER", f"{name}: {text}", rank)
            text = f"rank {rank} returned {_told(choices(jobs[0])[k - 1])}; best is {_told(best)}"
            return Finding("DTL-VALUE", f"{name}: {text}", rank)
    return found


def _told(choice: Choice) -> str:
    return f"k = {choice.k} (recomputes {choice.again} layers, peak {choice.peak:,})"


_VALUES = Check(on_rank, inputs, expected, cases=_CASES, mistakes=mistakes)
CHECK = replace(
    _VALUES,
    expected=None,
    verify=verify,
    rules=[no_silent_rank(least_calls=lambda case, given: len(given[0]["jobs"]))],
    calls=lambda case: len(_jobs(case.params)),
    reads=[no_stores],
)
