"""Records made by hand, in ms, and records of real runs against the plans that were run."""

from dataclasses import replace

import pytest
import torch
import torch.distributed as dist

from dtlearn.collectives import all_gather, halving_doubling, hierarchical, reduce_scatter, ring, simulate, tree
from dtlearn.collectives.execute import Chunks, execute
from dtlearn.runtime.record.record import merge
from dtlearn.runtime.run import run_ranks
from dtlearn.viz.collectives.collective_steps import StepMessage, collective_steps
from tests.collectives.plans import all_plans
from tests.viz.records import event, record


def at(call, begin, of=16, nbytes=4):
    """The event with a payload that lies at `begin` of a tensor."""
    return replace(call, nbytes=nbytes, detail={"at": begin, "of": of})


def held(*rows):
    """ "0,01 1,-" -> rows of chunks; the digits are ranks, "-" is nothing."""
    return tuple(tuple(None if c == "-" else frozenset(map(int, c)) for c in row.split(",")) for row in rows)


def one_chunk_of_two():
    """Rank 0 sends the second half of 8 bytes to rank 1, which receives it beside its own."""
    return record([at(event(0, 0, "send", 0, 2, peer=1), 4, of=8)], [at(event(1, 0, "recv", 0, 2, peer=0), 0, of=4)])


def test_a_chunk_is_where_its_sender_had_it():
    steps = collective_steps(one_chunk_of_two())
    assert steps.bounds == (0, 4, 8)
    assert steps.messages == ((StepMessage(0, 1, 4, 1, 2),),)
    assert steps.states == (held("0,0", "1,1"), held("0,0", "1,01"))
    assert (steps.ranks, steps.label, steps.lost) == ((0, 1), "gloo on CPU", 0)


def test_start_says_what_counts():
    steps = collective_steps(one_chunk_of_two(), start=[[frozenset({0})] * 2, [None] * 2])
    assert steps.states[-1] == held("0,0", "-,0")
    with pytest.raises(ValueError, match="start is for 2 ranks and 1 chunks; the record has 2 ranks and 2 chunks"):
        collective_steps(one_chunk_of_two(), start=[[None], [None]])


def chain(**late):
    """0 sends 4 bytes to 1, which passes them on to 2."""
    return record(
        [at(event(0, 0, "send", 0, 2, peer=1), 0, of=4)],
        [
            at(event(1, 0, "recv", 0, 3, peer=0), 0, of=4),
            at(event(1, 1, "send", late.get("sends", 4), 6, peer=2), 0, of=4),
        ],
        [at(event(2, 0, "recv", 0, 7, peer=1), 0, of=4)],
    )


def test_what_waits_for_another_is_a_later_step():
    steps = collective_steps(chain())
    assert [len(m) for m in steps.messages] == [1, 1]
    assert steps.states[-1] == held("0", "01", "012")


def test_what_is_sent_before_the_receive_ended_does_not_bring_it():
    """The classic bug: a rank passes on its chunk before what it waits for has arrived."""
    steps = collective_steps(chain(sends=2))
    assert [len(m) for m in steps.messages] == [2]
    assert steps.states[-1] == held("0", "01", "12")


def test_two_messages_of_one_rank_after_each_other_are_two_steps():
    star = record(
        [at(event(0, 0, "send", 0, 1, peer=1), 0), at(event(0, 1, "send", 2, 3, peer=2), 0)],
        [at(event(1, 0, "recv", 0, 1.5, peer=0), 0)],
        [at(event(2, 0, "recv", 0, 3.5, peer=0), 0)],
    )
    assert [[(m.src, m.dst) for m in step] for step in collective_steps(star).messages] == [[(0, 1)], [(0, 2)]]


def test_sends_that_a_buffer_took_do_not_wait_for_their_receiver():
    """Both ranks send, then receive: each message waits for nothing but its own rank's other call."""
    both = record(
        *(
            [at(event(r, 0, "send", 0, 1, peer=1 - r), 4 * r), at(event(r, 1, "recv", 2, 3, peer=1 - r), 4 - 4 * r)]
            for r in (0, 1)
        )
    )
    steps = collective_steps(both)
    assert [len(m) for m in steps.messages] == [2]


def test_segments_of_a_chunk_are_one_message():
    cut = record(
        [at(event(0, i, "isend", 0, 5, peer=1), 4 * i, of=12) for i in range(3)],
        [at(event(1, i, "irecv", 0, 2 + i, peer=0), 4 * i, of=12) for i in range(3)],
    )
    steps = collective_steps(cut)
    assert steps.bounds == (0, 12)
    assert steps.messages == ((StepMessage(0, 1, 12, 0, 1),),)


def test_a_message_outside_the_tensor_has_no_chunk():
    calls = record(
        [at(event(0, 0, "send", 0, 1, peer=1), 4, of=8), at(event(0, 1, "send", 2, 3, peer=1), 0, of=4)],
        [at(event(1, 0, "recv", 0, 1.5, peer=0), 0, of=4), at(event(1, 1, "recv", 2, 3.5, peer=0), 0, of=4)],
    )
    steps = collective_steps(calls)
    assert steps.messages == ((StepMessage(0, 1, 4, 1, 2),), (StepMessage(0, 1, 4),))
    assert collective_steps(calls, nbytes=4).bounds == (0, 4)  # told so, a buffer of 4 bytes is the tensor


