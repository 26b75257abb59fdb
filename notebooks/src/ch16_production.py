# %% [markdown]
# # Chapter 16. Production
#
# **The question.** What breaks, and how do jobs survive?
#
# Builds on: chapters 3 and 9. Ranks: 4. Time: 75 minutes for the core path; the sections of "Further" in a second sitting, in
# any order.
#
# | core path | what | minutes |
# |---|---|---|
# | 1. How often does something break? | 419 failures in 54 days | 4 |
# | 2. What does a dead rank cost? | a job is killed, and goes on to the same bits | 6 |
# | 3. When is a checkpoint there? | a torn file, and one moment of commit | 6, and exercise 1: 18 |
# | 4. How can two ranks read what four have written? | boxes, and what they have in common | 5, and exercise 2: 20 |
# | 5. How long does training stand still? | saves beside training | 5 |
# | 6. How often to save? | a life with failures, and its goodput | 7 |
# | 7. Which one when? | one table | 4 |
#
# After it you can keep a job alive when a rank is killed, a disk is full or half of the machines are gone, and say what that cost.

# %% jupyter={"source_hidden": true}
# %load_ext dtlearn
import tempfile
from pathlib import Path

import torch

import dtlearn
from dtlearn.production import checkpoints, faults, goodput
from dtlearn.viz import rank_table, show

torch.set_num_threads(1)  # small tensors: more threads would only wait for each other
scratch = tempfile.TemporaryDirectory()
folder = Path(scratch.name)  # of this notebook's checkpoints; gone when the kernel ends
world = dtlearn.world(4)
world

# %% [markdown]
# # The core path
#
# ## 1. How often does something break?
#
# Meta trained Llama 3 on 16,384 GPUs. In 54 days the job had 419 unplanned interruptions: one in three hours
# ([2407.21783](https://arxiv.org/abs/2407.21783), section 3.3.4; its table 5 has the causes).
#
# | some of the causes | times | |
# |---|---|---|
# | a faulty GPU, or its HBM memory | 220 | a rank dies, or computes wrong |
# | network switches and cables | 35 | ranks hang |
# | host maintenance | 32 | a node is gone |
# | software | 54 | anything |
# | silent data corruption | 6 | nobody notices, unless somebody looks |
#
# One dead process ends a step for everybody: an all-reduce needs all ranks. So a job fails whenever any of its parts does.

# %%
between = dtlearn.predict(
    "Parts fail independently of each other. With the same GPUs, how many hours lie between two failures of a job on 1,024 of them?",
    unit="hours",
    id="ch16.between",
)

# %%
from dtlearn.planner.goodput import CHIP_HOURS  # hours of one GPU between two failures

print(f"one GPU: one failure in {CHIP_HOURS / 24 / 365:.1f} years")
for gpus in (16384, 1024, 8):
    print(f"{gpus:6,} GPUs: one in {CHIP_HOURS / gpus:8,.1f} hours")
between.reveal(CHIP_HOURS / 1024)

# %% [markdown]
# The mean time between failures of a job is called its **MTBF**. That of a part is years and that of a large job hours: nothing is
# wrong with these machines, there are many of them. And still Llama 3's job trained for more than 90 % of the time.
#
# ## 2. What does a dead rank cost?
#
# Here is a job on four ranks: eight steps of data parallelism on the digits of chapter 3, with momentum, a learning rate that
# warms up, and dropout. After its fifth step rank 1 kills itself.

# %% jupyter={"source_hidden": true}
from dataclasses import replace


def mortal(job):
    """Run the job and let rank 1 die after step 5; then start it again, on four ranks."""
    try:
        dtlearn.run_ranks(checkpoints.run_job, 4, replace(job, die_at=(1, 5)))
    except Exception as error:
        print(str(error).splitlines()[0])
    return dtlearn.run_ranks(checkpoints.run_job, 4, job)[0]


# %%
naive = mortal(
    checkpoints.JobOptions(
        str(folder / "nothing"), num_steps=8, save_every=100, dropout=0.1
    )
)
print(f"the new job went on after step {naive.first_step}")

# %% [markdown]
# This one saves nothing before it ends, so everything is done again. With a **checkpoint**, the state of the job in a folder, after every
# second step:

# %%
saving = mortal(
    checkpoints.JobOptions(str(folder / "saving"), num_steps=8, save_every=2, dropout=0.1)
)
print(f"the new job went on after step {saving.first_step}")
alone = dtlearn.run_ranks(  # the same job, and nobody is killed
    checkpoints.run_job, 4, checkpoints.JobOptions(str(folder / "alone"), dropout=0.1)
)[0]
for name, result in {"never killed": alone, "killed": saving}.items():
    losses = [f"{x:.4f}" for x in result.losses[-3:]]
    print(f"{name:>12}: last losses {losses}")
print("all parameters have the same bits:", saving.digest == alone.digest)

# %% [markdown]
# The job *rewinds* to its newest checkpoint: step 5 was done twice, and the end is the same **to the last bit**. That is the test of a checkpoint: nothing that affects
# the next step may be missing. What is forgotten shows late, or never:
#
# | forgotten | what one sees |
# |---|---|
# | the optimizer's moments | the loss jumps, and recovers |
# | place of the scheduler | a second warm-up |
# | loss scale (chapter 7) | some skipped steps |
# | place of the sampler (chapter 3) | samples come twice, others never; nothing is seen |
# | random numbers, of every rank | other dropout; nothing is seen |
# | what error feedback has not sent (chapter 5) | a part of the gradient is lost; nothing is seen |
#
# (You write that list as code in an exercise of "Further", `resume_bits`.)

