import pytest
from matplotlib.colors import to_rgb

from dtlearn.viz.production import job_life, role_lanes, save_stalls, straggler_shadow
from dtlearn.viz.production.looks import LIFE, short_time, time_unit


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (0.0042, "4.2 ms"),
        (0.34, "340 ms"),
        (1.04, "1 s"),
        (4.12, "4.1 s"),
        (170, "170 s"),
        (300, "5 min"),
        (21600, "6 hours"),
        (864000, "10 days"),
    ],
)
def test_seconds_in_the_unit_that_fits(seconds, words):
    assert short_time(seconds) == words


def test_the_unit_of_an_axis():
    assert [time_unit(x) for x in (1.5, 5.0, 3 * 86400)] == [("ms", 1e-3), ("s", 1.0), ("days", 86400.0)]


@pytest.mark.parametrize(
    "looks",
    [
        list(LIFE.values()),
        [save_stalls.TRAINING, save_stalls.STALL, save_stalls.WRITING],
        list(straggler_shadow.LOOKS.values()),
        [look for look, _ in role_lanes.LOOKS.values()],
    ],
)
def test_in_grey_what_stands_side_by_side_differs(looks):
    def grey(look):
        red, green, blue = to_rgb(look.color)
        return 0.299 * red + 0.587 * green + 0.114 * blue

    for number, look in enumerate(looks):
        for other in looks[:number]:
            assert look.hatch != other.hatch or abs(grey(look) - grey(other)) > 0.25


def test_every_kind_of_a_life_has_words():
    assert set(job_life.WORDS) == set(LIFE)
