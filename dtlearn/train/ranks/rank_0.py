"""Rank 0 does what only one rank may do (files, mostly); all ranks learn how it went.

If rank 0 alone failed, the others would wait in their next collective for ever. So the outcome is broadcast, and a
failure is raised on every rank.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, TypeVar

import torch.distributed as dist

T = TypeVar("T")


class TrainError(ValueError):
    """The run cannot start, or cannot be resumed: what the user can put right.

    Shown as one message that says what to do, without a stack trace, with exit code 2. Every rank raises it.
    """


def is_rank_0() -> bool:
    """Whether this process is rank 0, with or without a group: from the group, or from what the launcher has set."""
    return dist.get_rank() == 0 if dist.is_initialized() else os.environ.get("RANK", "0") == "0"


def from_rank_0(action: Callable[[], T]) -> T:
    """What `action()` returned on rank 0, on every rank of the default group; without a group, just `action()`.

    Communication: one `broadcast_object_list` from rank 0 (two broadcasts: the length, and the pickled bytes).

    Raises:
        TrainError: `action` raised one on rank 0, or an OSError: a file or folder that is not as it must be.
        RuntimeError: `action` raised anything else; rank 0 raises the exception itself.
    """
    if not dist.is_initialized():
        return _tried(action)
    outcome: list[Any] = [None, None]
    error: BaseException | None = None
    if dist.get_rank() == 0:
        try:
            outcome = ["value", _tried(action)]
        except TrainError as refused:
            outcome = ["refused", str(refused)]
        except Exception as unexpected:
            error, outcome = unexpected, ["failed", f"rank 0 failed: {type(unexpected).__name__}: {unexpected}"]
    dist.broadcast_object_list(outcome, src=0)
    if error is not None:
        raise error
    kind, value = outcome
    if kind == "refused":
        raise TrainError(value)
    if kind == "failed":
        raise RuntimeError(value)
    result: T = value
    return result


def _tried(action: Callable[[], T]) -> T:
    try:
        return action()
    except OSError as error:
        raise TrainError(f"{error.filename or 'a file'}: {error.strerror or error}") from error
