"""`dtlearn bench memory`: the ledger beside the formula, our checkpoint beside torch's, and what a ledger costs."""

from __future__ import annotations

import functools
import statistics
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ...runtime.machine.cores import load_line
from ...runtime.words import format_seconds
from ..bench import Bench, BenchResult
from ..figures import aligned
from ..status_line import say
from .memory_peaks import MODELS, peak_and_formula
from .words import load_since, met, noisy

if TYPE_CHECKING:
    import torch

    from ...memory.saving.variants import GPTWorkload
    from ...models.in_turns import Times

PLAIN, OURS, TORCHS, BYTES, FULL = "plain", "our checkpoint", "torch's checkpoint", "ledger of bytes", "full ledger"
WAYS = (PLAIN, OURS, TORCHS, BYTES, FULL)
TO_FORMULA = 0.01  # target: the peaks differ by at most that share of the formula's
TO_TORCH = 1.05  # target: a step with our checkpoint against one with torch's
_TIMEOUT = 900.0


@dataclass(frozen=True)
class MemoryResult(BenchResult):
    """Peaks, which are the same every time, and steps, measured in turns.

    Attributes:
        where: what the ranks ran on, such as "gloo on CPU".
        parameters: of the model of the steps.
        peaks: {model: (bytes by the ledger, bytes by the formula)}.
        checkpoint_peaks: {way: bytes}, beyond model, optimizer's state and batch.
        steps: {way: seconds of each round, on its slowest rank}.
        machine: cores and load before and after.
    """

    ranks: int
    where: str
    parameters: int
    peaks: dict[str, tuple[int, int]]
    checkpoint_peaks: dict[str, int]
    steps: Times
    machine: str

    @property
    def errors(self) -> dict[str, float]:
        """The difference between ledger and formula as a share of the formula, by model."""
        return {name: abs(counted - formula) / formula for name, (counted, formula) in self.peaks.items()}

    @property
    def ratios(self) -> dict[str, float]:
        """Our checkpoint to torch's, in time and in memory; each ledger's step to the plain one."""
        from ...models.in_turns import ratio

        plain = self.steps[PLAIN]
        return {
            "our/torch's checkpoint": ratio(self.steps[OURS], self.steps[TORCHS]),
            "our/torch's checkpoint, peak": self.checkpoint_peaks[OURS] / self.checkpoint_peaks[TORCHS],
            **{f"{name}/plain": ratio(self.steps[name], plain) for name in WAYS if name != PLAIN},
        }

    @property
    def ok(self) -> bool:
        """Bytes are exact: the ledger agrees with the formula, and our checkpoint needs no more than torch's."""
        return max(self.errors.values()) <= TO_FORMULA and self.ratios["our/torch's checkpoint, peak"] <= 1.0


def measure(ranks: int, rounds: int, work: GPTWorkload | None = None) -> MemoryResult:
    """Peaks in this process, on the CPU; then the steps, on ranks."""
    from ...memory.saving.variants import GPTWorkload
    from ...models import GPTConfig
    from ...models.in_turns import slowest
    from ...runtime.run import run_ranks

    work = work or GPTWorkload(GPTConfig(num_layers=4, num_heads=8, hidden_size=256), batch=8)
    before = load_line()
    say("peaks of four models")
    peaks = {name: peak_and_formula(name) for name in MODELS}
    say(f"{rounds} rounds of steps")
    run = run_ranks(time_on_rank, ranks, work, rounds, timeout=_TIMEOUT)
    times, checkpoint_peaks = [times for times, _ in run.values], run.values[0][1]
    machine = load_since(before)
    parameters = work.config.num_parameters
    return MemoryResult(ranks, run.placement.where, parameters, peaks, checkpoint_peaks, slowest(times), machine)


def time_on_rank(work: GPTWorkload, rounds: int) -> tuple[Times, dict[str, int]]:
    """On each rank: seconds of a step in each of `WAYS`, and the peaks of those with a checkpoint."""
    from ...memory.ledger.storage_ledger import StorageLedger
    from ...models.in_turns import time_in_turns

    steps = {name: _step(work, name) for name in WAYS}
    peaks = {}
    for name in (OURS, TORCHS):
        steps[name]()  # makes the optimizer's state
        with StorageLedger() as ledger:
            steps[name]()
        peaks[name] = ledger.peak
    return time_in_turns(steps, rounds), peaks