# %%
fewer = dtlearn.predict.choice(
    "The same job without dropout is stopped after step 8 and goes on with two ranks instead of four, to step 12. The global batch stays. "
    "Compared with four ranks all the way, the losses of steps 9 to 12 are",
    {
        "A": "the same bits",
        "B": "the same up to rounding",
        "C": "others, because each rank sees other samples now",
        "D": "twice as large, because two ranks add up where four did",
    },
    id="ch16.fewer",
)

# %%
half = checkpoints.JobOptions(str(folder / "half"), num_steps=8)
whole = checkpoints.JobOptions(str(folder / "whole"), num_steps=12)
dtlearn.run_ranks(checkpoints.run_job, 4, half)
two = dtlearn.run_ranks(checkpoints.run_job, 2, replace(half, num_steps=12))[0]
four = dtlearn.run_ranks(checkpoints.run_job, 4, whole)[0]
apart = max(abs(a - b) for a, b in zip(two.losses, four.losses[8:], strict=True))
print(
    f"two ranks: {two.plan.accumulate} micro-batches of {two.plan.micro_batch}; four: {four.plan.accumulate} of {four.plan.micro_batch}"
)
print(
    "losses of steps 9 to 12 differ by less than 1e-12:",
    apart < 1e-12,
    "; same bits:",
    apart == 0,
)
fewer.reveal()

# %% [markdown]
# ## 3. When is a checkpoint there?
#
# A save takes time, and a job can be killed in the middle of it. The naive save writes over the one file that it has. Here a rank
# is killed when half of the bytes are written:


# %% tags=["nbval-ignore-output"]
import io
import os
import signal


def naive_save(path, step):
    """Save, and die half way."""
    buffer = io.BytesIO()
    torch.save({"step": step, "weights": torch.ones(1000)}, buffer)
    with open(path, "wb") as file:  # from here on the old one is gone
        file.write(buffer.getvalue()[:2000])
        file.flush()
        os.kill(os.getpid(), signal.SIGKILL)


path = folder / "model.pt"
torch.save({"step": 5, "weights": torch.zeros(1000)}, path)
try:  # on the processor: a file is written, and nothing computed
    dtlearn.run_ranks(naive_save, 1, path, 8, device="cpu", init_group=False)
except Exception as error:
    print(str(error).splitlines()[0])
try:
    torch.load(path, weights_only=True)
except Exception as error:
    print("step 5 is gone, and step 8:", type(error).__name__, str(error)[:60])

# %% [markdown]
# Neither checkpoint is left. And the next job would not always find out: with a file for each rank, whole files of step 8 can
# stand beside whole files of step 5, and load.
#
# **Atomic commit** is the way out; databases have used it for decades: *write where nobody reads, then make it visible at one
# moment*. In a file system that moment is `rename`: it gives a file another name, and takes away the file that had the name
# before; a kill comes before it or after it, never in the middle. Four calls, and what they promise:
#
# | call | after a kill | after a power cut |
# |---|---|---|
# | `write` | the bytes written so far are there: in the memory of the system, the *page cache* | any part of them may be there |
# | `fsync(file)` | | the file's bytes are there, but perhaps not its name |
# | `rename(new, name)` | done, or not done | done, or not done, or done before the bytes were there! |
# | `fsync(folder)` | | the names are there |
#
# Many ranks make it harder: there must be **one** moment for all of them. So each rank writes its part, and
# says so; when all have, one rank makes the checkpoint visible. (It is the *two-phase commit* of databases.) In this course's package:
#
# ```
# job/step-00000008/    complete: it got this name when all of it was on the disk
# job/latest            the name of the newest
# job/.new-step-.../    being written; nobody reads it
# ```
#
# Its test kills a process after each of the calls that such a save makes, 40 on rank 0, and loads what is left.
#
# **Exercise 1.** The moment of commit, for several ranks.

# %% exercise="ch16.atomic_commit"

# %% [markdown]
# The package's own, on rank 0, when all parts are there. Here a checkpoint is a folder, and *its* name is the moment; the file
# `latest` only saves readers a search. If one rank cannot write, none of the checkpoint is kept, and all ranks raise.

# %% jupyter={"source_hidden": true}
from dtlearn.production.checkpoints.store import commit

dtlearn.show_source(commit)

# %% [markdown]
# ## 4. How can two ranks read what four have written?
#
# In section 2 each rank held the whole model. With ZeRO, tensor parallelism or a pipeline it holds parts, and writes its own part: 405 billion
# parameters with Adam's state are several terabytes, which one rank could neither hold nor write in time. But a file for each *rank* can only be read
# by as many ranks, laid out in the same way. So a sharded checkpoint says of each block *where it lies in the whole tensor*. Who loads asks
# for its own block, in whatever layout it has now, and reads what the two have in common. That is **resharding**:

# %%
from dtlearn.production import page_resharding

rows = page_resharding.split((4, 4), dim=0, num_ranks=4)  # saved: a row each
columns = page_resharding.split((4, 4), dim=1, num_ranks=2)  # wanted: two columns each
for read in page_resharding.plan(rows, columns):
    if read.reader == 1:
        print(
            f"rank 1 reads of rank {read.writer}'s file the elements {read.box.start} to {read.box.stop}"
        )

