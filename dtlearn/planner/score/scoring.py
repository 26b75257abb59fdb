"""Every entry predicted from its inputs alone, and judged."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from .analytic import FORMULAS
from .entries import CannotPredict, PublishedNumber
from .inputs import Reader
from .modelled import MODELLED

SAME = {  # targets by other names
    "throughput.step_time": "throughput.iteration_time",
    "time.step": "throughput.iteration_time",
    "time.iteration": "throughput.iteration_time",
    "throughput.tflops_per_gpu": "throughput.per_gpu",
    "throughput.tflops": "throughput.per_gpu",
    "throughput.aggregate_pflops": "throughput.aggregate",
    "throughput.samples_per_s": "throughput.sequences_per_s",
    "throughput.train_days": "throughput.training_days",
    "memory.peak": "memory.peak_per_device",
    "memory.total_per_device": "memory.peak_per_device",
    "memory.activations_per_layer": "memory.activation_per_layer",
    "memory.state_per_device": "memory.model_states_per_device",
    "pipeline.bubble": "pipeline.bubble_over_ideal",
    "flops.train": "flops.total",
    "params.total": "params.count",
}
FORMULA = "formula"  # a kind: strings, for documentation; they are not judged


@dataclass(frozen=True)
class JudgedNumber:
    """An entry and what the planner says.

    Attributes:
        entry: as read.
        predicted: in the entry's unit; None: it cannot say.
        reason: why not.
        assumed: defaults that were taken.
    """

    entry: PublishedNumber
    predicted: float | None
    reason: str = ""
    assumed: tuple[str, ...] = ()

    @property
    def inside(self) -> bool:
        """Whether the prediction is inside the tolerance."""
        return self.predicted is not None and self.entry.accepts(self.predicted)


def predict(entry: PublishedNumber) -> JudgedNumber:
    """What the planner says of an entry. It never raises: what it cannot say has a reason."""
    answer = (FORMULAS | MODELLED).get(SAME.get(entry.target, entry.target))
    if entry.kind == FORMULA:
        return JudgedNumber(entry, None, "a formula, which is documentation")
    if answer is None:
        return JudgedNumber(entry, None, f"unknown target {entry.target!r}" if entry.target else "it names no target")
    reader = Reader(entry)
    try:
        value = answer(reader)
    except CannotPredict as error:
        return JudgedNumber(entry, None, str(error))
    except Exception as error:  # a file of others may hold anything; one entry must not stop the rest
        return JudgedNumber(entry, None, f"{type(error).__name__}: {error}")
    if not math.isfinite(value):
        return JudgedNumber(entry, None, "the inputs lead to no finite number")
    return JudgedNumber(entry, value * scale(entry), assumed=tuple(dict.fromkeys(reader.assumed)))


def scale(entry: PublishedNumber) -> float:
    """The factor from bytes to the unit that is printed; 1 for quantities that are not bytes."""
    if not entry.target.startswith(("memory.", "checkpoint.")) or entry.target.endswith(
        ("per_param", "max_params", "max_params_measured")
    ):
        return 1.0
    for unit, size in (("GiB", 2**30), ("MiB", 2**20), ("TiB", 2**40), ("TB", 10**12), ("GB", 10**9), ("MB", 10**6)):
        if unit in entry.unit:
            return 1 / size
    return 1.0


def score(entries: Iterable[PublishedNumber]) -> list[JudgedNumber]:
    """The verdicts on all entries, in order."""
    return [predict(entry) for entry in entries]


def counted(judged: Iterable[JudgedNumber]) -> tuple[int, int]:
    """How many numbers are inside their tolerance, and out of how many; those of kind "formula" do not count."""
    rows = [row for row in judged if row.entry.kind != FORMULA]
    return sum(row.inside for row in rows), len(rows)


def score_table(judged: list[JudgedNumber]) -> str:
    """A table by group, with sums by group and by kind; its last line is `inside tolerance: N of M`."""
    lines: list[str] = []
    for group in sorted({row.entry.group for row in judged}):
        rows = [row for row in judged if row.entry.group == group]
        inside, number = counted(rows)
        lines += ["", f"{group or 'no group'}: {inside} of {number}"]
        lines += [f"  {_line(row)}" for row in rows]
    kinds = Counter(row.entry.kind for row in judged)
    lines += ["", "by kind"]
    for kind in sorted(kinds):
        of_kind = [row for row in judged if row.entry.kind == kind]
        lines.append(f"  {kind or 'none':10} {sum(row.inside for row in of_kind)} of {kinds[kind]}")
    silent = [row for row in judged if row.predicted is None and row.entry.kind != FORMULA]
    lines.append(f"cannot predict: {len(silent)}")
    lines += [f"  {row.entry.id}: {row.reason}" for row in silent]
    inside, number = counted(judged)
    return "\n".join([*lines[1:], f"inside tolerance: {inside} of {number}"])


def score_values(judged: list[JudgedNumber]) -> dict[str, Any]:
    """The table as data."""
    inside, number = counted(judged)
    rows = [
        {
            "id": row.entry.id,
            "group": row.entry.group,
            "kind": row.entry.kind,
            "target": row.entry.target,
            "predicted": row.predicted,
            "expected": row.entry.expected,
            "unit": row.entry.unit,
            "inside": row.inside,
            "reason": row.reason,
            "assumed": list(row.assumed),
        }
        for row in judged
    ]
    return {"inside": inside, "of": number, "entries": rows}


def _line(row: JudgedNumber) -> str:
    entry = row.entry
    if row.predicted is None:
        return f"{entry.id:44} {'-':>12} {_text(entry.expected):>12}  {row.reason}"
    verdict = "inside" if row.inside else "outside"
    assumed = f"  [{'; '.join(row.assumed)}]" if row.assumed else ""
    return f"{entry.id:44} {row.predicted:>12.6g} {_text(entry.expected):>12}  {verdict:7} {entry.unit[:32]}{assumed}"


def _text(value: object) -> str:
    return f"{value:.6g}" if isinstance(value, int | float) else str(value)[:12]
