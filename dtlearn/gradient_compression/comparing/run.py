"""One method after the other trains the same model on the same ranks; the record says what each step sent."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import NamedTuple, TypeVar

import torch
import torch.distributed as dist

from dtlearn.models.reference import Batch
from dtlearn.runtime.device import device, finish
from dtlearn.runtime.link.link import Link
from dtlearn.runtime.record.record import Record
from dtlearn.runtime.recording.phases import phase
from dtlearn.runtime.run import run_ranks

from ..averaging.mean import averaged
from ..traffic import StepCall, sent_bytes
from .methods import METHODS, Method
from .tasks import TASKS, SmallTask

_TIMEOUT = 300.0
_STEP = "compared step"
Named = TypeVar("Named")


@dataclass(frozen=True)
class MethodRun:
    """What a method did, step by step. All but `seconds` is the same in every run.

    Attributes:
        name: of the method.
        losses: the mean over the ranks of each one's loss on its part of the global batch, before its step.
        payload: bytes that a rank hands to its collectives in each step, as the record counts them.
        sent: bytes that leave its port in each step, by the formula of each collective: see `traffic.py`.
        seconds: of each step, from when all ranks had done the one before until all had done this one.
        held_out: loss of the model at the end on data that it has not seen; parameters that differ are averaged first.
        label: where it ran, and over which link.
    """

    name: str
    losses: tuple[float, ...]
    payload: tuple[int, ...]
    sent: tuple[float, ...]
    seconds: tuple[float, ...]
    held_out: float
    label: str

    @property
    def sent_before(self) -> list[float]:
        """Bytes that had left a rank's port when the loss of each step was taken."""
        return [0.0, *accumulate(self.sent[:-1])]

    @property
    def seconds_before(self) -> list[float]:
        """When each step began, in seconds."""
        return [0.0, *accumulate(self.seconds[:-1])]

    def steps_to(self, loss: float, window: int = 5) -> int | None:
        """Steps until the mean of the last `window` losses is at most `loss`; None: it never is."""
        for end in range(window, len(self.losses) + 1):
            if sum(self.losses[end - window : end]) / window <= loss:
                return end
        return None


def compare(
    methods: Sequence[str | Method],
    task: str | SmallTask = "GPT",
    steps: int = 40,
    *,
    num_ranks: int = 4,
    link: Link | None = None,
) -> list[MethodRun]:
    """Train with each method in turn, on the same ranks, from the same parameters, with the same batches.

    Gradients are averaged when backward is over, in one bucket: nothing overlaps, as in `break_even.py`.

    Args:
        methods: names of `METHODS`, or methods of your own.
        task: name of `TASKS`, or one of your own.
        steps: of each method.
        num_ranks: that share each global batch.
        link: the interconnect to emulate; the ranks are on CPUs then. None: none.

    Raises:
        ValueError: an unknown name, two methods of one name, no step, or a batch that the ranks cannot share evenly.
    """
    chosen = [_named(METHODS, method, "method") for method in methods]
    names = [method.name for method in chosen]
    if not names or len(set(names)) < len(names):
        raise ValueError(f"expected one method or more, each with a name of its own; got {names}")
    if steps < 1:
        raise ValueError(f"expected a number of steps from 1, got {steps}")
    if isinstance(task, str):
        _named(TASKS, task, "task")
    where = "cpu" if link else "auto"
    arguments = chosen, task, steps
    run = run_ranks(train_in_turns, num_ranks, *arguments, device=where, link=link, record=True, timeout=_TIMEOUT)
    recorded = [_rank_steps(run.record, rank) for rank in range(num_ranks)]
    return [
        _method_run(
            name,
            [own[number * steps : (number + 1) * steps] for own in recorded],
            [of_rank[number] for of_rank in run.values],
            run.record.label,
        )
        for number, name in enumerate(names)
    ]


def train_in_turns(methods: Sequence[Method], task: str | SmallTask, steps: int) -> list[tuple[list[float], float]]:
    """On each rank of a recorded run: of each method, the losses of this rank's steps, and the held-out loss."""
    what = TASKS[task]() if isinstance(task, str) else task
    rank, num_ranks = dist.get_rank(), dist.get_world_size()
    batches = [_share(batch, rank, num_ranks) for batch in what.batches(steps)]
    held_out = _on_device(what.held_out())
    results = []
    for method in methods:
        torch.manual_seed(0)  # the same model for every method, on every rank
        model = what.model().to(device())
        update, end = method.set_up(model, what)
        losses = []
        dist.barrier()
        for inputs, targets in batches:
            with phase(_STEP):
                loss = what.loss(model(inputs), targets)
                loss.backward()
                update()
                finish()
            losses.append(loss.detach())
        end()  # what is still on its way belongs to no step, and is not counted
        model.eval()
        with averaged(model), torch.no_grad():
            judged = what.loss(model(held_out[0]), held_out[1])
        results.append((torch.stack(losses).tolist(), judged.item()))
    return results


class _RankStep(NamedTuple):
    """What the record says of a step on one rank; times in ns."""

    payload: int
    sent: float
    begin: int
    end: int


def _rank_steps(record: Record, rank: int) -> list[_RankStep]:
    """All steps of all methods on one rank, in order."""
    own = record.select(rank=rank)
    spans = [(s.start_ns, s.end_ns) for s in own.spans if s.phase == _STEP and s.end_ns is not None]
    calls: list[list[StepCall]] = [[] for _ in spans]
    for event in own:
        at = bisect_right(spans, event.start_ns, key=lambda span: span[0]) - 1
        if at >= 0 and event.start_ns < spans[at][1]:  # between two steps ranks meet, and average to be judged
            calls[at].append(StepCall(event.op, event.nbytes))
    return [
        _RankStep(sum(int(c.nbytes) for c in made), sent_bytes(made, record.world_size), *span)
        for made, span in zip(calls, spans, strict=True)
    ]


def _method_run(
    name: str, steps: Sequence[Sequence[_RankStep]], per_rank: Sequence[tuple[list[float], float]], label: str
) -> MethodRun:
    """The run of one method.

    Args:
        name: of the method.
        steps: of each rank.
        per_rank: what `train_in_turns` returned of it.
        label: of the record.
    """
    losses = [sum(of_ranks) / len(per_rank) for of_ranks in zip(*(own for own, _ in per_rank), strict=True)]
    at_once = list(zip(*steps, strict=True))  # of each step, all ranks
    done = [min(step.begin for step in at_once[0]), *(max(step.end for step in ranks) for ranks in at_once)]
    return MethodRun(
        name,
        tuple(losses),
        tuple(max(step.payload for step in ranks) for ranks in at_once),
        tuple(max(step.sent for step in ranks) for ranks in at_once),
        tuple((after - before) / 1e9 for before, after in pairwise(done)),
        per_rank[0][1],
        label,
    )


def _share(batch: Batch, rank: int, num_ranks: int) -> Batch:
    if len(batch[0]) % num_ranks:
        raise ValueError(
            f"{num_ranks} ranks cannot share a batch of {len(batch[0])} evenly: change num_ranks or the task"
        )
    return _on_device((batch[0][rank::num_ranks], batch[1][rank::num_ranks]))


def _on_device(batch: Batch) -> Batch:
    return batch[0].to(device()), batch[1].to(device())


def _named(table: Mapping[str, Named], name: str | Named, what: str) -> Named:
    if not isinstance(name, str):
        return name
    if name not in table:
        raise ValueError(f"expected a {what} of {', '.join(table)}; got {name!r}")
    return table[name]
