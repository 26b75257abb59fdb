"""Runs made by hand, for the tests of the figures."""

from dtlearn.gradient_compression.comparing.run import MethodRun


def made(name, sent, seconds=0.5, steps=10, first=3.0):
    """A run whose loss falls by 0.1 a step, and that sends the same in each."""
    losses = tuple(first - 0.1 * step for step in range(steps))
    return MethodRun(name, losses, (sent,) * steps, (1.5 * sent,) * steps, (seconds,) * steps, 1.0, "made by hand")
