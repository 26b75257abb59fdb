"""Whose call it is: the source line that a person would look at. Runs on the ranks, for each recorded call."""

import json
import linecache
import os
import sys
from pathlib import Path

_RUNTIME = str(Path(__file__).parents[1])
_PACKAGE = str(Path(__file__).parents[2]) + os.sep
_NOBODY = '"file":"","line":0,"code":""'
_encode = json.JSONEncoder().encode


class Callers:
    """Finds the callers of what runs now."""

    def __init__(self, torch_folder: str) -> None:
        # Code of torch, of this package's runtime, of Python's start, and what torch's compiler made.
        self._others = (torch_folder, _RUNTIME, "<frozen", "<eval_with_key>")
        self._sites: dict[tuple[str, int], str] = {}

    def forget(self) -> None:
        """Read source lines anew: files may have been edited."""
        self._sites.clear()

    def nearest(self) -> tuple[str, int]:
        """The nearest frame that belongs neither to torch nor to this package: as JSON for the log, and its line.

        Who calls the package's own strategies is shown the line of that call. Where there is no such caller, as when a
        function of the package itself is run on ranks, it is the nearest frame outside its runtime.
        """
        frame, own = sys._getframe(1), None
        while frame is not None:
            name = frame.f_code.co_filename
            if not name.startswith(self._others) and not name.endswith("/contextlib.py"):
                if name.startswith(_PACKAGE):
                    own = own or (name, frame.f_lineno)
                elif own is None or name != "<string>":  # below our own functions, that is how the agent was started
                    return self._site(name, frame.f_lineno), frame.f_lineno
            if frame.f_back is None:
                break
            frame = frame.f_back
        return (self._site(*own), own[1]) if own else (_NOBODY, 0)

    def _site(self, name: str, line: int) -> str:
        site = self._sites.get((name, line))
        if site is None:
            code = linecache.getline(name, line).strip()
            site = self._sites[name, line] = f'"file":{_encode(name)},"line":{line},"code":{_encode(code)}'
        return site
