"""Calls, disks and folders that are not as they should be: what a checkpointer says, and what is left."""

import errno
import os
import shutil
import warnings
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.distributed as dist

from dtlearn.production.checkpoints import Checkpointer, complete_steps, newest_step, store
from dtlearn.production.checkpoints.format import CheckpointError
from dtlearn.sharing.resharding import whole_piece
from tests.devices import run_ranks
from tests.production.checkpoints.kills import SIZE, save_steps, shards

WANTED = {"w": whole_piece((SIZE,))}


@pytest.fixture(scope="module")
def two_steps(tmp_path_factory):
    """Steps 1 and 2, saved by two ranks."""
    folder = tmp_path_factory.mktemp("job")
    run_ranks(save_steps, 2, str(folder), [1, 2], device="cpu")
    return folder


@pytest.fixture
def folder(two_steps, tmp_path):
    return Path(shutil.copytree(two_steps, tmp_path / "job"))


def test_the_pointer_moves_before_a_damaged_one_goes(folder, monkeypatch):
    """A kill after any call of `_go_on_from` leaves a pointer to what is there."""
    shard = folder / "step-00000002" / "rank0.bin"
    shard.write_bytes(bytes(shard.stat().st_size))
    real, named = os.rename, []

    def rename(old, new):
        real(old, new)
        named.append(newest_step(folder))  # raises, if it is not there

    monkeypatch.setattr(os, "rename", rename)
    with Checkpointer(folder) as checkpointer:
        assert checkpointer.load(lambda manifest: WANTED).step == 1
    assert named == [1, 1]


def refusing(name, number, begins):
    """`os.<name>` that fails for files whose names begin so; a rename: from, or to."""
    real = getattr(os, name)

    def call(path, *args, **kwargs):
        if Path(path).name.startswith(begins):
            raise OSError(number, os.strerror(number), str(path))
        return real(path, *args, **kwargs)

    return call


@pytest.mark.parametrize("keep", [1, 2])
def test_a_pointer_that_cannot_be_moved_is_no_failed_save(keep, folder, monkeypatch):
    with Checkpointer(folder, keep=keep) as checkpointer:
        with monkeypatch.context() as patched:
            patched.setattr(os, "open", refusing("open", errno.ENOSPC, ".new-latest"))
            with pytest.warns(
                UserWarning, match=r"step 3 is saved, but the pointer could not be moved: .*No space"
            ) as said:
                checkpointer.save(3, shards(3, 0, 1))
        assert checkpointer.times[0].note == str(said[0].message)
        assert sorted(complete_steps(folder)[0]) == [2, 3] and newest_step(folder) == 2  # step 1 has made room
        checkpointer.save(4, shards(4, 0, 1))
    assert sorted(complete_steps(folder)[0]) == [3, 4][-keep:] and newest_step(folder) == 4


def test_when_an_older_one_has_made_room_the_pointer_moves(folder, monkeypatch):
    def full(folder, step):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(folder / "latest"))

    monkeypatch.setattr(store, "point_at", full)  # as `commit` calls it
    with Checkpointer(folder) as checkpointer:
        checkpointer.save(3, shards(3, 0, 1))
    assert checkpointer.times[0].note == ""
    assert sorted(complete_steps(folder)[0]) == [2, 3] and newest_step(folder) == 3


def test_an_older_one_that_cannot_be_deleted_is_no_failed_save(folder, monkeypatch):
    with Checkpointer(folder) as checkpointer:
        with monkeypatch.context() as patched:
            patched.setattr(os, "rename", refusing("rename", errno.EACCES, "step-00000001"))
            says = r"step 3 is saved, but older ones could not be deleted: .*/step-00000001: Permission denied"
            with pytest.warns(UserWarning, match=says):
                checkpointer.save(3, shards(3, 0, 1))
        assert sorted(complete_steps(folder)[0]) == [1, 2, 3] and newest_step(folder) == 3
        checkpointer.save(4, shards(4, 0, 1))
    assert sorted(complete_steps(folder)[0]) == [3, 4]


