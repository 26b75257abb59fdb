# %% [markdown]
# # Chapter 7. Mixed precision: training in 16 bits
#
# **The question.** How do 16 bits train like 32?
#
# Builds on: chapter 3. Ranks: 4, and 8 in one cell. Time: two sittings.
#
# | | what | read and run | exercises |
# |---|---|---|---|
# | **A. Numbers that survive**, sections 1 to 4 | formats, rounding, master weights, loss scaling | 45 minutes | 4, 60 minutes |
# | **B. Many ranks**, sections 5 to 12 | one decision about an overflow, sums in 16 bits, autocast, FP8, bytes, a bug hunt | 50 minutes | 4, 70 minutes |
#
# After sitting A you know which numbers a format can hold, and you have written a loss scaler like PyTorch's. After
# sitting B you can keep the ranks of a 16-bit run together, and you know what it costs in bytes.
#
# Why 16 bits at all? A GPU multiplies 16-bit matrices several times as fast as fp32 ones, and activations take about
# half the bytes; so do gradients that are sent in 16 bits. **On a CPU none of that speed shows.** Here 16 bits teach
# numerics: what is lost, and how to keep it.

# %% jupyter={"source_hidden": true}
# %load_ext dtlearn
import torch

import dtlearn
from dtlearn.mixed_precision import (
    BF16,
    FORMATS,
    FP8_E4M3,
    FP8_E5M2,
    FP16,
    MasterWeights,
    error_by_ranks,
    formats,
    page_grad_scaler,
    per_rank_gradients,
    quantize_blocks,
    rounding,
    simulate_average,
    sum_on_rank,
)
from dtlearn.mixed_precision.casting import autocast, policy
from dtlearn.mixed_precision.fp8 import scaling
from dtlearn.mixed_precision.loss_scaling import grad_scaler
from dtlearn.mixed_precision.measure import gradients, loss_curves, small_updates
from dtlearn.mixed_precision.reduction import average, rounding_error
from dtlearn.notebook.panels import Slider, slider_panel
from dtlearn.sharing import clipping
from dtlearn.viz import (
    gradient_histograms,
    loss_scale,
    number_bits,
    rank_table,
    reduction_error,
    show,
)
from dtlearn.viz.mixed_precision.loss_curves import loss_curves as draw_losses
from dtlearn.viz.mixed_precision.number_bits import typed_number
from dtlearn.viz.mixed_precision.small_updates import small_updates as draw_updates

torch.set_num_threads(1)  # small tensors: more threads would only wait for each other
world = dtlearn.world(4)
world

# %% [markdown]
# # A. Numbers that survive
#
# ## 1. The naive way
#
# PyTorch can turn a whole model into float16, **fp16** for short, with one call: `model.half()`. The gradients and the
# state of the optimizer are then in fp16, too. Four ranks train a small GPT with DDP and Adam (chapter 3), once in fp32
# and once like that.

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

# %%
# %%ranks -o naive
from torch.nn.parallel import DistributedDataParallel

from dtlearn.models import GPT, GPTConfig, load_corpus, next_token_loss

corpus = load_corpus()


def fresh_model(dtype=torch.float32):
    torch.manual_seed(0)
    return GPT(GPTConfig(num_layers=1)).to(device, dtype)


def batches(steps):
    for x, y in corpus.batches(steps, 16, 32):
        yield x[rank::world_size].to(device), y[rank::world_size].to(device)


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

# %%
# %%ranks -o first_step
from dtlearn.mixed_precision.measure.gradients import log2_histogram

model = DistributedDataParallel(fresh_model(torch.float16))
x, y = next(batches(1))
next_token_loss(model(x), y).backward()
g = torch.cat([p.grad.float().flatten() for p in model.parameters()])
{"g": log2_histogram(g), "v": log2_histogram(0.001 * g * g)}

