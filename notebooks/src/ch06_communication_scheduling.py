# %% [markdown]
# # Chapter 6. Communication scheduling
#
# **The question.** In which order should we send?
#
# Builds on: chapter 3; one section of Further on chapter 4. Ranks: 4; what is measured on an emulated link uses 2.
# Time: 75 minutes for the core path; the sections of "Further" in any order, when you need them.
#
# | core path | what | minutes |
# |---|---|---|
# | 1. Which gradient is needed first? | a step of DDP on a slow link | 6 |
# | 2. What does the order cost? | first in, first out, by hand | 4, and exercise 1: 10 |
# | 3. How can a gradient overtake another? | priority, partition, credit | 7, and exercise 2: 12 |
# | 4. Who waits for whom? | a forward pass that waits layer by layer | 2, and exercise 3: 15 |
# | 5. How do ranks agree? | the page | 6 |
# | 6. What does it gain, and where? | three links, measured and simulated | 5 |
# | 7. How does it break? | two orders; a wait that comes too late | 4 |
# | 8. When is there nothing to gain? | the arithmetic | 4 |
#
# After it you can say which layer of a step waits for what, and whether another order would help.

# %% jupyter={"source_hidden": true}
# %load_ext dtlearn
import time

import torch

import dtlearn
from dtlearn import communication_scheduling as cs
from dtlearn.models import MLP
from dtlearn.viz import rank_table, show

torch.set_num_threads(1)  # small tensors: more threads would only wait for each other
world = dtlearn.world(4)
world

# %% [markdown]
# # The core path
#
# ## 1. Which gradient is needed first?
#
# Backward begins with the last layer. So DDP (chapter 3) sends the last layer's gradient first, while backward goes
# on: **first in, first out**, FIFO. When all are there, the optimizer steps, and the next forward pass begins. With
# layer 0.
#
# So what is needed first is ready last. Number the layers from the input, and look at a step from the beginning of
# backward to the end of the *next* forward pass. How long that is we call the step's **makespan**.
#
# | | order of the layers |
# |---|---|
# | backward makes gradients | 5, 4, 3, 2, 1, 0 |
# | FIFO sends them | 5, 4, 3, 2, 1, 0 |
# | the next forward pass needs them | 0, 1, 2, 3, 4, 5 |
#
# The model of this chapter has six equal layers. They are **emulated**: a layer sleeps for as long as it is told
# to, and its gradient has the size that it is told to have. All else is real: autograd, processes, messages.

# %%
times = cs.LayerTimes(
    forward=(0.015,) * 6,  # seconds of each layer, layer 0 first
    backward=(0.030,) * 6,
    nbytes=(600 * 1024,) * 6,  # of its gradient
)
link = dtlearn.Link.named("100 Mb/s")  # emulated, as in chapter 3
seconds = cs.transfer_seconds(link, 2)  # what an all-reduce on 2 ranks takes
print(f"one layer's gradient: {1e3 * seconds(600 * 1024):.1f} ms")

# %%
whole = dtlearn.predict(
    "Two ranks, DDP with a bucket for each layer, all-reduces one after the other. How long is a step, from the beginning of "
    "backward to the end of the next forward pass?",
    unit="ms",
    id="ch06.whole",
)

# %%
from torch.nn.parallel import DistributedDataParallel as DDP


def ddp_step(times, steps=4):
    """On each rank: seconds of the fastest step of torch's DDP."""
    model = DDP(cs.paced_model(times), bucket_cap_mb=600 / 1024)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    x, taken = torch.ones(1, 8), []
    loss = model(x).mean()
    for _ in range(steps):
        torch.distributed.barrier()  # ranks begin together
        start = time.perf_counter()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        loss = model(x).mean()  # the next forward pass
        taken.append(time.perf_counter() - start)
    return min(taken[1:])  # the first step makes connections


# %% tags=["nbval-ignore-output"] jupyter={"source_hidden": true}
# An emulated link delays what gloo sends between processors: no GPUs here.
ddp = {"100 Mb/s": max(dtlearn.run_ranks(ddp_step, 2, times, link=link, device="cpu"))}
arithmetic = cs.simulate_step(times, cs.DDP_LIKE, seconds)
whole.reveal(round(1e3 * arithmetic.makespan))

# %% [markdown]
# To look into a step, the package plays DDP's order itself, and notes who does what when. Of `FIFO` here know only this:
# one all-reduce is in flight at a time (`credit_bytes=1`, section 3), and forward waits for all gradients (`barrier=True`,
# section 2). `run_emulated` runs such layers on two real ranks, with an order of sends that is planned beforehand
# (section 5 says what for).

# %%
FIFO = cs.SchedulingPolicy(order="fifo", credit_bytes=1, barrier=True)
fifo_steps = cs.run_emulated(times, FIFO, link)  # [rank][step]


# %% tags=["nbval-ignore-output"] jupyter={"source_hidden": true}
from dtlearn.viz import communication_lanes


