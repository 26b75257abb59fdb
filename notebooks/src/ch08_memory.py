# %% [markdown]
# # Chapter 8. Memory
#
# **The question.** Where do the bytes go?
#
# Builds on: chapters 3 and 7. Ranks: 4. Time: 75 minutes for the core path; the sections of "Further" in any order,
# when you need them.
#
# | core path | what | minutes |
# |---|---|---|
# | 1. What would help? | a job that ran out of memory | 2 |
# | 2. Where does a step keep its bytes? | a ledger of every byte; by hand | 7, and exercise 1: 15 |
# | 3. What does the optimizer hold? | its state; 16, 18 or 20 bytes | 4 |
# | 4. What are activations? | what each operation keeps; formula and ledger | 4 |
# | 5. What grows from step to step? | a leak | 4 |
# | 6. What can be computed again? | recomputation; the page; every k layers | 8, and exercise 2: 20 |
# | 7. How does it break? | a checkpoint that forgets | 3 |
# | 8. What does a lower peak cost, and what fits? | six ways in one picture; models that you do not have | 8 |
#
# After it you can say before a run how many bytes each rank will hold, and when; and what recomputation, smaller
# micro-batches and offload save and cost.
#
# No GPU is needed: bytes are counted, and they are the same on a laptop. MB are $10^6$ bytes here and GB $10^9$. (GiB
# are $2^{30}$, 7.4 % more; PyTorch's messages count in GiB.)

# %% jupyter={"source_hidden": true}
# %load_ext dtlearn
import torch

import dtlearn
from dtlearn.models import GPT, GPTConfig, load_corpus, next_token_loss
from dtlearn.viz import rank_table, show

torch.set_num_threads(1)  # small tensors: more threads would only wait for each other
config = GPTConfig(hidden_size=128)
batch = next(load_corpus().batches(1, 8, 64))  # for the cells that run without ranks
world = dtlearn.world(4)
world

# %% [markdown]
# # The core path
#
# ## 1. What would help?
#
# A training job on a GPU of 80 GB runs for a while, then ends with a message like this:
#
# ```
# torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 512.00 MiB. GPU 0 has a total capacity of
# 79.25 GiB of which 210.00 MiB is free. [...] Of the allocated memory 78.30 GiB is allocated by PyTorch,
# and 204.00 MiB is reserved by PyTorch but unallocated. [...]
# ```
#
# What would help?

# %%
helps = dtlearn.predict.choice(
    "The job above needs a little more memory than there is. Which change makes it fit?",
    {
        "A": "`torch.cuda.empty_cache()` after each step",
        "B": "`del loss, logits` at the end of each step",
        "C": "half as many samples per GPU and step",
        "D": "twice as many GPUs with DDP, and as many samples per GPU as before",
    },
    id="ch08.helps",
)

# %% [markdown]
# To answer it, one has to know what lies in that memory at the moment of the error. So we count.
#
# ## 2. Where does a step keep its bytes?
#
# `record_step` runs a training step under a **memory ledger**. The ledger notes every **storage**, which is the memory
# behind a tensor and all its views: how many bytes, what for, which operation of which module made it, and when it was
# freed. It runs two steps and records the second. Here the GPT of chapter 3 trains on 4 ranks with DDP and AdamW, with
# 8 sequences of 64 tokens on each rank. (The folded cell gives the ranks `fresh_model()` and `my_batch()`.)

# %%
largest = dtlearn.predict.choice(
    "A GPT with 0.8 million parameters, AdamW, 512 tokens on each rank, fp32. What takes "
    "the most bytes at the peak of the step?",
    {
        "A": "the parameters",
        "B": "the gradients",
        "C": "the state of the optimizer",
        "D": "the activations: what the forward pass keeps for the backward pass",
    },
    id="ch08.largest",
)

# %% jupyter={"source_hidden": true}
# %%ranks --setup
from torch.nn.parallel import DistributedDataParallel

from dtlearn.memory import record_step
from dtlearn.models import GPT, GPTConfig, load_corpus, next_token_loss

corpus = load_corpus()


def fresh_model():
    torch.manual_seed(0)
    return GPT(GPTConfig(hidden_size=128)).to(device)


def my_batch(samples=32):
    x, y = next(corpus.batches(1, samples, 64))
    return tuple(t[rank::world_size].contiguous().to(device) for t in (x, y))


# %%
# %%ranks -o records
model = DistributedDataParallel(fresh_model())
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
record_step(model, optimizer, my_batch(), next_token_loss)

# %% jupyter={"source_hidden": true}
largest.reveal()

# %% tags=["nbval-ignore-output"] jupyter={"source_hidden": true}
from dtlearn.viz import peak_words, step_memory

show(
    step_memory(
        records[0],
        title="Activations rise through forward, and the peak is early in backward",
        label="rank 0 of 4: GPT with 0.8 million parameters, 8 x 64 tokens, AdamW, fp32, DDP",
    ),
    alt="Bytes alive over the allocations and releases of a step. Parameters and the "
    "optimizer's state lie at the bottom, level, and so does communication. Activations "
    "rise through forward and fall through backward, while gradients grow. The "
    f"{peak_words(records[0])}.",
)

# %% [markdown]
# The record counts, it does not time: a step to the right is one allocation or one release. What you see in it:
#
# - **Parameters** and the **state of the optimizer** are there all the time.
# - **Activations** pile up in the forward pass. Backward goes through the layers in reverse order and releases each
#   activation when it has been used.
# - **Gradients** come as activations go.
# - **Temporaries** are made and freed again within one or a few operations.
# - **Communication** is DDP's buckets, from which the gradients are sent. (The notch near the start: after its first
#   step DDP makes its buckets once more, in the order in which the gradients came.)
# - **Inputs**, the batch, are too small to see.
#
# The parameters, which many people mean by "the model", are about a tenth of the peak. Now halve the number of samples:

# %%
# %%ranks -o half
model = DistributedDataParallel(fresh_model())
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
record_step(model, optimizer, my_batch(samples=16), next_token_loss)

# %% jupyter={"source_hidden": true}
helps.reveal(full=records[0].peak.bytes / 1e6, half=half[0].peak.bytes / 1e6)

# %% [markdown]
# The activations halve; all else stays as it was.
#
# **By hand.** The categories can be counted with a pencil. Take one linear layer from 3 to 2 numbers, 4 samples, fp32
# (4 bytes a number), SGD with momentum:
#
# | category | what | numbers | bytes |
# |---|---|---|---|
# | parameters | weight 2 x 3, bias 2 | 8 | 32 |
# | gradients | as the parameters | 8 | 32 |
# | optimizer state | one momentum for each parameter | 8 | 32 |
# | inputs | 4 samples of 3 numbers, 4 targets of 2 | 20 | 80 |
# | activations | what backward needs: see below | 8 | 32 |
#
# The gradient of the weight is a product of the layer's input and the gradient of its output. So the layer must keep
# its **input**; but that is the batch, which is there anyway and is counted as such. The mean squared error behind it
# keeps its own input, the output of the layer: 4 x 2 numbers. The ledger agrees. It prints the maximum of each
# category. (The 68 bytes of temporaries: torch computes the loss in the memory of its 8 squared differences, 32; the
# gradient of the loss has 4, that of the output 32.)

# %%
from dtlearn.memory import record_step

layer = torch.nn.Sequential(torch.nn.Linear(3, 2))
optimizer = torch.optim.SGD(layer.parameters(), lr=0.1, momentum=0.9)
pair = torch.randn(4, 3), torch.randn(4, 2)
record = record_step(layer, optimizer, pair, torch.nn.functional.mse_loss)
{category: max(line) for category, line in record.timeline().items() if any(line)}

# %% [markdown]
# **Exercise 1.** Count a step of an MLP.

# %% exercise="ch08.count_a_step"

# %% [markdown]
# How does the ledger see all this? A `TorchDispatchMode` is called for every operation, with its inputs and its
# results, and the ledger looks up the *storage* of each tensor: a view or the result of an in-place operation is no
# new memory. `saved_tensors_hooks` are called for every tensor that autograd keeps for backward: these are the
# activations.
#
# ## 3. What does the optimizer hold?

# %%
fresh_state = dtlearn.predict(
    "A GPT with 0.8 million fp32 parameters, 3.3 MB, begins to train with Adam. You note the "
    "bytes in use right after `backward()` in the first step, and again in the second. By how "
    "many MB is the second number higher?",
    unit="MB",
    id="ch08.fresh_state",
)


# %% jupyter={"source_hidden": true}
def state_bytes(optimizer):
    """Bytes of all tensors in the state of an optimizer."""
    states = optimizer.state.values()
    return sum(t.nbytes for state in states for t in state.values() if torch.is_tensor(t))


state_after = {}
for name, make in (
    ("SGD", lambda p: torch.optim.SGD(p, lr=0.1)),
    ("SGD with momentum", lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9)),
    ("Adam", lambda p: torch.optim.Adam(p, lr=1e-3)),
):
    torch.manual_seed(0)
    model = GPT(config)
    optimizer = make(model.parameters())
    next_token_loss(model(batch[0]), batch[1]).backward()
    before = state_bytes(optimizer)
    optimizer.step()
    state_after[name] = before, state_bytes(optimizer)

