"""Shows what ranks print and draw: live while a cell runs, or merged after it, the same text every time."""

import html
import sys
import time
from typing import Any

from ..runtime.output import Sink, rank_color
from .frontend import is_live
from .merge_lines import fold_lines, label, settle

_LIMIT = 5 << 20  # characters that one cell may show
_BATCH = 0.1  # seconds that a live line may wait for its equals on other ranks
_WIDGET = "application/vnd.jupyter.widget-view+json"


class Output:
    """What one rank published in this cell."""

    def __init__(self) -> None:
        self.text = {"stdout": "", "stderr": ""}
        self.displays: list[dict[str, Any]] = []

    def update(self, content: dict[str, Any]) -> None:
        """Put a display in the place of those with its id."""
        name = content.get("transient", {}).get("display_id")
        same = [i for i, old in enumerate(self.displays) if old.get("transient", {}).get("display_id") == name]
        for i in same:
            self.displays[i] = content
        if not same:  # shown already, by a view that does not wait for the end
            self.displays.append(content)


class InPlace:
    """A display of the running cell: shown once, and then replaced where it stands."""

    _handle: Any = None

    def show(self, data: dict[str, str]) -> None:
        from IPython.display import display

        if self._handle is None:
            self._handle = display(data, raw=True, display_id=True)
        else:
            self._handle.update(data, raw=True)


class GroupedSink(Sink):
    """Shows everything when the cell has ended: merged lines first, then figures and values, by rank.

    Args:
        ranks: the ranks that the cell runs on.
        hide_results: leave out the value of the last line (it was asked for with `-o`).
    """

    def __init__(self, ranks: list[int], hide_results: bool = False) -> None:
        self.outputs = {r: Output() for r in ranks}
        self._hide_results = hide_results
        self._room = _LIMIT
        self._notice: InPlace | None = None
        self._advice: list[str] = []

    def publish(self, rank: int, message: dict[str, Any]) -> None:
        kind, content = message["msg_type"], message["content"]
        output = self.outputs.setdefault(rank, Output())
        if kind == "stream":
            text = content["text"][: max(0, self._room)]
            self._room -= len(content["text"])
            output.text[content["name"]] += text
        elif kind == "clear_output":
            self.outputs[rank] = Output()
        elif kind == "execute_result" and self._hide_results:
            return
        elif kind in ("execute_result", "display_data", "update_display_data"):
            # A rank's widgets cannot reach the browser: their words are shown.
            data = {name: shown for name, shown in content["data"].items() if name != _WIDGET}
            content = {**content, "data": data}
            if kind == "update_display_data":
                output.update(content)
            else:
                output.displays.append(content)
        self.changed(rank)

    def notice(self, text: str) -> None:
        """Show a line in the place of the last one, to people only: how long ranks wait is never the same twice."""
        if is_live() and (text or self._notice):
            self._notice = self._notice or InPlace()
            shown = f'<pre style="margin:0;opacity:0.7">{html.escape(text)}</pre>' if text else ""
            self._notice.show({"text/plain": text, "text/html": shown})

    def advise(self, text: str) -> None:
        self._advice.append(text)

    def changed(self, rank: int) -> None:
        """Called when there is something new of a rank."""

    def close(self) -> None:
        """The cell has ended, well or not: show what is left."""
        for name in ("stdout", "stderr"):
            self._print_lines({r: _lines(o.text[name]) for r, o in self.outputs.items()}, name)
        self._show_displays()
        self._show_notes()

    def _show_notes(self) -> None:
        for text in self._advice:
            print(f"NCCL would not forgive this: {text}")
        if self._room < 0:
            print(f"[... {-self._room:,} characters of output left out ...]", file=sys.stderr)

    def _print_lines(self, per_rank: dict[int, list[str]], name: str) -> None:
        lines = [self.prefix(ranks) + line for ranks, line in fold_lines(per_rank)]
        if lines:
            print("\n".join(lines), file=getattr(sys, name), flush=True)

    def prefix(self, ranks: list[int]) -> str:
        return f"{label(ranks)} "

    def _show_displays(self) -> None:
        from IPython.display import publish_display_data

        shown: dict[str, list[int]] = {}  # equal plain values of several ranks are one line
        for rank, output in self.outputs.items():
            for content in output.displays:
                if set(content["data"]) == {"text/plain"}:
                    shown.setdefault(content["data"]["text/plain"], []).append(rank)
        for text, ranks in shown.items():
            print(self.prefix(ranks) + text.replace("\n", "\n" + " " * len(self.prefix(ranks))))
        for rank, output in self.outputs.items():
            for content in output.displays:
                if set(content["data"]) != {"text/plain"}:
                    print(f"{label([rank])} shows:", flush=True)
                    publish_display_data(content["data"], content.get("metadata", {}))


class StreamSink(GroupedSink):
    """Shows whole lines as they come, ten times a second; lines that ranks print together are merged."""

    _next = 0.0

    def prefix(self, ranks: list[int]) -> str:
        return f"{rank_label(ranks)} "

    def tick(self) -> None:
        if time.monotonic() >= self._next:
            self._next = time.monotonic() + _BATCH
            self._flush(whole_lines_only=True)

    def close(self) -> None:
        self._flush(whole_lines_only=False)
        super().close()

    def _flush(self, whole_lines_only: bool) -> None:
        for name in ("stdout", "stderr"):
            ready: dict[int, list[str]] = {}
            for rank, output in self.outputs.items():
                text = output.text[name]
                cut = text.rfind("\n") + 1 if whole_lines_only else len(text)
                ready[rank], output.text[name] = _lines(text[:cut]), text[cut:]
            self._print_lines(ready, name)
        if any(o.displays for o in self.outputs.values()):
            self._show_displays()
            for output in self.outputs.values():
                output.displays = []


class QuietSink(GroupedSink):
    """Shows nothing."""

    def notice(self, text: str) -> None:
        return

    def close(self) -> None:
        return


class OneRankSink(StreamSink):
    """Shows one rank's output live and ignores the others."""

    def publish(self, rank: int, message: dict[str, Any]) -> None:
        if rank == min(self.outputs):
            super().publish(rank, message)


def rank_label(ranks: list[int]) -> str:
    """The label of a line for a person: of one rank on the rank's colour, as in figures; of several in bold."""
    if not is_live():
        return label(ranks)
    if len(ranks) > 1 or ranks == [-1]:
        return f"\x1b[1m{label(ranks)}\x1b[0m"
    red, green, blue = bytes.fromhex(rank_color(ranks[0])[1:])
    ink = 0 if 3 * red + 6 * green + blue > 900 else 255  # black or white, by contrast
    return f"\x1b[38;2;{ink};{ink};{ink};48;2;{red};{green};{blue}m{label(ranks)}\x1b[0m"


def _lines(text: str) -> list[str]:
    return settle(text).removesuffix("\n").split("\n") if text else []
