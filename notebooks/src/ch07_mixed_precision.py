# %% [markdown]
# # Chapter 7. Mixed precision: training in 16 bits
#
# **The question.** How do 16 bits train like 32?
#
# Builds on: chapter 3. Ranks: 4, and 8 in one section of Further. Time: 75 minutes for the core path; the sections of
# "Further" in any order, when you need them.
#
# | core path | what | minutes |
# |---|---|---|
# | 1. What do 16 bits break? | a GPT in fp16, with DDP and Adam | 4 |
# | 2. What can a format hold? | bits, range, precision | 6 |
# | 3. Where do small updates go? | master weights | 3, and exercise 1: 12 |
# | 4. Where do small gradients go? | loss scaling, and a run with and without it | 6, and exercise 2: 25 |
# | 5. Who decides about an overflow? | one rank sees it; the page | 5, and exercise 3: 10 |
# | 6. What does it save, and when to use it? | bytes, measured and counted; bf16 or fp16 | 4 |
#
# After it you know which numbers a format can hold, you have written a loss scaler like PyTorch's, and you can keep the
# ranks of a 16-bit run together.
#
# Why 16 bits at all? The matrix units of an H100 multiply 16-bit matrices 15 times as fast as its fp32 units do, and
# twice as fast as they do tf32 ([data sheet](https://www.nvidia.com/en-us/data-center/h100/)); activations take fewer
# bytes, and so do gradients that are sent in 16 bits. **On a CPU none of that speed shows.** Here 16 bits teach
# numerics: what is lost, and how to keep it.

# %% jupyter={"source_hidden": true}
# %load_ext dtlearn
import torch

import dtlearn
from dtlearn.mixed_precision import BF16, FORMATS, FP16
from dtlearn.viz import gradient_histograms, rank_table, show

torch.set_num_threads(1)  # small tensors: more threads would only wait for each other
world = dtlearn.world(4)
world

# %% [markdown]
# # The core path
#
# ## 1. What do 16 bits break?
#
# PyTorch can turn a whole model into float16, **fp16** for short, with one call: `model.half()`. The gradients and the
# state of the optimizer are then in fp16, too. Four ranks train a small GPT with DDP and Adam (chapter 3), once in fp32
# and once like that. The folded cell gives the ranks `fresh_model(dtype)`, the same model each time, and
# `batches(steps)`, each rank's part of the data.

# %%
halved = dtlearn.predict.choice(
    "The same GPT, data, learning rate and Adam, but model, gradients and optimizer "
    "state in fp16. How do the losses compare with those in fp32?",
    {
        "A": "They agree to two or three digits.",
        "B": "The loss falls more slowly.",
        "C": "After the first step the loss is NaN.",
    },
    id="ch07.halved",
)

# %% jupyter={"source_hidden": true}
# %%ranks --setup
from torch.nn.parallel import DistributedDataParallel

from dtlearn.models import GPT, GPTConfig, load_corpus, next_token_loss

corpus = load_corpus()


def fresh_model(dtype=torch.float32):
    torch.manual_seed(0)
    return GPT(GPTConfig(num_layers=1)).to(device, dtype)


def batches(steps):
    for x, y in corpus.batches(steps, 16, 32):
        yield x[rank::world_size].to(device), y[rank::world_size].to(device)


# %%
# %%ranks -o naive
def train(dtype, steps=4):
    """Losses of this rank."""
    model = DistributedDataParallel(fresh_model(dtype))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    losses = []
    for x, y in batches(steps):
        optimizer.zero_grad()
        loss = next_token_loss(model(x), y)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


{str(dtype)[6:]: train(dtype) for dtype in (torch.float32, torch.float16)}

# %% jupyter={"source_hidden": true}
halved.reveal()

# %% jupyter={"source_hidden": true}
rank_table(
    [
        {
            "step": step,
            **{name: f"{losses[step]:.2f}" for name, losses in naive[0].items()},
        }
        for step in range(4)
    ],
    caption="Loss of rank 0, with Adam",
)

# %% [markdown]
# Nothing raised an error. Let us look at the first step of the fp16 run: at the gradients $g$, and at Adam's $v$, a
# running mean of their squares, which is $0.001\,g^2$ after one step.
#
# The picture counts both by size, in powers of two; what is red becomes 0 in fp16. (Gradients that the backward pass
# has already lost are not in it.)

# %%
# %%ranks -o first_step
from dtlearn.mixed_precision.measure.gradients import log2_histogram

model = DistributedDataParallel(fresh_model(torch.float16))
x, y = next(batches(1))
next_token_loss(model(x), y).backward()
g = torch.cat([p.grad.float().flatten() for p in model.parameters()])
{"g": log2_histogram(g), "v": log2_histogram(0.001 * g * g)}

# %% jupyter={"source_hidden": true}
show(
    gradient_histograms(
        first_step[0],
        FP16,
        scales=(0,),
        ranges=(FORMATS["fp32"], FP16),
        title="Adam squares the gradients, and fp16 loses the squares",
        label="the first step of the fp16 run above, all parameters of rank 0",
    ),
    alt="Two histograms over powers of two. The gradients g lie between about 2 to the "
    "-21 and 2 to the -4. Adam's v lies far below, between 2 to the -49 and 2 to the -18, "
    "and nearly nine tenths of it become 0 in fp16. Below, the ranges of fp32, "
    "which goes on at both ends, and of fp16.",
)

# %% [markdown]
# Adam divides by $\sqrt v + \epsilon$. In fp16 most of the $v$ are 0, and so is the default $\epsilon = 10^{-8}$, which
# is there to prevent a division by 0:

# %%
print("1e-8 in fp16:", torch.tensor(1e-8).half().item())

# %% [markdown]
# So three things need a closer look: which numbers a format holds, how weights take small updates, and how small
# gradients survive the backward pass.
#
# ## 2. What can a format hold?
#
# The bits of a floating-point number are a sign $s$, an **exponent** field $e$ and a **mantissa** $m$ of $M$ bits, both
# read as whole numbers. With the **bias** $b = 2^{E-1} - 1$, for $E$ exponent bits, they stand for
#
# $$(-1)^s\; 2^{e-b}\,\Big(1 + \frac m{2^M}\Big)$$
#
# The exponent decides the **range**, the mantissa the **precision**. If the exponent field is 0, the leading 1 is
# missing and the number is **subnormal**: $(-1)^s\,2^{1-b}\,m/2^M$. If all its bits are 1, the number is infinity or
# NaN. All numbers from 0 up of a made-up format with 3 exponent bits and 2 mantissa bits, so $b = 3$:
#
# | exponent field | m = 0 | m = 1 | m = 2 | m = 3 | distance |
# |---|---|---|---|---|---|
# | 0, subnormal | 0 | 1/16 | 2/16 | 3/16 | 1/16 |
# | 1 | 4/16 | 5/16 | 6/16 | 7/16 | 1/16 |
# | 2 | 1/2 | 5/8 | 6/8 | 7/8 | 1/8 |
# | 3 | 1 | 1.25 | 1.5 | 1.75 | 1/4 |
# | 4 | 2 | 2.5 | 3 | 3.5 | 1/2 |
# | 5 | 4 | 5 | 6 | 7 | 1 |
# | 6 | 8 | 10 | 12 | 14 | 2 |
# | 7 | infinity | NaN | NaN | NaN | |
#
# From row 2 on, each row has as many numbers as the one above, over twice the length: the *relative* distance stays
# about the same.
#
# The widget shows the bits of a number in the formats of deep learning. Move the slider, or type any number, such as
# `0.3`, `2^-24` or `inf`. **bf16** (bfloat16) is the upper half of an fp32 number. **tf32** is what an NVIDIA GPU can
# round fp32 inputs to when it multiplies matrices. (fp8 e4m3 has no infinity; both 8-bit formats are for Further.)

