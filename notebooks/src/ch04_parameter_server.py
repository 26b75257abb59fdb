# %% [markdown]
# # Chapter 4. The parameter server
#
# **The question.** What if one place keeps the weights?
#
# Builds on: chapters 2 and 3. Ranks: 4; one cell of "Further" uses 8. Time: 76 minutes for the core path; the sections
# of "Further" in any order, when you need them.
#
# | core path | what | minutes |
# |---|---|---|
# | 1. One place for the weights | a naive server, and the bytes on its link | 9 |
# | 2. Pull, push, version | the synchronous step | 2, and exercise 1: 27 |
# | 3. Who waits for whom | staleness, and a bound | 7, and exercise 2: 10 |
# | 4. The page | a server in 80 lines | 8 |
# | 5. The real server, measured | three rules, one straggler | 6 |
# | 6. Break it | a worker that ends early | 2 |
# | 7. The arithmetic | one server, S servers, a ring | 5 |
#
# After it you have written a server's step and the gate that keeps fast workers near slow ones. You can say what the
# staleness of a gradient is, and when an all-reduce is the better choice.

# %% jupyter={"source_hidden": true}
# %load_ext dtlearn
import torch

import dtlearn
from dtlearn import parameter_server as ps
from dtlearn.viz import rank_table, show

torch.set_num_threads(1)  # small tensors: more threads would only wait for each other
world = dtlearn.world(4)
world

# %% [markdown]
# # The core path
#
# ## 1. One place for the weights
#
# With DDP every rank has a copy of the parameters and of the optimizer's state. They average their gradients with an
# all-reduce, and make the same step four times.
#
# There is an older way, which trained the first models of billions of parameters (DistBelief: Dean et al. 2012; Li et
# al. 2014, OSDI). One rank **keeps** the parameters and the optimizer. The others only compute: they
# **pull** the parameters, compute a gradient on samples of their own, and **push** it. The keeper is a **parameter
# server**, the others are **workers**. (Behind one server, worker 0 is rank 1.)
#
# | | rank 0, the server | ranks 1, 2 and 3, the workers |
# |---|---|---|
# | pull | sends its parameters to each of the three | receive them |
# | compute | has nothing to do | forward and backward on their own samples |
# | push | receives three gradients | send theirs |
# | update | steps with the mean of the three | have nothing to do |
#
# Let Ψ be the bytes of the parameters; a gradient has as many.

# %%
hot = dtlearn.predict(
    "A model of 26,122 parameters in fp32, one server and three workers. How many bytes go through "
    "the server's link in one step, sent and received together?",
    unit="bytes",
    id="ch04.hot",
)

# %% [markdown]
# The naive server, on real ranks. The parameters are one vector, `flat`. `gradient_at` (in the folded cell) computes
# the gradient of a rank's part of a batch of images, as a vector too. `--record naive` keeps what the ranks send;
# `-r 0` runs a cell on rank 0 only.

# %% jupyter={"source_hidden": true}
# %%ranks --setup
import time

import torch.nn.functional as F
from torch.nn.utils import parameters_to_vector, vector_to_parameters

from dtlearn import parameter_server as ps
from dtlearn.models import MLP, load_digits

batches = list(load_digits().batches(12, 96))


def fresh_model():
    torch.manual_seed(0)
    return MLP().to(device)


def my_part(number, worker, num_workers):
    """A worker's part of a batch."""
    return tuple(t[worker::num_workers].to(device) for t in batches[number])


def gradient_at(flat, number, worker=rank - 1, num_workers=world_size - 1):
    """The gradient of a worker's part of a batch, at these parameters."""
    model = fresh_model()
    vector_to_parameters(flat, model.parameters())
    x, y = my_part(number, worker, num_workers)
    F.cross_entropy(model(x), y).backward()
    return parameters_to_vector([p.grad for p in model.parameters()])


# %%
# %%ranks --record naive
flat = parameters_to_vector(fresh_model().parameters()).detach()
for number in range(2):
    if rank == 0:
        for worker in (1, 2, 3):
            dist.send(flat, worker)
        gradients = [torch.empty_like(flat) for _ in range(3)]
        for worker in (1, 2, 3):
            dist.recv(gradients[worker - 1], worker)
        flat -= 0.1 * torch.stack(gradients).mean(0)
    else:
        dist.recv(flat, 0)
        dist.send(gradient_at(flat, number), 0)

# %%
# %%ranks -r 0
alone = parameters_to_vector(fresh_model().parameters()).detach()
for number in range(2):
    alone -= 0.1 * gradient_at(alone, number, worker=0, num_workers=1)
print("as one process with the whole batch:", (flat - alone).abs().max().item() < 1e-6)

# %% [markdown]
# It is data parallelism: the mean of three gradients is the gradient of the whole batch. What differs is who carries
# the bytes. Beside it, chapter 2's ring all-reduce of as many elements:

# %%
# %%ranks --record ring
from dtlearn.collectives import all_reduce

all_reduce(torch.zeros(26_122, device=device))

# %% jupyter={"source_hidden": true}
from dtlearn.viz import bytes_on_links, link_bytes

SIZE = 4 * 26_122
links = {
    "1 server, 3 workers": bytes_on_links(naive, steps=2),
    "ring all-reduce": bytes_on_links(ring),
}
one_server = [t.nbytes for t in ps.server_traffic([SIZE], 3)]
show(
    link_bytes(
        links,
        {"1 server, 3 workers": 1, "ring all-reduce": 0},
        {
            "1 server, 3 workers": one_server,
            "ring all-reduce": [t.nbytes for t in ps.ring_traffic(SIZE, 4)],
        },
        title="One link carries what all the others carry together",
        label="recorded: one step of 26,122 parameters on 4 ranks",
    ),
    alt="Two panels with a bar for each of four ranks. With one server its bar is 0.63 MB, half sent and half "
    "received; each worker's is 0.21 MB. In the ring all four bars are 0.31 MB. All lie on the formula's marks.",
)
hot.reveal(sum(links["1 server, 3 workers"][0]))

# %% [markdown]
# The server's link is the **hot link**: it grows with the number of workers, while a ring's links do not.
#
# The naive server has two more faults. It talks to the workers **in a fixed order**: a worker that is done early waits
# for its turn, and one that never comes stops all. And it knows only one rhythm, the slowest worker's.
#
# ## 2. Pull, push, version
#
# A real server does not count on an order. It waits for the next **message**, whoever sends it:
#
# - a **pull**: the worker asks for parameters. The answer says which **version** they are: how many updates there were.
# - a **push**: a gradient, and the version that it was computed from.
# - **done**: nobody needs to wait for this worker any longer.
#
# The optimizer's state lives on the server only. A worker has parameters, which the next pull overwrites, and a
# gradient. So Adam's moments exist once, and not N times.
#
# In a **synchronous** step the server waits for one push of every worker, and applies their mean as one update. As in
# chapter 3, the mean has to be weighted when workers have different numbers of samples:
#
# | worker | samples | gradient | weight in the mean |
# |---|---|---|---|
# | 0 | 30 | 2.0 | 30/40 |
# | 1 | 10 | 6.0 | 10/40 |
# | the server steps with | 40 | 3.0 | (not 4.0) |

