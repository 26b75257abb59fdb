# %% [markdown]
# # Chapter 11. Pipeline schedules
#
# **The question.** Can the bubble vanish?
#
# Builds on: the core path of chapter 10. Ranks: 4. Time: 75 minutes for the core path; the sections of "Further" in any
# order, when you need them.
#
# | core path | what | minutes |
# |---|---|---|
# | 1. What is left of the bubble? | two conventions | 2 |
# | 2. What does a schedule cost? | a timetable by hand | 4 |
# | 3. What if stages are smaller? | interleaving | 6, and exercise 1: 25 |
# | 4. What does a backward pass compute? | two products | 4 |
# | 5. Where to put W? | ZB-H1 | 4, and exercise 2: 15 |
# | 6. Can it vanish? | ZB-H2, and what exactly is zero | 4 |
# | 7. What does each cost on real ranks? | bubble and memory, measured | 3 |
# | 8. How does it break? | a circular wait | 4 |
# | 9. Which one should you take? | messages, unequal times, 16 ranks | 4 |
#
# After it you can read a schedule, say what it costs in time and memory, and say what exactly is zero in "zero bubble".
#
# No GPU is needed. Where a run is measured, **stage times are emulated**: a stage sleeps for as long as it would
# compute, because two cores cannot compute four stages at once. Ranks, messages and autograd are real.

# %% jupyter={"source_hidden": true}
# %load_ext dtlearn
import torch

import dtlearn
from dtlearn import pipeline_parallel as pp
from dtlearn.pipeline_parallel import StageTimes, make_schedule, parse_schedule, simulate
from dtlearn.viz import draw_schedule, rank_table, show

torch.set_num_threads(1)  # small tensors: more threads would only wait for each other
world = dtlearn.world(4)
world

# %% [markdown]
# # The core path
#
# ## 1. What is left of the bubble?
#
# Chapter 10 cut a model into p stages, one on each rank, and a batch into m micro-batches. GPipe and 1F1B keep different
# numbers of activations, but have the same **bubble**, the time in which ranks are idle:
#
# | convention | GPipe and 1F1B, equal stages | p = 4, m = 8 | p = 16, m = 32 |
# |---|---|---|---|
# | idle time / useful time (Megatron-LM) | $(p-1)/m$ | 37.5 % | 46.9 % |
# | idle time / total time (GPipe) | $(p-1)/(m+p-1)$ | 27.3 % | 31.9 % |
#
# More micro-batches would make it smaller. But above some size of the global batch more samples are needed for the same
# loss, and smaller micro-batches use a GPU poorly. So here p and m stay as they are, and the schedule changes.
#
# Times are in units: the forward pass of a micro-batch through 1/p of the model takes F = 1, the backward pass B = 2. So
# 1F1B with p = 4 and m = 8 takes $(m+p-1)(F+B) = 33$ units; a rank works for 24 of them and is idle for 9.

# %%
order = dtlearn.predict.choice(
    "The same forward and backward passes on the same four ranks, one stage on each: can another order take "
    "less than 33 units?",
    {
        "A": "no",
        "B": "yes, if ranks may keep more activations than with 1F1B",
        "C": "yes, with the memory of 1F1B",
    },
    id="ch11.order",
)

# %% [markdown]
# ## 2. What does a schedule cost?
#
# A schedule lists, for each rank, what it does and in which order. It says nothing about times. Written down, it has a
# line for each rank and a word for each **action**: `1F0` is stage 1, forward pass, micro-batch 0. The letters are those
# of `torch.distributed.pipelining`:
#
# | letter | action | needs, for the same micro-batch |
# |---|---|---|
# | F | forward pass of stage s | F of stage s - 1; nothing, if s is the first stage |
# | B | its whole backward pass | its own F, and B of stage s + 1 (I, if that is split), unless s is the last stage |
# | I | the first part of a backward pass: the gradient of the stage's **i**nputs | as B |
# | W | the second part: the gradients of its **w**eights | I of stage s |
#
# (I and W come in section 4. W is an action in this chapter; a matrix of weights, which other chapters call W, is A here.
# The zero bubble paper, 2401.10241, writes B for what is I here.)
#
# Given the time of each action, the orders determine everything else. An action starts as soon as its rank has done
# the action before it and the results that it needs are there. By hand, for 1F1B with p = 2, m = 2, F = 1, B = 2:
#
# | action | rank free at | needed results at | starts | ends |
# |---|---|---|---|---|
# | 0F0 | 0 | | 0 | 1 |
# | 1F0 | 0 | 0F0: 1 | 1 | 2 |
# | 0F1 | 1 | | 1 | 2 |
# | 1B0 | 2 | | 2 | 4 |
# | 0B0 | 2 | 1B0: 4 | 4 | 6 |
# | 1F1 | 4 | 0F1: 2 | 4 | 5 |
# | 1B1 | 5 | | 5 | 7 |
# | 0B1 | 6 | 1B1: 7 | 7 | 9 |
#
# The **makespan**, from the first start to the last end, is 9. Each rank works for 6 units and is idle for 3: idle /
# useful time is 50 %, $(p-1)/m$. Memory can be read off the same table. A rank keeps the activations of a micro-batch from
# the start of F to the end of B; they are **live** in between. Rank 0 keeps two at most, rank 1 one.
#
# 1F1B with p = 4 and m = 8, simulated:

# %% jupyter={"source_hidden": true}
show(
    draw_schedule(
        make_schedule("1f1b", 4, 8),
        "1F1B: the pipeline fills and drains through all stages",
        "p = 4, m = 8; F = 1, B = 2",
    ),
    alt="Four ranks over 33 units; bubble: idle / useful time 37.5 %, idle / total time 27.3 %. Rank 3 begins at 3, works "
    "24 units without a gap, and ends at 27. Ranks 0 to 2 begin earlier, wait in between, and end later; rank 0 ends at 33.",
)

# %% jupyter={"source_hidden": true}
order.reveal()

