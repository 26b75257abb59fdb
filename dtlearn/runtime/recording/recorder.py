"""The recorder of a rank: what is installed in torch, so that its calls and phases come to its log.

Runs on the ranks. `python_calls.py` sees the calls of Python code, with the arguments as their author wrote them;
`hidden_calls.py` adds what torch issues beneath them; `phases.py` says what the rank was doing.

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

import os

from .call_log import CallLog
from .dispatch import KERNELS
from .hidden_calls import HiddenCalls
from .phases import PHASES
from .python_calls import PYTHON_CALLS

_installed: "Recorder | None" = None


def installed() -> "Recorder | None":
    """The recorder of this process."""
    return _installed


def prepare() -> None:
    """Put in place what sees calls and phases, for all that is forked. It does nothing yet."""
    KERNELS.install()
    PHASES.install()
    PYTHON_CALLS.install()


class Recorder:
    """Brings what this process does to a log."""

    def __init__(self, log: CallLog) -> None:
        self.log = log

    def install(self) -> None:
        """From now on every call of this process is logged; not those of processes that it forks."""
        global _installed
        _installed = self
        os.register_at_fork(after_in_child=lambda: self.uninstall() if _installed is self else None)
        KERNELS.install()
        KERNELS.log = HiddenCalls(self.log, PYTHON_CALLS.is_outermost)
        PYTHON_CALLS.install(self.log)
        PHASES.attach(self.log.spans)

    def uninstall(self) -> None:
        """Log no more calls; torch's functions are its own again."""
        global _installed
        _installed = None
        PHASES.detach()
        PYTHON_CALLS.detach()
        KERNELS.log = None
