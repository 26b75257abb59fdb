"""The page's two layers beside the real ones, to the last bit, and beside `nn.Linear`; without f, and without g."""

import pytest
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn

import dtlearn
from dtlearn.tensor_parallel import ColumnParallelLinear, RowParallelLinear, page_linear
from dtlearn.tensor_parallel.page_linear import ColumnLinear, RowLinear
from tests.devices import run_ranks
from tests.sharing.groups import calls_of, in_groups

B, T, C, WIDTH, STEPS = 2, 3, 6, 24, 4
NBYTES = B * T * C * 8  # of the input, and of the output
OPTIMIZERS = {
    "SGD": lambda parameters: torch.optim.SGD(parameters, lr=0.1, momentum=0.9),
    "AdamW": lambda parameters: torch.optim.AdamW(parameters, lr=0.01),
}
# What is left out of the page, by the name that it has there.
SABOTAGE = {"f": "copy_to", "g": "reduce_from"}


def linears():
    """Whole layers, the same on all ranks."""
    torch.manual_seed(5)
    return nn.Linear(C, WIDTH).double().to(dtlearn.device()), nn.Linear(WIDTH, C).double().to(dtlearn.device())


def batches():
    generator = torch.Generator().manual_seed(6)
    drawn = [torch.randn(2, B, T, C, dtype=torch.float64, generator=generator) for _ in range(STEPS)]
    return [batch.to(dtlearn.device()) for batch in drawn]


def train(column, row, make_optimizer):
    """Losses and gradients of the inputs, then the parameters at the end: x, column, GELU, row."""
    parameters = [*column.parameters(), *row.parameters()]
    optimizer, trace = make_optimizer(parameters), []
    for batch, target in batches():
        x = batch.clone().requires_grad_()
        loss = F.mse_loss(row(F.gelu(column(x))), target)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        trace += [loss.detach(), x.grad]
    return [*trace, *(parameter.detach().clone() for parameter in parameters)]


def page(group):
    up, down = linears()
    return ColumnLinear(up.weight, up.bias, group=group), RowLinear(down.weight, down.bias, group=group)


def real(group):
    up, down = linears()
    return ColumnParallelLinear.from_linear(up, group=group), RowParallelLinear.from_linear(down, group=group)


def without(name, make_optimizer, group):
    before = getattr(page_linear, name)
    setattr(page_linear, name, lambda x, group: x)
    try:
        return train(*page(group), make_optimizer)
    finally:
        setattr(page_linear, name, before)


def every_size():
    torch.manual_seed(dist.get_rank())  # ranks are seeded differently

    def case(group):
        results = {}
        for name, make_optimizer in OPTIMIZERS.items():
            trained = {"page": train(*page(group), make_optimizer)}
            dist.barrier(group=group)  # where the page's calls end in the record
            trained["real"] = train(*real(group), make_optimizer)
            trained |= {fault: without(left_out, make_optimizer, group) for fault, left_out in SABOTAGE.items()}
            results[name] = trained
        biasless = ColumnLinear(torch.ones(12, C), group=group)(torch.ones(1, C))
        assert biasless.shape == (1, 12 // dist.get_world_size(group)) and (biasless == C).all()
        whole = torch.ones(C, 12, requires_grad=True)
        layer = RowLinear(whole, group=group)
        assert layer.weight.untyped_storage().nbytes() == C * 12 * 4 // dist.get_world_size(group)
        return results

    return in_groups(case)


def refused():
    with pytest.raises(ValueError, match="6 elements of dim 0 cannot be divided among 4 ranks"):
        ColumnLinear(torch.ones(6, 4))


@pytest.fixture(scope="module")
def run():
    return run_ranks(lambda: (refused(), every_size())[1], 4, device="cpu", record=True)


def differences(one, other):
    return max((a - b).abs().max().item() for a, b in zip(one, other, strict=True))


def test_it_is_the_real_pair_on_another_device(other_device):
    run = run_ranks(every_size, 2, device=other_device)
    for name in OPTIMIZERS:
        test_it_is_the_real_pair_to_the_last_bit(run, 2, name)


@pytest.mark.parametrize("name", OPTIMIZERS)
@pytest.mark.parametrize("size", [1, 2, 3, 4])
def test_it_is_the_real_pair_to_the_last_bit(run, size, name):
    for of_sizes in run.values[:size]:
        trained = of_sizes[size][name]
        assert differences(trained["page"], trained["real"]) == 0


@pytest.mark.parametrize("name", OPTIMIZERS)
@pytest.mark.parametrize("size", [1, 2, 3, 4])
def test_it_is_the_undivided_network_and_without_f_or_g_it_is_not(run, size, name):
    *trace, up, bias, down, last = train(*linears(), OPTIMIZERS[name])
    for rank in range(size):
        own = [*trace, up.chunk(size)[rank], bias.chunk(size)[rank], down.chunk(size, 1)[rank], last]
        trained = run[rank][size][name]
        assert differences(trained["page"], own) < 1e-9
        for fault in SABOTAGE:
            assert (differences(trained[fault], own) > 1e-3) is (size > 1)


@pytest.mark.parametrize("size", [1, 2, 3, 4])
def test_calls_and_bytes(run, size):
    """A step has one all-reduce of the output forward and one of the input's gradient backward."""
    calls = calls_of(run.record, size)
    page_ends = calls.index(("barrier", 0)) if ("barrier", 0) in calls else len(calls)
    formula = [("all_reduce", NBYTES)] * 2 * STEPS if size > 1 else []
    assert calls[:page_ends] == formula
