"""From what is known of the ranks to a message that a learner can act on."""

from __future__ import annotations

import contextlib
import re
import sys
import time
from collections.abc import Collection, Sequence
from pathlib import Path

from .agent_client import AgentClient
from .calls import call_text, read_call_log
from .collect import Collector
from .diagnosis import Diagnosis
from .errors import Failure, RankError, RanksTimeout, Stuck
from .rank_process import STACK_SIGNAL, stack_file
from .rank_run import call_log_file

_FRAME = re.compile(r'File "(?P<file>.*)", line (?P<line>\d+) in (?P<name>.*)')


def ranks_text(ranks: list[int]) -> str:
    """Ranks for a person: "rank 2", "ranks 0-2 and 5"."""
    ranks = sorted(ranks)
    runs: list[list[int]] = []
    for rank in ranks:
        if runs and rank == runs[-1][1] + 1:
            runs[-1][1] = rank
        else:
            runs.append([rank, rank])
    parts = [text for a, b in runs for text in ([f"{a}-{b}"] if b > a + 1 else [str(r) for r in range(a, b + 1)])]
    text = " and ".join([", ".join(parts[:-1]), parts[-1]]) if len(parts) > 1 else parts[0]
    return ("rank " if len(ranks) == 1 else "ranks ") + text


def explain_failures(failures: tuple[Failure, ...], collector: Collector, run_dir: Path) -> RankError:
    """The error for a run in which ranks failed: the first cause in full, the others in a line each."""
    first = failures[0]
    same = [f.rank for f in failures if (f.kind, f.type, f.message) == (first.kind, first.type, first.message)]
    if first.kind == "raised":
        headline = f"{ranks_text(same)} raised {first.type}: {first.message}"
    else:
        headline = f"{ranks_text(same)} {first.message}"
    lines = [headline]
    if advice := advise(first):
        lines.append(advice)
    if first.traceback:
        lines += ["", first.traceback.rstrip()]
    if others := other_failures(failures, same):
        lines += ["", *others]
    waiting = []
    for rank, state in enumerate(collector.ranks):
        if not state.finished and state.failure is None and (call := unfinished_call(run_dir, rank)):
            waiting.append(f"rank {rank} was waiting in {call}")
    if waiting:
        lines += ["", *waiting]
    if first.kind != "raised" and (said := collector.ranks[first.rank].output.text().strip()):
        lines += ["", f"the last that rank {first.rank} printed:", *said.splitlines()[-12:]]
    output = {r: s.output.text() for r, s in enumerate(collector.ranks)}
    return RankError("\n".join(lines), failures, output)


def comes_before(diagnosis: Diagnosis, failures: Sequence[Failure]) -> bool:
    """Whether the fault between ranks is the cause, and the failures of single ranks follow from it."""
    if not failures:
        return True
    first = failures[0]
    own = first.kind == "raised" and not first.consequence
    return diagnosis.is_mismatch and not own


def advise(failure: Failure) -> str:
    """One sentence on what to do, where the cause is known to be a common one."""
    if failure.kind == "killed" and failure.type == "SIGKILL":
        return "The usual reason is that the machine ran out of memory: use fewer ranks or a smaller model."
    if failure.kind == "killed":
        return "The process crashed in native code; its output may say where."
    if failure.kind == "ended" or failure.type == "SystemExit":
        return "Something ended the process early (sys.exit, os._exit): a rank has to return from the function."
    return ""


def explain_timeout(agent: AgentClient, collector: Collector, run_dir: Path, timeout: float) -> RanksTimeout:
    """The error for a run that did not end in time: where every rank stands, from its call log and its stack."""
    living = [s.pid for s in collector.ranks if s.status is None and not s.finished]
    agent.signal(living, STACK_SIGNAL)
    collector.listen_until(time.monotonic() + 0.3)
    stuck = []
    for rank, state in enumerate(collector.ranks):
        if state.finished:
            stuck.append(Stuck(rank, "returned"))
            continue
        call = unfinished_call(run_dir, rank)
        stuck.append(Stuck(rank, "waiting" if call else "running", call, read_stack(stack_file(run_dir, rank))))
    output = {r: s.output.text() for r, s in enumerate(collector.ranks)}
    return RanksTimeout(timeout_message(stuck, timeout), tuple(stuck), output)


