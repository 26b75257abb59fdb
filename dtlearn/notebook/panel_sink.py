"""The `--show panel` view: one card per rank, refreshed in place, whose last state stays in the saved notebook."""

import html
import time

from ..runtime.output import rank_color
from .merge_lines import fold_lines, label, settle
from .render import GroupedSink, InPlace

_EVERY = 0.2  # seconds between refreshes: more often makes browsers slow
_LINES = 200  # last lines of a rank that are shown


class PanelSink(GroupedSink):
    """A card per rank with its last lines, its figures and its state."""

    _dirty = True
    _next = 0.0

    def __init__(self, ranks: list[int], hide_results: bool = False) -> None:
        super().__init__(ranks, hide_results)
        self._cards = InPlace()

    def changed(self, rank: int) -> None:
        self._dirty = True

    def tick(self) -> None:
        if self._dirty and time.monotonic() >= self._next:
            self._next = time.monotonic() + _EVERY
            self._refresh("running")

    def close(self) -> None:
        self._refresh("ended")
        self._show_notes()

    def _refresh(self, state: str) -> None:
        self._dirty = False
        self._cards.show({"text/html": self._html(state), "text/plain": self._plain()})

    def _lines(self, rank: int) -> list[str]:
        """The last lines of a rank, its values among them."""
        output = self.outputs[rank]
        values = [c["data"].get("text/plain", "") for c in output.displays if "image/png" not in c["data"]]
        text = settle(output.text["stdout"] + output.text["stderr"]).rstrip("\n")
        lines = [line for part in [text, *values] if part for line in part.split("\n")]
        cut = len(lines) - _LINES
        return [f"[{cut} lines above]", *lines[cut:]] if cut > 0 else lines

    def _plain(self) -> str:
        folded = fold_lines({r: self._lines(r) for r in self.outputs})
        return "\n".join(f"{label(ranks)} {line}" for ranks, line in folded)

    def _html(self, state: str) -> str:
        cards = []
        for rank, output in self.outputs.items():
            color = rank_color(rank) if rank >= 0 else "#888"
            who = f"rank {rank}" if rank >= 0 else "launcher"
            body = html.escape("\n".join(self._lines(rank)))
            figures = "".join(
                f'<img alt="figure shown by rank {rank}" style="max-width:100%" '
                f'src="data:image/png;base64,{c["data"]["image/png"]}">'
                for c in output.displays
                if "image/png" in c["data"]
            )
            cards.append(
                f'<section style="border:1px solid #888;border-left:6px solid {color};border-radius:4px;min-width:0">'
                f'<div style="padding:2px 8px;border-bottom:1px solid #888"><b>{who}</b> {state}</div>'
                f'<pre style="margin:0;padding:6px 8px;max-height:22em;overflow:auto">{body}</pre>{figures}</section>'
            )
        columns = min(len(cards), 4)
        style = f"display:grid;grid-template-columns:repeat({columns},minmax(0,1fr));gap:6px"
        return f'<div style="{style}">{"".join(cards)}</div>'
