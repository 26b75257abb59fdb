# %% [markdown]
# # Chapter 2. Collectives
#
# **The question.** What do ranks say to each other, and what does it cost?
#
# Builds on: chapter 1. Time: about an hour and a half to read and run, and two hours or more for the eight exercises.
# Ranks: 4.
#
# After this chapter you can write every collective from send and receive, say why a ring all-reduce moves $2(N-1)/N$ of
# the tensor per rank, and predict what a collective costs on a cluster that you do not have.
#
# Every picture of messages below is drawn from messages that ranks really sent. They are sent by gloo, between processors, also
# where there are GPUs: a send of gloo ends when its message has been received, so there is a message to see. Section 8 asks the
# GPUs.

# %%
# %load_ext dtlearn
import dtlearn
from dtlearn.collectives import (
    cost,
    execute,
    halving_doubling,
    hierarchical,
    measure,
    naive,
    ring,
    topology,
    tree,
)
from dtlearn.collectives.simulate import start
from dtlearn.notebook.collective_player import play_collective
from dtlearn.viz import bytes_per_rank, rank_table, show
from dtlearn.viz.cost_curves import Curve, cost_bars, cost_curves, fit_words

world = dtlearn.world(4, device="cpu")
world

# %% [markdown]
# ## 1. Eight sentences
#
# All that ranks say to each other in this course is made of two words, **send** and **receive**, and of eight sentences
# built from them. Learn the eight by what each rank has before and after. A "part" is one of N pieces of a tensor.
#
# | collective | before | after |
# |---|---|---|
# | broadcast | the root has a tensor | everybody has it |
# | scatter | the root has N parts | rank r has the r-th part |
# | gather | rank r has one part | the root has all parts, in the order of the ranks |
# | reduce | everybody has a tensor | the root has the sum |
# | all-gather | rank r has one part | everybody has all parts |
# | reduce-scatter | everybody has N parts | rank r has the sum of all r-th parts |
# | all-reduce | everybody has a tensor | everybody has the sum |
# | all-to-all | rank s has one part for each rank d | rank d has its part from each rank s |
#
# ("Sum" stands for any reduction: maximum, product, mean.) Three relations hide in this table. Gather is scatter played
# backwards, and reduce is broadcast played backwards: the same messages, turned round. And all-reduce is reduce-scatter
# followed by all-gather. The last one is the most useful fact of this chapter.
#
# Here are all eight by their names in `torch.distributed`, on four ranks. Rank r begins with numbers of its own: `10 r`,
# `10 r + 1`, and so on.

# %%
# %%ranks -o after
mine = 10.0 * rank + torch.arange(4.0)  # four parts of one number each
parts = list(mine.split(1))
found = {}

found["broadcast"] = mine.clone()
dist.broadcast(found["broadcast"], src=0)
found["scatter"] = torch.empty(1)
dist.scatter(found["scatter"], parts if rank == 0 else None, src=0)
places = [torch.empty(1) for _ in range(world_size)]
dist.gather(parts[0], places if rank == 0 else None, dst=0)
found["gather"] = torch.cat(places) if rank == 0 else torch.empty(0)
found["reduce"] = mine.clone()
dist.reduce(found["reduce"], dst=0)
if rank != 0:
    found["reduce"] = torch.empty(0)  # what is there now is nobody's business
places = [torch.empty(1) for _ in range(world_size)]
dist.all_gather(places, parts[0])
found["all_gather"] = torch.cat(places)
found["reduce_scatter"] = torch.empty(1)
dist.reduce_scatter(found["reduce_scatter"], [part.clone() for part in parts])
found["all_reduce"] = mine.clone()
dist.all_reduce(found["all_reduce"])
found["all_to_all"] = torch.empty(4)
dist.all_to_all_single(found["all_to_all"], mine)

{name: " ".join(f"{v:g}" for v in value.tolist()) for name, value in found.items()}

# %%
rank_table(
    [
        {"collective": name} | {f"rank {r}": after[r][name] or "-" for r in range(4)}
        for name in after[0]
    ],
    caption="What each rank has afterwards (before: rank r has 10r, 10r+1, 10r+2, 10r+3; "
    "gather and all_gather take the first of them)",
)

