"""A divided layer beside the undivided one: outputs, gradients of the input, gradients of each rank's parameters."""

import torch

import dtlearn
from dtlearn.sharing.shards import rank_and_size, shard
from dtlearn.tensor_parallel import reduce_sequence_parallel_gradients
from dtlearn.tensor_parallel.layers.parameters import split_dims


def part(tensor, dim, group):
    return tensor if dim is None else shard(tensor, dim, group=group)


def reference(module, x, gradient):
    """Output of the undivided module, gradient of its input, and of its parameters by name."""
    x = x.clone().requires_grad_()
    module.zero_grad()
    out = module(x)
    out.backward(gradient)
    return out.detach(), x.grad, {name: parameter.grad.clone() for name, parameter in module.named_parameters()}


def errors(layer, x, gradient, expected, group, *, x_dim=None, out_dim=None, names=None, reduce=True):
    """The largest differences from the undivided module: in the output, and in the gradients of input and parameters.

    `x_dim`, `out_dim`: the dims along which input and output are divided. `names`: the undivided parameter's name, by
    the layer's.
    """
    out, of_x, of_parameters = expected
    inside = part(x, x_dim, group).clone().requires_grad_()
    layer.zero_grad()
    y = layer(inside)
    y.backward(part(gradient, out_dim, group))
    if reduce and rank_and_size(group)[1] > 1:
        reduce_sequence_parallel_gradients(layer, group=group)
    dims = split_dims(layer)
    found = {"output": difference(y, part(out, out_dim, group))}
    found["input"] = difference(inside.grad, part(of_x, x_dim, group))
    for name, parameter in layer.named_parameters():
        whole = of_parameters[names[name] if names else name]
        found[name] = difference(parameter.grad, part(whole, dims[name], group))
    return found


def difference(one, other):
    assert one.shape == other.shape, (one.shape, other.shape)
    return (one - other).abs().max().item()


def tensors(*shapes):
    """Tensors in float64, the same on all ranks, on their device."""
    generator = torch.Generator().manual_seed(7)
    drawn = (torch.randn(*shape, dtype=torch.float64, generator=generator) for shape in shapes)
    return [tensor.to(dtlearn.device()) for tensor in drawn]
