# %% [markdown]
# # Chapter 9. ZeRO
#
# **The question.** Why keep N copies of anything?
#
# Builds on: chapters 3, 7 and 8. Ranks: 4. Time: 75 minutes for the core path; the sections of "Further" in any order, when
# you need them.
#
# | core path | what | minutes |
# |---|---|---|
# | 1. Why keep N copies? | 120 GB on every GPU; copies, counted on four ranks | 4 |
# | 2. Who owns what? | shards, by hand | 1 |
# | 3. What can one rank update alone? | stage 1 | 3, and exercise 1: 25 |
# | 4. Which gradients does a rank need? | stage 2 | 2 |
# | 5. When does a rank need a weight? | stage 3, on a page; all stages measured | 7 |
# | 6. What is gathered ahead? | prefetch, drawn | 3 |
# | 7. How long is a gradient that nobody has? | a norm that is wrong in silence | 2, and exercise 2: 22 |
# | 8. How does it break? | a rank that skips a layer | 2 |
# | 9. What fits, and when to use it? | 70 billion parameters on 64 GPUs | 4 |
#
# After it you can say what each stage of ZeRO saves and what it sends, and choose one for a model that you do not have.
# The formulas agree with a ledger and a recorder to the byte. MB are $10^6$ bytes and GB $10^9$.

# %% jupyter={"source_hidden": true}
# %load_ext dtlearn
import torch

import dtlearn
from dtlearn import zero
from dtlearn.models import GPT, GPTConfig, load_corpus, next_token_loss
from dtlearn.viz import rank_table, show

torch.set_num_threads(1)  # small tensors: more threads would only wait for each other
world = dtlearn.world(4)
world

# %% [markdown]
# # The core path
#
# ## 1. Why keep N copies?
#
# A model with 7.5 billion parameters is to be trained on 64 GPUs of 80 GB, with DDP, in mixed precision with Adam. Chapter
# 8 counted 16 bytes for each parameter, before the first activation: 2 of weights, 2 of gradients, 12 of optimizer
# state (fp32 masters and two moments). That is 120 GB on every GPU. It does not fit, and more GPUs do not help: each of
# them would hold the same 120 GB.
#
# Below, Ψ is the number of parameters and N the number of ranks; the optimizer is Adam unless the text says otherwise.
#
# First the naive thing: DDP, on 2 ranks and on 4, with the ledger of chapter 8. The model is the GPT of chapter 3 with
# 6 blocks, in fp32, so a parameter takes 4 bytes, its gradient 4, and Adam's state 8. The gradients lie in
# DDP's buckets, so those take no memory of their own. The folded cell has, for all ranks, `fresh_model()`, the same model each time; `my_batch()`, this rank's part of a
# batch; `digest`, a short name for the bits of some tensors; and, for section 5, `make(stage)`, `partition_of` (who owns
# what), `whole_parameters` and `difference` (from one process).

# %% jupyter={"source_hidden": true}
# %%ranks --setup
import functools
import hashlib

from torch.nn.parallel import DistributedDataParallel as DDP

import dtlearn
from dtlearn import zero
from dtlearn.memory import record_step
from dtlearn.models import GPT, GPTConfig, load_corpus, next_token_loss
from dtlearn.models.gpt import Block

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
    )  # cap: a bucket is full at so many elements, 50 kB
    return (zero.ShardedGradients(model, optimizer) if stage == 2 else model), optimizer


def partition_of(model, optimizer, stage):
    """Who owns what: a plan, as data."""
    if stage == 0:
        return zero.plan_flat([p.numel() for p in model.parameters()], world_size)
    return model.partition if stage == 3 else optimizer.flat.partition


def whole_parameters(model):
    """All parameters of a model, which stage 3 has to gather for that."""
    if not isinstance(model, zero.FullyShardedDataParallel):
        return list(model.parameters())
    return list(model.full_params().values())


@functools.cache
def one_process(steps):
    """The parameters after some steps of a single process that sees the samples of all ranks."""
    model = fresh_model()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    x, y = next(corpus.batches(1, 4, 32))
    for _ in range(steps):
        optimizer.zero_grad()
        next_token_loss(model(x.to(device)), y.to(device)).backward()
        optimizer.step()
    return list(model.parameters())


def difference(parameters, steps=2):
    """The largest difference of any parameter from the one process."""
    pairs = zip(parameters, one_process(steps), strict=True)
    return max((a - b).abs().max().item() for a, b in pairs)


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

# %% jupyter={"source_hidden": true}
STATE = ("parameters", "gradients", "optimizer state", "communication")


def letters(digests):
    """{digest: letter}. Which digests are equal is the same on every processor; the digests are not."""
    return dict(zip(dict.fromkeys(digests), "ABCDEFGH", strict=False))


def after_backward(record):
    """Bytes that are held at the end of the backward pass, without activations, by category."""
    stop = next(phase.stop for phase in record.phases if phase.name == "backward")
    lines = record.timeline()
    return {category: lines[category][stop] for category in STATE}


def rounding(off):
    """A difference in words. Below 1e-4, a tenth of the learning rate, it depends on the processor."""
    return "below 1e-4" if off < 1e-4 else f"{off:.0e}"


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
    caption="At the end of backward, and after two steps. The same letter: equal to the last bit. (2 ranks train on half of "
    "the samples of 4, so they have other bits)",
)

# %% [markdown]
# On 4 ranks nothing is smaller than on 2, and the letters say that all copies are equal: three of the four are
# redundant.

# %%
needed = dtlearn.predict.choice(
    "Which of the three does a GPU have to read in its own forward and backward pass?",
    {
        "A": "the 16-bit weights",
        "B": "the weights and the gradients",
        "C": "the weights, the gradients, and the optimizer's state",
    },
    id="ch09.needed",
)

# %% jupyter={"source_hidden": true}
needed.reveal()

