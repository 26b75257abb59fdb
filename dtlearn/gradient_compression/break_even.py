"""When does a codec pay? The time of a step's communication over the link's speed, its own computation counted.

On a link of B bytes/s and latency alpha, D and C bytes leave a rank's port in a step without and with the codec, in m
and c messages that follow each other (`traffic.py`), and encoding and decoding take t seconds:

    without:  m alpha + D/B        with:  c alpha + C/B + t        t = encoding once + decoding N payloads

Both are straight lines in 1/B, which cross at B* = (D - C) / (t + (c - m) alpha). For a ring all-reduce against an
all-gather of b bytes, D = 2 (N-1)/N 4 n, C = (N-1) b, m = 2 (N-1) and c = N-1 for each tensor of the payload.
Nothing overlaps here: neither the calls nor the codec hide behind backward. Where they do, a fast link has less to
gain: Agarwal et al., "On the Utility of Gradient Compression in Distributed Training Systems", MLSys 2022, measured
more than 200 setups of data centres, and found a gain in 6. All here is arithmetic but `codec_seconds`, which measures.
"""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from dtlearn.runtime.device import device, finish
from dtlearn.runtime.words import significant

if TYPE_CHECKING:
    from .codecs.codec import Codec

from .traffic import StepCall, messages, sent_bytes


@dataclass(frozen=True)
class CommTime:
    """Seconds of a step's communication as a line in 1/B.

    Attributes:
        sent: bytes that leave a rank's port.
        fixed: seconds on a link of any speed: latency, encoding and decoding.
    """

    sent: float
    fixed: float

    def seconds(self, bandwidth: float) -> float:
        """Seconds on a link of `bandwidth` bytes per second, each way."""
        return self.fixed + self.sent / bandwidth


@dataclass(frozen=True)
class BreakEven:
    """On which links a codec pays.

    Attributes:
        pays: "always", "never", or "below" or "above" the bandwidth at which both take the same time.
        bandwidth: bytes per second; None with "always" and "never".
    """

    pays: Literal["always", "never", "below", "above"]
    bandwidth: float | None = None

    def __str__(self) -> str:
        if self.bandwidth is None:
            return f"{self.pays} pays"
        bits, unit = (
            (8 * self.bandwidth / 1e9, "Gb/s") if self.bandwidth >= 125e6 else (8 * self.bandwidth / 1e6, "Mb/s")
        )
        return f"pays {self.pays} {significant(bits)} {unit}"

    def pays_at(self, bandwidth: float) -> bool:
        """Whether the codec is the faster one on that link; at the break-even itself it is not."""
        if self.bandwidth is None:
            return self.pays == "always"
        return bandwidth < self.bandwidth if self.pays == "below" else bandwidth > self.bandwidth


@dataclass(frozen=True)
class CodecSeconds:
    """What a codec takes on a machine.

    Attributes:
        encode: seconds for a gradient.
        decode: seconds for one payload, added to what others decoded to.
    """

    encode: float
    decode: float

    def on(self, num_ranks: int) -> float:
        """Seconds of a rank in a step: it encodes once, and decodes what all ranks sent."""
        return self.encode + num_ranks * self.decode


def codec_seconds(codec: Codec, numel: int, rounds: int = 5) -> CodecSeconds:
    """Measure encoding and decoding on this process's device and threads; medians, after a round that does not count.

    Args:
        codec: what encodes.
        numel: elements of the gradient.
        rounds: how often.

    Raises:
        ValueError: no element, or no round.
    """
    import torch

    if min(numel, rounds) < 1:
        raise ValueError(f"expected elements and rounds from 1; got {numel} and {rounds}")
    gradient = torch.randn(numel, device=device())
    total, payload = torch.zeros_like(gradient), codec.encode(gradient)
    return CodecSeconds(
        _median_seconds(lambda: codec.encode(gradient), rounds),
        _median_seconds(lambda: codec.add_decoded(total, payload), rounds),
    )


def _median_seconds(call: Callable[[], object], rounds: int) -> float:
    seconds = []
    for _ in range(rounds + 1):
        finish()
        begun = time.perf_counter()
        call()
        finish()
        seconds.append(time.perf_counter() - begun)
    return statistics.median(seconds[1:])


def comm_time(calls: Sequence[StepCall], num_ranks: int, *, latency: float = 0.0, compute: float = 0.0) -> CommTime:
    """What a step's communication takes on N ranks.

    Args:
        calls: of a step, by `traffic.py`.
        num_ranks: N.
        latency: of one message, in seconds.
        compute: seconds that a rank encodes and decodes in a step, as measured: `codec_seconds(...).on(N)`.

    Raises:
        ValueError: negative seconds, or no rank.
    """
    for name, value in (("latency", latency), ("compute", compute)):
        if not 0 <= value < math.inf:
            raise ValueError(f"expected seconds from 0 as {name}, got {value!r}")
    return CommTime(sent_bytes(calls, num_ranks), compute + messages(calls, num_ranks) * latency)


def break_even(plain: CommTime, coded: CommTime) -> BreakEven:
    """The bandwidth at which both take the same time, and on which side of it the codec pays.

    "above" is rare, and real: a payload of more bytes in fewer messages wins where only latency counts.
    """
    saved, added = plain.sent - coded.sent, coded.fixed - plain.fixed
    if saved > 0:
        return BreakEven("below", saved / added) if added > 0 else BreakEven("always")
    if added >= 0:
        return BreakEven("never")
    return BreakEven("above", saved / added) if saved < 0 else BreakEven("always")
