"""Our autocast beside torch's: formats of single operations, losses of a GPT to the last bit, and each difference."""

import threading
import warnings

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint

from dtlearn.memory import StorageLedger
from dtlearn.memory import checkpoint as our_checkpoint
from dtlearn.mixed_precision import DtypeLog, autocast, reenter
from dtlearn.mixed_precision.casting.autocast import DIFFERENCES, _state
from dtlearn.mixed_precision.casting.policy import POLICIES
from dtlearn.models import GPT, GPTConfig, next_token_loss
from tests.mixed_precision.casting.test_policy import CALLS


@pytest.fixture(autouse=True, scope="module")
def one_thread():
    """These models are small: more threads would only wait for each other on a busy machine."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


DTYPES = [torch.bfloat16, torch.float16]
SMALL = GPTConfig(16, 8, 2, 2, 16)


def torchs(dtype):
    return torch.autocast("cpu", dtype=dtype)


def ours(dtype):
    return autocast("cpu", dtype)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("lowered", [False, True], ids=["from fp32", "from 16 bits"])
@pytest.mark.parametrize("name", CALLS)
def test_an_operation_gives_what_it_gives_under_torchs(name, lowered, dtype):
    results = []
    for block in (torchs, ours):
        torch.manual_seed(0)
        with block(dtype):
            results.append(CALLS[name](lambda tensor: tensor.to(dtype) if lowered else tensor))
    assert results[0].dtype == results[1].dtype
    assert torch.equal(*results)


@pytest.mark.parametrize(
    "operation",
    [F.gelu, F.relu, torch.exp, lambda x: x.softmax(-1), lambda x: x + x, lambda x: F.layer_norm(x, (4,)), torch.sum],
)
def test_without_a_rule_an_operation_runs_in_the_format_it_gets(operation):
    for dtype in (*DTYPES, torch.float32):
        for block in (torchs, ours):
            with block(torch.bfloat16):
                assert operation(torch.ones(4, 4, dtype=dtype)).dtype is dtype


def test_float64_and_whole_numbers_are_never_cast():
    x = torch.ones(2, 2, dtype=torch.float64)
    for block in (torchs, ours):
        with block(torch.bfloat16):
            assert (x @ x).dtype is F.mse_loss(x, x).dtype is torch.cat([x, x]).dtype is torch.float64
            assert torch.cat([torch.ones(2, dtype=torch.int64)] * 2).dtype is torch.int64


def test_a_result_keeps_the_format_of_out():
    for block in (torchs, ours):
        out = torch.empty(2, 2)
        with block(torch.bfloat16):
            assert torch.mm(torch.ones(2, 2), torch.ones(2, 2), out=out).dtype is torch.float32


def test_tensors_are_found_wherever_an_operation_takes_them():
    x = torch.ones(2, 2)
    for block in (torchs, ours):
        with block(torch.bfloat16):
            assert F.linear(input=x, weight=x, bias=None).dtype is torch.bfloat16
            assert torch.einsum("ij,jk,kl->il", [x, x, x]).dtype is torch.bfloat16
            assert torch.cat(tensors=(x.bfloat16(), x), dim=0).dtype is torch.float32
            assert F.conv2d(x.view(1, 1, 2, 2), x.view(1, 1, 2, 2), stride=(1, 1)).dtype is torch.bfloat16


def train(block, steps=5, device="cpu"):
    """Losses of a GPT, its last gradients, and the formats in the last forward pass."""
    torch.manual_seed(0)
    model = GPT(SMALL)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    losses = []
    for tokens in torch.randint(16, (steps, 4, 9)):
        optimizer.zero_grad()
        with block, DtypeLog() as log:
            loss = next_token_loss(model(tokens[:, :-1]), tokens[:, 1:])
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses, [p.grad for p in model.parameters()], log.ops


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_gpts_losses_gradients_and_formats_are_those_under_torchs(dtype):
    (losses, gradients, formats), theirs = train(ours(dtype)), train(torchs(dtype))
    assert losses == theirs[0]
    assert all(torch.equal(a, b) and a.dtype is torch.float32 for a, b in zip(gradients, theirs[1], strict=True))
    assert formats == theirs[2] and len(formats) > 40
    plain = train(autocast("cpu", enabled=False))[0]
    assert 1e-6 < max(abs(a - b) for a, b in zip(losses, plain, strict=True)) < 0.05  # and it did something


def test_the_formats_in_a_gpt():
    given = {(op.name, *op.outputs) for op in train(ours(torch.bfloat16), steps=1)[2]}
    for name in ("linear", "scaled_dot_product_attention", "gelu"):
        assert {output for op, output in given if op == name} == {"bfloat16"}
    for name in ("embedding", "layer_norm", "cross_entropy"):
        assert {output for op, output in given if op == name} == {"float32"}


def test_the_gpus_table_keeps_norms_and_softmax_in_fp32():
    x = torch.ones(4, 4, dtype=torch.float16)
    with autocast("cuda"):
        for operation in (lambda: x.softmax(-1), lambda: F.softmax(x, -1), lambda: F.layer_norm(x, (4,)), x.sum, x.exp):
            assert operation().dtype is torch.float32
        assert (x @ x).dtype is torch.float16


@pytest.mark.parametrize("block", [torchs, ours])
def test_a_disabled_block_inside(block):
    x, kind = torch.ones(2, 2), torch.autocast if block is torchs else autocast
    with block(torch.bfloat16):
        with kind("cpu", enabled=False):
            assert (x @ x).dtype is torch.float32
            with block(torch.float16):
                assert (x @ x).dtype is torch.float16
            with pytest.raises(RuntimeError, match="dtype"):
                torch.mm(x, x.half())  # what comes from outside has to be cast by hand
        assert (x @ x).dtype is torch.bfloat16
    assert (x @ x).dtype is torch.float32


def test_an_error_in_the_block_ends_it():
    with pytest.raises(ZeroDivisionError), ours(torch.bfloat16):
        F.linear(torch.ones(2, 2), nn.Parameter(torch.ones(2, 2)))
        raise ZeroDivisionError
    assert (torch.ones(2, 2) @ torch.ones(2, 2)).dtype is torch.float32
    assert not _state.blocks and not len(_state.casts)


def test_it_is_a_decorator_and_belongs_to_its_thread():
    @ours(torch.bfloat16)
    def product(x):
        seen = []
        thread = threading.Thread(target=lambda: seen.append((x @ x).dtype))
        thread.start()
        thread.join()
        return (x @ x).dtype, seen

    assert product(torch.ones(2, 2)) == product(torch.ones(2, 2)) == (torch.bfloat16, [torch.float32])


class CastCount(torch.overrides.TorchFunctionMode):
    """Counts the casts of a block: an outer mode sees what the inner one calls."""

    def __init__(self):
        super().__init__()
        self.casts = 0

    def __torch_function__(self, func, types, args=(), kwargs=None):
        self.casts += func.__name__ == "to"
        return func(*args, **kwargs or {})


@pytest.mark.parametrize(("cached", "casts"), [(True, 3 + 2), (False, 3 * 3)])
def test_a_weight_is_cast_once_in_a_block(cached, casts):
    layer, x = nn.Linear(4, 4), torch.ones(2, 4)
    with CastCount() as count, autocast("cpu", cache_enabled=cached):
        for _ in range(3):
            layer(x)  # casts x, and weight and bias if they are not there yet
    assert count.casts == casts
    assert not len(_state.casts)


def test_the_casts_take_two_bytes_per_element_until_the_block_ends():
    layer = nn.Linear(64, 64, bias=False)
    x = torch.ones(1, 64, dtype=torch.bfloat16)
    with StorageLedger() as ledger, torch.no_grad():
        with ours(torch.bfloat16):
            result = layer(x)
            assert ledger.now == 2 * (64 * 64 + result.numel())
        assert ledger.now == 2 * result.numel()


def test_one_cast_has_the_gradients_of_all_uses():
    gradients = []
    for block in (torchs, ours):
        torch.manual_seed(0)
        layer, x = nn.Linear(4, 4), torch.randn(2, 4)
        with block(torch.bfloat16):
            with torch.no_grad():
                layer(x)  # the first use leaves no graph
            loss = layer(layer(x)).float().square().sum()
        loss.backward()
        gradients.append(layer.weight.grad)
    assert torch.equal(*gradients) and gradients[0].dtype is torch.float32


def test_a_pass_in_inference_mode_leaves_no_cast_behind():
    """It has no graph, and the weight would get no gradient from a later pass of the block."""
    gradients = []
    for block in (torchs, ours):
        torch.manual_seed(0)
        layer, x = nn.Linear(4, 4), torch.randn(2, 4)
        with block(torch.bfloat16):
            with torch.inference_mode():
                layer(x)
            loss = layer(x).float().square().sum()
            with torch.inference_mode():
                layer(x)  # takes the cast with a graph, and leaves it there
            loss = loss + layer(x).float().sum()
        loss.backward()
        gradients.append(layer.weight.grad)
    assert torch.equal(*gradients)


def test_a_weight_changed_in_the_block_keeps_its_old_cast_as_in_torch():
    for block in (torchs, ours):
        layer, x = nn.Linear(4, 4), torch.ones(2, 4)
        with block(torch.bfloat16):
            before = layer(x)
            with torch.no_grad():
                layer.weight += 1
            assert torch.equal(layer(x), before)
        with block(torch.bfloat16):
            assert not torch.equal(layer(x), before)


@pytest.mark.parametrize("dtype", DTYPES)
def test_backward_inside_the_block_gives_the_same_gradients(dtype):
    gradients = []
    for inside in (False, True):
        torch.manual_seed(0)
        model, x = nn.Sequential(nn.Linear(8, 8), nn.LayerNorm(8), nn.GELU(), nn.Linear(8, 8)), torch.randn(4, 8)
        with ours(dtype):
            loss = F.mse_loss(model(x), x)
            if inside:
                loss.backward()
        if not inside:
            loss.backward()
        gradients.append([p.grad for p in model.parameters()])
    assert all(torch.equal(a, b) for a, b in zip(*gradients, strict=True))


def recomputed(use_reentrant, wrap):
    """Gradients of a model whose middle is computed again in backward, after the autocast block."""
    torch.manual_seed(0)
    first, middle, x = nn.Linear(4, 4), nn.Sequential(nn.Linear(4, 8), nn.GELU(), nn.Linear(8, 4)), torch.randn(2, 4)
    seen = []
    middle[1].register_forward_hook(lambda module, inputs, output: seen.append(output.dtype))
    with ours(torch.bfloat16):
        hidden = first(x)
        if use_reentrant is None:
            loss = middle(hidden).float().sum()
        else:
            loss = checkpoint(wrap(middle), hidden, use_reentrant=use_reentrant).float().sum()
    loss.backward()
    return seen, [p.grad for module in (first, middle) for p in module.parameters()]


@pytest.mark.parametrize("use_reentrant", [False, True])
def test_recomputation_enters_the_same_autocast_again(use_reentrant):
    plain, (seen, gradients) = recomputed(None, None), recomputed(use_reentrant, reenter)
    assert seen == [torch.bfloat16] * 2
    assert all(torch.equal(a, b) for a, b in zip(plain[1], gradients, strict=True))
    assert not _state.blocks and not len(_state.casts)


@pytest.mark.parametrize("nested", [False, True])
def test_a_checkpoint_of_this_course_enters_it_by_itself(nested):
    """The middle runs in a block of its own: in float16, or not cast at all. Bits are those under torch's."""
    gradients, formats = [], []
    for block, backward_inside in ((torchs, False), (ours, False), (ours, True)):
        torch.manual_seed(0)
        layers, x = nn.ModuleList(nn.Linear(4, 4) for _ in range(3)), torch.randn(2, 4)
        inner = (torch.autocast if block is torchs else autocast)("cpu", torch.float16, enabled=not nested)
        layers[1].register_forward_hook(lambda module, inputs, output: formats.append(output.dtype))
        with block(torch.bfloat16):
            hidden = layers[0](x)
            with inner:
                hidden = our_checkpoint(layers[1], hidden.float())
            loss = layers[2](hidden).float().square().sum()
            if backward_inside:
                loss.backward()
        if not backward_inside:
            loss.backward()
        gradients.append([p.grad for p in layers.parameters()])
    assert formats == [torch.float32 if nested else torch.float16] * 6
    for each in gradients[1:]:
        assert all(torch.equal(a, b) for a, b in zip(gradients[0], each, strict=True))
    assert not _state.blocks and not len(_state.casts)


