"""The head's end of the agent: one for each process, usable from several threads."""

import gc
import os
import tempfile
from concurrent.futures import ThreadPoolExecutor

import pytest

from dtlearn.runtime import wire
from dtlearn.runtime.agent import client
from dtlearn.runtime.agent.client import get_agent
from dtlearn.runtime.errors import LaunchError
from dtlearn.runtime.run import run_ranks


def test_there_is_one_agent_which_stays():
    agent = get_agent()
    run_ranks(lambda: None, 1)
    assert get_agent() is agent
    assert agent.process.alive


def test_it_says_what_its_machine_has_once():
    told = get_agent().hello()
    assert set(told) >= {"num_gpus", "forks", "pid"}
    assert get_agent()._hello is not None
    assert get_agent().hello() == told


def test_a_forked_child_does_not_use_its_parents_agent(monkeypatch):
    agent = get_agent()
    monkeypatch.setattr(os, "getpid", lambda: agent.pid)
    assert not agent.process.alive


def test_what_it_is_told_to_load_no_rank_loads_again():
    module = "dtlearn.grading.on_rank.run_answer"
    get_agent().load(module)
    assert run_ranks(lambda: module in __import__("sys").modules, 2).values == [True, True]


def test_what_it_loads_is_no_garbage_but_later_garbage_is():
    assert run_ranks(lambda: (gc.isenabled(), gc.get_freeze_count() > 100_000), 1)[0] == (True, True)


def test_several_threads_get_their_own_answers():
    agent = get_agent()
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda _: agent._ask({"do": "hello"})["pid"], range(40)))
    assert found == [agent.pid] * 40


def test_the_answer_to_an_interrupted_request_is_skipped():
    agent = get_agent()
    agent.hello()
    with agent._lock:
        agent._asked += 1
        agent._control.sendall(
            wire.encode({"do": "signal", "pids": [], "signal": 0, "group": False, "id": agent._asked})
        )
    assert agent._ask({"do": "hello"})["pid"] == agent.pid


def test_no_temporary_file_is_told_with_advice(monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", "/no/such/folder")
    monkeypatch.setattr(client._agents, "current", None)
    with pytest.raises(LaunchError, match="set TMPDIR"):
        get_agent()
