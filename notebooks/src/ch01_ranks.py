# %% [markdown]
# # Chapter 1. Ranks
#
# **The question.** How do many processes become one training job?
#
# You need PyTorch's training loop, and nothing else. Machine: four processes on any machine; a laptop will do. Time: 74
# minutes for the core path; the sections of "Further" in any order, when you need them.
#
# | core path | what | minutes |
# |---|---|---|
# | 1. What is a rank? | one program, four processes | 5 |
# | 2. Which one am I? | what a launcher tells each process | 3, and exercise 1: 10 |
# | 3. How do ranks add up? | all-reduce | 3, and exercise 2: 10 |
# | 4. How do four ranks train one model? | alone first, then together | 8 |
# | 5. What does a step send? | bytes, and a recorded step | 5 |
# | 6. How does it break? | a hang, and its diagnosis | 4, and exercise 3: 15 |
# | 7. How do you start it yourself? | `torchrun` | 3 |
# | 8. When do more ranks help? | the arithmetic, and when to use it | 8 |
#
# **How to read.** Run the cells from top to bottom. Where a cell asks you to predict, commit an answer before you run
# the next one: a wrong guess teaches more than a right answer that you only read. Figures are drawn from what this
# notebook has just run; the code that draws them is folded.

# %% [markdown]
# # The core path
#
# ## 1. What is a rank?
#
# This cell starts four processes. They wait for work until you close the notebook.

# %%
# %load_ext dtlearn
import dtlearn

world = dtlearn.world(4)
world

# %% [markdown]
# The line says which **backend** carries their messages and on which devices they run: NCCL if every rank has a GPU of
# its own, otherwise gloo on the CPU. The cells of this chapter are the same for either.
#
# A cell that begins with `%%ranks` runs in all four processes. Any other cell runs in the notebook's own process. A
# `%%ranks` cell finds these names:
#
# | name | what it is |
# |---|---|
# | `rank` | the number of this process, from 0 |
# | `world_size` | the number of processes |
# | `device` | this rank's `torch.device`: its GPU, or the CPU |
# | `torch`, `dist` | the modules `torch` and `torch.distributed` |
#
# With `-o NAME` the notebook gets a list `NAME`: the value of the cell's last line on rank 0, on rank 1, and so on.
#
# Each process runs the same code. Do the processes share their variables?

# %%
length = dtlearn.predict(
    "Each of the 4 ranks makes an empty list and appends its own rank. "
    "How long is the list of rank 2?",
    id="ch01.length",
)

# %%
# %%ranks -o lengths
seen = []
seen.append(rank)
print(f"I am rank {rank} of {world_size}")
len(seen)

# %% jupyter={"source_hidden": true}
length.reveal(lengths[2])

# %%
# %%ranks
print(f"rank {rank} has seen {seen}")

# %% [markdown]
# The variables have the same names, and the code is the same. What differs is one number, the **rank**, and the code
# uses it to decide who does what. This way of programming is called SPMD: single program, multiple data.
#
# ## 2. Which one am I?
#
# A program called a **launcher** starts the processes and tells each one its place through environment variables. Our
# ranks have these:

# %%
# %%ranks -o places
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

# %% jupyter={"source_hidden": true}
from dtlearn.viz import rank_table

rank_table(places, caption="The environment of each rank (one machine, 4 ranks)")

# %% [markdown]
# | name | meaning |
# |---|---|
# | `RANK` | the number of the process in the job, 0 to `WORLD_SIZE` - 1 |
# | `LOCAL_RANK` | its number on its own machine |
# | `GROUP_RANK` | the number of its machine, also called the **node rank** |
# | `WORLD_SIZE` | the number of processes in the job |
# | `LOCAL_WORLD_SIZE` | the number of processes on this machine |
# | `MASTER_ADDR`, `MASTER_PORT` | the address at which all processes meet, usually on the machine of rank 0 |
#
# With two machines of three processes each, the numbers would be these:
#
# | `RANK` | 0 | 1 | 2 | 3 | 4 | 5 |
# |---|---|---|---|---|---|---|
# | `LOCAL_RANK` | 0 | 1 | 2 | 0 | 1 | 2 |
# | `GROUP_RANK` | 0 | 0 | 0 | 1 | 1 | 1 |
#
# On one machine `RANK` equals `LOCAL_RANK`, so code that confuses the two works there and fails on the second machine.
#
# **Exercise 1.** Every training script begins by reading its place from the environment. The check calls your function
# with the environments of clusters that you do not have.
#
# <details><summary>How exercises work</summary>
#
# - The task is the text above the cell. Running the cell saves your code to a file and grades it on ranks, at several
#   world sizes.
# - Replace `%%exercise` in the first line with `%%try`, and the cell only runs your function on a few ranks, on a small
#   example, and prints what each rank returns. There is no grade.
# - An answer is graded alone: it knows no name of another cell, nor of another exercise. Define what it uses in it.
# - Write your own answer: one that imports the course's answer (`dtlearn.collectives`, in chapter 3
#   `dtlearn.data_parallel`) fails with the code `DTL-RULE-NAME`.
# - `%hint ch01.who_am_i` gives one hint at a time, and after an attempt `%solution ch01.who_am_i` a worked answer;
#   `%progress` shows how far you are. (In a terminal: `dtlearn hint ch01.who_am_i`, and so on.)
# </details>