# %% jupyter={"source_hidden": true}
from dtlearn.notebook.panels import Slider, slider_panel
from dtlearn.viz import number_bits
from dtlearn.viz.mixed_precision.number_bits import typed_number

numbers = (-2.5, 2e-8, 1e-7, 1e-5, 0.001, 0.1, 1.0, 1.001, 3.14159, 257, 449, 65504)
numbers += (65520, 70000, 1e30)
slider_panel(
    lambda value: number_bits(value, list(FORMATS.values())),
    alt="The number 0.1 in six formats, as boxes for the sign, the exponent and the "
    "mantissa. fp32 holds it to within 1.5e-06 percent, tf32 and fp16 to within 0.024, "
    "bf16 to within 0.098, fp8 e4m3 to within 1.6 and fp8 e5m2 to within 6.3 percent.",
    value=Slider(numbers, 0.1, "number", read=typed_number),
)

# %%
between = dtlearn.predict(
    "bf16 has 7 mantissa bits. How many numbers x with 1 <= x < 2 does it have?",
    id="ch07.between",
)

# %% jupyter={"source_hidden": true}
one_to_two = torch.arange(2**16).to(torch.uint16).view(torch.bfloat16).float()
between.reveal(int(((one_to_two >= 1) & (one_to_two < 2)).sum()))

# %% [markdown]
# fp16 and bf16 fail in opposite ways. fp16 reaches only from 6e-8 to 65,504; bf16 has the range of fp32, but only
# between two and three decimal digits.
#
# A number that a format does not hold is **rounded** to the nearest one it has. If two are equally near, the one whose
# last mantissa bit is 0 is taken (**ties to even**). In bf16, whose numbers between 256 and 512 are 2 apart, 257.5
# becomes 258, and 257 becomes 256: a tie.
#
# ## 3. Where do small updates go?
#
# A training step changes a weight by little, often by a thousandth of its size or less.

# %%
thousand_updates = dtlearn.predict(
    "A bf16 weight is 1.0. It gets 1,000 updates of +0.001, and is rounded to bf16 "
    "after each. What is it at the end?",
    id="ch07.thousand_updates",
)

# %%
from dtlearn.mixed_precision.measure import small_updates

kept = small_updates.weight_trajectories(num_steps=1000, update=0.001, fmt=BF16)

# %% jupyter={"source_hidden": true}
thousand_updates.reveal(kept["nearest"][-1])

# %% [markdown]
# The remedy of Micikevicius et al. (2018, arXiv 1710.03740) is **master weights**: the optimizer keeps an fp32 copy of
# every 16-bit weight, adds the updates there, and rounds the copy into the model after each step. By hand, for a weight
# near 1, where bf16 numbers are 1/128 apart, and updates of 1/512:
#
# | after step | exact | bf16 alone | master, fp32 | weight of the model |
# |---|---|---|---|---|
# | 1 | 1 + 1/512 | 1 | 1 + 1/512 | 1 |
# | 2 | 1 + 2/512 | 1 | 1 + 2/512 | 1 (a tie) |
# | 3 | 1 + 3/512 | 1 | 1 + 3/512 | 1 + 1/128 |
#
# **Exercise 1.** A step with master weights.

# %% exercise="ch07.master_weights"

# %% [markdown]
# The package's `MasterWeights` wraps any optimizer of torch. Its `step()` calls the first function below (unless you
# did so before, to clip gradients in fp32), then the wrapped optimizer's `step()`, then the second function. `pairs`
# are the model's parameters and their masters:

# %%
from dtlearn.mixed_precision import MasterWeights

dtlearn.show_source(
    MasterWeights.copy_gradients_to_masters,
    docstring=False,
    summary="The package's own: before the optimizer's step",
)
dtlearn.show_source(
    MasterWeights.copy_masters_to_model,
    docstring=False,
    summary="The package's own: after the optimizer's step",
)

# %% [markdown]
# ## 4. Where do small gradients go?
#
# Master weights do not help if a gradient is 0 before it reaches the optimizer. In the backward pass, gradients of
# **activations** go from layer to layer in 16 bits. They are small. A batch that is too large for memory goes through
# the model in parts, **micro-batches**, whose gradients add up before the step. The loss is a mean over the tokens of
# all of them, so each token's gradient is divided by their number: by $2^{16}$ for 64 micro-batches of 1,024 tokens.
# The smallest number above 0 that fp16 holds is $2^{-24}$. A number half as large, $2^{-25}$, becomes 0.

# %%
vanish = dtlearn.predict.choice(
    "A GPT of 4 blocks, trained for some steps, accumulates 64 micro-batches of 1,024 "
    "tokens each. What share of the activations' gradients becomes 0 in fp16?",
    {
        "A": "hardly any, below 5 percent: fp16's range is made for this",
        "B": "between a quarter and three quarters",
        "C": "nearly all, above 95 percent: the model cannot train at all",
    },
    id="ch07.vanish",
)

# %%
from dtlearn.mixed_precision.measure import gradients

found = gradients.gpt_gradients(num_microbatches=64)
all_of_them = torch.cat([g.flatten() for g in found.activations.values()])
unscaled = gradients.shares_in(all_of_them, FP16)
scaled = gradients.shares_in(all_of_them, FP16, scale=2.0**16)

# %% tags=["nbval-ignore-output"] jupyter={"source_hidden": true}
vanish.reveal(
    zero=100 * unscaled.zero,
    subnormal=100 * unscaled.subnormal,
    scaled=100 * scaled.zero,
)

# %% tags=["nbval-ignore-output"] jupyter={"source_hidden": true}
shown = {
    "block 0, query": "blocks.0.attention.query",
    "block 0, value": "blocks.0.attention.value",
    "block 0, feed-forward up": "blocks.0.feed_forward.up",
    "block 3, feed-forward down": "blocks.3.feed_forward.down",
    "head": "head.projection",
}
show(
    gradient_histograms(
        {
            name: gradients.log2_histogram(found.activations[layer])
            for name, layer in shown.items()
        },
        FP16,
        scales=(0, 16),
        ranges=(BF16, FP16),
        title="A loss scale moves the gradients into the range of fp16",
        label="GPT of 4 blocks, 64 x 1,024 tokens",
    ),
    alt="Histograms of the gradients of 5 layers' outputs over powers of two, twice. Not "
    "scaled, nearly all of the gradients of queries become 0 in fp16, more than half of "
    "those of values, a third to a half in the feed-forward layer that goes up, one or two "
    "percent in the others; the rest is mostly subnormal. With the loss times 65,536, at "
    "most one percent becomes 0, and most are normal. Below, the ranges of bf16 and fp16.",
)

# %% [markdown]
# The formats are the same in both columns; the gradients have moved. **Loss scaling** multiplies the loss by $S$ before
# `backward()`. By the chain rule every gradient is then $S$ times as large. Before the optimizer's step they are
# divided by $S$, in fp32. By hand, for one gradient:

# %%
g, S = 2.0**-27, 2.0**16
print("g in fp16:            ", torch.tensor(g).half().item())
print("g * S in fp16:        ", torch.tensor(g * S).half().item())
print("divided by S, in fp32:", torch.tensor(g * S).half().float().item() / S, "=", g)
print("divided by S, in fp16:", (torch.tensor(g * S).half() / S).item())