def test_without_places_all_messages_are_still_there():
    steps = collective_steps(record([event(0, 0, "send", 0, 1, peer=1)], [event(1, 0, "recv", 0, 2, peer=0)]))
    assert steps.bounds == (0,)
    assert steps.num_chunks == 0
    assert steps.messages == ((StepMessage(0, 1, 1000),),)
    assert steps.states == (((), ()), ((), ()))


def test_what_never_arrived_is_counted():
    hung = record(
        [at(event(0, 0, "send", 0, 1, peer=1), 0), at(event(0, 1, "recv", 2, None, peer=1), 0)],
        [at(event(1, 0, "recv", 0, 1.5, peer=0), 0)],
    )
    assert collective_steps(hung).lost == 1
    with pytest.raises(ValueError, match="no message of this record arrived"):
        collective_steps(hung.select(rank=0))


def run_plans(plans):
    """On each rank: every plan, on tensors that its number of chunks does not divide. A barrier ends each."""
    for plan in plans:
        flat = torch.ones(5 * plan.num_chunks + 3)
        execute(plan, Chunks.of(flat, plan.num_chunks), lambda mine, theirs: mine.add_(theirs))
        dist.barrier()


def runs_of(plans):
    """The record of each plan, from one run."""
    whole = run_ranks(run_plans, plans[0].num_ranks, plans, device="cpu", record=True, timeout=120).record
    return split_at_barriers(whole)[: len(plans)]


def split_at_barriers(whole):
    """The point-to-point calls of a record as one record for each part between barriers."""
    parts = [[[] for _ in range(whole.world_size)] for _ in range(len(whole.select(rank=0, op="barrier")) + 1)]
    for rank in range(whole.world_size):
        number = 0
        for call in whole.select(rank=rank):
            if call.is_p2p:
                parts[number][rank].append(call)
            else:
                number += 1
    return [merge(whole.world_size, calls, whole.label) for calls in parts]


def rows(states):
    return [tuple(map(tuple, state)) for state in states]


@pytest.mark.parametrize("num_ranks", [2, 4])
def test_recorded_runs_are_the_simulated_ones(num_ranks):
    N = num_ranks
    plans = [ring.all_reduce(N), ring.reduce_scatter(N), ring.all_gather(N), ring.all_to_all(N)]
    plans += [tree.all_reduce(N), tree.broadcast(N), tree.reduce(N, 1), tree.scatter(N), tree.gather(N)]
    plans += [halving_doubling.all_reduce(N), hierarchical.all_reduce(N, 2)]
    for plan, run in zip(plans, runs_of(plans), strict=True):
        steps = collective_steps(run, simulate.start(plan))
        assert rows(steps.states) == rows(simulate.simulate(plan)), plan
        for found, moves in zip(steps.messages, plan.steps, strict=True):
            assert {(m.src, m.dst, m.first, m.last) for m in found} == {(m.src, m.dst, m.first, m.last) for m in moves}


def test_every_plan_ends_as_it_promises():
    """Also where messages of different steps do not wait for each other, and the record has them in one."""
    plans = [plan for _, plan in all_plans(3)]
    for plan, run in zip(plans, runs_of(plans), strict=True):
        steps = collective_steps(run, simulate.start(plan))
        assert rows(steps.states)[-1] == rows(simulate.simulate(plan))[-1], plan
        assert len(steps.messages) <= len(plan.steps), plan


def collectives():
    """Collectives of the package, and a rank's own with a buffer for what arrives."""
    rank, size = dist.get_rank(), dist.get_world_size()
    mine = torch.full((4,), float(rank))
    all_gather([torch.empty(4) for _ in range(size)], mine)
    dist.barrier()
    reduce_scatter(torch.empty(4), [mine.clone() for _ in range(size)])
    dist.barrier()
    box = torch.empty(4)
    for k in range(size):
        if rank == k:
            dist.send(mine, (k + 1) % size)
        elif rank == (k + 1) % size:
            dist.recv(box, k)
            mine += box


def test_collectives_of_the_package_and_of_others_have_their_steps():
    whole = run_ranks(collectives, 3, device="cpu", record=True).record
    gathered, scattered, own = split_at_barriers(whole)
    everyone = frozenset(range(3))
    steps = collective_steps(gathered, simulate.start(ring.all_gather(3)))
    assert rows(steps.states)[-1] == (tuple(frozenset({c}) for c in range(3)),) * 3
    end = rows(collective_steps(scattered).states)[-1]
    assert [end[r][r] for r in range(3)] == [everyone] * 3
    passed_on = collective_steps(own)
    assert [[(m.src, m.dst) for m in step] for step in passed_on.messages] == [[(0, 1)], [(1, 2)], [(2, 0)]]
    assert passed_on.states[-1] == held("012", "01", "012")
