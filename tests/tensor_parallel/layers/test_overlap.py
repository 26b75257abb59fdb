"""The products are those of f and the layers; the reduction is under way while the weights' gradients are computed."""

from types import SimpleNamespace

import torch
import torch.distributed as dist
import torch.nn.functional as F

from dtlearn.mixed_precision import autocast
from dtlearn.tensor_parallel import copy_to_tensor_parallel_region
from dtlearn.tensor_parallel.layers import overlap
from dtlearn.tensor_parallel.layers.gathered_products import gathered_products
from dtlearn.tensor_parallel.layers.overlap import overlapped_products
from tests.devices import run_ranks
from tests.sharing.groups import calls_of, in_groups
from tests.tensor_parallel.parity import difference, tensors


def of_two_layers(products, x, weights, bias, group):
    """Outputs and gradients: of a layer with a bias, and one without whose weight is frozen."""
    x, first, bias = (tensor.clone().requires_grad_() for tensor in (x, weights[0], bias))
    outputs = products(x, (first, bias), (weights[1], None), group=group)
    (outputs[0].sin() * outputs[1]).sum().backward()
    assert weights[1].grad is None
    return [*outputs, x.grad, first.grad, bias.grad]


def plain_products(x, *layers, group):
    x = copy_to_tensor_parallel_region(x, group=group)
    return tuple(F.linear(x, weight, bias) for weight, bias in layers)


def both():
    x, *weights, bias = tensors((2, 3, 4), (5, 4), (5, 4), (5,))
    weights = [weight * (dist.get_rank() + 1) for weight in weights]

    def case(group):
        plain = of_two_layers(plain_products, x, weights, bias, group)
        overlapped = of_two_layers(overlapped_products, x, weights, bias, group)
        largest = max(difference(one, other) for one, other in zip(plain, overlapped, strict=True))
        weight = weights[0].clone().requires_grad_()
        (y,) = overlapped_products(x, (weight, None), group=group)  # nobody wants the gradient of x
        y.sum().backward()
        return largest, difference(weight.grad, x.sum((0, 1)).expand(5, 4))

    return in_groups(case)


def under_autocast():
    """Under torch's autocast and this course's: dtypes of output and gradients, and the difference from autograd's."""
    return max(under(block) for block in (torch.autocast("cpu", torch.bfloat16), autocast("cpu", torch.bfloat16)))


def under(block):
    found = []
    for products in (plain_products, overlapped_products, gathered_products):
        x, weight, bias = (tensor.float().requires_grad_() for tensor in tensors((2, 2, 4), (6, 4), (6,)))
        with block:
            (y,) = products(x, (weight, bias), group=None)
        y.float().sum().backward()
        found.append(({tensor.dtype for tensor in (x.grad, weight.grad, bias.grad)}, y.dtype, x.grad, weight.grad))
    (*of_plain, x_grad, weight_grad), (*of_overlapped, x_same, weight_same), (*of_gathered, _, _) = found
    assert of_plain == of_overlapped == of_gathered == [{torch.float32}, torch.bfloat16]
    return max(difference(x_grad, x_same), difference(weight_grad, weight_same))


def test_under_autocast():
    assert max(run_ranks(under_autocast, 2, device="cpu")) < 0.1  # bfloat16 has 8 bits


def test_parity_on_another_device(other_device):
    for of_sizes in run_ranks(both, 2, device=other_device):
        assert all(max(found) < 1e-12 for found in of_sizes.values())


def test_parity_and_calls():
    run = run_ranks(both, 4, device="cpu", record=True)
    for of_sizes in run:
        assert all(max(found) < 1e-12 for found in of_sizes.values())
    for size in (2, 3, 4):
        assert calls_of(run.record, size) == [("all_reduce", 2 * 3 * 4 * 8)] * 2


def one_backward():
    x, weight, bias = torch.ones(4, 8, 16, requires_grad=True), torch.ones(8, 16, requires_grad=True), torch.ones(8)
    (y,) = overlapped_products(x, (weight, bias))
    y.sum().backward()


class Work:
    def __init__(self, order):
        self.order = order

    def wait(self):
        self.order.append("wait")


def test_the_other_product_is_made_before_the_wait(monkeypatch):
    order = []

    class Noted(torch.Tensor):
        """Notes its products."""

        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            if func.__name__ in ("matmul", "__matmul__", "__rmatmul__"):
                order.append("product")
            return super().__torch_function__(func, types, args, kwargs or {})

    def all_reduce(tensor, group, async_op):
        order.append("all_reduce")
        return Work(order)

    monkeypatch.setattr(overlap, "rank_and_size", lambda group: (0, 2))
    monkeypatch.setattr(overlap.dist, "all_reduce", all_reduce)
    backward = overlap.OverlappedProducts.backward.__wrapped__
    x, weight, gradient = (torch.ones(*shape).as_subclass(Noted) for shape in ((2, 3), (4, 3), (2, 4)))
    kept = SimpleNamespace(saved_tensors=(x, weight), needs_input_grad=(True, False, True, False), group=None)
    backward(kept, gradient)
    assert order == ["product", "all_reduce", "product", "wait"]


def test_the_call_returns_before_it_is_waited_for():
    run = run_ranks(one_backward, 2, device="cpu", record=True)
    for call in run.record.events:
        assert call.op == "all_reduce" and call.asynchronous and call.start_ns < call.wait_ns