# %% [markdown]
# Look at rank 3 in the figure. It cannot begin before time 3F, and after its last action a backward pass still has to go
# up through three other ranks. In between it is never idle. So a shorter schedule needs other *actions*, or other places
# for them, not another order of the same ones:
#
# | | what changes | where |
# |---|---|---|
# | interleaving | stages are smaller, so filling takes less time | section 3 |
# | zero bubble | a backward pass is two actions, and only one of them has to go up through the ranks | sections 4 to 6 |
# | V-shaped placement | the last stage is on the rank of the first one | Further |
#
# ## 3. What if stages are smaller?
#
# Filling the pipeline takes the time of $p-1$ forward passes through a stage, draining it that of $p-1$ backward passes.
# Cut the model into $pv$ stages instead of p, and each takes 1/v of the time. A rank then has v stages, its **chunks**. It
# matters which ones. With p = 4 and v = 2:
#
# | | rank 0 | rank 1 | rank 2 | rank 3 | when rank 3 can begin |
# |---|---|---|---|---|---|
# | neighbours | stages 0, 1 | 2, 3 | 4, 5 | 6, 7 | after 6 stages of half the size: 3 units, as before |
# | in a loop | stages 0, 4 | 1, 5 | 2, 6 | 3, 7 | after 3 stages of half the size: 1.5 units |
#
# In a loop stage s is on rank s mod p, and a micro-batch goes through all ranks v times. Megatron-LM calls this the
# **interleaved schedule** (Narayanan et al. 2021, arXiv 2104.04473), and v the number of virtual stages of a rank. Its
# order, for p = 4, m = 8 and v = 2, below 1F1B:

# %% jupyter={"source_hidden": true}
show(
    draw_schedule(
        {
            "1F1B": make_schedule("1f1b", 4, 8),
            "interleaved, v = 2": make_schedule("interleaved", 4, 8, 2),
        },
        "Two chunks on each rank: half the bubble",
        "p = 4, m = 8; the whole model has the same work in both",
    ),
    alt="Two schedules of four ranks on one time axis. 1F1B takes 33 units, idle / useful time 37.5 %. Interleaved with "
    "two chunks takes 28.5 units, 18.8 %. Its boxes are half as long, and rank 3 begins at 1.5 in place of 3.",
)

# %%
kept = dtlearn.predict.choice(
    "1F1B keeps the activations of 4 micro-batches on rank 0. The activations of a chunk take half as much memory as "
    "those of a whole stage. How much memory do the activations of rank 0 take in the interleaved schedule of the figure?",
    {
        "A": "less: chunks are smaller",
        "B": "the same: twice as many, each half as large",
        "C": "more",
    },
    id="ch11.kept",
)
messages = dtlearn.predict(
    "How many messages does a step of the interleaved schedule send, as a ratio to those of 1F1B?",
    id="ch11.messages",
)

# %% [markdown]
# Both answers follow from the figure. Here they are counted in a run: the folded `run(kind)` starts a process for each rank,
# executes the schedule with the package's runner, and returns the record. F takes 10 ms for 1/p of the model.

# %% jupyter={"source_hidden": true}
from dtlearn.pipeline_parallel import run_emulated

KINDS = {
    "GPipe": ("gpipe", None),
    "1F1B": ("1f1b", None),
    "interleaved, v = 2": ("interleaved", 2),
    "interleaved, v = 4": ("interleaved", 4),
    "ZB-H1": ("zb_h1", None),
    "ZB-H2": ("zb_h2", None),
}
V_SHAPED = {"ZBV": ("zbv", None), "V-Half": ("v_half", None), "V-Min": ("v_min", None)}
STEPS = 2


def computed(kind, p=4, m=8, forward=1.0, inputs=1.0, weights=1.0, transfer=0.0):
    """Simulated, in units."""
    name, chunks = (KINDS | V_SHAPED)[kind]
    schedule = make_schedule(name, p, m, chunks)
    times = StageTimes.equal_parts(
        schedule.num_stages // p, forward=forward, inputs=inputs, weights=weights
    )
    return simulate(schedule, times, transfer=transfer)


def run(kind, seconds=0.010):
    """The record of a run."""
    name, chunks = (KINDS | V_SHAPED)[kind]
    times = StageTimes(forward=seconds, inputs=seconds, weights=seconds)
    return run_emulated(make_schedule(name, 4, 8, chunks), times, steps=STEPS)


def peak(timeline):
    """Peak of live activations on any rank; 1 is one micro-batch of 1/p of the model."""
    chunks = timeline.schedule.num_stages / timeline.num_ranks
    return max(timeline.peak_live) / chunks


def sent(record):
    """Messages of a step."""
    return sum(event.op in ("send", "isend") for event in record) // STEPS


# %%
runs = {kind: run(kind) for kind in ("1F1B", "interleaved, v = 2")}

# %% jupyter={"source_hidden": true}
kept.reveal()
messages.reveal(
    sent(runs["interleaved, v = 2"]) / sent(runs["1F1B"]),
    one=sent(runs["1F1B"]),
    two=sent(runs["interleaved, v = 2"]),
)

# %% tags=["nbval-ignore-output"] jupyter={"source_hidden": true}
from dtlearn.viz import draw_gantt

show(
    draw_gantt(
        runs["interleaved, v = 2"],
        "Two chunks on each rank, measured",
        "interleaved, v = 2, p = 4, m = 8; emulated stage times: F of a stage takes 10 ms",
    ),
    alt="Gantt chart of a recorded run of the interleaved schedule with 2 chunks on four ranks, with emulated stage times. It "
    "has the order of the lower half of the figure before: boxes of 10 ms forward and 20 ms backward, which are longer, with "
    "more gaps, on a machine that is busy.",
)

# %% [markdown]
# (Gaps that the figure before does not have are messages, the runner, and a machine that has other work.)
#
# Why that order? A rank has choices: which chunk next, and when to begin with backward passes. Follow the forward passes by
# hand, for p = 3 and v = 2, one tick each, messages free. A rank that could go on with several micro-batches takes the one
# that has passed most stages. At tick 4 micro-batch 0 is back at rank 0, so it goes on there, and micro-batch 3 has to wait:
#
# | tick | 1 | 2 | 3 | 4 | 5 | 6 | 7 | 8 |
# |---|---|---|---|---|---|---|---|---|
# | rank 0 | 0F0 | 0F1 | 0F2 | 3F0 | 3F1 | 3F2 | 0F3 | 0F4 |
# | rank 1 | | 1F0 | 1F1 | 1F2 | 4F0 | 4F1 | 4F2 | 1F3 |
# | rank 2 | | | 2F0 | 2F1 | 2F2 | 5F0 | 5F1 | 5F2 |
#
# No rank waits once it has begun.

# %% [markdown]
# **Exercise 1.** The interleaved schedule.

# %% exercise="ch11.interleaved"

# %%
dtlearn.show_source(
    pp.interleaved, docstring=False, summary="dtlearn.pipeline_parallel.interleaved"
)