# %% [markdown]
# Rajbhandari et al. (2019, arXiv 1910.02054) remove this redundancy step by step, and call that **ZeRO**,
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
# ## 2. Who owns what?
#
# By hand: a weight of 6 elements and a bias of 4, on 4 ranks. Write them one after the other into a **flat buffer**, pad
# it with zeros to a multiple of N, and cut:
#
# | rank 0's **shard** | rank 1's shard | rank 2's shard | rank 3's shard |
# |---|---|---|---|
# | w0 w1 w2 | w3 w4 w5 | b0 b1 b2 | b3 0 0 |
#
# The zeros at the end are **padding**: the collectives need shards of one length. The part of *one* parameter that lies in a
# rank's shard is a **piece**: rank 1 has the piece w[3:6], and of the bias an empty one.
#
# ## 3. What can one rank update alone?
#
# Adam updates each element on its own. To update element $i$ it needs the gradient $i$ and the two moments $i$, nothing
# else. So one rank can do it for all, and the other ranks need no moments of this element. That is **stage 1**.
#
# A naive version: DDP averages the gradients as always; each parameter, whole, belongs to one rank, whose optimizer updates
# it; after the step each parameter is broadcast by its owner, one after the other.

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
# we want: after the reduce-scatter each rank has the mean gradients of its shard.
#
# | | rank 0 | rank 1 |
# |---|---|---|
# | after backward | own gradients of w0 w1 w2 w3 | own gradients of w0 w1 w2 w3 |
# | reduce-scatter | mean gradients of w0 w1 | mean gradients of w2 w3 |
# | update | new w0 w1 | new w2 w3 |
# | all-gather | w0 w1 w2 w3 | w0 w1 w2 w3 |

# %% [markdown]
# **Exercise 1.** A step of ZeRO 1.

# %% exercise="ch09.zero1_step"

# %% [markdown]
# The package's stage 1 is `ZeroRedundancyOptimizer`, with the interface of PyTorch's class of that name. It takes any
# optimizer class and builds it over the pieces. Its `step()` calls the first of these functions for each bucket, then the
# optimizer's own `step()`, then the second function, once for all buckets. (`flatten` divides gradients by N, and puts them where their
# parameters lie in the buffer.)

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
# ## 4. Which gradients does a rank need?
#
# After stage 1 a rank has gradients of all parameters, and uses those of its shard. **Stage 2** lets go of the others.
# The moment matters: after backward all gradients would be there at once. So the reduce-scatter is launched inside backward, as
# DDP's all-reduce is (chapter 3): when the last gradient of a bucket is there, it is reduced and the full gradients are freed.
#
# | backward has done | gradients held, stage 1 | gradients held, stage 2, buckets of one layer |
# |---|---|---|
# | layer 4 | layer 4 | layer 4, then a shard of it |
# | layer 3 | layers 4, 3 | layer 3, and a shard of 4 |
# | layer 2 | layers 4, 3, 2 | layer 2, and shards of 4, 3 |
# | layer 1 | all | layer 1, and shards of 4, 3, 2; in the end shards only |
#
# ## 5. When does a rank need a weight?
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
    "Weights and gradients are sent in one format, say fp32. What does a rank send in a step of stage 3, as a multiple of "
    "what DDP sends with a ring all-reduce?",
    unit="times",
    id="ch09.stage3_sends",
)

# %% [markdown]
# All stages on 4 ranks, with the same model and the same samples. `record_step` trains two steps and keeps the ledger of
# the second. `--record traffic` records every call of the ranks, and `dtlearn.phase` gives those of the third step a name, by
# which they are found again.

# %%
# %%ranks --record traffic -o stages
stages = {}
for stage in range(4):
    model, optimizer = make(stage)
    record = record_step(model, optimizer, my_batch(), next_token_loss)
    off = difference(whole_parameters(model))
    x, y = my_batch()
    with dtlearn.phase(f"stage {stage}"):
        next_token_loss(model(x), y).backward()
        optimizer.step()
    stages[stage] = record, partition_of(model, optimizer, stage), off
stages

# %% jupyter={"source_hidden": true}
from dtlearn.runtime.record.training_steps import part
from dtlearn.viz import sent_by_operation, stage_memory, traffic_by_stage

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
from dtlearn.memory import CONVENTIONS

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
# `dtlearn.zero`, with padding, at the end of backward. (Dotted lines: backward, the optimizer's step and `zero_grad`
# begin.) What rises above the bars earlier in the step are activations, which no stage divides, and in stage 3 the
# gathered units and the gradients of a unit that are being reduced, as communication. Stage 1 has its peak later, in the
# optimizer's step: there the shard of mean gradients stands beside all gradients. All four stages make the update of
# one process, up to rounding. And the price:

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

# %% jupyter={"source_hidden": true}
print(
    "largest difference of a parameter from one process, all stages:",
    rounding(max(off for _, _, off in stages[0].values())),
)

# %% [markdown]
# Stage 3 has no all-gather in its step, since nobody needs all updated parameters there; it has two others, in forward and
# in backward. $3Ψ$ elements in place of $2Ψ$ is half as much again, **not three times as much**. (`reshard_after_forward=False` frees the weights only after
# backward: $2Ψ$ again, at the price of whole weights between the two passes.)
#
# In *bytes* the formats matter. torchtitan, for instance, gathers bf16 weights and reduces fp32 gradients by default: 2 + 2
# + 4 bytes for each parameter, times (N-1)/N. DDP with fp32 gradients sends 2 x 4: exactly as much.
#
# **On a page.** The weights of a unit are views of one tensor, `full`. The tensor exists all the time, its memory only from
# `unshard` to `reshard`. When backward comes to the unit and the memory is filled again, what autograd saved has its values
# back. Four hooks call the verbs: before and after the forward pass of the module, before its backward pass, and when a
# weight has its gradient. (Exercise 5, in Further, is the heart of this file.)

# %%
from dtlearn.zero import page_zero3

dtlearn.show_source(page_zero3, summary="page_zero3.py, the whole file")

# %% [markdown]
# ## 6. What is gathered ahead?
#
# On a GPU gathers have a stream of their own, a queue of work that runs beside the matrix products. On a CPU a call waits
# unless one asks it not to. Here is a step of two ranks on an emulated link, without overlap in forward; the model is a
# chain of four equal units. (The fastest of several steps. Light grey: hooks and copies. On a busy machine equal units take
# unequal times, and a rank waits for a processor as well.)

# %% tags=["nbval-ignore-output"] jupyter={"source_hidden": true}
from dtlearn.viz import UnitRun, unit_timeline

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
    "gradients. During each all-gather of the forward pass the rank waits. One unit is unsharded at a time, 1.05 MB.",
)

