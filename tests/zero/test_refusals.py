"""Optimizers that shards would make another algorithm."""

import torch

from dtlearn.runtime.run import run_ranks
from tests.data_parallel.runs import message_of
from tests.zero.stages.beside_one_process import batch, sharded


def refused():
    model = sharded()
    model(batch()).mean().backward()
    adafactor, lbfgs = torch.optim.Adafactor(model.parameters()), torch.optim.LBFGS(model.parameters())
    others = torch.optim.Adafactor([torch.nn.Parameter(torch.ones(2))])
    return (
        message_of(adafactor.step),
        message_of(lambda: lbfgs.step(lambda: 0.0)),
        message_of(others.step),  # of another model
        message_of(torch.optim.SGD(model.parameters()).step),
    )


def test_they_are_refused_in_their_step():
    matrices, everything, others, right = run_ranks(refused, 2, device="cpu")[0]
    assert "ValueError: Adafactor looks at whole matrices, and a shard may end inside one" in matrices
    assert "ValueError: LBFGS looks at all parameters together" in everything
    assert others == right == ""