# %% [markdown]
# In one dim, a block from 2 to 6 and a block from 4 to 9 have in common what lies from the *later start* to the *earlier stop*, 4 to 6. With
# several dims that holds in each dim by itself, and there is nothing in common if it is empty in any.
#
# **Exercise 2.** What to read from which file, and where it goes.

# %% exercise="ch16.reshard"

# %% [markdown]
# Resharding on a page:

# %%
dtlearn.show_source(page_resharding)

# %% [markdown]
# On real ranks, with the checkpoints of this course: four ranks save a matrix in rows, two ranks load it in columns.


# %%
def save_rows(folder):
    rows = even_part((8, 8), 0, 4, dist.get_rank())  # where this rank's rows lie
    mine = MATRIX.chunk(4)[dist.get_rank()].flatten()
    with checkpoints.Checkpointer(folder) as checkpointer:
        checkpointer.save(1, {"matrix": (rows, mine)})


def load_columns(folder):
    columns = even_part((8, 8), 1, 2, dist.get_rank())
    with checkpoints.Checkpointer(folder) as checkpointer:
        loaded = checkpointer.load(lambda manifest: {"matrix": columns})
    return loaded.tensors["matrix"].view(8, 4)


import torch.distributed as dist

from dtlearn.sharing.resharding import even_part

MATRIX = torch.arange(64.0).view(8, 8)
# On the processor: files are the same from any device.
dtlearn.run_ranks(save_rows, 4, str(folder / "rows"), device="cpu")
for rank, part in enumerate(
    dtlearn.run_ranks(load_columns, 2, str(folder / "rows"), device="cpu")
):
    print(f"rank {rank} has its columns:", torch.equal(part, MATRIX.chunk(2, 1)[rank]))

# %% [markdown]
# ## 5. How long does training stand still?
#
# BLOOM's checkpoints had 2.3 TB ([the project's notes](https://github.com/bigscience-workshop/bigscience/blob/master/train/tr11-176B-ml/README.md)). Writing takes
# long. An **asynchronous** save lets training go on, and a thread writes beside it.

# %%
staged = dtlearn.predict.choice(
    "The thread is given the parameters, writes them one after the other, and training goes on at once. What is in the file?",
    {
        "A": "the state at the save",
        "B": "the state after a later update",
        "C": "a state that never was",
    },
    id="ch16.staged",
)

# %%
import threading
import time

first, second = torch.zeros(1), torch.zeros(1)  # two parameters; an update adds 1 to each
file = []


def write():
    for parameter in (first, second):
        file.append(parameter.clone())
        time.sleep(0.05)  # a slow disk


writer = threading.Thread(target=write)
writer.start()
while writer.is_alive():
    time.sleep(0.005)  # a step
    first += 1
    second += 1
print("first from an earlier step than second:", bool(file[0] < file[1]))
staged.reveal()

# %% [markdown]
# So an asynchronous save copies everything first, into the memory of the host, which takes much less time than a disk. It is called
# *staging*. A job with and without:

# %% tags=["nbval-ignore-output"] jupyter={"source_hidden": true}
from dtlearn.viz import save_stalls, stall_words


def recorded(asynchronous):
    options = checkpoints.JobOptions(
        str(folder / f"stalls-{asynchronous}"),
        num_steps=12,
        save_every=4,
        asynchronous=asynchronous,
        width=8192,
    )
    return dtlearn.run_ranks(checkpoints.run_job, 2, options, record=True).record


stalls = {"synchronous": recorded(False), "asynchronous": recorded(True)}
show(save_stalls(stalls), stall_words(stalls))

# %% [markdown]
# (These ranks share two cores, and the writer takes one: steps beside a write are slower, and the whole gains less than the stalls say.)
# Three things make an asynchronous save right, and public projects got each of them wrong: the copy is complete **before** the next
# update begins ([pytorch#145408](https://github.com/pytorch/pytorch/pull/145408)); the next save waits for the one before (or is skipped), or two threads write at once; and its messages run in
# a process group of their own, or they mix with those of training.
#
# ## 6. How often to save?
#
# A save costs time whether or not anything fails. Without saves a failure costs all. Between them lies the best **interval**.

# %%
interval = dtlearn.predict.choice(
    "Somebody makes saves four times as fast. The best time between two saves is then",
    {
        "A": "a quarter of what it was",
        "B": "half of what it was",
        "C": "as it was: failures come as often as before",
    },
    id="ch16.interval",
)

# %% [markdown]
# Let a save cost δ seconds, a restart $R$ seconds, and failures be $M$ seconds apart. After τ seconds of training comes a save; a failure comes on
# average half way, and loses τ/2. Of each second, δ/τ goes into saves, τ/2M into work done twice, and R/M into restarts, whatever τ is. The sum is smallest at
#
# $$\tau = \sqrt{2 \, \delta \, M} \qquad \text{(Young, 1974)}$$

# %%
for save in (60, 15):
    tau = goodput.young_interval(save, mtbf=3 * 3600)
    print(
        f"a save takes {save} s, a failure every 3 hours: save every {tau / 60:.1f} minutes"
    )
interval.reveal()