# %% [markdown]
# Read the row of `reduce_scatter` once more. Rank 0 has 60, the sum of all first parts, and nothing else.
#
# ## 2. The naive all-reduce
#
# Everybody sends its tensor to rank 0, which adds; rank 0 sends the sum back to everybody. That is how one writes it
# first.

# %%
dtlearn.show_source(naive.all_reduce)
dtlearn.show_source(naive.reduce)

# %% [markdown]
# This is no program that sends: it is a **plan**, a list of steps, and a step is a list of moves: who sends which part to
# whom, and whether the receiver adds. Every collective of `dtlearn.collectives` is such a plan, made by a function of a few
# lines. One executor runs any of them on ranks, with `isend` and `irecv`; a simulator proves them for any number of ranks;
# a price list turns them into seconds. You will read the executor below.

# %%
star_bytes = dtlearn.predict(
    "4 ranks all-reduce a tensor of 1 MB the naive way. How many MB does rank 0 send?",
    unit="MB",
)

# %%
# %%ranks --record star
from dtlearn.collectives import all_reduce

x = torch.full((250_000,), float(rank))  # 1 MB
all_reduce(x, algorithm="naive")
print(x[0].item())

# %%
sent = [star.select(rank=r, op="isend").nbytes() for r in range(4)]
print("bytes sent by ranks 0 to 3:", *[f"{n:,}" for n in sent])
star_bytes.reveal(
    sent[0] / 1e6,
    explain="It sends the whole sum to three ranks, and before that it received as much. "
    "The others send 1 MB each, and then they wait.",
)

# %% tags=["nbval-ignore-output"]
play_collective(star, "Naive all-reduce on 4 ranks")

# %% [markdown]
# Six steps with one message each. In each of them two ranks work and two wait. With N ranks there are $2(N-1)$ such steps:
# the time grows with the number of ranks, and all of it goes through rank 0's link.
#
# ## 3. The ring
#
# Cut the tensor into N chunks. Let all ranks work all the time: each sends one chunk to its right neighbour and
# receives one from its left. What it receives it adds to its own, and that is what it sends next.

# %%
ring_bytes = dtlearn.predict(
    "The same 1 MB on 4 ranks, as a ring. How many MB does each rank send?", unit="MB"
)

# %%
# %%ranks --record round_trip
x = torch.full((250_000,), float(rank))
all_reduce(x, algorithm="ring")
print(x[0].item())

# %%
sent = {round_trip.select(rank=r, op="isend").nbytes() for r in range(4)}
print("bytes sent by each rank:", *[f"{n:,}" for n in sent])
ring_bytes.reveal(
    sent.pop() / 1e6,
    explain="6 messages of a quarter of a MB. 2 (N-1) messages of 1/N of the tensor.",
)

