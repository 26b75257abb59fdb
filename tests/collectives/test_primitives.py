"""The eight collectives on real ranks: parity with torch's own, the same bits everywhere, bytes as the formula says."""

import functools

import pytest

from tests.devices import run_ranks

SIZES = [1, 2, 3, 4]


def parity(group_of=None, numels=(1, 5, 12, 1000)):
    """Compare every collective and algorithm with gloo's, for several dtypes, sizes and strides."""
    import torch
    import torch.distributed as dist

    import dtlearn
    from dtlearn.collectives import primitives as p

    group = dist.new_group(group_of) if group_of is not None else None
    if group_of is not None and dist.get_rank() not in group_of:
        return 0
    me, N = dist.get_rank(group), dist.get_world_size(group)
    first = group_of[0] if group_of else 0  # global rank of the group's rank 0
    last = group_of[-1] if group_of else N - 1
    checked, here = 0, dtlearn.device()

    def data(numel, dtype, salt=0):
        g = torch.Generator().manual_seed(17 * me + salt)
        return (torch.randn(numel, generator=g) * 8).to(here, dtype)

    def same(ours, theirs):
        nonlocal checked
        checked += 1
        tolerance = {torch.float32: 1e-5, torch.float64: 1e-12, torch.bfloat16: 5e-2}.get(ours.dtype, 0)
        torch.testing.assert_close(ours, theirs, rtol=tolerance, atol=4 * tolerance)

    def bits_agree(tensor):
        all_bits = [torch.empty_like(tensor) for _ in range(N)]
        dist.all_gather(all_bits, tensor, group=group)
        assert all(torch.equal(b.view(torch.uint8), tensor.view(torch.uint8)) for b in all_bits)

    algorithms = ["ring", "tree", "double-tree", "halving-doubling", "naive", *(["hierarchical"] if N % 2 == 0 else [])]
    for numel in numels:
        for dtype in (torch.float32, torch.float64, torch.bfloat16, torch.int64):
            for name in algorithms:
                x = data(numel, dtype)
                ours, theirs = x.clone(), x.double() if dtype is torch.bfloat16 else x.clone()
                more = {"ranks_per_node": 2} if name == "hierarchical" else {}
                p.all_reduce(ours, algorithm=name, group=group, **more)
                dist.all_reduce(theirs, group=group)
                same(ours, theirs.to(dtype))
                bits_agree(ours)
        for op in (dist.ReduceOp.MAX, dist.ReduceOp.MIN, dist.ReduceOp.PRODUCT):
            ours, theirs = data(numel, torch.float32), data(numel, torch.float32)
            p.all_reduce(ours, op, group=group)
            dist.all_reduce(theirs, op, group=group)
            same(ours, theirs)
        mean, total = data(numel, torch.float32), data(numel, torch.float32)
        p.all_reduce(mean, dist.ReduceOp.AVG, group=group)
        dist.all_reduce(total, group=group)
        same(mean, total / N)
        for name in ("tree", "naive"):
            for root in {first, last}:
                ours, theirs = data(numel, torch.float32), data(numel, torch.float32)
                p.broadcast(ours, root, algorithm=name, group=group)
                dist.broadcast(theirs, root, group=group)
                same(ours, theirs)
                ours, theirs, mine = data(numel, torch.float32), data(numel, torch.float32), data(numel, torch.float32)
                p.reduce(ours, root, algorithm=name, group=group)
                dist.reduce(theirs, root, group=group)
                same(ours, theirs if dist.get_rank() == root else mine)  # the others keep theirs
                parts = [data(numel, torch.float32, k) for k in range(N)] if dist.get_rank() == root else None
                ours, theirs = torch.empty(numel, device=here), torch.empty(numel, device=here)
                p.scatter(ours, parts, root, algorithm=name, group=group)
                dist.scatter(theirs, parts, root, group=group)
                same(ours, theirs)
                places = [[torch.empty(numel, device=here) for _ in range(N)] for _ in range(2)]
                at_root = dist.get_rank() == root
                p.gather(data(numel, torch.float32), places[0] if at_root else None, root, algorithm=name, group=group)
                dist.gather(data(numel, torch.float32), places[1] if at_root else None, root, group=group)
                for a, b in zip(*places, strict=True) if at_root else ():
                    same(a, b)
        for name in ("ring", "naive"):
            sizes = [numel + r for r in range(N)]  # uneven
            whole = [torch.empty(s, device=here) for s in sizes]
            p.all_gather(whole, data(sizes[me], torch.float32), algorithm=name, group=group)
            for r, part in enumerate(whole):
                g = torch.Generator().manual_seed(17 * r)
                same(part, torch.randn(sizes[r], generator=g).to(here) * 8)
            parts = [data(s, torch.float32, k) for k, s in enumerate(sizes)]
            kept = [t.clone() for t in parts]
            ours = torch.empty(sizes[me], device=here)
            p.reduce_scatter(ours, parts, algorithm=name, group=group)
            totals = [t.clone() for t in kept]
            for t in totals:
                dist.all_reduce(t, group=group)
            same(ours, totals[me])
            assert all(torch.equal(a, b) for a, b in zip(parts, kept, strict=True))  # inputs are left alone
            out = [torch.empty(numel + s, device=here) for s in range(N)]
            p.all_to_all(out, [data(numel + me, torch.float32, d) for d in range(N)], algorithm=name, group=group)
            for s in range(N):
                g = torch.Generator().manual_seed(17 * s + me)
                same(out[s], torch.randn(numel + s, generator=g).to(here) * 8)
    turned = torch.arange(12.0, device=here).reshape(3, 4).t() + me  # not contiguous
    p.all_reduce(turned, group=group)
    same(turned, torch.arange(12.0, device=here).reshape(3, 4).t() * N + sum(range(N)))
    empty = torch.empty(0, device=here)
    p.all_reduce(empty, group=group)
    p.barrier(group=group)
    return checked


