"""Young and Daly's interval is the best one; Llama 3's figures come out."""

import pytest

from dtlearn.planner.goodput import goodput


def test_the_interval_is_youngs():
    found = goodput(1000, 60.0, 0.0, 50_000)
    assert found.mean_time == 50_000 * 3600 / 1000
    assert found.interval == pytest.approx((2 * 60 * 180_000) ** 0.5)


def test_no_other_interval_loses_less():
    found = goodput(1000, 60.0)

    def lost(interval):
        return 60 / interval + interval / 2 / found.mean_time

    assert all(lost(found.interval) <= lost(factor * found.interval) for factor in (0.5, 0.9, 1.1, 2.0))


def test_llama_3_stops_every_three_hours_and_trains_nine_tenths_of_the_time():
    """2407.21783, section 3.3.4."""
    found = goodput(16384)
    assert found.mean_time / 3600 == pytest.approx(3.1, abs=0.05)
    assert 0.85 < found.share < 0.95


def test_more_chips_and_dearer_checkpoints_leave_less():
    shares = [goodput(chips).share for chips in (8, 1000, 16384, 100_000)]
    assert shares == sorted(shares, reverse=True)
    assert goodput(1000, 600).share < goodput(1000, 60).share
    assert goodput(10**9).share == 0


@pytest.mark.parametrize("wrong", [(0,), (8.5,), (8, 0), (8, float("nan")), (8, 60, -1), (8, 60, 60, 0)])
def test_wrong_numbers_are_refused(wrong):
    with pytest.raises(ValueError, match=r"goodput: .* must be a"):
        goodput(*wrong)