# %% exercise="ch01.who_am_i"

# %% [markdown]
# ## 3. How do ranks add up?
#
# Ranks share no memory, so a rank must send whatever another rank needs. Operations are of two kinds. In a
# **point-to-point** operation one rank sends and one receives; the others make no call. A **collective** is called by
# every rank of a group. Both are drawn here from recorded calls: a `%%ranks` cell with `--record NAME` keeps its calls.

# %% jupyter={"source_hidden": true}
# %%ranks --record messages -o sent_values
number = torch.tensor([10.0 * (rank + 1)], device=device)
before = number.item()
if rank == 0:
    dist.send(number, dst=1)
elif rank == 1:
    dist.recv(number, src=0)
f"{before:g}", f"{number.item():g}"

# %% jupyter={"source_hidden": true}
# %%ranks --record calls -o broadcast_values
number = torch.tensor([10.0 * (rank + 1)], device=device)
before = number.item()
dist.broadcast(number, src=0)
f"{before:g}", f"{number.item():g}"

# %% jupyter={"source_hidden": true}
from dtlearn.viz import Exchange, exchange, show

show(
    exchange(
        Exchange("Point-to-point: rank 0 sends to rank 1", messages, sent_values),
        Exchange("Collective: broadcast from rank 0", calls, broadcast_values),
    ),
    alt="Two diagrams of four ranks that hold 10, 20, 30 and 40. On the left, rank 0 "
    "sends 10 to rank 1, and ranks 2 and 3 make no call. On the right, all four ranks "
    "call broadcast, and afterwards all of them hold 10.",
)

# %% [markdown]
# The collective that training uses most is **all-reduce**: it combines the tensors of all ranks and leaves the result on
# every rank, in place of the input. By default it is the sum; with `op=dist.ReduceOp.MAX` it is the maximum.

# %%
total = dtlearn.predict(
    "Rank r holds the number r. What does rank 3 hold after `all_reduce` on 4 ranks?",
    id="ch01.total",
)

# %%
# %%ranks -o sums
number = torch.tensor([float(rank)], device=device)
dist.all_reduce(number)
number.item()

# %% jupyter={"source_hidden": true}
total.reveal(sums[3])

# %% [markdown]
# **Exercise 2.** A sum is all you need to compute a mean, even when ranks hold different amounts of data. The obvious
# solution is wrong, but its result looks plausible.

# %% exercise="ch01.mean_over_uneven"

# %% [markdown]
# ## 4. How do four ranks train one model?
#
# We train a small network on real images, scikit-learn's handwritten digits, for 100 steps of 96 images. First the
# naive way: each rank has its own model and optimizer, and trains on its own quarter of every batch. (`reference_step`
# is the usual step on one process: forward, backward, optimizer.)

# %%
# %%ranks -o alone
import torch.nn.functional as F

from dtlearn.models import MLP, load_digits, reference_step

torch.manual_seed(rank)
model = MLP().to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
# load_digits gives the same batches on every rank; each rank takes its quarter.
for batch in load_digits().batches(100, 96, seed=0):
    part = [t[rank::world_size].to(device) for t in batch]
    step = reference_step(model, optimizer, part, F.cross_entropy)
weight = next(model.parameters())[0, 0].item()
{"rank": rank, "last loss": round(step.loss, 3), "first weight": round(weight, 5)}

# %% tags=["nbval-ignore-output"] jupyter={"source_hidden": true}
rank_table(alone, caption="Four ranks that did not communicate")

# %% [markdown]
# The losses look fine, but these are four different models, each trained on a quarter of the data. We want one model,
# trained on all of it. Two things are missing:
#
# 1. before the first step, all ranks must have *the same model*;
# 2. in every step, all ranks must use *the same gradient*, that of the whole batch.
#
# This script does both. It is short; read all of it. A **broadcast** sends one rank's tensor to all others.

# %%
from dtlearn.models import train_digits

dtlearn.show_source(train_digits.train, docstring=False)

# %%
dtlearn.show_source(train_digits.average_flat_gradients)

# %% [markdown]
# `dtlearn.run_ranks(function, n)` starts `n` fresh ranks, runs the function on each, and returns what each returned.

# %%
same = dtlearn.predict.choice(
    "Train with 1, 2 and 4 ranks, always with a global batch of 96 images. "
    "How does the last loss with 4 ranks compare with that of one process?",
    {
        "A": "It is equal, up to rounding.",
        "B": "It is lower: four ranks learn more.",
        "C": "It is higher: each rank sees fewer images.",
    },
    id="ch01.same",
)

