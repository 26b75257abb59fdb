"""On ranks: they agree on one step, and what one of them cannot read or write is refused on all."""

import os
import resource
import shutil
import signal
import subprocess
import time
import zlib
from pathlib import Path

import pytest
import torch
import torch.distributed as dist

from dtlearn.production.checkpoints import Checkpointer, complete_steps, newest_step, step_folder
from dtlearn.production.checkpoints.checkpointer import common_steps
from dtlearn.production.checkpoints.format import CheckpointError
from dtlearn.sharing.resharding import flat_piece, whole_piece
from tests.devices import run_ranks
from tests.production.checkpoints.kills import SIZE, save_steps, shards, weights

WANTED = {"w": whole_piece((SIZE,))}


@pytest.fixture(scope="module")
def two_steps(tmp_path_factory):
    """A folder with steps 1 and 2, saved by two ranks."""
    folder = tmp_path_factory.mktemp("job")
    run_ranks(save_steps, 2, str(folder), [1, 2], device="cpu")
    return folder


@pytest.fixture
def folder(two_steps, tmp_path):
    return Path(shutil.copytree(two_steps, tmp_path / "job"))


def load(folder, step=None, wanted=WANTED):
    """The step, its values, the plain values, and the notes, on each rank; or why there are none."""
    try:
        with Checkpointer(folder) as checkpointer:
            loaded = checkpointer.load(lambda manifest: wanted, step=step)
    except CheckpointError as error:
        return str(error)
    return loaded and (loaded.step, loaded.tensors["w"], loaded.shared, loaded.own, loaded.notes)


def test_as_many_ranks_and_others_read_the_newest(folder):
    for rank, (step, values, shared, own, notes) in enumerate(run_ranks(load, 2, str(folder), device="cpu")):
        assert step == 2 and torch.equal(values, weights(2)) and shared == {"step": 2} and own == {"rank": rank}
        assert notes == [f"going on from {folder}/step-00000002"]
    for step, values, _, own, _ in run_ranks(load, 3, str(folder), device="cpu"):
        assert step == 2 and torch.equal(values, weights(2)) and own is None
    assert load(folder, step=1)[0] == 1  # without a group, too
    assert load(folder, step=3) == f"{folder} has no step 3; it has [2, 1]"
    assert run_ranks(load, 2, str(folder / "new"), device="cpu").values == [None, None]


def test_ranks_that_see_other_steps_take_the_newest_that_all_see():
    assert common_steps([{10: 1, 12: 2}, {10: 1, 12: 2}]) == ([12, 10], [])
    steps, notes = common_steps([{10: 1, 12: 2}, {10: 1}])
    assert steps == [10] and notes == ["step 12 is seen by rank 0 only. Passed over"]
    steps, notes = common_steps([{10: 1, 12: 2}, {10: 1, 12: 3}])
    assert steps == [10] and notes == ["step 12 is not the same on all ranks. Passed over"]
    assert common_steps([{}, {}]) == ([], [])
    with pytest.raises(CheckpointError, match="there is no checkpoint that all ranks see: give all of them the same"):
        common_steps([{10: 1}, {}])


def load_where_each_sees_its_own(folders):
    """Each rank looks into another folder, as on a file system that shows new names late."""
    from dtlearn.production.checkpoints import checkpointer

    real, own = checkpointer.complete_steps, Path(folders[dist.get_rank()])
    checkpointer.complete_steps = lambda folder: real(own)
    return load(folders[0])


def test_one_with_a_newer_file_goes_back_with_the_others(folder, tmp_path):
    older = shutil.copytree(folder, tmp_path / "older")
    shutil.rmtree(older / "step-00000002")
    for step, values, *_, notes in run_ranks(load_where_each_sees_its_own, 2, [str(folder), str(older)], device="cpu"):
        assert step == 1 and torch.equal(values, weights(1))
        assert notes[0] == "step 2 is seen by rank 0 only. Passed over"


def flip(path, place=3):
    data = bytearray(path.read_bytes())
    data[place] ^= 1
    path.write_bytes(data)


def test_a_damaged_one_is_passed_over_by_all_and_kept(folder):
    """Each rank of three reads a third; the flipped bit is in what rank 0 reads."""
    flip(folder / "step-00000002" / "rank0.bin")
    for step, values, *_, notes in run_ranks(load, 3, str(folder), device="cpu"):
        assert step == 1 and torch.equal(values, weights(1))
        assert "rank 0: " in notes[0] and "rank0.bin was changed since it was saved" in notes[0]
    assert newest_step(folder) == 1 and list(complete_steps(folder)[0]) == [1]
    assert len(list(folder.glob("aside-step-00000002-*"))) == 1
    assert load(folder, step=2) == f"{folder} has no step 2; it has [1]"


