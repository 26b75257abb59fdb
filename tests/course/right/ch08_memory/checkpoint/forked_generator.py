import torch
from torch.autograd.graph import get_gradient_edge


class Recompute(torch.autograd.Function):
    @staticmethod
    def forward(ctx, run, anchor, *tensors):
        ctx.run, ctx.state = run, torch.get_rng_state()
        ctx.save_for_backward(*tensors)
        return run(tensors)

    @staticmethod
    def backward(ctx, *gradients):
        inputs = [x.detach() for x in ctx.saved_tensors]
        for x, needed in zip(inputs, ctx.needs_input_grad[2:], strict=True):
            x.requires_grad_(needed)
        with torch.random.fork_rng(devices=[]), torch.enable_grad():
            torch.set_rng_state(ctx.state)
            results = ctx.run(inputs)
        if torch.is_tensor(results):
            results = (results,)
        edges = [get_gradient_edge(r) for r in results if r.requires_grad]
        gradients = [g for r, g in zip(results, gradients, strict=True) if r.requires_grad]
        del results
        torch.autograd.backward(edges, gradients)
        return None, None, *(x.grad for x in inputs)


def checkpoint(function, *inputs):
    is_tensor = [torch.is_tensor(x) for x in inputs]
    rest = [None if yes else x for x, yes in zip(inputs, is_tensor, strict=True)]

    def run(tensors):
        left = iter(tensors)
        return function(*(next(left) if yes else x for x, yes in zip(rest, is_tensor, strict=True)))

    anchor = torch.zeros(1, requires_grad=True)
    return Recompute.apply(run, anchor, *(x for x, yes in zip(inputs, is_tensor, strict=True) if yes))
