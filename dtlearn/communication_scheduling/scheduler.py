"""Who sends what next: on each rank a thread for each step, which launches partitions while the rank computes.

All ranks must launch the same partitions in the same order, and each knows only what its own backward pass has ready.
Two ways to agree:

- `RankZeroDecides`: rank 0 chooses among what is ready there, and announces it; the others launch what is announced as
  soon as they have it. In ByteScheduler for PyTorch the order is rank 0's, too (bytedance/byteps, branch
  bytescheduler, pytorch/horovod.py): the other ranks submit at once (`_immediate`), rank 0 by priority and credit, and
  Horovod's negotiation starts what all have submitted. Its successor in BytePS has servers:
  byteps/torch/cross_barrier.py.
- `PlannedOrder`: the order is fixed before training, from the times of the layers; no messages. TicTac plans so, for
  another thing: the transfers of parameters from servers to workers (Hashemi et al., "TicTac: Accelerating Distributed
  Deep Learning with Communication Scheduling", arXiv:1803.03288).

Either way a rank that is slower than rank 0, or than the plan, holds up the partition whose turn it is, and with it
what comes after. With push and pull nobody need agree: `EachDecides`.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import torch
import torch.distributed as dist

from .policy import GradientPartition, SchedulingPolicy
from .simulate import SentPartition

Launch = Callable[[GradientPartition], Any]  # begins to send a partition; returns what has a wait()


class Decider(Protocol):
    """Who chooses the next partition."""

    def choose(self, sender: StepSender) -> GradientPartition:
        """The partition that this rank launches next; waits until it is known, and ready here."""
        ...

    def end_step(self) -> None:
        """Called when everything of a step has been launched."""
        ...


class EachDecides:
    """This rank chooses alone: by the policy, among what is ready here."""

    def choose(self, sender: StepSender) -> GradientPartition:
        return sender.policy.choose(sender.wait_for_any())

    def end_step(self) -> None:
        pass


class PlannedOrder:
    """The order is known beforehand, the same on every rank; such as `simulate_step(...).order`."""

    def __init__(self, order: Sequence[GradientPartition]) -> None:
        self.order = list(order)

    def choose(self, sender: StepSender) -> GradientPartition:
        return sender.wait_for(self.order[sender.num_launched])

    def end_step(self) -> None:
        pass


class RankZeroDecides:
    """Rank 0 of a group chooses as it would alone, and tells the others.

    **Communication**: a message of 8 bytes to each other rank for each partition, over gloo.
    **Memory**: those messages.

    Args:
        group: of gloo, for these messages alone: among partitions they would wait for their turn.
    """

    def __init__(self, group: dist.ProcessGroup) -> None:
        self.group, self.ranks = group, dist.get_process_group_ranks(group)
        self.told: list[Any] = []  # Works of messages, each with its tensor

    def choose(self, sender: StepSender) -> GradientPartition:
        if dist.get_rank() == self.ranks[0]:
            chosen = sender.policy.choose(sender.wait_for_any())
            number = torch.tensor([sender.partitions.index(chosen)])
            for rank in self.ranks[1:]:
                self.told.append((dist.isend(number, rank, group=self.group), number))
            return chosen
        number = torch.empty(1, dtype=torch.int64)
        dist.recv(number, self.ranks[0], group=self.group)
        return sender.wait_for(sender.partitions[int(number)])

    def end_step(self) -> None:
        while self.told:
            self.told.pop()[0].wait()


class StepSender:
    """The sends of one step on one rank. Its thread ends with them.

    A thread of Python takes turns with the one that trains; it needs its turn for a moment at each launch, and while
    it waits for a transfer, or torch computes, neither is in the other's way.

    Args:
        partitions: of each layer.
        policy: whose credit limits what is in flight, and who chooses.
        decider: who chooses.
        launch: begins to send a partition; called in the thread, in the order of the sends.
    """

    def __init__(
        self,
        partitions: Sequence[Sequence[GradientPartition]],
        policy: SchedulingPolicy,
        decider: Decider,
        launch: Launch,
    ) -> None:
        self.partitions = [p for of_layer in partitions for p in of_layer]
        self.policy, self.decider, self.launch = policy, decider, launch
        self.num_launched = 0
        self.sends: list[SentPartition] = []  # those that have ended, in the order in which they were launched
        self._of_layer = partitions
        self._missing = [len(of_layer) for of_layer in partitions]  # partitions of each layer that have not ended
        self._waiting: list[GradientPartition] = []  # ready and not launched, in the order in which they became ready
        self._ready_at: dict[int, float] = {}
        self._ended_at: dict[GradientPartition, float] = {}
        self._in_flight: deque[tuple[GradientPartition, float, Any]] = deque()
        self._changed = threading.Condition()
        self._failed: BaseException | None = None
        threading.Thread(target=self._run, name="sender", daemon=True).start()

    def ready(self, layer: int) -> None:
        """Say that a layer's gradient can be sent. Called by the thread that trains, once for each layer."""
        with self._changed:
            self._ready_at[layer] = time.perf_counter()
            self._waiting += self._of_layer[layer]
            self._changed.notify_all()

    def wait(self, layer: int) -> None:
        """Wait until all of a layer has arrived. Called by the thread that trains.

        Raises:
            RuntimeError: sending has failed; the error behind it says why.
        """
        with self._changed:
            self._changed.wait_for(lambda: self._missing[layer] == 0 or self._failed is not None)
        if self._failed is not None:
            raise RuntimeError(f"gradients could not be sent: {self._failed}") from self._failed

    # In the thread

    def wait_for_any(self) -> list[GradientPartition]:
        """What is ready and not launched: one partition at least."""
        with self._changed:
            self._changed.wait_for(lambda: bool(self._waiting))
            return list(self._waiting)

    def wait_for(self, partition: GradientPartition) -> GradientPartition:
        """Wait until this one is ready here."""
        with self._changed:
            self._changed.wait_for(lambda: partition in self._waiting)
        return partition

    def _run(self) -> None:
        try:
            for _ in self.partitions:
                while not self.policy.may_launch(sum(p.nbytes for p, _, _ in self._in_flight)):
                    self._end_oldest()
                chosen = self.decider.choose(self)
                with self._changed:
                    self._waiting.remove(chosen)
                launched = time.perf_counter()
                work = self.launch(chosen)
                self._note_end(chosen, work)
                self._in_flight.append((chosen, launched, work))
                self.num_launched += 1
            while self._in_flight:
                self._end_oldest()
            self.decider.end_step()
        except BaseException as error:  # whatever it is, it belongs to the thread that trains
            with self._changed:
                self._failed = error
                self._changed.notify_all()

    def _note_end(self, partition: GradientPartition, work: Any) -> None:
        """Note when it ends, also while this thread waits for the next gradient. Messages have no future: see below."""
        with contextlib.suppress(AttributeError, RuntimeError):
            work.get_future().add_done_callback(lambda _: self._ended_at.setdefault(partition, time.perf_counter()))

    def _end_oldest(self) -> None:
        """Wait for the partition that was launched first: a communicator ends them in this order."""
        partition, launched, work = self._in_flight.popleft()
        work.wait()
        now = self._ended_at.pop(partition, None) or time.perf_counter()
        ready = self._ready_at[partition.layer]
        with self._changed:
            start = max(launched, self.sends[-1].end) if self.sends else launched
            # Ends are noted by threads of the backend: of two short sends the later one's may be noted first.
            self.sends.append(SentPartition(partition, ready, launched, start, max(start, now)))
            self._missing[partition.layer] -= 1
            self._changed.notify_all()
