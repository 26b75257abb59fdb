"""Bytes that a rank sends in one step, by stage: recorded calls as stacked bars, the formula as a mark on each."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from typing import TYPE_CHECKING

from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from dtlearn.runtime.record.collectives import members

from ..style import INK, headline, legend_below, new_figure, op_patch, op_style, style

if TYPE_CHECKING:
    from dtlearn.runtime.record.record import Record

_MB = 1e6
# What crosses the links of a rank with the least traffic possible, in payloads of the call, for a group of n ranks.
# The payload of a gather is the rank's shard, that of the others the whole tensor. A broadcast's is shared by all.
_FACTORS = {
    "all_reduce": lambda n: 2 * (n - 1) / n,
    "reduce_scatter": lambda n: (n - 1) / n,
    "all_gather": lambda n: n - 1,
    "broadcast": lambda n: (n - 1) / n,
}


def sent_by_operation(record: Record, rank: int = 0) -> dict[str, float]:
    """Bytes that one rank sends, by operation, if each collective sends as little as a ring does.

    An all-reduce of n bytes over N ranks sends 2n(N-1)/N, a reduce-scatter n(N-1)/N, an all-gather of shards of n bytes
    n(N-1) (Patarasuk and Yuan, 2009). A broadcast of n bytes counts n(N-1)/N: the mean over the ranks, since each of
    the others receives it once. Barriers send nothing that counts.

    Args:
        record: of the run.
        rank: whose calls are counted.

    Raises:
        ValueError: a call with bytes that is none of these four.
    """
    sums: dict[str, float] = defaultdict(float)
    for event in record.select(rank=rank):
        if not event.nbytes or event.op == "barrier":
            continue
        family = next((name for name in _FACTORS if event.op.removesuffix("_object").startswith(name)), None)
        if family is None:
            raise ValueError(f"{event.op}: only {', '.join(_FACTORS)} are counted")
        sums[family] += event.nbytes * _FACTORS[family](len(members(event.group, range(record.world_size))))
    return dict(sums)


def traffic_by_stage(
    sent: Mapping[str, Mapping[str, float]],
    formula: Mapping[str, float],
    unit: tuple[str, float] | None = None,
    title: str = "Bytes sent by stage",
    label: str = "",
) -> Figure:
    """Draw a bar for each stage, stacked by operation, with the formula's bytes as a line across it.

    Args:
        sent: {stage: {operation: bytes}}, as `sent_by_operation` counts them.
        formula: {stage: bytes}.
        unit: a name and its bytes: each bar says how many of these it is, as ("Ψ(N-1)/N", 2.5e6).
        title: what the figure is about.
        label: where the numbers come from, printed under the title.

    Raises:
        ValueError: no stage, or other stages in `formula`.
    """
    if not sent or set(sent) != set(formula):
        raise ValueError(f"bytes and a formula are needed for each stage; got {list(sent)} and {list(formula)}")
    ops = sorted({op for parts in sent.values() for op in parts})
    sums = {name: sum(parts.values()) for name, parts in sent.items()}
    longest = max([*sums.values(), *formula.values()]) / _MB or 1
    with style():
        fig = new_figure(height=1.6 + 0.46 * len(sent))
        ax = fig.add_subplot()
        for row, (name, parts) in enumerate(sent.items()):
            at = 0.0
            for op in ops:
                width, look = parts.get(op, 0.0) / _MB, op_style(op)
                ax.barh(row, width, 0.66, at, color=look.color, hatch=look.hatch, ec="white", lw=0.4)
                at += width
            mark = formula[name] / _MB
            ax.plot([mark, mark], [row - 0.43, row + 0.43], color=INK, lw=2)
            words = f"{sums[name] / _MB:.2f} MB"
            if unit:
                words += f" = {sums[name] / unit[1]:.2f} {unit[0]}"
            ax.text(max(at, mark) + 0.012 * longest, row, words, va="center", size=9)
        ax.set_xlim(0, longest * (1.35 if unit else 1.15))
        ax.set_ylim(len(sent) - 0.4, -0.6)
        ax.set_yticks(range(len(sent)), list(sent))
        ax.tick_params(axis="y", length=0)
        ax.set_xlabel("sent by one rank in one step (MB = 10⁶ bytes)")
        headline(ax, title, label)
        legend_below(fig, [*map(op_patch, ops), Line2D([], [], color=INK, lw=2, label="formula")], columns=5)
    return fig
