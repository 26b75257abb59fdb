"""One update: the mean over micro-batches and ranks, and what it leaves on the way; in groups: `test_loop.py`."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from dtlearn.train.loop import make_training
from dtlearn.train.options import Options, settle
from dtlearn.train.ranks.group import RankOnDevice
from dtlearn.train.ranks.rank_0 import TrainError
from dtlearn.train.ranks.stop_signals import StopSignals
from dtlearn.train.step import check_amp, train_step, wrap
from dtlearn.train.task import Defaults, TrainingTask

ALONE = RankOnDevice(0, 1, torch.device("cpu"))
G = torch.Generator().manual_seed(0)
X, Y = torch.randn(8, 3, generator=G), torch.randint(2, (8,), generator=G)


def training(**options):
    samples = list(zip(X, Y, strict=True))
    task = TrainingTask(
        "small", ("a", "b"), samples, samples, torch.utils.data.default_collate, lambda dropout: nn.Linear(3, 2),
        lambda parameters, lr: torch.optim.SGD(parameters, lr=lr), Defaults(epochs=2, batch_size=8, lr=0.5, warmup=0),
    )  # fmt: skip
    return make_training(task, settle(Options(**options), task.defaults), ALONE)


@pytest.mark.parametrize("parts", [1, 4])
@pytest.mark.parametrize("clip", [None, 0.01])
def test_micro_batches_make_the_update_of_the_whole_batch(parts, clip):
    run = training(accumulate=parts, clip=clip)
    weight = run.model.weight.detach().clone()
    loss = F.cross_entropy(run.model(X), Y)
    (gradient, bias) = torch.autograd.grad(loss, [run.model.weight, run.model.bias])
    norm = torch.cat([gradient.flatten(), bias]).norm()
    gradient = gradient if clip is None else gradient * clip / norm
    batches = list(zip(X.chunk(parts), Y.chunk(parts), strict=True))
    told, stopped_by = train_step(run, run.model, batches, StopSignals())
    assert told == pytest.approx(loss.item()) and stopped_by == 0
    assert torch.allclose(run.model.weight, weight - 0.5 * gradient, atol=1e-6)
    assert (run.step, run.data.sampler.consumed) == (1, 8)
    assert run.optimizer.param_groups[0]["lr"] == pytest.approx(0.25)  # the cosine of two updates


def test_a_signal_that_was_seen_is_told_with_the_loss():
    run, signals = training(), StopSignals()
    signals.seen[1] = 1
    assert train_step(run, run.model, [(X, Y)], signals)[1] == 15


def test_without_a_group_the_model_stays_bare():
    run = training()
    assert wrap(run.model, run.settings) is run.model


def test_bfloat16_is_refused_on_a_cpu_and_on_an_old_gpu(monkeypatch):
    on = training(amp=True).settings
    check_amp(training().settings, ALONE)
    with pytest.raises(TrainError, match="--amp needs a GPU"):
        check_amp(on, ALONE)
    gpu = RankOnDevice(0, 1, torch.device("cuda"))
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda: "Old")
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda including_emulation: including_emulation)
    with pytest.raises(TrainError, match="Old has no bfloat16"):
        check_amp(on, gpu)
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda including_emulation: True)
    check_amp(on, gpu)