# %% [markdown]
# The picture counts them by size, in powers of two; what is red becomes 0 in fp16. (Gradients that the backward pass
# has already lost are not in the picture.)

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
# So three things need a closer look: which numbers a format holds (section 2), how weights take small updates (section
# 3), and how small gradients survive the backward pass (section 4).
#
# ## 2. What a format can hold
#
# The bits of a floating-point number are a sign $s$, an **exponent** field $e$ and a **mantissa** $m$ of $M$ bits, both
# read as whole numbers. With the **bias** $b = 2^{E-1} - 1$, for $E$ exponent bits, they stand for
#
# $$(-1)^s\; 2^{e-b}\,\Big(1 + \frac m{2^M}\Big)$$
#
# The exponent decides the **range**, the mantissa the **precision**. If the exponent field is 0, the leading 1 is
# missing and the number is **subnormal**: $(-1)^s\,2^{1-b}\,m/2^M$. If all bits of the exponent field are 1, the number
# is infinity or NaN. (The format fp8 e4m3, below, is an exception: it has no infinity, and uses all but one of these
# patterns for numbers.)
#
# Here are all numbers from 0 up of a made-up format with 3 exponent bits and 2 mantissa bits, so $b = 3$:
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
# From row 2 on, each row has as many numbers as the one above, over twice the length. So the *relative* distance stays
# about the same, except in the subnormal row.
#
# The widget shows the bits of a number in the formats of deep learning. Move the slider, or type any number, such as
# `0.3`, `2^-24`, `inf`, or `0x1.8p3` (hexadecimal: $1.5 \cdot 2^3$). **bf16** (bfloat16) is the upper half of an fp32
# number. **tf32** is what an NVIDIA GPU can round fp32 inputs to when it multiplies matrices. The two 8-bit formats are
# for section 9.

# %% jupyter={"source_hidden": true}
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
# **Exercise 1.** Compute the limits of a format from its bits.

# %% exercise="ch07.format_limits"

# %% [markdown]
# The package has the four as properties, and its tests compare them with `torch.finfo`. Here are two of them, folded,
# as they answer the exercise:

# %%
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
# fp16 and bf16 fail in opposite ways. fp16 reaches only from 6e-8 to 65,504; bf16 has the range of fp32, but only
# between two and three decimal digits.
#
# **Rounding.** A number that a format does not hold is replaced by the format's nearest number. If two are equally
# near, the one whose last mantissa bit is 0 is taken (**ties to even**), so that errors do not all point in one
# direction. In bf16, whose numbers between 1 and 2 are 1/128 apart:
#
# | x | between | last mantissa bits | becomes |
# |---|---|---|---|
# | 1 + 1/512 | 1 and 1 + 1/128 | 0 and 1 | 1, the nearer one |
# | 1 + 1/256 | 1 and 1 + 1/128 | 0 and 1 | 1: a tie, and 0 is even |
# | 1 + 3/256 | 1 + 1/128 and 1 + 2/128 | 1 and 0 | 1 + 2/128: a tie, the other way |
#
# **Exercise 2.** Round fp32 to bf16, by arithmetic on the bits.

# %% exercise="ch07.round_to_bf16"

# %% [markdown]
# The package's version rounds to any format, by arithmetic on the numbers. `_in_steps` returns x in fp64 and the step,
# the distance between the format's numbers near x; `_overflow` replaces what is beyond the largest number. The result
# is equal to torch's casts bit for bit:

# %%
dtlearn.show_source(
    rounding.round_to_nearest_even, docstring=False, summary="The package's own"
)

# %% [markdown]
# ## 3. Small updates
#
# A training step changes a weight by little, often by a thousandth of its size or less.

# %%
thousand_updates = dtlearn.predict(
    "A bf16 weight is 1.0. It gets 1,000 updates of +0.001, and is rounded to bf16 "
    "after each. What is it at the end?",
    id="ch07.thousand_updates",
)

# %%
kept = small_updates.weight_trajectories(num_steps=1000, update=0.001, fmt=BF16)
final = kept["nearest"][-1]

# %% jupyter={"source_hidden": true}
thousand_updates.reveal(final)

# %% [markdown]
# The remedy of Micikevicius et al. (2018, arXiv 1710.03740) is **master weights**: the optimizer keeps an fp32 copy of
# every 16-bit weight, adds the updates there, and rounds the copy into the model after each step. By hand, for a weight
# near 1 and updates of 1/512:
#
# | after step | exact | bf16 alone | master, fp32 | weight of the model |
# |---|---|---|---|---|
# | 1 | 1 + 1/512 | 1 | 1 + 1/512 | 1 |
# | 2 | 1 + 2/512 | 1 | 1 + 2/512 | 1 (a tie) |
# | 3 | 1 + 3/512 | 1 | 1 + 3/512 | 1 + 1/128 |
#
# **Exercise 3.** A step with master weights.

# %% exercise="ch07.master_weights"

# %% [markdown]
# The package's `MasterWeights` wraps any optimizer of torch. Its `step()` calls the first function below (unless you did
# so before, to clip gradients in fp32), then the wrapped optimizer's `step()`, then the second function. `pairs` are
# the model's parameters and their masters:

# %%
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
# There are two alternatives to masters. **Stochastic rounding** rounds up or down at random, with probabilities that
# make the mean right (Gupta et al. 2015, arXiv 1502.02551). **Compensated updates** keep what rounding took away in a
# second 16-bit number, and add it at the next step (Kahan 1965). Zamirai et al. (2020, arXiv 2010.06192) train with
# both. Here are all four on the weight of the prediction:

# %% jupyter={"source_hidden": true}
show(
    draw_updates(
        kept,
        0.001,
        title="In bf16 alone the weight does not move",
        label="1,000 updates of 0.001, simulated; 'master': the bf16 copy of it",
    ),
    alt="A weight over 1,000 updates. Rounded to nearest it stays at 1. Master weights and "
    "compensated updates follow the exact sum to 2. Rounded by chance it follows with "
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
# ## 4. Gradients that vanish
#
# Master weights do not help if a gradient is 0 before it reaches the optimizer. In the backward pass, gradients of
# **activations** go from layer to layer in 16 bits. They are small: the loss is a mean over all tokens that a rank
# accumulates for a step, so each token's gradient is divided by their number. (DDP divides only the gradients of
# weights by the number of ranks, so that does not count here.)

# %%
vanish = dtlearn.predict(
    "A GPT of 4 blocks, trained for some steps, accumulates 64 micro-batches of 1,024 "
    "tokens each. What share of the activations' gradients becomes 0 in fp16, in "
    "percent?",
    unit="percent",
    id="ch07.vanish",
)

# %%
found = gradients.gpt_gradients(num_microbatches=64)
all_of_them = torch.cat([g.flatten() for g in found.activations.values()])
unscaled = gradients.shares_in(all_of_them, FP16)
scaled = gradients.shares_in(all_of_them, FP16, scale=2.0**16)

# %% tags=["nbval-ignore-output"] jupyter={"source_hidden": true}
vanish.reveal(
    round(100 * unscaled.zero),
    subnormal=100 * unscaled.subnormal,
    scaled=100 * scaled.zero,
)

# %% tags=["nbval-ignore-output"] jupyter={"source_hidden": true}
layers = {
    name.replace("blocks.", "block ")
    .replace(".attention.", ", ")
    .replace(".feed_forward.", ", feed-forward ")
    .replace("head.projection", "head"): gradients.log2_histogram(g)
    for name, g in found.activations.items()
    if name.startswith(("blocks.0", "blocks.3", "head"))
}
show(
    gradient_histograms(
        layers,
        FP16,
        scales=(0, 16),
        ranges=(BF16, FP16, FP8_E5M2, FP8_E4M3),
        title="A loss scale moves the gradients into the range of fp16",
        label="GPT of 4 blocks, 64 x 1,024 tokens",
    ),
    alt="Histograms of the gradients of 13 layers' outputs over powers of two, twice. Not "
    "scaled, nearly all of the gradients of queries and keys become 0 in fp16, more than "
    "half of those of values, a third to a half in the feed-forward layers that go up, "
    "one or two percent elsewhere; the others are subnormal. With the loss "
    "times 65,536, at most one percent becomes 0, and most are normal. Below, the ranges "
    "of bf16, fp16 and two fp8 formats.",
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
# How large should $S$ be? Too small, and gradients vanish. Too large, and they overflow; then the gradients are useless
# and the step has to be skipped. The best value changes during training. So **dynamic loss scaling** looks for it:
# start high (65,536), halve $S$ and skip the step when a gradient is infinite or NaN, and double it after 2,000 steps
# in a row without that. With $S = 8$, growth after 2 good steps, and an overflow in step 2:
#
# | step | S | gradients | the optimizer | good steps in a row | next S |
# |---|---|---|---|---|---|
# | 1 | 8 | finite | steps | 1 | 8 |
# | 2 | 8 | infinite | skips | 0 | 4 |
# | 3 | 4 | finite | steps | 1 | 4 |
# | 4 | 4 | finite | steps | 2, so 0 again | 8 |
#
# **Exercise 4.** A dynamic loss scaler.

# %% exercise="ch07.loss_scaler"

# %% [markdown]
# The package's `GradScaler` has the protocol of `torch.amp.GradScaler`: `scale(loss).backward()`, `unscale_(optimizer)`
# if you clip, `step(optimizer)`, `update()`. In hundreds of scripted runs, with overflows at random steps, its scale
# and its skipped steps are the same as those of torch's. This is its rule for $S$. `_float32` rounds to fp32, the format
# of torch's scale; where doubling would make $S$ infinite, $S$ stays as it is. (The whole scaler follows in section 5,
# on one page.)

# %%
dtlearn.show_source(grad_scaler.next_scale, docstring=False, summary="The package's own")

# %% [markdown]
# Does the loss scale matter for training? Each rank trains the same GPT by itself, with weights and optimizer in fp32
# and the linear layers in a format of its own: fp32, bf16, fp16 with dynamic scaling, fp16 without. The batch has 1,024
# identical micro-batches, so that a step is computed once and multiplied; its gradients are as small as those of a real
# batch of half a million tokens.

# %%
# %%ranks -o curves
from dtlearn.mixed_precision.measure.loss_curves import KINDS, train_curve

train_curve(KINDS[rank], 60)

# %% tags=["nbval-ignore-output"] jupyter={"source_hidden": true}
by_kind = {curve.kind: curve for curve in curves}
show(
    draw_losses(
        {kind: by_kind[kind].losses for kind in ("fp32", "fp16", "fp16 unscaled")},
        title="Without a loss scale fp16 trains worse",
        label="1,024 x 512 tokens",
    ),
    alt="Losses over 60 steps. fp16 with loss scaling lies on fp32. Without scaling the "
    "loss falls too, but more slowly, and stays well above.",
)

# %% [markdown]
# The run without a scale does not fail loudly. Its loss falls, only more slowly: layers whose gradients vanish learn
# little or nothing while the others train. From its loss curve alone you would not see
# that anything is wrong.
#
# The next picture shows what dynamic scaling does. It is the same fp16 run, with a scale that starts much too high, at
# $2^{32}$, and doubles after 8 good steps instead of 2,000.

# %%
run = loss_curves.train_curve("fp16", 40, init_scale=2.0**32, growth_interval=8)

# %% tags=["nbval-ignore-output"] jupyter={"source_hidden": true}
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
# **A good place for a break.** If you shut down the kernel, come back with Run > Run All Above Selected Cell.
#
# # B. Many ranks
#
# ## 5. Ranks that disagree
#
# With DDP all ranks have the same averaged gradients: if one gradient is infinite on any rank, the mean is infinite or
# NaN on all, and every rank skips. It is different where ranks hold **different parameters**, and an overflow may be
# visible on one of them only:
#
# - **tensor parallelism**: each rank has a part of every layer (chapter 12);
# - **pipeline parallelism**: each rank is a **stage**, which has some of the layers (chapter 10);
# - **sharded** gradients and optimizer states, as in **ZeRO** and PyTorch's **FSDP2** (`fully_shard`): each rank has
#   those of a part of all parameters (chapter 9).

# %%
one_overflow = dtlearn.predict.choice(
    "Two ranks share a layer: each holds half of the weight w, and both hold a copy of "
    "the vector v. In step 1 only rank 1's gradient overflows. Each rank has a GradScaler "
    "of its own. What happens?",
    {
        "A": "The job hangs: one rank waits for the other.",
        "B": "Nothing visible; the copies of v differ from then on.",
        "C": "Rank 1 misses one step, and later steps make the copies equal again.",
    },
    id="ch07.one_overflow",
)

# %% jupyter={"source_hidden": true}
from dtlearn.mixed_precision.loss_scaling import drift
from dtlearn.viz import rank_drift

alone = dtlearn.run_ranks(drift.train_on_rank, 2, False).values
agreed = dtlearn.run_ranks(drift.train_on_rank, 2, True).values

# %% jupyter={"source_hidden": true}
one_overflow.reveal()

# %% [markdown]
# Both ranks ran this function twice, with `agree=False` and, for comparison, with one decision for both ranks. `batch`
# returns the same batch on both ranks, the first with an outlier; `predict` adds up what the two halves of the layer
# contribute. D is the number of features, N that of ranks:

# %%
dtlearn.show_source(drift.train_on_rank, docstring=False)

# %% jupyter={"source_hidden": true}
for name, ranks in (("each by itself", alone), ("agreed", agreed)):
    scales, first = [steps[-1].scale for steps in ranks], drift.differences(ranks)[0]
    print(f"{name}: scales {scales}, copies of v {first:.2f} apart after step 1")

# %% jupyter={"source_hidden": true}
show(
    rank_drift(
        [[step.scale for step in steps] for steps in alone],
        [[step.was_skipped for step in steps] for steps in alone],
        {
            "each rank by itself": drift.differences(alone),
            "agreed": drift.differences(agreed),
        },
        title="One rank skips, the other steps",
        label="left: each rank by itself",
    ),
    alt="Left: rank 1 skips the first step and has the loss scale 4 from then on; rank 0 "
    "keeps 8. Right: the ranks' copies of a weight are 0.94 apart after the first step and "
    "1.03 after twelve; with agreement they are equal.",
)

# %% [markdown]
# From the second step on it is even worse: rank 0 scales by 8 and rank 1 by 4, so that every gradient summed over both
# is a sum of numbers with different scales.
#
# In this run the failure is silent. If `optimizer.step()` itself communicates, as sharded optimizers do, the rank that
# skips it leaves the others waiting, and the job hangs (FairScale met
# [that](https://github.com/facebookresearch/fairscale/pull/181)).
#
# So all ranks have to decide alike: if **any** of them has an overflow, all skip, and all lower their scale. For 3
# ranks:
#
# | | rank 0 | rank 1 | rank 2 |
# |---|---|---|---|
# | own gradients | finite | infinite | finite |
# | each by itself | steps, S | skips, S / 2 | steps, S |
# | together | skips, S / 2 | skips, S / 2 | skips, S / 2 |
#
# **Exercise 5.** Agree on an overflow.

# %% exercise="ch07.agree_on_overflow"

# %% [markdown]
# The remedy costs 4 bytes: the ranks take the maximum of their overflow flags. Megatron-LM does so, and torch's scaler
# does so for FSDP2, whose gradients are **DTensors** (tensors that know how they are spread over the ranks).
#
# ### The whole scaler
#
# This page has everything of sections 4 and 5: scale, unscale, look for an overflow on all ranks, step or skip, update.
# It answers exercises 4 and 5:

# %%
dtlearn.show_source(page_grad_scaler, summary="page_grad_scaler.py, the whole file")

# %% [markdown]
# `GradScaler(group=...)` computes the same, to the last bit (in the run above `agree=True` adds only `group=`). Here
# both train on 4 ranks, each of which has a weight of its own. In step 3 only rank 2 overflows:

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
# What `GradScaler` adds to the page:
#
# - several optimizers have one scale, and each has a decision of its own;
# - without a group each rank decides for itself, as with torch's scaler and DDP;
# - losses may be nested in lists and tuples, and gradients may be bfloat16, float64 or sparse; float16 gradients, which
#   would lose what scaling saved, are refused;
# - the gradients are checked by their norm: one pass, and no memory;
# - `was_skipped(optimizer)` says what was decided, and `state_dict()` goes into a checkpoint;
# - wrong calls, such as unscaling twice, are errors that say what to do, and so is a loss that no scale can help.
#
# ### Clipping
#
# **Gradient clipping** makes the gradient shorter if its norm is above a limit. Two things can go wrong with it here. A
# scaled gradient is $S$ times too long, so it must be **unscaled first**. And a rank that holds a shard knows only the
# norm of its shard: squares add up over ranks, norms do not. With shards of norm 3 and 4 the norm is $\sqrt{3^2 + 4^2}
# = 5$, not 7.
#
# **Exercise 6.** Clip over ranks.

# %% exercise="ch07.clip_over_ranks"

# %% [markdown]
# The package's norm is below. The caller says which parameters count on this rank, those that every rank has on one of
# them only, and over the ranks of which groups powers are added up. `norm_type` is 2 for the usual norm.

# %%
dtlearn.show_source(clipping.global_norm, docstring=False, summary="The package's own")

# %% [markdown]
# ### Accumulation
#
# With gradient accumulation (chapter 3) one step has several backward passes, whose gradients add up. So all of them
# need the **same** scale. Of scaling the loss, unscaling, deciding and updating: what comes once per micro-batch, and
# what once per step?
#
# **Exercise 7.** Accumulate with a scaler.

# %% exercise="ch07.accumulate_with_scaling"

# %% [markdown]
# `update()` comes once per step: a scale that changed between two micro-batches would add up gradients of different
# scales. Unscaling and the decision to skip come once too, after the last micro-batch. Nothing has to be sent for them:
# DDP's averaged gradients are the same on all ranks, and an infinity on one rank makes them infinite or NaN on all.
#
# ## 6. Averages in 16 bits
#
# Gradients sent in 16 bits take half the bytes. The mean over $N$ ranks is a sum and a division, and in 16 bits their
# order matters. Chapter 3 divided before the sum; one can as well divide after it, or by about $\sqrt N$ before and
# again after it.
#
# Here are gradients of a GPT for 384 ranks, averaged in each way. A row is a size of the gradients (all multiplied by
# $2^{-12}$, 1 or $2^{16}$) and a format to add in. An entry is the relative error of the mean, against fp64; where elements of
# the mean became 0, infinite or NaN, it says how many. (Simulated in one process, with the additions in the order of a
# ring.)

# %% tags=["nbval-ignore-output"] jupyter={"source_hidden": true}
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
# At the end of a ring the running sum is up to $N$ times as large as what is added to it, and bf16 keeps 8 bits: 256 +
# 1 is 256. The measured points of the ring differ a little from its line, which is drawn from the chunk that begins at
# rank 0; other chunks begin at other ranks. A real run with gradients reduced in bf16 trained well on 96 GPUs and
# became unstable on 384; reduced in fp32 it was stable ([issue](https://github.com/pytorch/pytorch/issues/106395)).
#
# Two remedies: reduce in fp32, for twice the bytes; or send 16 bits but add in fp32, as Megatron-LM can
# (`reduce_scatter_with_fp32_accumulation`): an all-to-all in place of the reduce-scatter, one rounding at the end. The
# package has both. The second is `average_with_fp32_sum`; the first is this, with `in_dtype=torch.float32`:

# %%
dtlearn.show_source(average.average, docstring=False)

# %% [markdown]
# ## 7. bf16
#
# bf16 has the range of fp32. So gradients do not vanish in it, and loss scaling is not needed (Kalamkar et al. 2019,
# arXiv 1905.12322). Here is the bf16 run of section 4, which had no scale:

# %% tags=["nbval-ignore-output"] jupyter={"source_hidden": true}
rank_table(
    [
        {
            "format": kind,
            "loss scale": "dynamic" if kind == "fp16" else "none",
            "loss, mean of steps 51 to 60": f"{sum(by_kind[kind].losses[-10:]) / 10:.3f}",
        }
        for kind in ("fp32", "bf16", "fp16", "fp16 unscaled")
    ],
    caption="The four runs of section 4",
)

# %% [markdown]
# But it has less precision: 8 bits with the leading 1, where fp16 has 11. That is enough for products and activations,
# whose errors average out. It is not enough where small numbers are added to large ones: weights (section 3) and sums
# over ranks (section 6). So large models are trained in bf16 with fp32 masters; Llama 3 also accumulated its gradients
# over micro-batches, and reduced them over ranks, in fp32 (arXiv 2407.21783, section 3.3.2).
#
# ## 8. Autocast
#
# Turning a whole model into 16 bits also turns into 16 bits what should stay in fp32: softmax, norms, the loss.
# **Autocast** decides operation by operation. Weights stay in fp32. Matrix products get their inputs in 16 bits, and
# losses theirs in fp32.

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
# inputs as the table says. A weight's 16-bit copy is kept, in `_state.casts`, until the block ends, so that a weight
# that is used twice is cast once:

# %%
dtlearn.show_source(autocast.autocast.cast, docstring=False)

# %% [markdown]
# Is it the same as torch's? Train with DDP, autocast and a scaler, both ways:


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
# ## 9. FP8, emulated
#
# FP8 has two formats: **E4M3** with more precision, for weights and activations, and **E5M2** with more range, for
# gradients (Micikevicius et al. 2022, arXiv 2209.05433). The range of both is so small that one scale for the loss is
# not enough: **every tensor** gets a scale of its own, which moves its largest absolute value, its **amax**, to the
# largest number of the format.

# %%
dtlearn.show_source(scaling.scale_for, docstring=False)
dtlearn.show_source(scaling.quantize, docstring=False)

# %% [markdown]
# `margin` leaves that many powers of two as a reserve. The clamp is there because E4M3 has no infinity: on a CPU
# torch's own cast makes NaN of what is beyond 448 up to torch 2.12, and 448 from torch 2.13 on
# ([change](https://github.com/pytorch/pytorch/pull/178817)). An infinity becomes NaN, so that an overflow stays
# visible.
#
# An outlier takes the range away from all other numbers of its tensor. **Block scaling** (MXFP8) gives every 32 numbers
# their own scale. The error of 4,096 normally distributed numbers in E4M3, in three ways:

# %% tags=["nbval-ignore-output"] jupyter={"source_hidden": true}
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
        "a scale for 32 numbers": quantize_blocks(x).dequantize(),
    }
    errors = {
        name: ((q - x)[32:].norm() / x[32:].norm()).item()
        for name, q in ways_to_cast.items()
    }
    rows.append({"numbers": what, **{n: f"{100 * e:.1f} %" for n, e in errors.items()}})
rank_table(rows, caption="Relative error in E4M3, without the block of the outlier")

# %% [markdown]
# MXFP8's 3.0 % where one scale has 2.7 % comes from its scales, which are powers of two: in the OCP specification they
# are rounded down, so that some of the largest numbers are clipped.
#
# Ranks that hold parts of one tensor need **one** scale for it: amax is all-reduced with MAX, 4 bytes per tensor. If
# copies of one layer agree as well, the result does not depend on how the batch was divided. (**Current**
# scaling takes the amax of the tensor itself, and the ranks agree before each cast. **Delayed** scaling takes it from
# earlier steps, and the ranks agree on those of all tensors at once, at the end of a step.)
#
# `Fp8Linear` casts the inputs of its three products (forward, and the gradients of input and weight) to FP8, and adds
# in fp32. (A GPU may add with less: DeepSeek-V3 found about 14 bits on the H800, arXiv 2412.19437, section 3.3.2.) Here
# it is beside the runs of section 4:

# %%
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
# optimizer were in fp32. Sixty steps of a small model show that the emulation trains; they are no proof for long runs.
#
# ## 10. How many bytes
#
# Activations take about half the bytes, and gradients that are sent in 16 bits do, too. What about weights, gradients
# and optimizer? Adam keeps two moments for each parameter, in fp32.

# %%
states = dtlearn.predict(
    "A model of 7 billion parameters, trained with Adam: how many GB do weights, "
    "gradients, masters and moments take, if weights and gradients have 16 bits and the rest "
    "is in fp32?",
    unit="GB",
    id="ch07.states",
)

# %% jupyter={"source_hidden": true}
states.reveal(7 * (2 + 2 + 4 + 4 + 4))

# %% jupyter={"source_hidden": true}
conventions = (
    ("fp32", 4, 4, 0, 8, "chapter 3"),
    (
        "autocast: fp32 weights",
        4,
        4,
        0,
        8,
        "torch.amp; 2 more while a cast weight is used",
    ),
    ("16-bit weights and gradients, masters", 2, 2, 4, 8, "the ZeRO paper's 16"),
    ("16-bit weights, fp32 gradients, masters", 2, 4, 4, 8, "Megatron-LM, bf16: 18"),
    ("both gradients at once, masters", 2, 6, 4, 8, "Megatron-LM, fp16: 20"),
    ("bf16, stochastic rounding", 2, 2, 0, 8, "no masters"),
    ("bf16, compensated", 2, 2, 2, 8, "compensation in place of masters"),
)
rank_table(
    [
        {
            "training in": name,
            "weight": w,
            "gradient": g,
            "master": m,
            "moments": a,
            "sum": w + g + m + a,
            "remark": remark,
        }
        for name, w, g, m, a, remark in conventions
    ],
    caption="Bytes per parameter with Adam, without activations",
)

# %% [markdown]
# Texts that say 16, 18 or 20 bytes are all correct: they count different gradients. Which one does your framework have?
#
# **A cluster that you do not have.** 70 billion parameters on GPUs of 80 GB, 16 bytes per parameter:

# %% jupyter={"source_hidden": true}
parameters, memory = 70e9, 80e9
rank_table(
    [
        {
            "what": what,
            "fp32": f"{a / 1e9:,.0f} GB",
            "mixed": f"{b / 1e9:,.0f} GB",
        }
        for what, a, b in (
            ("weights, gradients, optimizer", 16 * parameters, 16 * parameters),
            (
                "one gradient all-reduce, sent per rank (about)",
                8 * parameters,
                4 * parameters,
            ),
            ("weights for inference", 4 * parameters, 2 * parameters),
        )
    ],
    caption=f"70 billion parameters. The states alone need {16 * parameters / memory:.0f} "
    "GPUs of 80 GB, in fp32 and mixed alike",
)

# %% [markdown]
# So plain data parallelism cannot train it in either: chapter 9 shards the states. The second row holds if the
# gradients are sent in 16 bits; with an fp32 reduction, as under autocast or in section 6, mixed sends as much as fp32.
# What mixed precision gives is faster matrix products, about half the memory for activations, and half the traffic of
# what is sent in 16 bits.
#
# ## 11. Where the libraries do it
#
# | | weights, masters | loss scale | gradients reduced in | ranks agree on an overflow |
# |---|---|---|---|---|
# | `torch.amp` with DDP | fp32 weights, cast per operation | `GradScaler`: $2^{16}$, growth after 2,000 steps | fp32 | no need: the mean is infinite or NaN on all |
# | FSDP2, `MixedPrecisionPolicy` | fp32 shards, gathered in `param_dtype` | torch's `GradScaler` | `reduce_dtype`; if none, that of the gradients | yes: the gradients are DTensors |
# | Megatron-LM | 16-bit weights, fp32 masters | `--initial-loss-scale` $2^{32}$, `--loss-scale-window` 1,000, `--hysteresis` 2; none for bf16 | fp32 if the weights are bf16 (`--accumulate-allreduce-grads-in-fp32`) | MAX over the model-parallel ranks, or over all (distributed optimizer) |
# | DeepSpeed | 16-bit weights, fp32 masters | `initial_scale_power` 16, `loss_scale_window` 1,000, `hysteresis` 2 | `communication_data_type` | MAX over the ranks |
#
# The **window** is torch's growth interval: so many good steps in a row, and the scale grows. **Hysteresis** 2 means
# that the first overflow only skips the step. The second one halves the scale, and so does every further one until the
# scale has grown again. **Model-parallel** ranks are those that share one copy of the model, by tensor or pipeline
# parallelism.
#
# Is FSDP2's policy what sections 3 and 6 built: bf16 weights from fp32 masters, gradients reduced in fp32?

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
# ## 12. A bug hunt
#
# A training loop in 16 bits with three bugs, of kinds that were found and fixed in public projects. **Exercise 8.**

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
#
# ### What a skipped step must not move
#
# A skipped step must not move anything: not the learning-rate schedule, not a count of steps, not a moving average of
# the weights. With torch's scaler the usual test is whether `get_scale()` fell in `update()`. The package counts
# whether `optimizer.step` was called: `step_unless_skipped(scaler, optimizer, scheduler)`.
#
# ### Myths
#
# **"16 bits halve the memory."** Of most activations, and of gradients that are sent in 16 bits, yes. Weights, masters,
# gradients and Adam's moments take at least 16 bytes per parameter, as in fp32 (section 10).
#
# **"bf16 needs nothing."** It needs no loss scale. A bf16 weight without masters, stochastic rounding or compensation
# does not take small updates (section 3).
#
# **"Loss scaling is for large losses."** It is for small gradients. In section 4 the loss is below 5, and the gradients
# vanish because they are at most $2^{-25}$; a larger loss would help.
#
# **"Mixed precision trains in fp32 on some nodes and in half precision on others, and aggregates them later."** Every
# rank computes in both formats, operation by operation (section 8). If ranks used different formats, replicas would not
# compute the same function.
#
# **"Use `torch.cuda.amp`."** It is deprecated:

# %%
import warnings

with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    torch.cuda.amp.GradScaler(enabled=False)
print(str(caught[0].message).strip())

# %% [markdown]
# **"Clip, then unscale."** Then the limit applies to gradients that are $S$ times too long:

# %%
for order in ("clip, then unscale", "unscale, then clip"):
    weight = torch.nn.Parameter(torch.zeros(4))
    optimizer = torch.optim.SGD([weight], lr=1.0)
    scaler = grad_scaler.GradScaler(init_scale=2.0**16)
    scaler.scale((3 * weight).sum()).backward()  # the gradient is 3, 3, 3, 3: norm 6
    if order.startswith("unscale"):
        scaler.unscale_(optimizer)
    torch.nn.utils.clip_grad_norm_([weight], max_norm=1.0)
    scaler.step(optimizer)
    print(f"{order}: the step has length {weight.norm().item():.1e}; the limit is 1")

# %% [markdown]
# **"A skipped step means a bug."** A few at the start, and one now and then, are how dynamic scaling finds its scale.
#
# ### Check yourself
#
# <details><summary>fp16 or bf16: in which is 65,536 infinite, and in which does 1 + 1/256 become 1?</summary>
#
# 65,536 is infinite in fp16, whose largest number is 65,504; bf16 holds it exactly. 1 + 1/256 becomes 1 in bf16 (a
# tie); fp16 holds it exactly.
# </details>
#
# <details><summary>A pipeline of 4 stages, fp16, each stage with torch's GradScaler. Once, the gradient of a weight
# of stage 1 overflows, and no other. What is wrong afterwards?</summary>
#
# Stage 1 has skipped a step that the others took, and its scale is half of theirs. But the loss is scaled once, by the
# last stage, with that stage's scale. Stage 1 divides by half of it, so from then on its gradients are twice too large.
# </details>
#
# <details><summary>13 billion parameters, bf16, fp32 gradients, masters, Adam. How many bytes on each GPU with
# DDP?</summary>
#
# 18 bytes per parameter: 234 GB. No GPU of 80 GB holds that.
# </details>
#
# <details><summary>Why does DDP need no agreement about overflows, although each rank has a scaler?</summary>
#
# All ranks look at the same averaged gradients. One infinite summand makes the mean infinite or NaN everywhere, so all
# decide alike.
# </details>
#
# <details><summary>What has to be saved in a checkpoint, beyond the model's weights?</summary>
#
# The masters (16 bits do not give them back), the moments, the scaler's state, and with delayed FP8 scaling the amax
# histories.
# </details>
#
# ## Glossary
#
# {glossary}
#
# Next: chapter 8 counts where all the bytes go, activations first.
