"""Running a text on ranks: what is kept of a run that ends, that raises, and that hangs."""

import pytest

from dtlearn.production.bug_lab import run_program, run_text

PATIENT = 60.0
HEAD = "import torch\nimport torch.distributed as dist\n\n\ndef main():\n    rank = dist.get_rank()\n"


def test_a_run_keeps_values_calls_and_what_was_printed():
    text = (
        HEAD
        + "    x = torch.ones(2) * rank\n    dist.all_reduce(x)\n    print('sum', x[0].item())\n    return x.tolist()\n"
    )
    run = run_text(text, 2, timeout=PATIENT)
    assert run.values == [[1, 1], [1, 1]] and not run.diagnosis
    heading, *rows = run.by_line().splitlines()
    assert heading.split() == ["rank", "line", "operation", "calls", "bytes", "ms"]
    assert [row.split()[:5] for row in rows] == [[str(rank), "8", "all_reduce", "1", "8"] for rank in range(2)]
    shown = str(run)
    assert "rank 1 returned [1.0, 1.0]" in shown and "rank 0 printed sum 1.0" in shown


def test_calls_tell_whom_when_and_how_long():
    text = (
        HEAD + "    group = dist.new_group([0, 1])\n    x = torch.ones(1)\n    if rank == 0:\n"
        "        dist.isend(x, 1).wait()\n    else:\n        dist.recv(x, 0)\n"
        "    dist.broadcast(x, src=1, group=group)\n"
    )
    run = run_text(text, 2, timeout=PATIENT)
    calls = run.calls(rank=0).splitlines()[1:]
    assert ["new_group [0, 1]" in calls[0], "isend to 1 float32 (1,)" in calls[1]] == [True, True]
    assert "wait() at" in calls[1] and "root 1" in calls[2] and "(0,1)" in calls[2]
    assert "recv from 0" in run.calls(rank=1) and len(run.calls().splitlines()) == 7


def test_a_hang_ends_and_says_which_call_never_did():
    text = HEAD + "    if rank == 0:\n        dist.barrier()\n"
    run = run_text(text, 2, timeout=PATIENT)
    assert run.values is None and "line 8" in run.diagnosis and "rank 1" in run.diagnosis
    assert "never ended" in run.by_line() and "never" in run.calls()
    assert str(run).startswith(run.diagnosis)


def test_a_loop_ends_at_the_limit():
    run = run_text(HEAD + "    while rank == 1:\n        pass\n", 2, timeout=2.0)
    assert run.values is None and "did not finish within 2 s" in run.diagnosis and "line 7" in run.diagnosis


def test_an_exception_is_what_it_says():
    run = run_text(HEAD + "    return [1][rank]\n", 2, timeout=PATIENT)
    assert run.values is None and "IndexError" in run.diagnosis and "line 7" in run.diagnosis


def test_a_changed_copy_runs_in_the_place_of_the_program():
    run = run_program("codebook", HEAD + "    return rank\n", timeout=PATIENT)
    assert run.values == [0, 1]


def test_what_cannot_run_is_refused():
    with pytest.raises(ValueError, match=r"the lab has the programs sharded_save.*; got 'loss'"):
        run_program("loss")
    with pytest.raises(SyntaxError, match=r"program\.py"):
        run_text("def main(:\n", 2)
