"""The magics in a real notebook kernel, headless, with real ranks."""

import re
import time
from pathlib import Path

import pytest
from IPython.core.error import UsageError

from dtlearn.notebook.magics import parse_ranks
from tests.notebook.kernel import Notebook

SIZE = 3
NOTEBOOK = [
    "%load_ext dtlearn\nimport dtlearn",
    "%world status",
    "%%ranks -r 0\nprint('a world was started')",
    f"world = dtlearn.world({SIZE}, device='cpu')\nworld",
    "%%ranks -o seeds\nimport sys\nprint('I am', rank)\nprint('of', world_size)\n"
    "print('careful', file=sys.stderr)\nrank * 10",
    "seeds",
    "%%ranks\nt = torch.tensor([rank + 1.0])\ndist.all_reduce(t)\nt",
    "%%ranks\nimport matplotlib.pyplot as plt\n\nplt.plot([rank, 1])\nplt.show()",
    "%%ranks --expect error\nprint('before')\nif rank == 1:\n    raise ValueError('bad batch')",
    "%%ranks --show panel\nprint('in a panel', rank)",
]


class Opened:
    """A notebook whose first cells were run."""

    def __init__(self, folder: Path) -> None:
        self.notebook = Notebook(folder)
        self.cells = [self.notebook.run(source) for source in NOTEBOOK]


@pytest.fixture(scope="module")
def opened(tmp_path_factory):
    first = Opened(tmp_path_factory.mktemp("notebook"))
    yield first
    first.notebook.close()
    assert not list(first.notebook.temporary.glob("dtlearn-*"))


@pytest.fixture(scope="module")
def opened_again(tmp_path_factory):
    second = Opened(tmp_path_factory.mktemp("again"))
    yield second
    second.notebook.close()


@pytest.fixture
def notebook(opened):
    """The notebook with its ranks, whatever earlier tests did to them."""
    if opened.notebook.value("(world.size, len(world.pids))") != (SIZE, SIZE):
        assert opened.notebook.run(f"world = dtlearn.world({SIZE}, device='cpu')").ok
    return opened.notebook