# %%
runs = {n: dtlearn.run_ranks(train_digits.train, n, record=True) for n in (1, 2, 4)}

# %% jupyter={"source_hidden": true}
losses = {n: run[0].losses for n, run in runs.items()}
for n in (2, 4):
    difference = max(abs(a - b) for a, b in zip(losses[1], losses[n], strict=True))
    assert difference < 1e-5, difference
same.reveal()

# %% jupyter={"source_hidden": true}
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

# %% [markdown]
# Why is the mean of the ranks' gradients the gradient of the whole batch? The loss of the batch is a mean over its $B$
# rows. If the rows are divided into $N$ equal parts, the mean over all rows is the mean of the $N$ part means.
# Differentiation is linear, so the same holds for the gradients:
#
# $$\nabla \frac1B\sum_{i=1}^{B} \ell_i \;=\; \frac1N\sum_{r=0}^{N-1} \underbrace{\nabla\frac{N}{B}\sum_{i\in\text{part } r}\ell_i}_{\text{gradient on rank } r}$$
#
# The parts must be equal. With unequal parts the mean of the means is wrong, as in exercise 2; chapter 3 shows the
# remedy.
#
# Equality with one process is the standard of this course, called **parity**: a strategy for many ranks must reproduce
# the losses of one process, or the text must say exactly why it does not. Distribution changes the speed, not the
# result.
#
# ## 5. What does a step send?
#
# The model has 26,122 parameters of 4 bytes.

# %%
sent = dtlearn.predict(
    "How many bytes of gradients does one rank pass to `all_reduce` in one step?",
    unit="bytes",
    id="ch01.sent",
)

# %% jupyter={"source_hidden": true}
per_call = {event.nbytes for event in runs[4].record.select(op="all_reduce", rank=0)}
parameters = sum(p.numel() for p in dtlearn.models.MLP().parameters())
assert per_call == {4 * parameters, 4}
sent.reveal(max(per_call), parameters=parameters)

# %% [markdown]
# This is the *payload*, what a rank passes to the call. It does not depend on the number of ranks. How much of it
# travels over the network depends on the algorithm; chapter 2 builds one and counts.
#
# With `record=True`, `run_ranks` records every communication call. These are the fastest two consecutive steps of the
# 100 on 4 ranks:

# %% tags=["nbval-ignore-output"] jupyter={"source_hidden": true}
from dtlearn.viz import step_timeline

show(
    step_timeline(
        runs[4].record,
        names={max(per_call): "gradients", 4: "loss"},
        title="Two training steps on 4 ranks",
    ),
    alt="A lane for each of four ranks over time. In each of two steps, after short "
    "forward and backward passes, every rank has an all_reduce of the gradients and "
    "one of the loss, then a short optimizer step. Hollow bars, before the filled "
    "ones, are waiting.",
)

# %% [markdown]
# Each step has two all-reduces: one of all gradients, and one of the loss, which is only reported. A hollow
# bar is a rank that waits for the last rank to call: an all-reduce cannot finish before that, because every result
# depends on every rank's input.
#
# The all-reduce of the loss carries 4 bytes, a 26,000th of the other, but takes nearly as long, or even longer. For
# messages this small the number of bytes hardly matters. What takes time is the latency of each message, and here also
# that four ranks share the cores of one machine: a rank leaves a call only when it gets a core.
#
# ## 6. How does it break?
#
# Every rank of a group must call the same collectives in the same order. Below, rank 1 does not.

# %%
hang = dtlearn.predict.choice(
    "Ranks 0, 2 and 3 call `all_reduce`. Rank 1 does not, and has nothing more to do. "
    "What does PyTorch do?",
    {
        "A": "It raises an error on rank 1.",
        "B": "It returns the sum without rank 1.",
        "C": "It lets the other three wait, without any message.",
    },
    id="ch01.hang",
)

# %%
# %%ranks --record stuck --expect deadlock
survivor = f"a variable of rank {rank}"
total = torch.ones(1, device=device)
if rank != 1:
    dist.all_reduce(total)

# %% jupyter={"source_hidden": true}
hang.reveal()

# %% [markdown]
# The message is not PyTorch's. This course has a **watch** that reads which call each rank is in while a cell runs.
# When some ranks wait for a call that another rank can no longer make, it ends the cell and prints a diagnosis.
# `--expect deadlock` says that the cell is meant to fail, so that the notebook goes on.

# %% tags=["nbval-ignore-output"] jupyter={"source_hidden": true}
from dtlearn.viz import timeline

show(
    timeline(stuck, title="Three ranks wait for the call of the fourth", ended=[1]),
    alt="Four lanes. Ranks 0, 2 and 3 each have one all_reduce that starts and never "
    "returns; rank 1 has no call and has ended.",
)

# %% [markdown]
# Read the diagnosis again. It names the ranks that wait, the call, the line, and the rank that never came. A hang is a
# difference between ranks, so the useful question is not "where do they wait?" but "where did they diverge?".
#
# The watch has freed the ranks, and their variables are still there:

# %%
world.gather("survivor")

# %% [markdown]
# The most common cause has no `if` around the call: a loop over data, of which one rank has more than the others.
#
# **Exercise 3.** Repair this program so that no batch is lost.

# %% exercise="ch01.repair_the_hang"

# %% [markdown]
# ## 7. How do you start it yourself?
#
# So far the ranks were started by this notebook. `torchrun`, the launcher that comes with PyTorch, does it for a
# script. A launcher starts processes and sets their environment; the script need not know which launcher it was.
#
# `%%launch -n 2` writes the cell to a file and runs `torchrun --nproc-per-node 2` on it, as you would in a terminal.

# %%
# %%launch -n 2
from dtlearn.models.train_digits import main

main([])

# %% [markdown]
# The same loss again; only rank 0 prints it. In a script you make the process group yourself. The essential lines, also
# inside `main`, are
#
# ```python
# dist.init_process_group()        # reads RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT
# ...                              # train
# dist.destroy_process_group()     # close the connections; NCCL warns without it
# ```
#
# Print the world size in every script that you run: a process that was started alone trains alone, without an error.
#
# ## 8. When do more ranks help?
#
# Training takes about 6 floating-point operations per parameter and token, 2 in the forward and 4 in the
# backward pass (Kaplan et al. 2020, arXiv 2001.08361). GPT-3 has 175 billion parameters and was trained on 300 billion
# tokens (Brown et al. 2020, arXiv 2005.14165). NVIDIA's data sheet gives an A100 312 TFLOP/s in dense bf16.

# %%
years = dtlearn.predict(
    "How many years does that take on one A100, at 40 % of its 312 TFLOP/s?",
    unit="years",
    id="ch01.years",
)

# %% jupyter={"source_hidden": true}
flop = 6 * 175e9 * 300e9
seconds = flop / (0.40 * 312e12)
years.reveal(round(seconds / (365.25 * 86400)), flop=flop, days=seconds / 1024 / 86400)

# %% [markdown]
# So the work has to be divided. But more ranks, with less to compute each, must communicate in every step. For a step
# of section 4 with a ring all-reduce (chapter 2)
#
# $$T(N) = \frac{T_\text{compute}}{N} + \underbrace{2(N-1)\,\alpha + \frac{2(N-1)}{N}\cdot\frac{n}{\beta}}_{T_\text{communication}(N)}$$
#
# where $T_\text{compute}$ is the time that one rank needs for the whole batch, $n$ the size of the gradients in bytes,
# $\alpha$ the latency of a message and $\beta$ the bandwidth of a link. The first term falls with $N$; the second does
# not. Beyond some $N$, more ranks no longer make a step faster.
#
# Move the sliders. Which of the three can bring the speed-up back to the ideal line?

# %% jupyter={"source_hidden": true}
from dtlearn.notebook.panels import Slider, slider_panel
from dtlearn.viz import speedup


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
    alt="Left: step time against the number of ranks; computation falls, communication "
    "rises to a plateau. Right: speed-up against the number of ranks; it leaves the "
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
# <details><summary>Answer</summary>
#
# All three, if they make communication short beside the computation that is left to each rank: a smaller model, a
# faster link, or more computation per step, that is, a larger batch.
# </details>
#
# And on this machine? Each run of the table above was one launch:

# %% tags=["nbval-ignore-output"] jupyter={"source_hidden": true}
import os

rank_table(
    [
        {"ranks": n, "seconds for 100 steps": round(run.seconds, 2)}
        for n, run in runs.items()
    ],
    caption=f"Wall time with start-up on this machine ({os.cpu_count()} cores), "
    f"{runs[4].placement.where}",
)

# %% [markdown]
# Expect more ranks to take *longer* here. They share the cores of one computer, and this model is so small that
# communication takes more time than the smaller share of the work saves. On a GPU cluster, with a large model and a
# large batch, the same formula predicts a speed-up.
#
# **When to use it.** When one GPU takes too long, and the computation of a step is long beside its communication: a
# large batch, a fast link. Or when the model does not fit into one GPU; then copies do not help, and the model itself
# has to be divided. Later chapters send less (2 and 5), hide what is sent behind computation (3 and 6), and divide what
# does not fit (8 to 14). If a small model trains overnight on one GPU, leave it there.

# %% [markdown]
# # Further
#
# Each section needs the core path's sections that its first line names, and nothing else of Further unless it says so.
# In a new session, run the first code cell again.
#
# | section | needs | exercise: minutes |
# |---|---|---|
# | How do ranks find each other? | section 2 | |
# | What if two ranks both have something to send? | section 3 | 4: 12 |
# | Which backend carries the messages? | section 1 | |
# | What else has to start equal? | section 4 | 5: 10 |
# | How is a job launched, on one machine or several? | sections 2 and 7 | |
# | How are ranks divided into groups? | section 3 | 6: 10, 7: 12 |
# | What else makes ranks diverge? | section 6 | |
# | How do you find a hang without the watch? | sections 6 and 7 | |
# | Can messages make a barrier? | "What if two ranks both have something to send?" | 8: 20 |
# | What is different on GPUs? | section 3 | |
# | Where does PyTorch do it? | sections 4 and 7, and "How do ranks find each other?" | |
# | Myths, and questions to check yourself | the core path, and what each names | |
#
# ## How do ranks find each other?
#
# *Needs: section 2.* A process that has just started knows its own rank, but not the addresses of the others. The
# **rendezvous** is how it learns them. It takes place in `init_process_group`.

