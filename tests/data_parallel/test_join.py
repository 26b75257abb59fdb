"""`join`: ranks with fewer batches shadow the others; the same as torch's, for any numbers of batches."""

import contextlib

import pytest
import torch
import torch.distributed as dist
from torch import nn

from dtlearn.data_parallel.join import Join
from dtlearn.runtime.errors import RanksTimeout
from dtlearn.sharing.comm_hooks import allreduce_hook
from tests.data_parallel.runs import (
    TOLERANCE,
    Normed,
    Paths,
    distance,
    mlp,
    ours,
    seeded_by_rank,
    snapshot,
    torch_ddp,
    views,
)
from tests.data_parallel.test_ddp import mine, too_far
from tests.devices import run_ranks

MAKE = {"mlp": mlp, "normed": lambda: Normed().double(), "unused": lambda: Paths().double()}


def joined(wrap, name, counts, initial, hook=None):
    """Train with as many batches as `counts` says for this rank: a snapshot of each step, then the final model."""
    options = {"find_unused_parameters": True} if name == "unused" else {}
    wrapped = wrap(seeded_by_rank(MAKE[name]), **options)
    if hook is not None:
        wrapped.register_comm_hook(None, hook)
    optimizer, found, rank = torch.optim.SGD(wrapped.parameters(), lr=0.05), [], dist.get_rank()
    with wrapped.join(divide_by_initial_world_size=initial):
        for step in range(counts[rank]):
            optimizer.zero_grad()
            inputs = (mine(step), "abc"[(step + rank) % 3] + "c") if name == "unused" else (mine(step),)
            wrapped(*inputs).square().sum().backward()
            optimizer.step()
            found.append(snapshot(wrapped.module))
    found.append({key: value for key, value in snapshot(wrapped.module).items() if not key.endswith(".grad")})
    wrapped(*([mine(9), "abcd"] if name == "unused" else [mine(9)])).square().sum().backward()  # and on as before
    return [*found, snapshot(wrapped.module)]


def zeros_where_only_they_have(steps, theirs):
    """In torch's `join` an early rank repeats old marks of use: what nobody used gets a gradient of zeros, not none."""
    return [
        {**{key: torch.zeros_like(value) for key, value in b.items() if key.endswith(".grad")}, **a}
        for a, b in zip(steps, theirs, strict=True)
    ]


def beside_torch(all_counts, names):
    found, same = {}, []
    for counts in all_counts:
        for name in names:
            for initial in (True, False):
                theirs = joined(torch_ddp, name, counts, initial)
                for wrap in (ours, views):
                    steps = joined(wrap, name, counts, initial)
                    filled = zeros_where_only_they_have(steps, theirs) if name == "unused" else steps
                    found[name, counts, initial, wrap.__name__] = distance(filled, theirs)
                    same.append(steps[-2])
    theirs = joined(torch_ddp, "mlp", all_counts[0], True, allreduce_hook)
    found["hook"] = distance(joined(ours, "mlp", all_counts[0], True, allreduce_hook), theirs)
    return found, same


@pytest.mark.parametrize(
    ("world_size", "counts"), [(2, [(3, 1), (1, 3), (0, 2), (2, 0)]), (4, [(3, 1, 2, 3), (0, 2, 0, 1)])]
)
def test_it_is_torchs(world_size, counts, device):
    names = list(MAKE)
    if device != "cpu":
        counts, names = counts[:1], ["normed"]
    values = run_ranks(beside_torch, world_size, counts, names, device=device, timeout=110).values
    for found, same in values:
        assert len(found) == 4 * len(names) * len(counts) + 1 and not too_far(found)
        assert distance(same, values[0][1]) == 0  # at the end every rank has the same model


def each_step_alone(initial):
    """How far the gradients of each step are from what they should be; rank 0 has two batches, rank 1 has one."""
    wrapped, rank = ours(seeded_by_rank(mlp)), dist.get_rank()

    def gradient(model):
        return torch.cat([p.grad.flatten() for p in model.parameters()])

    found = []
    with wrapped.join(initial):
        for step in range(2 - rank):
            wrapped.zero_grad()
            wrapped(mine(step)).square().sum().backward()
            found.append(gradient(wrapped))
    wrapped.zero_grad()
    wrapped.module(mine(0)).square().sum().backward()
    first = gradient(wrapped)
    dist.all_reduce(first)
    wrapped.zero_grad()
    wrapped.module(mine(1)).square().sum().backward()
    expected = [first / 2, gradient(wrapped) / (2 if initial else 1)]
    return max((a - b).abs().max().item() for a, b in zip(found, expected, strict=False))


@pytest.mark.parametrize("initial", [True, False])
def test_gradients_are_divided_by_all_ranks_or_by_those_that_train(initial):
    assert max(run_ranks(each_step_alone, 2, initial, device="cpu")) < TOLERANCE


def accumulated(use_join):
    """Two steps of one micro-batch on rank 0 and of three on rank 1."""
    wrapped, rank = ours(seeded_by_rank(mlp)), dist.get_rank()
    optimizer = torch.optim.SGD(wrapped.parameters(), lr=0.05)
    with wrapped.join() if use_join else contextlib.nullcontext():
        for step in range(2):
            optimizer.zero_grad()
            with wrapped.no_sync():
                for micro in range(2 * rank):
                    wrapped(mine(10 * step + micro)).square().sum().backward()
            wrapped(mine(step)).square().sum().backward()
            optimizer.step()
    return [snapshot(wrapped.module)]


