# %% [markdown]
# # Chapter 10. Pipeline parallelism
#
# **The question.** What if the model is too tall?
#
# Builds on: chapters 2, 3, 8 and 9. Ranks: 4. Time: 69 minutes for the core path; the sections of "Further" in any order,
# when you need them.
#
# | core path | what | minutes |
# |---|---|---|
# | 1. Too tall for one device? | stages | 2 |
# | 2. What does each rank hold? | the naive way, on four ranks | 4 |
# | 3. Who waits? | the bubble | 3 |
# | 4. Can all ranks work at once? | micro-batches, GPipe | 7 |
# | 5. What is the loss of a micro-batch? | a mean of means | 2, and exercise 1: 10 |
# | 6. How many micro-batches are live? | memory | 3, and exercise 2: 10 |
# | 7. Can a backward pass begin earlier? | 1F1B | 6, and exercise 3: 10 |
# | 8. What does it look like on one page? | a pipeline that trains, measured | 6 |
# | 9. How does it break? | two neighbours that both send | 2 |
# | 10. When to use it? | the arithmetic | 4 |
#
# After it you can cut a model into stages, say how large the bubble and the memory will be, and run any schedule.
#
# No GPU is needed. Where a picture shows more ranks at work than this machine has cores, its stages sleep for a given
# time in place of computing, and the picture says "emulated stage times". MB are $10^6$ bytes and GB $10^9$.

# %% jupyter={"source_hidden": true}
# %load_ext dtlearn
import torch

import dtlearn
from dtlearn import pipeline_parallel as pp
from dtlearn.models import GPTConfig
from dtlearn.pipeline_parallel import StageTimes, make_schedule, simulate
from dtlearn.viz import draw_gantt, draw_schedule, rank_table, show

torch.set_num_threads(1)  # small tensors: more threads would only wait for each other
world = dtlearn.world(4)
world

# %% [markdown]
# # The core path
#
# ## 1. Too tall for one device?
#
# A transformer is a stack of equal layers, and a large one is tall: Llama 3 405B has 126 of them. Its training state
# (chapter 8) does not fit on one device. Chapter 9 had one answer: every rank computes *all* layers, and stores a
# shard of each, so nearly all weights pass over the network, again and again.
#
# There is another answer. Each rank holds *some of the layers*, whole, and computes only those. A rank hands the
# output of its last layer to the next rank. In backward the gradient of that output travels the other way. This is
# **pipeline parallelism**, and the part of the model on one rank is called a **stage**. No weights are sent. What does it
# cost?

# %%
faster = dtlearn.predict.choice(
    "A model has 4 stages of the same size on 4 devices. A batch passes through the first stage, then the second, and "
    "so on; then backward in reverse order; then the update. Compare that with one device that is large enough for "
    "the whole model. How long does a step take on the 4 devices?",
    {
        "A": "about a quarter of the time: each device computes a quarter",
        "B": "about half of the time: forward is faster, backward is not",
        "C": "about the same time, and a little more for the messages",
    },
    id="ch10.faster",
)

# %% [markdown]
# ## 2. What does each rank hold?
#
# The GPT of chapter 3 is a chain of six **links**: the embedding, four blocks, and the head. To cut it into stages one
# says where the **boundaries** are. For four stages on four ranks:
#
# | rank | stage | links | forward | backward |
# |---|---|---|---|---|
# | 0 | 0 | embedding, block 0 | tokens in; sends its output to rank 1 | receives the gradient of that output, from rank 1 |
# | 1 | 1 | block 1 | receives from rank 0, sends to rank 2 | receives from rank 2, sends to rank 0 |
# | 2 | 2 | block 2 | receives from rank 1, sends to rank 3 | receives from rank 3, sends to rank 1 |
# | 3 | 3 | block 3, head | receives from rank 2; logits, loss | starts at the loss; sends to rank 2 |
#
# As a list of numbers the boundaries are (0, 2, 3, 4, 6): stage 0 is the links 0 and 1, stage 1 is link 2, and so on.
# Only the *first* rank reads the tokens, and only the *last* one reads the targets, because it computes the loss.

# %%
boundary = dtlearn.predict(
    "8 sequences of 64 tokens, and the model has 64 numbers (hidden size) for each token, in fp32. How many bytes does "
    "rank 0 send to rank 1 in a forward pass? (Count the tensor only, not a header that tells its shape.)",
    unit="bytes",
    id="ch10.boundary",
)

# %% [markdown]
# The naive way is `NaiveModelParallel`. Its training loop is that of a single process. On all ranks but the last, the
# "loss" is a zero that stands for all that later ranks make of this rank's output; `backward()` on it waits for the
# gradient of that output. The folded cell has `my_stage()`, this rank's part of the GPT; `the_batch()`; `one_process()`, loss
# and gradients of the whole model; and `largest_difference(stage, gradients)`.

# %% jupyter={"source_hidden": true}
# %%ranks --setup
import dtlearn
from dtlearn import pipeline_parallel as pp
from dtlearn.models import GPT, GPTConfig, load_corpus, next_token_loss
from dtlearn.pipeline_parallel import make_schedule

corpus = load_corpus()
CONFIG = GPTConfig()
BOUNDARIES = (0, 2, 3, 4, 6)


def whole_model(config=CONFIG):
    torch.manual_seed(0)
    return GPT(config).to(device)


def my_stage(config=CONFIG, boundaries=BOUNDARIES):
    """The stage of this rank. (Every rank makes the whole model and keeps a part: fine for a small one.)"""
    return pp.split_gpt(whole_model(config), boundaries)[rank]


def the_batch(samples=8):
    return tuple(t.to(device) for t in next(corpus.batches(1, samples, 64)))


def one_process(samples=8, config=CONFIG):
    """Loss and gradients of the whole model in one process."""
    model, (x, y) = whole_model(config), the_batch(samples)
    loss = next_token_loss(model(x), y)
    loss.backward()
    return loss.item(), {name: p.grad for name, p in model.named_parameters()}


def largest_difference(stage, gradients):
    """The largest difference of any gradient of this stage from the whole model's."""
    pairs = [(p.grad, gradients[name]) for name, p in stage.named_parameters()]
    return max((ours - theirs).abs().max().item() for ours, theirs in pairs)


# %%
# %%ranks --record messages -o naive
stage = my_stage()
model = pp.NaiveModelParallel(stage)
x, y = the_batch()
outputs = model(x)
loss = next_token_loss(outputs, y) if model.is_last else outputs
loss.backward()

expected, gradients = one_process()
(
    sum(p.numel() for p in stage.parameters()),
    loss.item(),
    expected,
    largest_difference(stage, gradients),
)

# %% jupyter={"source_hidden": true}
print("parameters of the stages:", [f"{held:,}" for held, *_ in naive])
print(f"of the whole model: {GPTConfig().num_parameters:,}")
print(f"loss on rank 3: {naive[3][1]:.4f}, in one process: {naive[3][2]:.4f}")
print("all gradients within 1e-6:", max(apart for *_, apart in naive) < 1e-6)

# %% jupyter={"source_hidden": true}
forward_sends = [e.nbytes for e in messages.select(rank=0, op="send") if e.peer == 1]
boundary.reveal(max(forward_sends))

# %% [markdown]
# It is the same computation, and each rank holds about a quarter of the model. In backward as many bytes travel the other
# way, since a gradient has the shape of its tensor. In general a boundary sends $b \cdot s \cdot h$ numbers each way: $b$
# sequences, $s$ tokens in each, $h$ numbers for each token, however many layers a stage has.

# %% [markdown]
# ## 3. Who waits?
#
# What do the ranks do meanwhile? Now the stages are emulated: with four stages, a stage takes 128 ms for
# the forward pass of the whole batch, and 256 ms for the backward pass. With two stages, each is twice as large and
# takes twice as long. The messages are real. **F** is a forward pass, **B** a backward pass, and the number is that of
# the micro-batch; so far there is one, number 0.

# %% jupyter={"source_hidden": true}
from dtlearn.pipeline_parallel.emulated import run_emulated


def stage_seconds(forward):
    """A backward pass takes twice as long. (It is given in two equal parts, which chapter 11 does apart.)"""
    return StageTimes(forward=forward, inputs=forward, weights=forward)


waiting = {
    "2 ranks": run_emulated(make_schedule("naive", 2, 1), stage_seconds(0.256)),
    "4 ranks": run_emulated(make_schedule("naive", 4, 1), stage_seconds(0.128)),
}

# %% tags=["nbval-ignore-output"] jupyter={"source_hidden": true}
show(
    draw_gantt(
        waiting,
        title="One rank works, the others wait",
        label="the same model in 2 stages and in 4, one batch, measured",
    ),
    alt="Two Gantt charts, each about 1,540 ms long. With 2 ranks, rank 0 does its forward pass, then rank 1 its forward "
    "and its backward pass, then rank 0 its backward pass; at any moment one of them works. With 4 ranks the same as a "
    "staircase down through four forward passes and up through four backward passes of half the length.",
)

# %% jupyter={"source_hidden": true}
faster.reveal()

