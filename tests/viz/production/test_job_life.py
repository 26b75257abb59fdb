import pytest

from dtlearn.production.goodput.life import KINDS, JobLife, LifeSpan
from dtlearn.production.goodput.simulate import JobTimes, simulate
from dtlearn.viz.production.job_life import fault_times, job_life, life_words
from dtlearn.viz.production.looks import LIFE
from tests.viz.production.drawn import boxes, lane_names, legend

# It begins at 5 s of the clock, and a fault comes at 12 s.
LIVED = JobLife(
    (
        LifeSpan("training", 5, 9, 40),
        LifeSpan("save", 9, 10),
        LifeSpan("lost", 10, 12, 20),
        LifeSpan("restart", 12, 13),
        LifeSpan("training", 13, 15, 20),
    ),
    1,
)


def test_spans_stand_in_time_and_below_as_shares():
    fig = job_life(LIVED)
    lane, shares = fig.axes
    assert boxes(lane, LIFE["training"], 0) == [(0, 4), (8, 10)]
    assert boxes(lane, LIFE["save"], 0) == [(4, 5)] and boxes(lane, LIFE["lost"], 0) == [(5, 7)]
    assert boxes(lane, LIFE["restart"], 0) == [(7, 8)]
    assert lane.get_xlabel() == "time since the job began to train (s)"
    (faults,) = lane.lines
    assert list(faults.get_xdata()) == [7]
    assert [text.get_text() for text in lane.texts] == ["-20 steps"]
    assert boxes(shares, LIFE["training"], 0) == [(0, 60)] and boxes(shares, LIFE["restart"], 0) == [(90, 100)]
    assert [text.get_text() for text in shares.texts] == ["goodput 60 %", "10", "20", "10"]
    assert fig._suptitle.get_text().strip() == "Goodput 60 %: 10 s, 1 fault"
    assert legend(fig) == ["training", "save", "lost: trained again", "restart", "fault"]


def test_measured_and_simulated_lives_share_an_axis():
    lives = {"measured": LIVED, "simulated": simulate(JobTimes(work=6, save=1, restart=1, mtbf=4), 4, 0)}
    fig = job_life(lives)
    assert lane_names(fig.axes[0]) == lane_names(fig.axes[1]) == ["measured", "simulated"]
    assert "measured 60 %, simulated " in fig._suptitle.get_text()
    words = life_words(lives)
    assert "measured, 10 s with 1 fault: training 60 %, save 10 %, lost: trained again 20 %, restart 10 %" in words
    assert "simulated, " in words


def test_of_a_long_life_the_beginning_can_be_drawn():
    life = simulate(JobTimes(work=30 * 86400, save=300, restart=600, mtbf=3 * 3600), 2400, 1)
    lane, shares = job_life(life, until=86400).axes
    assert lane.get_xlim() == (0, 24) and lane.get_xlabel().endswith("(hours)")
    assert max(lane.lines[0].get_xdata()) <= 24
    assert f"goodput {100 * life.goodput:.0f} %" in [text.get_text() for text in shares.texts]


def test_a_job_that_was_given_up_ends_with_a_fault():
    assert fault_times(LIVED) == [12]
    assert fault_times(JobLife((*LIVED.spans, LifeSpan("lost", 15, 16, 3)), 2)) == [12, 16]


def test_every_kind_has_a_look():
    assert set(LIFE) == set(KINDS)


@pytest.mark.parametrize("lives", [{}, JobLife((), 0), {"a": LIVED, "b": JobLife((), 0)}])
def test_without_time_there_is_nothing_to_draw(lives):
    with pytest.raises(ValueError, match="lives that last some time are needed"):
        job_life(lives)
