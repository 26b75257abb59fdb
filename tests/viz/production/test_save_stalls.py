import pytest

from dtlearn.production.checkpoints import JobOptions, checkpointer, run_job
from dtlearn.runtime.record.event import Span
from dtlearn.runtime.record.record import merge
from dtlearn.runtime.run import run_ranks
from dtlearn.viz.production import save_stalls as drawing
from dtlearn.viz.production.save_stalls import STALL, TRAINING, WRITING, save_stalls, saves_in, stall_words
from tests.viz.production.drawn import boxes, lane_names, legend
from tests.viz.records import MS


def run(write_from, write_to, stall_to):
    """Two ranks; steps end at 110 and 190 ms, a save begins at 120. The clock begins at 100 ms."""
    phases = [
        ("forward", 100, 104),
        ("step", 108, 110),
        ("save", 120, stall_to),
        ("write", write_from, write_to),
        ("forward", 180, 184),
        ("step", 186, 190),
    ]
    spans = [Span(rank, name, start * MS, end * MS) for rank in (0, 1) for name, start, end in phases]
    return merge(2, [[], []], spans=[*spans, Span(0, "forward", 195 * MS, None)])


RUNS = {"synchronous": run(130, 160, 160), "asynchronous": run(125, 170, 125)}


def test_training_goes_on_beside_the_writer_or_stands_still():
    fig = save_stalls(RUNS)
    first, second = fig.axes
    for rank in (0, 1):
        assert boxes(first, TRAINING, rank) == [(0, 20), (60, 90)]
        assert boxes(first, STALL, rank) == [(20, 60)] and boxes(first, WRITING, rank) == [(30, 60)]
        assert boxes(second, TRAINING, rank) == [(0, 20), (25, 90)]
        assert boxes(second, STALL, rank) == [(20, 25)] and boxes(second, WRITING, rank) == [(25, 70)]
    assert lane_names(first) == ["rank 0", "rank 1"] and second.get_xlabel() == "time since the first forward pass (ms)"
    assert "40 ms (synchronous) and 5 ms (asynchronous)" in fig._suptitle.get_text()
    assert first.get_title(loc="left") == (
        "synchronous: 1 save, training waits 40 ms for each, writing takes 30 ms (medians)"
    )
    assert legend(fig) == ["training, a line after each step", "training stands still", "files are written"]


def test_words():
    words = stall_words(RUNS)
    assert "synchronous, 1 save, training waits 40 ms" in words and "asynchronous, 1 save, training waits 5" in words


def test_the_phases_are_those_of_the_checkpointer():
    assert (drawing.SAVE, drawing.WRITE) == (checkpointer.SAVE, checkpointer.WRITE)


@pytest.mark.parametrize("asynchronous", [False, True])
def test_a_real_job_marks_its_saves(asynchronous, tmp_path):
    options = JobOptions(str(tmp_path), num_steps=4, save_every=2, asynchronous=asynchronous, width=256)
    found = saves_in(run_ranks(run_job, 2, options, record=True).record)
    for own in found.values():
        assert (len(own.stalls), len(own.writing), len(own.steps)) == (2, 2, 4)
        for (start, end), (begin, done) in zip(own.stalls, own.writing, strict=True):
            assert start < begin < done
            assert done <= end or asynchronous


def test_a_record_without_saves_is_refused():
    with pytest.raises(ValueError, match="has no forward pass and no save"):
        save_stalls({"none": merge(1, [[]])})
    with pytest.raises(ValueError, match="at least one record"):
        save_stalls({})
