# %% [markdown]
# # Chapter 1. Ranks
#
# **The question.** How do many processes become one training job?
#
# Builds on: nothing. You need PyTorch's training loop, and that is all. Time: about an hour to read and run, and an hour or
# more for the eight exercises. Ranks: 4, on whatever machine this is; a laptop will do.
#
# After this chapter you can say what a rank is and is not, start a job with five launchers and know why all of them
# give the same loss, read the message of a job that hangs, and do the sum that says when many machines are worth it.
#
# Every picture below is drawn from a run that this notebook made. Where a cell asks you to predict, commit to an
# answer first: a wrong guess teaches more than a right one that you only read.

# %%
# %load_ext dtlearn
import os

import dtlearn
from dtlearn.notebook.panels import Slider, slider_panel
from dtlearn.viz import bytes_per_rank, rank_table, rendezvous, show, speedup, timeline

world = dtlearn.world(4)
world

# %% [markdown]
# The line above is the *device rule*, said out loud: NCCL if every rank has a GPU of its own, otherwise gloo on the
# CPU. Nothing else in this course depends on which it is. The four processes now wait behind this notebook. A cell
# that begins with `%%ranks` runs on all of them; any other cell runs here, in the notebook's own process.
#
# ## 1. One process, four times
#
# Each process runs the same text. So: are they one program, or four?

# %%
length = dtlearn.predict(
    "Each of the 4 ranks makes an empty list and appends its own rank. "
    "How long is rank 2's list?"
)

# %%
# %%ranks -o lengths
seen = []
seen.append(rank)
print(f"I am rank {rank} of {world_size}, and I have seen {seen}")
len(seen)

# %%
length.reveal(
    lengths[2],
    explain="Four processes have four memories. No rank sees another's variables, ever.",
)

# %% [markdown]
# The only difference between the four is a number: the **rank**. The program is the same, the variables have the same
# names, and `rank` decides who does what. This way of working is called SPMD: single program, multiple data.
#
# A launcher tells each process its place through the environment. Here is what our ranks were told.

# %%
# %%ranks -o told
import os

names = [
    "RANK",
    "LOCAL_RANK",
    "GROUP_RANK",
    "WORLD_SIZE",
    "LOCAL_WORLD_SIZE",
    "MASTER_ADDR",
]
{name: os.environ[name] for name in names}

# %%
rank_table(told, caption="What each process was told (this machine, 4 ranks)")

# %% [markdown]
# | name | meaning |
# |---|---|
# | `RANK` | the process's number in the whole job, 0 to `WORLD_SIZE` - 1 |
# | `LOCAL_RANK` | its number on its own machine: the GPU it may use |
# | `GROUP_RANK` (the **node rank**) | the number of its machine |
# | `WORLD_SIZE` | processes in the job |
# | `LOCAL_WORLD_SIZE` | processes on this machine |
# | `MASTER_ADDR`, `MASTER_PORT` | where all processes meet: usually the machine of rank 0 |
#
# On one machine `RANK` and `LOCAL_RANK` are equal, which is how a bug hides. Section 5 starts two machines, played on
# this one, and the two numbers part.
#
# **Exercise 1.** Now write what every training script does first: read its place from the environment. It must hold on a
# cluster that you do not have, so the check plays the processes of machines of different sizes. An exercise cell saves
# what you write to the file that it names, and grades it on ranks; the text at its top says what is asked. `dtlearn hint`
# gives the hints one by one.

# %% exercise="ch01.who_am_i"

# %% [markdown]
# ## 2. Finding each other
#
# A process that starts knows its own number, and nothing of the others: no address, no socket. Before it can send
# anything it must find them. This is the **rendezvous**, and it happens inside `init_process_group`.

# %%
late = dtlearn.predict.choice(
    "Rank 3 starts 0.3 s after the others. What do ranks 0, 1 and 2 do in init_process_group?",
    {
        "A": "They start without rank 3, and it joins later.",
        "B": "They wait for it.",
        "C": "They fail.",
    },
)

# %% tags=["nbval-ignore-output"]
from dtlearn.runtime.rendezvous import record_rendezvous

calls = record_rendezvous(4, late={3: 0.3})
show(
    rendezvous(
        [
            call for call in calls if call.action != "get"
        ],  # reading what was waited for takes no time
        world_size=4,
        label="gloo on CPU, ranks meet through a file; rank 3 starts 0.3 s late",
    ),
    alt="Store calls of four ranks during init_process_group. Ranks 0, 1 and 2 write "
    "their own key at once and then wait for the key of rank 3, which is written 0.3 s "
    "later; then all finish together.",
)

