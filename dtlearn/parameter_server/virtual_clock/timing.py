"""How long everything takes under the virtual clock: data, the same on every machine."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from random import Random

Seconds = Callable[[int, int], float]  # (worker, number of its push) -> seconds of computing


@dataclass(frozen=True)
class Timing:
    """Durations in seconds.

    A message occupies the server's port for `transfer`, one message at a time each way, and arrives `latency` later;
    the request of a pull takes the latency only.

    Attributes:
        compute: of a worker's push.
        transfer: n/B, of all parameters or gradients.
        latency: of a message.

    Raises:
        ValueError: a duration below 0.
    """

    compute: Seconds
    transfer: float = 0.0
    latency: float = 0.0

    def __post_init__(self) -> None:
        if self.transfer < 0 or self.latency < 0:
            raise ValueError(f"durations are 0 or more; got {self.transfer} and {self.latency}")


def jittered(mean: float, spread: float, slow: Mapping[int, float] | None = None, seed: int = 0) -> Seconds:
    """Computing times that vary evenly within `mean` * (1 +- spread), for some workers `slow[worker]` times as long.

    Each (worker, number) has its own draw: who is simulated beside it changes nothing.

    Args:
        mean: seconds.
        spread: 0 to 1.
        slow: stragglers.
        seed: of the draws.
    """
    if not 0 <= spread <= 1:
        raise ValueError(f"the spread is a share of the mean, 0 to 1; got {spread}")
    factors = dict(slow or {})

    def seconds(worker: int, number: int) -> float:
        draw = Random(f"{seed} {worker} {number}").uniform(-1, 1)  # a text seeds the same in every process
        return mean * factors.get(worker, 1.0) * (1 + spread * draw)

    return seconds
