"""`dtlearn bench data_parallel`: a training step averaged naively, by our DDP and by torch's; what overlap is worth."""

from __future__ import annotations

import statistics
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ...runtime.machine.cores import load_line
from ...runtime.words import format_seconds
from ..bench import Bench, BenchResult
from ..figures import aligned
from ..status_line import say
from .words import if_more_than_cores, load_since, noisy

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from ...models.in_turns import Times
    from ...runtime.record.record import Record

LINK = "1 Gb/s"
LINK_BUCKET_MB = 4.0  # a layer of the model; with 25 MiB most of its gradients would leave when backward is over
TO_TORCH, TO_NAIVE = 1.10, 1.3  # targets: ours against torch's without a link; naive against ours on the link
TARGET_FROM = 10_000_000  # parameters
_TIMEOUT = 900.0


@dataclass(frozen=True)
class DataParallelResult(BenchResult):
    """Steps of all kinds, measured in turns.

    Attributes:
        parameters: of the model.
        batch: samples of each rank: with it, forward and backward take about as long as the all-reduce on LINK.
        bare, linked: {kind: seconds of each round, on its slowest rank}, without a link and on LINK.
        machine: cores and load before and after.
        record: a recorded step of each kind on LINK, in a phase of its name.
    """

    ranks: int
    parameters: int
    batch: int
    bare: Times
    linked: Times
    machine: str
    record: Record

    @property
    def ratios(self) -> dict[str, float]:
        """What the targets are about, and the same for torch's on the link."""
        from ...models.in_turns import ratio

        return {
            "ours/torch's": ratio(self.bare["ours"], self.bare["torch's"]),
            "naive/ours on the link": ratio(self.linked["naive"], self.linked["ours"]),
            "ours/torch's on the link": ratio(self.linked["ours"], self.linked["torch's"]),
        }


def measure(ranks: int, rounds: int, sizes: tuple[int, ...] = (1024,) * 11) -> DataParallelResult:
    """Find the batch, then measure without and with a link, then record a step of each kind."""
    from ...data_parallel.measure import Workload, batch_for, record_on_rank, time_on_rank
    from ...models.in_turns import slowest
    from ...runtime.link.link import Link
    from ...runtime.run import run_ranks

    before, link = load_line(), Link.named(LINK)
    work = Workload(sizes)
    options: dict[str, Any] = {"device": "cpu", "timeout": _TIMEOUT}
    backward = 2 / 3 * link.seconds("all_reduce", work.nbytes, ranks)  # forward does half of backward's arithmetic
    say("finding the batch")
    batch = run_ranks(batch_for, ranks, work, backward, **options)[0]
    plain, small = Workload(sizes, batch), Workload(sizes, batch, LINK_BUCKET_MB)
    say(f"{rounds} rounds without a link")
    bare = slowest(run_ranks(time_on_rank, ranks, plain, rounds, **options).values)
    say(f"{rounds} rounds on the link")
    linked = slowest(run_ranks(time_on_rank, ranks, small, rounds, link=link, **options).values)
    say("a step of each kind, recorded")
    record = run_ranks(record_on_rank, ranks, small, link=link, record=True, **options).record
    machine = load_since(before)
    return DataParallelResult(ranks, work.num_parameters, batch, bare, linked, machine, record)


def table(result: DataParallelResult) -> str:
    """The result for people."""
    rounds = len(result.bare["local"])
    more = if_more_than_cores(result.ranks)
    return "\n".join(
        [
            f"{result.ranks} ranks (CPU, gloo), MLP of {result.parameters:,} parameters, {result.batch} samples each; "
            f"forward, backward, SGD.{more}",
            f"{rounds} rounds in turn; medians of the slowest rank. Added: to a local step of the same round.",
            "",
            aligned(_rows("no link, buckets of 25 MiB", result.bare)),
            "",
            aligned(_rows(f"emulated link {LINK}, buckets of {LINK_BUCKET_MB:g} MiB", result.linked)),
            "",
            "Added is exposed communication, and copies into buckets, and cores that transfers and computation share.",
            _of_record(result),
            "",
            *_verdicts(result),
            noisy(result.machine),
        ]
    )


