"""Process groups outlive what uses them, so that no destructor waits for a thread that waits for it.

The recorder asks to be told, in Python, when a call's data has arrived; gloo's thread needs the interpreter's lock for
that. The destructor of a group waits for gloo's threads. torch lets go of the lock when Python drops a group, but not
when the last one to hold it is C++: the reducer of a DistributedDataParallel that is replaced, say, after its groups
were made again. Then each waits for the other, for ever. A group that Python still holds is not destroyed by anybody.
"""

from __future__ import annotations

import functools
from collections import deque
from collections.abc import Callable
from typing import Any

# The latest: threads and connections of very many groups would add up, and the calls of older ones are long done.
_KEPT: deque[Any] = deque(maxlen=64)


def keep_groups() -> None:
    """Keep every group that is made in this process from now on. May be called again."""
    from torch.distributed import distributed_c10d

    make: Callable[..., Any] | None = getattr(distributed_c10d, "_new_process_group_helper", None)
    if make is None or hasattr(make, "_keeps"):  # a torch that makes groups elsewhere: they are freed as it likes
        return

    @functools.wraps(make)
    def keeping(*args: Any, **kwargs: Any) -> Any:
        made = make(*args, **kwargs)
        _KEPT.append(made)
        return made

    keeping._keeps = True  # type: ignore[attr-defined]
    distributed_c10d._new_process_group_helper = keeping
