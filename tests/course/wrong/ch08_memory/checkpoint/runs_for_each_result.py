# expect: DTL-DIFFICULTY
# says: of several results some may not be used
# says: ['runs in backward'][0] should be 1; it is 4

import torch


class Recompute(torch.autograd.Function):
    @staticmethod
    def forward(ctx, function, anchor, *inputs):
        ctx.function = function
        ctx.random_state = torch.get_rng_state()
        ctx.inputs = [None if isinstance(x, torch.Tensor) else x for x in inputs]
        ctx.places = [i for i, x in enumerate(inputs) if isinstance(x, torch.Tensor)]
        ctx.save_for_backward(*(inputs[i] for i in ctx.places))
        return function(*inputs)

    @staticmethod
    def backward(ctx, *gradients):
        inputs = list(ctx.inputs)
        for i, x in zip(ctx.places, ctx.saved_tensors, strict=True):
            inputs[i] = x.detach().requires_grad_(x.requires_grad)
        now = torch.get_rng_state()
        torch.set_rng_state(ctx.random_state)
        with torch.enable_grad():
            results = ctx.function(*inputs)
        torch.set_rng_state(now)
        if not isinstance(results, tuple):
            torch.autograd.backward(results, gradients[0])
        else:
            for i, gradient in enumerate(gradients):
                torch.set_rng_state(ctx.random_state)
                with torch.enable_grad():
                    result = ctx.function(*inputs)[i]
                if result.requires_grad:
                    torch.autograd.backward(result, gradient)
            torch.set_rng_state(now)
        return None, None, *[x.grad if isinstance(x, torch.Tensor) else None for x in inputs]


def checkpoint(function, *inputs):
    anchor = torch.empty(0, requires_grad=True)
    return Recompute.apply(function, anchor, *inputs)
