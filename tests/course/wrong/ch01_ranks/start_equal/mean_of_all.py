# expect: DTL-VALUE-AVERAGED
# says: the mean of all ranks' models

import torch.distributed as dist


def start_equal(model):
    for tensor in model.state_dict().values():
        total = tensor.float()
        dist.all_reduce(total)
        tensor.copy_(total / dist.get_world_size())
