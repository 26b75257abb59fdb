# %% [markdown]
# # Chapter 3. Data parallelism
#
# **The question.** How do copies of a model stay one model?
#
# Builds on: chapter 2. Time: about an hour and a half to read and run, and three hours for the eight exercises. Ranks: 4.
#
# After this chapter you have written a sampler and a DDP that matches PyTorch's, you have seen communication hide behind
# computation, and you know the silent bugs of data parallelism by having met them.
#
# Every picture of ranks below is drawn from a recorded run.

# %%
# %load_ext dtlearn
import os

import torch

import dtlearn
from dtlearn.data_parallel import (
    BucketedDataParallel,
    buckets,
    measure,
    naive,
    overlap_model,
)
from dtlearn.data_parallel.large_batch import learning_rate, noise_scale
from dtlearn.data_parallel.samples import evaluation, sampler, token_mean
from dtlearn.models import MLP, in_turns, num_parameters
from dtlearn.runtime.record.training_steps import part
from dtlearn.viz import (
    bucket_timeline,
    rank_table,
    sample_grid,
    sample_words,
    scaling,
    show,
)
from dtlearn.viz.large_batch import learning_rates, steps_over_batch

world = dtlearn.world(4)
world

# %% [markdown]
# ## 1. Copies drift apart
#
# The plan is simple. Every rank has a **copy** of the whole model. Each takes another part of the batch, so that four ranks
# see four times as much data in the same time. Let us do just that, and nothing else: four equal models, four different
# batches, one step.

# %%
drift = dtlearn.predict.choice(
    "Four ranks start with equal parameters. Each makes one SGD step on its own 24 images. "
    "How many different models are there then?",
    {"A": "1", "B": "2", "C": "4"},
)

# %%
# %%ranks
import torch.nn.functional as F

from dtlearn.models import MLP, load_digits

digits = load_digits()


def fresh_model(seed=0):
    torch.manual_seed(seed)
    return MLP().to(device)  # this rank's GPU, or the processor


def my_part(x):
    return x[rank::world_size].to(device)


x, y = next(digits.batches(1, 96))  # the global batch, the same on every rank
alone = fresh_model()
optimizer = torch.optim.SGD(alone.parameters(), lr=0.1)
F.cross_entropy(alone(my_part(x)), my_part(y)).backward()
optimizer.step()
print(
    "biases of the last layer:", *[f"{b:.4f}" for b in alone.layers[-1].bias[:4].tolist()]
)

# %%
drift.reveal(
    "C",
    explain="Different data, different gradients, different steps. After a thousand steps these are four "
    "models that have each seen a quarter of the data.",
)

# %% [markdown]
# What keeps copies equal is a rule with three parts:
#
# 1. They **start equal**: rank 0 broadcasts its parameters.
# 2. They all **step with the same gradient**: the mean of the gradients of all ranks.
# 3. They step with the **same optimizer**, in the same state.
#
# Why the mean? Let $\ell_i$ be the loss of sample $i$. With equal shares of $b$ samples per rank, the mean of the gradients of
# the ranks' mean losses is the gradient of the mean loss over all $Nb$ samples:
#
# $$\frac1N\sum_{r=0}^{N-1}\nabla\Big(\frac1b\sum_{i\in S_r}\ell_i\Big)\;=\;\nabla\Big(\frac1{Nb}\sum_{i}\ell_i\Big)$$
#
# So N ranks with $b$ samples each make the very step that one process with $Nb$ samples would make. That equation is what all
# tests of this chapter check, and it tells you when data parallelism goes wrong: when shares are not equal, when a sum stands
# in for the mean, when something in the model looks at the whole batch.
#
# ## 2. Who sees what
#
# First the shares. A **sampler** gives each rank its indices. All ranks shuffle with the same seed, so they have the same
# order without a word, and then rank $r$ takes places $r$, $r+N$, $r+2N$, ...

# %%
dtlearn.show_source(sampler.shard_indices, docstring=False)

# %%
padded = dtlearn.predict(
    "10 samples on 4 ranks. How many samples does each rank get in an epoch?"
)

# %%
# %%ranks -o seen
from dtlearn.data_parallel import DistributedSampler

shuffled = DistributedSampler(10, seed=7)  # rank and number of ranks come from the group
epochs = []
for epoch in range(3):
    shuffled.set_epoch(epoch)
    epochs.append(list(shuffled))
epochs

# %%
by_epoch = [[rank[epoch] for rank in seen] for epoch in range(3)]
show(
    sample_grid(by_epoch, 10, label="10 samples on 4 ranks, as the ranks reported them"),
    alt=sample_words(by_epoch, 10),
)

# %%
padded.reveal(
    len(sampler.shard_indices(10, 4, 0)),
    explain="All ranks need the same number, or some would wait for others in the last step. "
    "10 is no multiple of 4, so two samples are taken twice (drop_last=False, the default); with "
    "drop_last=True two would be left out.",
)

