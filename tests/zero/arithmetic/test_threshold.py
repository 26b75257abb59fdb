import pytest

from dtlearn.zero.arithmetic.threshold import tokens_to_hide


def test_at_the_threshold_products_take_as_long_as_messages():
    parameters, flops, bandwidth, sent = 8e9, 400e12, 50e9, 2 + 2 + 2
    tokens = tokens_to_hide(sent, flops, bandwidth)
    assert tokens == 8000
    assert 6 * parameters * tokens / flops == pytest.approx(sent * parameters / bandwidth)


def test_a_second_forward_pass_hides_more_and_an_fp32_reduction_needs_more():
    assert tokens_to_hide(6, 400e12, 50e9, operations=8) == 6000
    assert tokens_to_hide(8, 400e12, 50e9) == pytest.approx(10_667, abs=1)


@pytest.mark.parametrize("wrong", [{"flops": 0}, {"bandwidth": -1}, {"sent": -1}, {"operations": 0}])
def test_rates_that_are_none_are_refused(wrong):
    with pytest.raises(ValueError, match="rates above 0"):
        tokens_to_hide(**{"sent": 6, "flops": 1e12, "bandwidth": 1e9} | wrong)
