"""Large tensors travel in parts, which are received a few ahead into the same buffers."""

import pytest
import torch
import torch.distributed as dist

import dtlearn
from dtlearn.collectives import execute as execute_module
from dtlearn.collectives import halving_doubling, hierarchical, naive, ring, tree
from dtlearn.collectives.algorithms.plan import Move
from dtlearn.collectives.execute import AHEAD, Chunks, Inbox, execute
from tests.devices import run_ranks


def in_small_parts(plans, segment):
    """On each rank: is the sum right that each plan makes, with parts of that many bytes?"""
    execute_module.SEGMENT = segment
    sums = []
    for plan in plans:
        torch.manual_seed(dist.get_rank())
        mine = torch.randint(-99, 99, (173,), dtype=torch.int16).to(dtlearn.device())
        whole = mine.to(torch.int32)
        dist.all_reduce(whole)
        execute(plan, Chunks.of(mine, plan.num_chunks), lambda a, b: a.add_(b))
        sums.append(torch.equal(mine.to(torch.int32), whole))
    return sums


def test_so_they_give_on_another_device(other_device):
    plans = [m.all_reduce(2) for m in (ring, tree, naive)]
    assert run_ranks(in_small_parts, 2, plans, 10, device=other_device).values == [[True] * 3] * 2


@pytest.mark.parametrize("segment", [2, 10])
def test_any_number_of_parts_gives_the_sum(segment):
    plans = [m.all_reduce(4) for m in (ring, tree, halving_doubling, naive)] + [hierarchical.all_reduce(4, 2)]
    done = run_ranks(in_small_parts, 4, plans, segment, device="cpu", record=True, timeout=120)
    assert done.values == [[True] * 5] * 4
    parts = 173 * 2 / segment
    assert len(done.record.select(rank=0, op="irecv")) > parts > AHEAD


class Done:
    def wait(self):
        return True


def test_parts_are_received_ahead_into_buffers_that_are_used_again():
    posted = []

    def receive(move, into):
        posted.append(into)
        into.fill_(len(posted))
        return Done()

    inbox = Inbox(receive)
    target = torch.zeros(8 * 4)
    moves = [(Move(1, 0, 0, 1, reduce=True), part) for part in target.split(4)]
    inbox.expect(moves)
    assert len(posted) == AHEAD
    for seen, (_, place, received) in enumerate(inbox.arrivals(), start=1):
        place += received
        assert len(posted) - seen < AHEAD
    assert target.view(8, 4)[:, 0].tolist() == list(range(1, 9))
    assert len({into.data_ptr() for into in posted}) == AHEAD


def test_what_replaces_is_received_in_its_place():
    target, posted = torch.zeros(3), []
    inbox = Inbox(lambda move, into: posted.append(into) or Done())
    inbox.expect([(Move(1, 0, 0, 1), target)])
    assert [(place is target, received.data_ptr()) for _, place, received in inbox.arrivals()] == [
        (True, target.data_ptr())
    ]
    assert posted[0].data_ptr() == target.data_ptr()


def peak_bytes(algorithm, numel):
    import torch

    from dtlearn.collectives import all_reduce
    from dtlearn.memory import StorageLedger

    x = torch.ones(numel)
    with StorageLedger() as ledger:
        all_reduce(x, algorithm=algorithm)
    return ledger.peak


@pytest.mark.parametrize("world_size", [2, 3, 4])
def test_memory_is_what_one_step_receives(world_size):
    """The ledger's peak, in bytes: a ring holds one chunk, n/N; a tree and the naive way hold a whole tensor."""
    n = 4 * 1200
    assert set(run_ranks(peak_bytes, world_size, "ring", 1200).values) == {n // world_size}
    assert max(run_ranks(peak_bytes, world_size, "tree", 1200).values) == n
    assert run_ranks(peak_bytes, world_size, "naive", 1200).values == [n] + [0] * (world_size - 1)


def test_memory_of_large_tensors_is_bounded_by_the_parts_that_are_received_ahead():
    numel = 12_000_000  # 48 MB
    assert max(run_ranks(peak_bytes, 2, "tree", numel).values) <= AHEAD * execute_module.SEGMENT
    assert max(run_ranks(peak_bytes, 2, "ring", numel).values) <= AHEAD * execute_module.SEGMENT