# %% jupyter={"source_hidden": true}
before, after = state_after["Adam"]
fresh_state.reveal(round((after - before) / 1e6, 1))

# %% [markdown]
# Adam keeps two moments for each parameter, 8 bytes (and a count of steps, 4 bytes for each parameter *tensor*); SGD
# with momentum keeps one, SGD none. The state is made in the first `step()`. That is why a job can go through a whole
# forward and backward pass and run out of memory right after it; and why `record_step` records the second step.
#
# With 16-bit weights the optimizer holds fp32 masters, too (chapter 7). How much is that together? Texts say 16, 18
# or 20 bytes per parameter. All are correct: they count different gradients.

# %% jupyter={"source_hidden": true}
from dtlearn.memory import CONVENTIONS

rank_table(
    [
        {
            "convention": rule.name,
            "weight": rule.weight,
            "gradient": rule.gradient,
            "master": rule.master,
            "moments": rule.moments,
            "sum": rule.total,
            "who counts so": rule.source,
        }
        for rule in CONVENTIONS.values()
    ],
    caption="Bytes per parameter, without activations",
)

# %% [markdown]
# So mixed precision does not shrink this part. (With less than fp32 for masters or moments it does: see "Can the
# optimizer's state have fewer bits?" in Further.)
#
# ## 4. What are activations?
#
# They are what the forward pass keeps for the backward pass, and not "the outputs of all layers". Each operation
# keeps what its own derivative needs, and nothing else:
#
# | operation | keeps | because the gradient of ... |
# |---|---|---|
# | $y = Wx$ | $x$ (and $W$, which is there anyway) | $W$ is the gradient of $y$ times $x$ |
# | $y = \mathrm{GELU}(x)$ | $x$ | $x$ has the factor $\mathrm{GELU}'(x)$ |
# | $y = \mathrm{ReLU}(x)$ | $y$ | $x$ is 0 where $y$ is 0 |
# | $y = \mathrm{softmax}(x)$ | $y$ | $x$ can be written with $y$ alone |
# | $y = \mathrm{norm}(x)$ | $x$, mean and deviation of each token | $x$ and the weight need both |
# | $y = \mathrm{dropout}(x)$ | the mask | $x$ is 0 where the mask is |
# | $y = x + z$; views, transpositions | nothing | is passed on as it is |
#
# If one operation's result is the next one's input, and both keep it, it is still one storage and counts once.

# %% [markdown]
# By hand, for the feed-forward part of a transformer block in 16 bits: $s$ tokens in each of $b$ sequences, $h$
# numbers for each token, and $4h$ between the two layers. Its two layers keep their inputs, $sbh$ and $4sbh$ numbers,
# GELU its own, $4sbh$: 2 bytes each. On a GPU a mask of dropout takes 1 byte for each of $sbh$ numbers. That is $19sbh$
# bytes.

# %%
longer = dtlearn.predict.choice(
    "A block with 16 heads, h = 1,024, whose attention keeps its scores: for each head a matrix "
    "of s x s, 5 bytes an entry (softmax 2, after dropout 2, the mask 1). All else takes 34sbh "
    "bytes. The sequences become twice as long, 4,096 tokens in place of 2,048, and their number "
    "stays. By what factor do the activations grow?",
    {"A": "2.0", "B": "2.8", "C": "3.6", "D": "4.0"},
    id="ch08.longer",
)

# %% jupyter={"source_hidden": true}
from dtlearn.memory import gpt_activations, table_bytes
from dtlearn.memory.arithmetic import activations

short, long = (
    activations.ActivationSizes(batch=1, length=s, hidden=1024, heads=16)
    for s in (2048, 4096)
)
longer.reveal(
    short=table_bytes(activations.paper_block(short)) / short.sbh,
    long=table_bytes(activations.paper_block(long)) / long.sbh,
    times=table_bytes(activations.paper_block(long))
    / table_bytes(activations.paper_block(short)),
)

# %% [markdown]
# The whole block keeps $sbh\,(34 + 5as/h)$ bytes, for $a$ heads (Korthikanti et al. 2022, arXiv 2205.05198): the second
# term is the scores. **FlashAttention** keeps none: it computes them block by block, and again in backward. PyTorch's
# attention does so if it can: on a GPU, and on a CPU without dropout, as here. The package has such a table for our
# GPT, in fp32. Is it what the ledger saw on the ranks?

# %%
formula = table_bytes(gpt_activations(config, batch=8, length=64))
counted = {max(record.live("activations")) for record in records}
print(f"by formula {formula:,} bytes, at most kept on each of the 4 ranks {counted}")

# %% [markdown]
# To the byte. 17.6 MB is the maximum over the step, reached at the end of forward. (The step's peak comes a little
# later, when the head and the loss have released theirs.) With autocast it would be about three quarters of that
# (chapter 7's table, 8 sequences).
#
# ## 5. What grows from step to step?
#
# Memory that grows from step to step is a **leak**: something keeps tensors of earlier steps alive. The classic way is
# to keep a loss for a log. (`live_after_each(step, n)` calls `step` n times, and returns after each call the bytes of
# the tensors that were made since the first call began and still live.)

# %%
kept_loss = dtlearn.predict.choice(
    "A training loop does `losses.append(loss)` after `loss.backward()` and "
    "`optimizer.step()`. By how much does the memory of all tensors grow in each step?",
    {
        "A": "by all activations of a step",
        "B": "by 4 bytes, the loss itself",
        "C": "by nothing",
    },
    id="ch08.kept_loss",
)

# %%
from dtlearn.memory import live_after_each

torch.manual_seed(0)
model = GPT(config)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
losses = []


def training_step():
    optimizer.zero_grad()
    loss = next_token_loss(model(batch[0]), batch[1])
    loss.backward()
    optimizer.step()
    losses.append(loss)


held = live_after_each(training_step, 4)

# %% jupyter={"source_hidden": true}
from dtlearn.memory.saving import leaks

kept_loss.reveal(grown=held[-1] - held[-2], nodes=leaks.num_graph_nodes(losses[-1]))

# %% [markdown]
# A leak that fills a GPU looks different. Here a loop measures a validation loss after each epoch, and keeps it. No
# backward pass ever goes through that graph, so nothing releases what it has saved:


# %%
def validate():
    log.append(next_token_loss(model(batch[0]), batch[1]))


@torch.no_grad()
def validate_without_graph():
    log.append(next_token_loss(model(batch[0]), batch[1]).item())


log = []
held = {
    "log.append(loss)": live_after_each(validate, 6),
    "no_grad, log.append(loss.item())": live_after_each(validate_without_graph, 6),
}
log.clear()

# %% jupyter={"source_hidden": true}
from dtlearn.viz import held_after_steps

show(
    held_after_steps(
        held,
        title="A leak adds the same bytes every time",
        label="each step is a validation of a GPT with 8 x 64 tokens; bytes made since the first began",
    ),
    alt="Bytes after each of six validations. With log.append(loss) they rise by 17.6 MB each "
    "time, in a straight line. With no_grad and item() they stay at 0.",
)

# %% [markdown]
# So look for a straight line; `loss.item()` keeps a number and no graph.
#
# ## 6. What can be computed again?
#
# Activations are results that can be computed again. So why keep them? The naive idea is to tell PyTorch not to, with
# `torch.no_grad()` around the blocks:


# %%
class ForgetfulGPT(GPT):
    """A GPT whose blocks keep nothing for backward."""

    def forward(self, tokens):
        x = self.embedding(tokens)
        with torch.no_grad():
            for block in self.blocks:
                x = block(x)
        return self.head(x)


torch.manual_seed(0)
forgetful = ForgetfulGPT(config)
optimizer = torch.optim.AdamW(forgetful.parameters(), lr=1e-3)
forgotten = record_step(forgetful, optimizer, batch, next_token_loss)
next_token_loss(forgetful(batch[0]), batch[1]).backward()
missing = [name for name, p in forgetful.named_parameters() if p.grad is None]
kept, before = (max(r.live("activations")) / 1e6 for r in (forgotten, records[0]))
print(f"at most {kept:.1f} MB of activations, in place of {before:.1f} MB")
print(
    f"parameters without a gradient: {len(missing)} of {len(list(forgetful.parameters()))}"
)

# %% [markdown]
# The activations of the blocks are gone (the 0.8 MB are those of head and loss), and nothing raises an error. But the
# blocks and the embeddings get no gradient, and only the head trains. Backward needs the activations.
#
# So they have to come back when backward needs them. **Recomputation** (also: activation checkpointing, gradient
# checkpointing) keeps only the *input* of a segment of layers. When backward comes to the segment, its forward pass
# runs a second time, now with a graph, and its backward pass right after that. If every layer is in such a segment,
# the recomputation is **full**.

