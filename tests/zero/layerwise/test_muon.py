"""Muon with each matrix on one rank: the steps of Muon in one process; its iteration, its cost and its balance."""

import pytest
import torch
from torch import nn

from dtlearn.zero import (
    ZeroRedundancyOptimizer,
    cost_of_ranks,
    newton_schulz,
    newton_schulz_flops,
    plan_flat,
    plan_whole_tensors,
    sharded_muon,
)
from tests.data_parallel.runs import message_of
from tests.devices import run_ranks
from tests.zero.layerwise.runs import Both, in_one_process, matrices, parameters_after_steps, vectors
from tests.zero.stages.runs import distance


def distances():
    """Muon for matrices, AdamW for the others."""
    reference = in_one_process(
        lambda model: Both(torch.optim.Muon(matrices(model), lr=0.02), torch.optim.AdamW(vectors(model), lr=0.01))
    )
    worst = []
    for mode, averages in (("averaged", True), ("local", False)):

        def make(model, mode=mode):
            others = ZeroRedundancyOptimizer(vectors(model), torch.optim.AdamW, gradients=mode, lr=0.01)
            return Both(sharded_muon(matrices(model), gradients=mode, lr=0.02), others)

        worst.append(distance(parameters_after_steps(make, averages), reference))
    return worst


@pytest.mark.parametrize("num_ranks", [1, 2, 3])
def test_parity(num_ranks, device):
    """Rounded to bfloat16 the gradients of one process and of N are the same, but where rounding is a close call."""
    assert max(max(worst) for worst in run_ranks(distances, num_ranks, device=device)) < 1e-10


class Rows(torch.optim.Muon):
    """Orthogonalizes the rows that a rank has, by themselves: what a shard by rows would do."""

    def step(self, closure=None):
        for group in self.param_groups:
            for matrix in group["params"]:
                halves = [nn.Parameter(half.detach().clone()) for half in matrix.chunk(2)]
                for half, gradient in zip(halves, matrix.grad.chunk(2), strict=True):
                    half.grad = gradient
                torch.optim.Muon(halves, lr=group["lr"]).step()
                matrix.data.copy_(torch.cat([half.detach() for half in halves]))


def by_rows():
    def steps(optimizer_class):
        return in_one_process(
            lambda model: Both(optimizer_class(matrices(model), lr=0.02), torch.optim.AdamW(vectors(model), lr=0.01))
        )

    return distance(steps(Rows), steps(torch.optim.Muon))


def test_rows_by_themselves_are_another_update():
    assert run_ranks(by_rows, 1, device="cpu")[0] > 1e-3


def test_newton_schulz_as_torch_does_it():
    torch.manual_seed(0)
    for shape in ((20, 30), (30, 20), (7, 7)):
        weight = nn.Parameter(torch.zeros(shape))
        weight.grad = torch.randn(shape)
        torch.optim.Muon([weight], lr=1.0, momentum=0.0, nesterov=False, adjust_lr_fn="original").step()
        mine = -newton_schulz(weight.grad) * max(1, shape[0] / shape[1]) ** 0.5
        assert (mine - weight).abs().max() < 0.02  # torch's is in bfloat16
        values = torch.linalg.svdvals(newton_schulz(weight.grad.double()))
        before = torch.linalg.svdvals(weight.grad.double()) / weight.grad.double().norm()
        assert values.max() < 1.16 and values.min() > (0.68 if before.min() > 0.005 else 0)
    spread = torch.diag(torch.tensor([1.0, 0.5, 0.1, 0.02, 0.006]).double())  # 0.006 is 0.0053 of the norm
    assert all(0.68 < value < 1.16 for value in torch.linalg.svdvals(newton_schulz(spread)))
    rows = torch.cat([newton_schulz(half) for half in weight.grad.chunk(2)])
    assert torch.linalg.svdvals(rows).max() > 1.3  # orthogonal within each half, and not together


def test_flops():
    """Counted by torch for the products that are written there."""
    from torch.utils.flop_counter import FlopCounterMode

    for shape in ((4, 6), (6, 4), (5, 5)):
        with FlopCounterMode(display=False) as counter:
            newton_schulz(torch.randn(shape))
        assert counter.get_total_flops() == newton_schulz_flops(shape)
    with pytest.raises(
        ValueError, match=r"Muon is for matrices, got a parameter of shape \(3,\): give others to AdamW"
    ):
        newton_schulz_flops((3,))


def test_balanced_by_elements_is_not_balanced_by_flops():
    """A square matrix, and a tall one with as many elements and a fraction of the FLOPs."""
    shapes = [(64, 64), (512, 8), (512, 8), (512, 8)]
    costs = [newton_schulz_flops(shape) for shape in shapes]
    by_elements = plan_whole_tensors([4096] * 4, 2)
    by_flops = plan_whole_tensors([4096] * 4, 2, costs=costs)
    assert sum(cost_of_ranks(by_elements, costs)) == sum(costs) == sum(cost_of_ranks(by_flops, costs))
    assert max(cost_of_ranks(by_flops, costs)) == costs[0] < max(cost_of_ranks(by_elements, costs))
    assert cost_of_ranks(plan_flat([4096] * 4, 4), costs) == costs  # cut between the tensors
    assert cost_of_ranks(plan_flat([4, 4], 4), [8.0, 2.0]) == [4.0, 4.0, 1.0, 1.0]  # and inside


def refused():
    layer = nn.Linear(3, 2)
    return message_of(lambda: sharded_muon(layer.parameters(), lr=0.1))


def test_what_is_no_matrix_is_refused():
    assert "Muon is for matrices, got a parameter of shape (2,)" in run_ranks(refused, 1, device="cpu")[0]
