"""Our checkpoint: results and peak of torch's, and what a second pass can get wrong."""

import pytest
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint as torch_checkpoint

import dtlearn
from dtlearn.data_parallel.ddp import DistributedDataParallel
from dtlearn.data_parallel.naive import NaiveDataParallel
from dtlearn.memory.arithmetic.activations import gpt_block, table_bytes
from dtlearn.memory.ledger.storage_ledger import StorageLedger
from dtlearn.memory.recomputation.checkpoint import CheckpointFunction, checkpoint
from dtlearn.memory.recomputation.naive import naive_checkpoint
from dtlearn.models import GPT, GPTConfig, next_token_loss
from tests.devices import run_ranks

SIZES = GPTConfig(48, 16, 4, 4, 32)
BATCH, LENGTH = 3, 10


def kept(function, *args, **kwargs):
    kwargs.pop("preserve_rng_state", None)
    return function(*args, **kwargs)


def torchs(function, *args, **kwargs):
    return torch_checkpoint(function, *args, use_reentrant=False, **kwargs)


def train(run, config=SIZES, steps=1, dtype=None):
    """Losses and last gradients of a GPT whose blocks go through `run`, and its bytes: after forward, and the peak."""
    torch.manual_seed(0)
    model = GPT(config).to(dtlearn.device())
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    losses = []
    for tokens in torch.randint(config.vocab_size, (steps, BATCH, LENGTH + 1)).to(dtlearn.device()):
        optimizer.zero_grad()
        with StorageLedger() as ledger:
            with torch.autocast(dtlearn.device().type, dtype, enabled=dtype is not None):
                x = model.embedding(tokens[:, :-1])
                for block in model.blocks:
                    x = run(block, x)
                loss = next_token_loss(model.head(x), tokens[:, 1:])
            after = ledger.now
            loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses, [p.grad for p in model.parameters()], after, ledger.peak


def same(a, b):
    return all(torch.equal(x, y) for x, y in zip(a, b, strict=True))


@pytest.mark.parametrize("dtype", [None, torch.bfloat16], ids=["fp32", "autocast"])
@pytest.mark.parametrize("dropout", [0.0, 0.2])
def test_losses_and_gradients_are_those_without_it_bit_for_bit(dropout, dtype):
    config = GPTConfig(48, 16, 2, 4, 32, dropout=dropout)
    plain, ours = (train(run, config, 3, dtype) for run in (kept, checkpoint))
    assert plain[0] == ours[0] and same(plain[1], ours[1])


def on_a_device():
    """With dropout, and under autocast; beside torch's."""
    runs = kept, checkpoint, torchs
    config = GPTConfig(48, 16, 1, 4, 32, dropout=0.2)
    (losses, gradients, *_), *others = (train(run, config, 1, torch.bfloat16) for run in runs)
    return [losses == others_losses and same(gradients, theirs) for others_losses, theirs, *_ in others]


def test_so_they_are_on_another_device(other_device):
    assert run_ranks(on_a_device, 1, device=other_device)[0] == [True, True]


@pytest.mark.parametrize("dropout", [0.0, 0.2])
def test_its_bytes_are_those_of_torchs(dropout):
    config = GPTConfig(48, 16, 4, 4, 32, dropout=dropout)
    plain, ours, theirs = (train(run, config) for run in (kept, checkpoint, torchs))
    assert ours[2] == theirs[2]
    assert ours[3] == pytest.approx(theirs[3], rel=0.001)
    # After forward: of each block its input, which is what the table's first row is.
    input_bytes = gpt_block(config, BATCH, LENGTH)[0].bytes
    assert plain[2] - ours[2] == 4 * (table_bytes(gpt_block(config, BATCH, LENGTH)) - input_bytes)


def test_a_checkpoint_that_forgets_the_random_state_is_noticed():
    """Sabotage: the naive one, and ours when it is told to."""
    config = GPTConfig(48, 16, 2, 4, 32, dropout=0.2)
    right = train(kept, config)
    for forgets in (naive_checkpoint, lambda block, x: checkpoint(block, x, preserve_rng_state=False)):
        wrong = train(forgets, config)
        assert wrong[0] == right[0] and not same(wrong[1], right[1])


def test_a_checkpoint_that_keeps_the_activations_is_noticed(monkeypatch):
    """Sabotage: its first pass runs with a graph, which it holds on to."""
    forward = CheckpointFunction.forward

    def keeps(ctx, call, *rest):
        with torch.enable_grad():
            ctx.first_pass = call([tensor.detach().requires_grad_() for tensor in rest[2:]])
        return forward(ctx, call, *rest)

    good = train(checkpoint)
    monkeypatch.setattr(CheckpointFunction, "forward", staticmethod(keeps))
    bad = train(checkpoint)
    assert same(good[1], bad[1])  # the gradients do not show it
    assert bad[2] > 3 * good[2] and bad[3] > 1.1 * good[3]