def fastest(measured):
    """Of the step whose slowest rank was the fastest: what rank 0 noted."""
    steps = list(zip(*measured, strict=True))
    return min(steps, key=lambda ranks: max(step.makespan for step in ranks))[0]


RECORDED = f"rank 0 of 2, recorded; {link.label}; emulated layer times"
show(
    communication_lanes(
        {"first in, first out": fastest(fifo_steps).spans},
        title="What is needed first arrives last",
        label=RECORDED,
    ),
    alt="Three lanes over time. Backward: layers 5 to 0 in equal bars. Transfers: layers 5 to 0, longer bars, one after the "
    "other, the last ones long after backward has ended. Next forward: layers 0 to 5, after the last transfer. Between "
    "backward and forward the rank computes nothing, for about a third of the step.",
)
print(
    f"A step: {1e3 * arithmetic.makespan:.0f} ms by arithmetic; {1e3 * ddp['100 Mb/s']:.0f} ms with torch's DDP, measured; "
    f"{1e3 * fastest(fifo_steps).makespan:.0f} ms in the package's FIFO, the figure."
)

# %% [markdown]
# The arithmetic is the answer. What the other two take beyond it is this machine's: a process wakes late from its sleep
# when others use the cores, and the more so the busier they are.
#
# The link is busy nearly all the time, and so it should be: it is the bottleneck. But while it carries layers 5, 4 and
# 3, nobody needs them, and in the forward pass, when they could travel unnoticed, it is idle.
#
# ## 2. What does the order cost?
#
# Three layers, by hand, without latency: backward takes 1 s a layer, a transfer 2 s, forward 1 s.
#
# | layer | backward | FIFO sends it |
# |---|---|---|
# | 2 | 0 to 1 | 1 to 3 |
# | 1 | 1 to 2 | 3 to 5 |
# | 0 | 2 to 3 | 5 to 7 |
#
# Forward starts at 7, and the step ends at 10. A rank that computes for 6 s and sends for 6 s needs 10.
#
# DDP's forward pass stands behind a **barrier**: it begins when *all* gradients are there.

# %%
barrier = dtlearn.predict.choice(
    "The order stays FIFO, but each layer's forward pass waits for its own gradient only. How much sooner does the step of "
    "the table end?",
    {
        "A": "2 s: a transfer",
        "B": "1 s: a layer of forward",
        "C": "not at all",
        "D": "4 s: two transfers",
    },
    id="ch06.barrier",
)

# %% jupyter={"source_hidden": true}
barrier.reveal()

# %% [markdown]
# **Exercise 1.** The time of a step with FIFO, for any layers.

# %% exercise="ch06.fifo_makespan"

# %% [markdown]
# Now let what is needed first go first, of what is ready (what is under way is not interrupted):
#
# | layer | backward | FIFO sends it | by priority | next forward |
# |---|---|---|---|---|
# | 2 | 0 to 1 | 1 to 3 | 1 to 3: nothing else is ready | 8 to 9 |
# | 1 | 1 to 2 | 3 to 5 | 5 to 7 | 7 to 8 |
# | 0 | 2 to 3 | 5 to 7 | 3 to 5: it overtakes layer 1 | 5 to 6 |
#
# The step ends at 9. It takes both: another order, *and* a forward pass that waits layer by layer. Behind the barrier
# the priorities would win nothing, for all transfers end at 7 in any order.
#
# ## 3. How can a gradient overtake another?
#
# A call that has been launched cannot be overtaken. A communicator runs its calls in the order in which they were
# issued, one after the other.

# %%
nolimit = dtlearn.predict.choice(
    "A scheduler sends by priority, and launches each gradient (asynchronously) at the moment when it is ready. How long is the "
    "step of section 1 now?",
    {
        "A": "as long as with FIFO",
        "B": "as long as the link needs for all transfers",
        "C": "between the two",
    },
    id="ch06.nolimit",
)

# %% jupyter={"source_hidden": true}
nolimit.reveal()

# %% [markdown]
# So priority acts only on what *waits*. Two more ideas make it wait, and wait briefly:
#
# - **Credit**: the bytes that may be in flight. What is above stays in a queue, where it can be overtaken.
# - **Partition**: a large gradient is cut. Whoever is more urgent waits for the end of a piece only.
#
# As a policy, which is plain data (1 byte of credit means one partition at a time: each is launched when none is in
# flight):

# %%
KiB = 1024
policies = {
    "priority": cs.SchedulingPolicy("priority"),
    "and credit": cs.SchedulingPolicy("priority", credit_bytes=1),
    "and partitions": cs.SchedulingPolicy(
        "priority", partition_bytes=200 * KiB, credit_bytes=1
    ),
}
simulated = {
    name: cs.simulate_step(times, policy, seconds) for name, policy in policies.items()
}

