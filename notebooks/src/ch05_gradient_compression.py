# %% [markdown]
# # Chapter 5. Gradient compression and rare averaging
#
# **The question.** How little can we send?
#
# Builds on: chapters 2 and 3. Ranks: 4. Time: an evening of 70 minutes for the core path; the sections of "Further" in
# any order, when you need them.
#
# | core path | what | minutes |
# |---|---|---|
# | 1. A step that waits for its link | DDP on a slow link | 4 |
# | 2. Only the largest | top-k, without and with a memory | 8, and exercise 1: 18 |
# | 3. The page | error feedback, a hook for DDP | 4 |
# | 4. Six codecs, measured | loss over steps, bytes and seconds | 6 |
# | 5. Break it | what an all-reduce adds up | 3 |
# | 6. Speak rarely | local steps, DiLoCo | 8, and exercise 2: 14 |
# | 7. When does it pay? | the arithmetic | 5 |
#
# After it you can say for a given link what to compress, what it costs in loss and in time, and why error feedback is
# not optional.

# %% jupyter={"source_hidden": true}
# %load_ext dtlearn
import torch

import dtlearn
from dtlearn import gradient_compression as gc
from dtlearn.gradient_compression.comparing import compare
from dtlearn.viz import rank_table, show

torch.set_num_threads(1)  # small tensors: more threads would only wait for each other
world = dtlearn.world(4)
world

# %% [markdown]
# # The core path
#
# ## 1. A step that waits for its link
#
# In data parallelism every step ends with an all-reduce of all gradients. On NVLink that is cheap. Over Ethernet, or
# between two data centres, it can take longer than the computing.

# %%
slow = dtlearn.predict(
    "A model of 26,122 parameters in fp32, 4 ranks, a link that carries 12.5 MB/s each way (100 Mb/s) and has a latency of 0.1 ms. "
    "How long does a ring all-reduce of the gradients take?",
    unit="ms",
    id="ch05.slow",
)

# %% [markdown]
# On real ranks with such a link: `compare` trains the same model in turn with each method that it is given, here only
# with the plain mean, and takes the bytes and seconds of every step from the record. (The link is **emulated**: it
# holds back what gloo sends, so these runs are on the processor.)

# %% tags=["nbval-ignore-output"]
link = dtlearn.Link.named("100 Mb/s")
for where in (None, link):
    (run,) = compare(["no compression"], "digits", steps=20, link=where)
    print(f"{run.label}: {1e3 * sorted(run.seconds)[10]:.1f} ms a step")

# %% jupyter={"source_hidden": true}
slow.reveal(round(1e3 * link.seconds("all_reduce", 4 * 26_122, 4), 1))

# %% [markdown]
# What the link adds is waiting. (How much of a step that is depends on your machine: on a busy one, ranks that wait for
# a processor wait for the link meanwhile.) There are four ways to wait less: send **fewer bits** of each number, **fewer numbers** of
# each gradient, or **fewer gradients** (this chapter); or send them in a better order (chapter 6).
#
# ## 2. Only the largest
#
# The elements of a gradient are of very different size:

# %%
from dtlearn.models import MLP, load_digits

