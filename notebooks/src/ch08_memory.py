# %% [markdown]
# # Chapter 8. Memory
#
# **The question.** Where do the bytes go?
#
# Builds on: chapters 3 and 7. Ranks: 4. Time: two sittings.
#
# | | what | read and run | exercises |
# |---|---|---|---|
# | **A. Where they go**, sections 1 to 6 | a ledger of every byte of a step, the state of an optimizer, activations, the peak, a leak | 45 minutes | 4, 60 minutes |
# | **B. Holding fewer**, sections 7 to 15 | recomputation, accumulation, offload, what fits on which GPU | 60 minutes | 4, 70 minutes |
#
# After sitting A you can say before a run how many bytes each rank will hold, and when; a ledger agrees to the byte.
# After sitting B you know five ways to hold fewer bytes (full and selective recomputation, accumulation, offload, an
# optimizer in backward), what each of them costs, and whether a model fits on a GPU that you do not have.
#
# No GPU is needed: bytes are counted, and they are the same on a laptop. MB are $10^6$ bytes here and GB $10^9$;
# section 13 says where this matters.

# %% jupyter={"source_hidden": true}
# %load_ext dtlearn
import contextlib
import inspect
from functools import partial

import torch

import dtlearn
from dtlearn import memory
from dtlearn.memory import (
    CONVENTIONS,
    MemoryLedger,
    OffloadActivations,
    checkpoint_every,
    gpt_activations,
    live_after_each,
    operation_costs,
    page_checkpoint,
    record_step,
    segment_peak,
    table_bytes,
    training_state,
)
from dtlearn.memory.arithmetic import activations, block_variants, fits, published
from dtlearn.memory.recomputation import selective
from dtlearn.memory.saving import accumulation, leaks, offload, variants
from dtlearn.models import GPT, GPTConfig, gpt, load_corpus, next_token_loss
from dtlearn.notebook.panels import Slider, slider_panel
from dtlearn.viz import (
    fit_bars,
    held_after_steps,
    memory_front,
    module_map,
    peak_over_k,
    peak_words,
    rank_table,
    recomputation_grid,
    show,
    stacked_bars,
    step_memories,
    step_memory,
)
from dtlearn.viz.units import parse_quantity

torch.set_num_threads(1)  # small tensors: more threads would only wait for each other
world = dtlearn.world(4)
world

# %% [markdown]
# # A. Where they go
#
# ## 1. Out of memory
#
# A training job on a GPU of 80 GB runs for a while, then ends with a message like this:
#
# ```
# torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 512.00 MiB. GPU 0 has a total capacity of
# 79.25 GiB of which 210.00 MiB is free. [...] Of the allocated memory 75.80 GiB is allocated by PyTorch,
# and 2.70 GiB is reserved by PyTorch but unallocated. [...]
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
# ## 2. A step, byte by byte
#
# `record_step` runs a training step under a **memory ledger**. The ledger notes every **storage**, which is the memory
# behind a tensor and all its views: how many bytes, what for, which operation of which module made it, and when it was
# gone. It runs two steps and records the second: the first is special, as section 3 shows. Here the GPT of chapter 3
# trains on 4 ranks with DDP and AdamW, with 8 sequences of 64 tokens on each rank.

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

# %%
# %%ranks -o records
from torch.nn.parallel import DistributedDataParallel

from dtlearn.memory import record_step
from dtlearn.models import GPT, GPTConfig, load_corpus, next_token_loss

corpus = load_corpus()
CONFIG = GPTConfig(hidden_size=128)


def fresh_model(config=CONFIG):
    torch.manual_seed(0)
    return GPT(config).to(device)


def my_batch(samples=32):
    x, y = next(corpus.batches(1, samples, 64))
    return tuple(t[rank::world_size].contiguous().to(device) for t in (x, y))


model = DistributedDataParallel(fresh_model())
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
record_step(model, optimizer, my_batch(), next_token_loss)

# %% jupyter={"source_hidden": true}
largest.reveal()

# %% tags=["nbval-ignore-output"] jupyter={"source_hidden": true}
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
# - **Temporaries** are made and gone again within an operation or a few.
# - **Communication** is DDP's buckets, from which the gradients are sent. (The notch near the start: after its first
#   step DDP makes its buckets once more, in the order in which the gradients came. Section 12 comes back to buckets.)
# - **Inputs** are the batch; here they are too small to see. **Buffers**, such as the statistics of a batch norm, would
#   have a category, too; a GPT has none.
#
# The parameters, which many people mean by "the model", are about a tenth of the peak. Now halve the number of samples:

# %%
# %%ranks -o half
model = DistributedDataParallel(fresh_model())
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
record_step(model, optimizer, my_batch(samples=16), next_token_loss)