# %% jupyter={"source_hidden": true}
from dtlearn.viz import recomputation_grid

show(
    recomputation_grid(
        {"plain": None, "every layer": 1, "segments of 2 layers": 2},
        num_layers=4,
        label="a model of 4 layers; each column is the pass of one layer",
    ),
    alt="Three grids of layers over time. Plain: the activations of all 4 layers are held "
    "at the end of forward, 8 passes. With every layer recomputed: 4 inputs and the "
    "activations of one layer, 12 passes. With segments of 2 layers: 2 inputs and the "
    "activations of two layers, 12 passes.",
)

# %%
extra_time = dtlearn.predict(
    "A backward pass computes about twice as much as a forward pass. How much more does a "
    "step with full recomputation compute than a plain one, in percent?",
    unit="percent",
    id="ch08.extra_time",
)

# %% jupyter={"source_hidden": true}
forward, backward = 1, 2
extra_time.reveal(round(100 * forward / (forward + backward)))

# %% [markdown]
# What does such a **checkpoint** do?
#
# - **forward**: run the function without a graph, so that nothing inside it is kept; keep its inputs and the state of
#   the random numbers;
# - **backward**: detach the inputs; set that state again; run the function with a graph; go backward through it; hand
#   on the gradients of the inputs.
#
# The page does that for functions of tensors, with an operation that has a backward of its own. (It answers an
# exercise in Further, "Can you write a checkpoint?": leave it folded if you want to do that one.)

# %%
from dtlearn.memory import page_checkpoint

dtlearn.show_source(page_checkpoint, summary="page_checkpoint.py, the whole file")

# %% [markdown]
# Is it right? The same GPT on 4 ranks with DDP and dropout: plain, and with a checkpoint around every block, that of
# the page, the package's, which adds arguments of any kind, autocast and errors, and PyTorch's. (The folded cell
# makes `CheckpointedGPT`, which calls `self.run(block, x)` for each block.)

# %% jupyter={"source_hidden": true}
# %%ranks --setup
import torch.utils.checkpoint

from dtlearn.memory import checkpoint, page_checkpoint


class CheckpointedGPT(GPT):
    """A GPT whose blocks run inside a checkpoint."""

    run = staticmethod(checkpoint)

    def forward(self, tokens):
        x = self.embedding(tokens)
        for block in self.blocks:
            x = self.run(block, x)
        return self.head(x)


def pytorchs(block, x):
    return torch.utils.checkpoint.checkpoint(block, x, use_reentrant=False)


# %%
# %%ranks -o checkpointed
results = {}
for name, run in {
    "plain": lambda block, x: block(x),
    "the page's": page_checkpoint.checkpoint,
    "the package's": checkpoint,
    "PyTorch's": pytorchs,
}.items():
    torch.manual_seed(0)
    model = CheckpointedGPT(GPTConfig(hidden_size=128, dropout=0.1)).to(device)
    model.run = run
    model = DistributedDataParallel(model)
    torch.manual_seed(rank)  # each rank has dropout of its own
    x, y = my_batch()
    next_token_loss(model(x), y).backward()
    gradients = torch.cat([p.grad.flatten() for p in model.parameters()])
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    results[name] = gradients, record_step(model, optimizer, (x, y), next_token_loss)
same = {name: torch.equal(results["plain"][0], g) for name, (g, _) in results.items()}
same, {name: record for name, (_, record) in results.items()}

# %% jupyter={"source_hidden": true}
rank_table(
    [
        {
            "checkpoint": name,
            "gradients equal to plain, to the last bit": all(
                s[name] for s, _ in checkpointed
            ),
            "peak, MB": f"{records[name].peak.bytes / 1e6:.2f}",
            "of it activations": f"{records[name].peak.by_category['activations'] / 1e6:.2f}",
        }
        for name, records in ((n, checkpointed[0][1]) for n in checkpointed[0][0])
    ],
    caption="GPT with dropout on 4 ranks with DDP; the peak is rank 0's",
)

# %% [markdown]
# (On a CPU plain has 8.4 MB of activations more here than in section 2: with dropout, attention keeps three matrices of
# s x s in fp32 for each head, and a mask takes 4 bytes an entry. The page has 0.26 MB more than the others: it holds
# the output of the second pass through its backward pass.)
#
# **Every k layers.** A checkpoint around every block keeps an input for every block. Segments of $k$ blocks keep fewer
# inputs, and hold more activations at once while a segment is computed again.

# %%
best = dtlearn.predict.choice(
    "16 blocks of our GPT. A block keeps about 16 times as many bytes as its input has. "
    "With which k is the peak of the activations lowest?",
    {
        "A": "k = 16: a single checkpoint around everything",
        "B": "k = 4, the square root of 16",
        "C": "k = 1: every block",
    },
    id="ch08.best",
)

# %% jupyter={"source_hidden": true}
from functools import partial

from dtlearn.memory import MemoryLedger, checkpoint_every, segment_peak


def activations_at_peak(layers, make_input, k):
    """Counted: the maximum of activations in a forward and backward pass in segments of k."""
    with MemoryLedger() as ledger:
        checkpoint_every(layers, make_input(), k).square().mean().backward()
    return max(ledger.record().live("activations"))


sixteen = GPT(GPTConfig(num_layers=16))
large = torch.randn(64, 64, 64, requires_grad=True)
chains = {  # layers, what makes their input, bytes that a layer keeps, bytes of its input
    "16 blocks of our GPT": (
        list(sixteen.blocks),
        partial(sixteen.embedding, batch[0]),
        table_bytes(activations.gpt_block(sixteen.config, batch=8, length=64)),
        4 * 8 * 64 * 64,
    ),
    "16 times tanh": ([torch.tanh] * 16, lambda: large, large.nbytes, large.nbytes),
}
by_formula, counted = {}, {}
for name, (layers, make_input, kept, of_input) in chains.items():
    by_formula[name] = {k: segment_peak(16, k, kept, of_input) for k in range(1, 17)}
    counted[name] = {
        k: activations_at_peak(layers, make_input, k) for k in (1, 2, 4, 8, 16)
    }

# %% jupyter={"source_hidden": true}
best.reveal()

# %% jupyter={"source_hidden": true}
from dtlearn.viz import peak_over_k

show(
    peak_over_k(
        by_formula,
        counted,
        title="The square root is best for cheap layers, not for blocks of a GPT",
        label="lines by formula, points from the ledger; tanh keeps as much as its input",
    ),
    alt="Bytes of activations at the peak over k from 1 to 16. Blocks of a GPT: lowest at "
    "k = 1 with 4 MB, then rising to 34 MB. A chain of tanh: 17 MB at k = 1 and k = 16, "
    "lowest from k = 3 to 6 with 7 MB. The counted points lie on the lines.",
)

# %% [markdown]
# Chen et al. (2016, arXiv 1604.06174) found the square root of the number of layers $L$. It holds for layers that
# keep no more than their input. If a layer keeps $A$ bytes and its input has $c$ of them, there are about $L/k$
# inputs and $k$ layers at the peak, $Lc/k + kA$ bytes, and the best $k$ is near $\sqrt{Lc/A}$. For 16 blocks of our
# GPT that is 1, so a checkpoint around every block is best.
#
# **Exercise 2.** The best k for a budget, the same on all ranks. There the last segment is not recomputed, because
# backward begins with it (`torch.utils.checkpoint.checkpoint_sequential` does so, too).

# %% exercise="ch08.choose_k"

# %% [markdown]
# ## 7. How does it break?
#
# `naive_checkpoint` is the page without the random state. On a model with dropout, and on one without:

# %%
# %%ranks
from dtlearn.memory import naive_checkpoint

losses, gradients = {}, {}
for dropout in (0.1, 0.0):
    for run in (None, naive_checkpoint, checkpoint):
        torch.manual_seed(0)
        model = (CheckpointedGPT if run else GPT)(
            GPTConfig(hidden_size=128, dropout=dropout)
        ).to(device)
        model.run = run
        torch.manual_seed(rank)
        x, y = my_batch()
        loss = next_token_loss(model(x), y)
        loss.backward()
        gradient = torch.cat([p.grad.flatten() for p in model.parameters()])
        if run is None:
            plain = loss.item(), gradient
            continue
        off = 100 * ((gradient - plain[1]).norm() / plain[1].norm()).item()
        same = "the same loss" if loss.item() == plain[0] else "another loss"
        print(
            f"dropout {dropout}, {run.__name__}: {same}, gradients off by {round(off, -1):.0f} %"
        )

# %% [markdown]
# (The percentages are rounded to tens.) The loss is right to the last bit, and the gradients are not its gradients:
# the second pass drew other masks. Nothing raises an error, and training goes on. How to find such a bug: compare the
# *gradients* of one step with those of a plain step that starts from the same seed; then set dropout to 0. If they
# agree then, what differs is random.
#

# %% [markdown]
# ## 8. What does a lower peak cost, and what fits?
#
# Six ways to make the same update, up to rounding. Recomputation you know, and micro-batches from chapter 7, section 4:
# only the activations of one are there at a time. **Selective** recomputation keeps the results of matrix products and
# computes norms, GELU and the like again. With **offload**, activations wait in the memory of the host.

