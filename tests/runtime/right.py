"""Programs that communicate as they should, as text: the watch must find nothing in them.

Each is a cell: it uses `rank`, `world_size`, `torch` and `dist`.
"""

COLLECTIVES = """
t = torch.arange(4.0) + rank
n = world_size
for op in (dist.ReduceOp.SUM, dist.ReduceOp.MAX, dist.ReduceOp.PRODUCT):
    dist.all_reduce(t.clone(), op=op)
dist.broadcast(t, src=n - 1)
dist.reduce(t.clone(), dst=0)
parts = [torch.zeros(4) for _ in range(n)]
dist.all_gather(parts, t)
dist.all_gather_into_tensor(torch.zeros(4 * n), t)
dist.reduce_scatter(torch.zeros(4), [t.clone() for _ in range(n)])
dist.reduce_scatter_tensor(torch.zeros(4), torch.ones(4 * n))
dist.all_to_all_single(torch.zeros(n), torch.arange(float(n)))
dist.gather(t, parts if rank == 0 else None, dst=0)
dist.scatter(torch.zeros(4), [t.clone() for _ in range(n)] if rank == 1 else None, src=1)
dist.barrier()
objects = [None] * n
dist.all_gather_object(objects, {"rank": rank})
dist.broadcast_object_list(objects, src=0)
dist.gather_object(rank, objects if rank == 0 else None, dst=0)
dist.scatter_object_list([None], list(range(n)) if rank == 0 else None, src=0)
work = dist.all_reduce(t, async_op=True)
work.wait()
dist.all_reduce(t, async_op=True).get_future().wait()
"""

UNEVEN = """
n = world_size
out = [rank + 1 + r for r in range(n)]
back = [r + 1 + rank for r in range(n)]
dist.all_to_all_single(torch.zeros(sum(back)), torch.ones(sum(out)), back, out)
if rank == 0:
    import time
    time.sleep(0.05)
dist.barrier()
"""

GROUPS = """
even = dist.new_group(list(range(0, world_size, 2)))
odd = dist.new_group(list(range(1, world_size, 2)))
mine = even if rank % 2 == 0 else odd
for _ in range(5):
    dist.all_reduce(torch.ones(8), group=mine)
    dist.all_reduce(torch.ones(8))
pair = dist.new_group([0, 1])
if rank < 2:
    dist.broadcast(torch.ones(3), src=1, group=pair)
dist.barrier()
"""

THREADS = """
import threading
import time

def reduce_in(group, late):
    time.sleep(0.6 * late)
    for _ in range(3):
        dist.all_reduce(torch.ones(4), group=group)

groups = [dist.new_group(list(range(world_size))) for _ in range(2)]  # ranks use them in another order, in two threads
threads = [threading.Thread(target=reduce_in, args=(group, rank % 2 == k)) for k, group in enumerate(groups)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
"""

RING = """
t = torch.full((1000,), float(rank))
right, left = (rank + 1) % world_size, (rank - 1) % world_size
for step in range(world_size):
    got = torch.empty_like(t)
    works = [dist.isend(t, right), dist.irecv(got, left)]
    for work in works:
        work.wait()
    t = got
ops = [dist.P2POp(dist.isend, t, right), dist.P2POp(dist.irecv, got, left)]
for work in dist.batch_isend_irecv(ops):
    work.wait()
for tag in (1, 2):
    if rank % 2 == 0:
        dist.send(t, right, tag=tag)
        dist.recv(got, left, tag=tag)
    else:
        dist.recv(got, left, tag=tag)
        dist.send(t, right, tag=tag)
"""

DDP = """
torch.manual_seed(rank)
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(8, 8))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(5):
    optimizer.zero_grad()
    model(torch.randn(4, 8)).square().mean().backward()
    optimizer.step()
with model.no_sync():
    model(torch.randn(4, 8)).sum().backward()
"""

FSDP = """
from torch.distributed.fsdp import fully_shard
model = torch.nn.Sequential(*[torch.nn.Linear(8, 8) for _ in range(2)])
for layer in model:
    fully_shard(layer)
fully_shard(model)
for step in range(3):
    model(torch.randn(4, 8)).square().mean().backward()
"""

TENSOR_PARALLEL = """
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
mesh = init_device_mesh("cpu", (world_size,))
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 8))
model = parallelize_module(model, mesh, {"0": ColwiseParallel(), "2": RowwiseParallel()})
for step in range(3):
    model(torch.ones(4, 8)).square().mean().backward()
"""

PIPELINE = """
from torch.distributed.pipelining import PipelineStage, Schedule1F1B
stage = PipelineStage(torch.nn.Linear(8, 8), rank, world_size, torch.device("cpu"))
schedule = Schedule1F1B(stage, 2 * world_size, loss_fn=lambda out, target: (out - target).square().mean())
x = torch.ones(2 * world_size, 8)
for step in range(2):
    if rank == 0:
        schedule.step(x)
    elif rank == world_size - 1:
        schedule.step(target=x)
    else:
        schedule.step()
"""

UNEQUAL_WORK = """
for step in range(20):
    if rank == step % world_size:
        sum(range(200_000))
    dist.all_reduce(torch.ones(100))
"""

RIGHT = {
    "every collective": COLLECTIVES,
    "uneven parts": UNEVEN,
    "sub-groups": GROUPS,
    "a group for each of two threads": THREADS,
    "messages in a ring": RING,
    "DistributedDataParallel": DDP,
    "fully_shard (FSDP2)": FSDP,
    "tensor parallel (DTensor)": TENSOR_PARALLEL,
    "pipeline 1F1B": PIPELINE,
    "unequal work": UNEQUAL_WORK,
}
