"""A step at a part of the learning rate, also where groups have rates of their own."""

import torch

from dtlearn.parameter_server.scaled_step import step_at


def test_every_group_steps_at_its_part_and_keeps_its_rate():
    a, b = (torch.nn.Parameter(torch.zeros(1)) for _ in range(2))
    optimizer = torch.optim.SGD([{"params": [a], "lr": 1.0}, {"params": [b], "lr": 8.0}])
    a.grad, b.grad = torch.ones(1), torch.ones(1)
    step_at(optimizer, 0.25)
    assert (a.item(), b.item()) == (-0.25, -2.0)
    assert [group["lr"] for group in optimizer.param_groups] == [1.0, 8.0] and a.grad is None
