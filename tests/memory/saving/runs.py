"""What the tests of saved memory share: small models, a batch, and gradients to compare."""

import torch

import dtlearn
from dtlearn.memory import StorageLedger
from dtlearn.models import GPT, GPTConfig, next_token_loss, snapshot_gradients

CONFIG = GPTConfig(vocab_size=32, context_length=16, num_layers=2, num_heads=2, hidden_size=32)


def gpt(dtype=torch.float32, **sizes):
    """The same weights every time."""
    torch.manual_seed(1)
    return GPT(GPTConfig(**{**CONFIG.__dict__, **sizes})).to(dtlearn.device(), dtype)


def tokens(batch=8, seed=0):
    """Inputs and targets, each (batch, 16)."""
    both = torch.randint(32, (batch, 17), generator=torch.Generator().manual_seed(seed))
    return both[:, :-1].to(dtlearn.device(), copy=True), both[:, 1:].to(dtlearn.device(), copy=True)


def backward(model, batch):
    """An ordinary forward and backward."""
    loss = next_token_loss(model(batch[0]), batch[1])
    loss.backward()
    return loss.detach()


def gradients_and_peak(work, model):
    """Gradients after `work(model)`, and the ledger's peak meanwhile."""
    with StorageLedger() as ledger:
        work(model)
    return snapshot_gradients(model), ledger.peak


def same(some, others):
    """Equal names, and equal bits."""
    return some.keys() == others.keys() and all(torch.equal(some[name], others[name]) for name in some)
