"""Graded runs: an answer, one case, one world size; and everything that is then known of each.

Runs in the judge. What a rank sends back stays bytes until `plain_values.load` has checked it.
"""

import contextlib
import hashlib
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

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
from ..on_rank.run_answer import OWN_FRAMES, AnswerSpec, run_answer, run_answers, separated

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


class CaseRanks(contextlib.ExitStack):
    """Ranks for the cases of one answer. When the block of its `with` is left, nothing of them is left.

    To start and to end ranks takes longer than most answers do. So the cases of a check at one world size share theirs,
    with new groups and random numbers, as long as they pass. But what an answer did to its process may tell on the next
    case: one that fails on used ranks counts for nothing until it was run on fresh ones, see `drop`.

    Args:
        isolation: how the ranks are shut in; None: level 1.
    """

    def __init__(self, isolation: Isolation | None = None) -> None:
        super().__init__()
        self._isolation, self._sharing = isolation or Isolation(), True
        self._run: Run | None = None
        self._begun = 0.0  # when the ranks were given their task
        self._for: tuple[int, int] | None = None  # for what it can be used again: `id` of a check, and world size

    def drop(self) -> bool:
        """The last case did not pass: the next one gets fresh ranks.

        True: it was not the first one on its ranks, and has to be run again. From then on no case shares its ranks, so
        that nothing is run twice but this one.
        """
        used = self._run is not None and self._run.tasks > 1
        self._sharing = self._sharing and not used
        self._run = self._for = None
        self.close()
        return used

    def run(self, check: Check, case: Case, given: Given, answer: Answer) -> Evidence:
        """Run one case. Raises LaunchError: the ranks could not be started; the answer is not to blame."""
        run = self._ranks_for(check, case.world_size, answer)
        specs = [_spec(check, case, own, answer) for own in given]
        keep = self._sharing and len(check.cases) > 1 and not by_chance(check)
        hold = lambda rank, k: check.hold(case, rank, k) if check.hold else 0.0  # noqa: E731
        error = self._do(run, run_answer, specs, check.seconds, hold, keep)
        self._for = (id(check), case.world_size) if keep and not error else None
        return self._evidence(run, run.results, error)

    def run_all(self, check: Check, runs: Sequence[tuple[Case, Given, Answer]], seconds: float) -> list[Evidence]:
        """Several runs at one world size as one task, for as long as all goes well: [] if one raised, hung or was slow.

        To give ranks a task takes longer than most answers do. The record is cut at the marks before each run, whose
        moments are those of this process.
        """
        case, _, answer = runs[0]
        run = self._ranks_for(check, case.world_size, answer)
        by_rank = [[_spec(check, c, given[r], a) for c, given, a in runs] for r in range(case.world_size)]
        error = self._do(run, run_answers, by_rank, seconds, lambda rank, k: 0.0, True)
        self._for = None if error else (id(check), case.world_size)
        returned = [separated(data or b"") for data in run.results]
        if error or any(len(own) != len(runs) for own in returned):
            return []
        whole = self._evidence(run, [], None)
        return [
            replace(whole, returned=[own[k] for own in returned], record=_between_marks(whole.record, k))
            for k in range(len(runs))
        ]

    def _ranks_for(self, check: Check, world_size: int, answer: Answer) -> Run:
        if self._run is None or self._for != (id(check), world_size):
            self.close()
            self._run = self.enter_context(self._start(check, world_size, answer))
        self._begun = time.monotonic()
        return self._run

    def _do(
        self,
        run: Run,
        function: Callable[..., bytes],
        inputs: Sequence[Any],
        seconds: float,
        hold: Callable[[int, int], float],
        keep: bool,
    ) -> RankError | RanksTimeout | None:
        self._for = None
        with contextlib.ExitStack() as failing:
            failing.push(self)
            run.begin(
                {"init_group": True, "sources": {}, "raw": True, "own_frames": OWN_FRAMES},
                [pickles.pack((function, (own,)), "the task") for own in inputs],
                seconds,
                hold=hold,
            )
            error = run.finish(keep)
            failing.pop_all()
        return error

    def _evidence(self, run: Run, returned: list[bytes | None], error: RankError | RanksTimeout | None) -> Evidence:
        with contextlib.ExitStack() as failing:
            failing.push(self)
            record, printed = run.record("graded run"), list(run.printed().values())
            failing.pop_all()
        return Evidence(returned, error, record, printed, time.monotonic() - self._begun, run.starved)

    def _start(self, check: Check, world_size: int, answer: Answer) -> Run:
        for module in (run_answer.__module__, "torch._dynamo"):  # once, for all; optimizers and DDP load the second
            get_agent().load(module)
        limits = replace(
            default_limits(world_size, free_memory()),
            # A rank has one thread, and on a busy machine that much time for each case.
            cpu_seconds=math.ceil(check.seconds * MOST) * len(check.cases) + 5,
            file_size=_FILE_SIZE,
            output=_OUTPUT,
            processes=_PROCESSES if self._isolation.level >= 2 else None,
        )
        return Run(
            place(world_size, 0, "cpu"),
            check.seconds * MOST + 30,
            isolation=self._isolation,
            limits=limits,
            source=lambda file: answer.source if file == answer.file else "",
            calm=0.0,
            patient=True,
        )


def by_chance(check: Check) -> bool:
    """Whether chance or time decides: it has to come about as it does on new ranks."""
    return check.hold is not None or check.stress.delays > 0


def _spec(check: Check, case: Case, inputs: dict[str, Any], answer: Answer) -> AnswerSpec:
    return AnswerSpec(
        source=answer.source,
        file=answer.file,
        name=answer.name,
        driver=check.driver(),
        inputs=plain_values.dump(inputs),
        poison=check.stress.poison,
        delays=check.stress.delays,
        seed=int(hashlib.sha256(f"stress {case.seed}".encode()).hexdigest()[:8], 16),  # no CRC, as that of inputs
        watch_inputs=not check.may_change_inputs,
        measure_memory=check.memory is not None,
    )


def _between_marks(record: Record, k: int) -> Record:
    """What ranks did in their k-th run: after the mark before it (see `run_answers`) and before the next one."""
    begins = {(m.rank, m.label): m.answered_ns for m in record.marks if m.label.startswith("run ")}
    ranks = range(record.world_size)
    bounds = {r: (begins[r, f"run {k}"], begins.get((r, f"run {k + 1}"), math.inf)) for r in ranks}
    within = lambda rank, ns: bounds[rank][0] <= ns < bounds[rank][1]  # noqa: E731
    return replace(
        record,
        events=tuple(e for e in record.events if within(e.rank, e.start_ns)),
        spans=tuple(s for s in record.spans if within(s.rank, s.start_ns)),
        marks=tuple(m for m in record.marks if (m.rank, m.label) not in begins and within(m.rank, m.came_ns)),
    )
