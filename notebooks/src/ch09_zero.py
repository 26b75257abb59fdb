# %% [markdown]
# # Chapter 9. ZeRO
#
# **The question.** Why keep N copies of anything?
#
# Builds on: chapters 3, 7 and 8. Ranks: 4. Time: two sittings.
#
# | | what | read and run | exercises |
# |---|---|---|---|
# | **A. Sharding state and gradients**, sections 1 to 7 | N equal copies, partitions, stages 1 and 2, PyTorch's `ZeroRedundancyOptimizer` | 50 minutes | 3, 50 minutes |
# | **B. Sharding parameters**, sections 8 to 18 | stage 3, prefetch, the global norm, hybrid sharding, offload, state dicts, layer-wise optimizers, what fits | 80 minutes | 6, 90 minutes |
#
# After sitting A you have written the first two stages of ZeRO, and can say what each saves and what it sends; a ledger
# and a recorder agree to the byte. After sitting B you have written the core of stage 3, you know what `fully_shard`
# and DeepSpeed do for you and what they leave to you, and you can choose a stage for a model that you do not have.
#
# No GPU is needed: bytes are counted, and they are the same on a laptop. MB are $10^6$ bytes and GB $10^9$.

# %% jupyter={"source_hidden": true}
# %load_ext dtlearn
import torch

import dtlearn
from dtlearn import zero
from dtlearn.memory import CONVENTIONS, MemoryLedger
from dtlearn.memory.arithmetic import published as sizes
from dtlearn.memory.arithmetic.fits import largest_batch
from dtlearn.models import GPT, GPTConfig, load_corpus, next_token_loss
from dtlearn.models.gpt import Block
from dtlearn.notebook.panels import Slider, slider_panel
from dtlearn.runtime.record.training_steps import part
from dtlearn.sharing import clipping
from dtlearn.viz import (
    UnitRun,
    bytes_over_ranks,
    rank_table,
    sent_by_operation,
    shard_map,
    show,
    stage_fit,
    stage_memory,
    traffic_by_stage,
    unit_timeline,
)
from dtlearn.viz.units import parse_quantity
from dtlearn.zero import page_zero2, page_zero3
from dtlearn.zero.stages.prefetch import Prefetcher

torch.set_num_threads(1)  # small tensors: more threads would only wait for each other
world = dtlearn.world(4)
world

# %% [markdown]
# # A. Sharding state and gradients
#
# ## 1. N equal copies
#
# A model with 7.5 billion parameters is to be trained on 64 GPUs of 80 GB, with DDP, in mixed precision with Adam. It
# needs 16 bytes for each parameter on each GPU (chapter 8), before the first activation:
#
# | on every GPU | bytes per parameter | GB |
# |---|---|---|
# | weights, 16 bits | 2 | 15 |
# | gradients, 16 bits | 2 | 15 |
# | fp32 master weights and Adam's two moments | 12 | 90 |
# | together | 16 | 120 |
#
# It does not fit, and more GPUs do not help: each of them would hold the same 120 GB. Recomputation and offload of
# activations do not help either, since no activation is in this table.
#
# Below, Ψ is the number of parameters and N the number of ranks; the optimizer is Adam unless the text says otherwise.

# %%
needed = dtlearn.predict.choice(
    "Which of the three does a GPU have to read, whole, in its own forward and backward pass?",
    {
        "A": "the 16-bit weights",
        "B": "the weights and the gradients",
        "C": "the weights, the gradients, and the optimizer's state",
    },
    id="ch09.needed",
)

# %% [markdown]
# ## 2. What DDP holds
#
# First the naive thing: DDP, on 2 ranks and on 4, with the ledger of chapter 8. The model is the GPT of chapter 3 with
# 6 blocks, in fp32, so a parameter takes 4 bytes, its gradient 4, and Adam's state 8. The gradients are views of DDP's
# buckets, so they are not there twice. (`--setup`: a rank that has to be replaced later runs this cell again.)

# %%
# %%ranks --setup
import hashlib

from torch.nn.parallel import DistributedDataParallel as DDP

import dtlearn
from dtlearn import zero
from dtlearn.memory import record_step
from dtlearn.models import GPT, GPTConfig, load_corpus, next_token_loss

corpus = load_corpus()
CONFIG = GPTConfig(num_layers=6)


def fresh_model():
    torch.manual_seed(0)
    return GPT(CONFIG).to(device)


def my_batch(samples=4):
    x, y = next(corpus.batches(1, samples, 32))  # each rank has a part of them
    return tuple(t[rank::world_size].contiguous().to(device) for t in (x, y))


def digest(tensors):
    """A short name of all their bits: equal names, equal tensors."""
    flat = torch.cat([t.detach().flatten() for t in tensors])
    return hashlib.sha256(flat.cpu().numpy().tobytes()).hexdigest()[:6]


