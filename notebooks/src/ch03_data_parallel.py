# %% [markdown]
# # Chapter 3. Data parallelism
#
# **The question.** How do copies of a model stay one model?
#
# Builds on: chapter 2. Ranks: 4; what is measured on an emulated link uses 2. Time: 75 minutes for the core path; the
# sections of "Further" in any order, when you need them.
#
# | core path | what | minutes |
# |---|---|---|
# | 1. How many models are four copies? | one step, no communication | 4 |
# | 2. Which rank sees which sample? | a sampler | 3, and exercise 1: 12 |
# | 3. How do gradients become one? | the naive way | 3, and exercise 2: 12 |
# | 4. What is slow about it? | a recorded step | 2 |
# | 5. How can communication hide? | buckets and hooks; the exercise is a stretch | 4, and exercise 3: 25 |
# | 6. What does it gain? | naive, ours and torch's, measured | 3 |
# | 7. How does it break? | a sum in place of a mean | 2 |
# | 8. How far does it scale? | the arithmetic, and when to use it | 5 |
#
# After it you can write a training loop in which N ranks make the same step as one process, say what PyTorch's DDP does
# in `backward()`, and predict how far it scales. Every picture of ranks below is drawn from a recorded run.

# %% jupyter={"source_hidden": true}
# %load_ext dtlearn
import dtlearn
from dtlearn.viz import rank_table, show

world = dtlearn.world(4)
world

# %% jupyter={"source_hidden": true}
# %%ranks --setup
import torch.nn.functional as F

from dtlearn.models import GPT, MLP, GPTConfig, load_corpus, load_digits, next_token_loss

digits, corpus = load_digits(), load_corpus()


def fresh_model(seed=0):
    torch.manual_seed(seed)
    return MLP().to(device)  # this rank's GPU, or the CPU


def my_part(x):
    """This rank's part of a batch."""
    return x[rank::world_size].to(device)


# %% [markdown]
# # The core path
#
# ## 1. How many models are four copies?
#
# Training on one GPU takes too long. The simplest remedy: every rank has a **replica**, a copy of the whole model, and
# takes a different part of each batch, so four ranks process four times as much data in the same time. We begin with
# just that: four equal models, four different batches, one step, no communication.
#
# The folded cells have `fresh_model()`, the same small network each time; `digits`, scikit-learn's handwritten digits;
# and `my_part(x)`, this rank's part of a batch: `x[rank::world_size]`.

# %%
copies = dtlearn.predict.choice(
    "Four ranks start with equal parameters. Each makes one SGD step on its own 24 "
    "images. How many different models are there then?",
    {"A": "1", "B": "2", "C": "4"},
    id="ch03.copies",
)

# %%
# %%ranks
x, y = next(digits.batches(1, 96))  # the global batch, the same on every rank
alone = fresh_model()
optimizer = torch.optim.SGD(alone.parameters(), lr=0.1)
F.cross_entropy(alone(my_part(x)), my_part(y)).backward()
optimizer.step()
biases = alone.layers[-1].bias.tolist()

# %% jupyter={"source_hidden": true}
copies.reveal()

# %%
# %%ranks
print("biases of the last layer:", *[f"{b:.4f}" for b in biases[:4]])

# %% [markdown]
# The copies stay equal if three things hold:
#
# 1. They **start equal**: rank 0 broadcasts its parameters (and whatever else the model stores).
# 2. They all **step with the same gradient**: the mean of the gradients of all ranks.
# 3. They use the **same optimizer**, in the same state.
#
# Why the mean? Let $\ell_i$ be the loss of sample $i$, let rank $r$ have the samples $S_r$, and let every rank have $b$
# of them. Then the mean of the ranks' gradients is the gradient of the mean loss over all $Nb$ samples:
#
# $$\frac1N\sum_{r=0}^{N-1}\nabla\Big(\frac1b\sum_{i\in S_r}\ell_i\Big)\;=\;\nabla\Big(\frac1{Nb}\sum_{i}\ell_i\Big)$$
#
# So N ranks with $b$ samples each make, up to rounding, the step that one process would make with $Nb$ samples. The
# equation also says when data parallelism goes wrong: when the parts are not equally large, when a sum replaces the
# mean, or when something in the model depends on the whole batch.
#
# ## 2. Which rank sees which sample?
#
# A **sampler** gives each rank its sample indices. All ranks shuffle with the same seed, so they agree on the order
# without communication. Then rank $r$ takes positions $r$, $r+N$, $r+2N$, ... of that order. In torch this is
# `DistributedSampler`, given to an ordinary `DataLoader`; there is no `DistributedDataLoader`, which some texts name.

# %%
share = dtlearn.predict(
    "10 samples on 4 ranks. How many samples does each rank get in an epoch?",
    id="ch03.share",
)

# %%
# %%ranks -o seen
from dtlearn.data_parallel import DistributedSampler

shuffled = DistributedSampler(10, seed=7)  # rank and world size come from the group
epochs = []
for epoch in range(3):
    shuffled.set_epoch(epoch)
    epochs.append(list(shuffled))
epochs

# %% jupyter={"source_hidden": true}
share.reveal(len(seen[0][0]))

# %% jupyter={"source_hidden": true}
from dtlearn.viz import sample_grid, sample_words

by_epoch = [[indices[epoch] for indices in seen] for epoch in range(3)]
show(
    sample_grid(by_epoch, 10, label="10 samples on 4 ranks, as reported by the ranks"),
    alt=sample_words(by_epoch, 10),
)

# %% [markdown]
# `set_epoch` is easy to forget. Without it the seed, and so the order, is the same in every epoch: the second and
# third row of the picture would repeat the first. No error is raised; the model sees the same batches again and
# again.
#
# **Exercise 1.** Which rank sees which sample? Run the cell with `%%try` in place of `%%exercise` to see what your
# function returns before it is graded.

# %% exercise="ch03.shard_indices"

# %% [markdown]
# ## 3. How do gradients become one?
#
# After backward, each parameter holds a local gradient. The naive way averages them one parameter at a time. (Where
# nobody has a gradient it leaves zeros; exercise 2 does better.)

# %%
from dtlearn.data_parallel import naive

dtlearn.show_source(naive.average_gradients, docstring=False)

# %% [markdown]
# `NaiveDataParallel` wraps a model: it broadcasts rank 0's parameters at the start, and calls this function at the end
# of `backward()`. We try it on the course's `GPT`, a small language model; `corpus` has its text, and
# `next_token_loss` is its loss.

# %%
how_many = dtlearn.predict(
    "A GPT of 4 blocks has 69 parameter tensors. Two training steps with this "
    "function: how many all-reduce calls does each rank make?",
    id="ch03.calls",
)

# %%
# %%ranks --record naive_steps
from dtlearn.data_parallel.naive import NaiveDataParallel


def train(model, steps, lr=1e-3, factor=1):
    """Train with Adam; return this rank's losses. `factor` plants a bug in section 7."""
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


