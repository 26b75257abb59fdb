# expect: DTL-RAISED
# says: can only save variables

import torch


class Recompute(torch.autograd.Function):
    @staticmethod
    def forward(ctx, function, anchor, *inputs):
        ctx.function = function
        ctx.random_state = torch.get_rng_state()
        ctx.save_for_backward(*inputs)
        return function(*inputs)

    @staticmethod
    def backward(ctx, *gradients):
        inputs = [x.detach().requires_grad_(x.requires_grad) for x in ctx.saved_tensors]
        now = torch.get_rng_state()
        torch.set_rng_state(ctx.random_state)
        with torch.enable_grad():
            results = ctx.function(*inputs)
        torch.set_rng_state(now)
        results = results if isinstance(results, tuple) else (results,)
        needed = [(r, g) for r, g in zip(results, gradients, strict=True) if r.requires_grad]
        torch.autograd.backward(*zip(*needed, strict=True))
        return None, None, *[x.grad for x in inputs]


def checkpoint(function, *inputs):
    anchor = torch.empty(0, requires_grad=True)
    return Recompute.apply(function, anchor, *inputs)
