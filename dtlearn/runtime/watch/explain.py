"""From what is known of the ranks to a message that a learner can act on."""

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

from ..errors import CellError, RankError
from ..faults.codes import ADVICE
from ..faults.diagnosis import Diagnosis
from ..faults.failure import Failure
from ..faults.stacks import Stuck
from ..machine.limits import MEMORY_VARIABLE, Limits
from ..machine.memory import GIB
from ..words import ranks_text, without_addresses
from .stalls import own_line


def explain_failures(
    failures: tuple[Failure, ...],
    waiting: Mapping[int, str],
    limits: Limits,
    printed: Mapping[int, str] | None,
    what: str = "",
) -> RankError:
    """The error for ranks that failed, first cause first: that in full, the others in a line each.

    `waiting`, `printed`, `what`: as for `verdict.WatchedRanks` and `find_error`; a notebook, which has shown what ranks
    printed, will show the first traceback, too.
    """
    first = failures[0]
    alike = [(f.kind, f.type, without_addresses(f.message)) for f in failures]
    same = [f.rank for f, key in zip(failures, alike, strict=True) if key == alike[0]]
    if first.kind == "raised":
        verb = f"raised {first.type}: {first.message}"
    else:
        verb = f"were {first.message[4:]}" if same[1:] and first.message.startswith("was ") else first.message
    headline = f"{what}{ranks_text(same)} {verb}"
    stuck = [f"rank {rank} was waiting in {call}" for rank, call in waiting.items()]
    if printed is None:
        limit = [text] if (text := explain_limit(first, limits)) else []
        # What the freed ranks raised was our own interrupt.
        ours = {f.rank for f in failures if f.type == "KeyboardInterrupt"} | waiting.keys()
        return CellError("\n".join([headline, *limit, *stuck, *other_failures(failures, {*same, *ours})]), failures)
    blocks = [
        [headline, advice] if (advice := advise(first, limits)) else [headline],
        [first.traceback.rstrip()] if first.traceback else [],
        other_failures(failures, same),
        stuck,
    ]
    if first.kind != "raised" and (words := last_words(printed[first.rank])):
        blocks.append([f"the last that rank {first.rank} printed:", *words])
    return RankError("\n\n".join("\n".join(block) for block in blocks if block), failures, printed)


def last_words(output: str) -> list[str]:
    """The last lines of a rank's output, without the frames of this package that a crash lists below the learner's."""
    own = tuple(f'  File "{path}' for path in (Path(__file__).parents[1], "<string>"))
    return [line for line in output.strip().splitlines() if not line.startswith((*own, "Extension modules:"))][-12:]


def comes_before(diagnosis: Diagnosis, failures: Sequence[Failure]) -> bool:
    """Whether the fault between ranks is the cause, and the failures of single ranks follow from it."""
    if not failures:
        return True
    first = failures[0]
    # What a rank raises that computed on a message of another size is a consequence, whenever the watch looked.
    made_it = diagnosis.calls.get(first.rank) is not None
    own = first.kind == "raised" and not first.consequence and not (made_it and diagnosis.code == "DTL-P2P-SIZE")
    # A rank that died without making one of the calls that do not fit was not ended by them: its peers went on.
    # Two groups can be wrong at once: of two that gloo ended, the call of either one will do.
    ended_by_gloo = [f.rank for f in failures if f.type == "SIGABRT" == first.type]
    took_part = first.kind == "raised" or made_it or any(diagnosis.calls.get(rank) for rank in ended_by_gloo)
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
            text, _, note = failure.traceback.rpartition(failure.message)  # what `add_note` said of where it stood
            where = f". {note.strip()}" if text and note.strip() else ""
            lines.append(f"rank {failure.rank} then lost its connection ({failure.type}): a consequence{where}")
        else:
            what = f"{failure.type}: {failure.message}" if failure.type else failure.message
            lines.append(f"rank {failure.rank}: {what.splitlines()[0][:200] if what else failure.kind}")
    return lines


def timeout_message(
    stuck: Sequence[Stuck], timeout: float, diagnosis: Diagnosis | None = None, moving: bool = False
) -> str:
    """The text of a time-out: a line per rank, then what the picture suggests.

    `moving`: every rank that waited in a call at the first look waited in a later one at the second.
    """
    lines = [f"the ranks did not finish within {timeout:g} s:"]
    for at in stuck:
        states = {"ended": "returned", "waits": f"waits in {at.call}", "runs": f"is running, at {own_line(at)}"}
        lines.append(f"  rank {at.rank} {'is stopped' if at.stopped else states[at.state]}")
    if diagnosis is not None and diagnosis.code != "DTL-TIMEOUT":
        return "\n".join([*lines, f"{diagnosis.headline}.  [{diagnosis.code}]", *ADVICE[diagnosis.code]])
    waiting = [s.rank for s in stuck if s.state == "waits"]
    returned = [s.rank for s in stuck if s.state == "ended"]
    text = ""
    if waiting and returned:
        text = f"{ranks_text(waiting)} waited for a call that {ranks_text(returned)} never made: every rank of a group "
        text += "has to make the same collective calls in the same order."
    elif waiting and len(waiting) == len(stuck) and moving:
        text = "No rank is stuck: between two looks every rank went on to a later call. Can the loop that makes these "
        text += "calls ever end? If so, raise the time limit."
    elif waiting and len(waiting) == len(stuck):
        text = "Every rank waits: compare the calls above; they have to be the same call, or a matching send and recv."
    elif not waiting and returned and not any(s.stack for s in stuck if s.state == "runs"):
        text = "If a result is large, sending it takes long: raise the time limit, or return less."
    elif not waiting and returned:
        text = "If that line runs a collective inside torch (the backward pass of DistributedDataParallel, FSDP), it "
        text += f"waits for {ranks_text(returned)}; otherwise the code itself takes this long, or loops."
    elif not waiting:
        text = "No rank waits for another: the code itself takes this long, or loops. Raise the time limit or look "
        text += "there."
    return "\n".join([*lines, text] if text else lines)


def explain_limit(failure: Failure, limits: Limits) -> str:
    """What limit a rank ran into, and what to do; "" if its failure is another one."""
    if failure.kind == "killed" and failure.type == "SIGXCPU":
        return f"It had used up its {limits.cpu_seconds} s of processor time: does a loop never end?"
    if failure.kind == "killed" and failure.type == "SIGXFSZ":
        return f"It wrote a file larger than the {limits.file_size} bytes that it may."
    if failure.kind == "raised" and "can't start new thread" in failure.message:
        return f"rank {failure.rank} has as many threads as it may, or no memory for the stack of another one."
    if failure.kind != "raised" or not failure.is_out_of_memory:
        return ""
    if limits.memory is None:
        return f"rank {failure.rank} ran out of memory: use a smaller model or batch, or fewer ranks."
    return (
        f"rank {failure.rank} ran out of its {limits.memory / GIB:.1f} GiB of memory. Use a smaller model or batch, or "
        f"fewer ranks, which get a larger share each. {MEMORY_VARIABLE}=GiB in the environment sets another limit."
    )
