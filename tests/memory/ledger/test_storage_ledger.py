"""What the ledger counts, and what it leaves out."""

import numpy as np
import pytest
import torch

from dtlearn.memory.ledger.storage_ledger import StorageLedger, measured


def peak_of(work) -> int:
    x = torch.ones(1000)
    with StorageLedger() as ledger:
        work(x)
    return ledger.peak


@pytest.mark.parametrize(
    ("work", "tensors"),
    [
        (lambda x: x + 1, 1),
        (lambda x: x.add_(1), 0),
        (lambda x: x.view(10, 100).t(), 0),
        (lambda x: [x + 1, x + 2, x + 3], 3),
        (lambda x: (x + 1) * 2, 2),  # the sum lives until the product is there
        (lambda x: [(x + k).sum() for k in range(50)], 1),  # one after the other
        (lambda x: torch.cat([x, x]), 2),
        (lambda x: torch.empty(3000), 3),
    ],
)
def test_the_peak_is_that_of_tensors_that_live_at_once(work, tensors):
    assert tensors * 4000 <= peak_of(work) <= tensors * 4000 + 1000


def test_what_is_gone_is_taken_off():
    with StorageLedger() as ledger:
        a = torch.ones(100)
        assert ledger.now == 400
        view = a[:10]
        del a
        assert ledger.now == 400  # a view keeps the memory
        del view
        assert ledger.now == 0
    with measured(False) as none:
        assert none is None


def test_a_storage_counts_once_under_all_its_tensors():
    with StorageLedger() as ledger:
        a = torch.ones(100)
        parts = [*a.split(10), a.view(10, 10), a.detach(), a.numpy()]
        assert (ledger.now, ledger.peak, len(parts)) == (400, 400, 13)


def test_what_was_there_before_does_not_count_even_when_it_goes():
    before = torch.ones(100)
    with StorageLedger() as ledger:
        before.add_(1)
        small = before.sum()
        del before
        assert (ledger.now, small.nbytes) == (4, 4)


def test_the_peak_stays_when_the_memory_goes():
    with StorageLedger() as ledger:
        a = torch.ones(100)
        del a
        b = torch.ones(10)
        assert (ledger.now, ledger.peak, b.nbytes) == (40, 400, 40)


def test_backward_is_counted_too():
    weight = torch.ones(100, requires_grad=True)
    with StorageLedger() as ledger:
        (weight * 3).sum().backward()
        assert ledger.now == weight.grad.nbytes == 400


# torch 2.11 says it though they are checked here.
@pytest.mark.filterwarnings("ignore:Sparse invariant checks are implicitly disabled")
def test_what_it_cannot_see_is_left_out():
    with StorageLedger() as ledger:
        array = np.ones(1000)
        assert ledger.now == 0 < array.nbytes
        indices, values = torch.zeros(1, 1, dtype=torch.long), torch.ones(1)
        before = ledger.now
        sparse = torch.sparse_coo_tensor(indices, values, (10**6,), check_invariants=True)
        assert ledger.now == before and sparse.shape == (10**6,)


def test_it_is_there_if_it_is_wanted():
    with measured(True) as ledger:
        kept = torch.ones(100)
    assert ledger.peak == 400 == kept.nbytes
    torch.ones(1000)
    assert ledger.peak == 400  # it is over
    with measured(False) as none:
        kept = torch.ones(100)
    assert none is None