digits = load_digits()
x, y = next(digits.batches(1, 96))
torch.manual_seed(0)
model = MLP()
torch.nn.functional.cross_entropy(model(x), y).backward()
gradient = torch.cat([p.grad.flatten() for p in model.parameters()])  # (26122,)
largest = gradient.square().sort(descending=True).values
for percent in (1, 10):
    part = largest[: len(largest) * percent // 100].sum() / largest.sum()
    print(f"the largest {percent} % have {part:.0%} of the squared norm")

# %% [markdown]
# So why send the small ones? **Top-k** sends the k elements of largest magnitude, each with its index, and throws the
# rest away. Each rank picks its own.

# %%
never = dtlearn.predict.choice(
    "With k = 1 % of the elements, in each step a rank sends a small part of its gradient, though the part with the largest elements. "
    "The same 100 steps of SGD as with whole gradients: how does the loss fall?",
    {
        "A": "nearly as fast: the large elements decide where a step goes",
        "B": "far more slowly: 99 % of the gradient is missing in every step",
        "C": "not at all: the mean of different elements points nowhere",
    },
    id="ch05.never",
)

# %% jupyter={"source_hidden": true} tags=["nbval-ignore-output"]
from dtlearn.gradient_compression.comparing import hooked
from dtlearn.sharing.comm_hooks import allreduce_hook
from dtlearn.viz import loss_over_cost, loss_words

without = compare(
    ["no compression", "top-k, no feedback"], "digits", steps=100, link=link
)
plain, no_memory = without
show(
    loss_over_cost(without, title="Top-k that throws the rest away", only_steps=True),
    alt="The loss of two runs over steps. " + loss_words(without),
)

# %% jupyter={"source_hidden": true}
never.reveal(dense=f"{plain.held_out:.1f}", sparse=f"{no_memory.held_out:.1f}")

# %% [markdown]
# What is small in every step can still matter, if it always points the same way. Two coordinates, of which one may be
# sent in each step (k = 1). The first swings, the second is steady:
#
# | step | gradient | without a memory: sent | kept | gradient + kept | with a memory: sent | kept now |
# |---|---|---|---|---|---|---|
# | 1 | (1.0, 0.3) | first: 1.0 | (0, 0) | (1.0, 0.3) | first: 1.0 | (0, 0.3) |
# | 2 | (-0.8, 0.3) | first: -0.8 | (0, 0.3) | (-0.8, 0.6) | first: -0.8 | (0, 0.6) |
# | 3 | (0.7, 0.3) | first: 0.7 | (0, 0.6) | (0.7, 0.9) | second: 0.9 | (0.7, 0) |
# | 4 | (-0.6, 0.3) | first: -0.6 | (0.7, 0) | (0.1, 0.3) | second: 0.3 | (0.1, 0) |
# | sum | (0.3, 1.2) | (0.3, 0) | | | (0.2, 1.2) | (0.1, 0) |
#
# Without a memory all four messages are spent on the swinging coordinate, and the steady one never moves. **Error
# feedback** keeps what was not sent, the **residual** e, and adds it to the next gradient: with C for what the codec
# makes of a vector,
#
# $$ c = C(g + e), \qquad e \leftarrow g + e - c. $$
#
# Look at the last row: sent + kept = given. Nothing is lost, it only comes later; and what cancels out while it waits
# is never sent at all. (What waits here are gradients. The papers keep whole steps, learning rate included: after a drop of
# the rate, our residual is sent with the new one.)

# %% [markdown]
# **Exercise 1.** Top-k with error feedback, under a byte budget.

# %% exercise="ch05.topk_feedback"

# %% [markdown]
# The same on a real gradient: one coordinate of rank 0 over 50 steps, with k = 1 % of the elements.

# %%
# %%ranks --setup
import torch.nn.functional as F

from dtlearn import gradient_compression as gc
from dtlearn.models import MLP, load_digits

batches = list(load_digits().batches(100, 96))


def fresh_model():
    torch.manual_seed(0)
    return MLP().to(device)


def my_part(number):
    """This rank's part of a batch."""
    return tuple(t[rank::world_size].to(device) for t in batches[number])


# %%
# %%ranks
model, history = fresh_model(), []
optimizer = torch.optim.SGD(model.parameters(), lr=0.3)
parameters, codec = list(model.parameters()), gc.TopK(ratio=0.01)
feedback = gc.ErrorFeedback(codec)
for number in range(50):
    x, y = my_part(number)
    optimizer.zero_grad()
    F.cross_entropy(model(x), y).backward()
    own = torch.cat([p.grad.flatten() for p in parameters])  # (n,)
    sent = codec.decode(feedback.encode(own, parameters), len(own))
    history.append((own, sent, codec.decode(codec.encode(own), len(own))))
    dist.all_reduce(mean := sent / world_size)
    for p, part in zip(
        parameters, mean.split([p.numel() for p in parameters]), strict=True
    ):
        p.grad.copy_(part.view_as(p))
    optimizer.step()
all_gradients, all_sent, all_without = map(torch.stack, zip(*history, strict=True))

# %% jupyter={"source_hidden": true}
# %%ranks -o followed
never_sent = all_without.count_nonzero(0) == 0  # by top-k alone
steady = all_gradients.sum(0).abs().where(never_sent, 0).argmax()
one = [h[:, steady].tolist() for h in (all_gradients, all_sent, all_without)]
one, never_sent.sum().item()

# %% jupyter={"source_hidden": true} tags=["nbval-ignore-output"]
from dtlearn.viz import coordinate_over_steps

one, never_sent = followed[0]
times = sum(value != 0 for value in one[1])
show(
    coordinate_over_steps(*one, label="recorded on rank 0; digits, top-k with k/n = 1 %"),
    alt=f"Above, three sums over 50 steps. The sum of the gradients moves steadily one way; what was sent with error feedback "
    f"follows it in {times} jumps; what top-k alone would have sent stays at zero. Below, what is kept with feedback "
    "grows and returns to zero at each jump; without it, what is lost only grows.",
)

# %% [markdown]
# It is one of the many coordinates that top-k alone never sends in these steps, the one whose gradients add up to most.
# With error feedback it is sent a few times, each time with all that has come together.
#
# ## 3. The page
#
# DDP has a place for this, a **communication hook**: DDP calls it with each bucket of gradients that is full, in place
# of its all-reduce. The hook returns a **future**, a promise of the tensor that takes the bucket's place; DDP waits for
# it at the end of backward. What a hook has to remember is its state.

# %%
from dtlearn.gradient_compression import page_error_feedback

dtlearn.show_source(page_error_feedback)

# %% [markdown]
# Four things to look at twice:
#
# - The residuals are kept **by parameter**. torch's DDP makes its buckets anew after the first step; a residual that
#   belongs to "bucket 0" would be added to other parameters.
# - There is no all-reduce. The ranks picked different elements: adding up their k values would mix what does not belong
#   together. All values and indices are **gathered** by everybody.
# - The result is the *mean*. With a hook, DDP itself no longer divides by N.
# - The page keeps to the idea: its hook waits for the others, where a real one gives back a future at once (Further, "A
#   hook of your own"), and it sends the indices as int64, as torch has them: 12 bytes an element, where 8 would do.

# %%
gathered = dtlearn.predict(
    "26,122 gradients on 4 ranks, k = 262. Let an element be sent as 4 bytes of value and 4 bytes of index; every rank needs those of "
    "all others. How many bytes leave a rank in a step?",
    unit="bytes",
    id="ch05.gathered",
)

# %% [markdown]
# ## 4. Six codecs, measured
#
# A **codec** is what makes a message of a gradient, and a gradient of a message. In the package a codec is a pure
# function that knows nothing of ranks; `compress_hook` sends what any codec makes, with error feedback if it needs one.
# The usual ones:
#
# | codec | what it sends of n elements | needs error feedback? |
# |---|---|---|
# | fp16 | each in 16 bits | no: the error is small (below 6e-8 all is lost: chapter 7) |
# | QSGD | each as one of a few levels, rounded up or down **by chance** | no: right on average |
# | sign | each in **one bit**, and the mean of their magnitudes | yes |
# | top-k | k of them, with their indices | yes |
# | random-k | k of them that chance picks, with their indices | yes |
# | PowerSGD | of each a x b matrix two thin ones, r (a + b) numbers | yes |
#
# On the emulated link of 100 Mb/s, each method from the same parameters, with the same batches:

# %% jupyter={"source_hidden": true}
SIX = ["fp16", "QSGD", "sign", "top-k", "random-k", "PowerSGD"]
measured = [plain, *compare(SIX, "digits", steps=100, link=link)]
of_topk = next(run for run in measured if run.name == "top-k")
gathered.reveal(round(of_topk.sent[0]))

# %% jupyter={"source_hidden": true} tags=["nbval-ignore-output"]
from dtlearn.notebook.panels import Slider, slider_panel


def draw_methods(method):
    title = "Digits: what each method gets for its bytes"
    highlight = None if method == "all" else method
    return loss_over_cost(measured, target=0.5, highlight=highlight, title=title)


slider_panel(
    draw_methods,
    alt="Three panels of the loss. " + loss_words(measured),
    method=Slider(
        ("all", *(run.name for run in measured)), "all", "method that stands out"
    ),
)

# %% [markdown]
# Look at top-k and the grey band first, one panel at a time; the slider lets one method stand out. Random-k is a foil: with feedback nothing is lost, but an
# element waits for its turn 100 steps on average. Three readings. Over **steps** the plain mean is hard to beat, and nobody promised otherwise: a codec can only lose
# information. Over **bytes** all but random-k win: to the
# same loss top-k needs some twenty times fewer, though each of its *steps* sends 25 times less. Over **seconds**, which is what one pays for, the order
# is another one again: encoding and decoding take time, and some spend
# most of what they save on their own computing.
# (Which of them wins hangs on the link and on the machine: section 7.)
#
# ## 5. Break it
#
# The most natural mistake: gradients are averaged by an all-reduce, so why not the k values? Here each rank's values
# are added to the other ranks' by their place in the message, and put back at the rank's own indices.

# %%
careless = dtlearn.predict.choice(
    "What happens?",
    {
        "A": "an error: the messages do not fit",
        "B": "a hang",
        "C": "training goes on, with a wrong mean that is the same on all ranks",
        "D": "training goes on, and every rank gets a model of its own",
    },
    id="ch05.careless",
)


# %%
# %%ranks -o apart
def careless_step(model, number, k=262):
    x, y = my_part(number)
    model.zero_grad()
    F.cross_entropy(model(x), y).backward()
    for p in model.parameters():
        flat = p.grad.flatten()
        indices = flat.abs().topk(min(k, len(flat))).indices
        values = flat[indices] / world_size
        dist.all_reduce(values)
        p.grad = torch.zeros_like(flat).index_put_((indices,), values).view_as(p)


model = fresh_model()
optimizer = torch.optim.SGD(model.parameters(), lr=0.3)
for number in range(20):
    careless_step(model, number)
    optimizer.step()
torch.cat([p.detach().flatten() for p in model.parameters()])

# %%
same = all(torch.equal(apart[0], other) for other in apart)
print("the same model on all ranks:", same)

# %% jupyter={"source_hidden": true}
careless.reveal()

# %% [markdown]
# Nothing raises, nothing hangs: every rank made the same calls with the same sizes. But each put the sums to other
# places, and there is no one model any more. A rule for every hook: **let the ranks compare a checksum of their
# parameters now and then.** A sum by all-reduce is right only if
# equal places mean equal elements on all ranks.
#
# ## 6. Speak rarely
#
# The other way: whole gradients, but not in each step. In **local SGD** each rank steps alone, with its own gradients,
# and after every H steps the ranks average their *parameters*. Bytes per step: an H-th.

# %%
equal = dtlearn.predict.choice(
    "With H = 1 the ranks average their parameters after each step, in place of their gradients before it. For which optimizers is "
    "that the same as DDP?",
    {
        "A": "for all: the mean of the steps is the step of the mean",
        "B": "for SGD, also with momentum",
        "C": "for SGD without momentum only: momenta would have to be averaged, too",
        "D": "for none",
    },
    id="ch05.equal",
)


# %%
# %%ranks -o differences
def trained(make_optimizer, average_parameters, steps=5):
    model = fresh_model().double()
    optimizer = make_optimizer(model.parameters())
    for number in range(steps):
        x, y = my_part(number)
        optimizer.zero_grad()
        F.cross_entropy(model(x.double()), y).backward()
        if not average_parameters:
            gc.average_tensors([p.grad for p in model.parameters()])
        optimizer.step()
        if average_parameters:
            gc.average_tensors(list(model.parameters()))
    return torch.nn.utils.parameters_to_vector(model.parameters())


def difference(make):
    return (trained(make, True) - trained(make, False)).abs().max().item()


OPTIMIZERS = {
    "SGD": lambda ps: torch.optim.SGD(ps, lr=0.1),
    "SGD with momentum": lambda ps: torch.optim.SGD(ps, lr=0.1, momentum=0.9),
    "Adam": lambda ps: torch.optim.Adam(ps, lr=1e-3),
}
{name: difference(make) for name, make in OPTIMIZERS.items()}

# %% jupyter={"source_hidden": true}
for name, apart_by in differences[0].items():
    print(f"{name}: {'the same, up to rounding' if apart_by < 1e-10 else 'not the same'}")
equal.reveal()

# %% [markdown]
# With H > 1 they differ for every optimizer: each rank's second gradient is taken where *it* has gone. The ranks drift
# apart, more so if their data differ, and the mean of places is not where the mean of gradients would have led.
#
# **DiLoCo** (Douillard et al. 2023, arXiv 2311.08105) treats what the ranks have moved together as a gradient. With θ
# for the parameters that all ranks began from, and θ_i for where rank i has come:
#
# 1. **Inner steps**: each rank makes H steps of AdamW alone. Its moments stay on the rank, for ever.
# 2. The **pseudo-gradient** is the mean of θ - θ_i over the ranks: one all-reduce.
# 3. **Outer step**: an optimizer of its own, SGD with Nesterov momentum, takes it as the gradient of θ.
# 4. All ranks begin again at the new θ.
#
# The sign is worth a thought. An optimizer *subtracts* its gradient. The ranks moved by θ_i - θ, and θ should move the
# same way: so the gradient is θ - θ_i.

# %% [markdown]
# **Exercise 2.** DiLoCo's outer step.

# %% exercise="ch05.outer_step"

# %% [markdown]
# The whole method is a page:

# %%
from dtlearn.gradient_compression import page_diloco

dtlearn.show_source(page_diloco)

# %% [markdown]
# The package's `DiLoCo` adds buffers, frozen parameters and a state for checkpoints. With H = 8, and beside it AdamW with
# the mean gradient in every step:


# %% jupyter={"source_hidden": true} tags=["nbval-ignore-output"]
def adamw(model, task):
    return torch.optim.AdamW(model.parameters(), lr=task.adam_lr)


RARE = [
    "local SGD",
    "post-local SGD",
    hooked("AdamW, every step", lambda: None, allreduce_hook, adamw),
    "DiLoCo",
    "streaming DiLoCo",
]
*rare, streaming = compare(RARE, "digits", steps=100, link=link)
beside = [plain, *rare]
show(
    loss_over_cost(beside, target=0.5, title="Digits: averaging every 8 steps"),
    alt="Three panels of the loss. " + loss_words(beside),
)

# %% [markdown]
# (**Post-local SGD** averages gradients at first, here for eight steps, and goes local then. Compare the two local ones
# with the grey band, whose optimizer is SGD too, and DiLoCo with AdamW.) DiLoCo's loss wobbles a little: 100 steps are only
# twelve outer ones, with a momentum of 0.9. The paper has H = 500, and workers that
# are whole clusters; eight of them, which began from a model that was pretrained in the usual way, sent 500 times less
# and reached the quality of synchronous training.
#
# ## 7. When does it pay?
#
# A codec saves bytes and costs time. On a link of β bytes/s with latency α, N ranks, Ψ bytes of gradients and a payload
# of b bytes:
#
# | | leaves a rank | messages that follow each other | own computing |
# |---|---|---|---|
# | ring all-reduce of the gradients | $2 \frac{N-1}{N} Ψ$ | $2 (N-1)$ | |
# | all-gather of the payloads | $(N-1)\, b$ | $N-1$ | encode once, decode N payloads |
#
# Divide bytes by β, multiply messages by α, and add. (Further has an exercise on it.)
#
# Look at the N in the second row. A ring all-reduce sends less than 2Ψ, whatever N is; an all-gather grows with N.

# %%
pays = dtlearn.predict(
    "Top-k sends 8 bytes for each of its k elements; a gradient of n elements has 4n bytes. On 64 ranks, and a link so slow that only "
    "bytes count: at how many percent of the elements does top-k stop to pay?",
    unit="%",
    id="ch05.pays",
)

# %% jupyter={"source_hidden": true}
from dtlearn.gradient_compression import traffic


def sends_less(k, n=1_000_000, num_ranks=64):
    plain = traffic.sent_bytes(traffic.all_reduced(n), num_ranks)
    return traffic.sent_bytes(traffic.gathered(4 * k, 4 * k), num_ranks) < plain


bound = next(k for k in range(1_000_000) if not sends_less(k + 1))
pays.reveal(round(100 * bound / 1_000_000, 1))

# %% [markdown]
# And its own time counts. The seconds that this machine's processor needs to encode a gradient of a million elements
# and to decode four messages of it, in the formulas above; where a line crosses the thick one the codec stops to pay:

# %% jupyter={"source_hidden": true} tags=["nbval-ignore-output"]
from dtlearn.gradient_compression.break_even import codec_seconds, comm_time
from dtlearn.viz import break_even_curves, break_even_words

CODECS = {
    "QSGD": gc.QSGD(),
    "sign": gc.PackedSign(),
    "top-k, 1 %": gc.TopK(ratio=0.01),
}
computing = {name: codec_seconds(codec, 1_000_000) for name, codec in CODECS.items()}


def lines(ranks, latency, speed_up):
    plain = comm_time(traffic.all_reduced(1_000_000), ranks, latency=latency)
    coded = {
        name: comm_time(
            traffic.gathered(codec.nbytes(1_000_000)),
            ranks,
            latency=latency,
            compute=own.on(ranks) / speed_up,
        )
        for (name, codec), own in zip(CODECS.items(), computing.values(), strict=True)
    }
    return plain, coded


def draw_break_even(ranks, latency, speed_up):
    how = "this processor" if speed_up == 1 else f"a processor {speed_up} times as fast"
    label = f"a million gradients, {ranks} ranks; encoding as measured on {how}"
    return break_even_curves(*lines(ranks, latency, speed_up), label=label)


slider_panel(
    draw_break_even,
    alt="Seconds of a step's communication over the speed of the link, falling lines that flatten out where a codec's "
    "own time begins to rule. Without a codec the line falls on. On 4 ranks: "
    + break_even_words(*lines(4, 50e-6, 1)),
    ranks=Slider((2, 4, 8, 16, 64, 256), 4, "ranks"),
    latency=Slider((1e-6, 10e-6, 50e-6, 1e-3, 20e-3), 50e-6, "latency in seconds"),
    speed_up=Slider((1, 10, 100, 1000), 1, "times as fast as this processor"),
)

# %% [markdown]
# (InfiniBand HDR, 200 Gb/s, is what many GPU clusters have.) Move "ranks" to 64: gathering, top-k's line is nearly the plain one. Move "times as fast" to 1000, a GPU: the
# crossings go to the right, but the links of GPUs are there already. Agarwal et al. (2022, arXiv 2103.00543) went
# through more than 200 setups as data centres have them: in 6 of them a codec was faster than a well-tuned all-reduce.
# (Overlap is one reason: bytes that hide behind backward cost
# nothing, and encoding competes with it for the same GPU.)
#
# **When to use it.** On NVLink or InfiniBand: bf16 gradients, and nothing else. On Ethernet of 1 to 10 Gb/s, when DDP waits
# for its link although it overlaps: PowerSGD, or with few ranks a gathered codec, with error feedback; measure seconds to
# a loss, not bytes. Between clusters, or over the internet: speak rarely, so DiLoCo; codecs can go on top.
#
# Later chapters need no more of this one.

# %% [markdown]
# # Further
#
# Each section stands alone, after the core path.
#
# | section | question | exercise |
# |---|---|---|
# | The break-even, exactly | below which bandwidth does a codec pay? | 3 |
# | Signs in bits | how is one bit an element really sent? | 4 |
# | Rounding by chance | why does QSGD need no memory? | |
# | Low rank | what does PowerSGD send, and is it torch's? | |
# | A hook of your own | how does it run under torch's DDP? | 5 |
# | Momentum and warm-up | what does k = 1/1000 need? | |
# | 1-bit Adam | why not just compress Adam's gradient? | |
# | Two levels | a slow link between fast groups | |
# | Streaming | can the peak of DiLoCo's traffic be cut? | |
# | All methods, twice | all fifteen on digits and on text | |
# | Incremental training | a model goes on with new data | |
# | Optimizer parallelism | what the sources mean by it | |
# | Take it home | `dtlearn.train --compress` | |
# | Today | what the libraries have, GPUs, a bug hunt | 6 |
#
# ## The break-even, exactly
#
# *Needs: section 7.* Both ways take a time that is a line in 1/β: bytes times 1/β, and seconds that no bandwidth changes.
# Two lines cross once, or never. Mostly the codec sends less and computes more, and pays *below* a bandwidth; but it can
# also send more, in fewer messages, and then it pays *above* one.

# %% [markdown]
# **Exercise 3.** Below which bandwidth does a codec pay?

# %% exercise="ch05.when_it_pays"

# %% [markdown]
# ## Signs in bits
#
# *Needs: section 4.* A sign is one bit, but the smallest thing that can be sent is a byte. So eight signs are **packed**
# into one. A bare sign says nothing about size, so a **scale** goes with it, here the mean magnitude of a chunk of
# elements. And a bit knows no zero: the sign of 0 has to be one of the two.

# %%
codec, x = (
    gc.PackedSign(chunk=8),
    torch.tensor([0.5, -1.5, 0.0, 3.0, -0.5, 0.5, -1.0, 1.0]),
)
scales, bits = codec.encode(x)
print("scale", scales.tolist(), "byte", f"{bits.item():08b}", "(first element last)")
print("decoded", codec.decode((scales, bits), 8).tolist())

# %% [markdown]
# **Exercise 4.** Eight signs in a byte.

# %% exercise="ch05.packed_signs"

# %% [markdown]
# Why the mean magnitude? Of all multiples of the signs it is the one nearest to x: the derivative of
# $\lVert x - s \cdot \mathrm{sign}(x) \rVert^2$ is zero at $s = \sum |x_i| / n$. With it the codec is a **contraction**,
# it leaves less error than it was given, and then error feedback converges like SGD (Karimireddy et al. 2019). Without
# a scale the error does not shrink when the gradient does; without feedback the loss can even rise for ever.
#
# What is more, signs cannot be averaged in bits. The mean of +1, +1, -1, +1 is 0.5; its sign is +1 again (a majority
# vote, which is a method of its own, Bernstein et al. 2018). That is why hooks gather.

# %%
vote = dtlearn.predict(
    "Four ranks have -0.1, -0.1, -0.1 and 0.9 for an element. The mean of these is 0.15. Let a server average the bare signs, "
    "and take the sign of that: what does everybody get, +1 or -1?",
    id="ch05.vote",
)

# %% jupyter={"source_hidden": true}
vote.reveal(int(torch.tensor([-0.1, -0.1, -0.1, 0.9]).sign().mean().sign()))

# %% [markdown]
# ## Rounding by chance
#
# *Needs: section 4.* QSGD (Alistarh et al. 2017) rounds x/‖x‖ to one of a few levels. Rounding to the *nearest* would
# turn every small element into 0, always. Rounding up with a probability equal to the part that is over is right **on
# average**: 0.3 of a level becomes 1 in three of ten cases. That is **unbiased**, and the errors of ranks and steps
# average out, as sampling noise does.

# %%
x = torch.tensor([0.06, 0.3, 0.95])
codec, generator = gc.QSGD(levels=1, chunk=8), torch.Generator().manual_seed(0)
draws = torch.stack(
    [codec.decode(codec.encode(x, generator=generator), 3) for _ in range(10_000)]
)
print("one draw:", [round(v, 2) for v in draws[0].tolist()])
print("mean of 10,000:", [round(v, 2) for v in draws.mean(0).tolist()])

# %% [markdown]
# The price is variance: of d elements that share a norm, up to $\min(d/s^2, \sqrt d/s)$ times ‖x‖² with s levels. Hence
# short chunks.

# %%
grows = dtlearn.predict.choice(
    "Random-k can be made unbiased, too: the k elements are multiplied by n/k. With k/n = 1 %, should it also get error feedback?",
    {
        "A": "yes: error feedback helps every codec",
        "B": "it does not matter: there is nothing to correct",
        "C": "no: what it leaves out is larger than what it was given, so the residual would grow and grow",
    },
    id="ch05.grows",
)

# %%
codec, generator = gc.RandomK(ratio=0.01, unbiased=True), torch.Generator().manual_seed(0)
residual = torch.zeros(1000)
for step in range(1, 4):
    given = torch.ones(1000) + residual
    residual = given - codec.decode(codec.encode(given, generator=generator), 1000)
    print(f"after {step} steps the residual has norm {residual.norm():.0f}")
try:
    gc.CompressionState(codec, error_feedback=True)
except ValueError as refused:
    print(refused)

# %% jupyter={"source_hidden": true}
grows.reveal()

# %% [markdown]
# ## Low rank
#
# *Needs: section 4.* **PowerSGD** (Vogels et al. 2019) sends of each a x b gradient M two thin factors, $P$ of a x r and
# $Q$ of b x r, whose product is near to M. It finds them by one step of power iteration, from the Q of the step before:
# P = MQ, average P over the ranks, make its columns **orthogonal**, Q = MᵀP, average Q, and use $PQ^\top$. Both averages
# are sums of equal places: an all-reduce will do, so its bytes do not grow with N. Vectors travel as they are, error
# feedback keeps the rest, and all ranks begin with the same random Q.

# %%
low = dtlearn.predict(
    "The first layer's gradient is 64 x 128 and r = 1. How many times fewer numbers does PowerSGD send of it?",
    unit="times",
    id="ch05.low",
)

# %% jupyter={"source_hidden": true}
low.reveal(round(64 * 128 / (64 + 128), 1))

# %% [markdown]
# torch has PowerSGD as a hook of its own. Both hooks under torch's DDP, five steps, from the same random Q:

# %%
# %%ranks -o powers
from types import SimpleNamespace

from torch.distributed.algorithms.ddp_comm_hooks import powerSGD_hook as theirs
from torch.nn.parallel import DistributedDataParallel as DDP


def with_hook(state, hook, steps=5):
    ddp = DDP(fresh_model())
    ddp.register_comm_hook(state, hook)
    optimizer = torch.optim.SGD(ddp.parameters(), lr=0.1)
    for number in range(steps):
        x, y = my_part(number)
        optimizer.zero_grad()
        F.cross_entropy(ddp(x), y).backward()
        optimizer.step()
    return torch.nn.utils.parameters_to_vector(ddp.parameters()).detach()


torchs = theirs.PowerSGDState(None, matrix_approximation_rank=1, start_powerSGD_iter=2)
torchs.rng = SimpleNamespace(randint=lambda limit: 0)  # the same random Q as ours
ours = gc.PowerSGDState(1, start_step=2)
(
    with_hook(torchs, theirs.powerSGD_hook) - with_hook(ours, gc.powersgd_hook)
).abs().max().item()

# %% jupyter={"source_hidden": true}
print("ours and torch's agree:", max(powers) < 1e-4)

# %% [markdown]
# (At most 1e-4 apart after five steps at a rate of 0.1. Both wait for two steps before they compress: torch's DDP makes
# its buckets anew after the first. At full rank PQᵀ is M, and a test holds it equal to the plain mean.)
#
# ## A hook of your own
#
# *Needs: section 3.* The protocol is `hook(state, bucket) -> Future`. Three things that all hooks have to get right:
# `bucket.buffer()` is this rank's own and divided by nobody; the hook must not wait, or backward waits with it; and it
# is called for one bucket after another, before the first is done.

# %% [markdown]
# **Exercise 5.** A hook that sends one byte an element.

# %% exercise="ch05.compress_hook"

# %% [markdown]
# Because the protocol is torch's, the package's hooks run under both wrappers. Top-k, four steps, all gradients in one
# bucket (with several, k follows the buckets, which differ between the two):

# %%
# %%ranks -o both
from dtlearn.data_parallel import DistributedDataParallel as CourseDDP


def under(wrapper):
    ddp = wrapper(fresh_model())
    ddp.register_comm_hook(gc.CompressionState(gc.TopK(ratio=0.01)), gc.compress_hook)
    optimizer = torch.optim.SGD(ddp.parameters(), lr=0.3)
    for number in range(4):
        x, y = my_part(number)
        optimizer.zero_grad()
        F.cross_entropy(ddp(x), y).backward()
        optimizer.step()
    return torch.nn.utils.parameters_to_vector(ddp.parameters()).detach()


(under(DDP) - under(CourseDDP)).abs().max().item()

# %% jupyter={"source_hidden": true}
print("one hook, two wrappers, the same model:", max(both) < 1e-6)

# %% [markdown]
# ## Momentum and warm-up
#
# *Needs: section 2.* **Deep gradient compression** (DGC, Lin et al. 2018) sends one element in a thousand. With so few,
# an element waits for hundreds of steps, and plain error feedback has two faults. An optimizer with momentum takes what
# arrives late as a gradient of *today*, so DGC puts the momentum **before** the codec (momentum correction), and stops
# the momentum of an element that has just been sent (factor masking). And at the start gradients are large and change
# fast, so the ratio falls step by step (**warm-up**).

# %%
dtlearn.show_source(gc.warm_up_sparsity)

# %% [markdown]
# Clipping also has to come before the codec, on each rank alone, to $1/\sqrt N$ of the limit: after it, the residual of
# hundreds of steps would be clipped as if it were one gradient. The paper's figure: ResNet-50's 97 MB became 0.35 MB.
#
# ## 1-bit Adam
#
# *Needs: section 4.* Behind Adam a compressed *gradient* is risky. Adam divides by the root of v, the mean of squares;
# a residual that arrives all at once is a huge square, and one that did not arrive is none. What Adam adds up
# *linearly* is its momentum. **1-bit Adam** (Tang et al. 2021, arXiv 2102.02888) runs Adam for a while, then **freezes
# v** and sends the *momentum* in packed signs. Its compressed all-reduce has two halves, as a real one has:
#
# | | who | message | error feedback |
# |---|---|---|---|
# | all-to-all | each rank sends each other one its part of the momentum | signs, a scale | the worker's |
# | mean | each rank averages one part | | |
# | all-gather | each rank sends its mean to all | signs, a scale | the server's |

# %%
onebit = dtlearn.predict(
    "The first 15 % of the steps are plain Adam with 16 bits an element, the others send 1 bit. How many times less is sent than by "
    "Adam with 16 bits all the way?",
    unit="times",
    id="ch05.onebit",
)

# %%
# %%ranks --record momenta
import warnings

warnings.filterwarnings("ignore", ".* elements had no gradient")  # see below
model = fresh_model()
optimizer = gc.OneBitAdam(model.parameters(), lr=1e-3, warmup_steps=2)
for number in range(4):
    optimizer.zero_grad()
    x, y = my_part(number)
    F.cross_entropy(model(x), y).backward()
    optimizer.step()

# %% jupyter={"source_hidden": true}
rows = [
    {"call": event.op, "bytes that rank 0 hands in": f"{event.nbytes:,}"}
    for event in momenta.select(rank=0)
    if event.nbytes > 8
]
onebit.reveal(round(1 / (0.15 + 0.85 / 16), 1))
rank_table(rows, caption="Four steps of 1-bit Adam, two of them warm-up")

# %% [markdown]
# One bit an element whose v is not zero (pixels that are 0 in all images have none), and 4 bytes of scale for each 1,024.
# (This run warms up in fp32; the prediction counts Adam's 16 bits.) The trap is in the frozen v: every element of a chunk gets
# plus or minus the *same* scale, and one whose v is next to nothing makes a huge step of it. Elements with v = 0 the package
# freezes, for good, with a warning. But it takes no zero: with layers of 512, on digits, this method ends in NaN a few steps
# after a warm-up of 4, of 30 or of 60 steps (run on two ranks). `preconditioned=True`, which compresses
# $m / (\sqrt v + \epsilon)$ in the place of m and is this course's own variant, trains there.
#
# (DeepSpeed, where the method comes from, deleted it in September 2026, with 1-bit LAMB and 0/1 Adam: pull requests 8490
# and 8535. Version 0.19.6 of August still has them.)
#
# ## Two levels
#
# *Needs: section 6.* Clusters are seldom equally slow everywhere. Four ranks as two nodes of two: inside a node DDP
# averages every gradient, between the nodes DiLoCo meets every five steps. The link between nodes has 100 Mb/s, inside
# 10 Gb/s. (Emulated, so on the processor.)

# %%
two_nodes = dtlearn.Link(
    100e-6, 12.5e6, inside=dtlearn.Link.named("10 Gb/s"), ranks_per_node=2
)


def on_two_nodes(steps=10, period=5):
    import torch.distributed as dist
    from torch.nn.parallel import DistributedDataParallel

    rank = dist.get_rank()
    nodes = [dist.new_group([0, 1]), dist.new_group([2, 3])]
    across = [dist.new_group([0, 2]), dist.new_group([1, 3])]
    torch.manual_seed(0)
    ddp = DistributedDataParallel(MLP(), process_group=nodes[rank // 2])
    inner = torch.optim.AdamW(ddp.parameters(), lr=1e-3)
    training = gc.DiLoCo(ddp, inner, period, group=across[rank % 2])
    for x, y in load_digits().batches(steps, 96):
        inner.zero_grad()
        torch.nn.functional.cross_entropy(ddp(x[rank::4]), y[rank::4]).backward()
        training.step()


# %% jupyter={"source_hidden": true}
levels = dtlearn.run_ranks(
    on_two_nodes, 4, device="cpu", link=two_nodes, record=True
).record
by_level = {"inside a node": [0, 0], "between nodes": [0, 0]}
for event in levels.select(rank=0):
    if event.op == "all_reduce" and event.nbytes > 1000:
        level = by_level["between nodes" if event.group == "0,2" else "inside a node"]
        level[0] += 1
        level[1] += event.nbytes
rank_table(
    [
        {"where": where, "all-reduces": calls, "bytes of rank 0": f"{nbytes:,}"}
        for where, (calls, nbytes) in by_level.items()
    ],
    caption="Ten steps, H = 5",
)

# %% [markdown]
# Each rank meets its twin on the other node, so the two pairs send the same model twice. A reduce-scatter inside the node
# first would halve that (chapter 2's hierarchical all-reduce). A DDP over *all* ranks inside
# DiLoCo would average everything in every step, and DiLoCo nothing that is new: the package compares the ranks' models
# at the first meeting, and refuses if they are equal already.
#
# ## Streaming
#
# *Needs: section 6.* DiLoCo sends rarely, but then everything at once, and all ranks wait. **Streaming DiLoCo**
# (Douillard et al. 2025, arXiv 2501.18512) cuts the model into fragments, sends each at its own step, and trains on
# while it travels.

# %% jupyter={"source_hidden": true} tags=["nbval-ignore-output"]
from dtlearn.viz import sent_over_time

streamed = [plain, of_topk, rare[0], rare[3], streaming]
show(
    sent_over_time(streamed),
    alt="A lane for each of five methods, with a bar for each step that sends. No compression: a high bar in every step. "
    "Top-k: a very low one in every step. Local SGD and DiLoCo: a high bar after every eighth step. Streaming DiLoCo: "
    "two lower ones in every eight steps.",
)

# %% [markdown]
# (A bar is as wide as its step took.) There are two fragments of unequal size; with K equal ones the peak is a K-th of
# DiLoCo's. The sum is the same, but for what is still under way at the end. What a rank learns while a fragment is under
# way is overwritten when it comes back, or mixed with it. (The paper also sends the pseudo-gradients in 4 bits:
# compression on top.)
#
# ## All methods, twice
#
# *Needs: section 4.* Fifteen methods, a hundred steps each, on the digits and on text: a GPT of 21,984 parameters with
# Adam. (Recorded once, with `compare` and the link of section 1.)
#
# ![The loss of a classifier of digits on four ranks over an emulated link of 100 Mb/s, over steps, over bytes, over seconds, for nine methods. Top-k, signs and PowerSGD with error feedback reach 0.5 with about a twentieth of the bytes of plain gradients; random-k and signs without feedback do not reach it.](../images/ch05_gradient_compression/digits_every_step.svg)
#
# ![The same for 1-bit Adam, local SGD, post-local SGD, DiLoCo and streaming DiLoCo beside plain gradients: all reach 0.5 in about as many steps or fewer, with a tenth to a quarter of the bytes.](../images/ch05_gradient_compression/digits_rarely.svg)
#
# ![The loss of a small GPT with Adam on four ranks over an emulated link of 100 Mb/s, over steps, bytes and seconds, for nine methods. After 100 steps fp16 and QSGD are where plain gradients are, near 2.6; signs without feedback and deep gradient compression near 2.75; top-k, signs with feedback and PowerSGD near 2.85; random-k at 3.3. Top-k needs the fewest bytes to a loss of 3.](../images/ch05_gradient_compression/text_every_step.svg)
#
# ![The same GPT with 1-bit Adam, local SGD, post-local SGD, DiLoCo and streaming DiLoCo beside plain gradients. Local SGD needs a seventh of the bytes to a loss of 3, the others about a quarter.](../images/ch05_gradient_compression/text_rarely.svg)
#
# On text the optimizer is Adam, and signs *with* error feedback do worse than without. That is no contradiction: the
# theorem is about SGD. A likely reason, not tested here: Adam divides by its root mean square, so a bare sign is nearly
# what it makes of a gradient anyway, and the residual's late arrivals disturb its v. Which is the point of 1-bit Adam.
# (In these runs it has an epsilon of 1e-4, Adam has 1e-8: see its section.) DiLoCo's outer rate and momentum are the
# paper's, for H = 500; with H = 8 they are not the best.
#
# Read such a figure as what it is: one small model, one seed, few steps. What carries over is the order of the bytes.
#
# ## Incremental training
#
# *Needs: nothing.* One of the sources lists **incremental training** among the techniques of distributed training. It is
# something else: a trained model **goes on with new data**, on one process or on many. Two questions decide how well:
# what is restored, and what is forgotten.
#
# If a run is to be the one that never stopped, restored has to be all that the next step reads: parameters *and*
# optimizer state, the schedule, the place in the data, random numbers, and with error feedback what each rank has not
# sent yet.
#
# Forgotten is what the new data do not contain:

# %%
forgets = dtlearn.predict.choice(
    "A classifier has learned the digits 0 to 4. It goes on with images of 5 to 9 only, until it knows them. How many of the old digits "
    "does it still get right?",
    {"A": "nearly all: nothing contradicts them", "B": "about half", "C": "next to none"},
    id="ch05.forgets",
)


# %%
def images_of(first, last, x, y):
    keep = (y >= first) & (y <= last)
    return x[keep], y[keep]


def go_on(model, optimizer, x, y, steps=150):
    draws = torch.Generator().manual_seed(0)
    for _ in range(steps):
        batch = torch.randint(len(y), (64,), generator=draws)
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(x[batch]), y[batch]).backward()
        optimizer.step()


def right(model, first, last):
    x, y = images_of(first, last, digits.test_x, digits.test_y)
    return (model(x).argmax(1) == y).float().mean().item()


old, new = (images_of(a, b, digits.train_x, digits.train_y) for a, b in ((0, 4), (5, 9)))
few_old = tuple(t[::10] for t in old)  # a tenth of the old images, for replay
replay = tuple(
    torch.cat([n, o.repeat_interleave(4, 0)]) for n, o in zip(new, few_old, strict=True)
)
accuracies = {}
for name, data, restored, steps in (
    ("new data only", new, True, 150),
    ("with a tenth of the old", replay, True, 150),
    ("new data only, 30 steps", new, True, 30),
    ("the same, new optimizer", new, False, 30),
):
    torch.manual_seed(0)
    model = MLP()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    go_on(model, optimizer, *old)
    accuracies["before"] = right(model, 0, 4), right(model, 5, 9)
    if not restored:
        optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    go_on(model, optimizer, *data, steps)
    accuracies[name] = right(model, 0, 4), right(model, 5, 9)

# %% jupyter={"source_hidden": true}
forgets.reveal(old=f"{accuracies['new data only'][0]:.0%}")
rank_table(
    [
        {"trained with": name, "0 to 4 right": f"{a:.0%}", "5 to 9 right": f"{b:.0%}"}
        for name, (a, b) in accuracies.items()
    ],
    caption="Of test images",
)

# %% [markdown]
# This is **catastrophic forgetting**. The usual cure is **replay**: mix some old data into the new. Large language
# models are treated so when they are trained further, with a learning rate that is warmed up again (Ibrahim et al. 2024,
# arXiv 2403.08763).
#
# The last two rows are about what is restored. The old gradients had become small, so the restored v is small, and
# Adam's first steps on the new data are large. A new optimizer begins with smaller steps: it learns the new digits later,
# and forgets the old ones later, not less (after 150 steps none is right either way). So "restore everything" is right
# for the same run; for new data it is a choice, and the warm-up is there for a reason.
#
# ## Optimizer parallelism
#
# *Needs: section 6.* The sources speak of "optimizer parallelism" by "asynchronous optimizers such as AdaGrad or Adam".
# These optimizers are not asynchronous (chapter 4). The words can mean two things that exist:
#
# - **One optimizer, divided.** State and step of one optimizer are spread over the ranks; the result is that of one
#   process. That is ZeRO 1 (chapter 9).
# - **Many optimizers, merged.** Each rank runs an optimizer of its own on a copy of the model, and now and then what
#   they did is combined: local SGD, DiLoCo, elastic averaging (Zhang et al. 2015, arXiv 1412.6651). The result is
#   *not* that of one process.
#
# ## Take it home
#
# `dtlearn.train`, the script of chapter 3, has `--compress`: `fp16`, `topk`, `sign`, `qsgd` or `powersgd`, for the
# course's DDP and torch's. With the course's DDP the residuals are in the checkpoint, each rank's own, so that a run which goes on
# on as many ranks ends with the same bits.

# %% tags=["nbval-ignore-output"]
# %%launch -n 2
from dtlearn.train.__main__ import main

main(["--task", "digits", "--epochs", "3", "--compress", "topk", "--device", "cpu"])

# %% [markdown]
# ## Today
#
# | library | what it has |
# |---|---|
# | torch | hooks for fp16, bf16, 8-bit quantization and PowerSGD (`ddp_comm_hooks`); post-local SGD: `post_localSGD_hook`, `PeriodicModelAverager`, `PostLocalSGDOptimizer` |
# | torchft | `LocalSGD` and `DiLoCo` with fragments, on ranks that may come and go |
# | DeepSpeed | its 1-bit optimizers are gone; ZeRO++ quantizes what ZeRO sends (chapter 9) |
# | Megatron-LM, FSDP2 | gradients are reduced in bf16 or fp32, as one chooses; no codec |
#
# What everybody uses is the mildest codec: 16 bits in place of 32, and of late 8 bits for weights and activations on
# their way (chapter 7). The harsh ones live where links are slow: training between data centres, or over the internet.

# %% [markdown]
# **Exercise 6.** A bug hunt.

# %% exercise="ch05.bug_hunt"

# %% [markdown]
# ### On your GPUs
#
# Encoding is some hundred times faster there, and so are the links: expect every harsh codec to lose on NVLink. Where a GPU
# is slow is in sorting (top-k) and in making columns orthogonal (PowerSGD). `dtlearn bench gradient_compression` measures the
# step and the time to a loss beside torch's own hooks. Watch the order of calls: a hook
# that makes a second collective when its first is done does so in a callback. NCCL runs that at once, in the order of
# the buckets; gloo runs it on a thread of its own, and two buckets can come in another order on another rank. (So
# torch's PowerSGD hook can hang over gloo if DDP has several buckets.) Nothing of this chapter was run on a GPU yet.
#
# ### Myths
#
# **"Compression makes training faster."** It makes messages smaller. Only if the link is what the step waits for, and
# the codec is faster than what it saves, does the step get faster (section 7).
#
# **"Error feedback is a refinement."** Without it biased codecs stall or stop at a worse loss (section 2). But it is no
# cure for everything: an unbiased codec needs none, and random-k scaled by n/k must have none.
#
# **"Averaging gradients and averaging parameters is the same."** After every step, for SGD with or without momentum.
# Not with Adam, and not after several steps (section 6).
#
# **"One bit an element is 32 times less."** Of fp32, and without scales. Against gradients in bf16 it is 16; and an
# all-gather sends N - 1 whole payloads where a ring all-reduce sends less than two.
#
# **"DiLoCo averages the optimizers, too."** The moments stay on their rank, for ever. Only the outer momentum is shared,
# because all ranks compute the same.
#
# ### Check yourself
#
# <details><summary>Top-k with 0.1 % and error feedback, 1,000 steps. Is an element that is never among the largest ever
# sent?</summary>
#
# Yes, if its gradients add up: its residual grows until it is among the largest. If they cancel out it is not sent, and
# need not be.
# </details>
#
# <details><summary>A run is resumed from a checkpoint without the residuals. What is wrong, and does it show?</summary>
#
# What the ranks had not sent yet is lost: with harsh codecs the gradients of many steps. The loss falls on; one sees a
# small step back, or nothing. It is no longer the run that never stopped.
# </details>
#
# <details><summary>Random-k with one seed for all ranks. May it use an all-reduce?</summary>
#
# Yes: all ranks pick the same places, so equal places mean equal elements. And no numbers have to be sent.
# </details>
#
# <details><summary>DiLoCo with H = 1, outer rate 1 and no momentum. What is it?</summary>
#
# Averaging of the parameters after every step: with an inner SGD the same as DDP.
# </details>
#
# <details><summary>Why does PowerSGD scale to more ranks than top-k?</summary>
#
# Its factors are summed by an all-reduce, which sends less than twice their size on any number of ranks. Top-k's messages
# are gathered: N - 1 of them.
# </details>
#
# ## Glossary
#
# {glossary}
#
# Next: chapter 6 sends the same bytes in a better order.