# %% [markdown]
# The step is as long with 4 ranks as with 2, and as with one rank that holds everything. What is gained is room: a
# model fits that did not fit before. The idle time is called the **bubble**. There are two ways to state it, and
# texts often do not say which one they use:
#
# | | formula | 4 ranks, naive | who |
# |---|---|---|---|
# | **idle / useful** | idle time of a rank / its useful time | 3/1 = 300 % | Megatron-LM (2104.04473), Llama 3 (2407.21783) |
# | **idle / total** | idle time of a rank / the whole time | 3/4 = 75 % | GPipe (1811.06965) |
#
# ## 4. Can all ranks work at once?
#
# While rank 1 works on the batch, rank 0 could do something else. But what? The next batch needs the updated weights,
# and there are none before this batch's backward pass has ended.
#
# GPipe (Huang et al. 2018, arXiv 1811.06965) cuts the batch into **micro-batches**. The gradient of a batch is the mean
# of its samples' gradients, so the micro-batches can pass through the model one by one, with the same weights, and
# their gradients are added up before one update: **gradient accumulation**. As soon as rank 0 is done with micro-batch 0,
# it begins micro-batch 1, while rank 1 works on micro-batch 0.
#
# By hand, with 3 ranks and 4 micro-batches, and with a clock on which F and B take one tick each:
#
# | tick | 1 | 2 | 3 | 4 | 5 | 6 | 7 | 8 | 9 | 10 | 11 | 12 |
# |---|---|---|---|---|---|---|---|---|---|---|---|---|
# | rank 0 | F0 | F1 | F2 | F3 | | | | | B0 | B1 | B2 | B3 |
# | rank 1 | | F0 | F1 | F2 | F3 | | | B0 | B1 | B2 | B3 | |
# | rank 2 | | | F0 | F1 | F2 | F3 | B0 | B1 | B2 | B3 | | |
#
# A rank can begin F2 when the rank before it has done its F2, and B2 when the rank after it has done its B2. After the
# last backward pass all ranks update their weights, and only then the next batch begins. This end of a step, where the
# pipeline runs empty, is called the **flush**. (In the paper's figure the backward passes begin with the last
# micro-batch; here, as in PyTorch, with the first. Bubble and memory are the same.)

# %%
bubble = dtlearn.predict(
    "GPipe with 4 ranks and 8 micro-batches, stages of the same size. What share of the ranks' time is idle (idle / "
    "total), in percent?",
    unit="%",
    id="ch10.bubble",
)

# %% [markdown]
# A list that says what each rank does in which order is a **schedule**. In this course a schedule is data: a list of
# *actions* for each rank, written as PyTorch writes them. `1F2` is stage 1, forward, micro-batch 2. The table above as
# text, without its empty ticks, since a schedule gives an order and no times:

# %%
print(pp.format_schedule(make_schedule("gpipe", 3, 4)))

# %% [markdown]
# Now the batch of section 3, as 8 micro-batches, so that each pass takes an eighth of the time. On top what the
# simulator computes from the schedule and these times, below the run on four real ranks:

# %%
EIGHTH = stage_seconds(0.016)
gpipe = make_schedule("gpipe", 4, 8)
gpipe_run = run_emulated(gpipe, EIGHTH, steps=3)

# %% jupyter={"source_hidden": true}
bubble.reveal(100 * simulate(gpipe).idle_to_total)

# %% tags=["nbval-ignore-output"] jupyter={"source_hidden": true}
show(
    draw_gantt(
        {"computed": simulate(gpipe, EIGHTH), "measured": gpipe_run},
        title="GPipe: 8 micro-batches keep four ranks busy most of the time",
        label="p = 4 ranks, m = 8 micro-batches",
    ),
    alt="Two Gantt charts of GPipe with 4 ranks and 8 micro-batches, computed and measured, in the same order. Computed: 528 "
    "ms. Each rank does its eight forward passes one step after the rank before it, waits, and does its eight backward "
    "passes in an opposite staircase. Rank 0 waits in the middle, rank 3 at the beginning and at the end.",
)

# %% [markdown]
# On paper the step takes 528 ms, a third of the naive 1,536 ms; the measured run takes somewhat longer, for its messages,
# for Python, and for ranks that wait for a core. Why is the bubble as large as it is? Count in units of one micro-batch
# in one stage, F and B together. A rank has $m$ of them to do. Rank $r$ waits for $r$ forward passes at the beginning, for
# $p - 1 - r$ units in the middle, and for $r$ backward passes at the end. On every rank that adds up to $p - 1$ units. So
#
# $$\frac{\text{idle}}{\text{useful}} = \frac{p-1}{m}, \qquad \frac{\text{idle}}{\text{total}} = \frac{p-1}{m+p-1}.$$
#
# The stage's size does not appear in it, nor how much longer B is than F. Try other numbers. (In this picture F takes 1
# and B takes 2.)


# %% jupyter={"source_hidden": true}
from dtlearn.notebook.panels import Slider, slider_panel


def draw_one(schedule, p, m):
    """The schedule of that name with p ranks and m micro-batches."""
    made = make_schedule(schedule.lower(), p, m)
    formulas = {
        "naive": f"p-1 = {p - 1}, (p-1)/p = {p - 1}/{p}",
        "GPipe": f"(p-1)/m = {p - 1}/{m}, (p-1)/(m+p-1) = {p - 1}/{m + p - 1}",
    }
    title = f"{schedule}: {p} ranks, {m} micro-batches"
    return draw_schedule(made, title=title, label=f"by formula {formulas[schedule]}")


slider_panel(
    draw_one,
    alt="GPipe with 4 ranks and 4 micro-batches as a grid: forward passes as a staircase down, backward passes as a "
    "staircase up. 21 units long; idle / useful is 75 %, idle / total 42.9 %.",
    schedule=Slider(("naive", "GPipe"), "GPipe", "schedule"),
    p=Slider((1, 2, 3, 4, 6, 8), 4, "ranks p"),
    m=Slider((1, 2, 3, 4, 6, 8, 12, 16), 4, "micro-batches m"),
)

# %% [markdown]
# ## 5. What is the loss of a micro-batch?
#
# The loss of a batch is a *mean* over its samples. Each micro-batch computes a mean too, over its own. What is the
# gradient of the batch, if `backward()` is called on each of them and the gradients are added up?
#
# | | micro-batch 0 | micro-batch 1 | added up | the batch |
# |---|---|---|---|---|
# | losses of the samples | 1, 3 | 5, 7 | | 1, 3, 5, 7 |
# | mean | 2 | 6 | 8 | 4 |
# | mean, divided by m = 2 | 1 | 3 | 4 | 4 |
#
# So each loss has to be divided by $m$ before its backward pass. If the micro-batches are not all of the same size, the
# division by $m$ is wrong as well: a micro-batch with fewer samples must count less.
#
# What is sent back is the gradient of the activations that arrived. They have no history on this rank: with
# `requires_grad_()` they become a *leaf*, and `backward()` puts the gradient into their `.grad`.

# %% [markdown]
# **Exercise 1.** The scale of each micro-batch's loss.

# %% exercise="ch10.loss_scaling"

# %% [markdown]
# If it is forgotten, nothing fails, and with Adam not even the loss curve shows it (Further, "What if the loss is not
# divided?").
#
# ## 6. How many micro-batches are live?
#
# A micro-batch's activations (chapter 8) are needed from its forward pass in a stage until its backward pass there. In
# between, the micro-batch is **live** on that rank. Look at the table of section 4: when rank 0 begins B0, it has done
# all four forward passes. So have ranks 1 and 2: with GPipe all $m$ micro-batches are live at once.
#
# The ledger of chapter 8 counts it, on each rank: peak bytes of activations in a step of $m$ micro-batches, divided by
# those of a step of one. A micro-batch is 2 sequences here. (`PipelineRunner` in the folded cell plays a schedule, as the
# page of section 8 does.)

# %% jupyter={"source_hidden": true}
# %%ranks --setup
from dtlearn.memory import MemoryLedger


def activation_peak(name, m, **options):
    """Peak bytes of activations on this rank, in a step of m micro-batches with 2 sequences each."""
    stage = my_stage()
    runner = pp.PipelineRunner(
        make_schedule(name, 4, m), {rank: stage}, next_token_loss, **options
    )
    runner.step(*the_batch(2 * m))  # in the first step the ranks tell each other shapes
    with MemoryLedger(stage) as ledger:
        runner.step(*the_batch(2 * m))
    return max(ledger.record().live("activations"))


# %%
# %%ranks -o of_gpipe
of_gpipe = {m: activation_peak("gpipe", m) for m in (1, 2, 4, 8)}
of_gpipe

# %% jupyter={"source_hidden": true}
for m in (2, 4, 8):
    print(
        f"m = {m}: on ranks 0 to 3", [f"{peaks[m] / peaks[1]:.2f}" for peaks in of_gpipe]
    )

# %% [markdown]
# This is GPipe's dilemma: a small bubble needs many micro-batches, and each needs memory until all forward passes are done.
# (The paper's own remedy is recomputation: Further.)
#
# One can cap the memory by hand: do the forward passes of only as many micro-batches as fit, then their backward passes;
# then the next ones. The gradients are the same. And the bubble?

