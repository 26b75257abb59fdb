"""The two protocols: the same calls, in another order."""

from __future__ import annotations

from collections.abc import Callable

from .worker import Pulled, Worker

StepFunction = Callable[[int], int]  # number of the batch -> its samples; leaves gradients in the parameters


def train_request_response(worker: Worker, compute: StepFunction, num_steps: int) -> list[Pulled]:
    """Ask, wait, compute, push. Returns what was pulled for each step.

    Args:
        worker: not closed afterwards.
        compute: forward and backward of one batch; sets the gradients, and returns how many samples they are of.
        num_steps: batches of this worker.
    """
    seen = []
    for number in range(num_steps):
        coming = worker.begin_pull()
        pulled = coming.wait()
        worker.push(pulled, compute(number))
        seen.append(pulled)
    return seen


def train_pipelined(worker: Worker, compute: StepFunction, num_steps: int) -> list[Pulled]:
    """As `train_request_response`, but the next step's parameters are asked for before a step, and travel during it.

    They lack this step's push, and all that come while it is computed: a push is a whole round of the workers staler.
    With N asynchronous ones it misses 2N - 1 updates in the mean, where it missed N - 1. A rule that forbids that holds
    the answer back until the push has come, and nothing is gained. Source: Li et al. 2014 (OSDI), sections 3.4 and 3.5,
    which let an iteration begin before the one before it is done.
    """
    seen, coming = [], worker.begin_pull()
    for number in range(num_steps):
        pulled = coming.wait()
        if number + 1 < num_steps:
            coming = worker.begin_pull()
        worker.push(pulled, compute(number))
        seen.append(pulled)
    return seen