# %% [markdown]
# In forward either the rank or the link works, never both. So unshard the *next* unit while
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
        "Prefetch gathers a unit while another one computes, for the memory of one more",
    ),
    alt="The same step twice on one time axis, without and with prefetch. With prefetch the all-gather "
    "of the next unit begins while a unit computes, and two units are unsharded at once, 2.10 MB in place "
    "of 1.05.",
)

# %% [markdown]
# What is still exposed: the first gather of each pass, before which there is nothing to compute; the last
# reduce-scatter; and the part of each gather that outlasts the computation beside it. Here the link alone takes
# 4.2 ms for a gather (each rank sends half of 1.05 MB at 1 Gb/s); in backward the reduce-scatters share the link. More
# tokens on each rank prolong the computation and not the gather (section 9).
#
# ## 7. How long is a gradient that nobody has?
#
# Gradients are clipped by their norm over the *whole* model: if $\lVert g \rVert$ is above a limit, all of
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
# **Exercise 2.** The norm of sharded gradients.

# %% exercise="ch09.global_norm"

# %% [markdown]
# The package adds up powers, here squares, with one all-reduce of a single number. The caller says what is `counted` on
# this rank, so that each element counts once: padding never, a tied parameter once, a parameter that every rank has whole
# on the first rank only.

# %%
from dtlearn.sharing import clipping

dtlearn.show_source(
    clipping.global_norm, docstring=False, summary="dtlearn.sharing.clipping.global_norm"
)

# %% [markdown]
# ## 8. How does it break?
#
# With DDP a rank may leave out a layer in its forward pass, if DDP is told to look for such layers
# (`find_unused_parameters=True`). With stage 3 each layer that is used is a collective, in which all ranks take part. Here
# rank 1 skips the last block in an evaluation:


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
# with them. In the end rank 1 is a call short, and the message is the one above, which blames the *last* block. (In
# training a gather of another size meets the gather of that block.) So all ranks run the same units in the same order.
#
# ## 9. What fits, and when to use it?
#
# All formulas of this chapter are in `dtlearn.zero`, as functions that need no ranks. (A GPU counts with what its driver
# reports: an H100 is sold with "80 GB", and has 81,559 MiB, which are 85.5 GB.)

# %%
fits = dtlearn.predict.choice(
    "Llama 3 70B (70.6 billion parameters), mixed precision with Adam, 16 bytes for each parameter, on 64 GPUs with "
    "80 GB. Which is the lowest stage whose training state fits?",
    {"A": "stage 1", "B": "stage 2", "C": "stage 3", "D": "none"},
    id="ch09.fits",
)

# %% jupyter={"source_hidden": true}
from dtlearn.memory.arithmetic import published as sizes
from dtlearn.viz import bytes_over_ranks


def on_each_rank(parameters, num_ranks, stage, rule="mixed 16"):
    """Training state on rank 0 by category, in bytes."""
    partition = zero.plan_flat([parameters], num_ranks)
    return zero.state_bytes(partition, stage, CONVENTIONS[rule])


llama = sizes.MODELS["Llama 3 70B"]
needs = [
    sum(on_each_rank(llama.num_parameters, 64, stage).values()) / 1e9
    for stage in range(4)
]
fits.reveal(one=needs[1], two=needs[2], three=needs[3])

# %% [markdown]
# Stages 1 and 2 have a **floor**: what they do not divide remains, $4Ψ$ and $2Ψ$ bytes, however many ranks there
# are. Only stage 3 keeps falling. Points: table 1 of the ZeRO paper.

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

# %% [markdown]
# The state is not everything: the gathered units and the activations need memory, too. And fitting is not all. Messages
# hide behind matrix products only if a GPU has tokens enough. For each parameter and token a step makes 6 operations
# (chapter 1); stage 3 sends 8 bytes for each parameter (section 5), however many tokens there are. So with $F$ operations
# and $L$ bytes a second, products take longer than messages if each GPU has more than $8F/6L$ tokens in a step. If a GPU
# reaches, say, 400 TFLOP/s, that is about 10,700 tokens with a network card of 50 GB/s, and 1,200 with the NVLink of an
# H100, nominally 450 GB/s in each direction.
#
# | what does not fit | take | it costs |
# |---|---|---|
# | nothing | DDP | |
# | the optimizer's state | stage 1 | nothing; a library that works behind DDP sends half as much again |
# | the gradients, too | stage 2 | nothing, if each step has one backward pass; if gradients of several add up, bytes or memory (Further) |
# | the weights | stage 3 | half as many elements again, and tokens enough on each GPU to hide them |
# | the weights, and links between nodes are slow | stage 3 inside a node, replicas across (hybrid) | more memory |
# | one unit, or one sample's activations | nothing in this chapter | chapters 10 and 12 divide the layers |
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
# Later core paths use the stages and the norm as they stand here, and nothing of what follows.

# %% [markdown]
# # Further
#
# Each section stands alone, after the core path; only the last one looks back on the others.
#
# | section | needs | exercise |
# |---|---|---|
# | Where may one cut? | section 2 | 3 |
# | How is a gradient reduced in backward? | section 5 | 4 |
# | What does accumulation cost? | section 5 | |
# | How are freed weights used again? | section 5 | 5 |
# | How does one gather ahead? | section 6 | 6 |
# | What is sent in which format? | section 5, chapter 7 | |
# | What does recomputation send? | section 5, chapter 8 | |
# | When does the link set the pace? | section 9 | |
# | What if some links are slow? | section 5 | |
# | What can lie on the host? | section 5, chapter 8 | |
# | Which optimizers need a whole layer? | section 3 | |
# | Saved by 4 ranks, loaded by 2? | section 5 | 7 |
# | What fits with activations? | section 9 | 8 |
# | What does PyTorch's stage 1 print and send? | section 3 | |
# | What is held that should be free? | section 5 | 9 |
# | Where do the libraries do it? | all of these sections | |
#
# ## Where may one cut?
#
# *Needs: section 2.* Flat shards first: the padding, the cut, and the way back.

# %% [markdown]
# **Exercise 3.** Flat shards and the way back.

# %% exercise="ch09.flat_shards"

# %% [markdown]
# The package's plan is data, made without a process group, so that a validator and a drawer can read it. Here are three
# ways to divide, on two small layers:

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
from dtlearn.viz import shard_map

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
# ## How is a gradient reduced in backward?
#
# *Needs: section 5.* A hook for each parameter, a count for each bucket, and a reduce-scatter that runs while backward goes on.