# %%
writes = sorted(
    {(call.rank, call.key.rsplit("/", 1)[-1]) for call in calls if call.writes}
)
print("who wrote which key:", writes)
late.reveal(
    "B",
    explain="The world size is fixed at the start. A job begins when its last rank has come.",
)

# %% [markdown]
# What you see is all there is to it. The **store** is a small shared dictionary. Every rank *sets* one key, its own
# address (the last number in a key is the rank), and *waits* for the keys of the others; then they open connections to
# each other, and the store has done its work. With `torchrun` the store is a `TCPStore`, a little server at `MASTER_ADDR:MASTER_PORT`; here it is a
# `FileStore`, a file in a new folder, which needs no port and no name look-up.
#
# Three classic failures live here. A rank that never starts makes all others wait for the store's time-out. Two jobs
# with the same `MASTER_PORT` meet each other's ranks. A host name that resolves to 127.0.0.1 makes a second machine
# look for its peers at home.
#
# ## 3. Speaking
#
# Ranks share nothing, so whatever they agree on has to be sent. The basic sentence is a **collective**: a call that
# every rank of a group makes, each with its own part.

# %%
total = dtlearn.predict(
    "Rank r holds the number r. After all_reduce with SUM on 4 ranks, what does rank 3 hold?"
)

# %%
# %%ranks -o sums
number = torch.tensor([float(rank)], device=device)
dist.all_reduce(number)  # SUM is the default
print("after the all_reduce:", number)
number.item()

# %%
total.reveal(sums[3], explain="0 + 1 + 2 + 3, and every rank has it, not only rank 0.")

# %% [markdown]
# **Exercise 2.** A sum is all that you need for a mean, also where the ranks hold different amounts of data. The obvious
# solution is wrong, and it gives a number that looks right.

# %% exercise="ch01.mean_over_uneven"

# %% [markdown]
# A collective is for all ranks of a group. Two ranks alone talk **point to point**: `dist.send(tensor, dst)` on the one,
# `dist.recv(tensor, src)` on the other, which fills its tensor. With gloo a send returns when the other side has received;
# `dist.isend` and `dist.irecv` return at once, with a handle whose `wait()` does the waiting.

# %%
# %%ranks -r 0,1
if rank == 0:
    dist.send(torch.tensor([3.0, 4.0], device=device), dst=1)
else:
    message = torch.zeros(2, device=device)
    dist.recv(message, src=0)
    print("rank 1 received", message)

# %% [markdown]
# **Exercise 3.** What if both want to say something?

# %% exercise="ch01.ping_pong"

# %% [markdown]
# Who carries the message? PyTorch calls it the **backend**.
#
# | backend | carries | over | used for |
# |---|---|---|---|
# | gloo | CPU tensors (GPU tensors go through the CPU) | TCP | laptops, tests, CPU clusters |
# | NCCL | GPU tensors only | NVLink, PCIe, InfiniBand, TCP | training on NVIDIA GPUs |
# | MPI | what the MPI library was built for | that library's network | clusters with their own MPI; PyTorch must be built from source with it |
#
# The calls are the same for all three, which is why this course can teach on a laptop what runs on a cluster. (PyTorch's
# documentation of `torch.distributed` has the table of which call each backend supports.) Let us ask this build.

# %% tags=["nbval-ignore-output"]
# %%ranks -r 0
print("gloo:", dist.is_gloo_available())
print("NCCL:", dist.is_nccl_available())
print("MPI: ", dist.is_mpi_available())

# %% [markdown]
# The device rule is a pure function of two numbers. NCCL refuses two ranks on one GPU, which is why the second row
# falls back to gloo.

# %%
from dtlearn.runtime.device import place

cases = [(4, 8), (4, 2), (4, 0), (1, 1)]
rank_table(
    [{"ranks": n, "GPUs": gpus, "decision": str(place(n, gpus))} for n, gpus in cases],
    caption="The device rule for one machine",
)

# %% [markdown]
# ## 4. Training
#
# First the naive way. Give each rank its own quarter of every batch, a model, an optimizer, and let all four train.
# Real images (scikit-learn's handwritten digits), a small network, 100 steps.

# %%
# %%ranks -o alone
import torch.nn.functional as F

