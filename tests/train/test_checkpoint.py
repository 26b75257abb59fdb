"""A run that stopped and went on is the run that never stopped: every loss, every bit of the parameters."""

import dataclasses
import errno
import os
from pathlib import Path

import pytest

from dtlearn.train import Options, TrainError, train
from dtlearn.train.checkpoint import checkpoint_file, checkpoints_in, read_checkpoint
from tests.devices import run_ranks

STOP, END = 9, 20  # digits have 14 steps in an epoch, text has 12


def in_three_parts(options, folder):
    """All at once, then again with two stops."""
    whole = train(dataclasses.replace(options, max_steps=END))
    stops = (STOP, STOP + 4, END)
    parts = [train(dataclasses.replace(options, checkpoint_dir=folder, max_steps=stop)) for stop in stops]
    return whole, parts


def losses_of(parts):
    return [loss for part in parts for loss in part.losses]


@pytest.mark.parametrize(("world_size", "task"), [(1, "digits"), (2, "text"), (3, "digits")])
def test_on_as_many_ranks_every_bit_is_the_same(world_size, task, tmp_path, device):
    options = Options(task=task, dropout=0.2, accumulate=2, warmup=12)  # dropout: random numbers must go on too
    for whole, parts in run_ranks(in_three_parts, world_size, options, str(tmp_path), device=device):
        assert [part.first_step for part in parts] == [0, STOP, STOP + 4]
        assert losses_of(parts) == whole.losses
        assert parts[-1].digest == whole.digest and parts[0].digest != whole.digest
        assert parts[-1].accuracy == whole.accuracy


def forgetting(what, options, folder):
    """As above, but a resume leaves something out."""
    from dtlearn.train import state

    if what == "random numbers":
        state.set_rng_state = lambda *args: None
    else:
        load = state.Training.load_state_dict

        def without(self, saved):
            untouched = getattr(self, what)
            setattr(self, what, type("Ignores", (), {"load_state_dict": lambda *args: None})())
            try:
                return load(self, saved)
            finally:
                setattr(self, what, untouched)

        state.Training.load_state_dict = without
    return in_three_parts(options, folder)


@pytest.mark.parametrize("what", ["random numbers", "optimizer"])
def test_what_is_forgotten_shows(what, tmp_path):
    options = Options(dropout=0.2)
    whole, parts = run_ranks(forgetting, 1, what, options, str(tmp_path), device="cpu")[0]
    assert losses_of(parts)[:STOP] == whole.losses[:STOP]
    assert losses_of(parts) != whole.losses


def test_on_other_ranks_it_goes_on_with_the_same_samples(tmp_path):
    whole = run_ranks(train, 1, Options(max_steps=END), device="cpu")[0]
    saving = Options(checkpoint_dir=str(tmp_path))
    before = run_ranks(train, 2, dataclasses.replace(saving, max_steps=STOP), device="cpu")[0]
    after = run_ranks(train, 3, dataclasses.replace(saving, max_steps=END), device="cpu")
    assert [b for b in losses_of([before, after[0]])] == pytest.approx(whole.losses, abs=1e-5)
    assert "the checkpoint was made by 2 ranks, this run has 3" in after.output[0]
    assert not after.output[1]


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """A folder with the checkpoints of steps 3, 6 and 7."""
    folder = tmp_path_factory.mktemp("saved")
    train(Options(checkpoint_dir=str(folder), checkpoint_every=3, max_steps=7))
    return folder


@pytest.fixture
def folder(saved, tmp_path):
    for file in saved.iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    return tmp_path


def go_on(folder, **options):
    return train(Options(**{"checkpoint_dir": str(folder), "max_steps": 8, **options}))


def test_a_checkpoint_has_what_the_guide_says(saved):
    assert [file.name for file in checkpoints_in(saved)] == [f"step-0000000{step}.pt" for step in (7, 6, 3)]
    state = read_checkpoint(checkpoint_file(saved, 7))
    assert set(state) == {
        "format", "arguments", "world_size", "step", "sampler", "model", "optimizer", "scheduler", "rng", "compression"
    }  # fmt: skip
    assert not [name for name in state["model"] if name.startswith("module.")]
    assert (state["sampler"]["epoch"], state["sampler"]["consumed"]) == (0, 7 * 96)