# %% jupyter={"source_hidden": true}
from dtlearn.memory.saving import variants
from dtlearn.viz import step_memories

work = variants.GPTWorkload(config, batch=8)
shown = (
    "plain",
    "4 micro-batches",
    "checkpoint every block",
    "checkpoint every 2 blocks",
    "selective",
    "offload",
)
steps = {name: variants.record_variant(variants.VARIANTS[name], work) for name in shown}
show(
    step_memories(
        steps,
        title="Full recomputation and offload move the peak to where the gradients are",
        label="GPT with 0.8 million parameters, 8 x 64 tokens, AdamW, fp32",
    ),
    alt="Six small pictures of a step with one scale. Plain has one hill of activations, 28.5 "
    "MB high. With 4 micro-batches there are four small hills on top of the gradients, 18.2 "
    "MB. With a checkpoint around every block there is a needle for each block in backward, "
    "the last and highest one on top of nearly all gradients, 18.3 MB. Segments of two "
    "blocks have two wider ones, 21.7 MB. Selective has one lower hill, 24.5 MB. With "
    "offload only temporaries and gradients are left, 16.1 MB.",
)

# %% [markdown]
# (One process here, without DDP's buckets: plain has its peak at 28.5 MB.) With full recomputation the peak moves to
# late in backward, where nearly all gradients are there.
#
# | way | what falls | price |
# |---|---|---|
# | a checkpoint around every block | activations, to the inputs of blocks | one more forward pass, a third more computation |
# | a checkpoint around some blocks | a part of them | a part of that |
# | selective | activations that are cheap to compute | little computation; which ones depends on the block |
# | micro-batches | activations, to those of one | smaller products, which use a GPU less well |
# | offload | nearly all activations | each byte crosses the link to the host twice |
# | more ranks with DDP | nothing | |
#
# ### Models that you do not have
#
# All of this was arithmetic, so it can be done for any model.

# %%
gpt3 = dtlearn.predict(
    "GPT-3 has 175 billion parameters. Many texts say that it needs 700 GB. How many times as "
    "much do parameters, gradients and optimizer state take together, in mixed precision with "
    "Adam as the ZeRO paper counts?",
    unit="times",
    id="ch08.gpt3",
)

# %% jupyter={"source_hidden": true}
from dtlearn.memory import training_state

weights = training_state(175 * 10**9, "fp32 Adam")["parameters"]
state = sum(training_state(175 * 10**9, "mixed 16").values())
gpt3.reveal(round(state / weights), weights=weights / 1e9, state=state / 1e12)

# %% [markdown]
# One GPU, one model: which batch fits? The bars are parameters, gradients, optimizer state, activations and
# temporaries (mostly the gradients of the logits and of their log-softmax, in fp32). The line is what the GPU's driver
# reports, which need not be what it is sold as: 150.8 GB for an H200 of "141 GB", 85.5 GB for an H100 of "80 GB". The
# precisions are those of section 3. (FlashAttention keeps no scores, so recomputing attention changes nothing for
# Llama.)

# %% jupyter={"source_hidden": true}
from dtlearn.memory.arithmetic import fits, published
from dtlearn.notebook.panels import Slider, slider_panel
from dtlearn.viz import fit_bars
from dtlearn.viz.units import parse_quantity


def draw_fit(model, gpu, batch, length, precision):
    """What fits, for each kind of recomputation."""
    kinds = {
        "no recomputation": "none",
        "attention recomputed": "selective",
        "blocks recomputed": "full",
    }
    sizes, card = published.MODELS[model], published.GPUS[gpu]
    found = {
        name: fits.what_fits(sizes, card, batch, precision, kind, length=length)
        for name, kind in kinds.items()
    }
    label = f"{batch} x {length:,} tokens, {precision}"
    return fit_bars(found, model, gpu, label)


def whole(text):
    """A whole number that somebody typed."""
    number = parse_quantity(text)
    if number != int(number):
        raise ValueError(f"{text} is not a whole number")
    return int(number)


slider_panel(
    draw_fit,
    alt="Three bars of bytes against the memory of one GPU. At first Llama 3 8B on an H200, one "
    "sequence of 8,192 tokens, 16 bytes per parameter: 185 GB without recomputation and with "
    "recomputation of attention scores, 143 GB if every block is recomputed. The GPU has "
    "150.8 GB. In every bar the optimizer's state is 96 GB, parameters and gradients 16 each.",
    model=Slider(tuple(published.MODELS), "Llama 3 8B", "model"),
    gpu=Slider(tuple(published.GPUS), "H200", "GPU"),
    batch=Slider((1, 2, 4, 8, 16, 32, 64), 1, "sequences at once", read=whole),
    length=Slider(
        (512, 1024, 2048, 4096, 8192), 8192, "tokens of a sequence", read=whole
    ),
    precision=Slider(tuple(CONVENTIONS), "mixed 16", "precision"),
)

# %% [markdown]
# The 8 billion parameters of Llama 3 8B come to 128 GB before the first activation: no GPU of 80 GB holds them, with
# any batch. From 70 billion on, nothing in this chapter helps on one GPU.
#
# **When to use which.** Begin with what is free: bf16, FlashAttention, no leak. Then a smaller micro-batch with
# accumulation, as long as the products stay large. Then checkpoints, around as many blocks as needed and no more.
# Offload if the link is fast and the computation long. And if parameters, gradients and state alone do not fit, shard
# them: that is chapter 9.

# %% [markdown]
# # Further
#
# Each section needs the core path's sections that its first line names, and nothing else of Further unless it says so.
# In a new session run the first code cell and the two folded cells for the ranks (sections 2 and 6) again, and the
# cells of the sections that are needed.
#
# | section | needs | exercise: minutes |
# |---|---|---|
# | Which parameters have state? | section 3 | 3: 15 |
# | What does every term of a block keep? | section 4 | 4: 20 |
# | Who owns the peak, and what does a GPU show? | section 2 | |
# | Which lines leak? | section 5 | 5: 20 |
# | Can you write a checkpoint? | section 6 | 6: 40 |
# | Which results should be kept? | section 6 | 7: 25 |
# | What does accumulation save? | section 2; chapter 7, section 4 | |
# | Can activations wait on the host? | section 6 | 8: 35 |
# | Can the optimizer step inside backward? | sections 2 and 3 | |
# | What does each way cost? | section 8, and "Can the optimizer step inside backward?" | |
# | What does DDP add? | section 2; chapter 3 | |
# | What do the logits take? | sections 6 and 8 | |
# | Can the optimizer's state have fewer bits? | section 3; chapter 7, "Which other ways keep small updates?" | |
# | How is a slower step measured? | section 6 | |
# | Is the arithmetic right? | section 8 | |
# | What if one rank recomputes and another does not? | section 6 | |
# | Where do the libraries do it? | section 8, and the sections that it names | |
# | What is different on GPUs? | section 2, and "Who owns the peak, and what does a GPU show?" | |
# | Myths, and questions to check yourself | the core path, and what each names | |
#
# ## Which parameters have state?
#
# *Needs: section 3.* Not every parameter counts in the same way: a **frozen** one (`requires_grad=False`) has neither
# gradient nor state, and a **tied** one, such as an embedding that is also the output layer, is one tensor with two
# names and counts once.
#
# **Exercise 3.** The training state of a model, under each convention.

# %% exercise="ch08.adam_state"

# %% [markdown]
# ## What does every term of a block keep?
#
# *Needs: section 4.*
#
# **Exercise 4.** All terms of a block.

# %% exercise="ch08.activation_bytes"

# %% [markdown]
# All terms, for 16 bits, with dropout, and with attention that keeps its scores:

# %% jupyter={"source_hidden": true}
rank_table(
    [
        {
            "part": term.module,
            "kept": term.kept,
            "for": term.needed_for,
            "bytes": term.formula,
            "MB": f"{term.bytes / 1e6:.1f}",
        }
        for term in activations.paper_block(short)
    ],
    caption="b = 1, s = 2,048, h = 1,024, a = 16. Together sbh (34 + 5as/h), "
    f"{table_bytes(activations.paper_block(short)) / 1e6:.0f} MB for one block",
)

# %% [markdown]
# Newer blocks differ from the table. Each change alone, for the block above:

# %% jupyter={"source_hidden": true}
from dtlearn.memory.arithmetic import block_variants

rank_table(
    [
        {
            "change": effect.name,
            "MB before": f"{effect.before / 1e6:.0f}",
            "MB after": f"{effect.after / 1e6:.0f}",
            "bytes per token and hidden number": f"{effect.after / short.sbh:.1f}",
            "why": effect.why,
        }
        for effect in block_variants.effects(short, kv_heads=4)
    ],
    caption="b = 1, s = 2,048, h = 1,024, a = 16, 16 bits",
)

# %% [markdown]
# Only FlashAttention changes how the bytes grow with the sequence: it removes the term with $s^2$.

