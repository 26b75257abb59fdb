"""Stepping in backward: the ordinary step to the last bit, without the gradients; and what it refuses."""

import copy
import pickle
import warnings

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.utils.checkpoint import checkpoint

from dtlearn.data_parallel import DistributedDataParallel
from dtlearn.memory import StorageLedger
from dtlearn.memory.saving.accumulation import accumulate_gradients
from dtlearn.memory.saving.optimizer_in_backward import OptimizerInBackward
from dtlearn.mixed_precision import GradScaler
from dtlearn.models import MLP, next_token_loss, snapshot_parameters
from tests.devices import run_ranks
from tests.memory.saving.runs import backward, gpt, same, tokens

OPTIMIZERS = {
    "sgd": lambda p: torch.optim.SGD(p, lr=0.1),
    "momentum": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, nesterov=True, weight_decay=0.01),
    "adam": lambda p: torch.optim.Adam(p, lr=0.01),
    "adamw": lambda p: torch.optim.AdamW(p, lr=0.01, foreach=True),
    "adamw, fused": lambda p: torch.optim.AdamW(p, lr=0.01, fused=True),
    "amsgrad": lambda p: torch.optim.Adam(p, lr=0.01, amsgrad=True),
    "rmsprop": lambda p: torch.optim.RMSprop(p, lr=0.01),
    "adagrad": lambda p: torch.optim.Adagrad(p, lr=0.01),
    "adafactor": lambda p: torch.optim.Adafactor(p, lr=0.01),
}


def train(model, optimizer, steps=3, skip=0):
    for seed in range(skip, skip + steps):
        optimizer.zero_grad()
        backward(model, tokens(4, seed))
        optimizer.step()
    return snapshot_parameters(model)


@pytest.mark.parametrize("name", OPTIMIZERS)
@pytest.mark.parametrize("tied", [False, True])
def test_it_is_the_ordinary_step(name, tied):
    runs = []
    for wrap in (lambda optimizer: optimizer, OptimizerInBackward):
        model = gpt(tie_embeddings=tied)
        runs.append(train(model, wrap(OPTIMIZERS[name](model.parameters()))))
    assert same(*runs)
    assert not same(runs[0], snapshot_parameters(gpt(tie_embeddings=tied)))


def on_a_rank():
    runs = []
    for wrap in (lambda optimizer: optimizer, OptimizerInBackward):
        model = gpt(tie_embeddings=True)
        runs.append(train(model, wrap(OPTIMIZERS["adamw"](model.parameters()))))
    return same(*runs)


def test_it_is_the_ordinary_step_on_another_device(other_device):
    assert run_ranks(on_a_rank, 1, device=other_device)[0]


def test_as_torchs_own():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # the folder's other modules use TorchScript
        from torch.distributed.optim import _apply_optimizer_in_backward
    model, other = gpt(), gpt()
    _apply_optimizer_in_backward(torch.optim.AdamW, other.parameters(), {"lr": 0.01})
    for seed in range(3):
        backward(other, tokens(4, seed))
    inner = torch.optim.AdamW(model.parameters(), lr=0.01)
    assert same(train(model, OptimizerInBackward(inner)), snapshot_parameters(other))


def with_groups(model):
    """Frozen embeddings, decay for the blocks only, another rate for the head."""
    model.embedding.requires_grad_(False)
    groups = [
        {"params": list(model.embedding.parameters())},
        {"params": list(model.blocks.parameters()), "weight_decay": 0.1},
        {"params": list(model.head.parameters()), "lr": 0.02},
    ]
    return torch.optim.AdamW(groups, lr=0.01, weight_decay=0.0)


def test_groups_frozen_parameters_and_schedules():
    runs = []
    for wrap in (lambda optimizer: optimizer, OptimizerInBackward):
        model = gpt()
        inner = with_groups(model)
        optimizer, scheduler = wrap(inner), torch.optim.lr_scheduler.StepLR(inner, step_size=1, gamma=0.5)
        for step in range(3):
            train(model, optimizer, 1, step)
            scheduler.step()
        runs.append(snapshot_parameters(model))
        assert [group["lr"] for group in optimizer.param_groups] == [0.00125, 0.00125, 0.0025]
        assert len(optimizer.param_groups[1]["params"]) == 2 * 16
    assert same(*runs)


