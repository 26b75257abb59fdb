"""Runs a command so that nothing of it outlives the process that asked for it.

`python -m dtlearn.runtime.machine.run_guarded COMMAND...`: standard input is the lifeline. When it closes, because the
asker ended in whatever way, or when the command ends, every descendant is ended. `torchrun` puts its workers in
sessions of their own, so a signal to its process group would miss them; as their subreaper this process finds them all.
"""

import contextlib
import os
import select
import signal
import subprocess
import sys

from .namespaces import adopt_orphans
from .patience import TO_END_POLITELY
from .processes import has_ended, sweep, take_interrupts


def main(command: list[str]) -> int:
    """Run `command` to its end or to the end of standard input; return its exit code (124 when cut short)."""
    adopt_orphans()
    take_interrupts()  # torchrun and its workers inherit it
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, start_new_session=True)
    code = 124
    try:
        while process.poll() is None:
            if select.select([sys.stdin], [], [], 0.05)[0] and not os.read(sys.stdin.fileno(), 1):
                break
        else:
            code = process.returncode
    finally:
        _end_all(process)
    return code if code >= 0 else 128 - code


def _end_all(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is None:
        process.terminate()
        has_ended(process, TO_END_POLITELY)
    sweep(seconds=TO_END_POLITELY)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
