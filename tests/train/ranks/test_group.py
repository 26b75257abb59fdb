"""Where a rank runs; which backend it takes: `tests/models/test_default_group.py`."""

import pytest
import torch
import torch.distributed as dist

from dtlearn.runtime.run import run_ranks
from dtlearn.train.ranks.group import RankOnDevice, training_group
from dtlearn.train.ranks.rank_0 import TrainError


@pytest.fixture
def gpus(monkeypatch):
    def have(number):
        monkeypatch.setattr(torch.cuda, "device_count", lambda: number)
        monkeypatch.setattr(torch.cuda, "is_available", lambda: number > 0)

    for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"):
        monkeypatch.delenv(name, raising=False)
    have(0)
    return have


def test_without_a_launcher_it_is_one_rank_on_the_cpu(gpus):
    for device in ("auto", "cpu"):
        with training_group(device) as here:
            assert (here.rank, here.world_size, here.device.type) == (0, 1, "cpu") and not dist.is_initialized()
            assert str(here) == "1 rank on cpu"
    gpus(1)
    with training_group("cpu") as here:
        assert here.device.type == "cpu"


@pytest.mark.parametrize(
    ("device", "backend", "number", "message"),
    [
        ("cuda", "auto", 0, "--device cuda, but torch sees no GPU here"),
        ("cpu", "nccl", 2, "--backend nccl moves data between GPUs only: use --backend gloo with --device cpu"),
        ("auto", "nccl", 1, "--backend nccl needs a GPU for every rank: 2 ranks on this machine, 1 GPUs"),
    ],
)
def test_what_this_machine_does_not_have_is_refused(gpus, monkeypatch, device, backend, number, message):
    gpus(number)
    for name, value in (("RANK", "0"), ("WORLD_SIZE", "4"), ("LOCAL_WORLD_SIZE", "2")):
        monkeypatch.setenv(name, value)
    with pytest.raises(TrainError, match=message), training_group(device, backend):
        pass
    assert not dist.is_initialized()


def inside():
    """What a group that is there allows, and what it does not."""
    seen = []
    for device, backend in (("auto", "auto"), ("cpu", "gloo"), ("cpu", "auto"), ("auto", "gloo")):
        with training_group(device, backend) as here:
            seen.append(str(here))
    try:
        with training_group("auto", "nccl"):
            pass
    except TrainError as refused:
        seen.append(str(refused))
    return seen


def test_a_group_that_is_there_is_kept_unless_another_is_asked_for():
    for *seen, refused in run_ranks(inside, 2, device="cpu"):
        assert seen == ["2 ranks over gloo on cpu"] * 4
        assert refused.startswith("the group that is there uses gloo on cpu: leave --device and --backend at auto")


def test_a_rank_says_where_it_is():
    assert str(RankOnDevice(0, 3, torch.device("cuda", 1))) == "3 ranks on cuda"
