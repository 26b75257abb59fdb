import pytest

from dtlearn.production.goodput import JobTimes, daly_interval, expected_goodput, goodput_by_interval, young_interval
from dtlearn.viz.production.goodput_curve import goodput_curve, goodput_curve_words
from tests.viz.production.drawn import legend

JOB = JobTimes(work=10 * 86400, save=300, restart=600, mtbf=6 * 3600)
ROWS = goodput_by_interval(JOB, [1200, 3600, 14400], seeds=range(8))


def test_the_curve_is_the_formula_and_the_points_are_the_rows():
    fig = goodput_curve(JOB, ROWS, {2400: 0.75})
    (ax,) = fig.axes
    lines = {line.get_label(): line.get_data() for line in ax.lines}
    for x, y in zip(*lines["formula"], strict=True):
        assert y == pytest.approx(100 * expected_goodput(60 * x, JOB.save, JOB.restart, JOB.mtbf))
    xs, ys = lines["simulated: mean, middle half of the seeds"]
    assert list(xs) == [20, 60, 240] and list(ys) == [100 * row.simulated for row in ROWS]
    assert [list(values) for values in lines["real ranks"]] == [[40], [75]]
    assert legend(fig) == ["formula", "simulated: mean, middle half of the seeds", "real ranks"]
    assert ax.get_xlabel() == "training between two saves (min, logarithmic)" and ax.get_ylabel() == "goodput (%)"


def test_young_and_daly_are_marked():
    (ax,) = goodput_curve(JOB, ROWS).axes
    marks = [line.get_xdata()[0] * 60 for line in ax.lines if len(line.get_xdata()) == 2]
    assert marks == pytest.approx([young_interval(300, 21600), daly_interval(300, 21600)])
    said = [text.get_text() for text in ax.texts]
    assert "Young: 60 min" in said and "Daly: 57 min" in said
    assert "a save takes 5 min, a restart 10 min, a fault comes every 6 hours on average" in said
    assert ax.get_title(loc="left") == "Saving every 60 min keeps 82 % of the time"


def test_words():
    words = goodput_curve_words(JOB, ROWS, {2400: 0.75})
    assert "60 min: 82 % simulated, 82 % by the formula" in words and "40 min: 75 % on real ranks" in words
    assert "Young's interval is 60 min, Daly's 57 min" in words


def test_without_intervals_there_is_nothing_to_draw():
    with pytest.raises(ValueError, match="rows of simulated jobs, or measured ones"):
        goodput_curve(JOB, [])
