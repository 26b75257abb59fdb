"""What the tests of the formulas share: steps of every stage, with their memory and their calls."""

import torch
import torch.distributed as dist

from dtlearn.data_parallel import DistributedDataParallel
from dtlearn.memory import record_step
from dtlearn.models import GPT, GPTConfig, next_token_loss
from dtlearn.models.gpt import Block
from dtlearn.zero import FullyShardedDataParallel, ShardedGradients, ZeroRedundancyOptimizer, plan_flat

STAGES = ("0", "1, averaged", "1, local", "2", "3", "3, prefetch 0", "3, kept", "3, frozen")
CATEGORIES = ("parameters", "gradients", "optimizer state")


def sharded(stage):
    """A model and its optimizer; the partition of its parameters, and the buckets of each unit of stage 3."""
    torch.manual_seed(0)
    blocks = 3 if stage == "3" else 2  # so that prefetching does not gather all there is
    model = GPT(GPTConfig(17, 7, blocks, 1, 5))  # 365 parameters in a block: 3 does not divide them
    if "frozen" in stage:
        next(model.parameters()).requires_grad_(False)
    if stage == "0":
        partition = plan_flat([p.numel() for p in model.parameters()], dist.get_world_size())
        wrapped = DistributedDataParallel(model)
        return wrapped, torch.optim.Adam(wrapped.parameters(), lr=0.01), partition, []
    if stage[0] in "12":
        gradients = "averaged" if "averaged" in stage else "local"
        optimizer = ZeroRedundancyOptimizer(model.parameters(), torch.optim.Adam, gradients=gradients, cap=700, lr=0.01)
        if stage == "2":
            model = ShardedGradients(model, optimizer)
        elif gradients == "averaged":
            model = DistributedDataParallel(model)
        return model, optimizer, optimizer.flat.partition, []
    wrapped = FullyShardedDataParallel(
        model, units=(Block,), reshard_after_forward="kept" not in stage, prefetch=0 if "prefetch 0" in stage else 1
    )
    units = [[bucket.bucket.index for bucket in unit.buckets] for unit in wrapped.units]
    return wrapped, torch.optim.Adam(wrapped.parameters(), lr=0.01), wrapped.partition, units


def trained_in(stage, partition):
    """The numbers of the trained parameters; the first one is the embedding."""
    return range(1 if "frozen" in stage else 0, len(partition.sizes))


def batch():
    tokens = torch.randint(17, (2, 6), generator=torch.Generator().manual_seed(dist.get_rank()))
    return tokens, tokens


def memory(stage):
    """Bytes after backward, by category; the most that was gathered in the forward pass; partition and units."""
    model, optimizer, partition, units = sharded(stage)
    record = record_step(model, optimizer, batch(), next_token_loss)
    forward, backward = (next(p for p in record.phases if p.name == name) for name in ("forward", "backward"))
    after = {name: record.live(name)[backward.stop] for name in CATEGORIES}
    gathered = max(record.live("communication")[forward.start : forward.stop + 1])
    return after, gathered, partition, units


def a_step(model, optimizer, accumulation=1, no_sync=False):
    """One step of the optimizer, between two barriers that mark it in the record."""
    inputs, targets = batch()
    next_token_loss(model(inputs), targets).backward()  # buckets are final, and units' order is known
    optimizer.step()
    optimizer.zero_grad()
    dist.barrier()
    for number in range(accumulation):
        if no_sync and number < accumulation - 1:
            with model.no_sync():
                next_token_loss(model(inputs), targets).backward()
        else:
            next_token_loss(model(inputs), targets).backward()
    optimizer.step()
    dist.barrier()


def calls_between_barriers(record, rank):
    """The calls of each run of `a_step` on a rank, as (operation, bytes of the whole tensor, ranks)."""
    runs, inside = [], False
    for event in record.select(rank=rank):
        if event.op == "barrier":
            inside = not inside
            if inside:
                runs.append([])
        elif inside:
            op = event.op.replace("_into_tensor", "").replace("_tensor", "")
            ranks = record.world_size if event.group == "world" else len(event.group.split(","))
            runs[-1].append((op, event.nbytes * (ranks if op == "all_gather" else 1), ranks))
    return runs