# %%
late = dtlearn.predict.choice(
    "Rank 3 starts 0.3 s after the others. What do ranks 0, 1 and 2 do in "
    "`init_process_group`?",
    {
        "A": "They start without rank 3, and it joins later.",
        "B": "They wait for rank 3.",
        "C": "They fail.",
    },
    id="ch01.late",
)

# %% jupyter={"source_hidden": true}
late.reveal()

# %% [markdown]
# Here is a recorded rendezvous. Ranks meet through a **store**, a small shared dictionary. Each rank *sets* one key
# with its own address, and *waits* for the keys of the others.

# %% tags=["nbval-ignore-output"] jupyter={"source_hidden": true}
from dtlearn.runtime.rendezvous import record_rendezvous
from dtlearn.viz import rendezvous, show

show(
    rendezvous(
        record_rendezvous(4, late={3: 0.3}),
        world_size=4,
        label="gloo on CPU, ranks meet through a file; rank 3 starts 0.3 s late",
    ),
    alt="Store calls of four ranks during init_process_group. Each rank sets its "
    "own key and then waits for keys that are not set yet. Ranks 0, 1 and 2 wait "
    "longest for key 3, which rank 3 sets 0.3 s late. That write ends their "
    "waits.",
)

# %% [markdown]
# With gloo that is the whole rendezvous: once a rank has all addresses, it opens connections to the others, and this
# group no longer needs the store. NCCL uses the store too, but sets up its connections in the first collective, unless
# you pass `device_id` to `init_process_group`. In the figure the store is a `FileStore`, a file. `torchrun` uses a
# `TCPStore`, a small server at `MASTER_ADDR:MASTER_PORT`.
#
# Three classic failures happen here:
#
# - **A rank never starts.** All others wait until the `timeout` of `init_process_group` is over.
# - **Two jobs on one machine use the same `MASTER_PORT`.** In our trial with gloo, rank 0 of the second job failed with
#   `EADDRINUSE`. Another of its ranks reached the first job's store, read the first job's addresses, and failed later
#   with a message about a lost connection.
# - **A host name resolves to 127.0.0.1.** With gloo the ranks there publish this address, and a rank on another
#   machine then looks for them on its own machine.
#
# ## What if two ranks both have something to send?
#
# *Needs: section 3.* `dist.send(tensor, dst)` on one rank is matched by `dist.recv(tensor, src)` on the other, which
# overwrites its tensor. With `-r 0,1` a cell runs on ranks 0 and 1 only.

# %%
# %%ranks -r 0,1
if rank == 0:
    dist.send(torch.tensor([3.0, 4.0], device=device), dst=1)
else:
    message = torch.zeros(2, device=device)
    dist.recv(message, src=0)
    print("rank 1 received", message)

# %% [markdown]
# With gloo, `send` returns only when the other side receives. `dist.isend` and `dist.irecv` return at once, with a
# handle; its `wait()` returns when the tensor may be used again. Do not change a tensor that an `isend` is still
# reading.
#
# **Exercise 4.** Two ranks swap messages.

# %% exercise="ch01.ping_pong"

# %% [markdown]
# ## Which backend carries the messages?
#
# *Needs: section 1.*
#
# | backend | carries | over | used for |
# |---|---|---|---|
# | gloo | CPU tensors (GPU tensors are copied through the CPU) | TCP | laptops, tests, CPU clusters |
# | NCCL | GPU tensors | NVLink, PCIe, InfiniBand, TCP | training on NVIDIA GPUs |
# | MPI | what the MPI library was built for | its own network | clusters with their own MPI; PyTorch must be built with it |
#
# All three are called through the same functions, so what you learn on a laptop carries over to a cluster. The
# documentation of `torch.distributed` has a table of the functions that each backend supports. Other devices have
# backends of their own, with the same functions: `xccl` for Intel's GPUs, `hccl` for Huawei's NPUs, `xla` for TPUs. On
# AMD's GPUs PyTorch says `nccl` too, but the library is RCCL.
#
# <details><summary>Which backend do the ranks of this course get?</summary>
#
# NCCL if the machine has at least as many GPUs as ranks, otherwise gloo on the CPU: by default NCCL refuses to place
# two ranks on one GPU. On a machine with 2 GPUs, `dtlearn.world(2)` uses NCCL and `dtlearn.world(4)` uses gloo.
# `dist.is_nccl_available()` says whether a build of PyTorch has NCCL.
# </details>
#
# ## What else has to start equal?
#
# *Needs: section 4.* `train` sends each parameter of rank 0 to the other ranks with a broadcast. For this network that
# is enough; other networks have more state.
#
# **Exercise 5.** Make the models of all ranks equal.

