"""`dtlearn bench recorder`: what it costs that every call on ranks is recorded.

Each rank does the same things with and without the recorder, in turns. Without it torch is as it comes: the wrappers,
the hooks and the kernels in the dispatcher are taken out for that time.
"""

import contextlib
import dataclasses
import math
import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from ...runtime.machine.cores import load_line
from ...runtime.words import format_seconds
from ..bench import Bench, BenchResult
from ..figures import aligned, spread
from ..status_line import say

STEP_TARGET = 0.03  # share of a step
_CALLS = 300  # calls of one measurement
# Between two calls a rank computes, as programs do. Calls without a pause would find gloo's thread still awake, which
# the recorder's few microseconds are enough to change: that costs more than they do, and is none of a program's cost.
_PAUSE = 200e-6  # seconds
_STEPS = 8  # training steps of one measurement: the fewer, the more alike are the two that are compared
# Before it: putting wrappers in place makes Python forget what it has learnt of the classes, which costs a few steps.
_WARM = 4
_TIMEOUT = 600.0


@dataclass(frozen=True)
class RecorderResult(BenchResult):
    """Times with and without the recorder, in seconds, measured in turns on rank 0."""

    ranks: int
    # call: {"without": of each round, "with": ...}, of a pause and an all-reduce of one number in a group of one
    call: dict[str, tuple[float, ...]]
    step: dict[str, tuple[float, ...]]  # likewise, of one step of a GPT under torch's DDP
    # step_cpu: likewise, the processor time of such a step, which other programs disturb less
    step_cpu: dict[str, tuple[float, ...]]
    parameters: int  # of that GPT
    machine: str

    @property
    def call_cost(self) -> float:
        """Seconds that recording adds to a call."""
        from ...models.in_turns import difference

        return difference(self.call["with"], self.call["without"])

    @property
    def step_share(self) -> float:
        """How much longer recording makes a step, as a share of the step."""
        return _share(self.step)

    @property
    def step_cpu_share(self) -> float:
        """How much more processor time a recorded step takes, as a share."""
        return _share(self.step_cpu)

    @property
    def step_between(self) -> tuple[float, float]:
        """Where `step_share` lies (95 %): between two of the rounds' ratios; no assumption is made."""
        ratios = _ratios(self.step)
        n, half = len(ratios), 0.98 * math.sqrt(len(ratios))
        return ratios[max(0, math.floor(n / 2 - half))] - 1, ratios[min(n - 1, math.ceil(n / 2 + half))] - 1

    @property
    def verdict(self) -> str:
        """ "met" or "missed", if the noise lets that be said."""
        low, high = self.step_between
        return "met" if high < STEP_TARGET else "missed" if low > STEP_TARGET else "within the noise"


def _ratios(times: dict[str, tuple[float, ...]]) -> list[float]:
    return sorted(on / off for on, off in zip(times["with"], times["without"], strict=True))


def _share(times: dict[str, tuple[float, ...]]) -> float:
    """The median of the rounds' ratios, less one."""
    return statistics.median(_ratios(times)) - 1


def measure(ranks: int, rounds: int) -> RecorderResult:
    """Measure on fresh ranks; each round has every measurement once."""
    from ...runtime.run import run_ranks

    machine = load_line()
    say(f"{rounds} rounds with and without")
    figures = run_ranks(rank_work, ranks, rounds, _CALLS, _STEPS, device="cpu", timeout=_TIMEOUT)[0]
    return RecorderResult(ranks, figures["call"], figures["step"], figures["step_cpu"], figures["parameters"], machine)