# %% [markdown]
# How large should $S$ be? Too small, and gradients vanish. Too large, and they overflow, and the step has to be
# skipped. So **dynamic loss scaling** looks for the value: start high (65,536), halve $S$ and skip the step when a
# gradient is infinite or NaN, and double it after 2,000 steps in a row without that. With $S = 8$, growth after 2
# good steps, and an overflow in step 2:
#
# | step | S | gradients | the optimizer | good steps in a row | next S |
# |---|---|---|---|---|---|
# | 1 | 8 | finite | steps | 1 | 8 |
# | 2 | 8 | infinite | skips | 0 | 4 |
# | 3 | 4 | finite | steps | 1 | 4 |
# | 4 | 4 | finite | steps | 2, so 0 again | 8 |
#
# **Exercise 2.** A dynamic loss scaler.

# %% exercise="ch07.loss_scaler"

# %% [markdown]
# The package's `GradScaler` has the protocol of `torch.amp.GradScaler`, and in hundreds of scripted runs, with
# overflows at random steps, its scale and its skipped steps are those of torch's. (Its code follows in section 5, on
# one page.)
#
# Does the scale matter? Each rank trains the same GPT by itself, with weights and optimizer in fp32 and the linear
# layers in a format of its own: fp32, bf16, fp16 with dynamic scaling, fp16 without. The batch has 1,024 identical
# micro-batches, so that a step is computed once, and its gradients are as small as those of half a million tokens.

# %%
# %%ranks -o curves
from dtlearn.mixed_precision.measure.loss_curves import KINDS, train_curve

train_curve(KINDS[rank], 60)

# %% tags=["nbval-ignore-output"] jupyter={"source_hidden": true}
from dtlearn.viz.mixed_precision.loss_curves import loss_curves as draw_losses

by_kind = {curve.kind: curve for curve in curves}
show(
    draw_losses(
        {
            kind: by_kind[kind].losses
            for kind in ("fp32", "bf16", "fp16", "fp16 unscaled")
        },
        title="Without a loss scale fp16 trains worse",
        label="1,024 x 512 tokens",
    ),
    alt="Losses over 60 steps. fp16 with loss scaling and bf16, which has no scale, lie on "
    "fp32. fp16 without scaling falls too, but more slowly, and stays well above.",
)

# %% [markdown]
# The run without a scale does not fail loudly. Its loss falls, only more slowly: layers whose gradients vanish learn
# little or nothing while the others train. From its loss curve alone you would not see that anything is wrong.
#
# **bf16** needed no scale at all: it has the range of fp32 (Kalamkar et al. 2019, arXiv 1905.12322). But it has less
# precision, 8 bits with the leading 1, where fp16 has 11. That is enough for products and activations, and not where
# small numbers are added to large ones: weights (section 3), and sums over many ranks (Further).
#
# ## 5. Who decides about an overflow?
#
# With DDP all ranks have the same averaged gradients: if one gradient is infinite on any rank, the mean is infinite
# or NaN on all, and every rank skips. So DDP needs no call for it. It is different when ranks hold **different
# parameters**, as in chapters 9, 10 and 12. Then an overflow may be visible on one of them only.

# %% jupyter={"source_hidden": true}
from dtlearn.viz import overflow_boxes

show(
    overflow_boxes(
        [
            {"parameters of its own": "finite", "a copy of v": "finite"},
            {"parameters of its own": "inf", "a copy of v": "finite"},
        ],
        title="Step 1: only rank 1 sees an overflow",
        label="two ranks hold different parameters, and each a copy of v",
    ),
    alt="Two boxes. Rank 0 holds parameters of its own and a copy of v; both have finite "
    "gradients. Rank 1 holds the same kinds of things; the gradient of its own parameters is "
    "infinite, that of its copy of v is finite.",
)

# %%
one_overflow = dtlearn.predict.choice(
    "The two ranks of the picture add up their gradients of v in every step, so both have the "
    "same. In step 1 only rank 1's own part overflows. Each rank has a GradScaler of its own. "
    "What happens?",
    {
        "A": "The job hangs: one rank waits for the other.",
        "B": "Nothing visible; the copies of v differ from then on.",
        "C": "Rank 1 misses one step, and later steps make the copies equal again.",
    },
    id="ch07.one_overflow",
)

# %%
from dtlearn.mixed_precision.loss_scaling import drift

alone = dtlearn.run_ranks(drift.train_on_rank, 2, False).values  # each rank by itself
agreed = dtlearn.run_ranks(drift.train_on_rank, 2, True).values  # one decision for both

# %% jupyter={"source_hidden": true}
one_overflow.reveal()

# %% jupyter={"source_hidden": true}
from dtlearn.viz import rank_drift

show(
    rank_drift(
        [[step.scale for step in steps] for steps in alone],
        [[step.was_skipped for step in steps] for steps in alone],
        {
            "each rank by itself": drift.differences(alone),
            "agreed": drift.differences(agreed),
        },
        title="One rank skips, the other steps",
        label="loss scales on the left: of the run in which each rank decides by itself",
    ),
    alt="Left: rank 1 skips the first step and has the loss scale 4 from then on; rank 0 "
    "keeps 8. Right: the ranks' copies of a weight are 0.94 apart after the first step and "
    "1.03 after twelve; with agreement they are equal.",
)

# %% [markdown]
# From the second step on rank 0 scales by 8 and rank 1 by 4: a gradient summed over both adds numbers of different
# scales. Here the failure is silent. If `optimizer.step()` itself communicates, the rank that skips it leaves the
# others waiting, and the job hangs, as in this [report](https://github.com/facebookresearch/fairscale/pull/179).
#
# So all ranks have to decide alike: if **any** of them has an overflow, all skip, and all lower their scale.
#
# | | rank 0 | rank 1 | rank 2 |
# |---|---|---|---|
# | own gradients | finite | infinite | finite |
# | each by itself | steps, S | skips, S / 2 | steps, S |
# | together | skips, S / 2 | skips, S / 2 | skips, S / 2 |
#
# **Exercise 3.** Agree on an overflow.

# %% exercise="ch07.agree_on_overflow"

# %% [markdown]
# The remedy costs 4 bytes: the ranks take the maximum of their overflow flags. So do libraries that divide a model
# over the ranks (Further). This page has everything of sections 4 and 5: scale, unscale, look for an overflow on all
# ranks, step or skip, update. It answers exercises 2 and 3:

# %%
from dtlearn.mixed_precision import page_grad_scaler

dtlearn.show_source(page_grad_scaler, summary="page_grad_scaler.py, the whole file")

# %% [markdown]
# `GradScaler(group=...)` computes the same, to the last bit. Here both train on 4 ranks, each of which has a weight
# of its own. In step 3 only rank 2 overflows:

# %%
# %%ranks
from dtlearn.mixed_precision import GradScaler
from dtlearn.mixed_precision.page_grad_scaler import DynamicGradScaler

histories = []
for scaler in (
    DynamicGradScaler(8.0, growth_interval=2),
    GradScaler(8.0, growth_interval=2, group=dist.group.WORLD),
):
    weight = torch.nn.Parameter(torch.full((4,), 1.0 + rank, device=device))
    optimizer, history = torch.optim.AdamW([weight], lr=0.1), []
    for step in range(1, 7):
        optimizer.zero_grad()
        too_large = step == 3 and rank == 2
        scaler.scale((weight * (2.5e37 if too_large else step)).sum()).backward()
        scaler.step(optimizer)
        scaler.update()
        history.append(weight.detach().clone())
    histories.append(torch.stack(history))
unchanged = [n + 1 for n in range(1, 6) if torch.equal(history[n], history[n - 1])]
same = torch.equal(*histories)
print(f"equal to the last bit: {same}; skipped: step {unchanged}")

# %% [markdown]
# `GradScaler` adds several optimizers with a decision each; ranks that decide for themselves, as with DDP; losses in
# lists and other kinds of gradients; the state for a checkpoint; and errors that say what to do.
#
# ## 6. What does it save, and when to use it?