# %% jupyter={"source_hidden": true}
show(
    communication_lanes(
        {name: step.spans for name, step in simulated.items()},
        bound=cs.lower_bound(times, seconds),
        title="Priority needs something that waits",
        label=f"simulated; 2 ranks, {link}",
    ),
    alt="Three groups of lanes for six layers. Priority alone: transfers 5 to 0 in order, then forward, 416 ms. With a credit "
    "of one layer: 5, 4, 2, 1, 0, 3; forward begins before the last transfer, 371 ms. With partitions of 200 KiB too: "
    "layers interrupt each other, layer 0 leaves soonest, 344 ms. A dashed line just before its end, at 341 ms: no order "
    "takes less.",
)

# %% [markdown]
# The middle panel sends 5, 4, 2, 1, 0, 3. When layer 4 has arrived, 3 and 2 are ready, and 2 is nearer to the input.
# The last panel is within 1 % of the dashed line, below which no order can go (section 8). The whole policy is two
# functions:

# %%
dtlearn.show_source(cs.SchedulingPolicy.may_launch)
dtlearn.show_source(cs.SchedulingPolicy.choose)

# %% [markdown]
# **Exercise 2.** The order in which layers leave.

# %% exercise="ch06.send_order"

# %% [markdown]
# ## 4. Who waits for whom?
#
# With DDP the training loop calls `optimizer.step()` between backward and forward. There is the barrier: the optimizer
# wants all gradients. To cross it, each layer gets its own step, as late as possible:
#
# | moment | hook | what happens |
# |---|---|---|
# | a parameter's gradient is ready | `register_post_accumulate_grad_hook` | it is queued for sending |
# | just before layer i's forward pass | `register_forward_pre_hook` | wait for layer i's gradient, step layer i |
# | before parameters are read or saved | none: a call | wait for all, step all |
#
# Nothing is stale: layer i computes with the weights of this step, exactly as with DDP. But a learning-rate schedule that
# moves on after backward changes the rate of a step that is still to be made. The wrapper of section 6 keeps the rates
# that held when backward ended; with the page of section 5, call `synchronize()` first.

# %% [markdown]
# **Exercise 3.** A forward pass that waits layer by layer.

# %% exercise="ch06.waiting_forward"

# %% [markdown]
# ## 5. How do ranks agree?
#
# An all-reduce needs the *same* call on all ranks, in the same order (chapter 1). But what is ready differs between
# ranks: on one of them backward is a little slower. If each chose for itself, two ranks could add layer 3 to layer 2.
# Two ways out:
#
# - **Rank 0 decides** in each step. On the page it tells the others with a small message for each partition. In
#   ByteScheduler for PyTorch (Peng et al., SOSP 2019) only rank 0 holds anything back; the others submit at once, and
#   Horovod runs what all ranks have submitted.
# - **A plan**: the order is fixed before training, from the times of the layers. TicTac (Hashemi et al., 2018, arXiv
#   1803.03288) does it for the parameters that workers fetch from parameter servers. No messages, and no reaction to
#   what really happens.
#
# Either way, a rank that is late holds up the partition whose turn it is.
#
# The page lets rank 0 decide. Sending goes on while the rank computes, so each step starts a thread, `send`, which ends
# with the step's last partition. `ready[i]` says that this rank has layer i's gradient, and `works[i]` holds what has
# left of it. `talk` is a group of its own, for behind gradients rank 0's messages would queue. Partitions are counted in
# elements here, and credit in partitions.

# %%
from dtlearn.communication_scheduling import page_priority

dtlearn.show_source(page_priority)

# %% [markdown]
# Does it reorder anything? Four layers whose transfers take longer than their backward passes. The sizes differ by an
# element, so that a recorded call says whose it is:


# %%
def page_on_a_slow_link(times):
    """On each rank: two steps of the page, a layer in one, one in flight."""
    model = cs.paced_model(times)
    optimizers = [torch.optim.SGD(layer.parameters(), lr=0.1) for layer in model]
    page = page_priority.PriorityScheduler(model, optimizers, size=2**20, credit=1)
    for _ in range(2):  # the first step makes connections
        model(torch.ones(1, 8)).mean().backward()
    page.synchronize()


four = cs.LayerTimes(
    (0.02,) * 4, (0.01,) * 4, tuple(4 * (300 * 1024 + i) for i in range(4))
)

# %% tags=["nbval-ignore-output"] jupyter={"source_hidden": true}
record = dtlearn.run_ranks(
    page_on_a_slow_link, 2, four, link=link, device="cpu", record=True
).record
sent = record.select(rank=0, op="all_reduce").events[-4:]  # the second step's
print("became ready: [3, 2, 1, 0]")
print("were sent:   ", [four.nbytes.index(call.nbytes) for call in sent])

# %% [markdown]
# While layer 3 was on its way, the others became ready, and had to wait. Of what waits the nearest to the input goes first:
# layer 2, which was ready second, leaves last.