# %% [markdown]
# `set_epoch` is the line that everyone forgets. Without it the seed is the same in every epoch, and so is the order: the third
# picture would repeat the first. Nothing fails; the model just learns from the same batches again and again.
#
# **Exercise 1.** Write the shares.

# %% exercise="ch03.shard_indices"

# %% [markdown]
# ## 3. The mean, naively
#
# Now the gradients. Backward leaves one in each parameter; let the ranks average them, one parameter after the other.

# %%
dtlearn.show_source(naive.average_gradients, docstring=False)

# %%
how_many = dtlearn.predict(
    "A GPT of 4 blocks has 69 parameter tensors, 220,544 numbers in all. How many all-reduce calls does each rank make "
    "in one step?"
)

# %%
# %%ranks --record naive_steps
from dtlearn.data_parallel.naive import NaiveDataParallel
from dtlearn.models import GPT, GPTConfig, load_corpus, next_token_loss

corpus = load_corpus()


def train(model, steps, lr=1e-3, factor=1):
    """Some steps with Adam; the losses of this rank. `factor`: a bug, see below."""
    optimizer = torch.optim.Adam(model.parameters(), lr=lr)
    losses = []
    for x, y in corpus.batches(steps, 16, 32):
        optimizer.zero_grad()
        loss = next_token_loss(model(my_part(x)), my_part(y))
        loss.backward()  # the wrapper averages the gradients in here
        for p in model.parameters():
            p.grad *= factor
        optimizer.step()
        losses.append(loss.item())
    return losses


torch.manual_seed(rank)  # another model on every rank: only the broadcast makes them one
naive_model = NaiveDataParallel(GPT(GPTConfig()).to(device))
losses = train(naive_model, 2)
weight = naive_model.module.head.projection.weight.detach()
print(f"sum of the last weights: {weight.double().sum().item():.3f}")

# %%
in_backward = naive_steps.select(rank=0, op="all_reduce")
print(f"{len(in_backward)} all-reduces in 2 steps, {in_backward.nbytes():,} bytes")
how_many.reveal(
    len(in_backward) // 2,
    explain="One for each parameter, 882,176 bytes together: 4 bytes for each number.",
)

# %%
bits = set(world.gather("weight.cpu().numpy().tobytes()"))
print(f"different versions of the last layer, bit by bit: {len(bits)}")

# %% [markdown]
# The models are equal on all ranks, to the last bit. That is no luck: an all-reduce gives every rank the same bits, and equal
# models with equal gradients make equal steps.
#
# **Exercise 2.** Average gradients, with fewer calls.

# %% exercise="ch03.average_gradients"

# %% [markdown]
# ### The bug that hides
#
# Forget to divide, and the gradients are N times too large. Surely one would notice?

# %%
summed = dtlearn.predict.choice(
    "Four ranks train with Adam. One run averages the gradients, another one sums them. "
    "How do the two loss curves differ?",
    {
        "A": "The run with sums diverges.",
        "B": "The run with sums learns four times as fast at first.",
        "C": "One can hardly tell them apart.",
    },
)

# %%
# %%ranks -o curves
curves = {}
for name, factor in (("mean", 1), ("sum", world_size)):
    torch.manual_seed(0)
    model = NaiveDataParallel(GPT(GPTConfig(num_layers=1)).to(device))
    losses = train(model, 12, factor=factor)
    norm = torch.cat([p.grad.flatten() for p in model.parameters()]).norm().item()
    curves[name] = losses, norm
curves

# %%
(mean, mean_norm), (total, total_norm) = curves[0]["mean"], curves[0]["sum"]
rank_table(
    [
        {"step": s, "loss, mean": f"{mean[s]:.3f}", "loss, sum": f"{total[s]:.3f}"}
        for s in (0, 4, 8, 11)
    ],
    caption="Adam, 4 ranks: the loss of rank 0",
)

# %%
print(
    f"gradient norm in the last step: {mean_norm:.2f} with the mean, {total_norm:.2f} with the sum"
)
summed.reveal(
    "C",
    explain="Adam divides each gradient by its own size, so a constant factor cancels (but for its small epsilon). With SGD the "
    "factor is a learning rate that is four times too large; with gradient clipping it changes what is clipped; and it grows "
    "with the number of ranks. So test gradients against one process, not loss curves against hope.",
)

# %% [markdown]
# ## 4. Buckets
#
# What is wrong with the naive way? On a real link it is slow, for two reasons. Each call costs a latency; and all of it happens
# after backward, while the processors do nothing. Here is a step of two ranks, with a link of 1 Gb/s between them that is
# emulated, for ranks on the processor: the calls really wait as long as they would there. The model is an MLP of 2.6 million parameters in ten layers, and
# the batch is such that forward and backward together take about as long as the communication, whatever machine this is.