# %% [markdown]
# What is left of the time is called **goodput**: seconds of training that stay, divided by all seconds. A real job, on two ranks that are killed at random
# moments, on a fast clock: a step takes 10 ms, a save 100 ms, a rank dies after 1.5 s of training on average, and the job saves every 60 steps:

# %% tags=["nbval-ignore-output"] jupyter={"source_hidden": true}
from dtlearn.viz import job_life, life_words

lived = goodput.live(mtbf=1.5, seed=3)
show(job_life(lived.life), life_words(lived.life))

# %% [markdown]
# Most of it is restarts here, because a real start of processes takes seconds and this clock is fast. On a clock of weeks:

# %% jupyter={"source_hidden": true}
from dtlearn.viz import goodput_curve, goodput_curve_words

large = goodput.JobTimes(work=30 * 86400, save=60, restart=600, mtbf=3 * 3600)
curve = goodput.goodput_by_interval(
    large, [60 * m for m in (2, 4, 8, 12, 19, 30, 45, 60, 90, 120)], range(5)
)
show(goodput_curve(large, curve), goodput_curve_words(large, curve))

# %% [markdown]
# The curve is flat around its top: half or twice the interval costs two or three points of goodput. What pays is a *shorter save* (asynchronous: δ is the copy alone) and a *faster
# restart*. Young's formula is the limit of saves that are short against $M$. Daly (2006) has the exact model, which is the curve; the dots are
# simulated lives. Where the two part, and how to find the best whole number of steps, is the exercise `interval` in "Further".
#
# ## 7. Which one when?
#
# | what | when |
# |---|---|
# | a checkpoint in every job that runs longer than an hour; moments, scheduler, scaler, sampler, random numbers in it | always |
# | atomic commit, at least two kept | always; a library does it, or you test it by killing the job |
# | sharded files with places (`torch.distributed.checkpoint`, Megatron's `dist_checkpointing`, DeepSpeed's universal checkpoint) | as soon as one rank cannot hold the whole, or the number of ranks may change |
# | asynchronous saves | a save takes longer than a few steps, and the host has room for a copy |
# | interval by Young | saves are short against the time between failures; measure both |
# | restart with fewer ranks | spare nodes are missing; the batch and the learning rate need a rule (`elastic_batch`) |
# | replicas in memory, per-step recovery ([Gemini](https://doi.org/10.1145/3600006.3613145), `torchft`; NVIDIA's resiliency extension restarts inside a process) | failures come every few minutes, and a restart takes as long |
#
# That is the core path. Chapter 17 builds on it.
#
# # Further
#
# | section | what it shows | needs |
# |---|---|---|
# | Which exercise is the list of section 2? | `resume_bits` (25 minutes) | section 2 |
# | Who notices a fault, and when? | twelve faults on real ranks; heartbeats, flight recorder | section 1 |
# | What if a rank computes wrong? | replicas compared, a step replayed | |
# | Where does Young's formula fail? | `interval` (15 minutes) | section 6 |
# | Who is the straggler? | one slow rank in the record; `find_straggler` (20 minutes) | |
# | What if half of the ranks are gone? | the batch kept by a rule; `elastic_batch` (20 minutes) | section 2 |
# | Can some ranks evaluate, or serve? | roles of one job | |
# | How do several ranks generate a text? | caches, tensor parallelism, pipelines, batches that never end | chapter 12 |
# | Does resharding work for a whole model? | from tensor parallelism to ZeRO 3 | chapter 12 |
# | What do others write? | DCP both ways, libraries | section 4 |
# | How is a run watched? | TensorBoard, Weights & Biases, Ray Tune, two traces of a step | |
# | **The bug-hunt lab** | ten programs of real projects; `bug_lab` (60 minutes) | |
# | What is different on GPUs? | | |
# | Myths, and questions to check yourself | | |
#
# ## Which exercise is the list of section 2?
#
# `state_dict()` gives references, not copies; what is alike on all ranks is stored once, and what is each rank's own is not.
#
# **Exercise 3.** A job that is stopped and goes on, to the same bits.

# %% exercise="ch16.resume_bits"

# %% [markdown]
# ## Who notices a fault, and when?
#
# A dead process is the kindest of faults: the system closes its connections, and everybody knows at once. Here is the course's own restart with a rank that
# *hangs* instead, in a loop outside of any collective:

# %%
story = faults.run_scenario("watched_hang")

# %% tags=["nbval-ignore-output"] jupyter={"source_hidden": true}
rank_table(
    [
        {
            "s": f"{e['seconds']:.2f}",
            "rank": e["rank"] if e["rank"] >= 0 else "supervisor",
            "what": e["what"],
            "by": e["by"],
            "names rank": "" if e["about"] is None else e["about"],
        }
        for e in story.table()
        if e["what"] in ("fault", "noticed", "killed", "ended", "resumed", "finished")
        and e["seconds"] >= story.fault.seconds
    ],
    caption="A rank hangs, is found, killed, and the job goes on",
)

# %% [markdown]
# Who noticed?
#
# - **progress**: all ranks send a *heartbeat* with the number of their step ten times a second, from a thread of their own. The hanging process still
#   beats, for its thread lives; but its number stands still. So does everybody's: they wait in the collective. Progress says *that*, not *who*. (The last notice of a heartbeat comes a second after the kill, when the thread has fallen silent.)
# - **flight recorder**: torch keeps the latest collectives of each process in a ring (`TORCH_FR_BUFFER_SIZE`: 2,000 of them by default in 2.13, with any backend; 0 keeps none). Laid side by side:

