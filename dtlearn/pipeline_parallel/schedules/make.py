"""Whole schedules: a generator's orders for all ranks, with the placement of the stages that belongs to it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Literal, NamedTuple

from ..actions import Action
from ..schedule import Schedule
from .controllable_memory import v_half, v_min
from .gpipe import gpipe
from .interleaved import interleaved
from .naive import naive
from .one_f_one_b import one_f_one_b
from .v_shaped import zbv
from .zero_bubble import zb_h1, zb_h2


class Kind(NamedTuple):
    """A way to make schedules.

    Attributes:
        title: for figures.
        orders: the generator of a rank's actions, from rank, p and m; in a loop of several chunks, from v too.
        shape: how stages lie on the ranks: "line", stage r on rank r; "loop", stage s on rank s mod p; "v", down the
            ranks and up again.
    """

    title: str
    orders: Callable[..., Iterator[Action]]
    shape: Literal["line", "loop", "v"] = "line"


SCHEDULES = {
    "naive": Kind("naive", naive),
    "gpipe": Kind("GPipe", gpipe),
    "1f1b": Kind("1F1B", one_f_one_b),
    "interleaved": Kind("interleaved 1F1B", interleaved, "loop"),
    "zb_h1": Kind("ZB-H1", zb_h1),
    "zb_h2": Kind("ZB-H2", zb_h2),
    "zbv": Kind("ZBV", zbv, "v"),
    "v_half": Kind("V-Half", v_half, "v"),
    "v_min": Kind("V-Min", v_min, "v"),
}


def make_schedule(name: str, num_ranks: int, num_microbatches: int, chunks: int | None = None) -> Schedule:
    """A schedule of a known kind.

    Args:
        name: a key of SCHEDULES.
        num_ranks: p.
        num_microbatches: m. Interleaving takes a multiple of p only; all others take any number, fewer than p too.
        chunks: v, the stages on each rank. None: 2 where the kind has several, else 1.

    Raises:
        ValueError: an unknown name, no ranks or micro-batches, or numbers that do not go together.
    """
    if name not in SCHEDULES:
        raise ValueError(f"expected one of {', '.join(SCHEDULES)}; got {name!r}")
    kind, p, m = SCHEDULES[name], num_ranks, num_microbatches
    v = chunks if chunks is not None else 1 if kind.shape == "line" else 2
    if min(p, m, v) < 1:
        raise ValueError(f"{name}: expected 1 or more ranks, micro-batches and chunks; got {p}, {m} and {v}")
    if kind.shape == "line" and v != 1:
        raise ValueError(f"{name} has one stage on each rank, got chunks={v}; interleaved takes any number")
    if kind.shape == "v" and v != 2:
        raise ValueError(f"{name} has two stages on each rank, got chunks={v}")
    if kind.shape == "loop" and m % p:
        better = " or ".join(str(number) for number in (m // p * p, m // p * p + p) if number)
        groups = f"{name}: micro-batches go in groups of {p}, the number of ranks"
        raise ValueError(f"{groups}, and {m} is no multiple of {p}; take {better}")
    if kind.shape == "loop":
        orders = tuple(tuple(kind.orders(rank, p, m, v)) for rank in range(p))
    else:
        orders = tuple(tuple(kind.orders(rank, p, m)) for rank in range(p))
    there_and_back = (*range(p), *reversed(range(p)))
    return Schedule(name, m, there_and_back if kind.shape == "v" else tuple(range(p)) * v, orders)