# %% jupyter={"source_hidden": true}
helps.reveal(full=records[0].peak.bytes / 1e6, half=half[0].peak.bytes / 1e6)

# %% jupyter={"source_hidden": true}
rank_table(
    [
        {
            "samples per rank": samples,
            **{c: f"{n / 1e6:.2f}" for c, n in of[0].peak.by_category.items() if n > 1e5},
            "peak": f"{of[0].peak.bytes / 1e6:.2f}",
        }
        for samples, of in ((8, records), (4, half))
    ],
    caption="MB at the peak, by category (those with less than 0.1 MB are left out)",
)

# %% [markdown]
# ### By hand
#
# The categories can be counted with a pencil. Take one linear layer from 3 to 2 numbers, 4 samples, fp32 (4 bytes a
# number), SGD with momentum:
#
# | category | what | numbers | bytes |
# |---|---|---|---|
# | parameters | weight 2 x 3, bias 2 | 8 | 32 |
# | gradients | as the parameters | 8 | 32 |
# | optimizer state | one momentum for each parameter | 8 | 32 |
# | inputs | 4 samples of 3 numbers, 4 targets of 2 | 20 | 80 |
# | activations | what backward needs: see below | | |
#
# The gradient of the weight is a product of the layer's input and the gradient of its output. So the layer must keep
# its **input**; but that is the batch, which is there anyway and is counted as such. The mean squared error behind it
# keeps its own input, the output of the layer: 4 x 2 numbers, 32 bytes. The ledger agrees. It prints the most that
# there was of each category. The table leaves out the 68 bytes of temporaries: the loss, its gradient (4 bytes) and the
# gradient of the output (32). On a CPU the loss, one number, takes 32 bytes: `mse_loss` makes it in a storage for all
# eight squares.

# %%
layer = torch.nn.Sequential(torch.nn.Linear(3, 2))
optimizer = torch.optim.SGD(layer.parameters(), lr=0.1, momentum=0.9)
batch = torch.randn(4, 3), torch.randn(4, 2)
record = record_step(layer, optimizer, batch, torch.nn.functional.mse_loss)
{category: max(line) for category, line in record.timeline().items() if any(line)}

# %% [markdown]
# **Exercise 1.** Count a step of an MLP.

# %% exercise="ch08.count_a_step"

# %% [markdown]
# How does the ledger see all this? It uses two of PyTorch's mechanisms. A `TorchDispatchMode` is called for every
# operation, with its inputs and its results. The ledger looks up the *storage* of each tensor: a view, a tied weight or
# the result of an in-place operation is no new memory. When a storage is released, the ledger is told.
# `saved_tensors_hooks` are called for every tensor that autograd keeps for backward: these are the activations. This is
# `record_step`:

# %%
dtlearn.show_source(memory.record_step, docstring=False)

# %% [markdown]
# ## 3. The state of an optimizer
#
# An optimizer has just been made: `optimizer = torch.optim.Adam(model.parameters())`.

# %%
fresh_state = dtlearn.predict(
    "The model has 0.8 million fp32 parameters. How many bytes of state does a new Adam "
    "hold, before its first step?",
    unit="bytes",
    id="ch08.fresh_state",
)


# %%
def state_bytes(optimizer):
    """Bytes of all tensors in the state of an optimizer."""
    states = optimizer.state.values()
    return sum(t.nbytes for state in states for t in state.values() if torch.is_tensor(t))


config = GPTConfig(hidden_size=128)
corpus = load_corpus()
batch = next(corpus.batches(1, 8, 64))
rows, new = [], {}
for name, make in (
    ("SGD", lambda p: torch.optim.SGD(p, lr=0.1)),
    ("SGD, momentum", lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9)),
    ("Adam", lambda p: torch.optim.Adam(p, lr=1e-3)),
):
    torch.manual_seed(0)
    model = GPT(config)
    optimizer = make(model.parameters())
    new[name] = state_bytes(optimizer)
    next_token_loss(model(batch[0]), batch[1]).backward()
    optimizer.step()
    row = {"optimizer": name, "bytes after the first step": state_bytes(optimizer)}
    row["per parameter"] = f"{state_bytes(optimizer) / config.num_parameters:.4f}"
    rows.append(row)

# %% jupyter={"source_hidden": true}
fresh_state.reveal(new["Adam"])

# %% jupyter={"source_hidden": true}
rank_table(rows, caption=f"{config.num_parameters:,} parameters in fp32")