# %% [markdown]
# ## 6. What does it gain, and where?
#
# The package's `PriorityDataParallel` adds credit in bytes, planned orders, streams for GPUs, tied and frozen parameters,
# and errors. First: is it right? Three steps of Adam, beside DDP. The folded cell has `fresh_model()`, the same model
# each time, and `loss_of(model, number)`, the loss of this rank's part of a batch of images.

# %% jupyter={"source_hidden": true}
# %%ranks --setup
import torch.nn.functional as F
from torch.nn.utils import parameters_to_vector

from dtlearn import communication_scheduling as cs
from dtlearn.models import MLP, load_digits

batches = list(load_digits().batches(3, 96))


def fresh_model():
    torch.manual_seed(0)
    return MLP().to(device)


def my_part(number):
    """This rank's part of a batch."""
    return tuple(t[rank::world_size].to(device) for t in batches[number])


def loss_of(model, number):
    x, y = my_part(number)
    return F.cross_entropy(model(x), y)


def apart(model):
    """The largest difference between two ranks' parameters."""
    flat = parameters_to_vector(model.parameters()).detach()
    low, high = flat.clone(), flat.clone()
    dist.all_reduce(low, dist.ReduceOp.MIN)
    dist.all_reduce(high, dist.ReduceOp.MAX)
    return (high - low).max().item()


# %%
# %%ranks
from torch.nn.parallel import DistributedDataParallel as DDP

policy = cs.SchedulingPolicy("priority", partition_bytes=16_384, credit_bytes=1)
ours = cs.PriorityDataParallel(fresh_model(), lambda p: torch.optim.Adam(p), policy)
for number in range(3):
    loss_of(ours, number).backward()  # no optimizer.step(): the next forward pass does it
ours.synchronize()

theirs = DDP(fresh_model())
optimizer = torch.optim.Adam(theirs.parameters())
for number in range(3):
    optimizer.zero_grad()
    loss_of(theirs, number).backward()
    optimizer.step()
difference = parameters_to_vector(ours.parameters()) - parameters_to_vector(
    theirs.parameters()
)
if rank == 0:
    print("the same parameters as DDP:", difference.abs().max().item() < 1e-5)

# %% [markdown]
# Now the time. The six layers again, on three links: a layer's all-reduce takes 123 ms, 49 ms or 5 ms. The policy is that
# of the last panel.

# %%
which = dtlearn.predict.choice(
    "Computation takes 270 ms a step. On which link does priority save the largest share of DDP's step?",
    {
        "A": "40 Mb/s, where a step sends for 738 ms",
        "B": "100 Mb/s, where it sends for 296 ms",
        "C": "1 Gb/s, where it sends for 31 ms",
        "D": "the same share on all three",
    },
    id="ch06.which",
)

# %%
PRIORITY = policies["and partitions"]
links = {
    "40 Mb/s": dtlearn.Link(latency=100e-6, bandwidth=5e6),
    "100 Mb/s": link,
    "1 Gb/s": dtlearn.Link.named("1 Gb/s"),
}
planned = {
    name: cs.run_emulated(times, PRIORITY, one, steps=2) for name, one in links.items()
}
decided = cs.run_emulated(times, PRIORITY, link, planned=False)
SMALL = cs.SchedulingPolicy("priority", partition_bytes=10 * KiB, credit_bytes=1)
small = cs.run_emulated(times, SMALL, link, steps=2)

# %% tags=["nbval-ignore-output"] jupyter={"source_hidden": true}
for name in ("40 Mb/s", "1 Gb/s"):  # the CPU again
    ddp[name] = max(dtlearn.run_ranks(ddp_step, 2, times, link=links[name], device="cpu"))
show(
    communication_lanes(
        {
            "first in, first out": fastest(fifo_steps).spans,
            "priority, 200 KiB, one in flight": fastest(planned["100 Mb/s"]).spans,
        },
        bound=cs.lower_bound(times, seconds),
        title="With priority, transfers hide behind forward, too",
        label=RECORDED,
    ),
    alt="Two groups of lanes. First in, first out: forward begins after the last transfer. Priority: layer 0 is sent as soon as "
    "it is ready, forward begins soon after backward, and the other layers' pieces arrive while it runs, each just in time "
    "or a little late. The step ends earlier.",
)


def milliseconds(value):
    return f"{1e3 * value:.0f}"


def row_of(name):
    cost = cs.transfer_seconds(links[name], 2)
    fifo, own = (
        cs.simulate_step(times, policy, cost).makespan for policy in (FIFO, PRIORITY)
    )
    return {
        "link": name,
        "FIFO, simulated": milliseconds(fifo),
        "torch's DDP, measured": milliseconds(ddp[name]),
        "priority, simulated": milliseconds(own),
        "priority, measured": milliseconds(fastest(planned[name]).makespan),
        "no order below": milliseconds(cs.lower_bound(times, cost)),
    }


print(f"100 Mb/s, rank 0 decides: {milliseconds(fastest(decided).makespan)} ms")
print(f"100 Mb/s, pieces of 10 KiB: {milliseconds(fastest(small).makespan)} ms")
which.reveal()
rank_table(
    [row_of(name) for name in links],
    caption="Milliseconds of a step; priority in a planned order",
)