def test_nothing_but_damaged_ones_is_no_reason_to_begin_anew(folder):
    for step in (1, 2):
        flip(folder / f"step-0000000{step}" / "rank1.bin")
    for error in run_ranks(load, 2, str(folder), device="cpu"):
        assert f"no checkpoint in {folder} can be read: take another folder to begin anew" in error
    assert sorted(complete_steps(folder)[0]) == [1, 2]  # all is where it was


def test_a_newer_version_and_another_model_are_refused_and_nothing_is_set_aside(folder):
    before = sorted(path.name for path in folder.iterdir())
    assert all(
        "has no v: it is of another model" in error
        for error in run_ranks(load, 2, str(folder), None, {"v": WANTED["w"]}, device="cpu")
    )
    manifest = folder / "step-00000002" / "manifest.json"
    body = manifest.read_text().splitlines()[0].replace('"format": 1', '"format": 9')
    manifest.write_text(f"{body}\ncrc32 {zlib.crc32(body.encode()):08x}\n")
    for error in run_ranks(load, 2, str(folder), device="cpu"):
        assert "has format 9, and this version of dtlearn reads 1" in error
    assert sorted(path.name for path in folder.iterdir()) == before


@pytest.mark.parametrize(
    ("spoil", "says"),
    [
        (lambda shard: shard.unlink(), "lacks rank1.bin, the pieces of one of 2 ranks"),
        (lambda shard: os.truncate(shard, 50), "rank1.bin has 50 bytes, and "),
    ],
    ids=["missing", "torn"],
)
def test_a_missing_shard_and_a_torn_one_are_named_on_every_rank(spoil, says, folder):
    spoil(folder / "step-00000002" / "rank1.bin")
    for step, values, *_, notes in run_ranks(load, 2, str(folder), device="cpu"):
        assert step == 1 and torch.equal(values, weights(1)) and says in notes[0]
    for error in run_ranks(load, 2, str(folder), 2, device="cpu"):
        assert says in error and f"{folder} has no step 2; it has [1]" in error


def save_large(folder, limit, asynchronous):
    """The messages of three saves, where rank 1 may write no file of more than `limit` bytes."""
    rank, num_ranks = dist.get_rank(), dist.get_world_size()
    if limit and rank == 1:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)  # then `write` fails, as on a full disk
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, resource.RLIM_INFINITY))
    said = []
    with Checkpointer(folder, asynchronous=asynchronous) as checkpointer:
        for step in (3, 4, 5):
            size = 100_000 if step == 3 else 10
            piece = flat_piece((size * num_ranks,), rank * size, (rank + 1) * size)
            try:
                checkpointer.save(step, {"w": (piece, torch.full((size,), float(step)))})
                said.append("")
            except CheckpointError as error:
                said.append(str(error))
    return said


@pytest.mark.parametrize("asynchronous", [False, True])
def test_a_full_disk_on_one_rank_is_an_error_on_all_and_nothing_is_lost(asynchronous, folder):
    for said in run_ranks(save_large, 2, str(folder), 50_000, asynchronous, device="cpu"):
        at = 1 if asynchronous else 0  # a writer's error is raised by the next save, which saves nothing
        assert [bool(text) for text in said] == [n == at for n in range(3)]
        assert said[at].startswith("step 3 could not be saved: rank 1: ") and "rank1.bin: File too large" in said[at]
    assert sorted(complete_steps(folder)[0]) == ([2, 5] if asynchronous else [4, 5])
    assert not list(folder.glob(".new-*"))


@pytest.mark.skipif(os.geteuid() != 0, reason="mounting a small file system needs root")
def test_a_file_system_that_is_full(tmp_path):
    small = tmp_path / "small"
    small.mkdir()
    mount = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=200k", "tmpfs", small], capture_output=True, text=True)
    if mount.returncode:
        pytest.skip(f"no file system may be mounted here: {mount.stderr.strip()}")
    try:
        run_ranks(save_steps, 2, str(small), [1, 2], device="cpu")
        for said in run_ranks(save_large, 2, str(small), 0, False, device="cpu"):
            assert "No space left on device" in said[0] and said[1:] == ["", ""]
        assert sorted(complete_steps(small)[0]) == [4, 5]
    finally:
        subprocess.run(["umount", small], check=True)


def save_slowly(folder, when_busy):
    """Writing takes until the third save is asked for (skip), or half a second (wait)."""
    from dtlearn.production.checkpoints import checkpointer as module

    real = module.write_rank_file

    def slow(*args):
        time.sleep(0.5)
        return real(*args)

    module.write_rank_file = slow
    rank, num_ranks = dist.get_rank(), dist.get_world_size()
    with Checkpointer(folder, asynchronous=True, when_busy=when_busy, keep=9) as checkpointer:
        saved = []
        for step in (3, 4, 5):
            own = shards(step, rank, num_ranks)
            saved.append(checkpointer.save(step, own))
            own["w"][1].add_(1000)  # the next optimizer step: what is saved must not see it
            if step == 4:
                checkpointer.wait()
        times = checkpointer.times
    return saved, [(t.waited > 0.1, t.stall > 0.1, t.skipped) for t in times]


