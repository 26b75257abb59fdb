"""The commands that start nodes, and what becomes of one that fails."""

import shlex
import sys

import pytest

from dtlearn.runtime.lab.config import NodeConfig
from dtlearn.runtime.lab.head.start_nodes import Starter, node_command, start_command

AT = "10.0.0.9:47600"


def test_what_a_person_types_has_the_place_of_the_token_and_not_the_token(tmp_path):
    node = NodeConfig("alpha", 2, interface="eth1", directory="/my data")
    assert node_command(node, AT, str(tmp_path / "lab.token")) == [
        *(sys.executable, "-m", "dtlearn", "node", "--join", AT, "--name", "alpha"),
        *("--token-file", str(tmp_path / "lab.token"), "--interface", "eth1", "--directory", "/my data"),
    ]


def test_ssh_asks_nothing_and_gets_one_quoted_command():
    command = start_command(NodeConfig("beta", 1, start="ssh", python="/opt/my env/python"), AT)
    assert command[:-1] == ["ssh", "-o", "BatchMode=yes", "-o", "ConnectTimeout=10", "beta"]
    inner = shlex.split(command[-1])
    assert inner[:4] == ["/opt/my env/python", "-m", "dtlearn", "node"] and inner[-2:] == ["--token-file", "-"]


def test_srun_starts_one_task_on_that_node():
    command = start_command(NodeConfig("n17", 4, start="srun"), AT)
    assert command[:5] == ["srun", "--overlap", "--nodes=1", "--ntasks=1", "--nodelist=n17"]
    assert command[5:9] == [sys.executable, "-m", "dtlearn", "node"]


def test_a_manual_node_has_no_start_command():
    with pytest.raises(ValueError, match="'manual' has no start command"):
        start_command(NodeConfig("alpha", 1), AT)


def play(tmp_path, monkeypatch, script: str) -> Starter:
    """A starter whose `srun` is a script."""
    (tmp_path / "srun").write_text(f"#!/bin/sh\n{script}\n")
    (tmp_path / "srun").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    return Starter(NodeConfig("n17", 1, start="srun"), AT, "the token\n")


def test_the_token_comes_on_standard_input(tmp_path, monkeypatch):
    starter = play(tmp_path, monkeypatch, f"cat > {tmp_path}/got; exit 3")
    starter._process.wait(10)
    assert (tmp_path / "got").read_text() == "the token\n"
    assert starter.problem() == "`srun` ended with code 3. It said: (nothing)"
    starter.close()


def test_a_command_that_fails_is_quoted(tmp_path, monkeypatch):
    starter = play(tmp_path, monkeypatch, "echo no such partition >&2; exit 1")
    starter._process.wait(10)
    assert starter.problem() == "`srun` ended with code 1. It said: no such partition"
    starter.close()


def test_a_command_that_runs_has_no_problem_and_is_ended(tmp_path, monkeypatch):
    starter = play(tmp_path, monkeypatch, "exec sleep 60")
    assert starter.problem() is None
    starter.close(0.1)
    assert starter._process.poll() is not None


def test_a_command_that_is_missing_is_told(monkeypatch):
    monkeypatch.setenv("PATH", "/nowhere")
    starter = Starter(NodeConfig("n17", 1, start="srun"), AT, "token")
    assert starter.problem() == "srun: No such file or directory"
    starter.close()
