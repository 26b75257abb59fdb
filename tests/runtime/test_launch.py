"""Scripts under torchrun and others: who said what, who failed first, and that nothing outlives a run."""

import importlib.util
import signal
import sys
import time
from collections import deque
from pathlib import Path

import pytest

from dtlearn.runtime.errors import RankError, RanksInterrupted, RanksTimeout
from dtlearn.runtime.launch import _failure, launch_command, launch_script

from .conftest import Shown

REAL_STARTS = True  # how launchers and scripts start is the question
MEET = """\
import os, sys
import torch, torch.distributed as dist

dist.init_process_group("gloo")
total = torch.tensor([dist.get_rank() + 1.0])
"""
PEER_LOST = "Traceback (most recent call last):\nRuntimeError: Connection closed by peer [127.0.0.1]:22912\n"
RAISED = "Traceback (most recent call last):\nValueError: bad batch\n"


@pytest.fixture
def launch():
    """Runs a script; returns what was shown."""

    def run(source: str, num_processes: int = 1, **options) -> Shown:
        shown = options.pop("shown", None) or Shown()
        launch_script(source, num_processes, sink=shown, **options)
        return shown

    return run


def said(shown: Shown, rank: int, name: str) -> str:
    """What that rank wrote to that stream."""
    streams = [m["content"] for r, m in shown.messages if r == rank]
    return "".join(content["text"] for content in streams if content["name"] == name)


def python(source, launch, **options) -> Shown:
    """A script that starts its own processes, if any: the quickest launcher."""
    return launch(source, launcher="python", timeout=20, **options)


@pytest.mark.slow
def test_torchrun_starts_ranks_that_meet_and_each_line_has_its_rank(launch, tmp_path):
    script = tmp_path / "my script.py"
    source = f"""{MEET}
dist.all_reduce(total)
dist.destroy_process_group()
print("rank", os.environ["RANK"], "of", os.environ["WORLD_SIZE"], "has", total.item(), sys.argv[1:])
print("grün", file=sys.stderr)
print("an end without a new line", end="")
"""
    shown = launch(source, 2, path=script, args=["--lr", "0.1", "two words"], timeout=60)
    for rank in range(2):
        assert said(shown, rank, "stdout") == (
            f"rank {rank} of 2 has 3.0 ['--lr', '0.1', 'two words']\nan end without a new line\n"
        )
        assert said(shown, rank, "stderr") == "grün\n"
    assert shown.text(-1) == ""  # what torchrun itself says matters only when something fails
    assert shown.ticks > 5
    assert script.read_text(encoding="utf-8") == source


def test_two_nodes_are_one_job_and_the_rank_that_failed_is_named(launch):
    source = f"""{MEET}
dist.all_reduce(total)
print(os.environ["GROUP_RANK"], os.environ["LOCAL_RANK"], total.item(), flush=True)
if dist.get_rank() == 1:
    raise ValueError("bad batch")
dist.barrier()
"""
    shown = Shown()
    with pytest.raises(RankError) as caught:
        launch(source, 1, nodes=2, timeout=60, shown=shown)
    text = str(caught.value)
    assert text.startswith("rank 1 failed first (the launcher's exit code is 1):\nTraceback (most recent call last):\n")
    assert '    raise ValueError("bad batch")\nValueError: bad batch' in text
    assert "[rank1]" not in text and "Connection closed" not in text
    assert caught.value.rank == 1
    assert [said(shown, rank, "stdout") for rank in range(2)] == ["0 0 3.0\n", "1 0 3.0\n"]
    assert "ValueError: bad batch\n" in said(shown, 1, "stderr")


def test_an_interrupt_ends_torchrun_and_its_workers(launch):
    shown = Shown()
    shown.on_text = lambda rank, text: signal.raise_signal(signal.SIGINT)
    begun = time.monotonic()
    with pytest.raises(RanksInterrupted, match="interrupted: everything that the script started was ended"):
        launch("import time\nprint('here', flush=True)\ntime.sleep(300)", 2, timeout=60, shown=shown)
    assert shown.text(0) + shown.text(1) == "here\n"
    assert time.monotonic() - begun < 30


def test_the_time_limit_ends_everything(launch):
    begun = time.monotonic()
    shown = Shown()
    with pytest.raises(RanksTimeout, match=r"the script did not finish within 1 s; everything it started was ended"):
        launch(
            "import subprocess, sys, time\nprint('begun', flush=True)\n"
            "subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(300)'], start_new_session=True)\n"
            "time.sleep(300)",
            launcher="python",
            timeout=1,
            shown=shown,
        )
    assert time.monotonic() - begun < 4
    assert shown.text(-1) == "begun\n"


def test_a_script_of_its_own_is_shown_as_it_is(launch):
    source = "import sys\nprint('[worker1]: hi', sys.argv[1:])\nprint('[default0]: ho', end='')"
    assert python(source, launch, args=["-x"]).text(-1) == "[worker1]: hi ['-x']\n[default0]: ho\n"


