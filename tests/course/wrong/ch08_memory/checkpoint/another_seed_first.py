# expect: DTL-DIFFICULTY
# says: the first run draws the random numbers of a run without a checkpoint

import torch


class Recompute(torch.autograd.Function):
    @staticmethod
    def forward(ctx, function, anchor, *inputs):
        ctx.function, ctx.inputs = function, inputs
        with torch.random.fork_rng():
            torch.manual_seed(0)
            return function(*inputs)

    @staticmethod
    def backward(ctx, *gradients):
        inputs = [x.detach().requires_grad_(x.requires_grad) if torch.is_tensor(x) else x for x in ctx.inputs]
        with torch.random.fork_rng(), torch.enable_grad():
            torch.manual_seed(0)
            results = ctx.function(*inputs)
        results = results if isinstance(results, tuple) else (results,)
        needed = [(r, g) for r, g in zip(results, gradients, strict=True) if r.requires_grad]
        torch.autograd.backward(*zip(*needed, strict=True))
        return None, None, *(x.grad if torch.is_tensor(x) else None for x in inputs)


def checkpoint(function, *inputs):
    return Recompute.apply(function, torch.empty(0, requires_grad=True), *inputs)
