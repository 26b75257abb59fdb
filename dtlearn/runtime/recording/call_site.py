"""Whose call it is: the source line that a person would look at. Runs on the ranks, for each recorded call."""

import functools
import json
import linecache
import os
import sys
import traceback
from pathlib import Path
from types import FrameType

_RUNTIME = str(Path(__file__).parents[1])
_PACKAGE = str(Path(__file__).parents[2]) + os.sep
# Code of this package's runtime, of Python's start, and what torch's compiler made.
_OTHERS = (_RUNTIME, "<frozen", "<eval_with_key>")
_COLLECTIVES = _PACKAGE + "collectives" + os.sep  # which make other calls with NCCL: see `collectives/execute.py`
HANDED_OVER = "<check>"  # functions of a graded run that are handed to the answer, such as an exercise's f and g
_NOBODY = '"file":"","line":0,"code":""'
_encode = json.JSONEncoder().encode


def nearest_caller(torch_folder: str) -> tuple[str, int, str]:
    """The nearest frame that belongs neither to torch nor to this package: as JSON for the log, and its line; and a
    name of `Event.detail` if somebody made the call for it: "handed_over", "for_gloo".

    Who calls the package's own strategies is shown the line of that call. Where there is no such caller, as when a
    function of the package itself is run on ranks, it is the nearest frame outside its runtime.
    """
    others = (torch_folder, *_OTHERS)
    frame: FrameType | None = sys._getframe(1)
    own: tuple[str, int] | None = None
    handed_over: tuple[str, int] | None = None
    while frame is not None:
        name = frame.f_code.co_filename
        if not name.startswith(others) and not name.endswith("/contextlib.py"):
            if name == HANDED_OVER:
                handed_over = handed_over or (name, frame.f_lineno)
            elif name.startswith(_PACKAGE):
                own = own or (name, frame.f_lineno)
            elif handed_over is not None:
                if name != "<string>":
                    return line_as_json(name, frame.f_lineno), frame.f_lineno, "handed_over"
            elif own is None or name != "<string>":  # below our own functions, that is how the agent was started
                made_by = "for_gloo" if own and own[0].startswith(_COLLECTIVES) else ""
                return line_as_json(name, frame.f_lineno), frame.f_lineno, made_by
        frame = frame.f_back
    own = handed_over or own
    if own is None:
        return _NOBODY, 0, ""
    return line_as_json(*own), own[1], "for_gloo" if own[0].startswith(_COLLECTIVES) else ""


@functools.cache
def line_as_json(name: str, line: int) -> str:
    """A source line, for the log."""
    code = linecache.getline(name, line).strip()
    return f'"file":{_encode(name)},"line":{line},"code":{_encode(code)}'


def nearest_line() -> int:
    """The line of the nearest frame that belongs neither to torch nor to this package; 0: there is none."""
    return nearest_caller(str(Path(sys.modules["torch"].__file__ or "").parent))[1]


def raised_at(error: BaseException) -> str:
    """Where an exception was raised, as the end of a sentence: the innermost line that is neither torch's nor ours."""
    others = (str(Path(sys.modules["torch"].__file__ or "").parent), *_OTHERS)
    lines = [
        line
        for frame, line in traceback.walk_tb(error.__traceback__)
        if not frame.f_code.co_filename.startswith(others)
    ]
    return f" (line {lines[-1]})" if lines else ""
