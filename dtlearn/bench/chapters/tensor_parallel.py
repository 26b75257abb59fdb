"""`dtlearn bench tensor_parallel`: a transformer block beside torch's `parallelize_module`, and the overlap gained."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from ...runtime.machine.cores import load_line
from ...runtime.words import format_seconds
from ..bench import Bench, BenchResult
from ..figures import aligned
from ..status_line import say
from .on_ranks.tensor_parallel_blocks import ALL_WAYS, COUNTERPARTS, GAINS, OPTIONS, WAYS, Work, steps
from .words import if_more_than_cores, load_since, met, noisy

if TYPE_CHECKING:
    import torch

    from ...models.in_turns import Times
    from ...runtime.record.record import Record

LINK = (50e-6, 50e6)  # latency, bandwidth: on it an all-reduce takes about as long as a product that can hide it
TO_TORCH = 1.0  # target: a block's forward and backward to torch's
_WARM = 2
_TIMEOUT = 900.0
# Bytes that a rank sends in a ring of t ranks, for each byte that it hands in.
_SENT: dict[str, Callable[[int], float]] = {
    "all_reduce": lambda t: 2 * (t - 1) / t,
    "reduce_scatter": lambda t: (t - 1) / t,
    "all_gather": lambda t: t - 1,
}


class OfRanks(NamedTuple):
    """What was measured with one number of ranks.

    Attributes:
        bare: {way: seconds of each round, on its slowest rank}, without a link.
        linked: the same for `GAINS`, on LINK.
        sent: {way: bytes that a rank sends}, as recorded.
        formula: of the same, for our ways.
        apart: largest difference of an output or a gradient of the input between ours and torch's.
    """

    bare: Times
    linked: Times
    sent: dict[str, float]
    formula: dict[str, float]
    apart: float

    def ratios(self) -> dict[str, float]:
        """The ratio of our time to torch's, by our way."""
        from ...models.in_turns import ratio

        return {own: ratio(self.bare[own], self.bare[other]) for own, other in COUNTERPARTS.items()}

    def gains(self) -> dict[str, float]:
        """Seconds that each of `GAINS` is faster than the way beside it."""
        from ...models.in_turns import difference

        return {name: -difference(self.linked[name], self.linked[other]) for name, other in GAINS.items()}


@dataclass(frozen=True)
class TensorParallelResult(BenchResult):
    """A block's forward and backward pass.

    Attributes:
        where: what the ranks ran on, such as "gloo on CPU".
        work: the block and its batch, in words.
        by_ranks: for each number of ranks.
        machine: cores and load before and after.
    """

    where: str
    work: str
    by_ranks: dict[int, OfRanks]
    machine: str

    @property
    def ok(self) -> bool:
        """Sure are the bytes, and that both compute the same; times are noisy."""
        return not self.unequal and max(found.apart for found in self.by_ranks.values()) < 1e-4

    @property
    def unequal(self) -> list[str]:
        """The ways that send other bytes than their formula says."""
        pairs = ((t, way, f.sent[way], own) for t, f in self.by_ranks.items() for way, own in f.formula.items())
        return [f"{way} on {t} ranks" for t, way, sent, own in pairs if not math.isclose(sent, own)]


def measure(ranks: int, rounds: int, work: Work | None = None) -> TensorParallelResult:
    """Bytes and seconds on 2 ranks, and on `ranks`; all on the CPU."""
    from ...models import GPTConfig
    from ...models.in_turns import slowest
    from ...runtime.link.link import Link
    from ...runtime.run import run_ranks

    work = work or Work(GPTConfig(num_layers=1, num_heads=8, hidden_size=512, context_length=128), batch=4)
    options: dict[str, Any] = {"device": "cpu", "timeout": _TIMEOUT}
    before, by_ranks = load_line(), {}
    for t in sorted({2, ranks}):
        say(f"{t} ranks: bytes")
        run = run_ranks(once_on_rank, t, work, record=True, **options)
        sent = {way: sent_in(run.record, way, t) for way in ALL_WAYS}
        say(f"{t} ranks: {rounds} rounds without a link")
        bare = run_ranks(time_on_rank, t, work, WAYS, rounds, **options)
        say(f"{t} ranks: {rounds} rounds on the link")
        names = tuple(OPTIONS)
        linked = run_ranks(time_on_rank, t, work, names, rounds, link=Link(*LINK), **options)
        formula = {way: formula_bytes(work, t, way) for way in OPTIONS}
        by_ranks[t] = OfRanks(slowest(bare.values), slowest(linked.values), sent, formula, max(run.values))
    config = work.config
    words = f"hidden size {config.hidden_size}, {config.num_heads} heads, {work.batch} x {config.context_length} tokens"
    return TensorParallelResult(run.placement.where, words, by_ranks, load_since(before))


def formula_bytes(work: Work, num_ranks: int, way: str) -> float:
    """Bytes that each rank is to send for the block, in fp32."""
    from ...tensor_parallel.arithmetic.sizes import BlockSizes
    from ...tensor_parallel.arithmetic.traffic import block_traffic, sent_elements

    config = work.config
    sizes = BlockSizes(work.batch, config.context_length, config.hidden_size, config.num_heads)
    options = {name: value for name, value in OPTIONS[way].items() if name != "overlap"}
    return 4 * sent_elements(block_traffic(sizes, num_ranks, **options))


