"""A figure with words: shown in a notebook, or saved as SVG.

A notebook gets two outputs per figure: the picture as PNG, and its description as text that anybody can open.
PNG, because every viewer draws it; JupyterLab refuses to draw an SVG of a notebook that it does not trust yet, and a
freshly cloned one is not trusted. The description as text, because JupyterLab gives an image output no `alt`
attribute. The description stands in the metadata too, for the viewers that read it there.

The bytes depend on the data alone: no date, no random ids, so a rebuilt notebook or image does not differ.
"""

from __future__ import annotations

import base64
import html
import io
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from PIL import Image

from .style import style

DrawFrame = Callable[[Axes], object]  # draws one state of a sequence

_SCREEN_DPI = 100  # a figure of 9 inches is 900 CSS pixels wide
_PIXEL_RATIO = 2  # sharp on dense screens


@dataclass(frozen=True)
class Picture:
    """A figure and its description.

    Attributes:
        figure: what to draw.
        alt: what the figure says, in words, for readers who do not see it.
    """

    figure: Figure
    alt: str

    def __post_init__(self) -> None:
        if not self.alt.strip():
            raise ValueError("a figure needs alt text: say in one or two sentences what a reader should see in it")

    @property
    def width(self) -> int:
        """Width on the page in CSS pixels."""
        return round(self.figure.get_figwidth() * _SCREEN_DPI)

    def png(self) -> bytes:
        """The picture as PNG, at twice the pixels of its width on the page."""
        # A palette keeps a notebook of many figures under its size limit; charts have few colours.
        packed = io.BytesIO()
        pixels(self.figure, _SCREEN_DPI * _PIXEL_RATIO).quantize(
            96, Image.Quantize.MEDIANCUT, dither=Image.Dither.NONE
        ).save(packed, "PNG", optimize=True)
        return packed.getvalue()

    def img(self) -> str:
        """The picture as an HTML `<img>` with its alt text, for use inside widgets."""
        data = base64.b64encode(self.png()).decode()
        fit = f'width="{self.width}" style="max-width:100%;height:auto"'
        return f'<img alt="{html.escape(self.alt)}" {fit} src="data:image/png;base64,{data}">'

    def _repr_mimebundle_(self, **_: Any) -> tuple[dict[str, str], dict[str, Any]]:
        data = {"image/png": base64.b64encode(self.png()).decode(), "text/plain": f"Figure: {self.alt}"}
        return data, {"image/png": {"alt": self.alt, "width": self.width}}

    def describe(self) -> dict[str, str]:
        """The description as a display bundle: folded in HTML, plain as text."""
        words = html.escape(self.alt)
        return {
            "text/html": folded("Figure in words", f"<p>{words}</p>"),
            "text/plain": f"Figure in words: {self.alt}",
        }

    def display(self) -> None:
        """Show the picture, then its description, in the running cell."""
        from IPython.display import display

        data, metadata = self._repr_mimebundle_()
        display(data, metadata=metadata, raw=True)
        display(self.describe(), raw=True)


def pixels(figure: Figure, dpi: int) -> Image.Image:
    """What `savefig` writes, in half of its time: it draws twice, and compresses what would be unpacked here."""
    before = figure.dpi, figure.get_facecolor(), figure.canvas
    with style():
        figure.dpi = dpi
        figure.set_facecolor("white")
        try:
            canvas = FigureCanvasAgg(figure)
            canvas.draw()
            return Image.frombuffer("RGBA", canvas.get_width_height(), canvas.buffer_rgba()).convert("RGB")
        finally:
            figure.dpi = before[0]
            figure.set_facecolor(before[1])
            figure.set_canvas(before[2])


def folded(summary: str, body: str) -> str:
    """HTML that shows one line, the summary as plain text, and the body when that is opened."""
    return f"<details><summary>{html.escape(summary)}</summary>{body}</details>"


def show(figure: Figure, alt: str) -> None:
    """Show a figure in the running cell, with its description.

    Args:
        figure: a figure from `dtlearn.viz`, or any matplotlib figure.
        alt: what the figure says, in words. Mark the cell `nbval-ignore-output` when this quotes a measurement.
    """
    Picture(figure, alt).display()


def svg(figure: Figure, title: str, desc: str) -> str:
    """The figure as SVG text with `<title>` and `<desc>`, the same text every time."""
    raw = io.StringIO()
    with style():
        figure.savefig(raw, format="svg", metadata={"Date": None, "Creator": None, "Format": None, "Type": None})
    head, tag, rest = raw.getvalue().partition("<svg ")
    attributes, close, body = rest.partition(">")
    assert tag and close
    words = f'\n <title id="title">{html.escape(title)}</title>\n <desc id="desc">{html.escape(desc)}</desc>'
    return f'{head}<svg role="img" aria-labelledby="title desc" {attributes}>{words}{body}'


def save_svg(figure: Figure, path: str | Path, title: str, desc: str) -> Path:
    """Write the figure as SVG; title and description are in the file, for screen readers.

    Raises:
        ValueError: no title or no description.
    """
    if not title.strip() or not desc.strip():
        raise ValueError(f"{Path(path).name}: an image needs a title and a description")
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(svg(figure, title, desc), encoding="utf-8")
    return path


def draw_frame(ax: Axes, frame: DrawFrame, title: str) -> None:
    """Draw one of several states, with its number and caption above."""
    frame(ax)
    ax.set_title(title, loc="left", size=9, weight="normal", wrap=True)
