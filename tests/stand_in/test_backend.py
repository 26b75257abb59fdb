"""The stand-in computes what the CPU computes, and refuses what a GPU refuses."""

import copy
import io

import torch
import torch.distributed as dist
from torch import nn
from torch.utils.checkpoint import checkpoint

import dtlearn
from dtlearn.models import GPT, GPTConfig, next_token_loss, snapshot_parameters
from tests.data_parallel.runs import message_of
from tests.devices import run_ranks


def on_the_stand_in(fn, *args, num_ranks=1):
    return run_ranks(fn, num_ranks, *args, device="stand_in")


def refusals():
    here = dtlearn.device()
    x, generator = torch.ones(3, 4, device=here), torch.Generator(here).manual_seed(1)
    return {
        "two devices": message_of(lambda: x + torch.ones(3, 4)),
        "written on the CPU": message_of(lambda: torch.ones(4).add_(x[0])),
        "a scalar written on the CPU": message_of(lambda: torch.tensor(1.0).add_(x.sum())),
        "numpy": message_of(lambda: x.numpy()),
        "array": message_of(lambda: x.detach().numpy()),
        "indices on the device": message_of(lambda: torch.ones(3)[torch.tensor([0], device=here)]),
        "generator of the CPU": message_of(lambda: torch.randn(3, generator=torch.Generator(), device=here)),
        "generator of the device": message_of(lambda: torch.randn(3, generator=generator)),
        "data": message_of(lambda: setattr(nn.Parameter(x), "data", torch.ones(3, 4))),
        "gradient": message_of(lambda: setattr(nn.Parameter(x), "grad", torch.ones(3, 4))),
        "sent": message_of(lambda: dist.all_reduce(torch.ones(2))),
    }


def test_what_a_gpu_refuses_is_refused():
    found = on_the_stand_in(refusals)[0]
    assert all(found.values()), {what: said for what, said in found.items() if not said}
    for what in ("two devices", "written on the CPU", "a scalar written on the CPU", "indices on the device"):
        assert "expected all tensors to be on the same device" in found[what], found[what]
    assert "expected a generator of 'standin'" in found["generator of the CPU"]
    assert "expected a generator of 'cpu'" in found["generator of the device"]
    assert "no backend type associated with device type cpu" in found["sent"]


def allowed():
    """What a GPU takes: scalars and indices of the CPU, copies both ways, a group that was asked to be gloo's."""
    here = dtlearn.device()
    x = torch.arange(12.0, device=here).view(3, 4)
    y = torch.empty(3, 4).copy_(x)
    x.copy_(torch.ones(3, 4) + y, non_blocking=True)
    mine = torch.ones(2)
    dist.all_reduce(mine, group=dist.new_group(backend="gloo"))
    found = (x * torch.tensor(2.0))[torch.tensor([0, 2])]
    return found.tolist(), f"{x.sum():.1f}", bool(x.any()), x.to(here) is x, mine.tolist(), str(x.device), x.is_cpu


def test_what_a_gpu_takes_is_taken():
    rows, total, *others = on_the_stand_in(allowed)[0]
    assert rows == [[2.0, 4.0, 6.0, 8.0], [18.0, 20.0, 22.0, 24.0]] and total == "78.0"
    assert others == [True, True, [1.0, 1.0], "standin:0", False]


def trained(device, foreach):
    """A GPT after steps of AdamW, drawn on the CPU."""
    torch.manual_seed(0)
    model = GPT(GPTConfig(16, 8, 2, 2, 8, tie_embeddings=True)).double()
    before = list(model.parameters())
    model.to(device)
    assert all(a is b for a, b in zip(before, model.parameters(), strict=True))
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01, foreach=foreach)
    for tokens in torch.randint(16, (3, 4, 9)).to(device):
        optimizer.zero_grad()
        next_token_loss(model(tokens[:, :-1]), tokens[:, 1:]).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 0.5)
        optimizer.step()
    return snapshot_parameters(model)


def both_devices():
    there = [trained(dtlearn.device(), foreach) for foreach in (False, True)]
    expected = trained("cpu", False)
    return max((expected[name] - found[name]).abs().max().item() for found in there for name in expected)


def test_its_numbers_are_those_of_the_cpu():
    assert on_the_stand_in(both_devices)[0] < 1e-12


def random_numbers():
    here, found = dtlearn.device(), {}
    torch.manual_seed(0)
    first, on_cpu = torch.randn(4, device=here), torch.randn(4)
    torch.manual_seed(0)
    found["same on the CPU"] = torch.equal(on_cpu, torch.randn(4))  # the device's numbers are none of its
    found["same here"] = torch.equal(first, torch.randn(4, device=here))
    found["other than on the CPU"] = not torch.equal(first.cpu(), on_cpu)
    state = torch.get_device_module(here).get_rng_state(here)
    second = torch.randn(4, device=here)
    torch.get_device_module(here).set_rng_state(state, here)
    found["state"] = torch.equal(second, torch.randn(4, device=here))
    with torch.random.fork_rng(device_type=here.type):
        torch.randn(4, device=here)
    torch.get_device_module(here).set_rng_state(state, here)
    drawn = [torch.rand(4, device=here, generator=torch.Generator(here).manual_seed(s)) for s in (5, 5, 6)]
    found["generator"] = torch.equal(drawn[0], drawn[1]) and not torch.equal(drawn[0], drawn[2])
    drop, x = nn.Dropout(0.5), torch.ones(64, device=here, requires_grad=True)
    gradients = []
    for reentrant in (None, False, True):
        torch.manual_seed(3)
        y = drop(x) if reentrant is None else checkpoint(drop, x, use_reentrant=reentrant)
        gradients.append(torch.autograd.grad(y.sum(), x)[0] if reentrant is None else _gradient(y, x))
    found["checkpoint"] = all(torch.equal(gradients[0], each) for each in gradients)
    return found


