"""The reducer: bytes, calls, overlap and memory as its page says; what is left out is found; errors leave it usable."""

import time

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.utils.checkpoint import checkpoint

from dtlearn.data_parallel import ddp as ddp_module
from dtlearn.data_parallel.bucketed import BucketedDataParallel
from dtlearn.data_parallel.reducer import Reducer
from dtlearn.memory import StorageLedger
from dtlearn.runtime.errors import RanksDisagree
from dtlearn.runtime.run import run_ranks
from dtlearn.sharing.gradient_buckets import Bucket
from tests.data_parallel.runs import (
    SMALL,
    TOLERANCE,
    Normed,
    Paths,
    bucketed,
    distance_to_reference,
    message_of,
    mlp,
    ours,
    seeded_by_rank,
    settled,
    torch_ddp,
    views,
)
from tests.data_parallel.test_ddp import mine

GRADIENTS = sum(p.nbytes for p in mlp().parameters())
BUCKETS = [672, 2048, 896]  # bytes, see `test_ddp.described`


def trained(wrap, steps):
    """Steps, the last after one under `no_sync()`. Returns when this rank's last gradient of the last step came."""
    torch.manual_seed(dist.get_rank())
    model, came = mlp(), []
    model.layers[0].weight.register_post_accumulate_grad_hook(lambda _: came.append(time.monotonic_ns()))
    wrapped = wrap(model)
    for step in range(steps):
        if step == steps - 1:
            with wrapped.no_sync():
                wrapped(mine(step)).sum().backward()
        wrapped(mine(step)).sum().backward()
    return came[-1]


@pytest.mark.parametrize("wrap", [ours, views, bucketed, torch_ddp])
@pytest.mark.parametrize("world_size", [2, 3])
def test_bytes_and_messages(wrap, world_size):
    steps = 4
    result = run_ranks(trained, world_size, wrap, steps, device="cpu", record=True)
    for rank in range(world_size):
        sent = result.record.select(rank=rank, op="all_reduce", phase="backward")
        sizes = [e.nbytes for e in sent]
        if wrap is torch_ddp:  # its first step has one bucket; those after have ours
            assert sizes == [GRADIENTS] + BUCKETS * (steps - 1)
            continue
        assert sizes == BUCKETS * steps and len(result.record.select(rank=rank, op="all_reduce")) == len(sizes)
        assert result.record.nbytes(rank=rank, op="broadcast") == GRADIENTS
        assert all(e.asynchronous for e in sent)


@pytest.mark.parametrize("wrap", [ours, bucketed])
def test_buckets_leave_while_backward_goes_on(wrap):
    result = run_ranks(trained, 2, wrap, 3, device="cpu", record=True)
    for rank in (0, 1):
        first, second, last = result.record.select(rank=rank, op="all_reduce").events[-3:]
        ended = result.record.select(rank=rank, phase="backward").spans[-1].end_ns
        assert first.start_ns < second.start_ns < result[rank] < last.start_ns < ended
        assert max(e.end_ns for e in (first, second, last)) < ended  # and are there when `backward()` returns
        assert min(e.wait_ns for e in (first, second, last)) > last.start_ns  # nobody waits before all have left


def with_options():
    model = ours(seeded_by_rank(lambda: Paths().double()), find_unused_parameters=True)
    for step in range(2):
        model(mine(step), "ab").sum().backward()
    normed = ours(seeded_by_rank(lambda: Normed().double()))
    for step in range(2):
        with normed.no_sync():
            normed(mine(step)).sum().backward()
        normed(mine(step)).sum().backward()
    normed.eval()(mine(3))


def test_bytes_of_options():
    record = run_ranks(with_options, 2, device="cpu", record=True).record
    paths, normed = (sum(p.nbytes for p in m.double().parameters()) for m in (Paths(), Normed()))
    for rank in (0, 1):
        in_backward = record.select(rank=rank, op="all_reduce", phase="backward")
        assert in_backward.nbytes() == 2 * (paths + 4 * 8) + 2 * normed
        assert sum(e.nbytes == 4 * 8 and e.dtype == "int32" for e in in_backward) == 2
        # At the start, then once in each synchronised forward pass: two statistics of eight, and a count of batches.
        buffers = [e.nbytes for e in record.select(rank=rank, op="broadcast", phase="forward")]
        assert buffers == [8 * 16, 8] * 2


def memory(wrap, set_to_none):
    """Bytes: after wrapping; after the first backward pass; after the second; the most during that one."""
    model = seeded_by_rank(mlp)
    found = []
    with StorageLedger() as ledger:
        wrapped = wrap(model)
        found.append(settled(ledger, GRADIENTS))
        wrapped(mine(0)).sum().backward()
        found.append(settled(ledger, GRADIENTS if wrap is views else 2 * GRADIENTS))
        wrapped.zero_grad(set_to_none)
        ledger.peak = ledger.now
        wrapped(mine(1)).sum().backward()
        found += [ledger.now, ledger.peak]
    return found