# %%
show(
    bytes_per_rank(round_trip.select(op="isend"), expected=2 * 3 * 1_000_000 // 4),
    alt="Bytes that each of four ranks sent in the ring all-reduce of 1 MB: 1,500,000 on each, "
    "as the formula says.",
)

# %% tags=["nbval-ignore-output"]
play_collective(round_trip, "Ring all-reduce on 4 ranks")

# %% [markdown]
# Follow one chunk. After three steps each rank has *one* complete chunk, with the stripes of all four ranks: that was the
# **reduce-scatter**. In three more steps the complete chunks go round, and nobody adds any more: the **all-gather**. Each
# chunk is added up in one place and then only copied, so all ranks end with the same bits. That matters: floating-point
# addition is not associative, and ranks that add in different orders end with models that differ in the last digit, and
# then in more.
#
# The plan is a few lines.

# %%
dtlearn.show_source(ring.all_reduce)
dtlearn.show_source(ring.reduce_scatter)
dtlearn.show_source(ring.all_gather)

# %% [markdown]
# $$\text{sent by each rank} \;=\; \underbrace{(N-1)\frac nN}_{\text{reduce-scatter}} + \underbrace{(N-1)\frac nN}_{\text{all-gather}} \;=\; 2\,\frac{N-1}{N}\,n$$
#
# For 2 ranks that is $n$; for 384 it is $1.995\,n$. Twice the tensor, however many ranks there are. No all-reduce between
# ranks can do with less (Patarasuk and Yuan 2009, "Bandwidth optimal all-reduce algorithms for clusters of workstations"):
# a sum of N summands needs N-1 of them to travel, and the result must come back. What can do with less is a switch that
# adds on the way, which NVIDIA calls SHARP.
#
# **Exercises 1 to 3.** Write the two halves, then put them together, with the bytes counted. The executor of the next
# section is not allowed: these are sends and receives.

# %% exercise="ch02.ring_reduce_scatter"

# %% exercise="ch02.ring_all_gather"

# %% exercise="ch02.all_reduce"

# %% [markdown]
# ## 4. Not hanging
#
# The obvious way to write one step of a ring is: send to the right, then receive from the left. Every rank does that.

# %%
hang = dtlearn.predict.choice(
    "Each of 4 ranks first sends one number to its right neighbour and then receives one. "
    "What happens with gloo?",
    {
        "A": "It works.",
        "B": "It works for small tensors and hangs for large ones.",
        "C": "It hangs.",
    },
)

# %%
# %%ranks --expect deadlock
x = torch.ones(1)
dist.send(x, (rank + 1) % world_size)
dist.recv(x, (rank - 1) % world_size)

# %%
hang.reveal(
    "C",
    explain="A send of gloo ends when it is received, and nobody has come to its recv. "
    "B is what you may see elsewhere: a library with a buffer for small messages lets them pass, "
    "so the bug waits for your first large tensor.",
)

# %% [markdown]
# Two cures. Let even ranks send first and odd ranks receive first. Or do not wait: `isend` and `irecv` return at once with
# a handle, and `wait()` on it comes later. The executor posts all receives of a step, then all sends, and then waits; that
# cannot hang, for any plan and any size.

# %%
dtlearn.show_source(execute.execute, docstring=False)

# %% [markdown]
# **Exercise 4.** A ring that hangs, for you to repair; and mind what an `isend` still reads.

# %% exercise="ch02.repair_the_ring"

# %% [markdown]
# ## 5. What it costs
#
# A message of $n$ bytes takes $\alpha + n/\beta$: a latency $\alpha$, in seconds, and the bytes at a bandwidth $\beta$. This
# is the **alpha-beta model** (Hockney 1994). It knows nothing of cables and switches, and it is right often enough to choose
# an algorithm by it.
#
# | all-reduce | messages in a row | bytes in a row | time |
# |---|---|---|---|
# | naive | $2(N-1)$ | $2(N-1)\,n$ | $2(N-1)(\alpha + n/\beta)$ |
# | ring | $2(N-1)$ | $2\frac{N-1}{N}\,n$ | $2(N-1)\alpha + 2\frac{N-1}{N}\,n/\beta$ |
# | tree | $2\lceil\log_2 N\rceil$ | $2\lceil\log_2 N\rceil\, n$ | $2\lceil\log_2 N\rceil(\alpha + n/\beta)$ |
# | halving-doubling, $N=2^k$ | $2\log_2 N$ | $2\frac{N-1}{N}\,n$ | $2\log_2 N\,\alpha + 2\frac{N-1}{N}\,n/\beta$ |
#
# The ring has the fewest bytes and the most messages in a row. A **tree** doubles the number of ranks that know in every
# step, so it needs few messages, each with the whole tensor:


# %% tags=["nbval-ignore-output"]
def one_broadcast():
    import torch

    from dtlearn.collectives import broadcast

    broadcast(torch.ones(1000))


tree_run = dtlearn.run_ranks(one_broadcast, 8, record=True, device="cpu")
play_collective(
    tree_run.record,
    "Tree broadcast on 8 ranks: three steps",
    start=start(tree.broadcast(8)),
)

# %%
small = dtlearn.predict.choice(
    "64 ranks, 1 kB, latency 5 us, 12.5 GB/s. Which all-reduce is faster?",
    {"A": "the ring", "B": "the tree", "C": "no difference"},
)

# %%
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
    caption="Model: 64 ranks, one link each, 5 us, 12.5 GB/s",
)

# %%
size = cost.crossover(plans["tree"], plans["ring"], link)
small.reveal(
    "B",
    explain=f"12 latencies against 126. Above {size / 1e6:.2f} MB the ring's fewer bytes win. "
    "Halving-doubling has the best of both, as long as N is a power of two and all pairs of "
    "ranks have links of their own.",
)

# %% [markdown]
# Does the model hold? On this machine the ranks share cores and memory, so $\alpha$ and $\beta$ stand for everything a
# message costs here: calls, copies, additions. Measure, fit the two numbers, and look at what is left.

