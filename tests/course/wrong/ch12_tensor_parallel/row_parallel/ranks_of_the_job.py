# expect: DTL-RAISED
# says: dist.get_world_size(group)

import torch
import torch.distributed as dist
import torch.nn.functional as F


class row_parallel(torch.nn.Module):
    def __init__(self, weight, bias, group, g):
        super().__init__()
        num_ranks, size = dist.get_world_size(), weight.shape[1]
        if size % num_ranks:
            raise ValueError(f"{num_ranks} ranks do not divide {size} input features")
        columns = weight.chunk(num_ranks, 1)[dist.get_rank()]
        self.weight = torch.nn.Parameter(columns.clone())
        self.bias = None if bias is None else torch.nn.Parameter(bias.clone())
        self.g = g

    def forward(self, x):
        y = self.g(F.linear(x, self.weight))
        return y if self.bias is None else y + self.bias