@pytest.mark.parametrize("set_to_none", [True, False])
def test_memory_is_the_buckets_and_views_save_the_gradients(set_to_none):
    values = {wrap: run_ranks(memory, 2, wrap, set_to_none, device="cpu")[0] for wrap in (ours, views)}
    assert values[ours][:3] == [GRADIENTS, 2 * GRADIENTS, 2 * GRADIENTS]
    assert values[views][:3] == [GRADIENTS, GRADIENTS, GRADIENTS]
    assert values[views][3] < values[ours][3]
    if not set_to_none:  # autograd adds into the bucket; otherwise only one layer's gradient at a time is beside it
        assert values[ours][3] - values[views][3] == GRADIENTS


class Work:
    def wait(self):
        return None


def leave_out_one_bucket(monkey):
    launch = Reducer._launch
    monkey(Reducer, "_launch", lambda r, s: setattr(s, "under_way", Work()) if s.bucket.index == 1 else launch(r, s))


def divide_by_nothing(monkey):
    put = Reducer._put
    monkey(Reducer, "_put", lambda r, number: (setattr(r, "divisor", 1), put(r, number)))


def never_hand_out(monkey):
    monkey(Reducer, "_hand_out", lambda *args: None)


def wait_for_nobody(monkey):
    """The buffers are handed out before they were summed."""
    monkey(Reducer, "_launch", lambda r, s: setattr(s, "under_way", Work()))


def no_broadcast(monkey):
    monkey(ddp_module, "broadcast_module", lambda *args, **kwargs: None)


def sabotaged(sabotage):
    sabotage(setattr)
    return distance_to_reference("mlp", ours, "sgd")


@pytest.mark.parametrize(
    "sabotage", [leave_out_one_bucket, divide_by_nothing, never_hand_out, wait_for_nobody, no_broadcast]
)
def test_without_it_the_parity_fails(sabotage):
    assert max(run_ranks(sabotaged, 2, sabotage, device="cpu")) > 1e-3


class Branches(nn.Module):
    """Two branches; the second rank computes them in another order, and so does its backward pass."""

    def __init__(self, wide):
        super().__init__()
        self.a, self.b = nn.Linear(6, 4), nn.Linear(6, 4, bias=not wide)
        if wide:
            self.b = nn.Sequential(nn.Linear(6, 8), nn.Linear(8, 4))

    def forward(self, x):
        if dist.get_rank() == 0:
            left = self.a(x)
            right = self.b(x)
        else:
            right = self.b(x)
            left = self.a(x)
        return left + 2 * right


def launch_what_is_ready(reducer):
    for slot in reducer._slots:
        if slot.missing == 0 and slot.under_way is None:
            reducer._launch(slot)


def send_what_is_ready(model, number):
    with torch.no_grad():
        torch.div(model.trained[number].grad, 2, out=model.views[number])
    model.missing[model.bucket_of[number]].remove(number)
    sent = model.__dict__.setdefault("sent", set())
    for index, missing in enumerate(model.missing):
        if not missing and index not in sent:
            sent.add(index)
            model.works.append(dist.all_reduce(model.flat[index], async_op=True))


def orders_that_differ(wide, in_ready_order, wrap):
    """How far the gradients are from the mean. One bucket for each parameter."""
    if in_ready_order:
        Reducer._launch_full = launch_what_is_ready
        BucketedDataParallel.gradient_is_ready = send_what_is_ready
    model = wrap(seeded_by_rank(lambda: Branches(wide).double()), bucket_cap_mb=1e-5)
    model(mine(0)).square().sum().backward()
    found = [p.grad.clone() for p in model.parameters()]
    model.zero_grad()
    model.module(mine(0)).square().sum().backward()
    for p in model.parameters():
        dist.all_reduce(p.grad)
    return max((a - p.grad / 2).abs().max().item() for a, p in zip(found, model.parameters(), strict=True))


@pytest.mark.parametrize("wrap", [ours, bucketed])
@pytest.mark.parametrize("wide", [True, False])
def test_the_order_of_the_plan_holds_whatever_is_ready_first(wide, wrap):
    assert max(run_ranks(orders_that_differ, 2, wide, False, wrap, device="cpu")) < TOLERANCE


@pytest.mark.parametrize("wrap", [ours, bucketed])
def test_buckets_launched_as_they_are_ready_pair_wrongly(wrap):
    assert max(run_ranks(orders_that_differ, 2, False, True, wrap, device="cpu")) > 0.01  # equal sizes: nobody notices
    with pytest.raises(RanksDisagree):
        run_ranks(orders_that_differ, 2, True, True, wrap, device="cpu", timeout=30)