def test_a_script_that_fails_is_told_with_its_traceback(launch):
    with pytest.raises(RankError) as caught:
        python("print('fine')\n1 / 0", launch)
    text = str(caught.value)
    assert text.startswith("the launcher failed (the launcher's exit code is 1):\nTraceback (most recent call last):\n")
    assert text.endswith("ZeroDivisionError: division by zero") and "fine" not in text


def test_a_script_that_is_killed_is_told_with_its_last_words(launch):
    with pytest.raises(RankError, match=r"exit code is 137\):\nlast words$"):
        python("import os\nprint('last words', flush=True)\nos.kill(os.getpid(), 9)", launch)


@pytest.mark.parametrize(
    ("said", "rank", "last"),
    [
        ({-1: ["Root Cause (first observed):\n", "  rank      : 1 (local_rank: 1)\n"], 1: [RAISED]}, 1, "bad batch"),
        # torchrun saw both at once and names the first by number.
        ({-1: ["Root Cause\n rank : 0\n"], 0: [PEER_LOST], 1: [RAISED]}, 1, "bad batch"),
        # A launcher for each node, each with its own view.
        ({-1: ["Root Cause\n rank : 0\n", "Root Cause\n rank : 1\n"], 0: [PEER_LOST], 1: [RAISED]}, 1, "bad batch"),
        ({-1: ["Root Cause\n rank : 0\n"], 0: [PEER_LOST], 1: [PEER_LOST]}, 0, "]:22912"),
        # Killed: no traceback, but nothing else explains the end.
        ({-1: ["Root Cause\n rank : 1\n"], 0: [PEER_LOST], 1: ["epoch 1\n", "epoch 2\n"]}, 1, "epoch 2"),
        ({-1: ["no such file\n"]}, 0, "no such file"),
    ],
)
def test_the_first_cause_is_found(said, rank, last):
    recent = {r: {"stdout": deque(["said before\n"]), "stderr": deque(said.get(r, []))} for r in (-1, 0, 1)}
    error = _failure(1, recent)
    assert error.rank == rank
    assert str(error).startswith("the launcher failed" if last == "no such file" else f"rank {rank} failed first")
    assert str(error).endswith(last)


def test_the_command_of_torchrun_on_one_node_needs_no_port():
    command = launch_command(Path("x.py"), 4, "torchrun", Path("logs"))
    assert command[:3] == [sys.executable, "-m", "torch.distributed.run"]
    assert " --nnodes 1 --nproc-per-node 4 --rdzv-backend c10d --rdzv-endpoint 127.0.0.1:0 " in " ".join(command)
    assert command[-5:] == ["--tee", "3", "--log-dir", "logs", "x.py"]


def test_the_commands_of_several_nodes_differ_in_their_rank_only():
    at = "127.0.0.1:4711"
    first, second = (launch_command(Path("x.py"), 2, "torchrun", Path("logs"), 2, node, at) for node in range(2))
    differ = [(a, b) for a, b in zip(first, second, strict=True) if a != b]
    assert differ == [("0", "1")] and first[first.index("0") - 1] == "--node-rank"
    assert "--nnodes 2 --nproc-per-node 2" in " ".join(first)
    assert "--master-addr 127.0.0.1 --master-port 4711" in " ".join(first)


def test_the_command_of_accelerate(monkeypatch):
    monkeypatch.setattr(Path, "exists", lambda self: False)
    command = launch_command(Path("x.py"), 2, "accelerate", Path("logs"))
    assert command[:6] == [sys.executable, "-m", "accelerate.commands.launch", "--cpu", "--num_processes", "2"]
    assert command[-1] == "x.py"
    monkeypatch.setattr(Path, "exists", lambda self: str(self) == "/dev/nvidia0")
    assert "--cpu" not in launch_command(Path("x.py"), 2, "accelerate", Path("logs"))


def test_without_accelerate_it_is_said(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ValueError, match=r"accelerate is not installed; `pip install accelerate`, or use torchrun"):
        launch_command(Path("x.py"), 2, "accelerate", Path("logs"))


def test_the_command_of_python():
    assert launch_command(Path("x.py"), 1, "python", Path("logs")) == [sys.executable, "x.py"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"num_processes": 0}, "whole number from 1 to 64; got 0"),
        ({"num_processes": 2, "nodes": 0}, "whole number from 1 to 64; got 0"),
        ({"num_processes": 33, "nodes": 2}, "whole number from 1 to 64; got 66"),
        ({"num_processes": 1, "timeout": 0}, "positive number of seconds; got 0"),
        ({"num_processes": 1, "timeout": float("nan")}, "positive number of seconds; got nan"),
        ({"num_processes": 2, "launcher": "python"}, "cannot launch 1 x 2 with 'python'"),
        ({"num_processes": 1, "nodes": 2, "launcher": "accelerate"}, "cannot launch 2 x 1 with 'accelerate'"),
        ({"num_processes": 1, "launcher": "mpirun"}, "cannot launch 1 x 1 with 'mpirun': use torchrun, accelerate"),
    ],
)
def test_what_cannot_be_launched_is_refused(launch, options, message):
    with pytest.raises(ValueError, match=message):
        launch("print('never')", **options)
