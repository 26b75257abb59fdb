from collections import Counter
from random import Random

import pytest

from dtlearn.pipeline_parallel import (
    SCHEDULES,
    Action,
    Op,
    Schedule,
    ScheduleError,
    check,
    make_schedule,
    parse_schedule,
    validate,
)
from dtlearn.pipeline_parallel.checking.needs import follow_orders

RIGHT = "0F0 0F1 0B0 0B1\n1F0 1B0 1F1 1B1"
SPLIT = "0F0 0I0 0W0\n1F0 1I0 1W0"


def test_nothing_is_wrong_with_a_right_schedule():
    assert validate(parse_schedule(RIGHT)) == validate(parse_schedule(SPLIT)) == []
    check(parse_schedule("0F0 0F1 0I0 0B1 0W0\n1F1 1B1 1F0 1B0"))  # parts and wholes; another order of micro-batches


@pytest.mark.parametrize(
    ("text", "code", "rank", "position", "message"),
    [
        (
            "0F0 0F1 0B0\n1F0 1B0 1F1 1B1",
            *("missing", 0, None),
            "rank 0 never does 0B1 (the backward pass of micro-batch 1 through stage 0)",
        ),
        (
            "0F0 0I0\n1F0 1I0 1W0",
            *("missing", 0, None),
            "rank 0 never does 0W0 (the gradient of the weights of micro-batch 0 through stage 0), though it does 0I0: "
            "the two make one backward pass",
        ),
        (
            "0F0 0F1 0B0 0B1 0F1\n1F0 1B0 1F1 1B1",
            *("twice", 0, 4),
            "rank 0, position 4: 0F1 (the forward pass of micro-batch 1 through stage 0) has been done before: "
            "rank 0, position 1",
        ),
        (
            "0F0 0F1 0B0 1B1 0B1\n1F0 1B0 1F1",
            *("wrong-rank", 0, 3),
            "rank 0, position 3: 1B1 (the backward pass of micro-batch 1 through stage 1), but rank 1 holds stage 1",
        ),
        (
            "0F0 0I0 0W0 0B0\n1F0 1I0 1W0",
            *("both", 0, 3),
            "rank 0, position 3: 0B0 (the backward pass of micro-batch 0 through stage 0), and 0I0 and 0W0 too: "
            "B is I and W together",
        ),
        (
            "0F0 0W0 0I0\n1F0 1I0 1W0",
            *("too-early", 0, 1),
            "rank 0, position 1: 0W0 (the gradient of the weights of micro-batch 0 through stage 0) comes before 0I0 "
            "(position 2), which it needs",
        ),
        (
            "0F0 0B0 0F1 0B1\n1F0 1F1 1B0 1B1",
            *("circular-wait", 0, 1),
            "rank 0 stands at 0B0, which needs 1B0 of rank 1 (position 2); rank 1 stands at 1F1, which needs 0F1 of "
            "rank 0 (position 2): nobody can go on",
        ),
    ],
)
def test_what_is_wrong_is_told_in_words(text, code, rank, position, message):
    (finding,) = validate(parse_schedule(text))
    assert (finding.code, finding.rank, finding.position, finding.message) == (code, rank, position, message)
    assert str(finding) == f"{code}: {message}" and f"{finding.action}" in message


def test_the_wait_of_three_ranks_is_told_without_the_rank_that_only_waits_for_them():
    """Ranks 0, 1 and 2 wait in a circle; rank 3 waits for rank 2 and is not in it."""
    text = "0F0 0B0 0F1 0B1\n1F0 1F1 1B0 1B1\n2F0 2F1 2B0 2B1\n3F0 3F1 3B0 3B1"
    (finding,) = validate(parse_schedule(text))
    assert finding.message.startswith(
        "rank 0 stands at 0B0, which needs 1B0 of rank 1 (position 2); rank 1 stands at 1F1"
    )
    v = "1F0 1I0 2F0 2I0 1W0 2W0\n0F0 3F0 3I0 0I0 0W0 3W0"
    (early,) = validate(parse_schedule(v))
    assert early.code == "too-early" and "1I0" in early.message and "comes before 2I0" in early.message


