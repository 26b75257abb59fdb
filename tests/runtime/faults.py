"""The fault table: programs that go wrong between ranks, as text, and what has to be said of each.

Each program is a cell: it uses `rank`, `world_size`, `torch` and `dist`.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class Fault:
    name: str
    code: str  # of the diagnosis; "" where the error is an exception or a death, not a diagnosis
    program: str
    says: tuple[str, ...] = ()  # what the message has to hold
    may_lose: tuple[int, ...] = ()  # ranks whose process this ends


FAULTS = [
    Fault(
        "skips the last call",
        "DTL-COLL-SKIP",
        "t = torch.ones(4)\ndist.all_reduce(t)\nif rank != 1:\n    dist.all_reduce(t)\n",
        ("rank 1 ended without making that call", "all_reduce #2", "dist.all_reduce(t)"),
    ),
    Fault(
        "skips a middle call of the same shape",
        "DTL-COLL-SKIP",
        "t = torch.ones(4)\ndist.all_reduce(t)\nif rank != 1:\n    dist.all_reduce(t)\ndist.all_reduce(t)\n",
        (
            "rank 1 ended without making that call",
            "all_reduce #3",
            "Already the 2nd all_reduce came from different lines",
        ),
    ),
    Fault(
        "skips, then a barrier",
        "DTL-COLL-ORDER",
        "if rank != 1:\n    dist.all_reduce(torch.ones(4))\ndist.barrier()\n",
        ("all_reduce #1", "barrier #1"),
    ),
    Fault(
        "different shapes",
        "DTL-COLL-SHAPE",
        "dist.all_reduce(torch.ones(5 if rank == 1 else 4))\n",
        ("(4,)", "(5,)"),
        may_lose=(0, 1, 2, 3),  # gloo aborts processes that receive more than they expect
    ),
    Fault(
        "same size, other shape",
        "DTL-COLL-SHAPE",
        "dist.all_reduce(torch.ones(3, 2) if rank == 1 else torch.ones(2, 3))\n",
        ("(2, 3)", "(3, 2)"),
    ),
    Fault(
        "different dtypes",
        "DTL-COLL-DTYPE",
        "dist.all_reduce(torch.ones(4, dtype=torch.int32 if rank == 1 else torch.float32))\n",
        ("int32", "float32"),
    ),
    Fault(
        "different reductions",
        "DTL-COLL-OP",
        "dist.all_reduce(torch.ones(4), op=dist.ReduceOp.MAX if rank == 1 else dist.ReduceOp.SUM)\n",
        ("MAX", "SUM"),
    ),
    Fault(
        "different operations",
        "DTL-COLL-ORDER",
        "t = torch.ones(4)\nif rank == 1:\n    dist.broadcast(t, src=0)\nelse:\n    dist.all_reduce(t)\n",
        ("broadcast #1", "all_reduce #1"),
    ),
    Fault(
        "different roots",
        "DTL-COLL-ROOT",
        "dist.broadcast(torch.ones(4), src=rank)\n",
        ("different roots",),
    ),
    Fault(
        "all send first",
        "DTL-P2P-CYCLE",
        "t = torch.ones(1 << 20)\ndist.send(t, (rank + 1) % world_size)\ndist.recv(t, (rank - 1) % world_size)\n",
        ("send to each other and nobody receives",),
    ),
    Fault(
        "all receive first",
        "DTL-P2P-CYCLE",
        "t = torch.ones(4)\ndist.recv(t, (rank - 1) % world_size)\ndist.send(t, (rank + 1) % world_size)\n",
        ("wait to receive and nobody sends",),
    ),
    Fault(
        "wrong tag",
        "DTL-P2P-UNMATCHED",
        "t = torch.ones(4)\nif rank == 0:\n    dist.send(t, 1, tag=3)\nelif rank == 1:\n    dist.recv(t, 0, tag=4)\n",
        ("tag 3", "tag 4"),
    ),
    Fault(
        "a send that nobody receives",
        "DTL-P2P-UNMATCHED",
        "if rank == 0:\n    dist.send(torch.ones(4), 1)\n",
        ("to 1",),
    ),
    Fault(
        "a group made on one rank only",
        "DTL-COLL-ORDER",
        "if rank == 0:\n    dist.new_group([0])\ndist.all_reduce(torch.ones(4))\n",
        ("new_group #1", "all_reduce #1"),
    ),
    Fault(
        "a backward pass that one rank does not make",
        "DTL-COLL-SKIP",
        "model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 4))\n"
        "loss = model(torch.ones(2, 4)).sum()\n"
        "if rank != 1:\n    loss.backward()\n",
        ("rank 1 ended without making that call", "loss.backward()"),
    ),
    Fault(
        "a wait for a call that one rank never issues",
        "DTL-COLL-SKIP",
        "if rank != 1:\n    work = dist.all_reduce(torch.ones(4), async_op=True)\n    work.wait()\n",
        ("rank 1 ended without making that call",),
    ),
    Fault(
        "groups in different orders",
        "DTL-COLL-GROUPS",
        "a, b = dist.new_group([0, 1]), dist.new_group([0, 1])\n"
        "t = torch.ones(4)\n"
        "if rank < 2:\n    for group in [a, b] if rank == 0 else [b, a]:\n        dist.all_reduce(t, group=group)\n",
        ("group 0,1",),
    ),
    Fault(
        "an exception",
        "",
        "if rank == 1:\n    raise ValueError('boom')\ndist.all_reduce(torch.ones(4))\n",
        ("rank 1 raised ValueError: boom", "rank 0 was waiting in its 1st all_reduce"),
    ),
    Fault(
        "an exception, then a barrier in finally",
        "DTL-COLL-ORDER",  # the barrier hides the exception: what can be seen is that the calls do not fit
        "try:\n    if rank == 1:\n        raise ValueError('boom')\n    dist.all_reduce(torch.ones(4))\n"
        "finally:\n    dist.barrier()\n",
        ("all_reduce #1", "barrier #1"),
    ),
    Fault(
        "a kill",
        "",
        "import os\nif rank == 1:\n    os.kill(os.getpid(), 9)\ndist.barrier()\n",
        ("rank 1", "SIGKILL"),
        (1,),
    ),
    Fault(
        "an early exit",
        "",
        "import os\nif rank == 1:\n    os._exit(0)\ndist.barrier()\n",
        ("rank 1", "exit code 0"),
        (1,),
    ),
]