def lives(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:  # it may end between the two looks of the kernel, too
        return False


# What the first cells showed.


def test_the_first_cells_ran(opened):
    assert [cell.ok for cell in opened.cells] == [True] * len(NOTEBOOK), opened.cells


def test_without_ranks_the_default_ones_are_started_and_it_is_said(opened):
    assert opened.cells[1].text("stdout") == "no ranks yet: start them with dtlearn.world(n)\n"
    started, said = opened.cells[2].text("stdout").splitlines()
    assert started.startswith("started ") and started.endswith("choose the number yourself with dtlearn.world(n)")
    assert said == "[0] a world was started"
    assert "ranks started earlier were ended, and their variables with them" in opened.cells[3].text("stdout")
    assert opened.cells[3].displays[0]["text/plain"].startswith(f"{SIZE} ranks, ")


def test_lines_are_folded_stderr_is_apart_and_o_hides_and_keeps_the_values(opened):
    cell = opened.cells[4]
    assert cell.text("stdout") == "[0] I am 0\n[1] I am 1\n[2] I am 2\n[0-2] of 3\n"
    assert cell.text("stderr") == "[0-2] careful\n"
    assert not cell.displays
    assert opened.cells[5].displays == [{"text/plain": "[0, 10, 20]"}]


def test_ranks_speak_to_each_other_and_their_values_are_shown(opened):
    assert opened.cells[6].text("stdout") == "[0-2] tensor([6.])\n"


def test_figures_are_shown_with_their_rank(opened):
    cell = opened.cells[7]
    assert cell.text("stdout") == "".join(f"[{rank}] shows:\n" for rank in range(SIZE))
    assert [list(data) for data in cell.displays] == [["text/plain", "image/png"]] * SIZE
    assert len({data["image/png"] for data in cell.displays}) == SIZE  # each its own


def test_the_same_notebook_shows_the_same_a_second_time(opened, opened_again):
    for source, first, second in zip(NOTEBOOK, opened.cells, opened_again.cells, strict=True):
        assert first == second, source


# Options.


def test_r_runs_the_cell_on_some_ranks_only(notebook):
    assert notebook.run("%%ranks\nx = 0").ok
    assert notebook.run("%%ranks -r 0,2 -o got\nx = 1\nprint(rank)\nx + rank").text("stdout") == "[0] 0\n[2] 2\n"
    assert notebook.value("got") == [1, 3]
    assert notebook.value("world.gather('x')") == [1, 0, 1]


SHOWN = "%%ranks --show {}\nimport sys\nprint('all')\nprint('mine', rank)\nprint('careful', file=sys.stderr)\nrank // 2"


@pytest.mark.parametrize(
    ("view", "stdout", "stderr"),
    [
        ("grouped", "[0-2] all\n[0] mine 0\n[1] mine 1\n[2] mine 2\n[0-1] 0\n[2] 1\n", "[0-2] careful\n"),
        ("rank0", "[0] all\n[0] mine 0\n[0] 0\n", "[0] careful\n"),
        ("quiet", "", ""),
    ],
)
def test_show_chooses_the_view(notebook, view, stdout, stderr):
    cell = notebook.run(SHOWN.format(view))
    assert (cell.ok, cell.text("stdout"), cell.text("stderr"), cell.displays) == (True, stdout, stderr, [])


def test_show_stream_shows_lines_while_the_cell_runs(notebook, tmp_path):
    flag = tmp_path / "seen"
    # Only when the first line has been seen here does the cell go on.
    wait = f"while not os.path.exists({str(flag)!r}):\n    time.sleep(0.01)"
    source = f"%%ranks --show stream\nimport os, time\nprint('first', rank, flush=True)\n{wait}\nprint('last')"
    cell = notebook.run(source, {"first 0": flag.touch})
    assert sorted(cell.text("stdout").splitlines()[:3]) == [f"[{rank}] first {rank}" for rank in range(SIZE)]
    assert "last" in cell.text("stdout")


def test_show_panel_leaves_its_last_state(notebook):
    cell = notebook.run(SHOWN.format("panel"))
    (panel,) = cell.displays
    assert panel["text/html"].count("</b> ended") == SIZE and "mine 2" in panel["text/html"]
    assert "[2] mine 2" in panel["text/plain"].splitlines()
    assert cell.text("stdout") == ""


def test_t_ends_a_cell_that_takes_too_long_and_keeps_the_variables(notebook):
    notebook.run("%%ranks\nkept = rank + 1")
    cell = notebook.run("%%ranks -t 0.5\nimport time\ntime.sleep(60)")
    assert (cell.ok, cell.error) == (False, "RanksTimeout")
    assert "the ranks did not finish within 0.5 s" in cell.text("error")
    assert "rank 1 is running, at line 3: time.sleep(60)" in cell.text("error")
    assert notebook.run("%%ranks\nkept").text("stdout") == "[0] 1\n[1] 2\n[2] 3\n"


def test_nobody_watches_a_headless_run_so_it_has_a_limit(notebook):
    notebook.run("from dtlearn.notebook import magics\nlimit, magics.HEADLESS_CELL = magics.HEADLESS_CELL, 0.5")
    try:
        assert notebook.run("%%ranks\nimport time\ntime.sleep(60)").error == "RanksTimeout"
        assert notebook.run("%%ranks -t 30\ntime.sleep(1)").ok  # its own limit wins
    finally:
        notebook.run("magics.HEADLESS_CELL = limit")


def test_record_keeps_what_the_cell_communicated(notebook):
    assert notebook.run("%%ranks --record record\nt = torch.ones(4)\ndist.all_reduce(t)").ok
    expected = [(rank, "all_reduce", 16, 3) for rank in range(SIZE)]
    assert sorted(notebook.value("[(e.rank, e.op, e.nbytes, e.line) for e in record]")) == expected
    assert notebook.value("record.world_size") == SIZE


def test_a_record_that_could_not_be_written_is_said_in_one_line(notebook):
    broken = notebook.run(
        "%%ranks --record record\nimport os\nfrom dtlearn.runtime.recording.python_calls import PYTHON_CALLS\n"
        "if rank == 1:\n    os.dup2(os.open('/dev/full', os.O_WRONLY), PYTHON_CALLS.log._file._descriptor)\n"
        "for _ in range(3):\n    dist.barrier()"
    )
    line = "the record of rank 1 is incomplete: No space left on device"
    assert broken.ok and broken.text("stdout") == line + "\n"
    assert notebook.value("record.incomplete") == line
    healthy = notebook.run("%%ranks --record record\ndist.barrier()")  # it has a file of its own
    assert healthy.ok and healthy.text("stdout") == ""
    assert notebook.value("(record.incomplete, len(record.events))") == ("", SIZE)


def test_record_holds_that_cell_only_and_that_of_a_failed_cell_too(notebook):
    assert notebook.run("%%ranks\ndist.barrier()").ok
    assert notebook.run("%%ranks -r 0 --record record\n1").ok
    assert notebook.value("len(record.events)") == 0
    assert not notebook.run("%%ranks --record record\ndist.barrier()\n1 / 0").ok
    assert notebook.value("[e.op for e in record]") == ["barrier"] * SIZE


def test_setup_cells_run_again_on_a_rank_that_was_replaced(notebook):
    assert notebook.run("%%ranks --setup\nconfig = rank + 10").ok
    notebook.run("%%ranks\nconfig += 100\nmine = True")
    cell = notebook.run("%%ranks --expect error\nimport os\nif rank == 1:\n    os.kill(os.getpid(), 9)")
    assert "rank 1 was killed by signal 9 (SIGKILL)" in cell.text("stdout")
    assert "setup cells were run again" in " ".join(cell.text("stdout").split())
    assert notebook.value("world.gather('(config, \"mine\" in globals())')") == [(110, True), (11, False), (112, True)]


def test_a_setup_cell_that_fails_is_not_kept(notebook):
    before = notebook.value("world.setup_cells")
    assert not notebook.run("%%ranks --setup\n1 / 0").ok
    assert notebook.run("%%ranks --setup --expect error\n1 / 0").ok
    assert notebook.value("world.setup_cells") == before


# Failing cells.


def test_an_error_on_a_rank_fails_the_cell_with_the_notebooks_own_numbers(notebook):
    define = notebook.run("%%ranks\n# a comment\ndef check(x):\n    return 1 / x")
    cell = notebook.run("%%ranks\nprint('before', rank)\nif rank == 1:\n    check(0)")
    assert (cell.ok, cell.error) == (False, "CellError")
    text = cell.text("error")
    assert text.startswith("rank 1 raised ZeroDivisionError: division by zero\n")
    assert f"Cell In[{cell.number}], line 4" in text and "----> 4     check(0)" in text
    assert f"Cell In[{define.number}], line 4, in check(x)" in text and "----> 4     return 1 / x" in text
    assert text.endswith("ZeroDivisionError: division by zero")
    assert "dtlearn/" not in text  # not a line of the machinery
    assert cell.text("stdout") == "[0] before 0\n[1] before 1\n[2] before 2\n"


def test_ranks_that_wait_for_the_one_that_failed_are_freed_and_named(notebook):
    notebook.run("%%ranks\nkept = rank")
    cell = notebook.run("%%ranks\nif rank == 2:\n    raise KeyError('missing')\ndist.barrier()")
    text = cell.text("error")
    assert text.startswith("rank 2 raised KeyError: 'missing'\n") and f"Cell In[{cell.number}], line 3" in text
    for rank in (0, 1):
        assert f"rank {rank} was waiting in its 1st barrier, line 4" in text
    assert notebook.run("%%ranks\ndist.barrier()\nkept").text("stdout") == "[0] 0\n[1] 1\n[2] 2\n"


def test_a_syntax_error_is_told_with_its_line(notebook):
    cell = notebook.run("%%ranks\nx = 1\ndef f(:\n    pass")
    assert not cell.ok
    assert "ranks 0-2 raised SyntaxError" in cell.text("error")
    assert f"Cell In[{cell.number}], line 3" in cell.text("error") and "def f(:" in cell.text("error")


def test_a_value_that_cannot_come_back_is_refused(notebook):
    cell = notebook.run("%%ranks -o lines\n(i for i in [])")
    assert (cell.ok, cell.error) == (False, "CellError")
    assert "the value of the last line cannot travel between processes" in " ".join(cell.text("error").split())


SLEEP = "import time\ntime.sleep(60)"
FAIL = "if rank == 1:\n    raise ValueError('bad batch')"
SKIP = "if rank != 1:\n    dist.barrier()"


@pytest.mark.parametrize(
    ("options", "body", "said"),
    [
        ("--expect error", FAIL, "rank 1 raised ValueError: bad batch"),
        ("--expect timeout -t 0.5", SLEEP, "the ranks did not finish within 0.5 s"),
        ("--expect deadlock", SKIP, "rank 1 ended without making that call"),
    ],
)
def test_an_expected_failure_is_shown_and_the_notebook_goes_on(notebook, options, body, said):
    cell = notebook.run(f"%%ranks {options}\nprint('before')\n{body}")
    assert cell.ok
    assert cell.text("stdout").startswith("[0-2] before\nAs expected, this cell failed:\n")
    assert said in " ".join(cell.text("stdout").split())


def test_an_expected_failure_that_does_not_come_fails_the_cell(notebook):
    cell = notebook.run("%%ranks --expect error -o never\nprint('fine')\n1")
    assert (cell.ok, cell.error) == (False, "DtlearnError")
    assert cell.text("error") == "this cell was expected to end with error, but it succeeded"
    assert cell.text("stdout") == "[0-2] fine\n"


def test_a_deadlock_that_costs_variables_is_not_the_expected_one(notebook):
    # Once the connections are cut each call fails at once: without the sleep the loop would take a processor.
    code = (
        "import time\nwhile rank == 0:\n    try:\n        time.sleep(0.01)\n        dist.all_reduce(torch.ones(1))\n"
        "    except BaseException:\n        pass"
    )
    cell = notebook.run(f"%%ranks --expect deadlock\n{code}")
    assert not cell.ok
    assert "rank 0 got a new process: variables are lost there" in cell.text("error")


def test_another_failure_than_the_expected_one_fails_the_cell(notebook):
    cell = notebook.run(f"%%ranks --expect timeout\n{FAIL}")
    assert (cell.ok, cell.error) == (False, "CellError")
    assert cell.text("error").startswith("rank 1 raised ValueError: bad batch")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("-r 3", "-r 3: this world has the ranks 0 to 2"),
        ("-r a", "-r takes ranks such as 0,2-3; got 'a'"),
        ("-t 0", "-t takes a positive number of seconds; got 0"),
        ("-t nan", "-t takes a positive number of seconds; got nan"),
        ("-t soon", "invalid float value: 'soon'"),
        ("-o 2x", "'2x' is not a variable name"),
        ("--record a.b", "'a.b' is not a variable name"),
        ("--show loud", "invalid choice: 'loud'"),
        ("--expect nothing", "invalid choice: 'nothing'"),
        ("--what", "unrecognized arguments: --what"),
        ("-o 'x", "No closing quotation"),
    ],
)
def test_a_wrong_option_is_refused_before_anything_runs(notebook, options, message):
    cell = notebook.run(f"%%ranks {options}\nnever = 1")
    assert not cell.ok and cell.error == ""  # a line for the learner, no traceback
    assert cell.text("stderr").startswith("UsageError: ") and message in cell.text("stderr")
    assert notebook.value("world.gather('\"never\" in globals()')") == [False] * SIZE


