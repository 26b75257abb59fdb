"""A linear layer in FP8: its products by hand and by torch, training, and ranks that give what one process gives."""

import contextlib
import copy
import pickle

import pytest
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn

import dtlearn
from dtlearn.mixed_precision.casting.autocast import autocast
from dtlearn.mixed_precision.formats import FP8_E4M3, FP8_E5M2
from dtlearn.mixed_precision.fp8 import scaling
from dtlearn.mixed_precision.fp8.linear import Fp8Linear, convert_to_fp8, multiply, transposed
from dtlearn.mixed_precision.fp8.scaling import CurrentScaling, DelayedScaling, update_scales
from dtlearn.models import GPT, MLP, GPTConfig, load_digits
from tests.devices import run_ranks

KINDS = ["current", "delayed"]
STEPS = 4


def rounded(x, fmt):
    """As the tensor is after a cast with the scale that fits it."""
    scale = fmt.largest / x.abs().max()
    return (x * scale).clamp(-fmt.largest, fmt.largest).to(fmt.dtype).float() / scale


@pytest.mark.parametrize("shape", [(7,), (5, 7), (3, 5, 7)])
def test_products_are_those_of_rounded_tensors(shape):
    torch.manual_seed(0)
    layer = Fp8Linear(7, 4)
    x = torch.randn(shape, requires_grad=True)
    y = layer(x)
    dy = torch.randn_like(y)
    y.backward(dy)
    x8, w8, dy8 = rounded(x.detach(), FP8_E4M3), rounded(layer.weight.detach(), FP8_E4M3), rounded(dy, FP8_E5M2)
    torch.testing.assert_close(y, F.linear(x8, w8, layer.bias))
    torch.testing.assert_close(x.grad, dy8 @ w8)
    torch.testing.assert_close(layer.weight.grad, dy8.reshape(-1, 4).T @ x8.reshape(-1, 7))
    torch.testing.assert_close(layer.bias.grad, dy.reshape(-1, 4).sum(0))  # before the cast
    assert layer.weight.grad.dtype == torch.float32
    assert (F.linear(x, layer.weight, layer.bias) - y).abs().max() > 1e-3  # and it is not float32


