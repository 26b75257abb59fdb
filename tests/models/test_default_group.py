"""Which group a script takes or makes; that it ends what it made: `test_train_digits.py`, which runs in one."""

import pytest
import torch
import torch.distributed as dist

from dtlearn.models.default_group import default_group, ranks_here
from dtlearn.runtime.run import run_ranks

LAUNCHED = {"RANK": "3", "WORLD_SIZE": "8", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "2"}


class Asked(Exception):
    """Raised in place of a group, with the backend and device that it was to have."""


@pytest.fixture
def launched(monkeypatch):
    for name, value in LAUNCHED.items():
        monkeypatch.setenv(name, value)

    def refuse(backend, device_id=None):
        raise Asked(backend, device_id)

    monkeypatch.setattr(dist, "init_process_group", refuse)


@pytest.mark.parametrize(
    ("device", "backend", "gpus", "expected"),
    [
        ("auto", "auto", 2, "nccl"),
        ("auto", "auto", 1, "gloo"),
        ("auto", "auto", 0, "gloo"),
        ("cuda", "auto", 2, "nccl"),
        ("cuda", "auto", 1, "gloo"),  # the ranks share it
        ("cpu", "auto", 2, "gloo"),
        ("auto", "gloo", 2, "gloo"),
        ("cuda", "gloo", 2, "gloo"),
        ("auto", "nccl", 1, "nccl"),
    ],
)
def test_the_backend_follows_the_gpus_unless_it_is_given(launched, monkeypatch, device, backend, gpus, expected):
    monkeypatch.setattr(torch.cuda, "device_count", lambda: gpus)
    with pytest.raises(Asked) as asked, default_group(device, backend):
        pass
    assert asked.value.args == (expected, torch.device("cuda", 1) if expected == "nccl" else None)


@pytest.fixture
def calls(launched, monkeypatch):
    """What is called of `torch.distributed`, in order, instead of it."""
    names = []

    def note(name, answer=None):
        monkeypatch.setattr(dist, name, lambda *args, **options: names.append(name) or answer)

    for name, answer in (("barrier", None), ("destroy_process_group", None), ("init_process_group", None)):
        note(name, answer)
    monkeypatch.setattr(dist, "is_initialized", lambda: "init_process_group" in names)
    monkeypatch.setattr(dist, "get_rank", lambda: 3)
    monkeypatch.setattr(dist, "get_world_size", lambda: 8)
    monkeypatch.setattr(dist, "get_backend", lambda: "gloo")
    return names


def test_no_rank_leaves_a_group_that_was_made_while_another_still_needs_it(calls):
    with default_group() as (rank, world_size, device):
        assert (rank, world_size, device.type) == (3, 8, "cpu") and calls == ["init_process_group"]
    assert calls == ["init_process_group", "barrier", "destroy_process_group"]


def test_after_an_error_a_group_that_was_made_is_ended_without_waiting(calls):
    with pytest.raises(ZeroDivisionError), default_group():
        raise ZeroDivisionError
    assert calls == ["init_process_group", "destroy_process_group"]


@pytest.mark.parametrize("missing", ["RANK", "WORLD_SIZE"])
def test_without_a_launcher_there_is_one_rank_and_no_group(launched, monkeypatch, missing):
    monkeypatch.delenv(missing)
    with default_group() as (rank, world_size, device):
        assert (rank, world_size, device.type) == (0, 1, "cpu")
        assert not dist.is_initialized()


def inside():
    with default_group("cuda", "nccl") as (rank, world_size, device):
        seen = rank, world_size, device.type, dist.get_backend()
    return seen, dist.is_initialized()


def test_a_group_that_is_there_is_taken_as_it_is():
    assert run_ranks(inside, 2, device="cpu").values == [((rank, 2, "cpu", "gloo"), True) for rank in (0, 1)]


def test_ranks_of_this_machine_are_all_if_nobody_says(monkeypatch, launched):
    assert ranks_here() == 2
    monkeypatch.delenv("LOCAL_WORLD_SIZE")
    assert ranks_here() == 8
    monkeypatch.delenv("WORLD_SIZE")
    assert ranks_here() == 1