# %% tags=["nbval-ignore-output"]
gigabit = dtlearn.Link.named("1 Gb/s")
layers = (512,) * 11
trial = measure.Workload(layers, batch=16, bucket_cap_mb=1)
travels = gigabit.seconds("all_reduce", trial.nbytes, 2)
backward = 2 / 3 * travels  # forward does half as much arithmetic
batch = dtlearn.run_ranks(measure.batch_for, 2, trial, backward, device="cpu")[0]
work = measure.Workload(layers, batch, bucket_cap_mb=1)
ways = ("naive", "ours", measure.TORCH)
steps = dtlearn.run_ranks(
    measure.record_on_rank, 2, work, ways, record=True, link=gigabit, device="cpu"
).record
one_by_one = part(steps, "naive")
show(
    bucket_timeline(
        {"one by one": one_by_one}, "A step with an all-reduce per parameter"
    ),
    alt="Timeline of two ranks: forward and backward first, and only then 20 all-reduces, one after the other, during "
    "which both ranks compute nothing.",
)

# %% [markdown]
# The first cure is to send fewer, larger messages: **buckets** of some megabytes. The second is to send them early. Backward
# begins with the last layer, and its gradients are done long before those of the first. So put parameters into buckets from the
# last to the first, and launch a bucket as soon as its last gradient is there.

# %%
dtlearn.show_source(buckets.plan_buckets, docstring=False)

# %%
model = MLP(layers)
names = [name for name, _ in model.named_parameters()]
sizes = [4 * p.numel() for p in model.parameters()]
plan = buckets.plan_buckets(sizes, cap=1 << 20, first_cap=None)
rank_table(
    [
        {
            "bucket": b.index,
            "tensors": len(b.parameters),
            "MB": f"{b.nbytes / 1e6:.2f}",
            "from": names[b.parameters[0]],
            "to": names[b.parameters[-1]],
        }
        for b in plan
    ],
    caption=f"{num_parameters(model):,} parameters in buckets that close at 1 MiB",
)

# %% [markdown]
# How large should a bucket be? Small ones pay a latency each; one large one is ready only at the end, and nothing overlaps.
# PyTorch's default is 25 MiB, and 1 MiB for the first, so that the link has something to do soon (Li et al., "PyTorch
# Distributed", VLDB 2020, compare sizes).
#
# **Exercise 3.** Plan buckets.

# %% exercise="ch03.plan_buckets"

# %% [markdown]
# ## 5. While backward runs
#
# Autograd lets us ask for a call whenever a parameter's gradient is complete, `register_post_accumulate_grad_hook`, and for one
# when a backward pass is over, `queue_callback`. That is all that it takes. This is `BucketedDataParallel`, which has buckets and
# hooks and nothing else: `trained` are its parameters, `flat` the buckets' buffers, and `views` each parameter's part of them.

# %%
dtlearn.show_source(BucketedDataParallel.gradient_is_ready, docstring=False)
dtlearn.show_source(BucketedDataParallel.put, docstring=False)
dtlearn.show_source(BucketedDataParallel.launch_full, docstring=False)
dtlearn.show_source(BucketedDataParallel.backward_ends, docstring=False)

# %% [markdown]
# Three things to see in it.
#
# - `launch_full` launches in the order of the plan, **not** in the order in which buckets become full. Ranks may finish their
#   gradients in different orders (another branch taken, another thread first); but the k-th all-reduce of a rank meets the k-th of
#   the others. Launch what is ready first, and bucket 3 of one rank is added to bucket 4 of another: silently, if they have one size.
# - It divides **before** it sums. In 16 bits the sum of 384 gradients may be infinite where their mean is not.
# - What got no gradient is sent at the end, as zeros: other ranks wait for its bucket.
#
# `DistributedDataParallel`, which the rest of the chapter uses, does this and more: it broadcasts buffers, lets you replace the
# all-reduce (a communication hook), can keep the gradients in the buckets, serves ranks with fewer batches than others, and asks
# the ranks who used a parameter. One that nobody used is an error there, with its name: usually it is a forgotten output.

# %%
faster = dtlearn.predict(
    "The naive step above, on the same link, now with buckets that leave during backward. How many times as fast "
    "is a step?"
)

# %% tags=["nbval-ignore-output"]
show(
    bucket_timeline(
        {
            "one by one": one_by_one,
            "ours": part(steps, "ours"),
            "torch's": part(steps, measure.TORCH),
        },
        "The same step in three ways",
        ranks=1,
    ),
    alt="Three timelines of rank 0 on one time axis: with one all-reduce per parameter all communication follows "
    "backward; with our buckets and with torch's it begins during backward, and only the end of it is exposed.",
)