def test_ranks_may_accumulate_over_different_numbers_of_micro_batches():
    for a, b in zip(
        run_ranks(accumulated, 2, True, device="cpu"), run_ranks(accumulated, 2, False, device="cpu"), strict=True
    ):
        assert distance(a, b) == 0


def without_buffers():
    """With `broadcast_buffers=False` each rank keeps its own statistics, also at the end."""
    wrapped, rank = ours(seeded_by_rank(MAKE["normed"]), broadcast_buffers=False), dist.get_rank()
    with wrapped.join():
        for step in range(1 + rank):
            wrapped(mine(step)).square().sum().backward()
    return wrapped.module.norm.num_batches_tracked.item(), wrapped.module.norm.running_mean.tolist()


def test_buffers_can_stay_where_they_are():
    (first, mean), (second, other_mean) = run_ranks(without_buffers, 2, device="cpu")
    assert (first, second) == (1, 2) and mean != other_mean


def counted(counts):
    wrapped = ours(seeded_by_rank(mlp), bucket_cap_mb=25)
    with wrapped.join():
        for step in range(counts[dist.get_rank()]):
            with wrapped.no_sync():
                wrapped(mine(step)).sum().backward()
            wrapped(mine(step)).sum().backward()


@pytest.mark.parametrize("counts", [(2, 2, 2), (3, 0, 1)])
def test_bytes_and_messages(counts):
    record = run_ranks(counted, 3, counts, device="cpu", record=True).record
    model, steps = sum(p.nbytes for p in mlp().parameters()), max(counts)
    for rank in range(3):
        assert [e.nbytes for e in record.select(rank=rank, op="all_reduce")] == [12, model] * steps + [12]
        assert record.nbytes(rank=rank, op="broadcast") == model * (1 if len(set(counts)) == 1 else 2)


def raises_inside():
    wrapped = ours(seeded_by_rank(mlp))
    try:
        with wrapped.join(divide_by_initial_world_size=False):
            wrapped(mine(0)).sum().backward()
            raise ZeroDivisionError
    except ZeroDivisionError:
        pass
    wrapped(mine(0)).sum().backward()  # without `join` again
    return wrapped._join is None


def test_an_error_ends_it_at_once():
    result = run_ranks(raises_inside, 2, device="cpu", record=True)
    assert result.values == [True, True]
    assert result.record.select(rank=0, op="all_reduce").nbytes() == 2 * sum(p.nbytes for p in mlp().parameters()) + 8


def uneven_without():
    wrapped = ours(seeded_by_rank(mlp))
    for step in range(1 + dist.get_rank()):
        wrapped(mine(step)).sum().backward()


def test_without_it_the_rank_that_goes_on_waits():
    with pytest.raises(Exception, match="rank 1") as caught:
        run_ranks(uneven_without, 2, device="cpu", timeout=30)
    assert not isinstance(caught.value, RanksTimeout)  # named by the watch, long before


def nobody_uses(counts):
    """Which layers have a gradient after each step of a rank that trains on."""
    wrapped, found, rank = ours(MAKE["unused"](), find_unused_parameters=True), [], dist.get_rank()
    with wrapped.join():
        for step in range(counts[rank]):
            wrapped.zero_grad()
            wrapped(mine(step), "ac"[step]).sum().backward()
            found.append("".join(name for name in "abcd" if getattr(wrapped.module, name).weight.grad is not None))
    return found


def test_an_early_rank_uses_nothing():
    assert run_ranks(nobody_uses, 2, (2, 1), device="cpu").values == [["a", "c"], ["a"]]


class Noted:
    """Has what `Joinable` asks for and nothing else, and notes what is asked."""

    def __init__(self):
        self.weight, self.notes, self.join = nn.Parameter(torch.zeros(1)), [], None

    def parameters(self):
        return iter([self.weight])

    def join_with(self, join):
        self.join = join
        self.notes.append("with" if join else "without")

    def average_over(self, count):
        self.notes.append(count)

    def shadow_step(self, source):
        self.notes.append(f"shadow {source}")

    def copy_from(self, rank):
        self.notes.append(f"copy {rank}")


def noted(initial):
    model = Noted()
    with Join(model, initial):
        for _ in range([2, 0, 1][dist.get_rank()]):
            model.notes.append(f"last {model.join.announce()}")
    return model.notes


def test_it_asks_a_model_for_what_it_declares_and_no_more():
    expected = [
        ["with", 2, "last 2", 1, "last 0", "without", "copy 0", 3],
        ["with", "without", 2, "shadow 2", 1, "shadow 0", "copy 0", 3],
        ["with", 2, "last 2", "without", 1, "shadow 0", "copy 0", 3],
    ]
    assert run_ranks(noted, 3, False, device="cpu").values == expected
    fixed = [[note for note in notes if note not in (1, 2)] for notes in expected]
    assert run_ranks(noted, 3, True, device="cpu").values == fixed
