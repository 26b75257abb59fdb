"""Bytes on the link of each rank, from records: a server beside a ring, and what more servers change."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from ..style import ALARM, INK, headline_above, legend_below, new_figure, op_style, style

if TYPE_CHECKING:
    from dtlearn.runtime.record.record import Record

_MB = 1e6


def bytes_on_links(record: Record, steps: int = 1) -> list[tuple[float, float]]:
    """Bytes that each rank sends and receives in a step: the payload of its messages, point to point.

    Args:
        record: of a run whose ranks exchange messages, no collectives: those say nothing of links.
        steps: that it holds.
    """
    links = [[0, 0] for _ in range(record.world_size)]
    for event in record:
        if event.is_p2p:
            links[event.rank][0 if event.sends else 1] += event.nbytes
    return [(sent / steps, received / steps) for sent, received in links]


def link_bytes(
    links: Mapping[str, list[tuple[float, float]]],
    servers: Mapping[str, int],
    formula: Mapping[str, list[float]],
    title: str = "Bytes on the link of each rank in one step",
    label: str = "",
) -> Figure:
    """Draw a panel for each way of training, with a bar for each rank: what it sends, and on top what it receives.

    Args:
        links: by way, of each rank, as `bytes_on_links` counts them.
        servers: by way, how many of the first ranks are servers; 0: there is none.
        formula: by way, of each rank: both together, by formula, drawn as a line across the bar.
        title: what the figure is about.
        label: where the numbers come from, printed under the title.

    Raises:
        ValueError: no way, or others in `servers` or `formula`.
    """
    if not links or not set(links) == set(servers) == set(formula):
        raise ValueError(f"bytes, servers and formula of the same ways are needed; got {list(links)}, {list(servers)}")
    top = max(sum(link) for of_way in links.values() for link in of_way) / _MB
    with style():
        fig = new_figure(height=3.5)
        widths = [len(of_way) + 0.8 for of_way in links.values()]
        all_axes = fig.subplots(1, len(links), sharey=True, squeeze=False, width_ratios=widths)[0]
        sends, receives = op_style("send"), op_style("recv")
        for (way, of_way), ax in zip(links.items(), all_axes, strict=True):
            hottest = max(map(sum, of_way))
            for rank, (sent, received) in enumerate(of_way):
                ax.bar(rank, sent / _MB, 0.7, color=sends.color, hatch=sends.hatch, ec="white", lw=0)
                ax.bar(
                    rank, received / _MB, 0.7, sent / _MB, color=receives.color, hatch=receives.hatch, ec="white", lw=0
                )
                mark = formula[way][rank] / _MB
                ax.plot([rank - 0.43, rank + 0.43], [mark, mark], color=INK, lw=2)
                hot = rank < servers[way] and sent + received == hottest
                if rank in (0, servers[way]):
                    words = f"{(sent + received) / _MB:.2f}"
                    ax.text(
                        rank,
                        mark + 0.02 * top,
                        words,
                        ha="center",
                        va="bottom",
                        size=9,
                        color=ALARM if hot else INK,
                        weight="bold" if hot else "normal",
                    )
            names = [f"S{rank}" if rank < servers[way] else f"W{rank - servers[way]}" for rank in range(len(of_way))]
            ax.set_xticks(range(len(of_way)), names if servers[way] else [f"{rank}" for rank in range(len(of_way))])
            ax.tick_params(axis="x", length=0)
            ax.set_xlabel(way)
            ax.set_ylim(0, 1.14 * top)
            ax.grid(axis="y")
        all_axes[0].set_ylabel("MB (10⁶ bytes)")
        headline_above(fig, title, label)
        legend_below(
            fig,
            [
                Patch(fc=sends.color, ec="white", hatch=sends.hatch, lw=0, label="sent"),
                Patch(fc=receives.color, ec="white", hatch=receives.hatch, lw=0, label="received"),
                Line2D([], [], color=INK, lw=2, label="both, by formula"),
                Patch(fc="none", ec="none", label="S: server, W: worker"),
            ],
        )
    return fig
