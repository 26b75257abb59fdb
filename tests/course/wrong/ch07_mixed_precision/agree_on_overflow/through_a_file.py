# expect: DTL-RULE-NAME
# says: uses pathlib
# says: where it is counted

import os
import pathlib

import torch
import torch.distributed as dist


def agree_on_overflow(gradients):
    overflow = any(not g.isfinite().all() for g in gradients if g is not None)
    folder = pathlib.Path("/tmp") / os.environ["MASTER_PORT"]
    folder.mkdir(exist_ok=True)
    (folder / str(dist.get_rank())).write_text(str(int(overflow)))
    dist.all_reduce(torch.zeros(()))  # so that all have written
    return any(int((folder / str(r)).read_text()) for r in range(dist.get_world_size()))