# %% [markdown]
# **Exercise 4.** Reduce-scatter in a hook.

# %% exercise="ch09.reduce_scatter_hook"

# %% [markdown]
# **Stage 2 on a page.** This file is all of stage 2; exercises 1 and 4 are parts of it:

# %%
from dtlearn.zero import page_zero2

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
# The package's classes compute the same, to the last bit. `ZeroRedundancyOptimizer` adds a piece for each parameter, so that each
# has its own options, places between backward and step where gradients are clipped and unscaled, and state dicts that fit any
# number of ranks. `ShardedGradients` adds zeros for parameters that get no gradient in some pass, `no_sync()`, checkpointing,
# copies of the model, layers that are frozen or unfrozen later, and errors in place of numbers that would be wrong.


# %% jupyter={"source_hidden": true}
def most_at_once(records):
    """The maximum of the bytes of gradients and of buckets that are being sent; the lowest of the ranks."""
    return min(
        max(map(sum, zip(r.live("gradients"), r.live("communication"), strict=True)))
        for r in records
    )


for stage in (1, 2):
    of_ranks = [of_rank[stage][0] for of_rank in stages]
    print(
        f"stage {stage}: {after_backward(of_ranks[0])['gradients'] / 1e6:.2f} MB of gradients after backward; with the buckets at "
        f"most {most_at_once(of_ranks) / 1e6:.2f} MB at once"
    )

# %% [markdown]
# (Of the ranks the lowest: sometimes a rank frees a sent buffer slightly late.) Anything between backward and the step
# that reads `parameter.grad` finds None now, such as a line that logs gradient norms or clips them. So `ShardedGradients`
# refuses PyTorch's `clip_grad_norm_`, whose norm would be 0, and has its own.
#
# ## What does accumulation cost?
#
# *Needs: section 5.* A batch can be divided into A micro-batches, each with its forward and backward pass. DDP then adds up
# gradients locally in `no_sync()`, and communicates once a step (chapter 3, Further). With stage 1 that works as before. With stage 2 it is a choice: either the full gradients stay between
# micro-batches, as many bytes as in stage 1; or each micro-batch is reduced, and the results are added up in the shards.

# %%
accumulated = dtlearn.predict(
    "4 micro-batches, stage 2, each of them reduced into the shards. What does a rank send in a step, as a multiple of what "
    "stage 1 sends, which reduces once?",
    unit="times",
    id="ch09.accumulated",
)

# %%
# %%ranks --record accumulation -o accumulated_bytes
import contextlib

from dtlearn.memory import MemoryLedger


def accumulate(model, optimizer, parts, later):
    """A step in micro-batches; all but the last one run in the context `later`."""
    for i, (x, y) in enumerate(parts):
        with later() if i < len(parts) - 1 else contextlib.nullcontext():
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
    model, optimizer = make(stage)
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
            "MB of gradients and buckets at once, at most": f"{nbytes / 1e6:.2f}",
        }
        for way in accumulated_bytes[0]
        for nbytes in [
            max(
                map(
                    sum,
                    zip(
                        accumulated_bytes[0][way].live("gradients"),
                        accumulated_bytes[0][way].live("communication"),
                        strict=True,
                    ),
                )
            )
        ]
    ],
    caption="A step of rank 0 of 4",
)

# %% [markdown]
# So with accumulation stage 2 pays, either in bytes or in memory. Stage 1 holds all gradients in any case, and in its
# step a shard of their means as well. What stage 2 saves with `no_sync()` is that shard and little more.
#
# ## How are freed weights used again?
#
# *Needs: section 5.* Autograd saves weights in the forward pass, and this reference keeps them alive, even if the unit
# drops its own. Two things help: the memory under a tensor can be given back while references to the tensor remain, and a
# function can compute its forward pass again in backward (chapter 8).

# %% [markdown]
# **Exercise 5.** A unit whose full weights are there only while it computes.

# %% exercise="ch09.gather_and_free"

# %% [markdown]
# Section 5's page does it with the storage. Between `reshard` and the next `unshard` nobody may read what autograd saved.
# `FullyShardedDataParallel` computes the same, to the last bit, and the optimizer has the same shards. It adds overlap;
# several buckets in a unit, one for each dtype and one for what is frozen; tied weights, and a unit in a unit; weights
# without a gradient, which count as zeros, so that all ranks reduce the same units; `no_sync()`; `reshard_after_forward`;
# precision and host memory; whole weights, as copies (`full_params()`) or for a while (`unsharded()`); a second backward
# pass, as a gradient penalty needs it; and errors: whoever would read freed weights is told.
#
# ## How does one gather ahead?
#
# *Needs: section 6.* Launch the gathers of the next units before this one computes, and free each unit when it has.

# %% [markdown]
# **Exercise 6.** Gather the next units while this one computes.

# %% exercise="ch09.prefetch"

# %% [markdown]
# The order in which units will run is not known to the wrapper: ours expects that of the last forward pass, in the
# first one that of registration, and in backward the reverse. On GPUs `fully_shard` needs no such guess in forward: its
# all-gathers are issued to a stream of their own, and the CPU runs ahead of the GPU, so the next gather is queued while
# this unit still computes. That is *implicit* prefetching, and [always on](https://docs.pytorch.org/docs/stable/notes/fsdp.html);
# two gathered units are alive at once. In backward it prefetches explicitly, by the reverse order of the forward pass.
# `set_modules_to_forward_prefetch` helps when the CPU is what is late; where it is not, it changes nothing.
#
# ## What is sent in which format?
#
# *Needs: section 5, chapter 7.* There an optimizer kept fp32 **master weights** beside the 16-bit weights that forward and
# backward use. In stage 3 no second copy is needed: the shard *is* the master, in fp32, and what is gathered is a 16-bit
# copy of it, which is freed. (With fp32 gradients and moments that is $16Ψ/N$ again: $4 + 4 + 8$ in place of $2 + 2 + 12$.)
# Three things are chosen: `param_dtype`, to which weights are cast *before* they are gathered; `reduce_dtype`, since a sum
# over many ranks loses bits in bf16, and fp32 sends twice as much; and the format of the shards, fp32.
#
# What a rank sends in a step, in bytes for each parameter, times (N-1)/N:
#
# | | weights | gradients | together |
# |---|---|---|---|
# | DDP, also with autocast: fp32 gradients | | 2 x 4 | 8 |
# | stage 1 or 2: bf16 weights, fp32 reduction | 2 | 4 | 6, a quarter less than DDP |
# | stage 3, all in bf16 | 2 + 2 | 2 | 6 |
# | **stage 3, bf16 weights, fp32 reduction** | 2 + 2 | 4 | **8, as DDP** |
# | stage 3, all in fp32 | 4 + 4 | 4 | 12, one and a half times DDP |

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
# The last row sends 1.92 MB, what DDP sent in section 5.
#
# ## What does recomputation send?
#
# *Needs: section 5, chapter 8.* A block whose forward pass runs again in backward needs its weights in that second run. Are
# they gathered once more? All-gathers of one step with 6 blocks, each recomputed, each a unit; the seventh unit is the rest of
# the model:

# %%
# %%ranks --record recomputing
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.utils.checkpoint import checkpoint

from dtlearn.memory import checkpoint as own_checkpoint


def blocks_run_by(run):
    """A GPT whose forward pass has each block run by `run`."""

    class Recomputed(GPT):
        def forward(self, tokens):
            x = self.embedding(tokens)
            for block in self.blocks:
                x = run(block, x)
            return self.head(x)

    torch.manual_seed(0)
    return Recomputed(CONFIG).to(device)


RUNS = {
    "none": lambda block, x: block(x),
    "torch, non-reentrant": lambda block, x: checkpoint(block, x, use_reentrant=False),
    "torch, reentrant": lambda block, x: checkpoint(block, x, use_reentrant=True),
    "dtlearn.memory": own_checkpoint,
}
x, y = my_batch()
for way, run in RUNS.items():
    model = zero.FullyShardedDataParallel(blocks_run_by(run), units=(Block,), prefetch=0)
    with dtlearn.phase(way):
        next_token_loss(model(x), y).backward()
mesh = init_device_mesh(device.type, (world_size,))
for way, wrap in (
    ("fully_shard", lambda m: m),
    ("fully_shard, wrapped", checkpoint_wrapper),
):
    theirs = fresh_model()
    for i, block in enumerate(theirs.blocks):
        theirs.blocks[i] = wrap(fully_shard(block, mesh=mesh))
    fully_shard(theirs, mesh=mesh)
    with dtlearn.phase(way):
        next_token_loss(theirs(x), y).backward()

# %% jupyter={"source_hidden": true}
for way in (
    "none",
    "torch, non-reentrant",
    "torch, reentrant",
    "dtlearn.memory",
    "fully_shard",
    "fully_shard, wrapped",
):
    calls = [e for e in part(recomputing, way).events if e.rank == 0 and "gather" in e.op]
    print(f"{way:>28}: {len(calls)} all-gathers")

# %% [markdown]
# Seven units, twice: 14. A checkpoint that calls the *unit* again as a function, as torch's reentrant one and the
# package's do, runs its forward hooks again: unshard and reshard, and then backward unshards a third time. For the blocks
# $3Ψ$ becomes $4Ψ$. The non-reentrant one runs the second forward pass when backward first needs a saved tensor, and at
# that moment the unit is unsharded already. With `fully_shard` recomputation adds nothing either: inside backward its forward
# hooks do nothing. (13: it keeps the rest of the model whole from forward to backward.)
#
# ## When does the link set the pace?
#
# *Needs: section 9.* Products grow with the tokens on a GPU, messages do not. Let $s$ be the bytes that a rank sends for each
# parameter: 4 for DDP with bf16 gradients; for stage 3, which gathers twice in bf16, 6 if it reduces in bf16 and 8 if in
# fp32. Let F be the operations and L the bytes a second of a GPU and its link. A step makes $6Ψ$ operations for each token.
# They take longer than the messages if each GPU has more tokens than
#
# $$\frac{s}{6} \cdot \frac{F}{L}.$$
#
# Ψ has cancelled: a large model needs no more tokens than a small one. (The comparison is that of
# [How To Scale Your Model](https://jax-ml.github.io/scaling-book/training/). It leaves out attention's own products, and what is
# exposed at the ends of a pass; rates are nominal, and rings that were measured on NVLink reach about four fifths of them.)

# %% jupyter={"source_hidden": true}
from dtlearn.notebook.panels import Slider, slider_panel
from dtlearn.viz import step_over_tokens

SENT = {
    "stage 3, fp32 reduction": 8,
    "stage 3, all bf16": 6,
    "DDP, bf16 gradients": 4,
}
TOKENS = tuple(2**n for n in range(8, 18))


def draw_threshold(link, flops, recomputation):
    """Computation and communication of a step for each billion parameters."""
    operations = {"none": 6, "every block": 8}[recomputation]
    rate = {"NVLink, 450 GB/s": 450e9, "card, 50 GB/s": 50e9, "card, 25 GB/s": 25e9}[link]
    return step_over_tokens(
        {n: operations * 1e9 * n / (1e12 * flops) for n in TOKENS},
        {way: 1e9 * nbytes / rate for way, nbytes in SENT.items()},
        title="How many tokens does a GPU need, so that products take longer than messages?",
        label=f"by formula; {flops} TFLOP/s, {link}, nominal; recomputation: {recomputation}",
    )


slider_panel(
    draw_threshold,
    alt="Milliseconds for each billion parameters over 256 to 131,072 tokens on each GPU, both axes by powers. Computation rises in "
    "proportion. Three level lines for what is sent, on a card of 50 GB/s at 400 TFLOP/s: stage 3 with fp32 reduction "
    "crosses it at 10,667 tokens, stage 3 all in bf16 at 8,000, DDP with bf16 gradients at 5,333.",
    link=Slider(
        ("NVLink, 450 GB/s", "card, 50 GB/s", "card, 25 GB/s"), "card, 50 GB/s", "link"
    ),
    flops=Slider((100, 200, 400, 800), 400, "TFLOP/s"),
    recomputation=Slider(("none", "every block"), "none", "recomputation"),
)