def test_a_run_goes_on_from_a_saved_state():
    model = gpt()
    whole = train(model, OptimizerInBackward(with_groups(model)), 4)
    model = gpt()
    optimizer = OptimizerInBackward(with_groups(model))
    train(model, optimizer, 2)
    other = OptimizerInBackward(with_groups(continued := gpt()))
    continued.load_state_dict(model.state_dict())
    other.inner.load_state_dict(optimizer.inner.state_dict())
    assert same(train(continued, other, 2, skip=2), whole)
    other.param_groups[1]["lr"] = other.param_groups[2]["lr"] = 0.0  # the groups of the loaded state are those in use
    other.param_groups[1]["weight_decay"] = 0.0
    assert same(train(continued, other, 1), whole)


def live_and_peak(wrap, model, batch, loss_fn):
    """Bytes beyond weights, optimizer's state and batch, after backward and at the peak, in the third step."""
    optimizer = wrap(torch.optim.Adam(model.parameters(), lr=0.01))
    for _ in range(3):
        optimizer.zero_grad()
        with StorageLedger() as ledger:
            loss_fn(model(batch[0]), batch[1]).backward()
            live = ledger.now
            optimizer.step()
    assert len(optimizer.state) == len(list(model.parameters()))
    return live, ledger.peak


def test_the_gradients_are_freed_as_they_come():
    layers, width = 8, 128
    batch = torch.ones(1, width), torch.zeros(1, dtype=torch.long)
    one = 4 * (width * width + width)  # bytes of a layer's gradients
    found = {}
    for wrap in (lambda optimizer: optimizer, OptimizerInBackward):
        torch.manual_seed(0)
        model = MLP((width,) * (layers + 1))
        found[wrap] = live_and_peak(wrap, model, batch, nn.functional.cross_entropy)
    (live, peak), (live_in_backward, peak_in_backward) = found.values()
    assert layers * one <= live <= layers * one + 8
    assert live_in_backward <= 8
    assert peak > layers * one
    # A layer's gradients, and Adam's temporaries for its weight: two of its size.
    assert one < peak_in_backward < 3.5 * one


def test_where_activations_fill_the_memory_the_peak_stays():
    peaks = []
    for wrap in (lambda optimizer: optimizer, OptimizerInBackward):
        peaks.append(live_and_peak(wrap, gpt(num_layers=1), tokens(64), next_token_loss)[1])
    assert 0.99 * peaks[0] < peaks[1] < peaks[0]  # it is the head's gradient that was there at the peak


def test_a_second_gradient_in_a_step_is_an_error():
    model = gpt()
    optimizer = OptimizerInBackward(torch.optim.SGD(model.parameters(), lr=0.1))
    backward(model, tokens())
    with pytest.raises(RuntimeError, match="a second gradient in this step"):
        backward(model, tokens())
    optimizer.step()
    backward(model, tokens())
    optimizer.step()
    with pytest.raises(RuntimeError, match="gradient accumulation"):
        accumulate_gradients(model, tokens(), next_token_loss, 2)


def test_a_tied_parameter_in_and_outside_a_reentrant_checkpoint_is_an_error():
    layer = nn.Linear(8, 8)
    OptimizerInBackward(torch.optim.SGD(layer.parameters(), lr=0.1))
    x = torch.ones(2, 8, requires_grad=True)
    with pytest.raises(RuntimeError, match="reentrant checkpoint"):
        layer(checkpoint(layer, x, use_reentrant=True)).sum().backward()


def test_scalers_are_refused():
    for scaler, message in ((torch.amp.GradScaler("cpu"), "bfloat16"), (GradScaler(), "none of this optimizer's")):
        model = gpt()
        optimizer = OptimizerInBackward(torch.optim.SGD(model.parameters(), lr=0.1))
        loss = next_token_loss(model(tokens()[0]), tokens()[1])
        scaler.scale(loss).backward()
        with pytest.raises(RuntimeError, match=message):
            scaler.step(optimizer)


def test_clipping_is_refused_with_the_reason():
    model = gpt()
    optimizer = OptimizerInBackward(torch.optim.SGD(model.parameters(), lr=0.1))
    with pytest.raises(RuntimeError, match="is known when the last one is there"):
        optimizer.clip_grad_norm_(1.0)
    backward(model, tokens())
    assert nn.utils.clip_grad_norm_(model.parameters(), 1.0) == 0  # what the docstring says


