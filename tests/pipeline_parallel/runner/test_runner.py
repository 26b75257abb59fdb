"""Every schedule is the run of one process."""

import pytest
import torch.distributed as dist

from dtlearn.pipeline_parallel import SCHEDULES
from dtlearn.runtime import run_ranks
from tests.pipeline_parallel.runner.pipelines import away_from_reference, groups_of_first, pipeline
from tests.pipeline_parallel.runs import TOLERANCE


def exists(kind, p, m):
    return SCHEDULES[kind].shape != "loop" or m % p == 0


GRID = [(kind, p, m) for kind in SCHEDULES for p in (1, 2, 3, 4) for m in range(1, 9) if exists(kind, p, m)]


def rows_of(m):
    """Rows that odd numbers of micro-batches do not divide."""
    return 2 * m + (m % 2 and m > 1)


def grid():
    """Of all schedules that this rank takes part in: how far it is from one process."""
    groups, found = groups_of_first([1, 2, 3, 4]), {}
    for kind, p, m in GRID:
        if dist.get_rank() < p:
            runner = pipeline("sequential", kind, p, m, groups[p])
            found[kind, p, m] = away_from_reference(runner, "sequential", rows_of(m))
    return found


@pytest.fixture(scope="module")
def on_four():
    return run_ranks(grid, 4, device="cpu", timeout=240).values


def test_every_schedule_is_the_run_of_one_process(on_four):
    for rank, found in enumerate(on_four):
        assert len(found) == sum(p > rank for _, p, _ in GRID)
        assert not {case: away for case, away in found.items() if not away < TOLERANCE}
