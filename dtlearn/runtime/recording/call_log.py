"""The log of a rank: every call on `torch.distributed`, when it starts and when it returns, and the phases around it.

Runs on the ranks; `record/log.py` reads it. The log is a file that is appended to, two short lines a call, so it is
complete up to the moment in which a rank is killed or gets stuck, and can be read meanwhile. What is written here is
heard from `python_calls.py` and `hidden_calls.py`; `phases.py` writes its lines itself. `recorder.py` installs them.
"""

import json
import sys
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from ..device import device
from ..record.log import spans_file
from ..record.operations import P2P_OPS, call_text
from .arguments import group_name
from .call_site import line_as_json, nearest_caller
from .clock import now_ns as _clock
from .late_ends import LateEnds
from .log_file import LogFile
from .operators import Call
from .phases import PHASES

_encode = json.JSONEncoder().encode


class CallLog:
    """The log of one rank: a file of entries and exits, `path`, and one of phases beside it. See `LogFile`."""

    def __init__(self, path: Path, rank: int, on_fault: Callable[[str], None] = lambda reason: None) -> None:
        self.path = path
        self.rank = rank
        self.calls = 0  # calls begun
        # Calls by (group, torch's name of it, point-to-point or not): several groups can have the same ranks.
        self.numbers: Counter[tuple[str, str, bool]] = Counter()
        self._ops: Counter[str] = Counter()
        self._lock = threading.Lock()  # calls can be made on several threads: a backward pass on GPUs, say
        self._device = device()
        self.torch_folder = str(Path(sys.modules["torch"].__file__ or "").parent)
        # Calls for a person, as arguments of `call_text`: the one that this rank is in, after words of how; and those
        # that it may wait for.
        self._inside: tuple[str, tuple[Any, ...]] | None = None
        self._issued: dict[int, tuple[Any, ...]] = {}
        self.late = LateEnds()
        self._file, self.spans = LogFile(path, on_fault), LogFile(spans_file(path), on_fault)
        self._file.open()

    @property
    def inside(self) -> str | None:
        """The call that this rank is in, for whoever asks from another thread; None if it is in none."""
        inside = self._inside
        return None if inside is None else inside[0] + call_text(*inside[1])

    def restart(self, path: Path) -> None:
        """Go on in another file, with no calls made: a cell's record starts with the cell.

        The numbers of calls go on, so that a late end of an earlier cell's call is not taken for one of this cell's.
        """
        self.path = path
        self._file.move(path)
        self.spans.move(spans_file(path))
        PHASES.forget()
        self.numbers.clear()
        self._ops.clear()
        line_as_json.cache_clear()  # files may have been edited
        self._issued.clear()
        self.late.forget()
        self._inside = None

    def enter(
        self,
        op: str,
        group: Any,
        inputs: Sequence[Any],
        peer: int | None,
        detail: dict[str, Any],
        asynchronous: bool,
        shown: bool = True,
    ) -> int:
        """Note that a call begins, on a ProcessGroup (None: the world). Returns its number.

        `peer`, `detail`, `asynchronous`: as in `Event`. `shown`: it, or the wait for it, is what the rank does, as long
        as that lasts.
        """
        name = group_name(group)
        if "group_id" in detail:  # a group that only its members make: counting it as the world's would shift others
            makers = detail["ranks"] if self.rank in detail["ranks"] else [self.rank]  # for others it does nothing
            name = ",".join(map(str, sorted(makers)))
        elif name != "world":
            # torch's own name of a sub-group, the same on all ranks; two groups of the same ranks differ in it.
            detail["group_id"] = str(getattr(group, "group_name", "") or "")
        site, line_number, made_by = nearest_caller(self.torch_folder)
        if made_by:
            detail[made_by] = True
        if not all(t.is_contiguous() for t in inputs):
            detail["strided"] = True
        if elsewhere := [t.device for t in inputs if t.device != self._device]:
            detail["device"] = str(elsewhere[0])
        first = inputs[0] if inputs else None
        dtype = f'"{str(first.dtype)[6:]}"' if first is not None else "null"  # without "torch."
        shape = list(first.shape) if first is not None else "null"
        nbytes = sum([t.numel() * t.element_size() for t in inputs])
        phase = f'"phase":{_encode(phase)},' if (phase := PHASES.current()) else ""
        with self._lock:
            seq, self.calls = self.calls, self.calls + 1
            key = (name, detail.get("group_id", ""), op in P2P_OPS)
            number, self.numbers[key] = self.numbers[key], self.numbers[key] + 1
            self._ops[op] += 1
            count = self._ops[op]
        if asynchronous and shown:
            self._issued[seq] = (op, count, peer, line_number)
        elif shown:
            self._inside = "", (op, count, peer, line_number)
        self._file.write(
            f'{{"seq":{seq},"op":"{op}","group":"{name}","group_seq":{number},"nbytes":{nbytes},"dtype":{dtype},'
            f'"shape":{shape},"peer":{"null" if peer is None else peer},"detail":{_encode(detail) if detail else "{}"},'
            f'"asynchronous":{"true" if asynchronous else "false"},{phase}{site},"start_ns":{_clock()}}}\n'
        )
        return seq

    def enter_hidden(self, call: Call, reduce_op: str | None = None) -> int:
        """Note a call that did not come through `torch.distributed` (see `hidden_calls.py`). Returns its number."""
        detail: dict[str, Any] = {"hidden": True}
        detail |= {"tag": call.tag} if call.tag else {}
        detail |= {"reduce_op": reduce_op} if reduce_op else {}
        return self.enter(call.op, call.group, call.tensors, call.peer, detail, True, shown=False)

    def leave(self, seq: int, nbytes: int = 0) -> None:
        """Note the end of the call that this rank is in, or waits for. `nbytes`: what it sent beyond its payload."""
        self._inside = None
        self.ended(seq, nbytes)

    def ended(self, seq: int, nbytes: int = 0, unseen: bool = False) -> None:
        """Note the end of a call, on whatever thread that is heard of. `unseen`: nobody can tell when it ended."""
        more = (f',"nbytes":{nbytes}' if nbytes else "") + (',"unseen":true' if unseen else "")
        self._file.write(f'{{"end":{seq},"end_ns":{_clock()}{more}}}\n')

    def leave_raised(self, seq: int, error: BaseException) -> None:
        """Note that it raised. It never returned, so it has no end: a hang that was cut short is drawn as one."""
        self._inside = None
        self._file.write(f'{{"end":{seq},"raised":{_encode(type(error).__name__)}}}\n')

    def wait_begins(self, seq: int) -> None:
        """Note that the rank now waits for an asynchronous call."""
        if call := self._issued.pop(seq, None):
            self._inside = "wait() for ", call
        self._file.write(f'{{"wait":{seq},"wait_ns":{_clock()}}}\n')

    def arrived(self, seq: int) -> None:
        """Note that the data of an asynchronous call is here, on whatever thread that is heard of."""
        self._file.write(f'{{"arrived":{seq},"arrived_ns":{_clock()}}}\n')

    def work_dropped(self, seq: int) -> None:
        """Note that nobody can wait for an asynchronous call any more."""
        self._file.write(f'{{"dropped":{seq}}}\n')