@functools.cache
def run_of_parity(world_size):
    return run_ranks(parity, world_size, record=True)


@pytest.mark.parametrize("world_size", SIZES)
def test_parity_with_torch(world_size):
    assert min(run_of_parity(world_size).values) > 100


@pytest.mark.parametrize("world_size", [2, 4])
def test_parity_with_torch_on_another_device(world_size, other_device):
    assert min(run_ranks(parity, world_size, None, (5,), device=other_device).values) > 20


def test_parity_on_a_sub_group():
    assert run_ranks(parity, 4, [1, 2, 3]).values[1] > 100


def parity_in_batches():
    """As with NCCL, whose messages have to be handed over together; gloo takes them so, too."""
    from dtlearn.collectives import execute

    execute.wants_batches = lambda group: True
    return parity()


@pytest.mark.parametrize("world_size", [2, 3])
def test_parity_with_torch_in_batches(world_size):
    run = run_ranks(parity_in_batches, world_size, record=True)
    assert min(run.values) > 100
    assert run.record.counts() == run_of_parity(world_size).record.counts()


def large(algorithm):
    """Far beyond any buffer on the way: blocking sends would hang here."""
    import torch

    from dtlearn.collectives import all_reduce

    x = torch.ones(2_000_003)
    all_reduce(x, algorithm=algorithm)
    return float(x.min()), float(x.max())


@pytest.mark.parametrize("algorithm", ["ring", "tree", "halving-doubling", "naive"])
def test_no_deadlock_at_sizes_that_no_buffer_holds(algorithm):
    assert run_ranks(large, 3, algorithm, timeout=30).values == [(3.0, 3.0)] * 3


def sends(algorithm, numel):
    import torch

    from dtlearn.collectives import all_reduce

    all_reduce(torch.ones(numel), algorithm=algorithm)


@pytest.mark.parametrize("world_size", [2, 3, 4])
def test_bytes_and_messages_on_the_wire_are_those_of_the_formula(world_size):
    N, numel = world_size, 1200  # divided by 2, 3 and 4
    record = run_ranks(sends, N, "ring", numel, record=True).record
    for rank in range(N):
        mine = record.select(rank=rank, op="isend")
        assert sum(e.nbytes for e in mine) == 2 * (N - 1) * numel * 4 // N
        assert len(mine) == 2 * (N - 1)
    naive = run_ranks(sends, N, "naive", numel, record=True).record
    assert sum(e.nbytes for e in naive.select(rank=0, op="isend")) == (N - 1) * numel * 4


def skips_one():
    """Sabotage: one rank leaves out its last step."""
    from dataclasses import replace

    import torch
    import torch.distributed as dist

    from dtlearn.collectives import ring
    from dtlearn.collectives.execute import Chunks, execute
    from dtlearn.collectives.reduction import SUM, combine

    plan, x = ring.all_reduce(2), torch.ones(4) * (1 + dist.get_rank())
    execute(replace(plan, steps=plan.steps[:-1]), Chunks.of(x, 2), combine(SUM))
    return x.tolist()