# %% [markdown]
# Adam keeps two moments for each parameter, 8 bytes. What is above 8 is a count of steps, 4 bytes for each of the
# parameter *tensors*. The state is made in the first `step()`. That is why a job can go through a whole forward and
# backward pass and run out of memory right after it; and why `record_step` records the second step.
#
# With 16-bit weights the optimizer holds more: fp32 masters, too (chapter 7). Not every parameter counts in the same
# way: a **frozen** one (`requires_grad=False`) has neither gradient nor state, and a **tied** one, such as an embedding
# that is also the output layer, is one tensor with two names and counts once.

# %% [markdown]
# **Exercise 2.** The training state of a model, under each convention.

# %% exercise="ch08.adam_state"

# %% jupyter={"source_hidden": true}
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
# ## 4. Activations
#
# **Activations** are what the forward pass keeps for the backward pass. It is not "the outputs of all layers". Each
# operation keeps what its own derivative needs, and nothing else:
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
#
# By hand, for the feed-forward part of a transformer block in 16 bits: $s$ tokens in each of $b$ sequences, $h$ numbers
# for each token, and $4h$ between the two layers. A number takes 2 bytes; a mask of dropout takes 1 byte per number.
#
# | kept | numbers | bytes |
# |---|---|---|
# | input of the first layer | $sbh$ | $2sbh$ |
# | its output, the input of GELU | $4sbh$ | $8sbh$ |
# | output of GELU, the input of the second layer | $4sbh$ | $8sbh$ |
# | mask of the dropout | $sbh$ | $sbh$ |
# | sum | | $19sbh$ |

# %%
longer = dtlearn.predict.choice(
    "A block with 16 heads, h = 1,024, whose attention keeps its scores: for each head a "
    "matrix of s x s. It is trained on sequences of 4,096 tokens in place of 2,048. "
    "The number of sequences stays. By what factor do the activations grow?",
    {"A": "2 times", "B": "between 3 and 4 times", "C": "4 times"},
    id="ch08.longer",
)

# %% [markdown]
# **Exercise 3.** All terms of a block.

# %% exercise="ch08.activation_bytes"

# %% [markdown]
# All terms of a block, as in Korthikanti et al. (2022, arXiv 2205.05198), for 16 bits, with dropout, and with attention
# that keeps its scores. ($a$ is the number of heads.)

# %% jupyter={"source_hidden": true}
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
# The package has the same table for our GPT: in fp32, and with the attention that PyTorch really runs. Is it what the
# ledger saw on the ranks?

# %%
formula = table_bytes(gpt_activations(config, batch=8, length=64))
counted = {max(record.live("activations")) for record in records}
print(f"by formula {formula:,} bytes, at most kept on each of the 4 ranks {counted}")

# %% [markdown]
# To the byte. Why is it 17.6 MB, and 16.8 MB in the table of section 2? These 17.6 MB are the most of the whole step:
# they are there at the end of forward. The table has what is there at the peak, which comes a little later. By then
# backward has gone through the loss and the head, and has released what they had kept, 0.8 MB.
#
# Our GPT has no attention scores: PyTorch runs **FlashAttention**, which computes them block by block, and again in
# backward. Newer blocks differ from the table in other ways, too. Each change alone, for the block above:

# %% jupyter={"source_hidden": true}
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
# ## 5. The peak, and who owns it
#
# A job runs out of memory at one moment: at the peak. So ask of it three things: *when* it is, *what category* it is
# made of, and *which module* holds it.


# %% jupyter={"source_hidden": true}
def code_of(line):
    """The code of a line of the GPT, which the ledger calls "file:line"."""
    number = int(line.rpartition(":")[2])
    code = inspect.getsource(gpt).splitlines()[number - 1]
    return code.partition("  #")[0].strip()


print(peak_words(records[0]))
owner = records[0].peak.owner
print(f"the line is {owner.line}: {code_of(owner.line)}")
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
# (Nothing of this is run here: it needs an NVIDIA GPU. On one, `dtlearn.memory.ledger.on_gpu.allocator_figures()` gives
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
# After a peak, reserved is larger than allocated: free blocks wait for the next step. That is how it should be. But if
# an allocation fails although the free blocks together are larger than it, they lie between used ones and each is too
# small: the memory is **fragmented**. That comes from sizes that change from step to step.
# `PYTORCH_ALLOC_CONF=expandable_segments:True` lets segments grow, and helps (its older name, `PYTORCH_CUDA_ALLOC_CONF`,
# still works). In the message of section 1, 2.70 GiB were reserved and not in use, and 512 MiB were asked for: that
# memory was fragmented as well as full.
#
# ## 6. A leak
#
# Memory that grows from step to step is a **leak**: something keeps tensors of earlier steps alive. The classic way is
# to keep a loss for a log.

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
torch.manual_seed(0)
model = GPT(config)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
losses = []
training = partial(leaks.keep_loss, model, optimizer, batch, next_token_loss, losses)
held = live_after_each(training, 4)

