"""What is no number or word that is meant is refused by name."""

import math

import pytest

from dtlearn.planner.checking import check_positive, check_whole, check_word, divisors, nearest


@pytest.mark.parametrize("value", [0, -1, 2.0, "2", True, math.nan, math.inf, None])
def test_what_is_no_whole_number_of_one_or_more_is_refused(value):
    with pytest.raises(ValueError, match="a run: batch must be a whole number of 1 or more; got"):
        check_whole("a run", length=8, batch=value)


def test_zero_may_be_and_what_is_too_large_is_said_in_short():
    check_whole("a search", 0, tp=0)
    with pytest.raises(ValueError, match="batch must be 1,000,000,000,000 at most; got a number of about 401 digits"):
        check_whole("a run", batch=10**400)
    with pytest.raises(ValueError, match="got 11"):
        check_whole("a run", most=10, batch=11)


@pytest.mark.parametrize("value", [0, -1, math.nan, "2", True, None])
def test_what_is_not_above_zero_is_refused(value):
    check_positive("a chip", peak=math.inf)
    with pytest.raises(ValueError, match="a chip: peak must be a number above 0; got"):
        check_positive("a chip", peak=value)
    if value == 0 and value is not False:
        check_positive("a chip", zero=True, peak=value)


@pytest.mark.parametrize("value", [4, 1.0, True, "1", [1]])
def test_a_word_is_one_of_those_that_are_known_and_of_their_type(value):
    check_word("zero_stage", 1, (0, 1, 2, 3))
    with pytest.raises(ValueError, match="zero_stage must be one of 0, 1, 2, 3; got"):
        check_word("zero_stage", value, (0, 1, 2, 3))


def test_divisors_and_the_next_ones():
    assert divisors(384) == [n for n in range(1, 385) if 384 % n == 0]
    assert divisors(96, 16) == [1, 2, 3, 4, 6, 8, 12, 16]
    assert divisors(10**12)[-1] == 10**12  # in no more than a million steps
    assert nearest([1, 2, 4, 8], 5) == [4, 8]
    assert nearest([1, 2], 7) == [2] and nearest([8], 7) == [8] and nearest([7], 7) == []
