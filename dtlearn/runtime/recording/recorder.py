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


def prepare() -> None:
    """Put in place what sees calls and phases, for all that is forked. It does nothing yet."""
    KERNELS.install()
    PHASES.install()
    PYTHON_CALLS.install()


def install(log: CallLog) -> None:
    """From now on every call of this process is logged; not those of processes that it forks."""
    os.register_at_fork(after_in_child=uninstall)
    KERNELS.install()
    KERNELS.log = HiddenCalls(log, PYTHON_CALLS.is_outermost)
    PYTHON_CALLS.install(log)
    PHASES.attach(log.spans)


def uninstall() -> None:
    """Log no more calls; torch's functions are its own again."""
    PHASES.detach()
    PYTHON_CALLS.detach()
    KERNELS.log = None
