"""One graded run: an answer, one case, one world size; and everything that is then known of it.

Runs in the judge. What a rank sends back stays bytes until `plain_values.load` has checked it.
"""

import hashlib
import math
import time
from dataclasses import dataclass, field, replace

from ...runtime import pickles
from ...runtime.agent.client import get_agent
from ...runtime.device import place
from ...runtime.errors import RankError, RanksTimeout
from ...runtime.machine.isolation import Isolation
from ...runtime.machine.limits import default_limits
from ...runtime.machine.memory import free_memory
from ...runtime.machine.patience import MOST
from ...runtime.record.record import Record
from ...runtime.run import Run
from .. import plain_values
from ..check import Case, Check, Given
from ..on_rank.run_answer import Task, run_task

_FILE_SIZE = 256 << 20  # bytes of the largest file that a rank may write
_OUTPUT = 64 << 10  # bytes of a rank's output that are kept
_PROCESSES = 400  # processes and threads of a whole run


@dataclass(frozen=True)
class Answer:
    """A text to be judged."""

    source: str  # the text
    file: str  # its name, as tracebacks show it
    name: str  # of the function or class that it defines


@dataclass
class Evidence:
    """What one run left behind."""

    returned: list[bytes | None]  # by rank, the bytes that it sent as its result; None if it sent none
    error: RankError | RanksTimeout | None  # why the run failed, if it did; `RanksDisagree` is a `RankError`
    record: Record  # the recorded communication
    output: list[str] = field(default_factory=list)  # by rank, what it printed, bounded
    seconds: float = 0.0  # wall time
    starved: bool = False  # its time was up because the machine was too busy


def run_case(
    check: Check, case: Case, given: Given, answer: Answer, isolation: Isolation | None = None, patient: bool = False
) -> Evidence:
    """Run an answer on the ranks of one case. Raises LaunchError: they could not be started; it is not to blame.

    `isolation`: how the ranks are shut in; None: level 1. `patient`: the time limit follows the load of the machine.
    """
    task = Task(
        source=answer.source,
        file=answer.file,
        name=answer.name,
        driver=check.driver(),
        inputs=b"",
        poison=check.stress.poison,
        delays=check.stress.delays,
        seed=int(hashlib.sha256(f"stress {case.seed}".encode()).hexdigest()[:8], 16),  # no CRC: inputs follow from that
        watch_inputs=not check.may_change_inputs,
        measure_memory=check.memory is not None,
    )
    isolation = isolation or Isolation()
    limits = replace(
        default_limits(case.world_size, free_memory()),
        cpu_seconds=math.ceil(check.seconds * MOST) + 5,  # a rank has one thread, and on a busy machine that much time
        file_size=_FILE_SIZE,
        output=_OUTPUT,
        processes=_PROCESSES if isolation.level >= 2 else None,
    )
    for module in (run_task.__module__, "torch._dynamo"):  # once, for all ranks; an optimizer, or DDP, loads the second
        get_agent().load(module)
    begun = time.monotonic()
    with Run(
        {"init_group": True, "sources": {}, "raw": True},
        [pickles.pack((run_task, (replace(task, inputs=plain_values.dump(i)),)), "the task") for i in given],
        place(case.world_size, 0, "cpu"),
        timeout=check.seconds,
        isolation=isolation,
        limits=limits,
        source=lambda file: answer.source if file == answer.file else "",
        calm=0.0,
        patient=patient,
        hold=lambda rank, k: check.hold(case, rank, k) if check.hold else 0.0,
    ) as run:
        error = run.finish()
        record = run.record("graded run")
    return Evidence(run.results, error, record, list(run.printed().values()), time.monotonic() - begun, run.starved)
