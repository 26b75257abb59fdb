# %% [markdown]
# # Chapter 12. Tensor parallelism
#
# **The question.** What if one layer is too wide?
#
# Builds on: chapters 2, 8, 9 and 10. Ranks: 4. Time: 75 minutes for the core path; the sections of "Further" in any order,
# when you need them.
#
# | core path | what | minutes |
# |---|---|---|
# | 1. What if one layer is too wide? | a block of Llama 3 405B | 3 |
# | 2. What lies where? | a notation, and four cases of a product | 6 |
# | 3. What does the naive way cost? | gather weights, or outputs | 3 |
# | 4. Where do the ranks have to meet? | f and g, by hand | 6, and exercise 1: 20 |
# | 5. Why column, then row? | what stands between them | 2 |
# | 6. Who adds the bias? | the page; all ways measured | 4, and exercise 2: 15 |
# | 7. What is a part of attention? | heads | 2 |
# | 8. What does a block send? | one block drawn, 8bsh | 4 |
# | 9. What is still whole? | sequence parallelism, drawn | 3 |
# | 10. How does it break? | f is removed | 3 |
# | 11. How many ranks, and when? | two nodes by the cost model | 4 |
#
# After it you can say where the ranks of a split transformer block communicate, why only there, and what it costs. MB are
# $10^6$ bytes and GB $10^9$.

# %% jupyter={"source_hidden": true}
# %load_ext dtlearn
import torch

import dtlearn
from dtlearn import tensor_parallel as tp
from dtlearn.viz import rank_table, show


def rounded(difference):
    """A difference in words: rounding is not the same on every processor."""
    return "less than 1e-12" if difference < 1e-12 else f"{difference:.1g}"


torch.set_num_threads(1)  # small tensors: more threads would only wait for each other
world = dtlearn.world(4)
world

# %% [markdown]
# # The core path
#
# ## 1. What if one layer is too wide?
#
# In a pipeline (chapter 10) and with ZeRO's stage 3 (chapter 9) one device computes a whole layer for a sample. So with more
# devices a *sample* passes through a layer no faster. And a whole layer has to fit, with its activations. How large is one?

# %% jupyter={"source_hidden": true}
from dtlearn.memory import GPUS, MODELS

llama = MODELS["Llama 3 405B"]
matrix = llama.hidden * llama.feed_forward
head = llama.hidden * llama.vocabulary
logits = 4 * llama.context * llama.vocabulary
rank_table(
    [
        {
            "": name,
            "parameters": f"{numel / 1e6:,.0f} million",
            "weights in bf16, GB": f"{2 * numel / 1e9:.1f}",
            "with gradients and Adam's state, 16 bytes each, GB": f"{16 * numel / 1e9:.1f}",
        }
        for name, numel in (
            ("one matrix of the feed-forward network, 16,384 x 53,248", matrix),
            ("one block: attention and feed-forward", llama.block_parameters),
            ("the head, 16,384 x 128,256", head),
        )
    ],
    caption=f"Llama 3 405B (2407.21783). An H100 has {GPUS['H100 80GB'].bytes / 1e9:.1f} GB; the logits of one sequence of 8,192 "
    f"tokens take {logits / 1e9:.1f} GB in fp32",
)

# %% [markdown]
# It still fits, but a single block with its training state takes more than half of an H100, before the first activation.
#
# **Tensor parallelism** splits the layer itself: each rank holds a part of every large weight matrix and computes a
# part of every large product, for the same samples. The method is Megatron-LM's (Shoeybi et al. 2019, arXiv 1909.08053).
# Below, t is the number of ranks that share a layer.
#
# ## 2. What lies where?
#
# A linear layer computes $Y = XW$: X has a row for each token, W a column for each output feature. X is `X[T, C]`: T
# tokens and C features. W is `W[C, F]`. What each of the t ranks holds is written as follows:
#
# | | every rank holds | shape on a rank |
# |---|---|---|
# | `W[C, F]` | all of W: it is **replicated** | (C, F) |
# | `W[C, F_t]` | some columns, a **shard**: F is divided over the ranks | (C, F/t) |
# | `W[C_t, F]` | some rows: C is divided | (C/t, F) |
#
# (The notation of [How To Scale Your Model](https://jax-ml.github.io/scaling-book/sharding/).) Be careful with PyTorch:
# `nn.Linear` stores the *transpose* of W, (out, in). So a *column* of W, one output feature, is a *row* of `linear.weight`.
#
# Which products can be computed locally? Try one: T = 1, C = 4, F = 2, on two ranks. X and W are split along C.
#
# | | rank 0 | rank 1 |
# |---|---|---|
# | `X[T, C_t]` | (1 2) | (3 4) |
# | `W[C_t, F]` | rows (1 0), (0 1) | rows (1 1), (2 0) |
# | local product | (1 2) | (11 3) |

# %%
held = dtlearn.predict.choice(
    "Each rank multiplies its own part of X by its own part of W, as in the table. What is a local product?",
    {
        "A": "a block of Y: some of its columns",
        "B": "as large as Y, but not Y: Y is the sum of the local products",
        "C": "nothing of use: X and W would both have to be gathered first",
    },
    id="ch12.held",
)

# %% jupyter={"source_hidden": true}
held.reveal()

# %% [markdown]
# Such a local product is a **partial sum**, written `Y[T, F] {U_t}`, U for *unreduced*: each rank has a tensor as large as Y,
# and Y is the sum over the ranks. What can be computed locally depends on the **contracted** dim, the one that the product
# sums over, here C:
#
# | | operands and result | local products | communication |
# |---|---|---|---|
# | 1 | `X[T, C] · W[C, F_t] -> Y[T, F_t]`; also `X[T_t, C] · W[C, F]` | blocks of Y | nothing |
# | 2 | `X[T, C] · W[C_t, F]`: C is divided in one of the two | the shapes do not fit | gather W; or slice X, for free: case 3 |
# | 3 | `X[T, C_t] · W[C_t, F] -> Y[T, F] {U_t}` | partial sums of Y | all-reduce, or reduce-scatter if Y may be divided |
# | 4 | `X[T_t, C] · W[C, F_t]`: both divided, along other dims | one of the t² blocks of Y | gather X or W first |
#
# Data parallelism is the second half of case 1, ZeRO 3 is case 4 with W gathered. Tensor parallelism is the first half of case
# 1, and case 3. Case 3 on two ranks, block by block: before the last step every block of Y lacks the other rank's term.

# %% jupyter={"source_hidden": true}
from dtlearn.notebook.panels import stepper
from dtlearn.tensor_parallel.notation.product_case import product_case
from dtlearn.tensor_parallel.notation.product_steps import product_steps
from dtlearn.viz import Picture
from dtlearn.viz.tensor_parallel.product_picture import (
    frame_size,
    product_figure,
    product_frames,
    product_words,
)

steps = product_steps(product_case("X[T, C_t]", "W[C_t, F]", name="Y"), num_ranks=2)
frames, captions = product_frames(steps)
stepper(
    frames,
    captions,
    "Case 3, block by block.",
    size=frame_size(steps),
    static=Picture(
        product_figure(
            steps,
            "Case 3: local products are partial sums, and an all-reduce adds them up",
            "X[T, C_t] W[C_t, F] on 2 ranks, 2 x 2 blocks each",
        ),
        product_words(steps),
    ),
)

# %% [markdown]
# ## 3. What does the naive way cost?
#
# A feed-forward network has two weights: `up`, of shape `[C, F]`, and `down`, of shape `[F, C]`. The simplest ways to split it:
#
# - **Gather the weights**, of which each rank stores some columns, before computing.
# - **Gather after every layer** the outputs of all columns, of which each rank computes some, case 1.
#
# Both on 4 ranks, for the feed-forward network of our GPT (C = 64, F = 256) and 8 sequences of 64 tokens. The folded cell has
# what the cells below use: `seeded`, a module with the same weights on every rank, in float64 (`EXACT`); `whole_gpt` is such
# a GPT, `the_batch` a batch of the text `corpus`; `some_input`, the same numbers everywhere; `apart`, the largest difference
# of two tensors; and `beside`, which measures ways to split the network. A batch is (B, T, C).

# %% jupyter={"source_hidden": true}
# %%ranks --setup
from torch.nn import functional
from torch.utils.flop_counter import FlopCounterMode

import dtlearn
from dtlearn import tensor_parallel as tp
from dtlearn.memory import MemoryLedger, kept_tensors
from dtlearn.models import GPT, GPTConfig, load_corpus, next_token_loss
from dtlearn.models.gpt import FeedForward
from dtlearn.sharing import differentiable

CONFIG = GPTConfig()  # C = 64, H = 4 heads, F = 256, V = 128, 4 blocks
EXACT = torch.float64
corpus = load_corpus()


def seeded(make, *args, **options):
    """A module in float64 whose weights are the same on every rank."""
    torch.manual_seed(0)
    return make(*args, **options).to(device, EXACT)


def some_input(*shape):
    """The same numbers on every rank, with a gradient to be computed."""
    generator = torch.Generator().manual_seed(1)
    return (
        torch.randn(*shape, generator=generator, dtype=EXACT).to(device).requires_grad_()
    )


def apart(ours, theirs):
    """The largest difference of two tensors."""
    return (ours - theirs).abs().max().item()


def whole_gpt(config=CONFIG):
    return seeded(GPT, config)


def the_batch(samples=8, length=64):
    x, y = next(corpus.batches(1, samples, length))
    return x.to(device), y.to(device)


def measured(layer, name):
    """Forward and backward: the output, the input's gradient, operations, and bytes kept for backward."""
    x = some_input(8, 64, 64)  # (B, T, C)
    kept = []
    with dtlearn.phase(name), FlopCounterMode(display=False) as counter:
        kept += kept_tensors(lambda: kept.append(layer(x)), layer, x)
        y, kept = kept[0], kept[1:]
        y.square().sum().backward()
    return y, x.grad, counter.get_total_flops(), sum(tensor.bytes for tensor in kept)


def beside(ways):
    """Each way, beside the whole network on one rank."""
    y, dx, flops, kept = measured(seeded(FeedForward, CONFIG), "one rank")
    rows = {"one rank": (0.0, 0.0, flops, kept)}
    for name, make in ways.items():
        own = measured(make(seeded(FeedForward, CONFIG)), name)
        rows[name] = apart(own[0], y), apart(own[1], dx), *own[2:]
    return rows


# %%
# %%ranks --record naive_record -o naive
from dtlearn.tensor_parallel.layers.naive import (
    OutputGatheredFeedForward,
    WeightGatheredFeedForward,
)

