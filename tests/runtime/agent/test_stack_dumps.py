"""Stacks that ranks write on a signal: those of a rank that computes, of one that holds the interpreter, of none."""

import os
from types import SimpleNamespace

import pytest

from dtlearn.runtime.agent.stack_dumps import dump_stacks
from dtlearn.runtime.machine.patience import Patience
from dtlearn.runtime.rank.spec import STACK_SIGNAL, stack_file

DUMP = 'Current thread 0x1 (most recent call first):\n  File "{file}", line 2 in work\n'


def agent_of(writers):
    """Signals nobody; each "process" writes what it has to say."""

    def ask(pids, number):
        assert number == STACK_SIGNAL
        for pid in pids:
            writers[pid]()

    return SimpleNamespace(signal=ask, patience=Patience)


@pytest.fixture
def code(tmp_path):
    file = tmp_path / "work.py"
    file.write_text("def work():\n    compute()\n")
    return file


def test_the_last_dump_is_read_and_a_rank_that_writes_nothing_has_no_stack(tmp_path, code):
    old = stack_file(tmp_path, 1)
    old.write_text(DUMP.format(file="older.py"))
    new = stack_file(tmp_path, 0)
    agent = agent_of({os.getpid(): lambda: new.write_text(DUMP.format(file=code)), 1: lambda: None})
    stuck = dump_stacks(agent, {0: os.getpid(), 1: 1}, tmp_path, lambda file: "")
    assert (stuck[0].state, stuck[0].stack) == ("runs", ("line 2: compute()",))
    assert stuck[0].cpu_seconds > 0
    assert (stuck[1].stack, stuck[1].frames, stuck[1].cpu_seconds) == ((), (), None)  # what is there is older


def test_the_text_of_code_that_is_in_no_file_is_asked_for(tmp_path):
    path = stack_file(tmp_path, 0)
    agent = agent_of({7: lambda: path.write_text(DUMP.format(file="/no/such/cell.py"))})
    stuck = dump_stacks(agent, {0: 7}, tmp_path, lambda file: "while True:\n    spin()\n")
    assert stuck[0].stack == ("line 2: spin()",)
    assert stuck[0].frames[0].loop == ("while", 1, 2)


def test_nobody_is_asked_for_nothing(tmp_path):
    assert dump_stacks(agent_of({}), {}, tmp_path, lambda file: "") == {}
