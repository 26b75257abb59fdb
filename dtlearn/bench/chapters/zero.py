"""`dtlearn bench zero`: a training step in each stage of ZeRO beside torch's; what a rank stores, and what it sends."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from ...runtime.machine.cores import load_line, num_cores
from ...runtime.words import format_seconds
from ..bench import Bench, Result
from ..figures import aligned
from ..status_line import say

if TYPE_CHECKING:
    import torch
    from torch import nn

    from ...memory.saving.variants import Workload
    from ...models.in_turns import Times
    from ...runtime.record.record import Record
    from ...zero.partition.partition import Partition

# Ours, and what of torch is nearest to it: both keep the parameters of stage 2 from forward to backward.
COUNTERPARTS = {
    "stage 0": "torch's DDP",
    "stage 1": "torch's ZeroRedundancyOptimizer",
    "stage 2": "torch's fully_shard, kept",
    "stage 3": "torch's fully_shard",
}
WAYS = (*COUNTERPARTS, *COUNTERPARTS.values())
LINK = "1 Gb/s"
CAP = 1 << 20  # elements of a bucket of stage 2: with one bucket nothing would overlap
TO_FORMULA, TO_TORCH = 0.02, 1.15  # targets: bytes stored, and a step without a link, against torch's counterpart
_WARM = 2  # steps that do not count: the first makes the optimizer's state, and torch's DDP settles its buckets
_TIMEOUT = 900.0
_STATE = ("parameters", "gradients", "optimizer state")
# Bytes that a rank sends in a ring, on average, for each that it hands in, with n ranks.
_SENT: dict[str, Callable[[int], float]] = {
    "all_reduce": lambda n: 2 * (n - 1) / n,
    "reduce_scatter": lambda n: (n - 1) / n,
    "all_gather": lambda n: n - 1,
    "broadcast": lambda n: (n - 1) / n,
}


class Stored(NamedTuple):
    """Bytes on the rank that has most.

    Attributes:
        state: parameters, gradients and optimizer's state, between backward and the optimizer's step.
        formula: of the same; None for torch's.
        peak: of the whole step, with activations and all else.
    """

    state: int
    formula: int | None
    peak: int


class Sent(NamedTuple):
    """Bytes that a rank sends in a step, in a ring.

    Attributes:
        recorded: from the calls of a recorded step.
        formula: None for torch's.
    """

    recorded: float
    formula: float | None


@dataclass(frozen=True)
class ZeroResult(Result):
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
    sent: dict[str, Sent]
    bare: Times
    linked: Times
    machine: str

    @property
    def errors(self) -> dict[str, float]:
        """Of each stage, how far what it stores is from the formula, as a share."""
        return {way: abs(s.state - s.formula) / s.formula for way, s in self.stored.items() if s.formula}

    def ratios(self, times: Times) -> dict[str, float]:
        """Of each stage, its step to that of its counterpart."""
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


def measure(ranks: int, rounds: int, work: Workload | None = None, cap: int = CAP) -> ZeroResult:
    """What is stored and sent in a step, then the seconds without and with a link; all on the CPU."""
    from ...memory.saving.variants import Workload
    from ...models import GPTConfig
    from ...models.in_turns import slowest
    from ...runtime.link.link import Link
    from ...runtime.run import run_ranks

    work = work or Workload(GPTConfig(num_layers=4, num_heads=8, hidden_size=256), batch=8)
    options: dict[str, Any] = {"device": "cpu", "timeout": _TIMEOUT}
    before = load_line()
    say("bytes of a step of each kind")
    run = run_ranks(bytes_on_rank, ranks, work, cap, record=True, **options)
    stored = {way: max((of_rank[0][way] for of_rank in run.values), key=lambda s: s.state) for way in WAYS}
    formulas = run.values[0][1]
    sent = {way: Sent(sent_in(run.record, way, ranks), formulas.get(way)) for way in WAYS}
    say(f"{rounds} rounds without a link")
    bare = slowest(run_ranks(time_on_rank, ranks, work, cap, rounds, **options).values)
    say(f"{rounds} rounds on the link")
    on_link = run_ranks(time_on_rank, ranks, work, cap, rounds, link=Link.named(LINK), **options)
    machine = f"{before}, afterwards {load_line().split(', ')[-1]}"
    where, parameters = run.placement.where, work.config.num_parameters
    return ZeroResult(ranks, where, parameters, stored, sent, bare, slowest(on_link.values), machine)


class Way(NamedTuple):
    """A model to train, in one of `WAYS`.

    Attributes:
        partition: None for torch's.
        kept: buckets of it that stay gathered from forward to backward.
    """

    model: nn.Module
    optimizer: torch.optim.Optimizer
    partition: Partition | None = None
    kept: frozenset[int] = frozenset()


def build(way: str, work: Workload, cap: int) -> Way:
    """The same model on every rank, to be trained in this way by Adam."""
    import torch
    import torch.distributed as dist
    from torch.distributed.optim import ZeroRedundancyOptimizer as TorchZeroRedundancyOptimizer
    from torch.nn.parallel import DistributedDataParallel as TorchDDP

    from ...data_parallel.ddp import DistributedDataParallel
    from ...models import GPT
    from ...models.gpt import Block
    from ...zero import FullyShardedDataParallel, ShardedGradients, ZeroRedundancyOptimizer, plan_flat

    torch.manual_seed(0)
    model, adam = GPT(work.config), torch.optim.Adam
    match way:
        case "stage 0":
            partition = plan_flat([p.numel() for p in model.parameters()], dist.get_world_size())
            return Way(DistributedDataParallel(model), adam(model.parameters()), partition)
        case "stage 1":
            wrapped, zero = DistributedDataParallel(model), ZeroRedundancyOptimizer(model.parameters(), adam)
            return Way(wrapped, zero, zero.flat.partition)
        case "stage 2":
            zero = ZeroRedundancyOptimizer(model.parameters(), adam, gradients="local", cap=cap)
            return Way(ShardedGradients(model, zero), zero, zero.flat.partition)
        case "stage 3":
            sharded = FullyShardedDataParallel(model, units=(Block,), reshard_after_forward=None)
            kept = frozenset(bucket.bucket.index for bucket in sharded.units[0].buckets)
            return Way(sharded, adam(sharded.parameters()), sharded.partition, kept)
        case "torch's DDP":
            return Way(TorchDDP(model), adam(model.parameters()))
        case "torch's ZeroRedundancyOptimizer":
            return Way(TorchDDP(model), TorchZeroRedundancyOptimizer(model.parameters(), adam))
    return _fully_sharded(model, reshard_after_forward=False if way.endswith("kept") else None)


def _fully_sharded(model: Any, reshard_after_forward: bool | None) -> Way:
    import torch
    from torch.distributed.fsdp import fully_shard

    for module in (*model.blocks, model):
        fully_shard(module, reshard_after_forward=reshard_after_forward)
    return Way(model, torch.optim.Adam(model.parameters()))


def bytes_on_rank(work: Workload, cap: int) -> tuple[dict[str, Stored], dict[str, float]]:
    """On each rank of a recorded run: what it stores in each way; and of each stage, the bytes that it is to send."""
    from ...memory.ledger.ledger import MemoryLedger
    from ...models import next_token_loss
    from ...runtime.recording.phases import phase

    inputs, targets = _batch(work)
    stored, sent = {}, {}
    for name in WAYS:
        way = build(name, work, cap)
        step = _step(way, work)
        for _ in range(_WARM):
            step()
        holder = getattr(way.optimizer, "optim", way.optimizer)  # torch's shows its state there only
        with phase(name), MemoryLedger(way.model, holder, inputs=(inputs, targets)) as ledger:
            next_token_loss(way.model(inputs), targets).backward()
            record = ledger.record()
            way.optimizer.step()
        formula = None
        if way.partition is not None:
            formula, sent[name] = _formulas(name, way)
        state = sum(a.bytes for a in record.at(record.clock) if a.category in _STATE)
        stored[name] = Stored(state, formula, ledger.peak)
        del way, holder, step, record, ledger
    return stored, sent


def _formulas(name: str, way: Way) -> tuple[int, float]:
    """Bytes that this rank is to store, and to send."""
    import torch.distributed as dist

    from ...memory.arithmetic.training_state import CONVENTIONS
    from ...zero.arithmetic.state_bytes import state_bytes
    from ...zero.arithmetic.traffic import sent_bytes, step_traffic

    assert way.partition is not None
    stage, rank = int(name[-1]), dist.get_rank()
    # torch's Adam keeps 4 bytes more for each tensor: the number of its steps.
    stored = state_bytes(way.partition, stage, CONVENTIONS["fp32 Adam"], rank=rank, per_tensor=4)
    calls = step_traffic(way.partition, stage, gradients="averaged" if stage == 1 else "local", kept=way.kept)
    return sum(stored.values()), sent_bytes(calls)


def sent_in(record: Record, way: str, ranks: int) -> float:
    """Bytes that rank 0 sends in a phase of the record, if every collective is a ring."""
    from ...runtime.record.training_steps import part

    sent = 0.0
    for call in part(record, way).select(rank=0):
        factor = next((factor for op, factor in _SENT.items() if call.op.startswith(op)), None)
        sent += call.nbytes * factor(ranks) if factor is not None else 0.0  # a barrier, say, has no bytes
    return sent


def time_on_rank(work: Workload, cap: int, rounds: int) -> Times:
    """On each rank: seconds of a step in each of `WAYS`, in turns."""
    from ...models.in_turns import time_in_turns

    return time_in_turns({name: _step(build(name, work, cap), work) for name in WAYS}, rounds, _WARM)


def _step(way: Way, work: Workload) -> Callable[[], None]:
    from ...models import next_token_loss

    inputs, targets = _batch(work)

    def step() -> None:
        next_token_loss(way.model(inputs), targets).backward()
        way.optimizer.step()
        way.optimizer.zero_grad()

    return step


def _batch(work: Workload) -> tuple[torch.Tensor, torch.Tensor]:
    import torch

    tokens = torch.randint(work.config.vocab_size, (work.batch, work.config.context_length + 1))  # (B, T + 1)
    return tokens[:, :-1], tokens[:, 1:]


def table(result: ZeroResult) -> str:
    """The result for people."""
    rounds = len(result.bare["stage 0"])
    more = " More ranks than cores: they take turns." if result.ranks > num_cores() else ""
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
            f"{result.machine}; timings are noisy: quote the ratios, which compare neighbours.",
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
    def met(is_met: bool) -> str:
        return "met" if is_met else "missed"

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
