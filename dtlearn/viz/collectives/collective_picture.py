"""A recorded collective as pictures, one per step: a row per rank, a column per chunk, an arrow per message."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from functools import partial

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import FancyArrowPatch, Rectangle
from matplotlib.patheffects import Stroke

from ..style import GRID, INK, LANE, MUTED, RANK_COLORS, WIDTH, new_figure, style
from ..units import format_bytes
from .collective_steps import CollectiveSteps, Contributors, StepMessage

# A stripe's place in its cell says the same as its colour; for more ranks a cell is a shade and their number. A tensor
# that is not cut has the sum in its cell as text, "0+1+2": stripes would look like parts of it.
_MAX_STRIPES = 6  # more are too narrow to be told apart
_SOME, _FEW, _ALL = "#7fb2d6", "#cfe3f1", INK  # data of less than all ranks, of one, of all; no rank has such a colour
_PAD = 0.09  # between cells
_MAX_WORDS = 40  # messages; an alt text that tells of more is not listened to


def collective_figure(steps: CollectiveSteps, title: str, columns: int = 4) -> Figure:
    """All steps beside each other: the state before, then after each step with the messages that led there.

    Args:
        steps: from `collective_steps`.
        title: what the figure is about.
        columns: pictures in a row, at most 8.
    """
    frames, captions = collective_frames(steps)
    columns = min(columns, len(frames), 8)
    rows = -(-len(frames) // columns)
    with style():
        fig = new_figure(height=rows * panel_size(steps, columns)[1] + 0.7, width=WIDTH)
        fig.suptitle(title, x=0.005, ha="left", weight="bold", size=12)
        for number, (frame, caption) in enumerate(zip(frames, captions, strict=True)):
            ax = fig.add_subplot(rows, columns, number + 1)
            frame(ax)
            ax.set_title(f"{number}. {caption}", loc="left", size=9, weight="normal")
        run = f"Run: {steps.label}. " if steps.label else ""
        fig.supxlabel(run + how_to_read(steps), x=0.005, ha="left", size=8.5, color=MUTED)
    return fig


def collective_frames(steps: CollectiveSteps) -> tuple[list[Callable[[Axes], None]], list[str]]:
    """A function that draws each state, and a line about each; the first is the state before the first step."""
    frames: list[Callable[[Axes], None]] = [
        partial(draw_state, steps=steps, number=k) for k in range(len(steps.states))
    ]
    return frames, ["before", *map(_caption, steps.messages)]


def panel_size(steps: CollectiveSteps, columns: int = 4) -> tuple[float, float]:
    """Width and height of one picture, in inches."""
    return WIDTH / columns, 0.75 + max(1.1, 0.24 * len(steps.ranks))


def how_to_read(steps: CollectiveSteps) -> str:
    """One sentence under the figure."""
    if not steps.num_chunks:
        return "Arrows: messages of this step; where in a tensor they lay is not known."
    cell = "Stripe in a cell: that rank's data is in it"
    if steps.num_chunks == 1:
        cell = "In a cell: the ranks whose tensors are summed in it"
    if len(steps.ranks) > _MAX_STRIPES:
        cell = "Number in a cell: how many ranks' data is in it"
    if steps.num_chunks == 1 or len(steps.ranks) > _MAX_STRIPES:
        full = any(held is not None and len(held) == len(steps.ranks) for row in steps.states[-1] for held in row)
        cell += " (black: all)" if full else ""
    more = "\n?: messages that lay elsewhere; what they brought is not in the cells." if _has_strays(steps) else ""
    return f"{cell}. Arrows: messages of the step; framed: what they reached.{more}"


def collective_words(steps: CollectiveSteps) -> str:
    """The steps in words, as alt text."""
    everyone = frozenset(steps.ranks)
    count = sum(map(len, steps.messages))
    parts = [
        f"{len(steps.ranks)} ranks, {steps.num_chunks} chunk{'s' * (steps.num_chunks != 1)}: "
        f"{count} messages in {len(steps.messages)} steps."
    ]
    if count <= _MAX_WORDS:
        for number, messages in enumerate(steps.messages, start=1):
            parts.append(f"Step {number}: " + "; ".join(map(_message_words, messages)) + ".")
    else:
        parts += [f"Step {n}: {_caption(messages)}." for n, messages in enumerate(steps.messages, start=1)]
    if _has_strays(steps):
        parts.append("Some messages did not lie in the tensor, so what the ranks held at the end is not known.")
    elif all(held == everyone for row in steps.states[-1] for held in row):
        parts.append("At the end every chunk of every rank holds the data of all ranks.")
    else:
        parts += [
            f"At the end rank {rank} holds: {_row_words(row, everyone)}."
            for rank, row in zip(steps.ranks, steps.states[-1], strict=True)
        ]
    if steps.lost:
        parts.append(f"{steps.lost} calls found no partner or never returned.")
    return " ".join(parts)


def draw_state(ax: Axes, steps: CollectiveSteps, number: int) -> None:
    """Draw `steps.states[number]`, with the messages of the step that ended in it."""
    messages = steps.messages[number - 1] if number else ()
    beside = _has_strays(steps)  # a column for messages without a place
    width = steps.num_chunks + beside
    row = {rank: i for i, rank in enumerate(steps.ranks)}
    for rank, cells in zip(steps.ranks, steps.states[number], strict=True):
        for chunk, held in enumerate(cells):
            _draw_cell(ax, chunk, row[rank], held, steps.ranks, whole=steps.num_chunks == 1)
        if beside:
            ax.add_patch(Rectangle((steps.num_chunks + _PAD, row[rank] + _PAD), 1 - 2 * _PAD, 1 - 2 * _PAD, fc=LANE))
    for m in messages:
        first, last = (steps.num_chunks, width) if m.first is None or m.last is None else (m.first, m.last)
        corner = (first + _PAD, row[m.dst] + _PAD)
        frame = Rectangle(corner, last - first - 2 * _PAD, 1 - 2 * _PAD, fill=False, ec=INK, lw=1.6, zorder=3)
        ax.add_patch(frame)
        if steps.num_chunks == 1 or len(steps.ranks) > _MAX_STRIPES:  # a light line sets it off from a dark cell
            inside = (last - first - 2 * _PAD - 0.03, 1 - 2 * _PAD - 0.14)
            ax.add_patch(
                Rectangle((corner[0] + 0.015, corner[1] + 0.07), *inside, fill=False, ec="white", lw=1.0, zorder=3)
            )
    for m, x in _places(messages, steps.num_chunks):
        if steps.num_chunks == 1 or len(steps.ranks) > _MAX_STRIPES:  # leaves the text at the left of its cell readable
            x = x // 1 + 0.42 + 0.55 * (x % 1)
        _draw_arrow(ax, x, row[m.src], row[m.dst])
    ax.set_xlim(0, width)
    ax.set_ylim(len(steps.ranks), 0)
    names = [str(c) for c in range(steps.num_chunks)] if 1 < steps.num_chunks <= 16 else []
    ticks = [c + 0.5 for c in range(len(names))]
    ax.set_xticks([*ticks, *([width - 0.5] if beside else [])], [*names, *(["?"] if beside else [])], size=8)
    ax.set_yticks([i + 0.5 for i in range(len(steps.ranks))], [f"rank {r}" for r in steps.ranks], size=8)
    if steps.num_chunks:
        ax.set_xlabel("chunk" if steps.num_chunks > 1 else "whole tensor", size=8, labelpad=1, color=MUTED)
    has_key = steps.num_chunks > 1 and len(steps.ranks) <= _MAX_STRIPES
    ax.tick_params(length=0, pad=13 if has_key else 3, axis="y")
    ax.tick_params(length=0, pad=2, axis="x")
    for side in ax.spines.values():
        side.set_visible(False)
    if has_key:  # the key to the colours stands at each row
        for rank in steps.ranks:
            at, color = (0, row[rank] + 0.5), RANK_COLORS[rank % len(RANK_COLORS)]
            ax.annotate("\u25a0", at, (-3, 0), textcoords="offset points", ha="right", va="center", color=color, size=9)


def _has_strays(steps: CollectiveSteps) -> bool:
    """Whether some message lay outside the tensor: a copy of a part of it, say."""
    return any(m.first is None for step in steps.messages for m in step)


def _draw_cell(ax: Axes, chunk: int, row: int, held: Contributors, ranks: Sequence[int], whole: bool) -> None:
    x, y, width, height = chunk + _PAD, row + _PAD, 1 - 2 * _PAD, 1 - 2 * _PAD
    if held is None:
        ax.add_patch(Rectangle((x, y), width, height, fc="white", ec=GRID, lw=0.8, ls=(0, (2, 2))))
        return
    many = len(ranks) > _MAX_STRIPES
    if whole or many:
        color = _ALL if len(held) == len(ranks) else _SOME if len(held) > 1 else _FEW
        ax.add_patch(Rectangle((x, y), width, height, fc=color, lw=0))
        ink, size = "white" if color == _ALL else INK, 7 if many else 9
        words = str(len(held)) if many else "+".join(map(str, sorted(held)))
        ax.text(x + 0.04, y + height / 2, words, va="center_baseline", size=size, color=ink, zorder=6)
        return
    ax.add_patch(Rectangle((x, y), width, height, fc=LANE, lw=0))
    stripe = width / len(ranks)
    for place, rank in enumerate(ranks):
        if rank in held:
            ax.add_patch(
                Rectangle((x + place * stripe, y), stripe, height, fc=RANK_COLORS[rank % len(RANK_COLORS)], lw=0)
            )


def _draw_arrow(ax: Axes, x: float, src: int, dst: int) -> None:
    """Draw an arrow straight down or up, from the middle of one row to the near part of another."""
    down = dst > src
    tail, head = (x, src + 0.5), (x, dst + (0.42 if down else 0.58))
    arrow = FancyArrowPatch(tail, head, arrowstyle="-|>", mutation_scale=9, lw=1.3, color=INK, shrinkA=0, shrinkB=0)
    arrow.set(zorder=4, path_effects=[Stroke(linewidth=3.2, foreground="white"), Stroke(linewidth=1.3, foreground=INK)])
    ax.add_patch(arrow)
    ax.plot([x], [src + 0.5], "o", color=INK, mec="white", mew=0.8, ms=4.5, zorder=5)


def _places(messages: Sequence[StepMessage], num_chunks: int) -> list[tuple[StepMessage, float]]:
    """Each message with the x of its arrow: those of the same chunks stand side by side."""
    columns: dict[tuple[int, int], list[StepMessage]] = defaultdict(list)
    for m in messages:
        columns[(num_chunks, num_chunks + 1) if m.first is None or m.last is None else (m.first, m.last)].append(m)
    return [
        (m, first + (i + 1) / (len(same) + 1) * (last - first))
        for (first, last), same in columns.items()
        for i, m in enumerate(same)
    ]


def _caption(messages: Sequence[StepMessage]) -> str:
    sizes = {m.nbytes for m in messages}
    words = f"{len(messages)} message{'s' * (len(messages) != 1)}"
    if len(sizes) == 1:
        return f"{words} of {format_bytes(sizes.pop())}"
    return f"{words}, {format_bytes(sum(m.nbytes for m in messages))}"


def _message_words(m: StepMessage) -> str:
    if m.first is None or m.last is None:
        return f"{m.src} to {m.dst}, {format_bytes(m.nbytes)}"
    chunks = f"chunk {m.first}" if m.last == m.first + 1 else f"chunks {m.first}-{m.last - 1}"
    return f"{m.src} to {m.dst}, {chunks}"


def _row_words(row: Sequence[Contributors], everyone: frozenset[int]) -> str:
    def words(held: Contributors) -> str:
        if held is None:
            return "nothing"
        return "all" if held == everyone else "+".join(map(str, sorted(held)))

    return ", ".join(f"chunk {c} of {words(held)}" for c, held in enumerate(row))
