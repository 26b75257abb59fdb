"""Each program shows its symptom on real ranks, and its fixed version does not."""

import functools

import pytest
import torch

from dtlearn.production.bug_lab import PROGRAMS, LabRun, run_program
from tests.production.bug_lab.fixes import FIXES, fixed

PATIENT = 60.0  # seconds, for a machine that is busy
# What the fixed version returns on each rank, computed by hand, and without ranks.
RIGHT = {
    "sharded_save": [[[1, 1, 2, 2, 3, 3], [2, 2, 3, 3, 4, 4], [3, 3, 4, 4, 5, 5]], [], []],
    "detector_logs": [{"class": 1.5, "box": 1.4 / 3, "all": 1.5 + 1.4 / 3}] * 3,
    "codebook": [[[6, 7], [10, 11]]] * 2,
    "cache_groups": [48, 48, 80, 80],
    "checkpoint_thread": [{"step": 2, "weight": 4}, {"step": 2, "weight": 104}],
    "pipeline_pairs": [4, 40, 12, 120],
    "collected_scores": [15, 10, 20],
    "loss_metric": [[1.5, 2.5, 3.5, 4.5], [], [], []],
    "resumed_dropout": [torch.rand(9, generator=torch.Generator().manual_seed(100 + r)).tolist()[6:] for r in range(3)],
}
names = {symptom: [p.name for p in PROGRAMS.values() if p.symptom == symptom] for symptom in ("hung", "wrong", "slow")}
# In what a slow program does more than its fixed version: calls of a rank, and bytes of a rank.
TOO_MUCH = {"loss_log": ((40, 10), (160, 40)), "loss_metric": ((4, 4), (4096, 16))}


@functools.cache
def run_of(name: str, is_fixed: bool = False) -> LabRun:
    return run_program(name, fixed(name) if is_fixed else None, timeout=PATIENT)


def assert_right(values, name):
    assert flat(values) == pytest.approx(flat(RIGHT[name])), values


def flat(values):
    """All numbers of nested lists and dicts, in their order."""
    if isinstance(values, dict):
        values = [values[key] for key in sorted(values)]
    return [number for value in values for number in flat(value)] if isinstance(values, list) else [values]


def test_ten_programs_with_three_symptoms():
    assert len(PROGRAMS) == len(FIXES) == 10
    assert {symptom: len(found) for symptom, found in names.items()} == {"hung": 4, "wrong": 4, "slow": 2}


@pytest.mark.parametrize("name", names["hung"])
def test_a_hung_program_is_diagnosed(name):
    run = run_of(name)
    assert run.values is None and run.record.unfinished()
    assert "DTL-COLL" in run.diagnosis or "DTL-P2P" in run.diagnosis
    for rank in range(PROGRAMS[name].world_size):
        assert f"rank {rank}  " in run.diagnosis


@pytest.mark.parametrize("name", names["wrong"])
def test_a_wrong_program_ends_with_other_values(name):
    runs = (run_of(name), *(run_program(name, timeout=PATIENT) for _ in range(3)))  # a race may once end well
    wrong = next(run for run in runs if flat(run.values) != pytest.approx(flat(RIGHT[name])))
    assert not wrong.diagnosis and not wrong.record.unfinished()


@pytest.mark.parametrize("name", [*names["hung"], *names["wrong"]])
def test_the_fixed_version_is_right(name):
    run = run_of(name, True)
    assert not run.diagnosis, run.diagnosis
    assert_right(run.values, name)


@pytest.mark.parametrize("name", names["slow"])
def test_a_slow_program_is_right_and_sends_more(name):
    slow, quick = run_of(name), run_of(name, True)
    assert flat(slow.values) == pytest.approx(flat(quick.values), rel=1e-6)
    counted = [
        tuple(f(run) for run in (slow, quick))
        for f in (lambda run: len(run.record.select(rank=0)), lambda run: run.record.nbytes(rank=0))
    ]
    assert tuple(counted) == TOO_MUCH[name]


def test_scores_are_read_before_the_first_one_has_arrived():
    first, last = run_of("collected_scores").record.select(rank=0).events
    assert (first.peer, last.peer) == (1, 2) and first.wait_ns > last.wait_ns
    first, last = run_of("collected_scores", True).record.select(rank=0).events
    assert first.wait_ns < last.wait_ns


def test_the_hang_of_the_detector_shows_after_the_call_that_was_left_out():
    calls = [len(run_of("detector_logs").record.select(rank=rank)) for rank in range(3)]
    assert calls == [3, 3, 2]
