"""Small runs for the tests of this folder."""

from dataclasses import replace

from dtlearn.libraries.hello_deepspeed import HelloOptions, train

SMALL = HelloOptions(engine="plain", zero=0, steps=3, batch_size=8, context_length=16, num_layers=1, hidden_size=32)
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
