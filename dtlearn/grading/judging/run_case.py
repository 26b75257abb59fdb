"""One graded run: an answer, one case, one world size; and everything that is then known of it.

Runs in the judge. What a rank sends back stays bytes until `values.load` has checked it.
"""

from __future__ import annotations

import contextlib
import math
import signal
import socket
import time
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from ...runtime import pickles, wire
from ...runtime.agent.client import get_agent
from ...runtime.agent.start import start_ranks
from ...runtime.device import place
from ...runtime.errors import LaunchError, RankError, RanksDisagree, RanksTimeout
from ...runtime.faults.diagnosis import Diagnosis
from ...runtime.machine.isolation import Isolation
from ...runtime.machine.limits import default_limits
from ...runtime.machine.memory import free_memory
from ...runtime.rank.spec import call_log_file
from ...runtime.record.record import Record
from ...runtime.run import end_run, read_record, run_directory
from ...runtime.watch.verdict import fault_finder, find_error
from ...runtime.watch.watch import Watch
from .. import plain_values
from ..check import Case, Check, Given
from ..on_rank.run_answer import Task, run_task

_FILE_SIZE = 256 << 20  # bytes of the largest file that a rank may write
_OUTPUT = 64 << 10  # bytes of a rank's output that are kept
_PROCESSES = 400  # processes and threads of a whole run


@dataclass(frozen=True)
class Answer:
    """A text to be judged.

    Attributes:
        source: the text.
        file: its name, as tracebacks show it.
        name: of the function or class that it defines.
    """

    source: str
    file: str
    name: str


@dataclass
class Evidence:
    """What one run left behind.

    Attributes:
        returned: by rank, the bytes that it sent as its result; None if it sent none.
        error: why the run failed, if it did: `RankError`, `RanksDisagree` or `RanksTimeout`.
        record: the recorded communication.
        output: by rank, what it printed, bounded.
        seconds: wall time.
    """

    returned: list[bytes | None]
    error: RankError | RanksTimeout | None
    record: Record
    output: list[str] = field(default_factory=list)
    seconds: float = 0.0

    @property
    def diagnosis(self) -> Diagnosis | None:
        return self.error.diagnosis if isinstance(self.error, RanksDisagree) else None


def run_case(check: Check, case: Case, given: Given, answer: Answer, isolation: Isolation | None = None) -> Evidence:
    """Run an answer on the ranks of one case.

    Args:
        check, case, given: what is run.
        answer: the learner's text.
        isolation: how the ranks are shut in; None: level 1.

    Raises:
        LaunchError: the ranks could not be started; the answer is not to blame.
    """
    task = Task(
        source=answer.source,
        file=answer.file,
        name=answer.name,
        driver=check.driver(),
        inputs=tuple(plain_values.dump(i) for i in given),
        poison=check.stress.poison,
        delays=check.stress.delays,
        seed=case.seed,
        watch_inputs=not check.may_change_inputs,
        measure_memory=check.memory is not None,
    )
    begun = time.monotonic()
    with run_directory() as run_dir:
        evidence = _run(task, case.world_size, check, run_dir, isolation or Isolation())
    evidence.seconds = time.monotonic() - begun
    return evidence


def _run(task: Task, size: int, check: Check, run_dir: Path, isolation: Isolation) -> Evidence:
    agent, placement = get_agent(), place(size, 0, "cpu")
    limits = replace(
        default_limits(size, free_memory()),
        cpu_seconds=math.ceil(check.seconds) + 5,  # a rank has one thread
        file_size=_FILE_SIZE,
        output=_OUTPUT,
        processes=_PROCESSES if isolation.level >= 2 else None,
    )
    collector = start_ranks(agent, "run", placement, run_dir, check.seconds + 30, None, isolation, limits)
    try:
        header: dict[str, Any] = {"init_group": check.init_group, "sources": {}, "raw": True}
        if not check.init_group:
            header["env"] = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(_free_port())}
        collector.tell_all(wire.encode(header, pickles.pack((run_task, (task,)), "the task")))
        watch = Watch({r: call_log_file(run_dir, r) for r in range(size)})
        deadline = time.monotonic() + check.seconds
        in_time = collector.wait(deadline, fault_finder(agent, collector, run_dir, watch))
        limit = None if in_time else check.seconds
        error = find_error(
            agent, collector, run_dir, watch, limit, lambda file: task.source if file == task.file else ""
        )
        end_run(agent, collector)
    except BaseException:  # an interrupt: nothing may be left running
        with contextlib.suppress(LaunchError):
            agent.signal([s.pid for s in collector.ranks], signal.SIGKILL, group=True)
        raise
    finally:
        collector.close()
    output = [s.output.text() for s in collector.ranks]
    record = read_record(run_dir, size, "graded run", collector.faults())
    return Evidence([s.result for s in collector.ranks], error, record, output)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
