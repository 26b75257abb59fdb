import pytest

from dtlearn.viz.parameter_server.gossip_reach import gossip_reach, reach_in
from tests.viz.records import event, record


def chain():
    """In step 0 rank 1 hears from 0, in step 1 rank 2 from 1; then rank 2 from 0 in a step that is already known."""
    return record(
        [event(0, 0, "isend", 0, 1, peer=1, tag=0)],
        [event(1, 0, "irecv", 0, 1, peer=0, tag=0), event(1, 1, "isend", 2, 3, peer=2, tag=1)],
        [event(2, 0, "irecv", 0, 9, peer=1, tag=1)],
    )


def test_what_a_message_tells_is_what_its_sender_knew():
    assert reach_in(chain()) == [
        (frozenset([0]), frozenset([1]), frozenset([2])),
        (frozenset([0]), frozenset([0, 1]), frozenset([2])),
        (frozenset([0]), frozenset([0, 1]), frozenset([0, 1, 2])),
    ]


def test_messages_of_one_step_do_not_tell_of_each_other():
    both = record(
        [event(0, 0, "isend", 0, 1, peer=1)],
        [event(1, 0, "irecv", 0, 1, peer=0), event(1, 1, "isend", 2, 3, peer=2)],
        [event(2, 0, "irecv", 0, 9, peer=1)],
    )
    assert reach_in(both)[-1] == (frozenset([0]), frozenset([0, 1]), frozenset([1, 2]))


def test_a_grid_for_each_step():
    fig = gossip_reach({"chain": reach_in(chain()), "alone": reach_in(chain())[:1]})
    titles = [ax.get_title() for ax in fig.axes]
    assert titles == ["own only", "after 1: 44%", "after 2: 67%", "own only", "", ""]
    assert [text.get_text() for text in fig.axes[2].texts] == ["0", "0", "1", "0", "1", "2"]


def test_no_run_is_refused():
    for runs in ({}, {"ring": []}):
        with pytest.raises(ValueError, match="runs of ranks that gossip are needed"):
            gossip_reach(runs)