# %% jupyter={"source_hidden": true}
kept_loss.reveal(grown=held[-1] - held[-2], nodes=leaks.num_graph_nodes(losses[-1]))

# %% [markdown]
# A leak that fills a GPU looks different. Here a loop measures a validation loss after each epoch, and keeps it for a
# log. No backward pass ever goes through that graph, so nothing releases what it has saved:


# %%
def validate(keep, epochs=6):
    """Bytes alive after each validation."""
    torch.manual_seed(0)
    model = GPT(config)
    log = []
    return live_after_each(
        partial(keep, model, None, batch, next_token_loss, log), epochs
    )


held = {
    "log.append(loss)": validate(leaks.keep_validation_loss),
    "no_grad, log.append(loss.item())": validate(leaks.keep_validation_number),
}

# %% jupyter={"source_hidden": true}
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
# So look for a straight line. The ledger also says which lines made what stays, here the first three. It cannot say who
# keeps it: that you have to find in the loop, which has the leak, and not in these lines.

# %% jupyter={"source_hidden": true}
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
# On several ranks there is one more object to think of. `dist.all_reduce(flat, async_op=True)` returns a `Work` (chapter
# 3), and that object keeps `flat` alive as long as it lives itself, also after `wait()`. In the ledger `flat` counts as
# communication, or as gradients if the gradients are views of it. In a sound loop the most of that category stays the
# same; in a leak it rises with every step.
#
# **Exercise 4.** Find the leaks of a training loop.

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
# **A good place for a break.** If you shut down the kernel, come back with Run > Run All Above Selected Cell.
#
# # B. Holding fewer
#
# ## 7. Recomputation
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
# checkpointing) keeps only the *input* of a segment of layers. When backward comes to the segment, its forward pass runs
# a second time, now with a graph, and its backward pass right after that. If every layer is in such a segment, the
# recomputation is **full**.

# %% jupyter={"source_hidden": true}
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
# ### An operation with a backward of its own
#
# A checkpoint has to run code of its own when backward comes to it. For that PyTorch has `torch.autograd.Function`: a
# class with two static methods, which autograd treats as one operation.
#
# - `forward(ctx, *inputs)` computes the result. Autograd records nothing inside it. What backward will need goes into
#   `ctx`: tensors with `ctx.save_for_backward(...)`, anything else as an attribute.
# - `backward(ctx, *gradients)` gets one gradient for each result. It returns one for each input of `forward`, in the same
#   order, and `None` for an input that has no gradient, such as a number or a function. Autograd records nothing in here
#   either; within `with torch.enable_grad():` it does.
#
# The operation is called with `.apply(...)`. Its `backward` runs only if one of the *tensors given to `apply`* requires a
# gradient. An example, $y = x^n$:


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
# **Exercise 5.** A checkpoint of your own. The second pass has to be the *same* as the first, also in what the function
# draws at random.

# %% exercise="ch08.checkpoint"

# %% [markdown]
# This page is a checkpoint for functions of tensors:

# %%
dtlearn.show_source(page_checkpoint, summary="page_checkpoint.py, the whole file")

# %% [markdown]
# The package's `checkpoint` gives the same gradients, to the last bit. It adds:
#
# - arguments and results may be of any kind: numbers, tensors in lists and dictionaries, results that the loss does not
#   need;
# - autocast (chapter 7) is in the second pass what it was in the first, and so are the random numbers of a GPU;
# - a function that needs no gradient runs only once;
# - the results of the second pass are freed before its backward pass begins;
# - a function that changes one of its inputs, and `torch.autograd.grad` through a checkpoint, are errors that say so.
#
# Are they right? The same GPT on 4 ranks with DDP and dropout: plain, and with a checkpoint around every block, that of the
# page, the package's and PyTorch's:

# %%
# %%ranks -o checkpointed
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


results = {}
for name, cls, run in (
    ("plain", GPT, None),
    ("the page's", CheckpointedGPT, page_checkpoint.checkpoint),
    ("the package's", CheckpointedGPT, checkpoint),
    ("PyTorch's", CheckpointedGPT, pytorchs),
):
    torch.manual_seed(0)
    model = cls(GPTConfig(hidden_size=128, dropout=0.1)).to(device)
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
# ### Every k layers
#
# A checkpoint around every block keeps an input for every block. Segments of $k$ blocks keep fewer inputs, and hold more
# activations at once while a segment is computed again.

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

# %% [markdown]
# **Exercise 6.** The best k for a budget, the same on all ranks. There the last segment is not recomputed, because
# backward begins with it (`torch.utils.checkpoint.checkpoint_sequential` does so, too).

# %% exercise="ch08.choose_k"