def unused_without_the_flag(on_rank):
    """The errors of three ranks, and whether the next step is right."""
    model = ours(seeded_by_rank(lambda: Paths().double()))
    use = "ab" if dist.get_rank() in on_rank else "abcd"
    error = message_of(lambda: model(mine(0), use).sum().backward())
    model.zero_grad()
    model(mine(1), "abcd").square().sum().backward()
    gradients = [torch.empty_like(model.module.a.weight) for _ in range(3)]
    dist.all_gather(gradients, model.module.a.weight.grad)
    return error, all(torch.equal(g, gradients[0]) for g in gradients)


@pytest.mark.parametrize("on_rank", [(0, 1, 2), (1,)])
def test_a_parameter_without_a_gradient_is_named_and_nobody_waits(on_rank):
    for rank, (error, right) in enumerate(run_ranks(unused_without_the_flag, 3, on_rank, device="cpu")):
        assert right
        if rank in on_rank:
            assert error.startswith(
                "RuntimeError: 4 of 8 parameters got no gradient in this backward pass: c.weight, c.bias"
            )
            assert "use find_unused_parameters=True" in error
        else:
            assert error == ""


class Shared(nn.Module):
    def __init__(self, twice):
        super().__init__()
        self.first, self.layer, self.twice = nn.Linear(6, 6), nn.Linear(6, 6), twice

    def forward(self, x):
        x = self.first(x)
        for _ in range(1 + self.twice):
            x = checkpoint(self.layer, x, use_reentrant=True)
        return x


def refused():
    """Errors in backward; after each the model still trains."""
    found = {}
    model = ours(seeded_by_rank(lambda: Shared(True).double()))
    found["twice"] = message_of(lambda: model(mine(0)).sum().backward())
    model = ours(seeded_by_rank(lambda: Shared(False).double()), find_unused_parameters=True)
    found["hidden"] = message_of(lambda: model(mine(0)).sum().backward())
    model = ours(nn.Embedding(10, 3, sparse=True))
    found["sparse"] = message_of(lambda: model(torch.tensor([1, 2])).sum().backward())
    found["plan"] = message_of(
        lambda: Reducer(
            nn.Linear(2, 2).named_parameters(),
            [Bucket(0, (0,), 16)],
            group=None,
            gradient_as_bucket_view=False,
            find_unused_parameters=False,
        )
    )
    return found


def test_what_it_cannot_do_is_said():
    for found in run_ranks(refused, 2, device="cpu"):
        for case in ("twice", "hidden"):
            assert found[case].startswith("RuntimeError: the gradient of layer.")
            assert "complete already" in found[case] and "use use_reentrant=False" in found[case]
        assert found["sparse"] == "RuntimeError: weight has a sparse gradient, which buckets cannot hold"
        assert found["plan"].startswith("ValueError: parameter 1 is in no bucket")


def after_an_error(wrap, retain):
    """A hook on the first layer raises when two buckets have left. Then, with or without a new forward pass, again."""
    model = wrap(seeded_by_rank(mlp))

    def broken(_):
        raise ZeroDivisionError("in a hook")

    handle = model.module.layers[0].weight.register_hook(broken)
    loss = model(mine(0)).square().sum()
    error = message_of(lambda: loss.backward(retain_graph=retain))
    handle.remove()
    model.zero_grad()
    (loss if retain else model(mine(0)).square().sum()).backward()
    found = [p.grad.clone() for p in model.parameters()]
    model.zero_grad()
    model.module(mine(0)).square().sum().backward()
    for p in model.parameters():
        dist.all_reduce(p.grad)
    return error, max((a - p.grad / 2).abs().max().item() for a, p in zip(found, model.parameters(), strict=True))


@pytest.mark.parametrize("wrap", [ours, views, bucketed])
@pytest.mark.parametrize("retain", [True, False])
def test_a_clean_step_follows_an_error_in_backward(wrap, retain):
    for error, away in run_ranks(after_an_error, 2, wrap, retain, device="cpu"):
        assert error == "ZeroDivisionError: in a hook" and away < TOLERANCE


def second_order(wrap):
    """With `create_graph=True` gradients have a graph themselves; they are averaged too."""
    model = wrap(seeded_by_rank(mlp), bucket_cap_mb=SMALL)
    model(mine(0)).square().sum().backward(create_graph=True)
    gradients = [torch.empty_like(p) for p in (model.module.layers[0].weight,) * 2]
    dist.all_gather(gradients, model.module.layers[0].weight.grad.detach())
    model.zero_grad()
    return torch.equal(*gradients)


@pytest.mark.parametrize("wrap", [ours, bucketed])
def test_gradients_with_a_graph_of_their_own_are_averaged(wrap):
    assert run_ranks(second_order, 2, wrap, device="cpu").values == [True, True]