# %% [markdown]
# **Exercise 1.** One synchronous step of a server and its workers.

# %% exercise="ch04.server_step"

# %% [markdown]
# ## 3. Who waits for whom
#
# A synchronous step lasts as long as its slowest worker, the **straggler**.

# %%
waits = dtlearn.predict(
    "Three workers, messages take no time. Two of them compute a gradient in 1 s, the third always needs 3 s. What share of "
    "its time does a fast worker wait, in percent, if steps are synchronous?",
    unit="%",
    id="ch04.waits",
)

# %% [markdown]
# The other extreme is **asynchronous**: the server applies each push as it arrives, alone, and answers each pull at
# once. Nobody waits. But look at a gradient on its way, on two workers:
#
# | the server | version | worker 0 | worker 1 |
# |---|---|---|---|
# | answers both pulls | 0 | has version 0 | has version 0 |
# | applies worker 0's push | 1 | pulls version 1 | still computes |
# | applies worker 0's push | 2 | pulls version 2 | still computes |
# | applies worker 1's push | 3 | | computed at version 0: two updates came between |
#
# Those two are the **staleness** of worker 1's gradient: the updates that were applied between its pull and its own
# update. It is counted in updates, not in steps of the worker. A stale gradient points downhill from where the
# parameters *were*.

# %%
stale = dtlearn.predict(
    "Four workers of equal speed, asynchronous, for a long time. What staleness does a gradient have on average?",
    unit="updates",
    id="ch04.stale",
)

# %% jupyter={"source_hidden": true}
from functools import partial
from random import Random

from dtlearn.models import MLP, load_digits

digits = load_digits()
SIZES = (64, 32, 10)


def fresh(seed=0):
    torch.manual_seed(seed)
    return MLP(SIZES)


def compute_for(num_workers, steps):
    """What each worker computes with its part, 24 images, of each batch."""
    whole = list(digits.batches(steps, 24 * num_workers))
    parts = [
        [(x[w::num_workers], y[w::num_workers]) for x, y in whole]
        for w in range(num_workers)
    ]
    return ps.computing(fresh(), torch.nn.functional.cross_entropy, parts)


def test_loss(parameters):
    with torch.no_grad():
        outputs = torch.func.functional_call(fresh(), dict(parameters), (digits.test_x,))
        return torch.nn.functional.cross_entropy(outputs, digits.test_y).item()


def under_clock(rule, timing, num_workers=4, steps=60, lr=0.1, **options):
    """A run under the virtual clock; `steps`: of every worker, or a list of each one's."""
    initial = {name: p.detach() for name, p in fresh().named_parameters()}
    pushes = steps if isinstance(steps, list) else [steps] * num_workers
    compute = compute_for(num_workers, max(pushes))
    sgd = partial(torch.optim.SGD, lr=lr)
    return ps.simulate(rule, pushes, initial, sgd, compute, timing, **options)


def mean_staleness(log):
    applied = [entry.staleness for entry in log if entry.applied is not None]
    return sum(applied) / len(applied)


def hiccups(worker, number):
    """One step in ten takes five times as long."""
    return 0.5 if Random(f"{worker} {number}").random() < 0.1 else 0.1


EVEN = ps.Timing(ps.jittered(mean=0.1, spread=0.1))
SLOW = ps.Timing(
    ps.jittered(mean=0.1, spread=0.1, slow={3: 3.0})
)  # worker 3 takes three times as long
steady = under_clock(ps.Asynchronous(), EVEN, steps=20)
two_fast = ps.Timing(lambda worker, number: 3.0 if worker == 2 else 1.0)
clocked = under_clock(ps.Synchronous(), two_fast, num_workers=3, steps=4)
busy = sum(
    s.end - s.start for s in clocked.stretches if s.worker == 0 and s.kind == "compute"
)
waits.reveal(round(100 * (1 - busy / clocked.seconds)))
stale.reveal(round(mean_staleness(steady.log), 1), workers=4)

# %% [markdown]
# Both answers were computed under a **virtual clock**: the server's own rules, with real gradients, but with computing
# times that are given. It is the same run every time (more in Further).
#
# Between the extremes lies **bounded staleness**, SSP (stale synchronous parallel, Ho et al. 2013). A worker's
# **clock** is a count, not a time: its steps whose push has arrived. A worker may run ahead of the slowest one by at
# most $s$ steps. With $s = 1$:
#
# | clocks of workers 0, 1, 2 | who wants to start its next step | may it? |
# |---|---|---|
# | 0, 0, 0 | all | yes |
# | 1, 0, 0 | worker 0 its second step | yes: one ahead |
# | 2, 1, 0 | worker 0 its third step | no, it waits; worker 1 may |
# | 2, 1, 1 | worker 0 again | yes |
# | 2, 1, gone | worker 0 its third step | yes: who has left is not waited for |
#
# The server applies pushes as they arrive; only with $s = 0$ does it apply those of a step together, as one update: the
# synchronous step.

# %% [markdown]
# **Exercise 2.** The gate of bounded staleness.

# %% exercise="ch04.may_start"

# %% [markdown]
# The gate is half of the work: the server also remembers who waits, and asks again after each push and each departure
# (Further, "The gate on a page").
#
# ## 4. The page
#
# Here is a server that does both, synchronous and asynchronous. A thread for each worker
# listens, because any of them may be the next to speak; but one thread alone changes the parameters, so that no pull
# gets half of an update (a **torn read**). A worker whose push waits for the others' gets no answer yet. And the loop
# ends when every worker has said that it is done. To fit a page it takes equal numbers of samples, and
# notes itself which version each worker (here the rank) pulled.

# %%
from dtlearn.parameter_server import page_parameter_server

dtlearn.show_source(page_parameter_server)

# %% [markdown]
# ## 5. The real server, measured
#
# The package's `ParameterServer` adds any rule of consistency, a log of all pushes, several servers, and checks of what
# comes. In the setup `by_range` places the parameters on servers, a `Shard` is one server's part with its optimizer,
# and `train_request_response` is the worker's loop: pull, compute, push. Rank 0 serves; worker 0 is three times as slow
# as the two others. (It sleeps: 120 ms in place of 40.) With `-o _` the logs are not shown.


# %%
# %%ranks --setup
def train(rule, steps=10, optimizer=torch.optim.SGD, lr=0.1):
    """On the server: its log, and the parameters. On a worker: nothing."""
    model = fresh_model()
    parameters = dict(model.named_parameters())
    placement = ps.by_range(ps.shapes_of(parameters), 1)
    channels = ps.open_channels(1, placement)  # agrees with all ranks on who serves
    if rank == 0:
        shard = ps.Shard(placement.pieces(0, parameters), lambda p: optimizer(p, lr=lr))
        return ps.ParameterServer(channels, shard, rule).serve(), shard.flat
    worker = ps.Worker(channels, parameters, placement)
    ps.train_request_response(
        worker, lambda number: compute(model, worker, number), steps
    )
    worker.close()


