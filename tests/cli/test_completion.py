"""Completion in shells, tried in bash itself."""

import shutil
import subprocess
import sys

import pytest

from dtlearn import cli
from dtlearn.cli.completion import script

ASKS = """
source "$1"
COMP_WORDS=("${@:2}") COMP_CWORD=$(($# - 2))
_shtab_dtlearn
printf '%s\n' "${COMPREPLY[@]}"
"""


@pytest.fixture(scope="module")
def bash_script(tmp_path_factory):
    path = tmp_path_factory.mktemp("completion") / "dtlearn.bash"
    path.write_text(script(cli.build_parser(), "bash"))
    return path


@pytest.mark.parametrize(
    ("words", "completed"),
    [
        (["gr"], {"grade", "grade-class"}),
        (["hint", "ch12.row"], {"ch12.row_parallel"}),
        (["progress", "ch0"], None),
        (["lab", "--no"], {"--no-browser"}),
        (["completion", "z"], {"zsh"}),
    ],
)
def test_bash_completes(bash_script, words, completed):
    bash = shutil.which("bash")
    assert bash, "these tests need bash"
    said = subprocess.run(
        [bash, "-c", ASKS, "bash", bash_script, "dtlearn", *words], capture_output=True, text=True, check=True
    )
    found = set(said.stdout.split())
    assert found == completed if completed else {"ch01", "ch01.barrier", "ch09"} <= found


@pytest.mark.parametrize("shell", ["bash", "zsh", "tcsh"])
def test_a_script_for_each_shell(capsys, shell):
    assert cli.main(["completion", shell]) == 0
    said = capsys.readouterr().out
    assert "grade-class" in said and "ch01.barrier" in said


def test_ids_are_told_and_not_imposed(capsys):
    """The parser of the command itself still answers a wrong id with what is near."""
    assert cli.main(["hint", "ch12.row_paralel"]) == cli.USAGE
    assert "did you mean ch12.row_parallel?" in capsys.readouterr().err


def test_without_shtab_it_is_said_what_to_install(capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "shtab", None)
    assert cli.main(["completion", "bash"]) == cli.WRONG
    assert "`pip install shtab`" in capsys.readouterr().err