naive = beside(
    {
        "gather the weights": WeightGatheredFeedForward.from_feed_forward,
        "gather after every layer": OutputGatheredFeedForward.from_feed_forward,
    }
)
naive

# %% jupyter={"source_hidden": true}
from dtlearn.runtime.record.training_steps import part
from dtlearn.viz import sent_by_operation


def costs(rows, record):
    """What each way costs rank 0; bytes as rings send them."""
    return [
        {
            "": name,
            "operations, million": f"{flops / 1e6:.1f}",
            "kept for backward beside X, kB": f"{kept / 1e3:,.0f}",
            "sent, kB": f"{sum(sent_by_operation(part(record, name)).values()) / 1e3:,.0f}",
        }
        for name, (*apart, flops, kept) in rows.items()
    ]


for row in costs(naive[0], naive_record):
    print("; ".join(f"{key} {value}".strip() for key, value in row.items()))

# %% [markdown]
# Gathering the weights saves no computation: every rank computes the whole product for the same samples. (It sends little
# here, since our weights are small; section 8.) Gathering the outputs divides the computation, but every rank keeps the whole
# output of the first layer, the widest activation of the model. Can the second layer do without it?
#
# ## 4. Where do the ranks have to meet?
#
# Here is Megatron-LM's answer. `up` is split by columns, `down` by rows:
#
# | step | case | operands and result | communication |
# |---|---|---|---|
# | Z = X · up | 1 | `X[T, C] · up[C, F_t] -> Z[T, F_t]` | none |
# | GELU(Z) | | `[T, F_t]`: element by element | none |
# | Y = GELU(Z) · down | 3 | `[T, F_t] · down[F_t, C] -> Y[T, C] {U_t}` | the sum over the ranks |
#
# A layer that is split by columns is called **column-parallel**, one that is split by rows **row-parallel**. The output
# of the first is divided just as the second needs its input, and no rank ever has the whole Z.
#
# Now the backward pass. $dY$ is the same on every rank, since all ranks compute the rest of the model and the same loss. Of
# `up` and `down` each rank needs the gradient of its own shard, and of X the whole gradient.

# %%
all_reduces = dtlearn.predict(
    "One step of this feed-forward network on 4 ranks, forward and backward: in the end each rank has Y, dX and the "
    "gradients of its shards. How many all-reduces are needed?",
    id="ch12.all_reduces",
)

# %%
# %%ranks --record mlp_record
network = tp.ParallelFeedForward.from_feed_forward(seeded(FeedForward, CONFIG))
x = some_input(8, 64, 64)  # (B, T, C)
with dtlearn.phase("one step"):
    network(x).square().sum().backward()

# %% jupyter={"source_hidden": true}
calls = [event for event in part(mlp_record, "one step") if event.rank == 0]
all_reduces.reveal(len(calls))

# %% jupyter={"source_hidden": true}
for event in calls:
    print(f"rank 0, {event.phase}: {event.op} of {event.nbytes:,} bytes")
print(f"X has {8 * 64 * 64 * 8:,} bytes")

# %% [markdown]
# The second one sums up $dX$: every rank used the whole X, for its own columns, so $dX = \sum_r dZ_r\, up_r^T$, and each
# rank can compute one term of it. From the input of the column-parallel layer to the output of the row-parallel one is a
# **tensor-parallel region**. At its two ends stand two operators, each with a forward *and* a backward pass:
#
# | | place | forward | backward |
# |---|---|---|---|
# | **f** | where every rank begins to use the whole X for its own part | passes X on | adds up the gradients of all ranks |
# | **g** | where the ranks' partial sums have to become one tensor | adds up the partial sums of all ranks | passes the gradient on |
#
# They are **conjugate**: the backward pass of one is the forward pass of the other. g does not add up gradients: for $Y = Y_0 +
# Y_1$ the gradient of each term is $dY$ itself. Adding up equal copies would make every gradient inside t times too large.
#
# By hand, with two ranks, one token, and one feature everywhere. X = 3; `up` is (2 5), one column on each rank; `down` is
# (1 4), one row on each; no GELU. So $Y = 3 \cdot 2 \cdot 1 + 3 \cdot 5 \cdot 4 = 66$, and the gradient of Y with respect to X
# is $2 \cdot 1 + 5 \cdot 4 = 22$.
#
# | | rank 0 | rank 1 | together |
# |---|---|---|---|
# | forward: Z | 3 · 2 = 6 | 3 · 5 = 15 | |
# | partial sum of Y | 6 · 1 = 6 | 15 · 4 = 60 | g: 66 on both |
# | backward: dY | 1 | 1 | g passes it on |
# | gradient of `down`: Z dY | 6 | 15 | each keeps its own |
# | dZ = dY · down | 1 | 4 | |
# | gradient of `up`: X dZ | 3 | 12 | each keeps its own |
# | term of dX | 1 · 2 = 2 | 4 · 5 = 20 | f: 22 on both |

# %% [markdown]
# For an operation with a backward pass of your own PyTorch has `torch.autograd.Function`. Autograd records nothing inside
# these two functions, and may hand the same gradient to other operations, too. Here $y = 2x$:


# %%
class Twice(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return 2 * x

    @staticmethod
    def backward(ctx, gradient):  # of y
        return 2 * gradient  # of x


x = torch.ones(3, requires_grad=True)
Twice.apply(x).sum().backward()
x.grad

# %% [markdown]
# **Exercise 1.** f and g.

# %% exercise="ch12.f_and_g"

# %% [markdown]
# In the package f is `copy_to` and g is `reduce_from`. Each backward pass calls the conjugate operator:

# %%
from dtlearn.sharing import differentiable

dtlearn.show_source(
    differentiable.Copy,
    docstring=False,
    summary="f: the autograd function of copy_to",
)
dtlearn.show_source(
    differentiable.Reduce,
    docstring=False,
    summary="g: the autograd function of reduce_from",
)

# %% [markdown]
# ## 5. Why column, then row?
#
# In the other order the first layer is row-parallel, `X[T, C_t] · up[C_t, F]`, and produces partial sums, `Z[T, F] {U_t}`.
# GELU cannot be applied to them, because it is not linear:

# %%
parts_of_z = torch.tensor([2.0, -3.0])  # one element of Z as a partial sum on two ranks
gelu = torch.nn.functional.gelu
print(f"GELU of the sum:  {gelu(parts_of_z.sum()).item():.3f}")
print(f"sum of the GELUs: {gelu(parts_of_z).sum().item():.3f}")

# %% [markdown]
# So Z would have to be summed first, F = 4C features for each token instead of C. Column, then row is the rule for every
# pair of linear layers with an *elementwise* operation in between. One that mixes features, such as a norm, may not stand
# there.
#
# ## 6. Who adds the bias?
#
# In a column-parallel layer the bias is split like the columns. In a row-parallel layer every rank has all outputs, as sums
# over the ranks. With the bias 1 and the partial sums 6 and 60 from above:
#
# | | rank 0 | rank 1 | output |
# |---|---|---|---|
# | each rank adds the bias to its product | 6 + 1 | 60 + 1 | 68 |
# | right | 6 | 60 | 66 + 1 = 67 |
#
# In a new GPT all biases are zero, so the first loss is right. Then all t copies learn, and the loss curve looks good. What
# breaks is a checkpoint: with another t the same weights are another function.

# %% [markdown]
# **Exercise 2.** A row-parallel layer with its bias.

# %% exercise="ch12.row_parallel"

# %% [markdown]
# Both layers on a page:

# %%
from dtlearn.tensor_parallel import page_linear

dtlearn.show_source(page_linear, summary="page_linear.py, the whole file")

# %% [markdown]
# The package's `ColumnParallelLinear` and `RowParallelLinear` compute the same, to the last bit. Beside the whole network on
# one rank, and beside the naive ways:

# %%
# %%ranks --record real_record -o real
real = beside({"column, then row": tp.ParallelFeedForward.from_feed_forward})
real

# %% jupyter={"source_hidden": true}
off = max(max(rows[way][:2]) for rows in (naive[0], real[0]) for way in rows)
rank_table(
    costs(naive[0], naive_record) + costs(real[0], real_record)[1:],
    caption="A feed-forward network on 4 ranks, forward and backward, in float64; difference of Y and dX from one rank: "
    + rounded(off),
)

# %% [markdown]
# Computation, and what is kept inside, are divided by four; X itself is whole on every rank (section 9). Two tensors as large
# as X are summed up, and no weight is sent nor the gradient of one.
#
# The bias of the row-parallel layer is replicated. Does its gradient have to be summed over the ranks? No: it is
# computed from dY, which is whole and equal on all ranks, and so is the update. The same holds for layer norms and everything
# else *between* the tensor-parallel regions.
#
# ## 7. What is a part of attention?
#
# Attention (`dtlearn/models/gpt.py`) has four matrices. Q, K and V are projections of X, and the output projection follows.
# With H heads of size D = C/H, head $i$ uses only D columns of Q, K and V, from $iD$ on, and computes
# $\mathrm{softmax}(Q_i K_i^T / \sqrt{D})\, V_i$, which does not depend on any other head. So attention is split by heads:
# the projections to Q, K and V are column-parallel, *in whole heads*, and the output projection is row-parallel.
#
# | | shape | communication |
# |---|---|---|
# | X | `X[B, T, C]` | f |
# | Q, K, V | `[B, T, H_t, D]` | none |
# | scores and softmax | `[B, H_t, T, T]` | none: the softmax is over the keys of one head |
# | heads, side by side | `[B, T, H_t · D]` | none |
# | output projection | `Y[B, T, C] {U_t}` | g |
#
# Once more one f and one g.
#
# ## 8. What does a block send?
#
# The embedding and the head are split along the vocabulary: a rank has the logits of some tokens, and the loss is made of
# maxima and sums that are all-reduced (Further). Everything together is `ParallelGPT`. Two training steps on 4 ranks, each
# parameter (`full_params` gathers them whole) compared with one process:


# %%
# %%ranks -o gpt_parity
def two_steps(model, loss_of):
    """Two steps of AdamW."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for _ in range(2):
        loss = loss_of(model)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    return loss


x, y = the_batch()
whole, gpt = whole_gpt(), tp.ParallelGPT.from_gpt(whole_gpt())
whole_loss = two_steps(whole, lambda model: next_token_loss(model(x), y))
own_loss = two_steps(gpt, lambda model: model.loss(x, y))
expected = dict(whole.named_parameters())
gpt_parity = {
    name: apart(parameter, expected[name])
    for name, parameter in gpt.full_params().items()
} | {"loss": apart(own_loss, whole_loss)}
gpt_parity

# %% jupyter={"source_hidden": true}
off = max(max(of_rank.values()) for of_rank in gpt_parity)
print(
    f"{len(gpt_parity[0]) - 1} parameters and the loss, largest difference:", rounded(off)
)

# %% [markdown]
# And one block of it, forward and backward, with its communication as recorded:

# %%
# %%ranks --record layer_record -o layer_runs
from dtlearn.viz import module_runs

block = gpt.blocks[0]
with module_runs(block) as layer_runs:
    block(some_input(8, 48, 64)).square().sum().backward()
layer_runs

# %% jupyter={"source_hidden": true}
from dtlearn.viz import LayerRun, draw_layer, layer_words

BETWEEN = {
    "attention.output": "attention, each rank its own heads",
    "feed_forward.down": "GELU",
}
one_layer = {"tensor parallelism": LayerRun(layer_record, layer_runs[0])}
show(
    draw_layer(
        one_layer,
        "Four all-reduces: two forward, two backward",
        "rank 0 of 4, recorded; 8 sequences of 48 tokens, C = F/t = 64, float64; bytes as a ring sends them",
        BETWEEN,
    ),
    alt=layer_words(one_layer),
)

# %% [markdown]
# One g and one f each, two all-reduces in forward and two in backward; everything else is local. Each of the four has the size
# of X: b sequences, s tokens, h features, $bsh$ elements (b, s and h are the papers' letters; in code B, T and C). A ring
# all-reduce of n elements sends $2n(t-1)/t$ elements from each rank (chapter 2). So each rank sends
#
# $$4 \cdot 2bsh\,\frac{t-1}{t} = 8bsh\,\frac{t-1}{t}$$
#
# elements for a block, forward and backward (Narayanan et al. 2021, arXiv 2104.04473, section 3.2). They grow with the *batch*
# and with h, the weights with $h^2$. ZeRO 3 is the opposite: it sends weights, whatever the batch is (chapter 9). And
# from t = 4 to 8 they hardly grow, from $6bsh$ to $7bsh$, while the computation of a rank halves.
#
# ## 9. What is still whole?
#
# *Between* the tensor-parallel regions, at the layer norms, the residual sums and dropout, every rank keeps the whole
# tensor, and all compute the same. But these operations treat each *token* on its own, so there one can divide the tokens,
# `X[B, T_t, C]`: **sequence parallelism** (Korthikanti et al. 2022, arXiv 2205.05198). At the ends of a region the tensor
# changes from one division to the other:
#
# | | tensor parallelism | with sequence parallelism | its backward pass |
# |---|---|---|---|
# | into a tensor-parallel region | f: nothing | all-gather the tokens | reduce-scatter |
# | out of it | g: all-reduce | reduce-scatter: sum, and each rank keeps its tokens | all-gather |

# %%
sp_bytes = dtlearn.predict(
    "With ring algorithms: what is the ratio of the bytes that a rank sends with sequence parallelism to those that it "
    "sends without?",
    id="ch12.sp_bytes",
)

# %%
# %%ranks --record sp_record -o sp_runs
gpts = {
    "tensor parallelism": tp.ParallelGPT.from_gpt(whole_gpt()),
    "with sequence parallelism": tp.ParallelGPT.from_gpt(
        whole_gpt(), sequence_parallel=True
    ),
}
sp_runs = {}
for name, model in gpts.items():
    block = model.blocks[0]
    length = 48 if name == "tensor parallelism" else 48 // world_size
    with dtlearn.phase(name), module_runs(block) as sp_runs[name]:
        block(some_input(8, length, 64)).square().sum().backward()
sp_runs

# %% jupyter={"source_hidden": true}
both = {name: part(sp_record, name) for name in sp_runs[0]}
sent = {name: sum(sent_by_operation(record).values()) for name, record in both.items()}
sp_bytes.reveal(sent["with sequence parallelism"] / sent["tensor parallelism"])

# %% jupyter={"source_hidden": true}
two_layers = {name: LayerRun(record, sp_runs[0][name]) for name, record in both.items()}
show(
    draw_layer(
        two_layers,
        "Each all-reduce becomes a reduce-scatter and an all-gather",
        "rank 0 of 4, recorded; bytes as a ring sends them",
        BETWEEN,
    ),
    alt=layer_words(two_layers),
)

# %% [markdown]
# (The shapes are those of rank 0, which has 12 of the 48 tokens.) One thing changes silently: a rank's layer norm now sees T/t
# tokens, so each rank has *one term* of the gradient of its weights. The terms have to be added up after the backward pass
# (Further, "What does sequence parallelism keep?").
#
# ## 10. How does it break?
#
# Suppose that somebody removes f from all layers, because it does nothing in forward. A GPT is trained for 15 steps.

# %%
seen = dtlearn.predict.choice(
    "f is gone from every layer. Which of these shows it best?",
    {
        "A": "the loss over the steps",
        "B": "the loss, compared between the ranks",
        "C": "the weight of a norm, compared between the ranks",
    },
    id="ch12.seen",
)

# %%
# %%ranks -o curves
import contextlib
from unittest.mock import patch


def forgets(ctx, gradient):
    """f's backward pass without the all-reduce."""
    return gradient, None


def train(gpt, steps):
    """The losses of this rank, and the last batch."""
    optimizer = torch.optim.AdamW(gpt.parameters(), lr=3e-3)
    losses = []
    for x, y in corpus.batches(steps, 8, 32):
        x, y = x.to(device), y.to(device)
        loss = gpt.loss(x, y)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    return losses, x, y


def curve(broken):
    """Losses, in fp32; a norm's weight; the loss of the last batch after training, and of the saved model."""
    gpt = tp.ParallelGPT.from_gpt(whole_gpt(GPTConfig(num_layers=2)).float())
    without_f = patch.object(differentiable.Copy, "backward", staticmethod(forgets))
    with without_f if broken else contextlib.nullcontext():
        losses, x, y = train(gpt, steps=15)
    saved = GPT(gpt.config).to(device)  # the whole model, as this rank would save it
    saved.load_state_dict(gpt.full_params())
    norm = gpt.blocks[0].attention_norm.weight.detach()
    return losses, norm, gpt.loss(x, y).item(), next_token_loss(saved(x), y).item()


curves = {"with f": curve(False), "without f": curve(True)}
curves

# %% jupyter={"source_hidden": true}
seen.reveal()

# %% tags=["nbval-ignore-output"] jupyter={"source_hidden": true}
rank_table(
    [
        {
            "": way,
            **{
                f"loss {step}": f"{curves[0][way][0][step - 1]:.3f}"
                for step in (1, 5, 10, 15)
            },
            "after step 15, same batch": f"{curves[0][way][2]:.3f}",
            "saved as one model": f"{curves[0][way][3]:.3f}",
            "a norm's weight, ranks 0 and 3": rounded(
                (curves[0][way][1] - curves[3][way][1]).abs().max().item()
            ),
        }
        for way in ("with f", "without f")
    ],
    caption="15 steps of AdamW on 4 ranks: losses at some steps; at the end the same loss with the model that rank 0 saves, and "
    "the difference of a replicated parameter between two ranks",
)

# %% [markdown]
# The four ranks have learned to work together with four different sets of norms, biases and positions. The saved model shows
# it a little, since it has only one of these sets. A comparison of parameters with one process (section 8) shows it at once,
# and so does a replicated parameter, which has to be equal on all ranks to the last bit.
#
# ## 11. How many ranks, and when?
#
# With more ranks, each computes less, and sends no less. With more ranks than a node has, the same bytes also go through
# network cards. How long a block takes, forward and backward, follows from the cost model of chapter 2. Here a GPU computes 400
# TFLOP/s, about what Llama 3 reached on H100s (2407.21783, table 4). An all-reduce is a ring over all GPUs, or, if that is
# faster, one that sums up inside each node first and then between the nodes. Nothing is overlapped.

# %%
two_nodes = dtlearn.predict.choice(
    "A block of GPT-3 (2005.14165: h = 12,288; one sequence of 2,048 tokens, bf16). Nodes of 8 GPUs with NVLink of 450 GB/s, and one "
    "network card of 200 Gb/s (25 GB/s) for each node. The block is computed by 8 GPUs of a node. What happens with t = 16, "
    "on two nodes?",
    {
        "A": "it takes little more than half the time",
        "B": "it takes somewhat less time",
        "C": "it takes more time",
    },
    id="ch12.two_nodes",
)

# %% [markdown]
# Rates are nominal (of NVLink's 450 GB/s rings reach 370: [nccl-tests#212](https://github.com/NVIDIA/nccl-tests/issues/212)),
# latencies are assumed:

# %%
from dtlearn.collectives.topology import flat, nodes
from dtlearn.tensor_parallel.arithmetic.cliff import layer_times
from dtlearn.tensor_parallel.arithmetic.sizes import BlockSizes

GPT3 = BlockSizes(batch=1, length=2048, hidden=12288, heads=96)
NVLINK = (3e-6, 450e9)  # seconds of latency, bytes per second
CLUSTERS = {
    "one card of 25 GB/s per node": nodes(8, NVLINK, (8e-6, 25e9)),
    "one card of 50 GB/s per GPU": nodes(8, NVLINK, (8e-6, 50e9), cards=8),
    "NVLink between all GPUs": flat(*NVLINK),
}
RANKS = (1, 2, 4, 8, 16, 32)
times = {
    name: layer_times(GPT3, RANKS, topology, flops=400e12)
    for name, topology in CLUSTERS.items()
}

# %% jupyter={"source_hidden": true}
slow = {time.num_ranks: time for time in times["one card of 25 GB/s per node"]}
two_nodes.reveal(
    compute8=1e3 * slow[8].computation,
    compute16=1e3 * slow[16].computation,
    sent8=1e3 * slow[8].communication,
    sent16=1e3 * slow[16].communication,
)

# %% jupyter={"source_hidden": true}
from dtlearn.viz import bandwidth_cliff

show(
    bandwidth_cliff(
        {t: (time.computation, time.communication) for t, time in slow.items()},
        ranks_per_node=8,
        title="One slow card per node: beyond the node a block takes longer than inside it",
        label="a block of GPT-3, by the cost model; nodes of 8 GPUs, NVLink 450 GB/s, one card of 25 GB/s per node",
    ),
    alt="Bars of the time of a block for 1, 2, 4, 8, 16 and 32 GPUs, computation below and communication on top. From 1 to "
    "8 GPUs, inside a node, the bars fall from 57 ms to 8 ms, and communication is a small part. With 16 GPUs the bar is "
    "13 ms and with 32 it is 15 ms, most of it communication. 8 is the fastest.",
)

# %% [markdown]
# Even inside a node the efficiency falls with t: $72bsh^2/t$ operations to $8bsh$ elements, a ratio proportional to $h/t$, and
# independent of the batch. So a large t is for wide layers.
#
# **When to use it.** For layers that are too wide, for activations that are too large, and for a batch that cannot grow: it is
# the only strategy so far that computes one sample faster. Keep it inside a node. Otherwise data parallelism is simpler, and
# sends less if a step has more than about 3h tokens on all ranks together: it all-reduces the gradients of the 12 h² parameters
# of a block, tensor parallelism four tensors with h elements for each token.

# %% [markdown]
# # Further
#
# Each section stands alone, after the core path.
#
# | section | needs | minutes | exercise |
# |---|---|---|---|
# | How is a weight cut, and initialised? | section 2 | 1 | 3: 12 |
# | How is a fused weight cut? | section 7 | 3 | 4: 25 |
# | What if heads are shared? | "How is a fused weight cut?" | 2 | |
# | How is a vocabulary divided? | section 4 | 4 | 5: 20, 6: 30 |
# | What is split in a GPT, and what does it send? | section 8 | 2 | 7: 20 |
# | What does sequence parallelism keep? | section 9 | 3 | 8: 15 |
# | Which random numbers are equal? | section 7, chapter 8 | 3 | 9: 25 |
# | Can the all-reduce be hidden? | section 4 | 2 | |
# | How long is the gradient, and who saves what? | section 8, chapter 9 | 2 | |
# | What do two nodes cost? | section 11 | 3 | |
# | What if the ranks read different batches? | section 8 | 1 | |
# | Where do the libraries do it? | section 8; its table: all | 4 | |
# | Can one split along two dims at once? | section 9 | 1 | |
# | What is different on GPUs? | section 8 | 1 | |
# | Myths, and questions to check yourself | all | 2 | |
#
# ## How is a weight cut, and initialised?
#
# *Needs: section 2.*

# %% [markdown]
# **Exercise 3.** Split a weight, and put it together again.

# %% exercise="ch12.split_and_reassemble"

# %% [markdown]
# The package's `shard` takes a part and copies it. A view would give the same results, but it would keep the whole
# tensor in memory:

# %%
from dtlearn.sharing.shards import shard_of

dtlearn.show_source(shard_of, docstring=False, summary="dtlearn.sharing.shards.shard_of")

# %% [markdown]
# **Initialisation.** A layer that is built from its sizes should be the same layer for every t. If each rank draws its
# shard from its own seed, the model depends on t. (Megatron-LM does so on the GPU by default.) If all ranks draw their
# shards from the same seed, all shards are *equal*, and t copies of the same features are trained. So here the full
# weight is drawn from one seed, which the first rank of the group draws and broadcasts, and sliced, one weight at a time:

# %%
# %%ranks -o first_draws
torch.manual_seed(rank)  # the ranks have different states, and it does not matter
layer = tp.RowParallelLinear(8, 2, bias=False).to(device)
first_draws = layer.full_params()["weight"]
first_draws

# %%
print(
    "the same full weight on all ranks:",
    all(w.equal(first_draws[0]) for w in first_draws),
)

# %% [markdown]
# ## How is a fused weight cut?
#
# *Needs: section 7.* GPT-2 and many others have Q, K and V in one weight, as one product is faster than three. Stored as
# `nn.Linear` stores it, it has the shape (3C, C): C rows of Q, then C rows of K, then C rows of V. A column-parallel layer
# makes t equal pieces from top to bottom, and each rank uses the thirds of its piece as *its* q, k and v.

# %%
thirds = dtlearn.predict.choice(
    "C = 64 and 4 heads, so the fused weight has 192 rows. Each of 4 ranks takes 48 of them from top to bottom, and splits "
    "its 48 rows into q, k and v of one head, 16 rows each. What does rank 1 then use as its k and its v?",
    {
        "A": "the keys and the values of head 1, as it should",
        "B": "the keys of head 0, and as values the keys of head 1",
        "C": "queries in both places",
    },
    id="ch12.thirds",
)

# %% jupyter={"source_hidden": true}
thirds.reveal()
owner = [f"{name}{head}" for name in "qkv" for head in range(4) for _ in range(16)]
for rank in range(4):
    piece = owner[48 * rank : 48 * (rank + 1)]
    print(f"rank {rank}: q from {piece[0]}, k from {piece[16]}, v from {piece[32]}")

# %%
# %%ranks -o attention_off
attention = seeded(GPT, CONFIG).blocks[0].attention  # its biases are 0
parts = [
    layer.weight.detach() for layer in (attention.query, attention.key, attention.value)
]
fused = torch.cat(parts)  # (3C, C)
x = some_input(8, 64, 64).detach()


def from_pieces(x, fused, output, head_size=16):
    """A rank's heads from its rows of the fused weight, and its term of the output."""
    q, k, v = (
        functional.linear(x, rows).unflatten(-1, (-1, head_size)).transpose(1, 2)
        for rows in fused.chunk(3)
    )
    y = (
        functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        .transpose(1, 2)
        .flatten(2)
    )
    return tp.reduce_from_tensor_parallel_region(functional.linear(y, output))


own_output = tp.shard(attention.output.weight, 1)
outputs = {
    "t pieces, from top to bottom": from_pieces(x, tp.shard(fused, 0), own_output),
    "by heads": tp.ParallelAttention.from_attention(attention)(x),
}
right = attention(x)
attention_off = {
    way: apart(y, right) / right.abs().max().item() for way, y in outputs.items()
}
attention_off

# %% jupyter={"source_hidden": true}
for way, off in attention_off[0].items():
    print(f"{way}: difference of Y over the largest element of Y: {rounded(off)}")

# %% [markdown]
# The shapes fit, and it is another function. Training from scratch does not show it: it trains another model, which also has
# attention. But a checkpoint of one layout that is loaded as the other is useless. Two layouts are common. In **blocks**, as in
# GPT-2, all rows of q come first, then those of k and v; a rank collects its heads' rows from each of the three. In
# **groups**, as in Megatron-LM and BLOOM, q, k and v of head 0 come first, then those of head 1, and so on: there contiguous
# pieces are right if they end between heads.
#
# **Grouped queries.** Many models have fewer heads of K and V than of Q (grouped-query attention, Ainslie et al. 2023, arXiv
# 2305.13245): query heads that follow one another share one head of K and V, and there is less to compute and to keep. With
# 4 query heads and 2 heads of K and V, q0 and q1 use k0 and v0, and q2 and q3 use k1 and v1. To compute it, repeat each head
# of K and V for its query heads; the fused weight has the rows of 4 + 2 + 2 heads. A rank needs the K and V of its own query
# heads: on 2 ranks q0 q1 k0 v0, and q2 q3 k1 v1.

# %% [markdown]
# **Exercise 4.** Attention by heads, from a fused weight.

# %% exercise="ch12.fused_qkv"

# %%
dtlearn.show_source(
    tp.split_fused_qkv,
    docstring=False,
    summary="dtlearn.tensor_parallel.split_fused_qkv",
)

# %% [markdown]
# **SwiGLU** has the same trap. Llama's feed-forward network is $Y = (\mathrm{SiLU}(X\,\mathrm{gate}) \odot X\,\mathrm{up})\,
# \mathrm{down}$, with `gate` and `up` both `[C, F]`, often fused into one `[C, 2F]`. ⊙ multiplies feature $i$ of the gate with
# feature $i$ of `up`, so a rank needs *the same columns* of both. With F = 4:
#
# | | rank 0 | rank 1 |
# |---|---|---|
# | the fused weight split in two | g0 g1 g2 g3 | u0 u1 u2 u3 |
# | each half split in two | g0 g1 u0 u1 | g2 g3 u2 u3 |
#
# In the first row rank 0 has all gates, and multiplies gates by gates. A fused weight is always split within each of its
# parts, never across them; `ParallelSwiGLU` does so.
#
# ## What if heads are shared?
#
# *Needs: "How is a fused weight cut?", its paragraph on grouped queries.* In Llama 3 405B, 128 heads of Q share 8 of K and
# V. With t up to 8 each rank has whole groups. With t = 16 two ranks need one head of K and V, so this head is *replicated*
# on both:
#
# | 4 query heads, 2 heads of K and V | rank 0 | rank 1 | rank 2 | rank 3 |
# |---|---|---|---|---|
# | t = 2 | q0 q1, k0 v0 | q2 q3, k1 v1 | | |
# | t = 4 | q0, k0 v0 | q1, k0 v0 | q2, k1 v1 | q3, k1 v1 |
#
# Now ranks 0 and 1 have copies of k0, and each computes the gradient of its own query head only. The gradients of
# copies have to be summed over the ranks that hold them. If they are not, the copies drift apart:


# %%
# %%ranks -o grouped
def trained(summed):
    """The rank's head of K after three steps, with or without the sum of the copies' gradients."""
    generator = torch.Generator().manual_seed(0)
    layer = tp.ParallelAttention(64, 4, num_kv_heads=2, generator=generator, dtype=EXACT)
    layer = layer.to(device)
    if not summed:
        layer.heads = layer.heads._replace(
            copies=1
        )  # as if each rank had a head of its own
    optimizer = torch.optim.SGD(layer.parameters(), lr=1.0)
    x = some_input(8, 64, 64).detach()
    for _ in range(3):
        layer(x).square().sum(-1).mean().backward()
        optimizer.step()
        optimizer.zero_grad()
    return layer.key.weight.detach()


grouped = {"summed": trained(True), "not summed": trained(False)}
grouped

# %% jupyter={"source_hidden": true}
for way in ("summed", "not summed"):
    off = (grouped[0][way] - grouped[1][way]).abs().max().item()
    print(
        f"gradients of copies {way}: k0 on ranks 0 and 1 after three steps differs by {rounded(off)}"
    )

# %% [markdown]
# Not every t is possible: it has to divide the number of heads. `tp.ParallelAttention(hidden_size=56, num_heads=7)` on 4 ranks
# is refused when the layer is built.
#
# ## How is a vocabulary divided?
#
# *Needs: section 4.* The two largest matrices of most language models are at their ends: the token embedding and the head,
# V x C each, with V the size of the vocabulary. **The embedding.** Rank $r$ has the rows of its V/t tokens, `E[V_t, C]`,
# and looks up only these. For all other tokens it contributes zeros. The sum over the ranks is the embedding, since exactly
# one rank contributes the row of each token. With V = 8 on 2 ranks:
#
# | token id | rank 0: ids 0 to 3 | rank 1: ids 4 to 7 | sum |
# |---|---|---|---|
# | 2 | row 2 | 0 | row 2 |
# | 5 | 0 | row 5 | row 5 |
# | 4 | 0 | row 4 | row 4 |
#
# What does rank 0 do with id 5, and rank 1 with id 2? There is no such row in their shards. And whatever they look up
# must not get into the sum.

# %% [markdown]
# **Exercise 5.** A vocabulary-parallel embedding.

# %% exercise="ch12.vocabulary_embedding"

# %%
dtlearn.show_source(
    tp.VocabularyParallelEmbedding.forward,
    docstring=False,
    summary="VocabularyParallelEmbedding.forward",
)

# %% [markdown]
# An id of another rank is replaced by a valid one, so that the lookup works, and the *result* is replaced by zeros.
# Without the second step the row of some other token is added. In backward g passes the gradient on to every rank, and the
# zeros keep it away from rows that were not asked for. (A plain `dist.all_reduce` of the rows in place of g leads to the
# same gradients here, but PyTorch warns that such a backward pass may be wrong without an error, and that it will not be
# supported. As an autograd function, g says what backward does. The same holds for the loss.)
#
# **The loss.** The head is column-parallel: each rank has the logits `[B, T, V_t]`. The loss of a token with logits $z$ and
# target $y$ is
#
# $$-\log \frac{e^{z_y}}{\sum_v e^{z_v}} = \log \sum_v e^{z_v - m} - (z_y - m), \qquad m = \max_v z_v.$$
#
# (Subtracting $m$ changes nothing in exact arithmetic, and without it $e^{z}$ overflows if $z$ is large.) The naive way
# gathers the logits on every rank: 4.2 GB for one sequence of Llama 3. But the formula does not need all logits in one place.

# %%
per_token = dtlearn.predict(
    "Every rank has its V/t logits of each token. How many numbers per token have to be all-reduced until every rank "
    "knows the loss?",
    unit="numbers per token",
    id="ch12.per_token",
)

# %%
# %%ranks --record loss_record -o losses
_, targets = the_batch()
logits = some_input(8, 64, 128)  # (B, T, V), whole, to compare with
whole_loss = next_token_loss(logits, targets)
whole_loss.backward()
own_logits = tp.shard(logits, -1).requires_grad_()  # (B, T, V/t)
with dtlearn.phase("sharded"):
    own_loss = tp.vocabulary_parallel_cross_entropy(own_logits, targets)
    own_loss.backward()
losses = (
    apart(own_loss, whole_loss),
    apart(own_logits.grad, tp.shard(logits.grad, -1)),
)
losses

# %% jupyter={"source_hidden": true}
rank_0 = [event for event in part(loss_record, "sharded") if event.rank == 0]
reduced = sum(event.nbytes for event in rank_0 if event.op == "all_reduce")
per_token.reveal(reduced / (8 * 64 * 8), gathered=128)
print(
    "largest difference of the loss and of the logits' gradient from cross_entropy of the whole logits:",
    rounded(max(max(of_rank) for of_rank in losses)),
)

# %% [markdown]
# The backward pass needs no communication: the gradient of logit $v$ is $\mathrm{softmax}(z)_v$, minus 1 at the target,
# divided by the number of tokens. The maximum has no gradient, and needs none; it appears twice in the formula, and the two
# cancel.

# %% [markdown]
# **Exercise 6.** Cross entropy of sharded logits.

# %% exercise="ch12.sharded_cross_entropy"

# %% [markdown]
# The maximum, the sum and the target, on one page:

# %%
from dtlearn.tensor_parallel import page_cross_entropy

dtlearn.show_source(page_cross_entropy, summary="page_cross_entropy.py, the whole file")

# %% [markdown]
# `tp.vocabulary_parallel_cross_entropy` computes the same, to the last bit. It adds label smoothing, for which a third
# number of each token is summed, that of all logits; the sum, or the loss of each token, in place of the mean; logits in 16
# bits, which are computed in float32; errors, on all ranks, for a target outside the vocabulary; and **padding**: GPT-2 has
# 50,257 tokens, a number that neither 2 nor 4 divides, so the matrix gets rows that stand for no token, up to a multiple of t
# (Megatron-LM's `--make-vocab-size-divisible-by` takes a multiple of 128 t). Nothing ever looks these rows up, but in the
# softmax they would take a share of the probability. So here they are left out of the maximum and the sum. (Megatron-LM's
# cross entropy includes them.)
#
# ## What is split in a GPT, and what does it send?
#
# *Needs: section 8.* What is split, and how, read from the layers of `ParallelGPT`:

# %%
# %%ranks -o splits
from dtlearn.viz import local_weights

gpt = tp.ParallelGPT.from_gpt(whole_gpt())
splits = local_weights(gpt, only=("embedding", "blocks.0", "head"))
splits

# %% jupyter={"source_hidden": true}
from dtlearn.viz import draw_splits, split_words

show(
    draw_splits(
        splits,
        label="block 0 of 4, and both ends",
        names={
            "blocks.0.attention": "attention",
            "blocks.0.feed_forward": "feed-forward",
        },
    ),
    alt=split_words(splits),
)

# %% [markdown]
# Only the norms, the biases of row-parallel layers and the position embedding are replicated; together they are a small
# part of the parameters. What a block sends, measured on 1, 2, 3 and 4 ranks, beside section 8's formula:

# %%
# %%ranks --record sent_record
WIDE = GPTConfig(
    vocab_size=132, hidden_size=96, num_heads=12, num_layers=1
)  # 1, 2, 3 and 4 divide the heads
groups = {t: dist.new_group(list(range(t))) for t in (1, 2, 3, 4)}  # every rank makes all
for t, group in groups.items():
    if rank < t:
        block = tp.ParallelGPT.from_gpt(whole_gpt(WIDE), group=group).blocks[0]
        with dtlearn.phase(f"t = {t}"):
            block(some_input(4, 24, 96)).sum().backward()

# %% jupyter={"source_hidden": true}
from dtlearn.viz import layer_traffic

sent = {t: sent_by_operation(part(sent_record, f"t = {t}")) for t in (1, 2, 3, 4)}
by_formula = {t: 8 * 8 * 4 * 24 * 96 * (t - 1) / t for t in sent}
print(
    "bytes equal the formula:", all(sum(sent[t].values()) == by_formula[t] for t in sent)
)
show(
    layer_traffic(
        {"": sent},
        {"": by_formula},
        ("8bsh: what more and more ranks tend to", 8 * 8 * 4 * 24 * 96),
        title="A rank sends 8bsh(t-1)/t elements for a block",
        label="b = 4, s = 24, h = 96, float64 (8 bytes); recorded, as a ring sends them",
    ),
    alt="Bars of the bytes that a rank sends for a block, recorded, for t = 1, 2, 3 and 4: 0, 295, 393 and 442 kB, all of "
    "them all-reduces. A line on each bar, the formula, lies at its end. A dashed line at 590 kB is what the formula tends to.",
)

# %% [markdown]
# With recomputation of the whole block (chapter 8) the forward pass runs twice, and with it both gs: six all-reduces
# instead of four. (PyTorch's non-reentrant checkpoint and the package's stop the second forward pass as soon as they have all
# that the backward pass needs. Unless dropout follows the last g, that leaves out its all-reduce: five.)

# %% [markdown]
# **Exercise 7.** The bytes of a block.

# %% exercise="ch12.block_bytes"

# %% [markdown]
# ## What does sequence parallelism keep?
#
# *Needs: section 9.* First without it:

# %%
activations = dtlearn.predict.choice(
    "A block on 4 ranks, split as above. Compared with one process, what share of the block's activations does a rank "
    "keep for the backward pass?",
    {
        "A": "a quarter: every matrix is split in four",
        "B": "between a quarter and the whole",
        "C": "all of them: X and Y are whole on every rank",
    },
    id="ch12.activations",
)

# %%
# %%ranks -o kept
import time


def kept_by_block(t, group, **options):
    """Bytes that live for the backward pass of a block, in fp32, by the ledger."""
    gpt = tp.ParallelGPT.from_gpt(whole_gpt(LAYER).float(), group=group, **options)
    length = 64 // t if options.get("sequence_parallel") else 64
    x = torch.zeros(8, length, 64, device=device, requires_grad=True)
    with MemoryLedger(gpt, inputs=x) as ledger:
        loss = gpt.blocks[0](x).sum()  # keeps the graph
        time.sleep(0.3)  # a thread that communicates holds its buffer a little longer
        record = ledger.record()
    alive = record.at(record.clock)
    return sum(a.bytes for a in alive if a.category in ("inputs", "activations"))


LAYER = GPTConfig(num_layers=1)
groups = {t: dist.new_group(list(range(t))) for t in (1, 2, 4)}
kept = {t: kept_by_block(t, group) for t, group in groups.items() if rank < t}
kept

# %% jupyter={"source_hidden": true}
activations.reveal()
for t, nbytes in kept[0].items():
    print(
        f"t = {t}: {nbytes / 1e3:,.0f} kB of a block kept for backward, {nbytes / kept[0][1]:.0%}"
    )

# %% [markdown]
# Korthikanti et al. count for a block of GPT in 16 bits, with $a$ heads, with dropout and without fused attention, in bytes:
#
# | | activations of a block |
# |---|---|
# | one rank | $sbh\,(34 + 5as/h)$ |
# | tensor parallelism | $sbh\,(10 + 24/t + 5as/(ht))$ |
# | and sequence parallelism | $sbh\,(34/t + 5as/(ht))$ |
#
# The 10 that is not divided consists of the inputs of two layer norms and of two tensor-parallel regions (2 bytes each,
# together 8) and of two dropout masks (1 byte each).
#
# With sequence parallelism norms and dropout keep T/t tokens. But the gathered input of the column-parallel layers is whole
# again, (B, T, C). For the paper's $34/t$ a rank keeps only its own tokens of it and gathers the input *once more* in
# backward, for the gradient of the weight: $10bsh(t-1)/t$ elements instead of $8bsh(t-1)/t$. That is not a quarter more time:
# Megatron-LM, which does this, runs the second gather beside the product for dX. Here it is `gather_again=True`.

# %%
# %%ranks -o kept_sp
SP = {"sequence_parallel": True}
kept_sp = {
    way: {
        t: kept_by_block(t, group, **options) for t, group in groups.items() if rank < t
    }
    for way, options in (("own", SP), ("again", SP | {"gather_again": True}))
}
kept_sp

# %% jupyter={"source_hidden": true}
from dtlearn.models import GPTConfig
from dtlearn.tensor_parallel.arithmetic.activations import gpt_block, table_bytes
from dtlearn.viz import activation_memory

table = gpt_block(GPTConfig(num_layers=1), 8, 64)
SP = {"sequence_parallel": True}
WAYS = {
    "tensor parallelism": (kept[0], {}),
    "with sequence parallelism": (kept_sp[0]["own"], SP),
    "inputs gathered again": (kept_sp[0]["again"], SP | {"gather_again": True}),
}
counted = {way: of_rank for way, (of_rank, _) in WAYS.items()}
formula = {
    way: {t: table_bytes(table, t, **options) for t in (1, 2, 4, 8)}
    for way, (_, options) in WAYS.items()
}
print(
    "bytes equal the formula:",
    all(
        formula[way][t] == of_t
        for way, points in counted.items()
        for t, of_t in points.items()
    ),
)
show(
    activation_memory(
        formula,
        counted,
        title="Only with inputs gathered again are all activations of a block divided",
        label="a block of our GPT, 8 sequences of 64 tokens, fp32; lines by formula, points by the ledger",
    ),
    alt="MB that a rank keeps of a block for backward, over 1, 2, 4 and 8 ranks; lines by formula, with the ledger's points on "
    "them for up to 4 ranks. All begin at 2.11. Tensor parallelism: 1.32, 0.93, 0.73. With sequence parallelism: 1.19, 0.72, "
    "0.49. With inputs gathered again: 1.06, 0.53, 0.26, which is the first number divided by the number of ranks.",
)

# %% [markdown]
# **Which gradients are terms of a sum?** Those of the norms, and of the bias of a row-parallel layer, which is added after
# the reduce-scatter. They are small, h elements each, and are sent together in one message. (Dropout after g acts on a
# rank's own tokens, so its masks have to be *different* on the ranks now.)

# %% [markdown]
# **Exercise 8.** Gradients of norms with sequence parallelism.

# %% exercise="ch12.sequence_parallel_norms"

# %%
dtlearn.show_source(
    tp.reduce_sequence_parallel_gradients,
    docstring=False,
    summary="dtlearn.tensor_parallel.reduce_sequence_parallel_gradients",
)

# %% [markdown]
# If the sum is left out, from the next step on each rank has its own version of every norm. So the package remembers which
# gradients are partial, and clipping, or the next forward pass after a step, raises an error. (Megatron-LM's training loop
# sums them by itself, in `finalize_model_grads`.)
#
# **A case from practice.** With PyTorch's own sequence parallelism ("Where do the libraries do it?") and `fully_shard`
# around it (chapter 9) it is FSDP that makes this sum, after backward. It makes it in the format of the gradient, bf16,
# although `MixedPrecisionPolicy(reduce_dtype=torch.float32)` asks for fp32: the policy is applied to FSDP's own
# reduce-scatter only. So every torchtitan run with tensor parallelism adds these gradients up in bf16
# ([pytorch#190626](https://github.com/pytorch/pytorch/issues/190626), open, with a fix proposed, in November 2026).
#
# ## Which random numbers are equal?
#
# *Needs: section 7, chapter 8.* With dropout ranks draw random masks, and the question is which of them have to be equal:
#
# | dropout on | the tensor | masks |
# |---|---|---|
# | the output of attention and of the feed-forward network, after g | `[B, T, C]`, replicated | **equal**: otherwise the ranks' copies of one tensor differ, and all that follows |
# | the probabilities of attention | `[B, H_t, T, T]`, a rank's own heads | **different**: with equal masks head 0 of each rank would always lose the same places |
#
# The same seed on all ranks makes the first right and the second wrong, a seed for each rank the reverse. So two random
# states are needed: the default one, equal on all ranks, and one of each rank's own. Megatron-LM's seeds are `seed` and
# `seed + 2718 + rank`, with the rank in the tensor-parallel group. Inside tensor-parallel regions the second state takes the
# place of the default one; Megatron-LM calls this *fork*. Afterwards the default state goes on where it was.
#
# **Recomputation** (chapter 8) runs a forward pass a second time, in backward, and has to draw the same masks as the first
# time. So before the first run one keeps the states, of *both* generators; before the second run one sets them back, and
# after it one goes on with the states that were current. `torch.utils.checkpoint` does so with the default state, but it
# cannot know of another one. On two ranks, with a letter for each mask drawn:
#
# | | rank 0 | rank 1 |
# |---|---|---|
# | keep both states; forward: outside, inside a region | a, b | a, c |
# | backward: both set back, the same again | a, b | a, c |
# | only the default one set back | a, **d** | a, **e** |

# %% [markdown]
# **Exercise 9.** Dropout inside and outside of tensor-parallel regions.

# %% exercise="ch12.dropout_seeds"

# %%
dtlearn.show_source(
    tp.RandomStateTracker.fork,
    docstring=False,
    summary="dtlearn.tensor_parallel: RandomStateTracker.fork",
)

# %%
# %%ranks -o masks
ones = torch.ones(1, 8, device=device)
tracker = tp.tensor_parallel_manual_seed(3)
masks = {"after g": functional.dropout(ones, 0.5)}
with tracker.fork():
    masks["own heads"] = functional.dropout(ones, 0.5)
masks["after g, once more"] = functional.dropout(ones, 0.5)
masks

# %% jupyter={"source_hidden": true}
rank_table(
    [
        {
            "rank": rank,
            **{
                where: "".join("x" if value else "." for value in mask.flatten())
                for where, mask in of_rank.items()
            },
        }
        for rank, of_rank in enumerate(masks)
    ],
    caption="Eight elements: x is kept, . is dropped",
)

# %% [markdown]
# And unequal masks after g? Here the default state of each rank has another seed:

# %%
# %%ranks -o unequal
tracker = tp.tensor_parallel_manual_seed(3)
gpt = tp.ParallelGPT.from_gpt(whole_gpt(GPTConfig(dropout=0.1)), random_states=tracker)
torch.manual_seed(rank)  # the mistake
last = []  # the input of the last norm, which should be replicated
gpt.head.norm.register_forward_pre_hook(lambda module, inputs: last.append(inputs[0]))
loss = gpt.loss(*the_batch())
unequal = loss.item(), last[0].detach()
unequal

# %% jupyter={"source_hidden": true}
off = max((x - unequal[0][1]).abs().max().item() for _, x in unequal)
print(
    "largest difference of the loss between ranks:",
    rounded(max(abs(loss - unequal[0][0]) for loss, _ in unequal)),
)
print("of the last activations:", rounded(off))

# %% [markdown]
# The activations differ, and still all ranks have the same loss. It is computed from the all-reduced maximum, sum and
# target logit of the whole vocabulary, which are the same everywhere, right or wrong. So equal losses prove nothing here.
# Compare a tensor or a parameter that should be replicated. And a recomputation that restores one state only:

# %%
# %%ranks -o recomputed
from torch.utils.checkpoint import checkpoint


def gradient_of_input(run):
    """The input's gradient of attention with dropout, from the same weights, masks and input."""
    tracker = tp.tensor_parallel_manual_seed(3)
    generator = torch.Generator().manual_seed(0)
    options = {"generator": generator, "dtype": EXACT, "random_states": tracker}
    layer, x = tp.ParallelAttention(64, 4, dropout=0.1, **options), some_input(8, 48, 64)
    layer = layer.to(device)
    run(layer, x, tracker).square().sum().backward()
    return x.grad


right = gradient_of_input(lambda layer, x, _: layer(x))
RUNS = {
    "torch.utils.checkpoint": lambda layer, x, _: checkpoint(
        layer, x, use_reentrant=False
    ),
    "tensor_parallel.checkpoint": lambda layer, x, own: tp.checkpoint(
        layer, x, tracker=own
    ),
}
recomputed = {
    name: apart(gradient_of_input(run), right) / right.abs().max().item()
    for name, run in RUNS.items()
}
recomputed

# %% jupyter={"source_hidden": true}
for name, off in recomputed[0].items():
    print(
        f"{name}: difference of the input's gradient over its largest element: {rounded(off)}"
    )

# %% [markdown]
# The scheme has one limit: a run with t = 2 and a run with t = 4 have different masks in attention, since each rank
# draws those of its own heads. To compare runs with different t number by number, set dropout to 0.
#
# ## Can the all-reduce be hidden?
#
# *Needs: section 4.* The backward pass of a column-parallel layer computes two products: $dX$, whose terms have to be summed
# over the ranks, and the gradient of the weight, $X^T dZ$, which stays on the rank. So the all-reduce of dX can start
# *before* the second product, and run meanwhile:

# %%
from dtlearn.tensor_parallel.layers import overlap

dtlearn.show_source(
    overlap.OverlappedProducts.backward,
    docstring=False,
    summary="dtlearn.tensor_parallel.layers.overlap: the backward pass of a column-parallel layer",
)

# %% [markdown]
# Measured on 2 ranks with an emulated link of 80 MB/s, for a layer with 512 input and 2,048 output features and 1,024
# tokens:

# %%
import time

from dtlearn.runtime.link.link import Link


def backward_seconds():
    """{whether the all-reduce is overlapped: seconds of a backward pass}, the fastest of 16 each."""
    x = torch.randn(1024, 512, requires_grad=True)
    layers = {
        way: tp.ColumnParallelLinear(512, 2048, overlap=way) for way in (False, True)
    }
    seconds = dict.fromkeys(layers, float("inf"))
    for _ in range(16):
        for way, layer in layers.items():
            y = layer(x)
            gradient = torch.ones_like(y)
            torch.distributed.barrier()
            start = time.perf_counter()
            y.backward(gradient)
            seconds[way] = min(seconds[way], time.perf_counter() - start)
    return seconds


SLOW = Link(latency=50e-6, bandwidth=80e6)
backward = dtlearn.run_ranks(backward_seconds, 2, link=SLOW, device="cpu").values[0]

# %% tags=["nbval-ignore-output"] jupyter={"source_hidden": true}
travels = SLOW.seconds("all_reduce", 4 * 1024 * 512, 2)
for way, seconds in backward.items():
    print(
        f"all-reduce {'overlapped' if way else 'after both products'}: {1e3 * seconds:.0f} ms"
    )
print(f"the all-reduce alone takes {1e3 * travels:.0f} ms")

# %% [markdown]
# At most the time of the weight's gradient can be saved, since that is all there is to compute while the all-reduce runs. (If
# the first two lines are alike, the processor had no core to spare: then the thread that sends and the product take turns.) In
# forward there is nothing to overlap with: the next operation needs the sum. That is why tensor parallelism needs fast
# links: its communication is mostly *exposed*. Newer libraries split a product into pieces, and send one piece while the
# next is computed, in forward too: with sequence parallelism Megatron-LM does so with `--tp-comm-overlap` (Transformer
# Engine), PyTorch with async tensor parallelism (`torch.compile`).
#
# ## How long is the gradient, and who saves what?
#
# *Needs: section 8, chapter 9.* **The global norm** is the root of a sum of squares. A rank has the gradients of its shards
# and of the replicated parameters. Summing all squares over all ranks counts the replicated ones t times. So each rank
# counts its shards, and only one rank of the group counts what is replicated:

# %%
# %%ranks -o norms
x, y = the_batch()
whole = whole_gpt()
next_token_loss(whole(x), y).backward()
gpt = tp.ParallelGPT.from_gpt(whole_gpt())
gpt.loss(x, y).backward()
norms = {
    "one process": torch.nn.utils.get_total_norm(
        [p.grad for p in whole.parameters()]
    ).item(),
    "squares of all gradients, summed over the ranks": tp.naive_gradient_norm(gpt).item(),
    "what is replicated, once": tp.gradient_norm(gpt).item(),
}
norms

# %% jupyter={"source_hidden": true}
for way, norm in norms[0].items():
    print(f"{way}: {norm:.6f}")

# %% [markdown]
# (Copied heads of K and V, see "What if heads are shared?", are also counted once.)
#
# **Checkpoints.** A shard is meaningful only if one knows how it was made: along which dim, into how many parts, with rows
# added to make it divisible or not. `full_params` gathers the *full* parameters, with the names of the whole model, and
# `load_full` loads them on any number of ranks. (`reshard_files` does the same from files to files, without ranks.) Four
# ranks train a GPT, its full parameters are gathered, and groups of two ranks go on with it:

# %%
# %%ranks -o resharded
x, y = the_batch()
gpt = tp.ParallelGPT.from_gpt(whole_gpt())
two_steps(gpt, lambda model: model.loss(x, y))
full = gpt.full_params()  # on every rank, with the names of the whole GPT
pair = [dist.new_group([0, 1]), dist.new_group([2, 3])][rank // 2]
on_two = tp.ParallelGPT(CONFIG, dtype=EXACT, group=pair).to(device)
on_two.load_full(full)
resharded = (
    tuple(gpt.blocks[0].feed_forward.up.weight.shape),
    tuple(on_two.blocks[0].feed_forward.up.weight.shape),
    apart(on_two.loss(x, y), gpt.loss(x, y)),
)
resharded

# %%
print(
    "blocks.0.feed_forward.up.weight: {} on each of 4 ranks, {} on each of 2".format(
        *resharded[0]
    )
)
print("difference of the loss:", rounded(max(off for *_, off in resharded)))

# %% [markdown]
# ## What do two nodes cost?
#
# *Needs: section 11.* Three clusters that differ only in the network between nodes: the efficiency of a block of GPT-3, 100 %
# if t GPUs are t times as fast as one.

# %% jupyter={"source_hidden": true}
rank_table(
    [
        {
            "t": t,
            **{
                name: f"{of_cluster[i].efficiency:.0%}"
                for name, of_cluster in times.items()
            },
        }
        for i, t in enumerate(RANKS)
    ],
    caption="By the cost model, nominal rates",
)

# %% [markdown]
# With one slow card per node t = 16 is a cliff: two nodes take longer than one. With a card for each GPU it is only a
# step: the hierarchical all-reduce uses all eight cards at once, communication takes 1.6 times as long as inside the
# node, and 16 GPUs are still faster than 8, but less efficient. NVLink between all GPUs (there are machines with 72 of
# them) is a little better.
#
# The same on ranks, with an **emulated link** of two levels: nodes of 2 ranks, 400 MB/s inside a node, 40 MB/s for each
# rank between nodes. The four all-reduces are real, 1 MB each; computation is emulated, a rank sleeps for 40 ms / t.

# %%
import time

from dtlearn.runtime.link.link import Link


def block_seconds(t, group, whole=0.040, nbytes=1_000_000):
    """One block on the first t ranks: two halves, forward and backward."""
    x = torch.zeros(nbytes // 4)
    torch.distributed.barrier()
    start = time.perf_counter()
    for _ in range(4 if torch.distributed.get_rank() < t else 0):
        time.sleep(whole / 4 / t)
        if t > 1:
            torch.distributed.all_reduce(x, group=group)
    return time.perf_counter() - start


def emulated_blocks():
    """{t: seconds of a block on the first t ranks}, the fastest of ten."""
    groups = {t: torch.distributed.new_group(list(range(t))) for t in (1, 2, 4)}
    return {
        t: min(block_seconds(t, group) for _ in range(10)) for t, group in groups.items()
    }


TWO_LEVELS = Link(100e-6, 40e6, inside=Link(20e-6, 400e6), ranks_per_node=2)
measured = dtlearn.run_ranks(emulated_blocks, 4, link=TWO_LEVELS, device="cpu").values[0]

# %% tags=["nbval-ignore-output"] jupyter={"source_hidden": true}
from dtlearn.viz import bandwidth_cliff

show(
    bandwidth_cliff(
        {
            t: (
                0.040 / t,
                4 * TWO_LEVELS.seconds("all_reduce", 1_000_000, t) if t > 1 else 0.0,
            )
            for t in (1, 2, 4)
        },
        ranks_per_node=2,
        measured=measured,
        title="The same on four ranks: two nodes take longer than one",
        label="emulated link: nodes of 2 ranks, 400 MB/s inside, 40 MB/s between; computation is emulated",
    ),
    alt="Bars of the time of a block for 1, 2 and 4 ranks by the cost model, with measured points on them. 1 rank: 40 ms. 2 "
    "ranks, one node: 30 ms, of which 10 ms are communication. 4 ranks, two nodes: more than 1 rank, nearly all of it "
    "communication.",
)

# %% [markdown]
# (The measured points lie somewhat above the bars: gloo's own time, and the time to wake up from a sleep, are not in
# the model.)
#
# **A model that you do not have.** Llama 3 405B, one sequence of 8,192 tokens in bf16, on H100s at 400 TFLOP/s with a network
# card each. A block has 3.19 billion parameters; forward and backward take 6 operations for each parameter and token, and
# attention somewhat more. What does each t give?

# %% jupyter={"source_hidden": true}
from dtlearn.collectives.topology import DGX_H100
from dtlearn.tensor_parallel.arithmetic.cliff import all_reduce_seconds
from dtlearn.tensor_parallel.arithmetic.sizes import BlockSizes
from dtlearn.tensor_parallel.arithmetic.traffic import block_traffic, sent_elements

llama = MODELS["Llama 3 405B"]
sizes = BlockSizes(1, llama.context, llama.hidden, llama.heads)
flops = 6 * llama.block_parameters * llama.context + 12 * llama.context**2 * llama.hidden
rows = []
for t in (1, 2, 4, 8, 16, 32):
    traffic = block_traffic(sizes, t)
    seconds, _ = all_reduce_seconds(t, 2 * sizes.bsh, DGX_H100)
    computation, communication = flops / t / 400e12, len(traffic) * seconds
    rows.append(
        {
            "t": t,
            "state of a block, GB": f"{16 * llama.block_parameters / t / 1e9:.1f}",
            "sent by a rank for a block, MB": f"{2 * sent_elements(traffic) / 1e6:,.0f}",
            "computation, ms": f"{1e3 * computation:.1f}",
            "communication, ms": f"{1e3 * communication:.1f}",
            "communication / whole": f"{communication / (computation + communication):.0%}",
        }
    )
rank_table(
    rows,
    caption="A block of Llama 3 405B, forward and backward, by formula; state: 16 bytes per parameter",
)

# %% [markdown]
# From t = 8 to 16 communication takes longer although each rank sends hardly more, because half of the ranks are now in
# another node. Llama 3 was trained with t = 8 inside a node, 16 stages of a pipeline, and data parallelism over the rest
# (2407.21783, table 4), in which gradients and optimizer state are sharded, and weights stay gathered from forward to backward.
#
# ## What if the ranks read different batches?
#
# *Needs: section 8.* The ranks of a tensor-parallel group have to have the same samples. If each takes batches of its own,
# as in data parallelism, two things can happen. With equal shapes nothing fails, and nothing even differs between the ranks:
# the embedding adds up the rows of unrelated tokens, all ranks go on with the same sums, and the loss falls, only more
# slowly. The batches themselves have to be compared. With different shapes, the run is stopped, and says which rank
# differs:


# %%
def another_batch_on_rank_3():
    """A forward pass in which rank 3 has fewer samples."""
    from dtlearn.models import load_corpus

    samples = 4 if torch.distributed.get_rank() == 3 else 8
    x, y = next(load_corpus().batches(1, samples, 64))
    x, y = x.to(dtlearn.device()), y.to(dtlearn.device())
    tp.ParallelGPT(seed=0).to(dtlearn.device()).loss(x, y)


# %% tags=["nbval-ignore-output"]
try:
    dtlearn.run_ranks(another_batch_on_rank_3, 4)
except Exception as error:
    print(error)

# %% [markdown]
# ## Where do the libraries do it?
#
# *Needs: section 8; the table at the end names what all sections of Further have.* PyTorch has all this as a kind of
# tensor. A `DeviceMesh` is a grid of ranks with named axes, and a `DTensor` is a tensor of a global shape with a
# **placement** on each axis of the mesh: `X[T_t, C]` is `Shard(0)`, `X[T, C_t]` is `Shard(1)`, `X[T, C]` is `Replicate()`,
# and `Y[T, F] {U_t}` is `Partial()`. `distribute_tensor` makes a DTensor from a whole tensor, `to_local()` returns the
# shard, and `full_tensor()` the whole tensor again. The four cases of section 2:

# %%
# %%ranks --record dtensor_record -o products
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Replicate, Shard, distribute_tensor

from dtlearn.viz import local_block

mesh = init_device_mesh(device.type, (world_size,), mesh_dim_names=("t",))
X = some_input(4, 8).detach()
W = some_input(8, 4).detach()
CASES = {
    "1": (Replicate(), Shard(1)),
    "2": (Replicate(), Shard(0)),
    "3": (Shard(1), Shard(0)),
    "4": (Shard(0), Shard(1)),
}
products = {}
for case, (of_x, of_w) in CASES.items():
    x, w = distribute_tensor(X, mesh, [of_x]), distribute_tensor(W, mesh, [of_w])
    with dtlearn.phase(f"case {case}"):
        product = x @ w
    placements = [local_block(tensor).placements[0] for tensor in (x, w, product)]
    products[case] = *placements, apart(product.full_tensor(), X @ W)
products

# %% jupyter={"source_hidden": true}
rank_table(
    [
        {
            "case": case,
            "X": of_x,
            "W": of_w,
            "X @ W": placement,
            "communication": ", ".join(
                sent_by_operation(part(dtensor_record, f"case {case}"))
            )
            or "none",
        }
        for case, (of_x, of_w, placement, _) in products[0].items()
    ],
    caption="What DTensor does with the four cases, on 4 ranks; gathered, all equal the whole product",
)

# %% [markdown]
# In case 2 it slices the operand that is whole, for free, and computes case 3. A `Partial` is reduced only when an
# operation needs the sum, or when it is explicitly **redistributed**:

# %%
# %%ranks --record placed_record -o placed
numbers, ones = torch.arange(16.0, device=device), torch.eye(4, device=device) + 1
left = distribute_tensor(numbers.reshape(4, 4), mesh, [Shard(1)])
right = distribute_tensor(ones, mesh, [Shard(0)])
tensor = left @ right  # case 3: a partial sum on each rank
placed = [local_block(tensor)]
for placement in (Shard(0), Replicate(), Shard(1)):
    tensor = tensor.redistribute(placements=[placement])
    placed.append(local_block(tensor))
placed

# %% jupyter={"source_hidden": true}
from dtlearn.viz import draw_placements, placement_words

show(
    draw_placements(
        placed,
        placed_record,
        "A DTensor is redistributed: each change of placement is a collective, or nothing",
        "Partial, Shard(0), Replicate, Shard(1); 4 ranks, recorded",
    ),
    alt=placement_words(placed, placed_record),
)

# %% [markdown]
# Partial to Shard is a reduce-scatter, Shard to Replicate an all-gather, Partial to Replicate an all-reduce (not
# shown), and Replicate to Shard a slice. From Shard(0) to Shard(1) it is an all-to-all. (On the CPU PyTorch uses an
# all-gather there, and drops what the rank does not need.)
#
# `parallelize_module` replaces the parameters of a module by DTensors and puts hooks around it. Nothing in the model's
# code changes; a plan says what is split, and how:

# %%
# %%ranks -o torchs
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    RowwiseParallel,
    loss_parallel,
    parallelize_module,
)

COLUMNS = ("attention.query", "attention.key", "attention.value", "feed_forward.up")
ROWS = ("attention.output", "feed_forward.down")
plan = {
    "embedding.token": RowwiseParallel(input_layouts=Replicate()),
    **{f"blocks.*.{name}": ColwiseParallel() for name in COLUMNS},
    **{f"blocks.*.{name}": RowwiseParallel() for name in ROWS},
    "head.projection": ColwiseParallel(use_local_output=False),  # logits: a DTensor
}
theirs = parallelize_module(whole_gpt(), mesh, plan)
x, y = the_batch()
with loss_parallel():
    loss = next_token_loss(theirs(x), y)
    loss.backward()


def full(gradient):
    return gradient.full_tensor() if hasattr(gradient, "full_tensor") else gradient


whole, ours = whole_gpt(), tp.ParallelGPT.from_gpt(whole_gpt())
right = next_token_loss(whole(x), y)
own_loss = ours.loss(x, y)
for one in (right, own_loss):
    one.backward()
gradients = {n: p.grad for n, p in whole.named_parameters()}
torchs = [
    apart(full(loss.detach()), right),
    apart(own_loss, right),
    *(apart(full(p.grad), gradients[n]) for n, p in theirs.named_parameters()),
    *(
        apart(p.grad, ours.local_part(n, gradients[n]))
        for n, p in ours.named_parameters()
    ),
]
torchs

# %% jupyter={"source_hidden": true}
off = max(max(of_rank) for of_rank in torchs)
print("difference of the loss and of the gradients from one process:", rounded(off))

# %% [markdown]
# | here | `torch.distributed.tensor.parallel` | Megatron-LM, `megatron.core.tensor_parallel` | fairscale, `fairscale.nn.model_parallel` |
# |---|---|---|---|
# | `ColumnParallelLinear` | `ColwiseParallel()` | `ColumnParallelLinear` | `ColumnParallelLinear` |
# | `RowParallelLinear` | `RowwiseParallel()` | `RowParallelLinear` | `RowParallelLinear` |
# | `VocabularyParallelEmbedding` | `RowwiseParallel(input_layouts=Replicate())` | `VocabParallelEmbedding` | `VocabParallelEmbedding`; `ParallelEmbedding` splits C instead |
# | `vocabulary_parallel_cross_entropy` | `loss_parallel()` | `vocab_parallel_cross_entropy` | `vocab_parallel_cross_entropy` |
# | f, g, scatter, gather | redistribution of DTensors | `mappings.py`, the same names with `tensor_model_parallel` | `mappings.py` |
# | sequence parallelism | `SequenceParallel()`, `PrepareModuleInput` | `--sequence-parallel` | |
# | `RandomStateTracker` | DTensor's own random states | `CudaRNGStatesTracker` | `CudaRNGStatesTracker` |
# | `overlap=True` | async tensor parallelism, with `torch.compile`, goes further | by default; products in pieces with `--tp-comm-overlap` | |
# | t | the size of the mesh's axis | `--tensor-model-parallel-size` | `initialize_model_parallel(t)` |
#
# One tutorial wraps layers in `fairscale.nn.ModelParallel(nn.Linear(10, 20))`, after which
# "FairScale handles communication and computation". There is no such class in any version. FairScale has the layers in
# the table, an early version of Megatron-LM's; the code that Meta published with Llama uses them. These libraries do
# not decide by themselves how to split a layer: a plan, or the model's code, says which layers are column-parallel and
# which are row-parallel.
#
# The same tutorial says that PyTorch has nothing of the kind. Another imports DTensor from `torch.distributed._tensor`, a
# private name of earlier versions, and calls `Shard(1)` "column-wise". That is right for a matrix, but for `linear.weight`,
# (out, in), `ColwiseParallel` is `Shard(0)` (section 2).
#
# To read Megatron-LM, begin with `mappings.py`: it is section 4, with `copy_to_tensor_parallel_region` for f and
# `reduce_from_tensor_parallel_region` for g. Then `layers.py`, where `LinearWithGradAccumulationAndAsyncCommunication` is "Can
# the all-reduce be hidden?"; then `cross_entropy.py` and `random.py`.
#
# ## Can one split along two dims at once?
#
# *Needs: section 9.* Here each matrix is divided along one dim, and activations are whole on every rank at some places. In
# 2-D tensor parallelism the ranks form a square, q by q, and inputs, weights and outputs are all divided along both dims;
# each product is made by broadcasts along rows and columns of the square. 2.5-D and 3-D variants add copies or a third
# axis. What a rank keeps and sends falls with more ranks, where it stays level above; it pays at many ranks. But q
# broadcasts for each product wait for one another, and a node of 8 GPUs is no square. Colossal-AI introduced them
# ([2-D](https://colossalai.org/docs/features/2D_tensor_parallel/),
# [3-D](https://colossalai.org/docs/features/3D_tensor_parallel/)), and its present versions no longer support them ([issue
# 6380](https://github.com/hpcaitech/ColossalAI/issues/6380), 2025); MindSpore has them on Ascend. We know of no large
# published run with them: sequence parallelism removed the whole activations, and the other ranks of a large job go to
# data, pipeline and context parallelism.
#
# ## What is different on GPUs?
#
# *Needs: section 8.* The cells of this chapter's world run on NCCL when there is a GPU for each rank; emulated links stay
# on the CPU. Differences in float64 are rounding there, too; the bytes are the same. What will look different: bf16
# products no longer agree to 1e-12 with one process, since sums are taken in another order. Measure the share of the
# all-reduces in a step first, for t = 2 up to the GPUs of a node. `dtlearn bench tensor_parallel` times the layers beside
# torch's.
#
# ## Myths, and questions to check yourself
#
# *Needs: all.*
#
# **"Tensor parallelism is model parallelism by layers."** By layers is the pipeline (chapter 10): a rank has some
# layers, whole. Here every rank has a part of *every* layer, and all ranks work on the same token at the same time.
#
# **"A transformer consists of three kinds of operators: embedding, matrix product, cross entropy."** These are the ones
# that are split along their weights. Norms, softmax, dropout and residual sums have hardly any weights, but activations:
# half of what this chapter had to get right is about them.
#
# **"A split matrix is multiplied in parts, and the results are concatenated."** Only if it was split by columns. If it
# was split by rows, they are partial sums and have to be added (section 2).
#
# **"Model parallelism solves the communication problem of data parallelism."** It solves a problem of memory. A
# data-parallel rank sends its gradients once per step, a tensor-parallel rank sends activations or their gradients four
# times per block and micro-batch.
#
# <details><summary>A layer has <code>weight</code> of shape (1024, 4096) in PyTorch and is column-parallel over 4 ranks.
# What is the shape on a rank?</summary>
#
# (256, 4096). PyTorch stores (out, in), and a column-parallel layer divides the outputs: dim 0.
# </details>
#
# <details><summary>t = 4, the loss is the same on the four ranks, but the weight of the last norm is not. What do you
# suspect?</summary>
#
# A dropout mask after g that is not equal on all ranks, a replicated parameter that was initialised from different
# seeds, or an f without its all-reduce. The loss does not show it: it is computed from all-reduced numbers.
# </details>
#
# <details><summary>The loss of the first step agrees with one process, that of the second does not. Where do you
# look?</summary>
#
# Forward is right, so g, the split of the weights and the loss are right. Look at the gradients: f without its
# all-reduce, g that sums in backward, norms under sequence parallelism, copied heads of K and V, a norm for clipping
# that counts replicated parameters t times.
# </details>
#
# <details><summary>Which gradients have to be all-reduced over the tensor-parallel ranks at the end of a step?</summary>
#
# Without sequence parallelism none: those of shards belong to one rank, those of replicated parameters are equal. With
# sequence parallelism those of norms and of biases after the reduce-scatter. In both, copied heads of K and V.
# </details>
#
# ## Glossary
#
# {glossary}
#
# Next: chapter 14 combines all strategies. (Chapter 13, which divides sequences and experts, is planned.)