def test_an_action_that_does_not_exist_is_told():
    findings = validate(Schedule("mine", 1, (0,), (tuple(map(Action.parse, ["0F0", "0B0", "0F1", "7B0"])),)))
    assert [finding.code for finding in findings] == ["unknown", "unknown"]
    assert findings[0].message.endswith(
        "0F1 (the forward pass of micro-batch 1 through stage 0) does not exist: "
        "there are 1 stages and 1 micro-batches, numbered from 0"
    )


def test_of_much_that_is_missing_not_all_is_told():
    assert len(validate(parse_schedule("0F999999999\n1F0"))) == 16


def test_all_that_is_wrong_is_raised_at_once():
    with pytest.raises(ScheduleError, match=r"the schedule 'mine' cannot be executed:\ntwice: .*\nmissing: ") as error:
        check(parse_schedule("0F0 0F0\n1F0 1B0", name="mine"))
    assert [finding.code for finding in error.value.findings] == ["twice", "missing"]


def test_each_action_taken_out_moved_or_doubled_is_found():
    """Sabotage of a right schedule, all over: every omission, repetition and move to another rank has a finding."""
    for name in ("1f1b", "interleaved", "zbv"):
        schedule = make_schedule(name, 2, 4)
        for rank, position, action in schedule.actions():
            orders = [list(order) for order in schedule.orders]
            del orders[rank][position]
            assert "missing" in codes(schedule, orders)
            orders[rank][position:position] = [action, action]
            assert "twice" in codes(schedule, orders)
            orders[1 - rank].append(orders[rank].pop(position))
            assert {"twice", "wrong-rank"} <= codes(schedule, orders)


def test_backward_passes_through_the_chunks_in_the_order_of_the_forward_passes_are_found():
    """Sabotage of interleaving: on its way back a micro-batch would come to the model's first chunk before the last."""
    schedule = make_schedule("interleaved", 2, 4)
    orders = tuple(
        tuple(a._replace(stage=(a.stage + 2) % 4) if a.op == "B" else a for a in order) for order in schedule.orders
    )
    (finding,) = validate(Schedule("mine", 4, schedule.placement, orders))
    assert finding.code == "circular-wait"
    assert finding.message == (
        "rank 0 stands at 0B0, which needs 1B0 of rank 1 (position 3); "
        "rank 1 stands at 1B0, which needs 2B0 of rank 0 (position 9): nobody can go on"
    )


def test_findings_are_there_exactly_when_a_schedule_is_wrong():
    """Schedules changed at random, judged by another definition: all work is done once, where it should, to the end."""
    random, wrong = Random(3), 0
    for _ in range(300):
        schedule = make_schedule(random.choice(list(SCHEDULES)), 3, 3)
        orders = [list(order) for order in schedule.orders]
        for _ in range(random.choice((0, 1, 2))):
            rank, other = random.randrange(3), random.randrange(3)
            action = orders[rank].pop(random.randrange(len(orders[rank])))
            new = Action(random.randrange(schedule.num_stages), random.choice(list(Op)), random.randrange(4))
            for inserted in random.choice(([], [action], [action, action], [new])):
                orders[other].insert(random.randrange(len(orders[other])), inserted)
        changed = Schedule("mine", 3, schedule.placement, tuple(map(tuple, orders)))
        wrong += is_wrong(changed)
        assert bool(validate(changed)) == is_wrong(changed)
    assert 100 < wrong < 200


def is_wrong(schedule: Schedule) -> bool:
    """Whether not all comes to its end, or the parts of a pass are not F and B, or F, I and W, on the stage's rank."""
    done = Counter(follow_orders(schedule).done)
    passes = {(stage, number): "" for stage in range(schedule.num_stages) for number in range(3)}
    for rank, action in done.elements():
        if action.microbatch >= 3 or schedule.placement[action.stage] != rank:
            return True
        passes[action.stage, action.microbatch] += action.op
    lost = done.total() < sum(map(len, schedule.orders))
    return lost or any(sorted(parts) not in (["B", "F"], ["F", "I", "W"]) for parts in passes.values())


def codes(schedule: Schedule, orders: list[list[Action]]) -> set[str]:
    return {f.code for f in validate(Schedule("mine", 4, schedule.placement, tuple(map(tuple, orders))))}
