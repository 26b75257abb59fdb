"""What each library sends in a step, from stored runs, beside what its paper says."""

from __future__ import annotations

from typing import TYPE_CHECKING

from matplotlib.figure import Figure

from dtlearn.libraries.comparing.table import sent_by_kind

from ..zero.traffic_by_stage import traffic_by_stage

if TYPE_CHECKING:
    from dtlearn.libraries.comparing.stored import StoredResults

# Runs, what they are called here, and the volume of the papers: the ZeRO paper's section 7 (1910.02054), and 2 for an
# all-reduce. In units of all parameters once around the ring.
SHOWN = {
    "ddp": ("torch DDP", 2),
    "fsdp2": ("torch FSDP2", 3),
    "zero1": ("ZeRO 1", 2),
    "zero2": ("ZeRO 2", 2),
    "zero2_reduce": ("ZeRO 2, told to reduce", 2),
    "zero3": ("ZeRO 3", 3),
    "zero3_paper": ("ZeRO 3, told to gather twice", 3),
}


def sent_volumes(stored: StoredResults, num_parameters: int) -> Figure:
    """Draw a bar of bytes for each run, stacked by kind of call, with the paper's bytes as a line across it.

    Args:
        stored: results of the runs, fp32.
        num_parameters: of their model.

    Raises:
        ValueError: a run is not stored.
    """
    once = _once(stored, num_parameters)
    sent = {
        title: {kind.replace("-", "_"): n for kind, n in sent_by_kind(stored.results[name]).items()}
        for name, (title, _) in SHOWN.items()
    }
    return traffic_by_stage(
        sent,
        {title: units * once for title, units in SHOWN.values()},
        unit=("Ψ", once),
        title="DeepSpeed's defaults send other volumes than the papers say",
        label=f"recorded on {_ranks(stored)} ranks, {stored.date}; Ψ: all parameters once, in a ring; formula: papers",
    )


def volumes_words(stored: StoredResults, num_parameters: int) -> str:
    """The picture in words."""
    once = _once(stored, num_parameters)
    parts = [
        f"{title}: {sum(sent_by_kind(stored.results[name]).values()) / once:.2f}, by the papers {units}"
        for name, (title, units) in SHOWN.items()
    ]
    return f"Bars of what a rank sends in a step, in units of all parameters once. {'; '.join(parts)}."


def _ranks(stored: StoredResults) -> int:
    return len(stored.results["ddp"].ranks)


def _once(stored: StoredResults, num_parameters: int) -> float:
    """Bytes of an all-gather or a reduce-scatter of all parameters, fp32, that a rank sends in a ring."""
    if missing := [name for name in SHOWN if name not in stored.results]:
        raise ValueError(f"the runs {', '.join(missing)} are not stored; there are {', '.join(stored.results)}")
    n = _ranks(stored)
    return 4 * num_parameters * (n - 1) / n