@pytest.mark.parametrize(
    ("when_busy", "saved", "stalls"),
    [
        ("wait", [True, True, True], [(False, False, False), (True, True, False), (False, False, False)]),
        ("skip", [True, False, True], [(False, False, False), (False, False, True), (False, False, False)]),
    ],
)
def test_the_next_save_waits_or_is_skipped_by_all(when_busy, saved, stalls, folder):
    results = run_ranks(save_slowly, 2, str(folder), when_busy, device="cpu")
    for own, times in results:
        assert own == saved and [t[2] for t in times] == [t[2] for t in stalls]
        assert times[1][0] == stalls[1][0]
    steps = [1, 2] + [step for step, there in zip((3, 4, 5), saved, strict=True) if there]
    assert sorted(complete_steps(folder)[0]) == steps
    assert torch.equal(load(folder, step=3)[1], weights(3))  # as it was when `save` was called


def without_a_copy(folder):
    from dtlearn.production.checkpoints.staging import Staging

    Staging.copy = lambda self, shards: shards
    return save_slowly(folder, "wait")


def test_without_the_staged_copy_a_later_step_is_saved(folder):
    run_ranks(without_a_copy, 2, str(folder), device="cpu")
    assert not torch.equal(load(folder, step=3)[1], weights(3))


def count_collectives(folder, asynchronous):
    """The collectives that this rank calls in a save and in two loads, each with its group."""
    calls = []

    def counted(name, real):
        def call(*args, group, **kwargs):
            calls.append((name, "training" if group is checkpointer._training.group else "writing"))
            return real(*args, group=group, **kwargs)

        return call

    rank, num_ranks = dist.get_rank(), dist.get_world_size()
    with Checkpointer(folder, asynchronous=asynchronous) as checkpointer:
        for name in ("all_gather", "broadcast", "gather"):
            function = f"{name}_object{'_list' * (name == 'broadcast')}"
            setattr(dist, function, counted(name, getattr(dist, function)))
        checkpointer.save(3, shards(3, rank, num_ranks))
        checkpointer.wait()
        saving, calls = calls, []
        checkpointer.load(lambda manifest: WANTED)
        flip(Path(folder) / "step-00000003" / "rank0.bin") if rank == 0 else None
        dist.barrier()
        loading, calls = calls, []
        checkpointer.load(lambda manifest: WANTED)
    return saving, loading, calls


@pytest.mark.parametrize("asynchronous", [False, True])
def test_the_collectives_are_those_of_the_docstring(asynchronous, folder):
    writing = ["broadcast", "all_gather", "gather", "broadcast", "broadcast"]
    for saving, loading, passing_over in run_ranks(count_collectives, 2, str(folder), asynchronous, device="cpu"):
        assert saving == [("all_gather", "training"), *((name, "writing") for name in writing)]
        assert loading == [("all_gather", "training")] * 3 + [("broadcast", "training")]
        assert passing_over == [("all_gather", "training")] * 4 + [("broadcast", "training")]


def second_job(folder):
    with Checkpointer(folder):
        try:
            Checkpointer(folder)
        except CheckpointError as error:
            return str(error)


def test_two_jobs_in_one_folder_are_refused_on_every_rank(folder):
    said = run_ranks(second_job, 2, str(folder), device="cpu").values
    assert said[0] == said[1] and "is in use by process" in said[0]


def test_a_mistake_in_the_call_is_a_value_error(tmp_path):
    with pytest.raises(ValueError, match="keep is 1 or more, and when_busy 'wait' or 'skip'; got 0 and 'wait'"):
        Checkpointer(tmp_path, keep=0)
    wrong = {"a": CheckpointError()}
    with (
        Checkpointer(tmp_path) as checkpointer,
        pytest.raises(CheckpointError, match="rank0 holds more than tensors and plain values"),
    ):
        checkpointer.save(1, shards(1, 0, 1), own=wrong)
    assert not step_folder(tmp_path, 1).exists()


def in_a_part_of_the_ranks(folder):
    """Ranks 1 and 2 of three train; rank 0 has nothing to do with it."""
    group = dist.new_group([1, 2])
    if dist.get_rank() == 0:
        return None
    with Checkpointer(folder, group=group) as checkpointer:
        rank = dist.get_rank(group)
        checkpointer.save(3, shards(3, rank, 2), own={"rank": rank})
        loaded = checkpointer.load(lambda manifest: WANTED)
    return loaded.step, loaded.own


def test_a_group_of_some_ranks(folder):
    assert run_ranks(in_a_part_of_the_ranks, 3, str(folder), device="cpu").values == [
        None,
        (3, {"rank": 0}),
        (3, {"rank": 1}),
    ]
