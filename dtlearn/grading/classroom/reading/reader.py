"""Reads one hand-in in a process of its own: what damages, fills or stops it costs that hand-in, and nobody else.

The process has limits on memory, processor time and what it may write. It gets a line of JSON on its standard input
and writes one to its standard output, a file; who started it takes over what has the shape of an answer, no more.
"""

import contextlib
import json
import os
import resource
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path, PurePosixPath
from typing import Any

from ....runtime.machine.patience import TO_READ_A_HAND_IN
from ....runtime.machine.processes import communicate
from ...learner.stubs import to_file, without_task
from ...report.safe import one_line
from .fingerprints import fingerprints
from .members import Openers, members

MAX_FILE, MAX_NOTEBOOK = 1 << 20, 16 << 20  # bytes of one answer; of a notebook, which may hold pictures
MEMORY, PROCESSOR = 1 << 30, 20  # bytes of address space, seconds
_WRITTEN, _MOST_PROBLEMS = 64 << 20, 20  # bytes; lines
_BOOT = "import sys; sys.path.append({path!r}); from dtlearn.grading.classroom.reading.reader import main; main()"


def read_in_process(path: Path, wanted: Mapping[str, str]) -> dict[str, Any]:
    """Read a hand-in: "answers", "files" (names), "prints" (fingerprints) and "refused" (why) by exercise; "problems";
    "unreadable": whether nothing could be read; "memory": most bytes that it held, 0 if not known. `wanted`: ends of
    paths -> ids."""
    boot = _BOOT.format(path=str(Path(__file__).parents[4]))
    with tempfile.TemporaryFile() as out:
        request = json.dumps({"path": os.fspath(path.absolute()), "wanted": dict(wanted)}).encode()
        try:
            reader = subprocess.Popen(
                [sys.executable, "-P", "-c", boot], stdin=subprocess.PIPE, stdout=out, stderr=subprocess.DEVNULL
            )
            communicate(reader, TO_READ_A_HAND_IN, request)
        except subprocess.TimeoutExpired:
            return _nothing(f"reading it took more than {TO_READ_A_HAND_IN:.0f} s")
        if reader.returncode == -signal.SIGXCPU:
            return _nothing(f"reading it took more than {PROCESSOR} s of processor time")
        if reader.returncode:
            return _nothing(f"reading it ended with status {reader.returncode}: damaged, or made to do harm")
        out.seek(0)
        said = json.loads(out.read(_WRITTEN))
    texts = {kind: {str(e): str(text) for e, text in said[kind].items()} for kind in ("answers", "files", "refused")}
    prints = {str(e): frozenset(map(int, numbers)) for e, numbers in said["prints"].items()}
    rest = {"problems": [*map(str, said["problems"])], "unreadable": said["unreadable"] is True}
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
            reply = read(Path(request["path"]), request["wanted"], stack)
    except MemoryError:
        reply = _nothing(f"reading it took more than {MEMORY >> 30} GiB of memory")
    except Exception as error:  # of any kind, as damaged archives raise them
        reply = _nothing(one_line(f"the submission cannot be read: {error or type(error).__name__}"))
    reply["prints"] = {exercise: sorted(fingerprints(text)) for exercise, text in reply["answers"].items()}
    with contextlib.suppress(OSError, IndexError):  # `getrusage` would say what the process held that started this one
        reply["memory"] = int(Path("/proc/self/status").read_text().split("VmHWM:")[1].split()[0]) << 10
    sys.stdout.write(json.dumps(reply))


def read(path: Path, wanted: Mapping[str, str], stack: contextlib.ExitStack) -> dict[str, Any]:
    """As `read_in_process`, here and without limits. Raises Exception, of any kind: it cannot be read."""
    answers, files, refused, problems = dict[str, str](), dict[str, str](), dict[str, str](), list[str]()
    opened = members(path, problems, stack)
    # A whole course may be handed in: the learner's own files, in work/, come before the stubs, files before cells.
    names = sorted(opened, key=lambda n: ("work" not in PurePosixPath(n).parts, n.endswith(".ipynb"), n.count("/"), n))
    for name in names:
        is_notebook = name.endswith(".ipynb")
        ends = ("/".join(PurePosixPath(name).parts[-2:]), PurePosixPath(name).name)
        exercise = next((wanted[end] for end in ends if end in wanted), "")
        if not exercise and not is_notebook:
            continue
        try:
            text = _text(opened, name)
            texts = [*_cells(text, {*wanted.values()})] if is_notebook else [(exercise, text)]
        except ValueError as error:
            problems.append(f"{name}: {error}")
            for exercise_id in [exercise] if exercise else wanted.values():  # a notebook may have held any
                refused.setdefault(exercise_id, one_line(problems[-1]))
            continue
        for answered, text in texts:
            if answered not in answers:
                answers[answered], files[answered] = text, name
            elif without_task(text).strip() != without_task(answers[answered]).strip():
                problems.append(f"{name}: a second answer to {answered}; {files[answered]} is graded")
    if opened and not answers and not problems:
        problems.append(f"the submission has no file with the name of an exercise, but {', '.join(sorted(opened)[:5])}")
    problems[_MOST_PROBLEMS:] = [f"and {len(problems) - _MOST_PROBLEMS:,} more"] * (len(problems) > _MOST_PROBLEMS)
    problems = [one_line(text) for text in problems]
    return {"answers": answers, "files": files, "refused": refused, "problems": problems, "unreadable": False}


def _nothing(problem: str) -> dict[str, Any]:
    return {"answers": {}, "files": {}, "refused": {}, "prints": {}, "problems": [problem], "unreadable": True}


def _text(opened: Openers, name: str) -> str:
    most = MAX_NOTEBOOK if name.endswith(".ipynb") else MAX_FILE
    try:
        with opened[name]() as file:
            data = file.read(most + 1)  # stops there, whatever size the archive claims
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise ValueError("no UTF-8 text; refused") from None
    except Exception as error:
        raise ValueError(f"cannot be read: {error or type(error).__name__}") from error
    if len(data) > most:
        raise ValueError(f"more than {most >> 20} MiB; refused")
    return text.replace("\r\n", "\n")


def _cells(text: str, exercises: set[str]) -> Iterator[tuple[str, str]]:
    """Answers in the cells of a notebook that begin with `%%exercise ID`. Raises ValueError: what is wrong, where."""
    try:
        cells = json.loads(text)["cells"]
        texts = ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]
    except json.JSONDecodeError as error:
        raise ValueError(f"a damaged notebook, line {error.lineno} column {error.colno}: {error.msg}") from None
    except (KeyError, TypeError, RecursionError) as error:
        raise ValueError(f"no notebook ({type(error).__name__}: {error})") from None
    for cell in texts:
        first, _, rest = cell.partition("\n")
        magic, exercise = [*first.split(), "", ""][:2]
        if magic == "%%exercise" and exercise in exercises:
            yield exercise, to_file(rest.encode("utf-8", "replace").decode(), exercise)