# %%
def activations_at_peak(layers, make_input, k):
    """Counted: the most bytes of activations in a forward and backward pass in segments of k."""
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
# Chen et al. (2016, arXiv 1604.06174) found the square root of the number of layers $L$. It holds for layers that keep
# no more than their input. If a layer keeps $A$ bytes and its input has $c$ of them, there are about $L/k$ inputs and $k$
# layers at the peak, $Lc/k + kA$ bytes, and the best $k$ is near $\sqrt{Lc/A}$. For 16 blocks of our GPT that is 1, so a
# checkpoint around every block is best.
#
# The time is the same for all $k$ if every segment is recomputed, as here: one more forward pass. (The last one need not
# be: backward begins with it.) If the budget allows it, recompute **some** of the blocks only; `plan_recomputation`
# finds the cheapest set for a budget.
#
# ### Selective recomputation
#
# Not all activations are worth the same. A matrix product takes many operations for each byte of its result, a norm or
# GELU hardly any. So keep the results that are expensive to compute, and compute the cheap ones again. Here are the
# operations of one block of the GPT, sorted by what it costs to compute a byte of their results again, the most expensive
# first. (A multiplication with its addition counts as two. What is not a matrix product counts as one for each number of
# its result: its time is that of reading and writing.)

# %% jupyter={"source_hidden": true}
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
dtlearn.show_source(selective.keep_only, docstring=False, summary="keep_only")
dtlearn.show_source(variants.forward_selective, docstring=False)

# %% [markdown]
# Section 11 shows how much it saves and what it costs. PyTorch's counterpart is
# `torch.utils.checkpoint.create_selective_checkpoint_contexts`. Korthikanti et al. recompute the core of the attention
# only, with its $5as/h$: that saves 70 % of the activations of GPT-3. On one layer of their model with 22 billion
# parameters, forward and backward took 7 % longer, in place of 39 % with full recomputation (their table 4). With
# FlashAttention that part is gone already.
#
# ## 8. Accumulation
#
# Chapter 3 split a batch into $k$ micro-batches, and communicated once. The reason to do so is memory: only the
# activations of one micro-batch are there at a time. From here to section 11 one process runs each step, without DDP
# and its buckets: the plain step has its peak at 28.5 MB, not at 31.8 MB.

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
dtlearn.show_source(accumulation.accumulate_losses, docstring=False)
dtlearn.show_source(accumulation.accumulate_gradients, docstring=False)


# %%
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
# The gradients *at the peak* are more: they are there from the second micro-batch on, while a plain step has few of them
# when the activations are most. So the peak falls by less than the activations do. Where activations are few beside the
# gradients, accumulation can even raise it.
#
# ## 9. Offload
#
# The memory of the host is several times as large as that of the GPU. Activations could wait there between forward and
# backward. `torch.autograd.graph.saved_tensors_hooks` is made for this: autograd hands each tensor that it saves to a
# function `pack`, keeps what it returns, and hands that to `unpack` when backward needs it. By hand, for
# $y = Wx$, $z = \mathrm{GELU}(y)$:
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
# The package's `OffloadActivations` is such a pair of hooks. A CPU has no second memory, so here the host is *emulated*:
# a NumPy array, which the ledger does not count. The bytes are those of a GPU, the times are not. This decides what is
# offloaded:

# %%
dtlearn.show_source(
    offload.OffloadActivations,
    docstring=False,
    summary="dtlearn.memory.OffloadActivations",
)

# %%
from torch.autograd.graph import save_on_cpu


def step_with(context):
    """Gradients of a step whose forward pass runs in this context, and the most of two categories."""
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
# The activations are gone from the device. A tensor that comes back is used by one operation of backward and released:
# the ledger counts it as a temporary. On the host more bytes wait than were on the device: a tensor that three operations
# save is copied three times. (PyTorch's `save_on_cpu` does the same, and copies the parameters as well. On a CPU it moves
# nothing, so only its gradients are compared here.)
#
# The price is time: each byte crosses the link between host and GPU twice. A PCIe 4.0 link with 16 lanes moves at most
# 32 GB/s in each direction. Offload pays off if the copies run beside the computation and take less time than it does.
# To run beside it they need **pinned** memory on the host, which the operating system does not move to disk: the GPU
# copies from and to it by itself.
#
# ## 10. The optimizer in backward
#
# An ordinary step holds all gradients at the end of backward. But the optimizer could update a parameter as soon as its
# gradient is complete, and free the gradient. PyTorch has a hook for that moment: `register_post_accumulate_grad_hook`.

# %%
in_backward = dtlearn.predict(
    "fp32, Adam, an optimizer that steps inside backward and frees each gradient at once: "
    "how many bytes of parameters, gradients and optimizer state are there at the end of "
    "backward, for each parameter?",
    unit="bytes",
    id="ch08.in_backward",
)