def test_nothing_is_deleted_as_long_as_the_new_name_may_be_lost(folder, monkeypatch):
    real = store._sync_folder

    def fail(place):
        if place == folder:
            raise OSError(errno.EIO, os.strerror(errno.EIO), str(place))
        real(place)

    with Checkpointer(folder, keep=1) as checkpointer, monkeypatch.context() as patched:
        patched.setattr(store, "_sync_folder", fail)
        with pytest.warns(
            UserWarning, match=r"the pointer could not be moved: .*; and older ones could not be deleted"
        ):
            checkpointer.save(3, shards(3, 0, 1))
    assert sorted(complete_steps(folder)[0]) == [1, 2, 3] and newest_step(folder) == 2


def save_without_a_pointer(folder):
    """On each rank: what it has in `times`, and whether it warned."""
    os.open = refusing("open", errno.ENOSPC, ".new-latest")
    with warnings.catch_warnings(record=True) as said, Checkpointer(folder, asynchronous=True) as checkpointer:
        warnings.simplefilter("always")
        checkpointer.save(3, shards(3, dist.get_rank(), 2))
        checkpointer.wait()
    return checkpointer.times[0].note, len(said)


def test_every_rank_hears_of_it_and_one_warns(folder):
    (first, warned), (second, silent) = run_ranks(save_without_a_pointer, 2, str(folder), device="cpu")
    assert first == second and first.startswith("step 3 is saved, but the pointer") and (warned, silent) == (1, 0)


@pytest.mark.parametrize("step", [-1, 1.5, "3", None, torch.tensor(1.5)])
def test_a_step_is_a_whole_number(step, folder):
    before = sorted(path.name for path in folder.iterdir())
    with (
        Checkpointer(folder) as checkpointer,
        pytest.raises(ValueError, match="step is a whole number, 0 or more: how many updates were made; got"),
    ):
        checkpointer.save(step, shards(3, 0, 1))
    assert sorted(path.name for path in folder.iterdir()) == before and not checkpointer.times


def test_a_step_of_numpy_and_one_of_pytorch_are_steps(folder):
    with Checkpointer(folder) as checkpointer:
        checkpointer.save(np.int64(3), shards(3, 0, 1))
        checkpointer.save(torch.tensor(4), shards(4, 0, 1))
        assert checkpointer.load(lambda manifest: WANTED, step=np.int64(4)).step == 4
    assert sorted(complete_steps(folder)[0]) == [3, 4]


def test_a_mistake_while_it_is_written_leaves_nothing(folder, monkeypatch):
    def mistake(*args):
        raise TypeError("Object of type int64 is not JSON serializable")

    monkeypatch.setattr("dtlearn.production.checkpoints.checkpointer.build_manifest", mistake)
    with Checkpointer(folder) as checkpointer, pytest.raises(TypeError, match="int64"):
        checkpointer.save(3, shards(3, 0, 1))
    assert not list(folder.glob(".new-*"))


def test_a_closed_one_neither_saves_nor_loads(folder):
    with Checkpointer(folder, keep=1) as checkpointer:
        pass
    checkpointer.close()  # again: nothing
    with pytest.raises(CheckpointError, match=r"is closed, and another job may have .* by now"):
        checkpointer.save(7, shards(7, 0, 1))
    with pytest.raises(CheckpointError, match="is closed"):
        checkpointer.load(lambda manifest: WANTED)
    assert sorted(complete_steps(folder)[0]) == [1, 2]


def test_a_deleted_folder_is_not_said_to_hold_checkpoints(tmp_path):
    with Checkpointer(tmp_path / "job") as checkpointer:
        shutil.rmtree(tmp_path / "job")
        with pytest.raises(CheckpointError, match=r"step 3 could not be saved: .*: No such file .*/job itself is gone"):
            checkpointer.save(3, shards(3, 0, 1))
        (tmp_path / "job").touch()
        with pytest.raises(CheckpointError, match=r"No checkpoint is seen in .*/job$"):
            checkpointer.save(3, shards(3, 0, 1))


@pytest.mark.parametrize("number", [errno.EACCES, errno.EROFS])
def test_a_folder_that_cannot_be_written_says_what_to_do(number, folder, monkeypatch):
    monkeypatch.setattr(os, "open", refusing("open", number, ".lock"))
    with pytest.raises(
        CheckpointError, match=rf"\.lock: {os.strerror(number)}\. A job writes .* `read_pieces` are enough"
    ):
        Checkpointer(folder)