# %% exercise="ch01.start_equal"

# %% [markdown]
# In PyTorch this is part of `DistributedDataParallel`, which also sends the buffers. What `train` calls:

# %%
from dtlearn.models import train_digits

dtlearn.show_source(train_digits.broadcast_model)

# %% [markdown]
# ## How is a job launched, on one machine or several?
#
# *Needs: sections 2 and 7.* On several machines, run one `torchrun` on each, with the same `--master-addr` and its own
# `--node-rank`:
#
# ```
# machine 0:  torchrun --nnodes 2 --node-rank 0 --nproc-per-node 2 \
#                      --master-addr HOST0 --master-port 29500 train.py
# machine 1:  torchrun --nnodes 2 --node-rank 1 --nproc-per-node 2 \
#                      --master-addr HOST0 --master-port 29500 train.py
# ```
#
# `%%launch --nodes 2` starts two `torchrun`s on this machine, as if it were two:

# %%
# %%launch -n 1 --nodes 2
import os

from dtlearn.models.train_digits import main

main([])
names = ("GROUP_RANK", "LOCAL_RANK", "RANK")
print(*(f"{name}={os.environ[name]}" for name in names))

# %% [markdown]
# Now `RANK` and `LOCAL_RANK` differ: rank 1 is the first process of the second machine, and the GPU it would use there
# is number 0. If all machines run equally many processes, then $\text{rank} = \text{node rank} \times \text{processes
# per machine} + \text{local rank}$.

# %% [markdown]
# **A launcher can fail silently.** `accelerate launch` starts scripts written for Hugging Face's accelerate. Here it is
# asked for two processes:

# %%
# %%launch -n 2 --with accelerate
import os

print("a process with WORLD_SIZE =", os.environ.get("WORLD_SIZE"))

# %% [markdown]
# A machine without a GPU prints one line: a single process was started, without an error, and its environment says
# nothing. A training script would have trained alone. (Under `torchrun` the same script gets its two processes.)
#
# <details><summary>More launchers: Slurm, DeepSpeed, notebook_launcher</summary>
#
# **Slurm** starts processes on machines that it chooses, and sets names of its own (`SLURM_PROCID`, `SLURM_LOCALID`,
# ...). Most people let Slurm start one `torchrun` per machine. This script was not run here, because a laptop
# has no Slurm; `docs/lab.md` has a longer one.
#
# ```bash
# #!/bin/bash
# #SBATCH --nodes=2 --ntasks-per-node=1 --gpus-per-node=4 --cpus-per-task=16
# export SRUN_CPUS_PER_TASK=$SLURM_CPUS_PER_TASK   # srun does not inherit it since Slurm 22.05
# head=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
# srun torchrun --nnodes 2 --nproc-per-node 4 \
#      --rdzv-backend c10d --rdzv-endpoint "$head:29500" --rdzv-id "$SLURM_JOB_ID" train.py
# ```
#
# Without `--cpus-per-task` the four ranks of a machine may have to share one core.
#
# **DeepSpeed** sets `RANK`, `LOCAL_RANK`, `WORLD_SIZE`, `MASTER_ADDR` and `MASTER_PORT` as `torchrun` does, but
# `LOCAL_SIZE` for `LOCAL_WORLD_SIZE` and `CROSS_RANK` for `GROUP_RANK`. It also passes `--local_rank` to the script,
# which must accept it, unless you start it with `deepspeed --no_local_rank`.
#
# **`notebook_launcher`**, also of accelerate, forks the notebook's own process. A fork copies the memory but only one
# thread, so a library that has started threads (OpenMP after a large matrix product, CUDA after any use) may wait in
# the copy for threads that do not exist. With accelerate 1.15 and torch 2.13, after one backward pass on two threads, a
# matrix product in the forked processes did not end. The ranks of this course are forked from a helper process that has
# computed nothing.
#
# One thing that forked ranks share hides a bug: the seed of Python's `hash()` for strings. A `set` of names has the
# same order on all ranks here. Under `torchrun` each process has a seed of its own and the order differs, so ranks that
# broadcast "for each name in the set" send different tensors to each other. Go through `sorted(names)`.
#
# | launcher | starts | sets | good for |
# |---|---|---|---|
# | `%%ranks` | nothing: its ranks are waiting | as `torchrun`; the group exists | exploring, provoking failures |
# | `run_ranks` | fresh ranks on this machine | as `torchrun`; the group exists | tests, benchmarks |
# | `torchrun` | processes on one or many machines | `RANK`, `LOCAL_RANK`, ... | real jobs |
# | `accelerate launch` | processes | as `torchrun`; on a CPU nothing | scripts written for accelerate |
# | `deepspeed` | processes on one machine, or on several over ssh | see above | scripts written for DeepSpeed |
# | Slurm's `srun` | a process per task | names of its own | shared clusters |
# </details>
#
# ## How are ranks divided into groups?
#
# *Needs: section 3.* Links inside a machine are fast, links between machines are slower. Large jobs therefore divide
# their ranks into **process groups**: the ranks of one machine form the groups that communicate most.
# `dist.new_group(ranks)` makes a group, and a collective with `group=` involves only its ranks. Chapter 14 builds on
# this.
#
# **Exercises 6 and 7.** First list the groups, then use them.

