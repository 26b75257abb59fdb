"""The page's loss beside the package's, to the last bit, and beside torch's; without each of its two messages."""

import pytest
import torch
import torch.distributed as dist
import torch.nn.functional as F

import dtlearn
from dtlearn.tensor_parallel import vocabulary_parallel_cross_entropy
from dtlearn.tensor_parallel.page_cross_entropy import sharded_cross_entropy
from tests.devices import run_ranks
from tests.sharing.groups import calls_of, in_groups

B, T, C, V, STEPS = 2, 6, 5, 24, 4
NBYTES = B * T * 8
OPTIMIZERS = {
    "SGD": lambda parameters: torch.optim.SGD(parameters, lr=0.5, momentum=0.9),
    "AdamW": lambda parameters: torch.optim.AdamW(parameters, lr=0.05),
}
SABOTAGE = {"own maximum": dist.ReduceOp.MAX, "own sum and target": dist.ReduceOp.SUM}


def batches():
    generator = torch.Generator().manual_seed(8)
    for step in range(STEPS):
        x = torch.randn(B, T, C, dtype=torch.float64, generator=generator)
        targets = torch.randint(V, (B, T), generator=generator)
        targets[0, : step + 1] = -100  # other numbers count in each step
        yield 10 * x.to(dtlearn.device()), targets.to(dtlearn.device())


def train(loss_of, make_optimizer, size, rank):
    """Losses and logits' gradients of a head without a bias, and this rank's columns of it at the end."""
    whole = torch.randn(V, C, dtype=torch.float64, generator=torch.Generator().manual_seed(9))
    weight = whole.chunk(size)[rank].to(dtlearn.device(), copy=True).requires_grad_()
    optimizer, trace = make_optimizer([weight]), []
    for x, targets in batches():
        logits = x @ weight.T  # (B, T, V/t)
        logits.retain_grad()
        kept = logits.detach().clone()
        loss = 3 * loss_of(logits, targets)  # a gradient that is not 1
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        assert torch.equal(logits, kept)
        trace += [loss.detach(), logits.grad]
    return [*trace, weight.detach()]


def without(op, group, make_optimizer):
    """The page without one of its all-reduces."""
    before = dist.all_reduce
    dist.all_reduce = lambda tensor, op=dist.ReduceOp.SUM, group=None, skip=op: (
        None if op == skip else before(tensor, op, group=group)
    )
    try:
        return train(lambda *given: sharded_cross_entropy(*given, group=group), make_optimizer, *place(group))
    finally:
        dist.all_reduce = before


def place(group):
    return dist.get_world_size(group), dist.get_rank(group)


def every_size():
    torch.manual_seed(dist.get_rank())

    def case(group):
        results = {}
        for name, make_optimizer in OPTIMIZERS.items():
            losses = {"page": sharded_cross_entropy, "real": vocabulary_parallel_cross_entropy}
            results[name] = {}
            for kind, loss_of in losses.items():
                results[name][kind] = train(
                    lambda *given, loss_of=loss_of: loss_of(*given, group=group), make_optimizer, *place(group)
                )
                dist.barrier(group=group)  # where the page's calls end in the record
            results[name] |= {fault: without(op, group, make_optimizer) for fault, op in SABOTAGE.items()}
        large = torch.tensor([[[1e4, -1e4]]], dtype=torch.float64, device=dtlearn.device())
        assert sharded_cross_entropy(large, torch.tensor([[1]], device=large.device), group=group).item() > 1e4
        return results

    return in_groups(case)


@pytest.fixture(scope="module")
def run():
    return run_ranks(every_size, 4, device="cpu", record=True)


def differences(one, other):
    return max((a - b).abs().max().item() for a, b in zip(one, other, strict=True))


def test_it_is_the_packages_loss_on_another_device(other_device):
    run = run_ranks(every_size, 2, device=other_device)
    for name in OPTIMIZERS:
        test_it_is_the_packages_loss_to_the_last_bit(run, 2, name)


@pytest.mark.parametrize("name", OPTIMIZERS)
@pytest.mark.parametrize("size", [1, 2, 3, 4])
def test_it_is_the_packages_loss_to_the_last_bit(run, size, name):
    for rank in range(size):
        trained = run[rank][size][name]
        assert differences(trained["page"], trained["real"]) == 0


@pytest.mark.parametrize("name", OPTIMIZERS)
@pytest.mark.parametrize("size", [1, 2, 3, 4])
def test_it_is_torchs_loss_and_without_a_message_it_is_not(run, size, name):
    def of_whole(logits, targets):
        return F.cross_entropy(logits.flatten(0, -2), targets.flatten())

    trace = train(of_whole, OPTIMIZERS[name], 1, 0)
    *steps, weight = trace
    for rank in range(size):
        own = [x if x.ndim == 0 else x.chunk(size, -1)[rank] for x in steps] + [weight.chunk(size)[rank]]
        trained = run[rank][size][name]
        assert differences(trained["page"], own) < 1e-9
        for fault in SABOTAGE:
            assert (differences(trained[fault], own) > 1e-3) is (size > 1)


@pytest.mark.parametrize("size", [1, 2, 3, 4])
def test_calls_and_bytes(run, size):
    """A step has two all-reduces, of one number for each position and of two; backward sends nothing."""
    calls = calls_of(run.record, size)
    page_ends = [op for op, _ in calls].index("barrier")
    assert calls[:page_ends] == [("all_reduce", NBYTES), ("all_reduce", 2 * NBYTES)] * STEPS