def sent_in(record: Record, way: str, num_ranks: int) -> float:
    """Bytes that rank 0 sends in a phase of the record, if every collective is a ring."""
    from ...runtime.record.training_steps import part

    sent = 0.0
    for call in part(record, way).select(rank=0):
        factor = next((factor for op, factor in _SENT.items() if call.op.startswith(op)), None)
        sent += call.nbytes * factor(num_ranks) if factor is not None else 0.0
    return sent


def once_on_rank(work: Work) -> float:
    """On each rank of a recorded run: every way once; how far ours and torch's are apart."""
    import torch.distributed as dist

    from ...runtime.recording.phases import phase

    results: dict[str, tuple[torch.Tensor, ...]] = {}
    for name, step in steps(work, ALL_WAYS).items():
        dist.barrier()
        with phase(name):
            results[name] = step()
    pairs: Mapping[str, str] = COUNTERPARTS | GAINS
    return max(
        (a - b).abs().max().item()
        for own, other in pairs.items()
        for a, b in zip(results[own], results[other], strict=True)
    )


def time_on_rank(work: Work, names: tuple[str, ...], rounds: int) -> Times:
    """On each rank: seconds of a block in these ways, in turns."""
    from ...models.in_turns import time_in_turns

    return time_in_turns(steps(work, names), rounds, _WARM)


def table(result: TensorParallelResult) -> str:
    """The result for people."""
    rounds = len(next(iter(result.by_ranks.values())).bare["tensor parallel"])
    lines = [
        f"{result.where}, one block: {result.work}; forward and backward, {rounds} rounds in turn; medians of the "
        "slowest rank.",
    ]
    for t, found in result.by_ranks.items():
        tables = aligned(_time_rows(found)), "", aligned(_link_rows(found))
        lines += ["", f"{t} ranks.{if_more_than_cores(t)}", "", *tables]
    return "\n".join(
        [
            *lines,
            "",
            *_verdicts(result),
            noisy(result.machine),
        ]
    )


def values(result: TensorParallelResult) -> dict[str, Any]:
    """The result as plain values, seconds throughout."""
    return {
        "where": result.where,
        "work": result.work,
        "machine": result.machine,
        "targets": {"step": TO_TORCH},
        "ranks": {
            t: {"apart": f.apart, "sent": f.sent, "formula": f.formula, "ratios": f.ratios(), "gains": f.gains()}
            for t, f in result.by_ranks.items()
        },
        "measured": [
            {"ranks": t, "link": link, "way": way, "median": statistics.median(seconds), "rounds": list(seconds)}
            for t, found in result.by_ranks.items()
            for link, times in ((None, found.bare), (list(LINK), found.linked))
            for way, seconds in times.items()
        ],
    }


def _time_rows(found: OfRanks) -> list[list[str]]:
    rows = [["no link", "ours", "best", "torch's", "best", "ours / torch's", "bytes sent", "torch's"]]
    for own, other in COUNTERPARTS.items():
        seconds = [f(found.bare[way]) for way in (own, other) for f in (statistics.median, min)]
        sent = (f"{found.sent[way]:,.0f}" for way in (own, other))
        rows.append([own, *map(format_seconds, seconds), f"{found.ratios()[own]:.2f}x", *sent])
    return rows


def _link_rows(found: OfRanks) -> list[list[str]]:
    rows = [[f"emulated link {8 * LINK[1] / 1e6:.0f} Mb/s", "block", "best", "without", "gained", "bytes sent"]]
    for name, other in GAINS.items():
        own, plain = found.linked[name], found.linked[other]
        gain = signed(found.gains()[name])
        times = (statistics.median(own), min(own), statistics.median(plain))
        rows.append([name, *map(format_seconds, times), gain, f"{found.sent[name]:,.0f}"])
    return rows


def signed(seconds: float) -> str:
    """A difference of seconds as `format_seconds` writes it, with its sign."""
    return ("-" if seconds < 0 else "") + format_seconds(abs(seconds))


def _verdicts(result: TensorParallelResult) -> list[str]:
    by_ranks = result.by_ranks.items()
    worst = max(ratio for _, found in by_ranks for ratio in found.ratios().values())
    apart = max(found.apart for _, found in by_ranks)
    gained = ", ".join(f"{signed(found.gains()['overlapped'])} on {t} ranks" for t, found in by_ranks)
    unequal = f"not those of the formula: {', '.join(result.unequal)}" if result.unequal else "equal to the formula"
    return [
        f"Outputs and gradients, ours and torch's: {'equal' if apart < 1e-4 else f'up to {apart:.2g} apart'}.",
        f"Bytes sent: {unequal}.",
        f"Blocks to torch's: at most {worst:.2f}x, target {TO_TORCH:.2f}x: {met(worst <= TO_TORCH)}.",
        f"Overlap gains, on the link: {gained}.",
    ]


BENCH = Bench(
    "A tensor-parallel block beside torch's parallelize_module on 2 ranks and more, and the overlap gained on a link.",
    "dtlearn bench tensor_parallel",
    "rounds",
    7,
    measure,
    table,
    values,
)
