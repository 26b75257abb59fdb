"""The device rule, as a table, and what a wrong choice says."""

import pytest
import torch
import torch.distributed as dist

from dtlearn.runtime.device import DEVICE_VARIABLE, check_world_size, device, device_for, place


@pytest.mark.parametrize(
    ("world_size", "num_gpus", "asked", "backend", "devices"),
    [
        (2, 0, "auto", "gloo", ("cpu", "cpu")),
        (2, 2, "auto", "nccl", ("cuda:0", "cuda:1")),
        (2, 8, "auto", "nccl", ("cuda:0", "cuda:1")),
        (1, 1, "auto", "nccl", ("cuda:0",)),
        (4, 2, "auto", "gloo", ("cpu",) * 4),
        (4, 2, "cuda", "gloo", ("cuda:0", "cuda:1", "cuda:0", "cuda:1")),
        (2, 1, "cuda", "gloo", ("cuda:0", "cuda:0")),
        (2, 2, "cuda", "nccl", ("cuda:0", "cuda:1")),
        (2, 8, "cpu", "gloo", ("cpu", "cpu")),
    ],
)
def test_the_rule(world_size, num_gpus, asked, backend, devices):
    placement = place(world_size, num_gpus, asked)
    assert (placement.backend, placement.devices) == (backend, devices)


@pytest.mark.parametrize(
    ("world_size", "num_gpus", "asked", "text"),
    [
        (2, 0, "auto", "gloo on CPU: no GPU on this machine"),
        (4, 1, "auto", "gloo on CPU: 4 ranks, but only 1 GPU(s)"),
        (2, 2, "auto", "nccl on 2 GPUs: every rank has a GPU of its own"),
        (3, 1, "cuda", "gloo on 1 GPU: 3 ranks share 1 GPU"),
    ],
)
def test_the_placement_says_why(world_size, num_gpus, asked, text):
    assert str(place(world_size, num_gpus, asked)) == text


def test_cuda_without_a_gpu_is_refused_with_advice():
    with pytest.raises(ValueError, match=r"torch sees no GPU.*dtlearn doctor"):
        place(2, 0, "cuda")


def test_an_unknown_device_is_refused_with_the_choices():
    with pytest.raises(ValueError, match="auto, cpu, cuda; got 'tpu'"):
        place(2, 0, "tpu")


@pytest.mark.parametrize("size", [1, 2, 64])
def test_a_number_of_ranks_is_taken(size):
    assert check_world_size(size) == size


@pytest.mark.parametrize("size", [0, -1, 65, 2.0, True, "2", None])
def test_a_wrong_number_of_ranks_is_refused(size):
    with pytest.raises(ValueError, match="whole number from 1 to 64; got"):
        check_world_size(size)


def test_the_device_is_that_of_the_environment(monkeypatch):
    monkeypatch.delenv(DEVICE_VARIABLE, raising=False)
    assert device() == torch.device("cpu")
    monkeypatch.setenv(DEVICE_VARIABLE, "cuda:1")
    assert device() == torch.device("cuda:1")


def test_a_number_is_sent_from_the_ranks_device(monkeypatch):
    backends = {None: "gloo", "other": "nccl"}
    monkeypatch.setattr(dist, "get_backend", backends.get)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 3)
    monkeypatch.delenv("DTLEARN_DEVICE", raising=False)
    assert str(device_for(None)) == "cpu"
    assert str(device_for(None, "other")) == "cuda:3"  # under torchrun
    monkeypatch.setenv("DTLEARN_DEVICE", "cuda:1")
    assert str(device_for(None)) == str(device_for("other")) == "cuda:1"  # ranks that share GPUs use gloo
