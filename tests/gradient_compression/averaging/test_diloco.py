"""DiLoCo: all workers in one process, with Nesterov momentum written out; plain averaging; checkpoints; sabotage."""

import pytest
import torch

from dtlearn.gradient_compression.averaging.diloco import DiLoCo, outer_nesterov
from dtlearn.gradient_compression.averaging.periodic import PeriodicAveraging
from dtlearn.runtime.device import device as here
from tests.devices import run_ranks
from tests.gradient_compression.averaging.runs import (
    OPTIMIZERS,
    TOLERANCE,
    batch,
    copied,
    difference,
    flat,
    gradients,
    make_model,
    on_rank,
    simulated,
    train,
    with_batch_norm,
)

STEPS, PERIOD = 12, 3


class Nesterov:
    """The outer step of the paper: m <- 0.9 m + delta; theta <- theta - 0.7 (delta + 0.9 m)."""

    def __init__(self, sign=1.0):
        self.theta, self.momentum, self.sign = flat(make_model()), 0.0, sign

    def __call__(self, flats):
        delta = self.sign * (self.theta - flats.mean(0))
        self.momentum = 0.9 * self.momentum + delta
        self.theta = self.theta - 0.7 * (delta + 0.9 * self.momentum)
        return self.theta.expand_as(flats)


class SignTurned(DiLoCo):
    """New minus old: the outer optimizer goes back where the ranks came from, and beyond."""

    def pseudo_gradients(self, places):
        return [-delta for delta in super().pseudo_gradients(places)]


class AveragesMoments(DiLoCo):
    """The first moments of the inner AdamW are averaged too."""

    def synchronize(self):
        super().synchronize()
        for state in self.optimizer.state.values():
            state["exp_avg"].div_(torch.distributed.get_world_size())
            torch.distributed.all_reduce(state["exp_avg"])


def plain(parameters):
    return torch.optim.SGD(parameters, lr=1.0)


def several():
    """By name, one run of each."""
    period = {"averaging": 1, "diloco as averaging": 1}
    kinds = {
        "diloco": DiLoCo,
        "sign turned": SignTurned,
        "moments averaged": AveragesMoments,
        "averaging": PeriodicAveraging,
        "diloco as averaging": lambda *args: DiLoCo(*args, outer_optimizer=plain),
    }
    return {
        name: on_rank(lambda model, inner, name=name, kind=kind: kind(model, inner, period.get(name, PERIOD)), STEPS)
        for name, kind in kinds.items()
    }


def loss_of(parameters):
    model = make_model()
    torch.nn.utils.vector_to_parameters(parameters, model.parameters())
    return gradients(model, [batch(rank, 1000 + step) for rank in range(2) for step in range(8)])


@pytest.mark.parametrize("ranks", [1, 2, 4])
def test_it_is_all_workers_in_one_process_and_sabotage_is_not(ranks, device):
    run = run_ranks(several, ranks, device=device)
    expected = simulated(ranks, STEPS, PERIOD, Nesterov())
    assert difference([value["diloco"] for value in run], expected) < TOLERANCE
    turned = [value["sign turned"] for value in run]
    assert difference(turned, expected) > 0.01
    assert difference(turned, simulated(ranks, STEPS, PERIOD, Nesterov(sign=-1.0))) < TOLERANCE
    # The sign shows in the loss: the one learns, the other unlearns. The moments do not: only the values tell.
    begin, right, wrong = (loss_of(p) for p in (flat(make_model()), run[0]["diloco"][-1], turned[0][-1]))
    assert right < begin - 0.05 and wrong > begin + 0.05, (begin, right, wrong)
    if ranks > 1:
        assert difference([value["moments averaged"] for value in run], expected) > 1e-3
    for value in run:
        pairs = zip(value["averaging"], value["diloco as averaging"], strict=True)
        assert max(float((a - b).abs().max()) for a, b in pairs) < TOLERANCE


def interrupted():
    """Stopped within a period and gone on with by new objects: the parameters of every step, as without a stop."""
    rank = torch.distributed.get_rank()
    whole = on_rank(lambda model, inner: DiLoCo(model, inner, PERIOD), 8)
    model = make_model(rank).to(here())
    first = DiLoCo(model, OPTIMIZERS["adamw"](model.parameters()), PERIOD)
    trace = train(first, model, 4)
    saved = copied((model.state_dict(), first.state_dict()))
    other = make_model(rank + 7).to(here())
    second = DiLoCo(other, OPTIMIZERS["adamw"](other.parameters()), PERIOD)
    other.load_state_dict(saved[0])
    second.load_state_dict(saved[1])
    train(second, other, 4, start=4, trace=trace)
    messages = []
    for wrong in ({"world_size": 3}, {"rank": 1 - rank}):
        with pytest.raises(ValueError) as error:
            second.load_state_dict(saved[1] | wrong)
        messages.append(str(error.value))
    third = DiLoCo(other, second.optimizer, PERIOD)  # takes rank 0's model: loaded too early, this rank's own is gone
    if rank:
        with pytest.raises(ValueError, match="load this rank's own model first, after making this object"):
            third.load_state_dict(second.state_dict() | {"squared_norm": saved[1]["squared_norm"]})
    return all(map(torch.equal, whole, trace)), messages


def test_a_checkpoint_within_a_period_goes_on_with_the_same_bits(device):
    for rank, (same, messages) in enumerate(run_ranks(interrupted, 2, device=device)):
        assert same
        assert f"expected the state of rank {rank} of 2, but this is that of rank {rank} of 3" in messages[0]
        assert f"but this is that of rank {1 - rank} of 2" in messages[1]


def frozen_buffers_and_nan():
    """What is frozen stays, buffers are averaged, and a rank with NaN changes nothing for the others."""
    rank = torch.distributed.get_rank()
    model = with_batch_norm(rank).to(here())
    model[0].weight.requires_grad_(False)
    training = DiLoCo(model, OPTIMIZERS["sgd"](p for p in model.parameters() if p.requires_grad), 1)
    frozen = model[0].weight.clone()
    train(training, model, 1)
    statistics = model[1].running_mean.tolist()
    stays = torch.equal(model[0].weight, frozen) and len(training.outer_parameters) == 5
    shared = [p.detach().clone() for p in training.outer_parameters]
    gradients(model, [batch(rank, 1)])
    if rank == 1:
        model[0].bias.grad.fill_(float("nan"))
    with pytest.raises(ValueError, match="the mean over the ranks has NaN or infinity: a rank has diverged"):
        training.step()
    model[0].weight.requires_grad_(True)
    with pytest.raises(RuntimeError, match="weight was frozen"):
        training.meet()
    return statistics, stays, all(map(torch.equal, shared, training.outer_parameters))


def test_frozen_parameters_buffers_and_nan(device):
    (statistics, *rest), (others, *same) = run_ranks(frozen_buffers_and_nan, 2, device=device)
    assert statistics == others and rest == same == [True, True]


def for_the_record():
    on_rank(lambda model, inner: DiLoCo(model, inner, PERIOD), STEPS)


def test_bytes_of_the_record_and_the_papers_outer_optimizer():
    run = run_ranks(for_the_record, 2, device="cpu", record=True)
    for rank in range(2):
        assert run.record.nbytes(rank=rank, op="all_reduce") == STEPS // PERIOD * 8 * flat(make_model()).numel()
    (group,) = outer_nesterov([torch.nn.Parameter(torch.zeros(1))]).param_groups
    assert (group["lr"], group["momentum"], group["nesterov"]) == (0.7, 0.9, True)
