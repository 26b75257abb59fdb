import pytest

from dtlearn.pipeline_parallel import SCHEDULES, make_schedule, validate


@pytest.mark.parametrize("name", SCHEDULES)
def test_every_schedule_is_right_for_all_small_numbers(name):
    looped = SCHEDULES[name].shape == "loop"
    for num_ranks in range(1, 6):
        for num_microbatches in range(num_ranks, 17, num_ranks) if looped else range(1, 11):
            for chunks in (1, 2, 3) if looped else (None,):
                schedule = make_schedule(name, num_ranks, num_microbatches, chunks)
                assert validate(schedule) == []
                assert (schedule.name, schedule.num_ranks) == (name, num_ranks)
                assert len(schedule.stages_of(0)) == (chunks or (2 if SCHEDULES[name].shape == "v" else 1))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("1F1B", 2, 2), "expected one of naive, gpipe, 1f1b.*; got '1F1B'"),
        (("gpipe", 0, 2), "got 0, 2 and 1"),
        (("gpipe", 2, 0), "got 2, 0 and 1"),
        (("interleaved", 2, 2, 0), "got 2, 2 and 0"),
        (("gpipe", 2, 2, 2), "one stage on each rank, got chunks=2"),
        (("zbv", 2, 2, 1), "two stages on each rank, got chunks=1"),
        (("interleaved", 4, 6), "groups of 4, the number of ranks, and 6 is no multiple of 4; take 4 or 8"),
        (("interleaved", 4, 3), "3 is no multiple of 4; take 4$"),
    ],
)
def test_numbers_that_do_not_go_together_are_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        make_schedule(*arguments)