torch.manual_seed(rank)  # ranks start differently: the wrapper's broadcast must fix it
naive_model = NaiveDataParallel(GPT(GPTConfig()).to(device))
losses = train(naive_model, 2)
weight = naive_model.module.head.projection.weight.detach()

# %% jupyter={"source_hidden": true}
in_backward = naive_steps.select(rank=0, op="all_reduce")
how_many.reveal(len(in_backward), nbytes=in_backward.nbytes())

# %% [markdown]
# Are the models equal on all ranks? Compare the bits of a weight matrix, not a rounded sum:

# %%
bits = set(world.gather("weight.cpu().numpy().tobytes()"))
print(f"different versions of the last layer, bit by bit: {len(bits)}")

# %% [markdown]
# They are equal to the last bit. The ring all-reduce sums each chunk once, in one order, and copies the result to all
# ranks (chapter 2), so every rank gets the same bits; and equal models that step with equal gradients stay equal.
#
# **Exercise 2.** Average gradients with fewer calls, also for parameters without one.

# %% exercise="ch03.average_gradients"

# %% [markdown]
# ## 4. What is slow about it?
#
# Two things. Each call costs a latency. And all communication happens after backward, while the
# processors are idle. Here is one step of two ranks, with an **emulated link** of 1 Gb/s between them: no call ends
# sooner than it would there. The model is an MLP of 2.6 million parameters in ten layers. The batch size is chosen such
# that on a quiet machine forward and backward together take about as long as the communication. Of five recorded steps
# the fastest is drawn, here and below. Exposed time includes waiting for a rank that comes late; on a busy machine that
# can be much.

# %% tags=["nbval-ignore-output"] jupyter={"source_hidden": true}
from dtlearn.data_parallel import measure
from dtlearn.viz import bucket_timeline

gigabit = dtlearn.Link.named("1 Gb/s")
layers = (512,) * 11
trial = measure.Workload(layers, batch=16, bucket_cap_mb=1)
on_link = gigabit.seconds("all_reduce", trial.nbytes, 2)
backward = 2 / 3 * on_link  # forward has half as much arithmetic
# An emulated link delays what gloo sends between processors: these ranks do not use GPUs.
batch = dtlearn.run_ranks(measure.batch_for, 2, trial, backward, device="cpu")[0]
work = measure.Workload(layers, batch, bucket_cap_mb=1)
ways = ("naive", "ours", measure.TORCH)
steps = dtlearn.run_ranks(
    measure.record_on_rank, 2, work, ways, 5, record=True, link=gigabit, device="cpu"
).record
one_by_one = measure.fastest(steps, "naive")
show(
    bucket_timeline({"naive": one_by_one}, "A step with one all-reduce per parameter"),
    alt="Timeline of two ranks: forward and backward first, and only then 20 "
    "all-reduces, one after the other, during which both ranks compute nothing.",
)

# %% [markdown]
# ## 5. How can communication hide?
#
# The first remedy is to send fewer, larger messages: **buckets** of several gradients. The second is to send them
# early. Backward begins with the last layer, whose gradient is ready long before that of the first. So fill buckets
# from the last parameter to the first. Four layers of 2, 3, 1 and 2 MB, and buckets that are closed at 3 MB or more:
#
# | gradient that is ready | open bucket holds | |
# |---|---|---|
# | layer 4, 2 MB | 2 MB | stays open |
# | layer 3, 1 MB | 3 MB | bucket 0 closed: its all-reduce can start |
# | layer 2, 3 MB | 3 MB | bucket 1 closed |
# | layer 1, 2 MB | 2 MB | the rest is bucket 2 |
#
# When is a gradient ready? Autograd calls a hook at the moment when it is complete:

# %%
# %%ranks -r 0
model = MLP((64, 32, 32, 10)).to(device)
for name, parameter in model.named_parameters():
    parameter.register_post_accumulate_grad_hook(lambda p, name=name: print(name))
model(torch.randn(8, 64).to(device)).sum().backward()

# %% [markdown]
# With buckets, the hook of a bucket's last gradient launches its all-reduce with `async_op=True`: the call returns at
# once with a handle, whose `wait()` comes after backward. This is one recorded step, with an MLP of six layers and
# buckets of 2 MiB. The link carries one bucket at a time:

# %% tags=["nbval-ignore-output"] jupyter={"source_hidden": true}
from dtlearn.models import MLP
from dtlearn.sharing import gradient_buckets
from dtlearn.viz import ddp_picture

model = MLP((512,) * 7)
names = [name for name, _ in model.named_parameters()]
sizes = [4 * p.numel() for p in model.parameters()]
plan = gradient_buckets.plan_buckets(sizes, cap=2 << 20, first_cap=None)
six, ours = measure.Workload((512,) * 7, batch, bucket_cap_mb=2), ("ours",)
overlapped = dtlearn.run_ranks(
    measure.record_on_rank, 2, six, ours, 5, record=True, link=gigabit, device="cpu"
).record
show(
    ddp_picture(
        measure.fastest(overlapped, "ours"),
        plan,
        names,
        sizes,
        "DDP: from the model to the link",
    ),
    alt="Four columns, joined by arrows. First: six layers in the order of backward, the "
    "last one on top. Second: three buckets with the gradients of two layers each. Third: "
    "backward as a bar, with time downward; a line marks where both gradients of a bucket "
    "are there and its all-reduce is launched. Fourth: the all-reduces on the same time "
    "axis, one after the other, each until rank 0 saw its end. The last goes on after "
    "backward has ended: that part is exposed.",
)

# %% [markdown]
# A bar of the fourth column ends when rank 0 notices that the data have come. A rank whose cores are busy notices late:
# that bar is too long then, and the next one too short.
#
# Buckets are launched in the order of the plan, **not** in the order in which they become full. Ranks may compute
# their gradients in different orders, but the k-th all-reduce of a rank is matched with the k-th of the others.
# Launch what is ready first, and bucket 3 of one rank is added to bucket 4 of another: silently, if they have the
# same size.
#
# **Exercise 3, a stretch.** Overlap, with hooks. Beware of reading a result too early: in this exercise a tensor that
# is being reduced holds NaN.

# %% exercise="ch03.overlap_hooks"

# %% [markdown]
# `BucketedDataParallel` has buckets and hooks and nothing else. This is its core. `trained` are its parameters,
# `plan` the buckets, `flat` their buffers, `views` each parameter's part of them, and `missing` the gradients that
# each bucket still waits for.

# %%
from dtlearn.data_parallel import BucketedDataParallel

dtlearn.show_source(BucketedDataParallel.gradient_is_ready, docstring=False)
dtlearn.show_source(BucketedDataParallel.backward_ends, docstring=False)

