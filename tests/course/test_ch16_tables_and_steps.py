"""What ch16.find_straggler and ch16.elastic_batch expect: the package says the same of records, and of batches."""

import runpy
from typing import Any

import pytest
import torch

from dtlearn import run_ranks
from dtlearn.checks.ch16_production import find_straggler
from dtlearn.course import load_course
from dtlearn.grading.learner.exercise_files import files_of
from dtlearn.production.checkpoints import plan_batch
from dtlearn.production.stragglers import find_stragglers
from dtlearn.runtime.record.record import Record
from tests.production.test_stragglers import planted

COURSE = load_course()
PHASES = {"input": "data", "compute": "computation"}


def solution(name: str) -> str:
    return str(files_of(COURSE, COURSE.exercise(f"ch16.{name}")).solution)


def table_of(record: Record) -> dict[str, torch.Tensor]:
    """Seconds of the phases, of a record whose steps end with an all-reduce of all ranks."""
    seconds: dict[str, list[list[float]]] = {name: [] for name in find_straggler.PHASES}
    for rank in range(record.world_size):
        calls = [event for event in record.events if event.rank == rank]
        spans = [span for span in record.spans if span.rank == rank]
        data = [(span.end_ns - span.start_ns) / 1e9 for span in spans]
        begins = [0, *(call.end_ns for call in calls[:-1])]
        whole = [(call.start_ns - begin) / 1e9 for call, begin in zip(calls, begins, strict=True)]
        seconds["data"].append(data)
        seconds["computation"].append([w - d for w, d in zip(whole, data, strict=True)])
        seconds["communication"].append([(call.end_ns - call.start_ns) / 1e9 for call in calls])
    return {name: torch.tensor(rows, dtype=torch.float64) for name, rows in seconds.items()}


@pytest.mark.parametrize("kind", ["input", "compute", ""])
def test_a_table_says_of_a_record_what_the_package_says(kind):
    record = planted(kind, slow=2, noise=0.2)
    answer = runpy.run_path(solution("find_straggler"))["find_straggler"](table_of(record), 0.001, 0.003)
    named = find_stragglers(record).stragglers
    assert bool(named) == bool(kind)
    if not kind:
        assert answer is None
    else:
        assert (answer["rank"], answer["phase"]) == (named[0].rank, PHASES[named[0].kind]) == (2, PHASES[kind])
        assert answer["since"] == 0 and answer["seconds"] == pytest.approx(named[0].seconds, rel=0.1)


def test_the_example_of_the_task_is_what_the_solution_returns():
    answer = runpy.run_path(solution("find_straggler"))["find_straggler"](**find_straggler.CHECK.example[0])
    assert (answer["rank"], answer["phase"], answer["since"]) == (1, "data", 2)
    assert answer["seconds"] == pytest.approx(0.028) and answer["share"] == pytest.approx(0.233, abs=1e-3)


def steps_on(path: str) -> list[torch.Tensor]:
    """Three steps of a job that was saved on 3 ranks with 2 micro-batches of 2 rows each."""
    import runpy

    import torch

    step = runpy.run_path(path)["elastic_batch"]
    draw = torch.Generator().manual_seed(5)
    x, y = torch.randn(2, 12, 3, generator=draw, dtype=torch.float64)
    weight = torch.nn.Parameter(torch.ones(3, 3, dtype=torch.float64))

    def loss_of(rows: Any) -> torch.Tensor:
        return torch.tanh(x[list(rows)] @ weight - y[list(rows)]).square().mean()

    saved = {"ranks": 3, "micro_batch": 2, "accumulate": 2, "lr": 0.25}
    for _ in range(3):
        assert step([weight], loss_of, saved, 6, "linear") == 0.25
    return [weight.detach()]


def test_steps_after_a_change_of_ranks_are_those_before_it():
    before = run_ranks(steps_on, 3, solution("elastic_batch"))
    for num_ranks in (1, 2, 4):
        for own in run_ranks(steps_on, num_ranks, solution("elastic_batch")):
            torch.testing.assert_close(own, before[0], rtol=1e-10, atol=1e-12)
        assert plan_batch(12, num_ranks, max_micro_batch=2, lr=0.25)[::4] == (12, 0.25)