# %% [markdown]
# On the slow link there is too little computation to hide the transfers behind. On the fast one, by the arithmetic, DDP
# already hides all but layer 0's, which nobody can hide: it is ready when backward ends, and forward begins with it.
# There is nothing to gain; what is measured beyond that is the machine's, with DDP and with priority. The simulator knows
# neither the thread that sends nor rank 0's messages: each piece costs a moment of both. So with pieces of 10 KiB, for
# which the simulator says 412 ms, priority loses to DDP (Further, "How small should a partition be?").
#
# ## 7. How does it break?
#
# **Two orders.** Two gradients of the same size. Rank 0 sends `a` and then `b`, the others `b` and then `a`.

# %%
orders = dtlearn.predict.choice(
    "What happens?",
    {
        "A": "an error: the calls do not fit",
        "B": "a hang: each rank waits for a call that never comes",
        "C": "neither: rank 0's a is added to the others' b",
    },
    id="ch06.orders",
)

# %%
# %%ranks
a, b = torch.full((3,), 1.0, device=device), torch.full((3,), 10.0, device=device)
for gradient in (a, b) if rank == 0 else (b, a):
    dist.all_reduce(gradient)
print("a:", a.tolist(), " b:", b.tolist())

# %% jupyter={"source_hidden": true}
orders.reveal()

# %% [markdown]
# With layers of different sizes it can be noticed. Here the real wrapper has a planned order, and rank 0's is the other
# way round:


# %%
def two_orders():
    """On each rank: a step of the wrapper, in an order of its own."""
    torch.manual_seed(0)
    model = MLP().to(dtlearn.device())
    sizes = [4 * sum(p.numel() for p in model.layers[i].parameters()) for i in (0, 2, 4)]
    order = [
        partition for (partition,) in cs.partitions_of(sizes, None)
    ]  # a partition a layer
    if torch.distributed.get_rank() == 0:
        order.reverse()
    wrapped = cs.PriorityDataParallel(
        model, lambda p: torch.optim.SGD(p, lr=0.1), order=order
    )
    wrapped(torch.ones(4, 64, device=dtlearn.device())).mean().backward()
    wrapped.synchronize()


try:
    dtlearn.run_ranks(two_orders, 2)
except RuntimeError as error:
    print(str(error).splitlines()[0])

# %% [markdown]
# The watch compares the ranks' calls and names the two. (NCCL itself compares nothing: it hangs, or adds up what does not
# belong together.)
#
# **Too late.** On the page, swap two steps of `wait`: step first, and wait then. The optimizer takes what stands in
# `.grad`, this rank's own gradient.

# %%
# %%ranks
from dtlearn.communication_scheduling.page_priority import PriorityScheduler


class Hasty(PriorityScheduler):
    def wait(self, i):
        if i in self.due:
            self.optimizers[i].step()
            self.optimizers[i].zero_grad()
            self.due.remove(i)
            for _ in range(0, self.numels[i], self.size):
                self.works[i].get().wait()


for scheduler in (PriorityScheduler, Hasty):
    model = fresh_model()
    layers = torch.nn.ModuleList(m for m in model.layers if list(m.parameters()))
    steps = [torch.optim.SGD(layer.parameters(), lr=0.1) for layer in layers]
    own = scheduler(layers, steps, size=4096, credit=1)
    loss_of(model, 0).backward()
    own.synchronize()
    equal = apart(model) == 0
    if rank == 0:
        print(f"{scheduler.__name__}: the ranks' copies are equal: {equal}")

# %% [markdown]
# No error, no hang: each rank trains alone. Only a comparison of the copies shows it (chapter 3).
#
# ## 8. When is there nothing to gain?
#
# Let C be the seconds of computation, backward B and forward F together, and T those of all transfers.
#
# | | seconds of a step |
# |---|---|
# | at least, in any order | $\max(C, T)$: neither the rank nor the link can be quicker than busy all the time |
# | at least, too | $B + t_0 + F$: layer 0's transfer $t_0$ is ready when backward ends, and forward begins with it |
# | at least, too | $b + T + f$: nothing leaves before the last layer's backward, $b$, has ended; after the last transfer its layer and all behind it are left, at least the last one's forward, $f$ |
# | FIFO, at most | $C + T$: if nothing overlapped |
#
# Between the last two stand the same sums for the transfers of layers 0 to k alone: none leaves before backward has
# reached layer k, and then k and all behind it are left. The longest of them all is the dashed line. In section 1's model
# that is $b + T + f$, 30 + 296 + 15 = 341 ms.
#
# The order can never gain more than a factor of 2, for $C + T \le 2 \max(C, T)$, and it gains most where C and T are
# alike. With many equal layers, T = C, and a backward pass twice as long as forward, FIFO takes a third more than the
# bound: the forward pass, behind which it hides nothing.
#
# There is nothing to gain
#
# - on a fast link, $T \ll C$: $B + t_0 + F$ is what DDP needs;
# - on a slow one, $T \gg C$: send less (chapter 5), or less often;
# - when layer 0 is most of the model, such as a large embedding: all wait for $t_0$, whatever the order;
# - when something needs all gradients before the first step (Further, "Can one clip?").
#
# It gains when the link is about as slow as the rank, and when the large layers are the *last* ones, as in VGG-16: FIFO
# sends them first, and everything waits behind them.
#
# **When to use it.** Rarely as it is, today. torch's DDP has no such option. Where models are large their parameters are
# sharded, and the same idea lives on with another name: **prefetch** (Further, "Where does it live today?").
#
# Later chapters need no more of this one.

