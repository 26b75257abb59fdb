# %% [markdown]
# # Chapter 2. Collectives
#
# **The question.** What do ranks say to each other, and what does it cost?
#
# Builds on: chapter 1. Ranks: 4; a few cells use 8. Time: 74 minutes for the core path; the sections of "Further" in
# any order, when you need them.
#
# | core path | what | minutes |
# |---|---|---|
# | 1. What do ranks say to each other? | eight collectives | 5 |
# | 2. What does a naive all-reduce cost? | all through rank 0 | 5 |
# | 3. How can all links share the work? | a ring, drawn and by hand | 7 |
# | 4. How does a ring hang? | a deadlock, and the ring without one | 4, and exercises 1, 2 and 3: 37 |
# | 5. How is it written down? | a plan, as data | 4 |
# | 6. What does it cost? | the alpha-beta model, measured | 9 |
# | 7. Which one when? | the rules, and their reasons | 3 |
#
# After it you can write a ring all-reduce from send and receive, say how many bytes each rank sends and why, and
# estimate its time on a cluster that you do not have. The pictures of messages are drawn from messages that ranks
# really sent, through gloo on a CPU and through NCCL where every rank has a GPU. Cells that need the CPU say so, and
# why.

# %% jupyter={"source_hidden": true}
# %load_ext dtlearn
import dtlearn
from dtlearn.viz import rank_table, show

world = dtlearn.world(4)
world

# %% jupyter={"source_hidden": true}
# %%ranks --setup
from dtlearn.collectives import all_reduce

torch.set_default_device(device)  # where tensors are made, from now on

# %% [markdown]
# # The core path
#
# ## 1. What do ranks say to each other?
#
# All communication in this course is made of **send** and **receive** between two ranks, and of
# eight **collectives**: operations that all ranks of a group call together. Learn the eight by what
# each rank has before and after. A "part" is one of N pieces of a tensor. The **root** is the one
# rank that a collective names.
#
# | collective | before | after |
# |---|---|---|
# | broadcast | the root has a tensor | every rank has it |
# | scatter | the root has N parts | rank r has the r-th part |
# | gather | rank r has one part | the root has all parts, in rank order |
# | reduce | every rank has a tensor | the root has the sum |
# | all-gather | rank r has one part | every rank has all parts |
# | reduce-scatter | every rank has N parts | rank r has the sum of all r-th parts |
# | all-reduce | every rank has a tensor | every rank has the sum |
# | all-to-all | rank s has one part for each rank d | rank d has its part from each rank s |
#
# "Sum" stands for any reduction: maximum, product, mean. Three relations connect the rows:
#
# - Gather is scatter with every message reversed.
# - Reduce is broadcast with every message reversed, and with additions.
# - **All-reduce is reduce-scatter followed by all-gather.** This is the most useful fact of the
#   chapter.
#
# Rank r starts with the numbers 10r, 10r + 1, 10r + 2 and 10r + 3. The folded cell calls all eight on four ranks; open
# it to see the calls. (The folded cell at the top has given every rank `all_reduce`, the package's, and said on which
# device tensors are made. `--setup` repeats it on a rank that has to be replaced.)

# %% jupyter={"source_hidden": true}
# %%ranks -o after
mine = 10.0 * rank + torch.arange(4.0)  # four parts of one number each
parts = list(mine.split(1))
after = {}

after["broadcast"] = mine.clone()
dist.broadcast(after["broadcast"], src=0)

after["scatter"] = torch.empty(1)
dist.scatter(after["scatter"], parts if rank == 0 else None, src=0)

received = [torch.empty(1) for _ in range(world_size)]
dist.gather(parts[0], received if rank == 0 else None, dst=0)
after["gather"] = torch.cat(received) if rank == 0 else torch.empty(0)

after["reduce"] = mine.clone()
dist.reduce(after["reduce"], dst=0)
if rank != 0:
    after["reduce"] = torch.empty(0)  # only the root's result is defined

received = [torch.empty(1) for _ in range(world_size)]
dist.all_gather(received, parts[0])
after["all_gather"] = torch.cat(received)

after["reduce_scatter"] = torch.empty(1)
dist.reduce_scatter(after["reduce_scatter"], [part.clone() for part in parts])

after["all_reduce"] = mine.clone()
dist.all_reduce(after["all_reduce"])

after["all_to_all"] = torch.empty(4)
dist.all_to_all_single(after["all_to_all"], mine)

{name: " ".join(f"{v:g}" for v in value.tolist()) for name, value in after.items()}

# %% jupyter={"source_hidden": true}
rank_table(
    [
        {"collective": name} | {f"rank {r}": after[r][name] or "-" for r in range(4)}
        for name in after[0]
    ],
    caption="What each rank has afterwards (before: rank r has 10r to 10r + 3; "
    "gather and all_gather take the first number)",
)

# %% [markdown]
# Read the row `reduce_scatter` again. Rank 0 has 60, the sum of all first parts, and nothing else. Joined together, the
# results of the four ranks are the all-reduce:

# %%
# %%ranks
mine = 10.0 * rank + torch.arange(4.0)  # four parts of one number each
part = torch.empty(1)
dist.reduce_scatter(part, list(mine.split(1)))
joined = [torch.empty(1) for _ in range(world_size)]
dist.all_gather(joined, part)
dist.all_reduce(mine)
print("equal:", torch.equal(torch.cat(joined), mine))

# %% [markdown]
# ## 2. What does a naive all-reduce cost?
#
# We build an all-reduce from single messages. One message takes two calls: the sender calls `send` and names the
# receiver, the receiver calls `recv` and names the sender. A first all-reduce: every rank sends its tensor to rank 0,
# which adds them up. Then rank 0 sends the sum to every rank.

# %%
star_bytes = dtlearn.predict(
    "4 ranks all-reduce a tensor of 1 MB in this way. How many MB does rank 0 send?",
    unit="MB",
    id="ch02.star_bytes",
)

# %%
# %%ranks --record star
x = torch.full((250_000,), float(rank))  # 250,000 numbers of 4 bytes: 1 MB
if rank == 0:
    other = torch.empty_like(x)
    for source in range(1, world_size):
        dist.recv(other, source)
        x += other
    for target in range(1, world_size):
        dist.send(x, target)
