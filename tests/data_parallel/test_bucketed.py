"""The page with buckets and hooks only. Parity, bytes and order: `test_ddp.py`, `test_reducer.py`, run for both."""

import gc
import weakref

import pytest
import torch
import torch.distributed as dist
from torch import nn

from dtlearn.data_parallel import bucketed as bucketed_module
from dtlearn.data_parallel.bucketed import BucketedDataParallel
from dtlearn.memory import StorageLedger
from tests.data_parallel.runs import (
    SMALL,
    Paths,
    bucketed,
    distance_to_reference,
    message_of,
    mlp,
    ours,
    seeded_by_rank,
    settled,
)
from tests.data_parallel.test_ddp import mine
from tests.devices import run_ranks

GRADIENTS = sum(p.nbytes for p in mlp().parameters())


class Work:
    def wait(self):
        return None


def leave_out_one_bucket(monkey):
    """The second bucket is never sent."""
    all_reduce = dist.all_reduce

    def some(flat, **options):
        return Work() if flat.nbytes == 2048 else all_reduce(flat, **options)

    monkey(dist, "all_reduce", some)


def wait_for_nobody(monkey):
    """The buffers are handed out before they were summed."""
    monkey(dist, "all_reduce", lambda *args, **options: Work())


def divide_by_nothing(monkey):
    monkey(torch, "div", lambda gradient, _, out: out.copy_(gradient))


def never_hand_out(monkey):
    ends = BucketedDataParallel.backward_ends

    def keeps(model):
        own = [p.grad.clone() for p in model.trained]
        ends(model)
        for p, gradient in zip(model.trained, own, strict=True):
            p.grad = gradient

    monkey(BucketedDataParallel, "backward_ends", keeps)


def no_broadcast(monkey):
    monkey(bucketed_module, "broadcast_module", lambda *args, **kwargs: None)


def sabotaged(sabotage):
    sabotage(setattr)
    return distance_to_reference("mlp", bucketed, "sgd")


@pytest.mark.parametrize(
    "sabotage", [leave_out_one_bucket, wait_for_nobody, divide_by_nothing, never_hand_out, no_broadcast]
)
def test_without_it_the_parity_fails(sabotage):
    assert max(run_ranks(sabotaged, 2, sabotage, device="cpu")) > 1e-3


def plans():
    model = nn.Sequential(*(nn.Linear(400, 400) for _ in range(4)))  # 640 kB each
    return [
        [(b.parameters, b.nbytes) for b in wrap.plan]
        for wrap in (BucketedDataParallel(model), BucketedDataParallel(mlp(), bucket_cap_mb=SMALL))
    ] + [[(b.parameters, b.nbytes) for b in ours(mlp()).buckets]]


def test_its_plan_is_that_of_ddp():
    default, small, of_ddp = run_ranks(plans, 1, device="cpu")[0]
    assert small == of_ddp
    assert [parameters for parameters, _ in default] == [(7, 6, 5, 4), (3, 2, 1, 0)]  # the first is closed at 1 MiB


def some_without():
    """Gradients of layers that rank 0 alone, rank 1 alone, and nobody uses, in a second step too."""
    model = bucketed(seeded_by_rank(lambda: Paths().double()))
    gradients = []
    for step in range(2):
        model.zero_grad()
        model(torch.ones(1, 6, dtype=torch.float64) * (step + 1), "ab" if dist.get_rank() else "ac").sum().backward()
        gradients.append([layer.weight.grad[0, 0].item() for layer in model.module.children()])
    return gradients


def test_a_missing_gradient_counts_as_zero():
    assert run_ranks(some_without, 2, device="cpu").values == [[[1.0, 0.5, 0.5, 0.0], [2.0, 1.0, 1.0, 0.0]]] * 2


def launched(order):
    """How many buckets are under way after each gradient, and at the end; the plan is (5, 4, 3), (2,), (1, 0)."""
    model = bucketed(mlp())
    model.backward_begins([])
    under_way = []
    for number in order:
        model.trained[number].grad = torch.ones_like(model.trained[number])
        model.gradient_is_ready(number)
        under_way.append(len(model.works))
    model.backward_ends()
    return [*under_way, len(model.works)]


@pytest.mark.parametrize(
    ("order", "under_way"),
    [
        ((5, 4, 3, 2, 1, 0), [0, 0, 1, 2, 2, 3, 0]),
        ((0, 1, 2, 3, 4, 5), [0, 0, 0, 0, 0, 3, 0]),  # the first bucket keeps the others waiting
        ((2, 5, 4, 3), [0, 0, 0, 2, 0]),
    ],
)
def test_a_full_bucket_is_sent_at_once_if_those_before_it_are_gone(order, under_way):
    assert run_ranks(launched, 1, order, device="cpu").values == [under_way]


def memory():
    """Bytes of tensors: after wrapping, and after backward."""
    model = seeded_by_rank(mlp)
    with StorageLedger() as ledger:
        wrapped = bucketed(model)
        before = settled(ledger, GRADIENTS)
        wrapped(mine(0)).sum().backward()
        return before, settled(ledger, 2 * GRADIENTS)


def test_memory_is_the_buckets_and_the_gradients():
    assert run_ranks(memory, 2, device="cpu").values == [(GRADIENTS, 2 * GRADIENTS)] * 2


def dropped():
    wrapped = bucketed(seeded_by_rank(mlp))
    wrapped(mine(0)).sum().backward()
    module, buffer = wrapped.module, weakref.ref(wrapped.flat[0])
    del wrapped
    gc.collect()
    return buffer() is None, any(p._post_accumulate_grad_hooks for p in module.parameters())


def test_a_wrapper_that_is_dropped_takes_its_buckets_and_hooks_along():
    assert run_ranks(dropped, 1, device="cpu").values == [(True, False)]


def test_it_refuses_other_models():
    def build():
        return message_of(lambda: BucketedDataParallel(nn.Linear(2, 2 + dist.get_rank())))

    for error in run_ranks(build, 2, device="cpu"):
        assert "rank 1 is not that of rank 0" in error
