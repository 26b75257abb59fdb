"""Reads one hand-in in a process of its own: what damages, fills or stops it costs that hand-in, and nobody else.

The process has limits on memory, processor time and what it may write. It gets a line of JSON on its standard input
and writes one to its standard output, a file; who started it takes over what has the shape of an answer, no more.
"""

import contextlib
import json
import os
import re
import resource
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Any

from ....runtime.machine.patience import TO_READ_A_HAND_IN
from ....runtime.machine.processes import communicate
from ....runtime.words import listed
from ...learner.stubs import without_task
from ...report.safe import one_line
from .cells import answers_in
from .fingerprints import fingerprints
from .layouts import is_a_class
from .members import ARCHIVE, Openers, members, read_as

MAX_FILE, MAX_NOTEBOOK = 1 << 20, 16 << 20  # bytes of one answer; of a notebook, which may hold pictures
MEMORY, PROCESSOR = 1 << 30, 20  # bytes of address space, seconds
_WRITTEN, _MOST_PROBLEMS = 64 << 20, 20  # bytes; lines
_COPY = re.compile(r"( ?\(\d+\)|-\d+)(?=\.py$)")  # "mean (1).py", as browsers save it again; Canvas: "mean-1.py"
# What may hold an answer, and nobody here can read it.
_DOCUMENTS = (".7z", ".rar", ".gz", ".pdf", ".doc", ".docx", ".odt", ".pages", ".rtf", ".html", ".htm", ".txt")
Parts = Sequence[tuple[Path, str]]
_BOOT = "import sys; sys.path.append({path!r}); from dtlearn.grading.classroom.reading.reader import main; main()"


def read_in_process(parts: Parts, wanted: Mapping[str, str]) -> dict[str, Any]:
    """Read a hand-in: "answers", "files" (names), "prints" (fingerprints) and "refused" (why) by exercise; "problems";
    "unread": whether something was handed in and not read, though an answer is missing; "memory": most bytes that it
    held, 0 if not known. `parts`: see `members`. `wanted`: ends of paths -> ids."""
    boot = _BOOT.format(path=str(Path(__file__).parents[4]))
    with tempfile.TemporaryFile() as out:
        request = json.dumps(
            {"parts": [(os.fspath(path.absolute()), name) for path, name in parts], "wanted": dict(wanted)}
        ).encode()
        try:
            reader = subprocess.Popen(
                [sys.executable, "-P", "-c", boot], stdin=subprocess.PIPE, stdout=out, stderr=subprocess.DEVNULL
            )
            communicate(reader, TO_READ_A_HAND_IN, request)
        except subprocess.TimeoutExpired:
            return _nothing(wanted, f"reading it took more than {TO_READ_A_HAND_IN:.0f} s")
        if reader.returncode == -signal.SIGXCPU:
            return _nothing(wanted, f"reading it took more than {PROCESSOR} s of processor time")
        if reader.returncode:
            return _nothing(wanted, f"reading it ended with status {reader.returncode}: damaged, or made to do harm")
        out.seek(0)
        said = json.loads(out.read(_WRITTEN))
    texts = {kind: {str(e): str(text) for e, text in said[kind].items()} for kind in ("answers", "files", "refused")}
    prints = {str(e): frozenset(map(int, numbers)) for e, numbers in said["prints"].items()}
    rest = {"problems": [*map(str, said["problems"])], "unread": said["unread"] is True}
    rest["memory"] = int(said.get("memory", 0))
    return {**texts, "prints": prints, **rest}


def main() -> None:
    """The process."""
    for which, limit in {"AS": MEMORY, "CPU": PROCESSOR, "FSIZE": _WRITTEN, "CORE": 0}.items():
        with contextlib.suppress(OSError, ValueError):  # macOS has no limit of address space; the second kills unsaid
            resource.setrlimit(getattr(resource, f"RLIMIT_{which}"), (limit, limit + 1))
    request = json.load(sys.stdin.buffer)
    try:
        with contextlib.ExitStack() as stack:
            reply = read([(Path(path), name) for path, name in request["parts"]], request["wanted"], stack)
    except MemoryError:
        reply = _nothing(request["wanted"], f"reading it took more than {MEMORY >> 30} GiB of memory")
    except Exception as error:  # of any kind, as damaged archives raise them
        reply = _nothing(request["wanted"], f"the submission cannot be read: {error or type(error).__name__}")
    reply["prints"] = {exercise: sorted(fingerprints(text)) for exercise, text in reply["answers"].items()}
    with contextlib.suppress(OSError, IndexError):  # `getrusage` would say what the process held that started this one
        reply["memory"] = int(Path("/proc/self/status").read_text().split("VmHWM:")[1].split()[0]) << 10
    sys.stdout.write(json.dumps(reply))


