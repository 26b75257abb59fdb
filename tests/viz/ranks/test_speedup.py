import pytest

from dtlearn.viz.ranks.speedup import speedup


def test_times_and_gains_follow_the_model():
    fig = speedup(8.0, lambda n: 0.5 * (n - 1), ranks=(1, 2, 4, 8))
    left, right = fig.axes
    shares, sent = ([b.get_height() for b in bars] for bars in left.containers)
    assert shares == [8, 4, 2, 1] and sent == [0, 0.5, 1.5, 3.5]
    ideal, model = right.lines
    assert list(ideal.get_ydata()) == [1, 2, 4, 8]
    assert list(model.get_ydata()) == pytest.approx([1, 8 / 4.5, 8 / 3.5, 8 / 4.5])
    assert any("at N = 4" in t.get_text() for t in right.texts), "the best number of ranks is marked"


def test_no_peak_is_marked_when_more_ranks_stay_faster():
    assert list(speedup(1.0, lambda n: 0.0, ranks=(1, 2)).axes[1].texts) == []


def test_measured_points_are_drawn_in_both_panels():
    left, right = speedup(1.0, lambda n: 0.0, ranks=(1, 2), measured={1: 1.2, 2: 0.8}).axes
    assert list(left.lines[0].get_ydata()) == [1.2, 0.8]
    assert list(right.lines[2].get_ydata()) == pytest.approx([1, 1.5])
    assert left.get_ylim()[1] > 1.2


@pytest.mark.parametrize("ranks", [(), (0, 1), (2, 1), (1, 1)])
def test_ranks_must_rise_from_one(ranks):
    with pytest.raises(ValueError, match="rising"):
        speedup(1.0, lambda n: 0.0, ranks=ranks)


def test_times_must_not_be_negative():
    with pytest.raises(ValueError, match="negative"):
        speedup(1.0, lambda n: -1.0)
    with pytest.raises(ValueError, match="above 0"):
        speedup(0.0, lambda n: 1.0)
