"""Small runs for the tests of this folder."""

from dataclasses import replace

import torch

from dtlearn.libraries.hello_deepspeed import HelloOptions, train
from dtlearn.libraries.hello_deepspeed.bert import Bert
from dtlearn.libraries.hello_deepspeed.masked_text import masked_batch
from dtlearn.libraries.hello_deepspeed.plain import PlainTrainer
from dtlearn.models import load_corpus

SMALL = HelloOptions(
    engine="plain", zero=0, steps=4, batch_size=8, context_length=16, num_layers=1, hidden_size=32, lr=0.01
)
EXACT = 2e-6  # of a loss: fp32 sums in another order


def trained(options):
    """Train on this rank, once for each."""
    return [train(one) for one in options]


def small(**changes):
    """The small run with other options."""
    return replace(SMALL, **changes)


def apart(run, other):
    """The largest difference of two runs' losses, the held-out one too."""
    assert len(run.losses) == len(other.losses) > 1
    pairs = zip((*run.losses, run.validation), (*other.losses, other.validation), strict=True)
    return max(abs(a - b) for a, b in pairs)


def trained_on_the_same(options):
    """Losses of a rank that reads what every other rank reads: one seed for all, and no sampler."""
    torch.manual_seed(options.seed)
    trainer, text = PlainTrainer(Bert(options.model), options, torch.device("cpu")), load_corpus().train
    batches = [masked_batch(text, step, options.batch_size, options.context_length, 0) for step in range(options.steps)]
    return [trainer.step([batch]) for batch in batches]