@pytest.mark.parametrize(
    ("text", "ranks"),
    [(None, [0, 1, 2, 3]), ("0", [0]), ("0,2-3", [0, 2, 3]), ("3,1,1", [1, 3]), ("0-3", [0, 1, 2, 3])],
)
def test_ranks_are_read(text, ranks):
    assert parse_ranks(text, 4) == ranks


@pytest.mark.parametrize("text", ["", ",", "-1", "4", "1-", "2-1", "2-1,0", "0-4", "1.5", "0 1"])
def test_ranks_that_are_none_are_refused(text):
    with pytest.raises(UsageError):
        parse_ranks(text, 4)


# Interrupts and ends.

HANG = "import time\nprint('here', flush=True)\nif rank == 0:\n    dist.barrier()\ntime.sleep(300)"


def test_an_interrupt_ends_a_hanging_cell_and_keeps_the_variables(notebook):
    notebook.run("%%ranks\nkept = rank + 1")
    begun = time.monotonic()
    cell = notebook.run(f"%%ranks --show stream\n{HANG}", {"here": notebook.interrupt})
    assert time.monotonic() - begun < 10
    assert (cell.ok, cell.error) == (False, "RanksInterrupted")
    assert cell.text("error").startswith("interrupted: ranks 0-2 had not finished")
    after = notebook.run("%%ranks\nt = torch.tensor([kept])\ndist.all_reduce(t)\nkept, t.item()")
    assert after.text("stdout") == "[0] (1, 6)\n[1] (2, 6)\n[2] (3, 6)\n"