# %% [markdown]
# ## Who owns the peak, and what does a GPU show?
#
# *Needs: section 2.* A job runs out of memory at one moment: at the peak. So ask of it three things: *when* it is,
# *what category* it is made of, and *which module* holds it.

# %% jupyter={"source_hidden": true}
import inspect

from dtlearn.models import gpt
from dtlearn.viz import module_map

print(peak_words(records[0]))
owner = records[0].peak.owner
of_gpt = inspect.getsource(gpt).splitlines()
code = of_gpt[int(owner.line.rpartition(":")[2]) - 1].partition("  #")[0].strip()
print(f"the line is {owner.line}: {code}")
show(
    module_map(
        records[0],
        title="The blocks hold most of it, and activations most of each block",
        label="the step of section 2, rank 0",
    ),
    alt="A map of the bytes at the peak. Four large rectangles are the blocks, each somewhat "
    "more than a fifth; in three of them activations take nearly two thirds, the optimizer's "
    "state a quarter, parameters an eighth. The last block has temporaries and the first "
    "gradients, too. On the right are DDP's buckets, which belong to no module, with 11 "
    "percent. Embedding and head are small.",
)

# %% [markdown]
# (DDP's buckets belong to no module.) The peak is early in backward. All activations of the blocks are still there; the
# matrix product of the last block's second feed-forward layer has just made the gradient of its input, which is four
# times as wide as the hidden size. The **owner** of the peak is the largest storage that was made in the phase of the
# peak. The ledger gives its module, its operation and the line of the forward pass that it belongs to.
#
# ### What you see on a GPU
#
# (None of this is run here: it needs an NVIDIA GPU. On one, `dtlearn.memory.ledger.on_gpu.allocator_figures()` gives
# the figures of the table.)
#
# On a GPU, PyTorch does not ask the driver for each tensor. Its **caching allocator** takes large **segments** from the
# driver, cuts **blocks** for tensors out of them, and keeps a block that is released for the next tensor. So there are
# several figures for "the memory of the job":
#
# | figure | what it counts |
# |---|---|
# | the ledger | bytes of the storages |
# | `torch.cuda.memory_allocated()` | blocks in use: each storage rounded up to a multiple of 512 bytes (a large one sometimes by up to 1 MiB), and workspaces of operations |
# | `torch.cuda.memory_reserved()` | all segments, with the blocks in them that are free |
# | `nvidia-smi` | reserved, and what is not a tensor: the CUDA context, libraries, NCCL's buffers |
#
# After a peak, reserved is larger than allocated: free blocks wait for the next step. That is how it should be. But
# if an allocation fails although the free blocks together are larger than it, they lie between used ones and each is
# too small: the memory is **fragmented**. That comes from sizes that change from step to step.
# `PYTORCH_ALLOC_CONF=expandable_segments:True` lets segments grow, and helps (its older name,
# `PYTORCH_CUDA_ALLOC_CONF`, still works). In the message of section 1, 204 MiB were reserved and not in use, and 512
# MiB were asked for: that memory was full. With 2.70 GiB in the place of 204 MiB it would have been fragmented.

# %% [markdown]
# ## Which lines leak?
#
# *Needs: section 5.* The ledger says which lines made what stays, here the
# first three. It cannot say who keeps it: that you have to find in the loop, which has the leak, and not in these
# lines.

# %% jupyter={"source_hidden": true}
import inspect
from functools import partial

from dtlearn.models import gpt


def code_of(line):
    """The code of a line of the GPT, which the ledger calls "file:line"."""
    number = int(line.rpartition(":")[2])
    code = inspect.getsource(gpt).splitlines()[number - 1]
    return code.partition("  #")[0].strip()


torch.manual_seed(0)
leaking = partial(
    leaks.keep_validation_loss, GPT(config), None, batch, next_token_loss, []
)
by_line = leaks.growth_by_line(leaking, num_steps=2, warm=1)
rank_table(
    [
        {
            "line": line,
            "its code": code_of(line),
            "MB more per validation": f"{grown / 1e6:.2f}",
        }
        for line, grown in list(by_line.items())[:3]
    ],
    caption="The lines of the forward pass that made most of what stays",
)

# %% [markdown]
# On several ranks there is one more object to think of. `dist.all_reduce(flat, async_op=True)` returns a `Work`
# (chapter 3), and that object keeps `flat` alive as long as it lives itself, also after `wait()`. In the ledger
# `flat` counts as communication, or as gradients if the gradients are views of it. In a sound loop the maximum of
# that category stays the same; in a leak it rises with every step.
#
# **Exercise 5.** Find the leaks of a training loop.

# %% exercise="ch08.find_the_leak"

# %% [markdown]
# Four kinds of leak, each in a training step, and what each adds. (A view that is kept, such as one row of the outputs,
# keeps the whole storage.)

# %% jupyter={"source_hidden": true}
rows = []
for name, step in leaks.LEAKS.items():
    torch.manual_seed(0)
    model = GPT(config)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    kept = []
    run = partial(step, model, optimizer, batch, next_token_loss, kept)
    after = live_after_each(run, 4)
    rows.append(
        {"kept": name, "MB more per step": f"{(after[-1] - after[-2]) / 1e6:.2f}"}
    )
rank_table(rows, caption="What keeping something costs per step")

# %% [markdown]
# ## Can you write a checkpoint?
#
# *Needs: section 6.* (Leave its page folded.)
#
# A checkpoint has to run code of its own when backward comes to it. For that PyTorch has `torch.autograd.Function`: a
# class with two static methods, which autograd treats as one operation.
#
# - `forward(ctx, *inputs)` computes the result. Autograd records nothing inside it. What backward will need goes into
#   `ctx`: tensors with `ctx.save_for_backward(...)`, anything else as an attribute.
# - `backward(ctx, *gradients)` gets one gradient for each result. It returns one for each input of `forward`, in the
#   same order, and `None` for an input that has no gradient, such as a number or a function. Autograd records nothing
#   in here either; within `with torch.enable_grad():` it does.
#
# The operation is called with `.apply(...)`. Its `backward` runs only if one of the *tensors given to `apply`*
# requires a gradient. An example, $y = x^n$:


# %%
class Power(torch.autograd.Function):
    """x to the power of n, a number."""

    @staticmethod
    def forward(ctx, x, n):
        ctx.save_for_backward(x)
        ctx.n = n
        return x**n

    @staticmethod
    def backward(ctx, gradient):
        (x,) = ctx.saved_tensors
        return gradient * ctx.n * x ** (ctx.n - 1), None  # of x, of n


x = torch.tensor([1.0, 2.0, 3.0], requires_grad=True)
Power.apply(x, 3).sum().backward()
x.grad

# %% [markdown]
# **Exercise 6.** A checkpoint of your own. The second pass has to be the *same* as the first, also in what the function
# draws at random.

# %% exercise="ch08.checkpoint"

# %% [markdown]
# The page of section 6 is a shorter one. What the package's `checkpoint` adds to the page:
#
# - arguments and results may be of any kind: numbers, tensors in lists and dictionaries, results that the loss does not
#   need;
# - autocast (chapter 7) is in the second pass what it was in the first, and so are the random numbers of a GPU;
# - a function that needs no gradient runs only once;
# - the results of the second pass are freed before its backward pass begins;
# - a function that changes one of its inputs, and `torch.autograd.grad` through a checkpoint, are errors that say so.
#
# PyTorch's `checkpoint(..., preserve_rng_state=False)` forgets the random numbers on purpose, as in section 7:
# restoring the state takes time, and a function without dropout does not need it. If the budget allows it, recompute
# **some** of the blocks only; `plan_recomputation` finds the cheapest set for a budget.
#
# ## Which results should be kept?
#
# *Needs: section 6.* Not all activations are worth the same. A matrix product takes many operations for each byte of
# its result, a norm or GELU hardly any. So keep the results that are expensive to compute, and compute the cheap ones
# again. Here are the operations of one block of the GPT, sorted by what it costs to compute a byte of their results
# again, the most expensive first. (A multiplication with its addition counts as two. What is not a matrix product
# counts as one for each number of its result: its time is that of reading and writing.)

# %% jupyter={"source_hidden": true}
from dtlearn.memory import operation_costs

rank_table(
    [
        {
            "operation": cost.name.removeprefix("_").removesuffix("_for_cpu"),
            "calls": cost.calls,
            "kB of results": f"{cost.bytes / 1e3:,.0f}",
            "million operations": f"{cost.flops / 1e6:.2f}",
            "operations per byte": f"{cost.flops_per_byte:.1f}",
        }
        for cost in operation_costs(sixteen.blocks[0], torch.randn(8, 64, 64))
    ],
    caption="One block: h = 64, 8 x 64 tokens, fp32",
)

# %% [markdown]
# **Exercise 7.** Which results of a block to keep, for a budget.

# %% exercise="ch08.selective"

# %% [markdown]
# The package's `selective_checkpoint` asks a policy about every operation of the first pass. What the policy wants is
# kept, the second pass uses it, and everything else is computed again. This policy keeps what the table has at the top:

