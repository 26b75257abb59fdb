"""`dtlearn bench link`: does a call on the emulated link take the time of its formula, and does it overlap?"""

from __future__ import annotations

import dataclasses
import statistics
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ...runtime.machine.cores import load_line
from ...runtime.words import format_seconds
from ..bench import Bench, BenchResult
from ..figures import aligned, size_text
from ..status_line import say

if TYPE_CHECKING:
    from ...models.in_turns import Times
    from ...runtime.record.record import Record

LINK = "1 Gb/s"
SIZES = (64 << 10, *(mib << 20 for mib in (1, 4, 8, 16, 32)))  # bytes; a small one costs the machine more than the link
TOLERANCE = 0.05
_TIMEOUT = 300.0  # seconds for one run
_COMPUTE = 384  # the matrices that are multiplied are this wide


@dataclass(frozen=True)
class SizeRow:
    """All-reduces of one size. Times in seconds, medians, from the last rank's entry to the last rank's end."""

    nbytes: int  # of the tensor
    formula: float  # what the link's model says
    # blocking, waited: measured on the link: a blocking call; an asynchronous call and its wait
    blocking: float
    waited: float
    without: float  # measured on this machine without a link: what takes longer than the formula can't be emulated

    @property
    def verdict(self) -> str:
        if min(self.blocking, self.waited) < self.formula:
            return "too fast"
        if self.without >= self.formula / 2:  # without a link it is not clearly faster
            return "machine too slow"
        return "met" if max(self.blocking, self.waited) <= (1 + TOLERANCE) * self.formula else "missed"


@dataclass(frozen=True)
class Pair:
    """The same work in two ways. Times in seconds, medians of the slowest rank's."""

    what: str
    apart: float
    overlapped: float


@dataclass(frozen=True)
class LinkResult(BenchResult):
    """What was measured on an emulated link between `ranks` ranks."""

    ranks: int
    link: str
    rows: tuple[SizeRow, ...]
    pairs: tuple[Pair, ...]
    machine: str

    @property
    def ok(self) -> bool:
        """Whether no call was faster than the link allows. How much slower it is depends on what else runs here."""
        return all(row.verdict != "too fast" for row in self.rows)


def measure(ranks: int, times: int) -> LinkResult:
    """Measure each size `times` times, on the link and without it, and then what overlaps."""
    from ...models.in_turns import slowest
    from ...runtime.link.link import Link
    from ...runtime.run import run_ranks

    machine, link = load_line(), Link.named(LINK)
    options: dict[str, Any] = {"device": "cpu", "timeout": _TIMEOUT, "record": True}
    say("all-reduces on the link")
    linked = run_ranks(_all_reduces, ranks, times, SIZES, link=link, **options).record
    say("all-reduces without it")
    bare = run_ranks(_all_reduces, ranks, times, SIZES, **options).record
    rows = []
    for nbytes in SIZES:
        blocking, waited = _median(linked, nbytes, False), _median(linked, nbytes, True)
        formula = link.seconds("all_reduce", nbytes, ranks)
        rows.append(SizeRow(nbytes, formula, blocking, waited, _median(bare, nbytes, False)))
    del options["record"]
    say("what overlaps")
    seconds = slowest(run_ranks(_overlaps, ranks, times, link=link, **options).values)
    apart, at_once, one_bucket, many_buckets = map(statistics.median, seconds.values())
    pairs = (
        Pair("all-reduce of 4 MiB, then matmuls | at once", apart, at_once),
        Pair("torch's DDP, step: one bucket | buckets of 1 MiB", one_bucket, many_buckets),
    )
    return LinkResult(ranks, str(link), tuple(rows), pairs, machine)


def table(result: LinkResult) -> str:
    """The result for people."""
    rows = [["all-reduce", "formula", "blocking", "ratio", "async+wait", "ratio", f"<= {1 + TOLERANCE:g}", "no link"]]
    for row in result.rows:
        ratios = [f"{measured / row.formula:.3f}" for measured in (row.blocking, row.waited)]
        times = [format_seconds(t) for t in (row.formula, row.blocking, row.waited, row.without)]
        rows.append([size_text(row.nbytes), times[0], times[1], ratios[0], times[2], ratios[1], row.verdict, times[3]])
    pairs = [["overlap", "apart", "overlapped", "times faster"]]
    for pair in result.pairs:
        both = [format_seconds(pair.apart), format_seconds(pair.overlapped), f"{pair.apart / pair.overlapped:.2f}"]
        pairs.append([pair.what, *both])
    head = f"{result.ranks} ranks (CPU, gloo), emulated link: {result.link}"
    return "\n".join([head, "", aligned(rows), "", aligned(pairs), "", f"{result.machine}; medians."])


def values(result: LinkResult) -> dict[str, Any]:
    """The result as plain values, seconds throughout."""
    rows = [{**dataclasses.asdict(row), "verdict": row.verdict} for row in result.rows]
    return {**dataclasses.asdict(result), "rows": rows, "tolerance": TOLERANCE}


def _median(record: Record, nbytes: int, asynchronous: bool) -> float:
    """Seconds of a call from the last rank's entry, without the first, which warms up."""
    per_rank = [
        [e for e in record.select(rank=r, op="all_reduce") if (e.nbytes, e.asynchronous) == (nbytes, asynchronous)]
        for r in range(record.world_size)
    ]
    took = [max(e.end_ns or 0 for e in c) - max(e.start_ns for e in c) for c in zip(*per_rank, strict=True)]
    return float(statistics.median(took[1:])) / 1e9


def _all_reduces(times: int, sizes: tuple[int, ...]) -> None:
    """On a rank: blocking calls of each size, then asynchronous ones."""
    import torch
    import torch.distributed as dist

    for nbytes in sizes:
        tensor = torch.zeros(nbytes // 4)
        for asynchronous in (False, True):
            dist.barrier()
            for _ in range(times + 1):
                work = dist.all_reduce(tensor, async_op=asynchronous)
                if work is not None:
                    work.wait()


def _overlaps(times: int) -> Times:
    """On a rank: communication and computation one after the other, and at once; then DDP with one bucket, and many."""
    import torch
    import torch.distributed as dist
    from torch.nn.parallel import DistributedDataParallel

    from ...models.in_turns import time_in_turns

    tensor, matrix = torch.zeros(1 << 20), torch.ones(_COMPUTE, _COMPUTE)
    matmuls = time_in_turns({"one": lambda: matrix @ matrix}, times)["one"]
    count = max(1, round(0.05 / statistics.median(matmuls)))

    def compute() -> None:
        for _ in range(count):
            matrix @ matrix

    def apart() -> None:
        dist.all_reduce(tensor)
        compute()

    def at_once() -> None:
        work = dist.all_reduce(tensor, async_op=True)
        compute()
        work.wait()

    def ddp_step(bucket_mb: int) -> Any:
        layers = [torch.nn.Linear(512, 512, bias=False) for _ in range(6)]
        model = DistributedDataParallel(torch.nn.Sequential(*layers), bucket_cap_mb=bucket_mb)
        batch = torch.ones(1024, 512)
        return lambda: model(batch).sum().backward()

    ways = {"apart": apart, "at once": at_once, "one bucket": ddp_step(100), "buckets": ddp_step(1)}
    return time_in_turns(ways, times, warm=2)  # DDP settles its buckets after the first step


_SUMMARY = "All-reduces on an emulated link, beside the formula of its model; and what overlaps with computation."
BENCH = Bench(_SUMMARY, "dtlearn bench link --ranks 2", "times", 10, measure, table, values)
