"""`dtlearn bench context_parallel`: ring, all-gather and Ulysses attention beside full SDPA on one rank."""

from __future__ import annotations

import statistics
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from ...runtime.machine.cores import load_line
from ...runtime.words import format_seconds
from ..bench import Bench, BenchResult
from ..figures import aligned
from ..status_line import say
from .on_ranks.context_parallel_ways import (
    CONTIGUOUS,
    ONE_RANK,
    OPTIONS,
    ULYSSES,
    WAITING,
    ZIGZAG,
    once_on_rank,
    time_emulated,
    time_on_rank,
)
from .words import if_more_than_cores, load_since, noisy

if TYPE_CHECKING:
    from ...context_parallel import AttentionSizes
    from ...models.in_turns import Times
    from ...runtime.record.record import Record

LINK = (50e-6, 80e6)  # latency, bandwidth: on it a hop of keys and values takes about as long as a block
FORWARD = 0.200  # seconds of the emulated attention of the whole sequence; 2.5 times that backward
CHUNK, HEADS, HEAD_SIZE = 256, 4, 64  # tokens in a chunk of zigzag: 2,048 on 4 ranks
EQUAL = 1e-4  # of fp32
_TIMEOUT = 900.0


class WayWork(NamedTuple):
    """What a way sends and computes, in one forward and backward pass.

    Attributes:
        sent, formula: bytes that a rank sends, as recorded and by formula.
        pairs: of a query and a key that it attends to, on each rank, of one head.
        processor: seconds on a core, on each rank: the median of its rounds.
        apart: from SDPA of the whole, the largest difference of an output or a gradient.
    """

    sent: int
    formula: int
    pairs: tuple[int, ...]
    processor: tuple[float, ...]
    apart: float


@dataclass(frozen=True)
class ContextParallelResult(BenchResult):
    """Forward and backward of one layer's attention.

    Attributes:
        where: what the ranks ran on.
        ranks: cp.
        sizes: of the layer.
        bare: {way: seconds of each round, on its slowest rank}, without a link.
        linked: the same on LINK, with attention that sleeps: ranks that share cores would delay what they send.
        work: of each way but one rank's.
        machine: cores and load before and after.
    """

    where: str
    ranks: int
    sizes: AttentionSizes
    bare: Times
    linked: Times
    work: dict[str, WayWork]
    machine: str

    @property
    def ok(self) -> bool:
        """Sure are the bytes, and that all compute the same; times are noisy."""
        return all(way.sent == way.formula and way.apart < EQUAL for way in self.work.values())

    def to_one_rank(self, way: str, *, on_link: bool = False) -> float:
        """The time to that of one rank, which needs no link."""
        from ...models.in_turns import ratio

        times = self.linked if on_link else self.bare
        return ratio(times[way], times[ONE_RANK])

    def contiguous_to_zigzag(self, *, on_link: bool = False) -> float:
        """The time of the ring that is not balanced to that of the one that is."""
        from ...models.in_turns import ratio

        times = self.linked if on_link else self.bare
        return ratio(times[CONTIGUOUS], times[ZIGZAG])

    def exposed(self, way: str) -> float:
        """Seconds on the link in which the busiest rank does not compute."""
        from ...models.in_turns import difference

        own = self.work[ZIGZAG if way == WAITING else way]
        share = max(own.pairs) / sum(own.pairs)
        return difference(self.linked[way], self.linked[ONE_RANK]) + (1 - share) * statistics.median(
            self.linked[ONE_RANK]
        )

    def on_the_link(self, way: str) -> float:
        """Seconds that the bytes of a rank take on the link, one after the other."""
        return self.work[ZIGZAG if way == WAITING else way].sent / LINK[1]


