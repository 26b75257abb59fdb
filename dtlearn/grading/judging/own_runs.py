"""Keeps the records of a grading, and chooses the run that is worth a picture."""

import contextlib

from ...runtime.errors import DtlearnError
from ...runtime.record.record import Record
from ..check import Check
from ..own_run import OwnRun, shortened
from ..verdict import Result, Verdict
from .judge import drawn
from .run_case import Answer, CaseRanks


class OwnRuns:
    """The records of one grading; `take` is handed to `grade`."""

    def __init__(self) -> None:
        self._kept: list[tuple[Result, Record]] = []

    def take(self, result: Result, record: Record) -> None:
        self._kept.append((result, drawn(record)))

    def chosen(self, verdict: Verdict, check: Check, model: Answer | None) -> OwnRun | None:
        """The run of the first fault; after a pass the one with most ranks, beside the model answer's, if there is one.
        None if nothing was communicated."""
        fault = verdict.first_fault
        own = [(result, record) for result, record in self._kept if record.events and not result.hidden]
        if fault is not None:
            own = [pair for pair in own if (pair[0].case, pair[0].world_size) == (fault.case, fault.world_size)]
        if not own or not (fault or verdict.passed):
            return None
        result, record = own[0] if fault else max(own, key=lambda pair: (pair[0].world_size, -len(pair[1])))
        run = OwnRun(result.case, result.world_size, result.code, shortened(record))
        if fault or model is None:
            return run
        cases = check.all_cases(result.world_size, verdict.seed)
        case = next(case for case in cases if case.name == result.case)
        with contextlib.suppress(DtlearnError), CaseRanks() as ranks:  # no room now, say: then there is no comparison
            evidence = ranks.run(check, case, check.inputs(case), model)
            compared = None if evidence.error else shortened(drawn(evidence.record))
            return OwnRun(run.case, run.world_size, "", run.record, compared)
        return run
