"""The page of the checkpoint: gradients of the package's, of torch's and of none, with dropout; and its peak."""

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.utils.checkpoint import checkpoint as torch_checkpoint

import dtlearn
from dtlearn.memory import checkpoint, page_checkpoint
from dtlearn.memory.arithmetic.activations import gpt_block, table_bytes
from dtlearn.memory.ledger.storage_ledger import StorageLedger
from dtlearn.models import GPT, GPTConfig, next_token_loss
from tests.devices import run_ranks

STEPS = 4
OPTIMIZERS = {"SGD": lambda p: torch.optim.SGD(p, lr=0.1), "AdamW": lambda p: torch.optim.AdamW(p, lr=0.01)}
RUNS = {
    "none": lambda function, *inputs: function(*inputs),
    "page": page_checkpoint.checkpoint,
    "package": checkpoint,
    "torch": lambda function, *inputs: torch_checkpoint(function, *inputs, use_reentrant=False),
}


class AllReduce(torch.autograd.Function):
    """The sum over the ranks, forward and backward."""

    @staticmethod
    def forward(ctx, x):
        y = x.clone()
        dist.all_reduce(y)
        return y

    @staticmethod
    def backward(ctx, gradient):
        return AllReduce.forward(None, gradient)


class Segment(nn.Module):
    """A part of an MLP with dropout, and a collective if there is a world."""

    def __init__(self, size_in, size_out):
        super().__init__()
        self.linear, self.dropout = nn.Linear(size_in, size_out), nn.Dropout(0.3)

    def forward(self, x):
        x = self.dropout(torch.tanh(self.linear(x)))
        return AllReduce.apply(x) if dist.is_initialized() else x


def train_mlp(run, make_optimizer, rank=0):
    """Losses, gradients and weights of all steps, and the state of the random generator at the end."""
    torch.manual_seed(1)
    segments = nn.ModuleList(Segment(*sizes) for sizes in ((6, 8), (8, 8), (8, 3)))
    return train(segments.to(dtlearn.device()), run, make_optimizer, lambda: torch.randn(5, 6), rank)


def train_gpt(run, make_optimizer):
    torch.manual_seed(1)
    blocks = GPT(GPTConfig(48, 16, 2, 4, 32, dropout=0.2)).blocks.to(dtlearn.device())
    return train(blocks, run, make_optimizer, lambda: torch.randn(3, 10, 32), 0)


def train(segments, run, make_optimizer, make_inputs, rank):
    optimizer, history = make_optimizer(segments.parameters()), []
    torch.manual_seed(7 + rank)
    for _ in range(STEPS):
        optimizer.zero_grad()
        x = make_inputs().to(dtlearn.device())  # requires no gradient, so in the first segment no input does
        for segment in segments:
            x = run(segment, x)
        loss = x.square().mean()
        loss.backward()
        optimizer.step()
        history += [loss.detach()] + [t.clone() for p in segments.parameters() for t in (p.grad, p.detach())]
    return [*history, torch.get_rng_state()]


def same(some, others):
    return all(torch.equal(a, b) for a, b in zip(some, others, strict=True))


@pytest.mark.parametrize("name", OPTIMIZERS)
@pytest.mark.parametrize("train_model", [train_mlp, train_gpt])
def test_steps_are_those_of_the_others_to_the_last_bit(train_model, name):
    steps = {kind: train_model(run, OPTIMIZERS[name]) for kind, run in RUNS.items()}
    assert {kind: same(steps["none"], each) for kind, each in steps.items()} == dict.fromkeys(RUNS, True)


def on_rank():
    rank, make_optimizer = dist.get_rank(), OPTIMIZERS["AdamW"]
    none = train_mlp(RUNS["none"], make_optimizer, rank)
    return same(none, train_mlp(RUNS["page"], make_optimizer, rank))


def gpt_on_rank():
    return same(train_gpt(RUNS["none"], OPTIMIZERS["SGD"]), train_gpt(RUNS["page"], OPTIMIZERS["SGD"]))


def test_so_they_are_on_another_device(other_device):
    assert run_ranks(gpt_on_rank, 1, device=other_device)[0]


@pytest.mark.parametrize("world_size", [1, 2, 4])
def test_with_a_collective_in_the_segment(world_size, device):
    result = run_ranks(on_rank, world_size, device=device, record=True)
    assert list(result) == [True] * world_size
    # 2 a segment and step without a checkpoint, forward and backward (the loss is a root of its own); 3 with one.
    segments = 3 * STEPS
    assert result.record.counts() == {(rank, "all_reduce"): (2 + 3) * segments for rank in range(world_size)}
    elements = 5 * (8 + 8 + 3) * STEPS
    assert all(result.record.nbytes(rank=rank) == (2 + 3) * 4 * elements for rank in range(world_size))


def test_a_second_pass_with_other_random_numbers_is_noticed(monkeypatch):
    """Sabotage: the state is not restored."""
    none = train_mlp(RUNS["none"], OPTIMIZERS["SGD"])
    monkeypatch.setattr(torch, "set_rng_state", lambda state: None)
    page = train_mlp(RUNS["page"], OPTIMIZERS["SGD"])
    assert torch.equal(page[0], none[0]) and not same(page, none)


def test_inputs_that_are_not_detached_are_noticed(monkeypatch):
    """Sabotage: backward through the second pass goes on into the segment before, and that one's runs again."""
    none = train_mlp(RUNS["none"], OPTIMIZERS["SGD"])
    monkeypatch.setattr(torch.Tensor, "detach", lambda tensor: tensor)
    monkeypatch.setattr(torch.Tensor, "requires_grad_", lambda tensor, _: tensor)
    try:
        page = train_mlp(RUNS["page"], OPTIMIZERS["SGD"])
    except UserWarning as warning:  # autograd itself notices: an input of the second pass is no leaf
        assert "not a leaf Tensor" in str(warning)
    else:
        assert not same(page, none)


def test_its_peak_is_the_formulas():
    """Blocks of a GPT: forward keeps their inputs; in backward one block's activations come, and go."""
    config, batch, length = GPTConfig(48, 16, 4, 4, 32, dropout=0.2), 3, 10
    table = gpt_block(config, batch, length)
    after, peaks = {}, {}
    for kind, run in RUNS.items():
        torch.manual_seed(0)
        model, tokens = GPT(config), torch.randint(48, (batch, length + 1))
        with StorageLedger() as ledger:
            x = model.embedding(tokens[:, :-1])
            for block in model.blocks:
                x = run(block, x)
            loss = next_token_loss(model.head(x), tokens[:, 1:])
            after[kind] = ledger.now
            loss.backward()
        peaks[kind] = ledger.peak
    assert after["none"] - after["page"] == config.num_layers * (table_bytes(table) - table[0].bytes)
    assert after["page"] == after["package"] == after["torch"]
    output_bytes = x.nbytes  # of one block: the page holds the second one during backward
    assert peaks["page"] == peaks["package"] + output_bytes < peaks["none"]


def test_random_numbers_take_what_the_page_says():
    assert torch.get_rng_state().nbytes == 5056


def test_there_are_no_second_derivatives():
    x = torch.tensor(3.0, requires_grad=True)
    (gradient,) = torch.autograd.grad(page_checkpoint.checkpoint(torch.exp, x).square(), x, create_graph=True)
    with pytest.raises(RuntimeError, match="once_differentiable"):
        gradient.backward()
