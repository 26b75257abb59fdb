"""`dtlearn bench communication_scheduling`: priority, FIFO and torch's DDP on links of three speeds."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ...runtime.machine.cores import load_line
from ...runtime.words import format_seconds
from ..bench import Bench, BenchResult
from ..figures import aligned, size_text
from ..status_line import say
from .words import if_more_than_cores, load_since, met, noisy

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from ...communication_scheduling.policy import GradientPartition
    from ...communication_scheduling.simulate import LaneSpan, LayerTimes, ScheduledStep
    from ...models.in_turns import Times
    from ...runtime.link.link import Link

LINKS = {"slow": (100e-6, 50e6), "middle": (50e-6, 125e6), "fast": (30e-6, 1.25e9)}  # seconds, bytes a second
DRAWN = "middle"
LAYERS, FORWARD, BACKWARD, NBYTES = 8, 0.010, 0.020, 4 << 20  # of the model; seconds and bytes of each layer
PARTITION = 1 << 20
EVEN = 1.02  # times as long, up to which nobody has lost
TO_SIMULATOR = 1.05  # target: a measured step to the simulator's, the fastest round of each
_TIMEOUT = 900.0


@dataclass(frozen=True)
class SchedulingResult(BenchResult):
    """Steps of all ways, measured in turns on each link.

    Attributes:
        ranks: how many.
        layers: times and sizes of the model's layers.
        partition: bytes of a partition in the ways of priority; their credit is one partition.
        steps: {link: {way: seconds of a step, of each round, on its slowest rank}}.
        simulated: {link: {way: seconds of a step}}.
        bounds: {link: seconds that no order can go below}.
        in_order: whether all ranks sent in one order in the last step of each way; FIFO's is from the last layer to the
            first, the planned one the simulator's.
        drawn: {way: spans of rank 0's last step} on one of the links.
        machine: cores and load before and after.
    """

    ranks: int
    layers: LayerTimes
    partition: int
    steps: dict[str, Times]
    simulated: dict[str, dict[str, float]]
    bounds: dict[str, float]
    in_order: bool
    drawn: dict[str, list[LaneSpan]]
    machine: str

    @property
    def ok(self) -> bool:
        """Orders are sure."""
        return self.in_order

    def to_simulator(self, link: str, way: str) -> float:
        """The fastest measured step / the simulated one."""
        return min(self.steps[link][way]) / self.simulated[link][way]

    def gain(self, link: str, way: str, other: str) -> float:
        """How many times as long as the other way: the median over the rounds."""
        from ...models.in_turns import ratio

        return ratio(self.steps[link][way], self.steps[link][other])


def links() -> dict[str, Link]:
    """The three links, by name."""
    from ...runtime.link.link import Link

    return {name: Link(*values) for name, values in LINKS.items()}


def measure(ranks: int, rounds: int, layers: LayerTimes | None = None, partition: int = PARTITION) -> SchedulingResult:
    """Steps of all ways, on one link after the other."""
    from ...communication_scheduling.emulated import transfer_seconds
    from ...communication_scheduling.policy import SchedulingPolicy
    from ...communication_scheduling.simulate import LayerTimes, lower_bound, simulate_step
    from ...models.in_turns import slowest
    from ...runtime.run import run_ranks
    from .on_ranks.communication_scheduling_ways import DDP, DECIDED, FIFO, FIFO_POLICY, PLANNED, STEPS, time_policies

    before = load_line()
    layers = layers or LayerTimes((FORWARD,) * LAYERS, (BACKWARD,) * LAYERS, (NBYTES,) * LAYERS)
    priority = SchedulingPolicy("priority", partition, credit_bytes=1)
    steps: dict[str, Times] = {}
    simulated: dict[str, dict[str, float]] = {}
    bounds, in_order, drawn = {}, True, {}
    for name, link in links().items():
        say(f"{rounds} rounds on the {name} link")
        seconds = transfer_seconds(link, ranks)
        fifo, planned = (simulate_step(layers, policy, seconds) for policy in (FIFO_POLICY, priority))
        orders = {FIFO: fifo.order, PLANNED: planned.order}
        options: dict[str, Any] = {"link": link, "device": "cpu", "timeout": _TIMEOUT}
        found = run_ranks(time_policies, ranks, layers, priority, orders, rounds, **options)
        of_rounds = slowest([one.times for one in found.values])
        steps[name] = {way: tuple(taken / STEPS for taken in of_way) for way, of_way in of_rounds.items()}
        simulated[name] = dict.fromkeys((DDP, FIFO), fifo.makespan) | dict.fromkeys(
            (PLANNED, DECIDED), planned.makespan
        )
        bounds[name] = lower_bound(layers, seconds)
        in_order &= sent_in_order([one.last for one in found.values], orders)
        if name == DRAWN:
            drawn = {way: step.spans for way, step in found[0].last.items()}
    return SchedulingResult(ranks, layers, partition, steps, simulated, bounds, in_order, drawn, load_since(before))


def sent_in_order(
    last: Sequence[Mapping[str, ScheduledStep]], orders: Mapping[str, Sequence[GradientPartition]]
) -> bool:
    """Whether all ranks sent in one order in these steps of theirs, and in that of `orders` where it has the way."""
    sent = [{way: step.order for way, step in of_rank.items()} for of_rank in last]
    return all(of_rank == {**sent[0], **orders} for of_rank in sent)


def table(result: SchedulingResult) -> str:
    """The result for people."""
    layers, ways = result.layers, list(next(iter(result.steps.values())))
    rows = [["step on the link", "no order below", "FIFO simulated", "priority", *ways]]
    for name, link in links().items():
        simulated = [result.simulated[name][way] for way in ways[1:3]]
        medians = [statistics.median(result.steps[name][way]) for way in ways]
        rows.append([f"{name} ({link})", *map(format_seconds, (result.bounds[name], *simulated, *medians))])
    return "\n".join(
        [
            f"{result.ranks} ranks (CPU, gloo), emulated links, emulated layer times: {len(layers.nbytes)} layers, "
            f"{format_seconds(layers.compute)} of computation and {size_text(sum(layers.nbytes))} of gradients a step; "
            f"SGD.{if_more_than_cores(result.ranks)}",
            "A step: backward to the end of the next forward pass. FIFO sends a layer at a time, and forward waits for "
            "all; DDP has a bucket for each layer.",
            f"Priority sends {size_text(result.partition)} at a time, in the order of the simulator (planned) or of "
            "rank 0 (decided).",
            "",
            aligned(rows),
            "",
            aligned(_ratio_rows(result, ways)),
            "",
            *_verdicts(result, ways),
            noisy(result.machine),
        ]
    )


def _ratio_rows(result: SchedulingResult, ways: list[str]) -> list[list[str]]:
    ddp, fifo, *priorities = ways
    rows = [["medians of ratios", "to FIFO", "simulated", "to torch's DDP"]]
    for link, simulated in result.simulated.items():
        for way in priorities:
            to_fifo, to_ddp = (result.gain(link, way, other) for other in (fifo, ddp))
            rows.append(
                [f"{link} link, {way}", *(f"{x:.2f}x" for x in (to_fifo, simulated[way] / simulated[fifo], to_ddp))]
            )
    return rows


def _verdicts(result: SchedulingResult, ways: list[str]) -> list[str]:
    ddp, fifo, planned, _ = ways
    lines = []
    for link in result.steps:
        ratios = [(way, other, result.gain(link, way, other)) for way in ways[2:] for other in (fifo, ddp)]
        lost = ", ".join(f"{way} {found:.2f}x {other}" for way, other, found in ratios if found > EVEN)
        lines.append(f"Where priority loses, {link} link: {lost or 'nowhere'}.")
    near = {(link, way): result.to_simulator(link, way) for link in result.steps for way in (fifo, planned)}
    told = ", ".join(f"{link} {way} {found:.2f}x" for (link, way), found in near.items())
    return [
        *lines,
        f"Fastest round to the simulated step: {told}; target at most {TO_SIMULATOR:.2f}x: "
        f"{met(max(near.values()) <= TO_SIMULATOR)}.",
        f"All ranks sent in one order, and where it was planned in that: {met(result.in_order)}.",
    ]


def values(result: SchedulingResult) -> dict[str, Any]:
    """The result as plain values, seconds throughout."""
    return {
        "ranks": result.ranks,
        "layers": {
            "forward": list(result.layers.forward),
            "backward": list(result.layers.backward),
            "bytes": list(result.layers.nbytes),
        },
        "partition": result.partition,
        "machine": result.machine,
        "targets": {"to simulator": TO_SIMULATOR},
        "in order": result.in_order,
        "measured": [
            {
                "link": link,
                "way": way,
                "simulated": result.simulated[link][way],
                "no order below": result.bounds[link],
                "median": statistics.median(rounds),
                "best": min(rounds),
                "rounds": list(rounds),
            }
            for link, ways in result.steps.items()
            for way, rounds in ways.items()
        ],
    }


def plot(result: SchedulingResult) -> tuple[Figure, str]:
    """The last step of FIFO and of priority on one link, as lanes. And the same in words."""
    from ...viz.communication_scheduling.lanes import communication_lanes

    label = f"rank 0 of {result.ranks}, recorded; {links()[DRAWN].label}; emulated layer times"
    figure = communication_lanes(result.drawn, bound=result.bounds[DRAWN], label=label)
    steps = result.steps[DRAWN]
    words = ", ".join(f"{way} {format_seconds(statistics.median(steps[way]))}" for way in result.drawn)
    return figure, f"Backward, transfers and the next forward pass of one rank as lanes, by policy. A step: {words}."


BENCH = Bench(
    "Gradients sent by priority, first in first out, and by torch's DDP, on emulated links of three speeds.",
    "dtlearn bench communication_scheduling --plot lanes.svg",
    "rounds",
    5,
    measure,
    table,
    values,
    ranks=2,
    plot=plot,
)