# %% tags=["nbval-ignore-output"]
sizes = [1 << k for k in (10, 13, 16, 19, 21, 23)]
times = measure.slowest(
    dtlearn.run_ranks(
        measure.time_on_rank, 4, "all_reduce", sizes, 5, device="cpu"
    ).values
)
curves = []
for name in ("library", "ring", "tree", "naive"):
    best = {n: min(seconds) for n, seconds in times[name].items()}
    if name == "library":
        curves.append(Curve("gloo's own", best))
        continue
    plan = measure.plan_of("all_reduce", name, 4)
    f = measure.fit_plan(plan, best)
    unit = topology.flat(f.latency, f.bandwidth)
    curves.append(
        Curve(
            name,
            best,
            lambda n, plan=plan, unit=unit: cost.plan_seconds(plan, n, unit),
            fit_words(f.latency, f.bandwidth, f.residual),
        )
    )
show(
    cost_curves(
        curves,
        "All-reduce on 4 ranks",
        "measured on this machine, best of 5; gloo on CPU",
    ),
    alt="Seconds over bytes, both axes logarithmic, for the naive, tree and ring all-reduce with "
    "their fitted lines, and for gloo's own. All are flat for small tensors and rise in "
    "proportion for large ones; for small ones the ring, with the most messages in a row, takes "
    "longest of the three.",
)

# %% [markdown]
# Two regimes: flat where latency rules, rising where bandwidth does. The bend is where $n/\beta$ of a message reaches
# $\alpha$. "gloo's own" is `dist.all_reduce`, a ring written in C++; ours pays Python for every message.
#
# And a disappointment that teaches something: for large tensors the ring is hardly better than the naive way here, if at
# all. The ranks of one computer share its memory and its cores, and together they move $2(N-1)\,n$ bytes in both cases:
# $N$ times $2\frac{N-1}{N}n$ in the ring. The ring wins where every rank has a link of its own, because then they all
# work at the same time.
#
# So give them one. `Link` holds back what the ranks really send as a link of their own would, here one of 1 Gb/s and 50 us.
# The wall clock then shows the formula, and a little more: our Python, the copies and the additions.

# %% tags=["nbval-ignore-output"]
world.link = dtlearn.Link.named("1 Gb/s")

# %% tags=["nbval-ignore-output"]
# %%ranks -o waited
import time

waited = {}
x = torch.ones(4_000_000)  # 16 MB
for algorithm in ("naive", "tree", "ring"):
    dist.barrier()
    begun = time.perf_counter()
    all_reduce(x, algorithm=algorithm)
    waited[algorithm] = time.perf_counter() - begun
waited

# %% tags=["nbval-ignore-output"]
world.link = None
gigabit = topology.flat(50e-6, 125e6)
rank_table(
    [
        {
            "all-reduce": name,
            "model": f"{1e3 * cost.plan_seconds(measure.plan_of('all_reduce', name, 4), 16e6, gigabit):.0f} ms",
            "measured": f"{1e3 * max(rank[name] for rank in waited):.0f} ms",
        }
        for name in ("naive", "tree", "ring")
    ],
    caption="16 MB on 4 ranks, emulated link: 1 Gb/s, 50 us",
)

# %% [markdown]
# **Exercises 5 to 7.** A broadcast in $\lceil\log_2 N\rceil$ rounds; an all-to-all; and the prices of ring and tree as a
# function.

# %% exercise="ch02.broadcast"

# %% exercise="ch02.all_to_all"

# %% exercise="ch02.predict_cost"

# %% [markdown]
# ## 6. Bandwidth, and what nccl-tests calls it
#
# Divide the size of the tensor by the time and you get the **algorithm bandwidth**, `algbw`. It sinks as N grows although
# the links are as fast as ever, because each rank moves $2(N-1)/N$ of the tensor. Multiplied by that factor it is the
# **bus bandwidth**, `busbw`, which can be compared with the speed of a link, for any N (nccl-tests, PERFORMANCE.md; the
# factor is $(N-1)/N$ for all-gather and reduce-scatter).