def rank_work(rounds: int, calls: int, steps: int) -> dict[str, Any]:
    """On each rank: the times of rank 0 are those that count."""
    import torch
    import torch.distributed as dist

    from ...models.gpt import GPT, GPTConfig, next_token_loss
    from ...models.in_turns import turns

    own = [dist.new_group([r]) for r in range(dist.get_world_size())][dist.get_rank()]
    number = torch.zeros(1)
    torch.manual_seed(0)
    config = GPTConfig(vocab_size=96, context_length=64, num_layers=4, num_heads=4, hidden_size=128)
    model = torch.nn.parallel.DistributedDataParallel(GPT(config))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    tokens = torch.randint(config.vocab_size, (8, config.context_length))

    def call() -> None:
        pause = time.perf_counter() + _PAUSE
        while time.perf_counter() < pause:
            pass
        dist.all_reduce(number, group=own)

    def step() -> None:
        optimizer.zero_grad()
        next_token_loss(model(tokens), tokens).backward()
        optimizer.step()

    figures: dict[str, Any] = {"parameters": sum(p.numel() for p in model.parameters())}
    for name, work, times in (("call", call, calls), ("step", step, steps)):
        seconds: dict[str, list[tuple[float, float]]] = {"without": [], "with": []}
        for number_of_round, way in turns(seconds, rounds + 1):
            with contextlib.nullcontext() if way == "with" else not_recorded():
                for _ in range(_WARM):
                    work()
                dist.barrier()
                taken = _seconds(work, times)
            if number_of_round:
                seconds[way].append(taken)
        figures[name] = {way: tuple(wall for wall, _ in taken) for way, taken in seconds.items()}
        figures[f"{name}_cpu"] = {way: tuple(cpu for _, cpu in taken) for way, taken in seconds.items()}
    return figures


@contextlib.contextmanager
def not_recorded() -> Iterator[None]:
    """On a rank: in this block torch runs as it comes, without the recorder."""
    from ...runtime.recording import recorder
    from ...runtime.recording.dispatch import KERNELS
    from ...runtime.recording.python_calls import PYTHON_CALLS

    log = PYTHON_CALLS.log
    recorder.uninstall()
    KERNELS.uninstall()
    try:
        yield
    finally:
        recorder.install(log)


def table(result: RecorderResult) -> str:
    """The result for people."""
    rows = [["", "without", "with", "", "target", ""]]
    target = f"< {STEP_TARGET:.0%}"
    between = "95 %: {:+.1%} to {:+.1%}".format(*result.step_between)
    for name, times, *more in (
        ("one call", result.call, f"+{result.call_cost * 1e6:.0f} us"),
        ("one step", result.step, f"{result.step_share:+.1%}", target, result.verdict),
        ("its processor time", result.step_cpu, f"{result.step_cpu_share:+.1%}"),
    ):
        rows.append([name, *(format_seconds(spread(times[way])[0]) for way in ("without", "with")), *more])
    width = max(map(len, rows))
    rounds = len(result.step["with"])
    return "\n".join(
        [
            f"With and without the recorder on {result.ranks} ranks (CPU, gloo), {rounds} rounds in turn, medians",
            "",
            aligned([row + [""] * (width - len(row)) for row in rows]),
            "",
            f"Of the step's share {between}.",
            f"One call: {_PAUSE * 1e6:.0f} us of computing, then an all-reduce of one number in a group of one rank.",
            f"One step: forward, backward, AdamW of a GPT of {result.parameters:,} parameters under torch's DDP.",
            f"{result.machine}; timings are noisy: quote the share, which compares neighbours in time.",
        ]
    )


def values(result: RecorderResult) -> dict[str, Any]:
    """The result as plain values, seconds throughout."""
    derived = ("call_cost", "step_share", "step_between", "verdict", "step_cpu_share")
    more = {name: getattr(result, name) for name in derived}
    return {**dataclasses.asdict(result), **more, "targets": {"step_share": STEP_TARGET}}


def _seconds(work: Callable[[], None], times: int) -> tuple[float, float]:
    """Wall time and processor time of one, medians."""
    walls, used = [], []
    for _ in range(times):
        begun, before = time.perf_counter(), time.process_time()
        work()
        walls.append(time.perf_counter() - begun)
        used.append(time.process_time() - before)
    return statistics.median(walls), statistics.median(used)


_SUMMARY = "What recording costs: microseconds of a call, and the share of a data-parallel training step."
BENCH = Bench(_SUMMARY, "dtlearn bench recorder", "rounds", 40, measure, table, values, ranks=2)