from dtlearn.models import MLP, load_digits, reference_step

torch.manual_seed(rank)
model = MLP().to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
for batch in load_digits().batches(100, 96, seed=0):  # the same batches on every rank
    part = [t[rank::world_size].to(device) for t in batch]  # ... each takes its quarter
    step = reference_step(model, optimizer, part, F.cross_entropy)
weight = next(model.parameters())[0, 0].item()
{"rank": rank, "last loss": round(step.loss, 3), "first weight": round(weight, 5)}

# %% tags=["nbval-ignore-output"]
rank_table(alone, caption="Four ranks that never spoke")

# %% [markdown]
# Four losses that look fine, and four different models, each trained on a quarter of the data. Nothing failed and
# nothing was gained: this is four small trainings, not one large one. What is missing is two sentences. Before the first
# step every rank must have *the same model*; after each backward pass every rank must use *the same gradient*, that of
# the whole batch.
#
# Here is the script with both. It is short; read all of it. It is the one script that every launcher below will run.

# %%
from dtlearn.models import train_digits

dtlearn.show_source(train_digits.train, docstring=False)

# %%
dtlearn.show_source(train_digits.average_gradients)

# %% [markdown]
# The other sentence, "the same model", is `broadcast_model` above: one broadcast for each parameter.
#
# **Exercise 4.** That is enough for this network and not for every one: some layers keep numbers that are no parameters.

# %% exercise="ch01.start_equal"

# %% [markdown]
# Why does averaging give the gradient of the whole batch? The loss of the batch is a mean over its $B$ rows. Cut the rows
# into $N$ equal parts: the mean over all rows is the mean of the $N$ part means. Differentiation is linear, so the same
# holds for gradients:
#
# $$\nabla \frac1B\sum_{i=1}^{B} \ell_i \;=\; \frac1N\sum_{r=0}^{N-1} \underbrace{\nabla\frac{N}{B}\sum_{i\in\text{part } r}\ell_i}_{\text{gradient on rank } r}$$
#
# It needs equal parts. With unequal ones the mean of means is wrong, and nothing tells you; chapter 3 repairs that.

# %%
same = dtlearn.predict.choice(
    "Train with 1, 2 and 4 ranks, the global batch of 96 images kept. "
    "The last loss with 4 ranks is ...",
    {
        "A": "lower: four ranks learn more",
        "B": "equal, up to rounding",
        "C": "higher: each rank sees less",
    },
)

# %%
runs = {n: dtlearn.run_ranks(train_digits.train, n, record=True) for n in (1, 2, 4)}
rank_table(
    [
        {
            "ranks": n,
            "images per rank": 96 // n,
            "last loss": round(run[0].losses[-1], 4),
            "accuracy": round(run[0].accuracy, 3),
        }
        for n, run in runs.items()
    ],
    caption="The same script on 1, 2 and 4 ranks, 100 steps",
)

# %%
one = runs[1][0].losses
worst = max(
    abs(a - b) for n in (2, 4) for a, b in zip(one, runs[n][0].losses, strict=True)
)
assert worst < 1e-5, worst
same.reveal(
    "B",
    explain="In none of the 100 steps do the losses differ by more than 1e-5. Same mathematics, "
    "other order of additions. The speed may change; the result must not.",
)

# %% [markdown]
# That is the standard for this whole course: **parity**. A strategy for many ranks must reproduce the loss of one process,
# or say exactly why not.
#
# `run_ranks` has recorded what the ranks said. Here are the first two steps.

# %% tags=["nbval-ignore-output"]
two_steps = dtlearn.run_ranks(train_digits.train, 4, 2, record=True)
show(
    timeline(two_steps.record, title="Two training steps on 4 ranks"),
    alt="A lane for each of four ranks over time. Six short broadcasts give every rank the "
    "model of rank 0; then each of two steps has one long all_reduce for the gradients and "
    "one short all_reduce for the loss.",
)

# %% [markdown]
# First six broadcasts, one for each parameter tensor: everyone gets rank 0's model. Then, in each step, one all-reduce of
# all gradients and one of the loss. Between them each rank computes, alone. Hollow bars are *waiting*: a collective can
# begin to move data only when its last rank has come. (The filled ones are long because four ranks share the processor.)
#
# How much is sent? The model has 26,122 parameters of 4 bytes.

# %%
sent = dtlearn.predict(
    "How many bytes of gradients does one rank hand to all_reduce in one step?",
    unit="bytes",
)