def test_no_rank_outlives_a_killed_kernel_even_if_it_hangs(opened_again):
    notebook = opened_again.notebook
    pids = notebook.value("world.pids + [world.agent.pid]")
    assert len(pids) == SIZE + 1 and all(map(lives, pids))
    notebook.run_and_kill(f"%%ranks --show stream\n{HANG}", "here")
    deadline = time.monotonic() + 3
    while any(map(lives, pids)) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert not [pid for pid in pids if lives(pid)]


# %world.


def test_diagnose_shows_a_row_for_each_rank_and_the_last_calls(notebook):
    notebook.run("%%ranks\ndist.barrier()")
    lines = notebook.run("%world diagnose").text("stdout").splitlines()
    assert [line.split()[:3] for line in lines[1 : SIZE + 1]] == [["rank", str(r), "idle"] for r in range(SIZE)]
    assert "The last calls of the latest cell, side by side:" in lines
    assert lines[-1] == "  #1         barrier  line 2"


def test_explain_shows_the_last_calls_of_all_ranks_side_by_side(notebook):
    code = "dist.barrier()\nif rank != 1:\n    dist.all_reduce(torch.ones(2))"
    text = notebook.run(f"%%ranks --explain --expect deadlock\n{code}").text("stdout")
    table, _, error = text.partition("As expected, this cell failed:")
    assert [re.split(r"\s{2,}", line) for line in table.splitlines()] == [
        ["The last calls of the ranks, side by side:"],
        ["", "all ranks", "ranks 0 and 2", "rank 1"],
        ["", "#1", "barrier", "line 2", "barrier", "line 2"],
        ["> #2", "all_reduce SUM float32 (2,)", "line 4 (waits)", "-"],
    ]
    assert "[DTL-COLL-SKIP]" in error
    quiet = notebook.run(f"%%ranks --expect deadlock\n{code}").text("stdout")
    assert quiet == "As expected, this cell failed:" + error


