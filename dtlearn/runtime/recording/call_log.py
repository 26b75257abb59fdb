"""Writes down every call that this rank makes on `torch.distributed`, when it starts and when it returns.

Runs on the ranks; `record/` is what others read. The log is a file that is appended to, two short lines a call,
so it is complete up to the moment in which a rank is killed or gets stuck, and can be read meanwhile.
`python_calls.py` sees the calls of Python code, with the arguments as their author wrote them; `hidden_calls.py` adds
what torch issues beneath them; `phases.py` says what the rank was doing.

What is not in the record:

- What does not go through torch's process groups: sockets, pipes, queues, `torch.distributed.rpc`, the key-value
  store, other libraries' own communication (MPI, Horovod), and operators that read other GPUs' memory
  (`torch.ops.symm_mem`).
- Calls of processes that a rank starts: a DataLoader's workers, say. They do not communicate by torch's groups unless
  they make groups of their own.
- The end of what torch's C++ sends or receives by gloo, which nobody is told of ("unseen" in the event's detail).
- Whether a result was waited for, when torch's C++ waits (DDP's reducer, say): such an event has no `wait_ns`.
- Of a function that a library took from `torch.distributed` before the rank began, the arguments that only Python
  knows: the call is there, marked "hidden", without its reduction.
- Phases of computation that is neither an `nn.Module`, nor autograd's, nor a `torch.optim.Optimizer`'s: mark it with
  `dtlearn.phase`.
"""

from __future__ import annotations

import json
import os
import sys
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from ..rank.kept_groups import keep_groups
from ..record.log import spans_file
from ..record.operations import P2P_OPS, call_text
from . import dispatch
from .arguments import group_id, group_name
from .call_site import Callers
from .clock import now_ns as _clock
from .hidden_calls import HiddenCalls
from .late_ends import LateEnds
from .log_file import LogFile
from .operators import Call
from .phases import PHASES
from .python_calls import PythonCalls

_encode = json.JSONEncoder().encode


_installed: CallLog | None = None


def installed() -> CallLog | None:
    """The log that this process's calls go to."""
    return _installed


class CallLog:
    """The log of one rank: a file of entries and exits, and one of phases.

    Args:
        path: of the first one; see `log.spans_file` for the other.
        rank: global rank.
        on_fault: called at once, with the reason, when a line cannot be written.
    """

    def __init__(self, path: Path, rank: int, on_fault: Callable[[str], None] = lambda reason: None) -> None:
        self.path = path
        self.rank = rank
        self.calls = 0  # calls begun
        # Calls by (group, torch's name of it, point-to-point or not): several groups can have the same ranks.
        self.numbers: Counter[tuple[str, str, bool]] = Counter()
        self._ops: Counter[str] = Counter()
        self._lock = threading.Lock()  # calls can be made on several threads: a backward pass on GPUs, say
        self.torch_folder = str(Path(sys.modules["torch"].__file__ or "").parent)
        self._callers = Callers(self.torch_folder)
        # Calls for a person, as arguments of `call_text`: the one that this rank is in, after words of how; and those
        # that it may wait for.
        self._inside: tuple[str, tuple[Any, ...]] | None = None
        self._issued: dict[int, tuple[Any, ...]] = {}
        self.late = LateEnds()
        self._python = PythonCalls(self)
        self._file, self._spans = LogFile(path, on_fault), LogFile(spans_file(path), on_fault)
        self._file.open()

    @property
    def inside(self) -> str | None:
        """The call that this rank is in, for whoever asks from another thread; None if it is in none."""
        inside = self._inside
        return None if inside is None else inside[0] + call_text(*inside[1])

    @property
    def fault(self) -> str:
        """Why the log is incomplete; "" if it is not."""
        return self._file.fault or self._spans.fault

    def install(self) -> None:
        """From now on every call of this process is logged; not those of processes that it forks."""
        global _installed
        _installed = self
        keep_groups()
        os.register_at_fork(after_in_child=lambda: self.uninstall() if _installed is self else None)
        dispatch.attach(log=HiddenCalls(self))
        self._python.install()
        PHASES.attach(self)

    def uninstall(self) -> None:
        """Log no more calls; torch's functions are its own again."""
        global _installed
        _installed = None
        PHASES.detach()
        self._python.uninstall()
        dispatch.detach(log=True)

    def restart(self, path: Path) -> None:
        """Go on in another file, with no calls made: a cell's record starts with the cell.

        The numbers of calls go on, so that a late end of an earlier cell's call is not taken for one of this cell's.
        """
        self.path = path
        self._file.move(path)
        self._spans.move(spans_file(path))
        PHASES.forget()
        self.numbers.clear()
        self._ops.clear()
        self._callers.forget()
        self._issued.clear()
        self.late.forget()
        self._inside = None

    def is_outermost(self) -> bool:
        """Whether no logged call is under way on this thread."""
        return self._python.is_outermost()

    def enter(
        self,
        op: str,
        group: Any,
        given: Sequence[Any],
        peer: int | None,
        detail: dict[str, Any],
        asynchronous: bool,
        shown: bool = True,
    ) -> int:
        """Note that a call begins.

        Args:
            op: its name.
            group: the ProcessGroup, None for the world.
            given: the tensors that are handed in.
            peer: global rank of the other end or the root.
            detail: anything else, as plain values.
            asynchronous: it returns a Work.
            shown: it, or the wait for it, is what the rank does, as long as that lasts.

        Returns:
            Its number.
        """
        # A group that only its members make is no call of the world: counting it there would shift the others.
        name = "local" if detail.get("local") else group_name(group)
        if name not in ("world", "local"):
            detail["group_id"] = group_id(group)
        site, line_number = self._callers.nearest()
        first = given[0] if given else None
        dtype = f'"{str(first.dtype)[6:]}"' if first is not None else "null"  # without "torch."
        shape = list(first.shape) if first is not None else "null"
        nbytes = sum([t.numel() * t.element_size() for t in given])
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
        found: dict[str, Any] = {"hidden": True}
        found |= {"tag": call.tag} if call.tag else {}
        found |= {"reduce_op": reduce_op} if reduce_op else {}
        return self.enter(call.op, call.group, call.tensors, call.peer, found, True, shown=False)

    def leave(self, seq: int, nbytes: int = 0) -> None:
        """Note the end of the call that this rank is in. `nbytes`: what it sent beyond its payload."""
        self._inside = None
        self.leave_hidden(seq, nbytes)

    def leave_hidden(self, seq: int, nbytes: int = 0, unseen: bool = False) -> None:
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

    def wait_ends(self, seq: int) -> None:
        """Note that it has waited, which is the end of the call."""
        self.leave(seq)

    def arrived(self, seq: int) -> None:
        """Note that the data of an asynchronous call is here, on whatever thread that is heard of."""
        self._file.write(f'{{"arrived":{seq},"arrived_ns":{_clock()}}}\n')

    def work_dropped(self, seq: int) -> None:
        """Note that nobody can wait for an asynchronous call any more."""
        self._file.write(f'{{"dropped":{seq}}}\n')

    def phase_begins(self, span: int, phase: str) -> None:
        self._spans.write(f'{{"span":{span},"phase":{_encode(phase)},"start_ns":{_clock()}}}\n')

    def phase_ends(self, span: int) -> None:
        self._spans.write(f'{{"span":{span},"end_ns":{_clock()}}}\n')
