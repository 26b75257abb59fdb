"""Copies to the host and back: the same tensors, counted bytes, and nothing for the device's ledger meanwhile."""

import pytest
import torch

from dtlearn.memory import StorageLedger
from dtlearn.memory.saving.host_memory import HostMemory

DTYPES = [
    torch.float32,
    torch.float64,
    torch.float16,
    torch.bfloat16,
    torch.float8_e4m3fn,
    torch.float8_e5m2,
    torch.int64,
    torch.bool,
    torch.complex64,
]
SHAPES = {
    "contiguous": lambda x: x,
    "transposed": lambda x: x.transpose(0, 1),
    "sliced": lambda x: x[:, 1:3],
    "expanded": lambda x: x[:1].expand(4, 6),
    "a scalar": lambda x: x[0, 0],
}


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("dtype", DTYPES)
def test_there_and_back(dtype, shape):
    tensor = SHAPES[shape](torch.arange(24).reshape(4, 6).to(dtype))
    host = HostMemory()
    copy = host.copy_to_host(tensor)
    back = host.copy_to_device(copy)
    assert back.dtype == dtype and back.shape == tensor.shape
    as_bytes = [t.contiguous().flatten().view(torch.uint8) for t in (back, tensor)]
    assert torch.equal(*as_bytes)
    assert back.untyped_storage().data_ptr() != tensor.untyped_storage().data_ptr()
    if shape in ("contiguous", "transposed"):
        assert back.stride() == tensor.stride()  # kernels may choose by it
    assert host.now == host.to_host == host.to_device == tensor.nbytes


def test_a_copy_does_not_follow_its_tensor():
    tensor, host = torch.ones(10), HostMemory()
    copy = host.copy_to_host(tensor)
    tensor.zero_()
    assert host.copy_to_device(copy).sum() == 10
    assert host.copy_to_device(copy).sum() == 10  # as often as one likes


def test_what_is_on_the_host_is_counted_while_it_is_there():
    host = HostMemory()
    first, second = host.copy_to_host(torch.ones(10)), host.copy_to_host(torch.ones(20))
    assert (host.now, first.nbytes, second.nbytes) == (120, 40, 80)
    del first
    assert (host.now, host.peak) == (80, 120)
    del second
    assert (host.now, host.peak, host.to_host, host.to_device) == (0, 120, 120, 0)


def test_the_devices_ledger_sees_the_tensor_go_and_come_back():
    with StorageLedger() as ledger:
        host = HostMemory()
        tensor = torch.ones(1000)
        copy = host.copy_to_host(tensor)
        assert ledger.now == 4000
        del tensor
        assert ledger.now == 0 < host.now
        back = host.copy_to_device(copy)
        assert ledger.now == back.nbytes == ledger.peak == 4000


@pytest.mark.gpu
def test_from_a_gpu_to_pinned_memory_and_back():
    host = HostMemory()
    tensor = torch.randn(1024, 1024, device="cuda").t()
    before = torch.cuda.memory_allocated()
    values, copy = tensor.cpu(), host.copy_to_host(tensor)
    assert copy.data.is_pinned() and copy.is_there is not None
    del tensor
    copy.is_there.synchronize()
    torch.ones(1, device="cuda")  # the allocator looks which streams are done when it is asked for memory
    assert torch.cuda.memory_allocated() < before
    back = host.copy_to_device(copy)
    assert torch.equal(back.cpu(), values) and back.stride() == (1, 1024)


@pytest.mark.gpu
def test_a_gpus_memory_is_not_reused_before_its_copy_has_ended():
    host, copies = HostMemory(), []
    for number in range(50):
        tensor = torch.full((1 << 20,), float(number), device="cuda")
        copies.append(host.copy_to_host(tensor))
        del tensor  # the next one would take its place
    assert all((host.copy_to_device(copy) == number).all() for number, copy in enumerate(copies))