# %%
from dtlearn.memory.recomputation import selective
from dtlearn.memory.saving import variants

dtlearn.show_source(selective.keep_only, docstring=False, summary="keep_only")
dtlearn.show_source(variants.forward_selective, docstring=False)

# %% [markdown]
# "What does each way cost?" shows how much it saves. PyTorch's counterpart is
# `torch.utils.checkpoint.create_selective_checkpoint_contexts`. Korthikanti et al. recompute the core of the
# attention only, with its $5as/h$: that saves 70 % of the activations of GPT-3. On one layer of their model with 22
# billion parameters, forward and backward took 7 % longer, in place of 39 % with full recomputation (their table 4).
# With FlashAttention that part is gone already, so today one chooses other modules: Megatron-LM's
# `--recompute-modules` takes a list (`core_attn`, `moe_act`, `layernorm`, `mla_up_proj`, `mlp`, ...).
#
# ## What does accumulation save?
#
# *Needs: section 2; chapter 7, section 4.* A batch goes through in $k$ micro-batches, whose gradients add up. The
# reason to do so is memory: only the activations of one micro-batch are there at a time.

# %%
micro = dtlearn.predict.choice(
    "The batch of section 2 in 4 micro-batches. How does the peak change?",
    {
        "A": "It falls to about a quarter.",
        "B": "It falls by less: only the activations are a quarter.",
        "C": "It rises: the gradients have to be accumulated in addition.",
    },
    id="ch08.micro",
)

# %% [markdown]
# There is a wrong way to do it, which looks right: add up the losses, and call `backward()` once.

# %%
from dtlearn.memory.saving import accumulation

dtlearn.show_source(accumulation.accumulate_losses, docstring=False)
dtlearn.show_source(accumulation.accumulate_gradients, docstring=False)


# %% jupyter={"source_hidden": true}
from dtlearn.memory import MemoryLedger


def accumulation_peak(accumulate, num_microbatches):
    torch.manual_seed(0)
    model = GPT(config)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    next_token_loss(model(batch[0]), batch[1]).backward()
    optimizer.step()  # the state is there
    optimizer.zero_grad()
    with MemoryLedger(model, optimizer, inputs=batch) as ledger:
        accumulate(model, batch, next_token_loss, num_microbatches)
    return ledger.record().peak


peaks = {
    "the whole batch": accumulation_peak(accumulation.accumulate_gradients, 1),
    "4 micro-batches": accumulation_peak(accumulation.accumulate_gradients, 4),
    "4 micro-batches, losses added up": accumulation_peak(
        accumulation.accumulate_losses, 4
    ),
}

# %% jupyter={"source_hidden": true}
micro.reveal()

# %% jupyter={"source_hidden": true}
rank_table(
    [
        {
            "batch": name,
            "peak": f"{peak.bytes / 1e6:.2f}",
            **{
                c: f"{peak.by_category[c] / 1e6:.2f}"
                for c in ("activations", "gradients", "temporaries")
            },
        }
        for name, peak in peaks.items()
    ],
    caption="MB at the peak; parameters and state are the same in all",
)

# %% [markdown]
# The gradients *at the peak* are more: they are there from the second micro-batch on, while a plain step has few of
# them when the activations reach their maximum. So the peak falls by less than the activations do. Where activations
# are few beside the gradients, accumulation can even raise it.

# %% [markdown]
# ## Can activations wait on the host?
#
# *Needs: section 6.* The memory of the host is several times as large as that of the GPU. Activations could wait
# there between forward and backward. `torch.autograd.graph.saved_tensors_hooks` is made for this: autograd hands each
# tensor that it saves to a function `pack`, keeps what it returns, and hands that to `unpack` when backward needs it.
# By hand, for $y = Wx$, $z = \mathrm{GELU}(y)$:
#
# | | autograd saves | pack keeps | on the device |
# |---|---|---|---|
# | forward, $y = Wx$ | $x$, $W$ | a copy of $x$ on the host; $W$ itself | $W$ |
# | forward, $z = \mathrm{GELU}(y)$ | $y$ | a copy of $y$ on the host | $W$ |
# | backward of GELU | | | $W$, $y$ again |
# | backward of $Wx$ | | | $W$, $x$ again |
#
# $W$ is a parameter: it stays on the device anyway, and a copy of it would cost time and save nothing.

# %% [markdown]
# **Exercise 8.** Saved tensors that wait elsewhere.

# %% exercise="ch08.offload"

# %% [markdown]
# The package's `OffloadActivations` is such a pair of hooks. A CPU has no second memory, so here the host is
# *emulated*: a NumPy array, which the ledger does not count. The bytes are those of a GPU, the times are not. This
# decides what is offloaded:

# %%
from dtlearn.memory import OffloadActivations
from dtlearn.memory.saving import offload

dtlearn.show_source(
    offload.OffloadActivations,
    docstring=False,
    summary="dtlearn.memory.OffloadActivations",
)

# %% jupyter={"source_hidden": true}
import contextlib

from torch.autograd.graph import save_on_cpu


def step_with(context):
    """Gradients of a step whose forward pass runs in this context, and the maximum of two categories."""
    with MemoryLedger(model, inputs=batch) as ledger:
        with context:
            loss = next_token_loss(model(batch[0]), batch[1])
        loss.backward()
    gradients = torch.cat([p.grad.flatten() for p in model.parameters()])
    model.zero_grad()
    most = ledger.record().live
    return gradients, [max(most(c)) / 1e6 for c in ("activations", "temporaries")]


torch.manual_seed(0)
model = GPT(config)
plain, kept = step_with(contextlib.nullcontext())
ours, kept_with_ours = step_with(offloaded := OffloadActivations(model))
theirs, _ = step_with(save_on_cpu())
print(
    "gradients equal to the last bit:",
    torch.equal(plain, ours),
    torch.equal(plain, theirs),
)
print("at most on the device, in MB:")
for what, (held, short_lived) in (("plain", kept), ("with offload", kept_with_ours)):
    print(f"  {what}: activations {held:.2f}, temporaries {short_lived:.2f}")
print(f"at most on the host: {offloaded.host.peak / 1e6:.2f} MB")

# %% [markdown]
# The activations are gone from the device. A tensor that comes back is used by one operation of backward and
# released: the ledger counts it as a temporary. On the host more bytes wait than were on the device: a tensor that
# three operations save is copied three times. (PyTorch's `save_on_cpu` does the same, and copies the parameters as
# well. On a CPU it moves nothing, so only its gradients are compared here.)
#
# The price is time: each byte crosses the link between host and GPU twice. Offload pays off if the copies run beside
# the computation and take less time than it does, so the link decides:
#
# | link | GB/s in each direction, at most |
# |---|---|
# | PCIe 4.0, 16 lanes | 32 |
# | PCIe 5.0, 16 lanes | 64 |
# | NVLink-C2C, between the CPU and the GPU of a GH200 or GB200 | 450 |
#
# To run beside the computation, copies need **pinned** memory on the host, which the operating system does not move to
# disk: the GPU copies from and to it by itself.
#
# ## Can the optimizer step inside backward?
#
# *Needs: sections 2 and 3.* An ordinary step holds all gradients at the end of backward. But the optimizer could update
# a parameter as soon as its gradient is complete, and free the gradient. PyTorch has a hook for that moment:
# `register_post_accumulate_grad_hook`.

# %%
in_backward = dtlearn.predict(
    "fp32, Adam, an optimizer that steps inside backward and frees each gradient at once: "
    "how many bytes of parameters, gradients and optimizer state are there at the end of "
    "backward, for each parameter?",
    unit="bytes",
    id="ch08.in_backward",
)

# %% jupyter={"source_hidden": true}
from dtlearn.memory import OptimizerInBackward

found = {}
for name, wrap in (("ordinary", lambda o: o), ("in backward", OptimizerInBackward)):
    torch.manual_seed(0)
    model = GPT(config)
    optimizer = wrap(torch.optim.AdamW(model.parameters(), lr=1e-3))
    record = record_step(model, optimizer, batch, next_token_loss)
    after_backward = next(
        phase for phase in record.phases if phase.name == "backward"
    ).stop
    state = ("parameters", "gradients", "optimizer state")
    there = sum(a.bytes for a in record.at(after_backward) if a.category in state)
    weights = torch.cat([p.detach().flatten() for p in model.parameters()])
    found[name] = weights, there / config.num_parameters, max(record.live("gradients"))
same = torch.equal(found["ordinary"][0], found["in backward"][0])
print("the same weights after two steps, to the last bit:", same)

# %% jupyter={"source_hidden": true}
in_backward.reveal(round(found["in backward"][1]), ordinary=found["ordinary"][1])

