"""The fault table: programs that go wrong between ranks, as text, and what has to be said of each.

Each program is a cell: it uses `rank`, `world_size`, `torch` and `dist`.
"""

import linecache
from dataclasses import dataclass


@dataclass(frozen=True)
class Fault:
    name: str
    code: str  # of the error
    program: str
    says: tuple[str, ...] = ()  # what the message has to hold
    lines: tuple[str, ...] = ()  # what it has to hold if the program begins with line 1
    may_lose: tuple[int, ...] = ()  # ranks whose process this ends
    sizes: tuple[int, ...] = (2, 4)  # numbers of ranks that it shows with
    limit: float = 20.0  # seconds; faults that only a time limit ends have a short one
    never_ends: bool = False  # nothing but a kill ends it, and until then it computes on all ranks


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
        ("rank 0 calls broadcast with root 0",),
        sizes=(2,),
    ),
    Fault(
        "different roots on many ranks",
        "DTL-COLL-ROOT",
        "dist.broadcast(torch.ones(4), src=rank)\n",
        ("ranks 0-3 call broadcast with different roots",),
        sizes=(4,),
    ),
    Fault(
        "splits that do not fit",
        "DTL-COLL-SPLITS",
        "expected = [2] * world_size\nsent = [2] * world_size\nif rank == 1:\n    sent[0] = 3\n"
        "dist.all_to_all_single(torch.zeros(sum(expected)), torch.ones(sum(sent)), expected, sent)\n",
        (
            "rank 1 sends 3 elements to rank 0 (input_split_sizes), which has room for 2 (output_split_sizes)",
            ": dist.all_to_all_single(torch.zeros(sum(expected))",
        ),
        may_lose=(0, 1, 2, 3),
    ),
    Fault(
        "different shapes of a broadcast",
        "DTL-COLL-SHAPE",
        "dist.broadcast(torch.ones(6 if rank == 1 else 4), src=0)\n",
        ("(4,)", "(6,)"),
        may_lose=(0, 1, 2, 3),
    ),
    Fault(
        "all send first",
        "DTL-P2P-CYCLE",
        "t = torch.ones(1 << 20)\ndist.send(t, (rank + 1) % world_size)\ndist.recv(t, (rank - 1) % world_size)\n",
        ("send to each other and nobody receives",),
    ),
    Fault(
        "all receive first",
        "DTL-P2P-NO-SEND",
        "t = torch.ones(4)\ndist.recv(t, (rank - 1) % world_size)\ndist.send(t, (rank + 1) % world_size)\n",
        ("wait to receive and nobody sends",),
    ),
    Fault(
        "wrong tag",
        "DTL-P2P-TAG",
        "t = torch.ones(4)\nif rank == 0:\n    dist.send(t, 1, tag=3)\nelif rank == 1:\n    dist.recv(t, 0, tag=4)\n",
        ("tag 3", "tag 4"),
    ),
    Fault(
        "a message longer than its buffer",
        "DTL-P2P-SIZE",
        "if rank == 0:\n    dist.send(torch.ones(5), 1)\nelif rank == 1:\n    dist.recv(torch.ones(3), 0)\n",
        ("rank 0 sends 20 bytes to rank 1, which has room for 12",),
        may_lose=(0, 1),  # gloo aborts the receiver
    ),
    Fault(
        "a message shorter than its buffer",
        "DTL-P2P-SIZE",
        "if rank == 0:\n    dist.send(torch.ones(3), 1)\nelif rank == 1:\n    dist.recv(torch.ones(5), 0)\n",
        ("rank 0 sends 12 bytes to rank 1, which has room for 20",),
    ),
    Fault(
        "a send that nobody receives",
        "DTL-P2P-UNMATCHED",
        "if rank == 0:\n    dist.send(torch.ones(4), 1)\n",
        ("to 1",),
    ),
    Fault(
        "a receive from another rank than the one that sends",
        "DTL-P2P-UNMATCHED",
        "t = torch.ones(4)\nif rank == 0:\n    dist.send(t, 1)\nelif rank == 1:\n    dist.recv(t, 2)\n",
        ("rank 0 sends to rank 1, rank 1 receives from rank 2",),
        sizes=(4,),
    ),
    Fault(
        "a group made on one rank only, at the end",
        "DTL-COLL-SKIP",
        "if rank == 0:\n    dist.new_group([0, 1])\n",
        ("new_group", "ended without making that call"),
        may_lose=(0,),  # it waits in the store, where nothing reaches it
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
        "work that is never waited for",
        "DTL-ASYNC-WAIT",
        "def step():\n    t = torch.ones(4)\n    dist.all_reduce(t, async_op=True)\n    return t.sum().item()\n\n"
        "step()\n",
        ("never waited for its 1st all_reduce",),
        ("never waited for its 1st all_reduce, line 3",),
    ),
    Fault(
        "a message that is never waited for",
        "DTL-ASYNC-WAIT",
        "t = torch.ones(4)\n"
        "def swap():\n    dist.isend(t, 1)\n\n"
        "if rank == 0:\n    swap()\nif rank == 1:\n    dist.recv(t, 0)\n",
        ("rank 0 never waited for its 1st isend",),  # it arrives, or not, which is the trouble
        ("rank 0 never waited for its 1st isend, line 3",),
    ),
    Fault(
        "slow work of one rank",
        "DTL-STRAGGLER",
        "import time\nif rank == 1:\n    time.sleep(60)\nelse:\n    dist.all_reduce(torch.ones(4))\n",
        ("rank 0 waits in its 1st all_reduce, line ", ": time.sleep(60) without computing"),
        ("rank 0 waits in its 1st all_reduce, line 5", "rank 1 stayed at line 3: time.sleep(60)"),
        limit=1.0,
    ),
    Fault(
        "a loop without an end",
        "DTL-LOOP",
        "if rank == 1:\n    while True:\n        pass\ndist.all_reduce(torch.ones(4))\n",
        ("rank 0 waits in its 1st all_reduce", "rank 1 did not leave the `while` loop at lines "),
        ("rank 1 did not leave the `while` loop at lines 2-3",),
        limit=1.0,
    ),
    Fault(
        "a loop in native code that holds the interpreter",
        "DTL-LOOP",
        "import re\nif rank == 1:\n    re.match(r'(a+)+$', 'a' * 40 + 'b')\ndist.all_reduce(torch.ones(4))\n",
        ("rank 1 did not get past line ", "and computed all the time"),
        ("rank 1 did not get past line 3: re.match(",),
        limit=1.0,
    ),
    Fault(
        "an exception",
        "DTL-RAISED",
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
        "an exception that the others survive and go on from",
        "DTL-RAISED",
        "import time\nif rank == 1:\n    raise ValueError('boom')\n"
        "for _ in range(100):\n    try:\n        dist.all_reduce(torch.ones(4))\n    except RuntimeError:\n"
        "        time.sleep(0.05)\n",
        ("rank 1 raised ValueError: boom",),
    ),
    Fault(
        "a death that the others survive and go on from",
        "DTL-RANK-EXIT",
        "import os, time\nif rank == 1:\n    os._exit(3)\n"
        "for _ in range(100):\n    try:\n        dist.all_reduce(torch.ones(4))\n    except RuntimeError:\n"
        "        time.sleep(0.05)\n",
        ("rank 1 ended (exit code 3)",),
        may_lose=(0, 1, 2, 3),  # those that swallow the interrupt too are ended
    ),
    Fault(
        "calls that do not fit in a loop that swallows every exception",
        "DTL-COLL-SHAPE",
        "while True:\n    try:\n        dist.all_reduce(torch.ones(5 if rank == 1 else 4))\n"
        "    except BaseException:\n        pass\n",
        ("(4,)", "(5,)"),
        may_lose=(0, 1, 2, 3),
        sizes=(2,),
        never_ends=True,
    ),
    Fault(
        "a crash in native code",
        "DTL-RANK-KILLED",
        "import ctypes\nif rank == 1:\n    ctypes.string_at(0)\ndist.barrier()\n",
        ("rank 1", "SIGSEGV"),
        may_lose=(1,),
    ),
    Fault(
        "not enough memory",
        "DTL-OOM",
        "if rank == 1:\n    torch.ones(1 << 50)\ndist.barrier()\n",
        ("rank 1 raised RuntimeError", "rank 0 was waiting in its 1st barrier"),
    ),
    Fault(
        "sys.exit in the middle",
        "DTL-RANK-EXIT",
        "import sys\nif rank == 1:\n    sys.exit(0)\ndist.barrier()\n",
        ("rank 1 raised SystemExit: 0",),
    ),
    Fault(
        "an early exit while nobody waits",
        "DTL-RANK-EXIT",
        "import os\nif rank == 1:\n    os._exit(0)\n",
        ("rank 1", "exit code 0"),
        may_lose=(1,),
    ),
    Fault(
        "a kill",
        "DTL-RANK-KILLED",
        "import os\nif rank == 1:\n    os.kill(os.getpid(), 9)\ndist.barrier()\n",
        ("rank 1", "SIGKILL"),
        may_lose=(1,),
    ),
    Fault(
        "an early exit",
        "DTL-RANK-EXIT",
        "import os\nif rank == 1:\n    os._exit(0)\ndist.barrier()\n",
        ("rank 1", "exit code 0"),
        may_lose=(1,),
    ),
]


def run_program(program):
    import torch
    import torch.distributed as dist

    show_source(program)
    exec(
        compile(program, "fault.py", "exec"),
        {"rank": dist.get_rank(), "world_size": dist.get_world_size(), "torch": torch, "dist": dist},
    )


def show_source(program):
    """What a notebook does with its cells."""
    linecache.cache["fault.py"] = (len(program), None, program.splitlines(keepends=True), "fault.py")