def test_a_checkpoint_outside_of_the_block_stays_outside_of_it():
    layer, seen = nn.Linear(4, 4), []
    layer.register_forward_hook(lambda module, inputs, output: seen.append(output.dtype))
    loss = our_checkpoint(layer, torch.ones(2, 4)).sum()
    with ours(torch.bfloat16):
        loss.backward()
    assert seen == [torch.float32] * 2


def test_reenter_outside_of_autocast_changes_nothing():
    layer = nn.Linear(2, 2)
    assert reenter(layer) is layer


def difference_recomputation():
    with pytest.raises(RuntimeError, match="same dtype"):
        recomputed(False, lambda block: block)


def difference_recurrent_layers():
    x = torch.ones(2, 1, 4)
    for kind in (nn.LSTM, nn.GRU, nn.RNN):
        layer = kind(4, 4)
        with torchs(torch.bfloat16):
            assert layer(x.bfloat16())[0].dtype is torch.bfloat16
        with ours(torch.bfloat16):
            assert layer(x)[0].dtype is layer(x.bfloat16().to(torch.float32))[0].dtype is torch.float32
            with pytest.raises(ValueError, match=r"Convert input: input.to\(torch.float32\)"):
                layer(x.bfloat16())


def difference_one_operation():
    attention, x = nn.MultiheadAttention(4, 2), torch.ones(2, 1, 4)
    with torchs(torch.bfloat16):
        assert attention(x, x, x)[0].dtype is torch.bfloat16
    with ours(torch.bfloat16):
        assert attention(x, x, x)[0].dtype is torch.float32