def test_status_names_every_rank_with_its_process(notebook):
    title, *rows = notebook.run("%world").text("stdout").splitlines()
    assert title.startswith(f"{SIZE} ranks, ")
    pids = notebook.value("world.pids")
    assert [row.split() for row in rows] == [
        ["rank", str(rank), "pid", str(pid), "cpu", "idle"] for rank, pid in enumerate(pids)
    ]


def test_restart_gives_new_ranks(notebook):
    notebook.run("%%ranks --setup\nprepared = rank")
    notebook.run("%%ranks\ngone = 1")
    old = notebook.value("world.pids")
    assert notebook.run("%world restart").text("stdout").endswith("; all variables are new\n")
    assert not set(old) & set(notebook.value("world.pids"))
    assert notebook.value("world.gather('(prepared, \"gone\" in globals())')") == [(r, False) for r in range(SIZE)]


def test_a_stopped_world_says_what_to_do(notebook):
    pids = notebook.value("world.pids")
    assert notebook.run("%world stop").text("stdout") == f"{SIZE} ranks, stopped\n"
    assert not any(map(lives, pids))
    assert notebook.run("%world").text("stdout") == f"{SIZE} ranks, stopped\n"
    cell = notebook.run("%%ranks\n1")
    assert (cell.ok, cell.error) == (False, "DtlearnError")
    assert cell.text("error") == "the ranks were stopped; start them with `%world restart` or `dtlearn.world(n)`"
    assert notebook.run("%world stop").ok  # a second time does no harm
    assert notebook.run("%world restart").ok
    assert notebook.run("%%ranks\nrank").text("stdout") == "[0] 0\n[1] 1\n[2] 2\n"


def test_another_command_is_refused(notebook):
    cell = notebook.run("%world pause")
    assert not cell.ok
    assert (
        cell.text("stderr") == "UsageError: %world knows status, diagnose, restart, stop and link NAME; got 'pause'\n"
    )