# %%
print(*story.missing, sep="\n")

# %% [markdown]
# - **time-out**: without either, the collective gives up after its own limit, 4 s here, and in torch by default 10 minutes with NCCL and 30 with gloo. It names nobody.
#
# Half of the package's twelve faults, under the course's restart (`run_ranks`) and under `torchrun --max-restarts`; a lost node is one of two network namespaces, cut off:

# %% jupyter={"source_hidden": true}
from dtlearn.production.fault_stories import load_stories
from dtlearn.viz import detection_bars, detection_words

stored = load_stories()
some = [
    d
    for d in stored.detections
    if d.fault in ("kill", "stop", "hang", "memory", "skip", "node_lost")
]
show(
    detection_bars(
        some,
        label=f"run on {stored.date}, {stored.processors} cores, torch {stored.versions['torch']}",
    ),
    detection_words(some),
)

# %% jupyter={"source_hidden": true}
rank_table(
    [
        {
            "fault": faults.SCENARIOS[one.name].says,
            "by": one.launcher,
            "ranks": " then ".join(map(str, one.worlds)),
            "fault to next step, s": "-"
            if one.restart_seconds is None
            else f"{one.restart_seconds:.1f}",
        }
        for one in stored.stories
        if one.name in ("kill", "hang", "watched_hang", "memory", "nan", "node_lost")
        or (one.name, one.launcher) == ("lost_rank", "run_ranks")
    ],
    caption=f"From the fault until it trains again, {stored.date}",
)

# %% [markdown]
# Under torchrun a restart takes seconds, for each process starts a Python and loads torch; on a large cluster it takes minutes, with
# the network's set-up and the checkpoint's way from the disk. That is the $R$ of section 6.
#
# ## What if a rank computes wrong?
#
# A bit flips in a GPU, and the step goes on. The all-reduce carries the wrong number to everybody, so all replicas agree, on the wrong thing.

# %%
silent = dtlearn.predict.choice(
    "After each update all ranks compare checksums of their parameters. Which fault does that find?",
    {
        "A": "a bit that flipped in one rank's parameters, not one in its gradient",
        "B": "a bit in one rank's gradient, not one in its parameters",
        "C": "both",
    },
    id="ch16.silent",
)

# %%
for name in ("flip_parameter", "flip_gradient"):
    for check in ("replicas", "replay"):
        story = faults.run_scenario(name, check=check)
        found = any(d.noticer == "check" for d in story.detections)
        print(f"{name:>15}, checked by {check:>8}: {'found' if found else 'not found'}")
silent.reveal()

# %% [markdown]
# `replicas` is the comparison of checksums. **Replay** is dearer: each share of the batch is computed by two ranks, and where two checksums differ, a third rank decides. It costs a step's computation, so it runs
# now and then, and it needs kernels that give the same bits each time. Meta counts 6 of its 419 interruptions as such *silent data corruption*.
#
# ## Where does Young's formula fail?
#
# Young puts the failure half way, and forgets that a second try can fail, too. Exactly: failures without memory leave a stretch of $s$ seconds alone with
# chance $e^{-s/M}$. The time until it succeeds once is $M(e^{s/M} - 1)$ on average, and each failure adds a restart, which can fail as well: $M e^{R/M}(e^{s/M} - 1)$
# (J. T. Daly, *A higher order estimate of the optimum checkpoint interval*, FGCS 22(3), 2006). With $s = \tau + \delta$, that is the curve of section 6.
#
# **Exercise 4.** The best number of steps, and the goodput that it leaves.

# %% exercise="ch16.interval"

# %% [markdown]
# ## Who is the straggler?
#
# Nothing has failed, and the job is slow. A collective takes as long as its last rank. Three ranks, one of which computes 50 ms longer in each step:

# %% tags=["nbval-ignore-output"] jupyter={"source_hidden": true}
from dtlearn.production import stragglers
from dtlearn.viz import shadow_words, straggler_shadow

slow = stragglers.slow_run("compute", rank=1)
report = stragglers.find_stragglers(slow)
show(straggler_shadow(slow, report), shadow_words(slow, report))

# %% [markdown]
# A profiler of rank 0 shows a slow all-reduce, and one suspects the network. **The straggler is the rank that waits least**; the long collectives are its victims'.
# What it did before says why: it waited for data, or computed. A slow *link* looks different: nobody comes late, and all wait.
#
# **Exercise 5.** The rank, the phase, since when, and what it costs.

# %% exercise="ch16.find_straggler"

# %% [markdown]
# A rank that is slow and works is hard to find. ByteDance draws its runs as heat maps of ranks, and throws out the slow
# ([MegaScale](https://arxiv.org/abs/2402.15627): some machines took about 10 % longer for the same work).
#
# ## What if half of the ranks are gone?
#
# Section 2's job went on with two ranks, with the *global batch* kept: each rank took twice as many micro-batches. If it cannot be kept, because the
# memory or the time is not there, the learning rate follows: in proportion to the batch for SGD
# ([Goyal et al.](https://arxiv.org/abs/1706.02677)), or with its root for Adam ([Malladi et al.](https://arxiv.org/abs/2205.10287)). Rows do not always divide:
#
# | 10 rows on 4 ranks | rank 0 | 1 | 2 | 3 | |
# |---|---|---|---|---|---|
# | rows | 3 | 3 | 2 | 2 | |
# | weight of its mean | 3/10 | 3/10 | 2/10 | 2/10 | not 1/4 each: a row counts the same wherever it lies |
#
# **Exercise 6.** A step of the job, on the ranks that are left.