# %%
capped = dtlearn.predict(
    "4 ranks, 8 micro-batches, stages of the same size, and memory for 4 live micro-batches: GPipe with the first four, "
    "then GPipe with the other four. How large is the bubble of the whole step (idle / useful), in percent?",
    unit="%",
    id="ch10.capped",
)

# %% [markdown]
# **Exercise 2.** GPipe under a cap.

# %% exercise="ch10.gpipe"

# %% jupyter={"source_hidden": true}
from dtlearn.pipeline_parallel import parse_schedule

halves = parse_schedule(
    "\n".join(
        " ".join(
            f"{r}{op}{k}" for ks in (range(4), range(4, 8)) for op in "FB" for k in ks
        )
        for r in range(4)
    ),
    name="GPipe, four at a time",
)
capped.reveal(100 * simulate(halves).idle_to_useful)

# %% [markdown]
# ## 7. Can a backward pass begin earlier?
#
# Look at the last rank in the table of section 4: after F0 it has all that it needs for B0. If it does B0 at once, rank 1
# can do its B0 soon after, and the activations of micro-batch 0 are free while later micro-batches have not even begun.
#
# So let a rank do only as many forward passes in advance as keep the ranks after it busy (the **warm-up**). Then it does
# one forward and one backward pass in turn, **1F1B**, and at the end the backward passes that are left (the
# **cool-down**). With 3 ranks and 4 micro-batches, by hand, without times:
#
# | | warm-up | one forward, one backward | cool-down |
# |---|---|---|---|
# | rank 0 | F0 F1 | F2 B0, F3 B1 | B2 B3 |
# | rank 1 | F0 | F1 B0, F2 B1, F3 B2 | B3 |
# | rank 2 | | F0 B0, F1 B1, F2 B2, F3 B3 | |
#
# The name is from PipeDream (1806.03377), whose pipeline never runs empty (Further). With a flush, and so with GPipe's
# gradients, it is the schedule of DAPPLE (2007.01045) and PipeDream-Flush (2006.09503), and the default of Megatron-LM.

# %%
same = dtlearn.predict.choice(
    "4 ranks, 8 micro-batches, stages of the same size. How large is the bubble of 1F1B, compared with GPipe's?",
    {
        "A": "smaller: a rank does backward passes where it waited before",
        "B": "as large",
        "C": "larger: in the cool-down ranks wait between backward passes",
    },
    id="ch10.same",
)

# %% jupyter={"source_hidden": true}
same.reveal()

# %% jupyter={"source_hidden": true}
both = {"GPipe": make_schedule("gpipe", 4, 8), "1F1B": make_schedule("1f1b", 4, 8)}
show(
    draw_schedule(
        both,
        title="GPipe and 1F1B: the same length, the same idle time",
        label="p = 4 ranks, m = 8 micro-batches; F takes 1, B takes 2",
    ),
    alt="Two schedules on one time axis, both 33 long, with 37.5 % idle time over useful time and 27.3 % idle time over "
    "total time. GPipe's ranks wait in one block between forward and backward passes. In 1F1B rank 3 alternates "
    "forward and backward passes from the beginning; rank 0 waits after four forward passes, then alternates, and waits "
    "between its last backward passes.",
)

# %% [markdown]
# The idle time has only moved. A micro-batch still has to come down through all ranks before the first backward pass
# can begin, and the last gradient still has to come back through all of them. What changes is the memory.

# %% [markdown]
# **Exercise 3.** The actions of 1F1B.

# %% exercise="ch10.one_f_one_b"

# %%
dtlearn.show_source(
    pp.schedules.one_f_one_b.one_f_one_b,
    docstring=False,
    summary="dtlearn.pipeline_parallel.schedules.one_f_one_b",
)

# %% [markdown]
# Counted by the ledger again, on real ranks:

# %%
# %%ranks -o of_1f1b
of_1f1b = {m: activation_peak("1f1b", m) for m in (1, 8)}
of_1f1b

# %% jupyter={"source_hidden": true}
from dtlearn.pipeline_parallel.checking.theory import peak_live
from dtlearn.viz import live_activations

counted = {
    "GPipe": [round(peaks[8] / peaks[1], 2) for peaks in of_gpipe],
    "1F1B": [round(peaks[8] / peaks[1], 2) for peaks in of_1f1b],
}
show(
    live_activations(
        counted,
        {"GPipe": peak_live("gpipe", 4, 8), "1F1B": peak_live("1f1b", 4, 8)},
        title="1F1B holds p - r micro-batches on rank r, GPipe holds all m",
        label="p = 4 ranks, m = 8 micro-batches; bytes by the ledger, divided by those of one micro-batch; theory: m and "
        "min(m, p - r)",
        unit="live micro-batches at the peak",
    ),
    alt="Bars of live micro-batches for ranks 0 to 3. GPipe: 8 on every rank. 1F1B: 4 or a little more, then 3, 2 and 1. A "
    "black line at the value that theory expects lies at the end of GPipe's bars, and just before the end of 1F1B's.",
)

# %% [markdown]
# On rank $r$ at most $\min(m, p - r)$ micro-batches are live. (The little that ranks hold beyond that is a tensor on its
# way, such as the input of the next micro-batch.) More than $p$ micro-batches need no more memory. So one can take as many
# as the batch allows, and the bubble falls. That is what 1F1B is for.
#
# ## 8. What does it look like on one page?
#
# Stages, the actions of a schedule and the scale of the loss make a pipeline that trains. The whole file; its heart is the
# loop near the end and the two functions that it calls:

# %%
from dtlearn.pipeline_parallel import page_pipeline

dtlearn.show_source(page_pipeline)

# %% [markdown]
# With GPipe's actions it is GPipe, and with those of 1F1B, also your own of exercise 3, it is 1F1B. One step of each,
# beside one process:

# %%
# %%ranks -o on_the_page
from dtlearn.pipeline_parallel.page_pipeline import run_schedule

x, y = the_batch()
expected, gradients = one_process()
on_the_page = {}
for name, actions in (("GPipe", pp.gpipe), ("1F1B", pp.one_f_one_b)):
    stage = my_stage()
    losses = run_schedule(
        actions(rank, 4, 8),
        stage,
        x.chunk(8),
        y.chunk(8),
        next_token_loss,
        shape=(1, 64, 64),  # of one sequence: tokens, hidden size
        groups=(dist.group.WORLD, dist.new_group()),
    )
    apart = largest_difference(stage, gradients)
    on_the_page[name] = float(sum(losses)), expected, apart
on_the_page

# %% jupyter={"source_hidden": true}
for name, (loss, expected, _) in on_the_page[3].items():
    apart = max(of_rank[name][2] for of_rank in on_the_page)
    print(
        f"{name:>5}: loss {loss:.4f}, in one process {expected:.4f}; all gradients within 1e-6: {apart < 1e-6}"
    )

# %% [markdown]
# And how long does it take? `PipelineRunner` plays the same actions, with emulated stage times again.

# %%
ofob = make_schedule("1f1b", 4, 8)
ofob_run = run_emulated(ofob, EIGHTH, steps=3)

# %% tags=["nbval-ignore-output"] jupyter={"source_hidden": true}
show(
    draw_gantt(
        {
            "1F1B, computed": simulate(ofob, EIGHTH),
            "1F1B, measured": ofob_run,
            "GPipe, measured": gpipe_run,
        },
        title="Measured: 1F1B takes about as long as GPipe",
        label="p = 4 ranks, m = 8 micro-batches",
    ),
    alt="Three Gantt charts of about the same length: 1F1B computed, 1F1B measured, GPipe measured. The measured 1F1B "
    "has the order of the computed one, and small gaps for messages.",
)

# %% [markdown]
# Messages, Python and waits for a core make both longer than computed; which of the two is the longer one differs from run
# to run. Slow messages cost 1F1B more: in its steady part a rank needs what its neighbour has only just computed, while in
# GPipe it has other micro-batches to go on with. By the simulator:

# %%
for transfer in (0, 0.004):
    times = [simulate(s, EIGHTH, transfer=transfer).makespan for s in (gpipe, ofob)]
    print(
        f"{1e3 * transfer:.0f} ms for a message: GPipe {times[0]:.3f} s, 1F1B {times[1]:.3f} s"
    )

# %% [markdown]
# ## 9. How does it break?
#
# In the steady part of 1F1B, two neighbours have something for each other at the same time: an activation, and a gradient.
# The obvious code on both sides is "send what is ready, then receive what is needed".


# %%
# %%ranks --expect deadlock
# On the CPU: NCCL would queue the send, and the GPU would hang.
gloo = dist.new_group(backend="gloo")
x = torch.ones(2, 64, 64)
neighbour = rank + 1 if rank % 2 == 0 else rank - 1  # 0 with 1, 2 with 3
dist.send(x, neighbour, group=gloo)  # an activation down, or a gradient up
dist.recv(x, neighbour, group=gloo)