# %% [markdown]
# Two details matter:
#
# - It divides **before** it sums. The largest float16 is 65,504, so a sum of 384 gradients can overflow even if
#   their mean does not. In return tiny gradients underflow: 2e-6 / 384 is 0 in float16. bfloat16 has the range of
#   float32, and neither problem.
# - A parameter without a gradient is sent as zeros when backward ends, because the other ranks wait for its bucket.
#
# ## 6. What does it gain?
#
# `torch.nn.parallel.DistributedDataParallel`, **DDP** for short, has buckets and hooks, too. So has the course's own
# `DistributedDataParallel`, in Python. First: are they the same? Three steps of Adam with each.

# %%
# %%ranks
from dtlearn.data_parallel import DistributedDataParallel
from dtlearn.models import max_difference, snapshot_gradients, snapshot_parameters

models = []
for kind in (DistributedDataParallel, torch.nn.parallel.DistributedDataParallel):
    torch.manual_seed(rank)  # ranks start differently: the wrapper broadcasts
    models.append(kind(GPT(GPTConfig()).to(device), bucket_cap_mb=0.1))
    train(models[-1], 3)
ours, theirs = (model.module for model in models)
for what in (snapshot_gradients, snapshot_parameters):
    difference = max_difference(what(ours), what(theirs))
    assert difference.value < 1e-5, difference
print("after 3 steps gradients and parameters agree within 1e-5")

# %% [markdown]
# Now the time, with the ten layers of section 4, in ten buckets. Five rounds are timed, each with four steps in turns:
# without communication, naive, ours, torch's. The answer is the median of the five ratios, naive to ours.

# %%
faster = dtlearn.predict(
    "The naive step of section 4, on the same link, now with buckets that are sent "
    "during backward. How many times as fast is a step?",
    id="ch03.faster",
)

# %% tags=["nbval-ignore-output"]
from dtlearn.models import in_turns

timed = dtlearn.run_ranks(measure.time_on_rank, 2, work, 5, link=gigabit, device="cpu")
took = in_turns.slowest(timed.values)

# %% tags=["nbval-ignore-output"] jupyter={"source_hidden": true}
faster.reveal(round(in_turns.ratio(took["naive"], took["ours"]), 1))

# %% tags=["nbval-ignore-output"] jupyter={"source_hidden": true}
show(
    bucket_timeline(
        {
            "naive": one_by_one,
            "ours": measure.fastest(steps, "ours"),
            "torch's": measure.fastest(steps, measure.TORCH),
        },
        "The same step in three ways",
        ranks=1,
    ),
    alt="Three timelines of rank 0 on one time axis: with one all-reduce per parameter "
    "all communication follows backward; with our buckets and with torch's it begins "
    "during backward, backward itself takes longer, and only the end of the "
    "communication is exposed.",
)
medians = [f"{way} {1e3 * sorted(took[way])[2]:.0f} ms" for way in took]
print("Median steps:", ", ".join(medians), "('local' does not communicate)")
ratios = [f"{a / b:.1f}" for a, b in zip(took["naive"], took["ours"], strict=True)]
print("Naive to ours, round by round:", ", ".join(ratios))

# %% [markdown]
# A step with overlap can take longer than the exposed time in the figure explains. Exposed is only the time in which a
# rank computes nothing. But communication also **slows down the computation** next to it: compare the times that the
# figure gives for backward. Here the threads that send share the CPU's cores with backward; on a GPU, NCCL's kernels
# occupy some of its multiprocessors and memory bandwidth. Gradients are also copied into buckets and out of them.
#
# These are measurements of a shared machine, and the steps drawn are not those timed. Run the cells again and they
# change; on a busy machine all of them grow, and torch's step may be no faster than the naive one.
#
# ## 7. How does it break?
#
# Suppose that you forget to divide by N. All gradients are then N times too large.

