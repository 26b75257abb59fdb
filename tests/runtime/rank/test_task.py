"""An exception as a message: chain, own frames, labels of notebook cells. And the order of a rank's last words."""

import os
import time

import pytest
import torch
import torch.distributed as dist

from dtlearn.runtime.errors import RankError, RanksDisagree
from dtlearn.runtime.rank.task import describe
from dtlearn.runtime.run import run_ranks


def caught(fn) -> BaseException:
    try:
        fn()
    except BaseException as error:
        return error
    raise AssertionError("nothing was raised")


def test_type_message_and_time_are_told():
    before = time.monotonic_ns()
    told = describe(caught(lambda: {}["missing"]), {})
    assert (told["kind"], told["type"], told["message"]) == ("error", "KeyError", "'missing'")
    assert before <= told["time_ns"] <= time.monotonic_ns()
    assert told["traceback"].startswith("Traceback (most recent call last):")


def test_the_root_of_a_chain_comes_first():
    def chain():
        try:
            raise KeyError("root")
        except KeyError:
            raise ValueError("then") from None

    def implicit():
        try:
            raise KeyError("root")
        finally:
            raise ValueError("then")

    assert "root" not in describe(caught(chain), {})["traceback"]
    text = describe(caught(implicit), {})["traceback"]
    assert text.index("KeyError: 'root'") < text.index("ValueError: then")


def test_the_label_of_a_cell_takes_the_place_of_its_file():
    source = "def f():\n    raise ValueError('x')\n"
    names = {}
    exec(compile(source, "/tmp/ipykernel_9/1.py", "exec"), names)
    text = describe(caught(names["f"]), {"/tmp/ipykernel_9/1.py": {"text": source, "label": "Cell In[4]"}})["traceback"]
    assert "Cell In[4], line 2, in f" in text
    assert "ipykernel_9" not in text


def test_an_exception_whose_text_fails_is_still_a_failure():
    class Odd(Exception):
        def __str__(self):
            raise RuntimeError("no text")

    def fail():
        raise Odd

    with pytest.raises(RankError, match="rank 0"):
        run_ranks(fail, 1, timeout=20)


def test_frames_of_the_launcher_are_left_out_also_in_the_chain():
    def chain():
        try:
            raise KeyError("root")
        except KeyError as error:
            raise ValueError("then") from error

    with pytest.raises(RankError) as told:
        run_ranks(chain, 1)
    assert "dtlearn/runtime" not in str(told.value)
    assert str(told.value).count("in chain") == 2


def test_a_rank_that_is_done_keeps_its_connections_for_those_that_are_not():
    def late():
        dist.barrier()
        if dist.get_rank() == 0:
            return "early"
        time.sleep(0.3)
        try:
            dist.recv(torch.empty(1), 0)
        except RuntimeError:
            return "the connection broke"
        return "heard"

    # Rank 1 waits for a message that never comes; it must not be told of a broken connection instead.
    with pytest.raises(RanksDisagree, match=r"rank 1  waits  recv #1 from 0"):
        run_ranks(late, 2, timeout=20)


def test_a_process_that_the_function_forked_does_not_speak_for_the_rank():
    def fork():
        pid = os.fork()
        if pid == 0:
            os._exit(3)
        return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])

    assert run_ranks(fork, 2).values == [3, 3]


def test_an_exception_that_cannot_be_shown_is_told_of():
    class Mute(Exception):
        def __str__(self):
            raise RuntimeError("no")

    told = describe(Mute(), {})
    assert (told["type"], told["message"]) == ("Mute", "<exception str() failed>")
    assert len(describe(ValueError("x" * 10**6), {})["traceback"]) < 11_000


def test_first_frames_of_a_caller_are_left_out_where_it_says_so():
    names = {}
    exec(compile("def first(fn):\n    fn()\n", "<driver>", "exec"), names)
    error = caught(lambda: names["first"](lambda: {}["missing"]))
    files = (__file__, "<driver>")
    assert "<driver>" in describe(error, {}, files[:0])["traceback"]
    assert "<driver>" not in describe(error, {}, files)["traceback"]


def test_a_graded_traceback_ends_at_the_learners_line():
    """Below it are frames of torch, and of the package, that nobody can change."""
    error = caught(lambda: torch.nn.functional.one_hot(torch.ones(2)))
    assert "lambda" in describe(error, {}, ["<driver>"])["traceback"]
    inside = caught(lambda: torch.nn.Linear(2, 2)(torch.ones(3)))
    assert "torch/nn/modules" in describe(inside, {})["traceback"]
    told = describe(inside, {}, ["<driver>"])["traceback"]
    assert "torch/nn/modules" not in told and told.count("File ") == 2 and "RuntimeError" in told