# %% [markdown]
# In each pair both ranks are in `send`, and wait for the other's `recv`, which would come after its `send`. With gloo a
# send returns when the receiver has taken the message (chapter 2). With NCCL a small message may fit into a buffer, so the
# same program works in a test and hangs with a larger model ([nccl#479](https://github.com/NVIDIA/nccl/issues/479), and up
# to 64 MB in [pytorch#138074](https://github.com/pytorch/pytorch/issues/138074)).
#
# | rank 0 | rank 1 | outcome |
# |---|---|---|
# | send activation, receive gradient | send gradient, receive activation | both wait forever |
# | send activation, receive gradient | receive activation, send gradient | works |
# | both posted together | both posted together | works |
#
# The page posts its sends with `isend` and does not wait for them. On NCCL that is not enough: what two ranks send each other
# in one group shares a stream, and runs in order ([pytorch#132852](https://github.com/pytorch/pytorch/issues/132852)). So the
# page has a group for each direction.
#
# ## 10. When to use it?
#
# **Bytes.** A boundary sends $b \cdot s \cdot h$ numbers forward for each micro-batch, and as many back. For Llama 3
# 405B ($h$ = 16,384, sequences of 8,192 tokens, bf16, one sequence in a micro-batch):

# %%
from dtlearn.memory.arithmetic import published

llama = published.MODELS["Llama 3 405B"]
print(f"a boundary, forward: {2 * 1 * 8192 * 16384 / 1e6:,.0f} MB for each micro-batch")
print(
    f"all weights, gathered once as in ZeRO 3: {2 * llama.num_parameters / 1e9:,.0f} GB"
)

# %% [markdown]
# That is why pipelines are put across nodes, where links are slow. ZeRO 3 gathers those 812 GB twice in each step, and with
# accumulation twice for each micro-batch.
#
# **Bubble.** Both conventions, for GPipe and 1F1B:

# %% jupyter={"source_hidden": true}
rank_table(
    [
        {
            "p": p,
            **{
                f"m = {m}": f"{100 * (p - 1) / m:.1f} % or {100 * (p - 1) / (m + p - 1):.1f} %"
                for m in (8, 32, 128, 512)
            },
        }
        for p in (2, 4, 8, 16, 64)
    ],
    caption="idle / useful, or idle / total",
)

# %% [markdown]
# (p-1)/m assumes stages of the same size, messages that take no time, and a batch as large as one likes; beyond
# some size a larger batch saves no more steps (chapter 3, Further).
#
# **When to take a pipeline.** If the whole state fits on one device, data parallelism is simpler and has no bubble. If
# it does not, count the micro-batches of a step. GPipe's authors found the bubble negligible from
# $m = 4p$ on (1811.06965, section 2.3). By the formula it is then still 15 to 20 % of the whole time for 4 ranks or more;
# they recomputed, which can begin before a gradient arrives. With fewer micro-batches, ZeRO 3 (chapter 9) may be faster, if
# the links are. With many micro-batches and slow links between nodes, a pipeline across the nodes sends the least. A layer
# that is too large for a device by itself needs chapter 12.
#
# ### Check yourself
#
# <details><summary>8 stages, 56 micro-batches, 1F1B. How large is the bubble, in both conventions?</summary>
#
# idle / useful = 7/56 = 12.5 %. idle / total = 7/63 = 11.1 %.
# </details>
#
# <details><summary>A colleague replaces GPipe by 1F1B and leaves everything else as it was. The step is as long as before.
# Is something wrong?</summary>
#
# No. The bubble is the same. The peak of memory should be lower, above all on the last rank. With the memory that is
# free now more micro-batches fit, and then the step's share of idle time falls.
# </details>
#
# Chapter 11 asks whether the bubble can vanish; the core path is all that it needs.

# %% [markdown]
# # Further
#
# Each section stands alone, after the core path; what runs on the ranks uses the folded helpers of sections 2, 3 and 6.
#
# | section | needs | minutes | exercise |
# |---|---|---|---|
# | How does a gradient cross to another rank? | section 2 | 2 | 4: 25 |
# | Which order of messages never hangs? | sections 8 and 9 | 6 | 5: 30 |
# | What if the loss is not divided? | sections 5 and 8 | 2 | |
# | Which cut is the fastest? | section 7 | 6 | 6: 20 |
# | What if a weight lies in two stages? | section 8 | 3 | 7: 12 |
# | What does recomputation save? | sections 6 and 7, chapter 8 | 2 | |
# | Pipelines side by side, with ZeRO or FSDP? | section 8, chapter 9 | 5 | |
# | What else breaks? | section 8 | 3 | |
# | How many micro-batches are best? | sections 3, 4 and 7 | 4 | |
# | What if the pipeline never runs empty? | section 7 | 3 | |
# | Where do the libraries do it? | section 8; its table: all | 3 | |
# | What is different on GPUs? | section 6 | 1 | |
# | Myths, and questions to check yourself | all | 2 | |
#
# ## How does a gradient cross to another rank?
#
# *Needs: section 2.* A tensor that arrives over the network has no history: autograd ends at the rank's border, on both
# sides. On the receiving side it is a leaf, and after `backward()` its gradient is what the other rank needs. On the
# sending side that gradient comes back later, and backward begins with it: `outputs.backward(gradient)`.

# %% [markdown]
# **Exercise 4.** Forward and backward over two stages.

# %% exercise="ch10.two_stages"

# %% [markdown]
# In the package, a send is an operation that autograd knows, a `torch.autograd.Function`. The backward pass of a send
# receives the gradient, and the backward pass of a receive sends it. So `loss.backward()` does all of it:

# %%
dtlearn.show_source(pp.send, docstring=False, summary="dtlearn.pipeline_parallel.send")
dtlearn.show_source(
    pp.NaiveModelParallel.forward, docstring=False, summary="NaiveModelParallel.forward"
)

# %% [markdown]
# ## Which order of messages never hangs?
#
# *Needs: sections 8 and 9.* Orders of messages are data, too, so they can be checked without ranks. A `Post` is one send or one
# receive. A rank has a list of steps, and a step is a list of what is posted together, here one call each:

# %%
from dtlearn.pipeline_parallel.checking.deadlock import Post, find_deadlock

orders = [  # of rank 0 and of rank 1, step by step
    [[Post("send", 1, "activations")], [Post("receive", 1, "gradient")]],
    [[Post("send", 0, "gradient")], [Post("receive", 0, "activations")]],
]
print("every send waits for its receive:", find_deadlock(orders))
print("sends go into a buffer:          ", find_deadlock(orders, buffered=True))

# %% [markdown]
# With more ranks and more messages, a rule helps. Put all messages of all ranks into one list. If every rank goes
# through its own messages in the order of this list, nobody waits forever: the first message that is not done yet is
# the next one for its sender and for its receiver. What remains is to find such an order for a given schedule.

# %% [markdown]
# **Exercise 5.** Repair an exchange that deadlocks.

# %% exercise="ch10.safe_order"

# %% [markdown]
# `PipelineRunner` makes that list from the schedule, with a pure function: it puts all actions and all messages of all
# ranks into one order, by the times of the simulator, and each rank takes its part of it. Some of rank 1's part, for 1F1B:

# %%
steps = pp.with_communication(make_schedule("1f1b", 4, 8))
for step in steps[1][4:9]:
    if isinstance(step, pp.MessageBatch):
        for message in step.messages:
            print(
                f"    message for {message.needed_by}, from rank {message.src} to rank {message.dst}"
            )
    else:
        print(step.action)

# %% [markdown]
# Messages without an action between them are posted together with `batch_isend_irecv`, which is safe on NCCL as well:
# there they are one [group](https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/usage/p2p.html), in which no call
# blocks another (chapter 2). One detail for gloo: `batch_isend_irecv` returns several handles there, and all of them
# have to be waited for ([pytorch#152938](https://github.com/pytorch/pytorch/issues/152938)).
#
# The runner adds more to the page:
#
# - A rank may have several stages, and a backward pass may be in two parts (chapter 11).
# - The ranks tell each other the shapes of what they send, in the first step.
# - The output of a stage is freed as soon as it is sent. The page keeps it until the backward pass, and what was sent
#   until the end.
# - Micro-batches count by their samples or tokens. For a loss that is a mean over *tokens* of padded sequences the weights
#   are numbers of tokens, as in chapter 3. The runner knows this of PyTorch's losses; of a loss function of your own
#   `num_terms=` says it.
# - `evaluate` and `predict` play the forward passes only.
# - The schedule is checked first, and an error says in which action it came.
#
# Is it right? All schedules, and numbers of micro-batches that do not divide 10 samples:

# %%
# %%ranks -o parity
expected, gradients = one_process(samples=10)
parity = {}
for name in ("naive", "gpipe", "1f1b"):
    for m in (1, 3, 5, 8):  # with m = 3 and 8 some micro-batches have one sample more
        stage = my_stage()
        schedule = make_schedule(name, 4, m)
        runner = pp.PipelineRunner(schedule, {rank: stage}, next_token_loss)
        runner.step(*the_batch(10))
        parity[name, m] = largest_difference(stage, gradients)
parity

# %% jupyter={"source_hidden": true}
apart = max(max(of_rank.values()) for of_rank in parity)
print("all gradients of all twelve runs within 1e-6 of one process:", apart < 1e-6)

