"""`dtlearn bench zero`: a training step in each stage of ZeRO beside torch's; what a rank stores, and what it sends."""

from __future__ import annotations

import math
import statistics
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ...runtime.machine.cores import load_line
from ...runtime.words import format_seconds
from ..bench import Bench, BenchResult
from ..figures import aligned
from ..status_line import say
from .on_ranks.zero_ways import COUNTERPARTS, WAYS, SentBytes, Stored, bytes_on_rank, sent_in, time_on_rank
from .words import if_more_than_cores, load_since, met, noisy

if TYPE_CHECKING:
    from ...memory.saving.variants import GPTWorkload
    from ...models.in_turns import Times

LINK = "1 Gb/s"
CAP = 1 << 20  # elements of a bucket of stage 2: with one bucket nothing would overlap
TO_FORMULA, TO_TORCH = 0.02, 1.15  # targets: bytes stored, and a step without a link, against torch's counterpart
_TIMEOUT = 900.0


@dataclass(frozen=True)
class ZeroResult(BenchResult):
    """Bytes, which are the same every time, and steps, measured in turns.

    Attributes:
        where: what the ranks ran on, such as "gloo on CPU".
        parameters: of the model.
        stored, sent: by way.
        bare, linked: {way: seconds of each round, on its slowest rank}, without a link and on LINK.
        machine: cores and load before and after.
    """

    ranks: int
    where: str
    parameters: int
    stored: dict[str, Stored]
    sent: dict[str, SentBytes]
    bare: Times
    linked: Times
    machine: str

    @property
    def errors(self) -> dict[str, float]:
        """The difference between what a stage stores and the formula, as a share of the formula, by stage."""
        return {way: abs(s.state - s.formula) / s.formula for way, s in self.stored.items() if s.formula}

    def ratios(self, times: Times) -> dict[str, float]:
        """The ratio of a stage's step to that of its counterpart, by stage."""
        from ...models.in_turns import ratio

        return {own: ratio(times[own], times[other]) for own, other in COUNTERPARTS.items()}

    @property
    def ok(self) -> bool:
        """Bytes are sure: what is stored is near the formula, and what is sent is equal to it."""
        return not self.unequal and max(self.errors.values()) <= TO_FORMULA

    @property
    def unequal(self) -> list[str]:
        """The stages that send other bytes than their formula says."""
        pairs = ((way, sent.recorded, sent.formula) for way, sent in self.sent.items())
        return [way for way, sent, formula in pairs if formula is not None and not math.isclose(sent, formula)]


def measure(ranks: int, rounds: int, work: GPTWorkload | None = None, cap: int = CAP) -> ZeroResult:
    """What is stored and sent in a step, then the seconds without and with a link; all on the CPU."""
    from ...memory.saving.variants import GPTWorkload
    from ...models import GPTConfig
    from ...models.in_turns import slowest
    from ...runtime.link.link import Link
    from ...runtime.run import run_ranks

    work = work or GPTWorkload(GPTConfig(num_layers=4, num_heads=8, hidden_size=256), batch=8)
    options: dict[str, Any] = {"device": "cpu", "timeout": _TIMEOUT}
    before = load_line()
    say("bytes of a step of each kind")
    run = run_ranks(bytes_on_rank, ranks, work, cap, record=True, **options)
    stored = {way: max((of_rank[0][way] for of_rank in run.values), key=lambda s: s.state) for way in WAYS}
    formulas = run.values[0][1]
    sent = {way: SentBytes(sent_in(run.record, way), formulas.get(way)) for way in WAYS}
    say(f"{rounds} rounds without a link")
    bare = slowest(run_ranks(time_on_rank, ranks, work, cap, rounds, **options).values)
    say(f"{rounds} rounds on the link")
    on_link = run_ranks(time_on_rank, ranks, work, cap, rounds, link=Link.named(LINK), **options)
    machine = load_since(before)
    where, parameters = run.placement.where, work.config.num_parameters
    return ZeroResult(ranks, where, parameters, stored, sent, bare, slowest(on_link.values), machine)


