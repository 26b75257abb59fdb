"""The folder, without ranks; and a kill at every moment of a save, on two ranks."""

import contextlib
import errno
import itertools
import multiprocessing
import os
import shutil
import signal
import time

import pytest
import torch

from dtlearn.production.checkpoints import store
from dtlearn.production.checkpoints.checkpointer import Checkpointer
from dtlearn.production.checkpoints.format import CheckpointError, Manifest
from dtlearn.sharing.resharding import whole_piece
from tests.devices import run_ranks
from tests.production.checkpoints.kills import SIZE, killed_everywhere, save_steps, shards, weights
from tests.production.checkpoints.power_cuts import RecordedCalls, after_power_cuts


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
    run_ranks(save_steps, 2, str(tmp_path / "before"), [1, 2], device="cpu")
    options = {"steps": [3], "asynchronous": asynchronous, "keep": 2}
    [(outcomes, calls)] = run_ranks(
        killed_everywhere, 1, str(tmp_path), victim, options, device="cpu", init_group=False
    )
    assert len(outcomes) == calls == (40, 6)[victim]  # nobody was killed the last time: no moment is left out
    for newest, complete, (step, values, shared, after, left) in outcomes:
        assert newest in complete and complete in ([1, 2], [1, 2, 3], [2, 3])
        assert step == complete[-1] and torch.equal(values, weights(step, run=step == 3)) and shared == {"step": step}
        assert after == [step, 4] and left == []
    steps = [step for _, _, (step, *_) in outcomes]
    assert steps == sorted(steps) and set(steps) == ({2, 3} if victim == 0 else {2})


@pytest.mark.slow
@pytest.mark.parametrize(("victim", "keep"), [(0, 1), (1, 1), (0, 2)])
def test_a_kill_at_any_moment_of_saving_a_step_again_leaves_the_old_or_the_new_one(victim, keep, tmp_path):
    """Step 2 is saved a second time, in another run, and it may be the only one there."""
    before = [1, 2][-keep:]
    run_ranks(save_steps, 2, str(tmp_path / "before"), before, device="cpu")
    options = {"steps": [2], "keep": keep}
    [(outcomes, calls)] = run_ranks(
        killed_everywhere, 1, str(tmp_path), victim, options, device="cpu", init_group=False
    )
    assert len(outcomes) == calls > 5
    runs = []
    for newest, complete, (step, values, shared, after, left) in outcomes:
        assert newest == step == 2 and complete == before and shared == {"step": 2}
        runs.append(0 if torch.equal(values, weights(2)) else 1)
        assert torch.equal(values, weights(2, run=runs[-1]))
        assert after == [2, 4][-keep:] and left == []
    assert runs == sorted(runs) and set(runs) == ({0, 1} if victim == 0 else {0})


def test_saving_a_step_again_leaves_nothing(tmp_path):
    with Checkpointer(tmp_path, keep=1) as checkpointer:
        for run in range(4):
            checkpointer.save(8, shards(8, 0, 1, run))
        assert sorted(path.name for path in tmp_path.iterdir()) == [".lock", "latest", "step-00000008-4"]
        loaded = checkpointer.load(lambda manifest: {"w": whole_piece((SIZE,))})
    assert torch.equal(loaded.tensors["w"], weights(8, run=3)) and store.newest_step(tmp_path) == 8


def test_a_job_that_has_gone_back_keeps_what_it_saves_and_sets_the_newer_ones_aside(tmp_path):
    with Checkpointer(tmp_path, keep=3) as checkpointer:
        for step in (8, 10, 12):
            checkpointer.save(step, shards(step, 0, 1))
    with Checkpointer(tmp_path, keep=1) as checkpointer:
        assert checkpointer.load(lambda manifest: {}, step=8).step == 8
        checkpointer.save(9, shards(9, 0, 1))
    assert sorted(store.complete_steps(tmp_path)[0]) == [9] and store.newest_step(tmp_path) == 9
    assert sorted(path.name[:19] for path in tmp_path.glob("aside-*")) == ["aside-step-00000010", "aside-step-00000012"]


def test_the_one_from_before_is_kept_as_long_as_the_new_one_is_not_whole(folder):
    """A disk may lose what was forced to it: then what is left counts again."""
    shutil.copytree(folder / "step-00000002", folder / "step-00000002-2")
    os.truncate(folder / "step-00000002-2" / "rank0.bin", 50)
    store.sweep(folder)
    assert store.step_folder(folder, 2).name == "step-00000002-2" and (folder / "step-00000002").is_dir()
    store.set_aside(folder, 2)
    assert store.step_folder(folder, 2).name == "step-00000002" and list(store.complete_steps(folder)[0]) == [1, 2]