# %% [markdown]
# So before its first backward pass rank r makes $2(p-r-1) + (v-1)p + 1$ forward passes. (Why 2: Further, "Why is the
# interleaved warm-up so long?") In formulas, for equal stages:
#
# | | 1F1B | interleaved, v ≥ 2 |
# |---|---|---|
# | bubble, idle / useful time | $(p-1)/m$ | $(p-1)/(vm)$ |
# | activations of rank 0, in micro-batches of 1/p of the model | $p$ | $p\,(1 + (p-1)/(pv))$ |
# | boundaries between ranks, each with 2m messages | $p-1$ | $pv-1$ |
#
# ## 4. What does a backward pass compute?
#
# A linear layer computes $y = xA^T$. Its backward pass gets $dy$, the gradient of its outputs, and computes two products
# that do not depend on each other:
#
# | | product | who waits for it |
# |---|---|---|
# | **I**, gradient of the inputs | $dx = dy\,A$ | the layer before, and so the rank before |
# | **W**, gradient of the weights | $dA = dy^T x$ | nobody but the optimizer |
#
# Each has as many multiplications as the forward pass, so here F = I = W, and B = I + W = 2F. In a whole model this holds
# only roughly: the products of attention, of queries with keys and of scores with values, have no weights, so they add to
# I and not to W.
#
# How can I be computed now and W later? The naive way calls autograd twice, and keeps the graph after the first call:

# %%
stage = torch.nn.Sequential(*[torch.nn.Linear(64, 64, bias=False) for _ in range(4)])
x = torch.randn(16, 64, requires_grad=True)
y = stage(x)
dy = torch.ones_like(y)
(dx,) = torch.autograd.grad(y, x, dy, retain_graph=True)  # I
weights = torch.autograd.grad(y, stage.parameters(), dy)  # W

# %%
products = dtlearn.predict(
    "The stage has 4 linear layers. A whole backward pass, with the gradient of x, takes 8 matrix products. How many do "
    "the two calls of autograd take together?",
    unit="products",
    id="ch11.products",
)

# %% jupyter={"source_hidden": true}
from torch.utils.flop_counter import FlopCounterMode

ONE = 2 * 16 * 64 * 64  # floating-point operations of one product


def count(function):
    """How many products a function computes."""
    with FlopCounterMode(display=False) as counter:
        function()
    return counter.get_total_flops() // ONE


def naive():
    """I and W by two calls."""
    torch.autograd.grad(y, x, dy, retain_graph=True)
    torch.autograd.grad(y, stage.parameters(), dy)


y = stage(x)
whole = count(lambda: y.backward(dy, retain_graph=True))
twice = count(naive)
print(f"whole backward pass: {whole} products")

# %% jupyter={"source_hidden": true}
products.reveal(twice, again=twice - whole)

# %% [markdown]
# So one should store something for W: the $dy$ of each layer. Its $x$ has been kept since the forward pass. (Further, "How
# does one split a backward pass?")
#
# ## 5. Where to put W?
#
# Now a backward pass is two actions. Here are three orders for p = 2, m = 3 and F = I = W = 1: 1F1B; 1F1B with each W
# right after its I; and the same with each W of rank 1 one micro-batch later. (`.` is an idle unit; with `=` the action
# before it goes on.)

# %%
three = {
    "1F1B": "0F0 0F1 0B0 0F2 0B1 0B2 \n 1F0 1B0 1F1 1B1 1F2 1B2",
    "W at once": "0F0 0F1 0I0 0W0 0F2 0I1 0W1 0I2 0W2 \n 1F0 1I0 1W0 1F1 1I1 1W1 1F2 1I2 1W2",
    "W later on rank 1": "0F0 0F1 0I0 0W0 0F2 0I1 0W1 0I2 0W2 \n 1F0 1I0 1F1 1I1 1W0 1F2 1I2 1W1 1W2",
}
for name, text in three.items():
    line = simulate(parse_schedule(text))
    print(f"{name}: {line.makespan:g} units\n{pp.format_timeline(line)}\n")

# %% [markdown]
# In the second, rank 0 gets its first gradient after I, a unit earlier. In the third, rank 0 does not have to wait while
# rank 1 computes a W that nobody needs yet, and rank 1 still has work to do after it has sent its last gradient. Qi et al.
# (ICLR 2024, arXiv 2401.10241) call this order **ZB-H1**.

# %%
idle_units = dtlearn.predict(
    "1F1B with p = 4 and m = 8 leaves each rank idle for 9 units. Now F = I = W = 1, each W is at the best place, and "
    "no rank keeps more activations than rank 0 of 1F1B does. For how many units is each rank idle?",
    unit="units",
    id="ch11.idle_units",
)

# %% jupyter={"source_hidden": true}
zero_bubble = simulate(make_schedule("zb_h1", 4, 8))
idle_units.reveal(zero_bubble.idle[0])

# %% [markdown]
# **Exercise 2.** Place the W.

# %% exercise="ch11.zero_bubble"

# %% jupyter={"source_hidden": true}
show(
    draw_schedule(
        {"1F1B": make_schedule("1f1b", 4, 8), "ZB-H1": make_schedule("zb_h1", 4, 8)},
        "ZB-H1: W fills most of the idle time",
        "p = 4, m = 8; F = I = W = 1, B = 2",
    ),
    alt="Two schedules of four ranks on one time axis. 1F1B takes 33 units, ZB-H1 27. In ZB-H1 gradients go up through the "
    "ranks by I alone, which takes half as long as B, and boxes of W stand where ranks were idle, most of them at the end.",
)

# %%
dtlearn.show_source(
    pp.late_weights,
    docstring=False,
    summary="dtlearn.pipeline_parallel.schedules.zero_bubble.late_weights",
)

# %% [markdown]
# And memory? Now a rank keeps activations from F to W. Rank 3 of 1F1B keeps one micro-batch; in ZB-H1 it keeps four,
# because each of its Ws comes three micro-batches late. So the peak over all ranks is that of 1F1B, but now every
# rank reaches it:

# %% jupyter={"source_hidden": true}
for kind in ("GPipe", "1F1B", "ZB-H1"):
    print(
        f"{kind:>5}: live activations on ranks 0 to 3, at most",
        [f"{n:g}" for n in computed(kind).peak_live],
    )

# %% [markdown]
# (This counts an activation whole until its W. In truth a part is free after I: Further, "What does a rank keep from I to
# W?")
#
# ## 6. Can it vanish?
#
# If all ranks begin a step together, and each has one stage, the last rank waits for $p-1$ forward passes, whatever the
# schedule. If F = I = W, ZB-H1 has exactly this much idle time, $(p-1)(F+I-W) = 3$ units, so no schedule with one stage on
# each rank has less.
#
# The same paper has a schedule called **ZB-H2**, with twice the warm-up, and 7 live micro-batches instead of 4. Its
# makespan is the same as ZB-H1's, and yet the authors say that its bubble is zero:

# %% jupyter={"source_hidden": true}
show(
    draw_schedule(
        make_schedule("zb_h2", 4, 8),
        "ZB-H2: no gap between a rank's first and last action",
        "p = 4, m = 8; F = I = W = 1",
    ),
    alt="A schedule of four ranks, 27 units. Every rank works 24 units without a gap, rank 0 from 0 to 24, rank 1 from 1 to "
    "25, rank 2 from 2 to 26, rank 3 from 3 to 27: a parallelogram. Rank 0 begins with 7 forward passes.",
)

# %% jupyter={"source_hidden": true}
rank_table(
    [
        {
            "schedule": pp.SCHEDULES[name].title,
            "makespan": f"{line.makespan:g}",
            "idle of each rank": f"{line.idle[0]:g}",
            **{f"rank {r}": f"{n:g}" for r, n in enumerate(line.idle_between)},
        }
        for name in ("1f1b", "zb_h1", "zb_h2")
        for line in [simulate(make_schedule(name, 4, 8))]
    ],
    caption="Idle units, p = 4, m = 8, F = I = W = 1. By rank: between its first and its last action only",
)

# %% [markdown]
# Both numbers are right. The authors count the idle time between a rank's first and its last action. If rank 0 goes on
# with the next step at 24, and rank 3 at 27, no rank has waited: the parallelograms of two steps fit together. But the
# optimizer's step comes between them, and often something for which all ranks have to wait: the global norm of the
# gradients for clipping (chapter 9), or the check whether a gradient has overflowed under the loss scale (chapter 7). With
# this wait each step ends with its last rank, and ZB-H2 has the bubble of ZB-H1.
#
# The paper's answer is **post-validation**. A rank updates its weights without waiting for the others, with what is known
# of the global norm so far. The complete norm reaches it during the warm-up of the next step; if the rank should have
# clipped or skipped, it takes its update back and repeats it.
#
# ## 7. What does each cost on real ranks?
#
# Here is every schedule so far with p = 4 and m = 8, executed on four ranks. The computed bubbles assume that messages and
# the runner take no time.

# %%
runs = {kind: runs.get(kind) or run(kind) for kind in KINDS}

# %% tags=["nbval-ignore-output"] jupyter={"source_hidden": true}
from dtlearn.viz import bubble_memory
from dtlearn.viz.pipeline.bars import idle, recorded_bars

lines = {kind: computed(kind) for kind in KINDS}
show(
    bubble_memory(
        {kind: (peak(line), line.idle_to_useful) for kind, line in lines.items()},
        {
            kind: (peak(lines[kind]), idle(recorded_bars(record), 4).of_useful)
            for kind, record in runs.items()
        },
        "Less bubble costs memory, messages, or split backward passes",
        "p = 4, m = 8, F = I = W; computed, and measured with emulated stage times",
        bubble="bubble: idle time / useful time (%)",
    ),
    alt="Schedules in the plane of memory, to the right, and bubble, upwards. GPipe is worst in both: 8 micro-batches, 37.5 %. "
    "1F1B has 4 and 37.5 %, interleaved 5.5 and 18.8 % with two chunks, 4.75 and 9.4 % with four. ZB-H1 has 4 and 12.5 %, "
    "ZB-H2 7 and 12.5 %. The measured bubble of each schedule is a cross on a line from its computed point.",
)

# %% [markdown]
# What is computed is the cost of the order. The rest is messages, the runner, and, on a busy machine, other programs that
# hold a processor when a rank should go on.

# %% [markdown]
# ## 8. How does it break?
#
# Consider these orders. All eight actions are there, each once, on the right rank, and every forward pass comes before its
# backward pass:
#
# | rank 0 | rank 1 |
# |---|---|
# | 0F0 0B0 0F1 0B1 | 1F0 1F1 1B0 1B1 |

# %%
stuck = dtlearn.predict.choice(
    "What happens when the two ranks follow these orders?",
    {
        "A": "both finish, later than with 1F1B",
        "B": "rank 0 finishes, rank 1 waits forever",
        "C": "both wait forever",
    },
    id="ch11.stuck",
)

# %% jupyter={"source_hidden": true}
stuck.reveal()

# %% [markdown]
# Two ranks follow them, with plain `send` and `recv`. (`--expect deadlock`: the cell shows the failure and goes on.)

# %%
# %%ranks -r 0-1 --expect deadlock
ORDERS = ["0F0 0B0 0F1 0B1", "1F0 1F1 1B0 1B1"]
tensor, other = torch.ones(4), 1 - rank
# On the CPU: NCCL only queues these calls, and then the GPU waits, not Python.
gloo = dist.new_group([0, 1], backend="gloo")

for action in ORDERS[rank].split():
    needs_other = action[1] == ("B" if rank == 0 else "F")
    if needs_other:
        dist.recv(tensor, other, group=gloo)
    print("did", action, flush=True)
    if not needs_other:
        dist.send(tensor, other, group=gloo)

# %% [markdown]
# By hand, with the next action of each rank:
#
# | done | next on rank 0 | needs | next on rank 1 | needs |
# |---|---|---|---|---|
# | nothing | 0F0 | | 1F0 | 0F0 |
# | 0F0 | 0B0 | 1B0 | 1F0 | 0F0, done |
# | 0F0 1F0 | 0B0 | 1B0, which rank 1 does after 1F1 | 1F1 | 0F1, which rank 0 does after 0B0 |
#
# Each rank waits for what the other one would do later: a **circular wait**. No order of messages can repair it; the
# schedule is wrong. Counting actions does not find that: one has to follow the orders. The package has a
# validator that does, before the job starts:

# %%
for finding in pp.validate(parse_schedule("0F0 0B0 0F1 0B1 \n 1F0 1F1 1B0 1B1")):
    print(finding)

# %% [markdown]
# ## 9. Which one should you take?
#
# **Messages take time.** A micro-batch crosses $pv-1$ boundaries one after the other, and a message takes some time at each.
# Simulated with p = 4 and m = 8: four chunks are better than two while messages are fast, and worse than even 1F1B if a
# message takes half a unit. Split backward passes lose less, since gradients wait for I only.

# %% jupyter={"source_hidden": true}
for kind in ("1F1B", "interleaved, v = 2", "interleaved, v = 4", "ZB-H1", "ZB-H2"):
    shares = [computed(kind, transfer=t).idle_to_useful for t in (0, 0.1, 0.5)]
    print(
        f"{kind:>18}: bubble with transfers of 0, 0.1 and 0.5 units",
        *(f"{s:6.1%}" for s in shares),
    )