# %% [markdown]
# What is lost is everything that needs *all* gradients between backward and the update: clipping by the global norm,
# loss scaling (chapter 7), accumulation. The package's `OptimizerInBackward` refuses most of it with a reason. It
# cannot see PyTorch's DDP, which would average each gradient after the update: the replicas would drift apart,
# without an error. It need not be so: DDP's communication hook can step when a bucket's all-reduce is over, as
# PyTorch's own hooks with an optimizer do (`hook_with_zero_step`).
#
# ## What does each way cost?
#
# *Needs: section 8, and "Can the optimizer step inside backward?"* Every way of this chapter, on one model and one
# batch. One unit is a forward pass of the whole model.

# %% jupyter={"source_hidden": true}
from dtlearn.memory.recomputation.planner import RecomputationPlan, run_plan


def checkpoint_first(n):
    """The forward pass with a checkpoint around each of the first n blocks."""
    plan = RecomputationPlan(tuple(range(n)), 0, 0.0)
    return lambda model, tokens: model.head(
        run_plan(model.blocks, model.embedding(tokens), plan)
    )


ways = variants.VARIANTS | {
    f"checkpoint {n} of 4 blocks": variants.Variant(checkpoint_first(n))
    for n in (1, 2, 3)
}
steps |= {
    name: variants.record_variant(way, work)
    for name, way in ways.items()
    if name not in steps
}
forward = variants.count_forward_operations(work)
operations = {name: variants.count_operations(way, work) for name, way in ways.items()}
extra = {name: (n - operations["plain"]) / forward for name, n in operations.items()}

# %% jupyter={"source_hidden": true}
from dtlearn.viz import memory_front

apart = {name: "bytes to the host and back" for name in steps if "offload" in name}
show(
    memory_front(
        {name: (extra[name], step.peak.bytes) for name, step in steps.items()},
        cost="extra computation (1 = a forward pass of the model)",
        title="What a lower peak costs",
        label="GPT with 0.8 million parameters, 8 x 64 tokens, AdamW, fp32",
        apart=apart,
    ),
    alt="Peak over extra computation. Without any: plain and optimizer in backward 28.5 MB, "
    "selective 24.5, 4 micro-batches 18.2, offload 16.1. With a quarter, half and three "
    "quarters of a forward pass, one, two and three of four blocks in a checkpoint: the peak "
    "falls step by step. With a whole forward pass: every 4 blocks 28.5, every 2 blocks "
    "21.7, every block 18.3, with optimizer in backward 16.6, with 4 micro-batches 15.2 MB. "
    "The front has 4 micro-batches, and checkpoint with 4 micro-batches.",
)

# %% [markdown]
# Offload costs no computation; its price is traffic, so its points stand apart. Two more costs are not in the
# picture. Only matrix products are counted, so what selective recomputation runs again, norms and GELU, is 0 here.
# And micro-batches make matrix products smaller, and small ones use a GPU less well.
#
# "Checkpoint, optimizer in backward" gains more than either alone: with recomputation the peak is where nearly all
# gradients are. "Checkpoint and offload" gains nothing over the checkpoint: at its peak the first block is computed
# again, and by then the inputs of all later blocks, which offload sends to the host, are gone anyway.
#
# ## What does DDP add?
#
# *Needs: section 2; chapter 3.* DDP sends gradients in **buckets**, and buckets are memory: the 3.3 MB of
# communication in section 2, as many bytes as all gradients. Each gradient is made by backward and then copied into
# its bucket, which stays for the whole training. With `gradient_as_bucket_view=True` DDP makes the gradient a view of
# its place in the bucket after that copy, and releases the tensor that backward made.

# %%
buckets = dtlearn.predict.choice(
    "The step of section 2, now with `gradient_as_bucket_view=True`. When does each rank "
    "hold 3.3 MB less than with DDP's default?",
    {
        "A": "at the peak and after backward",
        "B": "at the peak, but not after backward",
        "C": "after backward, but not at the peak",
        "D": "at neither: the buckets have the same size as before",
    },
    id="ch08.buckets",
)

