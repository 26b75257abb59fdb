"""`dtlearn bench gradient_compression`: a step and the time to a loss, by method, beside torch's own hooks."""

from __future__ import annotations

import statistics
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ...runtime.machine.cores import load_line
from ...runtime.words import format_seconds
from ..bench import Bench, BenchResult
from ..figures import aligned
from ..status_line import say
from .on_ranks.gradient_compression_ways import COUNTERPARTS, WAYS, CompressionWorkload, loss_runs, time_on_rank
from .words import if_more_than_cores, load_since, met, noisy

if TYPE_CHECKING:
    from ...gradient_compression.comparing import MethodRun
    from ...models.in_turns import Times

LINKS = (None, "1 Gb/s", "100 Mb/s")
TO_TORCH = 1.05  # target: a step with our hook to one with torch's
LOSS = 0.5
_TIMEOUT = 900.0


@dataclass(frozen=True)
class GradientCompressionResult(BenchResult):
    """Steps, measured in turns; losses and bytes, which are the same every time.

    Attributes:
        where: what the ranks ran on, such as "gloo on CPU".
        parameters: of the model.
        seconds: {link: {way: seconds of a step, of each round}}; None: without a link.
        runs: by way; their seconds say nothing here, as they are not taken in turns.
        machine: cores and load before and after.
    """

    ranks: int
    where: str
    work: CompressionWorkload
    parameters: int
    seconds: dict[str | None, Times]
    runs: dict[str, MethodRun]
    machine: str

    @property
    def ok(self) -> bool:
        """Bytes are sure: our hooks hand over as many as torch's."""
        return all(self.runs[own].payload[-1] == self.runs[other].payload[-1] for own, other in COUNTERPARTS.items())

    def ratios(self, link: str | None) -> dict[str, float]:
        """The ratio of a step with our hook to one with torch's, for each hook that torch has too."""
        from ...models.in_turns import ratio

        times = self.seconds[link]
        return {own: ratio(times[own], times[other]) for own, other in COUNTERPARTS.items()}

    def step_seconds(self, link: str | None, way: str) -> float:
        """The median over the rounds."""
        return statistics.median(self.seconds[link][way])

    def to_loss(self, link: str | None, way: str) -> float | None:
        """Seconds of the steps until the loss is LOSS; None: it was not reached."""
        steps = self.runs[way].steps_to(LOSS)
        return None if steps is None else steps * self.step_seconds(link, way)


def measure(ranks: int, rounds: int, work: CompressionWorkload | None = None) -> GradientCompressionResult:
    """Train in each way once for its losses and bytes; then a step of each, in turns, without and with a link."""
    from ...gradient_compression.comparing.methods import PERIOD
    from ...models import MLP, num_parameters
    from ...models.in_turns import slowest
    from ...runtime.link.link import Link
    from ...runtime.run import run_ranks

    work, before = work or CompressionWorkload(), load_line()
    say(f"{work.steps} steps of each method, for its losses")
    runs = dict(zip(WAYS, loss_runs(work, ranks), strict=True))
    seconds: dict[str | None, Times] = {}
    where = ""
    for name in LINKS:
        say(f"{rounds} rounds {f'on the link, {name}' if name else 'without a link'}")
        link = Link.named(name) if name else None
        run = run_ranks(time_on_rank, ranks, work, rounds, device="cpu", link=link, timeout=_TIMEOUT)
        where = where or run.placement.where
        periods = slowest(run.values)
        seconds[name] = {way: tuple(taken / PERIOD for taken in times) for way, times in periods.items()}
    parameters = num_parameters(MLP(work.sizes))
    return GradientCompressionResult(ranks, where, work, parameters, seconds, runs, load_since(before))


def table(result: GradientCompressionResult) -> str:
    """The result for people."""
    work = result.work
    return "\n".join(
        [
            f"{result.where}, {result.ranks} ranks, MLP of {result.parameters:,} parameters, in one bucket; "
            f"{work.batch} digits on each rank in a step.{if_more_than_cores(result.ranks)}",
            "",
            aligned(_rows(result)),
            "",
            f"A step: the median of the rounds. To a loss of {LOSS:g}: its steps, times that; over 5 steps, of at most "
            f"{work.steps}. The last three methods bring their own optimizer, or none that averages gradients: compare "
            "their seconds, not their steps.",
            *_verdicts(result),
            noisy(result.machine),
        ]
    )


def values(result: GradientCompressionResult) -> dict[str, Any]:
    """The result as plain values, seconds throughout."""
    return {
        "where": result.where,
        "ranks": result.ranks,
        "parameters": result.parameters,
        "batch": result.work.batch,
        "loss": LOSS,
        "machine": result.machine,
        "target to torch's": TO_TORCH,
        "to torch's": [{"link": link, **result.ratios(link)} for link in result.seconds],
        "measured": [
            {
                "way": way,
                "payload": result.runs[way].payload[-1],
                "steps to the loss": result.runs[way].steps_to(LOSS),
                "link": link,
                "step": result.step_seconds(link, way),
                "to the loss": result.to_loss(link, way),
                "rounds": list(times[way]),
            }
            for way in WAYS
            for link, times in result.seconds.items()
        ],
    }


def _rows(result: GradientCompressionResult) -> list[list[str]]:
    links = [link or "no link" for link in result.seconds]
    rows = [["", "bytes", *(f"step, {link}" for link in links), "steps", *(f"to loss, {link}" for link in links)]]
    for way in WAYS:
        run = result.runs[way]
        steps = run.steps_to(LOSS)
        ends = [result.to_loss(link, way) for link in result.seconds]
        rows.append(
            [
                way,
                f"{sum(run.payload) / len(run.payload):,.0f}",
                *(format_seconds(result.step_seconds(link, way)) for link in result.seconds),
                "never" if steps is None else f"{steps}",
                *("" if end is None else format_seconds(end) for end in ends),
            ]
        )
    return rows


def _verdicts(result: GradientCompressionResult) -> list[str]:
    lines = []
    for link in result.seconds:
        ratios = result.ratios(link)
        words = ", ".join(f"{own} {found:.2f}x" for own, found in ratios.items())
        lines.append(
            f"A step to that with torch's hook, {f'link {link}' if link else 'no link'}: {words}; target at most "
            f"{TO_TORCH:.2f}x: {met(max(ratios.values()) <= TO_TORCH)}."
        )
    return [*lines, f"Bytes as with torch's hooks: {met(result.ok)}."]


BENCH = Bench(
    "A step with each method of compression and rare averaging, beside torch's hooks, and the time to a loss.",
    "dtlearn bench gradient_compression",
    "rounds",
    5,
    measure,
    table,
    values,
)