# %% tags=["nbval-ignore-output"]
took = in_turns.slowest(
    dtlearn.run_ranks(measure.time_on_rank, 2, work, 5, link=gigabit, device="cpu").values
)
rank_table(
    [
        {
            "way": way,
            "step": f"{1e3 * sorted(took[way])[2]:.0f} ms",
            "more than a step without communication": f"{1e3 * measure.added(took, way):.0f} ms",
        }
        for way in took
    ],
    caption="Medians of 5 steps, taken in turns; 2 ranks, emulated link: 1 Gb/s, 50 us",
)

# %% tags=["nbval-ignore-output"]
faster.reveal(
    round(in_turns.ratio(took["naive"], took["ours"]), 1),
    explain="At best the longer of computation and communication remains, instead of both: overlap alone never more "
    "than halves a step. The last bucket is always exposed: nothing is left to compute when it leaves.",
)

# %% [markdown]
# And without the emulated link, on the machine that this notebook ran on: what travels here is memory of one computer. With a
# GPU for each rank, the same cell shows NCCL.

# %% tags=["nbval-ignore-output"]
here = dtlearn.run_ranks(measure.record_on_rank, 2, work, ("ours",), record=True).record
show(
    bucket_timeline(part(here, "ours"), "Our buckets, without an emulated link"),
    alt="Timeline of two ranks: all-reduces begin during backward and take only a small part of the step.",
)

# %% [markdown]
# **Exercise 4.** Overlap, from hooks. Beware of reading a result too soon: in this exercise a tensor that is under way holds NaN.

# %% exercise="ch03.overlap_hooks"

# %% [markdown]
# ## 6. What PyTorch's DDP does
#
# The same, in C++. Is it really the same? Gradients and parameters after three steps, beside ours:

# %%
# %%ranks
from dtlearn.data_parallel import DistributedDataParallel
from dtlearn.models import max_difference, snapshot_gradients, snapshot_parameters

wrapped = {}
for kind in (DistributedDataParallel, torch.nn.parallel.DistributedDataParallel):
    torch.manual_seed(rank)
    wrapped[kind] = kind(GPT(GPTConfig()).to(device), bucket_cap_mb=0.1)
    train(wrapped[kind], 3)
ours, theirs = (model.module for model in wrapped.values())
for what in (snapshot_gradients, snapshot_parameters):
    difference = max_difference(what(ours), what(theirs))
    assert difference.value < 1e-5, difference
print("gradients and parameters are those of torch's DDP, up to the order of additions")

# %% [markdown]
# And its buckets, from its own log:

# %%
# %%ranks -r 0
log = wrapped[torch.nn.parallel.DistributedDataParallel]._get_ddp_logging_data()
print("bytes of torch's buckets, first step:", log["bucket_sizes"])
print("from then on:", log["rebuilt_bucket_sizes"])
print("ours:", ", ".join(str(b.nbytes) for b in wrapped[DistributedDataParallel].buckets))
came = log["prev_iteration_grad_ready_order_indices"].split(", ")
print("order in which gradients came:", ", ".join(came[:12]), "...")

# %% [markdown]
# In the first step torch's DDP has **one** bucket with everything: nothing overlaps. It watches in which order the gradients
# come, and makes its buckets anew from that, on all ranks as on rank 0. (Without `find_unused_parameters`, that is.) So the first
# step of a job tells you little about the speed of the others. Ours trusts the order of registration, turned round.
#
# ### Gradient accumulation
#
# A batch that does not fit into memory can be made of $k$ micro-batches whose gradients add up. Communication is needed only
# for the last: `no_sync()`.

# %%
accumulated = dtlearn.predict(
    "4 micro-batches per step, 3 of them under no_sync(), 7 buckets. How many all-reduces does a step make?"
)

# %%
# %%ranks --record accumulation
model = wrapped[DistributedDataParallel]
(x, y), k = next(corpus.batches(1, 32, 32)), 4
model.zero_grad()
for i, (part_x, part_y) in enumerate(
    zip(my_part(x).chunk(k), my_part(y).chunk(k), strict=True)
):
    if i < k - 1:
        with model.no_sync():
            (next_token_loss(model(part_x), part_y) / k).backward()
    else:
        (next_token_loss(model(part_x), part_y) / k).backward()
print(f"{len(model.buckets)} buckets")

# %%
made = len(accumulation.select(rank=0, op="all_reduce"))
accumulated.reveal(
    made,
    explain="One for each bucket, once. The forward pass decides: no_sync() around backward() alone has no effect, in torch's "
    "DDP either.",
)

# %% [markdown]
# **Exercise 5.** Accumulate, with a budget of calls.

# %% exercise="ch03.accumulate_with_no_sync"

# %% [markdown]
# ## 7. What does not divide evenly
#
# The equation at the beginning wanted equal shares. In language models they hardly ever are: sequences have different numbers
# of tokens, and padding does not count.