@pytest.mark.parametrize("name", ["momentum", "adamw"])
def test_a_layer_that_is_unfrozen_later_and_one_that_is_added(name):
    runs = []
    for wrap in (lambda optimizer: optimizer, OptimizerInBackward):
        model = gpt()
        model.blocks[0].requires_grad_(False)
        inner = OPTIMIZERS[name](model.blocks.parameters())
        optimizer = wrap(inner)
        train(model, optimizer, 2)
        model.blocks[0].requires_grad_(True)
        train(model, optimizer, 2)
        inner.add_param_group({"params": list(model.head.parameters()), "lr": 0.05})
        train(model, optimizer, 3)
        model.blocks[1].requires_grad_(False)
        runs.append(train(model, optimizer, 2))
    assert same(*runs)
    backward(model, tokens())
    assert all(p.grad is None for p in model.head.parameters())  # from its second step on it is updated in backward


def test_what_is_added_must_have_no_hook():
    first, second = (nn.Parameter(torch.ones(1)) for _ in range(2))
    optimizer = OptimizerInBackward(torch.optim.SGD([first], lr=1.0))
    second.register_post_accumulate_grad_hook(lambda parameter: None)
    optimizer.inner.add_param_group({"params": [second]})
    with pytest.raises(ValueError, match="two updates would not know of each other"):
        optimizer.step()


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda value: pickle.loads(pickle.dumps(value))])
def test_a_copy_has_hooks_of_its_own(copied):
    model = gpt()
    optimizer = OptimizerInBackward(OPTIMIZERS["adamw"](model.parameters()))
    train(model, optimizer, 2)
    other, other_optimizer = copied((model, optimizer))
    before = snapshot_parameters(model)
    after = train(other, other_optimizer, 2, skip=2)
    assert same(snapshot_parameters(model), before) and not same(after, before)
    assert same(train(model, optimizer, 2, skip=2), after)
    alone = copy.deepcopy(model)  # best weights, an average: nobody trains it
    backward(alone, tokens())
    assert same(snapshot_parameters(alone), after) and all(p.grad is not None for p in alone.parameters())


def test_a_gradient_that_a_hook_clips():
    weight = nn.Parameter(torch.zeros(3))
    OptimizerInBackward(torch.optim.SGD([weight], lr=1.0))
    weight.register_hook(lambda gradient: gradient.clamp(-1, 1))
    (weight * torch.tensor([0.5, 5.0, -5.0])).sum().backward()
    assert weight.tolist() == [-0.5, -1.0, 1.0] and weight.grad is None


def test_optimizers_that_cannot():
    model = gpt()
    with pytest.raises(ValueError, match="L-BFGS"):
        OptimizerInBackward(torch.optim.LBFGS(model.parameters()))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    backward(model, tokens())
    with pytest.raises(ValueError, match="zero_grad"):
        OptimizerInBackward(optimizer)
    model.zero_grad()
    OptimizerInBackward(optimizer)
    with pytest.raises(ValueError, match="two updates would not know of each other"):
        OptimizerInBackward(optimizer)


def test_removed_it_is_an_ordinary_optimizer_again():
    model = gpt()
    inner = torch.optim.SGD(model.parameters(), lr=0.1)
    OptimizerInBackward(inner).remove()
    before = snapshot_parameters(model)
    backward(model, tokens())
    assert same(before, snapshot_parameters(model))
    inner.step()
    assert not same(before, snapshot_parameters(model))


def under_ddp():
    """Whether our DDP is refused, and the parameters after a step under torch's."""
    model = gpt()
    ours = DistributedDataParallel(model)
    try:
        OptimizerInBackward(torch.optim.SGD(ours.parameters(), lr=0.1))
        refused = False
    except ValueError as error:
        refused = "still has to average" in str(error)
    model = nn.parallel.DistributedDataParallel(gpt())
    optimizer = OptimizerInBackward(torch.optim.SGD(model.parameters(), lr=0.1))
    backward(model, tokens(4, dist.get_rank()))
    optimizer.step()
    return refused, snapshot_parameters(model.module)


def test_under_ddp_replicas_would_part():
    (refused, one), (_, other) = run_ranks(under_ddp, 2, device="cpu").values
    assert refused
    assert not same(one, other)