def compute(model, worker, number):
    worker.zero_grad()
    x, y = my_part(number, rank - 1, 3)
    loss = F.cross_entropy(model(x), y)
    time.sleep(0.12 if rank == 1 else 0.04)
    loss.backward()
    return len(x)


# %%
# %%ranks --record together -o _
train(ps.Synchronous())

# %%
# %%ranks --record bounded -o _
train(ps.BoundedStaleness(2))

# %%
# %%ranks --record alone_each -o asynchronous
served = train(ps.Asynchronous())
served

# %% tags=["nbval-ignore-output"] jupyter={"source_hidden": true}
from dtlearn.viz import computing_in, worker_timeline

show(
    worker_timeline(
        {
            "synchronous": computing_in(together, 1),
            "at most 2 steps apart": computing_in(bounded, 1),
            "asynchronous": computing_in(alone_each, 1),
        },
        until=0.4,
        slow=0,
        label="recorded: one server and three workers; computing is slept; waits: of all workers' time",
    ),
    alt="Three panels with a lane for each of three workers, bars numbered by step. Synchronous: workers 1 and 2 "
    "compute a third of the time and wait for worker 0 after each step. At most 2 steps apart: they run ahead at "
    "first, then wait. Asynchronous: they compute nearly all the time, three steps in each of worker 0's.",
)

# %% tags=["nbval-ignore-output"]
log, _ = asynchronous[0]
print(f"staleness: {mean_staleness(log):.1f}, at most {max(e.staleness for e in log)}")
log[-1]

# %% [markdown]
# Of the last push, the log says which worker's it was, from which version it was computed (`pulled`), with how many
# samples (`weight`), and in which version it is (`applied`). The slow worker's pushes are the stalest while the others
# train: theirs were applied while it computed. The mean is below N - 1 = 2 only because the slow worker trains alone at
# the end.
#
# Synchronous, this server computes what DDP computes, with Adam too (Further, "Beside DDP").

# %% [markdown]
# ## 6. Break it
#
# Back to the naive server, with uneven data: rank 3 has one batch less than the server believes. (`--expect
# deadlock`: the cell has to fail so.)

# %%
# %%ranks --expect deadlock
for number in range(3 if rank == 3 else 4):
    if rank == 0:
        for worker in (1, 2, 3):
            dist.send(flat, worker)
        for worker in (1, 2, 3):
            dist.recv(gradients[worker - 1], worker)
    else:
        dist.recv(flat, 0)
        dist.send(gradient_at(flat, number), 0)

# %% [markdown]
# The watch names the call that waits and the rank that will never answer it. The server above cannot hang so: each
# worker says **done**, and a step no longer waits for it. A worker that dies without a word is noticed by its closed
# connection (Further, "Faults").
#
# ## 7. The arithmetic
#
# Ψ bytes of parameters, N workers, S servers that share the parameters evenly. What goes through a link in a step, both
# ways together:
#
# | | bytes | 64 workers, Ψ = 16 GB |
# |---|---|---|
# | a worker: pull Ψ, push Ψ | $2Ψ$ | 32 GB |
# | the only server | $2NΨ$ | 2,048 GB |
# | one of S servers | $2NΨ/S$ | 256 GB with 8 |
# | each rank of a ring all-reduce, sent and received | $2 \cdot 2(N-1)/N \cdot Ψ$ | 63 GB |
#
# More servers cool the link.

# %%
even = dtlearn.predict.choice(
    "64 workers, every link carries 50 GB/s each way. The servers are machines of their own, and send one piece of the "
    "parameters while they receive the next one's gradients; a ring, too, sends and receives at once. With how many servers "
    "is a step's communication as fast as the ring's?",
    {"A": "1", "B": "8", "C": "about 32", "D": "never: a ring sends less"},
    id="ch04.even",
)