@pytest.mark.parametrize("run", [checkpoint, torchs])
def test_arguments_and_results_of_any_kind(run):
    weight = nn.Parameter(torch.randn(4, 4))

    def function(number, tensors, *, scale, extra=None):
        hidden = number * (tensors["x"] @ weight) * scale["by"]
        return {"hidden": hidden, "count": 3, "largest": hidden.argmax(), "none": extra}, hidden.exp()

    x, by = torch.randn(2, 4, requires_grad=True), torch.tensor(3.0, requires_grad=True)
    gradients = []
    for each in (kept, run):
        result, other = each(function, 2.0, {"x": x}, scale={"by": by})
        assert result["count"] == 3 and result["none"] is None and not result["largest"].requires_grad
        (result["hidden"].sum() + other.square().sum()).backward()
        gradients.append([weight.grad, x.grad, by.grad])
        weight.grad = x.grad = by.grad = None
    assert same(*gradients)


@pytest.mark.parametrize("used", [0, 1])
def test_a_result_that_the_loss_does_not_need(used):
    x, layer = torch.randn(3, requires_grad=True), nn.Linear(3, 3)
    gradients = []
    for run in (kept, checkpoint):
        results = run(lambda x: (layer(x).tanh(), x.exp()), x)
        results[used].sum().backward()
        gradients.append([t.grad if t.grad is not None else torch.zeros(1) for t in (x, layer.weight)])
        x.grad = layer.weight.grad = None
    assert same(*gradients)


def test_nested():
    config = GPTConfig(48, 16, 4, 4, 32, dropout=0.2)

    def all_in_one(run):
        torch.manual_seed(0)
        model, tokens = GPT(config), torch.randint(48, (BATCH, LENGTH))

        def two(x, first):
            return run(model.blocks[first + 1], run(model.blocks[first], x))

        loss = run(two, run(two, model.embedding(tokens), 0), 2).square().sum()
        loss.backward()
        return [p.grad for p in model.blocks.parameters()]

    assert same(all_in_one(kept), all_in_one(checkpoint))


def test_parameters_get_gradients_where_no_input_requires_one():
    layer, x = nn.Linear(2, 2), torch.ones(1, 2)
    checkpoint(layer, x).sum().backward()
    assert layer.weight.grad is not None and x.grad is None


def test_a_result_that_is_an_argument():
    x = torch.ones(2, requires_grad=True)
    same_again, double = checkpoint(lambda x: (x, 2 * x), x)
    (same_again + double).sum().backward()
    assert x.grad.tolist() == [3.0, 3.0]


def test_one_tensor_as_two_arguments():
    x = torch.tensor(3.0, requires_grad=True)
    checkpoint(torch.mul, x, x).backward()
    assert x.grad == 6.0


def test_a_graph_that_is_kept_can_be_used_twice():
    x = torch.tensor(3.0, requires_grad=True)
    y = checkpoint(torch.square, x)
    y.backward(retain_graph=True)
    y.backward()
    assert x.grad == 12.0


def test_without_gradients_it_is_the_function():
    x = torch.ones(2, requires_grad=True)
    with torch.no_grad():
        assert not checkpoint(torch.exp, x).requires_grad


def test_hooks_of_parameters_run_in_backward():
    """So a wrapper that reduces gradients when they are there works over it."""
    layer, seen = nn.Linear(2, 2), []
    layer.weight.register_post_accumulate_grad_hook(lambda parameter: seen.append(parameter.grad.clone()))
    checkpoint(layer, torch.ones(1, 2)).sum().backward()
    assert len(seen) == 1 and torch.equal(seen[0], layer.weight.grad)


def test_an_argument_changed_in_place_is_an_error():
    x = torch.ones(2, requires_grad=True) * 2
    y = checkpoint(torch.exp, x)
    x += 1
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.sum().backward()


@pytest.mark.parametrize("requires_grad", [False, True])
def test_a_function_that_changes_an_argument_is_an_error(requires_grad):
    """It would be run a second time on what it has changed: gradient 8 for 4."""
    weight, x = nn.Parameter(torch.ones(2)), torch.ones(2, requires_grad=requires_grad) * 1
    for change in (
        lambda x: x.mul_(2) * weight,
        lambda x: x.view(-1).mul_(2) * weight,
        lambda x: x[0].add_(1) * weight,
    ):
        with pytest.raises(RuntimeError, match="changed one of its arguments in place"):
            checkpoint(change, x)
    with pytest.raises(RuntimeError, match="changed one of its arguments in place"):
        checkpoint(lambda table: table["x"].mul_(2) * weight, {"x": x})
    checkpoint(lambda x: x.clone().mul_(2) * weight, x).sum().backward()
    assert weight.grad.tolist() == (2 * x).tolist()


