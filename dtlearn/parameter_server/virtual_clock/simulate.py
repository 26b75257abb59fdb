"""A server and its workers under a virtual clock: events in order of their time, with real gradients.

It has one server, which keeps everything. The rules are `ServerProgress`, an update is that of `Shard`: the code of the
real server.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import torch

from dtlearn.models.reference import NamedTensors

from ..consistency import Consistency
from ..progress import LogEntry, Push, ServerProgress, ServerUpdate
from ..shard import OptimizerMaker, Shard, ShardGradient, views
from .compute import ComputeGradients
from .timing import Timing


class Stretch(NamedTuple):
    """What a worker did from `start` to `end`, in seconds: "pull" (request and answer), "wait" for the rule, "compute",
    or "push", for its push of that number."""

    worker: int
    number: int
    kind: str
    start: float
    end: float


class Version(NamedTuple):
    """A version of the parameters: when the server had it, and what `evaluate` says of it."""

    version: int
    seconds: float
    value: float


@dataclass
class SimulatedRun:
    """What came of it.

    Attributes:
        parameters: at the end, by name.
        log: of all pushes, as the server's.
        losses: by (worker, number), of the batch, at the parameters that were pulled.
        versions: those that were evaluated; empty without `evaluate`.
        stretches: what each worker did, in order of their ends.
        seconds: until the last push arrived.
    """

    parameters: NamedTensors = field(default_factory=dict)
    log: list[LogEntry] = field(default_factory=list)
    losses: dict[tuple[int, int], float] = field(default_factory=dict)
    versions: list[Version] = field(default_factory=list)
    stretches: list[Stretch] = field(default_factory=list)
    seconds: float = 0.0


def simulate(
    rule: Consistency,
    num_pushes: Sequence[int],
    initial: Mapping[str, torch.Tensor],
    make_optimizer: OptimizerMaker,
    compute: ComputeGradients,
    timing: Timing,
    *,
    pipelined: bool = False,
    lr_factor: Callable[[int], float] | None = None,
    evaluate: Callable[[Mapping[str, torch.Tensor]], float] | None = None,
) -> SimulatedRun:
    """Train with one server and `len(num_pushes)` workers.

    Of events at the same time the one that was caused first comes first: equal arguments give equal runs.

    Args:
        rule: consistency, as of the real server.
        num_pushes: of each worker; then it leaves.
        initial: parameters before the first update, by name.
        make_optimizer: the server's.
        compute: what a worker computes, see `computing`.
        timing: how long it takes.
        pipelined: a worker asks for its next parameters when it begins to compute, not when it has pushed.
        lr_factor: staleness -> what the learning rate of a push is multiplied by.
        evaluate: called with the parameters of every version, such as the loss on test data.

    Raises:
        ValueError: no worker, or one that pushes nothing; a rule under which nobody may start.
    """
    if not num_pushes or min(num_pushes) < 1:
        raise ValueError(f"each worker pushes once or more, and there is one at least; got {list(num_pushes)}")
    return _Simulation(rule, num_pushes, initial, make_optimizer, compute, timing, pipelined, lr_factor, evaluate).run()


class _Pulled(NamedTuple):
    step: int
    version: int
    flat: torch.Tensor


@dataclass
class _Simulation:
    """The server, the workers, and what is to happen; the fields are the arguments of `simulate`."""

    rule: Consistency
    num_pushes: Sequence[int]
    initial: Mapping[str, torch.Tensor]
    make_optimizer: OptimizerMaker
    compute: ComputeGradients
    timing: Timing
    pipelined: bool
    lr_factor: Callable[[int], float] | None
    evaluate: Callable[[Mapping[str, torch.Tensor]], float] | None

    def __post_init__(self) -> None:
        self.shard = Shard(self.initial, self.make_optimizer)
        clocks = dict.fromkeys(range(len(self.num_pushes)), 0)
        self.progress: ServerProgress[ShardGradient] = ServerProgress(self.rule, clocks, self.lr_factor)
        self.result = SimulatedRun()
        self.now, self._events, self._caused = 0.0, list[tuple[float, int, Callable[[], None]]](), 0
        self._port_free = {"out": 0.0, "in": 0.0}
        self._waiting: list[tuple[int, int, float]] = []  # pulls that the rule holds back: (worker, step, since)
        self._asked: Counter[int] = Counter()  # by worker: pulls
        self._begun: Counter[int] = Counter()  # by worker: gradients that are computed, or were
        self._computing: set[int] = set()
        self._push_comes: dict[int, float] = {}  # by worker: when its last push arrives
        self._answers: dict[int, _Pulled] = {}  # that have arrived, and are not used yet

    def run(self) -> SimulatedRun:
        self._evaluate()
        for worker in range(len(self.num_pushes)):
            self._ask(worker, 0)
        while self._events:
            self.now, _, event = heapq.heappop(self._events)
            event()
        if self._waiting:
            raise ValueError(
                f"all others are done, and the rule {self.rule} never lets workers "
                f"{sorted(worker for worker, _, _ in self._waiting)} start"
            )
        self.result.parameters = {name: p.detach().clone() for name, p in self.shard.parameters.items()}
        self.result.log, self.result.seconds = self.progress.log, self.now
        return self.result

    def _at(self, seconds: float, event: Callable[[], None]) -> None:
        self._caused += 1
        heapq.heappush(self._events, (seconds, self._caused, event))

    def _through_port(self, way: str) -> float:
        """When a message that is ready now has arrived at the other end."""
        self._port_free[way] = max(self._port_free[way], self.now) + self.timing.transfer
        return self._port_free[way] + self.timing.latency

    def _note(self, worker: int, number: int, kind: str, start: float) -> None:
        if self.now > start:
            self.result.stretches.append(Stretch(worker, number, kind, start, self.now))

    # A worker

    def _ask(self, worker: int, step: int) -> None:
        asked = self.now
        # A worker's messages stay in their order: the request does not overtake a push.
        comes = max(self.now + self.timing.latency, self._push_comes.get(worker, 0.0))
        self._at(comes, lambda: self._request(worker, step, asked))

    def _answered(self, worker: int, pulled: _Pulled, since: float) -> None:
        self._note(worker, self._asked[worker] - 1, "pull", since)
        self._answers[worker] = pulled
        self._begin(worker)

    def _begin(self, worker: int) -> None:
        """ComputeGradients, if the parameters are there and nothing else is computed."""
        if worker in self._computing or worker not in self._answers:
            return
        pulled, number, begun = self._answers.pop(worker), self._begun[worker], self.now
        self._begun[worker] += 1
        self._computing.add(worker)
        if self.pipelined and self._begun[worker] < self.num_pushes[worker]:
            self._ask(worker, pulled.step + 1)
        seconds = self.timing.compute(worker, number)
        self._at(self.now + seconds, lambda: self._computed(worker, number, pulled, begun))

    def _computed(self, worker: int, number: int, pulled: _Pulled, begun: float) -> None:
        self._note(worker, number, "compute", begun)
        computed = self.compute(worker, number, views(pulled.flat, self.shard.parameters))
        self.result.losses[worker, number] = computed.loss
        flat = torch.cat([computed.gradients[name].reshape(-1) for name in self.shard.parameters])
        push = Push(worker, number, pulled.step, pulled.version, ShardGradient(flat), computed.weight)
        sent = self.now
        self._push_comes[worker] = self._through_port("in")
        self._at(self._push_comes[worker], lambda: self._arrived(push, sent))
        self._computing.remove(worker)
        if self.pipelined:
            self._begin(worker)

    # The server

    def _request(self, worker: int, step: int, asked: float) -> None:
        self._asked[worker] += 1
        self._note(worker, self._asked[worker] - 1, "pull", asked)
        self._waiting.append((worker, step, self.now))
        self._answer()

    def _answer(self) -> None:
        """Send the parameters to all who may start: whole, as they are now."""
        for waiting in list(self._waiting):
            worker, step, since = waiting
            if self.progress.may_start(step):
                self._waiting.remove(waiting)
                self._note(worker, self._asked[worker] - 1, "wait", since)
                pulled = _Pulled(
                    self.progress.step_to_start(step), self.progress.version, self.shard.flat.detach().clone()
                )
                begun = self.now
                self._at(
                    self._through_port("out"),
                    lambda w=worker, p=pulled, b=begun: self._answered(w, p, b),  # type: ignore[misc]
                )

    def _arrived(self, push: Push[ShardGradient], sent: float) -> None:
        self._note(push.worker, push.number, "push", sent)
        self._apply(self.progress.arrived(push))
        if push.number + 1 == self.num_pushes[push.worker]:
            self._apply(self.progress.left(push.worker))
        elif not self.pipelined:
            self._request(push.worker, push.step + 1, self.now)  # the request came right behind the push
        self._answer()

    def _apply(self, update: ServerUpdate[ShardGradient] | None) -> None:
        if update is not None:
            self.shard.apply(update)
            self._evaluate()

    def _evaluate(self) -> None:
        if self.evaluate is not None:
            value = self.evaluate({name: p.detach() for name, p in self.shard.parameters.items()})
            self.result.versions.append(Version(self.progress.version, self.now, value))