# %%
summed = dtlearn.predict.choice(
    "Four ranks train with Adam. One run averages the gradients, another sums them. "
    "How do the two loss curves differ?",
    {
        "A": "The run with sums diverges.",
        "B": "The run with sums learns four times as fast at first.",
        "C": "They are hardly distinguishable.",
    },
    id="ch03.summed",
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

# %% jupyter={"source_hidden": true}
(mean, mean_norm), (total, total_norm) = curves[0]["mean"], curves[0]["sum"]
summed.reveal(mean=mean_norm, sum=total_norm)
rank_table(
    [
        {"step": s, "loss, mean": f"{mean[s]:.3f}", "loss, sum": f"{total[s]:.3f}"}
        for s in (0, 4, 8, 11)
    ],
    caption="Adam, 4 ranks: the loss of rank 0",
)

# %% [markdown]
# So compare gradients with those of one process. A falling loss proves nothing.
#
# ## 8. How far does it scale?
#
# Each step all-reduces the gradients once: with a ring, each rank sends and receives $2\frac{N-1}{N}P$ bytes for $P$
# bytes of gradients, whatever the batch. And each rank stores the whole model, its gradients and the optimizer's state
# (chapter 8 counts them). More ranks save no memory; chapter 9 changes that.
#
# In **weak scaling** the work of a rank stays the same, and the global batch grows with N. In **strong scaling** the
# global batch stays the same: each rank computes less, and so hides less of an all-reduce. So compare samples or tokens
# per second, not steps.
#
# How much work hides an all-reduce? Take a transformer of $W$ parameters, with gradients of 2 bytes each. Backward
# takes about $4W$ floating-point operations per token. At $F$ operations per second, $T$ tokens on a GPU take $4WT/F$
# seconds. The all-reduce takes $2\frac{N-1}{N}\cdot 2W/\beta$ seconds at $\beta$ bytes per second in each direction. It
# can hide behind backward if
#
# $$T \;\ge\; \frac{N-1}{N}\,\frac{F}{\beta} \;\approx\; \frac F\beta$$
#
# **tokens per GPU**. The size of the model cancels. (With float32 gradients: twice as many.)

# %% jupyter={"source_hidden": true}
F_GPU = 4e14  # 40 % of the dense bf16 peak of an H100, 989 TFLOP/s
rank_table(
    [
        {"link per GPU, each way": name, "tokens per GPU": f"{F_GPU / beta:,.0f}"}
        for name, beta in (
            ("NVLink 4, 450 GB/s", 450e9),
            ("InfiniBand, 400 Gb/s", 50e9),
            ("InfiniBand, 200 Gb/s (25 GB/s)", 25e9),
            ("Ethernet, 10 Gb/s", 1.25e9),
        )
    ],
    caption="Fewest tokens per GPU and step that hide a bf16 all-reduce, at 400 TFLOP/s",
)

# %% [markdown]
# (NVIDIA's data sheet gives an H100 989 TFLOP/s in dense bf16; 400 are 40 % of it.) A GPU with 8,000 tokens per step (two
# sequences of 4,096) just about hides it on a link of 400 Gb/s, and is far from it on 10 Gb/s.
#
# And a model that exists: GPT-2 XL, 1.56 billion parameters, bfloat16 gradients, buckets of 25 MiB, 0.3 s of forward
# and 0.6 s of backward on each GPU (assumed, not measured). The optimizer's step is left out.

# %%
worth = dtlearn.predict(
    "With links of 10 Gb/s, how many GPUs (2, 4, 8, ...) does it take to process more "
    "samples per second than one GPU alone? (Calculate.)",
    id="ch03.worth",
)

# %% jupyter={"source_hidden": true}
from dtlearn.data_parallel import overlap_model
from dtlearn.viz import scaling

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
    "InfiniBand, 200 Gb/s": dtlearn.Link.named("InfiniBand"),
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


def first_faster(scales):
    return next(s.ranks for s in scales[1:] if s.throughput > scales[0].throughput)


two = predicted["10 Gb/s"][1]
worth.reveal(
    first_faster(predicted["10 Gb/s"]),
    step=two.step,
    one=predicted["10 Gb/s"][0].step,
    slow=first_faster(predicted["1 Gb/s"]),
)

# %% jupyter={"source_hidden": true}
show(
    scaling(
        predicted,
        title="GPT-2 XL, 16 sequences per rank",
        label="model: ring all-reduce, one link per rank",
    ),
    alt="Samples per second and efficiency over 1 to 64 ranks. With 200 Gb/s nearly all "
    "communication hides and efficiency stays near 100 percent. With 10 Gb/s two ranks "
    "process fewer samples than one, and efficiency falls to a third, then to a sixth; "
    "with 1 Gb/s to a few percent.",
)

# %% [markdown]
# On the slow links two ranks are **slower than one**: one rank needs no all-reduce at all. From two ranks to 64 the
# all-reduce grows only from $P$ to nearly $2P$ bytes per rank, so from there on throughput grows with N, at an
# efficiency that stays bad.
#
# **When to use it.** Whenever the model, its gradients and its optimizer's state fit into one GPU: nothing else is as
# simple, and it communicates once a step. It takes enough tokens per GPU to hide the all-reduce, and a global batch
# that may grow (Further, "How large may a batch be?"). When the model does not fit, chapter 9 divides the state, and
# chapters 10 to 14 the model. On slow links send less (chapter 5).

# %% [markdown]
# # Further
#
# Each section needs the core path's sections that its first line names, and nothing else of Further unless it says so.
# In a new session run the two folded cells at the top again, and the cells of the sections that are needed.
#
# | section | needs | exercise: minutes |
# |---|---|---|
# | What if data are streamed? | section 2 | |
# | Can one average parameters instead? | section 1 | |
# | How does one accumulate gradients? | section 6 | 4: 10 |
# | What if the parts are not equally large? | section 1 | 5: 10 |
# | What if a rank has more batches, or a parameter no gradient? | sections 2 and 6 | |
# | What does batch normalisation see? | section 1 | |
# | How does one evaluate on N ranks? | section 2 | 6: 12 |
# | How large is a bucket? | section 5 | 7: 12 |
# | What else does torch's DDP do? | section 6 | |
# | How large may a batch be? | section 1 | |
# | Does the prediction hold on this machine? | sections 4 to 8 | |
# | Which bugs hide in a training loop? | sections 2 and 3 | 8: 25 |
# | Where do the libraries do it? | section 6; the last column: chapter 9 | |
# | What is different on GPUs? | section 6, and "How does one accumulate gradients?" | |
# | Myths, and questions to check yourself | the core path, and what each names | |
#
# ## What if data are streamed?
#
# *Needs: section 2.* A stream has no indices to shuffle. There each rank must skip what the others take, and each
# worker process of its `DataLoader` what the other workers take. If the data lie in many files, give each rank whole
# files instead, so that nobody reads what it then discards: Hugging Face's
# `split_dataset_by_node(dataset, rank, world_size)` does so when the number of files is a multiple of the world size,
# and otherwise skips samples, as here.

# %%
# %%ranks
from itertools import islice

from torch.utils.data import DataLoader, IterableDataset, get_worker_info


class MyPart(IterableDataset):
    """Every (ranks x workers)-th sample of a stream."""

    def __init__(self, stream):
        self.stream = stream

    def __iter__(self):
        info = get_worker_info()  # None in the rank's own process
        worker, workers = (info.id, info.num_workers) if info else (0, 1)
        first, every = rank * workers + worker, world_size * workers
        return islice(iter(self.stream), first, None, every)


print(torch.cat(list(DataLoader(MyPart(range(14)), batch_size=2))).tolist())

# %% [markdown]
# Ranks 0 and 1 get one sample more than the others. If that makes one batch more, they wait for the others in it. For
# streams the usual remedy is to fix the number of steps of an epoch.
#
# ## Can one average parameters instead?
#
# *Needs: section 1.* Some texts let every rank step on its own gradient and average the **parameters** afterwards, as
# if that were the same. Is it? One step from equal copies, both ways, with two optimizers:


# %%
# %%ranks
def one_step(make_optimizer, average):
    model = fresh_model()
    optimizer = make_optimizer(model.parameters(), lr=1e-3)
    F.cross_entropy(model(my_part(x)), my_part(y)).backward()
    if average == "gradients":
        for p in model.parameters():
            dist.all_reduce(p.grad)
            p.grad /= world_size
    optimizer.step()
    if average == "parameters":
        for p in model.parameters():
            dist.all_reduce(p.data)
            p.data /= world_size
    return torch.cat([p.detach().flatten() for p in model.parameters()])


x, y = next(digits.batches(1, 96))
for make in (torch.optim.SGD, torch.optim.Adam):
    ways = [one_step(make, average) for average in ("gradients", "parameters")]
    same = (ways[0] - ways[1]).abs().max().item() < 1e-6
    print(f"{make.__name__}: same parameters: {same}")

# %% [markdown]
# The step of SGD is linear in the gradient, so the two agree, also with momentum. Adam's is not. And if ranks make
# several steps between two averages, they differ for SGD too: that is **local SGD**, a method of its own (chapter 5).
# In both cases the parameters that are averaged are copies of the same parameter. Some texts average $N$ different
# slices of the model, one from each rank; such a mean has no meaning.
#
# ## How does one accumulate gradients?
#
# *Needs: section 6.* A batch that does not fit into memory can be split into $k$ micro-batches whose gradients add up
# (**gradient accumulation**). Only the last of the $k$ backward passes needs to communicate. For the others DDP has
# `no_sync()`.

# %%
accumulated = dtlearn.predict.choice(
    "4 micro-batches. For the first 3, `loss.backward()` stands inside "
    "`with model.no_sync():`, and the forward pass outside. How many times does DDP "
    "average gradients?",
    {"A": "1: as intended", "B": "4: the context had no effect", "C": "An error"},
    id="ch03.synced",
)

# %%
# %%ranks --record accumulation
from contextlib import nullcontext

(x, y), k = next(corpus.batches(1, 32, 32)), 4
torch.manual_seed(0)
model = torch.nn.parallel.DistributedDataParallel(GPT(GPTConfig()).to(device))

for i, (part_x, part_y) in enumerate(
    zip(my_part(x).chunk(k), my_part(y).chunk(k), strict=True)
):
    loss = next_token_loss(model(part_x), part_y) / k
    with model.no_sync() if i < k - 1 else nullcontext():
        loss.backward()

# %% jupyter={"source_hidden": true}
accumulated.reveal(n=len(accumulation.select(rank=0, op="all_reduce")))

# %% [markdown]
# **Exercise 4.** Accumulate gradients, and communicate once.

# %% exercise="ch03.accumulate_with_no_sync"

# %% [markdown]
# Accumulation saves memory, and communication across ranks. It makes the arithmetic no faster, and only the last
# backward pass can hide an all-reduce.
#
# ## What if the parts are not equally large?
#
# *Needs: section 1.* The equation of section 1 assumed equal parts. In language models they are rarely equal: sequences
# have different numbers of tokens, and padding does not count.

# %%
uneven = dtlearn.predict(
    "Rank 0 has 30 tokens with a mean loss of 2.0, rank 1 has 10 tokens with a mean "
    "loss of 4.0. What is the mean loss over all tokens?",
    id="ch03.uneven",
)

# %% jupyter={"source_hidden": true}
uneven.reveal((30 * 2.0 + 10 * 4.0) / (30 + 10), of_means=(2.0 + 4.0) / 2)

# %% [markdown]
# **Exercise 5.** Weight by tokens.

# %% exercise="ch03.weighted_mean"

# %% [markdown]
# The package's version: DDP will divide by $N$, so multiply by $N$; and divide by the number of tokens of **all**
# ranks.

# %%
from dtlearn.data_parallel.samples import token_mean

dtlearn.show_source(token_mean.global_mean, docstring=False)
dtlearn.show_source(token_mean.scale_for_averaging, docstring=False)

# %% [markdown]
# The same mistake occurs in gradient accumulation, where micro-batches have different numbers of tokens. Hugging Face
# Transformers had it until October 2024. It was found because losses with and without accumulation did not match
# ([fix](https://github.com/huggingface/transformers/pull/34191)). Across ranks it was still there
# ([issue](https://github.com/huggingface/transformers/issues/34242)), and was fixed as an option,
# `average_tokens_across_devices` ([fix](https://github.com/huggingface/transformers/pull/34373)).
#
# ## What if a rank has more batches, or a parameter no gradient?
#
# *Needs: sections 2 and 6.* Suppose that rank 0 has 3 batches left and the others 2. In the third step rank 0 waits for an
# all-reduce that the others never call.

# %%
# %%ranks --expect deadlock
from dtlearn.data_parallel import DistributedDataParallel

few_x, few_y = digits.train_x[:8].to(device), digits.train_y[:8].to(device)
model = DistributedDataParallel(fresh_model())
for _ in range(3 if rank == 0 else 2):
    F.cross_entropy(model(few_x), few_y).backward()

# %% [markdown]
# This `DistributedDataParallel` is the course's own, in Python; torch's hangs in the same way. The padded sampler
# prevents this. Where the number of batches is unknown beforehand (a stream, or batches of equally many tokens), use
# `join()`: ranks that have finished contribute zeros until all have, and the mean still divides by $N$.

# %%
# %%ranks
model = DistributedDataParallel(fresh_model())
with model.join():
    for _ in range(3 if rank == 0 else 2):
        F.cross_entropy(model(few_x), few_y).backward()
print("done")

# %% [markdown]
# **A parameter without a gradient.** A layer that the loss does not depend on gets none, and DDP would wait for it.


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
# torch's DDP reports this one step later: "Expected to have finished reduction in the prior iteration before starting
# a new one". Look for the cause first; often an output of the model is missing from the loss. If the layer really is
# unused at times, `find_unused_parameters=True` searches the graph of each forward pass for unused parameters. That
# costs the search and a small all-reduce in every step.
#
# ## What does batch normalisation see?
#
# *Needs: section 1.* `BatchNorm` normalises by the mean and variance of the batch: here, of each rank's own part. With
# 32 images per rank this hardly matters; with two per rank the statistics are so noisy that the number of ranks changes
# the result. `SyncBatchNorm` uses the statistics of the global batch. It costs two more collectives per layer: an
# all-gather in the forward pass and an all-reduce in the backward pass. torch's refuses CPU tensors, so the course has
# its own.

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
try:
    torch.nn.SyncBatchNorm(5, device="cpu")(batch.cpu())
except ValueError as error:
    print("torch's, on the CPU:", error)

# %% [markdown]
# ## How does one evaluate on N ranks?
#
# *Needs: section 2.* Padding is right for training and wrong for evaluation: some samples count twice, and which ones
# depends on the number of ranks. The accuracy that a rank prints is that of its own part. And metrics cannot be
# averaged. A mean over batches weights a sample in a small batch more than one in a large batch. The mean of F1 scores
# is not the F1 score, even of equally large parts. What can be added up are **counts**.

# %% jupyter={"source_hidden": true}
# %%ranks -o measured
from torch.utils.data import DataLoader, TensorDataset

from dtlearn.data_parallel import (
    DistributedSampler,
    EvaluationSampler,
    evaluate,
    mean_of_means,
)
from dtlearn.data_parallel.samples import evaluation

test = TensorDataset(digits.test_x[:10], digits.test_y[:10])  # 10 images on 4 ranks
model = fresh_model()
learner = torch.optim.SGD(model.parameters(), lr=0.1)
for x, y in digits.batches(40, 96):  # the same on every rank: something to evaluate
    learner.zero_grad()
    F.cross_entropy(model(x.to(device)), y.to(device)).backward()
    learner.step()
padded = DataLoader(test, 2, sampler=DistributedSampler(test, shuffle=False))
exact = DataLoader(test, 2, sampler=EvaluationSampler(test))
own = evaluation.evaluate_locally(model, padded, num_classes=10)
means = [own.loss, own.accuracy, own.macro_f1]
means = torch.tensor(means, dtype=torch.float64, device=device)
dist.all_reduce(means)
rows = {
    "mean over batches, then over ranks": mean_of_means(model, padded, num_classes=10),
    "mean of the ranks' own metrics": evaluation.Means(*(means / world_size).tolist()),
    "counts added up": evaluate(model, padded, num_classes=10),
    "counts added up, no padding": evaluate(model, exact, num_classes=10),
    "one process": evaluation.evaluate_locally(
        model, DataLoader(test, 10), num_classes=10
    ),
}
{
    name: (f"{m.loss:.4f}", f"{m.accuracy:.3f}", f"{m.macro_f1:.3f}")
    for name, m in rows.items()
}

# %% jupyter={"source_hidden": true}
rank_table(
    [
        {"how": name, "loss": loss, "accuracy": accuracy, "macro F1": f1}
        for name, (loss, accuracy, f1) in measured[0].items()
    ],
    caption="The same model on the same 10 images; the first three rows count 12",
)

# %% [markdown]
# Each rank has 3 images, in a batch of 2 and one of 1: that makes the first row wrong. The second has the right
# accuracy of the 12 images, because the parts are equally large, but the wrong F1. The third is right for 12 images,
# 2 of them repeats. Only the fourth agrees with one process.
#
# **Exercise 6.** Count each sample once.

# %% exercise="ch03.global_accuracy"

# %%
from dtlearn.data_parallel.samples import evaluation

dtlearn.show_source(evaluation.evaluate, docstring=False)

# %% [markdown]
# ## How large is a bucket?
#
# *Needs: section 5.* Many small ones pay many latencies; a single large one is ready only at the end of
# backward, and nothing overlaps. PyTorch's default is 25 MiB, with a first bucket of 1 MiB, so that the link is busy
# soon (Li et al., "PyTorch Distributed", VLDB 2020, compare sizes).
#
# **Exercise 7.** Plan buckets.

# %% exercise="ch03.plan_buckets"

# %% [markdown]
# The package's plan, for the MLP of the figure in section 5:

# %%
from dtlearn.models import MLP
from dtlearn.sharing import gradient_buckets

dtlearn.show_source(
    gradient_buckets.plan_buckets,
    docstring=False,
    summary="The package's own: plan_buckets",
)
sizes = [4 * p.numel() for p in MLP((512,) * 7).parameters()]
for b in gradient_buckets.plan_buckets(sizes, cap=2 << 20, first_cap=None):
    print(f"bucket {b.index}, {b.nbytes:,} bytes: parameters", *b.parameters)

# %% [markdown]
# ## What else does torch's DDP do?
#
# *Needs: section 6.* The course's `DistributedDataParallel`, and torch's, broadcast buffers, such as BatchNorm's
# running means, before each forward pass (unless told not to). They let you replace the all-reduce by a communication
# hook (chapter 5). They can keep the gradients in the buckets, to save memory; and they find unused parameters.
#
# torch's DDP logs its buckets. Those of the two models of section 6:

# %%
# %%ranks -r 0
log = models[1]._get_ddp_logging_data()
print("bytes of torch's buckets, first step:", log["bucket_sizes"])
print("from then on:", log["rebuilt_bucket_sizes"])
own = models[0].buckets
print("ours:", ", ".join(str(b.nbytes) for b in own))
order = log["prev_iteration_grad_ready_order_indices"].split(", ")
print("order in which gradients were ready:", ", ".join(order[:12]), "...")

# %% [markdown]
# In the first step torch's DDP has **one** bucket with all gradients, and nothing overlaps. It records the order in
# which gradients become ready, and rebuilds its buckets from that, the same on all ranks as on rank 0. (With
# `find_unused_parameters=True` it does not.) So leave the first step out of measurements. Ours uses reverse
# registration order.
#
# **With `torch.compile`**, wrap first and compile the wrapped model. A compiled backward pass is one graph per
# compiled region, whose hooks would run only at its end; so the compiler splits the graph of a DDP model at the
# bucket boundaries, and each bucket can be sent when its part has run ([torch.compiler
# FAQ](https://docs.pytorch.org/docs/stable/torch.compiler_faq.html)).
#
# ## How large may a batch be?
#
# *Needs: section 1.* More ranks mean larger batches, and a large batch is not free: an epoch has fewer steps, so each
# has to go further. The **linear scaling rule** says: $k$ times the batch, $k$ times the learning rate, reached by a
# **warm-up** (Goyal et al. 2017, who trained ResNet-50 with batches of 8,192 in an hour). The reason: $k$ small steps,
# and one step on all their samples, go equally far if the gradient changes little in between. At the start it changes a
# lot, hence the warm-up.

# %% jupyter={"source_hidden": true}
from dtlearn.data_parallel.large_batch import learning_rate
from dtlearn.viz.data_parallel.large_batch import learning_rates

schedules = {}
for ranks in (8, 64):
    rule = learning_rate.WarmupThenCosine(
        warmup_steps=50, total_steps=500, start=8 / ranks
    )
    rate = learning_rate.linear_scaled_lr(0.1, 32 * ranks, 32 * 8)
    rates = [rate * rule(step) for step in range(500)]
    schedules[f"{ranks} ranks of 32 samples"] = rates
show(
    learning_rates(
        schedules,
        "Linear scaling with warm-up",
        "rate 0.1 for 256 samples",
        warmup_steps=50,
    ),
    alt="Learning rate over 500 steps: with 8 ranks it starts at 0.1 and falls along a "
    "cosine; with 64 ranks it rises from 0.1 to 0.8 within 50 steps and then falls "
    "along a cosine.",
)

# %% [markdown]
# How far does that go? Measure it: how many steps does the MLP need to reach a loss of 0.4, for each batch size, with
# the best of five learning rates? Neighbouring rates differ by a factor of 1.4. Each rank takes another seed, for the
# model and for the order of the data.

# %%
fewer = dtlearn.predict(
    "From a batch of 16 to a batch of 512, 32 times as many samples per step: how many "
    "times fewer steps?",
    id="ch03.fewer_steps",
)


# %% tags=["nbval-ignore-output"]
# %%ranks -o tried
def steps_to_reach(batch, lr, most, loss=0.4):
    """How many SGD steps until the loss of 256 images is below `loss`; at most `most`."""
    model = fresh_model(seed=rank)
    optimizer = torch.optim.SGD(model.parameters(), lr=lr)
    looked_at, labels = digits.train_x[:256].to(device), digits.train_y[:256].to(device)
    for step, (x, y) in enumerate(digits.batches(most, batch, seed=rank)):
        if step % 2 == 0 and F.cross_entropy(model(looked_at), labels) < loss:
            return step
        optimizer.zero_grad()
        F.cross_entropy(model(x.to(device)), y.to(device)).backward()
        optimizer.step()
    return most


def fewest_steps(batch):
    """With the best of five rates, 0.2 to 0.8; none is tried for longer than the best so far took."""
    fewest = 300
    for k in (2, 1, 3, 0, 4):
        fewest = steps_to_reach(batch, 0.2 * 2 ** (k / 2), most=fewest)
    return fewest


{b: fewest_steps(b) for b in (4, 16, 64, 512)}

# %% tags=["nbval-ignore-output"] jupyter={"source_hidden": true}
from dtlearn.data_parallel.large_batch import noise_scale

needed = {b: sorted(seed[b] for seed in tried) for b in tried[0]}
median = {b: (steps[1] + steps[2]) / 2 for b, steps in needed.items()}
least, critical = noise_scale.fit_steps(median)
fewer.reveal(round(median[16] / median[512], 1))

# %% tags=["nbval-ignore-output"] jupyter={"source_hidden": true}
from dtlearn.viz.data_parallel.large_batch import steps_over_batch

show(
    steps_over_batch(
        median,
        "Steps to a loss of 0.4",
        "measured: MLP on the digits, 4 seeds, best of 5 learning rates",
        lambda batch: noise_scale.steps_to_reach(batch, least, critical),
        critical_batch=critical,
        prediction="fitted: S (1 + B / batch)",
        spread={b: (steps[0], steps[-1]) for b, steps in needed.items()},
    ),
    alt="Steps over batch size, both logarithmic. The measured points follow the line "
    "of perfect scaling for small batches and level off for large ones; the shaded "
    "area between is what larger batches do not save.",
)

# %% [markdown]
# The curve bends at the **critical batch size**: there a run needs twice the least number of steps, and twice the
# least number of samples. It comes from the fit, and with another grid of learning rates it moves by some samples.
# Above it, larger batches mostly waste samples.
#
# McCandlish et al. (2018, section 2) predict it from the noise in the gradient, without training many times. Let $G$
# be the gradient over all data, and $\Sigma$ the covariance of the gradients of single samples. The gradient $G_B$ of
# a batch of $B$ samples has
#
# $$\mathbb E\,|G_B|^2 = |G|^2 + \frac{\mathrm{tr}\,\Sigma}{B}$$
#
# The second term is noise. At $B_\text{simple} = \mathrm{tr}\,\Sigma\,/\,|G|^2$, the **gradient noise scale**, noise
# and signal are equal. The next cell measures it by that definition, from the gradient of every single image, at
# several points of a run:

# %% tags=["nbval-ignore-output"] jupyter={"source_hidden": true}
# %%ranks -o noise
from torch.func import functional_call, grad, vmap


def gradient_noise(model, x, y):
    """tr Sigma and |G|^2 over the images x, from one gradient for each."""
    weights = {name: p.detach() for name, p in model.named_parameters()}

    def loss(weights, x, y):
        return F.cross_entropy(functional_call(model, weights, (x[None],)), y[None])

    each = vmap(grad(loss), in_dims=(None, 0, 0))(weights, x, y)
    each = [g.flatten(1) for g in each.values()]  # (images, weights) for each parameter
    trace = sum(g.var(dim=0).sum() for g in each)
    return trace.item(), sum(g.mean(dim=0).square().sum() for g in each).item()


images, labels = digits.train_x.to(device), digits.train_y.to(device)
model = fresh_model(seed=rank)
optimizer = torch.optim.SGD(model.parameters(), lr=0.3)
noise = {}
for step, (x, y) in enumerate(digits.batches(81, 64, seed=rank)):
    if step in (0, 20, 40, 80):
        loss = F.cross_entropy(model(images), labels).item()
        noise[step] = loss, *gradient_noise(model, images, labels)
    optimizer.zero_grad()
    F.cross_entropy(model(x.to(device)), y.to(device)).backward()
    optimizer.step()
noise

# %% tags=["nbval-ignore-output"] jupyter={"source_hidden": true}
rank_table(
    [
        {
            "step": step,
            "mean loss": f"{sum(seed[step][0] for seed in noise) / len(noise):.2f}",
            **{
                f"seed {r}": f"{trace / signal:.0f}"
                for r, seed in enumerate(noise)
                for _, trace, signal in [seed[step]]
            },
        }
        for step in noise[0]
    ],
    caption="tr(Sigma) / |G|^2 in samples, over all training images; batch 64, lr 0.3; "
    f"critical batch size from the fit above: {critical:.0f}",
)

# %% [markdown]
# The noise scale is not one number. It falls when the loss begins to fall, for some seeds about tenfold, and later
# differs between seeds. The critical batch size of the whole run is at the lower end of the table. So the prediction
# holds to an order of magnitude for the middle of the run, and the paper claims no more.
#
# Data parallelism measures it nearly for free: the squared norm of each rank's own gradient (small batch) and that of
# the mean (large batch) give two equations with two unknowns, for one more number to send per step. Single estimates
# are very noisy, so average numerator and denominator over many steps.

# %%
dtlearn.show_source(noise_scale.noise_estimate, docstring=False)

# %% [markdown]
# For larger batches LARS and LAMB give each layer its own step length (You et al. 2017 and 2019;
# both are in `dtlearn.data_parallel`). And the batch can grow during training: in the long runs of McCandlish et al.
# the noise scale grows as the loss falls.
#
# ## Does the prediction hold on this machine?
#
# *Needs: sections 4 to 8.* The model of section 8 for the MLP of section 4: take the step of one rank and the emulated
# link of 1 Gb/s, and predict two and four ranks.

# %% tags=["nbval-ignore-output"] jupyter={"source_hidden": true}
import os

ten = [4 * p.numel() for p in MLP(layers).parameters()]
ten_buckets = [
    b.nbytes for b in gradient_buckets.plan_buckets(ten, cap=1 << 20, first_cap=None)
]
median_of = {2: {way: sorted(took[way])[2] for way in ("local", "ours")}}
for N in (1, 4):
    timed = dtlearn.run_ranks(
        measure.time_on_rank, N, work, 5, ("local", "ours"), link=gigabit, device="cpu"
    )
    rounds = in_turns.slowest(timed.values)
    median_of[N] = {way: sorted(rounds[way])[2] for way in rounds}
local = median_of[1]["local"]
one_rank = overlap_model.timeline(
    overlap_model.ready_times(ten_buckets, backward=2 / 3 * local),
    ten_buckets,
    lambda n: 0.0,
    forward=local / 3,
)
expected = overlap_model.predict(
    one_rank, work.batch, (1, 2, 4), lambda n, N: gigabit.seconds("all_reduce", n, N)
)
observed = [
    overlap_model.Scale(
        N,
        N * work.batch,
        local,
        max(0.0, (median_of[N]["ours"] if N > 1 else local) - local),
    )
    for N in sorted(median_of)
]
show(
    scaling(
        {"1 Gb/s": expected},
        {"1 Gb/s": observed},
        cores=os.cpu_count(),
        title="The MLP of section 4 on this machine",
        label=f"emulated link: {gigabit}; forward taken as a third of the step",
    ),
    alt="Predicted curve and measured points for 1, 2 and 4 ranks on an emulated link "
    "of 1 Gb/s. The measured points lie below the curve, furthest where there are more "
    "ranks than cores.",
)
alone = [f"{1e3 * m['local']:.0f} ms" for _, m in sorted(median_of.items())]
print("A step without communication, on 1, 2 and 4 ranks:", ", ".join(alone))

# %% [markdown]
# The measured points lie below the curve. On a quiet machine the printed line says why: it shows how much slower
# a step is when all ranks compute at once. They share the machine's memory bandwidth and, with more ranks than cores,
# take turns on the cores. None of that is communication. What remains is the slowdown of backward by the transfers
# next to it, which the model leaves out (section 6). Measure scaling where each rank has its own device.
#
# ## Which bugs hide in a training loop?
#
# *Needs: sections 2 and 3.* A training loop with three bugs. Bugs of all three kinds were found, and fixed, in public
# projects.
#
# **Exercise 8.** Find three bugs.

# %% exercise="ch03.bug_hunt"

# %% [markdown]
# <details><summary>Where such bugs were fixed (gives the answer away)</summary>
#
# - The order of an epoch: PyTorch Lightning never called `set_epoch` for distributed *batch* samplers, so their order
#   never changed ([fixed in 2022](https://github.com/Lightning-AI/pytorch-lightning/pull/13396)).
# - Gradient clipping: Determined clipped gradients when their averaging had perhaps not finished ([fixed in
#   2020](https://github.com/determined-ai/determined/pull/602)).
# - Early stopping: in YOLOv5 only rank 0 left the training loop, and the others hung. The feature was [merged with
#   that known](https://github.com/ultralytics/yolov5/pull/4576) in 2021, switched off for several GPUs, and [fixed in
#   2022](https://github.com/ultralytics/yolov5/pull/8345) by broadcasting the decision. In `as_found` every rank
#   decides by its own loss; the effect is the same.
# </details>
#
# ## Where do the libraries do it?
#
# *Needs: section 6; the last column: chapter 9.*
#
# | | `nn.DataParallel` | `DistributedDataParallel` | FSDP (`fully_shard`) |
# |---|---|---|---|
# | processes | one, a thread per GPU | one per GPU | one per GPU |
# | machines | one | many | many |
# | the model | copied to all GPUs in every forward pass | a copy per rank, all the time | a shard per rank |
# | gradients | added up on GPU 0 | mean, all-reduce in buckets | mean, reduce-scatter: each rank its shard |
# | the optimizer steps | on GPU 0 | on every rank, all parameters | on every rank, its shard |
# | limits | Python's global interpreter lock; GPU 0's memory | the model has to fit into one GPU | more communication: chapter 9 |
# | today | its documentation recommends DDP instead | the default | for models that do not fit |
#
# Baidu brought the ring all-reduce of supercomputers to deep learning in 2017. **Horovod** (Sergeev and Del Balso 2018)
# made it easy to use, with an optimizer wrapper for TensorFlow, Keras and PyTorch alike: `hvd.init()`, a broadcast, and
# `DistributedOptimizer`. In each step its ranks negotiate which gradients are ready everywhere, and fuse them into a
# buffer; buckets in a fixed order need no negotiation. Most PyTorch users have since moved to DDP. TensorFlow's
# `MirroredStrategy` (one machine) and `MultiWorkerMirroredStrategy` do the same with mirrored variables and all-reduced
# gradients.
#
# **A script to take home.** The package's training script has all of this chapter, and resumes after a crash: the
# sampler, DDP (ours or torch's), accumulation, warm-up, evaluation, checkpoints, TensorBoard.

# %% tags=["nbval-ignore-output"]
# %%launch -n 2 -- --task text --epochs 6
from dtlearn.train.__main__ import main

main()

# %% [markdown]
# ## What is different on GPUs?
#
# *Needs: section 6, and "How does one accumulate gradients?".* The cells of this chapter's world run on NCCL when each rank has a GPU; the emulated link stays on
# the CPU. There backward only *enqueues* kernels, and the all-reduces run on a stream of their own. `torch.profiler`
# draws section 5's picture: check whether NCCL's kernels run at the same time as those of backward, or after them.
# Measure what is exposed as a step of DDP, less one inside `no_sync()`, which sends nothing; and leave the first steps
# out. Chapter 14 relates the time of a step to the peak of the hardware (MFU), and combines DDP with other strategies:
# there a `DeviceMesh` says which ranks hold copies of the same shard.

# %% [markdown]
# ## Myths, and questions to check yourself
#
# *Needs: the core path, and what each names.*
#
# **"DDP sums the gradients."** It averages. A sum would change the learning rate with the number of ranks.
#
# **"DDP updates the parameters on rank 0 and broadcasts them."** Every rank steps, with equal gradients. Parameters
# are broadcast once, at the start; buffers before each forward pass.
#
# **"Each rank steps with 1/N of its gradient, and the results are averaged."** Averaging already divides by N. This
# makes the learning rate N times smaller.
#
# **"N GPUs train N times as fast."** N ranks process up to N times the samples. Whether fewer *steps* are needed
# depends on the noise in the gradients; beyond some size a larger batch saves little, however many samples the data set
# has ("How large may a batch be?").
#
# **"The finer the batch is divided, the better the devices are used."** The all-reduce costs the same, however small
# a rank's part. With less to compute, more of it is exposed (section 8).
#
# **"Data parallelism has the highest speed-up of all strategies."** It sends the gradients of the whole model in
# every step, and needs memory for the whole model on every device. On the 10 Gb/s link above, two ranks are slower
# than one. No strategy is best everywhere; chapter 14 compares them.
#
# **"Give every process the whole data set, DDP does the rest."** Then all ranks do the same work, and their mean is
# one rank's gradient: N times the cost, no speed-up. A widely copied tutorial does that.
#
# **"DistributedSampler drops the remainder."** It pads: some samples count twice, unless `drop_last=True`.
#
# **"Set a different sampler seed on each rank."** Then ranks shuffle differently: some samples are used twice, others
# never. Different seeds are for dropout and augmentation.
#
# ### Check yourself
#
# <details><summary>("How does one evaluate on N ranks?") 1,000 test samples on 16 ranks with a padded sampler. How many samples does a plain sum of the ranks' counts
# have?</summary>
#
# 1,008: ceil(1000/16) = 63 each. Eight are counted twice.
# </details>
#
# <details><summary>("What if the parts are not equally large?") Rank 0 trained on 1,000 tokens in this step, rank 1 on 3,000, each with its own mean loss under DDP. What
# weight has a token of rank 0, compared with one of rank 1?</summary>
#
# Three times the weight: each rank's mean counts one half, and is spread over 1,000 or 3,000 tokens.
# </details>
#
# <details><summary>Your script runs under torchrun on 8 GPUs without a sampler. The loss falls as on one GPU. What is
# wrong?</summary>
#
# All ranks see the same batches. Their gradients are equal, and so is the mean: 8 times the cost of one GPU, for the
# same step.
# </details>
#
# <details><summary>A model of 1 billion parameters, float32 gradients, 64 ranks with links of 12.5 GB/s each way. How long does
# the all-reduce of a step take at least?</summary>
#
# 2 x 63/64 x 4 GB / 12.5 GB/s = 0.63 s. If backward takes longer than that, nearly all of it can hide.
# </details>
#
# <details><summary>Which part of the communication can never hide behind backward, however small the buckets?</summary>
#
# The bucket with the first layer's gradients: it is ready when backward ends.
# </details>
#
# <details><summary>("How large may a batch be?") 8 ranks, batch 32 each, lr 0.1. You move to 64 ranks with batch 32 each. What does linear scaling
# say?</summary>
#
# The global batch is 8 times as large: lr 0.8, reached by a warm-up over some epochs.
# </details>
#
# ## Glossary
#
# {glossary}
#
# Next: chapter 4 keeps the weights in one place instead.