else:
    dist.send(x, 0)
    dist.recv(x, 0)
print(x[0].item())

# %% jupyter={"source_hidden": true}
star_bytes.reveal(star.select(rank=0, op="send").nbytes() / 1e6)

# %% tags=["nbval-ignore-output"] jupyter={"source_hidden": true}
from dtlearn.notebook.collective_player import play_collective

play_collective(star, "Naive all-reduce on 4 ranks")

# %% [markdown]
# Six steps of one message each: in each step two ranks work and two wait. With N ranks
# it takes $2(N-1)$ steps, so the time grows with the number of ranks, and all messages use rank
# 0's link.
#
# ## 3. How can all links share the work?
#
# Cut the tensor into N chunks, and let all ranks work all the time. In each step every rank sends
# one chunk to its right neighbour (rank + 1) and receives one chunk from its left neighbour. First
# the receiver adds the chunk to its own, until each chunk is complete on one rank. Then complete
# chunks are passed on, until all ranks have all of them.

# %%
ring_bytes = dtlearn.predict(
    "The same 1 MB on 4 ranks, as a ring all-reduce. How many MB does each rank send?",
    unit="MB",
    id="ch02.ring_bytes",
)

# %%
# %%ranks --record round_trip
x = torch.full((250_000,), float(rank))
all_reduce(x, algorithm="ring")  # the package's
print(x[0].item())

# %% jupyter={"source_hidden": true}
ring_bytes.reveal(round_trip.select(rank=0, op="isend").nbytes() / 1e6)

# %% jupyter={"source_hidden": true}
from dtlearn.viz import network

both = {"naive": star, "ring": round_trip}
show(
    network.sent_bytes(both, "All-reduce of 1 MB on 4 ranks: bytes sent by each rank"),
    alt=f"Bars of the bytes that each rank sends. {network.sent_words(both)}",
)

# %% [markdown]
# The busiest rank decides the time. In the naive all-reduce it sends $(N-1)\,n$ bytes for a tensor
# of $n$ bytes; in the ring every rank sends the same, and less. All ranks together send 6 MB in both
# cases: the ring does not reduce the bytes, it distributes them.
#
# The next picture has the ranks on a circle. In three steps the partial sums of four chunks travel
# around it, and each rank ends with *one* complete chunk: this half is a **reduce-scatter**. In
# three more steps the complete chunks travel around, and nobody adds: this half is an
# **all-gather**.

# %% tags=["nbval-ignore-output"] jupyter={"source_hidden": true}
play_collective(
    round_trip,
    "Ring all-reduce on 4 ranks",
    places=network.circle(4),
    phases={
        "Reduce-scatter: the receiver adds": 3,
        "All-gather: the receiver replaces": 3,
    },
)

# %% [markdown]
# The same by hand, with N = 3 and the chunks a, b and c. At the start rank r has $a_r$, $b_r$ and
# $c_r$. A capital letter is a complete sum: $A = a_0 + a_1 + a_2$.
#
# | step | rank 0 receives | rank 1 receives | rank 2 receives |
# |---|---|---|---|
# | 1, reduce-scatter | $b_2$, now has $b_0+b_2$ | $c_0$, now has $c_0+c_1$ | $a_1$, now has $a_1+a_2$ |
# | 2, reduce-scatter | $a_1+a_2$, now has $A$ | $b_0+b_2$, now has $B$ | $c_0+c_1$, now has $C$ |
# | 3, all-gather | $C$ | $A$ | $B$ |
# | 4, all-gather | $B$ | $C$ | $A$ |
#
# Each half has $N-1$ steps, and in each step a rank sends $n/N$ bytes:
#
# $$\text{sent by each rank} \;=\; \underbrace{(N-1)\frac nN}_{\text{reduce-scatter}} + \underbrace{(N-1)\frac nN}_{\text{all-gather}} \;=\; 2\,\frac{N-1}{N}\,n$$
#
# For 2 ranks that is $n$; for 384 ranks it is $1.995\,n$. It stays below twice the tensor for any
# number of ranks. As long as only ranks add, no all-reduce lets its busiest rank send less
# (Patarasuk and Yuan 2009). With switches that add it can: NVIDIA calls this SHARP.

# %% [markdown]
# ## 4. How does a ring hang?
#
# The obvious way to write one step of a ring: every rank sends to the right, then receives from the
# left.

# %%
hang = dtlearn.predict.choice(
    "Each of 4 ranks first sends one number to its right neighbour and then receives "
    "one from its left neighbour. What happens with gloo?",
    {
        "A": "It works.",
        "B": "It works for small tensors and hangs for large ones.",
        "C": "It hangs.",
    },
    id="ch02.hang",
)

# %%
# %%ranks --expect deadlock
# On the CPU: NCCL would queue the send, and the GPU would hang.
gloo = dist.new_group(backend="gloo")
x = torch.ones(1, device="cpu")
dist.send(x, (rank + 1) % world_size, group=gloo)
dist.recv(x, (rank - 1) % world_size, group=gloo)

# %% jupyter={"source_hidden": true}
hang.reveal()

# %% [markdown]
# Three remedies:
#
# 1. **Order the calls.** In each pair of ranks one sends first and the other receives first.
# 2. **Do not wait.** `isend` and `irecv` return at once with a handle, and `wait()` on the handle comes later:
#    `handle = dist.isend(x, right); dist.recv(y, left); handle.wait()`. With gloo, messages that have been started do
#    not block each other. Until `wait()` returns, do not write to a tensor that an `isend` is sending, and do not read
#    a tensor that an `irecv` is filling.
# 3. **Hand all messages over at once.** `batch_isend_irecv` takes a list of sends and receives. On NCCL this is
#    the safe one (Further, "What hangs on NCCL?").
#
# Now write the two halves of the ring, then the all-reduce. To see what your function returns on
# two ranks before it is graded, replace `%%exercise` in the first line of the cell by `%%try`.
#
# **Exercises 1, 2 and 3.** The ring. (Each is graded alone: the third does not know the functions of the others.)

# %% exercise="ch02.ring_reduce_scatter"

# %% exercise="ch02.ring_all_gather"

# %% exercise="ch02.all_reduce"