def values(result: DataParallelResult) -> dict[str, Any]:
    """The result as plain values, seconds throughout."""
    from ...data_parallel.measure import added

    measured = [
        {
            "link": link,
            "kind": kind,
            "median": statistics.median(times[kind]),
            "best": min(times[kind]),
            "added": added(times, kind),
            "rounds": list(times[kind]),
        }
        for link, times in ((None, result.bare), (LINK, result.linked))
        for kind in times
    ]
    return {
        "ranks": result.ranks,
        "parameters": result.parameters,
        "batch": result.batch,
        "machine": result.machine,
        "targets": {"ours/torch's": TO_TORCH, "naive/ours on the link": TO_NAIVE},
        "ratios": result.ratios,
        "exposed_in_record": _recorded(result),
        "measured": measured,
    }


def plot(result: DataParallelResult) -> tuple[Figure, str]:
    """The recorded steps on the link, below each other. And the same in words."""
    from ...runtime.record.training_steps import part
    from ...viz.data_parallel.bucket_timeline import bucket_timeline

    found = _recorded(result)
    title = f"One step on {result.ranks} ranks, {result.parameters / 1e6:.1f} million parameters"
    words = "; ".join(f"{kind}: {format_seconds(seconds)} exposed" for kind, seconds in found.items())
    figure = bucket_timeline({kind: part(result.record, kind) for kind in found}, title)
    return figure, f"Computation and all-reduces of a training step over time, by rank; {words}."


def _recorded(result: DataParallelResult) -> dict[str, float]:
    """Exposed seconds of each kind in the recorded step."""
    from ...data_parallel.measure import KINDS, LOCAL
    from ...runtime.record.training_steps import exposed_of_slowest, part

    return {kind: exposed_of_slowest(part(result.record, kind)) for kind in KINDS if kind != LOCAL}


def _of_record(result: DataParallelResult) -> str:
    told = ", ".join(f"{kind} {format_seconds(seconds)}" for kind, seconds in _recorded(result).items())
    return f"In one recorded step on the link, the rank that waited longest waited: {told}."


def _rows(heading: str, times: Times) -> list[list[str]]:
    from ...data_parallel.measure import LOCAL, TORCH, added
    from ...models.in_turns import ratio

    rows = [[heading, "step", "best", "added", "to torch's"]]
    for kind, seconds in times.items():
        both = [format_seconds(statistics.median(seconds)), format_seconds(min(seconds))]
        more = "" if kind == LOCAL else format_seconds(added(times, kind))
        rows.append([kind, *both, more, f"{ratio(times[kind], times[TORCH]):.2f}x"])
    return rows


def _verdicts(result: DataParallelResult) -> list[str]:
    ours, naive, linked = result.ratios.values()
    lines = [
        _verdict("Ours to torch's, no link", ours, f"at most {TO_TORCH:.2f}x", ours <= TO_TORCH, result),
        _verdict(f"Naive to ours, {LINK}", naive, f"at least {TO_NAIVE:.2f}x", naive >= TO_NAIVE, result),
    ]
    return [*lines, f"Ours to torch's, {LINK}: {linked:.2f}x."]


def _verdict(what: str, found: float, target: str, met: bool, result: DataParallelResult) -> str:
    if result.parameters < TARGET_FROM or result.ranks != 2:
        return f"{what}: {found:.2f}x; the target is for 2 ranks and {TARGET_FROM:,} parameters."
    return f"{what}: {found:.2f}x, target {target}: {'met' if met else 'missed'}."


BENCH = Bench(
    "A training step averaged one by one, in buckets, and by torch's DDP; without and with an emulated link.",
    "dtlearn bench data_parallel --plot buckets.svg",
    "rounds",
    9,
    measure,
    table,
    values,
    ranks=2,
    plot=plot,
)