# %% [markdown]
# `zero.tokens_to_hide` is the formula. A faster GPU on the same link needs *more* tokens. The batch sets a limit: a batch of
# 4 million tokens on 4,096 GPUs leaves 1,024 tokens for each, and stage 3 over network cards alone no longer hides; then
# one shards inside a node, or divides layers as well (chapters 10, 12 and 14).
#
# ## What if some links are slow?
#
# *Needs: section 5.* Stage 3 over all ranks gathers every unit from every rank, also over the slow links between nodes.
# **Hybrid sharding** (HSDP; MiCS, Zhang et al. 2022, arXiv 2205.00119; FSDP's paper, section 3.2.2) shards inside a group of
# ranks with fast links, usually a node, and replicates over the groups. The ranks form a mesh:
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
groups = {
    "shard_group": mesh.get_group("shard"),
    "replicate_group": mesh.get_group("replicate"),
}
models = {
    "stage 3 over 4 ranks": make(3)[0],
    "hybrid, 2 x 2": zero.HybridShardedDataParallel(
        fresh_model(), units=(Block,), **groups
    ),
}
hybrid, (x, y) = {}, my_batch()
for name, model in models.items():
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    record = record_step(model, optimizer, my_batch(), next_token_loss)
    hybrid[name] = record, difference(whole_parameters(model))
    with dtlearn.phase(name):
        next_token_loss(model(x), y).backward()
        optimizer.step()
hybrid

# %% jupyter={"source_hidden": true}
for name, (record, off) in hybrid[0].items():
    calls = part(meshes, name)
    inside, across = (
        sum(
            sum(sent_by_operation(calls.select(group=group)).values()) for group in groups
        )
        for groups in (("0,1",), ("world", "0,2"))
    )  # groups of rank 0 whose ranks are on one node, and on two
    print(
        f"{name:>20}: state {sum(after_backward(record).values()) / 1e6:.2f} MB; sent inside a row {inside / 1e6:.2f} MB, over the "
        f"whole mesh or a column {across / 1e6:.2f} MB; difference from one process {rounding(off)}"
    )

# %% [markdown]
# With the hybrid the weights stay inside a row. The only collectives with ranks of both rows are the all-reduces of the
# shards of gradients, and a rank holds twice the state.
#
# **ZeRO++** (Wang et al. 2023, arXiv 2306.10209) keeps the shards over all ranks, and sends less over slow links: weights
# are gathered in int8 in forward, half of 16 bits; in backward they come from a second copy that each node keeps, so nothing
# crosses nodes; gradients are reduced in int4, a quarter. Of the $3Ψ$ 16-bit elements that cross nodes 0.75 are left. It
# costs that second copy, and the rounding.
#
# ## What can lie on the host?
#
# *Needs: section 5, chapter 8.* The state of the optimizer is used once in a step, and not by the matrix products: it can
# lie on the host, and the host can do the update (**ZeRO-Offload**, Ren et al. 2021, arXiv 2101.06840). Its table of the ways to
# divide Adam's 16 bytes such that the fewest bytes move, with ours beside it:

# %% jupyter={"source_hidden": true}
rank_table(
    [
        {
            "16-bit gradients": row.gradients,
            "fp32 state and update": row.update,
            "bytes on the GPU for each parameter, ours": row.ours,
            "printed": row.printed,
            "reduction, printed": f"{row.reduction:g}x",
        }
        for row in zero.ZERO_OFFLOAD_TABLE_1
    ],
    caption="2101.06840, table 1; forward, backward and the 16-bit weights stay on the GPU",
)

# %% [markdown]
# The last row is what the paper chose, and its 4 is a misprint: 16 / 8 is 2. Per step and parameter a gradient of 2 bytes
# goes down and a weight of 2 bytes comes up. The update can also run one step late, beside the next forward pass ("delayed
# parameter update"); that is another algorithm. Parameters can lie on the host, too, or on NVMe (**ZeRO-Infinity**,
# 2104.07857); then each gather begins with a copy from there. On a CPU there is no second memory, so what is offloaded here
# lies in a store that the ledger does not count, as in chapter 8: the bytes are those of a GPU, the times are not.

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
            "MB on the host, at most": f"{host / 1e6:.2f}",
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
#
# ## Which optimizers need a whole layer?
#
# *Needs: section 3.* Texts on training strategies often list "optimizer parallelism". Where it is a form of parallelism at all,
# it is what this chapter does. (One of the sources of this course explains it by "asynchronous optimizers such as AdaGrad or
# Adam". These are not asynchronous; asynchrony is a matter of how gradients reach the parameters, chapter 4.) It rests on one
# property: the update of an element needs that element only. Some optimizers look at a whole layer. **LAMB** (You et al. 2019, arXiv 1904.00962; chapter 3) scales the update of each
# layer by a **trust ratio**, the norm of its weights over the norm of its update. If a layer lies on two ranks, each rank
# alone would compute the ratio of its piece. The squares have to be summed over the ranks, for all layers in one small
# all-reduce.

# %%
# %%ranks -o layerwise
from dtlearn.data_parallel import LAMB


def two_steps(model, optimizer, batch):
    """The parameters after two steps, in one vector."""
    x, y = batch
    for _ in range(2):
        optimizer.zero_grad()
        next_token_loss(model(x), y).backward()
        optimizer.step()
    return torch.nn.utils.parameters_to_vector(model.parameters()).detach()


everything = [t.to(device) for t in next(corpus.batches(1, 4, 32))]  # of all ranks
alone = fresh_model()
start = torch.nn.utils.parameters_to_vector(alone.parameters()).detach().clone()
lamb = two_steps(alone, LAMB(alone.parameters(), lr=1e-2), everything)
layerwise = {}
for kind in (zero.ShardedLAMB, zero.ShardwiseLAMB):
    model = fresh_model()
    optimizer = zero.ZeroRedundancyOptimizer(
        model.parameters(), kind, gradients="local", lr=1e-2
    )
    after = two_steps(model, optimizer, my_batch())
    layerwise[kind.__name__] = ((after - lamb).norm() / (lamb - start).norm()).item()
layerwise

# %% tags=["nbval-ignore-output"] jupyter={"source_hidden": true}
for name, off in layerwise[0].items():
    print(f"{name:>14}: off by {100 * off:.2g} % of the change, from LAMB on one process")

