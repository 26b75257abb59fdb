"""What the ranks of a job do together while they save or load: if one of them cannot, all raise, and nobody waits.

A rank that raises alone leaves the others waiting in their next collective. So outcomes are exchanged before anybody
raises.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

import torch.distributed as dist

from .format import CheckpointError, DamagedError

T = TypeVar("T")


class Refusal(NamedTuple):
    """Why a rank could not do something, as it is sent to the others."""

    message: str
    is_damage: bool = False

    def raised(self, cause: BaseException | None = None) -> CheckpointError:
        """The refusal as an exception, to be raised."""
        error = (DamagedError if self.is_damage else CheckpointError)(self.message)
        error.__cause__ = cause
        return error


class JobRanks:
    """Ranks that exchange plain values over gloo; or one process alone, without a group.

    Attributes:
        rank, size: of this rank in the group.
    """

    def __init__(self, group: dist.ProcessGroup | None) -> None:
        self.group = group
        self.rank, self.size = (0, 1) if group is None else (dist.get_rank(group), dist.get_world_size(group))

    @classmethod
    def of(cls, group: dist.ProcessGroup | None) -> JobRanks:
        """A new group of the same ranks, whose messages mix with no other's: NCCL takes no plain values, gloo does.

        **Communication**: that of `new_group`; all ranks of the group call it.
        """
        if not dist.is_initialized():
            return cls(None)
        if group is None:
            return cls(dist.new_group(backend="gloo"))
        ranks = dist.get_process_group_ranks(group)
        return cls(dist.new_group(ranks, backend="gloo", use_local_synchronization=True))

    def close(self) -> None:
        """End the group."""
        if self.group is not None:
            dist.destroy_process_group(self.group)

    def all_gather(self, value: T) -> list[T]:
        """The value of each rank."""
        values: list[Any] = [value] * self.size
        if self.group is not None:
            dist.all_gather_object(values, value, group=self.group)
        return values

    def gather(self, value: T) -> list[T]:
        """The values of all ranks on the first one; [] elsewhere."""
        values: list[Any] = [value] * self.size
        if self.group is not None:
            first = dist.get_global_rank(self.group, 0)
            dist.gather_object(value, values if self.rank == 0 else None, dst=first, group=self.group)
        return values if self.rank == 0 else []

    def from_first(self, action: Callable[[], T]) -> T:
        """Return on every rank what `action()` gives on the first one.

        Raises:
            CheckpointError: on every rank, if it raised there.
        """
        outcome: list[Any] = [None, None]
        error: Exception | None = None
        if self.rank == 0:
            outcome[0], error, outcome[1] = tried(action)
        if self.group is not None:
            dist.broadcast_object_list(outcome, src=dist.get_global_rank(self.group, 0), group=self.group)
        if outcome[1] is not None:
            _raise(outcome[1], error)
        value: T = outcome[0]
        return value

    def together(self, action: Callable[[], T]) -> T:
        """What `action()` gives on this rank, if it raises on no rank.

        Raises:
            CheckpointError: on every rank, if it raised on one; of the first of these.
        """
        value, error, refusal = tried(action)
        for rank, other in enumerate(self.all_gather(refusal)):
            if other is not None:
                _raise(self.named(other, rank), error if rank == self.rank else None)
        assert refusal is None
        return value  # type: ignore[return-value]  # there was no error

    def named(self, refusal: Refusal, rank: int) -> Refusal:
        """The refusal, with the rank that refuses."""
        return refusal if self.size == 1 else refusal._replace(message=f"rank {rank}: {refusal.message}")


def tried(action: Callable[[], T]) -> tuple[T | None, Exception | None, Refusal | None]:
    """The value of `action()`; or what it raised, and that as a refusal, as it is sent."""
    try:
        return action(), None, None
    except DamagedError as error:
        return None, error, Refusal(str(error), is_damage=True)
    except CheckpointError as error:
        return None, error, Refusal(str(error))
    except OSError as error:
        return None, error, Refusal(in_words(error))
    except Exception as error:
        return None, error, Refusal(f"{type(error).__name__}: {error}")


def in_words(error: OSError) -> str:
    """An error in words: the file, if the error names one, and what the system says."""
    return f"{error.filename}: {error.strerror}" if error.filename else error.strerror or str(error)


def _raise(refusal: Refusal, error: Exception | None) -> None:
    if error is not None and not isinstance(error, CheckpointError | OSError):
        raise error  # a mistake in the program: its own stack says where
    raise refusal.raised(error)