# %% exercise="ch01.rank_groups"

# %% exercise="ch01.sum_in_group"

# %% [markdown]
# ## What else makes ranks diverge?
#
# *Needs: section 6.* **Different calls.** No rank has ended, but they are in different collectives.

# %%
# %%ranks --expect deadlock
number = torch.ones(1, device=device)
if rank == 1:
    dist.broadcast(number, src=0)
else:
    dist.all_reduce(number)

# %% [markdown]
# **Different types.** Below, rank 1 passes integers of the same size. Plain PyTorch with gloo would return wrong
# numbers silently; the watch stops the cell.

# %%
# %%ranks --expect deadlock
number = torch.ones(1, device=device)
if rank == 1:
    number = number.to(torch.int32)
dist.all_reduce(number)

# %% [markdown]
# **An exception on one rank** also leaves the others waiting, but this time with an error message. Look for the
# exception, not for the ranks that wait. (`barrier` returns when all ranks have called it.)

# %%
# %%ranks --expect error
if rank == 2:
    raise ValueError("this rank's data file is missing")
dist.barrier()

# %% [markdown]
# ## How do you find a hang without the watch?
#
# *Needs: sections 6 and 7.* A script of your own has no watch. By default gloo waits 30 minutes, and NCCL 10. Then gloo
# raises an error on the ranks that wait. The traceback shows where they wait; the message says that a send or a receive
# timed out, but not which rank is missing. NCCL ends the process, and recent releases print the stack of the collective
# that timed out. PyTorch has three tools that say more. For the first one, a hang; rank 1 has one batch more:

# %%
# %%ranks --expect deadlock
num_batches = 3 if rank == 1 else 2
for _ in range(num_batches):
    step_sum = torch.ones(2, device=device).sum()
    dist.all_reduce(step_sum)

# %% [markdown]
# **The flight recorder** keeps the last 2000 calls of each rank. With NCCL each rank writes them to a file when a
# collective times out, and the command `torchfrtrace` compares the files. Here is what two ranks recorded before that
# hang:

# %% tags=["nbval-ignore-output"]
# %%ranks -r 0,1
import pickle

from torch._C._distributed_c10d import _dump_fr_trace  # private: it may change

entries = pickle.loads(_dump_fr_trace())["entries"]
# Numbers start again at 1 in the group that this notebook made after the last hang.
first = max(i for i, e in enumerate(entries) if e["collective_seq_id"] == 1)
for entry in entries[first:]:
    print(entry["profiling_name"], "number", entry["collective_seq_id"])

# %% [markdown]
# Rank 1 has a call that rank 0 does not have: there the ranks diverged.
#
# **`TORCH_DISTRIBUTED_DEBUG=DETAIL`** compares the ranks' calls before each collective and raises an error that names
# both. It slows every call down, so use it only to look for a fault.
#
# **`dist.monitored_barrier(timeout=...)`** returns when all ranks have called it, or else names one that did not come.
# It needs gloo; in an NCCL job, make a gloo group for it with `dist.new_group(backend="gloo")`.

# %% tags=["nbval-ignore-output"]
# %%launch -n 2
import os
import re
import time
from datetime import timedelta

os.environ["TORCH_DISTRIBUTED_DEBUG"] = "DETAIL"  # before torch is imported
os.environ["TORCH_CPP_LOG_LEVEL"] = "FATAL"  # the errors are printed below
import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank = dist.get_rank()
x = torch.ones(1)
try:
    dist.all_reduce(x) if rank == 0 else dist.broadcast(x, src=0)
except RuntimeError as error:
    print("DETAIL:", *re.findall(r"Rank \d|OpType=\w+", str(error))[:4])
try:
    if rank == 1:
        time.sleep(2)  # it comes too late
    else:
        dist.monitored_barrier(timeout=timedelta(seconds=1))
except RuntimeError as error:
    print("monitored_barrier:", str(error).splitlines()[0])
dist.destroy_process_group()

# %% [markdown]
# `docs/lab.md` lists the environment variables, and what to try in which order.
#
# ## Can messages make a barrier?
#
# *Needs: "What if two ranks both have something to send?".* A barrier carries no data; it only guarantees that every
# rank has arrived. The check delays each rank in turn. Several solutions pass; they differ in how many messages the
# busiest rank sends.
#
# **Exercise 8.** A barrier from messages.

# %% exercise="ch01.barrier"

