"""`run_ranks` for tests that take a device: the CPU, the stand-in of `tests.stand_in`, or GPUs.

    from tests.devices import run_ranks

    def test_it_is_the_single_process_run(device):
        run_ranks(parity, 2, device=device)

What runs on the ranks asks `dtlearn.device()`, as ever. `tests/conftest.py` says which devices a run of pytest takes.
"""

import functools
import os

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils._pytree import tree_map_only

import dtlearn
from dtlearn.runtime.device import DEVICE_VARIABLE
from dtlearn.runtime.run import run_ranks as plain

STAND_IN = "stand_in"


def run_ranks(fn, world_size, *args, device="auto", **options):
    """`dtlearn.run_ranks`, for one more device. Tensors that come back are on the CPU, from every device."""
    if device == STAND_IN:
        fn, device = functools.partial(on_stand_in, fn), "cpu"
    return plain(fn, world_size, *args, device=device, **options)


def on_stand_in(fn, *args):
    """Call `fn` in a process, a rank, whose device is the stand-in from now on."""
    from tests.stand_in.backend import set_up

    os.environ[DEVICE_VARIABLE] = str(set_up())
    return fn(*args)


class TorchOnCpu(DistributedDataParallel):
    """PyTorch's DistributedDataParallel of a model on the stand-in: moved to the CPU, where its C++ finds memory.

    Inputs come from the device and outputs go back to it, so whoever trains it sees no difference.
    """

    def __init__(self, module, process_group=None, **options):
        ranks = tuple(dist.get_process_group_ranks(process_group or dist.group.WORLD))
        super().__init__(module.cpu(), process_group=group_on_cpu(ranks), **options)

    def forward(self, *inputs):
        outputs = super().forward(*tree_map_only(torch.Tensor, torch.Tensor.cpu, inputs))
        return tree_map_only(torch.Tensor, lambda tensor: tensor.to(dtlearn.device()), outputs)

    def register_comm_hook(self, state, hook):
        super().register_comm_hook(self.process_group if state is None else state, hook)


@functools.cache
def group_on_cpu(ranks):
    """A group of gloo's own, which takes tensors of the CPU whatever the device of the ranks is."""
    return dist.new_group(ranks, backend="gloo", use_local_synchronization=True)


def torch_ddp(module, process_group=None, **options):
    """PyTorch's DistributedDataParallel, of a model on this rank's device."""
    wrap = DistributedDataParallel if dtlearn.device().type in ("cpu", "cuda") else TorchOnCpu
    return wrap(module, process_group=process_group, **options)
