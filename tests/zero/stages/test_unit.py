"""Who else has a unit's parameters: copies, files, views, other parameters in their place."""

import copy
import io
import pickle

import pytest
import torch
from torch import nn
from torch.optim.swa_utils import AveragedModel

from dtlearn.runtime.run import run_ranks
from dtlearn.sharing.host_memory import Host
from dtlearn.zero.stages.zero3 import FullyShardedDataParallel
from tests.data_parallel.runs import message_of
from tests.zero.stages.beside_one_process import batch, copied_and_trained, largest_difference, net, sharded, step


def copies():
    """How far apart models are that ought to be equal, and whether those that ought to differ do."""
    equal, differ = {}, {}
    for name, options in {"freed": {}, "kept": {"reshard_after_forward": False}, "host": {"offload": Host()}}.items():
        model = sharded(**options)
        adam = torch.optim.Adam(model.parameters(), lr=0.1)
        step(model, adam)
        twin, began = copied_and_trained(model, adam)
        equal["its own shards", name] = largest_difference(twin.full_params(), began)
        differ["the original moves", name] = largest_difference(model.full_params(), began)
        step(twin, torch.optim.Adam(twin.parameters(), lr=0.1))
        differ["the copy moves", name] = largest_difference(twin.full_params(), began)
        equal["named alike", name] = float(twin.state_dict().keys() != model.state_dict().keys())
    model = sharded()
    adam = torch.optim.Adam(model.parameters(), lr=0.1)
    step(model, adam)
    for order in (1, -1):  # the optimizer's parameters are those of the copy, whichever comes first
        twin, other = copy.deepcopy([model, adam][::order])[::order]
        step(model, adam)
        step(twin, other)
        equal["with its optimizer", order] = largest_difference(twin.full_params(), model.full_params())
    loss = model(batch()).square().mean()  # between forward and backward
    twin = copy.deepcopy(model)
    loss.backward()
    twin(batch()).square().mean().backward()
    equal["in a step"] = float(any(param.grad is None for param in (*model.parameters(), *twin.parameters())))
    average = AveragedModel(model)
    average.update_parameters(model)
    equal["averaged"] = largest_difference(average.module.full_params(), model.full_params())
    twins = []
    handle = model.module.blocks[1].register_forward_pre_hook(lambda *_: twins.append(copy.deepcopy(model)))
    model(batch()).mean().backward()
    handle.remove()
    equal["in a forward pass"] = largest_difference(twins[0].full_params(), model.full_params())
    return equal, differ


def unsharded():
    """Inside the block it is a plain model: copied, saved, called with other parameters."""
    model, x, found = sharded(), batch(), {}
    expected, whole = model(x).detach(), model.full_params()
    with model.unsharded():
        plain, file = copy.deepcopy(model.module), io.BytesIO()
        torch.save(model.module, file)
        found["wrapper"] = message_of(lambda: copy.deepcopy(model))
        found["full_params"] = largest_difference(model.full_params(), whole)
        named = {name: parameter.detach() for name, parameter in model.module.named_parameters()}
        called = torch.func.functional_call(model.module, named, (x,))
        with model.unsharded():
            model.module.last.bias.data.fill_(7.0)
    file.seek(0)
    outputs = [plain(x), torch.load(file, weights_only=False)(x), called]
    found["same"] = max(float((output - expected).abs().max()) for output in outputs)
    found["plain"] = [plain._forward_hooks, plain._forward_pre_hooks, "forward" in vars(plain.first)]
    found["written"] = model.full_params()["last.bias"].tolist()
    net().load_state_dict(whole)
    found["whole"] = [(tensor.requires_grad, tensor.device.type) for tensor in whole.values()]
    return found


class Table(nn.Module):
    def __init__(self):
        super().__init__()
        self.rows = nn.Parameter(torch.randn(10, 6))

    def forward(self, count):
        return self.rows[:count]


class UsesTable(nn.Module):
    def __init__(self):
        super().__init__()
        self.table, self.linear = Table(), nn.Linear(6, 6)

    def forward(self, x):
        return self.linear(x + self.table(len(x)))


def refused():
    model, found = sharded(), {}
    found["copied alone"] = [
        message_of(lambda: copy.deepcopy(model.module)),
        message_of(lambda: copy.deepcopy(model.module.blocks[0])),
        message_of(lambda: copy.copy(model)),
        message_of(lambda: torch.save(model, io.BytesIO())),
        message_of(lambda: torch.save(model.module, io.BytesIO())),
        message_of(lambda: pickle.dumps(model)),
    ]
    layer = copy.deepcopy(model.module.blocks[0][0])
    found["a layer"] = message_of(lambda: layer(batch()))
    table = FullyShardedDataParallel(UsesTable(), units=(Table,))
    found["view"] = [message_of(lambda: table(torch.randn(3, 6)))]
    with torch.no_grad():
        found["view"].append(message_of(lambda: table(torch.randn(3, 6))))
    others = {f"module.{name}": parameter for name, parameter in model.full_params().items()}
    found["replaced"] = [message_of(lambda: torch.func.functional_call(model, others, (batch(),)))]
    block = {name: torch.ones_like(parameter) for name, parameter in model.module.blocks[0].named_parameters()}
    found["in a unit"] = message_of(lambda: torch.func.functional_call(model.module.blocks[0], block, (batch(),)))
    model(batch()).mean().backward()  # it works again
    model.module.first.weight = nn.Parameter(torch.randn(6, 6, dtype=torch.float64))
    found["replaced"].append(message_of(lambda: model(batch())))
    return found


@pytest.fixture(scope="module")
def on_two():
    """Each rank's results: `copies`, `unsharded` and `refused`."""
    return run_ranks(lambda: (copies(), unsharded(), refused()), 2, device="cpu", timeout=110).values


def test_a_copy_has_its_own_shards_and_hooks(on_two):
    for (equal, differ), *_ in on_two:
        assert max(equal.values()) == 0 and min(differ.values()) > 1e-3, (equal, differ)


def test_inside_unsharded_it_is_a_plain_model(on_two):
    for _, found, _ in on_two:
        assert "copy model.module, which is a plain model now" in found["wrapper"]
        assert found["same"] == found["full_params"] == 0
        assert found["plain"] == [{}, {}, False] and found["written"] == [7.0]
        assert set(found["whole"]) == {(False, "cpu")}


def test_who_would_read_freed_memory_is_told(on_two):
    for *_, found in on_two:
        for message in found["copied alone"]:
            assert "is neither copied nor pickled by itself: copy the wrapper, copy.deepcopy(model)" in message
        assert "are in shards here" in found["a layer"]
        for message in found["view"]:
            assert "table returned a parameter, or a view of one, whose memory is freed now: return a copy" in message
        for message in found["replaced"]:
            assert "first.weight has come or was moved since the model was sharded" in message
        assert "weight of Linear was replaced since the model was sharded" in found["in a unit"]
