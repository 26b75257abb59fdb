"""Limits: what they are by default, what a rank that runs into one is told, and that ranks are really held to them."""

import resource

import pytest
import torch

from dtlearn.runtime.errors import LaunchError, RankError
from dtlearn.runtime.faults.failure import Failure
from dtlearn.runtime.machine.limits import MEMORY_VARIABLE, Limits, check_room, default_limits
from dtlearn.runtime.machine.memory import GIB
from dtlearn.runtime.run import run_ranks
from dtlearn.runtime.watch.explain import explain_limit


@pytest.mark.parametrize(
    ("num_ranks", "free", "memory"),
    [(1, 10 * GIB, 9 * GIB), (3, 10 * GIB, 3 * GIB), (16, 10 * GIB, GIB), (4, None, None)],
)
def test_by_default_ranks_share_the_memory(monkeypatch, num_ranks, free, memory):
    monkeypatch.delenv(MEMORY_VARIABLE, raising=False)
    assert default_limits(num_ranks, free) == Limits(memory=memory)


def test_the_environment_sets_another_limit_or_none(monkeypatch):
    monkeypatch.setenv(MEMORY_VARIABLE, "2.5")
    assert default_limits(4, GIB).memory == 5 * GIB // 2
    monkeypatch.setenv(MEMORY_VARIABLE, "0")
    assert default_limits(4, GIB).memory is None


@pytest.mark.parametrize("text", ["much", "-1", "inf", "nan"])
def test_a_limit_that_is_no_number_is_told(monkeypatch, text):
    monkeypatch.setenv(MEMORY_VARIABLE, text)
    with pytest.raises(ValueError, match=f"{MEMORY_VARIABLE} takes a number of GiB, or 0 for no limit; got '{text}'"):
        run_ranks(print, 1)


@pytest.mark.parametrize("wrong", [{"memory": 0}, {"cpu_seconds": 1.5}, {"output": True}, {"processes": -1}])
def test_a_wrong_limit_is_refused(wrong):
    with pytest.raises(ValueError, match=r"takes a whole number of 1 or more, or None; got"):
        Limits(**wrong)


def test_more_ranks_than_memory_allows_are_refused_with_the_number_that_fits(monkeypatch):
    monkeypatch.setattr("dtlearn.runtime.agent.client.free_memory", lambda: GIB)
    with pytest.raises(LaunchError, match=r"16 ranks need about 2.2 GiB .* 1.0 GiB are free: 7 fit: start that many"):
        run_ranks(print, 16)
    assert run_ranks(lambda: 1, 2).values == [1, 1]


def test_room_for_none_and_room_unknown():
    with pytest.raises(LaunchError, match="not even one fits, or close other programs"):
        check_room(1, GIB // 100)
    check_room(64, None)


def test_a_rank_is_held_to_its_limits():
    def look():
        kinds = (resource.RLIMIT_CORE, resource.RLIMIT_CPU, resource.RLIMIT_DATA, resource.RLIMIT_FSIZE)
        return [resource.getrlimit(kind) for kind in kinds]

    limits = Limits(memory=3 * GIB, cpu_seconds=7, file_size=1000)
    assert run_ranks(look, 1, limits=limits)[0] == [(0, 0), (7, 8), (3 * GIB, 3 * GIB), (1000, 1000)]


def test_the_default_limit_is_in_force():
    soft, hard = run_ranks(lambda: resource.getrlimit(resource.RLIMIT_DATA), 2)[0]
    assert GIB <= soft == hard < 1 << 50


@pytest.mark.parametrize("library", ["torch", "python"])
def test_too_much_memory_is_an_error_that_names_the_limit(library):
    def take():
        return torch.ones(1 << 28).sum() if library == "torch" else len(bytearray(GIB))

    with pytest.raises(RankError, match=r"rank [01] ran out of its 1.0 GiB of memory. Use a smaller model") as caught:
        run_ranks(take, 2, limits=Limits(memory=GIB))
    assert caught.value.failures[0].kind == "raised"


def test_too_much_processor_time_is_told():
    def spin():
        while True:
            pass

    with pytest.raises(RankError, match=r"killed by signal 24 \(SIGXCPU\)\nIt had used up its 1 s of processor time"):
        run_ranks(spin, 1, limits=Limits(cpu_seconds=1))


def test_a_file_that_is_too_large_is_an_error(tmp_path):
    def write(path):
        with open(path, "wb") as file:
            file.write(bytes(5000))

    with pytest.raises(RankError, match="File too large"):
        run_ranks(write, 1, str(tmp_path / "file"), limits=Limits(file_size=1000))
    assert (tmp_path / "file").stat().st_size <= 1000


def test_less_output_is_kept_if_asked_for():
    result = run_ranks(lambda: print("x" * 10_000), 1, limits=Limits(output=100))
    assert len(result.output[0]) < 200
    assert "bytes of output left out" in result.output[0]


@pytest.mark.parametrize(
    ("failure", "says"),
    [
        (Failure(3, "raised", "MemoryError", ""), "rank 3 ran out of memory: use a smaller model"),
        (Failure(0, "raised", "RuntimeError", "std::bad_alloc"), "rank 0 ran out of memory"),
        (Failure(0, "raised", "ValueError", "bad"), ""),
        (Failure(0, "killed", "SIGSEGV", ""), ""),
    ],
)
def test_only_a_lack_of_memory_is_explained_as_one(failure, says):
    text = explain_limit(failure, Limits())
    assert text.startswith(says) and bool(text) == bool(says)