def test_a_pointer_to_nothing_is_an_error_and_no_beginning(folder):
    shutil.rmtree(folder / "step-00000002")
    with pytest.raises(CheckpointError, match="latest names step-00000002, which is not there: bring it back"):
        store.newest_step(folder)
    with Checkpointer(folder) as checkpointer:
        notes = checkpointer.load(lambda manifest: {}).notes
    assert notes == [
        f"{folder}/latest named step-00000002, which is not there. Passed over",
        f"going on from {folder}/step-00000001",
    ]
    shutil.rmtree(folder / "step-00000001")
    with Checkpointer(folder) as checkpointer:
        with pytest.raises(CheckpointError, match="latest names step-00000001, which is not there"):
            checkpointer.load(lambda manifest: {})
        (folder / "latest").unlink()
        (folder / "aside-step-00000001-ab").mkdir()
        with pytest.raises(CheckpointError, match="has no checkpoint but aside-step-00000001-ab: look at it"):
            checkpointer.load(lambda manifest: {})
        (folder / "aside-step-00000001-ab").rmdir()
        assert checkpointer.load(lambda manifest: {}) is None


def test_without_the_rename_half_a_checkpoint_would_be_found(tmp_path, monkeypatch):
    """The sabotage of the test above: who writes into the final folder leaves half of one there."""
    run_ranks(save_steps, 2, str(tmp_path / "before"), [1, 2], device="cpu")
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
        kills.shutil.copytree(Path(folder) / "before", copy)
        kills.after_a_kill(copy, Path(folder) / f"meeting{number}", 0, number, {"steps": [3]})
        found += store.complete_steps(copy)[1]
    return found, 0


def test_the_pointer_and_the_folders(folder):
    assert store.steps_in(folder) == [1, 2] and store.newest_step(folder) == 2
    assert sorted(path.name for path in folder.iterdir()) == [".lock", "latest", "step-00000001", "step-00000002"]
    assert store.newest_step(folder / "elsewhere") is None and store.steps_in(folder / "elsewhere") == []
    (folder / "latest").write_text("step-2")
    with pytest.raises(CheckpointError, match="names 'step-2', and not a step such as step-00000012"):
        store.newest_step(folder)


@pytest.mark.parametrize("torn", [b"", b"step-000", b"\xff\xfe\x00", None], ids=["empty", "torn", "no text", "folder"])
def test_a_torn_pointer_is_mended_on_opening(torn, folder):
    (folder / "latest").unlink()
    (folder / "latest").mkdir() if torn is None else (folder / "latest").write_bytes(torn)
    with pytest.raises(CheckpointError, match=r"and not a step .*: it is torn or was changed\. A job that opens"):
        store.newest_step(folder)
    with Checkpointer(folder) as checkpointer:
        notes = checkpointer.load(lambda manifest: {}).notes
    assert "which is no step: written anew" in notes[0] and store.newest_step(folder) == 2


def test_what_has_the_name_of_a_checkpoint_and_is_none_is_passed_over(folder):
    (folder / "step-00000009").write_text("notes of a person")
    (folder / "step-00000002" / "manifest.json").unlink()
    (folder / "step-00000002" / "manifest.json").mkdir()
    complete, notes = store.complete_steps(folder)
    assert list(complete) == [1]
    assert "manifest.json is a folder" in notes[0] and "step-00000009 is a file, and not the folder" in notes[1]
    with Checkpointer(folder) as checkpointer:
        assert checkpointer.load(lambda manifest: {}).step == 1
        checkpointer.save(9, shards(9, 0, 1))
        assert checkpointer.load(lambda manifest: {}).step == 9
    assert (folder / "step-00000009").read_text() == "notes of a person"


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


def hold_with_a_child(folder, ready):
    """As a job whose DataLoader has a worker: its child sleeps on when it is killed."""
    lock = store.FolderLock(folder)
    child = multiprocessing.get_context("fork").Process(target=time.sleep, args=(60,))
    child.start()
    ready.send(child.pid)
    time.sleep(60)
    lock.release()