# %%
gradient_bytes = sum(4 * p.numel() for p in dtlearn.models.MLP().parameters())
record = runs[4].record
per_step = {e.nbytes for e in record.select(op="all_reduce", rank=0)}
assert per_step == {gradient_bytes, 4}
sent.reveal(
    max(per_step),
    explain="26,122 x 4: the recorded calls have the size of the model's gradients. The only "
    "others, of 4 bytes, are the loss, for people to read.",
)

# %%
show(
    bytes_per_rank(record.select(op="all_reduce"), expected=100 * (gradient_bytes + 4)),
    alt="Payload of all_reduce on four ranks over 100 steps: 10,449,200 bytes on each, "
    "as expected.",
)

# %% [markdown]
# This is the *payload*, what a rank hands over. What crosses the wire depends on the algorithm: for a ring, $2(N-1)/N$
# times the payload, sent by each rank. Chapter 2 builds it and counts.
#
# ## 5. Five launchers, one script
#
# A launcher starts processes and tells each its place. That is all it does, so the script need not care which one it was.
#
# **Cells.** The ranks behind this notebook are already one job:

# %%
# %%ranks -r 0-3
from dtlearn.models.train_digits import train

result = train()
print(result)

# %% [markdown]
# **torchrun**, the launcher that comes with PyTorch. `%%launch` writes the cell to a file and runs
# `torchrun --nproc-per-node 2` on it, in new processes, as you would in a terminal. The process group does not exist yet:
# the script makes it, from the environment.

# %%
# %%launch -n 2
from dtlearn.models.train_digits import main

main([])

# %% [markdown]
# **Several machines.** One `torchrun` on each, with the same `--master-addr` and its own `--node-rank`. Below, two
# launchers play two machines on this one, with one rank each; the commands on real ones differ in the address and in the
# number of ranks:
#
# ```
# machine 0:  torchrun --nnodes 2 --node-rank 0 --nproc-per-node 2 \
#                      --master-addr HOST0 --master-port 29500 train.py
# machine 1:  torchrun --nnodes 2 --node-rank 1 --nproc-per-node 2 \
#                      --master-addr HOST0 --master-port 29500 train.py
# ```

# %%
# %%launch -n 1 --nodes 2
import os

from dtlearn.models.train_digits import main

main([])
env = os.environ
print(
    "node rank", env["GROUP_RANK"], "local rank", env["LOCAL_RANK"], "rank", env["RANK"]
)

# %% [markdown]
# Now `RANK` and `LOCAL_RANK` differ: $\text{rank} = \text{node rank} \times \text{ranks per node} + \text{local rank}$.
# Rank 1 is the first process of the second machine, and its GPU there is number 0.
#
# On machines like these, which ranks should talk most? Those on one machine, whose links are short. Large jobs therefore cut
# their ranks into **groups**: neighbours for what is said often, ranks far apart for the rest. Chapter 14 does this in
# earnest; the arithmetic fits here.
#
# **Exercises 5 and 6.** First list the groups, then use them. `dist.new_group(ranks)` makes a process group of some of the
# ranks; a collective with `group=` is then a matter of these ranks alone.

# %% exercise="ch01.rank_groups"

# %% exercise="ch01.sum_in_group"

# %% [markdown]
# **accelerate** has two doors. `notebook_launcher` forks the process that calls it. Forking copies the memory but only one
# of the threads, and a library that had threads before (OpenMP after any large matrix product; CUDA after any use of it)
# may then wait for threads that no longer exist. The script below forks twice: before and after one backward pass on two
# threads.

# %%
# %%launch -n 1 --with python
import os
import signal

os.environ["ACCELERATE_USE_CPU"] = "1"
import torch
from accelerate import notebook_launcher

from dtlearn.models.train_digits import main

torch.set_num_threads(2)


def product():
    torch.randn(600, 600) @ torch.randn(600, 600)  # a few milliseconds
    print("a matrix product, on rank", os.environ["RANK"], flush=True)


def give_up(*_):
    print("no answer for 3 seconds: giving up", flush=True)
    os._exit(0)


print("fork before any threads, and train:", flush=True)
notebook_launcher(main, ([],), num_processes=2)
weight = torch.randn(600, 600, requires_grad=True)
(weight @ weight).sum().backward()
signal.signal(signal.SIGALRM, give_up)
signal.alarm(3)
print("fork after a backward pass on two threads, and multiply:", flush=True)
notebook_launcher(product, num_processes=2)