def read(parts: Parts, wanted: Mapping[str, str], stack: contextlib.ExitStack) -> dict[str, Any]:
    """As `read_in_process`, here and without limits. Raises Exception, of any kind: it cannot be read."""
    answers, files, refused, ids = dict[str, str](), dict[str, str](), dict[str, str](), {*wanted.values()}
    problems, others, notes = list[str](), list[str](), list[str]()
    opened = members(parts, problems, others, stack)
    if is_a_class([*opened, *others]):
        raise ValueError("it is what a whole class handed in; unpack it, and give that folder to `dtlearn grade-class`")
    # A whole course may be handed in: the learner's own files, in work/, come before the stubs, files before cells.
    for name in sorted(opened, key=_rank):
        is_notebook = read_as(name).endswith(".ipynb")
        exercise = _exercise(name, wanted)
        if not exercise and not is_notebook:
            continue
        try:
            text = _text(opened, name)
            texts = answers_in(text, ids) if is_notebook else {exercise: [(0, text)]}
        except ValueError as error:
            problems.append(f"{name}: {error}")
            for exercise_id in [exercise] if exercise else ids:  # a notebook may have held any
                refused.setdefault(exercise_id, one_line(problems[-1]))
            continue
        for answered, those in texts.items():
            last, text = those[-1]  # the one that ran last, where cells are run from the top
            if any(_differ(text, other) for _, other in those):
                earlier = [str(number) for number, _ in those[:-1]]
                who = f"cells {listed(earlier)} answer" if 1 < len(earlier) < 5 else f"cell {earlier[0]} answers"
                who = who if len(earlier) < 5 else f"{len(earlier):,} cells before it answer"
                notes.append(f"{name}: cell {last} is graded, the last one for {answered}; {who} it too")
            if answered not in answers:
                answers[answered], files[answered] = text, name
            elif _differ(text, answers[answered]):
                where = f"{name}, cell {last}" if last else name
                notes.append(f"{where}: a second answer to {answered}; {files[answered]} is graded")
    missing = ids - {*answers}
    unopened = sorted(name for name in others if name.lower().endswith((*_DOCUMENTS, *ARCHIVE)))
    if not answers and not problems and (opened or others):
        kinds = "no file with the name of an exercise" if opened else "no Python file and no notebook"
        problems.append(f"the submission has {kinds}, but {', '.join(sorted([*opened, *others])[:5])}")
    elif missing and unopened:
        problems.append(f"in this submission nobody looked into {', '.join(unopened[:5])}")
    elif not answers and not problems:
        notes.append("the submission is empty")
    if problems and not answers:
        refused = {exercise: refused.get(exercise, one_line(problems[0])) for exercise in wanted.values()}
    unread = bool(missing and problems)
    problems = [one_line(text) for text in problems + notes]
    problems[_MOST_PROBLEMS:] = [f"and {len(problems) - _MOST_PROBLEMS:,} more"] * (len(problems) > _MOST_PROBLEMS)
    return {"answers": answers, "files": files, "refused": refused, "problems": problems, "unread": unread}


def _nothing(wanted: Mapping[str, str], problem: str) -> dict[str, Any]:
    problem = one_line(problem)
    refused = dict.fromkeys(wanted.values(), problem)
    return {"answers": {}, "files": {}, "refused": refused, "prints": {}, "problems": [problem], "unread": True}


def _rank(name: str) -> tuple[object, ...]:
    """What comes first counts."""
    read = read_as(name)
    is_copy = bool(_COPY.search(read))
    return "work" not in PurePosixPath(read).parts, read.endswith(".ipynb"), is_copy, read.count("/"), name


def _exercise(name: str, wanted: Mapping[str, str]) -> str:
    """The exercise that a path names, or ""."""
    for path in (read_as(name), _COPY.sub("", read_as(name))):
        for end in ("/".join(PurePosixPath(path).parts[-2:]), PurePosixPath(path).name):
            if end in wanted:
                return wanted[end]
    return ""


def _differ(text: str, other: str) -> bool:
    return without_task(text).strip() != without_task(other).strip()


def _text(opened: Openers, name: str) -> str:
    most = MAX_NOTEBOOK if read_as(name).endswith(".ipynb") else MAX_FILE
    try:
        with opened[name]() as file:
            data = file.read(most + 1)  # stops there, whatever size the archive claims
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise ValueError("no text in UTF-8; save it in that encoding") from None
    except Exception as error:
        raise ValueError(f"cannot be read: {error or type(error).__name__}") from error
    if len(data) > most:
        raise ValueError(f"more than {most >> 20} MiB; refused")
    return text.replace("\r\n", "\n")
