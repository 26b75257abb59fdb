import pytest

from dtlearn.parameter_server.virtual_clock.timing import Timing, jittered


def test_draws_are_bounded_repeatable_and_each_its_own():
    seconds = jittered(2.0, 0.25, slow={1: 3.0})
    draws = [[seconds(worker, number) for number in range(50)] for worker in range(2)]
    assert all(1.5 <= draw <= 2.5 for draw in draws[0]) and all(4.5 <= draw <= 7.5 for draw in draws[1])
    assert len({*draws[0], *draws[1]}) == 100
    assert draws == [[jittered(2.0, 0.25, slow={1: 3.0})(w, n) for n in range(50)] for w in range(2)]
    assert jittered(2.0, 0.25, seed=1)(0, 0) != seconds(0, 0)
    assert jittered(2.0, 0.0)(0, 0) == 2.0


def test_bad_input():
    with pytest.raises(ValueError, match="0 or more"):
        Timing(jittered(1, 0), transfer=-1)
    with pytest.raises(ValueError, match="0 to 1"):
        jittered(1, 2)
