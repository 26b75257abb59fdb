"""What a rank behind notebook cells says of itself while its main thread is busy, or stuck. Runs on the ranks."""

import contextlib
import sys
import threading
import time
import traceback
from dataclasses import asdict
from typing import Any

from ..faults.stacks import own_frames


def main_thread() -> dict[str, Any]:
    """The learner's frames on the main thread, outermost first; and the CPU time used so far."""
    ident = threading.main_thread().ident
    frame = sys._current_frames().get(ident) if ident is not None else None
    stack = traceback.extract_stack(frame) if frame is not None else []
    frames = own_frames([(entry.filename, entry.lineno or 0, entry.name) for entry in stack])
    return {"frames": [asdict(own) for own in frames], "cpu_seconds": time.process_time()}


def group_sequence() -> int:
    """How many collectives the default group itself has counted, those that C++ issues too; -1 if it does not say."""
    import torch.distributed as dist

    world: Any = dist.group.WORLD
    with contextlib.suppress(RuntimeError, AttributeError):  # there is no group, or it does not count
        return int(world._get_sequence_number_for_group())
    return -1