def timeout_message(stuck: list[Stuck], timeout: float) -> str:
    """The text of a time-out: a line per rank, then what the picture suggests."""
    lines = [f"the ranks did not finish within {timeout:g} s:"]
    for one in stuck:
        if one.state == "returned":
            lines.append(f"  rank {one.rank} returned")
        elif one.state == "waiting":
            lines.append(f"  rank {one.rank} waits in {one.call}")
        else:
            where = one.stack[-1] if one.stack else "an unknown place"
            lines.append(f"  rank {one.rank} is running, at {where}")
    waiting = [s.rank for s in stuck if s.state == "waiting"]
    returned = [s.rank for s in stuck if s.state == "returned"]
    if waiting and returned:
        lines.append(
            f"{ranks_text(waiting)} waited for a call that {ranks_text(returned)} never made: every rank of a group "
            "has to make the same collective calls in the same order."
        )
    elif waiting and len(waiting) == len(stuck):
        lines.append(
            "Every rank waits: compare the calls above; they have to be the same call, or a matching send and recv."
        )
    elif not waiting and returned:
        lines.append(
            "If that line runs a collective inside torch (the backward pass of DistributedDataParallel, FSDP), it "
            f"waits for {ranks_text(returned)}; otherwise the code itself takes this long, or loops."
        )
    elif not waiting:
        lines.append(
            "No rank waits for another: the code itself takes this long, or loops. Raise the time limit or look there."
        )
    return "\n".join(lines)


def unfinished_call(run_dir: Path, rank: int) -> str:
    """The call that a rank is inside of, as text; "" if none."""
    events = read_call_log(call_log_file(run_dir, rank), rank)
    for event in reversed(events):
        if event.end_ns is None and not event.asynchronous and "raised" not in event.detail:
            count = sum(e.op == event.op and e.seq <= event.seq for e in events)
            text = call_text(event.op, count, event.peer, event.line)
            text += f" (after {event.detail['during']})" if "during" in event.detail else ""
            return f"{text}: {event.code}" if event.code else text
    return ""


def other_failures(failures: Sequence[Failure], leave_out: Collection[int]) -> list[str]:
    """A line for each failure that is not the first cause."""
    lines = []
    for failure in sorted(failures, key=lambda f: f.rank):
        if failure.rank in leave_out:
            continue
        if failure.consequence:  # gloo's text names a socket and a line of C++, and neither the rank nor the reason
            lines.append(f"rank {failure.rank} then lost its connection ({failure.type}): a consequence")
        else:
            what = f"{failure.type}: {failure.message}" if failure.type else failure.message
            lines.append(f"rank {failure.rank}: {what.splitlines()[0][:200] if what else failure.kind}")
    return lines


def read_stack(path: Path) -> tuple[str, ...]:
    """The learner's frames of a stack dump, outermost first."""
    with contextlib.suppress(OSError):
        text = path.read_text()
        main = text.rsplit("Current thread", 1)[-1] if "Current thread" in text else text
        frames = [m.groupdict() for m in _FRAME.finditer(main.split("\n\n")[0])]
        # faulthandler writes names in ASCII, with escapes: a folder "ü" is "\\xfc" there.
        places = (sys.prefix, sys.base_prefix, str(Path(__file__).parent))
        prefixes = (*places, *(place.encode("ascii", "backslashreplace").decode() for place in places))
        own = [f for f in frames if not f["file"].startswith(prefixes) and not f["file"].startswith("<frozen")]
        return tuple(f"line {f['line']} in {f['name']}" for f in reversed(own))
    return ()
