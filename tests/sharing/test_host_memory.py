"""The host: the same tensors there and back; its bytes are counted, and no ledger of the device sees them."""

import gc

import pytest
import torch

from dtlearn.memory.ledger.ledger import MemoryLedger
from dtlearn.memory.ledger.storage_ledger import StorageLedger
from dtlearn.sharing.host_memory import Host

CPU = torch.device("cpu")
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
    torch.complex128,
]
SHAPES = {
    "contiguous": lambda x: x,
    "transposed": lambda x: x.transpose(0, 1),
    "sliced": lambda x: x[:, 1:3],
    "expanded": lambda x: x[:1].expand(4, 6),
    "a scalar": lambda x: x[0, 0],
    "empty": lambda x: x[:0],
}


def as_bytes(tensor):
    return tensor.contiguous().flatten().view(torch.uint8)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("dtype", DTYPES)
def test_there_and_back(dtype, shape):
    tensor, host = SHAPES[shape](torch.arange(24).reshape(4, 6).to(dtype)), Host()
    copy = host.download(tensor)
    back, target = host.upload(copy, CPU), torch.zeros(tensor.shape, dtype=dtype)
    host.upload_into(target, copy)
    assert host.holds(copy) and not host.holds(tensor) and not host.holds(back)
    for other in (copy, back, target):
        assert other.dtype == dtype and other.shape == tensor.shape
        assert torch.equal(as_bytes(other), as_bytes(tensor))
        assert other.numel() == 0 or other.data_ptr() != tensor.data_ptr()
    if shape in ("contiguous", "transposed"):
        assert copy.stride() == back.stride() == tensor.stride()  # kernels may choose by it
    assert host.now == host.peak == host.to_host == tensor.nbytes
    assert host.to_device == 2 * tensor.nbytes
    host.finish()


def test_a_copy_does_not_follow_its_tensor():
    tensor, host = torch.ones(10, requires_grad=True), Host()
    copy = host.download(tensor)
    tensor.data.zero_()
    for _ in range(2):  # as often as one likes
        back = host.upload(copy, CPU)
        assert back.sum() == 10 and not back.requires_grad
        back.zero_()


def test_it_counts_what_lives():
    host, values = Host(), torch.zeros(10)
    first = host.download(values)
    view, wide = first[2:], host.keep(first, torch.float64)
    assert (host.now, host.peak) == (120, 120) and host.holds(view) and host.holds(wide)
    assert wide.dtype == torch.float64
    gc.disable()  # a cycle would wait for the collector
    try:
        del first, wide
        assert (host.now, host.peak) == (40, 120)  # the view keeps it
        del view
        assert (host.now, host.peak, host.to_host) == (0, 120, 40)
    finally:
        gc.enable()
    assert not host.holds(values)


def test_a_ledger_of_the_device_sees_none_of_it():
    host, values, target = Host(), torch.ones(100), torch.empty(100)
    with StorageLedger() as ledger, MemoryLedger() as full:
        copy = host.download(values)
        doubled = host.run(lambda: copy * 2)
        kept = host.keep(doubled)
        host.upload_into(target, kept)
    assert ledger.peak == 0 and full.peak == 0  # not even `values`, which no operation of this thread got
    assert target.eq(2).all() and host.now == 800


def test_a_ledger_of_the_device_sees_a_tensor_go_and_come_back():
    with StorageLedger() as ledger:
        host = Host()
        tensor = torch.ones(1000)
        copy = host.download(tensor)
        assert ledger.now == 4000
        del tensor
        assert ledger.now == 0 < host.now
        back = host.upload(copy, CPU)
        assert ledger.now == back.nbytes == ledger.peak == 4000


def test_an_error_of_the_host_is_raised_here():
    with pytest.raises(ZeroDivisionError):
        Host().run(lambda: 1 / 0)
    assert not Host().run(torch.is_grad_enabled)


@pytest.mark.gpu
def test_copies_from_a_gpu_are_pinned_and_right():
    host, values = Host(), torch.randn(1024, 1024, device="cuda").t()
    copy = host.download(values * 2)  # its memory is free as soon as it was called
    expected = (values * 2).cpu()
    values.zero_()
    host.finish()
    assert copy.is_pinned() and torch.equal(copy, expected) and copy.stride() == (1, 1024)
    target = torch.empty_like(values)
    host.upload_into(target, copy)
    back = host.upload(copy, target.device)
    assert torch.equal(back.cpu(), expected) and torch.equal(target.cpu(), expected)
    assert back.stride() == (1, 1024)


@pytest.mark.gpu
def test_a_gpus_memory_is_not_reused_before_its_copy_has_ended():
    host, copies = Host(), []
    for number in range(50):
        tensor = torch.full((1 << 20,), float(number), device="cuda")
        copies.append(host.download(tensor))
        del tensor  # the next one would take its place
    device = torch.device("cuda", torch.cuda.current_device())
    assert all((host.upload(copy, device) == number).all() for number, copy in enumerate(copies))


@pytest.mark.gpu
def test_a_gpus_memory_is_free_when_the_copy_has_ended():
    host, tensor = Host(), torch.ones(1 << 20, device="cuda")
    before = torch.cuda.memory_allocated()
    copy = host.download(tensor)
    del tensor
    host.finish()
    torch.ones(1, device="cuda")  # the allocator looks which streams are done when it is asked for memory
    assert torch.cuda.memory_allocated() < before and copy.sum() == 1 << 20
