import json
import subprocess
import sys

import pytest
import torch

from dtlearn.models import MLP
from dtlearn.models.train_digits import train
from dtlearn.runtime.recording.call_site import nearest_caller, raised_at
from dtlearn.runtime.run import run_ranks

HERE = __file__


def test_the_nearest_caller_is_this_file():
    site, line, _ = nearest_caller("/no/torch")
    found = json.loads("{" + site + "}")
    assert found["file"] == HERE and found["line"] == line
    assert found["code"] == 'site, line, _ = nearest_caller("/no/torch")'


def test_a_function_that_a_check_hands_over_calls_for_the_answers_line():
    names = {"nearest_caller": nearest_caller}
    exec(compile("def g():\n    return nearest_caller('/no/torch')", "<check>", "exec"), names)
    site, line, handed_over = names["g"]()
    found = json.loads("{" + site + "}")
    assert (found["file"], handed_over) == (HERE, "handed_over") and "names[" in found["code"] and found["line"] == line


def test_code_without_a_file_is_a_caller():
    found = {}
    exec("site, line, _ = nearest_caller('/no/torch')", {"nearest_caller": nearest_caller}, found)
    assert json.loads("{" + found["site"] + "}")["file"] == "<string>"


def ours():
    from dtlearn.collectives import all_reduce
    from dtlearn.data_parallel import DistributedDataParallel

    model = DistributedDataParallel(MLP())
    model(torch.ones(2, 64)).sum().backward()
    all_reduce(torch.ones(8))


def test_what_the_package_sends_belongs_to_the_line_that_called_it():
    events = run_ranks(ours, 2, record=True).record.select(rank=0)
    assert {event.file for event in events} == {HERE}
    assert {(event.op, event.code) for event in events} == {
        ("all_gather", "model = DistributedDataParallel(MLP())"),
        ("broadcast", "model = DistributedDataParallel(MLP())"),
        ("all_reduce", "model(torch.ones(2, 64)).sum().backward()"),
        ("irecv", "all_reduce(torch.ones(8))"),
        ("isend", "all_reduce(torch.ones(8))"),
    }


def test_a_function_of_the_package_that_runs_on_ranks_is_its_own_caller():
    events = run_ranks(train, 2, 1, record=True).record.select(rank=0)
    assert {event.file.rpartition("dtlearn/")[2] for event in events} == {"models/train_digits.py"}


def test_nobody_is_a_caller_of_torch_itself():
    code = "import sys; sys.path[:] = eval(sys.argv[1]); "
    code += "from dtlearn.runtime.recording.call_site import nearest_caller; print(nearest_caller('<string>')[1])"
    done = subprocess.run([sys.executable, "-c", code, repr(sys.path)], capture_output=True, text=True, check=True)
    assert done.stdout == "0\n"


def test_an_exception_is_where_the_learners_innermost_line_is():
    def lines():
        return torch.zeros(2).index_select(0, torch.tensor([7]))

    with pytest.raises(IndexError) as caught:
        lines()
    assert raised_at(caught.value) == f" (line {caught.traceback[-1].lineno + 1})"
    assert raised_at(ValueError("never raised")) == ""