def difference_nested_dtypes():
    layer, x = nn.Linear(2, 2), torch.ones(2, 2)
    with ours(torch.bfloat16):
        assert layer(x).dtype is torch.bfloat16
        with ours(torch.float16):
            assert layer(x).dtype is torch.float16
    with pytest.raises(RuntimeError, match="dtype"), torchs(torch.bfloat16):
        layer(x)
        with torchs(torch.float16):
            layer(x)


def difference_other_dtypes():
    with pytest.raises(ValueError, match=r"casts to torch.bfloat16 or torch.float16; got torch.float32: choose"):
        autocast("cpu", torch.float32)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        torchs(torch.float32)
    assert "Disabling autocast" in str(caught[0].message)


def difference_any_device():
    x = torch.ones(2, 2)
    with autocast("cuda"):
        assert (x @ x).dtype is torch.float16
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # there may be no GPU
        with torch.autocast("cuda"):
            assert (x @ x).dtype is torch.float32


@pytest.mark.parametrize("name", DIFFERENCES)
def test_each_difference_that_is_named_is_there(name):
    globals()[f"difference_{name.replace(' ', '_')}"]()


def test_another_device_is_refused():
    with pytest.raises(ValueError, match="there is a policy for cpu and cuda; got 'tpu'"):
        autocast("tpu")


def test_a_table_without_a_row_is_noticed(monkeypatch):
    """Sabotage: without the row of cross_entropy the losses are no longer torch's."""
    monkeypatch.setitem(POLICIES, "cpu", {k: v for k, v in POLICIES["cpu"].items() if k != "cross_entropy"})
    assert train(ours(torch.bfloat16), steps=2)[0] != train(torchs(torch.bfloat16), steps=2)[0]
