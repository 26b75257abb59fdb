"""How far the head's clock is ahead of a node's."""

from dtlearn.runtime.lab.head.clock_difference import ahead_of


def test_the_difference_comes_from_the_fastest_round_trip():
    slow, fast = (1000, 5900, 2000), (3000, 8050, 3100)
    assert ahead_of([slow, fast]) == (3050 - 8050, 50)
