"""Plans as text and as JSON."""

from __future__ import annotations

import math
from dataclasses import asdict
from typing import Any

from .checking import check_positive, check_whole
from .goodput import goodput
from .hardware import GIB
from .network import bytes_by_axis
from .reasons import what_would_change_it, why_it_loses
from .search import LayoutPlan, describe

HEADS = ("layout", "micro", "ZeRO", "recompute", "s/step", "MFU %", "HFU %", "bubble %", "GiB")


def check_report(top: int, tokens: float) -> None:
    """Refuse what no report can have; before a search, which takes longer.

    Raises:
        ValueError: no layout to print, or tokens that are no finite number of 0 or more.
    """
    check_whole("a report", top=top)
    check_positive("a report", zero=True, tokens=tokens)
    if math.isinf(tokens):
        raise ValueError(f"a report: tokens of the whole run must be finite, such as 366e9; got {tokens!r}")


def plan_table(plans: list[LayoutPlan], top: int = 5, tokens: float = 0.0) -> str:
    """The best layouts, what the first one spends, and why the runner-up loses.

    Args:
        plans: as `search_layouts` returns them.
        top: how many layouts to print.
        tokens: of the whole run, for its days; 0: not said.

    Raises:
        ValueError: no plans, or numbers that no report can have.
    """
    best = _first(plans, top, tokens)
    run, chip = best.run, best.run.cluster.chip
    rows = [HEADS, *(_row(plan) for plan in plans[:top])]
    widths = [max(len(row[column]) for row in rows) for column in range(len(HEADS))]
    lines = [
        f"{run.model.name}, {run.model.num_parameters / 1e9:.1f} billion parameters, on {run.cluster.size} x "
        f"{chip.name}: {run.batch} sequences of {run.length} tokens a step",
        "",
        *("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows),
        "",
        f"first: {describe(run)}",
        f"  time    {_shares(best.step.rows, best.step.total, 's', 1.0)}",
        f"  hidden  {best.step.hidden:.3g} s of communication behind computation",
        f"  memory  {_shares(best.memory.rows, best.memory.total, 'GiB', GIB)}; of {chip.memory / GIB:.1f} GiB",
        f"  sends   {_sent(best)} a rank and step",
        f"  speed   {best.step.tokens_per_second:,.0f} tokens/s",
        f"  goodput {_goodput(best)}",
    ]
    if tokens:
        days = tokens / best.step.tokens_per_second / 86400
        lines.append(
            f"  {tokens:.4g} tokens take {days:.1f} days, {days / _share(best):.1f} with failures and checkpoints"
        )
    lines.append("")
    if len(plans) > 1:
        lines += [f"second: {why_it_loses(best, plans[1])}.", f"  {what_would_change_it(best, plans[1])}."]
    else:
        lines.append("no other layout fits.")
    lines.append("assumed: " + ASSUMED)
    return "\n".join(lines)


ASSUMED = (
    "balanced stages; half of backward's tp communication and all of dp's that there is room for hidden; 4 % of memory "
    "lost in fragments, 2.5 GB for context and NCCL"
)


def plan_values(plans: list[LayoutPlan], top: int = 5, tokens: float = 0.0) -> dict[str, Any]:
    """The table as data: seconds, bytes, shares of 1. Arguments and errors are those of `plan_table`."""
    best = _first(plans, top, tokens)
    values: dict[str, Any] = {
        "model": best.run.model.name,
        "parameters": best.run.model.num_parameters,
        "gpu": best.run.cluster.chip.name,
        "gpus": best.run.cluster.size,
        "batch": best.run.batch,
        "length": best.run.length,
        "layouts": [_values(plan) for plan in plans[:top]],
        "goodput": goodput(best.run.cluster.size)._asdict(),
        "assumed": ASSUMED,
    }
    if tokens:
        values["days"] = tokens / best.step.tokens_per_second / 86400
    if len(plans) > 1:
        values["why_second_loses"] = why_it_loses(best, plans[1])
        values["what_would_change_it"] = what_would_change_it(best, plans[1])
    return values


def _first(plans: list[LayoutPlan], top: int, tokens: float) -> LayoutPlan:
    check_report(top, tokens)
    if not plans:
        raise ValueError("expected one plan or more, as `search_layouts` returns them; got none")
    return plans[0]


def _values(plan: LayoutPlan) -> dict[str, Any]:
    run, step = plan.run, plan.step
    return {
        **asdict(run.axes),
        "microbatch": run.microbatch,
        "microbatches": run.num_microbatches,
        "zero_stage": run.zero_stage,
        "recompute": run.recompute,
        "seconds": step.total,
        "time": step.rows,
        "hidden": step.hidden,
        "sent": bytes_by_axis(run),
        "mfu": step.mfu,
        "hfu": step.hfu,
        "tokens_per_second": step.tokens_per_second,
        "memory": plan.memory.rows,
        "bytes": plan.memory.total,
    }


def _row(plan: LayoutPlan) -> tuple[str, ...]:
    run, step = plan.run, plan.step
    return (
        str(run.axes),
        str(run.microbatch),
        str(run.zero_stage),
        run.recompute,
        f"{step.total:.3g}",
        f"{100 * step.mfu:.1f}",
        f"{100 * step.hfu:.1f}",
        f"{100 * step.rows['bubble'] / step.total:.1f}",
        f"{plan.memory.total / GIB:.1f}",
    )


def _shares(rows: dict[str, float], total: float, unit: str, size: float) -> str:
    parts = [f"{name} {value / size:.3g}" for name, value in rows.items() if value > 0.001 * total]
    return f"{total / size:.3g} {unit}: " + ", ".join(parts)


def _sent(plan: LayoutPlan) -> str:
    sent = bytes_by_axis(plan.run)
    return ", ".join(f"{axis} {size / 1e9:.3g} GB" for axis, size in sent.items() if size) or "nothing"


def _share(plan: LayoutPlan) -> float:
    return max(0.01, goodput(plan.run.cluster.size).share)


def _goodput(plan: LayoutPlan) -> str:
    found = goodput(plan.run.cluster.size)
    return (
        f"{100 * found.share:.1f} %: a failure every {found.mean_time / 3600:.1f} h, a checkpoint of 60 s every "
        f"{found.interval / 60:.0f} min (Young/Daly)"
    )