# %% [markdown]
# ## What if the loss is not divided?
#
# *Needs: sections 5 and 8.* The sabotage below gives the runner a loss that is $m$ times too large, which is what a missing
# division does:

# %%
# %%ranks -o unscaled
steps = {}
for name, factor in (("divided by m", 1), ("not divided", 8)):
    for optimizer_class, rate in ((torch.optim.SGD, 0.1), (torch.optim.Adam, 1e-3)):
        stage = my_stage()
        optimizer = optimizer_class(stage.parameters(), lr=rate)
        runner = pp.PipelineRunner(
            make_schedule("gpipe", 4, 8),
            {rank: stage},
            lambda out, target, factor=factor: factor * next_token_loss(out, target),
        )
        losses = []
        for _ in range(3):
            result = runner.step(*the_batch())
            size = torch.cat([p.grad.flatten() for p in stage.parameters()]).norm().item()
            losses.append(0 if result.loss is None else result.loss.item() / factor)
            optimizer.step()
            optimizer.zero_grad()
        steps[name, optimizer_class.__name__] = losses, size
steps

# %% jupyter={"source_hidden": true}
rank_table(
    [
        {
            "loss": name,
            "optimizer": optimizer,
            "norm of rank 3's gradients": f"{size:.3f}",
            **{f"loss in step {n + 1}": f"{loss:.4f}" for n, loss in enumerate(losses)},
        }
        for (name, optimizer), (losses, size) in unscaled[3].items()
    ],
    caption="8 micro-batches; losses are means over the batch. The norm is that of the third step",
)

# %% [markdown]
# With SGD the steps are 8 times too long, and the loss of the third step shows it. With Adam nothing shows in the
# losses, although the gradients are 8 times as large: Adam divides a gradient by its own size, so a constant factor
# cancels, but for the small $\varepsilon$ in the denominator. Clipping by a norm, weight decay in the gradient and a
# comparison with another run would go wrong. Compare gradients, not losses.

# %% [markdown]
# ## Which cut is the fastest?
#
# *Needs: section 7.* So far all stages took the same time. A real model's links are not all alike. Here is a GPT with a
# larger vocabulary, 2,048 tokens, and 6 blocks:

# %%
from dtlearn.models import GPT

WIDE = GPTConfig(vocab_size=2048, num_layers=6)
parameters = pp.parameter_counts(pp.gpt_links(GPT(WIDE)))
flops = pp.gpt_flops(WIDE)

# %%
slowest = dtlearn.predict.choice(
    "Eight links, embedding, 6 blocks and head, are cut into 4 stages of two links each. Which stage has the most to "
    "compute (in FLOPs)?",
    {
        "A": "stage 0: embedding and block 0",
        "B": "stage 1 or 2: two blocks",
        "C": "stage 3: block 5 and head",
        "D": "none: each has two links",
    },
    id="ch10.slowest",
)

# %% jupyter={"source_hidden": true}
slowest.reveal()

# %% jupyter={"source_hidden": true}
rank_table(
    [
        {
            "link": name,
            "parameters": f"{count:,}",
            "FLOPs of a forward pass, one sequence of 64 tokens": f"{number / 1e6:.1f} million",
        }
        for name, count, number in zip(
            ["embedding", *(f"block {n}" for n in range(6)), "head"],
            parameters,
            flops,
            strict=True,
        )
    ],
    caption="A GPT with 2,048 tokens in its vocabulary: what each link costs",
)

# %% [markdown]
# The two ends are unlike the blocks, and unlike each other. The embedding copies rows and computes next to nothing, but
# it has many parameters. The head has about as many, and multiplies by all of them.
#
# A pipeline runs at the pace of its slowest stage. All others wait for it, for each micro-batch. So the boundaries
# are chosen such that the slowest stage is as fast as possible. For a chain this can be done exactly. By hand, links
# of cost 1, 2, 3, 4 in two stages:
#
# | boundary after | stage 0 | stage 1 | slowest |
# |---|---|---|---|
# | link 0 | 1 | 9 | 9 |
# | link 1 | 3 | 7 | 7 |
# | link 2 | 6 | 4 | **6** |
#
# With more stages one does not try all combinations: the best way to cut the first $n$ links into $k + 1$ stages ends
# with some last stage, and what is before it is the best way to cut the links before it into $k$ stages. That is
# **dynamic programming**, and a table of $k$ times $n$ entries holds it all.

# %% [markdown]
# **Exercise 6.** Boundaries that make the slowest stage as fast as possible.

# %% exercise="ch10.balanced_partition"

# %%
dtlearn.show_source(
    pp.by_stage_cost,
    docstring=False,
    summary="dtlearn.pipeline_parallel.partition: by_stage_cost",
)

# %% [markdown]
# Five ways to cut the model. The greedy one fills a stage up to the mean and never looks back:

# %% tags=["nbval-ignore-output"] jupyter={"source_hidden": true}
torch.manual_seed(0)
seconds = pp.measure_seconds(
    pp.gpt_links(GPT(WIDE)), torch.randint(2048, (4, 64)), rounds=9
)
cuts = {
    "equal numbers of links": pp.by_count(8, 4),
    "greedy, by parameters": pp.greedy(parameters, 4),
    "best by parameters": pp.by_cost(parameters, 4),
    "best by FLOPs": pp.by_cost(flops, 4),
    "best by measured time": pp.by_cost(seconds.total, 4),
}
rank_table(
    [
        {
            "partition": name,
            "boundaries": str(cut),
            "parameters": " ".join(
                f"{n / 1e3:.0f}k" for n in pp.stage_costs(parameters, cut)
            ),
            "ms": " ".join(f"{1e3 * s:.1f}" for s in pp.stage_costs(seconds.total, cut)),
            "slowest / mean": f"{pp.imbalance(seconds.total, cut):.2f}",
        }
        for name, cut in cuts.items()
    ],
    caption="Stages 0 to 3; ms are forward and backward of 4 sequences on this machine",
)

# %% [markdown]
# FLOPs and time do not agree. By FLOPs the head costs more than two blocks. On the machine that built this page it takes
# less than two: it is a single large matrix product, while a block also has norms, softmax, GELU and many small
# operations, which take time and have few FLOPs. So for this small model, on that machine, equal numbers of links are
# nearly as good as the best cut. On a GPU the ratio is another one: measure on the device that trains, and cut by that.
#
# What does imbalance cost? The simulator takes a time for each stage. Assume a device on which times are in proportion
# to the FLOPs, as they nearly are for large matrices. There the same two cuts are far apart:


# %% jupyter={"source_hidden": true}
def timeline(boundaries):
    """1F1B with 4 ranks and 8 micro-batches; F, I and W of a stage take its FLOPs, in units of a mean stage."""
    mean = sum(flops) / 4
    times = pp.stage_times([cost / mean for cost in flops], boundaries)
    return simulate(make_schedule("1f1b", 4, 8), times)


show(
    draw_schedule(
        {
            "equal numbers of links": timeline(pp.by_count(8, 4)),
            "best by FLOPs": timeline(pp.by_cost(flops, 4)),
        },
        title="All ranks wait for the slowest stage",
        label="1F1B, p = 4, m = 8; 2,048 tokens in the vocabulary; times in proportion to the FLOPs",
        unit="1 is the forward pass of a mean stage",
    ),
    alt="Two 1F1B schedules. With equal numbers of links rank 3, which has the head, works without a pause and "
    "the others wait for it in every round; rank 0 works a quarter of the time. With the best partition by FLOPs the four "
    "ranks are nearly equal, and the step is shorter by nearly a quarter.",
)

# %% [markdown]
# No formula with $p$ and $m$ alone gives the first bubble: more micro-batches do not make it vanish. The makers of
# large models balance the ends by hand. In BLOOM, with 250,880 rows in its vocabulary and a hidden size of 14,336, the
# embedding has 3.6 billion parameters, a block $12 h^2$ = 2.5 billion, and [each of the two ends counts as a
# layer](https://github.com/bigscience-workshop/bigscience/tree/master/train/tr11-176B-ml). Llama 3 405B has one layer
# fewer on the first and on the last stage, for balance in memory and in computation (2407.21783). Memory has its own
# balance: early stages hold more live micro-batches, so `by_stage_cost` takes a cost that depends on the stage's
# number.

# %% [markdown]
# ## What if a weight lies in two stages?
#
# *Needs: section 8.* GPT-2 uses one matrix twice: as token embedding and as the head's projection. The two are **tied**. In
# one process the matrix has one gradient, to which both uses add. In a pipeline the first use is on the first rank, and the
# second use on the last. Each has a copy, and each computes the gradient of its own use only.
#
# | | rank 0, embedding | rank 3, head | one process |
# |---|---|---|---|
# | gradient of its own use | 1 | 5 | |
# | what each copy has to be updated with | 6 | 6 | 6 |
#
# So the two ranks exchange gradients and both take the sum. If they start from equal values, their copies stay equal.

# %% [markdown]
# **Exercise 7.** The gradient of a weight that lies in several stages.

# %% exercise="ch10.tied_embedding"

