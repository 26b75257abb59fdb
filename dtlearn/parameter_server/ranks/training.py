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
    """The same, but the next step's parameters are asked for before this step is computed, and travel meanwhile.

    They lack this step's push: each push is one of this worker's own updates staler. A rule that forbids that holds the
    answer back until the push has come, and nothing is gained. Source: Li et al. 2014 (OSDI), section 4.1 and figure 6,
    which let an iteration begin before the one before it is known.
    """
    seen, coming = [], worker.begin_pull()
    for number in range(num_steps):
        pulled = coming.wait()
        if number + 1 < num_steps:
            coming = worker.begin_pull()
        worker.push(pulled, compute(number))
        seen.append(pulled)
    return seen
