import time

import pytest
import torch

from dtlearn.gradient_compression.break_even import (
    BreakEven,
    CodecSeconds,
    CommTime,
    break_even,
    codec_seconds,
    comm_time,
)
from dtlearn.gradient_compression.codecs.codec import Codec
from dtlearn.gradient_compression.codecs.sparse import TopK
from dtlearn.gradient_compression.traffic import all_reduced, gathered
from dtlearn.runtime.link.link import Link

N, NUMEL = 4, 1_000_000
LATENCY, COMPUTE = 50e-6, 8e-3


@pytest.mark.parametrize("bandwidth", [12.5e6, 125e6, 1.25e9])
def test_seconds_are_those_of_the_emulated_link(bandwidth):
    link = Link(LATENCY, bandwidth)
    plain = comm_time(all_reduced(NUMEL), N, latency=LATENCY)
    assert plain.seconds(bandwidth) == pytest.approx(link.seconds("all_reduce", 4 * NUMEL, N))
    coded = comm_time(gathered(40_000, 80_000), N, latency=LATENCY, compute=COMPUTE)
    on_link = sum(link.seconds("all_gather", nbytes, N) for nbytes in (40_000, 80_000))
    assert coded.seconds(bandwidth) == pytest.approx(COMPUTE + on_link)


def test_below_the_break_even_it_pays_and_above_it_does_not():
    plain = comm_time(all_reduced(NUMEL), N, latency=LATENCY)
    coded = comm_time(gathered(NUMEL / 8), N, latency=LATENCY, compute=COMPUTE)
    found = break_even(plain, coded)
    # D = 2 * 3/4 * 4 MB = 6 MB, C = 3 * 125 kB; three messages fewer of 50 us.
    assert found.pays == "below" and found.bandwidth == pytest.approx((6e6 - 375e3) / (8e-3 - 3 * 50e-6))
    for factor in (0.5, 0.99, 1.01, 2.0):
        at = factor * found.bandwidth
        assert found.pays_at(at) is (coded.seconds(at) < plain.seconds(at)) is (factor < 1)
    assert str(found) == "pays below 5.73 Gb/s"


def test_its_own_compute_decides():
    plain = comm_time(all_reduced(NUMEL), N)
    payload = gathered(NUMEL / 8)
    slow, fast = (break_even(plain, comm_time(payload, N, compute=t)).bandwidth for t in (1.0, 0.1))
    assert slow < fast
    assert break_even(plain, comm_time(payload, N)) == BreakEven("always")
    assert str(break_even(plain, comm_time(payload, N, compute=1.0))) == "pays below 45 Mb/s"


def test_more_bytes_never_pay_unless_messages_are_fewer():
    plain = comm_time(all_reduced(100), 8, latency=LATENCY)
    pairs = gathered(400, 400)  # all gradients and their numbers
    assert break_even(plain, comm_time(pairs, 8, latency=LATENCY)) == BreakEven("never")
    assert break_even(plain, comm_time(pairs, 8, latency=LATENCY, compute=1e-6)) == BreakEven("never")
    together = comm_time(gathered(800), 8, latency=LATENCY)  # in one call: 7 messages in place of 14
    found = break_even(plain, together)
    assert found.pays == "above" and found.bandwidth == pytest.approx((5600 - 700) / (7 * LATENCY))
    for factor in (0.9, 1.1):
        at = factor * found.bandwidth
        assert found.pays_at(at) is (together.seconds(at) < plain.seconds(at)) is (factor > 1)


def test_equal_bytes_and_the_words():
    assert (
        break_even(CommTime(5, 1), CommTime(5, 1)) == break_even(CommTime(5, 1), CommTime(5, 2)) == BreakEven("never")
    )
    assert break_even(CommTime(5, 2), CommTime(5, 1)) == BreakEven("always")
    assert [str(BreakEven(pays)) for pays in ("always", "never")] == ["always pays", "never pays"]
    assert BreakEven("always").pays_at(1) and not BreakEven("never").pays_at(1)


def test_bad_input():
    for name in ("latency", "compute"):
        with pytest.raises(ValueError, match=f"expected seconds from 0 as {name}, got -1"):
            comm_time(all_reduced(1), 2, **{name: -1})


class Sleeping(Codec):
    """Takes 5 ms to encode and 20 ms to decode."""

    encoded = decoded = 0

    def encode(self, x, *, generator=None):
        self.encoded += 1
        time.sleep(5e-3)
        return (x,)

    def decode(self, payload, numel):
        self.decoded += 1
        time.sleep(20e-3)
        return torch.zeros(numel)

    def nbytes(self, numel):
        return 4 * numel


def test_a_codec_is_measured():
    codec = Sleeping()
    found = codec_seconds(codec, 10, rounds=2)
    assert (codec.encoded, codec.decoded) == (4, 3)  # the payload, and rounds with the one that does not count
    assert found.encode >= 5e-3 and found.decode >= 20e-3
    real = codec_seconds(TopK(ratio=0.1), 1_000, rounds=1)
    assert real.encode > 0 and real.decode > 0
    for numel, rounds in ((0, 1), (1, 0)):
        with pytest.raises(ValueError, match="expected elements and rounds from 1"):
            codec_seconds(codec, numel, rounds)


def test_a_rank_encodes_once_and_decodes_for_all():
    assert CodecSeconds(2.0, 0.5).on(4) == 4.0