# %%
dtlearn.show_source(
    pp.runner.gradients.TiedParameter.sum_gradients,
    docstring=False,
    summary="TiedParameter.sum_gradients",
)

# %%
# %%ranks -o tied
TIED = GPTConfig(tie_embeddings=True)
tied = {}
for name, where in (("summed", pp.tied_embedding(TIED, 4)), ("forgotten", ())):
    stage = my_stage(TIED)
    optimizer = torch.optim.SGD(stage.parameters(), lr=0.5)
    runner = pp.PipelineRunner(
        make_schedule("1f1b", 4, 8), {rank: stage}, next_token_loss, tied=where
    )
    for _ in range(3):
        runner.step(*the_batch())
        optimizer.step()
        optimizer.zero_grad()
    copies = [
        p.detach().clone()
        for n, p in stage.named_parameters()
        if n.endswith(("token.weight", "projection.weight"))
    ]
    tied[name] = copies[0] if copies else None
whole, batch = whole_model(TIED), the_batch()
optimizer = torch.optim.SGD(whole.parameters(), lr=0.5)
for _ in range(3):
    next_token_loss(whole(batch[0]), batch[1]).backward()
    optimizer.step()
    optimizer.zero_grad()
tied["one process"] = whole.embedding.token.weight.detach().clone()
tied

# %% jupyter={"source_hidden": true}
for name in ("summed", "forgotten"):
    copies = (tied[0][name] - tied[3][name]).abs().max().item()
    one = (tied[0][name] - tied[0]["one process"]).abs().max().item()
    print(
        f"gradients {name:>9}: copies apart by {'nothing' if copies == 0 else f'{copies:.1g}'}, rank 0's within 1e-6 of "
        f"one process: {one < 1e-6}"
    )

# %% [markdown]
# If the sum is forgotten, nothing fails. The two copies become two different matrices, and the model is no longer the
# one that was asked for. (No rank sees both copies. Where the whole model is at hand, it can be noticed:
# `split_sequential` refuses a weight in two stages that is not named as tied.) The sum costs $V \cdot h$ numbers in each
# direction and step, for a vocabulary of $V$ tokens. Megatron-LM keeps a group of the first and the last stage for it;
# in PyTorch's `pipelining` it is yours to do.

# %% [markdown]
# ## What does recomputation save?
#
# *Needs: sections 6 and 7, and chapter 8 for recomputation.* Of each live micro-batch a stage then keeps only its *input*,
# which it received, and computes the rest again in the backward pass. A stage still holds as many micro-batches, but
# each is much smaller:

# %%
# %%ranks -o recomputed
recomputed = {
    name: activation_peak(name, 8, recompute=True) for name in ("gpipe", "1f1b")
}
recomputed

# %% jupyter={"source_hidden": true}
kept = {
    ("GPipe", "no"): [peaks[8] for peaks in of_gpipe],
    ("GPipe", "yes"): [peaks["gpipe"] for peaks in recomputed],
    ("1F1B", "no"): [peaks[8] for peaks in of_1f1b],
    ("1F1B", "yes"): [peaks["1f1b"] for peaks in recomputed],
}
rank_table(
    [
        {
            "schedule": name,
            "recomputation": again,
            **{
                f"rank {rank}, kB": f"{peak / 1e3:,.0f}"
                for rank, peak in enumerate(peaks)
            },
        }
        for (name, again), peaks in kept.items()
    ],
    caption="Peak bytes of activations in a step of 8 micro-batches with 2 sequences each",
)

# %% [markdown]
# What remains is the input of each live micro-batch, and, while a backward pass runs, the activations of one
# micro-batch, computed again. So the last rank of 1F1B, which has only one live micro-batch, gains nothing.
#
# GPipe's paper has recomputation from the start. It costs one more forward pass in each backward pass, so a third more
# computation if B takes twice as long as F. The bubble in percent stays: work and waiting grow alike.

# %% [markdown]
# ## Pipelines side by side, with ZeRO or FSDP?
#
# *Needs: section 8, and chapter 9 for the second half.* More ranks than stages? Then several pipelines train copies of the
# model, each on its own samples, and the gradients are averaged: data parallelism (chapter 3) around a pipeline. Here two
# pipelines of two stages each. Two kinds of groups are needed:
#
# | | stage 0 | stage 1 | |
# |---|---|---|---|
# | pipeline A | rank 0 | rank 1 | messages between neighbours |
# | pipeline B | rank 2 | rank 3 | |
# | | gradients averaged over ranks 0 and 2 | over ranks 1 and 3 | |
#
# Each rank averages only the gradients of its own stage.

# %%
synced = dtlearn.predict(
    "8 micro-batches. Somebody averages the gradients over the two pipelines after the backward pass of every "
    "micro-batch, instead of once at the end of the step. By what factor do the bytes of the all-reduces grow?",
    unit="times",
    id="ch10.synced",
)

# %%
# %%ranks --record averaging -o side_by_side
pipelines = [
    dist.new_group([0, 1]),
    dist.new_group([2, 3]),
]  # every rank makes all groups
replicas = [dist.new_group([0, 2]), dist.new_group([1, 3])]
pipeline, place = rank // 2, rank % 2
groups = {"group": pipelines[pipeline], "data_parallel_group": replicas[place]}

x, y = the_batch(16)
mine = slice(8 * pipeline, 8 * pipeline + 8)  # the samples of this pipeline


def in_pipeline(m):
    stage = pp.split_gpt(whole_model(), (0, 3, 6))[place]
    schedule = make_schedule("1f1b", 2, m)
    return stage, pp.PipelineRunner(schedule, {place: stage}, next_token_loss, **groups)


stage, runner = in_pipeline(m=8)
with dtlearn.phase("once"):
    runner.step(x[mine], y[mine])
expected, gradients = one_process(16)
side_by_side = largest_difference(stage, gradients)

stage, runner = in_pipeline(m=1)
with dtlearn.phase("every micro-batch"):
    for one_x, one_y in zip(x[mine].chunk(8), y[mine].chunk(8), strict=True):
        runner.step(one_x, one_y)
side_by_side

# %% jupyter={"source_hidden": true}
from dtlearn.runtime.record.training_steps import part

in_phase = {name: part(averaging, name) for name in ("once", "every micro-batch")}
reduced = {
    name: sum(e.nbytes for e in record if e.op.startswith("all_reduce") and e.rank == 0)
    for name, record in in_phase.items()
}
synced.reveal(reduced["every micro-batch"] / reduced["once"])

# %% jupyter={"source_hidden": true}
print(
    "gradients averaged once, within 1e-6 of one process with 16 samples:",
    max(side_by_side) < 1e-6,
)
for name, nbytes in reduced.items():
    print(f"{name}: rank 0 hands {nbytes / 1e6:.2f} MB to all-reduces")

# %% [markdown]
# The result would be the same, only slower, so it is easy to overlook. DDP averages in every backward pass, unless
# `no_sync()` says otherwise. Around a stage of PyTorch's `pipelining` ("Where do the libraries do it?") that is done for
# you: a `PipelineStage` switches the reduction of DDP and of `fully_shard` off until the last micro-batch.
#
# And ZeRO? Stage 1 waits for the whole gradient anyway. Stage 2 by the book keeps no whole gradient, so it would reduce
# after every micro-batch; stage 3 would gather the weights for every micro-batch, forward and backward. DeepSpeed's
# pipeline refuses both ([DeepSpeed#1110](https://github.com/deepspeedai/DeepSpeed/issues/1110)). Here is what `fully_shard`
# (chapter 9) does in PyTorch's pipeline: two stages on two replicas, two sharded layers in each stage, 1F1B with 8
# micro-batches. By the book that would be 2 x 8 x 2 = 32 gathers and 16 reductions:


# %%
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.pipelining import PipelineStage, Schedule1F1B


def sharded_pipeline(reshard):
    """On each rank: two steps of 1F1B, its stage sharded over two replicas."""
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "pp"))
    pipeline, sharded = mesh.get_group("pp"), mesh["dp"]
    stage = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.Linear(64, 64))
    for module in (*stage, stage):
        fully_shard(module, mesh=sharded, reshard_after_forward=reshard)
    place = torch.distributed.get_rank(pipeline)
    piped = PipelineStage(stage, place, 2, torch.device("cpu"), group=pipeline)
    schedule = Schedule1F1B(piped, n_microbatches=8, loss_fn=torch.nn.functional.mse_loss)
    x = torch.ones(16, 64)
    for step in ("first", "second"):  # in the first, ranks tell each other shapes
        with dtlearn.phase(step):
            schedule.step(x) if place == 0 else schedule.step(target=x)


for reshard in (
    True,
    False,
):  # on the processor: calls are counted, and four ranks need no four GPUs
    record = dtlearn.run_ranks(
        sharded_pipeline, 4, reshard, device="cpu", record=True
    ).record
    ops = [event.op for event in part(record, "second") if event.rank == 0]
    gathers, reductions = (
        sum(op.startswith(name) for op in ops)
        for name in ("all_gather", "reduce_scatter")
    )
    print(
        f"reshard_after_forward={reshard}: {gathers} all-gathers, {reductions} reduce-scatters"
    )

