import pytest

from dtlearn.viz.traffic import bytes_per_rank
from tests.viz.records import event, record


def run():
    return record(
        [event(0, 0, "all_reduce", 0, 1, nbytes=37_672), event(0, 1, "all_gather", 1, 2, nbytes=1000)],
        [event(1, 0, "all_reduce", 0, 1, nbytes=37_672), event(1, 1, "barrier", 1, 2, nbytes=0)],
    )


def heights(ax):
    return [[(b.get_y(), b.get_height()) for b in bars] for bars in ax.containers]


def test_bars_are_stacked_by_operation():
    fig = bytes_per_rank(run())
    # all_gather first (alphabetical), all_reduce on top of it.
    assert heights(fig.axes[0]) == [[(0, 1000), (0, 0)], [(1000, 37_672), (0, 37_672)]]
    texts = [t.get_text() for t in fig.axes[0].texts]
    assert "38,672" in texts and "37,672" in texts and "run: gloo on CPU" in texts


def test_expected_is_marked_on_every_rank():
    fig = bytes_per_rank(run().select(op="all_reduce"), expected=37_672)
    assert [list(line.get_ydata()) for line in fig.axes[0].lines] == [[37_672, 37_672]] * 2
    assert [t.get_text() for t in fig.legends[0].get_texts()] == ["all_reduce", "expected: 37,672 bytes"]


def test_expected_may_differ_by_rank():
    fig = bytes_per_rank(run(), expected={1: 50_000})
    assert [list(line.get_ydata()) for line in fig.axes[0].lines] == [[50_000, 50_000]]
    assert fig.axes[0].get_ylim()[1] > 50_000


def test_bad_input():
    with pytest.raises(ValueError, match="carries bytes"):
        bytes_per_rank(run().select(op="barrier"))
    with pytest.raises(ValueError, match="rank 2"):
        bytes_per_rank(run(), expected={2: 1})
