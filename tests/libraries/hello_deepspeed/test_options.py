"""Options: what no run can have is refused, on the command line and in a dataclass."""

from dataclasses import fields
from pathlib import Path

import pytest

from dtlearn.libraries.hello_deepspeed.options import HelloOptions, parse, require_writable


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"engine": "horovod"}, "engine must be one of auto, plain, deepspeed"),
        ({"precision": "fp8"}, "precision must be one of"),
        ({"zero": 4}, "zero must be 0, 1, 2 or 3; got 4"),
        ({"zero": 0, "offload": True}, "offload needs zero=1"),
        ({"steps": 0}, "steps must be 1 or more"),
        ({"lr": float("nan")}, "lr must be a finite number of 0 or more"),
        ({"lr": float("inf")}, "lr must be a finite number"),
        ({"clip": float("inf")}, "clip must be a finite number"),
        ({"seed": -1}, "seed must be 0 or more"),
        ({"seed": 10**23}, "seed must be 1000000000000 or less"),
        ({"num_layers": 0}, "num_layers must be 1 or more"),
        ({"hidden_size": 66}, "must divide hidden_size"),
    ],
)  # fmt: skip
def test_what_no_run_can_have_is_refused(wrong, message, capsys):
    with pytest.raises(ValueError, match=message):
        HelloOptions(**wrong)
    argv = [part for name, value in wrong.items() for part in ([f"--{name.replace('_', '-')}", str(value)])]
    argv = [part for part in argv if part != "True"]
    with pytest.raises(SystemExit) as end:
        parse(argv)
    assert end.value.code == 2
    assert message.split(" must be")[0] in capsys.readouterr().err


@pytest.mark.parametrize(
    "wrong",
    [{"steps": 1.5}, {"num_layers": 2.0}, {"seed": None}, {"batch_size": "x"}, {"offload": 1}, {"checkpoint_dir": 0}],
)
def test_what_is_of_another_kind_is_refused(wrong):
    (name,) = wrong
    with pytest.raises(ValueError, match=f"{name} must be "):
        HelloOptions(**wrong)


def test_a_folder_that_cannot_be_written_to_is_refused(tmp_path):
    file = tmp_path / "file"
    file.touch()
    for folder in (file, file / "below", Path("/proc/nowhere")):
        with pytest.raises(ValueError, match="cannot be written to"):
            require_writable(folder)
    require_writable(tmp_path / "a" / "b")
    assert list((tmp_path / "a" / "b").iterdir()) == []


def test_the_command_line_has_every_option():
    argv = ["--zero", "3", "--offload", "--precision", "bf16", "--batch-size", "16", "--lr", "0.1", "--local_rank", "1"]
    assert parse(argv) == HelloOptions(zero=3, offload=True, precision="bf16", batch_size=16, lr=0.1)
    assert parse([]) == HelloOptions()


def test_the_help_names_every_option(capsys):
    with pytest.raises(SystemExit):
        parse(["--help"])
    said = capsys.readouterr().out
    assert all("--" + field.name.replace("_", "-") in said for field in fields(HelloOptions))


def test_the_global_batch_is_micro_batch_times_accumulation_times_ranks():
    assert HelloOptions(batch_size=24, accumulation=3).micro_batch(2) == 4
    with pytest.raises(ValueError, match=r"32 is no multiple of 3 \* 2. The next that is: 36"):
        HelloOptions(accumulation=3).micro_batch(2)
