# expect: DTL-RULE-MESSAGES
# says: none are needed

import torch
import torch.distributed as dist
import torch.nn.functional as F


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
        dist.barrier(self.group)
        y = self.g(F.linear(x, self.weight))
        return y if self.bias is None else y + self.bias