# %% [markdown]
# With `reshard_after_forward=True` each forward pass gathers a layer, 8 times, and all backward passes together once more;
# with `False` each layer is gathered once in a step. Gradients are reduced once in both. So the traffic is not multiplied.
# The price is memory: during the step a stage's weights are whole (with `False`), and so are its accumulated gradients, as
# with ZeRO's stage 1. Llama 3 was trained so, with gradients and state sharded and weights not resharded after forward
# (2407.21783, section 3.3.2), and it is torchtitan's default with a pipeline. PyTorch's schedules with several stages on a
# rank have actions of their own for it: UNSHARD, RESHARD and REDUCE_GRAD stand in a rank's list beside F and B.
#
# ## What else breaks?
#
# *Needs: section 8.* **A schedule that forgets an action.** Schedules are data, so they can be checked before anything runs.
# Here is 1F1B for two ranks and two micro-batches, typed by hand. Rank 1 forgets its last backward pass:

# %%
forgets = pp.parse_schedule("""
0F0 0F1 0B0 0B1
1F0 1B0 1F1
""")
for finding in pp.validate(forgets):
    print(finding)

# %% [markdown]
# The runner checks each schedule when it is built, and refuses such a one on every rank.
#
# **A rank that dies in mid-schedule.** Rank 2 is killed in its forward pass of micro-batch 3, as the out-of-memory killer
# would do it:


# %% jupyter={"source_hidden": true}
import os
import signal


class Killed(torch.nn.Linear):
    """A stage whose fourth forward pass ends its process."""

    passes = 0

    def forward(self, x):
        self.passes += 1
        if self.passes == 4:
            os.kill(os.getpid(), signal.SIGKILL)
        return super().forward(x)


def dies_in_the_middle():
    """A step of 1F1B on 4 ranks, in which rank 2 ends itself."""
    rank = torch.distributed.get_rank()
    stage = (Killed if rank == 2 else torch.nn.Linear)(16, 16).to(dtlearn.device())
    schedule = make_schedule("1f1b", 4, 8)
    runner = pp.PipelineRunner(schedule, {rank: stage}, torch.nn.functional.mse_loss)
    runner.step(*torch.randn(2, 8, 16, device=dtlearn.device()))


# %% tags=["nbval-ignore-output"]
try:
    dtlearn.run_ranks(dies_in_the_middle, 4)
except Exception as error:
    print(error)

# %% [markdown]
# The neighbours of rank 2 lose their connection and fail too, and the ranks farther away only wait. So the first thing
# to know is which rank was the first; all other messages are consequences. Where was it? The runner notes what each
# rank was doing: rank 3 waits for what 3F3 needs. That is the output of 2F3, which never came.
#
# **A stage whose output changes its shape.** Receivers have to know the shape of what comes. The ranks tell each other in
# the first step only, to save messages. What if it changes later, as with a last batch that is shorter?

# %% tags=["nbval-ignore-output"]
# %%ranks --expect error
stage = my_stage()
runner = pp.PipelineRunner(make_schedule("1f1b", 4, 8), {rank: stage}, next_token_loss)
runner.step(*the_batch(16))
runner.step(*the_batch(8))

# %% [markdown]
# ## How many micro-batches are best?
#
# *Needs: sections 3, 4 and 7.* With a fixed batch more micro-batches are smaller ones. Each pass has a part that
# does not become shorter: kernels are launched, messages have a latency, and small matrices do not fill a GPU. Call
# it $o$, and let $t$ be the time of the whole batch in a stage, forward and backward. A step takes
#
# $$T(m) = (m + p - 1)\left(\frac{t}{m} + o\right).$$
#
# The first factor grows with $m$, the second falls. (2104.04473, section 3.4, has the same trade-off, with measured
# times of a pass.)

# %%
best = dtlearn.predict(
    "8 stages, t = 700 ms, o = 1 ms. With how many micro-batches is the step shortest?",
    id="ch10.best",
)


# %%
def step_seconds(m, p=8, t=0.7, o=0.001):
    """T(m)."""
    return (m + p - 1) * (t / m + o)


shortest = min(range(1, 1001), key=step_seconds)

# %% jupyter={"source_hidden": true}
best.reveal(shortest, bubble=100 * 7 / shortest)

# %% [markdown]
# In general the shortest step is at $m = \sqrt{(p-1)\,t/o}$. Now measured: the stages take 192 ms for the whole batch,
# however it is cut, and $o$ is what a real pass costs this machine in Python and in messages:

# %%
by_m = {}
for m in (2, 4, 8, 16, 32, 64):
    by_m[m] = run_emulated(make_schedule("1f1b", 4, m), stage_seconds(0.064 / m))

# %% tags=["nbval-ignore-output"] jupyter={"source_hidden": true}
from dtlearn.viz.pipeline.bars import idle, recorded_bars

by_m = {m: idle(recorded_bars(record)).makespan for m, record in by_m.items()}
best_m = min(by_m, key=by_m.get)
costs = {m: (ms - (m + 3) * 192 / m) / (m + 3) for m, ms in by_m.items()}
by_formula = (3 * 192 / costs[best_m]) ** 0.5
rank_table(
    [
        {
            "m": m,
            "step, ms": f"{ms:.0f}",
            "(m+p-1) t/m, without o": f"{(m + 3) * 192 / m:.0f}",
            "more than that": f"{ms - (m + 3) * 192 / m:.0f}",
            "o: that / (m+p-1)": f"{costs[m]:.1f}",
            " ": "shortest" if m == best_m else "",
        }
        for m, ms in by_m.items()
    ],
    caption="1F1B on 4 ranks, emulated stage times, t = 192 ms. If o were everywhere that of the shortest step, the best m "
    f"would be {by_formula:.0f}",
)

# %% [markdown]
# With more micro-batches the bubble falls, and the costs of passes add up; somewhere the second outweighs the first. On this
# machine $o$ is no constant: the four ranks share its cores, short passes get in each other's way, and other programs count,
# too. So here the formula says why there is a best $m$, and only the measurement says which.
#
# Long sequences leave few of them in a batch. Then the *tokens* of a sequence are cut into pieces that follow each other
# through the pipeline: TeraPipe (2102.07988), Seq1F1B (2406.03488).
#
# ## What if the pipeline never runs empty?
#
# *Needs: section 7.* "While device 2 works on one batch, device 1 begins the next batch", some texts say. In GPipe and 1F1B
# it is the next *micro-batch*, of the same batch. If it were the next batch, device 1 would compute it with weights that
# the present batch has not updated yet. There is a scheme that does just that, PipeDream (Harlap et al. 2018, arXiv
# 1806.03377): the pipeline never runs empty, each stage updates its weights after every backward pass, and each forward
# pass uses weights that lack up to $p - 1$ updates. The same model, samples and optimizer (SGD with momentum), four stages,
# once with a flush and once without:

# %%
# %%ranks -o asynchronous
from dtlearn.models import load_digits
from dtlearn.pipeline_parallel.asynchronous.pipedream import train_asynchronously

digits = load_digits()


def digit_stage():
    torch.manual_seed(0)
    layers = torch.nn.Sequential(
        torch.nn.Linear(64, 64),
        torch.nn.ReLU(),
        torch.nn.Linear(64, 64),
        torch.nn.ReLU(),
        torch.nn.Linear(64, 64),
        torch.nn.ReLU(),
        torch.nn.Linear(64, 10),
    ).to(device)
    return pp.split_sequential(layers, (0, 2, 4, 6, 7))[rank]


def momentum(parameters):
    return torch.optim.SGD(parameters, lr=0.1, momentum=0.9)


loss_fn = torch.nn.functional.cross_entropy
batches = [(x.to(device), y.to(device)) for x, y in digits.batches(100, 32)]
back = dist.new_group()  # for gradients
stale = train_asynchronously(digit_stage(), momentum, batches, loss_fn, group_back=back)

stage = digit_stage()
optimizer = momentum(stage.parameters())
runner = pp.PipelineRunner(make_schedule("1f1b", 4, 4), {rank: stage}, loss_fn)
flushed = []
for batch in batches:
    result = runner.step(*batch)
    flushed.append(0 if result.loss is None else result.loss.item())
    optimizer.step()
    optimizer.zero_grad()
asynchronous = (max(stale.missing), stale.num_versions, stale.losses, flushed)
asynchronous

# %% tags=["nbval-ignore-output"] jupyter={"source_hidden": true}
print(
    "updates that a forward pass lacks, ranks 0 to 3:", [run[0] for run in asynchronous]
)
print(
    "versions of the weights that a rank keeps:      ", [run[1] for run in asynchronous]
)
for name, losses in zip(
    ("PipeDream", "1F1B with a flush"), asynchronous[3][2:], strict=True
):
    means = [sum(losses[at : at + 20]) / 20 for at in (0, 40, 80)]
    print(
        f"{name:>17}: mean loss of batches 1 to 20, 41 to 60, 81 to 100:",
        *(f"{n:.2f}" for n in means),
    )

# %% [markdown]
# Rank 0's weights lack three updates, and it keeps four versions of them, since the backward pass needs the weights
# that the forward pass used (**weight stashing**). With momentum and this learning rate it does not train here.
# (PipeDream's authors trained their models to the usual accuracy, so that is no law.) Without momentum it trains, but
# more slowly. The same recurrence in one process, which needs no ranks:

