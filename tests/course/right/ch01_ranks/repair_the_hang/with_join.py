import torch
import torch.distributed as dist
from torch.distributed.algorithms.join import Join, Joinable, JoinHook


class Hook(JoinHook):
    def __init__(self, adder):
        self.adder = adder

    def main_hook(self):
        zero = torch.zeros(())
        dist.all_reduce(zero)
        self.adder.sums.append(zero.item())


class Adder(Joinable):
    def __init__(self):
        super().__init__()
        self.sums = []

    def __call__(self, total):
        Join.notify_join_context(self)
        dist.all_reduce(total)
        self.sums.append(total.item())

    def join_hook(self, **kwargs):
        return Hook(self)

    @property
    def join_device(self):
        return torch.device("cpu")

    @property
    def join_process_group(self):
        return dist.group.WORLD


def repair_the_hang(batches):
    adder = Adder()
    with Join([adder]):
        for b in batches:
            adder(b.sum())
    return adder.sums