# %%
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

# %% jupyter={"source_hidden": true}
rank_table(
    [
        {
            "optimizer": name,
            "bytes per parameter after backward": f"{per_parameter:.2f}",
            "most MB of gradients": f"{gradients / 1e6:.2f}",
        }
        for name, (_, per_parameter, gradients) in found.items()
    ],
    caption="parameters, gradients and the state of AdamW",
)

# %% [markdown]
# What is lost is everything that has to happen between backward and the update: clipping by the global norm of all
# gradients, loss scaling (chapter 7), accumulation, and the average of DDP. The package's `OptimizerInBackward` refuses
# most of it with a reason. It cannot see PyTorch's DDP, which would average each gradient after the update: the
# replicas would drift apart, without an error.
#
# ## 11. All of them
#
# Every way of this chapter, on one model and one batch:

# %%
from dtlearn.memory.recomputation.planner import RecomputationPlan, run_plan


def checkpoint_first(n):
    """The forward pass with a checkpoint around each of the first n blocks."""
    plan = RecomputationPlan(tuple(range(n)), 0, 0.0)
    return lambda model, tokens: model.head(
        run_plan(model.blocks, model.embedding(tokens), plan)
    )


work = variants.GPTWorkload(config, batch=8)
ways = variants.VARIANTS | {
    f"checkpoint {n} of 4 blocks": variants.Variant(checkpoint_first(n))
    for n in (1, 2, 3)
}
steps = {name: variants.record_variant(way, work) for name, way in ways.items()}
forward = variants.count_forward_operations(work)
operations = {name: variants.count_operations(way, work) for name, way in ways.items()}
extra = {name: (n - operations["plain"]) / forward for name, n in operations.items()}

