"""What a bench is, and how it shows what it measured."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.figure import Figure


class BenchResult:
    """What a bench measured. Each has fields of its own, in seconds, and `machine`: cores and load at that time."""

    @property
    def ok(self) -> bool:
        """Whether what the bench is sure of holds. Noise, and a target that is missed, do not count."""
        return True


@dataclass(frozen=True)
class Bench:
    """One bench."""

    # summary, example: for its help
    summary: str
    example: str
    # option, default: name of the option that says how often, such as "rounds", and its default
    option: str
    default: int
    measure: Callable[[int, int], Any]  # called with the number of ranks and of repetitions; returns a BenchResult
    table: Callable[[Any], str]  # that result as text
    values: Callable[[Any], dict[str, Any]]  # that result as plain values, for JSON; seconds throughout
    ranks: int = 4  # how many, unless told otherwise
    # plot: that result as a figure and its description; None: there is no figure
    plot: Callable[[Any], tuple[Figure, str]] | None = None