# %% [markdown]
# `ShardwiseLAMB` is the naive one, with ratios of pieces. It trains, and its result depends on where the cuts lie; with
# one bucket on 4 ranks only three parameters are cut, and it is off nevertheless. The right one differs by rounding.
#
# **Muon** ([Jordan et al. 2024](https://kellerjordan.github.io/posts/muon/)) replaces the momentum of a matrix by a nearly
# orthogonal one with the same singular vectors, computed by a few matrix products (Newton-Schulz iterations). An element of
# the result depends on the whole matrix. Three ways to divide it are in use, and one that changes it:
#
# | way | who |
# |---|---|
# | each matrix, **whole**, has one owner, which sends the result; balanced by what it costs | `zero.sharded_muon`; Megatron's `LayerWiseDistributedOptimizer` |
# | the pieces are gathered, and the iterations run on the whole | 2502.16982; over tensor-parallel ranks, Megatron's `--muon-tp-mode duplicated` |
# | the iterations run *on the pieces*: an all-reduce puts each product of the matrix with its transpose together | Megatron's `--muon-tp-mode distributed` |
# | each rank makes its own piece orthogonal: another algorithm | Megatron's `--muon-tp-mode blockwise` |
#
# What a matrix costs its owner is not its number of elements. With $k$ the smaller and $l$ the larger dimension, a
# Newton-Schulz iteration takes $4k^2l + 2k^3$ operations (`zero.newton_schulz_flops`): a square matrix costs far more than
# a wide one of as many elements.
#
# ## Saved by 4 ranks, loaded by 2?
#
# *Needs: section 5.* A checkpoint of a job with stage 3 is **sharded**, each rank writes what it has, with a description of
# what that is; or **consolidated**, one whole state that is gathered somewhere, and has to fit there. A sharded one has to serve
# another number of ranks, too. By hand, a bucket of 10 elements. The shards that 4 ranks saved, and those that 2 ranks need:
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
# buffer. So `reshard` also serves another stage and other units. Save stage 3 on 4 ranks, go on with 2 of them, and compare
# with 4 that were never interrupted. The batch of the step is the same, divided by 4 or by 2:


# %%
from dtlearn.models.gpt import Block


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
    rank, gpt = torch.distributed.get_rank(), GPT(CONFIG).to(dtlearn.device())
    model = zero.FullyShardedDataParallel(gpt, units=(Block,))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    sharded = zero.pieces_of_stage3(model)
    if states is not None:
        zero.load_sharded_state_dict(zero.reshard(states, sharded), sharded, optimizer)
    train(model, optimizer, steps, rank, ranks)
    whole = torch.cat([p.flatten() for p in model.full_params().values()])
    return whole, zero.sharded_state_dict(sharded, optimizer)


saved = [state for _, state in dtlearn.run_ranks(resume, 4, 4).values]
at_two = dtlearn.run_ranks(resume, 2, 2, saved).values
never_stopped = dtlearn.run_ranks(resume, 4, 4, None, 4).values

# %% jupyter={"source_hidden": true}
off = (at_two[0][0] - never_stopped[0][0]).abs().max().item()
print(
    f"4 steps on 4 ranks, and 2 on 4 ranks and 2 on 2 ranks: their difference is {rounding(off)}"
)
for when, states in (
    ("saved by 4 ranks", saved),
    ("after resharding to 2", [state for _, state in at_two]),
):
    pieces = [state["pieces"]["blocks.0.feed_forward.up.weight"] for state in states]
    print(
        f"blocks.0.feed_forward.up.weight, {when}:",
        *(f"rank {r}: {p['start']:,} to {p['stop']:,}" for r, p in enumerate(pieces)),
        sep="; ",
    )

# %% [markdown]
# ## What fits with activations?
#
# *Needs: section 9.* With the sliders: which stage, on how many ranks, with what on the host?

# %% jupyter={"source_hidden": true}
from dtlearn.notebook.panels import Slider, slider_panel
from dtlearn.viz import stage_fit
from dtlearn.viz.units import parse_quantity


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
from dtlearn.memory.arithmetic.fits import largest_batch

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
# On 64 GPUs the state of the largest takes 101 GB of each alone. On 4,096 GPUs it takes 1.6 GB, and still no more than one
# sequence fits: the rest are activations.

# %% [markdown]
# **Exercise 8.** Which stage, and how many bytes, for a model that you do not have.

# %% exercise="ch09.plan"

# %% [markdown]
# ## What does PyTorch's stage 1 print and send?
#
# *Needs: section 3.* An example for `ZeroRedundancyOptimizer` stands in one of the texts behind this course and in a [PyTorch
# recipe](https://docs.pytorch.org/tutorials/recipes/zero_redundancy_optimizer.html): 20 linear layers, 2 ranks, Adam,
# one step, and the peak of the memory printed four times, with ZeRO and without. Ours has layers of 500 x 500 in place
# of 2000 x 2000, and the ledger's peak in place of `torch.cuda.max_memory_allocated`.


# %%
from dtlearn.memory import MemoryLedger


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
# P is the model; DDP's buckets add another P (and its first broadcast, at times, a third for a moment), the gradients a third.
# Adam's two moments are made in the first step: 2P, or half of that on each of 2 ranks. Beyond that the ledger shows
# temporaries of one update, 1.00 MB each: two at most without ZeRO, and three with it, since PyTorch's class sorts the tensors
# by size, and the weights come one after the other. On the recipe's GPU the allocator gives each weight of 16.00 MB a block of
# 16 MiB: 20 of them are 335.5 MB. The recipe says that ZeRO halves the peak memory of `step()`. That holds for what the step
# adds, 369 MB where it was 705. The peak itself falls by a fifth.
#
# Both ranks call `torch.manual_seed(0)` and then draw their samples, so both train on the *same* samples. And what it prints
# as "params sum" is not the sum of the parameters: `sum(model.parameters())` adds tensors of shapes (500, 500) and (500,), and
# so counts each bias 500 times. It is still a number that would change if the parameters did:

# %%
print("'params sum' with and without ZeRO, equal to the last bit:", whole_sum == zero_sum)

# %% [markdown]
# What does PyTorch's class send? DDP has averaged *all* gradients on all ranks: $2Ψ(N-1)/N$ elements. Then each
# parameter is broadcast by its owner: another $Ψ(N-1)/N$. Together that is half as much again as stage 1 needs, the price of a
# class that works behind an unchanged DDP. (Ours does so too, by default. `gradients="local"` is the paper's way.) And it hands
# out whole tensors, the largest first. For 20 equal layers that is even. For a model whose embedding is half of all parameters
# it is not: on 8 ranks one of them has half of the state.
#
# ## What is held that should be free?
#
# *Needs: section 5.* The simplest mistake in stage 3 changes no number. Here the buckets are told to keep their memory:

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
for name, ranks in (
    ("as it should be", [(of_rank[3][0], of_rank[3][2]) for of_rank in stages]),
    ("never resharded", never_resharded),
):
    print(
        f"{name}: peak {min(record.peak.bytes for record, _ in ranks) / 1e6:.2f} MB; gathered weights held after the step "
        f"{ranks[0][0].live('communication')[-1] / 1e6:.2f} MB; difference from one process {rounding(ranks[0][1])}"
    )