# %% [markdown]
# The second fork never finishes; the script gave itself three seconds. (It says "CUDAs" on a machine that has none; ignore that.) Once CUDA was used, the same
# launcher refuses to fork, which is kinder. The ranks of this course are never forked from the notebook, for this reason:
# a clean helper process, which has loaded torch and computed nothing of yours, forks them.
#
# The other door is `accelerate launch`. It has a trap on machines without GPUs: it starts **one** process, and does not
# say so.

# %%
# %%launch -n 2 --with accelerate
import os

print(
    "asked for 2 processes; this one was told WORLD_SIZE =", os.environ.get("WORLD_SIZE")
)

# %% [markdown]
# One line, from one process, which was told nothing: on a machine without a GPU the second never came. The training script
# would have trained alone, and nothing would have failed. Print the world size in every script you own. (`torchrun`
# starts accelerate scripts properly: under it, accelerate finds its two processes.)
#
# **Slurm** starts processes on machines that it chose. Its names differ, so a job script translates them. Most people
# let Slurm start one `torchrun` per machine instead, as below (after a first line `#!/bin/bash`). This one was not run
# here: there is no Slurm on a laptop.
#
# ```bash
# #SBATCH --nodes=2 --ntasks-per-node=1 --gpus-per-node=4
# head=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
# srun torchrun --nnodes 2 --nproc-per-node 4 \
#      --rdzv-backend c10d --rdzv-endpoint "$head:29500" --rdzv-id "$SLURM_JOB_ID" train.py
# ```
#
# | launcher | starts | tells the script | good for |
# |---|---|---|---|
# | `%%ranks` | nothing: the ranks wait here | group exists already | looking, trying, breaking |
# | `run_ranks` | fresh ranks, in about a quarter of a second | group exists already | tests, graders, benchmarks |
# | `torchrun` | fresh processes, on one or many machines | environment | real jobs |
# | `accelerate launch`, `notebook_launcher` | fresh processes, or forks | environment | scripts written for accelerate |
# | Slurm (`srun`) | one process per task, on machines it chose | its own names | shared clusters |
#
# ## 6. What a hang looks like
#
# Every rank of a group must make the same collective calls in the same order. Here rank 1 takes another path.

# %%
hang = dtlearn.predict.choice(
    "Ranks 0, 2 and 3 call all_reduce; rank 1 does not, and has nothing more to do. "
    "What does PyTorch do?",
    {
        "A": "raise an error on rank 1",
        "B": "let the other three wait, without a word",
        "C": "return the sum without rank 1",
    },
)

# %%
# %%ranks --record stuck --expect deadlock
survivor = f"variable of rank {rank}"
total = torch.ones(1, device=device)
if rank != 1:
    dist.all_reduce(total)

# %%
hang.reveal("B", explain="A collective cannot know that a rank will never come.")

# %% tags=["nbval-ignore-output"]
show(
    timeline(stuck, title="Three ranks in a call that the fourth never made"),
    alt="Four lanes. Ranks 0, 2 and 3 each have one all_reduce that starts and never returns; "
    "rank 1 has no call.",
)

# %% [markdown]
# The message is this course's, not PyTorch's. PyTorch waits until its time limit (30 minutes with gloo, 10 with NCCL) and
# what it prints then names neither the rank that did not come nor the line. Here a *watch* reads what every rank calls
# while the cell runs: when some wait for a call that another can no longer make, it says so and ends the cell.
#
# Read it again: which ranks wait, in which call, on which line, and who never came. A hang is a difference between ranks;
# the question is less "where does it wait?" than "where did the ranks part?".
#
# The ranks were freed, and this notebook can go on. Their variables are still there:

# %%
world.gather("survivor")

# %% [markdown]
# The other classic: every rank is somewhere, but not in the same call. Nobody has ended, everybody waits.

# %%
# %%ranks --expect deadlock
if rank == 1:
    dist.broadcast(total, src=0)
else:
    dist.all_reduce(total)

# %% [markdown]
# And the quiet one. Nothing hangs, nothing fails, the numbers are wrong:

# %%
# %%ranks --expect deadlock
half = total.to(torch.int32) if rank == 1 else total  # the same number of bytes
dist.all_reduce(half)

# %% [markdown]
# An exception on one rank is the same story with a better beginning: one rank leaves, the others wait for it. What you
# want to see first is the exception, not the ones who waited.