# %%
uneven = dtlearn.predict(
    "Rank 0 has 30 tokens with a mean loss of 2.0, rank 1 has 10 tokens with a mean loss of 4.0. "
    "What is the mean loss over all tokens?"
)

# %%
uneven.reveal(
    (30 * 2.0 + 10 * 4.0) / 40,
    explain="The mean of the two means is 3.0. DDP averages gradients over ranks, so it trains on that: the tokens of "
    "rank 1 count three times as much as those of rank 0.",
)

# %%
dtlearn.show_source(token_mean.global_mean, docstring=False)
dtlearn.show_source(token_mean.scale_for_averaging, docstring=False)

# %% [markdown]
# The trick: DDP will divide by $N$, so multiply by $N$; and divide by the number of tokens of **all** ranks. The same mistake sits
# in gradient accumulation, where micro-batches have different numbers of tokens. The Transformers library had it until autumn
# 2024 (pull request 34191, issue 34242): nothing failed, and the loss curves looked fine.
#
# **Exercise 6.** Weigh by tokens.

# %% exercise="ch03.weighted_mean"

# %% [markdown]
# ### Fewer batches
#
# One rank has 3 batches left, the others 2. In the third step it waits for gradients that nobody sends.

# %%
# %%ranks --expect deadlock
few_x, few_y = digits.train_x[:8].to(device), digits.train_y[:8].to(device)
model = DistributedDataParallel(fresh_model())
for _ in range(3 if rank == 0 else 2):
    F.cross_entropy(model(few_x), few_y).backward()

# %% [markdown]
# The sampler pads so that this cannot happen. Where the data cannot be counted beforehand (a stream, batches of equal numbers of
# tokens), use `join()`: ranks that are done take part with zeros until all are.

# %%
# %%ranks
model = DistributedDataParallel(fresh_model())
with model.join():
    for _ in range(3 if rank == 0 else 2):
        F.cross_entropy(model(few_x), few_y).backward()
print("done")

# %% [markdown]
# ### Parameters without a gradient
#
# A layer that the loss does not depend on gets no gradient, and its bucket would never be full.