# %% exercise="ch16.elastic_batch"

# %% [markdown]
# The package has a simpler rule, which keeps all ranks equal and makes the batch smaller instead:

# %% jupyter={"source_hidden": true}
from dtlearn.production.checkpoints import plan_batch

rank_table(
    [
        {
            "ranks": n,
            "micro-batches": p.accumulate,
            "rows of each": p.micro_batch,
            "batch": p.global_batch,
            "lr": f"{p.lr:.4f}",
        }
        for n in (4, 3, 2, 1, 5)
        for p in [plan_batch(24, n, max_micro_batch=4, lr=0.1)]
    ],
    caption="A global batch of 24, at most 4 rows at a time",
)

# %% [markdown]
# DeepSpeed's "elasticity" does it the other way round: it chooses a batch beforehand that many numbers of ranks divide.
#
# ## Can some ranks evaluate, or serve?
#
# One source of this course lists "training, evaluation and inference on separate nodes" as a strategy of parallel training. It makes no step faster. But it is useful: an evaluation
# every hour stops a thousand GPUs if they make it themselves. Here two ranks train, one evaluates each checkpoint as it comes, one serves:

# %% tags=["nbval-ignore-output"] jupyter={"source_hidden": true}
from dtlearn.production import serving
from dtlearn.viz import role_lanes, role_words

job = serving.SeparateJob(str(folder / "roles"), evaluation_seconds=0.1)
roles = serving.run_separate_ranks(
    serving.RankRoles(training=2, evaluation=1, serving=1), job
)
show(role_lanes(roles), role_words(roles))

# %% [markdown]
# They meet in a folder, never in a collective: so nobody waits for a slow evaluation, and it is only the atomic commit of section 3 that makes that safe. A reader must never
# see half a file.
#
# ## How do several ranks generate a text?
#
# A model writes a token at a time. Naively, each token is a pass over the whole text again. A **key-value cache** keeps what attention needs of the earlier tokens, and a pass has one
# token. One pass over the prompt, **prefill**, fills it; then **decode** goes on token by token.

# %%
from dtlearn.models import GPT, GPTConfig

torch.manual_seed(0)
gpt = GPT(GPTConfig(num_layers=2)).eval()
asked = [
    serving.GenerationRequest((1, 2, 3), 12),
    serving.GenerationRequest((4, 5, 6, 7, 8), 8),
]
with_cache, without = (
    serving.generate(gpt, asked),
    serving.generate(gpt, asked, cached=False),
)
print("the same tokens:", with_cache == without)

# %% [markdown]
# With **tensor parallelism** each rank has some heads, and a part of the cache. The messages are those of chapter 12, forward only; a decode pass has as many as a prefill, and tiny:
# their latency counts.

# %%
# %%ranks
import torch

from dtlearn.models import GPT, GPTConfig
from dtlearn.production import serving
from dtlearn.tensor_parallel.gpt import ParallelGPT

torch.manual_seed(0)
whole = GPT(GPTConfig(num_layers=2)).eval().to(device)
requests = [
    serving.GenerationRequest((1, 2, 3), 12),
    serving.GenerationRequest((4, 5, 6, 7, 8), 8),
]
alone = serving.generate(whole, requests)
divided = ParallelGPT.from_gpt(whole, group=None).eval()
print("token by token the same:", serving.generate(divided, requests) == alone)

# %% [markdown]
# (The cache of a model with grouped queries is smaller by their number; chapter 12.) A server has *slots*, and texts end at different times. **Continuous batching** looks after each token who is done and who waits (Orca, OSDI 2022):

# %% jupyter={"source_hidden": true}
lengths = (12, 3, 4, 9, 3, 5, 2, 6)
queue = [serving.GenerationRequest((1,), n) for n in lengths]
for policy in ("static", "continuous"):
    run = serving.plan(queue, 3, policy)
    print(f"{policy}: {run.num_steps} steps, slots busy {run.busy:.0%}")
    for slot in zip(*run.grid, strict=True):
        print("   ", "".join("." if n is None else "abcdefgh"[n] for n in slot))

# %% [markdown]
# A letter is a text, a column a pass. What deployments use today: **vLLM** and **SGLang**. Both have continuous batching, a cache in pages of fixed size so that no room is lost between texts
# ([PagedAttention](https://arxiv.org/abs/2309.06180)), prompts that share a beginning share its pages ([RadixAttention](https://arxiv.org/abs/2312.07104)), tensor and pipeline parallelism as above, and
# often prefill and decode on machines of their own, for the first is bound by computation and the second by memory.
#
# ## Does resharding work for a whole model?
#
# A GPT of four tensor-parallel ranks (chapter 12) is saved, with Adam's moments, and two ranks go on that have it under ZeRO 3. Nobody ever holds the whole model.
# A `Cut` says which part of a whole tensor a rank has; `shards_of` and `wanted_by` make pieces of it, to save and to load.

# %% jupyter={"source_hidden": true}
from functools import partial

