"""Gradients travel back the way that tensors came; what needs none does not send any."""

import pytest
import torch
import torch.distributed as dist

from dtlearn.pipeline_parallel.placement.differentiable import receive, send
from dtlearn.runtime.run import run_ranks


def there_and_back():
    """Rank 0 sends x, rank 1 sends 3 x^2 to rank 2, which takes the sum: of it, the gradient of x is 6 x."""
    rank, x = dist.get_rank(), torch.arange(6.0).view(2, 3)
    if rank == 0:
        x.requires_grad_()
        zero = send(x, 1)
        zero.backward()
        return zero.item(), x.grad
    received = receive(rank - 1)
    assert received.requires_grad
    if rank == 1:
        send(3 * received**2, 2).backward()
        return None
    received.sum().backward()
    return received


def not_contiguous():
    if dist.get_rank() == 0:
        x = torch.arange(6.0).view(2, 3).requires_grad_()
        send(x.t(), 1).backward()
        return x.grad
    received = receive(0)
    (received * torch.arange(6.0).view(3, 2)).t().sum().backward()
    return received.detach()


def without_gradients():
    """Whole numbers, a tensor that needs no gradient, and a pass without autograd: nothing is sent back."""
    number, plain, trained = torch.tensor([3]), torch.ones(2), torch.ones(2, requires_grad=True)
    if dist.get_rank() == 0:
        send(number, 1).backward()
        send(plain, 1).backward()
        with torch.no_grad():
            return send(trained, 1).requires_grad
    received = [receive(0), receive(0)]
    with torch.no_grad():
        received.append(receive(0))
    return [(tensor.requires_grad, tensor.tolist()) for tensor in received]


def in_a_group():
    """Ranks are those of the group: its rank 0 is rank 1 of the world."""
    group = dist.new_group([1, 2])
    if dist.get_rank() == 1:
        x = torch.ones(2, requires_grad=True)
        send(x, 1, group=group).backward()
        return x.grad.tolist()
    if dist.get_rank() == 2:
        (receive(0, group=group) * 5).sum().backward()
    return None


@pytest.fixture(scope="module")
def on_three():
    run = run_ranks(lambda: (there_and_back(), in_a_group()), 3, device="cpu", record=True)
    return run


def test_the_gradient_comes_back(on_three):
    (zero, gradient), _, received = (there for there, _ in on_three)
    x = torch.arange(6.0).view(2, 3)
    assert zero == 0 and torch.equal(gradient, 6 * x) and torch.equal(received, 3 * x**2)


def test_ranks_are_those_of_the_group(on_three):
    assert [inside for _, inside in on_three] == [None, [5.0, 5.0], None]


def test_messages_and_bytes_are_as_said(on_three):
    sent = [(e.rank, e.peer, e.nbytes) for e in on_three.record if e.sends and e.group == "world"]
    assert sent == [(0, 1, 88), (0, 1, 24), (1, 2, 88), (1, 2, 24), (1, 0, 24), (2, 1, 24)]


def test_other_tensors():
    run = run_ranks(lambda: (not_contiguous(), without_gradients()), 2, device="cpu", record=True)
    (gradient, zero_requires_grad), (received, told) = run
    assert torch.equal(received, torch.arange(6.0).view(2, 3).t())
    assert torch.equal(gradient, torch.arange(6.0).view(3, 2).t()) and not zero_requires_grad
    assert told == [(False, [3]), (False, [1.0, 1.0]), (False, [1.0, 1.0])]
    assert sum(e.sends for e in run.record.select(rank=1)) == 1  # of all of them, one gradient