# %% [markdown]
# # Further
#
# Each section stands alone, after the core path.
#
# | section | exercise |
# |---|---|
# | How small should a partition be? | 4 |
# | How much credit? | |
# | Can one clip, or scale the loss? | |
# | What about push and pull? | |
# | Where does it live today? | |
# | Is there a formula for it? | |
# | What goes wrong in a scheduler? | 5 |
# | What is different on GPUs? | |
#
# ## How small should a partition be?
#
# *Needs: section 3.* Small enough that an urgent layer waits briefly, large enough that latency does not count. The
# **knee** is the size whose transfer takes as long as its latency; here 2.5 kB. Well above it lies the sweet spot:
# below it every call pays latency, above it whoever is urgent waits for a large piece. And a real call pays more than the
# link's latency, so its own knee lies higher.

# %%
by_size = {200 * KiB: planned["100 Mb/s"]}
for size in (50 * KiB, 600 * KiB):
    policy = cs.SchedulingPolicy("priority", size, 1)
    by_size[size] = cs.run_emulated(times, policy, link, steps=2)

# %% tags=["nbval-ignore-output"] jupyter={"source_hidden": true}
from dtlearn.notebook.panels import Slider, slider_panel
from dtlearn.viz import policy_makespan

CREDIT = {
    "one partition": 1,
    "400 KiB": 400 * KiB,
    "800 KiB": 800 * KiB,
    "no limit": None,
}


def draw_policy(on, partition, credit):
    """A policy on a link; measured points where there are some."""
    measured = on == "100 Mb/s" and credit == "one partition"
    return policy_makespan(
        times,
        cs.transfer_seconds(links[on], 2),
        cs.SchedulingPolicy("priority", partition * KiB, CREDIT[credit]),
        [k * KiB for k in (2, 5, 10, 20, 50, 100, 200, 300, 600)],
        {size: fastest(run).makespan for size, run in by_size.items()}
        if measured
        else None,
        ddp[on],
        label=f"simulated, {links[on]}, credit: {credit}; points: measured, emulated link",
    )


slider_panel(
    draw_policy,
    alt="Seconds of a step over the bytes of a partition, from 2 KiB to 600 KiB, on 100 Mb/s with one partition in flight. The "
    "curve of priority falls from 700 ms to its lowest point at 200 KiB, 344 ms, and rises a little towards whole layers, "
    "371 ms. FIFO is a straight line at 416 ms, the bound one at 341 ms. Measured points lie above the curves, that of the "
    "smallest pieces the farthest.",
    on=Slider(tuple(links), "100 Mb/s", "link"),
    partition=Slider((2, 5, 10, 20, 50, 100, 200, 300, 600), 200, "partition, KiB"),
    credit=Slider(tuple(CREDIT), "one partition", "credit"),
)

# %% [markdown]
# On real ranks small pieces cost more than the simulator says: each also takes a moment of Python's thread. Move the link
# to 40 Mb/s and to 1 Gb/s: does the best size move, and how much does it matter there? Both size and credit depend on the
# link and on the model, so ByteScheduler can search for them while it trains (by Bayesian optimization): for the credit by
# default, for the size when it is told to, with all-reduce only.

# %% [markdown]
# **Exercise 4.** Partitions, and a credit of bytes.

# %% exercise="ch06.partition_with_credit"

# %% [markdown]
# ## How much credit?
#
# *Needs: section 3.* The makespan on 100 Mb/s with partitions of 200 KiB, and the order of the layers' last pieces:

# %%
for name, credit in CREDIT.items():
    step = cs.simulate_step(
        times, cs.SchedulingPolicy("priority", 200 * KiB, credit), seconds
    )
    last = {p.layer: place for place, p in enumerate(step.order)}
    print(
        f"{name:>13}: {1e3 * step.makespan:.0f} ms, {sorted(last, key=last.__getitem__)}"
    )

