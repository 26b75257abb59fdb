"""The command: alone, and refused."""

import pytest

from dtlearn.libraries.hello_deepspeed.__main__ import main

QUICK = ["--steps", "2", "--batch-size", "4", "--context-length", "16", "--hidden-size", "32"]


@pytest.fixture(autouse=True)
def alone(monkeypatch):
    for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"):
        monkeypatch.delenv(name, raising=False)


def test_it_trains_and_prints(capsys):
    assert main(["--engine", "plain", *QUICK]) == 0
    assert "loss on held-out text" in capsys.readouterr().out


def test_what_cannot_be_done_is_refused_with_its_reason(capsys):
    assert main(["--engine", "plain", "--accumulation", "3", *QUICK]) == 2
    said = capsys.readouterr().err
    assert said.startswith("hello_deepspeed: batch_size must be") and "Traceback" not in said
