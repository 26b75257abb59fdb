"""A recorded broadcast (or anything that spreads from one rank) as a tree: who got the data from whom, and when."""

from __future__ import annotations

from collections.abc import Mapping

from matplotlib.figure import Figure

from ..collectives.collective_steps import CollectiveSteps
from ..style import GRID, INK, MUTED, new_figure, style
from ..units import format_bytes

Parents = dict[int, tuple[int, int]]  # rank: (from whom, in which step); the root has no entry


def parents_of(steps: CollectiveSteps) -> Parents:
    """The rank from which each rank got the data, and the step in which it did.

    Raises:
        ValueError: some rank received twice, or there is not exactly one rank that never received.
    """
    parents: Parents = {}
    for number, messages in enumerate(steps.messages, start=1):
        for m in messages:
            if m.dst in parents:
                raise ValueError(f"rank {m.dst} received twice: these messages are no tree")
            parents[m.dst] = (m.src, number)
    roots = [rank for rank in steps.ranks if rank not in parents]
    if len(roots) != 1:
        raise ValueError(f"a tree has one root; ranks {roots} received nothing")
    return parents


def tree_picture(steps: CollectiveSteps, title: str) -> Figure:
    """Draw the tree: the root on top, each other rank in the row of the step in which it received.

    Args:
        steps: from `collective_steps`, of a broadcast.
        title: what the figure is about.

    Raises:
        ValueError: as `parents_of`.
    """
    parents = parents_of(steps)
    column = _columns(steps, parents)
    row = {rank: parents[rank][1] if rank in parents else 0 for rank in steps.ranks}
    last = len(steps.messages)
    with style():
        fig = new_figure(height=1.3 + 0.75 * last)
        ax = fig.add_subplot()
        right = len(steps.ranks) - 0.3
        for step in range(last + 1):
            have = sum(r <= step for r in row.values())
            ax.axhline(-step, color=GRID, lw=0.8, zorder=0, xmax=0.74)
            sent = len(steps.messages[step - 1]) if step else 0
            words = f"step {step}: {sent} message{'s' * (sent != 1)}, then {have} ranks have it" if step else "before"
            ax.text(right, -step, words, va="center", size=9.5)
        for rank, (src, step) in parents.items():
            tail, head = (column[src], -row[src]), (column[rank], -step)
            look = {"arrowstyle": "-|>", "color": INK, "lw": 1.5, "shrinkA": 11, "shrinkB": 11}
            ax.annotate("", head, tail, arrowprops=look)
            at = (0.35 * tail[0] + 0.65 * head[0], 0.35 * tail[1] + 0.65 * head[1])
            box = {"boxstyle": "round,pad=0.12", "fc": "white", "lw": 0}
            ax.text(*at, str(step), size=8, ha="center", va="center", color=MUTED, bbox=box)
        for rank in steps.ranks:
            fill, ink = ("white", INK) if rank in parents else (INK, "white")
            ax.plot(column[rank], -row[rank], "o", ms=21, mfc=fill, mec=INK, mew=1.5, zorder=3)
            ax.text(column[rank], -row[rank], str(rank), ha="center", va="center", size=10, color=ink, zorder=4)
        ax.set(xlim=(-0.6, right + 0.36 * len(steps.ranks)), ylim=(-last - 0.4, 0.45))
        ax.axis("off")
        ax.set_title(title, loc="left")
        size = max(m.nbytes for messages in steps.messages for m in messages)
        run = f"Run: {steps.label}. " if steps.label else ""
        note = f"{run}Circle: a rank. Arrow: a message of {format_bytes(size)}, with the number of its step."
        fig.supxlabel(note, x=0.005, ha="left", size=8.5, color=MUTED)
    return fig


def tree_words(steps: CollectiveSteps) -> str:
    """The tree in words."""
    sentences = []
    for number, messages in enumerate(steps.messages, start=1):
        sentences.append(f"Step {number}: " + ", ".join(f"{m.src} sends to {m.dst}" for m in messages) + ".")
    return " ".join(sentences)


def _columns(steps: CollectiveSteps, parents: Mapping[int, tuple[int, int]]) -> dict[int, int]:
    """A column for each rank: a rank's children stand to its right, those told last first, so that no arrows cross."""
    children: dict[int, list[int]] = {rank: [] for rank in steps.ranks}
    for rank, (src, _) in sorted(parents.items(), key=lambda item: -item[1][1]):
        children[src].append(rank)
    order: list[int] = []
    waiting = [rank for rank in steps.ranks if rank not in parents]
    while waiting:
        rank = waiting.pop()
        order.append(rank)
        waiting += reversed(children[rank])
    return {rank: place for place, rank in enumerate(order)}
