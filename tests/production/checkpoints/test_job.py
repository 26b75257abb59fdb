"""A job that is killed ends with the bits of one that is not; with fewer ranks it has the same losses."""

import functools

import pytest

from dtlearn.production.checkpoints import JobOptions, complete_steps, run_job
from dtlearn.runtime.errors import RankError
from tests.devices import run_ranks

END = 10
OPTIONS = functools.partial(JobOptions, num_steps=END, save_every=3, dropout=0.2, topk=0.1)


@pytest.fixture(scope="module")
def unbroken(tmp_path_factory):
    """The job of two ranks that nobody stops."""
    return run_ranks(run_job, 2, OPTIONS(str(tmp_path_factory.mktemp("unbroken"))), device="cpu").values


def killed(folder, asynchronous=False, job=run_job, *rest):
    """The same job, killed after step 8, on rank 1, and begun again."""
    options = OPTIONS(str(folder), asynchronous=asynchronous, die_at=(1, 8))
    with pytest.raises(RankError):
        run_ranks(run_job, 2, options, device="cpu")
    assert max(complete_steps(folder)[0]) in ((3, 6) if asynchronous else (6,))
    return run_ranks(job, 2, *rest, OPTIONS(str(folder), asynchronous=asynchronous), device="cpu").values


@pytest.mark.parametrize("asynchronous", [False, True])
def test_a_killed_job_ends_with_the_same_bits(asynchronous, unbroken, tmp_path):
    for ours, whole in zip(killed(tmp_path, asynchronous), unbroken, strict=True):
        assert ours.first_step in (3, 6) and whole.first_step == 0
        assert ours.losses == whole.losses[ours.first_step :] and ours.digest == whole.digest
    assert unbroken[0].digest != unbroken[1].digest  # the residuals are each rank's own


def forgetting(what, options):
    from dtlearn.production.checkpoints import training_state

    state = training_state.TrainingState
    if what == "random numbers":
        training_state.set_rng_state = lambda *args: None
    elif what == "residuals":
        state._load_residuals = lambda *args: None
    else:
        from dtlearn.production.checkpoints import job

        class Forgets(state):
            def resume(self, checkpointer):
                untouched = self.shared
                self.shared = {name: part for name, part in untouched.items() if name != what}
                notes = super().resume(checkpointer)
                self.shared = untouched
                return notes

        job.TrainingState = Forgets
    return run_job(options)


@pytest.mark.parametrize("what", ["random numbers", "residuals", "scheduler", "sampler"])
def test_what_is_forgotten_shows(what, unbroken, tmp_path):
    ours = killed(tmp_path, False, forgetting, what)
    assert ours[0].first_step == 6 and ours[0].digest != unbroken[0].digest


def test_with_fewer_ranks_the_losses_are_those_of_the_unbroken_run(tmp_path):
    plain = functools.partial(JobOptions, save_every=3, global_batch=24, max_micro_batch=3)
    whole = run_ranks(run_job, 4, plain(str(tmp_path / "whole"), num_steps=12), device="cpu")[0]
    first = run_ranks(run_job, 4, plain(str(tmp_path / "job"), num_steps=6), device="cpu")[0]
    second = run_ranks(run_job, 2, plain(str(tmp_path / "job"), num_steps=12), device="cpu")[0]
    assert (first.plan.accumulate, second.plan.accumulate, second.first_step) == (2, 4, 6)
    assert second.plan.global_batch == 24 and second.plan.lr == first.plan.lr == 0.1
    assert [*first.losses, *second.losses] == pytest.approx(whole.losses, abs=1e-10, rel=0)
    assert "4 ranks saved and 2 go on: random numbers (dropout) are new ones" in second.notes


def keeping_the_micro_batches(options):
    """The sabotage: the global batch is half as large on half as many ranks."""
    from dtlearn.production.batch_plan import plan_batch
    from dtlearn.production.checkpoints import job

    job.plan_batch = lambda batch, ranks, **rest: plan_batch(6 * ranks, ranks, **rest)
    return run_job(options)


def test_without_more_accumulation_the_losses_are_others(tmp_path):
    plain = functools.partial(JobOptions, save_every=3, global_batch=24, max_micro_batch=3)
    whole = run_ranks(run_job, 4, plain(str(tmp_path / "whole"), num_steps=9), device="cpu")[0]
    run_ranks(run_job, 4, plain(str(tmp_path / "job"), num_steps=6), device="cpu")
    second = run_ranks(keeping_the_micro_batches, 2, plain(str(tmp_path / "job"), num_steps=9), device="cpu")[0]
    assert abs(second.losses[-1] - whole.losses[-1]) > 1e-4


def test_on_another_device_it_goes_on_with_the_same_bits(tmp_path, other_device):
    whole = run_ranks(run_job, 2, OPTIONS(str(tmp_path / "whole"), num_steps=4), device=other_device)
    run_ranks(run_job, 2, OPTIONS(str(tmp_path / "job"), num_steps=2, save_every=2), device=other_device)
    options = OPTIONS(str(tmp_path / "job"), num_steps=4, asynchronous=True)
    for ours, unstopped in zip(run_ranks(run_job, 2, options, device=other_device), whole, strict=True):
        assert ours.first_step == 2 and ours.losses == unstopped.losses[2:] and ours.digest == unstopped.digest
