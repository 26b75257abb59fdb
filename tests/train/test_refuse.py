"""What cannot be done is refused on all ranks, with a message, code 2 and no stack trace; nobody hangs."""

import errno
import os

import pytest
import torch

from dtlearn.runtime import run_ranks
from dtlearn.train import Options, TrainError, train
from dtlearn.train.__main__ import main
from dtlearn.train.agree import from_rank_0
from dtlearn.train.data import check_batch
from dtlearn.train.options import settle
from dtlearn.train.tasks import load_task


def code_of(argv):
    """The exit code of the command line."""
    try:
        return main(argv)
    except SystemExit as end:  # argparse ends the process itself
        return end.code


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["--task", "poems"], "invalid choice: 'poems'"),
        (["--epochs", "0"], "--epochs must be 1 or more; got 0"),
        (["--lr", "-1"], "--lr must be more than 0; got -1.0"),
        (["--lr", "nan"], "--lr must be more than 0; got nan"),
        (["--dropout", "1"], "--dropout must be 0 or more, and less than 1; got 1.0"),
        (["--accumulate", "7"], "--accumulate 7 must divide it. The nearest that works is --batch-size 98"),
        (["--batch-size", "2000"], "--batch-size 2000 is more than the 1437 training samples"),
        (["--resume", "nothing.pt"], "there is no file nothing.pt"),
        (["--device", "cuda"], "torch sees no GPU here"),
        (["--amp"], "--amp needs a GPU"),
        (["--device", "cpu", "--backend", "nccl"], "use --backend gloo with --device cpu"),
        (["--checkpoint-dir", __file__], f"cannot write in {__file__}"),
        (["--log-dir", f"{__file__}/logs"], f"cannot write in {__file__}/logs"),
    ],
)  # fmt: skip
def test_the_command_line_says_what_is_wrong(argv, message, capsys, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK"):
        monkeypatch.delenv(name, raising=False)
    assert code_of([*argv, "--max-steps", "1"]) == 2
    said = capsys.readouterr().err
    assert message in said and "Traceback" not in said


def refused(argv):
    return code_of(argv)


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (
            ["--batch-size", "95"],
            "--batch-size 95 cannot be shared evenly: 2 ranks times --accumulate 1 must divide it",
        ),
        (["--bach-size", "95"], "unrecognized arguments"),
        (["--backend", "nccl"], "leave --device and --backend at auto"),
        (["--checkpoint-dir", __file__], "cannot write in"),
    ],
)
def test_ranks_agree_and_rank_0_says_it(argv, message):
    run = run_ranks(refused, 2, argv, device="cpu")
    assert run.values == [2, 2]
    assert message in run.output[0] and not run.output[1]


def test_fewer_samples_than_ranks_are_refused():
    task = load_task("digits")
    with pytest.raises(TrainError, match="2000 ranks, but only 1437 training samples: start fewer ranks"):
        check_batch(task, settle(Options(), task.defaults), 2000)


def fails_on_rank_0(error):
    def action():
        assert os.environ["RANK"] == "0"
        raise error

    try:
        from_rank_0(action)
    except Exception as raised:
        return type(raised).__name__, str(raised)


@pytest.mark.parametrize(
    ("error", "here", "there"),
    [
        (TrainError("no"), ("TrainError", "no"), ("TrainError", "no")),
        (OSError(errno.ENOSPC, "full", "f.pt"), ("TrainError", "f.pt: full"), ("TrainError", "f.pt: full")),
        (KeyError("k"), ("KeyError", "'k'"), ("RuntimeError", "rank 0 failed: KeyError: 'k'")),
    ],
)
def test_a_failure_of_rank_0_is_everybodys(error, here, there):
    assert run_ranks(fails_on_rank_0, 2, error, device="cpu").values == [here, there]


def with_a_full_disk(folder):
    """The disk is full at steps 2 and 6, and has room at step 4."""
    from dtlearn.train import checkpoint

    fsync, times = os.fsync, []

    def full(descriptor):
        times.append(descriptor)
        if len(times) != 2:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        fsync(descriptor)

    checkpoint._sync_folder = lambda folder: None
    checkpoint.os = type("FullDisk", (), {**vars(os), "fsync": staticmethod(full)})
    return train(Options(checkpoint_dir=folder, checkpoint_every=2, max_steps=6))


def test_a_full_disk_does_not_end_the_training(tmp_path):
    run = run_ranks(with_a_full_disk, 2, str(tmp_path), device="cpu")
    assert [r.step for r in run] == [6, 6] and all("No space left" in r.unsaved for r in run)
    assert [file.name for file in tmp_path.iterdir()] == ["step-00000004.pt"]  # nothing half-written either
    assert "no checkpoint after step 2" in run.output[0] and "the last steps are NOT saved" in run.output[0]


def test_an_unsaved_end_is_exit_code_1(monkeypatch):
    import dtlearn.train.__main__ as program

    result = train(Options(max_steps=1))
    for changed, code in (({}, 0), ({"unsaved": "full"}, 1), ({"stopped_by": 2}, 130), ({"stopped_by": 15}, 143)):
        monkeypatch.setattr(program, "train", lambda _, changed=changed: type(result)(**{**vars(result), **changed}))
        assert main([]) == code