# %%
states = dtlearn.predict.choice(
    "A model is trained with Adam, whose two moments are in fp32. Now its weights and "
    "gradients become 16-bit numbers, and each weight gets an fp32 master. What do weights, "
    "gradients, masters and moments take together, compared with fp32?",
    {
        "A": "half",
        "B": "three quarters",
        "C": "the same",
        "D": "more",
    },
    id="ch07.states",
)

# %% jupyter={"source_hidden": true}
states.reveal()

# %% [markdown]
# What shrinks are **activations**, which forward keeps for backward. How much depends on the way to mix formats.
# Either the model is in 16 bits and has masters (section 3). Or its weights stay in fp32, and **autocast**
# (`torch.autocast`, in Further) casts the inputs of each matrix product to 16 bits:

# %% jupyter={"source_hidden": true}
import contextlib

from dtlearn.memory.arithmetic.kept_tensors import kept_tensors
from dtlearn.models import GPT, GPTConfig, load_corpus, next_token_loss

corpus = load_corpus()


def bytes_kept(samples, dtype, context):
    """Of the storages that autograd keeps for backward, without the parameters."""
    x, y = next(corpus.batches(1, samples, 64))
    torch.manual_seed(0)
    model = GPT(GPTConfig(hidden_size=128)).to(dtype)
    with context:
        kept = kept_tensors(lambda: next_token_loss(model(x), y), model, x, y)
    return sum(tensor.bytes for tensor in kept)


rows, whole = [], {}
for name, dtype, context in (
    ("fp32", torch.float32, contextlib.nullcontext),
    ("autocast, bf16", torch.float32, lambda: torch.autocast("cpu")),
    ("bf16 weights, fp32 masters", torch.bfloat16, contextlib.nullcontext),
):
    row = {"training in": name}
    for samples in (8, 64):
        total = bytes_kept(samples, dtype, context())
        in_fp32 = whole.setdefault(samples, total)  # fp32 comes first
        row[f"{samples} sequences"] = (
            f"{total / 1e6:.1f} MB, {100 * total / in_fp32:.0f} %"
        )
    rows.append(row)
rank_table(
    rows, caption="Kept for backward: GPT with 0.8 million parameters, 64 tokens each"
)

# %% [markdown]
# Half if the model is in 16 bits; about two thirds with autocast. There the inputs of the norms stay in fp32; query,
# key and value each keep a 16-bit copy of the same input, as autocast remembers casts of weights only; and the cast
# weights are kept, too, which count most when tokens are few.
#
# | | mixed precision, in place of fp32 |
# |---|---|
# | matrix products | on a GPU's matrix units, 2 times as fast as tf32 |
# | activations | half to three quarters |
# | weights, gradients, masters, moments | the same bytes, with fp32 masters and moments |
# | an all-reduce of gradients | half the bytes if they are *sent* in 16 bits; the same with autocast, or when they are reduced in fp32 |
#
# Chapter 8 counts all of that, and chapter 9 shards what does not shrink.
#
# **When to use it.**
#
# - **bf16**, if the hardware has it: autocast, or 16-bit weights with fp32 masters. No scaler.
# - **fp16** on older GPUs (V100, T4): always with a scaler, and with one decision for all ranks that hold parts of a
#   model.
# - **Sums** in fp32: norms, softmax and losses, and the reduction of gradients over many ranks.
# - On a CPU, or in a small model that waits for memory and not for products, expect no speed.

# %% [markdown]
# # Further
#
# Each section needs the core path's sections that its first line names, and nothing else of Further unless it says so.
# In a new session run the first code cell and section 1's cell for the ranks again, both folded, and the cells of the
# sections that are needed.
#
# | section | needs | exercise: minutes |
# |---|---|---|
# | What are the limits of a format? | section 2 | 4: 12 |
# | How are bits rounded? | section 2 | 5: 15 |
# | Which other ways keep small updates? | section 3 | |
# | What does the scale do over a run? | section 4 | |
# | How is a scaled gradient clipped? | sections 4 and 5 | 6: 15 |
# | How does one accumulate with a scale? | section 4; chapter 3, "How does one accumulate gradients?" | 7: 12 |
# | In which order, and format, is a mean taken? | section 2; chapters 2 and 3 | |
# | How does autocast decide? | sections 4 and 6 | |
# | What about 8 bits, and 4? | sections 2 and 4 | |
# | Where do the libraries do it? | sections 3 to 5, and "In which order, and format, is a mean taken?"; the cell: chapter 9 | |
# | What must a skipped step not move? | section 4 | |
# | Find three bugs | sections 4 and 5, and "How is a scaled gradient clipped?" | 8: 25 |
# | What is different on GPUs? | sections 4 and 6, and "How does autocast decide?" | |
# | Myths, and questions to check yourself | the core path, and what each names | |
#
# ## What are the limits of a format?
#
# *Needs: section 2.*
#
# **Exercise 4.** Compute the limits of a format from its bits.

# %% exercise="ch07.format_limits"

# %% [markdown]
# The package has the four as properties, and its tests compare them with `torch.finfo`. Here are two of them, folded,
# as they answer the exercise:

# %%
from dtlearn.mixed_precision import formats

dtlearn.show_source(
    formats.Format.largest.fget, docstring=False, summary="The package's own: largest"
)
dtlearn.show_source(
    formats.Format.smallest_subnormal.fget,
    docstring=False,
    summary="The package's own: smallest_subnormal",
)

# %% jupyter={"source_hidden": true}
rank_table(
    [
        {
            "format": fmt.name,
            "exponent bits": fmt.exponent_bits,
            "mantissa bits": fmt.mantissa_bits,
            "largest": f"{fmt.largest:.4g}",
            "smallest normal": f"{fmt.smallest_normal:.2g}",
            "smallest subnormal": f"{fmt.smallest_subnormal:.2g}",
            "from 1 to the next": f"{fmt.epsilon:.2g}",
        }
        for fmt in FORMATS.values()
    ],
    caption="fp16 has a small range and bf16 few digits",
)

# %% [markdown]
# ## How are bits rounded?
#
# *Needs: section 2.* Ties in bf16:
#
# | x | between | last mantissa bits | becomes |
# |---|---|---|---|
# | 1 + 1/512 | 1 and 1 + 1/128 | 0 and 1 | 1, the nearer one |
# | 1 + 1/256 | 1 and 1 + 1/128 | 0 and 1 | 1: a tie, and 0 is even |
# | 1 + 3/256 | 1 + 1/128 and 1 + 2/128 | 1 and 0 | 1 + 2/128: a tie, the other way |
#
# **Exercise 5.** Round fp32 to bf16, by arithmetic on the bits.

# %% exercise="ch07.round_to_bf16"

# %% [markdown]
# The package's version rounds to any format, by arithmetic on the numbers. `_in_steps` returns x in fp64 and the step,
# the distance between the format's numbers near x; `_overflow` replaces what is beyond the largest number. The result
# is equal to torch's casts bit for bit:

# %%
from dtlearn.mixed_precision import rounding

dtlearn.show_source(
    rounding.round_to_nearest_even, docstring=False, summary="The package's own"
)

# %% [markdown]
# ## Which other ways keep small updates?
#
# *Needs: section 3.* There are two alternatives to masters. **Stochastic rounding** rounds up or down at random, with
# probabilities that make the mean right (Gupta et al. 2015, arXiv 1502.02551). **Compensated updates** keep what
# rounding took away in a second 16-bit number, and add it at the next step (Kahan 1965). Zamirai et al. (2020, arXiv
# 2010.06192) train with both. All four on the weight of section 3's prediction:

# %% jupyter={"source_hidden": true}
from dtlearn.viz.mixed_precision.small_updates import small_updates as draw_updates

names = {
    "nearest": "rounded to nearest",
    "by chance": "stochastic rounding",
    "compensated": "compensated",
    "master": "master, rounded to bf16",
}
show(
    draw_updates(
        {names[way]: values for way, values in kept.items()},
        0.001,
        title="In bf16 alone the weight does not move",
        label="1,000 updates of 0.001, simulated",
    ),
    alt="A weight over 1,000 updates. Rounded to nearest it stays at 1. Master weights and "
    "compensated updates follow the exact sum to 2. With stochastic rounding it follows with "
    "noise, and ends at 1.87.",
)

# %% [markdown]
# The line of stochastic rounding wanders: its mean over many weights is exact, a single weight is noisy. Now a real
# model. Each rank trains the same GPT in bf16, on the same data, and updates it in a different way. The learning rate
# of 1e-5 is small, but common in fine-tuning.

# %%
# %%ranks -o ways
from dtlearn.mixed_precision import (
    CompensatedUpdate,
    MasterWeights,
    RoundedUpdate,
    StochasticUpdate,
)

way = (RoundedUpdate, MasterWeights, StochasticUpdate, CompensatedUpdate)[rank]
model = fresh_model(torch.bfloat16)
before = torch.cat([p.detach().flatten() for p in model.parameters()])
optimizer = way(model.parameters(), torch.optim.AdamW, lr=1e-5)
for x, y in corpus.batches(20, 16, 32):  # the same on every rank
    optimizer.zero_grad()
    next_token_loss(model(x.to(device)), y.to(device)).backward()
    optimizer.step()
after = torch.cat([p.detach().flatten() for p in model.parameters()])
moved = (after != before).float().mean().item()
x, y = next(corpus.batches(1, 64, 32, seed=1))
with torch.no_grad():
    loss = next_token_loss(model(x.to(device)).float(), y.to(device)).item()
way.__name__, moved, loss

# %% tags=["nbval-ignore-output"] jupyter={"source_hidden": true}
rank_table(
    [
        {
            "rank": r,
            "optimizer": name,
            "weights that moved": f"{100 * moved:.0f} %",
            "loss on other text": f"{loss:.3f}",
            "more bytes per parameter": {
                "RoundedUpdate": "0",
                "MasterWeights": "4, the master",
                "StochasticUpdate": "0",
                "CompensatedUpdate": "2, the compensation",
            }[name],
        }
        for r, (name, moved, loss) in enumerate(ways)
    ],
    caption="bf16 GPT after 20 steps of AdamW, lr 1e-5",
)

# %% [markdown]
# With plain rounding the small weights move and the large ones stay where they were, whatever their gradients say. (The
# package keeps Adam's moments in fp32 in all four. torch's own AdamW keeps them in the format of the weights.)
#
# So "mixed precision takes 16 bytes per parameter, as fp32 does" is true with fp32 masters and moments only.
# Stochastic rounding comes to 2 + 2 + 8 = 12, compensated updates to 2 + 2 + 2 + 8 = 14; and DeepSeek-V3 keeps both
# moments in bf16 (arXiv 2412.19437, section 3.3.3).
#
# ## What does the scale do over a run?
#
# *Needs: section 4.* The fp16 run of section 4 again, with a scale that starts much too high, at $2^{32}$, and doubles
# after 8 good steps instead of 2,000.

# %%
from dtlearn.mixed_precision.measure import loss_curves

run = loss_curves.train_curve("fp16", 40, init_scale=2.0**32, growth_interval=8)

# %% tags=["nbval-ignore-output"] jupyter={"source_hidden": true}
from dtlearn.viz import loss_scale

show(
    loss_scale(
        run.scales,
        run.skipped,
        title="A skipped step halves the scale, 8 good steps double it",
        label="1,024 x 512 tokens, fp16",
    ),
    alt="The loss scale over 40 steps, as stairs: it falls from 2 to the 32 by skipped "
    "steps at the start, then rises after every 8 good steps, and falls again when a "
    "step overflows.",
)

# %% [markdown]
# The first five steps overflow and are skipped. From then on the scale stays near the largest value that fits, and
# one that is too large costs a step. A scale that is just large enough would do as well, so PyTorch's defaults are
# a lower start, 65,536, and one doubling after 2,000 good steps.
#
# ## How is a scaled gradient clipped?
#
# *Needs: sections 4 and 5.* **Gradient clipping** makes the gradient shorter if its norm is above a limit. Two things
# can go wrong with it here. A scaled gradient is $S$ times too long, so it must be **unscaled first**:

# %%
from dtlearn.mixed_precision import GradScaler

for order in ("clip, then unscale", "unscale, then clip"):
    weight = torch.nn.Parameter(torch.zeros(4))
    optimizer = torch.optim.SGD([weight], lr=1.0)
    scaler = GradScaler(init_scale=2.0**16)
    scaler.scale((3 * weight).sum()).backward()  # the gradient is 3, 3, 3, 3: norm 6
    if order.startswith("unscale"):
        scaler.unscale_(optimizer)
    torch.nn.utils.clip_grad_norm_([weight], max_norm=1.0)
    scaler.step(optimizer)
    print(f"{order}: the step has length {weight.norm().item():.1e}; the limit is 1")

# %% [markdown]
# And a rank that holds a part of the model knows only the norm of its part: squares add up over ranks, norms do not.
#
# **Exercise 6.** Clip over ranks.

# %% exercise="ch07.clip_over_ranks"

# %% [markdown]
# The package's norm is below. The caller says which parameters count on this rank, those that every rank has on one of
# them only, and over the ranks of which groups powers are added up. `norm_type` is 2 for the usual norm.

# %%
from dtlearn.sharing import clipping

dtlearn.show_source(clipping.global_norm, docstring=False, summary="The package's own")

# %% [markdown]
# ## How does one accumulate with a scale?
#
# *Needs: section 4; chapter 3, "How does one accumulate gradients?"* With gradient accumulation one step has several
# backward passes, whose gradients add up. So all of them need the **same** scale. Of scaling the loss, unscaling,
# deciding and updating: what comes once per micro-batch, and what once per step?
#
# **Exercise 7.** Accumulate with a scaler.

# %% exercise="ch07.accumulate_with_scaling"

# %% [markdown]
# `update()` comes once per step: a scale that changed between two micro-batches would add up gradients of different
# scales. Unscaling and the decision to skip come once too, after the last micro-batch. Nothing has to be sent for them:
# DDP's averaged gradients are the same on all ranks, and an infinity on one rank makes them infinite or NaN on all.

# %% [markdown]
# ## In which order, and format, is a mean taken?
#
# *Needs: section 2; chapters 2 and 3.* Gradients sent in 16 bits take half the bytes. The mean over $N$ ranks is a
# sum and a division, and in 16 bits their order matters. Chapter 3 divided before the sum; one can as well divide
# after it, or by about $\sqrt N$ before and again after it.
#
# Here are gradients of a GPT for 384 ranks, averaged in each way. A row is a size of the gradients (all multiplied by
# $2^{-12}$, 1 or $2^{16}$) and a format to add in. An entry is the relative error of the mean, against fp64; where
# elements of the mean became 0, infinite or NaN, it says how many. (Simulated in one process, with the additions in
# the order of a ring.)

# %% tags=["nbval-ignore-output"] jupyter={"source_hidden": true}
from dtlearn.mixed_precision import per_rank_gradients, simulate_average