def sizes_for(ranks: int) -> AttentionSizes:
    """A layer whose tokens and heads the ranks divide."""
    from ...context_parallel import AttentionSizes

    heads = ranks * -(-HEADS // ranks)
    return AttentionSizes(1, 2 * ranks * CHUNK, heads, heads, HEAD_SIZE)


def measure(ranks: int, rounds: int, sizes: AttentionSizes | None = None) -> ContextParallelResult:
    """Bytes, and seconds without a link and on it; all on the CPU."""
    from ...context_parallel import attended_pairs, attention_traffic, sent_bytes
    from ...models.in_turns import slowest
    from ...runtime.link.link import Link
    from ...runtime.run import run_ranks

    sizes, before = sizes or sizes_for(ranks), load_line()
    options: dict[str, Any] = {"device": "cpu", "timeout": _TIMEOUT}
    say("bytes")
    run = run_ranks(once_on_rank, ranks, sizes, record=True, **options)
    say(f"{rounds} rounds without a link")
    bare = run_ranks(time_on_rank, ranks, sizes, rounds, **options)
    say(f"{rounds} rounds on the link")
    linked = run_ranks(time_emulated, ranks, sizes, FORWARD, rounds, link=Link(*LINK), **options)
    work = {}
    for way, option in OPTIONS.items():
        even = sizes.length * (sizes.length + 1) // 2 // ranks  # Ulysses: all tokens of 1/cp of the heads
        pairs = (even,) * ranks if way == ULYSSES else attended_pairs(sizes.length, ranks, option["layout"])
        work[way] = WayWork(
            sent_in(run.record, way, ranks),
            sent_bytes(attention_traffic(sizes, ranks, option["method"]), ranks),
            pairs,
            tuple(statistics.median(found.processor[way]) for found in bare.values),
            max(apart[way] for apart in run.values),
        )
    wall = slowest([found.wall for found in bare.values])
    return ContextParallelResult(
        run.placement.where, ranks, sizes, wall, slowest(linked.values), work, load_since(before)
    )


def sent_in(record: Record, way: str, ranks: int) -> int:
    """Bytes that rank 0 sends in a phase of the record, if every collective is a ring."""
    from ...runtime.record.training_steps import part

    sent = 0
    for call in part(record, way).select(rank=0):
        if call.sends:
            sent += call.nbytes
        elif call.op.startswith("all_gather"):
            sent += call.nbytes * (ranks - 1)
        elif call.op.startswith(("reduce_scatter", "all_to_all")):
            sent += call.nbytes * (ranks - 1) // ranks
    return sent


def table(result: ContextParallelResult) -> str:
    """The result for people."""
    from ...context_parallel import imbalance

    sizes = result.sizes
    rows = [["no link", "median", "/ one rank", "bytes sent", "work of the busiest / mean", "measured"]]
    for way, own in result.work.items():
        busiest = max(own.processor) / statistics.mean(own.processor)
        balance = f"{imbalance(own.pairs):.2f}x", f"{busiest:.2f}x"
        rows.append([way, *_times(result, way), f"{own.sent:,}", *balance])
    rows.append([ONE_RANK, *_times(result, ONE_RANK), "0", "", ""])
    linked = [[f"emulated link {8 * LINK[1] / 1e6:.0f} Mb/s", "median", "/ one rank", "all bytes alone", "exposed"]]
    for way in result.linked:
        seconds = (result.on_the_link(way), result.exposed(way)) if way != ONE_RANK else ()
        linked.append([way, *_times(result, way, on_link=True), *(map(signed, seconds) if seconds else ("", ""))])
    unequal = [way for way, own in result.work.items() if own.sent != own.formula]
    apart = max(own.apart for own in result.work.values())
    equal = "equal to" if apart < EQUAL else f"up to {apart:.2g} apart from"
    return "\n".join(
        [
            f"{result.where}, {result.ranks} ranks: causal attention of {sizes.length:,} tokens, {sizes.num_heads} "
            f"heads of {sizes.head_size}; forward and backward, {len(result.bare[ZIGZAG])} rounds in turn; medians of "
            f"the slowest rank.{if_more_than_cores(result.ranks)}",
            "",
            aligned(rows),
            "",
            aligned(linked),
            "",
            f"Outputs and gradients: {equal} SDPA of the whole.",
            f"Bytes sent: {'not those of the formula: ' + ', '.join(unequal) if unequal else 'equal to the formula'}.",
            f"On the link attention sleeps, {format_seconds(FORWARD)} forward on one rank: it needs no core. Exposed "
            f"are {signed(result.exposed(ZIGZAG))} in the ring, {signed(result.exposed(WAITING))} without overlap.",
            f"Contiguous to zigzag: {result.contiguous_to_zigzag():.2f}x, on the link "
            f"{result.contiguous_to_zigzag(on_link=True):.2f}x.",
            noisy(result.machine),
        ]
    )


def _times(result: ContextParallelResult, way: str, *, on_link: bool = False) -> list[str]:
    times = result.linked if on_link else result.bare
    return [format_seconds(statistics.median(times[way])), f"{result.to_one_rank(way, on_link=on_link):.2f}x"]


def signed(seconds: float) -> str:
    """A difference of seconds as `format_seconds` writes it, with its sign."""
    return ("-" if seconds < 0 else "") + format_seconds(abs(seconds))


def values(result: ContextParallelResult) -> dict[str, Any]:
    """The result as plain values, seconds throughout."""
    return {
        "where": result.where,
        "machine": result.machine,
        "ranks": result.ranks,
        "sizes": result.sizes._asdict(),
        "link": list(LINK),
        "ways": {
            way: own._asdict()
            | {
                "to_one_rank": result.to_one_rank(way),
                "to_one_rank_on_link": result.to_one_rank(way, on_link=True),
                "exposed": result.exposed(way),
            }
            for way, own in result.work.items()
        },
        "measured": [
            {"link": link, "way": way, "median": statistics.median(seconds), "rounds": list(seconds)}
            for link, times in ((None, result.bare), (list(LINK), result.linked))
            for way, seconds in times.items()
        ],
    }


BENCH = Bench(
    "Ring, all-gather and Ulysses attention beside SDPA on one rank, with overlap on a link and balance of work.",
    "dtlearn bench context_parallel",
    "rounds",
    7,
    measure,
    table,
    values,
)
