import pytest

from dtlearn.production.stragglers import INPUT, find_stragglers
from dtlearn.runtime.record.event import Span
from dtlearn.runtime.record.record import merge
from dtlearn.viz.production import straggler_shadow as drawing
from dtlearn.viz.production.straggler_shadow import LOOKS, shadow_title, shadow_words, steps_in, straggler_shadow
from tests.viz.production.drawn import boxes, lane_names, legend
from tests.viz.records import MS, event, record


def run(slow=1, more=10, steps=4):
    """Steps of 20 ms on 3 ranks, 2 ms of them input; `slow` computes 10 ms longer. The all-reduce takes 2 ms."""
    events, spans, free = [[], [], []], [], 0
    for step in range(steps):
        last = free + 20 + (more if slow is not None else 0)
        for rank in range(3):
            arrival = free + 20 + (more if rank == slow else 0)
            spans.append(Span(rank, INPUT, free * MS, (free + 2) * MS))
            events[rank].append(event(rank, step, "all_reduce", arrival, last + 2))
        free = last + 2
    return merge(3, events, "gloo on CPU", spans=spans)


def test_what_a_rank_did_in_a_step():
    first, *_, last = steps_in(run())
    assert len(steps_in(run())) == 3 and first[0].late == last[2].late == 1
    assert first[0].parts == {
        "waits for its data": [(32 * MS, 34 * MS)],
        "computes": [(34 * MS, 52 * MS)],
        "messages": [],
        "collective": [(62 * MS, 64 * MS)],
    }
    assert (first[0].arrival, first[0].last, first[1].arrival) == (52 * MS, 62 * MS, 62 * MS)


def test_others_wait_in_the_shadow_of_the_slow_rank():
    record, report = run(), find_stragglers(run())
    fig = straggler_shadow(record, report, steps=2)
    (ax,) = fig.axes
    assert lane_names(ax) == ["rank 0", "rank 1 (slow)", "rank 2"] and ax.get_xlabel() == "time (ms)"
    assert boxes(ax, LOOKS["computes"], 1) == [(2, 30), (34, 62)]
    white = drawing.Look("#ffffff", "")
    assert boxes(ax, white, 0) == boxes(ax, white, 2) == [(20, 30), (52, 62)] and boxes(ax, white, 1) == []
    assert ax.get_title(loc="left") == "Rank 1 computes 10 ms longer a step: 2 other ranks lose 31 % of the time"
    assert "run: gloo on CPU; 2 of 3 steps" in [text.get_text() for text in ax.texts]
    assert legend(fig) == [
        "waits for its data",
        "computes",
        "collective",
        "waits for the last rank: its shadow",
        "comes last",
    ]
    words = shadow_words(record, report)
    assert "rank 0 10 ms, rank 1 0 ms, rank 2 10 ms" in words and "Of a step of 32 ms" in words


def test_messages_are_a_part_of_their_own():
    def of(rank):
        messages = [event(rank, 1, "send", 3, 5, peer=1 - rank), event(rank, 2, "recv", 3, 9, peer=1 - rank)]
        ends = [event(rank, n, "all_reduce", at, at + 1, group_seq=n // 3) for n, at in ((0, 1), (3, 12))]
        return [ends[0], *messages, ends[1]]

    (step,) = steps_in(record(of(0), of(1)))
    assert step[0].parts["messages"] == [(3 * MS, 9 * MS)]
    assert step[0].parts["computes"] == [(2 * MS, 3 * MS), (9 * MS, 12 * MS)]


def test_without_a_straggler_the_title_says_so():
    assert shadow_title(find_stragglers(run(slow=None))) == "No rank is late again and again"


def test_the_input_phase_is_the_one_of_stragglers():
    assert drawing.INPUT == INPUT


def test_one_collective_is_no_step():
    with pytest.raises(ValueError, match="two or more calls of all_reduce"):
        straggler_shadow(run(steps=1), find_stragglers(run()))