# %%
# %%ranks --expect error
if rank == 2:
    raise ValueError("this rank's data file is missing")
dist.barrier()

# %% [markdown]
# The most common hang of all has none of these mistakes in plain sight: there is no `if rank`, only data of different
# lengths.

# %%
# %%ranks --expect deadlock
batches = [torch.ones(2, device=device)] * (
    3 if rank == 1 else 2
)  # rank 1 has one batch more
for batch in batches:
    step_sum = batch.sum()
    dist.all_reduce(step_sum)

# %% [markdown]
# **Exercise 7.** Repair it, so that no batch is lost.

# %% exercise="ch01.repair_the_hang"

# %% [markdown]
# **Exercise 8.** To end with, build one of the collectives yourself. A barrier carries no data at all: what it gives is the
# certainty that all have come. The check has one rank come late, each in turn. Counting messages, there is a plain
# solution, a good one, and one that is as good as it gets.

# %% exercise="ch01.barrier"

# %% [markdown]
# ## 7. Why distribute at all?
#
# Because of two sums. The first is time. Training costs about $6$ floating-point operations per parameter and token
# (2 forward, 4 backward; Kaplan et al. 2020, arXiv 2001.08361). GPT-3 has 175 billion parameters and saw 300 billion
# tokens (Brown et al. 2020, arXiv 2005.14165).

# %%
years = dtlearn.predict(
    "How many years does that take on one A100 at 40 % of its 312 TFLOP/s (dense, bf16)?",
    unit="years",
)

# %%
flop = 6 * 175e9 * 300e9
seconds = flop / (0.40 * 312e12)
years.reveal(
    round(seconds / (365.25 * 86400)),
    explain=f"{flop:.2e} FLOP; the paper's own count, in its table D.1, is 3.14e23. On 1,024 such "
    f"GPUs, if nothing were lost, it is {seconds / 1024 / 86400:.0f} days.",
)

# %% [markdown]
# The second sum is memory: 16 bytes per parameter for mixed-precision training with Adam (Rajbhandari et al. 2020, arXiv
# 1910.02054) is 2.8 TB for that model, before any activation. An H200 has 141 GB. Chapters 8 and 9 do this sum with care.
#
# But ranks do not come free: they must talk. For a data-parallel step
#
# $$T(N) = \frac{T_\text{compute}}{N} + T_\text{communication}(N), \qquad
# T_\text{communication}(N) = 2(N-1)\,\alpha + \frac{2(N-1)}{N}\cdot\frac{n}{\beta}$$
#
# where $n$ is the gradient in bytes, $\alpha$ the latency of one message and $\beta$ the bandwidth of a link; the second
# formula is that of a ring all-reduce, which chapter 2 derives. The first term shrinks with $N$, the second does not:
# beyond some $N$ more ranks make a step no faster. Move the sliders: which change brings the curve back to the ideal line?


# %%
def step_time(parameters, gigabytes_per_second, compute_ms):
    n, alpha, beta = 4 * parameters, 5e-6, gigabytes_per_second * 1e9
    label = f"model: {parameters:,} fp32 gradients, {gigabytes_per_second} GB/s, "
    label += f"{compute_ms} ms of computation, 5 us latency"
    return speedup(
        compute_ms / 1e3,
        lambda N: 2 * (N - 1) * alpha + 2 * (N - 1) / N * n / beta,
        label=label,
    )


slider_panel(
    step_time,
    alt="Left: step time against the number of ranks, computation falling, communication "
    "rising to a plateau. Right: speed-up against the number of ranks, which leaves the "
    "ideal line early and flattens.",
    parameters=Slider(
        (1_000_000, 10_000_000, 100_000_000, 1_000_000_000), 100_000_000, "parameters"
    ),
    gigabytes_per_second=Slider(
        (0.125, 1.25, 12.5, 50, 450), 12.5, "bandwidth of a link, GB/s"
    ),
    compute_ms=Slider((10, 100, 1000), 1000, "computation of one step on one rank, ms"),
)

# %% [markdown]
# And on this machine? Ranks that share the cores of one computer share its speed, and this model is so small that a step
# is mostly messages. Each run below is one launch of `run_ranks`, start-up included.

# %% tags=["nbval-ignore-output"]
rank_table(
    [
        {"ranks": n, "seconds for 100 steps": round(run.seconds, 2)}
        for n, run in runs.items()
    ],
    caption=f"Wall time on this machine ({os.cpu_count()} cores), {runs[4].placement.where}",
)

