"""The naive stage 1: parity stands in `test_zero1.py`; here are its protocol, its messages and what it keeps."""

import copy

import torch
import torch.distributed as dist

from dtlearn.memory import record_step
from dtlearn.models import MLP
from dtlearn.runtime.run import run_ranks
from dtlearn.zero import NaiveZeroRedundancyOptimizer
from tests.data_parallel.runs import data, loss_of
from tests.zero.stages.runs import distance, reference, train, wrapped


def groups_and_scheduler():
    """Own rates, a scheduler, and a group that comes later, beside the plain optimizer."""
    runs = []
    for make in (lambda p, cls, **options: cls(p, **options), NaiveZeroRedundancyOptimizer):
        model = wrapped("mlp")
        first, second, *rest = model.module.parameters()
        optimizer = make([{"params": [first], "lr": 0.3}, {"params": second}], torch.optim.SGD, lr=0.1, momentum=0.9)
        optimizer.add_param_group({"params": rest})
        scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=1, gamma=0.5)
        for batch in data("mlp", 3, 12):
            train(model, optimizer, [batch], loss_of("mlp"))
            scheduler.step()
        runs.append([p.detach().clone() for p in model.module.parameters()])
    return all(torch.equal(a, b) for a, b in zip(*runs, strict=True))


def test_groups_and_schedulers():
    assert run_ranks(groups_and_scheduler, 3, device="cpu").values == [True] * 3


def no_broadcast():
    model = wrapped("mlp")  # DDP's own broadcast comes before
    dist.broadcast = lambda *args, **options: None
    optimizer = NaiveZeroRedundancyOptimizer(model.module.parameters(), torch.optim.AdamW, lr=0.01, weight_decay=0.1)
    return distance(train(model, optimizer, data("mlp", 3, 12), loss_of("mlp")), reference("mlp", "adamw"))


def test_without_a_broadcast_the_parity_fails():
    assert max(run_ranks(no_broadcast, 2, device="cpu")) > 1e-3


def memory_and_calls():
    model = MLP((10, 20, 3))
    optimizer = NaiveZeroRedundancyOptimizer(model.parameters(), torch.optim.Adam, lr=0.1)
    batch = torch.randn(4, 10), torch.randint(3, (4,))
    record = record_step(model, optimizer, batch, torch.nn.functional.cross_entropy)
    return record.live("optimizer state")[-1]


def test_one_message_for_each_parameter_and_what_the_first_rank_keeps():
    """Sizes 200, 20, 60 and 3 on 2 ranks: rank 0 has 260 of 283."""
    result = run_ranks(memory_and_calls, 2, device="cpu", record=True)
    assert result.values == [8 * 260 + 8, 8 * 23 + 8]
    calls = [(event.op, event.nbytes, event.peer) for event in result.record.select(rank=1)]
    assert calls == [("broadcast", 4 * size, owner) for size, owner in ((200, 0), (20, 1), (60, 0), (3, 1))] * 2


class OwnSGD(torch.optim.SGD):
    """Without a closure, and with an option of its own."""

    def step(self, *, times):
        for _ in range(times):
            super().step()


def own_optimizer():
    """A step, and one of a copy, beside the plain optimizer."""
    model, plain, group = wrapped("mlp"), wrapped("mlp"), dist.new_group([0, 1])
    runs = []
    for ddp, make, options in ((model, NaiveZeroRedundancyOptimizer, {"process_group": group}), (plain, None, {})):
        parameters = ddp.module.parameters()
        optimizer = make(parameters, OwnSGD, lr=0.1, **options) if make else OwnSGD(parameters, lr=0.1)
        (inputs, targets) = data("mlp", 1, 12)[0]
        loss_of("mlp")(ddp(inputs[dist.get_rank() :: 2]), targets[dist.get_rank() :: 2]).backward()
        optimizer.step(times=2)
        twin, twins = copy.deepcopy((ddp.module, optimizer))
        for p in twin.parameters():
            p.grad = torch.ones_like(p)
        twins.step(times=1)
        runs.append([p.detach() for p in (*ddp.module.parameters(), *twin.parameters())])
    return all(torch.equal(a, b) for a, b in zip(*runs, strict=True))


def test_an_own_optimizer_and_a_copy():
    assert run_ranks(own_optimizer, 2, device="cpu").values == [True] * 2