# %% [markdown]
# ## 5. How is it written down?
#
# The package describes a collective as a **plan**: a list of steps, where a step
# is a list of messages. `Move(src, dst, first, last, reduce)` is one message: `src` sends the chunks
# `first` to `last - 1` to `dst`, which adds them (`reduce=True`) or replaces its own.

# %%
from dtlearn.collectives import ring

dtlearn.show_source(ring.reduce_scatter)
dtlearn.show_source(ring.all_gather)
dtlearn.show_source(ring.all_reduce)

# %% [markdown]
# Printed for three ranks, the plan is the table of section 3 with chunks 0, 1 and 2 for a, b and c. `+>`
# adds, `->` replaces, and the number of the chunk follows the colon.

# %%
print(ring.all_reduce(3))

# %% [markdown]
# A plan is plain data: it can be run on ranks, its cost computed, and checked without any ranks.
#
# In the ring each chunk is summed once, in one order around the ring, and then copied. So all ranks
# end with the same bits. This matters: floating-point addition is not associative, and if ranks
# added in different orders, their models would slowly diverge.
#
# ## 6. What does it cost?
#
# A message of $n$ bytes takes $\alpha + n/\beta$ seconds, with a latency $\alpha$ in seconds and a
# bandwidth $\beta$ in bytes per second. This is the **alpha-beta model** (Hockney 1994). It ignores
# switches and cables.
#
# In a collective, count the messages that follow one another and the bytes that they carry. Each of
# these messages costs $\alpha$, and each byte costs $1/\beta$.
#
# | all-reduce | messages in a row | bytes in a row |
# |---|---|---|
# | naive | $2(N-1)$ | $2(N-1)\,n$ |
# | ring | $2(N-1)$ | $2\frac{N-1}{N}\,n$ |
# | tree | $2\lceil\log_2 N\rceil$ | $2\lceil\log_2 N\rceil\, n$ |
#
# In a **tree** the number of ranks that have the data doubles in every step, and each message is the whole tensor. A
# tree all-reduce is a reduce up the tree and a broadcast down the tree.

# %%
crossing = dtlearn.predict(
    "64 ranks, latency 5 us, bandwidth 12.5 GB/s. For which size of the tensor do the "
    "ring and the tree take the same time? (Calculate.)",
    unit="MB",
    id="ch02.crossing",
)

# %% jupyter={"source_hidden": true}
from dtlearn.collectives import cost, ring, topology, tree

link = topology.flat(5e-6, 12.5e9)
size = cost.crossover(tree.all_reduce(64), ring.all_reduce(64), link)
in_tree, in_ring = (
    cost.plan_seconds(module.all_reduce(64), 1e3, link) for module in (tree, ring)
)
crossing.reveal(round(size / 1e6, 2), tree=1e6 * in_tree, ring=1e6 * in_ring)

# %% [markdown]
# **Does the model hold?** We test it on an emulated link: `Link` delays what the ranks really send,
# as if each rank had its own link of this latency and bandwidth. A slow link is the best test,
# because the CPU time of our Python code is then small beside it. The lines are the model, computed
# before the run; the points are measured.

# %% tags=["nbval-ignore-output"]
from dtlearn.collectives import measure

slow = dtlearn.Link.named("internet")  # 20 ms, 100 Mb/s
slow_sizes = [1000, 16_000, 64_000, 250_000, 1_000_000]
on_slow_link = dtlearn.run_ranks(
    measure.time_on_rank,
    8,
    *("all_reduce", slow_sizes, 2, 2, ("ring", "tree")),
    device="cpu",  # an emulated link delays what gloo sends between processors
    link=slow,
)

# %% tags=["nbval-ignore-output"] jupyter={"source_hidden": true}
from dtlearn.viz import Curve, cost_curves

model_link = topology.flat(slow.latency, slow.bandwidth)
curves = []
for name, seconds in measure.slowest(on_slow_link.values).items():
    plan = measure.plan_of("all_reduce", name, 8)
    best = {n: min(each) for n, each in seconds.items()}
    off = max(t / cost.plan_seconds(plan, n, model_link) - 1 for n, t in best.items())
    curves.append(
        Curve(
            name,
            best,
            lambda n, plan=plan: cost.plan_seconds(plan, n, model_link),
            f"points at most {100 * off:.0f}% above the model",
        )
    )
equal_at = cost.crossover(tree.all_reduce(8), ring.all_reduce(8), model_link)
show(
    cost_curves(
        curves,
        "All-reduce on 8 ranks: model and measurement",
        f"best of 2; emulated link: {slow}",
        crossings={f"ring faster from {equal_at / 1e3:.0f} kB": equal_at},
    ),
    alt="Seconds over bytes of the tensor, both axes logarithmic, for the ring and the "
    "tree all-reduce on 8 ranks over an emulated link of 20 ms and 100 Mb/s. Lines: the "
    "model. Points: measured. For small tensors both are flat and the tree takes less "
    "than half of the ring's time; for large ones the tree's time rises faster and the "
    f"ring is faster. The lines cross at {equal_at / 1e3:.0f} kB.",
)

# %% [markdown]
# On the left the tensors are **latency-bound**: the time hardly depends on the size. On the right, the
# tree first, they become **bandwidth-bound**: most of the time is transfer, and it grows with the size.
# The measured points lie above the lines (the legend says how far), because the model leaves out our
# Python code, copies and additions; the busier the machine, the higher they lie. To choose an algorithm, its order is
# enough: which is faster for small tensors, and which for large ones.
#
# ## 7. Which one when?
#
# - **Large tensors on equal links: the ring.** The bytes of each rank grow from $n$ for 2 ranks to less than $2n$
#   (section 3).
# - **Small tensors, or very many ranks: a tree.** The ring's latencies grow with N, the tree's with $\log_2 N$.
# - **Nodes with fast links inside and slow ones between: two levels**, so that few bytes cross between nodes (Further,
#   "What if links differ?").
# - **In practice: call `dist.all_reduce`.** NCCL has rings and trees, laid out along the nodes, and chooses by size and
#   topology. What you decide is *what* to send, how often, in pieces of which size, and between which ranks. That is
#   what the other chapters do, and they count with this chapter's formulas.
# - **Ask for no more than you need.** A reduce-scatter costs half of an all-reduce. Chapter 9 is built on this
#   difference.