def test_a_damaged_checkpoint_is_passed_over(folder, capsys):
    newest, middle, oldest = checkpoints_in(folder)
    newest.write_bytes(newest.read_bytes()[:50_000])  # cut off
    damaged = bytearray(middle.read_bytes())
    damaged[len(damaged) // 2] ^= 1  # one bit: torch.load alone does not see it
    middle.write_bytes(damaged)
    assert go_on(folder).first_step == 3
    said = capsys.readouterr().out
    assert f"{newest} is damaged" in said and f"{middle} is damaged" in said and f"going on from {oldest}" in said


def test_only_damaged_checkpoints_are_refused(folder):
    for file in checkpoints_in(folder):
        file.write_bytes(b"")
    with pytest.raises(TrainError, match=r"no checkpoint in .* can be read: take another --checkpoint-dir"):
        go_on(folder)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"task": "text"}, "was made with --task digits, this run has --task text: add --task digits to go on"),
        ({"batch_size": 48}, "was made with --batch-size 96, this run has --batch-size 48"),
        ({"seed": 1}, "was made with --seed 0, this run has --seed 1"),
        ({"resume": "none"}, "and --resume none would mix two runs there: take another --checkpoint-dir"),
        ({"resume": "nowhere.pt"}, "there is no file nowhere.pt"),
    ],
)
def test_a_checkpoint_of_another_run_is_refused(options, message, saved):
    with pytest.raises(TrainError, match=message):
        go_on(saved, **options)


def test_a_checkpoint_of_another_model_is_refused(folder):
    import torch

    file = checkpoints_in(folder)[0]
    state = read_checkpoint(file)
    state["model"]["mlp.layers.0.bias"] = torch.zeros(3)
    torch.save(state, file)
    with pytest.raises(TrainError, match=r"the checkpoint is of another model: .* Has the code changed since"):
        go_on(folder)


def test_going_back_in_the_same_folder_is_refused(folder):
    old = str(checkpoint_file(folder, 3))
    with pytest.raises(TrainError, match=r"holds newer checkpoints than .*step-00000003.pt, such as step-00000007.pt"):
        go_on(folder, resume=old)
    assert go_on(folder / "other", resume=old).first_step == 3
    assert go_on(folder / "third", resume=str(folder)).first_step == 7


def test_other_options_count_from_the_checkpoint_on(folder, capsys):
    assert go_on(folder, lr=0.05, epochs=3).first_step == 7
    assert "changed since the checkpoint: --epochs 15 -> 3, --lr 0.1 -> 0.05" in capsys.readouterr().out
    state = read_checkpoint(checkpoint_file(folder, 8))
    assert state["scheduler"]["base_lrs"] == [0.05]
    assert state["optimizer"]["param_groups"][0]["lr"] == pytest.approx(0.05 * 0.9)  # of update 8, warming up


def test_a_run_that_is_complete_is_only_tested(tmp_path, capsys):
    options = Options(epochs=1, checkpoint_dir=str(tmp_path))
    first, again = train(options), train(options)
    assert (again.first_step, again.step, again.losses) == (14, 14, [])
    assert again.accuracy == first.accuracy
    assert "all 14 steps are made: more --epochs go on" in capsys.readouterr().out
    assert train(dataclasses.replace(options, epochs=2)).first_step == 14


def resume_in_turn(folder):
    """Rank 0 alone has a folder: another machine need not see it."""
    import os

    mine = folder if os.environ["RANK"] == "0" else "/nonexistent/folder"
    train(Options(checkpoint_dir=mine, max_steps=3))
    return train(Options(checkpoint_dir=mine, max_steps=5)).first_step


def test_only_rank_0_needs_the_files(tmp_path):
    assert run_ranks(resume_in_turn, 2, str(tmp_path), device="cpu").values == [3, 3]
    assert not Path("/nonexistent").exists()


def with_a_full_disk(folder):
    """The disk is full at steps 2 and 6, and has room at step 4."""
    from dtlearn.runtime.machine import whole_file

    fsync, times = os.fsync, []

    def full(descriptor):
        times.append(descriptor)
        if len(times) != 2:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        fsync(descriptor)

    whole_file._sync_folder = lambda folder: None
    whole_file.os = type("FullDisk", (), {**vars(os), "fsync": staticmethod(full)})
    return train(Options(checkpoint_dir=folder, checkpoint_every=2, max_steps=6))


def test_a_full_disk_does_not_end_the_training(tmp_path):
    run = run_ranks(with_a_full_disk, 2, str(tmp_path), device="cpu")
    assert [r.step for r in run] == [6, 6] and all("No space left" in r.unsaved for r in run)
    assert [file.name for file in tmp_path.iterdir()] == ["step-00000004.pt"]  # nothing half-written either
    assert "no checkpoint after step 2" in run.output[0] and "the last steps are NOT saved" in run.output[0]