from dtlearn.models import GPT, GPTConfig, next_token_loss
from dtlearn.tensor_parallel import ParallelGPT
from dtlearn.zero import FullyShardedDataParallel, ShardedParameters, pieces_of_stage3

CONFIG = GPTConfig(
    vocab_size=9, context_length=8, num_layers=1, num_heads=4, hidden_size=8
)


def save_divided(folder):
    """Two steps of a GPT whose layers are divided among the ranks; a save; two more steps."""
    model = ParallelGPT(CONFIG, seed=0, dtype=torch.float64)
    return trained(
        model,
        ShardedParameters.of_module(model),
        checkpoints.layouts.tensor_parallel_cuts(model),
        folder,
    )


def go_on_sharded(folder):
    """Two steps of the same GPT under ZeRO 3, from the checkpoint."""
    torch.manual_seed(1)
    module = GPT(CONFIG).double()
    cuts = checkpoints.replicated_cuts(module, copy=0, copies=1)
    model = FullyShardedDataParallel(module)
    return trained(model, pieces_of_stage3(model), cuts, folder, resume=True)


def step(model, optimizer):
    """A step on the same tokens as ever; its loss."""
    tokens = torch.arange(18).view(2, 9) % CONFIG.vocab_size
    x, y = tokens[:, :-1], tokens[:, 1:]
    is_divided = isinstance(model, ParallelGPT)
    loss = model.loss(x, y) if is_divided else next_token_loss(model(x), y)
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    return loss.item()


def trained(model, sharded, cuts, folder, resume=False):
    """Two steps and a save, or a load; then two steps, and their losses."""
    optimizer = torch.optim.Adam(sharded.pieces, lr=0.01)
    with checkpoints.Checkpointer(folder) as checkpointer:
        if resume:
            loaded = checkpointer.load(partial(checkpoints.wanted_by, sharded, cuts))
            checkpoints.load_shards(
                sharded, optimizer, cuts, loaded.tensors, loaded.shared["optimizer"]
            )
        else:
            step(model, optimizer)
            step(model, optimizer)
            shards, options = checkpoints.shards_of(sharded, optimizer, cuts)
            checkpointer.save(2, shards, shared={"optimizer": options})
    return [step(model, optimizer) for _ in range(2)]


# On the processor: the files and losses of both jobs are compared to the last digits.
divided = dtlearn.run_ranks(save_divided, 4, str(folder / "divided"), device="cpu")[0]
sharded = dtlearn.run_ranks(go_on_sharded, 2, str(folder / "divided"), device="cpu")[0]
print(
    "losses of steps 3 and 4, tensor-parallel on four ranks:",
    [f"{x:.6f}" for x in divided],
)
print(
    "                                     ZeRO 3 on two ranks:",
    [f"{x:.6f}" for x in sharded],
)
apart = max(abs(a - b) for a, b in zip(divided, sharded, strict=True))
print("equal but for rounding in float64:", apart < 1e-12)

# %% [markdown]
# ## What do others write?
#
# `torch.distributed.checkpoint` (DCP) knows a tensor by name, whole shape, and where each piece lies; so does ours, and each reads the other's:


# %%
def saved_by_torch(folder):
    """A matrix in columns, saved by torch."""
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    dcp.save({"w": distribute_tensor(WHOLE, mesh, [Shard(1)])}, checkpoint_id=folder)


import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Shard, distribute_tensor

from dtlearn.sharing.resharding import even_part

WHOLE = torch.arange(48.0).view(6, 8)
# On the processor: a file is the same from any device.
dtlearn.run_ranks(saved_by_torch, 2, str(folder / "dcp"), device="cpu")
middle = even_part((6, 8), 0, 3, 1)  # rows 2 and 3: of three ranks, the second
read = checkpoints.read_dcp(folder / "dcp", {"w": middle})["w"]
print("rows 2 and 3 of torch's files:", torch.equal(read, WHOLE[2:4].flatten()))

# %% [markdown]
# | | sharded, any layout | asynchronous | commit | who deletes old ones |
# |---|---|---|---|---|
# | this course | yes | yes, staged | rename of the folder, then a pointer | it |
# | torch DCP | yes | `async_save`, staged | `.metadata` is written last, in the final folder | you |
# | Megatron-LM `dist_checkpointing` | yes | yes | `latest_checkpointed_iteration.txt` last | you, or `--save-retain-interval` |
# | DeepSpeed | by its *universal checkpoint*, converted afterwards | plug-ins | a file `latest` last | you |
#
# Two limits of section 3. An object store has no `rename`: there a manifest that is written last is the commit, as DCP's `.metadata`. And on NFS or Lustre other clients may see names late, so
# ranks have to agree on the newest step that *all* of them see; this course's `load` does. Saving twice into one folder with DCP replaces its `.metadata` in two moments.
#
# `torchrun` saves nothing: it restarts processes, and the script loads. With `torchft` a replica that comes back copies the state from another, at the next step.
#
# ## How is a run watched?
#
# `python -m dtlearn.train --log-dir runs/a` writes TensorBoard's event files, and `metrics.jsonl` beside them. The package reads both, and hands them on to **Weights & Biases**
# (offline: no account, no network), and lets **Ray Tune** search the learning rate with that script as its trainable. They are half a gigabyte, so they have an environment of their own:
# `make watching`; its tests run them. Tune searches *between* runs, and makes no step faster.
#
# Two views of one step, on two ranks: PyTorch's profiler, and this course's record.