# %% [markdown]
# One partition at a time serialises: each may be overtaken. No limit is FIFO, whatever the policy's name. Why then does
# ByteScheduler's documentation suggest two partitions for all-reduce (16 million parameters, in pieces of 8 million), and
# four for servers? The simulator has no gap between two calls. In reality the next call has to be prepared while one is
# under way, or the link idles between them. Several in flight hide that, and whoever is urgent waits a little longer.
#
# ## Can one clip, or scale the loss?
#
# *Needs: section 4.* Clipping by the global norm needs the norm of *all* gradients before the *first* step. So does a
# `GradScaler`, which skips the step if any gradient is infinite (chapter 7). Layer by layer, layer 0 has stepped before
# layer 5's gradient has arrived.

# %%
# %%ranks --expect error
model = cs.PriorityDataParallel(fresh_model(), lambda p: torch.optim.SGD(p, lr=0.1))
loss_of(model, 0).backward()
torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)

# %% [markdown]
# The wrapper refuses; a wrong norm would be worse than an error. What remains: clipping by value or per layer, bfloat16,
# which needs no scaler, or the barrier. So language models, which clip by the global norm, seldom train this way.
#
# ## What about push and pull?
#
# *Needs: chapter 4.* ByteScheduler was made for parameter servers, too, and P3 (Jayarajan et al. 2019, arXiv 1905.03960)
# for them alone. There nobody has to agree: each worker pushes what is most urgent to *it*, and the server answers a
# partition when all have pushed it. And pushes and pulls go opposite ways: with partitions, one's pull travels beside
# the next one's push.


# %%
def push_and_pull(times):
    """On each rank: rank 0 serves, and worker 2 is slow. A worker's order of sends."""
    rank, policy = torch.distributed.get_rank(), cs.SchedulingPolicy(credit_bytes=1)
    backward = tuple(s * (3 if rank == 2 else 1) for s in times.backward)
    model = cs.paced_model(cs.LayerTimes(times.forward, backward, times.nbytes))
    if rank == 0:
        return cs.PartitionServer(
            model, lambda p: torch.optim.SGD(p, lr=0.1), policy
        ).serve()
    worker = cs.PriorityPushPull(model, policy)
    for _ in range(2):  # the first step makes connections
        worker(torch.ones(1, 8)).mean().backward()
    worker(torch.ones(1, 8))
    worker.close()
    return [send.partition.layer for send in worker.last_step().sends]


# %% tags=["nbval-ignore-output"]
_, fast, slow = dtlearn.run_ranks(push_and_pull, 3, times, link=link, device="cpu")
print("worker 1 pushed:", fast, "\nworker 2 pushed:", slow)

# %% [markdown]
# Two orders, no deadlock. The credit counts pushes only: if it counted answers, two workers with different orders could
# each wait for a partition that the other has not pushed yet.
#
# ## Where does it live today?
#
# *Needs: section 4; chapter 9 explains sharding.* Where each rank keeps only a part of the parameters, layer i's forward pass
# waits for an **all-gather** of layer i's parameters. They are needed in the order of the layers, and issued in that order.
# What remains of the question is *how early*:
#
# | | a layer's gather is issued |
# |---|---|
# | no prefetch | when it is that layer's turn: nothing overlaps |
# | FSDP2, `set_modules_to_forward_prefetch` | with the layer one, or k, before |
# | Megatron, `--overlap-param-gather` | when the bucket before it has been waited for |
#
# The credit is back, as memory: what is gathered early stays until it is used. Recorded from torch's own `fully_shard`,
# with layers of a quarter of the size. (On the CPU it gathers asynchronously only with a private switch, which
# `run_fully_shard` throws for the second panel.)