# %% [markdown]
# **F, I and W are not equal.** Attention makes I longer than W; recomputation, which runs F again within I, makes it longer still. If I is longer than W,
# the time that ranks wait for gradients grows, and the Ws that should fill it are shorter. With I = 1.2 and W = 0.8 the bubble
# of ZB-H1 is (p - 1)(F + I - W)/m(F + I + W) = 17.5 % instead of 12.5 %.
#
# **Sixteen ranks.** p = 16, m = 32, F = I = W; v = 5 cuts a model of 80 layers, such as Llama 3 70B, into single ones:

# %% jupyter={"source_hidden": true}
WIDE = {**KINDS, "interleaved, v = 5": ("interleaved", 5)}
rank_table(
    [
        {
            "schedule": kind,
            "idle / useful": f"{line.idle_to_useful:.1%}",
            "live activations, at most": f"{peak(line):g}",
            "messages": 2 * 32 * (line.schedule.num_stages - 1),
        }
        for kind, (name, chunks) in WIDE.items()
        if chunks not in (2, 4)
        for schedule in [make_schedule(name, 16, 32, chunks)]
        for line in [
            simulate(schedule, StageTimes.equal_parts(schedule.num_stages // 16))
        ]
    ],
    caption="p = 16, m = 32, computed. Activations: 1 is one micro-batch of 1/16 of the model",
)

# %% [markdown]
# | take | if |
# |---|---|
# | 1F1B | m is many times p, or a message takes as long as two F and backward passes cannot be split |
# | interleaving | links are fast, memory is left, and the layers can be cut into pv stages |
# | ZB-H1 | the runner can split backward passes; it costs no more memory on the rank that has most |
# | ZB-H2 | memory is left, and nothing waits for all ranks between two steps |
#
# Whatever the schedule, the slowest stage sets the pace. Balance the stages first.
#
# ### Check yourself
#
# <details><summary>p = 8, m = 32. What does 1F1B leave idle, of the useful time? And interleaving with v = 4?</summary>
#
# $(p-1)/m = 7/32 = 21.9$ %; a quarter of it, $7/128 = 5.5$ %.
# </details>
#
# <details><summary>Gradients are clipped by their global norm. What is left of ZB-H2?</summary>
#
# All ranks wait for the norm after each step, so with F = I = W a step takes as long as with ZB-H1, with almost twice the
# activations. Post-validation avoids that wait.
# </details>
#
# Chapter 12 needs no more of this chapter.

# %% [markdown]
# # Further
#
# Each section stands alone, after the core path and what the table names.
#
# | section | needs | minutes | exercise |
# |---|---|---|---|
# | How is a fault found before the run? | section 8 | 3 | 3: 35 |
# | How is a schedule simulated? | "How is a fault found before the run?" | 2 | 4: 30 |
# | Why is the interleaved warm-up so long? | section 3 | 3 | |
# | How does one split a backward pass? | section 4 | 2 | 5: 30 |
# | What does a rank keep from I to W? | section 5 | 2 | |
# | What if the last stage is beside the first? | section 7 | 5 | |
# | Design one yourself | section 5 | 3 | 6: 60 |
# | What do the formulas leave out? | section 9, "What if the last stage is beside the first?" | 3 | |
# | Where do the libraries do it? | section 7, "What if the last stage is beside the first?" | 6 | |
# | What is different on GPUs? | section 7, "Design one yourself" | 1 | |
# | What do people get wrong? | all of these sections | 3 | |
#
# ## How is a fault found before the run?
#
# *Needs: section 8.* A validator needs no ranks: it lets each rank go on in its order until it needs a result that does not
# exist yet. What is not done when nobody can go on will never be done. Faults of two other kinds are found by counting, or
# by one rank's order alone:
#
# | rank 0 | rank 1 | what is wrong |
# |---|---|---|
# | 0F0 0F1 0B0 0B1 | 1F0 1B0 1F1 | 1B1 is missing, and rank 0 waits for it at 0B1 |
# | 0F0 0F1 0B0 0B1 | 1B0 1F0 1F1 1B1 | 1B0 comes before 1F0, which it needs: rank 1 does nothing at all |

# %% [markdown]
# **Exercise 3.** A validator.

# %% exercise="ch11.validator"

# %% [markdown]
# The package's validator follows the orders too: `follow_orders` lets each rank go on until it needs a result that does
# not exist yet, and resumes it when that result is there.

# %%
from dtlearn.pipeline_parallel.checking.needs import follow_orders, needs

dtlearn.show_source(
    needs, docstring=False, summary="dtlearn.pipeline_parallel.checking.needs.needs"
)
dtlearn.show_source(
    follow_orders,
    docstring=False,
    summary="dtlearn.pipeline_parallel.checking.needs.follow_orders",
)

# %% [markdown]
# What it reports for the two orders of the table:

# %%
for text in (
    "0F0 0F1 0B0 0B1 \n 1F0 1B0 1F1",
    "0F0 0F1 0B0 0B1 \n 1B0 1F0 1F1 1B1",
):
    for finding in pp.validate(parse_schedule(text)):
        print(finding)

# %% [markdown]
# ## How is a schedule simulated?
#
# *Needs: "How is a fault found before the run?"* Section 2 filled in a table by hand: when each action starts and ends, if
# the time of each is known. Here a function does.

# %% [markdown]
# **Exercise 4.** A simulator.

# %% exercise="ch11.simulator"

# %% [markdown]
# The package's simulator goes through the actions in the order in which `follow_orders` found them possible, so the end of
# everything that an action needs is known by then:

# %%
dtlearn.show_source(
    simulate, docstring=False, summary="dtlearn.pipeline_parallel.simulate"
)

# %% [markdown]
# ## Why is the interleaved warm-up so long?
#
# *Needs: section 3.* Why two forward passes more on each rank, and not one as in 1F1B? Here is the same schedule with one
# more, beside Megatron-LM's, for messages that take some time:


# %% jupyter={"source_hidden": true}
def with_warmup(factor):
    """The interleaved schedule, p = 4, m = 8, v = 2, with warm-ups of factor * (p - r - 1) + (v - 1) p."""
    lines = []
    for rank, order in enumerate(make_schedule("interleaved", 4, 8, 2).orders):
        forward = [str(action) for action in order if action.op == "F"]
        backward = [str(action) for action in order if action.op == "B"]
        warmup = factor * (3 - rank) + 4
        words = forward[:warmup]
        for i, action in enumerate(backward, start=warmup):
            words += [*forward[i : i + 1], action]
        lines.append(" ".join(words))
    return parse_schedule("\n".join(lines), placement=[0, 1, 2, 3, 0, 1, 2, 3])


rank_table(
    [
        {
            "warm-up": "2(p - r - 1) + (v - 1)p"[factor % 2 :],
            "live activations, at most": f"{peak(simulate(with_warmup(factor))):g}",
            **{
                f"transfer {t:g}": f"{simulate(with_warmup(factor), StageTimes.equal_parts(2), transfer=t).idle_to_useful:.1%}"
                for t in (0, 0.05, 0.1, 0.25)
            },
        }
        for factor in (2, 1)
    ],
    caption="Interleaved, p = 4, m = 8, v = 2: idle / useful time, if a message takes so many units",
)

# %% [markdown]
# If messages took no time, the shorter warm-up would have the same bubble in the memory of 1F1B. The longer one computes
# further micro-batches while messages are on their way, and pays with memory (Megatron-LM's issues 169 and 675 ask this
# very question). In Megatron-LM this overlap is `overlap_p2p_comm`: it needs interleaving (its plain 1F1B refuses it), and
# `--overlap-p2p-communication-warmup-flush` extends it to the first and last passes.
#
# **And m has to be a multiple of p**, because micro-batches go round in groups of p? Not everywhere. PyTorch takes larger
# groups where p does not divide m: 10 micro-batches on 4 ranks make two groups of 5. Megatron Core has
# `--microbatch-group-size-per-virtual-pipeline-stage`, p by default: a group may be larger than p, and the last one
# smaller, if it still has p micro-batches. Llama 3 (2407.21783, section 3.3.2) let the group's size be chosen freely.
#
# ## How does one split a backward pass?
#
# *Needs: section 4.* The two products of a layer, from its definition:

# %%
torch.manual_seed(0)
layer = torch.nn.Linear(6, 4, bias=False)
x = torch.randn(3, 6, requires_grad=True)
dy = torch.randn(3, 4)
layer(x).backward(dy)
print("I is dy A:", torch.allclose(x.grad, dy @ layer.weight))
print("W is dy^T x:", torch.allclose(layer.weight.grad, dy.T @ x))

# %% [markdown]
# **Exercise 5.** I and W of a stage.

# %% exercise="ch11.split_backward"

# %% [markdown]
# The package's linear layer asks in its backward pass whether this is an I. If so, `weight_work` stores the product as a
# function to be called in W. (PyTorch's own runner finds the $dy$ that it has to keep in the autograd graph, so it can
# split any module. The package splits linear layers only; the parameters of other layers get their gradients with I. So
# do weights that cannot wait: those that are computed, as by weight norm, and those with a hook.)

# %%
dtlearn.show_source(
    pp.SplitLinear.backward, docstring=False, summary="SplitLinear.backward"
)
dtlearn.show_source(pp.weight_work, docstring=False, summary="weight_work")

# %% [markdown]
# ## What does a rank keep from I to W?
#
# *Needs: section 5.* Not all activations, but each layer's input and its $dy$. By the zero bubble paper's table 1 a
# transformer layer keeps $s\,b\,(34h + 5as)$ bytes from F to I (a heads, s tokens, b sequences, h features, without
# FlashAttention) and $32\,s\,b\,h$ from I to W. With the attention scores kept, that is far less: for GPT-3's
# sizes 28 %. With FlashAttention, which keeps no scores, it is nearly all. The simulator takes the share as
# `kept_for_weights`; the figures of this chapter take it as 1:

# %%
for share in (1.0, 0.28):
    for name in ("zb_h1", "zb_h2"):
        line = simulate(make_schedule(name, 4, 8), kept_for_weights=share)
        print(
            f"{share:4g} kept: {name}, live on ranks 0 to 3 at most",
            [f"{n:.2f}" for n in line.peak_live],
        )

# %% [markdown]
# ## What if the last stage is beside the first?
#
# *Needs: section 7.* The third way is another placement. Each rank has two chunks again, but the second half of the model
# goes back *up* the ranks:
#
# | | rank 0 | rank 1 | rank 2 | rank 3 |
# |---|---|---|---|---|
# | loop | stages 0, 4 | 1, 5 | 2, 6 | 3, 7 |
# | V | stages 0, 7 | 1, 6 | 2, 5 | 3, 4 |
#
# Between stages 3 and 4 nothing is sent, since both are on rank 3. The loss is computed on rank 0, where the model begins,
# so each micro-batch's backward pass starts there. Both copies of a tied embedding (chapter 10, Further) are on one rank. And the
# memory is balanced: a rank's early stage keeps activations for a long time, its late stage for a short time.
#
# Together with split backward passes this is **ZBV**, from the zero bubble paper. With four micro-batches on two ranks one can
# follow them down and up again:

# %% jupyter={"source_hidden": true}
show(
    draw_schedule(
        make_schedule("zbv", 2, 4),
        "ZBV: down through stages 0 and 1, and up again through 2 and 3",
        "p = 2, m = 4, two stages on each rank; F = I = W = 1 for both stages together",
    ),
    alt="A schedule of two ranks with two stages each, split backward passes. Rank 0 has the stages 0 and 3, rank 1 the stages "
    "1 and 2. No rank is idle between its first and its last action.",
)

# %% [markdown]
# The authors' next paper (2405.15362) starts from the memory. What one micro-batch does on all ranks is a block, which
# repeats for each micro-batch, and the time for which a block keeps its activations determines the memory. **V-Half** and
# **V-Min** are two such blocks, named after their memory, about a half and a third of 1F1B's. The package repeats the
# blocks, but leaves out the paper's last step, which moves the first and last actions to shorten the idle time.

# %% jupyter={"source_hidden": true}
rank_table(
    [
        {
            "p": p,
            "m": m,
            "schedule": kind,
            "idle units of a rank": f"{line.idle[0]:g}",
            "idle / useful": f"{line.idle_to_useful:.1%}",
            "live activations, at most": f"{peak(line):.1f}",
        }
        for p, m in ((4, 8), (32, 256))
        for kind in ("1F1B", *V_SHAPED)
        for line in [computed(kind, p, m)]
    ],
    caption="Computed, F = I = W. Activations: 1 is one micro-batch of 1/p of the model",
)

# %% [markdown]
# With many ranks V-Half idles for about p(F + B)/2 units and V-Min for about 2p(F + B)/3, so V-Min loses more, for less
# memory. With four ranks it is the other way round: those rates are not yet reached. On four real ranks (both have few
# micro-batches under way, so a rank has little else to do when a message is late):

# %%
v_runs = {kind: run(kind) for kind in V_SHAPED}

# %% tags=["nbval-ignore-output"] jupyter={"source_hidden": true}
for kind, record in v_runs.items():
    share = idle(recorded_bars(record), 4).of_useful
    print(
        f"{kind:>6}: bubble {computed(kind).idle_to_useful:.1%} computed, {share:.1%} measured; {sent(record)} messages"
    )

# %% [markdown]
# ## Design one yourself
#
# *Needs: section 5.* In the editor you can take any schedule and change it: its sizes, the times of F, I and W for each
# stage, and the order of the actions, by typing, by dragging, or with the buttons. Each change is validated at once, and an
# error is explained in words; a valid schedule is drawn to scale, with makespan, bubble and live activations. The button
# below it runs your schedule on real ranks, and shows the measured chart below the computed one. Try, for instance:
#
# - 1F1B with the times `20 20 20 40` for F: one slow stage. Which ranks wait, and does another order help?
# - ZB-H1 with I = 30 and W = 10. Where does idle time come back, and can you move a W there?
# - A transfer of 10 ms. In the run it is a link's latency, and a message starts only when both ends have posted it, so the
#   measured chart is longer. Which schedules lose most?
# - Move one action so that no rank can go on, and read which ranks wait in the circle.


# %% jupyter={"source_hidden": true}
from dtlearn.notebook.frontend import is_live
from dtlearn.runtime.link.link import Link
from dtlearn.viz.pipeline.editor import edit_schedule
from dtlearn.viz.pipeline.editor.draft import Recipe


def on_ranks(schedule, times, transfer):
    """Run the edited schedule; a transfer is a link's latency."""
    link = Link(latency=transfer, bandwidth=1e9) if transfer else None
    return run_emulated(schedule, times, link=link)


edit_schedule(Recipe("1f1b", 4, 8), live=is_live(), run=on_ranks)

# %% [markdown]
# Memory often decides. Given is a cap on live activations that is lower than what 1F1B needs. Which placement and which
# order have the smallest bubble? Try small cases in the editor: with p = 2 it can be done by hand.
#
# **Exercise 6.** A puzzle: the smallest bubble under a cap of memory.

# %% exercise="ch11.memory_cap"

# %% [markdown]
# ## What do the formulas leave out?
#
# *Needs: section 9, "What if the last stage is beside the first?"* If F, I and W are not equal (F = 1):

# %% jupyter={"source_hidden": true}
CHOICE = [kind for kind in KINDS | V_SHAPED if kind != "GPipe"]
rank_table(
    [
        {
            "schedule": kind,
            **{
                f"I = {i:g}, W = {w:g}": f"{computed(kind, inputs=i, weights=w).idle_to_useful:.1%}"
                for i, w in ((1, 1), (1.2, 0.8), (1.4, 0.6), (2, 1))
            },
            "transfer 0.25": f"{computed(kind, transfer=0.25).idle_to_useful:.1%}",
        }
        for kind in CHOICE
    ],
    caption="Bubble, idle / useful time, p = 4, m = 8. With recomputation the forward pass is a part of I: I = 2, W = 1. Last "
    "column: F = I = W, and a message takes 0.25 units",
)

# %% [markdown]
# V-Min loses most, in time and by slow messages: its blocks are made for F = I = W. With a longer I ranks idle in every
# micro-batch, so more micro-batches do not help. ZB-H2 has the longest warm-up and loses least. The order of a zero-bubble
# schedule should therefore be made for the measured times. The zero bubble paper has a search for it, which takes F, I, W,
# the time of a message, and a memory limit.
#
# **Stages are not equal.** The slowest rank sets the pace for all, whatever the schedule. Let the last stage, which has the
# head, take longer by half of what 1/p of the model takes. Its rank works for 36 units, all others for 24:

# %% jupyter={"source_hidden": true}
for kind in CHOICE:
    name, chunks = (KINDS | V_SHAPED)[kind]
    schedule = make_schedule(name, 4, 8, chunks)
    share = 4 / schedule.num_stages
    each = (*[share] * (schedule.num_stages - 1), share + 0.5)
    line = simulate(schedule, StageTimes(each, each, each))
    print(f"{kind:>18}: makespan {line.makespan:g}")

# %% [markdown]
# ## Where do the libraries do it?
#
# *Needs: section 7, "What if the last stage is beside the first?"*
#
# | here | `torch.distributed.pipelining` | Megatron-LM | others |
# |---|---|---|---|
# | GPipe | `ScheduleGPipe` | | |
# | 1F1B | `Schedule1F1B` | the default | DeepSpeed's `PipelineModule` (`TrainSchedule`) |
# | interleaved | `ScheduleInterleaved1F1B` | `--num-virtual-stages-per-pipeline-rank`, or `--num-layers-per-virtual-pipeline-stage` | Llama 3 (2407.21783) |
# | breadth first (2211.05953) | `ScheduleLoopedBFS` | | |
# | ZB-H1 | `ScheduleInterleavedZeroBubble`, any number of chunks | | the authors' fork of Megatron-LM |
# | ZBV | `ScheduleZBVZeroBubble` | | the same fork |
# | V-Half, V-Min | | | the same fork |
# | | `ScheduleDualPipeV` | | DeepSeek's DualPipe repository; DeepSeek-V3 (2412.19437) was trained with DualPipe |
#
# **Breadth first** is interleaving with another order: each chunk does all m micro-batches before the next chunk begins. It
# keeps the activations of all m, as GPipe does. In return each chunk is used only once forward and once backward in a step,
# so with sharded parameters (chapter 9) they are gathered that often, and not for each group of p micro-batches.
#
# **DualPipe** feeds micro-batches in from both ends: each rank has a stage of the first half of the model and one of the
# second, and there are two copies of the model. Its purpose is not only the bubble. A forward pass of one micro-batch and
# a backward pass of another run together as one action (F&B), in which the computation of one hides the all-to-all
# messages of the other; DeepSeek-V3 has many of them, because of its experts (chapter 13). From the table in DeepSeek's
# repository, for a model of p stages:
#
# | | ranks | bubble, time | parameters of a rank, in stages | activations of a rank |
# |---|---|---|---|---|
# | 1F1B | p | $(p-1)(F+B)$ | 1 | $p$ |
# | ZB1P | p | $(p-1)(F+B-2W)$ | 1 | $p$ |
# | DualPipe | p | $(p/2-1)(F\&B+B-3W)$ | 2 | $p+1$ |
# | DualPipeV | p/2 | $(p/2-1)(F\&B+B-3W)$ | 2 | $p+1$ |
#
# (B is a whole backward pass there. ZB1P is the zero bubble paper's name for the best schedule in the memory of 1F1B; the
# bubble in the table is that of ZB-H1, $F + B - 2W = F + I - W$. DualPipeV, a V-shaped placement that Sea AI Lab derived
# from DualPipe, has no second copy of the model; its ranks have two stages because there are half as many ranks.)
#
# PyTorch's `ScheduleDualPipeV` has F&B as an action of its own, `OVERLAP_F_B`. With sharded parameters its schedules of
# several stages also get UNSHARD, RESHARD and REDUCE_GRAD, which gather a stage's weights before their first use, free them
# after the last one, and reduce gradients once (chapter 10's Further counts them).

# %% [markdown]
# PyTorch's schedules are data, too. The package reads them from private attributes, so a later version of PyTorch may
# need another reader. Are PyTorch's orders the same as ours?

# %%
PAIRS = {  # PyTorch's name: ours, and its chunks
    "GPipe": ("gpipe", None),
    "1F1B": ("1f1b", None),
    "Interleaved1F1B": ("interleaved", 2),
    "InterleavedZeroBubble": ("zb_h1", 1),
    "ZBVZeroBubble": ("zbv", 2),
}
grid = [(p, m) for p in (2, 3, 4, 8) for m in (p, 2 * p, 3 * p)]
for theirs, (ours, chunks) in PAIRS.items():
    v = chunks if ours == "interleaved" else None
    same = [
        pp.torch_schedule(theirs, p, m, chunks).orders
        == make_schedule(ours, p, m, v).orders
        for p, m in grid
    ]
    print(f"{theirs:>21} and {ours}: equal orders in {sum(same)} of {len(grid)} sizes")

# %% [markdown]
# And DualPipeV, which the package does not have, drawn from PyTorch's order:

# %% jupyter={"source_hidden": true}
show(
    draw_schedule(
        pp.torch_schedule("DualPipeV", 4, 10),
        "DualPipeV as PyTorch has it",
        "p = 4, m = 10, two stages on each rank; pairs that run together are drawn one after the other",
    ),
    alt="DualPipeV on four ranks with ten micro-batches, from torch.distributed.pipelining: a V-shaped schedule in which rank 0 "
    "has stages 0 and 7. B, I and W occur: backward passes are split only where that fills idle time.",
)

# %% [markdown]
# Parity: a GPT in 8 stages on 4 ranks, one step of ZBV with PyTorch's runner and with ours, compared with one process.
# `torch_stage` makes PyTorch's `PipelineStage`; with torch 2.11 it leaves out a greeting that a rank with two neighbouring
# stages sends to itself, which gloo cannot carry:

# %%
# %%ranks -o parity
import copy

from torch.distributed.pipelining import ScheduleZBVZeroBubble

from dtlearn.models import GPT, GPTConfig, load_corpus, next_token_loss
from dtlearn.pipeline_parallel import (
    PipelineRunner,
    make_schedule,
    split_gpt,
    torch_stage,
)

torch.manual_seed(0)
model = GPT(GPTConfig(num_layers=6)).to(device)  # embedding, 6 blocks, head: a stage each
x, y = (t.to(device) for t in next(load_corpus().batches(1, 8, 32)))
held = (rank, 7 - rank)  # this rank's stages

ours, theirs = (split_gpt(copy.deepcopy(model), range(9)) for _ in range(2))
PipelineRunner(make_schedule("zbv", 4, 8), ours, next_token_loss).step(x, y)
torch_stages = [torch_stage(theirs[s], s, 8, device) for s in held]
schedule = ScheduleZBVZeroBubble(torch_stages, 8, loss_fn=next_token_loss)
schedule.step(x, target=y) if rank == 0 else schedule.step()
next_token_loss(model(x), y).backward()  # one process, unsplit
whole = split_gpt(model, range(9))


def difference(stages):
    """The largest difference of a gradient on this rank from the unsplit model."""
    pairs = [
        zip(stages[s].parameters(), whole[s].parameters(), strict=True) for s in held
    ]
    return max((a.grad - b.grad).abs().max().item() for pair in pairs for a, b in pair)


difference(ours), difference(theirs)

# %% jupyter={"source_hidden": true}
print(
    "all gradients within 1e-6 of one process, PyTorch's and ours:",
    max(map(max, parity)) < 1e-6,
)

# %% [markdown]
# ## What is different on GPUs?
#
# *Needs: section 7, "Design one yourself".* The cells of this chapter's world run on NCCL when there is a GPU for each rank; emulated runs sleep, and stay on the CPU. On GPUs messages travel beside
# the computation, and a long warm-up hides them. Splitting a backward pass launches more and smaller kernels, and weight
# gradients that wait keep memory. Measure F, I and W of a stage with CUDA events, and put them into the editor before you
# choose.
#
# ## What do people get wrong?
#
# *Needs: all of these sections.*
#
# **"A cleverer order would fill the bubble of 1F1B."** Not with the same actions: section 2. Another schedule is shorter
# because its actions are smaller, or fewer of them have to wait.
#
# **"Interleaving is free."** With p = 4, m = 8 and two chunks: 112 messages instead of 48, and activations of 5.5
# micro-batches instead of 4. With slow messages more chunks are worse.
#
# **"Zero bubble means that no rank is ever idle."** In ZB-H2 the idle time between a rank's first and last action is zero
# only while F + I is at most 2W: with I = 1.2 and W = 0.8 rank 0 idles for 1.8 units. And section 6.
#
# **"A schedule that runs on two ranks is right."** Write 2 for p in the interleaved schedule's warm-up,
# $2(p-r-1) + (v-1)\,2$: with two ranks it is right, with three the last rank comes to 5B0 before it has done 5F0, and
# nobody can go on. Validate a schedule for the p, m and v of the job.
#
# ### Check yourself
#
# <details><summary>p = 4, and rank 2 runs 1F1B with 8 micro-batches. How many activations does it keep at most? And with
# ZB-H1?</summary>
#
# $p - r = 2$. With ZB-H1 it keeps four, like every rank: two between F and I, and two that wait for their W.
# </details>
#
# <details><summary>Why does W depend on I, although it does not need the gradient of the inputs?</summary>
#
# W of a stage needs the gradients of the outputs of *its layers*. Those of all but the last layer are computed on the way
# to the gradient of the stage's inputs.
# </details>
#
# <details><summary>A rank holds stages 0 and 7 of 8. Which schedule family is it, and what else is on this
# rank?</summary>
#
# A V-shaped schedule with p = 4, and this is rank 0. It also has the embedding, the head and the loss.
# </details>
#
# ## Glossary
#
# {glossary}
#
# Next: chapter 12 divides single layers over ranks.
