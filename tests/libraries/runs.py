"""Runs of engines inside ranks, for the tests of this folder."""

import torch

from dtlearn.libraries.engines.base import batches
from dtlearn.libraries.engines.registry import make_engine

EXACT = 2e-6  # of a loss: fp32 sums in another order


def losses_of(name, run):
    """The losses of an engine on this rank."""
    engine = make_engine(name, run)
    return [engine.step(*batch) for batch in batches(run)]


def reference_losses(run):
    """The losses of the whole batch in this process, by torch alone."""
    from dtlearn.models import GPT, next_token_loss

    torch.manual_seed(run.seed)
    model = GPT(run.config)
    optimizer = torch.optim.AdamW(model.parameters(), run.lr, weight_decay=run.weight_decay)
    losses = []
    for tokens, targets in batches(run):
        loss = next_token_loss(model(tokens), targets)
        loss.backward()
        if run.clipping:
            torch.nn.utils.clip_grad_norm_(model.parameters(), run.clipping)
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    return losses


def apart(losses, others):
    """The largest difference of two lists of losses."""
    assert len(losses) == len(others) > 1
    return max(abs(a - b) for a, b in zip(losses, others, strict=True))
