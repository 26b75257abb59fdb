"""Tab and Shift-Tab in cells of the course: names on the ranks, asked of rank 0, and ids of exercises.

IPython would look into the notebook's own variables, which a cell on ranks does not have.
"""

import contextlib
import re
import threading
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from ..course import load_course
from ..runtime.errors import DtlearnError
from ..runtime.world.look_up import Question
from .current_world import last_world

_FIRST_LINE = re.compile(r"%%(?P<magic>ranks|exercise|try)\b[^\n]*\n")
_ID = re.compile(r"%%?(?:exercise|try|hint|solution|reset_exercise) +(?P<id>[\w.]*)$")


def add_typing_help(shell: Any) -> None:
    """Have a notebook's kernel ask rank 0 where the cell runs there. A second time changes nothing."""
    kernel = getattr(shell, "kernel", None)  # a terminal's IPython has none
    if kernel is not None and not isinstance(kernel.do_complete, partial):
        # IPython lets others complete names, but has no place for who inspects them: both are done here, in one way.
        kernel.do_complete = partial(complete, shell, kernel.do_complete)
        kernel.do_inspect = partial(inspect, shell, kernel.do_inspect)


def complete(shell: Any, own: Callable[..., Any], code: str, cursor_pos: int) -> Any:
    """Reply to a `complete_request`. `own`: how the kernel does it."""
    if entry := _ID.match(code[:cursor_pos].rpartition("\n")[2]):
        ids = [id for id in _exercise_ids() if id.startswith(entry["id"])]
        start = cursor_pos - len(entry["id"])
        return {"status": "ok", "matches": ids, "cursor_start": start, "cursor_end": cursor_pos, "metadata": {}}
    first = _FIRST_LINE.match(code)
    if first is None or cursor_pos < first.end():
        return own(code, cursor_pos)
    body, place = code[first.end() :], cursor_pos - first.end()
    reply = _ask("complete_request", {"code": body, "cursor_pos": place})
    if reply is None or (not reply["matches"] and first["magic"] != "ranks"):
        with _names_only(shell):
            reply = own(body, place)
    return _moved(reply, first.end())


def inspect(
    shell: Any, own: Callable[..., Any], code: str, cursor_pos: int, detail_level: int = 0, omit_sections: Any = ()
) -> Any:
    """Reply to an `inspect_request`."""
    first = _FIRST_LINE.match(code)
    if first is None or cursor_pos < first.end():
        return own(code, cursor_pos, detail_level, omit_sections)
    body, place = code[first.end() :], cursor_pos - first.end()
    reply = _ask("inspect_request", {"code": body, "cursor_pos": place, "detail_level": detail_level})
    if reply is None or (not reply["found"] and first["magic"] != "ranks"):
        return own(body, place, detail_level, omit_sections)
    return reply


def _ask(question: Question, content: dict[str, Any]) -> dict[str, Any] | None:
    """Rank 0's answer; None if there is none: the ranks were not started or are busy."""
    world = last_world()
    if world is None or not world.running or threading.current_thread() is not threading.main_thread():
        return None
    try:
        reply = world.look_up(question, content)
    except DtlearnError:
        return None
    return reply if reply and reply.get("status") == "ok" else None


def _exercise_ids() -> list[str]:
    try:
        return [exercise.id for chapter in load_course().chapters for exercise in chapter.exercises]
    except ValueError:  # no course here: whoever runs the cell is told
        return []


@contextlib.contextmanager
def _names_only(shell: Any) -> Iterator[None]:
    """Complete from the names that there are, without jedi: it reads torch's sources, half a minute at first."""
    completer = shell.Completer
    before, completer.use_jedi = completer.use_jedi, False
    try:
        yield
    finally:
        completer.use_jedi = before


def _moved(reply: dict[str, Any], by: int) -> dict[str, Any]:
    """A reply about the cell's body as one about the whole cell."""
    types = reply.get("metadata", {}).get("_jupyter_types_experimental", [])
    moved = [{**entry, "start": entry["start"] + by, "end": entry["end"] + by} for entry in types]
    metadata = {**reply.get("metadata", {}), "_jupyter_types_experimental": moved} if types else reply["metadata"]
    places = {key: reply[key] + by for key in ("cursor_start", "cursor_end")}
    return {**reply, **places, "metadata": metadata}