def _step(work: GPTWorkload, name: str) -> Callable[[], None]:
    from contextlib import nullcontext

    import torch
    from torch.utils.checkpoint import checkpoint as torchs_checkpoint

    from ...memory.ledger.ledger import MemoryLedger
    from ...memory.ledger.storage_ledger import StorageLedger
    from ...memory.recomputation.checkpoint import checkpoint as our_checkpoint
    from ...memory.recomputation.every_k import checkpoint_every
    from ...models import GPT, next_token_loss
    from ...runtime.device import device

    torch.manual_seed(0)
    model = GPT(work.config).to(device())
    tokens = torch.randint(work.config.vocab_size, (work.batch, work.config.context_length + 1), device=device())
    optimizer = torch.optim.Adam(model.parameters())
    checkpoints: dict[str, Any] = {
        OURS: our_checkpoint,
        TORCHS: functools.partial(torchs_checkpoint, use_reentrant=False),
    }

    def forward(tokens: torch.Tensor) -> Any:
        if name not in checkpoints:
            return model(tokens)
        x = checkpoint_every(list(model.blocks), model.embedding(tokens), 1, checkpoints[name])  # (B, T, C)
        return model.head(x)  # (B, T, V)

    def ledger() -> Any:
        if name == FULL:
            return MemoryLedger(model, optimizer)
        return StorageLedger() if name == BYTES else nullcontext()

    def step() -> None:
        with ledger():
            next_token_loss(forward(tokens[:, :-1]), tokens[:, 1:]).backward()
            optimizer.step()
            optimizer.zero_grad()

    return step


def table(result: MemoryResult) -> str:
    """The result for people."""
    peak_rows = [["peak of a step with Adam", "ledger", "formula", "apart"]]
    for name, (counted, formula) in result.peaks.items():
        peak_rows.append([name, f"{counted:,}", f"{formula:,}", f"{result.errors[name]:.3%}"])
    rounds = len(result.steps[PLAIN])
    return "\n".join(
        [
            aligned(peak_rows),
            "",
            f"{result.ranks} rank{'s' * (result.ranks > 1)} ({result.where}), GPT of {result.parameters:,} parameters; "
            "forward, backward, Adam; a checkpoint around each block.",
            f"{rounds} rounds in turn; medians of the slowest rank.",
            "",
            aligned(_step_rows(result)),
            "",
            *_verdicts(result),
            noisy(result.machine),
        ]
    )


def values(result: MemoryResult) -> dict[str, Any]:
    """The result as plain values, seconds throughout."""
    return {
        "ranks": result.ranks,
        "where": result.where,
        "parameters": result.parameters,
        "machine": result.machine,
        "targets": {"peak": TO_FORMULA, "our/torch's checkpoint": TO_TORCH, "our/torch's checkpoint, peak": 1.0},
        "peaks": {name: {"ledger": counted, "formula": formula} for name, (counted, formula) in result.peaks.items()},
        "checkpoint_peaks": result.checkpoint_peaks,
        "ratios": result.ratios,
        "measured": [
            {"kind": kind, "median": statistics.median(seconds), "rounds": list(seconds)}
            for kind, seconds in result.steps.items()
        ],
    }


def _step_rows(result: MemoryResult) -> list[list[str]]:
    rows = [["a training step", "median", "best", "to plain", "peak beyond model and batch"]]
    for name, seconds in result.steps.items():
        to_plain = f"{result.ratios.get(f'{name}/plain', 1.0):.2f}x"
        peak = f"{result.checkpoint_peaks[name]:,}" if name in result.checkpoint_peaks else ""
        rows.append([name, format_seconds(statistics.median(seconds)), format_seconds(min(seconds)), to_plain, peak])
    return rows


def _verdicts(result: MemoryResult) -> list[str]:
    from ...models.in_turns import difference

    error, ratios = max(result.errors.values()), result.ratios
    time, peak = ratios["our/torch's checkpoint"], ratios["our/torch's checkpoint, peak"]
    over = format_seconds(difference(result.steps[FULL], result.steps[PLAIN]))
    return [
        f"Ledger to formula: at most {error:.3%} apart, target {TO_FORMULA:.0%}: {met(error <= TO_FORMULA)}.",
        f"Our checkpoint to torch's: time {time:.2f}x, target at most {TO_TORCH:.2f}x: {met(time <= TO_TORCH)}; "
        f"peak {peak:.3f}x, target at most 1: {met(peak <= 1.0)}.",
        f"The full ledger adds {over} to a step.",
    ]


BENCH = Bench(
    "The ledger's peak beside the formula, our checkpoint beside torch's, and what the ledger costs.",
    "dtlearn bench memory",
    "rounds",
    9,
    measure,
    table,
    values,
    ranks=1,
)
