"""The training script: the same losses for every world size and launcher; others if a collective is missing."""

import os
import socket
import subprocess
import sys

import pytest
import torch
import torch.distributed as dist
import torch.nn.functional as F

from dtlearn.models import MLP, load_digits, num_parameters, train_digits, train_reference
from dtlearn.models.train_digits import main, train
from dtlearn.runtime.run import run_ranks

STEPS = 12
TOLERANCE = 1e-5  # float32 sums in another order; measured 5e-7 after 100 steps


@pytest.fixture(scope="module")
def reference_losses():
    def make_optimizer(parameters):
        return torch.optim.SGD(parameters, lr=0.1, momentum=0.9)

    return train_reference(MLP, make_optimizer, load_digits().batches(STEPS, 96), F.cross_entropy).losses


@pytest.fixture
def no_launcher(monkeypatch):
    for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"):
        monkeypatch.delenv(name, raising=False)


def distance(losses, others):
    return max(abs(a - b) for a, b in zip(losses, others, strict=True))


def test_one_process_is_the_reference(no_launcher, reference_losses):
    result = train(STEPS)
    assert result.losses == reference_losses
    assert (result.rank, result.world_size) == (0, 1)
    assert not dist.is_initialized()


def test_it_learns(no_launcher):
    result = train()
    assert result.losses[0] == pytest.approx(2.30, abs=0.03)  # ln 10: a guess among ten digits
    assert result.losses[-1] < 0.4 and result.accuracy > 0.93


@pytest.mark.parametrize("world_size", [1, 2, 4])
def test_every_world_size_reaches_the_reference(world_size, reference_losses):
    result = run_ranks(train, world_size, STEPS, device="cpu", record=True)
    for rank in range(world_size):
        assert (result[rank].rank, result[rank].world_size) == (rank, world_size)
        assert distance(result[rank].losses, reference_losses) < TOLERANCE
        assert result[rank].losses == result[0].losses and result[rank].accuracy == result[0].accuracy
    if world_size > 1:
        gradient_bytes = 4 * num_parameters(MLP())
        for rank in range(world_size):
            assert result.record.nbytes(rank=rank, op="broadcast") == gradient_bytes
            assert result.record.nbytes(rank=rank, op="all_reduce") == STEPS * (gradient_bytes + 4)


def train_without(name):
    """What a rank does in the sabotage tests: it trains, and one function of the script does nothing."""
    owner, _, function = name.rpartition(".")
    setattr(getattr(train_digits, owner) if owner else train_digits, function, lambda *args, **kwargs: None)
    return train(STEPS)


@pytest.mark.parametrize(
    ("missing", "first_wrong_step"), [("broadcast_model", 0), ("average_flat_gradients", 1), ("dist.all_reduce", 0)]
)
def test_without_a_collective_the_parity_fails(missing, first_wrong_step, reference_losses):
    losses = run_ranks(train_without, 2, missing, device="cpu")[0].losses
    assert distance(losses, reference_losses) > 100 * TOLERANCE
    wrong = [abs(a - b) > TOLERANCE for a, b in zip(losses, reference_losses, strict=True)]
    assert wrong.index(True) == first_wrong_step


def mean_with_a_frozen_layer():
    model = MLP()
    for parameter in list(model.parameters())[:2]:
        parameter.requires_grad_(False)
    for number, parameter in enumerate(list(model.parameters())[2:]):
        parameter.grad = torch.full_like(parameter, float(10 * number + dist.get_rank()))
    train_digits.average_flat_gradients(model, dist.get_world_size())
    return [
        None if p.grad is None else (tuple(p.grad.shape) == tuple(p.shape), *p.grad.unique().tolist())
        for p in model.parameters()
    ]


def test_frozen_parameters_have_no_gradient_and_the_others_get_their_own_mean():
    means = run_ranks(mean_with_a_frozen_layer, 2, device="cpu").values
    assert means == [[None, None, (True, 0.5), (True, 10.5), (True, 20.5), (True, 30.5)]] * 2


def test_a_group_made_from_the_environment_is_ended_again(monkeypatch, reference_losses):
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    environment = {
        "RANK": "0",
        "WORLD_SIZE": "1",
        "LOCAL_RANK": "0",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": f"{port}",
    }
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    backends = []
    monkeypatch.setattr(train_digits, "load_digits", lambda: backends.append(dist.get_backend()) or load_digits())
    assert train(STEPS).losses == pytest.approx(reference_losses, abs=TOLERANCE)
    assert backends == ["nccl" if torch.cuda.device_count() else "gloo"]
    assert not dist.is_initialized()
    with pytest.raises(ValueError, match="steps"):
        train(0)
    assert not dist.is_initialized()  # after an error too


def train_twice():
    train(1)
    still_there = dist.is_initialized()
    train(1)
    return still_there


def test_a_group_that_was_there_is_left_alone():
    assert run_ranks(train_twice, 2, device="cpu").values == [True, True]


def test_a_batch_that_cannot_be_shared_evenly_is_refused():
    def train_unevenly():
        try:
            train(1, global_batch=95)
        except ValueError as error:
            return str(error)

    assert run_ranks(train_unevenly, 2, device="cpu").values == ["the world size (2) must divide global_batch (95)"] * 2


@pytest.mark.parametrize("wrong", [{"steps": 0}, {"global_batch": 0}, {"global_batch": 1438}])
def test_wrong_sizes_are_refused(no_launcher, wrong):
    with pytest.raises(ValueError):
        train(**wrong)


def test_command_line_prints_one_line(no_launcher, capsys):
    main(["--steps", "3", "--global-batch", "32", "--lr", "0.05", "--seed", "1"])
    assert capsys.readouterr().out == f"{train(3, 32, 0.05, 1)}\n"


def test_command_line_says_what_is_wrong_without_a_traceback(no_launcher):
    with pytest.raises(SystemExit, match="train_digits: steps must be 1 or more, got 0"):
        main(["--steps", "0"])


@pytest.mark.slow
def test_torchrun_reaches_the_same_loss(no_launcher):
    alone = str(train(STEPS))
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    run = subprocess.run(
        [*launcher, "-m", "dtlearn.models.train_digits", "--steps", str(STEPS)],
        env=environment, capture_output=True, text=True, timeout=100, check=False,
    )  # fmt: skip
    assert run.returncode == 0, run.stderr
    assert run.stdout == alone.replace("world_size=1", "world_size=2") + "\n"  # rank 0 only