def table(result: ZeroResult) -> str:
    """The result for people."""
    rounds = len(result.bare["stage 0"])
    more = if_more_than_cores(result.ranks)
    return "\n".join(
        [
            f"{result.ranks} ranks ({result.where}), GPT of {result.parameters:,} parameters; forward, backward, "
            f"Adam.{more}",
            "",
            aligned(_byte_rows(result)),
            "State: parameters, gradients, Adam's moments, before the optimizer's step. Sent: in a step, by a ring.",
            "Peak: activations too; and in stage 3 two gathered units and gradients of two, beside its shards.",
            "",
            f"{rounds} rounds in turn; medians of the slowest rank.",
            "",
            aligned(_time_rows("no link", result.bare)),
            "",
            aligned(_time_rows(f"emulated link {LINK}", result.linked)),
            "",
            *_verdicts(result),
            noisy(result.machine),
        ]
    )


def values(result: ZeroResult) -> dict[str, Any]:
    """The result as plain values, seconds throughout."""
    return {
        "ranks": result.ranks,
        "where": result.where,
        "parameters": result.parameters,
        "machine": result.machine,
        "targets": {"state": TO_FORMULA, "step": TO_TORCH},
        "stored": {way: stored._asdict() for way, stored in result.stored.items()},
        "sent": {way: sent._asdict() for way, sent in result.sent.items()},
        "ratios": {"no link": result.ratios(result.bare), LINK: result.ratios(result.linked)},
        "measured": [
            {"link": link, "way": way, "median": statistics.median(seconds), "rounds": list(seconds)}
            for link, times in ((None, result.bare), (LINK, result.linked))
            for way, seconds in times.items()
        ],
    }


def _byte_rows(result: ZeroResult) -> list[list[str]]:
    rows = [["bytes of a rank", "state", "formula", "peak of a step", "sent", "formula"]]
    for way in WAYS:
        stored, sent = result.stored[way], result.sent[way]
        formulas = ["" if value is None else f"{value:,.0f}" for value in (stored.formula, sent.formula)]
        rows.append([way, f"{stored.state:,}", formulas[0], f"{stored.peak:,}", f"{sent.recorded:,.0f}", formulas[1]])
    return rows


def _time_rows(heading: str, times: Times) -> list[list[str]]:
    from ...models.in_turns import ratio

    rows = [[heading, "step", "best", "to stage 0", "to torch's"]]
    for way, seconds in times.items():
        other = COUNTERPARTS.get(way)
        ratios = [f"{ratio(seconds, times['stage 0']):.2f}x", f"{ratio(seconds, times[other]):.2f}x" if other else ""]
        rows.append([way, format_seconds(statistics.median(seconds)), format_seconds(min(seconds)), *ratios])
    return rows


def _verdicts(result: ZeroResult) -> list[str]:
    error, ratios = max(result.errors.values()), result.ratios(result.bare)
    equal = f"not those of the formula: {', '.join(result.unequal)}" if result.unequal else "equal to the formula"
    steps = ", ".join(f"{way} {found:.2f}x" for way, found in ratios.items())
    return [
        f"State to formula: at most {error:.3%} apart, target {TO_FORMULA:.0%}: {met(error <= TO_FORMULA)}.",
        f"Bytes sent: {equal}.",
        f"Steps to those of torch's counterparts, no link: {steps}; target at most {TO_TORCH:.2f}x: "
        f"{met(max(ratios.values()) <= TO_TORCH)}.",
    ]


BENCH = Bench(
    "A training step in each stage of ZeRO beside torch's counterpart, and the bytes that a rank stores and sends.",
    "dtlearn bench zero",
    "rounds",
    7,
    measure,
    table,
    values,
    ranks=2,
)
