"""`dtlearn bench expert_parallel`: all-to-all beside all-gather and beside all experts on each rank, by routing."""

from __future__ import annotations

import statistics
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from ...runtime.machine.cores import load_line
from ...runtime.words import format_seconds
from ..bench import Bench, BenchResult
from ..figures import aligned
from ..status_line import say
from .on_ranks.expert_parallel_ways import (
    ALL_HERE,
    NAIVE,
    REAL,
    ROUTINGS,
    WAYS,
    MixtureWork,
    OnceFound,
    mixture_steps,
    once_on_rank,
)
from .words import if_more_than_cores, load_since, noisy

if TYPE_CHECKING:
    from ...expert_parallel import MixtureCall
    from ...models.in_turns import Times
    from ...runtime.record.record import Record

LINK = (50e-6, 50e6)  # latency, bandwidth: on it rows travel about as long as they are computed
_WARM = 2
_TIMEOUT = 900.0


class OfRouting(NamedTuple):
    """What was measured with one routing.

    Attributes:
        bare: {way: seconds of each round, on its slowest rank}, without a link.
        linked: the same on LINK.
        handed: {way: bytes that each rank hands in}, as recorded.
        formula: of the same.
        leaving: {way: bytes that leave the rank that sends most}, by the formula.
        load: rows at each rank's experts.
        apart: largest difference of an output or a gradient of the input between two ways.
    """

    bare: Times
    linked: Times
    handed: dict[str, list[int]]
    formula: dict[str, list[int]]
    leaving: dict[str, int]
    load: list[int]
    apart: float

    def ratio(self, way: str, other: str, *, linked: bool = False) -> float:
        """How many times as long as the other way: the median over the rounds."""
        from ...models.in_turns import ratio

        times = self.linked if linked else self.bare
        return ratio(times[way], times[other])


@dataclass(frozen=True)
class ExpertParallelResult(BenchResult):
    """A mixture's forward and backward pass.

    Attributes:
        ranks: how many, ep.
        where: what the ranks ran on, such as "gloo on CPU".
        work: the mixture and its tokens, in words.
        by_routing: for each of `ROUTINGS`.
        machine: cores and load before and after.
    """

    ranks: int
    where: str
    work: str
    by_routing: dict[str, OfRouting]
    machine: str

    @property
    def ok(self) -> bool:
        """Sure are the bytes, and that all ways compute the same; times are noisy."""
        return all(f.handed == f.formula and f.apart < 1e-4 for f in self.by_routing.values())


def measure(ranks: int, rounds: int, work: MixtureWork | None = None) -> ExpertParallelResult:
    """Bytes and seconds of each routing; all on the CPU."""
    from ...expert_parallel import ExpertGPTConfig
    from ...models.in_turns import slowest
    from ...runtime.link.link import Link
    from ...runtime.run import run_ranks

    work = work or MixtureWork(ExpertGPTConfig(hidden_size=128, num_experts=4 * ranks), tokens=256)
    options: dict[str, Any] = {"device": "cpu", "timeout": _TIMEOUT}
    before, by_routing = load_line(), {}
    say(f"{rounds} rounds without a link")
    bare = slowest(run_ranks(time_on_rank, ranks, work, rounds, **options).values)
    say(f"{rounds} rounds on the link")
    linked = slowest(run_ranks(time_on_rank, ranks, work, rounds, link=Link(*LINK), **options).values)
    for routing in ROUTINGS:
        say(f"{routing}: bytes")
        run = run_ranks(once_on_rank, ranks, work, routing, record=True, **options)
        handed = {way: [handed_in(run.record, way, rank) for rank in range(ranks)] for way in (REAL, NAIVE)}
        calls = calls_of_ways(work, run.values)
        by_routing[routing] = OfRouting(
            {way: bare[name_of(routing, way)] for way in WAYS},
            {way: linked[name_of(routing, way)] for way in WAYS},
            handed,
            {way: [sum(call.nbytes for call in of_rank) for of_rank in of_way] for way, of_way in calls.items()},
            {way: max(sum(call.sent for call in of_rank) for of_rank in of_way) for way, of_way in calls.items()},
            rows_at_ranks(run.values),
            max(found.apart for found in run.values),
        )
    config = work.config
    words = (
        f"hidden size {config.hidden_size}, {config.num_experts} experts, {config.top_k} of them for each of "
        f"{work.tokens} tokens of a rank"
    )
    return ExpertParallelResult(ranks, run.placement.where, words, by_routing, load_since(before))


def time_on_rank(work: MixtureWork, rounds: int) -> Times:
    """On each rank: seconds of a mixture in all ways, with all routings, in turns."""
    from ...models.in_turns import time_in_turns

    steps = {name_of(r, way): step for r in ROUTINGS for way, step in mixture_steps(work, r).items()}
    return time_in_turns(steps, rounds, _WARM)


def name_of(routing: str, way: str) -> str:
    """The name under which a way with a routing is timed."""
    return f"{routing}, {way}"


