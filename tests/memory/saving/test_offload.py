"""Offload: the same gradients to the last bit, the device's bytes fall, the host's are counted."""

import gc
import weakref

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

import dtlearn
from dtlearn.memory import StorageLedger
from dtlearn.memory.saving import offload
from dtlearn.memory.saving.offload import OffloadActivations
from dtlearn.models import MLP, next_token_loss, snapshot_gradients
from tests.devices import run_ranks
from tests.memory.saving.runs import backward, gpt, same, tokens


def offloaded(model, batch, offload_class=OffloadActivations, **options):
    """The class's block after a step."""
    with offload_class(model, **options) as offload:
        loss = next_token_loss(model(batch[0]), batch[1])
    loss.backward()
    return offload


class KeepsTheTensor(OffloadActivations):
    """The sabotage: the tensor goes to the host, and stays on the device as well."""

    def _pack(self, tensor):
        return tensor, super()._pack(tensor)

    def _unpack(self, packed):
        return super()._unpack(packed[1])


def live_and_peak(offload_class=None):
    """Bytes beyond model and batch when the loss is there, and at the peak of the step."""
    model, (inputs, targets) = gpt(), tokens()
    with StorageLedger() as ledger:
        if offload_class is None:
            loss = next_token_loss(model(inputs), targets)
        else:
            with offload_class(model, min_bytes=0):
                loss = next_token_loss(model(inputs), targets)
        live = ledger.now
        loss.backward()
        return live, ledger.peak


def saved_bytes(model, batch, min_bytes=1):
    """Bytes of all tensors that autograd saves, as often as it saves them, but for the parameters."""
    sizes, parameters = [], {p.data_ptr() for p in model.parameters()}

    def pack(tensor):
        if tensor.data_ptr() not in parameters and tensor.nbytes >= min_bytes:
            sizes.append(tensor.nbytes)
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        next_token_loss(model(batch[0]), batch[1])
    return sum(sizes)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("sizes", [{}, {"tie_embeddings": True}, {"dropout": 0.1}, {"num_layers": 1}])
def test_the_gradients_are_the_same_bits(dtype, sizes):
    runs = []
    for way in (backward, offloaded):
        model = gpt(dtype, **sizes)
        torch.manual_seed(2)
        way(model, tokens())
        runs.append(snapshot_gradients(model))
    assert same(*runs)


def on_a_rank():
    """Whether gradients are the bits without it, and how much went to the host."""
    offload._PLAIN += (
        type(torch.empty(0, device=dtlearn.device())),
    )  # the stand-in's tensors are of a class of theirs
    runs = []
    for way in (backward, offloaded):
        model = gpt(dropout=0.1)
        torch.manual_seed(2)
        ended = way(model, tokens()) if way is backward else way(model, tokens(), min_bytes=0)
        runs.append(snapshot_gradients(model))
    return same(*runs), ended.host.to_host


def test_the_gradients_are_the_same_bits_on_another_device(other_device):
    equal, to_host = run_ranks(on_a_rank, 1, device=other_device)[0]
    assert equal and to_host > 0


def test_as_torchs_save_on_cpu():
    model, other, batch = gpt(), gpt(), tokens()
    offloaded(model, batch, min_bytes=0)
    with torch.autograd.graph.save_on_cpu():
        backward(other, batch)
    assert same(snapshot_gradients(model), snapshot_gradients(other))


def test_the_devices_bytes_fall():
    (plain, plain_peak), (live, peak) = live_and_peak(), live_and_peak(OffloadActivations)
    logits = 8 * 16 * 32 * 4
    assert plain > 500_000
    assert live <= 256  # the loss; not even the logits, which were a temporary of the block
    assert logits < peak < 0.45 * plain_peak


def test_an_offload_that_keeps_the_tensor_is_found_by_the_ledger_only():
    runs = []
    for offload_class in (OffloadActivations, KeepsTheTensor):
        model = gpt()
        offload = offloaded(model, tokens(), offload_class)
        runs.append(snapshot_gradients(model))
        assert offload.host.peak > 0
    assert same(*runs)
    (live, peak), (kept_live, kept_peak) = live_and_peak(OffloadActivations), live_and_peak(KeepsTheTensor)
    assert live <= 256 < 500_000 < kept_live
    assert peak < 0.5 * kept_peak


@pytest.mark.parametrize("min_bytes", [0, 1024, 1 << 30])
def test_the_host_has_what_autograd_saves(min_bytes):
    model, batch = gpt(), tokens()
    wanted = saved_bytes(model, batch, max(min_bytes, 1))
    with OffloadActivations(model, min_bytes=min_bytes) as offload:
        loss = next_token_loss(model(batch[0]), batch[1])
    host = offload.host
    assert host.now == host.peak == host.to_host == wanted
    assert host.to_device == 0
    loss.backward()
    assert (host.now, host.to_device) == (0, wanted)