# %% [markdown]
# # Further
#
# Each section needs the core path's sections that its first line names, and nothing else of Further unless it says so.
# In a new session run the two folded cells at the top again.
#
# | section | needs | exercise: minutes |
# |---|---|---|
# | What hangs on NCCL? | sections 4 and 5 | 4: 15 |
# | How does a tree send? | section 6 | 5: 15 |
# | How does each rank send to each other one? | section 4 | 6: 15 |
# | Can one compute the cost of any collective? | sections 5 and 6 | 7: 10 |
# | What if links differ? | sections 3 to 6 | 8: 30 |
# | Can a tree be as fast as a ring? | section 6 | |
# | Does the model hold on this machine? | section 6 | |
# | What does nccl-tests print? | section 6 | |
# | Which algorithm does a library choose? | section 7, "Can a tree be as fast as a ring?" and "What does nccl-tests print?" | |
# | Which calls take one tensor? | section 1 | |
# | Do all ranks get the same bits? | section 5 | |
# | Is every collective a barrier? | section 1 | |
# | What is different on GPUs? | section 1 | |
# | Myths, and questions to check yourself | the core path, and what each names | |
#
# ## What hangs on NCCL?
#
# *Needs: sections 4 and 5.* The second remedy is not safe there. `isend` and `irecv` return at once too, but they only put the
# message on a CUDA stream, a queue of work for the GPU. If two ranks both queue a send to each other and then a
# receive, each send can wait for a receive that is queued behind the other send: a deadlock
# ([NVIDIA/nccl#479](https://github.com/NVIDIA/nccl/issues/479)). Small messages may pass, because NCCL buffers them.
# The messages of one `batch_isend_irecv` run as one group, and in a group they do not block each other (NCCL user
# guide, "Point-to-point communication"). So code for both backends uses the third remedy, and the course prints a
# warning below a cell with messages that NCCL might hang on. Here ranks 0 and 1 exchange a number, and ranks 2 and 3:

# %%
# %%ranks
partner = rank ^ 1  # 0 with 1, 2 with 3
mine, theirs = torch.tensor([float(rank)]), torch.empty(1)
messages = [
    dist.P2POp(dist.isend, mine, partner),
    dist.P2POp(dist.irecv, theirs, partner),
]
for work in dist.batch_isend_irecv(messages):
    work.wait()
print(f"received {theirs.item()}")

# %% [markdown]
# **Exercise 4.** A ring that hangs. Beware of the second error in it, a tensor that is overwritten
# while it is being sent.

# %% exercise="ch02.repair_the_ring"

# %% [markdown]
# This is how the package runs a plan on NCCL: a step is one batch. (With gloo it uses `isend` and
# `irecv`, and starts up to three receives in advance, so that additions overlap with messages.)

# %%
from dtlearn.collectives.execute_batched import execute_batched

dtlearn.show_source(
    execute_batched, docstring=False, summary="The package's own: a plan in batches"
)

# %% [markdown]
# ## How does a tree send?
#
# *Needs: section 6.* A broadcast of the package on 8 ranks, recorded:

# %% jupyter={"source_hidden": true}
from dtlearn.collectives import tree
from dtlearn.collectives.simulate import start
from dtlearn.viz import collective_steps, network


def one_broadcast():
    import torch

    from dtlearn.collectives import broadcast

    broadcast(torch.ones(1000, device=dtlearn.device()))


tree_run = dtlearn.run_ranks(one_broadcast, 8, record=True)
tree_steps = collective_steps(tree_run.record, start(tree.broadcast(8)))
show(
    network.tree_picture(tree_steps, "Tree broadcast on 8 ranks: three steps"),
    alt=f"A tree with rank 0 as its root. {network.tree_words(tree_steps)}",
)

# %% [markdown]
# **Exercise 5.** A broadcast in $\lceil\log_2 N\rceil$ rounds.

# %% exercise="ch02.broadcast"

# %% [markdown]
# ## How does each rank send to each other one?
#
# *Needs: section 4.* In an all-to-all each rank has a part for each other one. If all of them send to rank 0 first, and
# then to rank 1, each waits for the one that receives. Chapter 13 sends tokens to experts with it.
#
# **Exercise 6.** All-to-all.

# %% exercise="ch02.all_to_all"

# %% [markdown]
# ## Can one compute the cost of any collective?
#
# *Needs: sections 5 and 6.*
#
# **Exercise 7.** Ring or tree, as a function.

# %% exercise="ch02.predict_cost"

# %% [markdown]
# The package computes the cost of any plan: each step takes the latency of its slowest message, plus
# the time of the link that has to carry the most bytes.

# %%
from dtlearn.collectives import cost

dtlearn.show_source(cost.step_seconds, docstring=False)

# %% [markdown]
# With it, four all-reduces. **Halving-doubling** pairs ranks that are N/2, N/4, ... apart: for $N=2^k$ it has
# $2\log_2 N$ messages in a row, with $2\frac{N-1}{N}\,n$ bytes.

# %% jupyter={"source_hidden": true}
from dtlearn.collectives import halving_doubling, naive, ring, topology, tree

link = topology.flat(5e-6, 12.5e9)
plans = {
    "naive": naive.all_reduce(64),
    "ring": ring.all_reduce(64),
    "tree": tree.all_reduce(64),
    "halving-doubling": halving_doubling.all_reduce(64),
}
rank_table(
    [
        {"all-reduce": name}
        | {
            label: f"{1e6 * cost.plan_seconds(plan, n, link):,.0f} us"
            for label, n in {"1 kB": 1e3, "1 MB": 1e6, "100 MB": 1e8}.items()
        }
        for name, plan in plans.items()
    ],
    caption="Model: 64 ranks, each with its own link of 5 us and 12.5 GB/s",
)

# %% [markdown]
# Halving-doubling is the best of the four in this table. But in its plain form it needs a power of
# two (for other N, two more messages of the whole tensor follow one another), and it pairs ranks that
# are N/2, N/4, ... apart: where links are shared, these messages compete.