def test_the_lock_of_a_killed_job_is_free_though_a_forked_child_lives_on(tmp_path):
    context = multiprocessing.get_context("fork")
    ready, ready_there = context.Pipe()
    job = context.Process(target=hold_with_a_child, args=(tmp_path, ready_there))
    job.start()
    child = ready.recv()
    try:
        with pytest.raises(CheckpointError, match=f"is in use by process {job.pid} on "):
            store.FolderLock(tmp_path)
        job.kill()
        job.join()
        os.kill(child, 0)  # it lives
        lock = wait_for(lambda: store.FolderLock(tmp_path))
        lock.release()
        lock.release()  # twice does no harm
    finally:
        os.kill(child, signal.SIGKILL)


def wait_for(make):
    """The child may not have let go yet: it does so when it first runs."""
    for _ in range(300):
        with contextlib.suppress(CheckpointError):
            return make()
        time.sleep(0.1)
    return make()


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


def save_and_cut_the_power(folder, monkeypatch, step, keep, sabotage=lambda patched: None):
    """What is wrong after a power cut, at any moment of a save by one process."""
    with Checkpointer(folder, keep=keep) as checkpointer, monkeypatch.context() as patched:
        before = {f"step-{n:08d}": f"step-{n:08d}".encode() for n in store.steps_in(folder)}
        before["latest"] = (folder / "latest").read_bytes()
        recorded = RecordedCalls(folder, patched)
        sabotage(patched)
        checkpointer.save(step, shards(step, 0, 1, run=1))
    wrong = []
    for call, pointers, steps in after_power_cuts(recorded, before):
        wrong += [f"{name} may be half there after {call}" for name, states in steps.items() if False in states]
        for pointer in pointers:
            if not pointer.endswith(b"\n") or steps.get(pointer.decode().strip()) != {True}:
                wrong.append(f"latest may be {pointer!r}, which may not be there, after {call}")
    assert len(recorded.calls) > 20
    return wrong


@pytest.mark.parametrize(("step", "keep"), [(3, 2), (3, 1), (2, 2), (2, 1)], ids=["3-2", "3-1", "again-2", "again-1"])
def test_a_power_cut_at_any_moment_leaves_what_the_pointer_names(step, keep, folder, monkeypatch):
    """By `practice.disk`'s model of a disk; a kill cannot show an fsync that is missing, or that comes too late."""
    assert save_and_cut_the_power(folder, monkeypatch, step, keep) == []


@pytest.mark.parametrize(
    ("number", "says"),
    [
        (0, "step-00000003 may be half there"),  # of the rank's file
        (1, "step-00000003 may be half there"),  # of the manifest
        (2, "step-00000003 may be half there"),  # of the checkpoint's folder, before it gets its name
        (3, "latest may be b'step-00000003\\n', which may not be there"),  # of the job's folder, before the pointer
        (4, "latest may be b'', which may not be there"),  # of the pointer, before it gets its name
        (5, "latest may be b'step-00000002\\n', which may not be there"),  # of the job's folder, before step 2 goes
        (6, "step-00000002 may be half there"),  # of the job's folder, before step 2's files are deleted
    ],
)
def test_each_fsync_that_is_left_out_is_missed(number, says, folder, monkeypatch):
    def leave_out(patched):
        real, numbers = os.fsync, itertools.count()
        patched.setattr(os, "fsync", lambda descriptor: next(numbers) == number or real(descriptor))

    wrong = save_and_cut_the_power(folder, monkeypatch, 3, 1, leave_out)
    assert any(line.startswith(says) for line in wrong), wrong


def test_a_rename_before_the_fsync_is_seen(folder, monkeypatch):
    """The same calls in another order: the pointer gets its name, and is forced to the disk after that."""

    def rename_first(patched):
        real, write_file = os.rename, store._write_file

        def write_and_rename(path, content):
            if path.name.startswith(".new-latest"):
                with monkeypatch.context() as later:
                    later.setattr(os, "fsync", lambda descriptor: (real(path, folder / "latest"), fsync(descriptor)))
                    write_file(path, content)
            else:
                write_file(path, content)

        fsync = os.fsync
        patched.setattr(store, "_write_file", write_and_rename)
        patched.setattr(os, "rename", lambda old, new: new.name == "latest" or real(old, new))

    wrong = save_and_cut_the_power(folder, monkeypatch, 3, 2, rename_first)
    assert store.newest_step(folder) == 3  # as it should be, if the power does not fail
    assert any(line.startswith("latest may be b''") for line in wrong), wrong
