"""The course's own restart: `run_ranks` again, from the newest checkpoint, with as many ranks or with fewer."""

from __future__ import annotations

from dtlearn.runtime.errors import RankError, RanksDisagree, RanksTimeout
from dtlearn.runtime.run import run_ranks

from .job import run_rank
from .plan import JobPlan
from .story import StoryLog


def restart_on_run_ranks(
    plan: JobPlan, ranks: int, log: StoryLog, *, max_restarts: int = 1, fewer: int = 0, timeout: float = 60.0
) -> str:
    """Run the job until it is done, at most `max_restarts` times more. Returns why it was given up, or "".

    Args:
        plan: what the ranks do.
        ranks: at the start.
        log: of the supervisor; hears of each start and each end.
        max_restarts: how often ranks are started again.
        fewer: how many ranks less there are after a failure: those that cannot be trusted, or whose machine is gone.
        timeout: seconds for each attempt.
    """
    reason = ""
    for attempt in range(max_restarts + 1):
        log("start", attempt=attempt, detail=f"{ranks} ranks")
        try:
            run_ranks(run_rank, ranks, plan, attempt, device="cpu", init_group=False, timeout=timeout)
        except (RankError, RanksTimeout) as error:
            reason = str(error).splitlines()[0]
            _note(error, attempt, reason, log)
            ranks -= fewer
        else:
            log("finished", attempt=attempt)
            return ""
    return reason


def _note(error: RankError | RanksTimeout, attempt: int, reason: str, log: StoryLog) -> None:
    """Write down what the head noticed, as of when it knew of the first failure."""
    if isinstance(error, RanksDisagree | RanksTimeout):
        log("noticed", attempt=attempt, by="watch", detail=reason)
        return
    assert isinstance(error, RankError)
    first = error.failures[0] if error.failures else None
    if first is not None and not first.consequence:
        log("noticed", attempt=attempt, by="launcher", about=first.rank, now=first.time_ns / 1e9, detail=reason)
    else:
        log("noticed", attempt=attempt, by="launcher", detail=reason)