# %%
# %%ranks -o copies
pairs = [dist.new_group([0, 1]), dist.new_group([2, 3])]  # every rank makes both groups
copies = {}
for n, group in ((2, pairs[rank // 2]), (4, None)):
    model = DDP(fresh_model(), process_group=group, gradient_as_bucket_view=True)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    record = record_step(model, optimizer, my_batch(), next_token_loss)
    moments = [state["exp_avg"] for state in optimizer.state.values()]
    copies[n] = record, digest(model.parameters()), digest(moments)
copies

# %%
STATE = ("parameters", "gradients", "optimizer state", "communication")


def letters(digests):
    """{digest: letter}. Which digests are equal is the same on every processor; the digests are not."""
    return dict(zip(dict.fromkeys(digests), "ABCDEFGH", strict=False))


def after_backward(record):
    """Bytes that are held at the end of the backward pass, without activations, by category."""
    stop = next(phase.stop for phase in record.phases if phase.name == "backward")
    lines = record.timeline()
    return {category: lines[category][stop] for category in STATE}


# %% jupyter={"source_hidden": true}
letter = letters(
    digest for n in (2, 4) for of_rank in copies[:n] for digest in of_rank[n][1:]
)
rank_table(
    [
        {
            "ranks": n,
            "rank": rank,
            **{
                f"{c}, MB": f"{b / 1e6:.2f}"
                for c, b in after_backward(record).items()
                if b
            },
            "bits of the parameters": letter[parameters],
            "of Adam's first moments": letter[moments],
        }
        for n in (2, 4)
        for rank, of_rank in enumerate(copies[:n])
        for record, parameters, moments in [of_rank[n]]
    ],
    caption="At the end of backward, and after two steps. The same letter: equal to the last bit",
)

# %% jupyter={"source_hidden": true}
needed.reveal()

# %% [markdown]
# On 4 ranks nothing is smaller than on 2, and the letters say that all copies are equal: three of the four are
# redundant. Rajbhandari et al. (2019, arXiv 1910.02054) remove this redundancy step by step, and call that **ZeRO**,
# the zero redundancy optimizer:
#
# | | divided by N | bytes on each rank, 16 bits and Adam | in the paper |
# |---|---|---|---|
# | **stage 0** | nothing: that is DDP | $16Ψ$ | baseline |
# | **stage 1** | the optimizer's state | $4Ψ + 12Ψ/N$ | $P_{os}$ |
# | **stage 2** | and the gradients | $2Ψ + 14Ψ/N$ | $P_{os+g}$ |
# | **stage 3** | and the parameters | $16Ψ/N$ | $P_{os+g+p}$ |
#
# All stages are data parallelism: every rank computes the whole model on samples of its own, and the update is the one
# that DDP makes. Only the place of storage differs.
#
# ## 3. Partitions
#
# To divide something, one has to say who owns what. By hand: a weight of 6 elements and a bias of 4, on 4 ranks. Write
# them one after the other into a **flat buffer**, pad it with zeros to a multiple of N, and cut:
#
# | rank 0's **shard** | rank 1's shard | rank 2's shard | rank 3's shard |
# |---|---|---|---|
# | w0 w1 w2 | w3 w4 w5 | b0 b1 b2 | b3 0 0 |
#
# The zeros at the end are **padding**. With it all shards have one length, which `all_gather_into_tensor` and
# `reduce_scatter_tensor` need. The part of *one* parameter that lies in a rank's shard is a **piece**: rank 1 has the
# piece w[3:6], and of the bias it has an empty piece.

# %% [markdown]
# **Exercise 1.** Flat shards and the way back.

# %% exercise="ch09.flat_shards"

# %% [markdown]
# The package's plan is data, made without a process group, so that a validator and a drawer can read it:

# %%
dtlearn.show_source(zero.plan_flat, docstring=False, summary="dtlearn.zero.plan_flat")

# %% [markdown]
# There are other ways to divide. Here are three of them, on two small layers:

# %%
layers = torch.nn.Sequential(torch.nn.Linear(4, 6), torch.nn.Linear(6, 3))
names = ["A.weight", "A.bias", "B.weight", "B.bias"]
shapes = [tuple(p.shape) for p in layers.parameters()]
numels = [p.numel() for p in layers.parameters()]
partitions = {
    "flat": zero.plan_flat(numels, 4),
    "per parameter, by rows": zero.plan_per_parameter(shapes, 4),
    "whole tensors, the largest first": zero.plan_whole_tensors(numels, 4),
}
for partition in partitions.values():
    zero.validate_partition(partition)  # each element has exactly one owner

# %% jupyter={"source_hidden": true}
show(
    shard_map(
        partitions,
        names,
        title="The same 51 elements, divided in three ways",
        label="two linear layers, 4 to 6 and 6 to 3 features, on 4 ranks",
    ),
    alt="Three maps with a row for each of four ranks. Flat: 13, 13, 13 and 12 elements, one of "
    "padding; cuts go through A.weight, A.bias and B.weight. Per parameter, by rows: ranks 0 to 2 own "
    "two rows of A and one of B each, 17 elements; rank 3 owns nothing. Whole tensors: rank 0 owns "
    "A.weight with 24 elements, rank 1 B.weight with 18, rank 2 A.bias with 6, rank 3 B.bias with 3.",
)

# %% [markdown]
# | | cut | who does it | good | bad |
# |---|---|---|---|---|
# | **flat** | anywhere | DeepSpeed's stages 1 and 2, Megatron-LM's distributed optimizer, FSDP1 | equal shards, one message for many parameters | a piece is a vector that has lost its rows |
# | **per parameter** | between rows (dimension 0) | `fully_shard` (FSDP2) | a piece is a matrix of some rows; options and state dicts are simple | few rows: some ranks own nothing; pieces are copied to and from a buffer for each message |
# | **whole tensors** | nowhere | `ZeroRedundancyOptimizer` | an optimizer that needs whole matrices works | one large tensor, and its owner has the most to store |
#
# In the third map the padding is ours: we send equal shards. PyTorch broadcasts each tensor from its owner and needs
# none.
#
# ## 4. Stage 1: the optimizer's state
#
# Adam updates each element on its own. To update element $i$ it needs the gradient $i$ and the two moments $i$, nothing
# else. So one rank can do it for all, and the other ranks need no moments of this element.
#
# A naive version: DDP averages the gradients as always. Parameter i belongs to rank i mod N, which has an optimizer for
# its parameters alone. After the step each parameter is broadcast by its owner, one after the other. (The first loop
# passes on the rates, which a scheduler may have changed.)

# %%
dtlearn.show_source(zero.NaiveZeroRedundancyOptimizer.step, docstring=False)

# %%
stage1_sends = dtlearn.predict.choice(
    "Suppose that stage 1 sends no more than it must: each rank gets the gradients of the parameters that it updates, and "
    "in the end all ranks have all new parameters. How many bytes does a rank send, compared with DDP and a ring "
    "all-reduce?",
    {
        "A": "half as many: each rank reduces only its own shard",
        "B": "as many",
        "C": "one and a half times as many: the parameters are sent in addition to the gradients",
    },
    id="ch09.stage1_sends",
)

# %% jupyter={"source_hidden": true}
stage1_sends.reveal()

# %% [markdown]
# The real stage 1 does two things better. It divides elements, not tensors, so every rank has the same share. And it
# splits the all-reduce. An all-reduce is a reduce-scatter and an all-gather (chapter 2), and between them stands what
# we want: after the reduce-scatter each rank has the mean gradients of its shard. (Section 8 counts the bytes.)
#
# | | rank 0 | rank 1 |
# |---|---|---|
# | after backward | own gradients of w0 w1 w2 w3 | own gradients of w0 w1 w2 w3 |
# | reduce-scatter | mean gradients of w0 w1 | mean gradients of w2 w3 |
# | update | new w0 w1 | new w2 w3 |
# | all-gather | w0 w1 w2 w3 | w0 w1 w2 w3 |

# %% [markdown]
# **Exercise 2.** A step of ZeRO 1.

# %% exercise="ch09.zero1_step"

# %% [markdown]
# The package's `ZeroRedundancyOptimizer` has the interface of PyTorch's. It takes any optimizer class and builds it
# over the pieces. Its `step()` calls `reduce_scatter` for each bucket, then the optimizer's own `step()`, then
# `all_gather`. (`flatten` puts gradients where their parameters lie in the buffer, divided by N.)

# %%
dtlearn.show_source(
    zero.FlatParameters.reduce_scatter,
    docstring=False,
    summary="FlatParameters.reduce_scatter",
)
dtlearn.show_source(
    zero.FlatParameters.all_gather,
    docstring=False,
    summary="FlatParameters.all_gather",
)

# %% [markdown]
# Measured on the ranks. There is no DDP around the model, so each rank has the gradients of its own samples when
# `step()` is called: `gradients="local"`. (The default, `gradients="averaged"`, expects DDP. Without it the first step
# is an error, since the ranks' gradients differ.)


# %%
# %%ranks -o stage_1
def one_process(steps):
    """The model after some steps of a single process that sees the samples of all ranks."""
    model = fresh_model()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    x, y = next(corpus.batches(1, 4, 32))
    for _ in range(steps):
        optimizer.zero_grad()
        next_token_loss(model(x.to(device)), y.to(device)).backward()
        optimizer.step()
    return list(model.parameters())


def difference(parameters):
    """The largest difference of any parameter from the one process."""
    pairs = zip(parameters, REFERENCE, strict=True)
    return max((a - b).abs().max().item() for a, b in pairs)


REFERENCE = one_process(steps=2)  # record_step trains twice
model = fresh_model()
optimizer = zero.ZeroRedundancyOptimizer(
    model.parameters(), torch.optim.AdamW, gradients="local", cap=12_500, lr=1e-3
)
record = record_step(model, optimizer, my_batch(), next_token_loss)
record, difference(model.parameters()), digest(model.parameters())


# %% jupyter={"source_hidden": true}
def rounding(off):
    """How the tables show a difference. Below 1e-4, a tenth of the learning rate, it depends on the processor."""
    return "below 1e-4" if off < 1e-4 else f"{off:.0e}"


letter = letters(bits for *_, bits in stage_1)
rank_table(
    [
        {
            "rank": rank,
            **{
                f"{c}, MB": f"{b / 1e6:.2f}"
                for c, b in after_backward(record).items()
                if b
            },
            "difference from one process": rounding(off),
            "bits of the parameters": letter[bits],
        }
        for rank, (record, off, bits) in enumerate(stage_1)
    ],
    caption="Stage 1 on 4 ranks at the end of backward, and after two steps. The same letter: equal to the last bit",
)

# %% [markdown]
# The state is a quarter of what it was, and the parameters on all ranks are equal to the last bit: each element was
# computed once, and copied. (The difference from one process is rounding: the gradients are summed in another order.
# Adam divides by their size, so that rounding shows where a gradient is tiny.)
#
# ## 5. The sources' example
#
# Here is the example for `ZeroRedundancyOptimizer` that stands in one of the texts behind this course and in a [PyTorch
# recipe](https://docs.pytorch.org/tutorials/recipes/zero_redundancy_optimizer.html): 20 linear layers, 2 ranks, Adam,
# one step, and the peak of the memory printed four times, with ZeRO and without. Ours has layers of 500 x 500 in place
# of 2000 x 2000, and the ledger's peak in place of `torch.cuda.max_memory_allocated`.


# %%
def make_adam(parameters, use_zero):
    """Adam, or Adam inside of PyTorch's ZeroRedundancyOptimizer."""
    if use_zero:
        from torch.distributed.optim import ZeroRedundancyOptimizer

        return ZeroRedundancyOptimizer(
            parameters, optimizer_class=torch.optim.Adam, lr=0.01
        )
    return torch.optim.Adam(parameters, lr=0.01)


def example(use_zero, width=500):
    """Peaks of memory, in bytes, and the 'sum of the parameters'."""
    torch.manual_seed(0)
    with MemoryLedger() as ledger:
        model = torch.nn.Sequential(*[torch.nn.Linear(width, width) for _ in range(20)])
        peaks = [ledger.peak]
        ddp_model = torch.nn.parallel.DistributedDataParallel(model)
        peaks.append(ledger.peak)
        optimizer = make_adam(ddp_model.parameters(), use_zero)
        outputs, labels = ddp_model(torch.randn(20, width)), torch.randn(20, width)
        torch.nn.functional.mse_loss(outputs, labels).backward()
        peaks.append(ledger.peak)
        optimizer.step()
        peaks.append(ledger.peak)
    return peaks, sum(model.parameters()).sum().item()


# %%
P = 4 * 20 * (500 * 500 + 500)
spared = dtlearn.predict(
    f"The parameters take P = {P / 1e6:.2f} MB. By about how many MB is the last peak, "
    "after `optimizer.step()`, lower with ZeRO on 2 ranks? (One MB more or less does not matter.)",
    unit="MB",
    id="ch09.spared",
)

# %%
# On the CPU, where the example makes its tensors.
runs = {
    use_zero: dtlearn.run_ranks(example, 2, use_zero, record=True, device="cpu")
    for use_zero in (False, True)
}

# %% jupyter={"source_hidden": true}
(peaks, whole_sum), (with_zero, zero_sum) = (runs[z].values[0] for z in (False, True))
spared.reveal((peaks[-1] - with_zero[-1]) / 1e6, state=P / 1e6)

# %% tags=["nbval-ignore-output"] jupyter={"source_hidden": true}
moments = (
    "creating the local model",
    "creating DDP",
    "forward and backward",
    "optimizer.step()",
)
terms = ("P", "2P: DDP's buckets", "3P: the gradients", "5P, with ZeRO 4P: Adam's state")
rank_table(
    [
        {
            "after": moment,
            "by formula": term,
            "without ZeRO, MB": f"{plain / 1e6:.2f}",
            "with ZeRO, MB": f"{sharded / 1e6:.2f}",
            "2000 x 2000, by formula, MB": by_formula,
            "printed in the recipe, MB": printed,
        }
        for moment, term, plain, sharded, by_formula, printed in zip(
            moments,
            terms,
            peaks,
            with_zero,
            ("320", "640", "960", "1601, with ZeRO 1281"),
            ("335", "656", "992", "1697, with ZeRO 1361"),
            strict=True,
        )
    ],
    caption=f"Rank 0 of 2; P is {P / 1e6:.2f} MB, and 320.16 MB with layers of 2000 x 2000",
)

# %% [markdown]
# Line by line:
#
# - **P, then 2P.** The model, and DDP's buckets, which are as large as all gradients together. (DDP begins with a
#   broadcast of rank 0's parameters, from a copy of P. If it is freed only after the buckets are there, 3P are printed.)
# - **3P.** The gradients themselves; with `gradient_as_bucket_view=True` this line would stay at 2P. (The activations
#   of 20 samples are small.)
# - **5P or 4P.** Adam's two moments are made in the first step: 2P, or half of that on each of 2 ranks. What the ledger
#   shows beyond that are temporaries of one update, 1.00 MB each: two at most without ZeRO, and three with it.
#   PyTorch's class sorts the tensors by size, so the weights come one after the other, and Adam's loop still holds the
#   denominator of the last weight while it computes that of the next. With Adam alone a small bias comes between them.
# - On the GPU of the recipe the allocator gives each weight of 16.00 MB a block of 16 MiB, 16.78 MB: 20 of them are
#   335.5 MB. The same rounding makes the gradients 336 MB and the state 671.
# - The recipe says that ZeRO halves the peak memory of `step()`. That holds for what the step adds, 369 MB where it
#   was 705. The peak itself falls by a fifth.
#
# Two more things are worth knowing about this example. Both ranks call `torch.manual_seed(0)` and then draw their
# samples, so both train on the *same* samples, and the second rank adds nothing. And what it prints as "params sum" is
# not the sum of the parameters: `sum(model.parameters())` adds tensors of shapes (500, 500) and (500,), and so counts
# each bias 500 times. It is still a number that would change if the parameters did:

# %%
print(f"'params sum' without ZeRO {whole_sum:.0f}, with ZeRO {zero_sum:.0f}")
print("equal to the last bit:", whole_sum == zero_sum)

# %% jupyter={"source_hidden": true}
rank_table(
    [
        {
            "optimizer": "ZeroRedundancyOptimizer" if use_zero else "Adam",
            **{
                f"{op} in {phase}, MB": f"{sent / 1e6:.2f}"
                for phase, op in (("backward", "all_reduce"), ("step", "broadcast"))
                for sent in [sent_by_operation(run.record.select(phase=phase)).get(op, 0)]
            },
        }
        for use_zero, run in runs.items()
    ],
    caption=f"Sent by a rank of 2, if each collective sends as little as a ring; P (N-1)/N is {P / 2e6:.2f} MB",
)

# %% [markdown]
# What does PyTorch's class send? DDP has averaged *all* gradients on all ranks: $2Ψ(N-1)/N$ elements. Then each
# parameter is broadcast by its owner: another $Ψ(N-1)/N$. Together that is $3Ψ$, half as much again as stage 1 needs;
# it is the price of a class that works behind an unchanged DDP. (Ours does so too, by default. `gradients="local"` is
# the paper's way.) And it hands out whole tensors, the largest first, each to the rank with the fewest elements so far.
# For 20 equal layers that is even. For a model whose embedding is half of all parameters it is not: on 8 ranks one of
# them has half of the state.
#
# ## 6. Stage 2: the gradients
#
# After stage 1 a rank has gradients of all parameters, and uses those of its shard. **Stage 2** lets go of the others.
# The moment matters. If the reduce-scatter waits until backward has ended, all gradients are there at once, and that is
# the peak that we want to avoid. So it is launched inside backward, as DDP's all-reduce is (chapter 3): when the last
# gradient of a bucket is there, the bucket is reduced and the full gradients are freed.
#
# | backward has done | gradients held, stage 1 | gradients held, stage 2, buckets of one layer |
# |---|---|---|
# | layer 4 | layer 4 | layer 4, then a shard of it |
# | layer 3 | layers 4, 3 | layer 3, and a shard of 4 |
# | layer 2 | layers 4, 3, 2 | layer 2, and shards of 4, 3 |
# | layer 1 | all | layer 1, and shards of 4, 3, 2; in the end shards only |

# %% [markdown]
# **Exercise 3.** Reduce-scatter in a hook.

# %% exercise="ch09.reduce_scatter_hook"

# %% [markdown]
# **Stage 2 on a page.** This file is all of stage 2, and the three exercises are parts of it:

# %%
dtlearn.show_source(page_zero2, summary="page_zero2.py, the whole file")

# %% [markdown]
# Follow one bucket through a training step:
#
# | when | what | memory of the bucket, n bytes |
# |---|---|---|
# | a gradient is complete | `gradient_is_ready`: is it the last one of its bucket, and were all buckets before it launched? | its gradients, up to n |
# | then | `launch`: gradients are copied into a vector and freed; the reduce-scatter begins, and backward goes on | the vector, n, and the shard of the mean, n/N |
# | before the next bucket is launched | `wait`: the mean is the gradient of the shard, or is added to it | n/N |
# | after backward | `step`: the optimizer updates the shard; the all-gather fetches the other shards | the optimizer's state of n/N |
#
# Buckets are launched in one order on all ranks, because a collective pairs the first call of each rank with the first
# of the others, the second with the second. So a bucket that is complete waits for those before it.
#
# The package's classes compute the same, to the last bit. `ZeroRedundancyOptimizer` has the buffers and the step, and
# adds:
#
# - a piece for each parameter in place of one shard for each bucket, so that each parameter has its own options;
# - places between backward and step where gradients are clipped (section 10) and unscaled (chapter 7);
# - state dicts that fit any number of ranks (section 12).
#
# `ShardedGradients` has the hooks, and adds:
#
# - parameters that get no gradient in some pass, on one rank or on all: they are sent as zeros when backward has ended;
# - `no_sync()`, for the next section, and checkpointing;
# - copies of the model (a best model, a moving average), and layers that are frozen or unfrozen later;
# - errors in place of numbers that would be wrong.

# %%
# %%ranks -o stage_2
model = fresh_model()
optimizer = zero.ZeroRedundancyOptimizer(
    model.parameters(), torch.optim.AdamW, gradients="local", cap=12_500, lr=1e-3
)
model = zero.ShardedGradients(model, optimizer)
record = record_step(model, optimizer, my_batch(), next_token_loss)
record, difference(model.parameters()), digest(model.parameters())


# %% jupyter={"source_hidden": true}
def most_at_once(record):
    """The most bytes of gradients, and of buckets that are being sent."""
    lines = record.live("gradients"), record.live("communication")
    return max(map(sum, zip(*lines, strict=True)))


rank_table(
    [
        {
            "stage": stage,
            **{f"{c}, MB": f"{after_backward(record)[c] / 1e6:.2f}" for c in STATE[:3]},
            "most MB of gradients and buckets at once": f"{min(most) / 1e6:.2f}",
            "difference from one process": rounding(off),
        }
        for stage, ranks in ((1, stage_1), (2, stage_2))
        for record, off, _ in ranks[:1]
        for most in [[most_at_once(of_rank[0]) for of_rank in ranks]]
    ],
    caption="Rank 0 of 4. Most at once: the lowest of the ranks, since now and then one of them lets go of a sent "
    "buffer a moment late",
)

# %% [markdown]
# The update is the same; only the gradients are in shards when `step()` is called. Anything between backward and the
# step that reads `parameter.grad` finds None now, such as a line that logs gradient norms or clips them. So
# `ShardedGradients` refuses PyTorch's `clip_grad_norm_`, whose norm would be 0, and has its own (section 10).
#
# ## 7. Accumulation
#
# A batch in A micro-batches (chapter 3): DDP adds up gradients locally in `no_sync()`, and communicates once. With
# stage 1 that works as before. With stage 2 it is a choice: either the full gradients stay between micro-batches, as
# many bytes as in stage 1; or each micro-batch is reduced, and the results are added up in the shards.

# %%
accumulated = dtlearn.predict(
    "4 micro-batches, stage 2, each of them reduced into the shards. How many times as many bytes does a rank "
    "send in a step as with stage 1, which reduces once?",
    unit="times",
    id="ch09.accumulated",
)

# %%
# %%ranks --record accumulation -o accumulated_bytes
import contextlib

from dtlearn.memory import MemoryLedger


def stage_of(stage):
    """Stage 1, or stage 2 with buckets of 12,500 elements or a little more."""
    model = fresh_model()
    optimizer = zero.ZeroRedundancyOptimizer(
        model.parameters(), torch.optim.AdamW, gradients="local", cap=12_500, lr=1e-3
    )
    return (zero.ShardedGradients(model, optimizer) if stage == 2 else model), optimizer


def accumulate(model, optimizer, parts, later):
    """A step in micro-batches; all but the last one run in the context `later`."""
    for x, y in parts[:-1]:
        with later():
            (next_token_loss(model(x), y) / len(parts)).backward()
    x, y = parts[-1]
    (next_token_loss(model(x), y) / len(parts)).backward()
    optimizer.step()


x, y = my_batch(samples=16)
parts = list(zip(x.chunk(4), y.chunk(4), strict=True))
WAYS = {
    "stage 1": (1, contextlib.nullcontext),
    "stage 2, each reduced": (2, contextlib.nullcontext),
    "stage 2, no_sync": (2, None),
}
accumulated_bytes = {}
for way, (stage, later) in WAYS.items():
    model, optimizer = stage_of(stage)
    with MemoryLedger(model, optimizer) as ledger, dtlearn.phase(way):
        accumulate(model, optimizer, parts, later or model.no_sync)
    accumulated_bytes[way] = ledger.record()
accumulated_bytes

# %% jupyter={"source_hidden": true}
sent = {
    way: sum(sent_by_operation(part(accumulation, way)).values())
    for way in accumulated_bytes[0]
}
accumulated.reveal(sent["stage 2, each reduced"] / sent["stage 1"])

# %% jupyter={"source_hidden": true}
rank_table(
    [
        {
            "4 micro-batches": way,
            "MB sent": f"{sent[way] / 1e6:.2f}",
            "most MB of gradients and buckets at once": f"{min(most) / 1e6:.2f}",
        }
        for way in accumulated_bytes[0]
        for most in [[most_at_once(of_rank[way]) for of_rank in accumulated_bytes]]
    ],
    caption="A step of rank 0 of 4. Most at once: the lowest of the ranks",
)

# %% [markdown]
# So with accumulation stage 2 pays, either in bytes or in memory. Stage 1 holds all gradients in any case, and in its
# step a shard of their means as well. What stage 2 saves with `no_sync()` is that shard and little more.

# %% [markdown]
# **A good place for a break.** If you shut down the kernel, come back with Run > Run All Above Selected Cell.
#
# # B. Sharding parameters
#
# ## 8. Stage 3: the parameters
#
# Forward and backward read the weights: that is why stages 1 and 2 leave them whole. But a layer's weights are read
# only while that layer computes. **Stage 3** keeps shards of them. A **unit** of the model, usually a transformer
# block, is **unsharded** just before it computes: its weights are gathered, so that each rank has the whole of them for
# a moment. Right after it the unit is **resharded**: the gathered weights are freed. In backward it is unsharded a
# second time, because the gradient of a layer's input is computed from its weights. (The two verbs are PyTorch's. Its
# implementation, FSDP, is described by Zhao et al. 2023, arXiv 2304.11277.)
#
# By hand, for two units:
#
# | | whole | what happens |
# |---|---|---|
# | forward | unit 1 | unshard 1 (all-gather), compute, reshard 1 |
# | | unit 2 | unshard 2, compute, reshard 2 |
# | backward | unit 2 | unshard 2, compute, reshard 2, reduce-scatter the gradients of 2 |
# | | unit 1 | unshard 1, compute, reshard 1, reduce-scatter the gradients of 1 |
# | step | none | each rank updates its shards; nothing is sent |

# %%
stage3_sends = dtlearn.predict(
    "How many times as many bytes as DDP with a ring all-reduce does a rank send in a step of stage 3?",
    unit="times",
    id="ch09.stage3_sends",
)

# %% [markdown]
# All stages on 4 ranks, with the same model and the same samples. Stage 3 is `FullyShardedDataParallel`, and each block
# is a unit:

# %%
# %%ranks --setup
from dtlearn.models.gpt import Block


def make(stage):
    """Model and optimizer of a stage of ZeRO; stage 0 is DDP."""
    model, adamw = fresh_model(), {"optimizer_class": torch.optim.AdamW, "lr": 1e-3}
    if stage == 0:
        model = DDP(model, gradient_as_bucket_view=True)
    if stage == 3:
        model = zero.FullyShardedDataParallel(model, units=(Block,))
    if stage in (0, 3):  # the optimizer comes last: over the pieces
        return model, torch.optim.AdamW(model.parameters(), lr=1e-3)
    optimizer = zero.ZeroRedundancyOptimizer(
        model.parameters(), gradients="local", cap=12_500, **adamw
    )
    return (zero.ShardedGradients(model, optimizer) if stage == 2 else model), optimizer


def whole_parameters(model):
    """All parameters of a model, which stage 3 has to gather for that."""
    if not isinstance(model, zero.FullyShardedDataParallel):
        return list(model.parameters())
    return list(model.full_params().values())


# %%
# %%ranks --record traffic -o stages
stages = {}
for stage in range(4):
    model, optimizer = make(stage)
    record = record_step(model, optimizer, my_batch(), next_token_loss)
    off = difference(whole_parameters(model))
    x, y = my_batch()
    with dtlearn.phase(f"stage {stage}"):  # one more step, for the recorder
        next_token_loss(model(x), y).backward()
        optimizer.step()
    partition = {
        0: zero.plan_flat([p.numel() for p in model.parameters()], world_size),
        3: getattr(model, "partition", None),
    }.get(stage) or optimizer.flat.partition
    stages[stage] = record, partition, off
stages

# %% jupyter={"source_hidden": true}
CONFIG = GPTConfig(num_layers=6)
Psi = CONFIG.num_parameters
one_step = {
    f"stage {stage}": sent_by_operation(part(traffic, f"stage {stage}"))
    for stage in range(4)
}
stage3_sends.reveal(
    round(sum(one_step["stage 3"].values()) / sum(one_step["stage 0"].values()), 2)
)

# %% jupyter={"source_hidden": true}
adamw = CONVENTIONS["fp32 Adam"]
formulas = {
    f"stage {s}": zero.state_bytes(partition, s, adamw, per_tensor=4)
    for s, (_, partition, _) in stages[0].items()
}
counted = [after_backward(record) for record, _, _ in stages[0].values()]
print(
    "bytes after backward, ledger and formula equal:", counted == list(formulas.values())
)
show(
    stage_memory(
        {f"stage {s}": record for s, (record, _, _) in stages[0].items()},
        formulas,
        title="Each stage divides one more part of what every rank holds",
        label=f"rank 0 of 4: GPT, {Psi:,} parameters, 32 tokens, AdamW, fp32",
    ),
    alt="Memory over one step for stages 0 to 3, with one scale, and beside each a bar by formula. "
    "Stage 0 has its peak at 6.0 MB, stage 1 at 3.7, stage 2 at 2.9, stage 3 at 2.5. At the end "
    "of backward there are 5.1, 3.2, 2.2 and 1.3 MB, and the bars are as high. From stage 1 on the "
    "optimizer's state is a quarter, from stage 2 on the gradients, in stage 3 the parameters, which "
    "are gathered for a while as communication.",
)

# %% [markdown]
# From left to right: stage 0 holds $4Ψ$ bytes of parameters, $4Ψ$ of gradients and $8Ψ$ of state. Stage 1 has a quarter
# of the state, stage 2 a quarter of the gradients as well, stage 3 a quarter of everything. The bars are the formula of
# `dtlearn.zero`, with padding, at the end of backward; the ledger has the same number of bytes. (Dotted lines:
# backward, the optimizer's step and `zero_grad` begin.) What rises above the bars before are activations, which no
# stage divides, and in stage 3 the gathered units and the gradients of a unit that are being reduced, as communication.
# Stage 1 has its peak in the step, where the shards of the mean gradients are added to the gradients.
#
# And the price:

# %% jupyter={"source_hidden": true}
share = 4 * Psi * 3 / 4
show(
    traffic_by_stage(
        one_step,
        {
            f"stage {s}": zero.sent_bytes(zero.step_traffic(partition, s))
            for s, (_, partition, _) in stages[0].items()
        },
        ("Ψ(N-1)/N", share),
        title="Stages 1 and 2 send what DDP sends, stage 3 half as much again",
        label="one step of rank 0 of 4, recorded; each collective as in a ring; Ψ here: 4 bytes for each parameter",
    ),
    alt="Four bars of MB sent by rank 0. Stages 0, 1 and 2: 1.92 MB, which is 2 Ψ(N-1)/N, as all-reduce "
    "in stage 0, and half reduce-scatter and half all-gather in stages 1 and 2. Stage 3: 2.88 MB, 3 "
    "Ψ(N-1)/N, two thirds of it all-gather. The formula's mark is at the end of each bar.",
)

# %% [markdown]
# Stages 1 and 2 split the all-reduce, and send as much as it does. Stage 3 has no all-gather in its step, since nobody
# needs all updated parameters there; it has two others, one in forward and one in backward. $3Ψ$ in place of $2Ψ$ is
# half as much again, **not three times as much**. `reshard_after_forward=False` frees the weights only after backward:
# $2Ψ$ again, for $4Ψ$ bytes that are there between the two passes.

# %% jupyter={"source_hidden": true}
rank_table(
    [
        {
            "stage": stage,
            "peak, MB": f"{min(of_rank[stage][0].peak.bytes for of_rank in stages) / 1e6:.2f}",
            "difference from one process": rounding(off),
        }
        for stage, (_, _, off) in stages[0].items()
    ],
    caption="The lowest peak of the ranks; the largest difference of a parameter of rank 0, after two steps of AdamW",
)

# %% [markdown]
# All four stages make the same update, up to rounding.
#
# How are weights freed that backward needs again? Autograd saves them in the forward pass, and this reference keeps them
# alive, even if the unit drops its own. Two things help: the memory under a tensor can be given back while references
# to the tensor remain, and a function can compute its forward pass again in backward (chapter 8).

# %% [markdown]
# **Exercise 4.** A unit whose full weights are there only while it computes.

# %% exercise="ch09.gather_and_free"

# %% [markdown]
# Now stage 3 on a page. The weights of a unit are views of one vector, `full`, which exists all the time. But its
# *storage* has memory only from `unshard` to `reshard`. Four hooks call the verbs: before and after the forward pass of
# the module, before its backward pass, and when a weight has its gradient.

# %%
dtlearn.show_source(page_zero3)

# %% [markdown]
# When backward comes to the unit and the storage is filled again, what autograd saved has its values back. Between the
# two moments nobody may read it.
#
# `FullyShardedDataParallel` computes the same, to the last bit, and the optimizer has the same shards. It adds:
#
# - **overlap**: a gather and a reduce-scatter run while other units compute; the next section prefetches;
# - **several buckets in a unit**: one for each dtype, and one for what is frozen;
# - **tied weights, and a unit in a unit**: a weight belongs to the innermost unit, and two units may not share one;
# - **weights without a gradient**: they count as zeros, so that all ranks reduce the same units;
# - **accumulation**: in `no_sync()` gradients are added up whole, and reduced with the last micro-batch;
# - **`reshard_after_forward`**: whether weights are kept from forward to backward;
# - **precision and host memory**: what is sent is rounded, and the shard may lie on the host (sections 11 and 14);
# - **whole weights**: `full_params()` returns copies, and inside `unsharded()` the model is a plain one;
# - **copies**: `copy.deepcopy` makes a model with shards of its own;
# - **a second backward pass**: through gradients, as a gradient penalty needs it;
# - **errors**: whoever would read freed weights, or train something else than the shards, is told.

# %% [markdown]
# ## 9. Prefetch
#
# A gather before each unit means that each unit waits for the link. Here is a step of two ranks on an emulated link,
# without overlap of any kind in forward. The model is a chain of four equal units. (The fastest of several steps is
# drawn. On a busy machine computations and messages take longer than they should, and some gathers stay exposed.)

# %% tags=["nbval-ignore-output"] jupyter={"source_hidden": true}
WIDTH, BATCH, STEPS = 512, 640, 12
UNITS = {
    f"{number}.0": str(number + 1) for number in range(4)
}  # the modules, and what to call them


def layer():
    return torch.nn.Sequential(torch.nn.Linear(WIDTH, WIDTH), torch.nn.ReLU())


def record_units(prefetch):
    """Train a chain of linear layers, each a unit, and note what happens to the units."""
    torch.manual_seed(0)
    model = torch.nn.Sequential(*(layer() for _ in UNITS))
    model = zero.FullyShardedDataParallel(
        model, units=(torch.nn.Linear,), prefetch=prefetch
    )
    events = model.record_events()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    x = torch.randn(BATCH, WIDTH)
    for _ in range(STEPS):
        model(x).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
    return events


def run_with(prefetch):
    """What happened on rank 0, on an emulated link of 1 Gb/s."""
    link = dtlearn.Link.named("1 Gb/s")
    # An emulated link delays what gloo sends between processors.
    run = dtlearn.run_ranks(
        record_units, 2, prefetch, record=True, link=link, device="cpu"
    )
    weights = dict.fromkeys(UNITS, 4 * (WIDTH + 1) * WIDTH)
    return UnitRun(run.record, run.values[0], weights, names=UNITS)


units = {prefetch: run_with(prefetch) for prefetch in (0, 1)}
show(
    unit_timeline({"no prefetch": units[0]}, "Every unit waits for its weights"),
    alt="A step on rank 0 with three strips: what it computes, what the link carries, and how many "
    "bytes of weights are unsharded. In forward, all-gather and computation of units 1 to 4 take turns. "
    "In backward, from unit 4 to 1, an all-gather, the computation, and a reduce-scatter of the "
    "gradients. The rank only waits during each all-gather. One unit is unsharded at a time, 1.05 MB.",
)

# %% [markdown]
# The link is idle while the unit computes, and the rank is idle while the link works. So unshard the *next* unit while
# this one computes: **prefetch**.

# %%
ahead = dtlearn.predict.choice(
    "What is the price of gathering one unit ahead?",
    {
        "A": "more bytes are sent",
        "B": "memory: one more unit is gathered at the same time",
        "C": "nothing",
    },
    id="ch09.ahead",
)

# %% jupyter={"source_hidden": true}
ahead.reveal()

# %% tags=["nbval-ignore-output"] jupyter={"source_hidden": true}
show(
    unit_timeline(
        {"no prefetch": units[0], "prefetch 1": units[1]},
        "Prefetch hides gathers behind computation, for the memory of one more unit",
    ),
    alt="The same step twice on one time axis, without and with prefetch. With prefetch the all-gather "
    "of the next unit runs while a unit computes, less time is exposed, and two units are unsharded at "
    "once, 2.10 MB in place of 1.05.",
)

# %% [markdown]
# What is still exposed: the first gather of each pass, before which there is nothing to compute; the last
# reduce-scatter; and what a gather takes longer than the computation beside it. Here a gather takes at least 4.2 ms
# (each rank sends half of 1.05 MB at 1 Gb/s), and in backward it shares the link with the reduce-scatters. With more
# tokens per rank the computation takes longer and the gather does not, so it is easier to hide.
#
# The step becomes shorter too, but by less than the exposed time: computations and messages share the processors of this
# machine, and some computations take longer. On a busy machine other programs do the same.

# %% [markdown]
# **Exercise 5.** Gather the next units while this one computes.

# %% exercise="ch09.prefetch"

# %% [markdown]
# The order in which units will run is not known to the wrapper: ours expects that of the last forward pass, in the
# first one that of registration, and in backward the reverse.

# %%
dtlearn.show_source(
    Prefetcher.next_in_backward, docstring=False, summary="Prefetcher.next_in_backward"
)

# %% [markdown]
# ## 10. The global norm
#
# Gradients are clipped by their norm over the *whole* model (chapter 7): if $\lVert g \rVert$ is above a limit, all of
# $g$ is scaled by the same factor. With shards no rank has all of $g$.

# %%
norm = dtlearn.predict(
    "Rank 0's shard of the gradient has the norm 3, rank 1's has the norm 4. What is the norm of the whole "
    "gradient?",
    id="ch09.norm",
)

# %% [markdown]
# The naive way is what `torch.nn.utils.clip_grad_norm_` does with pieces: each rank takes the norm of what it has. Rank
# 0 has the gradient (3, 0), rank 1 has (0, 4), and the limit is 1:


# %%
def clip_naively():
    """Norm and clipped gradient of this rank."""
    from dtlearn.zero import clip_by_local_norm_

    gradients = torch.tensor([[3.0, 0.0], [0.0, 4.0]], device=dtlearn.device())
    piece = torch.nn.Parameter(torch.zeros(2, device=dtlearn.device()))
    piece.grad = gradients[torch.distributed.get_rank()]
    return clip_by_local_norm_([piece], max_norm=1.0).item(), piece.grad.tolist()


naive = dtlearn.run_ranks(clip_naively, 2).values
whole = torch.tensor([3.0, 0.0, 0.0, 4.0])

# %% jupyter={"source_hidden": true}
norm.reveal(round(whole.norm().item()))

# %% jupyter={"source_hidden": true}
by_rank = [n for n, _ in naive], [g for _, gradient in naive for g in gradient]
right = whole / whole.norm()
rank_table(
    [
        {
            "clipped": name,
            "norms that ranks used": norms,
            "gradient afterwards": ", ".join(f"{g:.2f}" for g in gradient),
            "its norm": f"{torch.tensor(gradient).norm().item():.2f}",
        }
        for name, norms, gradient in (
            ("each rank by its own norm", "3 and 4", by_rank[1]),
            ("by the norm of the whole", "5", right.tolist()),
        )
    ],
    caption="The gradient (3, 0, 0, 4), clipped to 1",
)

# %% [markdown]
# Two things are wrong. The result is too long: up to $\sqrt{N}$ times the limit. And it points in another direction,
# because each shard was scaled by a factor of its own. Nothing raises an error.

# %% [markdown]
# **Exercise 6.** The norm of sharded gradients.

# %% exercise="ch09.global_norm"

# %% [markdown]
# The package adds up powers, of the norm that is meant here squares, with one all-reduce of a single number. The caller
# says what is `counted` on this rank, so that each element counts once: padding never, a tied parameter once, a parameter
# that every rank has whole on the first rank only.

# %%
dtlearn.show_source(
    clipping.global_norm, docstring=False, summary="dtlearn.sharing.clipping.global_norm"
)

# %%
# %%ranks -o norms
from torch.nn.utils import get_total_norm


def norm_with(stage, total):
    """The norm of the gradients of the first step, as `total` computes it from the parameters."""
    model, _ = make(stage)
    x, y = my_batch()
    next_token_loss(model(x), y).backward()
    return total(list(model.parameters()))


def torch_norm(parameters):
    """PyTorch's norm of the gradients that this rank has."""
    return get_total_norm([p.grad for p in parameters if p.grad is not None])


norms = {
    "DDP, torch": norm_with(0, torch_norm).item(),
    "stage 3, dtlearn.zero": norm_with(3, zero.global_norm).item(),
    "stage 3, torch on pieces": norm_with(3, torch_norm).item(),
}
norms

# %% jupyter={"source_hidden": true}
rank_table(
    [
        {
            "norm of": way,
            **{f"rank {rank}": f"{of[way]:.4f}" for rank, of in enumerate(norms)},
        }
        for way in norms[0]
    ],
    caption="The norm of the gradients of one step",
)

# %% [markdown]
# ## 11. Hybrid sharding and offload
#
# Stage 3 over all ranks gathers every unit from every rank, also over the slow links between nodes. **Hybrid sharding**
# (HSDP; MiCS, Zhang et al. 2022, arXiv 2205.00119; FSDP's paper, section 3.2.2) shards inside a group of ranks with
# fast links, usually a node, and replicates over the groups. The ranks form a mesh:
#
# | | shard group | | replicate group |
# |---|---|---|---|
# | rank 0 | {0, 1} | shard 0 | {0, 2} |
# | rank 1 | {0, 1} | shard 1 | {1, 3} |
# | rank 2 | {2, 3} | shard 0 | {0, 2} |
# | rank 3 | {2, 3} | shard 1 | {1, 3} |
#
# Parameters are gathered inside a row of the mesh. Gradients are reduce-scattered there, and then each shard is
# all-reduced over the column, with the ranks that have the same shard. Between the groups $1/S$ of the
# gradients is sent, with S ranks in a shard group, and no weights. The price is memory: $16Ψ/S$ in place of $16Ψ/N$.

# %%
# %%ranks --record meshes -o hybrid
from torch.distributed.device_mesh import init_device_mesh

mesh = init_device_mesh(device.type, (2, 2), mesh_dim_names=("replicate", "shard"))
rows, columns = mesh.get_group("shard"), mesh.get_group("replicate")
hybrid = {}
for name in ("stage 3 over 4 ranks", "hybrid, 2 x 2"):
    if name == "hybrid, 2 x 2":
        model = zero.HybridShardedDataParallel(
            fresh_model(), units=(Block,), shard_group=rows, replicate_group=columns
        )
    else:
        model = zero.FullyShardedDataParallel(fresh_model(), units=(Block,))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    record = record_step(model, optimizer, my_batch(), next_token_loss)
    off = difference(whole_parameters(model))
    x, y = my_batch()
    with dtlearn.phase(name):
        next_token_loss(model(x), y).backward()
        optimizer.step()
    hybrid[name] = record, off
hybrid

# %% jupyter={"source_hidden": true}
inside, across = (
    {"0,1"},
    {"world", "0,2"},
)  # groups of rank 0 whose ranks are on one node, and on two


def sent_over(name, groups):
    """Bytes that rank 0 sends in these groups."""
    calls = part(meshes, name)
    return sum(
        sum(sent_by_operation(calls.select(group=group)).values()) for group in groups
    )


rank_table(
    [
        {
            "": name,
            "state, MB": f"{sum(after_backward(record).values()) / 1e6:.2f}",
            "sent inside a row only, MB": f"{sent_over(name, inside) / 1e6:.2f}",
            "sent over the whole mesh or a column, MB": f"{sent_over(name, across) / 1e6:.2f}",
            "difference from one process": rounding(off),
        }
        for name, (record, off) in hybrid[0].items()
    ],
    caption="Rank 0 of 4, a step; rows of the mesh are the ranks with fast links",
)

# %% [markdown]
# With the hybrid the weights stay inside a row. The only collectives with ranks of both rows are the all-reduces of the
# shards of gradients: a rank sends 0.64 MB in them, in place of 2.88, and holds twice the state.

# %% [markdown]
# **Offload** moves what is left to the memory of the host. The state of the optimizer is used once in a step, and not
# by the matrix products: it can lie on the host, and the host can do the update (ZeRO-Offload, Ren et al. 2021, arXiv
# 2101.06840). Per step and parameter a gradient of 2 bytes goes down and a weight of 2 bytes comes up. Parameters can
# lie there, too (ZeRO-Infinity, 2104.07857); then each gather begins with a copy from the host. On a CPU there is no
# second memory, so what is offloaded here lies in a store that the ledger does not count, as in chapter 8: the bytes
# are those of a GPU, the times are not.

# %%
# %%ranks -o offloaded_steps
offloaded_steps = {}
for name in ("nothing", "optimizer", "optimizer and parameters"):
    host = zero.Host()
    adamw = zero.offloaded(torch.optim.AdamW) if name != "nothing" else torch.optim.AdamW
    kept = {"host": host} if name != "nothing" else {}
    model = zero.FullyShardedDataParallel(
        fresh_model(), units=(Block,), offload=host if "parameters" in name else None
    )
    optimizer = adamw(model.parameters(), lr=1e-3, **kept)
    before = host.to_host, host.to_device
    record = record_step(model, optimizer, my_batch(), next_token_loss)
    record = record.on(device.type)  # not what is on the host
    moved = (
        (host.to_host - before[0]) / 2,
        (host.to_device - before[1]) / 2,
    )  # in one step of two
    offloaded_steps[name] = record, difference(whole_parameters(model)), host.peak, moved
offloaded_steps

# %% jupyter={"source_hidden": true}
rank_table(
    [
        {
            "on the host": name,
            **{f"{c}, MB": f"{after_backward(record)[c] / 1e6:.2f}" for c in STATE[:3]},
            "most MB on the host": f"{host / 1e6:.2f}",
            "MB a step to the host": f"{down / 1e6:.2f}",
            "and back": f"{up / 1e6:.2f}",
            "difference from one process": rounding(off),
        }
        for name, (record, off, host, (down, up)) in offloaded_steps[0].items()
    ],
    caption="Stage 3, rank 0 of 4: on the device at the end of backward, and on the host",
)

# %% [markdown]
# (In fp32 a gradient and a weight have 4 bytes.) With the parameters on the host each shard goes to the device twice in
# a step, once for each gather.

# %% [markdown]
# ## 12. State dicts
#
# A checkpoint of a job with stage 3 has two forms. **Sharded**: each rank writes what it has, with a description of
# what that is; nothing is sent. **Consolidated**: one whole state, as a model without ranks would save it; it has to be
# gathered somewhere, and the whole state must fit there. The question that decides is whether the job goes on with
# another number of ranks.
#
# By hand, a bucket of 10 elements. The shards that 4 ranks saved, and those that 2 ranks need:
#
# | saved at 4 ranks | rank 0: 0 1 2 | rank 1: 3 4 5 | rank 2: 6 7 8 | rank 3: 9 and 2 of padding |
# |---|---|---|---|---|
# | needed at 2 ranks | rank 0: 0 1 2 | 3 4 | | |
# | | | rank 1: 5 | 6 7 8 | 9 |
#
# Shards do not fit shards: rank 0 reads all of the first file and two elements of the second. The padding is not data,
# and another number of ranks has another padding.

# %% [markdown]
# **Exercise 7.** A state that was saved at 4 ranks, loaded at 2.

# %% exercise="ch09.reshard"

# %% [markdown]
# In the package a saved state knows its pieces by the name of the parameter and by the elements, not by a place in a
# buffer. So `reshard` also serves another stage and other units. The function below plans what is read. A piece there is
# made of boxes of a tensor, with a `start` and a `stop` in each dim; ZeRO's pieces are one box of a vector:

# %%
dtlearn.show_source(zero.plan_reads, docstring=False, summary="dtlearn.zero.plan_reads")

# %% [markdown]
# Save stage 3 on 4 ranks, go on with 2 of them, and compare with 4 that were never interrupted. The batch of the step
# is the same, divided by 4 or by 2:


# %%
def train(model, optimizer, steps, rank, ranks):
    """Train on the same 4 samples in each step, each rank on its part of them."""
    x, y = (t.to(dtlearn.device()) for t in next(load_corpus().batches(1, 4, 32)))
    for _ in range(steps):
        optimizer.zero_grad()
        next_token_loss(model(x[rank::ranks]), y[rank::ranks]).backward()
        optimizer.step()


def resume(ranks, states=None, steps=2):
    """Train stage 3 on so many ranks, from saved states or from the beginning: parameters, and what this rank saves."""
    torch.manual_seed(0)
    rank = torch.distributed.get_rank()
    gpt = GPT(CONFIG).to(dtlearn.device())
    model = zero.FullyShardedDataParallel(gpt, units=(Block,))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    sharded = zero.pieces_of_stage3(model)
    if states is not None:
        zero.load_sharded_state_dict(zero.reshard(states, sharded), sharded, optimizer)
    train(model, optimizer, steps, rank, ranks)
    whole = torch.cat([p.flatten() for p in model.full_params().values()])
    return whole, zero.sharded_state_dict(sharded, optimizer)


first_half = dtlearn.run_ranks(resume, 4, 4).values
at_two = dtlearn.run_ranks(resume, 2, 2, [state for _, state in first_half]).values
never_stopped = dtlearn.run_ranks(resume, 4, 4, None, 4).values
off = (at_two[0][0] - never_stopped[0][0]).abs().max().item()
print(
    f"4 steps on 4 ranks, and 2 on 4 ranks and 2 on 2 ranks: their difference is {rounding(off)}"
)
pieces = [
    [state["pieces"]["blocks.0.feed_forward.up.weight"] for _, state in run]
    for run in (first_half, at_two)
]
for when, run in zip(("saved by 4 ranks", "after resharding to 2"), pieces, strict=True):
    print(
        f"blocks.0.feed_forward.up.weight, {when}:",
        *(f"rank {r}: {p['start']:,} to {p['stop']:,}" for r, p in enumerate(run)),
        sep="; ",
    )

# %% [markdown]
# ## 13. Optimizer parallelism
#
# Texts on training strategies often list "optimizer parallelism", and mean different things by it. Where it is a
# form of parallelism at all, it is what this chapter does: the optimizer's state and its work are divided over the
# ranks. (One of the sources of this course explains it by "asynchronous optimizers such as AdaGrad or Adam". These are
# not asynchronous; asynchrony is a matter of how gradients reach the parameters, chapter 4.)
#
# All of it rests on one property: the update of an element needs that element only. SGD, momentum and Adam have it.
# Some optimizers look at a whole layer.
#
# **LAMB** (You et al. 2019, arXiv 1904.00962; chapter 3) scales the update of each layer by a **trust ratio**, the norm
# of its weights over the norm of its update. If a layer lies on two ranks, each rank alone would compute the ratio of
# its piece. The norms have to be those of the layer: squares are summed over the ranks, for all layers in one small
# all-reduce.
#
# **Muon** ([Jordan et al. 2024](https://kellerjordan.github.io/posts/muon/)) replaces the momentum of a matrix by a
# nearly orthogonal one with the same singular vectors, computed by a few matrix products (Newton-Schulz iterations).
# None of that can be computed from a piece. So matrices are assigned to ranks **whole**, balanced by what they cost;
# each rank updates its own, and sends the results.

# %%
# %%ranks -o layerwise
from dtlearn.data_parallel import LAMB


def two_steps(model, optimizer, batch):
    """The parameters after two steps."""
    x, y = batch
    for _ in range(2):
        optimizer.zero_grad()
        next_token_loss(model(x), y).backward()
        optimizer.step()
    return list(model.parameters())


def change(one, other):
    """How far parameters are apart: the norm of the difference of two lists of them."""
    return torch.cat(
        [(a - b).detach().flatten() for a, b in zip(one, other, strict=True)]
    ).norm()


def matrices(model):
    """What Muon is for: the weights of the blocks."""
    return [p for p in model.blocks.parameters() if p.ndim == 2]


everything = [t.to(device) for t in next(corpus.batches(1, 4, 32))]  # of all ranks
start = list(fresh_model().parameters())
alone, local = fresh_model(), {"gradients": "local", "lr": 1e-2}
lamb = two_steps(alone, LAMB(alone.parameters(), lr=1e-2), everything)
layerwise = {}
for optimizer_class in (zero.ShardedLAMB, zero.ShardwiseLAMB):
    model = fresh_model()
    optimizer = zero.ZeroRedundancyOptimizer(model.parameters(), optimizer_class, **local)
    after = two_steps(model, optimizer, my_batch())
    layerwise[optimizer_class.__name__] = (
        change(after, lamb) / change(lamb, start)
    ).item()
alone, model = fresh_model(), fresh_model()
muon = two_steps(alone, torch.optim.Muon(matrices(alone), lr=1e-2), everything)
optimizer = zero.sharded_muon(matrices(model), **local)
after = two_steps(model, optimizer, my_batch())
layerwise["sharded_muon"] = (change(after, muon) / change(muon, start)).item()
rounded = fresh_model()
for matrix in matrices(rounded):  # about one unit in the last place of fp32
    matrix.register_hook(lambda g: g * (1 + 1e-7 * torch.randn_like(g)))
after = two_steps(rounded, torch.optim.Muon(matrices(rounded), lr=1e-2), everything)
layerwise["torch.optim.Muon, gradients changed by 1e-7"] = (
    change(after, muon) / change(muon, start)
).item()
layerwise

# %% tags=["nbval-ignore-output"] jupyter={"source_hidden": true}
rank_table(
    [
        {
            "optimizer": name,
            "compared with": reference,
            "difference, % of the change": f"{100 * layerwise[0][name]:.2g}",
        }
        for name, reference in (
            ("ShardedLAMB", "LAMB"),
            ("ShardwiseLAMB", "LAMB"),
            ("sharded_muon", "torch.optim.Muon"),
            ("torch.optim.Muon, gradients changed by 1e-7", "torch.optim.Muon"),
        )
    ],
    caption="Two steps on 4 ranks (last row: on one process), and on one process with the samples of all. Change: how far the parameters moved",
)

# %% [markdown]
# `ShardwiseLAMB` is the naive one, with ratios of pieces. It trains, and its result depends on where the cuts lie; with
# one bucket on 4 ranks only three parameters are cut, and it is off nevertheless. The right one differs by rounding. So
# does Muon: PyTorch computes its iterations in bf16, and there a change in the seventh digit of the gradients moves the
# result as far (last row).
#
# What a matrix costs its owner is not its number of elements. With $k$ the smaller and $l$ the larger dimension, a
# Newton-Schulz iteration takes $4k^2l + 2k^3$ operations. Here are the matrices of a model with wide and square ones,
# divided over 4 ranks by either measure:

# %% jupyter={"source_hidden": true}
wide = [(1024, 1024)] * 6 + [(256, 8192)] * 6
costs = [zero.newton_schulz_flops(shape) for shape in wide]
elements = [rows * columns for rows, columns in wide]
rows = []
for name, measure in (("elements", elements), ("operations", costs)):
    divided = zero.plan_whole_tensors(elements, 4, costs=measure)
    work = zero.cost_of_ranks(divided, costs)
    rows.append(
        {
            "balanced by": name,
            **{f"rank {r}, GFLOP": f"{flops / 1e9:.0f}" for r, flops in enumerate(work)},
            "busiest rank over mean": f"{4 * max(work) / sum(work):.2f}",
        }
    )
rank_table(
    rows,
    caption="Operations of Newton-Schulz in one step: 6 matrices of 1024 x 1024, 6 of 256 x 8192",
)

# %% [markdown]
# ## 14. Mixed precision
#
# In chapter 7 an optimizer kept fp32 **master weights** beside the 16-bit weights that forward and backward use. In
# stage 3 no second copy is needed: the shard *is* the master, in fp32, and what is gathered is a 16-bit copy of it,
# which is freed. So a rank keeps $4Ψ/N$ bytes of weights, and the gathers send half as many bytes as in fp32. (With
# fp32 gradients and moments that is $16Ψ/N$ again: $4 + 4 + 8$ in place of $2 + 2 + 12$.) Three things are chosen:
#
# | | choice | why |
# |---|---|---|
# | `param_dtype` | bf16 | weights are cast *before* they are gathered |
# | `reduce_dtype` | fp32, or as `param_dtype` | a sum over many ranks loses bits in bf16; fp32 sends twice as much |
# | masters, state, gradients of the shard | fp32 | small updates are lost in 16 bits (chapter 7) |

# %%
# %%ranks --record precision -o precisions
policies = {
    "fp32": zero.MixedPrecisionPolicy(),
    "bf16 weights": zero.MixedPrecisionPolicy(param_dtype=torch.bfloat16),
    "bf16 weights, fp32 reduction": zero.MixedPrecisionPolicy(
        param_dtype=torch.bfloat16, reduce_dtype=torch.float32
    ),
}
precisions = {}
for name, policy in policies.items():
    model = zero.FullyShardedDataParallel(fresh_model(), units=(Block,), policy=policy)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    step = record_step(model, optimizer, my_batch(), next_token_loss)
    x, y = my_batch()
    with dtlearn.phase(name):
        loss = next_token_loss(model(x).float(), y)
        loss.backward()
    precisions[name] = step, loss.item(), {p.dtype for p in model.parameters()}
precisions

# %% jupyter={"source_hidden": true}
rank_table(
    [
        {
            "policy": name,
            **{f"{c}, MB": f"{after_backward(step)[c] / 1e6:.2f}" for c in STATE[:3]},
            "peak, MB": f"{min(of[name][0].peak.bytes for of in precisions) / 1e6:.2f}",
            "all_gather, MB": f"{by_op['all_gather'] / 1e6:.2f}",
            "reduce_scatter, MB": f"{by_op['reduce_scatter'] / 1e6:.2f}",
            "loss of step 3": f"{loss:.2f}",
        }
        for name, (step, loss, _) in precisions[0].items()
        for by_op in [sent_by_operation(part(precision, name))]
    ],
    caption="Stage 3, rank 0 of 4: held at the end of backward, and sent in a step. Peak: the lowest of the ranks",
)

# %% [markdown]
# ## 15. What breaks
#
# ### A unit that is never resharded
#
# The simplest mistake in stage 3 changes no number. Here the buckets are told to keep their memory:

# %%
# %%ranks -o never_resharded
model, optimizer = make(3)
for unit in model.units:
    for bucket in unit.buckets:
        bucket.reshard = (
            bucket.wait_for_unshard
        )  # the sabotage: the storage keeps its memory
record = record_step(model, optimizer, my_batch(), next_token_loss)
record, difference(whole_parameters(model))

# %% jupyter={"source_hidden": true}
rank_table(
    [
        {
            "stage 3": name,
            "peak, MB": f"{min(record.peak.bytes for record, _ in ranks) / 1e6:.2f}",
            "communication after the step, MB": f"{ranks[0][0].live('communication')[-1] / 1e6:.2f}",
            "difference from one process": rounding(ranks[0][1]),
        }
        for name, ranks in (
            ("as it should be", [(of_rank[3][0], of_rank[3][2]) for of_rank in stages]),
            ("never resharded", never_resharded),
        )
    ],
    caption="Rank 0 of 4. Peak: the lowest of the ranks",
)

# %% [markdown]
# The update is right, and the peak is above that of stage 2. How to find it: look at the bytes *between* steps. They
# are at most $16Ψ/N$ in stage 3, and nothing that was gathered is among them. In practice the cause is a
# `unsharded()`, `unshard()` or `summon_full_params` that was not closed, `reshard_after_forward=False`, or a model that
# is a single unit, so that everything is gathered at once.
#
# ### A rank that skips a layer
#
# With DDP a rank may leave out a layer of its forward pass (`find_unused_parameters=True`). With stage 3 each layer
# that is used is a collective, in which all ranks take part. Here rank 1 skips the last block in an evaluation, as
# early exit or stochastic depth would with a decision of its own:


# %%
# %%ranks --expect deadlock
class SkippingGPT(GPT):
    """A GPT of which rank 1 skips the last block."""

    def forward(self, tokens):
        x = self.embedding(tokens)
        for block in self.blocks[:-1] if rank == 1 else self.blocks:
            x = block(x)
        return self.head(x)


torch.manual_seed(0)
model = zero.FullyShardedDataParallel(
    SkippingGPT(CONFIG).to(device), units=(Block,), prefetch=0
)
x, y = my_batch()
with torch.no_grad():
    loss = next_token_loss(model(x), y)

# %% [markdown]
# The watch names the rank that made no such call, what the others wait for, and on which line. A rank that skips a
# block in the *middle* is worse: its gather of the next block meets the others' gather of the one that it skips. All
# blocks have the same size, so nothing fails at that point: every rank puts shards of two blocks together, and computes
# with them. It ends later, when two calls meet that differ in kind or in size.
#
# So with stage 3 all ranks run the same units in the same order. A layer that is skipped is skipped by all, which takes
# a common seed. The same goes for experts that get no token on some rank, and for an image encoder when a rank's batch
# has no image.

# %% [markdown]
# ## 16. Models that you do not have
#
# All formulas of this chapter are in `dtlearn.zero`, as functions that need no ranks. (A GPU counts with what its driver
# reports: an H100 is sold with "80 GB", and has 81,559 MiB, which are 85.5 GB.) First a decision:

# %%
fits = dtlearn.predict.choice(
    "Llama 3 70B (70.6 billion parameters), mixed precision with Adam, 16 bytes for each parameter, on 64 GPUs with "
    "80 GB. Which is the lowest stage whose training state fits?",
    {"A": "stage 1", "B": "stage 2", "C": "stage 3", "D": "none"},
    id="ch09.fits",
)


# %%
def on_each_rank(parameters, num_ranks, stage, rule="mixed 16"):
    """Training state on rank 0 by category, in bytes."""
    partition = zero.plan_flat([parameters], num_ranks)
    return zero.state_bytes(partition, stage, CONVENTIONS[rule])


llama = sizes.MODELS["Llama 3 70B"]
needs = [
    sum(on_each_rank(llama.num_parameters, 64, stage).values()) / 1e9
    for stage in range(4)
]

# %% jupyter={"source_hidden": true}
fits.reveal(one=needs[1], two=needs[2], three=needs[3])

# %% [markdown]
# Stages 1 and 2 have a **floor**: what they do not divide remains, $4Ψ$ and $2Ψ$ bytes, however many ranks there
# are. Only stage 3 keeps falling. The points are printed in table 1 of the ZeRO paper:

# %% jupyter={"source_hidden": true}
table_1 = [row for row in zero.ZERO_TABLE_1 if row.parameters == 7_500_000_000]
by_stage = {1: "stage 1", 2: "stage 2", 3: "stage 3"}
RANKS = [2**n for n in range(11)]
show(
    bytes_over_ranks(
        {
            name: {n: sum(on_each_rank(7_500_000_000, n, stage).values()) for n in RANKS}
            for stage, name in by_stage.items()
        },
        {
            name: {row.num_ranks: 1e9 * row.printed[stage - 1] for row in table_1}
            for stage, name in by_stage.items()
        },
        {gpu: sizes.GPUS[gpu].bytes for gpu in ("A100 40GB", "H100 80GB")},
        title="Stages 1 and 2 have a floor, stage 3 has none",
        label="7.5 billion parameters, 16 bytes each; lines by formula, points from 1910.02054, table 1",
    ),
    alt="GB on each rank over 1 to 1,024 ranks. All three lines begin at 120 GB. Stage 1 falls to "
    "30 GB and stage 2 to 15 GB, and both are level from about 64 ranks on. Stage 3 falls along "
    "a straight line to 0.12 GB. The printed points lie on the lines. An A100 has 42.9 GB: stage 1 "
    "is below it from 8 ranks on, stages 2 and 3 from 4. An H100 has 85.5 GB.",
)

# %% jupyter={"source_hidden": true}


def gigabytes(number):
    return f"{number:,.0f}" if number >= 1000 else f"{number:,.4g}"


rank_table(
    [
        {
            "parameters": f"{row.parameters / 1e9:,g} billion",
            "ranks": row.num_ranks,
            **{
                f"stage {stage}, {whose}": gigabytes(figures[stage - 1])
                for stage in (1, 2, 3)
                for whose, figures in (("printed", row.printed), ("ours", row.ours))
            },
        }
        for row in zero.ZERO_TABLE_1
    ],
    caption="GB on each rank: ZeRO's table 1 and dtlearn.zero",
)

# %% [markdown]
# (The paper cuts some last digits off where we round.) The state is not everything. What fits in the end depends on the
# gathered layers and the activations, too. With the sliders: which stage, on how many ranks, with what on the host?


# %% jupyter={"source_hidden": true}
def whole_number(text):
    """A whole number that somebody typed."""
    number = parse_quantity(text)
    if number != int(number):
        raise ValueError(f"{text} is not a whole number")
    return int(number)


def on_device(parameters, ranks, stage, offload):
    """What is left on the GPU: parameters go to the host in stage 3 only, with the gradients of the shards."""
    parts = on_each_rank(parameters, ranks, stage)
    if "optimizer" in offload:
        parts["optimizer state"] = 0
    if "parameters" in offload and stage == 3:
        parts["parameters"] = parts["gradients"] = 0
    return parts


def draw_stages(parameters, ranks, stage, offload, gpu):
    """The training state of each stage on one GPU, beside what the GPU has."""
    return stage_fit(
        {f"stage {s}": on_device(parameters, ranks, s, offload) for s in range(4)},
        f"stage {stage}",
        gpu,
        sizes.GPUS[gpu].bytes,
        f"{parameters / 1e9:g} billion parameters on {ranks:,} x {gpu}",
        f"16 bytes per parameter; on the host: {offload}; without activations and gathered layers",
    )


slider_panel(
    draw_stages,
    alt="Four bars of training state on one H100 of 64, for 70 billion parameters. Stage 0 needs 1,120 GB, "
    "stage 1 293 GB, stage 2 155 GB, stage 3 17.5 GB. The GPU has 85.5 GB: only stage 3 fits.",
    parameters=Slider(
        (10**9, 7_500_000_000, 13 * 10**9, 70 * 10**9, 128 * 10**9, 405 * 10**9, 10**12),
        70 * 10**9,
        "parameters",
        read=whole_number,
    ),
    ranks=Slider(tuple(RANKS), 64, "ranks", read=whole_number),
    stage=Slider((0, 1, 2, 3), 3, "stage"),
    offload=Slider(
        ("nothing", "optimizer", "optimizer and parameters"), "nothing", "on the host"
    ),
    gpu=Slider(tuple(sizes.GPUS), "H100 80GB", "GPU"),
)

# %% [markdown]
# With activations (chapter 8's arithmetic, every block recomputed, stage 3 with two gathered blocks): how many
# sequences of the full context fit on each H100?

# %% jupyter={"source_hidden": true}
rows = []
for name in ("Llama 3 8B", "Llama 3 70B", "Llama 3 405B"):
    row = {"model": name}
    for gpus in (1, 8, 64, 512, 4096):
        most = largest_batch(
            sizes.MODELS[name],
            sizes.GPUS["H100 80GB"],
            recomputation="full",
            zero_stage=3,
            num_gpus=gpus,
        )
        row["1 GPU" if gpus == 1 else f"{gpus:,} GPUs"] = str(most) if most else "-"
    rows.append(row)
rank_table(
    rows, caption="Sequences of 8,192 tokens on each H100 of 80 GB; -: not even one"
)

# %% [markdown]
# **Exercise 8.** Which stage, and how many bytes, for a model that you do not have.

# %% exercise="ch09.plan"

# %% [markdown]
# ## 17. Where the libraries do it
#
# | here | PyTorch | DeepSpeed |
# |---|---|---|
# | stage 1, `ZeroRedundancyOptimizer` | `torch.distributed.optim.ZeroRedundancyOptimizer`, behind DDP | `"stage": 1` |
# | stage 2, `ShardedGradients` | no class of its own; `fully_shard(..., reshard_after_forward=False)` also shards gradients and state, and gathers the parameters once | `"stage": 2` |
# | stage 3, `FullyShardedDataParallel` | `fully_shard` (FSDP2); `FullyShardedDataParallel` (FSDP1, deprecated) | `"stage": 3` |
# | `units=(Block,)` | one call of `fully_shard` for each unit, the inner ones first, the model last | submodules, found by themselves |
# | cut | dimension 0 of each parameter, `DTensor` | each parameter as a vector (stage 3); flat buffers (stages 1 and 2) |
# | `prefetch=1` | the next unit in backward by itself; `set_modules_to_forward_prefetch` | `stage3_prefetch_bucket_size` |
# | `reshard_after_forward` | the same name | `stage3_max_reuse_distance`, `stage3_max_live_parameters` |
# | | `reshard_after_forward=8`: keep shards over 8 ranks from forward to backward | `zero_hpz_partition_size` (ZeRO++, 2306.10209) |
# | `no_sync()` | `set_requires_gradient_sync(False)` | stage 1 only: with stages 2 and 3 it raises an error |
# | `HybridShardedDataParallel` | a 2-D `DeviceMesh` | `mics_shard_size` (until 0.19.6) |
# | `policy=MixedPrecisionPolicy(...)` | `mp_policy=MixedPrecisionPolicy(...)` | `"bf16"`, `"fp16"` |
# | `offload=Host()`, `offloaded(...)` | `offload_policy=CPUOffloadPolicy()` | `offload_param`, `offload_optimizer` |
# | `clip_grad_norm_` | `torch.nn.utils.clip_grad_norm_`: right for DTensors, wrong for shards that are plain tensors | `"gradient_clipping"` |
# | `full_params()`, `unsharded()` | `full_tensor()` of each parameter (`unshard()` gathers one unit, not those inside it) | `deepspeed.zero.GatheredParameters` |
# | `consolidated_state_dict` | `get_model_state_dict` with `full_state_dict=True` | `zero_to_fp32.py` |
# | a model too large to build whole | `torch.device("meta")`, then `to_empty` | `deepspeed.zero.Init` |
#
# ([fully_shard](https://docs.pytorch.org/docs/stable/distributed.fsdp.fully_shard.html), [DeepSpeed's
# configuration](https://www.deepspeed.ai/docs/config-json/); chapter 15 runs DeepSpeed.)
#
# Parity: three steps of AdamW with PyTorch's classes and with ours, from the same model on the same samples. Where the
# cuts differ, gradients are added up in another order, and the last bits differ:

# %%
# %%ranks -o beside
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard


def torchs_zero(parameters):
    """PyTorch's own class."""
    from torch.distributed.optim import ZeroRedundancyOptimizer

    return ZeroRedundancyOptimizer(parameters, torch.optim.AdamW, lr=1e-3)


def after_three_steps(model, optimizer, parameters):
    """The parameters after three steps, whole."""
    for _ in range(3):
        x, y = my_batch()
        next_token_loss(model(x), y).backward()
        optimizer.step()
        optimizer.zero_grad()
    return [p.detach() for p in parameters(model)]


mesh = init_device_mesh(device.type, (world_size,))
sharded = fresh_model()
for block in sharded.blocks:
    fully_shard(block, mesh=mesh)
fully_shard(sharded, mesh=mesh)
ddp, ours = DDP(fresh_model()), DDP(fresh_model())
adamw = torch.optim.AdamW
results = {
    "DDP and torch's ZeroRedundancyOptimizer": after_three_steps(
        ddp, torchs_zero(ddp.parameters()), lambda m: m.parameters()
    ),
    "DDP and ours": after_three_steps(
        ours,
        zero.ZeroRedundancyOptimizer(ours.parameters(), adamw, lr=1e-3),
        lambda m: m.parameters(),
    ),
    "torch's fully_shard": after_three_steps(
        sharded,
        adamw(sharded.parameters(), lr=1e-3),
        lambda m: [p.full_tensor() for p in m.parameters()],
    ),
    "our FullyShardedDataParallel": after_three_steps(*make(3), whole_parameters),
}
REFERENCE = one_process(steps=3)
beside = {name: (difference(result), digest(result)) for name, result in results.items()}
beside

# %% jupyter={"source_hidden": true}
letter = letters(bits for _, bits in beside[0].values())
rank_table(
    [
        {
            "": name,
            "difference from one process": rounding(off),
            "bits of the parameters": letter[bits],
        }
        for name, (off, bits) in beside[0].items()
    ],
    caption="Three steps of AdamW on 4 ranks. The same letter: equal to the last bit",
)

# %% [markdown]
# **Exercise 9.** Find planted bugs, as they were in real projects.

# %% exercise="ch09.bug_hunt"

# %% [markdown]
# ## 18. Myths
#
# **"ZeRO trains models of any size."** It divides the state, not the activations, and at least one unit is gathered
# whole. Section 16: on 4,096 GPUs Llama 3 405B has 1.6 GB of state on each, and still no more than one sequence fits.
# The batch is a limit, too: each rank needs a sample of its own, so more ranks mean a larger global batch
# (chapter 3).
#
# **"ZeRO is model parallelism."** No rank computes a part of a layer or a part of the layers; each computes the whole
# model on samples of its own. What is divided is storage. Section 8: the update is the one of a single process.
#
# **"ZeRO reduces memory and communication."** Memory. Stages 1 and 2 send as much as DDP (section 8).
#
# **"Stage 3 costs three times the communication."** $3Ψ$ elements in place of $2Ψ$: one and a half times.
#
# **"Stage 2 is always better than stage 1."** Not with accumulation: section 7, 2.5 times as many bytes for 4
# micro-batches, or the gradients of stage 1. Pipelines have many micro-batches in each step (chapter 10); DeepSpeed's
# pipeline engine refuses stages 2 and 3.
#
# **"`clip_grad_norm_` just works."** With DDP it does, with `fully_shard` too, because a DTensor knows that it is
# sharded. On shards that are plain tensors it takes the norm of this rank's part (section 10).
#
# **"With N ranks each needs 1/N of the memory."** Of the state, in stage 3. Activations, gathered units and temporaries
# do not become fewer: at the peak of section 8, stage 3 on 4 ranks needs 2.5 MB, and DDP 6.0: not a quarter.
#
# ### Check yourself
#
# <details><summary>8 GPUs, DDP, and the optimizer's state does not fit by a little. Which stage, and what does it
# cost?</summary>
#
# Stage 1: with 8 ranks 12 of 16 bytes per parameter become 1.5. It sends what DDP sends. If DDP stays around the model,
# as with PyTorch's class, it sends half as much again.
# </details>
#
# <details><summary>A job with stage 3 has the speed of DDP on one node, and a third of it on 16 nodes. What would you
# try?</summary>
#
# Hybrid sharding: shard inside a node and replicate across nodes. Then no weights cross the slow links. It costs
# memory: 1/8 of the state on each GPU in place of 1/128. Before that, check whether the gathers are prefetched at all.
# </details>
#
# <details><summary><code>model.forward(x)</code> in place of <code>model(x)</code> with stage 3: what happens?</summary>
#
# Hooks run in `__call__`, so this unit is not gathered. The package says so in an error. With `fully_shard` an
# operation on one of its own parameters fails: "got mixed torch.Tensor and DTensor".
# </details>
#
# <details><summary>An optimizer was built before the model was sharded. What does it update?</summary>
#
# Parameters that the model no longer has. The loss would stay where it is; the package and `fully_shard`'s
# documentation say: shard first, then build the optimizer.
# </details>
#
# <details><summary>A checkpoint of 8 ranks is loaded by 8 ranks of a job whose units are other classes. Does rank 3
# get what rank 3 saved?</summary>
#
# No. The buckets differ, and so do the shards. That is why a saved piece says which elements of which parameter it
# is.
# </details>
#
# <details><summary>Muon with stage 1: why not cut every matrix into equal pieces?</summary>
#
# The update of one element depends on the whole matrix. So either each matrix has one owner, or the pieces are gathered
# before every update.
# </details>
#
# ## Glossary
#
# {glossary}
#
# Next: chapter 10 divides the layers themselves over ranks.