def test_without_its_last_step_the_result_is_wrong():
    assert run_ranks(skips_one, 2).values != [[3.0] * 4] * 2


def wrong_arguments():
    import torch
    import torch.distributed as dist

    from dtlearn.collectives import primitives as p
    from dtlearn.collectives import ring
    from dtlearn.collectives.execute import Chunks, execute
    from dtlearn.collectives.reduction import SUM, combine

    x, found = torch.ones(4), []
    for call in (
        lambda: p.all_reduce(x, algorithm="telepathy"),
        lambda: p.all_reduce(x, algorithm="hierarchical"),
        lambda: p.all_reduce(x, ranks_per_node=2),
        lambda: p.all_reduce(torch.ones(2, dtype=torch.int64), dist.ReduceOp.AVG),
        lambda: p.all_reduce(x, dist.ReduceOp.BAND),
        lambda: p.all_gather([x], x),
        lambda: p.scatter(x, None if dist.get_rank() == 0 else [x, x]),
        lambda: p.gather(x, [torch.ones(3), torch.ones(3)]) if dist.get_rank() == 0 else None,
        lambda: execute(ring.all_reduce(5), Chunks.of(x, 5), combine(SUM)),
        lambda: p.scatter(x, [torch.ones(3), torch.ones(3)]) if dist.get_rank() == 0 else None,
        lambda: p.scatter(x, [x, x.long()]) if dist.get_rank() == 0 else None,
        lambda: p.scatter(x, [x]) if dist.get_rank() == 0 else None,
        lambda: p.reduce_scatter(x, [x]),
        lambda: p.all_to_all([x, x], [x]),
        lambda: p.all_to_all([x, x, x], [x, x]),
        lambda: p.gather(x, [x, x] if dist.get_rank() == 1 else None),
    ):
        try:
            call()
            found.append("")
        except ValueError as error:
            found.append(str(error))
        dist.barrier()
    return found


def test_wrong_arguments_are_said_before_anything_is_sent():
    for said in run_ranks(wrong_arguments, 2).values:
        for text, words in zip(
            said,
            ["ring, tree", "both or neither", "both or neither", "floating-point", "SUM, AVG", "one tensor per rank"],
            strict=False,
        ):
            assert words in text, said
        assert "source rank" in said[6] and "5 ranks" in said[8]
    of_root, of_other = run_ranks(wrong_arguments, 2).values
    assert all("like this rank's: 4 elements of torch.float32" in of_root[k] for k in (7, 9, 10))
    for said in (of_root[11], *of_root[12:15], *of_other[12:15]):
        assert said.startswith("one tensor per rank is needed: 2; got ")
    assert "destination rank, and there only" in of_root[15] and "destination rank" in of_other[15]


def means():
    """What a mean is on rank 1, where it is wanted, on rank 0, and of parts; the last one over whole numbers."""
    import torch
    import torch.distributed as dist

    from dtlearn.collectives import primitives as p

    reduced, part = torch.tensor([2.0 * dist.get_rank()]), torch.empty(1)
    p.reduce(reduced, 1, dist.ReduceOp.AVG)
    p.reduce_scatter(part, [torch.tensor([4.0 * dist.get_rank() + k]) for k in (0, 1)], dist.ReduceOp.AVG)
    try:
        p.reduce(torch.tensor([1]), 1, dist.ReduceOp.AVG)
        error = ""
    except ValueError as refused:
        error = str(refused)
    return reduced.item(), part.item(), error


def test_means_are_divided_where_the_sum_is_complete():
    assert run_ranks(means, 2).values == [
        (0.0, 2.0, ""),
        (1.0, 3.0, "a mean needs a floating-point tensor; got torch.int64"),
    ]


def waits():
    """How often a barrier reads its token: a GPU's calls return before they are done."""
    import torch

    from dtlearn.collectives import barrier

    item, times = torch.Tensor.item, []
    torch.Tensor.item = lambda tensor: times.append(tensor.numel()) or item(tensor)
    try:
        barrier()
    finally:
        torch.Tensor.item = item
    return times


def test_a_barrier_waits_for_the_device():
    assert run_ranks(waits, 2).values == [[1], [1]]