def test_the_product_is_that_of_torchs_fp8_multiplication():
    torch.manual_seed(0)
    a, b = CurrentScaling(FP8_E5M2)(torch.randn(32, 64)), CurrentScaling(FP8_E4M3)(torch.randn(48, 64))
    theirs = torch._scaled_mm(a.values, b.values.t(), scale_a=1 / a.scale, scale_b=1 / b.scale, out_dtype=torch.float32)
    torch.testing.assert_close(multiply(a, transposed(b)), theirs, rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("block", [lambda: torch.autocast("cpu", torch.bfloat16), lambda: autocast("cpu")])
def test_an_autocast_block_leaves_its_products_as_they_are(block, kind):
    """They would be rounded to 16 bits."""
    results = []
    for around in (contextlib.nullcontext, block):
        torch.manual_seed(0)
        layer, x = Fp8Linear(64, 64, scaling=kind), torch.randn(8, 64, requires_grad=True)
        with around():
            y = layer(x)
            y.square().sum().backward()
        results.append([y, x.grad, layer.weight.grad])
    assert all(torch.equal(a, b) for a, b in zip(*results, strict=True))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("copied", [copy.deepcopy, lambda layer: pickle.loads(pickle.dumps(layer))])
def test_a_copy_has_scales_of_its_own(copied, kind):
    layer = Fp8Linear(4, 4, scaling=kind)
    layer(torch.randn(2, 4)).sum().backward()
    update_scales(layer)
    other, state = copied(layer), {name: value.clone() for name, value in layer.state_dict().items()}
    x = torch.randn(2, 4)
    assert torch.equal(other(x), layer(x))
    other(100 * x).sum().backward()
    update_scales(other)
    assert all(torch.equal(layer.state_dict()[name], value) for name, value in state.items() if "noted" not in name)


@pytest.mark.parametrize("frozen", ["x", "weight"])
def test_what_needs_no_gradient_gets_none(frozen):
    layer = Fp8Linear(4, 4)
    x = torch.randn(2, 4, requires_grad=frozen != "x")
    layer.weight.requires_grad_(frozen != "weight")
    layer(x).sum().backward()
    assert (x.grad is None) == (frozen == "x") and (layer.weight.grad is None) == (frozen == "weight")


def test_empty_batches_and_sixteen_bits():
    layer = Fp8Linear(4, 3, bias=False)
    x = torch.empty(0, 2, 4, requires_grad=True)
    layer(x).sum().backward()
    assert x.grad.shape == (0, 2, 4) and (layer.weight.grad == 0).all()
    half = torch.randn(2, 4, dtype=torch.bfloat16, requires_grad=True)
    y = layer(half)
    y.sum().backward()
    assert y.dtype == half.grad.dtype == torch.bfloat16


def test_backward_keeps_a_byte_an_element():
    sizes = []

    def pack(tensor):
        sizes.append(tensor.nbytes)
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        Fp8Linear(64, 32, bias=False)(torch.randn(10, 64, requires_grad=True))
    assert sum(sizes) == 10 * 64 + 64 * 32 + 2 * 4


def digits_losses(scaling_kind):
    """Losses of 60 steps of an MLP on the digits; None: in float32."""
    torch.manual_seed(0)
    model = MLP()
    if scaling_kind:
        convert_to_fp8(model, scaling=scaling_kind)
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    losses = []
    for images, labels in load_digits().batches(60, 64):
        optimizer.zero_grad()
        loss = F.cross_entropy(model(images), labels)
        loss.backward()
        optimizer.step()
        update_scales(model)
        losses.append(loss.item())
    return losses


@pytest.fixture(scope="module")
def exact():
    return digits_losses(None)


@pytest.mark.parametrize("kind", KINDS)
def test_it_trains_nearly_as_float32(kind, exact):
    fp8 = digits_losses(kind)
    assert sum(exact[-10:]) / 10 < 0.3 < 2 < exact[0]
    assert abs(sum(fp8[-10:]) - sum(exact[-10:])) / 10 < 0.03
    assert fp8 != exact


def model():
    torch.manual_seed(0)
    return MLP((6, 8, 5)).to(dtlearn.device())


def batch(step):
    """The global batch of a step: 12 samples, and no two of the same size."""
    g = torch.Generator().manual_seed(step)
    inputs, targets = (
        torch.randn(12, 6, generator=g) * torch.logspace(-1, 1, 12)[:, None],
        torch.randn(12, 5, generator=g),
    )
    return inputs.to(dtlearn.device()), targets.to(dtlearn.device())


def train(kind, optimizer_class, agreed=True):
    """On each rank of data parallelism, or alone: outputs, scales and parameters of several steps."""
    size, rank = (dist.get_world_size(), dist.get_rank()) if dist.is_initialized() else (1, 0)
    real_all_reduce = dist.all_reduce
    if not agreed:
        scaling.dist.all_reduce = lambda tensor, op=None, group=None: None
    network = convert_to_fp8(model(), scaling=kind)
    optimizer = optimizer_class(network.parameters(), lr=0.01)
    outputs = []
    for step in range(STEPS):
        x, target = (part.chunk(size)[rank] for part in batch(step))
        y = network(x)
        optimizer.zero_grad()
        F.mse_loss(y, target).backward()
        for p in network.parameters() if size > 1 else ():
            real_all_reduce(p.grad)
            p.grad /= size
        optimizer.step()
        update_scales(network)
        outputs.append(y.detach())
    dist.all_reduce = real_all_reduce
    scales = [part.history.tolist() for part in network.modules() if isinstance(part, DelayedScaling)]
    return outputs, scales, [p.detach() for p in network.parameters()]


def gap(world_size, kind, optimizer_class, agreed=True, device="cpu"):
    """The largest difference of ranks from one process, in outputs and parameters, and of scales between ranks."""
    right, _, weights = train(kind, optimizer_class)
    ranks = run_ranks(train, world_size, kind, optimizer_class, agreed, device=device).values
    whole = [torch.cat(parts) for parts in zip(*(outputs for outputs, _, _ in ranks), strict=True)]
    away = max((a - b).abs().max().item() for a, b in zip(whole, right, strict=True))
    for _, _, parameters in ranks:
        away = max(away, *((a - b).abs().max().item() for a, b in zip(parameters, weights, strict=True)))
    return away, any(scales != ranks[0][1] for _, scales, _ in ranks)


@pytest.mark.parametrize("optimizer_class", [torch.optim.SGD, torch.optim.Adam])
@pytest.mark.parametrize(("world_size", "kind"), [(1, "current"), (2, "current"), (4, "delayed")])
def test_ranks_give_what_one_process_gives_on_the_whole_batch(world_size, kind, optimizer_class, device):
    away, scales_differ = gap(world_size, kind, optimizer_class, device=device)
    assert away < 1e-4 and not scales_differ


@pytest.mark.parametrize("kind", KINDS)
def test_without_agreement_they_do_not(kind):
    away, scales_differ = gap(2, kind, torch.optim.SGD, agreed=False)
    assert away > 1e-2 and scales_differ == (kind == "delayed")


def one_step(kind):
    network = convert_to_fp8(MLP((6, 8, 5)), scaling=kind)
    network(torch.randn(3, 6, requires_grad=True)).sum().backward()
    update_scales(network)


@pytest.mark.parametrize(("kind", "sizes"), [("current", [4] * 6), ("delayed", [2 * 12])])
def test_messages_and_bytes_are_those_of_the_docstring(kind, sizes):
    record = run_ranks(one_step, 2, kind, device="cpu", record=True).record
    for rank in range(2):
        assert [(e.op, e.nbytes) for e in record if e.rank == rank] == [("all_reduce", size) for size in sizes]


def test_conversion_keeps_parameters_and_leaves_out_what_is_named():
    gpt = GPT(GPTConfig(num_layers=1, tie_embeddings=True))
    before = dict(gpt.named_parameters())
    assert convert_to_fp8(gpt, skip=("head.projection",), scaling="delayed") is gpt
    after = dict(gpt.named_parameters())
    assert before.keys() == after.keys() and all(before[name] is after[name] for name in before)
    assert type(gpt.head.projection) is nn.Linear and isinstance(gpt.blocks[0].attention.query, Fp8Linear)
    assert "in_features=64, out_features=256, bias=True, scaling='delayed'" in str(gpt.blocks[0].feed_forward.up)


def test_bad_input_is_refused():
    with pytest.raises(ValueError, match='scaling must be "current" or "delayed", got \'dynamic\''):
        Fp8Linear(2, 2, scaling="dynamic")
    with pytest.raises(ValueError, match=r"skip names \['head'\], but the linear layers are layers.0, layers.2"):
        convert_to_fp8(MLP((2, 2, 2)), skip=("head",))


def test_a_converted_layer_is_in_the_place_of_the_old_one_everywhere():
    """In evaluation mode it notes no amax, and a shared layer is converted under all its names."""
    layer = nn.Linear(4, 4)
    model = nn.ModuleDict({"a": layer, "b": layer, "c": nn.Linear(4, 4)}).eval()
    model["c"].register_forward_hook(lambda *_: None)
    with pytest.raises(ValueError, match=r"register hooks after convert_to_fp8\(\)"):
        convert_to_fp8(model, scaling="delayed")
    convert_to_fp8(model, scaling="delayed", skip=("c",))
    assert isinstance(model["a"], Fp8Linear) and model["a"] is model["b"] and model["a"].weight is layer.weight
    model["a"](torch.ones(1, 4))
    assert not any(module.training for module in model.modules()) and model["a"].cast_x.noted == 0