# %% [markdown]
# ## What is different on GPUs?
#
# *Needs: section 3.* An NCCL call behaves like a CUDA kernel. That matters in two places. (This section follows
# PyTorch's documentation. It was not run here: this notebook was built on a machine without GPUs.)
#
# **What `wait()` means.** With gloo and CPU tensors, `all_reduce` returns when the result is there. With NCCL it
# returns as soon as the operation is *enqueued* on a CUDA stream. Kernels that you launch afterwards on the current
# stream run after it, so `x / world_size` in the next line is correct. With `async_op=True` the call returns a handle,
# and only after `handle.wait()` is that order guaranteed. `wait()` makes the current stream wait, not the CPU. The CPU
# waits in `torch.cuda.synchronize()`, in `x.item()`, or in a copy to the CPU.
#
# **How to time it.** A clock on the CPU around the call measures how long enqueuing takes. Let the GPU take the time,
# after a warm-up, because the first collective also sets up connections:
#
# ```python
# for _ in range(5):
#     dist.all_reduce(x)                                 # warm-up
# start = torch.cuda.Event(enable_timing=True)
# end = torch.cuda.Event(enable_timing=True)
# start.record()
# for _ in range(20):
#     dist.all_reduce(x)
# end.record()
# torch.cuda.synchronize()                               # both events have happened
# print(start.elapsed_time(end) / 20, "ms per all_reduce")
# ```
#
# ## Where does PyTorch do it?
#
# *Needs: sections 4 and 7, and "How do ranks find each other?".*
#
# - `init_process_group` is the rendezvous. Without arguments it reads `RANK`, `WORLD_SIZE`, `MASTER_ADDR` and
#   `MASTER_PORT`.
# - `torchrun` is `python -m torch.distributed.run`. With `--max-restarts` it restarts a job that failed; by default it
#   does not (chapter 16).
# - What `average_flat_gradients` does after the backward pass, `DistributedDataParallel` does while the backward pass
#   still runs (chapter 3).

# %% [markdown]
# ## Myths, and questions to check yourself
#
# *Needs: the core path, and what each names.*
#
# **"`local_rank = dist.get_rank()`."** Many tutorials write this. It works on one machine. On the second of two
# machines with 4 GPUs each, ranks are 4 to 7, and `torch.cuda.set_device(4)` fails, because the GPUs there are 0 to 3.
# Use `LOCAL_RANK`. **"`device = torch.device('cuda:0')`"** puts every process of a machine on its first GPU. The other
# GPUs are idle, and NCCL refuses by default.
#
# **"A master node coordinates the others and monitors them."** At `MASTER_ADDR` processes meet ("How do ranks find each
# other?"). In training, all ranks run the same program, and no rank gives orders or collects results unless the
# script says so. It is the launcher that watches processes: each machine's `torchrun` watches the ones it started.
#
# **"Distributed training prevents overfitting."** It computes the same result: in section 4 the losses of 1, 2 and 4
# ranks agree in every step, and so does the accuracy on the test images. A larger global batch is another matter
# (chapter 3): much larger ones can even generalise worse (Keskar et al. 2017).
#
# **"Distributed training is cheaper."** It is faster. The number of operations stays, communication is added, and ranks
# that wait are paid for: with N ranks and a speed-up below N a job takes more GPU-hours, not fewer.
#
# **"`python -m torch.distributed.launch` is the launcher."** It is deprecated; `torchrun` replaced it. **"Install the
# package `distributedpytorch` first."** There is no such package on PyPI. `torch.distributed` is part of PyTorch.
#
# ### Check yourself
#
# <details><summary>A job has 3 machines with 8 ranks each. What is the <code>RANK</code> of the process with node rank 2 and
# local rank 5?</summary>
#
# 2 x 8 + 5 = 21.
# </details>
#
# <details><summary>Rank 0 prints "saved" and returns, while ranks 1 to 3 wait in an all-reduce. What did rank 0 do
# differently?</summary>
#
# It never called it. Probably the call stands inside `if rank != 0`, or a `return` inside `if rank == 0`.
# </details>
#
# <details><summary>You double the number of ranks and keep the global batch. Which of these change: the loss curve, the bytes of
# gradients per rank, the images per rank?</summary>
#
# Only the images per rank: they halve. The gradients are as large as the model, however many ranks there are.
# </details>
#
# <details><summary>Why must <code>broadcast_model</code> visit the parameters in the same order on every rank?</summary>
#
# Collectives are matched by their order. If rank 0 sends the bias while rank 1 expects the weight, the call hangs,
# fails, or silently fills one with the other.
# </details>
#
# <details><summary>("What is different on GPUs?") On a GPU, <code>all_reduce</code> of 1 GB returns after 50 microseconds. Is the
# network that fast?</summary>
#
# No. The call only enqueued the operation. Measure with CUDA events.
# </details>
#
# ## Glossary
#
# {glossary}
#
# Next: chapter 2 takes *all-reduce* apart.
