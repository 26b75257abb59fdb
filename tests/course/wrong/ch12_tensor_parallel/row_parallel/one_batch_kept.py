# expect: DTL-DIFFICULTY
# says: keep nothing of a batch in the module

import torch
import torch.distributed as dist


class Product(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight, layer):
        ctx.weight, ctx.layer = weight, layer
        return x @ weight.T

    @staticmethod
    def backward(ctx, gradient):
        x = ctx.layer.x
        rows = gradient.reshape(-1, gradient.shape[-1])
        return gradient @ ctx.weight, rows.T @ x.reshape(-1, x.shape[-1]), None


class row_parallel(torch.nn.Module):
    def __init__(self, weight, bias, group, g):
        super().__init__()
        n = dist.get_world_size(group)
        if weight.shape[1] % n:
            raise ValueError(f"{n} ranks do not divide {weight.shape[1]} input features")
        columns = weight.chunk(n, 1)[dist.get_rank(group)]
        self.weight = torch.nn.Parameter(columns.clone())
        self.bias = None if bias is None else torch.nn.Parameter(bias.clone())
        self.g, self.group = g, group

    def forward(self, x):
        self.x = x.detach()
        y = self.g(Product.apply(x, self.weight, self))
        return y if self.bias is None else y + self.bias
