"""The pair as it stands on a slide: one network by hand, beside the undivided one; and its two calls."""

import torch
import torch.distributed as dist
import torch.nn.functional as F

from dtlearn.runtime.run import run_ranks
from dtlearn.tensor_parallel.layers.functional import column_parallel_linear, row_parallel_linear
from tests.sharing.groups import calls_of, in_groups
from tests.tensor_parallel.parity import difference, part, tensors


def network():
    x, W, b, V, c, gradient = tensors((2, 3, 4), (12, 4), (12,), (4, 12), (4,), (2, 3, 4))
    whole = [tensor.clone().requires_grad_() for tensor in (x, W, b, V, c)]
    y = F.linear(F.gelu(F.linear(*whole[:3])), *whole[3:])
    y.backward(gradient)
    dims = (None, 0, 0, 1, None)

    def case(group):
        local = [
            part(tensor.detach(), dim, group).clone().requires_grad_() for tensor, dim in zip(whole, dims, strict=True)
        ]
        hidden = column_parallel_linear(*local[:3], group=group)
        assert hidden.shape == (2, 3, 12 // dist.get_world_size(group))
        out = row_parallel_linear(F.gelu(hidden), *local[3:], group=group)
        out.backward(gradient)
        pairs = zip(local, whole, dims, strict=True)
        found = [difference(own.grad, part(tensor.grad, dim, group)) for own, tensor, dim in pairs]
        without = row_parallel_linear(hidden.detach(), local[3].detach(), group=group)
        assert torch.allclose(without + c, row_parallel_linear(hidden.detach(), local[3].detach(), c, group=group))
        return [difference(out, y), *found]

    return in_groups(case)


def test_parity_and_calls():
    run = run_ranks(network, 4, device="cpu", record=True)
    for of_sizes in run:
        assert max(max(found) for found in of_sizes.values()) < 1e-12
    for size in (2, 3, 4):
        assert calls_of(run.record, size)[:2] == [("all_reduce", 2 * 3 * 4 * 8)] * 2  # g, and f in backward