# %%
quarter = cs.LayerTimes(  # the same times, a quarter of the bytes
    times.forward, times.backward, tuple(n // 4 for n in times.nbytes)
)
gathered = {ahead: cs.run_fully_shard(quarter, ahead, link) for ahead in (0, 1)}

# %% tags=["nbval-ignore-output"] jupyter={"source_hidden": true}
took, idle, first = {}, {}, {}  # milliseconds, by layers ahead
for ahead, spans in gathered.items():
    layers = [span for span in spans if span.lane == "forward"]
    took[ahead] = 1e3 * max(span.end for span in spans)
    idle[ahead] = took[ahead] - 1e3 * sum(span.end - span.start for span in layers)
    first[ahead] = 1e3 * min(span.start for span in layers)
show(
    communication_lanes(
        {"no prefetch": gathered[0], "one layer ahead": gathered[1]},
        link="all-gathers",
        title="Prefetch: the next layer's parameters travel while this one computes",
        label=f"rank 0 of 2, recorded from fully_shard; {link.label}; emulated layer times",
    ),
    alt="Two groups of two lanes. No prefetch: gather 0, layer 0, gather 1, layer 1, and so on, one after the other; the rank "
    f"computes nothing for {idle[0]:.0f} of {took[0]:.0f} ms. One layer ahead: gather 1 runs while layer 0 computes, and "
    f"so on; the rank computes nothing for {idle[1]:.0f} of {took[1]:.0f} ms, {first[1]:.0f} of them before layer 0.",
)
print(
    f"Layers compute for {1e3 * sum(times.forward):.0f} ms. The forward pass takes {took[0]:.0f} ms without prefetch, and "
    f"{took[1]:.0f} ms one layer ahead."
)

# %% [markdown]
# On GPUs FSDP2 prefetches without being told to: the CPU runs ahead and issues the next gather while the GPU still
# computes. The call helps when the CPU is late.
#
# ## Is there a formula for it?
#
# *Needs: section 2.* ByteScheduler is by Peng, Zhu, Chen, Bao, Yi, Lan, Wu and Guo (SOSP 2019), of ByteDance and the
# University of Hong Kong. Its code lies in bytedance/byteps, in the branch `bytescheduler` (a folder of that name there);
# the main branch has its successor for push and pull, `byteps/torch/cross_barrier.py`. Some texts call ByteScheduler
# Microsoft's pipeline-parallel scheduler, which changes the order of *layers* by
#
# $$s_{i+1} = \max(s_i + c_i,\; s_{i-1} + n_{i-1})$$
#
# with the start $s$, the computation $c$ and the communication $n$ of a layer. Neither is so, and no such formula is in
# it. Try it with section 2's forward pass, all gradients ready at 0:

# %%
compute, communication = [1, 1, 1], [2, 2, 2]
for formula in (cs.starts_as_written, cs.starts):
    found = formula(compute, communication)
    early = cs.too_early(found, communication)
    print(f"{formula.__name__:>17}: {found}, before their own gradient: layers {early}")

# %% [markdown]
# By the formula layer i + 1 waits for the communication of layer i - 1, never for its own. Transfers do not share a link,
# and the order of sends, which is what ByteScheduler is about, does not occur. What holds, with one partition at a time in
# the order of the layers: the gradient of layer i is there at $a_i = a_{i-1} + n_i$, and
#
# $$s_i = \max(s_{i-1} + c_{i-1},\; a_i)$$
#
# ## What goes wrong in a scheduler?
#
# *Needs: sections 4 and 5.* Everything above, and more of it at once.

# %% [markdown]
# **Exercise 5.** A scheduler with three planted bugs; public projects had such ones.

# %% exercise="ch06.bug_hunt"

# %% [markdown]
# ## What is different on GPUs?
#
# The cells of this chapter's world run on NCCL when there is a GPU for each rank; the emulated link stays on the CPU. On a
# GPU the wrapper sends from a stream of its own, and its thread waits there until a transfer is over, since credit counts
# what is in flight. The page would not do there: with NCCL `work.wait()` does not hold the host, so its credit limits
# nothing, and its thread sends from the default stream, where computation then waits for the transfer as well. Rank 0's
# messages go over gloo. With NVLink and large batches expect section 6's last row: nothing to
# gain. Measure first what there is to win: a step of DDP, less one inside `no_sync`, which sends nothing (chapter 3).
# `dtlearn bench communication_scheduling` runs three links, emulated, on your machine. The wrapper has not been tried on
# GPUs yet.
#
# ### Myths
#
# **"Priority sends fewer bytes."** Every byte of DDP's, and rank 0's small messages unless the order is planned. It moves the wait to where the rank has
# something to compute.
#
# **"A higher priority overtakes what is on the wire."** Only what has not been launched.
#
# **"Removing the barrier makes training asynchronous, with stale gradients."** Each layer waits for this step's gradient.
# The parameters are DDP's.
#
# **"DDP hides communication, so nothing is left to schedule."** It hides it behind backward only.
#
# **"The smaller the partition, the better."** Below the knee a step is all latency. And what counts is the knee of a whole
# call, the thread's moment included: the chapter loses at 10 KiB, although the link's own knee is 2.5 kB.
#
# **"ByteScheduler is Microsoft's, and schedules layers of a pipeline."** It is by ByteDance and the University of Hong Kong,
# and schedules communication for all-reduce and parameter servers.
#
# ### Check yourself
#
# <details><summary>Which gradient profits from no priority at all?</summary>
#
# The last layer's. It is ready first, when nothing else waits, and needed last: it fills gaps.
# </details>
#
# <details><summary>Why is layer 0's transfer never hidden?</summary>
#
# It is ready when backward ends, and forward begins with layer 0: nothing is left to compute meanwhile.
# </details>
#
# <details><summary>The same policy on all ranks, each choosing by itself: is that safe?</summary>
#
# Not with all-reduce: the ranks have different gradients ready, so the same rule chooses differently. With push and pull it
# is.
# </details>
#
# <details><summary>You save a checkpoint right after backward. What is in it?</summary>
#
# The weights before this step, or a mixture, unless somebody waits for all layers first. The wrapper's `state_dict()`
# does.
# </details>
#
# <details><summary>A step computes for 100 ms and sends for 20 ms. What can the best order save?</summary>
#
# At most 20 ms, if nothing overlapped. With DDP most of it does: what is left is the last bucket's transfer, and layer 0's
# part of that nobody can hide.
# </details>
#
# ## Glossary
#
# {glossary}
#
# Next: chapter 7 trains in 16 bits.