# %% [markdown]
# The update is right, and the peak is above that of stage 2. How to find it: look at the bytes *between* steps. They
# are at most $16Ψ/N$ in stage 3, and nothing that was gathered is among them. In practice the cause is a
# `unsharded()`, `unshard()` or `summon_full_params` that was not closed, `reshard_after_forward=False`, or a model that
# is a single unit, so that everything is gathered at once. Three other bugs, as they were in real projects:

# %% [markdown]
# **Exercise 9.** Find planted bugs, as they were in real projects.

# %% exercise="ch09.bug_hunt"

# %% [markdown]
# ## Where do the libraries do it?
#
# *Needs: all of these sections; so it stands last.*
#
# | here | PyTorch | DeepSpeed |
# |---|---|---|
# | stage 1, `ZeroRedundancyOptimizer` | `torch.distributed.optim.ZeroRedundancyOptimizer`, behind DDP | `"stage": 1` |
# | stage 2, `ShardedGradients` | no class of its own; `fully_shard(..., reshard_after_forward=False)` also shards gradients and state, and gathers the parameters once | `"stage": 2` |
# | stage 3, `FullyShardedDataParallel` | `fully_shard` (FSDP2); `FullyShardedDataParallel` (FSDP1, deprecated) | `"stage": 3` |
# | `units=(Block,)` | one call of `fully_shard` for each unit, the inner ones first, the model last | submodules, found by themselves |
# | cut | dimension 0 of each parameter, `DTensor` | each parameter as a vector (stage 3); flat buffers (stages 1 and 2) |
# | `prefetch=1` | by itself: in forward since gathers have a stream of their own, in backward the next unit; `set_modules_to_forward_prefetch` for a CPU that is late | `stage3_prefetch_bucket_size` |
# | `reshard_after_forward` | the same name | `stage3_max_reuse_distance`, `stage3_max_live_parameters` |
# | | `reshard_after_forward=8`: keep shards over 8 ranks from forward to backward | `zero_hpz_partition_size` (ZeRO++, 2306.10209) |
# | `no_sync()` | `set_requires_gradient_sync(False)` | `no_sync()` with stage 1 only: with stages 2 and 3 it raises an error; `coalesce_grad_reduction()` reduces once for several backward passes, with stages 1 to 3 |
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
beside = {
    name: (difference(result, steps=3), digest(result))
    for name, result in results.items()
}
beside

# %% jupyter={"source_hidden": true}
letter = letters(bits for _, bits in beside[0].values())
for name, (off, bits) in beside[0].items():
    print(f"{name}: difference {rounding(off)}, bits {letter[bits]}")

# %% [markdown]
# (The same letter: equal to the last bit.)
#
# ### On your GPUs
#
# The cells of this chapter's world run on NCCL when there is a GPU for each rank; the emulated link and the recipe's example
# stay on the CPU. The bytes are the same. In section 5 the ledger's peaks may differ a little, since buffers are freed when
# a stream has used them. Measure first whether a step waits for gathers at all: profile it, and look for gaps between the
# products of one unit and the next. `dtlearn bench zero` times the stages beside DDP and `fully_shard`.
#
# ### Myths
#
# **"ZeRO trains models of any size."** It divides the state, not the activations, and at least one unit is gathered
# whole. On 4,096 GPUs Llama 3 405B has 1.6 GB of state on each, and still no more than one sequence fits ("What fits with
# activations?"). The batch is a limit, too: each rank needs a sample of its own. (The paper's second half, ZeRO-R, does
# divide checkpointed activations, as $P_a$: over the ranks of *tensor* parallelism, chapter 12.)
#
# **"ZeRO is model parallelism."** No rank computes a part of a layer or a part of the layers; each computes the whole
# model on samples of its own. What is divided is storage.
#
# **"Stage 3 costs 1.5 times the communication."** In elements. In bytes it is what the formats make of it: with bf16 gathers
# and an fp32 reduction exactly DDP's 8 bytes for each parameter.
#
# **"Stage 2 is always better than stage 1."** Not with accumulation: 2.5 times as many bytes for 4 micro-batches, or the
# gradients of stage 1. A pipeline has many micro-batches in each step (chapter 10), and DeepSpeed's refuses stages 2 and 3.
# PyTorch's schedules with `fully_shard` add up whole gradients and reduce once in a step: what is sent does not grow, and
# the memory is stage 1's until then.
#
# **"`clip_grad_norm_` just works."** With DDP it does, with `fully_shard` too, because a DTensor knows that it is
# sharded. On shards that are plain tensors it takes the norm of this rank's part (section 7).
#
# **"With N ranks each needs 1/N of the memory."** Of the state, in stage 3. At the peak of section 5 stage 3 on 4 ranks needs
# 2.5 MB, and DDP 6.0: not a quarter.
#
# ### Check yourself
#
# <details><summary>A job with stage 3 has the speed of DDP on one node, and a third of it on 16 nodes. What would you
# try?</summary>
#
# Hybrid sharding: shard inside a node and replicate across nodes. Then no weights cross the slow links. It costs
# memory: 1/8 of the state on each GPU in place of 1/128. Or more tokens on each GPU, if the batch allows it.
# </details>
#
# <details><summary><code>model.forward(x)</code> in place of <code>model(x)</code> with stage 3: what happens?</summary>
#
# Hooks run in `__call__`, so this unit is not gathered. The package says so in an error. With `fully_shard` an
# operation on one of its own parameters fails: "got mixed torch.Tensor and DTensor".
# </details>
#
# <details><summary>Muon with stage 1: why not cut every matrix into equal pieces, and update them apart?</summary>
#
# The update of one element depends on the whole matrix. So each matrix has one owner, or the pieces are gathered before every
# update, or the iterations themselves are computed on pieces, with an all-reduce in each. Pieces apart are another optimizer.
# </details>
#
# ## Glossary
#
# {glossary}
#
# Next: chapter 10 divides the layers themselves over ranks.