rows, of_ranks = [], per_rank_gradients(384, numel=1024)
for scale in (2.0**-12, 1.0, 2.0**16):
    exact = (of_ranks * scale).double().mean(0)
    for dtype in (torch.float16, torch.bfloat16):
        row = {
            "gradients times": {2.0**-12: "2^-12", 1.0: "1"}.get(scale, "2^16"),
            "format": str(dtype)[6:],
        }
        for when in ("before", "after", "both"):
            mean = simulate_average(of_ranks * scale, when, dtype)
            lost = ((mean == 0) & (exact != 0)).float().mean().item()
            over = (~mean.isfinite()).float().mean().item()
            error = (mean.double() - exact).norm() / exact.norm()
            bad = f"{100 * over:.0f} % infinite or NaN"
            row[f"divide {when}"] = bad if over else f"error {100 * error.item():.1f} %"
            row[f"divide {when}"] += f", {100 * lost:.0f} % are 0" if lost > 0.005 else ""
        rows.append(row)
rank_table(rows, caption="Mean over 384 ranks, against fp64")

# %% [markdown]
# Divide first, and small gradients lose their last bits or vanish; sum first, and large ones overflow, both in fp16
# only. Dividing twice does almost as well as the better of the two; FSDP2 does so in fp16. In bf16 the
# range is no problem, but the error is about ten times what fp16 has within its range.

# %%
orders = dtlearn.predict.choice(
    "The sum over 1,024 ranks in bf16. Which algorithm has the smallest error?",
    {
        "A": "the ring: each rank adds its part to one running sum",
        "B": "the tree: sums of two are added, then sums of four, and so on",
        "C": "no difference: both make 1,023 additions for each element",
    },
    id="ch07.orders",
)

# %%
from dtlearn.mixed_precision import error_by_ranks, sum_on_rank
from dtlearn.mixed_precision.reduction import rounding_error

summands = per_rank_gradients(1024, numel=1024).to(torch.bfloat16)
ranks = [2**k for k in range(1, 11)]
simulated = error_by_ranks(summands, torch.bfloat16, ranks)
measured = {}
for n in (2, 4, 8):  # chapter 2's algorithms, on real ranks
    sums = dtlearn.run_ranks(sum_on_rank, n, summands[:n])[0]
    for name, result in sums.items():
        error = rounding_error.sum_error(result, summands[:n])
        measured.setdefault(name, {})[n] = error.relative

# %% jupyter={"source_hidden": true}
orders.reveal(
    ring=100 * simulated["ring"][1024].relative,
    tree=100 * simulated["tree"][1024].relative,
    kept=simulated["ring"][1024].kept,
)

# %% tags=["nbval-ignore-output"] jupyter={"source_hidden": true}
from dtlearn.viz import reduction_error

show(
    reduction_error(
        {
            name: {n: error.relative for n, error in by_ranks.items()}
            for name, by_ranks in simulated.items()
        },
        measured,
        title="The error of a bf16 sum grows with N in a ring, hardly in a tree",
        label="real gradients of a GPT; lines are simulated, points are runs on real ranks",
    ),
    alt="Relative error over 2 to 1,024 ranks, both axes logarithmic. The ring rises from "
    "0.2 to over 5 percent. Tree and halving-doubling make the same additions and stay "
    "near 0.3 percent. A sum in fp32 that is rounded once stays near 0.17 percent. The "
    "points measured on 2, 4 and 8 ranks lie on or near the lines.",
)

# %% [markdown]
# At the end of a ring the running sum is up to $N$ times as large as what is added to it, and bf16 keeps 8 bits: 257
# becomes 256. The measured points of the ring differ a little from its line, which is drawn from the chunk that begins
# at rank 0; other chunks begin at other ranks. NCCL's maintainer says the same of NCCL: rings are its least precise
# and often its fastest algorithm; trees, also those through NVSwitch, add values of equal weight
# ([issue](https://github.com/NVIDIA/nccl/issues/1026)). A real run with gradients reduced in bf16 trained well on 96
# GPUs and became unstable on 384; reduced in fp32 it was stable
# ([issue](https://github.com/pytorch/pytorch/issues/106395)). Llama 3 accumulated its gradients over micro-batches,
# and reduced them over ranks, in fp32 (arXiv 2407.21783, section 3.3.2).
#
# Two remedies: reduce in fp32, for twice the bytes; or send 16 bits but add in fp32, as Megatron-LM can
# (`reduce_scatter_with_fp32_accumulation`): an all-to-all in place of the reduce-scatter, one rounding at the end. The
# package has both. The second is `average_with_fp32_sum`; the first is this, with `in_dtype=torch.float32`:

# %%
from dtlearn.mixed_precision.reduction import average

dtlearn.show_source(average.average, docstring=False)

# %% [markdown]
# ## How does autocast decide?
#
# *Needs: sections 4 and 6.* Turning a whole model into 16 bits also turns into 16 bits what should stay in fp32:
# softmax, norms, the loss. **Autocast** decides operation by operation. Weights stay in fp32. Matrix products get their
# inputs in 16 bits, and losses theirs in fp32.

# %%
arrives = dtlearn.predict.choice(
    "Under `torch.autocast` with bf16 a linear layer multiplies in bf16; its weight is "
    "stored in fp32. What is the format of `weight.grad`?",
    {"A": "fp32", "B": "bf16", "C": "fp32 or bf16, like the output of the layer before"},
    id="ch07.arrives",
)

# %%
# %%ranks -r 0 -o formats_seen
from dtlearn.mixed_precision import DtypeLog
from dtlearn.mixed_precision import autocast as our_autocast

x, y = next(corpus.batches(1, 4, 32))
seen = {}
# On the CPU, whose list of operations is short; a GPU's has other rules.
for name, context in (("torch's", torch.autocast("cpu")), ("ours", our_autocast("cpu"))):
    model = fresh_model().cpu()
    with context, DtypeLog() as log:
        loss = next_token_loss(model(x), y)
    loss.backward()  # outside: backward takes the formats of the forward pass
    seen[name] = {op.name: (op.inputs, op.outputs) for op in log.ops}
    seen[name]["gradients"] = (
        (),
        tuple({str(p.grad.dtype)[6:] for p in model.parameters()}),
    )
seen

# %% jupyter={"source_hidden": true}
arrives.reveal()

# %% jupyter={"source_hidden": true}
from dtlearn.mixed_precision.casting import policy

shown = ("embedding", "linear", "layer_norm", "scaled_dot_product_attention", "gelu")
shown += ("cross_entropy", "gradients")
rank_table(
    [
        {
            "operation": op,
            **{
                whose: " and ".join(dict.fromkeys(ops[op][1])) if op in ops else "-"
                for whose, ops in formats_seen[0].items()
            },
            "rule": policy.POLICIES["cpu"].get(op, "-"),
        }
        for op in shown
        if any(op in ops for ops in formats_seen[0].values())
    ],
    caption="Format of what each operation returns, under autocast on a CPU",
)

# %% [markdown]
# So under autocast the weights are their own masters. The rules are a table, and a GPU's table differs from a CPU's:
# softmax and layer norm have the rule "fp32" on a GPU and none on a CPU. So a bf16 run on a CPU does not show exactly
# what a GPU does.
#
# The package's autocast is a `TorchFunctionMode`: Python hands it every call of a torch function, and it casts the
# inputs as the table says. A weight that is used twice is cast once: its 16-bit copy stays until the block ends, and if
# backward needs it, until then. Is it the same as torch's? Train with DDP, autocast and a scaler, both ways:

# %%
# %%ranks
from dtlearn.mixed_precision import GradScaler
from dtlearn.mixed_precision import autocast as our_autocast

TORCH = torch.autocast, lambda *options: torch.amp.GradScaler(device.type, *options)


