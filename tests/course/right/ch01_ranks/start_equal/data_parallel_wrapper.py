from torch.nn.parallel import DistributedDataParallel as DDP


def start_equal(model):
    DDP(model)
