"""Messages of schedules: as many as the formula says, in an order in which nobody waits forever."""

import itertools

import pytest

from dtlearn.pipeline_parallel import SCHEDULES, Action, Op, make_schedule, parse_schedule
from dtlearn.pipeline_parallel.checking.deadlock import Post, find_deadlock
from dtlearn.pipeline_parallel.runner.communication import (
    Compute,
    MessageBatch,
    describe,
    forward_only,
    message_of,
    with_communication,
)

GRID = [
    make_schedule(kind, p, m)
    for kind in SCHEDULES
    for p in (1, 2, 3, 4, 8)
    for m in (1, 2, 3, 4, 8, 16)
    if SCHEDULES[kind].shape != "loop" or m % p == 0
]


def text(steps):
    """A rank's steps as text: actions, and messages by what needs them, "+" sent and "-" received."""
    words = []
    for step in steps:
        if isinstance(step, Compute):
            words.append(str(step.action))
        else:
            words.append("".join(f"{'+' if src == step.rank else '-'}{needs}" for needs, src, _ in step.messages))
    return " ".join(words)


ONE_F_ONE_B = """
0F0 +1F0 0F1 +1F1 0F2 +1F2-0B0 0B0 0F3 +1F3-0B1 0B1 -0B2 0B2 -0B3 0B3
-1F0 1F0 -1F1+2F0 1F1 -1F2+2F1-1B0 1B0 +0B0 1F2 +2F2-1B1 1B1 -1F3+0B1 1F3 +2F3-1B2 1B2 +0B2-1B3 1B3 +0B3
-2F0 2F0 -2F1 2B0 +1B0 2F1 2B1 -2F2+1B1 2F2 2B2 -2F3+1B2 2F3 2B3 +1B3
"""


def test_one_forward_one_backward_on_three_ranks():
    steps = with_communication(make_schedule("1f1b", 3, 4))
    assert "\n".join(map(text, steps)) == ONE_F_ONE_B.strip()


def posts(rank, messages):
    """Messages as the deadlock finder takes them, posted together."""
    return [
        Post("send", dst, str(needs)) if src == rank else Post("receive", src, str(needs))
        for needs, src, dst in messages
    ]


def one_by_one(steps):
    """Actions and messages of a rank, one after the other."""
    return [entry for step in steps for entry in ([step.action] if isinstance(step, Compute) else step.messages)]


@pytest.mark.parametrize("only_forward", [False, True])
def test_nobody_waits_for_ever_even_if_every_send_waits_for_its_receive(only_forward):
    for schedule in GRID:
        schedule = forward_only(schedule) if only_forward else schedule
        of_ranks = with_communication(schedule)
        lines = [one_by_one(steps) for steps in of_ranks]
        batches = [
            [posts(rank, step.messages) for step in steps if isinstance(step, MessageBatch)]
            for rank, steps in enumerate(of_ranks)
        ]
        one_at_a_time = [[[post] for batch in rank for post in batch] for rank in batches]
        assert find_deadlock(batches) is find_deadlock(one_at_a_time) is None
        for rank, line in enumerate(lines):
            assert tuple(entry for entry in line if isinstance(entry, Action)) == schedule.orders[rank]
            check_that_messages_come_in_time(rank, line, schedule.placement)


def check_that_messages_come_in_time(rank, line, placement):
    """What an action needs from another rank comes before it; what it makes goes after it."""
    done, received = set(), set()
    for entry in line:
        if isinstance(entry, Action):
            stage, op, microbatch = entry
            other = stage - 1 if op is Op.F else stage + 1
            if op is not Op.W and 0 <= other < len(placement) and placement[other] != rank:
                assert Action(stage, Op.F if op is Op.F else Op.B, microbatch) in received
            done.add(entry)
        elif entry.src == rank:
            assert any(message_of(action, placement) == entry for action in done)
        else:
            received.add(entry.needed_by)


def test_both_ends_of_a_pair_have_their_messages_in_the_same_order():
    for schedule in GRID:
        lines = [[e for e in one_by_one(steps) if not isinstance(e, Action)] for steps in with_communication(schedule)]
        for a, b in itertools.combinations(range(schedule.num_ranks), 2):
            assert [m for m in lines[a] if b in m[1:]] == [m for m in lines[b] if a in m[1:]]


def test_the_number_of_messages_is_the_formula():
    for schedule in GRID:
        steps = with_communication(schedule)
        sends = sum(len(step.sends) for line in steps for step in line if isinstance(step, MessageBatch))
        receives = sum(len(step.receives) for line in steps for step in line if isinstance(step, MessageBatch))
        boundaries = sum(a != b for a, b in itertools.pairwise(schedule.placement))
        assert sends == receives == 2 * boundaries * schedule.num_microbatches
        if schedule.num_ranks > 1:
            chunks = schedule.num_stages // schedule.num_ranks
            in_v = schedule.placement[0] == schedule.placement[-1] and chunks == 2
            assert boundaries == schedule.num_stages - 1 - in_v


def test_receive_before_and_send_after_each_action_is_a_deadlock():
    """The order that one writes first; it is what the check above is to find."""
    schedule = make_schedule("1f1b", 2, 2)
    orders = [[], []]
    for rank, _, action in schedule.actions():
        made = [message_of(other, schedule.placement) for _, _, other in schedule.actions()]
        orders[rank] += [posts(rank, [m]) for m in made if m and m.needed_by == action]
        orders[rank] += [posts(rank, [m]) for m in [message_of(action, schedule.placement)] if m]
    deadlock = find_deadlock(orders)
    assert deadlock.kind == "circle" and set(deadlock.ranks) == {0, 1}


def test_a_step_says_where_it_is():
    (first, exchange, *_), _ = with_communication(parse_schedule("0F0 0B0\n1F0 1B0"))
    assert describe(first, 0).startswith("rank 0 of the pipeline was in action 0F0: stage 0, micro-batch 0")
    assert "sends to rank 1 what 1F0 needs" in describe(exchange, 0)
