# expect: DTL-VALUE-SUMMED
# says: the sum of all ranks' models
import torch.distributed as dist


def start_equal(model):
    for t in model.state_dict().values():
        dist.all_reduce(t)
