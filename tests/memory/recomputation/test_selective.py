"""Selective recomputation: gradients without it, bytes of torch's, and what is run twice."""

import pytest
import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.checkpoint import CheckpointPolicy, create_selective_checkpoint_contexts
from torch.utils.checkpoint import checkpoint as torch_checkpoint

import dtlearn
from dtlearn.memory import StorageLedger
from dtlearn.memory.arithmetic.kept_tensors import kept_tensors
from dtlearn.memory.recomputation import selective
from dtlearn.memory.recomputation.checkpoint import checkpoint
from dtlearn.memory.recomputation.selective import (
    FUSED_ATTENTION,
    LINEAR_LAYERS,
    keep_only,
    operation_name,
    selective_checkpoint,
)
from dtlearn.models import GPT, GPTConfig

POLICIES = {
    "linear layers and attention": keep_only(LINEAR_LAYERS | FUSED_ATTENTION),
    "linear layers": keep_only(LINEAR_LAYERS),
    "nothing": lambda operation: False,
    "softmax": keep_only({"_safe_softmax", "_softmax"}),
}


class Calls(TorchDispatchMode):
    """Names of the operations of a block."""

    def __init__(self):
        super().__init__()
        self.names = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.names.append(operation_name(func))
        return func(*args, **(kwargs or {}))


def train(run, dropout=0.0):
    """Gradients of a GPT whose blocks go through `run`, its bytes after forward and at the peak of backward."""
    torch.manual_seed(0)
    model, tokens = GPT(GPTConfig(16, 16, 2, 2, 16, dropout=dropout)), torch.randint(16, (20, 12))
    model, tokens = model.to(dtlearn.device()), tokens.to(dtlearn.device())
    for parameter in model.parameters():
        parameter.grad = torch.zeros_like(parameter)
    with StorageLedger() as ledger, Calls() as calls:
        x = model.embedding(tokens)
        for block in model.blocks:
            x = run(block, x)
        after, ledger.peak = ledger.now, ledger.now
        x.square().sum().backward()
    return [p.grad for p in model.parameters()], after, ledger.peak, calls.names


def kept(function, x):
    return function(x)


def ours(policy):
    return lambda function, x: selective_checkpoint(function, x, keep=policy)


def torchs(policy):
    def decide(context, operation, *args, **kwargs):
        return CheckpointPolicy.MUST_SAVE if policy(operation) else CheckpointPolicy.PREFER_RECOMPUTE

    def contexts():
        return create_selective_checkpoint_contexts(decide)

    return lambda function, x: torch_checkpoint(function, x, use_reentrant=False, context_fn=contexts)


@pytest.mark.parametrize("dropout", [0.0, 0.3])
@pytest.mark.parametrize("policy", POLICIES.values(), ids=POLICIES)
def test_gradients_are_those_without_it_and_bytes_those_of_torchs(policy, dropout):
    plain, mine, theirs = (train(run, dropout) for run in (kept, ours(policy), torchs(policy)))
    assert all(torch.equal(a, b) for a, b in zip(plain[0], mine[0], strict=True))
    assert mine[1] == theirs[1]
    assert 0.95 * theirs[2] <= mine[2] <= 1.001 * theirs[2]


def test_what_is_kept_is_not_computed_again():
    def count(run, names=LINEAR_LAYERS | FUSED_ATTENTION):
        calls = train(run)[3]
        return sum(name in names for name in calls)

    policy = POLICIES["linear layers and attention"]
    once, twice = count(kept), count(checkpoint)
    assert twice - once == 2 * (6 + 1)  # of each block six linear layers and attention
    assert count(ours(policy)) == once == count(torchs(policy))


def test_memory_lies_between_all_and_nothing():
    after = [train(run)[1] for run in (checkpoint, ours(POLICIES["linear layers and attention"]), kept)]
    assert after[0] < after[1] < after[2]
    # A policy that keeps everything keeps what autograd would not need, too.
    assert train(ours(lambda operation: True))[1] > after[2]


@pytest.mark.parametrize("dropout", [0.0, 0.3])
def test_hooks_on_saved_tensors_see_what_is_kept(dropout):
    """So a ledger counts it as activations, and offload can move it."""
    block = GPT(GPTConfig(16, 16, 1, 2, 16, dropout=dropout)).blocks[0]
    x = torch.randn(20, 12, 16, requires_grad=True)
    kept_results = kept_tensors(lambda: selective_checkpoint(block, x, keep=keep_only(LINEAR_LAYERS)), block, x)
    assert [tensor.bytes for tensor in kept_results if tensor.bytes] == [4 * 20 * 12 * width for width in WIDTHS]


WIDTHS = [16, 16, 16, 16, 64, 16]  # of query, key, value, output, up, down


def test_random_numbers_after_a_kept_random_operation_are_the_same():
    def function(x):
        return x * torch.rand_like(x) + (x * x) * torch.rand_like(x)

    calls = []

    def every_second_rand(operation):
        calls.append(operation)
        return operation_name(operation) == "rand_like" and len([c for c in calls if c is operation]) == 1

    x = torch.ones(5, requires_grad=True)
    gradients = []
    for run in (kept, lambda f, x: selective_checkpoint(f, x, keep=every_second_rand)):
        torch.manual_seed(0)
        run(function, x).sum().backward()
        gradients.append(x.grad)
        x.grad = None
    assert torch.equal(*gradients)


def test_forgetting_the_random_state_after_a_kept_operation_is_noticed(monkeypatch):
    """Sabotage: the states after kept operations are not put back."""
    monkeypatch.setattr(selective, "set_random_states", lambda states: None)
    with pytest.raises(AssertionError):
        test_random_numbers_after_a_kept_random_operation_are_the_same()


def test_views_and_changes_in_place_are_computed_again():
    x = torch.ones(4, requires_grad=True)
    selective_checkpoint(
        lambda x: (x * 2).view(2, 2).add_(1).exp(), x, keep=keep_only({"view", "add_"})
    ).sum().backward()
    assert torch.allclose(x.grad, 2 * torch.full((4,), 3.0).exp())


def test_a_kept_result_that_is_changed_in_place_is_an_error():
    x = torch.ones(4, requires_grad=True)
    y = selective_checkpoint(lambda x: (x * 2).add_(1).exp(), x, keep=keep_only({"mul"}))
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.sum().backward()


def test_so_it_is_when_it_was_the_functions_result():
    x = torch.ones(4, requires_grad=True)
    y = selective_checkpoint(torch.exp, x, keep=keep_only({"exp"}))
    y.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.sum().backward()


def test_fewer_operations_in_the_second_pass_are_an_error():
    x, passes = torch.ones(2, requires_grad=True), []

    def function(x):
        passes.append(1)
        return x.exp() if len(passes) == 1 else x * 2

    y = selective_checkpoint(function, x, keep=keep_only({"exp"}))
    with pytest.raises(RuntimeError, match="ran fewer operations than the first: exp is missing"):
        y.sum().backward()


def test_a_second_backward_is_an_error():
    x = torch.ones(2, requires_grad=True)
    y = selective_checkpoint(torch.exp, x, keep=keep_only({"exp"})).sum()
    y.backward(retain_graph=True)
    with pytest.raises(RuntimeError, match="backward ran before"):
        y.backward()


def test_without_gradients_nothing_is_kept():
    layer, x = nn.Linear(2, 2), torch.ones(1, 2)
    with torch.no_grad(), StorageLedger() as ledger:
        y = selective_checkpoint(layer, x, keep=lambda operation: True)
        assert ledger.now == y.nbytes
