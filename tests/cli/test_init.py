"""The command line as a whole: help, exit codes, one message for a user's mistake."""

import argparse
import os
import subprocess
import sys
from pathlib import Path

import pytest

import dtlearn
from dtlearn import cli
from dtlearn.runtime.errors import LaunchError, NotSendable

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize(
    ("command", "says"),
    [
        (["--help"], "lab"),
        (["lab", "--help"], "Ctrl-C"),
        (["grade", "--help"], "--gradescope"),
        (["watch", "--help"], "Ctrl-C"),
        (["hint", "--help"], "next hint"),
        (["solution", "--help"], "--diff"),
        (["reset", "--help"], "is kept"),
        (["progress", "--help"], "best score"),
        (["doctor", "--help"], "--json"),
        (["bench", "--help"], "launch"),
        (["bench", "launch", "--help"], "notebook_launcher"),
        (["bench", "cells", "--help"], "1 MiB"),
    ],
)
def test_every_help_has_an_example(capsys, command, says):
    assert cli.main(command) == 0
    said = capsys.readouterr().out
    assert says in said
    assert said.count("example:\n  dtlearn ") == 1


def test_a_summary_is_a_whole_sentence():
    """It was cut at the first dot, also at one within a name: "a step of a pipeline beside torch"."""
    (commands,) = [a for a in cli.build_parser()._actions if isinstance(a, argparse._SubParsersAction)]
    (benches,) = [a for a in commands.choices["bench"]._actions if isinstance(a, argparse._SubParsersAction)]
    listed = [*commands._choices_actions, *benches._choices_actions]
    parsers = [*commands.choices.values(), *benches.choices.values()]
    assert len(listed) == len(parsers) > 20
    for line, parser in zip(listed, parsers, strict=True):
        rest = parser.description[len(line.help) :]
        assert rest in ("", ".") or rest.startswith((". ", ".\n")), line.help


_LOADS_TORCH = """
import sys
from dtlearn import cli
code = cli.main(sys.argv[1:])
print(code, *sorted({"torch", "matplotlib", "numpy"} & set(sys.modules)))
"""


@pytest.mark.parametrize(
    ("command", "code"),
    [
        (["try", "ch01.barrier"], cli.WRONG),
        (["grade", "ch01.barrier"], cli.WRONG),
        (["grade", "ch01.barrier", "--file", "/nope.py"], cli.USAGE),
        (["progress"], 0),
        (["hint", "ch01.nope"], cli.USAGE),
    ],
)
def test_nothing_heavy_is_loaded_to_say_that_there_is_nothing_to_do(command, code, tmp_path):
    for name in ("course.toml", "solutions", "exercises"):
        (tmp_path / name).symlink_to(ROOT / name)
    (tmp_path / "dtlearn").symlink_to(ROOT / "dtlearn")
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    arguments = [
        sys.executable,
        "-c",
        _LOADS_TORCH.replace(
            "code =",
            "from dtlearn import course; course.find_root = "
            f"lambda: __import__('pathlib').Path({str(tmp_path)!r})\ncode =",
        ),
        *command,
    ]
    said = subprocess.run(arguments, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert said.stdout.splitlines()[-1] == str(code), said.stderr


def test_version(capsys):
    assert cli.main(["--version"]) == 0
    assert capsys.readouterr().out == f"dtlearn {dtlearn.__version__}\n"


@pytest.mark.parametrize(
    ("command", "says"),
    [
        ([], "COMMAND"),
        (["nonsense"], "nonsense"),
        (["grad"], "did you mean grade?"),
        (["bench", "memry"], "did you mean memory?"),
        (["lab", "--ip", "8.8.8.8"], "this machine cannot listen on '8.8.8.8'"),
        (["lab-token", "/nope/x"], "no file in a folder that exists"),
        (["bench"], "NAME"),
        (["bench", "nonsense"], "'launch', 'cells'"),
        (["bench", "launch", "--ranks", "0"], "from 1 to 64; got 0"),
        (["bench", "launch", "--ranks", "1"], "2 ranks or more"),
        (["bench", "cells", "--ranks", "-3"], "got -3"),
        (["bench", "cells", "--ranks", "two"], "got 'two'"),
        (["bench", "launch", "--rounds", "0"], "1 or more"),
        (["lab", "ch99"], "there is no chapter 'ch99'"),
        (["lab", "ch17"], "ch17_capstone is not written yet"),
        (["lab", "--port", "99999"], "from 1 to 65535"),
    ],
)
def test_a_wrong_command_line_is_told_so_and_exits_with_2(capsys, command, says):
    assert cli.main(command) == cli.USAGE
    said = capsys.readouterr()
    assert says in said.err
    assert "Traceback" not in said.err + said.out


@pytest.mark.parametrize(
    ("error", "code", "says"),
    [
        (LaunchError("the agent is gone"), cli.WRONG, "dtlearn doctor: the agent is gone\n"),
        (ValueError("no such thing"), cli.USAGE, "dtlearn doctor: no such thing\n"),
        (NotSendable("a lock"), cli.USAGE, "dtlearn doctor: a lock\n"),
        (KeyboardInterrupt(), cli.INTERRUPTED, "interrupted\n"),
    ],
)
def test_what_a_command_raises_becomes_one_message(capsys, monkeypatch, error, code, says):
    def fail():
        raise error

    monkeypatch.setattr("dtlearn.cli.doctor.report.examine", fail)
    assert cli.main(["doctor"]) == code
    assert capsys.readouterr().err == says


def test_a_mistake_of_ours_is_not_hidden(monkeypatch):
    monkeypatch.setattr("dtlearn.cli.doctor.report.examine", lambda: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        cli.main(["doctor"])


def test_the_module_is_the_command():
    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run([sys.executable, "-m", "dtlearn", *arguments], cwd=ROOT, capture_output=True, text=True)

    assert run("--version").stdout == f"dtlearn {dtlearn.__version__}\n"
    wrong = run("lab", "ch99")
    assert wrong.returncode == cli.USAGE
    assert wrong.stderr.startswith("dtlearn lab: there is no chapter") and "Traceback" not in wrong.stderr


_PRINTS_LATE = """
import sys
from dtlearn.cli import main
from dtlearn.cli.doctor import report
report.examine = lambda: report.MachineReport((), (), 9, 0.0)
sys.stdin.read()
sys.exit(main(["doctor"]))
"""


def test_a_reader_that_leaves_early_is_no_error():
    pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    with subprocess.Popen([sys.executable, "-c", _PRINTS_LATE], cwd=ROOT, text=True, **pipes) as process:
        process.stdout.close()
        process.stdin.close()
        said = process.stderr.read()
    assert process.returncode == cli.WRONG
    assert said == ""