# %% tags=["nbval-ignore-output"]
rank_table(
    [
        {
            "ranks": N,
            "time": f"{1e3 * (t := cost.plan_seconds(ring.all_reduce(N), 1e9, link)):.0f} ms",
            "algbw": f"{cost.algorithm_bandwidth(1e9, t) / 1e9:.2f} GB/s",
            "busbw": f"{cost.bus_bandwidth('all_reduce', N, 1e9, t) / 1e9:.2f} GB/s",
        }
        for N in (2, 4, 8, 64, 512)
    ],
    caption="Model: ring all-reduce of 1 GB, links of 12.5 GB/s",
)

# %% [markdown]
# ## 7. Clusters have levels
#
# In a DGX H100 eight GPUs talk over NVLink at 450 GB/s each way (900 in both together, NVIDIA's data sheet); to other
# nodes each has a network card of 400 Gb/s, which is 50 GB/s. Nine times slower. A flat ring through all ranks goes through
# the slow links in every step, and uses one card of each node while seven are idle.
#
# So work on two levels. Reduce-scatter inside the node; then every GPU all-reduces *its* chunk with the GPUs of the same
# place in the other nodes, all cards busy at once; then all-gather inside the node. Each part is the ring of section 3, with
# other names for its ranks and chunks.

# %%
dtlearn.show_source(hierarchical.all_reduce, docstring=False)
dtlearn.show_source(hierarchical.renamed)


# %% tags=["nbval-ignore-output"]
def two_level_all_reduce():
    import torch

    from dtlearn.collectives import all_reduce

    all_reduce(torch.ones(1000), algorithm="hierarchical", ranks_per_node=2)


two_levels = dtlearn.run_ranks(two_level_all_reduce, 4, record=True, device="cpu")
play_collective(two_levels.record, "Hierarchical all-reduce: 2 nodes of 2 ranks")

# %%
flat_or_not = dtlearn.predict(
    "384 GPUs in 48 such nodes all-reduce 2 GB (1 billion bf16 gradients). "
    "How many times as long does the flat ring take as the hierarchical one?"
)

# %%
cluster = topology.DGX_H100
algorithms = {
    "flat ring": ring.all_reduce(384),
    "tree": tree.all_reduce(384),
    "hierarchical": hierarchical.all_reduce(384, 8),
}
seconds = {
    name: cost.plan_seconds(plan, 2e9, cluster) for name, plan in algorithms.items()
}
for name, s in seconds.items():
    print(f"{name:13} {1e3 * s:7.1f} ms")
flat_or_not.reveal(
    round(seconds["flat ring"] / seconds["hierarchical"], 1),
    explain="The flat ring's bytes go through cards of 50 GB/s; with two levels each card carries "
    "an eighth of them.",
)

# %%
show(
    cost_bars(
        {
            label: {
                name: (line[0], line[1] * n)
                for name, plan in algorithms.items()
                for line in [cost.plan_line(plan, cluster)]
            }
            for label, n in {"1 MB": 1e6, "2 GB": 2e9}.items()
        },
        "All-reduce on 384 GPUs",
        "model: 48 nodes of 8, NVLink 450 GB/s, a 50 GB/s card per GPU",
    ),
    alt="Two groups of bars, for 1 MB and for 2 GB: time of the flat ring, the tree and the "
    "hierarchical all-reduce, split into latency and transfer. For 1 MB the ring's time is almost "
    "all latency and the tree is the fastest; for 2 GB the hierarchical one is the fastest and the "
    "tree the slowest.",
)

# %% [markdown]
# Racks are a third level. If 32 GPUs share uplinks that carry half of what their cards could, a collective that crosses
# racks has half the bandwidth there, and its place in the job decides its price: talk most with those who are near.
#
# **Exercise 8.** The hierarchical one. Counted are the bytes between nodes.

# %% exercise="ch02.hierarchical_all_reduce"

# %% [markdown]
# ## 8. Where the libraries do it
#
# | library | all-reduce |
# |---|---|
# | gloo | ring, over TCP |
# | NCCL | ring, double binary tree, and on NVSwitch the switch's own additions (NVLS); chosen by size and topology, `NCCL_ALGO` forces one |
# | MPI (MPICH) | recursive doubling for short messages, Rabenseifner's halving-doubling for long ones (Thakur, Rabenseifner and Gropp 2005) |
#
# NCCL's ring goes through the GPUs of a node by NVLink and leaves the node once for each of several rings, so that all
# cards are used: it is flat in name only. Where two GPUs are, the next cell measures NCCL, and our ring as NCCL's sends and receives;
# elsewhere it is gloo once more. This notebook was run without a GPU.

