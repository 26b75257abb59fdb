import pytest
from matplotlib.patches import FancyArrowPatch

from dtlearn.viz.ranks.exchange import Exchange, exchange
from tests.viz.records import all_reduce_run, event, record

SEND = Exchange(
    "send",
    record([event(0, 0, "send", 0, 1, peer=1)], [event(1, 0, "recv", 0, 2, peer=0)], []),
    [("1", "1"), ("2", "1"), ("3", "3")],
)
CAST = Exchange(
    "broadcast", record(*([event(r, 0, "broadcast", 0, 1, peer=1)] for r in range(3))), [(v, "b") for v in "abc"]
)
SUM = Exchange("all_reduce", all_reduce_run(), [(v, "6") for v in "123"])


def texts(ax):
    return [t.get_text() for t in ax.texts]


def test_a_value_travels_where_the_record_says():
    assert (SEND.ways, SEND.callers) == ([(0, 1)], {0, 1})
    assert (CAST.ways, CAST.callers) == ([(1, 0), (1, 2)], {0, 1, 2})
    gathered = record(*([event(r, 0, "reduce", 0, 1, peer=2)] for r in range(3)))
    assert Exchange("reduce", gathered, [("", "")] * 3).ways == [(0, 2), (1, 2)]
    assert SUM.ways == []


def test_every_value_is_shown_and_who_makes_no_call():
    first, second, third = exchange(SEND, CAST, SUM).axes
    assert texts(first).count("makes no call") == 1 and "makes no call" not in texts(second) + texts(third)
    assert [t for t in texts(first) if t.isdigit()] == ["1", "1", "2", "1", "3", "3"]
    assert "+" in texts(third) and "+" not in texts(second)
    assert first.get_title(loc="left") == "send"
    arrows = [[p for p in ax.patches if isinstance(p, FancyArrowPatch)] for ax in (first, second, third)]
    assert [len(found) for found in arrows] == [1, 2, 6]


@pytest.mark.parametrize(
    ("panels", "message"),
    [
        ([], "nothing to draw"),
        ([Exchange("x", record([], []), [("1", "2")] * 2)], "nothing to draw"),
        ([Exchange("x", SUM.record, [("1", "2")] * 2)], "the values of each of the 3 ranks"),
    ],
)
def test_bad_input(panels, message):
    with pytest.raises(ValueError, match=message):
        exchange(*panels)
