import pytest

from dtlearn.parameter_server.progress import LogEntry
from dtlearn.viz.parameter_server.staleness_histogram import staleness_histogram


def log(*values):
    """Entries of such a staleness; None: dropped."""
    return [
        LogEntry(order, 0, order, order, 0, 1, None if value is None else order + 1, value or 0, 1.0)
        for order, value in enumerate(values)
    ]


def test_shares_and_mean():
    fig = staleness_histogram({"BSP": log(0, 0, None, 0), "asynchronous": log(0, 1, 1, 2)}, "t", "l")
    first, second = fig.axes
    assert [bar.get_height() for bar in first.patches] == [1, 0, 0]
    assert [bar.get_height() for bar in second.patches] == [0.25, 0.5, 0.25]
    assert [ax.texts[0].get_text() for ax in fig.axes] == ["mean 0.0", "mean 1.0"]
    assert list(second.lines[0].get_xdata()) == [1, 1]


def test_a_run_without_pushes_is_refused():
    for logs in ({}, {"BSP": log(None)}):
        with pytest.raises(ValueError, match="runs with pushes are needed"):
            staleness_histogram(logs)
