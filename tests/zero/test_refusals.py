"""Optimizers that shards would make another algorithm, and clipping that would find nothing in them."""

import copy
import pickle

import pytest
import torch
from torch import nn

from dtlearn.runtime.run import run_ranks
from dtlearn.zero.refusals import refuse_clipping
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


class Own(nn.Parameter):
    pass


def test_torchs_clipping_is_refused_while_gradients_are_elsewhere():
    layer, is_elsewhere, clip = nn.Linear(2, 2), [True], nn.utils.clip_grad_norm_
    layer.own = Own(torch.ones(1))
    refuse_clipping(layer.parameters(), lambda: is_elsewhere[0])
    for clips in (clip, nn.utils.clip_grad_value_):
        with pytest.raises(RuntimeError, match=r"Call model.clip_grad_norm_\(max_norm\)"):
            clips([layer.bias], 1.0)
    for other in (copy.deepcopy(layer), pickle.loads(pickle.dumps(layer))):
        assert clip(other.parameters(), 1.0) == 0
    assert type(pickle.loads(pickle.dumps(layer)).bias) is nn.Parameter and type(layer.own) is Own
    assert layer.bias.grad is None  # whoever looks may
    is_elsewhere[0] = False
    assert clip(layer.parameters(), 1.0) == 0
    is_elsewhere[0] = True
    layer(torch.ones(3, 2)).sum().backward()
    layer.own.grad = torch.zeros(1)
    assert clip(layer.parameters(), 1.0) > 1  # there are gradients: it is right
    layer.bias.grad = torch.ones(2)
    assert layer.bias.grad.tolist() == [1, 1]
    del layer.bias.grad
    with pytest.raises(RuntimeError, match="in the shards of all ranks"):
        clip(layer.parameters(), 1.0)
