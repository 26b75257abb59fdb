"""Process groups that carry tensors of the stand-in: gloo's, which look like NCCL's to who sends through them."""

from __future__ import annotations

import functools

import torch
import torch.distributed as dist

from tests.stand_in import rules
from tests.stand_in.tensor import NAME, StandInTensor


def adapt() -> None:
    """For all groups of this process, those that are made later too."""
    # What collectives of objects send is on the device, as with NCCL.
    dist.distributed_c10d._get_object_coll_device = lambda group=None: f"{NAME}:0"
    of_device, get_future = dist.ProcessGroup._get_backend, dist.Work.get_future

    def get_backend(group, device):
        return of_device(group, torch.device("cpu") if torch.device(device).type == NAME else device)

    def future_of_ours(work):
        return get_future(work).then(lambda done: _wrapped(done.value()))

    make = dist.distributed_c10d.new_group

    @functools.wraps(make)
    def new_group(ranks=None, timeout=None, backend=None, *args, **options):
        group = make(ranks, timeout, backend, *args, **options)
        if backend == "gloo" and isinstance(group, dist.ProcessGroup):  # else this rank is not in it
            rules.of_gloo.add(group.group_name)
        return group

    dist.new_group = dist.distributed_c10d.new_group = new_group
    dist.ProcessGroup._get_backend, dist.Work.get_future = get_backend, future_of_ours


def _wrapped(value):
    """gloo's work ends with the tensors inside."""
    if isinstance(value, list | tuple):
        return type(value)(map(_wrapped, value))
    return StandInTensor(value) if isinstance(value, torch.Tensor) else value
