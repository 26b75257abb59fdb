"""What a server knows of its workers: their clocks, the pushes that wait to be applied, and the log of all pushes.

No process and no tensor: the server on its rank and the simulation under a virtual clock have one each, and apply what
it returns. The log of a real run says all that is needed to compute the same parameters again.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from .consistency import Consistency

Gradient = TypeVar("Gradient")


@dataclass(frozen=True)
class Push(Generic[Gradient]):
    """A gradient on its way into the parameters.

    Attributes:
        worker: number of the worker, from 0; not its rank.
        number: which push of this worker it is, from 0.
        step: the step that it belongs to, as the answer to the pull said.
        pulled: the version of the parameters that it was computed from.
        gradient: what is applied; the rules never look at it.
        weight: samples, or tokens, that it is the mean of; counts where pushes are applied together.
    """

    worker: int
    number: int
    step: int
    pulled: int
    gradient: Gradient
    weight: int = 1


@dataclass(frozen=True)
class LogEntry:
    """A push, as the log has it.

    Attributes:
        order: of its arrival at this server, from 0.
        worker, number, step, pulled, weight: as in `Push`.
        applied: the first version that has it; None: it came too late and was dropped.
        staleness: updates that were applied between its pull and its own: `applied - 1 - pulled`. Of a push that was
            dropped: those until it arrived.
        lr_factor: what the learning rate was multiplied by; 0 if it was dropped.
    """

    order: int
    worker: int
    number: int
    step: int
    pulled: int
    weight: int
    applied: int | None
    staleness: int
    lr_factor: float


@dataclass(frozen=True)
class ServerUpdate(Generic[Gradient]):
    """Pushes that are applied as one, in this order, and what the learning rate is multiplied by."""

    pushes: tuple[Push[Gradient], ...]
    lr_factor: float = 1.0


@dataclass
class ServerProgress(Generic[Gradient]):
    """Follows the workers of one server. Its owner applies every update that `arrived` or `left` returns, at once.

    Attributes:
        rule: who may start, and what is an update.
        clocks: by worker, of those that still train: steps whose push has arrived.
        lr_factor: staleness -> what the learning rate of a push is multiplied by; None: always 1.
        version: number of updates so far; a server that was restored begins at the version of its checkpoint.
        log: in the order in which pushes took effect, those that are one update by worker.
    """

    rule: Consistency
    clocks: dict[int, int]
    lr_factor: Callable[[int], float] | None = None
    version: int = 0
    log: list[LogEntry] = field(default_factory=list)
    _waiting: list[tuple[int, Push[Gradient]]] = field(default_factory=list)
    _pushes: dict[int, int] = field(default_factory=dict)

    def may_start(self, step: int) -> bool:
        """Whether parameters for this step may be handed out."""
        return self.rule.may_start(step, self.clocks)

    def step_to_start(self, step: int) -> int:
        """The step that a worker gets parameters for that asks for this one: not one that is complete without it."""
        return max(step, self.version) if self.rule.together else step

    def arrived(self, push: Push[Gradient]) -> ServerUpdate[Gradient] | None:
        """A push has come. Returns what is to be applied now, if anything is.

        Raises:
            ValueError: the worker has left, has pushed this step before, or its parameters do not exist yet.
        """
        number, clock = self._pushes.get(push.worker, 0), self.clocks.get(push.worker)
        if clock is None:
            raise ValueError(f"worker {push.worker} pushes, and has left: {sorted(self.clocks)} still train")
        if push.number != number or push.step < clock or not 0 <= push.pulled <= self.version:
            raise ValueError(
                f"worker {push.worker} pushes its gradient number {push.number}, of step {push.step} and version "
                f"{push.pulled}; expected were number {number}, step {clock} or a later one, and a version up to "
                f"{self.version}. Each pull is followed by one push"
            )
        order = sum(self._pushes.values())
        self._pushes[push.worker] = number + 1
        self.clocks[push.worker] = max(self.clocks[push.worker], push.step + 1)
        if not self.rule.together:
            return self._apply([(order, push)])
        if push.step < self.version:
            self._note(order, push, None, 0.0)
            return None
        self._waiting.append((order, push))
        return self._due()

    def left(self, worker: int) -> ServerUpdate[Gradient] | None:
        """A worker is done, or gone: nobody waits for it any longer. Returns the update that waited for it only."""
        del self.clocks[worker]
        return self._due()

    def _due(self) -> ServerUpdate[Gradient] | None:
        if not self._waiting or (self.clocks and self.rule.complete(self.clocks) <= self.version):
            return None
        pushes, self._waiting = sorted(self._waiting, key=lambda waiting: waiting[1].worker), []
        return self._apply(pushes)

    def _apply(self, pushes: list[tuple[int, Push[Gradient]]]) -> ServerUpdate[Gradient]:
        staleness = max(self.version - push.pulled for _, push in pushes)
        factor = self.lr_factor(staleness) if self.lr_factor else 1.0
        for order, push in pushes:
            self._note(order, push, self.version + 1, factor)
        self.version += 1
        return ServerUpdate(tuple(push for _, push in pushes), factor)

    def _note(self, order: int, push: Push[Gradient], applied: int | None, factor: float) -> None:
        staleness = self.version - push.pulled
        self.log.append(
            LogEntry(order, push.worker, push.number, push.step, push.pulled, push.weight, applied, staleness, factor)
        )