def losses_with(cast, make_scaler, dtype):
    model = DistributedDataParallel(fresh_model())
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    scaler = make_scaler(1024.0, 2.0, 0.5, 3)  # first scale, factors, growth interval
    losses = []
    for x, y in batches(6):
        optimizer.zero_grad()
        with cast(device.type, dtype=dtype):
            loss = next_token_loss(model(x), y)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        losses.append(loss.item())
    return losses, scaler.get_scale()


for dtype in (torch.bfloat16, torch.float16):
    ours, theirs = (
        losses_with(*each, dtype) for each in ((our_autocast, GradScaler), TORCH)
    )
    print(str(dtype)[6:], "losses and scale equal, to the last bit:", ours == theirs)

# %% [markdown]
# ## What about 8 bits, and 4?
#
# *Needs: sections 2 and 4.* FP8 has two formats: **E4M3** with more precision and **E5M2** with more range. The first
# recipe takes E4M3 for weights and activations, E5M2 for gradients (Micikevicius et al. 2022, arXiv 2209.05433). The
# range of both is so small that one scale for the loss is not enough: **every tensor** gets a scale of its own, which
# moves its largest absolute value, its **amax**, to the largest number of the format.

# %%
from dtlearn.mixed_precision.fp8 import scaling

dtlearn.show_source(scaling.scale_for, docstring=False)
dtlearn.show_source(scaling.quantize, docstring=False)

# %% [markdown]
# `margin` leaves that many powers of two as a reserve. The clamp is there because E4M3 has no infinity: on a CPU
# torch's own cast makes NaN of what is beyond 448 up to torch 2.12, and 448 from torch 2.13 on
# ([change](https://github.com/pytorch/pytorch/pull/178817)). An infinity becomes NaN, so that an overflow stays
# visible.
#
# An outlier takes the range away from all other numbers of its tensor. **Block scaling** (MXFP8) gives every 32 numbers
# their own scale, a power of two. The error of 4,096 normally distributed numbers in E4M3, in four ways:

# %% tags=["nbval-ignore-output"] jupyter={"source_hidden": true}
from dtlearn.mixed_precision import FP8_E4M3, quantize_blocks

torch.manual_seed(0)
normal = torch.randn(4096)
outlier = normal.clone()
outlier[0] = 1e6
rows = []
for what, x in (
    ("normally distributed", normal),
    ("the same times 1e-4", normal * 1e-4),
    ("the first, and one number of 1e6", outlier),
):
    whole = scaling.quantize(x, scaling.scale_for(x.abs().max(), FP8_E4M3), FP8_E4M3)
    ways_to_cast = {
        "no scale": x.clamp(-448, 448).to(torch.float8_e4m3fn).float(),
        "a scale for the tensor": whole.dequantize(),
        "32 numbers, scale down": quantize_blocks(x).dequantize(),
        "32 numbers, scale up": quantize_blocks(x, round_up=True).dequantize(),
    }
    errors = {
        name: ((q - x)[32:].norm() / x[32:].norm()).item()
        for name, q in ways_to_cast.items()
    }
    rows.append({"numbers": what, **{n: f"{100 * e:.1f} %" for n, e in errors.items()}})
rank_table(rows, caption="Relative error in E4M3, without the block of the outlier")

# %% [markdown]
# The OCP specification rounds the scales *down*, so that some of the largest numbers are clipped: 3.0 % where one
# scale for all has 2.7 %. Rounded *up*, nothing is clipped. That is no detail. NVIDIA found that the specification's
# rule can make the pre-training of an LLM diverge; with scales rounded up, and E4M3 for gradients, too, 8 billion
# parameters trained on 15 trillion tokens like bf16 (Mishra et al. 2025, arXiv 2506.08027). DeepSeek-V3 takes E4M3
# everywhere, as well, with blocks of 128 numbers (arXiv 2412.19437): with fine blocks the range of E5M2 is not
# needed.
#
# **NVFP4** goes further: E2M1, whose numbers are 0, 0.5, 1, 1.5, 2, 3, 4, 6 and their negatives; an E4M3 scale for
# every 16 of them, and an fp32 scale for the tensor. That is 4.5 bits a number. NVIDIA pre-trained 12 billion
# parameters on 10 trillion tokens in it, with losses comparable to FP8's (2025, arXiv 2509.25149). It takes four
# precautions: some layers stay in higher precision; gradients are rounded stochastically; random Hadamard transforms
# spread outliers over their block; and weights have scales for squares of 16 x 16, so that a matrix and its transpose
# become the same numbers. Megatron-LM has it as `--fp4-format e2m1`, with Transformer Engine, on Blackwell.
#
# Ranks that hold parts of one tensor need **one** scale for it: amax is all-reduced with MAX, 4 bytes per tensor. If
# copies of one layer agree as well, the result does not depend on how the batch was divided. (**Current**
# scaling takes the amax of the tensor itself, and the ranks agree before each cast. **Delayed** scaling takes it from
# earlier steps, and the ranks agree on those of all tensors at once, at the end of a step.)
#
# `Fp8Linear` casts the inputs of its three products (forward, and the gradients of input and weight) to FP8, and adds
# in fp32. (A GPU may add with less: DeepSeek-V3 found about 14 bits on the H800, section 3.3.2.) Beside the runs of
# section 4:

# %%
from dtlearn.mixed_precision.measure import loss_curves

by_kind["fp8"] = loss_curves.train_curve("fp8", 60)

# %% tags=["nbval-ignore-output"] jupyter={"source_hidden": true}
show(
    draw_losses(
        {kind: by_kind[kind].losses for kind in loss_curves.KINDS},
        title="Handled with care, 16 and 8 bits train like 32",
        label="1,024 x 512 tokens; linear layers by emulation",
    ),
    alt="Losses over 60 steps. fp32, bf16, fp16 with scaling and emulated fp8 lie on top "
    "of one another; fp16 without a loss scale stays well above.",
)

# %% [markdown]
# The head, embeddings, norms and attention scores stayed in higher precision, as in real FP8 recipes; weights and
# optimizer were in fp32. Sixty steps of a small model show that the emulation trains; they prove nothing about long
# runs.
#
# ## Where do the libraries do it?
#
# *Needs: sections 3 to 5, and "In which order, and format, is a mean taken?"; the cell: chapter 9.*
#
# | | weights, masters | loss scale | gradients reduced in | ranks agree on an overflow |
# |---|---|---|---|---|
# | `torch.amp` with DDP | fp32 weights, cast per operation | `GradScaler`: $2^{16}$, growth after 2,000 steps | fp32 | no need: the mean is infinite or NaN on all |
# | FSDP2, `MixedPrecisionPolicy` | fp32 shards, gathered in `param_dtype` | torch's `GradScaler` | `reduce_dtype`; if none, that of the gradients | yes: the gradients are DTensors |
# | Megatron-LM | 16-bit weights, fp32 masters | `--initial-loss-scale` $2^{32}$, `--loss-scale-window` 1,000, `--hysteresis` 2; none for bf16 | fp32 if the weights are bf16, unless `--grad-reduce-in-bf16` | MAX over the model-parallel ranks, or over all (distributed optimizer) |
# | DeepSpeed | 16-bit weights, fp32 masters | `initial_scale_power` 16, `loss_scale_window` 1,000, `hysteresis` 2 | `communication_data_type` | MAX over the ranks |
#
# The **window** is torch's growth interval: so many good steps in a row, and the scale grows. **Hysteresis** 2 means
# that the first overflow only skips the step. The second one halves the scale, and so does every further one until
# the scale has grown again. **DTensors** are tensors that know how they are spread over the ranks. **Model-parallel**
# ranks are those that share one copy of the model, by tensor or pipeline parallelism; the layers that one of the
# latter has are its **stage**.
#
# A policy says what its library reduces, and not what else is reduced. With FSDP2 and chapter 12's tensor
# parallelism the gradients of norms are summed over the tensor-parallel ranks as well, and up to now
# `reduce_dtype=torch.float32` does not hold there: that sum is made in bf16
# ([open issue](https://github.com/pytorch/pytorch/issues/190626), July 2026).
#
# Is FSDP2's policy what section 3 and "In which order, and format, is a mean taken?" built: bf16 weights from fp32
# masters, gradients reduced in fp32?

