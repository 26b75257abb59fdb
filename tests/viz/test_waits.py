from dataclasses import replace

from dtlearn.viz.waits import data_starts, pack, partners
from tests.viz.records import MS, all_reduce_run, chain_run, event, record


def starts_ms(run):
    return {key: None if ns is None else ns / MS for key, ns in data_starts(run).items()}


def test_a_collective_waits_for_its_last_rank():
    assert starts_ms(all_reduce_run()) == {(0, 0): 4, (1, 0): 4, (2, 0): 4}


def test_a_collective_of_a_subgroup_waits_for_that_group_only():
    run = record(
        [event(0, 0, "all_reduce", 1, 9, group="0,2")],
        [event(1, 0, "all_reduce", 8, 9, group="1")],
        [event(2, 0, "all_reduce", 3, 9, group="0,2")],
    )
    assert starts_ms(run) == {(0, 0): 3, (1, 0): 8, (2, 0): 3}


def test_a_broadcast_waits_for_its_root_and_a_gather_for_everyone_at_its_root():
    ranks = [(0, 2.0), (1, 1.0), (2, 5.0)]
    broadcast = record(*([event(r, 0, "broadcast", t, 9, peer=0)] for r, t in ranks))
    assert starts_ms(broadcast) == {(0, 0): 2, (1, 0): 2, (2, 0): 5}
    gather = record(*([event(r, 0, "gather", t, 9, peer=0)] for r, t in ranks))
    assert starts_ms(gather) == {(0, 0): 5, (1, 0): 1, (2, 0): 5}


def test_who_comes_after_the_root_of_a_broadcast_is_not_waited_for():
    calls = partners(record(*([event(r, 0, "broadcast", t, 9, peer=0)] for r, t in ((0, 5), (1, 2), (2, 8)))))
    assert {key: [e.rank for e in others] for key, others in calls.items()} == {(0, 0): [], (1, 0): [0], (2, 0): [0]}


def test_a_call_that_torch_refused_is_not_what_others_waited_for():
    refused = replace(event(0, 0, "all_reduce", 0, None), detail={"raised": "TypeError"})
    run = record([refused, event(0, 1, "all_reduce", 5, 9)], [event(1, 0, "all_reduce", 1, 9)])
    assert starts_ms(run) == {(0, 0): None, (0, 1): 5, (1, 0): 5}


def test_a_recv_waits_for_its_send():
    assert starts_ms(chain_run()) == {(0, 0): 5, (1, 0): 5}


def test_what_waited_for_a_call_that_never_came_has_no_start():
    run = record([event(0, 0, "all_reduce", 1, None)], [event(1, 0, "broadcast", 2, None, peer=0)])
    assert starts_ms(run) == {(0, 0): None, (1, 0): None}
    assert starts_ms(record([event(0, 0, "recv", 1, None, peer=1)], [])) == {(0, 0): None}


def test_a_part_of_a_record_is_not_taken_for_a_hang():
    assert starts_ms(all_reduce_run().select(rank=1)) == {(1, 0): 2.5}


def test_messages_match_in_order_per_pair_and_tag():
    run = record(
        [
            event(0, 0, "send", 0, 1, peer=1, tag=7),
            event(0, 1, "isend", 1, 2, peer=1),
            event(0, 2, "send", 2, 3, peer=1),
        ],
        [
            event(1, 0, "recv", 0, 3, peer=0),
            event(1, 1, "irecv", 1, 4, peer=0),
            event(1, 2, "recv", 2, 5, peer=0, tag=7),
        ],
    )
    assert [(s.seq, r.seq) for s, r in run.messages()] == [(0, 2), (1, 0), (2, 1)]


def test_a_send_without_recv_has_no_partner():
    run = record([event(0, 0, "send", 0, 1, peer=1)], [event(1, 0, "recv", 0, 1, peer=0), event(1, 1, "recv", 1, 2)])
    assert [(s.seq, r.seq) for s, r in run.messages()] == [(0, 0)]


def test_calls_that_overlap_get_rows_of_their_own():
    calls = [
        event(0, 0, "isend", 0, 5, peer=1),
        event(0, 1, "recv", 1, 3, peer=1),
        event(0, 2, "recv", 4, None, peer=1),
    ]
    assert pack(calls, end_of_time=10 * MS) == ({(0, 0): 0, (0, 1): 1, (0, 2): 1}, 2)
    assert pack([], 0) == ({}, 1)