# %% [markdown]
# ## What if links differ?
#
# *Needs: sections 3 to 6.* A DGX H100 node has 8 GPUs. Each GPU has NVLink to the node's NVSwitches, 450 GB/s each way (the
# data sheet's 900 GB/s are both ways together), and a network card of 400 Gb/s, which is 50 GB/s: a ninth. Nodes are
# mounted in racks. A **leaf switch** connects the nodes of a rack, and every leaf switch is connected to every **spine
# switch**, so that any two racks are equally far apart. If the uplinks of a leaf carry less than the cards below it can
# send, the network is **oversubscribed**. (Many clusters are **rail-optimised** instead: card i of each node is linked
# to leaf switch i.)

# %% jupyter={"source_hidden": true}
from dtlearn.collectives import topology
from dtlearn.viz import network

racks = topology.RACKS_OF_DGX_H100
show(
    network.topology_picture(
        racks, 64, "Leaf-spine network: two racks of 4 nodes with 8 GPUs"
    ),
    alt=f"A leaf-spine network. {network.topology_words(racks, 64)}",
)

# %% [markdown]
# A flat ring through all ranks crosses from node to node in every step. Each node then uses two of
# its eight cards, one to send and one to receive, and all other ranks wait for these two.
#
# A **hierarchical** all-reduce has three phases:
#
# 1. Reduce-scatter inside each node, over NVLink. Each GPU then holds the node's sum of one chunk.
# 2. All-reduce of this chunk among the GPUs with the same local rank, one in each node. All cards work at
#    the same time, each with an eighth of the tensor.
# 3. All-gather inside each node.
#
# Each phase is a ring of section 3 among other ranks. The picture has two nodes of two ranks.

# %% tags=["nbval-ignore-output"] jupyter={"source_hidden": true}
from dtlearn.notebook.collective_player import play_collective


def two_level_all_reduce():
    import torch

    from dtlearn.collectives import all_reduce

    ones = torch.ones(1000, device=dtlearn.device())
    all_reduce(ones, algorithm="hierarchical", ranks_per_node=2)


two_levels = dtlearn.run_ranks(two_level_all_reduce, 4, record=True)
play_collective(
    two_levels.record,
    "Hierarchical all-reduce: 2 nodes of 2 ranks",
    places=network.in_nodes(4, 2),
    phases={
        "1. Reduce-scatter\ninside the nodes": 1,
        "2. All-reduce of each half\nbetween the nodes": 2,
        "3. All-gather\ninside the nodes": 1,
    },
)

# %%
levels = dtlearn.predict(
    "384 GPUs in 48 such nodes all-reduce 2 GB (1 billion gradients in bf16). How many "
    "times as long does the flat ring take as the hierarchical all-reduce?",
    id="ch02.levels",
)

# %% [markdown]
# **Exercise 8.** Write the hierarchical all-reduce. The check counts the bytes between nodes.

# %% exercise="ch02.hierarchical_all_reduce"

# %% jupyter={"source_hidden": true}
from dtlearn.collectives import cost, halving_doubling, hierarchical, ring, tree

cluster = topology.DGX_H100
algorithms = {
    "flat ring": ring.all_reduce(384),
    "tree, not pipelined": tree.all_reduce(384),
    "double tree, 16 pieces": tree.double_all_reduce(384, 16),
    "halving-doubling": halving_doubling.all_reduce(384),
    "hierarchical": hierarchical.all_reduce(384, 8),
}
lines = {name: cost.plan_line(plan, cluster) for name, plan in algorithms.items()}
flat_seconds, level_seconds = (
    lines[name][0] + lines[name][1] * 2e9 for name in ("flat ring", "hierarchical")
)
levels.reveal(
    round(flat_seconds / level_seconds, 1),
    flat=1e3 * flat_seconds,
    hierarchical=1e3 * level_seconds,
)

# %% jupyter={"source_hidden": true}
from dtlearn.viz import cost_bars

show(
    cost_bars(
        {
            label: {name: (a, b * n) for name, (a, b) in lines.items()}
            for label, n in {"1 MB": 1e6, "2 GB": 2e9}.items()
        },
        "All-reduce on 384 GPUs",
        "model: 48 nodes of 8, NVLink 450 GB/s, a 50 GB/s card per GPU",
    ),
    alt="Two groups of bars, for 1 MB and for 2 GB, with the time of five all-reduces, "
    "split into latency and transfer. For 1 MB the flat ring is by far the slowest, "
    "almost all latency, and halving-doubling the fastest. For 2 GB the hierarchical "
    "all-reduce is the fastest, the flat ring takes several times as long, and the tree "
    "that is not pipelined is the slowest.",
)

# %% [markdown]
# No algorithm is best for all sizes, which is why libraries choose one by size and topology. (Two of the bars are
# explained elsewhere: halving-doubling in "Can one compute the cost of any collective?", the double tree in "Can a tree
# be as fast as a ring?". 16 pieces are too many for 1 MB; our double tree takes 0.4 ms with 2.) The latencies in this
# model are orders of magnitude, so trust the large ratios only.
#
# Here is the package's plan. `renamed` runs a ring's plan among other ranks.

# %%
dtlearn.show_source(hierarchical.all_reduce, docstring=False)
dtlearn.show_source(hierarchical.renamed)

# %% [markdown]
# **Racks** are a third level. In the picture above, 32 GPUs share uplinks that carry half of what
# their cards can send. So the cost depends on where the ranks sit. 32 GPUs that send at the same
# time to 32 others:

# %% jupyter={"source_hidden": true}
from dtlearn.collectives import Move

