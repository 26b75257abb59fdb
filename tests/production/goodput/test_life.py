"""The life of a job as spans."""

import pytest

from dtlearn.production.goodput.life import JobLife, LifeSpan

SPANS = (
    LifeSpan("training", 0.0, 6.0, 60),
    LifeSpan("save", 6.0, 7.0),
    LifeSpan("lost", 7.0, 9.0, 20),
    LifeSpan("restart", 9.0, 10.0),
    LifeSpan("training", 10.0, 12.0, 20),
)


def test_goodput_is_the_part_that_trained_for_good():
    life = JobLife(SPANS, 1)
    assert (life.total, life.seconds("training"), life.goodput) == (12.0, 8.0, 8 / 12)
    assert life.mean("training") == 4.0 and life.mean("save") == 1.0
    assert JobLife((), 0).goodput == JobLife((), 0).mean("save") == 0.0


def test_another_clock_changes_seconds_and_not_the_goodput():
    life = JobLife(SPANS, 1).times(3600.0)
    assert life.total == 43200.0 and life.goodput == JobLife(SPANS, 1).goodput
    assert [span.steps for span in life.spans] == [60, 0, 20, 0, 20]


@pytest.mark.parametrize(
    ("spans", "message"),
    [
        ((LifeSpan("sleep", 0, 1),), "got sleep"),
        ((LifeSpan("save", 0, 1), LifeSpan("lost", 2, 3)), "without a gap"),
        ((LifeSpan("save", 0, 2), LifeSpan("lost", 1, 3)), "without a gap"),
        ((LifeSpan("save", 0, 2), LifeSpan("lost", 2, 1)), "without a gap"),
    ],
)
def test_a_life_with_gaps_or_unknown_spans_is_refused(spans, message):
    with pytest.raises(ValueError, match=message):
        JobLife(spans, 0)
