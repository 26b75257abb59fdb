"""What is no number is refused by its name, with what came."""

import math

import pytest

from dtlearn.libraries.require import require_flag, require_number, require_whole

NO_NUMBERS = ["2", None, True, [1], math.nan, math.inf]


@pytest.mark.parametrize("value", [*NO_NUMBERS, 2.0])
def test_what_is_no_whole_number_is_refused(value):
    with pytest.raises(ValueError, match="steps must be a whole number, got "):
        require_whole("steps", value)


@pytest.mark.parametrize("value", [*NO_NUMBERS, -0.1])
def test_what_is_no_finite_number_is_refused(value):
    with pytest.raises(ValueError, match="lr must be a finite number of 0 or more, got "):
        require_number("lr", value)


@pytest.mark.parametrize("value", [0, 1, "yes", None])
def test_what_is_no_flag_is_refused(value):
    with pytest.raises(ValueError, match="offload must be True or False, got "):
        require_flag("offload", value)


def test_what_is_too_small_is_refused_and_the_rest_taken():
    with pytest.raises(ValueError, match="steps must be 1 or more, got 0"):
        require_whole("steps", 0)
    require_whole("seed", 0, least=0)
    require_number("lr", 1)
    require_number("clip", 0.5)
    require_flag("offload", True)
