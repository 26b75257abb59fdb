"""The folder, without ranks; and a kill at every moment of a save, on two ranks."""

import errno
import multiprocessing
import os

import pytest
import torch

from dtlearn.production.checkpoints import store
from dtlearn.production.checkpoints.checkpointer import Checkpointer
from dtlearn.production.checkpoints.format import CheckpointError, Manifest
from tests.devices import run_ranks
from tests.production.checkpoints.kills import killed_everywhere, save_steps, shards, weights


@pytest.fixture
def folder(tmp_path):
    """Steps 1 and 2, saved by one process."""
    with Checkpointer(tmp_path) as checkpointer:
        for step in (1, 2):
            checkpointer.save(step, shards(step, 0, 1))
    return tmp_path


@pytest.mark.slow
@pytest.mark.parametrize(("victim", "asynchronous"), [(0, False), (1, False), (0, True)])
def test_a_kill_at_any_moment_leaves_the_last_or_the_new_one(victim, asynchronous, tmp_path):
    """Every call of the operating system that the victim makes while it saves step 3 beside 1 and 2 (two are kept)."""
    run_ranks(save_steps, 2, str(tmp_path / "two_steps"), [1, 2], device="cpu")
    [(outcomes, calls)] = run_ranks(
        killed_everywhere, 1, str(tmp_path), victim, asynchronous, device="cpu", init_group=False
    )
    assert len(outcomes) == calls == (37, 6)[victim]  # nobody was killed the last time: no moment is left out
    for newest, complete, (step, values, shared, after, left) in outcomes:
        assert newest in complete and complete in ([1, 2], [1, 2, 3], [2, 3])
        assert step == complete[-1] and torch.equal(values, weights(step)) and shared == {"step": step}
        assert after == [step, 4] and left == []
    steps = [step for _, _, (step, *_) in outcomes]
    assert steps == sorted(steps) and set(steps) == ({2, 3} if victim == 0 else {2})


def test_without_the_rename_half_a_checkpoint_would_be_found(tmp_path, monkeypatch):
    """The sabotage of the test above: who writes into the final folder leaves half of one there."""
    run_ranks(save_steps, 2, str(tmp_path / "two_steps"), [1, 2], device="cpu")
    [(outcomes, _)] = run_ranks(in_the_final_folder, 1, str(tmp_path), device="cpu", init_group=False)
    assert any(isinstance(outcome, str) and "has no manifest.json" in outcome for outcome in outcomes)


def in_the_final_folder(folder):
    from dtlearn.production.checkpoints import checkpointer, store

    def begin(folder, step):
        os.mkdir(store.step_folder(folder, step))
        return store.step_folder(folder, step)

    checkpointer.begin = begin
    from pathlib import Path

    import tests.production.checkpoints.kills as kills

    kills.go_on = lambda copy: None
    found = []
    for number in (4, 8):
        copy = Path(folder) / f"half{number}"
        kills.shutil.copytree(Path(folder) / "two_steps", copy)
        kills.after_a_kill(copy, Path(folder) / f"meeting{number}", 0, number, False)
        found += store.complete_steps(copy)[1]
    return found, 0


def test_the_pointer_and_the_folders(folder):
    assert store.steps_in(folder) == [1, 2] and store.newest_step(folder) == 2
    assert sorted(path.name for path in folder.iterdir()) == [".lock", "latest", "step-00000001", "step-00000002"]
    assert store.newest_step(folder / "elsewhere") is None and store.steps_in(folder / "elsewhere") == []
    (folder / "latest").write_text("step-2")
    with pytest.raises(CheckpointError, match="names 'step-2', and not a step such as step-00000012"):
        store.newest_step(folder)


def test_a_missing_shard_and_a_torn_one_are_passed_over_and_named(folder):
    (folder / "step-00000002" / "rank0.bin").unlink()
    complete, notes = store.complete_steps(folder)
    assert list(complete) == [1] and "step-00000002 lacks rank0.bin, the pieces of one of 1 ranks" in notes[0]
    os.truncate(folder / "step-00000001" / "rank0.bin", 50)
    complete, notes = store.complete_steps(folder)
    assert not complete and "has 50 bytes, and" in notes[0] and "it is torn" in notes[0]


def test_sweeping_leaves_what_is_complete_and_mends_the_pointer(folder):
    store.point_at(folder, 1)  # killed after the rename of step 2, before its pointer
    (folder / ".new-step-00000003-ab").mkdir()
    (folder / ".new-step-00000003-ab" / "rank0.bin").write_bytes(b"half")
    (folder / ".new-latest-ab").write_text("x")
    aside = store.set_aside(folder, 1)
    store.sweep(folder)
    assert sorted(path.name for path in folder.iterdir()) == [".lock", aside.name, "latest", "step-00000002"]
    assert store.newest_step(folder) == 2


def hold(folder, ready, done):
    lock = store.FolderLock(folder)
    ready.set()
    done.wait(30)
    lock.release()


def test_a_second_job_is_refused_until_the_first_has_ended(tmp_path):
    context = multiprocessing.get_context("fork")
    ready, done = context.Event(), context.Event()
    process = context.Process(target=hold, args=(tmp_path, ready, done))
    process.start()
    assert ready.wait(30)
    try:
        with pytest.raises(CheckpointError, match=rf"is in use by process {process.pid} on .*: two jobs in one folder"):
            store.FolderLock(tmp_path)
    finally:
        process.kill()  # not `done`: the lock of a killed process is free
        process.join()
    store.FolderLock(tmp_path).release()


def test_what_cannot_be_synced_for_another_reason_than_the_file_system_is_raised(folder, monkeypatch):
    def refuse(number):
        def fsync(descriptor):
            raise OSError(number, os.strerror(number))

        return fsync

    monkeypatch.setattr(os, "fsync", refuse(errno.EINVAL))
    store._sync_folder(folder)  # a file system that cannot
    monkeypatch.setattr(os, "fsync", refuse(errno.EIO))
    with pytest.raises(OSError, match="Input/output error"):
        store.commit(folder, store.begin(folder, 3), Manifest(3, 1, {}, {}, {}))
    assert sorted(store.complete_steps(folder)[0]) == [1, 2]