def test_a_function_that_needs_no_gradient_runs_once():
    passes, frozen = [], nn.Linear(2, 2).requires_grad_(False)

    def function(x):
        passes.append(x)
        return frozen(x), x.argmax(), 3

    y, position, number = checkpoint(function, torch.ones(1, 2))
    assert not y.requires_grad and y.grad_fn is None and not position.requires_grad and number == 3
    layer = nn.Linear(2, 2)
    for use in (layer, lambda x: layer.weight, lambda x: Recorded.apply(layer.weight), lambda x: checkpoint(layer, x)):
        assert checkpoint(use, frozen(torch.ones(1, 2))).requires_grad  # a parameter that nobody gave
    assert len(passes) == 1


class Recorded(torch.autograd.Function):
    """An operation that torch's functions do not know."""

    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, gradient):
        return gradient


def test_a_result_can_be_changed_in_place():
    gradients = []
    for run in (kept, checkpoint):
        torch.manual_seed(0)
        layer, x = nn.Linear(2, 2), torch.randn(3, 2, requires_grad=True)
        y = run(layer, x)
        y.mul_(2)
        y.square().sum().backward()
        gradients.append([x.grad, layer.weight.grad])
    assert same(*gradients)


def test_gradients_of_some_inputs_only_are_refused():
    x, layer = torch.ones(1, 2, requires_grad=True), nn.Linear(2, 2)
    with pytest.raises(RuntimeError, match=r"works with loss.backward\(\) only"):
        torch.autograd.grad(checkpoint(layer, x).sum(), [layer.weight, x])


@pytest.mark.filterwarnings("ignore:Using backward")  # about a leak, in a test that is over at once
def test_there_are_no_second_derivatives():
    x = torch.tensor(3.0, requires_grad=True)
    checkpoint(torch.exp, x).square().backward(create_graph=True)
    with pytest.raises(RuntimeError, match="once_differentiable"):
        x.grad.backward()


def test_an_error_in_the_second_pass_is_the_functions_own():
    passes = []

    def once(x):
        passes.append(x)
        if len(passes) > 1:
            raise ZeroDivisionError("second pass")
        return F.relu(x)

    with pytest.raises(ZeroDivisionError, match="second pass"):
        checkpoint(once, torch.ones(1, requires_grad=True)).sum().backward()


def on_this_rank():
    """Whether gradients with and without checkpoints are the same, by wrapper."""
    found = {}
    for name, wrap in WRAPPERS.items():
        gradients = []
        for run in (kept, checkpoint):
            torch.manual_seed(0)
            model = Checkpointed(run)
            x = torch.randn(5, 4, generator=torch.Generator().manual_seed(dist.get_rank()))
            wrap(model)(x).square().mean().backward()
            gradients.append([p.grad.clone() for p in model.parameters()])
        found[name] = same(*gradients)
    return found


class Checkpointed(nn.Module):
    """Two blocks, each run through `run`, with dropout in them."""

    def __init__(self, run):
        super().__init__()
        self.run = run
        self.blocks = nn.ModuleList(nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Dropout(0.3)) for _ in range(2))

    def forward(self, x):
        for block in self.blocks:
            x = self.run(block, x)
        return x


WRAPPERS = {
    "naive": NaiveDataParallel,
    "DDP": DistributedDataParallel,
    "DDP, views": lambda model: DistributedDataParallel(model, gradient_as_bucket_view=True),
    "torch's DDP": nn.parallel.DistributedDataParallel,
}


class Summed(torch.autograd.Function):
    """Sum over the ranks; each gets the gradient of its own summand."""

    @staticmethod
    def forward(ctx, x):
        y = x.clone()
        dist.all_reduce(y)
        return y

    @staticmethod
    def backward(ctx, gradient):
        return gradient


def test_under_data_parallel_wrappers():
    for found in run_ranks(on_this_rank, 2, device="cpu"):
        assert found == dict.fromkeys(WRAPPERS, True)


def a_collective_inside():
    x = torch.full((2,), 1.0 + dist.get_rank(), requires_grad=True)
    y = checkpoint(lambda x: Summed.apply(x.square()), x)
    y.sum().backward()
    return y.tolist(), x.grad.tolist()


def test_a_collective_inside_runs_twice_on_every_rank():
    result = run_ranks(a_collective_inside, 2, device="cpu", record=True)
    assert result.values == [([5.0, 5.0], [2.0, 2.0]), ([5.0, 5.0], [4.0, 4.0])]
    assert result.record.counts() == {(rank, "all_reduce"): 2 for rank in range(2)}