# %% tags=["nbval-ignore-output"] jupyter={"source_hidden": true}
import itertools

from dtlearn.models import load_digits
from dtlearn.pipeline_parallel.asynchronous.delayed import pipedream_delays, train_delayed


def digit_layers():
    """The four stages, the same every time."""
    torch.manual_seed(0)
    sizes = (64, 64, 64, 64, 10)
    layers = [torch.nn.Linear(a, b) for a, b in itertools.pairwise(sizes)]
    return [
        *(torch.nn.Sequential(one, torch.nn.ReLU()) for one in layers[:-1]),
        layers[-1],
    ]


def plain_sgd(parameters):
    return torch.optim.SGD(parameters, lr=0.1)


batches = list(load_digits().batches(150, 32))
delays = {
    "synchronous, with a flush": [0, 0, 0, 0],
    "PipeDream": pipedream_delays(4),
    "PipeDream-2BW (2006.09503), one update behind everywhere": [1, 1, 1, 1],
}
rank_table(
    [
        {
            "weights": name,
            "updates behind, stages 0 to 3": str(tuple(behind)),
            "batches 131 to 150": f"{sum(losses[130:]) / 20:.2f}",
        }
        for name, behind in delays.items()
        for losses in [
            train_delayed(
                digit_layers(),
                plain_sgd,
                batches,
                torch.nn.functional.cross_entropy,
                behind,
            )
        ]
    ],
    caption="Mean loss on the training batches: digits, 150 batches of 32, SGD with lr 0.1, no momentum",
)

# %% [markdown]
# With stale weights it is another algorithm, whose results are not those of one process.
#
# ## Where do the libraries do it?
#
# *Needs: section 8; the table at the end names what all sections of Further have.* Texts still show
# `torch.distributed.pipeline.sync.Pipe`, or say that PyTorch has no pipeline at all. Both are out of date: `Pipe` came with
# torch 1.8 and is gone since torch 2.4; its successor is `torch.distributed.pipelining`.

# %%
import importlib

for name in ("torch.distributed.pipeline.sync", "torch.distributed.pipelining"):
    try:
        importlib.import_module(name)
        print(f"{name}: there")
    except ModuleNotFoundError as error:
        print(f"{name}: {error}")

# %% [markdown]
# Its orders are ours (`Schedule1F1B` refuses fewer micro-batches than stages, so $m$ begins at $p$), and so are its gradients
# of the same stages on the same batch:

# %%
for ours, theirs in (("gpipe", "GPipe"), ("1f1b", "1F1B")):
    same_orders = all(
        make_schedule(ours, p, m).orders == pp.torch_schedule(theirs, p, m).orders
        for p in range(2, 9)
        for m in range(p, 17)
    )
    print(f"{theirs}: the same actions in the same order on every rank: {same_orders}")


# %%
# %%ranks -o beside
from torch.distributed.pipelining import PipelineStage, Schedule1F1B, ScheduleGPipe

theirs = {"gpipe": ScheduleGPipe, "1f1b": Schedule1F1B}
x, y = the_batch(8)
beside = {}
for name, schedule_class in theirs.items():
    stage = my_stage()
    piped = PipelineStage(stage, rank, world_size, device)
    losses = []
    schedule = schedule_class(piped, n_microbatches=8, loss_fn=next_token_loss)
    if rank == 0:
        schedule.step(x)
    elif rank == world_size - 1:
        schedule.step(target=y, losses=losses)
    else:
        schedule.step()
    other = my_stage()
    ours = pp.PipelineRunner(make_schedule(name, 4, 8), {rank: other}, next_token_loss)
    result = ours.step(x, y)
    gradients = {n: p.grad for n, p in stage.named_parameters()}
    beside[name] = largest_difference(other, gradients)
    if rank == world_size - 1:
        beside[name, "loss"] = sum(losses).item() / 8, result.loss.item()
beside

# %% jupyter={"source_hidden": true}
for name in ("gpipe", "1f1b"):
    theirs, ours = beside[3][name, "loss"]
    apart = max(of_rank[name] for of_rank in beside)
    print(
        f"{name}: loss {theirs:.4f} and {ours:.4f}; all gradients within 1e-6: {apart < 1e-6}"
    )

# %% [markdown]
# | here | PyTorch | Megatron-LM | DeepSpeed |
# |---|---|---|---|
# | `split_gpt(model, boundaries)` | your own modules, or `pipeline(model, mb_args, split_spec=...)`, which traces the model | `--pipeline-model-parallel-size`, `--pipeline-model-parallel-layout` | `PipelineModule(layers, num_stages)` |
# | `by_cost`, `greedy` | | the layout, by hand | `partition_method`: `"parameters"`, `"uniform"`, `"type:regex"` |
# | `PipelineRunner(schedule, stages, loss_fn)` | `PipelineStage` and a schedule class | `get_forward_backward_func()` | `engine.train_batch()` |
# | `make_schedule("gpipe", ...)` | `ScheduleGPipe` | | |
# | `make_schedule("1f1b", ...)` | `Schedule1F1B` | `forward_backward_pipelining_without_interleaving` | `TrainSchedule` |
# | m | `n_microbatches` | global batch / (data-parallel size x `--micro-batch-size`) | `gradient_accumulation_steps` |
# | `runner.evaluate(x, y)`, `runner.predict(x)`: forward passes only | `schedule.eval(...)` | `forward_only=True` | `engine.eval_batch()` |
# | division of the loss by m | `scale_grads=True`, the default | in the schedule | in the engine |
# | `tied=` | yours to do | an all-reduce over the embedding group | `TiedLayerSpec` |
# | `recompute=True` | `torch.utils.checkpoint` in the stage | `--recompute-granularity` | `activation_checkpoint_interval` |
# | `data_parallel_group=` | DDP or `fully_shard` around each stage | yes | yes, with ZeRO's stage 1 |
#
# ([PyTorch](https://docs.pytorch.org/docs/stable/distributed.pipelining.html), [Megatron
# Core](https://docs.nvidia.com/megatron-core/developer-guide/latest/user-guide/features/pipeline_parallel_layout.html),
# [DeepSpeed](https://www.deepspeed.ai/tutorials/pipeline/))

# %% [markdown]
# ## What is different on GPUs?
#
# *Needs: section 6.* The cells of this chapter's world run on NCCL when there is a GPU for each rank. Kernels are queued, and
# messages travel on a stream of their own while the rank computes; so F and B of a chart need CUDA events to be measured.
# Section 6's bytes come from the ledger, which counts tensors; the allocator rounds up. Measure first: the time of a step with
# $m$ and with $2m$ micro-batches of the same size. They differ by $m$ units of work, with what a pass costs beside it; take
# this off the first step, and its bubble is left.
#
# ## Myths, and questions to check yourself
#
# *Needs: all.*
#
# **"1F1B has a smaller bubble than GPipe."** The same bubble, fewer live activations. What shrinks the bubble is more
# micro-batches, and those become affordable. Chapter 11 has schedules whose bubble is smaller.
#
# **"A pipeline is a kind of ZeRO."** Both store each layer once. With ZeRO 3 every rank computes every layer on its own
# samples, and weights travel. In a pipeline a rank computes its own layers for all samples, and activations travel.
#
# **"Passing activations makes model parallelism expensive."** One tensor for each boundary, of $b \cdot s \cdot h$
# numbers (section 2). What is expensive in a pipeline is waiting.
#
# **"Load balance needs dynamic scheduling."** Each step of training is the same work, so the cut and the order are fixed
# before it ("Which cut is the fastest?").
#
# <details><summary>A pipeline works with small test tensors on NCCL and hangs with the real model. What do you look for?</summary>
#
# Two neighbours that both send first. Small messages fit into a buffer, large ones wait for the receiver. Post the
# sends and receives of an exchange together with <code>batch_isend_irecv</code>.
# </details>
#
# <details><summary>16 GPUs on two nodes, a model whose state fits on 4 GPUs. One pipeline of 16 stages, or four of 4?</summary>
#
# Both work. With m micro-batches in all, one pipeline has a bubble of 15/m. Four pipelines have m/4 each, so 3/(m/4),
# which is 12/m, and they send activations over 3 boundaries in place of 15. They pay with four copies of the state,
# and with an all-reduce of the gradients once in each step.
# </details>
#
# <details><summary>Rank 0 runs out of memory under 1F1B, all other ranks have room. Why rank 0, and what would you
# do?</summary>
#
# It has the most live micro-batches, p of them, and the embedding. Give it fewer layers, recompute its activations, or
# take smaller micro-batches.
# </details>
#
# <details><summary>Loss curves of a pipeline and of one process look alike, but the gradient norm in the log is 16 times as
# large. What happened?</summary>
#
# The losses of 16 micro-batches were not divided by 16, and the optimizer is Adam, which hides a constant factor.
# Clipping by the norm is wrong, too.
# </details>
#
# ## Glossary
#
# {glossary}
#
# Next: chapter 11 asks whether the bubble can vanish.
