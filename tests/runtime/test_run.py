"""`run_ranks`: what comes back, what the function finds, what it may be, and what is refused."""

import importlib
import linecache
import os
import signal
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
import torch.distributed as dist

import dtlearn
from dtlearn.runtime import pickles
from dtlearn.runtime.device import place
from dtlearn.runtime.errors import LaunchError, NotSendable, RankError, RanksTimeout
from dtlearn.runtime.run import Run, run_ranks
from tests.runtime.full_disk import LINE, full_disk

CELL = """\
import torch.distributed as dist

class Point:
    def __init__(self, x):
        self.x = x

def double(point):
    return Point(2 * point.x + dist.get_rank())

def fail(x):
    y = x + 1
    raise ValueError(f"cannot use {y}")
"""


@pytest.fixture
def notebook():
    """The names that a notebook cell defined; as in a notebook, its source is in no file."""
    name = "/tmp/ipykernel_1/2345.py"
    names = {"__name__": "__main__"}
    linecache.cache[name] = (len(CELL), None, CELL.splitlines(keepends=True), name)
    exec(compile(CELL, name, "exec"), names)
    yield SimpleNamespace(file=name, **names)
    del linecache.cache[name]


@pytest.mark.parametrize("size", [1, 2, 3, 4])
def test_results_come_back_by_rank(size):
    def total(offset):
        mine = torch.tensor(dist.get_rank() + offset)
        dist.all_reduce(mine)
        return dist.get_rank(), mine.item()

    result = run_ranks(total, size, 10, timeout=20)
    expected = [(r, sum(range(size)) + 10 * size) for r in range(size)]
    assert result.values == list(result) == [result[r] for r in range(size)] == expected
    assert len(result) == len(result.output) == size
    assert 0 < result.seconds < 20


def test_each_rank_gets_a_copy_of_the_arguments():
    weights, names = torch.zeros(2), ["a"]

    def change(weights, names):
        weights += dist.get_rank() + 1
        names.append(dist.get_rank())
        return weights, names

    result = run_ranks(change, 2, weights, names)
    assert [(w.tolist(), n) for w, n in result] == [([1.0, 1.0], ["a", 0]), ([2.0, 2.0], ["a", 1])]
    assert weights.tolist() == [0.0, 0.0]
    assert names == ["a"]


def test_large_arguments_and_results_arrive_whole():
    block = torch.arange(3_000_000)
    result = run_ranks(lambda x: x + dist.get_rank(), 2, block, timeout=30)
    assert torch.equal(result[1], block + 1)


def test_the_function_finds_its_group_environment_and_device():
    def look():
        names = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "OMP_NUM_THREADS")
        return (
            {name: os.environ[name] for name in names},
            (dist.get_rank(), dist.get_world_size(), dist.get_backend()),
            torch.get_num_threads(),
            str(dtlearn.device()),
        )

    result = run_ranks(look, 2, device="cpu")
    for rank, (environment, group, num_threads, device) in enumerate(result):
        assert environment == {
            "RANK": str(rank),
            "LOCAL_RANK": str(rank),
            "WORLD_SIZE": "2",
            "LOCAL_WORLD_SIZE": "2",
            "OMP_NUM_THREADS": "1",
        }
        assert group == (rank, 2, "gloo")
        assert num_threads == 1
        assert device == "cpu"
    assert str(result.placement) == "gloo on CPU: asked for"


def test_the_function_may_make_its_own_group(tmp_path):
    def own_group(path):
        before = dist.is_initialized()
        store = dist.FileStore(path, 2)
        dist.init_process_group("gloo", store=store, rank=int(os.environ["RANK"]), world_size=2)
        return before, dist.get_world_size()

    assert run_ranks(own_group, 2, str(tmp_path / "store"), init_group=False).values == [(False, 2)] * 2


def test_ranks_see_the_callers_environment_folder_and_modules(tmp_path, monkeypatch):
    (tmp_path / "my_module.py").write_text("VALUE = 7")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MY_SETTING", "grün")

    def look():
        my_module = importlib.import_module("my_module")
        return my_module.VALUE, os.getcwd(), os.environ["MY_SETTING"]

    assert run_ranks(look, 1)[0] == (7, str(tmp_path), "grün")


