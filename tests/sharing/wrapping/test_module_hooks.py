"""Where a backward pass enters and leaves a module, in one process."""

import copy
import pickle
from dataclasses import dataclass

import pytest
import torch
from torch import nn

from dtlearn.sharing.wrapping.module_hooks import (
    call_before,
    guard_forward,
    in_backward_pass,
    outputs_to_watch,
    refuse_optimizers_of,
    watch_inputs,
)


def test_backward_has_left_when_every_input_has_its_gradient():
    left, weight = [], nn.Parameter(torch.ones(2))
    weight.register_post_accumulate_grad_hook(lambda _: left.append("weight"))
    x, y = torch.ones(2, requires_grad=True), torch.ones(2, requires_grad=True)
    x2, y2 = x * 2, y * 2
    x2.register_hook(lambda _: left.append("x, with its other use"))
    (inside, plain), kwargs = watch_inputs((x2, 3), {"y": y2}, lambda: left.append("unit"))
    out = inside * weight + kwargs["y"] * inside
    (out + x2).sum().backward()
    assert plain == 3 and left == ["weight", "unit", "x, with its other use"]


def test_inputs_without_gradients_and_in_containers_are_handed_on():
    called, x = [], torch.ones(2, requires_grad=True) * 1
    numbers, nest = torch.arange(3), [x]
    inputs, kwargs = watch_inputs((numbers, nest), {"flag": True}, lambda: called.append(1))
    assert inputs[0] is numbers and inputs[1] is nest and kwargs == {"flag": True}
    inputs[1][0].sum().backward()
    assert not called


def test_an_input_may_be_changed_in_place():
    x = torch.tensor([-1.0, 2.0], requires_grad=True)
    (inside,), _ = watch_inputs((x * 1,), {}, lambda: None)
    (torch.relu_(inside) * 3).sum().backward()
    assert x.grad.tolist() == [0, 3]


@dataclass
class Outputs:
    logits: torch.Tensor


class Opaque:
    pass


def test_outputs_are_found_or_refused():
    y = torch.ones(2, requires_grad=True) * 1
    assert all(len(outputs_to_watch(out, "block")) == 1 for out in (y, [y], {"y": (y, 3)}, Outputs(y)))
    assert all(outputs_to_watch(out, "block") == [] for out in (None, 3, torch.ones(2), (), Outputs(torch.ones(2))))
    with pytest.raises(TypeError, match="block returned a Opaque, in which no tensor can be found"):
        outputs_to_watch(Opaque(), "block")


def test_a_backward_pass_is_seen_from_inside():
    seen, x = [in_backward_pass()], torch.ones(1, requires_grad=True)
    x.register_hook(lambda _: seen.append(in_backward_pass()))
    x.sum().backward()
    assert [*seen, in_backward_pass()] == [False, True, False]


def test_an_optimizer_of_old_parameters_is_refused():
    old, new = nn.Parameter(torch.ones(1)), nn.Parameter(torch.ones(1))
    optimizer = torch.optim.SGD([{"params": [new]}, {"params": [old]}], lr=1.0)
    handle = refuse_optimizers_of([old])
    with pytest.raises(RuntimeError, match="this optimizer was built before the model was sharded"):
        optimizer.step()
    torch.optim.SGD([new], lr=1.0).step()
    handle.remove()
    optimizer.step()


@pytest.mark.parametrize("make_copy", [copy.deepcopy, lambda module: pickle.loads(pickle.dumps(module))])
def test_a_copy_of_a_guarded_module_computes_with_its_own_weights(make_copy):
    checked, layer, x = [], nn.Linear(2, 2), torch.ones(1, 2)
    guard_forward(layer, checked.append)
    guard_forward(layer, checked.append)  # in place of the first
    assert layer.forward(x).equal(layer(x)) and checked == [layer, layer]
    twin = make_copy(layer)
    before = twin(x)
    with torch.no_grad():
        layer.weight.zero_()
    assert twin(x).equal(before) and not twin(x).equal(layer(x)) and checked == [layer] * 3


def test_another_method_can_be_preceded():
    layer = nn.Linear(2, 2)
    layer(torch.ones(1, 2)).sum().backward()
    call_before(layer, "zero_grad", lambda module: module.weight.grad.fill_(5.0))
    layer.zero_grad(set_to_none=False)
    assert layer.weight.grad.eq(0).all()
