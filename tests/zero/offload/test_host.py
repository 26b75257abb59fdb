"""The host: its bytes are counted from the first to the last, and no ledger of the device sees them."""

import gc

import pytest
import torch

from dtlearn.memory.ledger.ledger import MemoryLedger
from dtlearn.memory.ledger.storage_ledger import StorageLedger
from dtlearn.zero.offload.host import Host

CPU = torch.device("cpu")


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16, torch.float64])
def test_values_go_there_and_back(dtype):
    host, values = Host(), torch.randn(3, 5).to(dtype)
    copy = host.download(values)
    assert torch.equal(copy, values) and copy.data_ptr() != values.data_ptr() and host.holds(copy)
    assert torch.equal(host.upload(copy, into=torch.empty_like(values)), values)
    assert host.now == host.peak == host.to_host == host.to_device == values.nbytes
    host.finish()


def test_it_counts_what_lives():
    host, values = Host(), torch.zeros(10)
    first = host.download(values)
    view, wide = first[2:], host.keep(first, torch.float64)
    assert (host.now, host.peak) == (120, 120) and host.holds(view) and host.holds(wide)
    del first, wide
    gc.collect()
    assert (host.now, host.peak) == (40, 120)  # the view keeps it
    del view
    gc.collect()
    assert (host.now, host.peak, host.to_host) == (0, 120, 40)
    assert not host.holds(values)


def test_nothing_and_scalars():
    host = Host()
    for values in (torch.zeros(0), torch.zeros(0, 3), torch.tensor(2.0)):
        assert torch.equal(host.download(values), values)
    assert host.to_host == 4


def test_a_ledger_of_the_device_sees_none_of_it():
    host, values, target = Host(), torch.ones(100), torch.empty(100)
    with StorageLedger() as ledger, MemoryLedger() as full:
        copy = host.download(values)
        doubled = host.run(lambda: copy * 2)
        kept = host.keep(doubled)
        host.upload(kept, into=target)
    assert ledger.peak == 0 and full.peak == 0  # not even `values`, which no operation of this thread got
    assert target.eq(2).all() and host.now == 800


def test_an_error_of_the_host_is_raised_here():
    with pytest.raises(ZeroDivisionError):
        Host().run(lambda: 1 / 0)
    assert not Host().run(torch.is_grad_enabled)


@pytest.mark.gpu
def test_copies_from_a_gpu_are_pinned_and_right():
    host, values = Host(), torch.randn(1 << 20, device="cuda")
    copy = host.download(values * 2)  # its memory is free as soon as it was called
    values.zero_()
    host.finish()
    assert copy.is_pinned() and copy.abs().sum() > 0
    back = host.upload(copy, into=torch.empty_like(values))
    assert torch.equal(back.cpu(), copy)