# %% [markdown]
# Expect more ranks to take more time: the messages of a step cost more than the smaller share of the work saves. On a GPU
# cluster the same sum with other numbers comes out the other way, and that is what the rest of the course is about: making the second term small
# (chapters 2, 5), hiding it behind the first (3, 6), and cutting what does not fit at all (8 to 14).
#
# ## 8. Where the library does it
#
# - `torch.distributed.init_process_group` is the rendezvous; without arguments it reads `RANK`, `WORLD_SIZE`, `MASTER_ADDR`
#   and `MASTER_PORT`.
# - `torchrun` is `python -m torch.distributed.run`. It also restarts failed jobs (chapter 16).
# - What `average_gradients` does in 6 lines, `DistributedDataParallel` does while the backward pass still runs (chapter 3).
# - `deepspeed` and `accelerate launch` set the same environment variables, which is why scripts move between them.
#
# Parity, once more, by numbers: the loss under `run_ranks`, in the cells and under `torchrun` on one and on two nodes is
# printed above, and under `notebook_launcher` too: the same four digits every time.
#
# ## 9. Myths
#
# **"`local_rank = dist.get_rank()`."** Found in many tutorials. On one machine it works. On the second machine of two with 4
# GPUs each, ranks are 4 to 7, and `torch.cuda.set_device(4)` fails: the GPUs there are 0 to 3. Use `LOCAL_RANK`.
#
# **"Wrap the model in DDP and training is N times faster."** Not if every rank reads the same data: then N ranks compute the
# same gradient N times, and its mean is that gradient. Each rank needs its own part of the data: above, `x[rank::world_size]`;
# in chapter 3, a `DistributedSampler`.
#
# **"The ranks share the model."** They share nothing. They hold equal copies, because they began equal and made equal steps.
# One forgotten broadcast, and they are four models that nobody notices.
#
# **"`python -m torch.distributed.launch` is the launcher."** It is deprecated; `torchrun` replaced it.
#
# **"Install the package `distributedpytorch` first."** There is no such package on PyPI. `torch.distributed` comes with
# PyTorch.
#
# ## 10. Check yourself
#
# <details><summary>A job has 3 machines with 8 ranks each. Which RANK has the process with node rank 2 and local rank 5?</summary>
#
# 2 x 8 + 5 = 21.
# </details>
#
# <details><summary>Rank 0 prints "saved" and returns; ranks 1 to 3 wait in a barrier. What did rank 0 do differently?</summary>
#
# It never made the call: probably a `barrier` inside an `if rank != 0`, or a `return` inside `if rank == 0`.
# </details>
#
# <details><summary>You double the ranks and keep the global batch. What changes: the loss curve, the gradient bytes per rank,
# or the images per rank?</summary>
#
# Only the images per rank: they halve. The gradients have the size of the model, however many ranks there are.
# </details>
#
# <details><summary>Why must <code>broadcast_model</code> visit the parameters in the same order on every rank?</summary>
#
# A collective pairs calls by their order. If rank 0 sends the bias while rank 1 expects the weight, the call hangs, fails, or
# silently fills one with the other.
# </details>
#
# ## Glossary
#
# | English | 中文 | meaning |
# |---|---|---|
# | rank | 进程编号（rank） | a process of the job, and its number |
# | local rank | 本地编号 | its number on its own machine |
# | node rank | 节点编号 | the number of the machine |
# | world size | 进程总数 | number of ranks in the job |
# | process group | 进程组 | the ranks that take part in a collective |
# | launcher | 启动器 | starts processes and tells each its place |
# | rendezvous | 会合 | ranks finding each other |
# | store | 键值存储 | the shared dictionary used for it |
# | backend | 通信后端 | the library that carries messages: gloo, NCCL, MPI |
# | collective | 集合通信 | a call that all ranks of a group make together |
# | all-reduce | 全归约 | every rank gets the sum (or mean, ...) of all parts |
# | broadcast | 广播 | every rank gets the tensor of one |
# | barrier | 同步屏障 | wait until all have come |
# | global batch | 全局批次 | the samples of one step, over all ranks |
# | parity | 结果一致性 | the same result as the run on one process |
# | deadlock, hang | 死锁 | ranks that wait for each other for ever |
#
# Next: chapter 2 takes the word *all-reduce* apart.
