"""From what is known of the ranks to a message that a learner can act on."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

from ..agent.collector import Collector
from ..errors import RankError
from ..faults.diagnosis import Diagnosis
from ..faults.failure import Failure
from ..machine.limits import MEMORY_VARIABLE, Limits, is_out_of_memory
from ..machine.memory import GIB
from ..record.log_tail import Wait
from ..words import ranks_text


def explain_failures(failures: tuple[Failure, ...], collector: Collector, waiting: Mapping[int, Wait]) -> RankError:
    """The error for a run in which ranks failed: the first cause in full, the others in a line each.

    Args:
        failures: first cause first.
        collector: what the ranks said.
        waiting: the ranks that waited in a call.
    """
    first = failures[0]
    same = [f.rank for f in failures if (f.kind, f.type, f.message) == (first.kind, first.type, first.message)]
    if first.kind == "raised":
        headline = f"{ranks_text(same)} raised {first.type}: {first.message}"
    else:
        message = f"were {first.message[4:]}" if same[1:] and first.message.startswith("was ") else first.message
        headline = f"{ranks_text(same)} {message}"
    lines = [headline]
    if advice := advise(first, collector.limits):
        lines.append(advice)
    if first.traceback:
        lines += ["", first.traceback.rstrip()]
    if others := other_failures(failures, same):
        lines += ["", *others]
    stuck = [
        f"rank {rank} was waiting in {wait.text}"
        for rank, wait in waiting.items()
        if not collector.ranks[rank].finished and collector.ranks[rank].failure is None
    ]
    if stuck:
        lines += ["", *stuck]
    if first.kind != "raised" and (said := last_words(collector.ranks[first.rank].output.text())):
        lines += ["", f"the last that rank {first.rank} printed:", *said]
    output = {r: s.output.text() for r, s in enumerate(collector.ranks)}
    return RankError("\n".join(lines), failures, output)


def last_words(output: str) -> list[str]:
    """The last lines of a rank's output, without the frames of this package that a crash lists below the learner's."""
    own = tuple(f'  File "{place}' for place in (Path(__file__).parents[1], "<string>"))
    return [line for line in output.strip().splitlines() if not line.startswith((*own, "Extension modules:"))][-12:]


def comes_before(diagnosis: Diagnosis, failures: Sequence[Failure]) -> bool:
    """Whether the fault between ranks is the cause, and the failures of single ranks follow from it."""
    if not failures:
        return True
    first = failures[0]
    own = first.kind == "raised" and not first.consequence
    # A rank that died without making one of the calls that do not fit was not ended by them: its peers went on.
    took_part = first.kind == "raised" or diagnosis.calls.get(first.rank) is not None
    return diagnosis.is_mismatch and not own and took_part


def advise(failure: Failure, limits: Limits) -> str:
    """One sentence on what to do, where the cause is known to be a common one."""
    if text := explain_limit(failure, limits):
        return text
    if failure.kind == "killed" and failure.type == "SIGKILL":
        usual = "" if "out of memory" in failure.message else "The usual reason is that the machine ran out of memory. "
        return f"{usual}Use fewer ranks or a smaller model."
    if failure.kind == "killed" and not failure.type:
        return "Code that ends its own parent process (os.getppid) does that; start the ranks again."
    if failure.kind == "killed":
        return "The process crashed in native code; its output may say where."
    if failure.kind == "ended" and "closed" in failure.message:
        return "Close only what your code has opened."
    if failure.kind == "ended" or failure.type == "SystemExit":
        return "Something ended the process early (sys.exit, os._exit): a rank has to return from the function."
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


def explain_limit(failure: Failure, limits: Limits) -> str:
    """What limit a rank ran into, and what to do; "" if its failure is another one."""
    if failure.kind == "killed" and failure.type == "SIGXCPU":
        return f"It had used up its {limits.cpu_seconds} s of processor time: does a loop never end?"
    if failure.kind == "killed" and failure.type == "SIGXFSZ":
        return f"It wrote a file larger than the {limits.file_size} bytes that it may."
    if failure.kind != "raised" or not is_out_of_memory(failure):
        return ""
    if limits.memory is None:
        return f"rank {failure.rank} ran out of memory: use a smaller model or batch, or fewer ranks."
    return (
        f"rank {failure.rank} ran out of its {limits.memory / GIB:.1f} GiB of memory. Use a smaller model or batch, or "
        f"fewer ranks, which get a larger share each. {MEMORY_VARIABLE}=GiB in the environment sets another limit."
    )
