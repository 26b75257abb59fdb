import pytest

from dtlearn.communication_scheduling.simulate import LaneSpan
from dtlearn.viz.communication_scheduling.lanes import communication_lanes, layer_color, waiting

SPANS = [
    LaneSpan("backward", 1, 0, 1),
    LaneSpan("backward", 0, 1, 2),
    LaneSpan("transfers", 1, 1, 2),
    LaneSpan("transfers", 0, 2, 2.5),
    LaneSpan("transfers", 0, 2.5, 3),
    LaneSpan("forward", 0, 3, 4),
    LaneSpan("forward", 1, 4, 5),
]
WAITS_LONGER = [*SPANS[:6], LaneSpan("forward", 1, 4.5, 5.5)]


def test_a_rank_waits_while_it_computes_nothing():
    assert waiting(SPANS) == [(2, 3)]
    assert waiting(WAITS_LONGER) == [(2, 3), (4, 4.5)]


def test_lanes_numbers_and_words():
    fig = communication_lanes({"FIFO": SPANS, "other": WAITS_LONGER}, bound=4.0)
    first, second = fig.axes
    assert [label.get_text() for label in first.get_yticklabels()] == ["backward", "transfers", "next forward"]
    # The two partitions of layer 0 have one number.
    assert [text.get_text() for text in first.texts] == ["1", "0", "1", "0", "0", "1"]
    assert first.get_title("left") == "FIFO: 5 s, of which the rank waits 1 s"
    assert second.get_title("left") == "other: 5.5 s, of which the rank waits 1.5 s"
    hatched = [p for p in first.get_children() if p.get_gid() == "waits"]
    assert [(p.get_x(), p.get_width()) for p in hatched] == [(2, 1)]
    assert [round(p.get_y() + p.get_height() / 2) for p in hatched] == [2]  # in the lane that it holds up
    assert [len(ax.lines) for ax in fig.axes] == [1, 1]
    assert first.get_xlim() == second.get_xlim()


def test_the_first_layer_is_the_darkest():
    greys = [sum(int(layer_color(n, 4)[i : i + 2], 16) for i in (1, 3, 5)) for n in range(4)]
    assert greys == sorted(greys) and len(set(greys)) == 4


def test_a_run_that_never_waits_says_nothing_of_it():
    (ax,) = communication_lanes({"one": SPANS[:2]}).axes
    assert ax.get_title("left") == "one: 2 s"


@pytest.mark.parametrize("runs", [{}, {"FIFO": []}])
def test_a_run_without_spans_is_refused(runs):
    with pytest.raises(ValueError, match="runs with spans are needed"):
        communication_lanes(runs)


def test_what_is_emulated_stands_in_a_box():
    label = "emulated link: 1 Gb/s, 50 us; emulated layer times"
    boxes = [
        [text.get_text() for text in communication_lanes({"one": SPANS}, label=words).texts] for words in (label, "")
    ]
    assert [[words for words in found if words.startswith("emulated link,")] for found in boxes] == [
        ["emulated link, emulated layer times"],
        [],
    ]


def test_lanes_of_a_forward_pass_alone():
    spans = [LaneSpan("all-gathers", 0, 0, 1), LaneSpan("forward", 0, 1, 3), LaneSpan("all-gathers", 1, 1, 2)]
    (ax,) = communication_lanes({"FSDP2": spans}, link="all-gathers").axes
    assert [label.get_text() for label in ax.get_yticklabels()] == ["all-gathers", "forward"]
    assert ax.get_title("left") == "FSDP2: 3 s, of which the rank waits 1 s"
