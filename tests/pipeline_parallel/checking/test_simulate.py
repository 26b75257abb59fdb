import pytest

from dtlearn.pipeline_parallel import (
    Action,
    Live,
    Op,
    Schedule,
    ScheduleError,
    StageTimes,
    TimedAction,
    make_schedule,
    parse_schedule,
    simulate,
)


@pytest.mark.parametrize(
    ("name", "idle", "between", "peak"),
    [
        ("naive", 72, (72, 69, 66, 63), (1, 1, 1, 1)),
        ("gpipe", 9, (9, 6, 3, 0), (8, 8, 8, 8)),
        ("1f1b", 9, (9, 6, 3, 0), (4, 3, 2, 1)),
        ("interleaved", 4.5, (4.5, 3, 1.5, 0), (11, 9, 7, 5)),
        ("zb_h1", 3, (3, 2, 1, 0), (4, 4, 4, 4)),
        ("zb_h2", 3, (0, 0, 0, 0), (7, 7, 7, 7)),
        ("zbv", 1.5, (0, 0, 0, 0), (8, 8, 8, 8)),
    ],
)
def test_four_ranks_and_eight_microbatches(name, idle, between, peak):
    """Each rank is busy for 24 clocks; interleaved's and ZBV's activations are of stages half as large."""
    schedule = make_schedule(name, 4, 8)
    timeline = simulate(schedule, StageTimes.equal_parts(schedule.num_stages // 4))
    assert timeline.busy == (24,) * 4 and timeline.idle == (idle,) * 4 and timeline.makespan == 24 + idle
    assert timeline.idle_between == between and timeline.peak_live == peak
    assert timeline.idle_to_useful == idle / 24 and timeline.idle_to_total == idle / (24 + idle)
    assert timeline.num_ranks == 4 and timeline.is_complete


def test_every_span_and_every_activation():
    timeline = simulate(parse_schedule("0F0 0F1 0B0 0B1\n1F0 1B0 1F1 1B1"), StageTimes(1, 0.5, 2), transfer=0.25)
    words = [" ".join(f"{action}:{start:g}-{end:g}" for action, start, end in spans) for spans in timeline.spans]
    assert words == [
        "0F0:0-1 0F1:1-2 0B0:5-7.5 0B1:8.5-11",
        "1F0:1.25-2.25 1B0:2.25-4.75 1F1:4.75-5.75 1B1:5.75-8.25",
    ]
    assert timeline.live[0] == ((0, 1), (1, 2), (7.5, 1), (11, 0))
    assert timeline.spans[0][0] == TimedAction(Action(0, Op.F, 0), 0, 1) and timeline.live[0][0] == Live(0, 1)


def test_between_i_and_w_a_part_of_the_activations_may_be_free():
    schedule = parse_schedule("0F0 0I0 0F1 0I1 0W0 0W1")
    assert simulate(schedule).live[0] == ((0, 1), (2, 2), (5, 1), (6, 0))
    half = simulate(schedule, kept_for_weights=0.5)
    assert half.live[0] == ((0, 1), (2, 0.5), (2, 1.5), (4, 1), (5, 0.5), (6, 0))
    assert half.peak_live == (1.5,) and half.peak_waiting_weights == (2,)


def test_times_of_stages_differ():
    """The other stages wait for the slowest, which is itself idle only at the beginning and at the end."""
    timeline = simulate(make_schedule("1f1b", 3, 10), StageTimes((1, 2, 1), (1, 2, 1), (1, 2, 1)))
    assert timeline.busy == (30, 60, 30) and timeline.idle == (34, 4, 34) and timeline.makespan == 64
    assert timeline.idle_to_useful == 72 / 120 and timeline.idle_to_total == 72 / 192


@pytest.mark.parametrize(
    ("error", "makespan", "peak"), [(-1, 54, (3, 2, 1, 1)), (0, 33, (4, 3, 2, 1)), (1, 33, (5, 4, 3, 2))]
)
def test_sabotage_a_warm_up_that_is_off_by_one(error, makespan, peak):
    """One forward pass fewer before the first pair takes much longer; one more saves no time, and costs memory."""
    orders = []
    for rank in range(4):
        warmup = max(0, 3 - rank + error)
        forward = [Action(rank, Op.F, number) for number in range(8)]
        backward = [Action(rank, Op.B, number) for number in range(8)]
        pairs = [action for pair in zip(forward[warmup:], backward, strict=False) for action in pair]
        orders.append((*forward[:warmup], *pairs, *backward[8 - warmup :]))
    timeline = simulate(Schedule("mine", 8, (0, 1, 2, 3), tuple(orders)))
    assert (timeline.makespan, timeline.peak_live) == (makespan, peak)


def test_sabotage_weights_that_are_never_done_are_live_to_the_end():
    timeline = simulate(parse_schedule("0F0 0I0 0F1 0I1 0F2 0I2"), partial=True)
    assert timeline.live[0][-1].activations == 3 == timeline.peak_waiting_weights[0]


def test_a_wrong_schedule_is_refused_or_goes_as_far_as_it_can():
    stuck = parse_schedule("0F0 0B0 0F1 0B1\n1F0 1F1 1B0 1B1")
    with pytest.raises(ScheduleError, match="circular-wait: rank 0 stands at 0B0"):
        simulate(stuck)
    timeline = simulate(stuck, partial=True)
    assert [[str(span.action) for span in spans] for spans in timeline.spans] == [["0F0"], ["1F0"]]
    assert not timeline.is_complete and timeline.makespan == 2 and timeline.peak_live == (1, 1)
    nothing = simulate(parse_schedule("0B0 0F0"), partial=True)
    assert (nothing.makespan, nothing.busy, nothing.idle_between, nothing.peak_live) == (0, (0,), (0,), (0,))
    assert (nothing.idle_to_useful, nothing.idle_to_total) == (0, 0)


@pytest.mark.parametrize(
    ("times", "transfer", "message"),
    [
        (StageTimes((1, 2, 3)), 0, "forward: expected a time for each of 2 stages, got 3"),
        (StageTimes(weights=-1), 0, "weights: a stage takes 0 or more, got -1"),
        (StageTimes(inputs=(1, -2)), 0, r"inputs: a stage takes 0 or more, got \(1, -2\)"),
        (StageTimes(), -0.5, r"a transfer takes 0 or more, got -0\.5"),
    ],
)
def test_times_that_cannot_be_are_refused(times, transfer, message):
    with pytest.raises(ValueError, match=message):
        simulate(make_schedule("gpipe", 2, 2), times, transfer=transfer)


def test_parts_of_a_rank_are_equal():
    times = StageTimes.equal_parts(2, forward=2, inputs=4, weights=6)
    assert times == StageTimes(1, 2, 3) and times.of(Action(7, Op.B, 0)) == 5