# %% tags=["nbval-ignore-output"] jupyter={"source_hidden": true}
from dtlearn.production import watching

traces = watching.trace_step()
rank_table(
    [
        {"what": s.what, "profiler": s.profiler, "record": s.record}
        for s in traces.sights()
    ],
    caption="How many of each the two traces show",
)

# %% [markdown]
# A profiler sees one process and its kernels (and lines too, if it is told `with_stack=True`); the record sees who talks to whom. Both can be opened in [ui.perfetto.dev](https://ui.perfetto.dev): `traces.save(folder)`.
#
# ## The bug-hunt lab
#
# Now you are on duty. Ten programs of 15 to 40 lines, each with one fault that a public project had and dealt with; each hangs, is wrong in silence, or is slow. You are asked for
# three things: **which ranks** do the wrong thing (not those that wait), **which line** has to change (not where it shows), and which of sixteen **causes** it is. First one that is none of
# the ten. Four ranks average two metrics, and hang:

# %% tags=["nbval-ignore-output"]
from dtlearn.production import bug_lab

program = '''import torch
import torch.distributed as dist


def main():
    """Return the means of two metrics."""
    rank = dist.get_rank()
    metrics = {"loss": torch.tensor([1.0 + rank])}
    metrics["words"] = torch.tensor([10.0, 20.0])
    if rank == 3:  # it met the first words before the first loss
        metrics = {"words": metrics["words"], "loss": metrics["loss"]}
    for value in metrics.values():
        dist.all_reduce(value)
    return {name: value.tolist() for name, value in metrics.items()}
'''
print(bug_lab.run_text(program, 4))

# %% [markdown]
# Read it in this order. *Who is alone?* Rank 3: its first call has another shape. (Who is alone is where to look; the one who is wrong may be the others.) *What did it do before?* It went through its dict in another order, for a dict remembers when its keys came. *What has to
# change?* The loop, line 12, for all ranks: `sorted(metrics)`. The watch stopped it in its second call, for gloo had let the first one pass: ranks 0 to 2 went on with a wrong sum. With NCCL and without a watch, such a program hangs, or, where the sizes happen to fit, adds losses to words.
# So: ranks `[3]`, line 12, cause "other order".
#
# The ten, with what somebody saw:

# %% jupyter={"source_hidden": true}
rank_table(
    [
        {"program": name, "ranks": p.world_size, "symptom": p.symptom, "report": p.report}
        for name, p in bug_lab.PROGRAMS.items()
    ],
    caption="Where each comes from (`PROGRAMS[name].link`) gives it away: look afterwards",
)

# %% [markdown]
# **Exercise 7.** Ten programs: which rank, which line, which cause?

# %% exercise="ch16.bug_lab"

# %% [markdown]
# ## What is different on GPUs?
#
# - A kill is not noticed at once. NCCL's collectives run on the GPU, and the survivors' Python goes on until the next synchronisation; its watchdog thread ends them after the time-out
#   (`TORCH_NCCL_ASYNC_ERROR_HANDLING`, on by default). (`faults.run_scenario` always uses gloo. Measure with your own job: kill a rank, and look at the clock.)
# - The copy of an asynchronous save goes over PCIe into *pinned* memory. Expect a stall of the bytes by the link's speed, 64 GB/s at most with PCIe 5, not zero.
# - The replay of a step needs deterministic kernels: `torch.use_deterministic_algorithms(True)`.
# - The flight recorder writes its dumps by itself when NCCL's watchdog fires, and `torchfrtrace` lays them side by side.
#
# ## Myths
#
# - *"Checkpoints are torch.save of the model."* A job that goes on from weights alone is another job (section 2).
# - *"An asynchronous save is free."* It costs the copy, the memory of the host for it, disk and network that training may want too, and in a thread a share of Python's lock (DCP can write in a process of its own).
# - *"Save as often as possible."* With a save of 60 s and a failure in 3 hours, saving every 2 minutes leaves less goodput than every hour (section 6).
# - *"The slow rank is the one with the slow all-reduce."* That one waits (section "Who is the straggler?").
# - *"Elastic training goes on without a pause."* torchrun restarts *all* processes when one leaves or joins; they load the checkpoint.
#
# ### Check yourself
#
# <details><summary>A job on 4,096 GPUs fails every 12 hours. How often on 8,192 of them?</summary>
#
# Every 6 hours. And by Young the interval falls by √2 only.
# </details>
#
# <details><summary>Why does rank 0 wait for all ranks before it renames?</summary>
#
# Otherwise the new name may be seen, and the job killed, while a part is not written: the checkpoint that everybody takes is not whole.
# </details>
#
# <details><summary>Four ranks saved under ZeRO 3, and two load under tensor parallelism. What has to be in the files?</summary>
#
# For each block its name, the whole tensor's shape, and where the block lies in it. The number of ranks that saved does not matter.
# </details>
#
# <details><summary>All ranks hang, and all heartbeats come. Whom do you ask?</summary>
#
# The flight recorders: the rank whose number of collectives is the lowest is the one that the others wait for.
# </details>
#
# <details><summary>The checksums of all replicas agree. Has every rank computed right?</summary>
#
# No. A wrong gradient reaches all of them through the sum, and they agree on the wrong parameters.
# </details>
#
# ## Glossary
#
# {glossary}
#
# Next: chapter 17 trains one GPT under every strategy.