def handed_in(record: Record, way: str, rank: int) -> int:
    """Bytes that a rank hands in, in a phase of the record."""
    from ...runtime.record.training_steps import part

    return sum(call.nbytes for call in part(record, way).select(rank=rank) if call.op != "barrier")


def rows_at_ranks(found: list[OnceFound]) -> list[int]:
    """Rows that each rank's experts get, of all ranks."""
    local = len(found[0].load) // len(found)
    totals = [sum(own.load[e] for own in found) for e in range(len(found[0].load))]
    return [sum(totals[rank * local : (rank + 1) * local]) for rank in range(len(found))]


def calls_of_ways(work: MixtureWork, found: list[OnceFound]) -> dict[str, list[list[MixtureCall]]]:
    """The collectives that each rank is to make, from the routing that happened; fp32."""
    from ...expert_parallel import dispatch_calls, gathered_calls

    ranks, loads = len(found), [own.load for own in found]
    real = [dispatch_calls(loads, rank, work.config.hidden_size, 4) for rank in range(ranks)]
    naive = gathered_calls(work.tokens, work.config, ranks, 4, 4)
    return {REAL: real, NAIVE: [naive] * ranks}


def table(result: ExpertParallelResult) -> str:
    """The result for people."""
    rounds = len(result.by_routing[ROUTINGS[0]].bare[REAL])
    lines = [
        f"{result.where}, {result.ranks} ranks, one mixture: {result.work}; forward and backward, {rounds} rounds in "
        f"turn; medians of the slowest rank.{if_more_than_cores(result.ranks)}",
        f"{ALL_HERE}: each rank has every expert, and sends nothing; as many rows in all.",
    ]
    for routing, found in result.by_routing.items():
        lines += ["", f"{routing}: the busiest rank has {busiest(found):.2f} times the mean of rows", ""]
        lines.append(aligned(_rows(found)))
    return "\n".join([*lines, "", *_verdicts(result), noisy(result.machine)])


def busiest(found: OfRouting) -> float:
    """Rows of the busiest rank to the mean."""
    return max(found.load) * len(found.load) / sum(found.load)


def _rows(found: OfRouting) -> list[list[str]]:
    link = f"link {8 * LINK[1] / 1e6:.0f} Mb/s"
    rows = [["", "no link", f"to {ALL_HERE}", link, f"to {ALL_HERE}", "most bytes sent by a rank"]]
    for way in WAYS:
        cells = []
        for linked, times in ((False, found.bare), (True, found.linked)):
            cells += [
                format_seconds(statistics.median(times[way])),
                f"{found.ratio(way, ALL_HERE, linked=linked):.2f}x",
            ]
        rows.append([way, *cells, f"{found.leaving.get(way, 0):,}"])
    return rows


def _verdicts(result: ExpertParallelResult) -> list[str]:
    from ...models.in_turns import ratio

    apart = max(found.apart for found in result.by_routing.values())
    unequal = [routing for routing, found in result.by_routing.items() if found.handed != found.formula]
    even, skewed = (result.by_routing[routing] for routing in ROUTINGS)
    won = ", ".join(
        f"{routing} {found.ratio(REAL, NAIVE):.2f}x, on the link {found.ratio(REAL, NAIVE, linked=True):.2f}x"
        for routing, found in result.by_routing.items()
    )
    slower = [ratio(skewed.bare[way], even.bare[way]) for way in (REAL, ALL_HERE)]
    return [
        f"Outputs and gradients of all ways: {'equal' if apart < 1e-4 else f'up to {apart:.2g} apart'}.",
        f"Bytes: {'not those of the formula: ' + ', '.join(unequal) if unequal else 'equal to the formula'}.",
        f"All-to-all to all-gather: {won}.",
        f"Skewed to balanced: all-to-all {slower[0]:.2f}x, {ALL_HERE} {slower[1]:.2f}x.",
    ]


def values(result: ExpertParallelResult) -> dict[str, Any]:
    """The result as plain values, seconds throughout."""
    return {
        "ranks": result.ranks,
        "where": result.where,
        "work": result.work,
        "machine": result.machine,
        "routings": {
            routing: {
                "apart": f.apart,
                "handed in": f.handed,
                "formula": f.formula,
                "sent": f.leaving,
                "load": f.load,
                "busiest": busiest(f),
            }
            for routing, f in result.by_routing.items()
        },
        "measured": [
            {
                "routing": routing,
                "link": link,
                "way": way,
                "median": statistics.median(seconds),
                "rounds": list(seconds),
            }
            for routing, found in result.by_routing.items()
            for link, times in ((None, found.bare), (list(LINK), found.linked))
            for way, seconds in times.items()
        ],
    }


BENCH = Bench(
    "A mixture of experts by all-to-all, all-gather, and with all experts on each rank; balanced and skewed routing.",
    "dtlearn bench expert_parallel",
    "rounds",
    7,
    measure,
    table,
    values,
)