# %% tags=["nbval-ignore-output"]
on_two = dtlearn.run_ranks(measure.time_on_rank, 2, "all_reduce", [1 << 12, 1 << 24], 5)
both = measure.slowest(on_two.values)
rank_table(
    [
        {
            "all-reduce": name,
            "4 KiB": f"{1e6 * min(both[name][1 << 12]):.0f} us",
            "16 MiB": f"{1e3 * min(both[name][1 << 24]):.1f} ms",
            "busbw, 16 MiB": f"{cost.bus_bandwidth('all_reduce', 2, 1 << 24, min(both[name][1 << 24])) / 1e9:.2f} GB/s",
        }
        for name in ("library", "ring")
    ],
    caption=f"2 ranks, {on_two.placement.where}; best of 5",
)

# %% [markdown]
# Parity, by numbers: for every collective and algorithm of this package the tests compare the result with
# `torch.distributed`'s own on 1 to 4 ranks, on sub-groups, for four dtypes and sizes that N does not divide. Here is one
# of them.

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
# ## 9. Myths
#
# **"After reduce-scatter every rank has the sum."** It has *one part* of the sum. Everybody having all of it is all-reduce,
# and costs twice as much. Chapter 9 lives on this difference.
#
# **"All-reduce gets slower with every rank that you add."** Its bytes per rank grow from $n$ to less than $2n$, and stop.
# Its latency grows: linearly for a ring, with $\log_2 N$ for a tree. For large tensors it hardly matters how many ranks
# there are; what matters is the slowest link.
#
# **"The ring is the best all-reduce."** For large tensors on equal links. Not for small ones, and not across nodes.
#
# **"All-reduce is reduce plus broadcast."** It has the same result. Through one root it costs $2(N-1)n$ on the root's link.
#
# **"Collectives are barriers."** A broadcast's root may be gone before the last rank has come. Only `barrier` promises that
# everybody has arrived, and all-reduce, all-gather and all-to-all imply it, because nobody can have a result without
# everybody's data.
#
# ## 10. Check yourself
#
# <details><summary>8 ranks, 800 MB, ring all-reduce. How many bytes does each rank send, in how many messages?</summary>
#
# 2 x 7/8 x 800 MB = 1,400 MB in 14 messages of 100 MB.
# </details>
#
# <details><summary>busbw is 40 GB/s on links of 50 GB/s, algbw is 21 GB/s. How many ranks?</summary>
#
# busbw / algbw = 2 (N-1)/N = 1.905, so N = 21.
# </details>
#
# <details><summary>Why must the all-gather half of a ring not add?</summary>
#
# The chunk that arrives is the complete sum; what the rank has is a partial sum that is already in it. Adding would count
# summands twice.
# </details>
#
# <details><summary>A tree broadcast on 5 ranks: how many steps, and who sends in the last one?</summary>
#
# 3 steps. 1, 2, then 4 ranks know; in the last step the root sends to the fifth.
# </details>
#
# ## Glossary
#
# | English | 中文 | meaning |
# |---|---|---|
# | collective | 集合通信 | a call that all ranks of a group make together |
# | point-to-point | 点对点通信 | one rank sends, one receives |
# | root | 根进程 | the rank that has, or gets, everything |
# | broadcast | 广播 | the root's tensor to everybody |
# | scatter, gather | 分发、收集 | parts from the root; parts to the root |
# | reduce | 归约 | the sum of all tensors, at the root |
# | all-gather | 全收集 | all parts, for everybody |
# | reduce-scatter | 归约分发 | to each rank one part of the sum |
# | all-reduce | 全归约 | the sum, for everybody |
# | all-to-all | 全交换 | from everybody to everybody, a part each |
# | ring, tree | 环形、树形算法 | two shapes of the same sentence |
# | chunk | 分块 | the part of a tensor that a step moves |
# | latency, bandwidth | 延迟、带宽 | $\alpha$, the time of an empty message; $\beta$, bytes per second |
# | algorithm / bus bandwidth | 算法带宽、总线带宽 | size over time; the same, made comparable with a link |
# | topology | 拓扑结构 | which links there are, and how fast |
#
# Next: chapter 3 uses all-reduce for what it is mostly used for, the gradients of copies of a model.