def test_a_function_and_a_class_of_a_notebook_cell_travel(notebook):
    result = run_ranks(notebook.double, 2, notebook.Point(4))
    assert all(isinstance(point, notebook.Point) for point in result)
    assert [point.x for point in result] == [8, 9]


def test_a_traceback_quotes_the_line_of_the_notebook_cell(notebook):
    with pytest.raises(RankError) as caught:
        run_ranks(notebook.fail, 2, 1)
    text = str(caught.value)
    assert text.startswith("ranks 0 and 1 raised ValueError: cannot use 2")
    assert f'File "{notebook.file}", line 12, in fail\n    raise ValueError(f"cannot use {{y}}")' in text
    assert "rank/task.py" not in text


def test_a_traceback_names_the_cell_as_the_notebook_does(notebook, monkeypatch):
    shell = SimpleNamespace(compile=SimpleNamespace(_filename_map={notebook.file: 7}))
    monkeypatch.setattr("IPython.get_ipython", lambda: shell)
    with pytest.raises(RankError, match=r"Cell In\[7\], line 12, in fail"):
        run_ranks(notebook.fail, 1, 1)


def test_local_functions_and_classes_travel_with_what_they_close_over():
    factor = torch.tensor([2.0, 3.0])

    class Box:
        def __init__(self, content):
            self.content = content

    def fill(x):
        return Box(factor * x)

    result = run_ranks(fill, 2, 5)
    assert isinstance(result[1], Box)
    assert result[1].content.tolist() == [10.0, 15.0]


def test_output_and_errors_are_collected_in_order():
    def talk():
        import sys

        print("out", dist.get_rank())
        print("err ü", file=sys.stderr)
        os.write(1, b"native\n")
        print("no line end", end="")

    assert run_ranks(talk, 2).output == [f"out {r}\nerr ü\nnative\nno line end" for r in range(2)]


def test_a_flood_of_output_neither_blocks_nor_fills_the_memory():
    def flood():
        print("the beginning")
        block = "x" * (1 << 20)
        for _ in range(50):
            print(block)
        print("the end")

    result = run_ranks(flood, 2, timeout=30)
    for text in result.output:
        assert text.startswith("the beginning\n")
        assert text.endswith("the end\n")
        assert "bytes of output left out" in text
        assert len(text) < 1 << 20


@pytest.mark.parametrize("size", [0, -1, 65, 2.0, True])
def test_a_wrong_number_of_ranks_is_refused(size):
    with pytest.raises(ValueError, match="whole number from 1 to 64"):
        run_ranks(print, size)


def test_what_cannot_be_called_is_refused():
    with pytest.raises(ValueError, match=r"needs a function.*got int"):
        run_ranks(7, 2)


@pytest.mark.parametrize("timeout", [0, -1, float("nan"), float("inf"), "10", None])
def test_a_wrong_time_limit_is_refused(timeout):
    with pytest.raises(ValueError, match="positive number of seconds"):
        run_ranks(print, 2, timeout=timeout)


def test_a_very_long_time_limit_is_taken():
    assert run_ranks(lambda: 1, 2, timeout=1e9).values == [1, 1]


def test_cuda_without_a_gpu_is_refused():
    with pytest.raises(ValueError, match="torch sees no GPU"):
        run_ranks(print, 2, device="cuda")


def test_what_cannot_be_sent_is_refused_before_anything_starts():
    lock = threading.Lock()

    def hold():
        return lock

    with pytest.raises(NotSendable, match="the function 'hold' or one of its arguments cannot travel"):
        run_ranks(hold, 2)
    with pytest.raises(NotSendable, match="the function 'print' or one of its arguments cannot travel"):
        run_ranks(print, 2, (i for i in range(3)))


def test_a_result_that_cannot_be_sent_is_that_ranks_error():
    def lock():
        return threading.Lock() if dist.get_rank() == 1 else None

    with pytest.raises(RankError, match=r"rank 1 raised NotSendable: the value that the function returned cannot"):
        run_ranks(lock, 2)