def _gradient(y, x):
    x.grad = None
    y.sum().backward()
    return x.grad


def test_it_has_random_numbers_of_its_own():
    found = on_the_stand_in(random_numbers)[0]
    assert len(found) == 6 and all(found.values()), found


def views_and_copies():
    here, found = dtlearn.device(), {}
    flat = torch.zeros(6, device=here)
    view = flat[2:6].view(2, 2)
    view.fill_(7)
    found["view"] = flat.tolist() == [0, 0, 7, 7, 7, 7] and view._base is flat
    found["address"] = view.data_ptr() == flat.data_ptr() + 8
    found["storage"] = view.untyped_storage().data_ptr() == flat.untyped_storage().data_ptr()
    parameter = nn.Parameter(torch.ones(2, 2, device=here))
    parameter.data = view
    found["data"] = parameter.data_ptr() == view.data_ptr() and parameter.is_leaf and parameter.requires_grad
    flat.untyped_storage().resize_(0)
    found["freed"] = flat.untyped_storage().nbytes() == 0
    shaped = torch.arange(4.0, device=here)
    found["shape in place"] = shaped.unsqueeze_(0).shape == (1, 4) and shaped.resize_(2).tolist() == [0, 1]
    layer = nn.Linear(2, 2).to(here)
    twin = copy.deepcopy(layer)
    twin.weight.data.zero_()
    found["copy"] = isinstance(twin.weight, nn.Parameter) and bool(layer.weight.any()) and not twin.weight.any()
    torch.save(layer.state_dict(), file := io.BytesIO())
    file.seek(0)
    loaded = torch.load(file, weights_only=True)["weight"]
    found["saved"] = loaded.device == here and torch.equal(loaded, layer.weight)
    with torch.inference_mode():
        found["inference"] = torch.ones(2).to(here).cpu().device.type == "cpu"
    with torch.autocast(here.type, torch.bfloat16):
        y = layer(torch.ones(1, 2, device=here))
        found["autocast"] = y.dtype == torch.bfloat16 and y.softmax(-1).dtype == torch.float32
    return found


def test_views_share_memory_and_copies_do_not():
    found = on_the_stand_in(views_and_copies)[0]
    assert len(found) == 10 and all(found.values()), found


def collectives():
    here, rank = dtlearn.device(), dist.get_rank()
    make = lambda *values: torch.tensor(values, dtype=torch.float32, device=here)  # noqa: E731
    found = {"all_reduce": make(rank + 1.0), "asynchronous": make(rank + 1.0), "future": make(rank + 1.0)}
    dist.all_reduce(found["all_reduce"])
    dist.all_reduce(found["asynchronous"], async_op=True).wait()
    future = dist.all_reduce(found["future"], async_op=True).get_future()
    future.wait()
    assert future.value()[0].device == here
    found["gathered"], found["scattered"] = make(0, 0), make(0)
    dist.all_gather_into_tensor(found["gathered"], make(rank))
    dist.reduce_scatter_tensor(found["scattered"], make(1, 2))
    found["exchanged"] = make(0, 0)
    dist.all_to_all_single(found["exchanged"], make(10 * rank, 10 * rank + 1))
    found["received"], found["sent"] = make(0), make(0)
    both = [dist.P2POp(dist.isend, make(rank), 1 - rank), dist.P2POp(dist.irecv, found["received"], 1 - rank)]
    for work in dist.batch_isend_irecv(both):
        work.wait()
    if rank == 0:
        dist.send(make(5), 1)
    else:
        dist.recv(found["sent"], 0)
    dist.broadcast(found["sent"], 1)
    objects = [None, None]
    dist.all_gather_object(objects, {"rank": rank})
    dist.barrier()
    assert all(value.device == here for value in found.values())
    return {name: value.tolist() for name, value in found.items()}, objects


def test_collectives_carry_its_tensors():
    result = run_ranks(collectives, 2, device="stand_in", record=True)
    for rank, (found, objects) in enumerate(result):
        assert found["all_reduce"] == found["asynchronous"] == found["future"] == [3.0]
        assert found["gathered"] == [0, 1] and found["scattered"] == [2 + 2 * rank]
        assert found["exchanged"] == [rank, 10 + rank] and found["received"] == [1 - rank] and found["sent"] == [5]
        assert objects == [{"rank": 0}, {"rank": 1}]
        assert result.record.nbytes(rank=rank, op="all_reduce") == 12


def errors_in_backward():
    here, said = dtlearn.device(), []
    for wrong in (torch.ones(3), 1.0):
        weight = torch.ones(3, device=here, requires_grad=True)
        weight.register_post_accumulate_grad_hook(lambda p, wrong=wrong: None if p.grad.add_(wrong) is p.grad else 0)
        said.append(message_of(lambda w=weight: (w * 2).sum().backward()))
    return said


def test_an_error_in_a_hook_is_the_backward_passs():
    wrong, fine = on_the_stand_in(errors_in_backward)[0]
    assert (
        wrong.startswith("RuntimeError: aten.add_.Tensor: expected all tensors to be on the same device") and not fine
    )
