import pytest

from dtlearn.pipeline_parallel import StageTimes, format_timeline, make_schedule, parse_schedule, simulate

GPIPE = """\
0F0 0F1 .   .   .   0B0 =   0B1 =
.   1F0 1F1 1B0 =   1B1 =   .   ."""


def test_a_timeline_is_printed_clock_by_clock_and_read_again():
    schedule = make_schedule("gpipe", 2, 2)
    assert format_timeline(simulate(schedule)) == GPIPE
    assert format_timeline(simulate(schedule, StageTimes(0.5, 0.5, 0.5)), unit=0.5) == GPIPE
    assert parse_schedule(GPIPE, name="gpipe") == schedule


def test_columns_are_as_wide_as_the_longest_action():
    last = format_timeline(simulate(make_schedule("naive", 1, 11))).split()[-2:]
    assert last == ["0B10", "="]
    assert format_timeline(simulate(make_schedule("naive", 1, 11))).startswith("0F0  0B0  =    0F1  0B1")


def test_times_that_do_not_fit_the_columns_are_refused():
    with pytest.raises(ValueError, match=r"rank 0: 0B0 is from 1\.0 to 2\.5, no multiples of the unit 1\.0"):
        format_timeline(simulate(make_schedule("gpipe", 1, 1), StageTimes(1, 1, 0.5)))


def test_what_never_starts_is_idle():
    assert format_timeline(simulate(parse_schedule("0B0 0F0\n1F0 1B0"), partial=True)) == ".\n."