# %%
# %%ranks
class TwoHeads(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.body, self.head, self.spare = MLP((64, 32)), MLP((32, 10)), MLP((32, 10))

    def forward(self, x):
        return self.head(self.body(x))


model = DistributedDataParallel(TwoHeads().to(device))
loss = F.cross_entropy(model(few_x), few_y)
try:
    loss.backward()
except RuntimeError as error:
    print(error)

# %% [markdown]
# torch's DDP says "Expected to have finished reduction in the prior iteration before starting a new one", in the *next* step.
# If it is meant, `find_unused_parameters=True` looks through the graph of each forward pass for what it leaves out. It costs that
# walk and a small all-reduce in every step, so find the cause first: an output that the loss forgets is a common one.
#
# ### Batch normalisation
#
# The mean and the variance of a batch: here each rank has those of its own part. With 32 images per rank nobody minds; with two it
# is another model than with eight. `SyncBatchNorm` makes them of the whole batch, at the price of two more messages in each such
# layer: an all-gather in the forward pass, an all-reduce in the backward pass.

# %%
# %%ranks
from dtlearn.data_parallel.sync_batch_norm import SyncBatchNorm

torch.manual_seed(0)
batch = torch.randn(8, 5).to(device)
whole = torch.nn.BatchNorm1d(5).to(device)(batch)  # one process, 8 samples
local = torch.nn.BatchNorm1d(5).to(device)(my_part(batch))  # 2 samples per rank
synced = SyncBatchNorm(5).to(device)(my_part(batch))
off = (local - my_part(whole)).abs().max()
print(f"each rank its own statistics: off by more than 0.1: {bool(off > 0.1)}")
torch.testing.assert_close(synced, my_part(whole))
print("synchronised: as in one process")

# %% [markdown]
# ## 8. Evaluation
#
# Padding is right for training and wrong for evaluation: some samples count twice, and which ones depends on the number of ranks.
# And metrics do not average: the mean of the ranks' accuracies is not the accuracy when their shares differ; the mean of their F1
# scores is not the F1 score. What can be added up are **counts**.

# %%
dtlearn.show_source(evaluation.evaluate, docstring=False)

# %%
# %%ranks -o measured
from torch.utils.data import DataLoader, TensorDataset

from dtlearn.data_parallel import EvaluationSampler, evaluate, mean_of_means
from dtlearn.data_parallel.samples import evaluation

test = TensorDataset(digits.test_x[:10], digits.test_y[:10])  # 10 images on 4 ranks
model = fresh_model()
learner = torch.optim.SGD(model.parameters(), lr=0.1)
# The same batches on every rank, to have something to evaluate.
for x, y in digits.batches(40, 96):
    learner.zero_grad()
    F.cross_entropy(model(x.to(device)), y.to(device)).backward()
    learner.step()
padded = DataLoader(test, 2, sampler=DistributedSampler(test, shuffle=False))
exact = DataLoader(test, 2, sampler=EvaluationSampler(test))
rows = {
    "mean of the ranks' metrics, padded": mean_of_means(model, padded, num_classes=10)
}
rows["counts added up, padded"] = evaluate(model, padded, num_classes=10)
rows["counts added up, each sample once"] = evaluate(model, exact, num_classes=10)
rows["one process"] = evaluation.evaluate_locally(
    model, DataLoader(test, 10), num_classes=10
)
{
    name: (f"{m.loss:.4f}", f"{m.accuracy:.3f}", f"{m.macro_f1:.3f}")
    for name, m in rows.items()
}

# %%
rank_table(
    [
        {"how": name, "loss": loss, "accuracy": accuracy, "macro F1": f1}
        for name, (loss, accuracy, f1) in measured[0].items()
    ],
    caption="The same model on the same 10 images",
)

# %% [markdown]
# **Exercise 7.** Count each sample once.

# %% exercise="ch03.global_accuracy"

# %% [markdown]
# ## 9. Large batches
#
# Ranks add up to large batches, and a large batch is not for free: an epoch has fewer steps, so each has to go further. The
# **linear scaling rule** says: $k$ times the batch, $k$ times the learning rate, reached by a **warm-up** (Goyal et al. 2017, who
# trained ResNet-50 with batches of 8,192 in an hour). The reason: $k$ small steps, and one step on all their samples, go equally far
# if the gradient changes little on the way. At the start it changes a lot, hence the warm-up.

# %%
schedules = {}
for ranks in (8, 64):
    rule = learning_rate.WarmupThenCosine(
        warmup_steps=50, total_steps=500, start=8 / ranks
    )
    rate = learning_rate.linear_scaled_lr(0.1, 32 * ranks, 32 * 8)
    schedules[f"{ranks} ranks of 32 samples"] = [rate * rule(step) for step in range(500)]
show(
    learning_rates(
        schedules,
        "Linear scaling with warm-up",
        "rate 0.1 for 256 samples",
        warmup_steps=50,
    ),
    alt="Learning rate over 500 steps: with 8 ranks it starts at 0.1 and falls along a cosine; with 64 ranks it "
    "rises from 0.1 to 0.8 within 50 steps and then falls along a cosine.",
)

# %% [markdown]
# How far does that go? Measure it: how many steps does the MLP need to reach a loss of 0.4, for each batch size, with the best of
# four learning rates? Each rank tries one of them.

# %%
doubling = dtlearn.predict(
    "From a batch of 16 to a batch of 512, 32 times as many samples per step: how many times fewer steps?"
)


# %% tags=["nbval-ignore-output"]
# %%ranks -o tried
def steps_to_reach(batch, lr, loss=0.4, most=500):
    model = fresh_model()
    optimizer = torch.optim.SGD(model.parameters(), lr=lr)
    looked_at, labels = digits.train_x[:256].to(device), digits.train_y[:256].to(device)
    for step, (x, y) in enumerate(digits.batches(most, batch)):
        if step % 4 == 0 and F.cross_entropy(model(looked_at), labels) < loss:
            return step
        optimizer.zero_grad()
        F.cross_entropy(model(x.to(device)), y.to(device)).backward()
        optimizer.step()
    return most


lr = 0.05 * 3**rank
{batch: steps_to_reach(batch, lr) for batch in (2, 4, 8, 16, 64, 512)}

# %% tags=["nbval-ignore-output"]
steps_needed = {batch: min(rank[batch] for rank in tried) for batch in tried[0]}
least, critical = noise_scale.fit_steps(steps_needed)
show(
    steps_over_batch(
        steps_needed,
        "Steps to a loss of 0.4",
        "measured: MLP on the digits, best of 4 learning rates",
        lambda batch: noise_scale.steps_to_reach(batch, least, critical),
        critical_batch=critical,
        prediction="fitted: S (1 + B / batch)",
    ),
    alt="Steps over batch size, both logarithmic. The measured points follow the line of perfect scaling for small "
    "batches and level off for large ones; the shaded area between is what larger batches do not save.",
)

# %% tags=["nbval-ignore-output"]
doubling.reveal(
    round(steps_needed[16] / steps_needed[512], 1),
    explain="A gradient of few samples is mostly noise, and more samples average it away. One of many samples is mostly "
    "signal, and more of them change nothing.",
)

# %% [markdown]
# Where the curve bends is the **gradient noise scale** (McCandlish et al. 2018): the batch size at which noise and signal in the
# gradient are equal. It can be measured while training, and data parallelism has all that it takes: the squared norm of each rank's own
# gradient (small batch), and that of the mean (large batch). One number per step to send.
#
# $$\mathbb E\,|G_B|^2 = |G|^2 + \frac{\mathrm{tr}\,\Sigma}{B}$$

# %%
dtlearn.show_source(noise_scale.noise_estimate, docstring=False)

# %% [markdown]
# Beyond that batch size there are LARS and LAMB, which give each layer its own step length (You et al. 2017 and 2019; both are in
# `dtlearn.data_parallel`), and the insight that the batch may grow during training, as the noise scale does.

# %% [markdown]
# ## 10. The arithmetic
#
# Each step moves the gradients once, as an all-reduce: with a ring each rank sends and receives
#
# $$2\,\frac{N-1}{N}\,P \text{ bytes}$$
#
# for $P$ bytes of gradients, whatever the batch. And each rank keeps everything: parameters, gradients, the optimizer's state,
# 16 bytes for each parameter with Adam in float32 (and 4 more for
# buckets, unless gradients are views of them). Adding ranks makes it faster and saves no memory. (Chapter 9 changes that.)
#
# What overlap and links make of that, for a model that exists: GPT-2 XL, 1.56 billion parameters, bfloat16 gradients, buckets of
# 25 MiB, with 0.3 s of forward and 0.6 s of backward on each GPU (figures of this example, not measured).

# %%
gradient = 2 * 1.56e9
cap = 25 * 2**20
parts_of_it = [cap] * int(gradient // cap) + [gradient % cap]
alone = overlap_model.timeline(
    overlap_model.ready_times(parts_of_it, backward=0.6),
    parts_of_it,
    lambda n: 0.0,
    forward=0.3,
)
links = {
    "InfiniBand, 25 GB/s": dtlearn.Link.named("InfiniBand"),
    "10 Gb/s": dtlearn.Link.named("10 Gb/s"),
    "1 Gb/s": gigabit,
}
predicted = {
    name: overlap_model.predict(
        alone,
        16,
        (1, 2, 4, 8, 16, 32, 64),
        lambda n, N, link=link: link.seconds("all_reduce", n, N),
    )
    for name, link in links.items()
}
show(
    scaling(
        predicted,
        title="GPT-2 XL, 16 sequences per rank",
        label="model: ring all-reduce, one link per rank",
    ),
    alt="Samples per second and efficiency over 1 to 64 ranks. With 25 GB/s nearly all communication hides and "
    "efficiency stays near 100 percent; with 10 Gb/s it falls to about a fifth, with 1 Gb/s to a few percent.",
)

# %% [markdown]
# And here, measured and predicted? Take the step of one rank, the emulated link of 1 Gb/s, and predict two and four ranks.


# %% tags=["nbval-ignore-output"]
def step_times(link):
    """Median seconds of a step on 1 and 4 ranks (2 were measured above): without communication, and with."""
    found = {2: {way: sorted(took[way])[2] for way in ("local", "ours")}}
    for N in (1, 4):
        ways = ("local", "ours")
        steps = dtlearn.run_ranks(
            measure.time_on_rank, N, work, 5, ways, link=link, device="cpu"
        )
        times = in_turns.slowest(steps.values)
        found[N] = {way: sorted(times[way])[2] for way in times}
    return found


times_here = step_times(gigabit)
local = times_here[1]["local"]
sizes = [b.nbytes for b in plan]
one_rank = overlap_model.timeline(
    overlap_model.ready_times(sizes, backward=2 / 3 * local),
    sizes,
    lambda n: 0.0,
    forward=local / 3,
)
expected = overlap_model.predict(
    one_rank, work.batch, (1, 2, 4), lambda n, N: gigabit.seconds("all_reduce", n, N)
)
seen = [
    overlap_model.Scale(
        N,
        N * work.batch,
        local,
        max(0.0, (times_here[N]["ours"] if N > 1 else local) - local),
    )
    for N in sorted(times_here)
]
show(
    scaling(
        {"1 Gb/s": expected},
        {"1 Gb/s": seen},
        cores=os.cpu_count(),
        title="The MLP of section 4 on this machine",
        label=f"emulated link: {gigabit}; forward taken as a third of the step",
    ),
    alt="Predicted curve and measured points for 1, 2 and 4 ranks on an emulated link of 1 Gb/s. Where ranks are more than "
    "the cores of the machine, they take turns, and the measured points fall below the curve.",
)

# %% [markdown]
# Honesty about the last point: on a machine with fewer cores than ranks, the ranks compute in turns, and nothing of that is
# communication. Measure scaling where each rank has its own device.

# %% [markdown]
# ## 11. Where the libraries do it
#
# | | `nn.DataParallel` | `DistributedDataParallel` | FSDP (`fully_shard`) |
# |---|---|---|---|
# | processes | one, a thread per GPU | one per GPU | one per GPU |
# | machines | one | many | many |
# | the model | copied to all GPUs in every forward pass | a copy per rank, all the time | a shard per rank |
# | gradients | added up on GPU 0 | mean, all-reduce in buckets | mean, reduce-scatter: each rank its shard |
# | the optimizer steps | on GPU 0 | on every rank, all parameters | on every rank, its shard |
# | limits | Python's one lock; GPU 0's memory | the model has to fit into one GPU | talks more: chapter 9 |
# | today | not recommended by its own documentation | the default | for models that do not fit |
#
# **Horovod** (Sergeev and Del Balso 2018) brought the ring all-reduce of the supercomputers to deep learning, after Baidu's
# demonstration of 2017, with an optimizer wrapper that worked for TensorFlow, Keras and PyTorch alike: `hvd.init()`, a broadcast, and
# `DistributedOptimizer`. It negotiates in each step which gradients are ready on all ranks and fuses them into a buffer; buckets in
# an order fixed beforehand need no such talk. PyTorch's own DDP took over its place.
#
# **A script to take home.** The training script of this package does all of this chapter, and resumes after a crash: the sampler,
# DDP (ours or torch's), accumulation, warm-up, evaluation, checkpoints, TensorBoard.

# %% tags=["nbval-ignore-output"]
# %%launch -n 2 -- --task text
from dtlearn.train.__main__ import main

main()

# %% [markdown]
# ## 12. Myths
#
# **"DDP sums the gradients."** It averages. A sum would change the learning rate with the number of ranks.
#
# **"DDP updates the parameters on rank 0 and sends them round."** Every rank steps, with equal gradients, and parameters are sent once,
# at the start. (Buffers are sent before each forward pass.)
#
# **"The loss goes down, so the gradients are right."** You have seen the curve of gradients that were four times too large.
#
# **"N GPUs train N times as fast."** N ranks process up to N times the samples. Whether fewer *steps* are needed depends on the noise in
# the gradients; beyond the noise scale a larger batch buys little.
#
# **"Give every process the whole data set, DDP does the rest."** Then all ranks do the same work and their mean is one rank's
# gradient: N times the cost, no speed-up. A widely copied tutorial does that, and takes `get_rank()` for the GPU's number, which
# fails on the second machine: that is `LOCAL_RANK`.
#
# **"DistributedSampler drops the tail."** It pads: some samples count twice, unless `drop_last=True`.
#
# **"Set a different seed on each rank for the sampler."** Then ranks shuffle differently, and some samples are seen twice, others
# never. Different seeds are for dropout and augmentation.
#
# ## 13. A bug hunt
#
# A training loop with three bugs, each of which real projects have had. **Exercise 8.**

# %% exercise="ch03.bug_hunt"

# %% [markdown]
# ## 14. Check yourself
#
# <details><summary>A model of 1 billion parameters, float32 gradients, 64 ranks with links of 12.5 GB/s each way. How long does the
# all-reduce of a step take at least?</summary>
#
# 2 x 63/64 x 4 GB / 12.5 GB/s = 0.63 s. If backward takes longer than that, nearly all of it can hide.
# </details>
#
# <details><summary>Which part of the communication can never hide behind backward, however small the buckets?</summary>
#
# The bucket with the first layer's gradients: it is ready when backward ends.
# </details>
#
# <details><summary>8 ranks, batch 32 each, lr 0.1. You move to 64 ranks with batch 32 each. What does linear scaling say?</summary>
#
# The global batch is 8 times as large: lr 0.8, reached by a warm-up over some epochs.
# </details>
#
# <details><summary>1,000 test samples on 16 ranks with a padded sampler. How many samples does a plain sum of the ranks' counts have?</summary>
#
# 1,008: ceil(1000/16) = 63 each. Eight are counted twice.
# </details>
#
# ## Glossary
#
# | English | 中文 | meaning |
# |---|---|---|
# | data parallelism | 数据并行 | every rank has the whole model and a part of each batch |
# | replica | 模型副本 | a rank's copy of the model |
# | global, local batch | 全局批次、本地批次 | the samples of a step over all ranks; of one rank |
# | micro-batch | 微批次 | what goes through the model at once in accumulation |
# | sampler, shard | 采样器、分片 | who sees which sample; a rank's share |
# | gradient averaging | 梯度平均 | what keeps replicas equal |
# | bucket | 梯度桶 | gradients that are sent together |
# | overlap | 通信与计算重叠 | communication while computation goes on |
# | exposed communication | 未被掩盖的通信 | the part that computation does not hide |
# | gradient accumulation | 梯度累积 | several micro-batches, one step |
# | synchronised batch norm | 同步批归一化 | statistics of the whole batch |
# | linear scaling rule, warm-up | 线性缩放规则、学习率预热 | learning rate in proportion to the batch; reached step by step |
# | gradient noise scale | 梯度噪声尺度 | the batch size above which more samples help little |
# | strong, weak scaling | 强扩展、弱扩展 | the same work on more ranks; more work on more ranks |
#
# Next: chapter 4 keeps the weights in one place instead.
