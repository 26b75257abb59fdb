"""A weight that many small updates should move."""

from dtlearn.mixed_precision.formats import FP16
from dtlearn.mixed_precision.measure.small_updates import weight_trajectories


def test_in_bf16_a_thousand_updates_of_a_thousandth_do_nothing():
    kept = weight_trajectories()
    assert set(kept["nearest"]) == {1.0} and len(kept["nearest"]) == 1001
    assert kept["master"][-1] == 2.0
    assert abs(kept["compensated"][-1] - 2.0) <= 2**-7, "the pair of numbers loses a little, and not all"
    assert 1.8 < kept["by chance"][-1] < 2.2 and sorted(kept["by chance"]) == list(kept["by chance"])


def test_larger_updates_and_finer_formats_move_it():
    assert weight_trajectories(num_steps=10, update=0.0625)["nearest"][-1] == 1.625
    kept = weight_trajectories(num_steps=10, fmt=FP16)
    assert 1.009 < kept["nearest"][-1] < 1.011


def test_every_value_is_one_of_the_format():
    assert all(FP16.round(w) == w for weights in weight_trajectories(5, fmt=FP16).values() for w in weights)