# %% jupyter={"source_hidden": true}
PSI, N, BANDWIDTH = 16 * 10**9, 64, 50e9
seconds = {
    f"{s} server{'s' * (s > 1)}": ps.least_seconds(
        ps.server_traffic([PSI // s] * s, N), BANDWIDTH, overlap=True
    )
    for s in (1, 8, 32, 64)
} | {"ring": ps.least_seconds(ps.ring_traffic(PSI, N), BANDWIDTH, overlap=True)}
even.reveal(**{name.replace(" ", "_"): value for name, value in seconds.items()})

# %% [markdown]
# So a server is not slower in itself. What beats the ring is added links: with 64 extra machines the step takes half
# its time. BytePS (Jiang et al. 2020, OSDI) uses spare machines without GPUs so. Servers may also stand on the
# **workers' own machines**: with S = N each link then sends and receives $2(N-1)/N \cdot Ψ$, exactly the ring's bytes,
# and no machine is added. ("Placement" in Further records one, two and four servers.)
#
# **When to use it.** Dense model, equal machines, one job: an all-reduce, which needs no second program. A server is
# right where its strengths count: workers need only **a part** of the parameters (huge embedding tables), or **leave**,
# or differ in speed. Synchronous, it computes what DDP computes; asynchronous, it computes something else.
#
# No later core path needs more than this.

# %% [markdown]
# # Further
#
# Each section stands alone, after what its first line names. In a new session run the first code cell, the cells of
# sections 1 and 3, and those of what is needed.
#
# | section | question | minutes | exercise |
# |---|---|---|---|
# | A push that is out of date | how large a step should it make? | 1 | 3: 16 |
# | The gate on a page | who remembers the workers that wait? | 4 | |
# | Beside DDP | does a server with Adam compute the same? | 2 | |
# | Placement | who keeps what? | 4 | 4: 10 |
# | The pipelined protocol | can a pull hide behind computing? | 4 | |
# | Backup workers | can the slowest be ignored? | 3 | |
# | Stragglers, staleness and loss | what wins, by samples and by seconds? | 6 | |
# | Sparse rows | a table that no worker could hold | 6 | 5: 35 |
# | Faults | what is lost when a rank dies? | 8 | |
# | The virtual clock, and replay | can an asynchronous run be repeated? | 3 | |
# | Without a server | gossip between neighbours | 5 | |
# | torch's own way | the same in `torch.distributed.rpc` | 4 | |
# | Find three bugs | which mistakes did real servers have? | | 6: 25 |
# | Today | when is a server right, and on GPUs? | 2 | |
# | Myths, and questions to check yourself | | 3 | |

# %% [markdown]
# ## A push that is out of date
#
# *Needs: section 3.* An asynchronous server applies each push as it arrives, and the updates between a worker's pull
# and its push are the staleness of its gradient. The gradient points downhill from where the parameters were, so a
# natural answer is a smaller step. A learning rate divided by the staleness is the rule of Zhang et al. (2016, arXiv
# 1511.05950); the exercise divides by one plus the staleness, so that a fresh gradient has the whole rate and every
# missed update counts. (What such a rule is worth: "Stragglers, staleness and loss".)

# %% [markdown]
# **Exercise 3.** An asynchronous update that knows its staleness.

# %% exercise="ch04.stale_update"

# %% [markdown]
# ## The gate on a page
#
# *Needs: section 3, with exercise 2.* Exercise 2 answers one worker. A server also has to remember who waits: any push
# or departure may open the gate for others. As a page:

# %%
from dtlearn.parameter_server import page_ssp

dtlearn.show_source(page_ssp)

# %% [markdown]
# How stale can a gradient be behind this gate? The bound $s$ counts steps, and staleness counts updates. A worker with
# the clock $c$ begins a step only if every other one's clock is at least $c - s$. While it computes, its clock stays
# $c$, so another worker may begin a step with the clock $c + s$ at most, which takes it to $c + s + 1$. That makes at
# most $2s + 1$ updates of each of the $N - 1$ others: a gradient misses at most $(N-1)(2s+1)$ updates.
#
# ## Beside DDP
#
# *Needs: section 5.* Is the synchronous server right? Three steps of Adam, whose state is on the server, beside
# torch's DDP on the three workers, each with an Adam of its own. They agree if no parameter differs by more than a
# tenth of a step:

# %%
# %%ranks -o beside
from torch.nn.parallel import DistributedDataParallel as DDP

workers = dist.new_group([1, 2, 3])  # every rank takes part in making it
served_by = train(ps.Synchronous(), 3, torch.optim.Adam, 1e-3)
if rank > 0:
    ddp = DDP(fresh_model(), process_group=workers)
    optimizer = torch.optim.Adam(ddp.parameters(), lr=1e-3)
    for number in range(3):
        optimizer.zero_grad()
        x, y = my_part(number, rank - 1, 3)
        F.cross_entropy(ddp(x), y).backward()
        optimizer.step()
served_by[1] if rank == 0 else parameters_to_vector(ddp.parameters()).detach()

# %% jupyter={"source_hidden": true}
print("server and DDP agree:", (beside[0] - beside[1]).abs().max().item() < 1e-4)

# %% [markdown]
# ## Placement
#
# *Needs: section 7.* More servers cool the link. In section 7 that was a formula; here is a recorded step of four
# workers with one, two and four servers, beside the ring. (The folded cell also has `on_servers`, a run of servers and
# workers, and `step_of`, a worker's gradient; "The pipelined protocol" and "Faults" use them.)

# %% jupyter={"source_hidden": true}
import time


def on_servers(num_servers, sizes, loop=ps.train_request_response, rule=None, steps=1):
    """On ranks: servers and workers. A server's log."""
    rank, model = torch.distributed.get_rank(), MLP(sizes)
    parameters = dict(model.named_parameters())
    placement = ps.by_range(ps.shapes_of(parameters), num_servers)
    channels = ps.open_channels(num_servers, placement)
    if rank < num_servers:
        pieces = placement.pieces(rank, parameters)
        shard = ps.Shard(pieces, lambda p: torch.optim.SGD(p, lr=0.01))
        return ps.ParameterServer(channels, shard, rule or ps.Synchronous()).serve()
    worker = ps.Worker(channels, parameters, placement)
    loop(worker, lambda number: step_of(model, worker), steps)
    worker.close()


def step_of(model, worker):
    worker.zero_grad()
    loss = model(torch.ones(4, 64)).square().mean()
    time.sleep(0.03)  # so that a step takes as long everywhere
    loss.backward()
    return 4


ways = {"ring": (0, links["ring all-reduce"], ps.ring_traffic(SIZE, 4))}
for s in (4, 2, 1):  # on the CPU: few machines have GPUs for eight ranks
    work = s, (64, 128, 128, 10)
    record = dtlearn.run_ranks(on_servers, 4 + s, *work, device="cpu", record=True).record
    traffic = ps.server_traffic([SIZE // s] * s, 4)
    ways = {f"{s} server{'s' * (s > 1)}": (s, bytes_on_links(record), traffic)} | ways
show(
    link_bytes(
        {name: on_links for name, (_, on_links, _) in ways.items()},
        {name: number for name, (number, _, _) in ways.items()},
        {name: [t.nbytes for t in traffic] for name, (*_, traffic) in ways.items()},
        title="As many servers as workers have cooler links than a ring",
        label="recorded: one step of four workers, 26,122 parameters in fp32",
    ),
    alt="Four panels of bars by rank. With one server its bar is 0.84 MB, each worker's 0.21. With two servers each has "
    "0.42 MB, with four 0.21 MB, as much as a worker. In a ring each of four ranks has 0.31 MB.",
)

# %% [markdown]
# Each server keeps a part of the parameters, its **shard**, and has versions of its own. An asynchronous pull may get
# version 7 of one shard with version 8 of another; within a shard nothing is torn.
# (Synchronous steps have one version everywhere. DistBelief accepts mixed versions; Hogwild, Niu et al. 2011, with
# threads and no lock, accepts torn reads too.) Three ways to divide, as data that every rank computes alike:

# %%
from dtlearn.models import GPT, GPTConfig

shapes = ps.shapes_of(dict(GPT(GPTConfig(num_layers=1)).named_parameters()))
placements = {
    "by_range": ps.by_range(shapes, 3),
    "by_hash": ps.by_hash(shapes, 3),
    "balanced": ps.balanced(shapes, 3),
}

# %% jupyter={"source_hidden": true}
from dtlearn.viz import server_placement

loads = {name: placement.bytes_per_server(4) for name, placement in placements.items()}
show(
    server_placement(placements, label="a GPT with one block, fp32, on three servers"),
    alt="; ".join(
        f"{name}: servers 0 to 2 keep {', '.join(f'{n / 1e3:.0f}' for n in of_way)} kB"
        for name, of_way in loads.items()
    ),
)

# %% [markdown]
# `by_range` cuts tensors, so all links are equal; the optimizer has to work element by element, as SGD and Adam do, and
# to clip by the global norm the servers have to sum their squares.
# `by_hash` needs no table at all, and its balance is luck. `balanced` keeps tensors whole, the largest first, each to
# the server that has least. (It is at most a third over the best division: Graham 1969.) The fullest server's link
# sets the pace.

# %% [markdown]
# **Exercise 4.** Place keys on servers.

# %% exercise="ch04.place_keys"

# %% [markdown]
# ## The pipelined protocol
#
# *Needs: sections 3 and 5, and the folded cell of "Placement".* So far a worker asks, waits, computes and pushes:
# **request and response**. The **pipelined** protocol asks for the next step's parameters *before* it computes this
# step. They travel meanwhile.

# %%
dtlearn.show_source(ps.train_pipelined, docstring=False)

# %%
price = dtlearn.predict.choice(
    "What is the price?",
    {
        "A": "more bytes: some pulls are for nothing",
        "B": "each gradient is staler by one update, the worker's own last one",
        "C": "each gradient is staler by a whole round: an update of every worker",
        "D": "none: the same parameters, only earlier",
    },
    id="ch04.price",
)

# %% jupyter={"source_hidden": true}
from dtlearn.viz import computing_under_clock, worker_timeline

timing = ps.Timing(lambda worker, number: 0.03, transfer=0.012, latency=1e-3)
clocked = {
    name: under_clock(ps.Asynchronous(), timing, 2, 8, pipelined=name == "pipelined")
    for name in ("request-response", "pipelined")
}
show(
    worker_timeline(
        {name: computing_under_clock(run.stretches) for name, run in clocked.items()},
        title="A pull that travels while the worker computes",
        label="virtual clock: two workers, 8 steps of 30 ms; a message takes 12 ms and 1 ms of latency",
    ),
    alt="Two panels of two workers. Request-response: after each step of 30 ms a worker waits 26 ms, and the two have "
    "done 8 steps when the pipelined run ends. Pipelined: no waits after the first pull, 16 steps in the same time.",
)
price.reveal()

# %% [markdown]
# That was the virtual clock. On real ranks, with a link of 1 ms and 50 MB/s emulated on the processor (it holds back
# messages of gloo), where a pull or push of 0.6 MB takes those 12 ms (a busy machine adds to both):

# %% tags=["nbval-ignore-output"]
link = dtlearn.Link(latency=1e-3, bandwidth=50e6)
for loop in (ps.train_request_response, ps.train_pipelined):
    work = 1, (64, 256, 512, 10), loop, ps.Asynchronous(), 8
    run = dtlearn.run_ranks(on_servers, 3, *work, device="cpu", record=True, link=link)
    seconds = max(step.end for step in computing_in(run.record, 1))
    print(f"{loop.__name__}: {seconds:.2f} s, staleness {mean_staleness(run[0]):.1f}")

# %% [markdown]
# Under the synchronous rule nothing is gained: the answer has to wait for the push.
#
# ## Backup workers
#
# *Needs: section 3.* Stragglers are often not one slow machine, but one slow *step* here or there. Chen et al. (2016,
# arXiv 1604.00981) start a few workers more than are needed and do not wait for the slowest pushes of a step; these
# are dropped when they come. Twenty updates of eight gradients each, under the virtual clock; of all steps one in ten
# takes five times as long (`hiccups`, in the folded cell of section 3):

# %%
rows = []
for backup in range(4):
    run = under_clock(
        ps.Synchronous(backup), ps.Timing(hiccups), 8 + backup, 20, evaluate=lambda p: 0.0
    )
    counted = [i for i, entry in enumerate(run.log) if entry.applied == 20][-1] + 1
    dropped = sum(entry.applied is None for entry in run.log[:counted])
    rows.append(
        {
            "workers": 8 + backup,
            "ms per update": f"{1e3 * run.versions[20].seconds / 20:.0f}",
            "gradients per update": (counted - dropped) // 20,
            "dropped": f"{dropped / counted:.0%}",
        }
    )
rank_table(rows, caption="The first 20 synchronous updates, each of eight gradients")

# %% [markdown]
# A few backups take most of the wait away, at the price of work that is thrown away. Every update is fresh: nothing is
# stale. (So Chen et al. had synchronous training converge faster than asynchronous, and to better accuracy.) But if it
# is always the *same* worker that is late, its data are never seen.
#
# ## Stragglers, staleness and loss
#
# *Needs: section 3.* Four workers, of whose steps one in ten takes five times as long, under three rules:

# %% jupyter={"source_hidden": true}
from dtlearn.viz import computing_under_clock, worker_timeline

rules = {
    "synchronous": ps.Synchronous(),
    "at most 2 steps apart": ps.BoundedStaleness(2),
    "asynchronous": ps.Asynchronous(),
}
jerky = {
    name: under_clock(rule, ps.Timing(hiccups), steps=20) for name, rule in rules.items()
}
show(
    worker_timeline(
        {name: computing_under_clock(run.stretches) for name, run in jerky.items()},
        until=2.4,
        title="Now and then a step is slow",
        label="virtual clock: four workers, one step in ten takes 0.5 s in place of 0.1 s",
    ),
    alt="Three panels of four workers. Synchronous: after each slow step of anybody all have waited. At most two steps "
    "apart: short waits only. Asynchronous: no waits. The headings say how many steps were done until 2.4 s.",
)

# %%
permanent = dtlearn.predict.choice(
    "Now it is always the same worker that is slow, three times as slow as the others, which have a bound of 2 steps. In "
    "the long run, how many steps do the fast workers do, compared with synchronous steps?",
    {
        "A": "as many: they are held to its pace",
        "B": "twice as many",
        "C": "three times as many: nobody waits",
    },
    id="ch04.permanent",
)

# %% jupyter={"source_hidden": true}
RATES = {"synchronous": 0.4, "at most 2 steps apart": 0.1, "asynchronous": 0.1}
PUSHES = {"asynchronous": [72, 72, 72, 24]}  # each worker as many as it can; else 60 each
race = {
    name: under_clock(
        rule, SLOW, 4, PUSHES.get(name, 60), RATES[name], evaluate=test_loss
    )
    for name, rule in rules.items()
}
permanent.reveal(
    synchronous=race["synchronous"].seconds, bounded=race["at most 2 steps apart"].seconds
)

# %% [markdown]
# What does it do to the loss? Four workers with the slow one, 240 batches of 24 images: 60 each, and in the
# asynchronous run as many as each can, 72 and 24. A synchronous update has four batches, so its learning rate is four
# times as large (chapter 3):

# %% jupyter={"source_hidden": true}
from dtlearn.viz import loss_over_time

show(
    loss_over_time(
        {name: run.versions for name, run in race.items()},
        samples={name: 24 * (4 if name == "synchronous" else 1) for name in race},
        target=0.5,
        label="virtual clock: four workers, one of them three times as slow; loss on test images",
    ),
    alt="Two plots of test loss, on a log scale, for three runs. Over samples the three curves lie nearly on each "
    "other, from 2.3 to about 0.42. Over seconds the asynchronous run reaches 0.5 first, at 6.4 s; the bounded one "
    "and the synchronous one need about 15 and 16 s.",
)
from dtlearn.viz import staleness_histogram

show(
    staleness_histogram(
        {name: run.log for name, run in race.items()},
        label="the same runs; a synchronous gradient is always fresh",
    ),
    alt="Three histograms of staleness. Synchronous: all at 0. At most 2 steps apart: mostly 0 to 3, some more. "
    "Asynchronous: mostly 2 and 3, and a small hill at 8 to 10, the slow worker's pushes.",
)

# %% [markdown]
# 2.5 times as fast, and staleness costs little here, since the learning rate is small. (The price: a fast worker's data
# count three times as much as the slow one's.) The mean staleness is 3 = N - 1 again, though the speeds differ: with
# each update the N - 1 other gradients that are under way grow staler by one. With eight workers and a rate of 0.4 it
# costs all:

# %%
for name, num_workers, lr, factor in (
    ("the same rate for all", 8, 0.4, None),
    ("divided by the staleness", 8, 0.4, ps.divided_by_staleness),
    ("a constant 0.4 / 7", 8, 0.4 / 7, None),
    ("one worker, nothing stale", 1, 0.4, None),
):
    run = under_clock(
        ps.Asynchronous(), EVEN, num_workers, 320 // num_workers, lr, lr_factor=factor
    )
    print(f"{name}: loss {test_loss(run.parameters):.2f}")

# %% [markdown]
# 2.3 is the loss of guessing. These workers are equal, so the rule is hardly more than a constant rate of 0.4 / 7; and
# on as many batches one worker gets farther than either. Two things to remember: an asynchronous learning rate has to
# shrink about as the staleness grows; and asynchrony acts like additional momentum (Mitliagkas et al. 2016, arXiv
# 1605.09774), so that a momentum which was right for one worker is too large for many. (`divided_by_staleness` is the
# paper's rule, 1 / max(1, staleness): a gradient that missed one update still has the whole rate. Exercise 3 divides by
# 1 + staleness.)
#
# ## Sparse rows
#
# *Needs: sections 2 and 5.* A recommendation model has an **embedding table** of millions of rows, and a batch uses a
# few hundred of them. DDP would average a gradient that is nearly all zeros, and each rank would hold the whole table.
# With a server a worker pulls only the rows of its batch, and pushes gradients for only those.

# %%
sparse = dtlearn.predict(
    "A table of 1,000,000 rows of 64 numbers, fp32. A batch uses 1,000 different rows. A row's number takes 8 bytes and is sent "
    "with the pull and with the push. How many bytes travel for the table in a step, to and from this worker?",
    unit="bytes",
    id="ch04.sparse",
)

# %% [markdown]
# Two servers keep the rows, 128 MB each: row r is at server r mod 2. A batch has repeats, so each row is pulled once,
# and autograd adds up what comes back to it. The small layer on top is dense.

# %%
# %%ranks --record lookups -o looked_up
ROWS, WIDTH, SERVERS = 1_000_000, 64, 2
torch.manual_seed(0)
layer = torch.nn.Linear(WIDTH, 2).to(device)
dense = dict(layer.named_parameters())
placement, table = (
    ps.by_range(ps.shapes_of(dense), SERVERS),
    ps.RowPlacement(ROWS, WIDTH, SERVERS),
)
channels = ps.open_channels(SERVERS, (placement, table))
if rank < SERVERS:
    rows = ps.RowTable(
        torch.zeros(table.rows_of(rank), WIDTH, device=device),
        lambda p: ps.RowwiseAdagrad(p, lr=0.1),
    )
    shard = ps.Shard(
        placement.pieces(rank, dense), lambda p: torch.optim.SGD(p, lr=0.1), rows
    )
    ps.ParameterServer(channels, shard, ps.Synchronous()).serve()
else:
    worker = ps.Worker(channels, dense, placement, table)
    torch.manual_seed(rank)
    ids = torch.randperm(ROWS, device=device)[:1000].repeat(2).view(250, 8)  # (B, L)
    losses, targets = [], torch.ones(250, device=device).long()
    for _ in range(5):
        unique, where = ids.unique(return_inverse=True)  # (k,), (B, L)
        pulled = worker.pull(unique)
        loss = F.cross_entropy(layer(pulled.values[where].mean(1)), targets)
        worker.zero_grad()
        loss.backward()
        worker.push(pulled, 250)
        losses.append(loss.item())
    worker.close()
losses if rank >= SERVERS else None

# %% jupyter={"source_hidden": true}
sizes = [e.nbytes for e in lookups.select(rank=2) if e.is_p2p]
dense_bytes = 5 * 2 * 4 * (64 * 2 + 2)
headers = ps.HEADER_BYTES * (5 * 3 * 2 + 2)
sparse.reveal((sum(sizes) - dense_bytes - headers) / 5, largest=max(sizes))
print(
    f"the largest message of a worker: {max(sizes):,} bytes; the table: {4 * 64 * 10**6:,} bytes"
)
print("the loss falls on every worker:", all(own[-1] < own[0] for own in looked_up[2:]))

# %% [markdown]
# The bytes follow the batch, not the table, and no worker ever had the table. The server's optimizer, too, touches
# only rows that have a gradient. `RowwiseAdagrad` keeps one number for each row, as Mudigere et al. (2022, arXiv
# 2104.05158) do, who need no server: the table lies on the workers' GPUs, and an all-to-all carries the rows.

# %% [markdown]
# **Exercise 5.** Pull and push the rows of a batch.

# %% exercise="ch04.sparse_rows"

# %% [markdown]
# ## Faults
#
# *Needs: section 5, and the folded cell of "Placement".* Ranks are killed now, with SIGKILL. First an all-reduce job
# with three ranks, then a server with two workers:


# %%
def all_reduce_job(rank, start, folder):
    ps.join_world(rank, 3, folder, 0)
    for number in range(6):
        die(rank == 2 and number == 2)
        torch.distributed.all_reduce(torch.ones(1))


def server_job(rank, start, folder):
    """One server and two workers, six synchronous steps. Rank 2, a worker, dies in its third."""
    channels, placement, model = meet(rank, folder, 0)
    if rank == 0:
        server = serving(channels, placement, model)
        server.serve()
        return f"version {server.progress.version}, lost workers {list(server.lost)}"
    worker = ps.Worker(channels, dict(model.named_parameters()), placement)
    for number in range(6):
        pulled = worker.pull()
        die(rank == 2 and number == 2)
        worker.push(pulled, step_of(model, worker))
    worker.close()
    return "six steps done"


# %% jupyter={"source_hidden": true}
import os
import signal
import tempfile
from pathlib import Path


def die(now):
    if now:
        os.kill(os.getpid(), signal.SIGKILL)


def meet(rank, folder, world):
    """Join the ranks of a world; channels, placement, model."""
    ps.join_world(rank, 3, folder, world)
    model = MLP(SIZES)
    placement = ps.by_range(ps.shapes_of(dict(model.named_parameters())), 1)
    channels = ps.open_channels(1, placement, 0 if rank else world)
    return channels, placement, model


def serving(channels, placement, model, saved=None, **options):
    pieces = placement.pieces(0, dict(model.named_parameters()))
    shard = ps.Shard(pieces, lambda p: torch.optim.Adam(p, lr=0.01))
    version = ps.load_server(shard, saved)[0] if saved else 0
    return ps.ParameterServer(
        channels, shard, ps.Synchronous(), version=version, **options
    )


def ends(job, restart=()):
    """How each of three ranks ended, in words."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)

        def run():
            return ps.run_mortal_ranks(
                lambda r, start: job(r, start, folder), 3, folder, restart=restart
            )

        # On the CPU: ranks that are killed are forked from one rank, which cannot share its GPU.
        outcomes = dtlearn.run_ranks(run, 1, device="cpu", init_group=False)[0]
    return [
        "killed" if o.signal else o.value or o.error.partition(":")[0] for o in outcomes
    ]


# %%
for job in (all_reduce_job, server_job):
    print(job.__name__, *enumerate(ends(job)), sep="\n  ")

# %% [markdown]
# An all-reduce needs every rank: the others fail, and the job has to be started again (chapter 16). The server
# notices a closed connection and goes on with the workers that are there. (Nobody can join them.)
#
# SIGKILL is the kindest death: the system closes the connection. A machine without power, or a cut network, closes
# nothing; that takes heartbeats or timeouts. On NCCL the survivors hang until its watchdog ends them.
#
# And if the *server* dies?

# %%
lost = dtlearn.predict.choice(
    "A server saves a checkpoint after every second update: parameters, optimizer state, version. It is killed right after "
    "update 5, and started again. What is lost?",
    {
        "A": "nothing: the workers still have the parameters and give them back",
        "B": "update 5; training goes on from version 4",
        "C": "the optimizer's state, which was on the server only",
    },
    id="ch04.lost",
)


# %%
def mortal_server_job(rank, start, folder):
    """The server dies after update 5 and is started again; all ranks meet in a new world."""
    for world in range(start, 2):
        if rank == 0:
            return serve_and_die(world, folder)
        channels, placement, model = meet(rank, folder, world)
        worker, steps = ps.Worker(channels, dict(model.named_parameters()), placement), []
        try:
            while (pulled := worker.pull()).steps[0] < 8:
                steps.append(pulled.steps[0])
                worker.push(pulled, step_of(model, worker))
            worker.close()
            return f"after the return: steps {steps}"
        except ps.PeerLost:
            continue


def serve_and_die(world, folder):
    def after_update(server):
        ps.SaveEvery(folder / "server", 2)(server)
        die(server.progress.version == 5 and not world)

    saved = folder / "server" if world else None
    server = serving(*meet(0, folder, world), saved, after_update=after_update)
    version = server.progress.version
    server.serve()
    return f"came back at version {version}"


print(*enumerate(ends(mortal_server_job, restart=[0])), sep="\n")

# %% jupyter={"source_hidden": true}
lost.reveal()

# %% [markdown]
# What is lost is everything since the last checkpoint. A gradient that was computed from a version that no longer
# exists is refused: a push says of which **world** its parameters were. With several servers all have to go back to
# one moment, or their shards belong to different steps. Without a checkpoint everything is lost, unless servers are
# replicated: Li et al. (2014) keep each range of keys on several.
#
# ## The virtual clock, and replay
#
# *Needs: sections 3 and 5.* The answers of section 3 were computed without processes. The **virtual clock** keeps a
# list of what happens when (a pull arrives, a gradient is ready), takes the earliest, and asks the same rules and makes
# the same updates as the server. Only the seconds are given: a question such as "what if one worker were ten times as
# slow?" takes no cluster.
#
# A real asynchronous run is never the same twice. What it does not repeat is only the *order* of the pushes, and the
# log has that. Rank 0 takes the log of section 5's asynchronous run, computes each gradient again from the version
# that its worker had, and applies it in its turn:

# %%
# %%ranks -r 0
own_log, parameters_then = served
model = fresh_model()
initial = {name: p.detach().clone() for name, p in model.named_parameters()}
parts = [[my_part(number, worker, 3) for number in range(10)] for worker in range(3)]
again = ps.replay(
    [own_log],
    ps.by_range(ps.shapes_of(initial), 1),
    initial,
    lambda p: torch.optim.SGD(p, lr=0.1),
    ps.computing(model, F.cross_entropy, parts),
)
print(
    "equal to the last bit:",
    torch.equal(torch.cat([p.view(-1) for p in again.values()]), parameters_then),
)

# %% [markdown]
# So "asynchronous" need not mean "cannot be debugged": log the order, and replay. (On GPUs the last bit also needs
# deterministic kernels.)
#
# ## Without a server
#
# *Needs: section 1.* The server is the **centralised** end of a scale. At the **decentralised** end nobody has *the*
# parameters: each rank keeps its own copy, steps with its own gradient, and averages its copy with those of a few
# neighbours. That is **gossip**, D-PSGD (Lian et al. 2017). Who averages with whom, and how much, is a **mixing
# matrix** W: row i holds rank i's weights. Rows and columns sum to 1, so that agreement stays and nobody counts
# twice.

# %%
for row in ps.ring(4).matrices[0]:
    print("  ".join(f"{weight:.2f}" for weight in row))

# %%
far = dtlearn.predict(
    "64 ranks in a ring; in each step a rank averages with its two neighbours. After how many steps has a gradient of rank 0 "
    "reached all ranks?",
    unit="steps",
    id="ch04.far",
)


# %%
# %%ranks --record in_a_ring -o ring_distance
def gossip_steps(mixing, steps):
    """Steps of SGD with gossip; how far apart the ranks are after each."""
    model, apart = fresh_model(), []
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    gossip = ps.Gossip(model.parameters(), mixing)
    for number in range(steps):
        gossip.start()  # the parameters travel ...
        x, y = my_part(number, rank, world_size)
        optimizer.zero_grad()
        F.cross_entropy(model(x), y).backward()  # ... while the gradient is computed
        gossip.finish()
        optimizer.step()
        apart.append(ps.consensus_distance(list(model.parameters())))
    return apart


gossip_steps(ps.ring(world_size), 4)

# %%
# %%ranks --record exponentially -o exponential_distance
gossip_steps(ps.exponential(world_size), 4)

# %% jupyter={"source_hidden": true}
from dtlearn.viz import gossip_reach, reach_in

show(
    gossip_reach(
        {"ring": reach_in(in_a_ring)[:4], "exponential": reach_in(exponentially)[:4]},
        label="recorded messages of 4 ranks",
    ),
    alt="Two rows of grids, rank by source of the gradient. Ring: own only, then 75 percent after one step, all after two. "
    "Exponential, one message a step: own only, 50 percent after one step, all after two.",
)
after = (k for k in range(1, 64) if bool((ps.ring(64).product(k)[:, 0] > 0).all()))
far.reveal(next(after))

# %% [markdown]
# The **consensus distance** says how far apart the copies are. It does not go to zero while the ranks learn different
# things, but it must not grow. The **spectral gap** of W says how fast it shrinks: of a ring it falls as $1/N^2$. The
# directed exponential graph (Assran et al. 2019; Ying et al. 2021), with neighbours at distance 1, 2, 4, ... in turn,
# needs one message in each step and reaches all in $\log_2 N$ steps. The mean is exact then if N is a power of two.
#
# What is saved? With a ring of neighbours no byte: $2Ψ$ each way, as in a ring all-reduce, but in 4 messages at 64
# ranks and not 252; with the exponential graph half, $Ψ$ each way. And there is no global barrier. Still, a slow rank
# holds up its neighbours, and they theirs; AD-PSGD (Lian et al. 2018, arXiv 1710.06952) averages asynchronously.

# %% tags=["nbval-ignore-output"] jupyter={"source_hidden": true}
ends_at = ring_distance[0][-1], exponential_distance[0][-1]
print(
    "consensus distance after 4 steps: {:.3f} in a ring, {:.3f} with the exponential graph".format(
        *ends_at
    )
)
rank_table(
    [
        {
            "ranks": n,
            "steps": (steps := len(ps.exponential(n).matrices)),
            "ring": f"{1 - (1 - ps.spectral_gap(ps.ring(n))) ** steps:.3f}",
            "exponential": f"{ps.spectral_gap(ps.exponential(n)):.3f}",
        }
        for n in (4, 12, 16, 64)
    ],
    caption="Spectral gap of so many steps: 1 is agreement at once, 0 is none ever",
)

# %% [markdown]
# ## torch's own way
#
# *Needs: section 4.* torch has no parameter server, but remote calls to build one with: `torch.distributed.rpc`, which
# its documentation calls "stable and in maintenance mode". A worker calls the server's methods, and torch runs them
# there, each in a thread, so that a lock is needed. A push returns a future at once; it is done when `update()` has
# made the step of all pushes. (This small server waits for a fixed number of workers: none may leave.)

# %%
from dtlearn.parameter_server.rpc_server import RpcServer

dtlearn.show_source(RpcServer.pull, docstring=False)
dtlearn.show_source(RpcServer.push, docstring=False)

# %%
# %%launch -n 3
import os
import warnings

import torch
from torch.distributed import rpc

from dtlearn.parameter_server.rpc_server import RpcServer, serve_by_rpc


def job(worker, number, parameters):
    return [
        p - (worker + 1) for p in parameters
    ], 1  # pulls the parameters towards 1 or 2


warnings.filterwarnings("ignore", "You are using a Backend")  # torch's own call
rank = int(os.environ["RANK"])
rpc.init_rpc(f"rank{rank}", rank=rank, world_size=3)
if rank == 0:
    server = RpcServer(
        [torch.zeros(2)], lambda p: torch.optim.SGD(p, lr=0.5), 2, synchronous=True
    )
    serve_by_rpc(server, job, num_steps=20)
    print("after 20 steps:", [round(x, 3) for x in server.parameters[0].tolist()])
rpc.shutdown()

# %% [markdown]
# The mean of the two targets is 1.5. `dtlearn bench parameter_server` times both servers, and DDP, on your machine.
#
# ## Find three bugs
#
# *Needs: section 2.* Exercise 1 is one step. Here is a whole training loop around such steps.

# %% [markdown]
# **Exercise 6.** Three planted bugs, as real servers had them.

# %% exercise="ch04.bug_hunt"

# %% [markdown]
# ## Today
#
# | | |
# |---|---|
# | **A server** | tables that outgrow the GPUs' memory, beside an all-reduce for the dense part (Persia: Lian et al. 2021, arXiv 2111.05897); workers of different speed, or that leave; data that may not leave its place (federated learning is a synchronous server with many local steps) |
# | **An all-to-all** | embedding tables of billions of rows on the workers' own GPUs, synchronously: each rank is the server of its rows. TorchRec and Mudigere et al. do so |
# | **An all-reduce** | a dense model on equal GPUs: nearly every large language model of recent years. Results that can be repeated. No spare machines |
# | **Gossip** | many ranks where latency or a global barrier costs too much; rare in practice |
#
# ZeRO (chapter 9) is a relative: each rank is the server of a shard, for all others. `reduce_scatter` is the push,
# `all_gather` is the pull, and of rows both are an all-to-all. What was kept is the idea of *one* place for each
# optimizer state; what was dropped is asynchrony. It is back where language models are trained by reinforcement: a
# sample was drawn with weights some versions old (AReaL: Fu et al. 2025).
#
# **On your GPUs.** The cells of this chapter's world run on NCCL when there is a GPU for each rank. NCCL cannot
# receive "from anybody", so the server posts a receive for each worker, headers travel by gloo, and each direction
# has a group of its own. That way has not been tried on GPUs yet. NCCL's timeout (10 minutes) also ends a pull that a
# rule holds back: `open_channels` takes a longer one. The bytes are the same. Look at section 5's
# timeline first: with fast computing the copies on the server's side will be the largest part.

# %% [markdown]
# ## Myths, and questions to check yourself
#
# **"A parameter server reduces communication."** A worker moves $2Ψ$, less than a rank of a ring with its nearly
# $4Ψ$; but the server moves $2NΨ$ (section 1). Together no byte is saved, unless rows are sparse.
#
# **"Workers push parameters, and the server averages them."** In this chapter's servers they push gradients and pull
# parameters. (In federated averaging they do push parameters, after many steps of their own.)
#
# **"An asynchronous optimizer is Adagrad or Adam."** Asynchrony is how gradients reach the parameters. Any optimizer
# can stand on the server.
#
# **"Asynchronous is faster."** In updates per second. Look at both plots of "Stragglers, staleness and loss".
#
# **"Bounded staleness hides a slow machine."** It hides slow steps. A machine that is always slow sets the pace.
#
# **"Pull and push are like all-gather and reduce-scatter, so a server is just slower."** With a server on each worker's
# machine it is as fast, and with spare machines faster (section 7).
#
# **"Decentralised means no coordination at all."** The ranks still meet at a store, and agree on a mixing matrix.
#
# ### Check yourself
#
# <details><summary>A synchronous server with Adam, and DDP with Adam: same result?</summary>
#
# Up to rounding, yes: both step once with the mean gradient of the whole batch. The server has the moments once.
# </details>
#
# <details><summary>8 workers, 2 servers. Adding 2 servers: what happens to the bytes on a worker's link?</summary>
#
# Nothing: $2Ψ$. The servers' links go from $8Ψ$ to $4Ψ$ each. (And a worker has twice as many, smaller messages.)
# </details>
#
# <details><summary>A worker logs a staleness of 0 in every step of an asynchronous run. Is that possible?</summary>
#
# With one worker, yes: nobody else updates, and it is plain SGD. With several it is suspicious: perhaps a stale pull is
# counted as fresh.
# </details>
#
# <details><summary>Bound 0, and an asynchronous server: the same as synchronous?</summary>
#
# Nobody may start before all have pushed. But if each push were applied on arrival, a step would be N updates. With
# bound 0 the pushes have to be applied together.
# </details>
#
# <details><summary>All workers use the same seed for their data. What do you see?</summary>
#
# No error. All gradients of a step are equal, their mean is one of them, and N workers learn as fast as one. Compare
# the gradients' norms by worker in the first step.
# </details>
#
# ## Glossary
#
# {glossary}
#
# Next: chapter 5 sends fewer bytes for the same gradient.