def test_link_connects_the_ranks_from_now_on_and_the_record_says_so(notebook):
    linked = notebook.run("%world link 1 Gb/s").text("stdout")
    assert "gloo on CPU, emulated link: 1 Gb/s, 50 us" in linked
    assert notebook.run("%%ranks --record log\ndist.barrier()").ok
    assert notebook.value("log.label") == "gloo on CPU, emulated link: 1 Gb/s, 50 us"
    assert notebook.run("world.link = dtlearn.Link(latency=0.05)\nworld").ok
    assert notebook.run("%%ranks --record log\ndist.barrier()").ok
    assert notebook.value("min(e.seconds for e in log)") >= 2 * 0.05
    assert "emulated" not in notebook.run("%world link none").text("stdout")
    assert notebook.run("%%ranks --record log\ndist.barrier()").ok
    assert notebook.value("log.label") == "gloo on CPU"


def test_a_link_of_no_known_name_is_refused(notebook):
    for line, told in [
        ("link token ring", "a link has one of the names"),
        ("link", "%world knows"),
        ("stop now", "%world"),
    ]:
        cell = notebook.run(f"%world {line}")
        assert not cell.ok and told in cell.text("stderr")


# %%launch. What torchrun does is in tests/runtime/test_launch.py; here a single process shows what the magic adds.

ALONE = "%%launch -n 1 --with python"


def test_launch_starts_ranks_under_torchrun(notebook):
    source = "import os, sys\nprint('of', os.environ['WORLD_SIZE'])\nprint('careful', file=sys.stderr)"
    cell = notebook.run(f"%%launch\n{source}")
    assert (cell.ok, cell.text("stdout"), cell.text("stderr")) == (True, "[0-1] of 2\n", "[0-1] careful\n")


def test_launch_passes_arguments_and_keeps_the_file(notebook):
    cell = notebook.run(f"{ALONE} --file 'my script.py' -- --lr 0.1 'two words'\nimport sys\nprint(sys.argv)")
    assert cell.text("stdout") == "[launcher] ['my script.py', '--lr', '0.1', 'two words']\n"
    assert notebook.value("open('my script.py').read()") == "import sys\nprint(sys.argv)\n"


def test_a_failing_script_fails_the_cell_with_its_own_traceback(notebook):
    cell = notebook.run(f"{ALONE}\nprint('before')\nraise ValueError('bad batch')")
    assert (cell.ok, cell.error) == (False, "RankError")
    assert cell.text("stdout") == "[launcher] before\n"
    text = cell.text("error")
    assert "the launcher's exit code is 1" in text and "line 2, in <module>" in text
    assert text.endswith("ValueError: bad batch") and "dtlearn/notebook" not in text


@pytest.mark.parametrize(
    ("options", "body", "said"),
    [
        ("--expect error", "raise ValueError('bad batch')", "ValueError: bad batch"),
        ("--expect timeout -t 0.5", SLEEP, "the script did not finish within 0.5 s"),
    ],
)
def test_an_expected_failure_of_a_script_is_shown(notebook, options, body, said):
    cell = notebook.run(f"{ALONE} {options}\n{body}")
    assert cell.ok
    assert cell.text("stdout").startswith("As expected, this cell failed:\n") and said in cell.text("stdout")


def test_a_script_that_was_expected_to_fail_and_did_not_fails_the_cell(notebook):
    assert "expected to end with timeout, but it succeeded" in notebook.run(f"{ALONE} --expect timeout\n1").text(
        "error"
    )


def test_an_interrupted_script_is_ended(notebook):
    cell = notebook.run(f"{ALONE} --show stream\nprint('here')\n{SLEEP}", {"here": notebook.interrupt})
    assert (cell.ok, cell.error) == (False, "RanksInterrupted")
    assert cell.text("error") == "interrupted: everything that the script started was ended"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("-n 0", "must be a whole number from 1 to 64; got 0"),
        ("-n two", "invalid int value: 'two'"),
        ("-n 2 --with python", "cannot launch 1 x 2 with 'python'"),
        ("--with mpirun", "invalid choice: 'mpirun'"),
        ("-t -1", "positive number of seconds; got -1"),
    ],
)
def test_a_wrong_option_of_launch_is_refused(notebook, options, message):
    cell = notebook.run(f"%%launch {options}\nprint('never')")
    assert not cell.ok and cell.error == "" and cell.text("stdout") == ""
    assert cell.text("stderr").startswith("UsageError: ") and message in cell.text("stderr")