near = [(r, r + 8) for r in range(64) if r // 8 % 2 == 0]  # to the next node
far = [(r, r + 32) for r in range(32)]
rows = []
for where, pairs in {"in the same rack": near, "in the other rack": far}.items():
    seconds = cost.step_seconds([Move(a, b, 0, 1) for a, b in pairs], 1e9, racks)
    rows.append({"the other GPU is": where, "time": f"{1e3 * seconds:.0f} ms"})
rank_table(rows, caption="Model: each of 32 GPUs sends 1 GB to another GPU")

# %% [markdown]
# Schedulers therefore try to place a job in few racks, and rank order matters: ranks that
# communicate most should be in one node, then in one rack. Inside a slice Google's TPUs do without
# such switches: each chip is linked to its neighbours in a 2D or 3D torus, and rings run along the
# axes.

# %% [markdown]
# ## Can a tree be as fast as a ring?
#
# *Needs: section 6.* The tree of section 6 is slow for large tensors because every rank waits for the whole tensor
# before it passes the tensor on. A **pipelined** collective cuts the tensor into $k$ pieces: a rank
# receives one piece while it sends the piece before. Then the depth of the tree costs time only
# once, for the first piece. With many pieces the links are always busy; but each piece costs a
# latency, so there is a best $k$, which grows with the tensor.
#
# One binary tree still wastes bandwidth: half of the ranks are leaves, which send nothing during the
# broadcast. A **double binary tree** has two trees, with half of the tensor in each. A rank that is a
# leaf in one tree has children in the other, so all ranks send at full speed (Sanders, Speck and
# Träff 2009). Each rank sends about $2n$ bytes, as in a ring, and the latency grows with $\log_2 N$.
# NCCL has had trees for all-reduce since version 2.4, to keep the latency low at scale.

# %% jupyter={"source_hidden": true}
from dtlearn.collectives import cost, ring, topology, tree

link = topology.flat(5e-6, 12.5e9)
pieces = (1, 2, 4, 8, 16, 32)
double_trees = {k: cost.plan_line(tree.double_all_reduce(64, k), link) for k in pieces}


def model_us(plan, nbytes):
    return 1e6 * cost.plan_seconds(plan, nbytes, link)


rows = []
for label, n in {"1 kB": 1e3, "1 MB": 1e6, "100 MB": 1e8}.items():
    best, k = min((1e6 * (a + b * n), k) for k, (a, b) in double_trees.items())
    rows.append(
        {
            "size": label,
            "ring": f"{model_us(ring.all_reduce(64), n):,.0f} us",
            "tree, not pipelined": f"{model_us(tree.all_reduce(64), n):,.0f} us",
            "double tree": f"{best:,.0f} us",
            "pieces of each half": k,
        }
    )
rank_table(rows, caption="Model: all-reduce on 64 ranks, links of 5 us and 12.5 GB/s")

# %% [markdown]
# Our double tree follows a simple greedy schedule. For 100 MB it takes 1.4 times as long as the ring;
# with the schedule of the paper it would take about as long. Now measured, with 4 MB on 4 ranks and an emulated link of
# 100 Mb/s and 100 us, beside halving-doubling, which pairs ranks that are N/2, N/4, ... apart:

# %% tags=["nbval-ignore-output"]
import time


def time_algorithms():
    """Seconds of each algorithm on this rank."""
    import torch
    import torch.distributed as dist

    from dtlearn.collectives import all_reduce

    seconds = {}
    x = torch.ones(1_000_000)  # 4 MB
    for algorithm in ("naive", "tree", "double-tree", "ring", "halving-doubling"):
        dist.barrier()
        begin = time.perf_counter()
        all_reduce(x, algorithm=algorithm)
        seconds[algorithm] = time.perf_counter() - begin
    return seconds


# On the CPU: an emulated link delays what gloo sends between processors.
megabits = dtlearn.Link.named("100 Mb/s")
measured = dtlearn.run_ranks(time_algorithms, 4, device="cpu", link=megabits).values

# %% tags=["nbval-ignore-output"] jupyter={"source_hidden": true}
from dtlearn.collectives import measure

emulated = topology.flat(100e-6, 12.5e6)
modelled = {
    name: cost.plan_seconds(measure.plan_of("all_reduce", name, 4), 4e6, emulated)
    for name in measured[0]
}
rank_table(
    [
        {
            "all-reduce": name,
            "model": f"{1e3 * modelled[name]:.0f} ms",
            "measured": f"{1e3 * max(rank[name] for rank in measured):.0f} ms",
        }
        for name in measured[0]
    ],
    caption="4 MB on 4 ranks, emulated link: 100 Mb/s, 100 us",
)

# %% [markdown]
# The double tree sends the most messages, in 33 steps, and each message costs CPU time that the model leaves out.
#
# ## Does the model hold on this machine?
#
# *Needs: section 6.* Without the emulated link it does *not*. Fit $\alpha$ and $\beta$ to the
# measured times of each algorithm: if the machine had one $\alpha$ and one $\beta$, the rows of this
# table would agree.

# %% tags=["nbval-ignore-output"] jupyter={"source_hidden": true}
import math

from dtlearn.collectives import measure

here_sizes = [1 << k for k in (10, 14, 18, 21)]
here = dtlearn.run_ranks(
    measure.time_on_rank,
    4,
    *("all_reduce", here_sizes, 3, 2, ("ring", "tree", "naive")),
)
rows = []
for name, seconds in measure.slowest(here.values).items():
    best = {n: min(each) for n, each in seconds.items()}
    fit = measure.fit_plan(measure.plan_of("all_reduce", name, 4), best)
    rows.append(
        {
            "fitted to": name,
            "latency": f"{1e6 * fit.latency:,.0f} us",
            "bandwidth": f"{fit.bandwidth / 1e9:.2f} GB/s"
            if math.isfinite(fit.bandwidth)
            else "not to be seen",
            "largest error of the fit": f"{100 * fit.residual:.0f}%",
            "time for 2 MiB": f"{1e3 * best[here_sizes[-1]]:.0f} ms",
        }
    )
rank_table(rows, caption="All-reduce on 4 ranks of this machine, no emulated link")

# %% [markdown]
# They do not agree. The ranks share the cores and the memory of one machine, so a message takes longer
# when other ranks work at the same time, and in a ring all of them do. Together the ranks move
# $2(N-1)\,n$ bytes in the naive all-reduce and in the ring, so on one shared memory the ring loses its
# advantage (last column); it needs a link per rank. Times of this machine therefore say little about a cluster. The
# model with the cluster's numbers says more.
#
# ## What does nccl-tests print?
#
# *Needs: section 6.* The size of the tensor divided by the time is the **algorithm bandwidth**, `algbw`. It falls as N
# grows even if the links are equally fast, because each rank sends $2(N-1)/N$ of the tensor.
# Multiplied by this factor it is the **bus bandwidth**, `busbw`. It can be compared with the speed
# of a link for any N. The factor is $2(N-1)/N$ for all-reduce, $(N-1)/N$ for all-gather and
# reduce-scatter, and 1 for broadcast and reduce (nccl-tests, `doc/PERFORMANCE.md`).

# %% jupyter={"source_hidden": true}
from dtlearn.collectives import cost, ring, topology

link = topology.flat(5e-6, 12.5e9)
ring_seconds = {
    N: cost.plan_seconds(ring.all_reduce(N), 1e9, link) for N in (2, 4, 8, 64, 512)
}
rank_table(
    [
        {
            "ranks": N,
            "time": f"{1e3 * t:.0f} ms",
            "algbw": f"{cost.algorithm_bandwidth(1e9, t) / 1e9:.2f} GB/s",
            "busbw": f"{cost.bus_bandwidth('all_reduce', N, 1e9, t) / 1e9:.2f} GB/s",
        }
        for N, t in ring_seconds.items()
    ],
    caption="Model: ring all-reduce of 1 GB, links of 12.5 GB/s",
)

# %% [markdown]
# On a GPU cluster, measure before you train. NVIDIA's
# [nccl-tests](https://github.com/NVIDIA/nccl-tests) has one program per collective (not run here:
# it needs GPUs, and for more than one node a build with `make MPI=1`):
#
# ```
# ./build/all_reduce_perf -b 8 -e 8G -f 2 -g 8     # one node, 8 GPUs, 8 bytes to 8 GiB
# mpirun -np 16 -N 8 ./build/all_reduce_perf -b 8 -e 8G -f 2 -g 1   # two nodes
# ```
#
# Each line of the output is one size, with `time` in us, `algbw`, `busbw` and `#wrong` (the number of
# wrong elements, which must be 0), out of place and in place. Read `time` for small sizes: that is
# latency. Read `busbw` for large sizes: inside a node it should come close to the NVLink bandwidth,
# and between nodes to that of the network cards. A node whose `busbw` is half of the others' has a
# hardware or configuration fault.
#
# ## Which algorithm does a library choose?
#
# *Needs: section 7, "Can a tree be as fast as a ring?" and "What does nccl-tests print?".*
#
# | library | all-reduce |
# |---|---|
# | gloo | ring, over TCP |
# | NCCL | ring, double binary tree, and additions in the switch (NVLS in NVSwitch, SHARP in InfiniBand); chosen by size and topology; `NCCL_ALGO` forces one, `NCCL_DEBUG=INFO` shows what was found |
# | MPI (MPICH) | for short messages recursive doubling: ranks 1, 2, 4, ... apart exchange and add the whole tensor; for long ones halving-doubling: in such pairs first a reduce-scatter, then an all-gather, by halves (Thakur, Rabenseifner and Gropp 2005) |
#
# NCCL's ring is not a flat ring through all ranks. NCCL builds several rings; each passes through the GPUs of a node
# over NVLink and leaves the node by another card, so that all cards are used.
#
# The library's all-reduce beside our ring, on two ranks. With two GPUs the cell measures NCCL; the stored output is
# from gloo on a CPU.

# %% tags=["nbval-ignore-output"]
from dtlearn.collectives import measure

on_two = dtlearn.run_ranks(measure.time_on_rank, 2, "all_reduce", [1 << 12, 1 << 24], 5)

# %% tags=["nbval-ignore-output"] jupyter={"source_hidden": true}
from dtlearn.collectives import cost

seconds = measure.slowest(on_two.values)
small_size, large_size = 1 << 12, 1 << 24
rows = []
for name in ("library", "ring"):
    best = {n: min(each) for n, each in seconds[name].items()}
    speed = cost.bus_bandwidth("all_reduce", 2, large_size, best[large_size])
    rows.append(
        {
            "all-reduce": "the library's" if name == "library" else "our ring",
            "4 KiB": f"{1e6 * best[small_size]:.0f} us",
            "16 MiB": f"{1e3 * best[large_size]:.1f} ms",
            "busbw, 16 MiB": f"{speed / 1e9:.2f} GB/s",
        }
    )
rank_table(rows, caption=f"2 ranks, {on_two.placement.where}; best of 5")

# %% [markdown]
# **Parity.** The tests compare every collective and algorithm of this package with
# `torch.distributed`, on 1 to 4 ranks, on sub-groups, for four dtypes and for sizes that N does not
# divide. One of these comparisons:

# %%
# %%ranks
torch.manual_seed(rank)
ours = torch.randn(1003)
theirs = ours.clone()
all_reduce(ours)
dist.all_reduce(theirs)
torch.testing.assert_close(ours, theirs)
print("equal, up to the order of additions")

# %% [markdown]
# ## Which calls take one tensor?
#
# *Needs: section 1.* Two variants are worth knowing, because sharded training (chapter 9) is built on them.
# `all_gather_into_tensor` and `reduce_scatter_tensor` take one contiguous tensor instead of a list
# of N tensors. A list has to be copied into one buffer first, or sent tensor by tensor; a
# contiguous tensor can be sent as it is. Torch 2.13 renames them to `all_gather_single` and
# `reduce_scatter_single`; the old names, which most code uses, still work and give a warning.

# %%
# %%ranks
new = hasattr(dist, "all_gather_single")  # torch 2.13 and later
all_gather_one = dist.all_gather_single if new else dist.all_gather_into_tensor
reduce_scatter_one = dist.reduce_scatter_single if new else dist.reduce_scatter_tensor
mine = 10.0 * rank + torch.arange(4.0)
whole, part = torch.empty(4), torch.empty(1)
all_gather_one(whole, mine[:1])
reduce_scatter_one(part, mine)
print(f"all-gather {whole.tolist()}, reduce-scatter {part.tolist()}")

# %% [markdown]
# ## Do all ranks get the same bits?
#
# *Needs: section 5.* With one algorithm they do. Two *algorithms* may differ in bits:

# %%
# %%ranks
torch.manual_seed(rank)
data = torch.randn(1000)
by_ring, by_star = data.clone(), data.clone()
all_reduce(by_ring, algorithm="ring")
all_reduce(by_star, algorithm="naive")

bits = by_ring.view(torch.int32)
of_all_ranks = [torch.empty_like(bits) for _ in range(world_size)]
dist.all_gather(of_all_ranks, bits)
print("same on all ranks:", all(torch.equal(other, bits) for other in of_all_ranks))
print("same as the naive one:", torch.equal(bits, by_star.view(torch.int32)))

# %% [markdown]
# ## Is every collective a barrier?
#
# *Needs: section 1.* A barrier returns only after all ranks have called it. The next
# cell calls each collective with rank 3 late by 0.3 s, and lists the ranks that waited for it.

# %% tags=["nbval-ignore-output"] jupyter={"source_hidden": true}
# %%ranks -o waited
import time


def late(collective):
    """Seconds that the call took on this rank, with rank 3 late."""
    dist.barrier()
    time.sleep(0.3 if rank == 3 else 0)
    begin = time.perf_counter()
    collective()
    return time.perf_counter() - begin


one, four = torch.ones(1), torch.ones(4)
ones = list(torch.ones(4).split(1))
at_root = ones if rank == 0 else None
waited = {
    "broadcast from 0": late(lambda: dist.broadcast(four, 0)),
    "scatter from 0": late(lambda: dist.scatter(one, at_root, 0)),
    "gather to 0": late(lambda: dist.gather(one, at_root, 0)),
    "reduce to 0": late(lambda: dist.reduce(four, 0)),
    "all_gather": late(lambda: dist.all_gather(ones, one)),
    "reduce_scatter": late(lambda: dist.reduce_scatter(one, ones)),
    "all_reduce": late(lambda: dist.all_reduce(four)),
    "all_to_all": late(lambda: dist.all_to_all_single(four, four.clone())),
}
waited

# %% tags=["nbval-ignore-output"] jupyter={"source_hidden": true}
rank_table(
    [
        {
            "collective": name,
            "waited for rank 3": " ".join(
                f"rank {r}" for r in range(3) if waited[r][name] > 0.15
            )
            or "none",
        }
        for name in waited[0]
    ],
    caption=f"Who waited for the late rank ({world.placement.where})",
)

# %% [markdown]
# All-reduce, all-gather, reduce-scatter and all-to-all imply a barrier, because no rank can have its
# result without data from every rank. (This assumes that no part is empty.) Broadcast, scatter and
# gather do not: some ranks returned before rank 3 had called. Which ranks wait depends on the
# algorithm: gloo's `reduce` makes all of them wait. If you need a barrier, call
# `barrier`. With NCCL even `all_reduce` returns to Python at once: it is the stream that waits.
#
# ## What is different on GPUs?
#
# *Needs: section 1.* **A call of NCCL returns before the collective has run.** It puts a kernel on a CUDA stream and
# returns to Python. With `async_op=True`, `work.wait()` makes the current *stream* wait for the
# result; the CPU goes on. So `time.perf_counter()` around such a call measures almost nothing: use
# `torch.cuda.synchronize()` before both readings, or CUDA events. With gloo, `wait()` blocks the CPU
# until the result is there.

# %% [markdown]
# ## Myths, and questions to check yourself
#
# *Needs: the core path, and what each names.*
#
# **"All-reduce synchronises the data blocks, so that every rank has the same data."** It replaces
# every rank's tensor by the *sum*. The operands are gone: in section 1 no rank can recover another
# rank's numbers from 60, 64, 68, 72. What gives all ranks all blocks is all-gather. And data-parallel
# training all-reduces gradients; the training data stay where they are.
#
# **"Gradients are broadcast to all ranks, and then averaged."** If each rank broadcast its gradients
# (or all of them called all-gather), each rank would receive $(N-1)\,n$ bytes and add them itself.
# With 8 ranks that is $7n$; a ring all-reduce needs $1.75n$.
#
# **"Each rank averages its slice of the parameters, and then all are equal."** A rank that averages
# one slice has one slice of the result: that is a reduce-scatter. The other slices come with an
# all-gather. Both together are the all-reduce.
#
# **"All-reduce is a reduce on one node plus a broadcast."** (And all-gather a gather plus a broadcast.) The result is
# the same, the cost is not. In a star the root's link carries $(N-1)\,n$ bytes each way. In section 6's tree the whole
# tensor is sent $\lceil\log_2 N\rceil$ times in a row each way. ("Can a tree be as fast as a ring?" has one that needs
# about $2n$, like the ring.)
#
# **"After reduce-scatter every rank has a partial sum, and the all-gather adds these up."** In section 1
# rank 0 has 60: the *complete* sum of *one part*. The all-gather joins the parts and adds nothing.
#
# **"After reduce-scatter every rank has the sum."** It has one part of it. That all ranks have all of it
# is all-reduce, which costs twice as much. Chapter 9 is built on this difference.
#
# **"All-reduce gets slower with every rank that you add."** For large tensors the number of ranks hardly matters; the
# slowest link does.
#
# ### Check yourself
#
# <details><summary>8 ranks, 800 MB, ring all-reduce. How many bytes does each rank send, in how many messages?</summary>
#
# 2 x 7/8 x 800 MB = 1,400 MB in 14 messages of 100 MB.
# </details>
#
# <details><summary>("What does nccl-tests print?") busbw is 40 GB/s on links of 50 GB/s, algbw is 21 GB/s. How many ranks?</summary>
#
# busbw / algbw = 2 (N-1)/N = 1.905, so N = 21.
# </details>
#
# <details><summary>Why must the receiver not add in the all-gather half of a ring?</summary>
#
# The chunk that arrives is the complete sum. What the rank holds is a partial sum that is already
# contained in it. Adding would count summands twice.
# </details>
#
# <details><summary>A tree broadcast on 5 ranks: how many steps, and which rank sends in the last one?</summary>
#
# 3 steps. After them 2, 4 and 5 ranks have the data; in the last step the root sends to the fifth.
# </details>
#
# <details><summary>("What hangs on NCCL?") Two ranks call isend to each other, then irecv, then wait. On which backend can
# this hang?</summary>
#
# On NCCL, where both sends are queued in front of the receives. Use batch_isend_irecv.
# </details>
#
# ## Glossary
#
# {glossary}
#
# Next: chapter 3 uses all-reduce for its main purpose, the gradients of model replicas.