# %%
# %%ranks
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

from dtlearn.mixed_precision import MasterWeights
from dtlearn.mixed_precision import average as average_gradients

theirs = fresh_model()
bf16 = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
mesh = dist.init_device_mesh(device.type, (world_size,))
fully_shard(theirs, mesh=mesh, mp_policy=bf16)
optimizer = torch.optim.AdamW(theirs.parameters(), lr=1e-3)

ours = fresh_model()
exact = [p.detach().clone() for p in ours.parameters()]
masters = MasterWeights(ours.to(torch.bfloat16).parameters(), torch.optim.AdamW, lr=1e-3)
for (_, master), weight in zip(masters.pairs, exact, strict=True):
    master.data.copy_(weight)  # masters begin with fp32 weights, not with rounded ones

for x, y in batches(4):
    for model, each in ((theirs, optimizer), (ours, masters)):
        each.zero_grad()
        next_token_loss(model(x), y).backward()
        if model is ours:
            masters.copy_gradients_to_masters()
            average_gradients([m.grad for _, m in masters.pairs])  # in fp32
        each.step()

pairs = zip(theirs.parameters(), masters.pairs, strict=True)
apart = max((p.full_tensor() - m).abs().max().item() for p, (_, m) in pairs)
print("after 4 steps the fp32 weights agree within 1e-6:", apart < 1e-6)

# %% [markdown]
# ## What must a skipped step not move?
#
# *Needs: section 4.* Anything: not the learning-rate schedule, not a count of steps, not a moving average of the
# weights. With torch's scaler the usual test is whether `get_scale()` fell in `update()`. Another one, Hugging Face
# Accelerate's, is whether `optimizer.step` was called. With a **fused** optimizer it is called in any case, and the
# kernel skips: the weight stays, and the schedule moves
# ([issue](https://github.com/huggingface/accelerate/issues/4242), open in September 2026). The package's
# `step_unless_skipped(scaler, optimizer, scheduler)` asks for both:

# %%
from dtlearn.mixed_precision import step_unless_skipped

for fused in (False, True):
    weight, calls = torch.nn.Parameter(torch.ones(3)), []
    optimizer = torch.optim.AdamW([weight], lr=0.1, fused=fused)
    optimizer.register_step_post_hook(lambda *_, calls=calls: calls.append("called"))
    schedule = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.5)
    scaler = torch.amp.GradScaler("cpu", init_scale=8.0)
    scaler.scale((weight * torch.inf).sum()).backward()
    taken = step_unless_skipped(scaler, optimizer, schedule)
    scaler.update()
    print(f"fused={fused}: step {'called' if calls else 'not called'}, taken: {taken},")
    print(f"  weight {weight[0].item()}, rate {schedule.get_last_lr()[0]}")

# %% [markdown]
# ## Find three bugs
#
# *Needs: sections 4 and 5, and "How is a scaled gradient clipped?"* A training loop in 16 bits with three bugs, of
# kinds that were found and fixed in public projects.
#
# **Exercise 8.** Find them.

# %% exercise="ch07.bug_hunt"

# %% [markdown]
# <details><summary>Where such bugs were fixed (gives the answer away)</summary>
#
# - The decision to skip: with optimizer state sharded over ranks, each rank of a FairScale job looked only at its own
#   gradients ([fixed in 2020](https://github.com/facebookresearch/fairscale/pull/182) by a scaler that all-reduces the
#   flag).
# - Clipping: PyTorch Lightning clipped gradients before it unscaled them ([fixed in
#   2021](https://github.com/Lightning-AI/pytorch-lightning/pull/9606)); users had reported losses that hardly fell.
# - The schedule: Hugging Face's Trainer moved the learning rate also after a skipped step ([fixed in
#   2021](https://github.com/huggingface/transformers/pull/11144)).
# </details>

# %% [markdown]
# ## What is different on GPUs?
#
# *Needs: sections 4 and 6, and "How does autocast decide?"* The cells run on GPUs when there is one for each rank. fp16
# and bf16 products then run on matrix units, and time is what you came for: measure a step of a model that is large
# enough (a hidden size of 2,048 and more) with and without `torch.autocast("cuda")`, and beside it fp32 with
# `torch.set_float32_matmul_precision("high")`, which is tf32. Autocast's table is the GPU's, with softmax and norms in
# fp32. FP8 stays emulated. `scaler.step()` reads the overflow flag from the GPU, so the CPU waits for the device once a
# step.

# %% [markdown]
# ## Myths, and questions to check yourself
#
# *Needs: the core path, and what each names.*
#
# **"16 bits halve the memory."** Activations take half to three quarters (section 6), and gradients that are sent in 16
# bits half. Weights, gradients, fp32 masters and moments together take what they take in fp32.
#
# **"Mixed precision is there to lose less precision."** It loses some, for speed and bytes. Masters, scale and fp32
# sums keep the loss harmless.
#
# **"In fp32 twice the data has to be sent each time."** If gradients are sent in 16 bits otherwise. Autocast's
# gradients are fp32 ("How does autocast decide?"), and so is what Megatron-LM reduces for bf16 weights ("Where do the
# libraries do it?").
#
# **"Mixed precision trains in fp32 on some nodes and in half precision on others, and aggregates them later."** Every
# rank computes in both formats, operation by operation. If ranks used different formats, replicas would not compute the
# same function.
#
# **"Loss scaling is for large losses."** It is for small gradients. In section 4 the loss is below 5, and the gradients
# vanish because they are at most $2^{-25}$; a larger loss would help.
#
# **"Use `torch.cuda.amp`."** It is deprecated: `torch.amp.GradScaler("cuda")` and `torch.autocast("cuda")` replace it.
#
# ### Check yourself
#
# <details><summary>A run uses loss scaling. Its log shows an infinite gradient norm in steps 1, 2 and 3, and then
# it trains well. Is it broken?</summary>
#
# No: those steps were skipped, and the scale fell by a factor of 8. It is broken if the scale keeps falling, or if the
# loss itself is infinite or NaN: the loss is computed before it is scaled, so no scale helps.
# </details>
#
# <details><summary>You resume from a checkpoint without the scaler's state. What happens?</summary>
#
# The scale starts at 65,536 again. If the run needs less, its first steps are skipped; if it needs more, small
# gradients vanish for 2,000 steps or more. Save `scaler.state_dict()`.
# </details>
#
# <details><summary>A model's layers are divided over 4 ranks, in fp16, each with torch's GradScaler. Once, the gradient of a
# weight of rank 1 overflows, and no other. What is wrong afterwards?</summary>
#
# Rank 1 has skipped a step that the others took, and its scale is half of theirs. But the loss is scaled once, on the
# last rank, with that rank's scale. Rank 1 divides by half of it, so from then on its gradients are twice too large.
# </details>
#
# <details><summary>What has to be saved in a checkpoint, beyond the model's weights?</summary>
#
# The masters (16 bits do not give them back), the moments, the scaler's state, and with delayed FP8 scaling ("What
# about 8 bits, and 4?") the amax histories.
# </details>
#
# ## Glossary
#
# {glossary}
#
# Next: chapter 8 counts where all the bytes go, activations first.