# %% jupyter={"source_hidden": true}
# %%ranks -o modes
pairs = [dist.new_group([0, 1]), dist.new_group([2, 3])]  # every rank makes both groups
groups = {1: None, 2: pairs[rank // 2], 4: dist.group.WORLD}
modes = {}
for n, group in groups.items():
    for views in (False, True) if n > 1 else (False,):
        model = fresh_model()
        if n > 1:
            model = DistributedDataParallel(
                model, process_group=group, gradient_as_bucket_view=views
            )
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
        step = record_step(model, optimizer, my_batch(), next_token_loss)
        backward = next(phase for phase in step.phases if phase.name == "backward")
        after = {c: line[backward.stop] for c, line in step.timeline().items()}
        modes[n, views] = after, step.peak.bytes
modes

# %% jupyter={"source_hidden": true}
buckets.reveal(
    **{
        f"{when}_{'views' if views else 'default'}": n / 1e6
        for views in (False, True)
        for after, peak in [modes[0][4, views]]
        for when, n in (("after", sum(after.values())), ("peak", peak))
    }
)

# %% jupyter={"source_hidden": true}
from dtlearn.viz import stacked_bars

names = {
    (1, False): "1 rank, no DDP",
    (2, False): "2 ranks, default",
    (4, False): "4 ranks, default",
    (2, True): "2 ranks, bucket views",
    (4, True): "4 ranks, bucket views",
}
show(
    stacked_bars(
        {name: modes[0][key][0] for key, name in names.items()},
        unit="MB",
        title="DDP holds the gradients twice, unless they lie in its buckets",
        label="rank 0 at the end of backward; 8 x 64 tokens on each rank, AdamW",
    ),
    alt="Five bars at the end of backward, stacked by category. Without DDP 13.4 MB: "
    "parameters, gradients and the optimizer's state. With DDP's default, on 2 ranks and on "
    "4 alike, 3.3 MB of communication more. With bucket views, on 2 and on 4 ranks, as "
    "without DDP.",
)

# %% [markdown]
# With bucket views the gradients lie in the buckets: after backward the second copy is gone. At the peak of this step
# the difference is 0.07 MB. The peak is early in backward: the buckets are there in both cases, and of the gradients
# only 0.33 MB have been made. The newest one, 0.26 MB, has not been copied into its bucket yet in either case.
#
# No bar becomes smaller with more ranks. Each rank has a whole copy of the parameters, the gradients and the state.
# That is what option D of the first prediction meant, and what chapter 9 changes.

# %% [markdown]
# ## What do the logits take?
#
# *Needs: sections 6 and 8.* The last layer gives a number for each token and each word of the vocabulary. For Llama 3
# 8B and 8,192 tokens that is 1.05 billion logits: 4.2 GB in fp32. Their log-softmax takes as much, and then the logits
# are freed. In backward come two gradients, that of the log-softmax and that of the logits: three times 4.2 are 12.6 of
# the 185 GB in section 8's widget. They need not be there at once. The loss is a sum over tokens, so it can be computed for some tokens at a time, with a checkpoint
# around each part:

# %%
from dtlearn.memory import checkpoint


def loss_in_chunks(hidden, head, targets, chunks):
    """The mean cross-entropy; the logits of a chunk live at a time."""

    def of(h, y):
        return torch.nn.functional.cross_entropy(head(h), y, reduction="sum")

    parts = zip(hidden.chunk(chunks), targets.chunk(chunks), strict=True)
    return sum(checkpoint(of, h, y) for h, y in parts) / len(targets)


for chunks in (1, 8):
    torch.manual_seed(0)
    head = torch.nn.Linear(128, 8192, bias=False)
    hidden = torch.randn(512, 128, requires_grad=True)
    targets = torch.randint(8192, (512,))
    with MemoryLedger(head, inputs=(hidden, targets)) as ledger:
        loss = loss_in_chunks(hidden, head, targets, chunks)
        loss.backward()
    print(f"chunks: {chunks}, peak {ledger.record().peak.bytes / 1e6:.1f} MB, ", end="")
    print(f"norm of the head's gradient {head.weight.grad.norm():.4f}")

# %% [markdown]
# Libraries go one step further and compute the gradient of a part right after its loss, so that nothing is computed
# twice (Liger, arXiv 2410.10989), or never write logits to memory at all (cut cross-entropy, arXiv 2411.09009).
#
# That is **operator fusion**: one kernel does the work of several operations, and what lies between them never
# reaches the GPU's memory. It saves the time of writing and reading, and the bytes. FlashAttention is another
# example. `torch.compile` fuses chains of cheap operations, such as a bias, GELU and dropout, by itself, and decides
# which of their results to keep for backward and which to compute again.
#
# ## Can the optimizer's state have fewer bits?
#
# *Needs: section 3; chapter 7, "Which other ways keep small updates?"* Adam's moments need range more than precision.
# So they can be stored in fewer bits, and converted for the update:
#
# | moments | bytes of both | "mixed 16" becomes |
# |---|---|---|
# | fp32 | 8 | 16 |
# | bf16, as in DeepSeek-V3 (arXiv 2412.19437, section 3.3.3) | 4 | 12 |
# | 8 bits, a scale for each block of 2,048 (Dettmers et al., arXiv 2110.02861; bitsandbytes) | 2.004 | 10.004 |
#
# Megatron-LM sets the formats of masters and moments with `--use-precision-aware-optimizer`; chapter 7's compensated
# updates make do with 2 bytes in place of a master.
#
# ## How is a slower step measured?
#
# *Needs: section 6.* A model needs about 6 floating-point operations for each parameter and token: 2 in
# forward, 4 in backward. **MFU**, model FLOPs utilisation, is that arithmetic over time and the peak of the GPU
# (PaLM, arXiv 2204.02311). Full recomputation makes it 8, and the step up to a third longer. MFU falls, for the model
# needs no more than before; **HFU**, hardware FLOPs utilisation, counts all 8 and is 4/3 of MFU. If Llama 3 8B does
# 8,000 tokens a second on a GPU with a peak of 989 TFLOP/s, its MFU is $6 \cdot 8.03 \cdot 10^9 \cdot 8000 / 989
# \cdot 10^{12}$ = 39 %, and with full recomputation its HFU 52 %. Compare strategies by MFU, or by tokens a second.
#
# ## Is the arithmetic right?
#
# *Needs: section 8.* It gives the two figures of GPT-3 that many texts have, and those that papers print:

# %% jupyter={"source_hidden": true}
rank_table(
    [
        {
            "what": figure.what,
            "printed": f"{figure.printed:g} {figure.unit}",
            "ours": f"{figure.ours:.4g} {figure.unit}",
            "where, and by which rule": figure.source,
        }
        for figure in published.published_figures()
    ],
    caption="Published figures, and the same by the package's arithmetic",
)

# %% [markdown]
# Left out are the CUDA context, NCCL's buffers and fragmentation, a few GB: what fits with less to
# spare would fail in practice. Gradients are counted as if they were there all the time, as they are with accumulation
# or DDP.
#
# ## What if one rank recomputes and another does not?
#
# *Needs: section 6.* The second pass repeats everything, so collectives in the segment are called twice. That is
# right as long as **all** ranks do so. Here only rank 0 has a checkpoint:


# %% tags=["nbval-ignore-output"]
# %%ranks --expect deadlock
def centred(x):
    total = x.detach().mean()
    dist.all_reduce(total)
    return x - total / world_size


x = torch.ones(4, device=device, requires_grad=True)
y = checkpoint(centred, x) if rank == 0 else centred(x)
y.square().sum().backward()
dist.all_reduce(x.grad)

# %% [markdown]
# The diagnosis names the line, and that it is another one on rank 0: its second all-reduce is the repeated one, while
# the others are in the next call already. Without the watch, NCCL would hang here or read beyond the end of a tensor.
# So whether a segment is recomputed must be the same decision on all ranks, and recomputation repeats communication
# (chapter 12 counts it for tensor parallelism).
#
# ## Where do the libraries do it?
#
# *Needs: section 8, and the sections that it names.* Where a name is not of the core path, its section stands below
# the table.
#
# | here | in PyTorch | elsewhere |
# |---|---|---|
# | `MemoryLedger` | `torch.distributed._tools.mem_tracker.MemTracker`; on a GPU the memory snapshot | DeepSpeed's `see_memory_usage` |
# | `checkpoint` | `torch.utils.checkpoint.checkpoint(..., use_reentrant=False)` | Megatron-LM `--recompute-granularity full`; Hugging Face `gradient_checkpointing_enable()` |
# | `checkpoint_every` | `torch.utils.checkpoint.checkpoint_sequential`, which is told the number of segments and does not recompute the last one | Megatron-LM `--recompute-method uniform --recompute-num-layers k` |
# | `selective_checkpoint` | `create_selective_checkpoint_contexts` | Megatron-LM `--recompute-granularity selective --recompute-modules ...`; torchtitan's selective mode |
# | `plan_recomputation` | `torch.compile` with an activation memory budget | |
# | `OffloadActivations` | `torch.autograd.graph.save_on_cpu` | torchtune's `OffloadActivations` |
# | `OptimizerInBackward` | `register_post_accumulate_grad_hook` ([tutorial](https://docs.pytorch.org/tutorials/intermediate/optimizer_step_in_backward_tutorial.html)) | torchtune's `optimizer_in_bwd` |
#
# Of Further are `selective_checkpoint` ("Which results should be kept?"), `plan_recomputation` ("Can you write a
# checkpoint?"), `OffloadActivations` ("Can activations wait on the host?"), `OptimizerInBackward` ("Can the optimizer
# step inside backward?") and the memory snapshot ("What is different on GPUs?").
#
# (torchtune's code is still good to read; its development was stopped in [July
# 2025](https://github.com/meta-pytorch/torchtune/issues/2883).) Does our ledger count what PyTorch's tracker counts?

# %% jupyter={"source_hidden": true}
from torch.distributed._tools.mem_tracker import MemTracker

torch.manual_seed(0)
model = GPT(config)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
tracker = MemTracker()
tracker.track_external(model, optimizer, *batch)
for step in range(2):
    with tracker:
        next_token_loss(model(batch[0]), batch[1]).backward()
        optimizer.step()
        optimizer.zero_grad()
        if step == 0:
            tracker.reset_mod_stats()
(by_kind,) = tracker.get_tracker_snapshot("peak").values()
print(f"PyTorch's tracker: {by_kind['Total']:,} bytes at the peak")
print(f"our ledger:        {steps['plain'].peak.bytes:,} bytes at the peak")

# %% [markdown]
# ## What is different on GPUs?
#
# *Needs: section 2, and "Who owns the peak, and what does a GPU show?"* The cells run on GPUs when there is one for
# each rank, and the ledger's bytes are the same, but for operations that have other kernels there. Measure what a CPU
# does not show: the *time* of a checkpoint, of micro-batches, and of offload with pinned memory. The **memory
# snapshot** draws the picture of section 2 for every allocation, with its stack:
# `torch.cuda.memory._record_memory_history()`, some steps, `torch.cuda.memory._dump_snapshot("snapshot.pickle")`, and
# drop the file on [pytorch.org/memory_viz](https://docs.pytorch.org/memory_viz).

# %% [markdown]
# ## Myths, and questions to check yourself
#
# *Needs: the core path, and what each names.*
#
# **"The model is what fills the GPU."** The parameters are 3.3 of 31.8 MB in section 2. For Llama 3 8B on one GPU they
# are 16 of 185 GB (section 8).
#
# **"`empty_cache` frees memory."** It gives segments that hold no tensor back to the driver, for other processes.
# PyTorch would have used them again itself, and before it raises an out-of-memory error it gives them back anyway
# ([documentation](https://docs.pytorch.org/docs/stable/notes/cuda.html#memory-management)). What tensors occupy
# stays.
#
# **"`zero_grad` frees it."** Since torch 2.0 it does by default (`set_to_none=True`); but it frees gradients, and at
# the peak, early in backward, there are few of them.
#
# **"Gradient accumulation needs more memory."** It needs less, unless the activations are small beside the gradients.
# What needs more is adding up losses and calling `backward()` once ("What does accumulation save?").
#
# **"700 GB are 700 GiB."** They are 652 GiB. An A100 that is sold with "80 GB" has 80 GiB, 85.9 GB; a B200 that is sold
# with "192 GB" has 179 GiB, 192.3 GB. Ask for the unit.

# %% [markdown]
# ### Check yourself
#
# <details><summary>A job dies in the first <code>optimizer.step()</code>, after a forward and a backward pass that went
# well. Why there?</summary>
#
# The state of Adam is made in the first step: 8 bytes per fp32 parameter that were not there before.
# </details>
#
# <details><summary>A job runs for 3,000 steps and then dies. What do you look for first, and how?</summary>
#
# A leak. Print the bytes after each step (`torch.cuda.memory_allocated()`, or a ledger): if they rise, something keeps
# tensors of earlier steps. If they are level and the reserved bytes rise, it is fragmentation ("Who owns the peak, and
# what does a GPU show?"), often from sequences of different lengths. If both are level, a batch with a very long
# sequence may have come.
# </details>
#
# <details><summary>Full recomputation makes a step a third slower. You need only a tenth of the memory that it saves.
# What do you do?</summary>
#
# Recompute a few layers only, or selectively: the operations that are cheap to compute and large to keep.
# </details>
#
# <details><summary>13 billion parameters, bf16, fp32 gradients, masters, Adam, on GPUs of 80 GB with DDP. Which of this
# chapter's ways makes it fit? ("Can the optimizer step inside backward?")</summary>
#
# None. 18 bytes for each parameter are 234 GB on each rank, before any activation. All ways of this chapter but the
# optimizer in backward are about activations. The state has to be sharded (chapter 9).
# </details>
#
# <details><summary>("Can activations wait on the host?") A colleague offloads all saved tensors with
# <code>save_on_cpu</code>, parameters too. What is lost?</summary>
#
# Time: parameters are on the device anyway, so their copies save nothing and cross the link twice for each use.
# </details>
#
# ## Glossary
#
# {glossary}
#
# Next: chapter 9 shards what every rank now holds a copy of.
