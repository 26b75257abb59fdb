"""The command line: what cannot be done is refused on all ranks, with a message, code 2 and no stack trace."""

import pytest
import torch

from dtlearn.runtime.run import run_ranks
from dtlearn.train import Options, train
from dtlearn.train.__main__ import main


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


def test_an_unsaved_end_is_exit_code_1(monkeypatch):
    import dtlearn.train.__main__ as program

    result = train(Options(max_steps=1))
    for changed, code in (({}, 0), ({"unsaved": "full"}, 1), ({"stopped_by": 2}, 130), ({"stopped_by": 15}, 143)):
        monkeypatch.setattr(program, "train", lambda _, changed=changed: type(result)(**{**vars(result), **changed}))
        assert main([]) == code