# %% jupyter={"source_hidden": true}
shown = (
    "plain",
    "4 micro-batches",
    "checkpoint every block",
    "checkpoint every 2 blocks",
)
show(
    step_memories(
        {name: steps[name] for name in (*shown, "selective", "offload")},
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
# All six make the same update, up to rounding. With full recomputation the peak is late in backward, where nearly all
# gradients are there. So "checkpoint, optimizer in backward" gains more than either alone, as the next picture shows; and
# "checkpoint and offload" gains nothing over the checkpoint. At its peak the first block is computed again, and by then
# the inputs of all later blocks, which offload sends to the host, are gone anyway.
#
# What does it cost? In the next picture one unit is a forward pass of the whole model. Offload costs no computation;
# its price is traffic between host and device, so its points stand apart. Two more costs are not in the picture. Only
# matrix products are counted, so what selective recomputation runs again, norms and GELU, is 0 here. And micro-batches
# make matrix products smaller, and small ones use a GPU less well.

# %% jupyter={"source_hidden": true}
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
# ## 12. What DDP adds
#
# DDP sends gradients in **buckets** (chapter 3), and buckets are memory: the 3.3 MB of communication in section 2, as many
# bytes as all gradients. Each gradient is made by backward and then copied into its bucket, which stays for the whole
# training. With `gradient_as_bucket_view=True` DDP makes the gradient a view of its place in the bucket after that copy,
# and releases the tensor that backward made.

# %%
buckets = dtlearn.predict.choice(
    "The step of section 2, now with `gradient_as_bucket_view=True`. Where does each rank "
    "hold 3.3 MB less than with DDP's default?",
    {
        "A": "at the peak and after backward",
        "B": "at the peak, but not after backward",
        "C": "after backward, but not at the peak",
        "D": "at neither: the buckets have the same size as before",
    },
    id="ch08.buckets",
)

# %%
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

# %% jupyter={"source_hidden": true}
rank_table(
    [
        {
            "DDP": name,
            "MB after backward": f"{sum(modes[0][key][0].values()) / 1e6:.2f}",
            "MB at the peak": f"{modes[0][key][1] / 1e6:.2f}",
            "the same on all ranks": len({each[key][1] for each in modes}) == 1,
        }
        for key, name in names.items()
    ],
    caption="Bucket views: gradient_as_bucket_view=True",
)

# %% [markdown]
# With bucket views the gradients lie in the buckets: after backward the second copy is gone. At the peak of this step the
# difference is 0.07 MB. The peak is early in backward: the buckets are there in both cases, and of the gradients only 0.33
# MB have been made. The newest one, 0.26 MB, has not been copied into its bucket yet in either case.
#
# No row becomes smaller with more ranks. Each rank has a whole copy of the parameters, the gradients and the state. That
# is what option D of the first prediction meant, and what chapter 9 changes.
#
# ## 13. Models that you do not have
#
# All of this was arithmetic, so it can be done for any model. Start with a number that many texts give: "GPT-3 needs
# 700 GB".

# %%
gpt3 = dtlearn.predict(
    "GPT-3 has 175 billion parameters. Mixed precision with Adam, as the ZeRO paper counts "
    "(16 bytes for each): how many TB of parameters, gradients and optimizer state?",
    unit="TB",
    id="ch08.gpt3",
)

# %% jupyter={"source_hidden": true}
weights = training_state(175 * 10**9, "fp32 Adam")["parameters"]
state = sum(training_state(175 * 10**9, "mixed 16").values())
gpt3.reveal(state / 1e12, weights=weights / 1e9)

# %% [markdown]
# **GB and GiB.** 1 GB is $10^9$ bytes, 1 GiB is $2^{30}$, which is 7.4 % more. ZeRO's paper counts in GB; PyTorch's
# messages count in GiB; and the "GB" on a GPU's label are sometimes nearly GiB and sometimes nearly GB:

# %% jupyter={"source_hidden": true}
rank_table(
    [
        {
            "GPU": gpu.name,
            "sold as": f"{gpu.sold_as_gb} GB",
            "reported, in GiB": f"{gpu.bytes / 2**30:.1f}",
            "reported, in GB": f"{gpu.bytes / 1e9:.1f}",
        }
        for gpu in published.GPUS.values()
    ],
    caption="Memory as the driver reports it",
)

# %% [markdown]
# Is our arithmetic right? It gives the two figures of GPT-3 that many texts have, and those that papers print:

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
# ### What fits
#
# One GPU, one model: which batch fits? The bars are parameters, gradients, optimizer state, activations and temporaries
# (mostly the gradients of the logits and of their log-softmax, in fp32). The line is what the GPU has. The precisions are
# the conventions of section 3.


# %% jupyter={"source_hidden": true}
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
# The largest number of sequences at once, with full recomputation and 16 bytes per parameter:

# %% jupyter={"source_hidden": true}
gpus = ("RTX 4090", "A100 80GB", "H200", "B200")
rows = []
for model in published.MODELS.values():
    row = {"model": model.name, "tokens": f"{model.context:,}"}
    row["state, GB"] = (
        f"{sum(training_state(model.num_parameters, 'mixed 16').values()) / 1e9:,.0f}"
    )
    for name in gpus:
        most = fits.largest_batch(model, published.GPUS[name], recomputation="full")
        row[name] = str(most) if most else "-"
    rows.append(row)
rank_table(rows, caption="Sequences that fit on one GPU; -: not even one")

# %% [markdown]
# The 8 billion parameters of Llama 3 8B come to 128 GB before the first activation: no GPU of 80 GB holds them, with any
# batch. From 70 billion on, nothing in this chapter helps on one GPU. (Left out are the CUDA context, NCCL's buffers
# and fragmentation, a few GB: so the single sequence of GPT-2 1.5B on an RTX 4090, with 0.05 GB to spare, would fail in
# practice. Gradients are counted as if they were there all the time, as they are with accumulation or DDP. In the
# widget, recomputation of attention scores changes nothing for Llama: FlashAttention does not keep them.)
#
# ## 14. Where the libraries do it
#
# | here | in PyTorch | elsewhere |
# |---|---|---|
# | `MemoryLedger` | `torch.distributed._tools.mem_tracker.MemTracker`; on a GPU the memory snapshot | DeepSpeed's `see_memory_usage` |
# | `checkpoint` | `torch.utils.checkpoint.checkpoint(..., use_reentrant=False)` | Megatron-LM `--recompute-granularity full`; Hugging Face `gradient_checkpointing_enable()` |
# | `checkpoint_every` | `torch.utils.checkpoint.checkpoint_sequential`, which is told the number of segments and does not recompute the last one | Megatron-LM `--recompute-method uniform --recompute-num-layers k` |
# | `selective_checkpoint` | `create_selective_checkpoint_contexts` | Megatron-LM `--recompute-granularity selective`; torchtitan's selective mode |
# | `plan_recomputation` | `torch.compile` with an activation memory budget | |
# | `OffloadActivations` | `torch.autograd.graph.save_on_cpu` | torchtune's `OffloadActivations` |
# | `OptimizerInBackward` | `register_post_accumulate_grad_hook` ([tutorial](https://docs.pytorch.org/tutorials/intermediate/optimizer_step_in_backward_tutorial.html)) | torchtune's `optimizer_in_bwd` |
#
# On a GPU the **memory snapshot** draws the picture of section 2 for every allocation, with its stack:
# `torch.cuda.memory._record_memory_history()`, some steps, `torch.cuda.memory._dump_snapshot("snapshot.pickle")`, and
# drop the file on [pytorch.org/memory_viz](https://docs.pytorch.org/memory_viz).
#
# Does our ledger count what PyTorch's tracker counts?

# %%
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
# ## 15. What breaks
#
# ### A checkpoint that forgets the random numbers
#
# `naive_checkpoint` is the page without the random state: it keeps the input, and runs the function again in backward.
# On a model with dropout:

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
# (The percentages are rounded to tens.) The loss is right to the last bit, and the gradients are not its gradients: the
# second pass drew other masks. Nothing raises an error, and training goes on. How to find such a bug: compare the
# *gradients* of one step with those of a plain step that starts from the same seed; then set dropout to 0. If they agree
# then, what differs is random.
#
# PyTorch's `checkpoint(..., preserve_rng_state=False)` does the same, on purpose: restoring the state takes time, and a
# function without dropout does not need it.
#
# ### A collective inside of a checkpoint
#
# The second pass repeats everything, so collectives in the segment are called twice. That is right as long as **all**
# ranks do so. Here only rank 0 has a checkpoint:


# %%
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
# The diagnosis names the line, and that it is another one on rank 0: its second all-reduce is the repeated one, while the
# others are in the next call already. Without the watch, NCCL would hang here or read beyond the end of a tensor.
# So whether a segment is recomputed must be the same decision on all ranks, and recomputation repeats communication: a
# model with tensor parallelism (chapter 12) sends 6 all-reduces per block and step with it, in place of 4.
#
# ### Myths
#
# **"The model is what fills the GPU."** The parameters are 3.3 of 31.8 MB in section 2. Of Llama 3 8B on one GPU they are
# 16 of 185 GB (section 13). Gradients, optimizer state and activations are 161 GB, and temporaries at the peak 8 GB.
#
# **"`empty_cache` frees memory."** It gives segments that hold no tensor back to the driver, for other processes. PyTorch
# would have used them again itself, and before it raises an out-of-memory error it gives them back anyway
# ([documentation](https://docs.pytorch.org/docs/stable/notes/cuda.html#memory-management)). What tensors occupy stays.
#
# **"`zero_grad` frees it."** That depends on `set_to_none`, which is the default since torch 2.0:

# %%
torch.manual_seed(0)
model = GPT(config)
for set_to_none in (True, False):
    with MemoryLedger(model) as ledger:
        next_token_loss(model(batch[0]), batch[1]).backward()
        before = ledger.now
        model.zero_grad(set_to_none=set_to_none)
        freed = before - ledger.now
    print(f"zero_grad(set_to_none={set_to_none}) frees {freed / 1e6:.2f} MB")
    model.zero_grad()

# %% [markdown]
# And it frees what is not there at the peak in backward, where the activations are.
#
# **"Batch size does not matter for memory."** Section 2: half the samples, half the activations.
#
# **"Gradient accumulation needs more memory."** It needs less, unless the activations are small beside the gradients
# (section 8). What needs more is adding up losses and calling `backward()` once.
#
# **"700 GB are 700 GiB."** They are 652 GiB. A GPU that is sold with "80 GB" has about 80 GiB, 85.9 GB; one that is sold
# with "192 GB" has 179 GiB, 192.3 GB (section 13). Ask for the unit.
#
# ### Check yourself
#
# <details><summary>A job dies in the first <code>optimizer.step()</code>, after a forward and a backward pass that went well. Why
# there?</summary>
#
# The state of Adam is made in the first step: 8 bytes per fp32 parameter that were not there before.
# </details>
#
# <details><summary>A job runs for 3,000 steps and then dies. What do you look for first, and how?</summary>
#
# A leak. Print the bytes after each step (`torch.cuda.memory_allocated()`, or a ledger): if they rise, something keeps
# tensors of earlier steps. If they are level and the reserved bytes rise, it is fragmentation, often from sequences of
# different lengths. If both are level, a batch with a very long sequence may have come.
# </details>
#
# <details><summary>Full recomputation makes a step a third slower. You need only a tenth of the memory that it saves.
# What do you do?</summary>
#
# Recompute a few layers only, or selectively: the operations that are cheap to compute and large to keep.
# </details>
#
# <details><summary>13 billion parameters, bf16, fp32 gradients, masters, Adam, on GPUs of 80 GB with DDP. Which of this
# chapter's ways makes it fit?</summary>
#
# None. 18 bytes for each parameter are 234 GB on each rank, before any activation. All ways of this chapter but the
# optimizer in backward are about activations. The state has to be sharded (chapter 9).
# </details>
#
# <details><summary>A colleague offloads all saved tensors with <code>save_on_cpu</code>, parameters too. What is lost?</summary>
#
# Time: parameters are on the device anyway, so their copies save nothing and cross the link twice for each use.
# </details>
#
# ## Glossary
#
# {glossary}
#
# Next: chapter 9 shards what every rank now holds a copy of.
