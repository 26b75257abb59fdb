"""What a rank is, as a process: session, environment, streams, random state, and the stack that it can be asked for."""

import contextlib
import os
import signal
import sys
from pathlib import Path

import pytest

from dtlearn.runtime.agent.client import get_agent
from dtlearn.runtime.run import run_ranks


def test_a_rank_is_a_session_of_its_own_below_its_reaper_below_the_agent():
    def look():
        grandparent = int(Path(f"/proc/{os.getppid()}/stat").read_text().rpartition(")")[2].split()[1])
        return os.getpid(), os.getsid(0), os.getpgid(0), os.getppid(), grandparent

    parents = set()
    for pid, session, group, parent, grandparent in run_ranks(look, 2):
        assert pid == session == group
        assert grandparent == get_agent().pid
        parents.add(parent)
    assert len(parents) == 1


def test_temporary_files_are_where_the_caller_wants_them_now(tmp_path, monkeypatch):
    def look():
        import tempfile

        return tempfile.gettempdir()

    run_ranks(look, 1)
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    assert run_ranks(look, 1).values == [str(tmp_path)]


def test_standard_input_is_empty_and_output_is_no_terminal():
    def look():
        return sys.stdin.read() if sys.stdin else "", os.read(0, 1), sys.stdout.isatty(), sys.stdout.encoding

    for text, data, terminal, encoding in run_ranks(look, 1):
        assert (text, data, terminal, encoding) == ("", b"", False, "utf-8")


def test_odd_characters_can_be_printed():
    def talk():
        print("fine \N{SNOWMAN} odd \udc80")

    assert run_ranks(talk, 1).output == ["fine \N{SNOWMAN} odd \\udc80\n"]


def test_child_processes_print_where_the_rank_prints():
    def start():
        import subprocess

        subprocess.run(["echo", "from a child"], check=True)

    assert run_ranks(start, 1).output == ["from a child\n"]


def test_ranks_do_not_share_random_states_by_accident():
    def draw():
        import random

        import numpy

        return random.random(), numpy.random.rand()

    values = [*run_ranks(draw, 2), *run_ranks(draw, 2)]
    assert len({python for python, _ in values}) == 4
    assert len({numpy for _, numpy in values}) == 4


def test_torch_has_a_seed_of_its_own_as_in_processes_that_torchrun_starts():
    """Models that nobody seeded or broadcast must not be equal because their ranks were forked from one process."""

    def draw():
        import torch

        return torch.initial_seed(), str(torch.rand(2))

    for drawn in zip(*run_ranks(draw, 2), *run_ranks(draw, 2), strict=True):
        assert len(set(drawn)) == 4


def test_signals_have_their_usual_meaning_again():
    def look():
        return signal.getsignal(signal.SIGINT) is signal.default_int_handler, signal.getsignal(signal.SIGTERM)

    assert run_ranks(look, 1)[0] == (True, signal.SIG_DFL)


@pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="descriptors are listed in /proc")
def test_a_rank_holds_no_descriptor_of_another_rank_or_of_the_agent():
    def look():
        found = set()
        for name in os.listdir("/proc/self/fd"):
            with contextlib.suppress(OSError):  # the one that listed the folder
                found.add(os.readlink(f"/proc/self/fd/{name}"))
        return {name for name in found if name.startswith(("pipe:", "socket:"))}

    one, two = run_ranks(look, 2, init_group=False)
    agents = {os.readlink(path) for path in _descriptors(get_agent().pid)}
    assert not one & two
    assert not (one | two) & agents


def _descriptors(pid: int) -> list[str]:
    return [f"/proc/{pid}/fd/{name}" for name in os.listdir(f"/proc/{pid}/fd")]