def test_the_hosts_copies_go_with_the_graph():
    model, batch = gpt(), tokens()
    with OffloadActivations(model) as offload:
        loss = next_token_loss(model(batch[0]), batch[1])
    loss.backward(retain_graph=True)
    assert offload.host.now == offload.host.peak > 0
    loss.backward()  # the copies come back a second time
    assert offload.host.to_device == 2 * offload.host.to_host
    with OffloadActivations(model) as unused:
        loss = next_token_loss(model(batch[0]), batch[1])
    assert unused.host.now > 0
    del loss
    assert unused.host.now == 0


@pytest.mark.parametrize("elements", [4, 4096])
def test_a_graph_that_is_not_used_goes_at_once(elements):
    weight = nn.Parameter(torch.ones(elements))
    gc.disable()  # a cycle would wait for the collector
    try:
        with OffloadActivations(nn.Module()):
            result = weight.exp()  # this node saves its own result
        gone = weakref.ref(result)
        del result
        assert gone() is None
    finally:
        gc.enable()


def test_only_what_is_in_the_block_is_offloaded():
    model, (inputs, targets) = gpt(), tokens()
    x = model.embedding(inputs)
    with OffloadActivations(model) as offload:
        x = model.blocks[0](x)
    here = offload.host.to_host
    loss = next_token_loss(model.head(model.blocks[1](x)), targets)
    assert offload.host.to_host == here
    loss.backward()
    assert offload.host.to_device == here
    other = gpt()
    x = other.blocks[0](other.embedding(inputs))
    next_token_loss(other.head(other.blocks[1](x)), targets).backward()
    assert same(snapshot_gradients(model), snapshot_gradients(other))


def test_a_block_that_an_error_leaves():
    model, batch = gpt(), tokens()
    with pytest.raises(ValueError, match="context_length"), OffloadActivations(model) as offload:
        model(torch.zeros(1, 99, dtype=torch.long))
    backward(model, batch)
    assert offload.host.to_host == offload.host.now == 0


def test_parameters_and_buffers_stay_frozen_ones_too():
    model = nn.Sequential(nn.Linear(64, 64), nn.BatchNorm1d(64), nn.Linear(64, 64))
    model[0].requires_grad_(False)
    inputs = torch.randn(2, 64, requires_grad=True)
    with OffloadActivations(model, min_bytes=0) as offload:
        model(inputs).sum()
    # BatchNorm saves its input (2, 64), mean and deviation (64 each); the last layer its input.
    assert offload.host.to_host == 4 * (128 + 64 + 64 + 128)


def test_within_a_checkpoint_its_inputs_go_to_the_host():
    reference, model, batch = gpt(), gpt(), tokens()
    backward(reference, batch)
    with OffloadActivations(model) as offload:
        x = model.embedding(batch[0])
        for block in model.blocks:
            x = checkpoint(block, x, use_reentrant=False)
        loss = next_token_loss(model.head(x), batch[1])
    loss.backward()
    assert same(snapshot_gradients(model), snapshot_gradients(reference))
    assert 0 < offload.host.to_host < saved_bytes(reference, batch) / 5


@pytest.mark.parametrize("min_bytes", [0, 1 << 30])
def test_a_second_derivative(min_bytes):
    model = MLP((4, 8, 1)).double()
    x = torch.randn(3, 4, dtype=torch.float64, requires_grad=True)

    def penalty():
        (gradient,) = torch.autograd.grad(model(x).tanh().sum(), x, create_graph=True)
        return gradient.square().sum()

    (wanted,) = torch.autograd.grad(penalty(), x)
    with OffloadActivations(model, min_bytes=min_bytes):
        result = penalty()
    assert torch.equal(torch.autograd.grad(result, x)[0], wanted)


def test_a_model_without_parameters():
    x = torch.randn(1000, requires_grad=True)
    with OffloadActivations(nn.ReLU()) as offload:
        y = x.exp().sum()
    y.backward()
    assert offload.host.to_host == 4000 and torch.equal(x.grad, x.detach().exp())


@pytest.mark.gpu
def test_on_a_gpu_memory_falls_and_gradients_stay():
    runs, live = [], []
    inputs, targets = (torch.randint(32, (16, 256), device="cuda") for _ in range(2))
    for offload_class in (None, OffloadActivations):
        model = gpt(num_layers=4, hidden_size=256, context_length=256).cuda()
        before = torch.cuda.memory_allocated()
        if offload_class is None:
            loss = next_token_loss(model(inputs), targets)
        else:
            with OffloadActivations(model):
                loss = next_token_loss(model(inputs), targets)
        torch.cuda.synchronize()
        torch.ones(1, device="cuda")
        live.append(torch.cuda.memory_allocated() - before)
        loss.backward()
        runs.append(snapshot_gradients(model))
    for name, plain in runs[0].items():  # of an embedding CUDA adds up in any order: two plain runs differ, too
        torch.testing.assert_close(runs[1][name], plain)
    assert live[1] < 0.1 * live[0]