def test_a_module_that_the_ranks_lack_is_named(tmp_path, monkeypatch):
    (tmp_path / "only_here.py").write_text("def f():\n    return 1\n")
    with monkeypatch.context() as patch:
        patch.syspath_prepend(tmp_path)
        only_here = importlib.import_module("only_here")
    with pytest.raises(RankError, match=r"'only_here', which cannot be imported here. Put its folder on sys.path"):
        run_ranks(only_here.f, 2)


def test_no_temporary_folder_is_told_with_advice(monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", "/no/such/folder")
    with pytest.raises(LaunchError, match=r"no temporary folder can be written.*/no/such/folder.*set TMPDIR"):
        run_ranks(print, 2)


def test_a_deleted_working_folder_is_told(tmp_path, monkeypatch):
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    with pytest.raises(LaunchError, match="the current folder was deleted"):
        run_ranks(print, 2)


def test_spaces_and_foreign_letters_in_folders_do_no_harm(temp_root, tmp_path, monkeypatch):
    temp, work = temp_root / "tëmp ラ", tmp_path / "my wörk 文"
    temp.mkdir()
    work.mkdir()
    monkeypatch.chdir(work)
    monkeypatch.setattr(tempfile, "tempdir", str(temp))

    def look():
        total = torch.ones(1)
        dist.all_reduce(total)
        return os.getcwd(), total.item()

    result = run_ranks(look, 2, record=True)
    assert result.values == [(str(work), 2.0)] * 2
    assert len(result.record) == 2
    assert list(temp.iterdir()) == []


def test_runs_can_be_made_at_the_same_time():
    def total(x):
        mine = torch.tensor(x)
        dist.all_reduce(mine)
        return mine.item()

    with ThreadPoolExecutor(3) as pool:
        runs = [pool.submit(run_ranks, total, 2, x, timeout=30) for x in range(3)]
    assert [run.result().values for run in runs] == [[2 * x] * 2 for x in range(3)]


def test_an_interrupt_ends_the_ranks_at_once(temp_root, interrupt):
    def sleep(path):
        open(f"{path}/asleep-{dist.get_rank()}", "w").close()
        dist.barrier()
        time.sleep(60)

    interrupt(temp_root / "asleep-1")
    begun = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        run_ranks(sleep, 2, str(temp_root))
    assert time.monotonic() - begun < 20
    assert run_ranks(lambda: 1, 2).values == [1, 1]


def test_only_this_machine_can_connect_to_the_ranks():
    def listening():
        own = {
            os.readlink(f"/proc/self/fd/{fd}")
            for fd in os.listdir("/proc/self/fd")
            if os.path.exists(f"/proc/self/fd/{fd}")
        }
        found = []
        for kind in ("tcp", "tcp6"):
            for line in Path(f"/proc/net/{kind}").read_text().splitlines()[1:]:
                _, local, _, state, *rest = line.split()
                if state == "0A" and f"socket:[{rest[5]}]" in own:
                    found.append(local.split(":")[0])
        return found

    loopback = {"0100007F", "00000000000000000000000001000000", "0000000000000000FFFF00000100007F"}
    for addresses in run_ranks(listening, 2):
        assert addresses
        assert set(addresses) <= loopback


def test_a_run_warns_in_one_line_and_its_record_says_so():
    def work(full):
        dist.barrier()
        if dist.get_rank() == 1:
            full()
        for _ in range(3):
            total = torch.ones(2)
            dist.all_reduce(total)
        return total.tolist()

    with pytest.warns(UserWarning) as warned:
        result = run_ranks(work, 2, full_disk, timeout=20, record=True)
    assert [str(w.message) for w in warned] == [LINE]
    assert warned[0].filename == __file__
    assert result.values == [[2.0, 2.0]] * 2
    assert result.record.incomplete == LINE
    assert [len(result.record.select(rank=r)) for r in range(2)] == [4, 1]


def test_a_run_that_keeps_no_record_is_not_disturbed():
    def work(full):
        full()
        dist.barrier()

    assert len(run_ranks(work, 2, full_disk, timeout=20)) == 2


def test_an_error_says_it_too():
    def work(full):
        if dist.get_rank() == 1:
            full()
        dist.barrier()
        raise KeyError("x")

    with pytest.raises(RankError, match="KeyError") as caught:
        run_ranks(work, 2, full_disk, timeout=20, record=True)
    assert caught.value.__notes__ == [LINE]
    assert LINE in caught.value._render_traceback_()
    assert caught.value.record.incomplete == LINE


def a_run(fn, **options) -> Run:
    header = {"init_group": True, "sources": {}}
    run = Run(place(2, 0, "cpu"), 50, **options)
    run.begin(header, pickles.pack((fn, ()), "fn"), timeout=20)
    return run


def test_a_run_has_its_results_output_and_record_until_its_block_is_left():
    def work():
        print("hello", dist.get_rank())
        dist.barrier()
        return dist.get_rank() + 1

    with a_run(work) as run:
        assert run.finish() is None
        assert [event.op for event in run.record("mine")] == ["barrier"] * 2
        assert run.record("mine").label == "mine"
    assert [pickles.unpack(result) for result in run.results] == [1, 2]
    assert run.printed() == {0: "hello 0\n", 1: "hello 1\n"}


def test_kept_ranks_do_another_task_in_new_groups_with_a_record_of_its_own():
    def work():
        print("hello", dist.get_rank())
        pair = dist.new_group([0, 1])
        dist.all_reduce(torch.ones(2), group=pair)
        return os.getpid(), pair.group_name

    with a_run(work) as run:
        told = []
        for number in range(3):
            if number:
                run.begin({"init_group": True, "sources": {}}, pickles.pack((work, ()), "work"), timeout=20)
            assert run.finish(keep=True) is None
            told.append((list(map(pickles.unpack, run.results)), run.printed()))
            calls = [(event.rank, event.op, event.group_seq) for event in run.record("mine")]
            assert sorted(calls) == [(rank, op, 0) for rank in (0, 1) for op in ("all_reduce", "new_group")]
        assert run.tasks == 3
    assert told[0] == told[1] == told[2]
    assert told[0][1] == {0: "hello 0\n", 1: "hello 1\n"}
    assert not [pid for pid, _ in told[0][0] if os.path.exists(f"/proc/{pid}")]


def test_a_kept_rank_that_ends_is_the_next_tasks_fault():
    def stay():
        threading.Timer(0.3, os._exit, [3]).start()

    with a_run(stay) as run:
        assert run.finish(keep=True) is None
        run.wait(0.6)
        run.begin({"init_group": True, "sources": {}}, pickles.pack((stay, ()), "stay"), timeout=20)
        assert "ended (exit code 3) before it finished" in str(run.finish())


def test_nothing_of_a_run_is_left_when_its_block_raises():  # the fixture of all these tests looks for what is left
    def sleep():
        time.sleep(60)

    begun = time.monotonic()
    with pytest.raises(KeyError), a_run(sleep):
        raise KeyError("x")
    assert time.monotonic() - begun < 20


def test_a_run_says_where_its_ranks_stand():
    def work():
        if dist.get_rank() == 0:
            time.sleep(60)
        dist.barrier()

    with pytest.raises(KeyError), a_run(work) as run:
        deadline = time.monotonic() + 15
        while not run.waiting() and time.monotonic() < deadline:
            run.wait(0.1)
            run.watch.look(run.ended())
        assert list(run.waiting()) == [1] and run.waiting()[1].startswith("its 1st barrier, line ")
        assert run.ended() == set() and run.failures() == ()
        assert "time.sleep(60)" in run.look()[0].stack[-1]
        raise KeyError("enough")


def test_a_rank_that_was_stopped_is_told_from_one_that_is_slow():
    def stop_itself():
        if dist.get_rank() == 1:
            os.kill(os.getpid(), signal.SIGSTOP)
        dist.barrier()

    with pytest.raises(RanksTimeout) as caught:
        run_ranks(stop_itself, 2, timeout=2)
    assert caught.value.code == "DTL-RANK-STOPPED"
    assert "rank 1 is stopped by a signal, and is not running" in str(caught.value)
    assert "kill -CONT" in str(caught.value)
