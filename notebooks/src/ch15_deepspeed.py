# %% [markdown]
# # Chapter 15. DeepSpeed and the other libraries
#
# **The question.** How do the libraries do it?
#
# Builds on: chapters 3, 9 and 12; sections of Further on 7, 8, 10 and 14. Ranks: 2, in one cell 4. Time: 80 minutes for
# the core path; the sections of "Further" in any order.
#
# | core path | what | minutes |
# |---|---|---|
# | 1. What does a library take over? | one loop, four engines, on a page | 6 |
# | 2. Do they train alike? | losses to the last digit, and one default | 4 |
# | 3. What is in a `ds_config`? | each key, and the chapter where you built it | 5, and exercises 1 and 2: 45 |
# | 4. What do they send? | volumes from the record, beside the papers | 11 |
# | 5. How does it break? | faults that nobody reports | 4 |
# | 6. When to use which? | one table | 5 |
#
# After it you can read a configuration of DeepSpeed as the sum of chapters 3 to 10, and you know where a library does not do
# what one expects: a default that clips, an all-reduce in ZeRO 2, parameters that ZeRO 3 leaves whole.
#
# DeepSpeed is not among the packages of this course, for it compiles code when it is first used. Its runs were recorded,
# and are shown here. **To run them yourself:** `make libraries` in the course's folder (some minutes). It makes an
# environment of its own, `.venv-libraries`, which the cells then find.

# %% jupyter={"source_hidden": true}
# %load_ext dtlearn
import json

import torch

import dtlearn
from dtlearn import libraries
from dtlearn.viz import rank_table

torch.set_num_threads(1)  # small tensors: more threads would only wait for each other
world = dtlearn.world(2)
world

# %% [markdown]
# # The core path
#
# ## 1. What does a library take over?
#
# One GPT, one batch, one step. Without a library you write forward, loss, backward, the average of the gradients, clipping,
# the update. A library takes some of that over, and what it has taken is seen by what is *missing* in the loop. Here are four
# **engines**, objects that own model, optimizer and step, built from one description, whole:

# %%
from dtlearn.libraries import page_engines

dtlearn.show_source(page_engines)

# %% [markdown]
# The first one on this notebook's ranks: three steps of DDP, each rank with its rows of the batch.

# %%
# %%ranks
from dtlearn.libraries import RunDescription, batches, build_model, page_engines

run = RunDescription()  # a small GPT, 2 ranks, 3 steps, a global batch of 8
engine = page_engines.ddp(build_model(run).to(device), run)
rows = slice(rank * run.micro_batch, (rank + 1) * run.micro_batch)
for tokens, targets in batches(run):
    loss = engine.step(tokens[rows].to(device), targets[rows].to(device))
    print(f"my loss: {loss.item():.3f}")

# %% [markdown]
# | | wraps the model | backward | reduces | clips | updates |
# |---|---|---|---|---|---|
# | torch's DDP, FSDP2 | they | you | they, inside `backward()` | you | you |
# | Accelerate | it | it, for what is beneath | what is beneath | you, through it; on DeepSpeed the configuration alone | you |
# | DeepSpeed | it | it | it, in `engine.backward()` | it, unasked | it |
#
# The more an engine owns, the less one can see. So in this chapter
# every run is recorded (chapter 1's recorder): the calls of each rank, whoever made them.
#
# ## 2. Do they train alike?
#
# Two ranks, three steps of AdamW, the same weights and batches; now the mean loss of both. Torch's own runs, on your machine:

# %%
run = libraries.RunDescription()  # the same
alone = libraries.RunDescription(world_size=1)
for name, described in (("reference", alone), ("ddp", run), ("fsdp2", run)):
    found = libraries.run_library(name, described)
    print(f"{found.title:>11}:", [f"{loss:.4f}" for loss in found.losses])

# %%
alike = dtlearn.predict.choice(
    "DeepSpeed gets the same model, batches, AdamW and learning rate, ZeRO 2, and a configuration that says batch size, "
    "optimizer and stage. Nothing else. (The norm of the gradients is above 2 in every step.) Its three losses are",
    {
        "A": "the same to five digits in all three steps",
        "B": "the same in the first step, and another number from the second on",
        "C": "the same in two steps, and another number in the third",
        "D": "others from the first step on",
    },
    id="ch15.alike",
)

# %% jupyter={"source_hidden": true}
stored = libraries.load_stored_results()
results = stored.results
print(
    f"Stored results of {stored.date}: "
    + ", ".join(
        f"{name} {version}"
        for name, version in sorted(
            {**results["zero2"].versions, **results["megatron_tp"].versions}.items()
        )
    )
)

# %% jupyter={"source_hidden": true}
alike.reveal()

# %% jupyter={"source_hidden": true}
SHOWN = {
    "one process": "reference",
    "torch DDP": "ddp",
    "torch FSDP2": "fsdp2",
    "Accelerate, DDP": "accelerate_ddp",
    "DeepSpeed, ZeRO 0": "zero0",
    "DeepSpeed, ZeRO 1": "zero1",
    "DeepSpeed, ZeRO 2": "zero2",
    "DeepSpeed, ZeRO 3": "zero3",
    "DeepSpeed, ZeRO 2, clipping left out": "zero2_clipped",
}
rank_table(
    [
        {
            "": title,
            **{
                f"step {n + 1}": f"{loss:.5f}"
                for n, loss in enumerate(results[name].losses)
            },
        }
        for title, name in SHOWN.items()
    ],
    caption="Losses; in all rows but the last nothing is clipped",
)

# %% [markdown]
# All libraries train alike, to the last digit that is printed. And the last row is nobody's bug: it is a default. Since version 0.19.3 DeepSpeed clips to a
# norm of 1.0 unless the configuration says otherwise; before that it did not clip
# ([#8068](https://github.com/deepspeedai/DeepSpeed/pull/8068)). Whoever updates the library, and compares with last month's run, compares two
# trainings.
#
# ## 3. What is in a `ds_config`?
#
# DeepSpeed is told everything by one dictionary, or a JSON file, the `ds_config`. The one of that run:

# %%
print(
    json.dumps(libraries.ds_config_of(libraries.RunDescription(zero_stage=2)), indent=1)
)

# %% [markdown]
# Each key is something that you built. The ones that matter; for the exercises read the first six now (all that this course knows are in
# `libraries.DS_KEYS`, with the default of the version above, read from its code):

# %% jupyter={"source_hidden": true}
WANTED = (
    "train_batch_size", "train_micro_batch_size_per_gpu", "gradient_accumulation_steps", "gradient_clipping",
    "optimizer.params", "zero_optimization.stage", "zero_optimization.reduce_bucket_size",
    "zero_optimization.overlap_comm", "zero_optimization.use_multi_rank_bucket_allreduce",
    "zero_optimization.stage3_param_persistence_threshold", "zero_optimization.stage3_prefetch_bucket_size",
    "zero_optimization.offload_optimizer.device", "zero_optimization.offload_param.device", "bf16.enabled",
    "fp16.enabled", "activation_checkpointing.partition_activations", "tensor_parallel.autotp_size",
)  # fmt: skip
keys = {key.path: key for key in libraries.DS_KEYS}
rank_table(
    [
        {
            "key": path,
            "default": "none" if keys[path].default is None else f"{keys[path].default}",
            "what it does": keys[path].does,
            "chapter": keys[path].chapter.removeprefix("ch").lstrip("0"),
        }
        for path in WANTED
    ],
    caption=f"{len(WANTED)} of {len(keys)} keys",
)

# %% [markdown]
# Three of them are one equation. With dp replicas, each of which takes `gradient_accumulation_steps` micro-batches in a step,
#
# $$\text{train\_batch\_size} = \text{micro-batch} \times \text{accumulation} \times dp$$
#
# DeepSpeed computes the one that is missing, and refuses three that do not fit. dp is the number of ranks, divided by those that share one copy
# of the model:
#
# | ranks | tp | pp | dp | micro-batch | accumulation | train batch |
# |---|---|---|---|---|---|---|
# | 8 | 1 | 1 | 8 | 4 | 2 | 64 |
# | 8 | 2 | 1 | 4 | 4 | 4 | 64 |
# | 32 | 4 | 4 | 2 | 4 | 8 | 64 |
#
# (DeepSpeed learns tp from the `mpu` object that Megatron passes to it, pp from its `PipelineModule`, and with one that has a topology
# both. It leaves its own `autotp_size` out of this equation in 0.19.8: with tp 2, and the train batch alone given, it trains half of it and says nothing.)
#
# **Exercise 1.** The identity, as DeepSpeed fills it in.

# %% exercise="ch15.batch_identity"

# %% [markdown]
# **Exercise 2.** A configuration for what is wanted. It is checked as data; where DeepSpeed is installed, the course's tests
# also run it.

# %% exercise="ch15.ds_config"

# %% [markdown]
# ## 4. What do they send?
#
# A ring's all-gather or reduce-scatter of all $\Psi$ parameters costs each rank $\Psi (N-1)/N$ elements (chapter 9), 241 kB here. Call
# that 1. Then DDP's all-reduce is 2, and the ZeRO paper (1910.02054, section 7) says 2 for its stages 1 and 2, and 3 for stage 3.

# %%
two = dtlearn.predict(
    "In these units, what does DeepSpeed's ZeRO 2 send in a step, with its default way to reduce?",
    unit="",
    id="ch15.two",
)

# %%
three = dtlearn.predict(
    "And its ZeRO 3, with its defaults, on this GPT, whose largest tensor has 16,384 elements?",
    unit="",
    id="ch15.three",
)

# %% jupyter={"source_hidden": true}
parameters = run.config.num_parameters
volumes = {
    name: libraries.volume(found, parameters)
    for name, found in results.items()
    if name != "reference"
}
two.reveal(round(volumes["zero2"], 2))
three.reveal(round(volumes["zero3"], 2))

# %%
rank_table(
    libraries.call_rows(results["zero2"]),
    caption="DeepSpeed, ZeRO 2: the calls of rank 0 in a step",
)

# %% [markdown]
# There they are: an **all-reduce** of all gradients, 482 kB, where stage 2's name and paper have a reduce-scatter. Then a norm (an all-reduce of one
# number), and an all-gather of what was updated. That is 2 + 1. With the default of one key, `use_multi_rank_bucket_allreduce`, every bucket is all-reduced, and each rank keeps its part: fewer
# calls, more bytes. Stage 3 does the opposite, and sends *less* than the paper says: a parameter tensor below 100,000 elements stays whole on all
# ranks, and what is whole after forward is not gathered again for backward. In a small model that is every one of them.

# %% jupyter={"source_hidden": true}
from dtlearn.viz import sent_volumes, show, volumes_words

show(sent_volumes(stored, parameters), alt=volumes_words(stored, parameters))

# %% jupyter={"source_hidden": true}
rank_table(
    [
        {
            "run": results[finding.run].title.removeprefix("DeepSpeed, "),
            "expected": finding.says,
            "volume": f"{finding.expected} expected, {finding.found:g} found",
            "because": finding.because,
            "what this key gives": f"{finding.key} gives {volumes[finding.then]:.3g}",
        }
        for finding in libraries.FINDINGS[:4]
    ],
    caption="Four surprises, each from a recorded run",
)

# %% [markdown]
# None of these is a mistake: one call in place of many saves latency, and so does keeping small parameters whole. But whoever computes the time of a step from the paper is wrong, in ZeRO 2
# by half, and whoever tests ZeRO 3 on a small model tests something else.
#
# ## 5. How does it break?
#
# A configuration is data, and faults in data are silent. Here are four in one:

# %%
faulty = {
    "train_batch_size": 32,
    "gradient_accumulation_step": 2,
    "fp16": {"enabled": True},
    "optimizer": {"type": "OneBitAdam", "params": {"lr": 1e-3}},
    "zero_optimization": {"stage": 3},
}

# %%
silent = dtlearn.predict.choice(
    "A pipeline of 2 stages, 8 ranks, on a processor. Which of the four does DeepSpeed not report?",
    {
        "A": "gradient_accumulation_step, which is not how the key is spelt",
        "B": "ZeRO 3 in a pipeline of two stages",
        "C": "fp16 on a processor, which it does not support",
        "D": "OneBitAdam, an optimizer that was removed",
    },
    id="ch15.silent",
)

# %% jupyter={"source_hidden": true}
silent.reveal()

# %%
# "cpu" is what the configuration is checked for: nothing runs on a processor or a GPU here.
for fault in libraries.check_ds_config(faulty, world_size=8, device="cpu", pp=2):
    print("-", fault)

# %% [markdown]
# (The fifth is what is not there: clipping.) `libraries.check_ds_config` is a few rules over that table of keys. `dtlearn doctor` knows what breaks before a
# configuration is read: no compiler, a lock that a killed build left behind (the next run waits for ever, without a word),
# an old version.
#
# ## 6. When to use which?
#
# All runs side by side: the bytes a rank sends in a step if every collective is a ring, by kind; memory is what the course's ledger (chapter 8) counts on the fuller of two ranks:

# %% jupyter={"source_hidden": true}
LINES = {
    "ddp": [page_engines.ddp, page_engines.TorchEngine],
    "fsdp2": [page_engines.fsdp2, page_engines.TorchEngine],
    "accelerate_zero2": [page_engines.AccelerateEngine],
    "zero2": [page_engines.DeepSpeedEngine],
}
LINES["zero0"] = LINES["zero1"] = LINES["zero3"] = LINES["zero3_paper"] = LINES["zero2"]
rank_table(
    [
        {
            "": row["library"]
            + (", as in the paper" if row["run"] == "zero3_paper" else ""),
            "last loss": f"{row['last loss']:.4f}",
            "calls": row["calls"],
            "sent, kB": row["by kind, kB"],
            "volume": f"{volumes[row['run']]:.2f}" if row["run"] in volumes else "-",
            "kept, kB": row["kept, kB"],
            "peak, kB": row["peak, kB"],
            "step, ms": row["step, ms"],
            "your lines": sum(map(libraries.lines_of, LINES[row["run"]]))
            if row["run"] in LINES
            else "",
        }
        for row in libraries.comparison_rows(
            {name: results[name] for name in libraries.MAIN}
        )
    ],
    caption="A step of a GPT of 120,576 parameters on two ranks, recorded",
)

# %% [markdown]
# "Your lines" are those of section 1's page, without the `ds_config`'s. ZeRO 3 keeps more than DDP here: its parameters stay whole (482 kB), its bucket
# is as large as this run sets it (482 kB), and the rest are this rank's halves: of weights (twice, for it keeps an fp32 copy of fp32
# weights too), of gradients and of Adam's state. The
# milliseconds are those of two cores and a model this small: they count Python and calls. FSDP2's eight and ZeRO 3's forty calls show in them, bytes do not.
#
# | take | when |
# |---|---|
# | DDP | the model fits, with its optimizer |
# | FSDP2 | it does not; you want to see and change the loop; other parallelism comes beside it (chapter 14) |
# | DeepSpeed | offload to host or NVMe, its pipeline, ZeRO++ between nodes, Ulysses for long sequences, or code that is written for it |
# | Accelerate | one script for all of these, chosen by a file |
# | Megatron-core | the largest models: its layers with tp, sequence, context, expert and pipeline parallelism |
#
# And whichever you take: state the clipping, state the buckets, count the bytes once.
#
# This ends the core path.
#
# # Further
#
# ## Run DeepSpeed yourself
#
# *Needs: section 2.* If `.venv-libraries` is there, this cell runs; if not, it says how to make it.

# %% tags=["nbval-ignore-output"]
try:
    found = libraries.run_library(*libraries.REQUESTS["zero2"])
    print(found.title, [f"{loss:.5f}" for loss in found.losses])
except libraries.LibraryMissing as missing:
    print(missing)

# %% [markdown]
# What one has to set, so that a run on a processor is comparable, and does not hang:
#
# | | why |
# |---|---|
# | `"gradient_clipping": 0.0` | section 2 |
# | `"torch_adam": true` | DeepSpeed's own Adam is compiled when it is first used, for one or two minutes |
# | small buckets | by default a bucket of 500 million elements is allocated at once: 2 GB for the smallest model (row `zero2_default_buckets` of the stored results: a peak of 2,002 MB in place of 2.4) |
# | no shared-memory operator | the first `init_distributed` compiles one, 30 s; `libraries.quiet_deepspeed()` switches it off |
# | a barrier before the end | otherwise a rank may leave while another still talks |
#
# ## Accumulation, buckets, FSDP2's last unit
#
# *Needs: section 4.* The other surprises:

# %% jupyter={"source_hidden": true}
rank_table(
    [
        {
            "expected": finding.says,
            "volume": f"{finding.expected:g} expected, {finding.found:g} found",
            "because": finding.because,
        }
        for finding in libraries.FINDINGS[4:]
    ],
    caption="Two more",
)

# %% [markdown]
# Small buckets send the same bytes in more calls:

# %%
for name in ("zero2", "zero2_small_buckets", "zero2_default_buckets"):
    found = results[name]
    print(
        f"{name:>22}: {sum(row.calls for row in found.calls):3d} calls, {found.wire_bytes / 1e3:.0f} kB"
    )

# %% [markdown]
# ## What does offload buy?
#
# *Needs: section 6; chapter 9's offload.* ZeRO-Offload (2101.06840) moves the optimizer's state, and its step, to the host; stage 3 can move the
# parameters, too. Bytes of a parameter, in 16 bits with fp32 masters, Adam, on N ranks:
#
# | | on the GPU | on the host |
# |---|---|---|
# | ZeRO 1 | 4 + 12/N | |
# | ZeRO 2 | 2 + 14/N | |
# | ZeRO 2, gradients and optimizer offloaded | 2 | 14/N |
# | ZeRO 3 | 16/N | |
# | ZeRO 3, all of it offloaded | what is gathered | 16/N |
#
# DeepSpeed's estimators count otherwise. Where it is installed, this compares them with that table:

# %% tags=["nbval-ignore-output"]
try:
    for estimate in libraries.compare_estimates(175_000_000_000, 50257 * 12288, ranks=64):
        paper, theirs = estimate.paper_bytes / 1e9, estimate.deepspeed_bytes / 1e9
        print(
            f"GPT-3 on 64 ranks, stage {estimate.stage}: {paper:.0f} GB by the table, {theirs:.0f} GB by DeepSpeed"
        )
except libraries.LibraryMissing as missing:
    print(missing)

# %% [markdown]
# **Exercise 3.** The least that fits: which stage, and what is offloaded?

# %% exercise="ch15.stage_and_offload"

# %% [markdown]
# ## The 2 x 4 x 4 of DeepSpeed, in small
#
# *Needs: chapters 10, 12 and 14.* DeepSpeed's picture of 3D parallelism has 32 GPUs: two replicas with ZeRO 1, pipelines of four stages, layers over four.
# The first row is **all three axes in one run**: eight ranks, 2 replicas x 2 stages x 2 ranks of a layer. Below it two axes at a time, the pipeline alone,
# and torch's own.

# %% jupyter={"source_hidden": true}
rank_table(
    [
        {
            "": results[name].title + (f" on {len(results[name].ranks)} ranks"),
            "last loss": f"{results[name].losses[-1]:.4f}",
            "calls of rank 0": sum(row.calls for row in results[name].calls),
            "volume": f"{volumes[name]:.2f}",
            "kept, kB": round(max(results[name].state_bytes) / 1e3),
        }
        for name in (
            "zero1_pipeline_tp",
            "zero1_pipeline",
            "zero1_tp",
            "zero_pipeline",
            "pipeline",
            "pipeline_fsdp2",
            "tp",
            "tp_fsdp2",
        )
    ],
    caption="The same GPT, the same losses; what the fullest rank keeps between two steps",
)

# %% [markdown]
# How it is put together:

# %%
from dtlearn.libraries.engines import deepspeed_three_axes

dtlearn.show_source(deepspeed_three_axes.DeepSpeedThreeAxes, docstring=False)

# %% [markdown]
# DeepSpeed brings the grid, the pipeline and ZeRO. **The layers it leaves to you**: `PipelineModule` runs the links that it is given, and divides none.
# In Megatron-DeepSpeed they are Megatron's, here chapter 12's. AutoTP does not help: it makes its groups as if all other ranks were replicas, and
# broadcasts the first stage's embedding to ranks whose first parameter is a norm.
#
# And then you owe it a mark. For the norm DeepSpeed must know which parameters are parts, each to be counted, and which are copies. It asks
# every parameter for an attribute, `tensor_model_parallel` (or `model_parallel`), and takes what has none for a copy:

# %%
dtlearn.show_source(deepspeed_three_axes.mark_divided, docstring=False)

# %% [markdown]
# Forget it, and the norm of the first gradient is 2.97 in the place of 3.30. Mark everything, and it is 4.26. No error, and without clipping no
# difference; with it the run clips at another length. A second trap waits without ZeRO: in fp32 `clip_grad_norm_` in deepspeed/runtime/utils.py counts what
# has no mark on the first rank of a replica alone, and that one has the first stage. Two stages then clip by 2.41. ZeRO 1 counts right. So compare
# the norm with that of one process (chapter 14).
#
# Between two stages each rank of a layer sends its half of the activation, and the receivers gather it. The `PipelineEngine` refuses ZeRO 2 and 3
# (chapter 14 says why). It calls the accumulation steps micro-batches, and takes the data itself: `engine.train_batch(iterator)`. In bf16 the caller
# has to cast a stage's inputs.
#
# ## 16 bits
#
# *Needs: chapter 7.*

# %% jupyter={"source_hidden": true}
rank_table(
    [
        {
            "": results[name].title,
            "loss 1": f"{results[name].losses[0]:.4f}",
            "loss 3": f"{results[name].losses[-1]:.4f}",
            "volume, in fp32 units": f"{volumes[name]:.2f}",
            "kept, kB": f"{max(results[name].state_bytes) / 1e3:.0f}",
        }
        for name in (
            "ddp",
            "ddp_bf16",
            "fsdp2_bf16",
            "zero0_bf16",
            "zero2_bf16",
            "zero3_bf16",
            "zero2_fp16",
        )
    ],
    caption="bf16 and fp16; DDP's is autocast, whose gradients are sent in fp32; FSDP2 gathers in bf16 and reduces in fp32",
)

# %% [markdown]
# `bf16.enabled` makes the *model* bf16 and keeps fp32 masters in the optimizer. Stage 0's losses are the farthest off, and not by rounding: see
# HelloDeepSpeed, below. Gradients travel in bf16, half the bytes, unless `communication_data_type` says fp32 (`data_types.grad_accum_dtype` changes only
# how micro-batches are added up).
# fp16 brings DeepSpeed's own dynamic loss scale (it starts at 2^16, and the first overflow is forgiven: `hysteresis`), and it refuses fp16 on a
# processor (for the row above that was switched off).
#
# ## From a checkpoint of ZeRO 3 to one file
#
# *Needs: section 4; chapter 9's checkpoints.* `engine.save_checkpoint` writes two files for each rank: a model file with names and shapes, and the
# rank's part of a flat buffer with fp32 weights and Adam's state. `module.state_dict()` under stage 3 has empty tensors, where they are above
# the persistence threshold (in a small model none is: another fault that a small test hides). Beside the checkpoint lies `zero_to_fp32.py`, which puts
# the parts together. Parameter after parameter, each cut into N equal parts, padded to a multiple of N:
#
# | parameter | elements | on each of 2 ranks | padding |
# |---|---|---|---|
# | `weight` (3, 3) | 9 | 5 | 1 |
# | `bias` (3,) | 3 | 2 | 1 |
#
# **Exercise 4.** That script, in small.

# %% exercise="ch15.one_file"

# %% [markdown]
# A **universal checkpoint** goes further: a folder for each parameter, with weight and moments whole, which another number of ranks can read (with tp or a pipeline it has to be
# told how its parameters are divided).

# %% tags=["nbval-ignore-output"]
try:
    trip = libraries.checkpoint_trip(stage=3)
    print(
        f"saved on {trip.saved_on} ranks, {len(trip.files)} files; the steps after it: {trip.losses[-1]:.5f}"
    )
    for ranks, losses in trip.resumed.items():
        print(
            f"resumed on {ranks} from the universal one, {trip.universal_files} files: {losses[-1]:.5f}"
        )
except libraries.LibraryMissing as missing:
    print(missing)

# %% [markdown]
# ## Who starts the ranks?
#
# *Needs: chapter 1.* `torchrun`, `deepspeed --num_gpus 2`, `accelerate launch`: each starts processes and sets variables. What each tells rank 0 here:

# %% tags=["nbval-ignore-output"]
SHOW = (
    "RANK",
    "WORLD_SIZE",
    "LOCAL_RANK",
    "MASTER_ADDR",
    "MASTER_PORT",
    "CUDA_VISIBLE_DEVICES",
    "OMP_NUM_THREADS",
)
for name in libraries.LAUNCHERS:
    try:
        told = libraries.launch(name)
        print(
            f"{name}: asked for {told.asked}, started {len(told.ranks)};",
            "arguments:",
            list(told.arguments),
        )
        print(
            "   ",
            {key: value[0] for key, value in told.variables().items() if key in SHOW},
        )
    except libraries.LibraryMissing as missing:
        print(f"{name}: {missing}")

# %% [markdown]
# `accelerate launch --cpu --num_processes 2` starts *one* process, without an error: for several on a processor, use torchrun. Two more traps of
# Accelerate that only the record shows: with `cpu=True` a DeepSpeed plugin is ignored without a word, and a processor with an FSDP plugin runs plain DDP. The losses are the same, so
# nobody notices, until the memory is needed.
#
# ## Megatron-core and FairScale
#
# *Needs: chapter 12.* Their column- and row-parallel layers run on a processor and send what the course's send:

# %%
for name in ("tp", "megatron_tp", "fairscale_tp"):
    found = results[name]
    kinds = {}
    for row in found.calls:
        kinds[row.op] = kinds.get(row.op, 0) + row.calls
    print(f"{found.title:>34}: {volumes[name]:.3f}", kinds)

# %% [markdown]
# Megatron-core's `GPTModel` asks for a GPU, for buffers of its own. FairScale is no longer developed; what was good in it moved into torch: its FSDP
# became FSDP1 and then FSDP2, its OSS (ZeRO 1) `ZeroRedundancyOptimizer`, its `Pipe`, from torchgpipe, `torch.distributed.pipeline`, which has since made way
# for `torch.distributed.pipelining`.
#
# ## Which library was that?
#
# *Needs: section 4.* From the calls of a step one can tell what ran: which call, in which phase, how large.
#
# **Exercise 5.** Name it from the record.

# %% exercise="ch15.name_the_library"

# %% [markdown]
# ## HelloDeepSpeed
#
# *Needs: section 2; for the finding at the end, chapter 7.* DeepSpeed's first example trains a small BERT, a masked language model:
# some tokens are hidden, and it guesses them. Here it is as a script to take home, on this course's text, a character a token, by
# torch alone or by DeepSpeed. It has no dropout, so that both can be compared. Torch alone, on your processor:

# %%
from dtlearn.libraries.hello_deepspeed import train
from dtlearn.libraries.hello_deepspeed.stored import RUNS, load_stored_hello

# On the processor, as the stored runs of DeepSpeed beside which its losses stand.
plain = dtlearn.run_ranks(train, 2, RUNS["plain_fp32"], device="cpu").values[0]
print(
    "losses of updates 1, 2 and 20:", [f"{plain.losses[step]:.3f}" for step in (0, 1, 19)]
)
print(f"on text that it has not seen: {plain.validation:.3f}")

# %% [markdown]
# The same update twice: what you write without DeepSpeed, and what is left with it. `no_sync`, the loss scale, the fp32 masters, the
# clipping are now keys of a dictionary:

# %%
from dtlearn.libraries.hello_deepspeed.deepspeed_engine import (
    DeepSpeedTrainer,
    hello_config,
)
from dtlearn.libraries.hello_deepspeed.plain import PlainTrainer

dtlearn.show_source(PlainTrainer.step)
dtlearn.show_source(DeepSpeedTrainer.step)
print(json.dumps(hello_config(RUNS["zero2_fp32"], world_size=2, num_parameters=31_840)))

# %% [markdown]
# In a terminal (without DeepSpeed the first one trains by torch, and says so):
#
# ```
# torchrun --nproc-per-node 2 -m dtlearn.libraries.hello_deepspeed --zero 2
# deepspeed --num_gpus 2 --module dtlearn.libraries.hello_deepspeed --zero 3 --precision bf16
# ```
#
# And is it the same training? How far each stage's loss is from torch's in that precision:

# %% jupyter={"source_hidden": true}
hello = load_stored_hello()
rank_table(
    [
        {
            "DeepSpeed": name.removesuffix("_fp32")
            .replace("zero", "ZeRO ")
            .replace("_", ", "),
            **{
                f"{precision}, update {step + 1}": f"{hello.from_the_twin(as_named, step):.4f}"
                if (as_named := name.replace("fp32", precision)) in hello.runs
                else "-"
                for precision in ("fp32", "bf16", "fp16")
                for step in (1, 19)
            },
        }
        for name in RUNS
        if name.startswith("zero") and name.endswith("fp32")
    ],
    caption=f"Distance from the plain twin's loss, nats; DeepSpeed {hello.versions['deepspeed']}, {hello.date}",
)

# %% [markdown]
# (The loss of update 2 is the first that an update has changed.) In fp32 all is equal; in 16 bits stages 1 to 3 are as near as roundings allow. **Stage 0 is not.** Its gradients equal the twin's to
# four digits, its first update is 0.744 of the twin's. Where does such a number come from? DeepSpeed's optimizer for this
# case makes Adam's state by a step with gradients of zero, before the first real one. It moves no weight, but Adam has counted it:


# %%
def first_update(steps_before: int) -> float:
    weight = torch.nn.Parameter(torch.ones(1))
    adam = torch.optim.AdamW([weight], lr=3e-3, weight_decay=0.0)
    for gradient in [0.0] * steps_before + [0.5]:
        weight.grad = torch.tensor([gradient])
        adam.step()
    return 1 - weight.item()


print(f"{first_update(1) / first_update(0):.3f}")

# %% [markdown]
# Adam divides its two means by the weight that they have gathered so far (the bias correction); here by that of two steps: $0.1/(1 - 0.9^2) = 0.526$ over $\sqrt{0.001/(1 - 0.999^2)} = 0.707$. In
# fp16 there is a second fault: the gradients are divided by a loss scale that the loss was never multiplied by, and Adam hides a
# constant factor, except through its $\epsilon$. DeepSpeed took the early step out of ZeRO 1 to 3 in February 2024
# ([#5104](https://github.com/deepspeedai/DeepSpeed/pull/5104)), and left it in the optimizers of stage 0, that for GPUs too; for the second fault there is a pull request
# ([#8393](https://github.com/deepspeedai/DeepSpeed/pull/8393)).
# The first fault was found and mended in [TorchTitan](https://github.com/pytorch/torchtitan/pull/4382) and in
# [Megatron's FSDP](https://github.com/NVIDIA/Megatron-LM/pull/5976) in the summer of 2026: "1.34x", which is 1/0.744. No loss
# curve alone shows it. A plain twin beside it does, and so does printing `optimizer.state` before the first step.
#
# What texts say of this example, and what is so:
#
# | said | found |
# |---|---|
# | it shows how a model gets faster | all its ranks set one seed, and there is no sampler: each reads the same samples, and four GPUs learn what one would. The course's script divides the batch; `deepspeed.initialize(training_data=...)` would, too |
# | "a stage 3 configuration": `fp16` and AdamW, no batch size | refused, for want of `train_batch_size` or `train_micro_batch_size_per_gpu`; then on a processor because of fp16; and with both mended it clips at 1.0 |
# | the key `comm_backend_name` chooses NCCL | it belonged to 1-bit Adam; `deepspeed.init_distributed(dist_backend=...)` chooses |
# | "word_size", "fuse LAN" among the kernels | world size; the fused LAMB |
#
# ## Horovod, Lingvo, and who came after
#
# *Needs: nothing.* Libraries end, ideas move. State of November 2026:
#
# | | what it was | today | its ideas in this course |
# |---|---|---|---|
# | [Horovod](https://github.com/horovod/horovod), Uber 2017 (1802.05799) | MPI's model, all ranks alike, for TensorFlow, Keras, PyTorch and MXNet | last release June 2023, which does not build against today's torch. In its place: DDP, NCCL, torchrun | a ring instead of a server: 2; averaging around the optimizer, where DDP wraps the model: 3; small tensors sent together: 3, 6 |
# | [Lingvo](https://github.com/tensorflow/lingvo), Google 2019 (1902.08295) | sequence models in TensorFlow; the first public code of GPipe, [gpipe.py](https://github.com/tensorflow/lingvo/blob/master/lingvo/core/gpipe.py) | in maintenance: releases follow TensorFlow's. Google's later ones are on JAX: Pax, MaxText | micro-batches and recomputation: 8, 10 |
# | [FairScale](https://github.com/facebookresearch/fairscale), Meta 2020 | ZeRO in pure PyTorch, a pipeline, Megatron's layers | last release December 2022; what was good is in torch | FSDP, sharded optimizer: 9; Pipe: 10 |
# | [Megatron-LM](https://github.com/NVIDIA/Megatron-LM), NVIDIA 2019 | layers over GPUs (1909.08053), interleaved stages (2104.04473) | lives; its parts are Megatron Core | 8, 11, 12, 14 |
# | [Accelerate](https://github.com/huggingface/accelerate), Hugging Face 2021 | one loop over DDP, FSDP and DeepSpeed | lives | 3, 9 |
# | [DeepSpeed](https://github.com/deepspeedai/DeepSpeed), Microsoft 2020 | ZeRO, offload, a pipeline engine | lives, in the PyTorch Foundation since May 2025 | 5, 7, 8, 9, 10, 14 |
#
# One idea did *not* move. Horovod sent what was ready, and ranks are ready in different orders; so rank 0 asked all of them, in a
# cycle of some milliseconds, what they all had, and put that into one buffer
# ([Tensor Fusion](https://github.com/horovod/horovod/blob/master/docs/tensor-fusion.rst)). DDP's buckets have a fixed order, and nobody has to ask.
#
# ## What goes wrong in loops and configurations?
#
# *Needs: section 3.*
#
# **Exercise 6.** A loop with three planted bugs, as they were in public libraries.

# %% exercise="ch15.bug_hunt"

# %% [markdown]
# ## What is different on GPUs?
#
# The same scripts, on NCCL: DeepSpeed then compiles its fused Adam once, `overlap_comm` and prefetching have a stream of their own, `pin_memory` matters, and fp16
# is allowed. Bytes and collectives are those of this chapter; what changes is their time. Measure first whether the all-reduce of ZeRO 2 or the reduces are faster on *your*
# network (`use_multi_rank_bucket_allreduce`), and what `stage3_prefetch_bucket_size` and the thresholds do on your model. None of this chapter's runs was on a GPU.
#
# ### Myths
#
# **"ZeRO 2 reduce-scatters gradients."** In the paper. In DeepSpeed it all-reduces them, by default.
#
# **"ZeRO 3 divides every parameter."** Not those under 100,000 elements.
#
# **"Never call `loss.backward()` with DeepSpeed."** It was true: scaling and reduction were silently skipped. Since
# [#7665](https://github.com/deepspeedai/DeepSpeed/pull/7665) stages 1 to 3 accept it; stage 0 raises an error, and with fp16 so do all unless it is
# `engine.scale(loss).backward()`.
#
# **"An unknown key raises an error."** At the top level it is ignored.
#
# **"Accelerate sends more than what it wraps."** It sends the same calls; see the record.
#
# **"1-bit Adam is a flag of DeepSpeed."** Until 0.19.6; now it is "not a supported DeepSpeed Optimizer". It was removed, as were its compression, sparse attention and MiCS
# ([#8489](https://github.com/deepspeedai/DeepSpeed/issues/8489)); chapter 5 has one.
#
# Five more, from introductions to the subject:
#
# **"Here are two `ds_config` files."** Neither is JSON: one contains `...`, the other a comma before a brace, and `json.loads` stops at either. (DeepSpeed
# reads files more kindly, with hjson: it takes the comma, and stops at the dots.)
#
# **"The master node hands out the tasks and monitors the others."** `MASTER_ADDR` is the host of the store where ranks
# [find each other](https://docs.pytorch.org/docs/stable/distributed.html#tcp-initialization). In training no rank gives orders, and what watches
# processes is a launcher on each node. Of Horovod it is half true: its rank 0 decided what was sent when
# ([controller.h](https://github.com/horovod/horovod/blob/master/horovod/common/controller.h)).
#
# **"`fairscale.nn.ModelParallel(layer)` does it all."** There is no such class, nor was there in any commit. There are `ColumnParallelLinear` and
# `RowParallelLinear`
# ([layers.py](https://github.com/facebookresearch/fairscale/blob/main/fairscale/nn/model_parallel/layers.py)), and you say which layer is which.
#
# **"PyTorch has no pipeline and no model parallelism."** It has
# [`torch.distributed.pipelining`](https://docs.pytorch.org/docs/stable/distributed.pipelining.html),
# [`parallelize_module`](https://docs.pytorch.org/docs/stable/distributed.tensor.parallel.html) and
# [`fully_shard`](https://docs.pytorch.org/docs/stable/distributed.fsdp.fully_shard.html), and the first, from
# [PiPPy](https://github.com/pytorch/PiPPy), took the place of an older one that came from FairScale's `Pipe` ([#44090](https://github.com/pytorch/pytorch/pull/44090)).
#
# **"DeepSpeed combines ZeRO, pipeline and tensor parallelism in any way."** "ZeRO-2 and ZeRO-3 are incompatible with pipeline parallelism" is the
# message of its own assertion
# ([engine.py](https://github.com/deepspeedai/DeepSpeed/blob/master/deepspeed/runtime/pipe/engine.py)). The well-known picture with 32 GPUs has stage 1.
#
# ### Check yourself
#
# <details><summary>Twice the ranks, the same `ds_config` with all three batch keys. What happens?</summary>
#
# DeepSpeed refuses: the product no longer holds. Leave one of the three out, and think about which.
# </details>
#
# <details><summary>Your ZeRO 2 run sends half as much again as DDP. Is that a bug?</summary>
#
# No, a default: an all-reduce and an all-gather, 3 in place of 2.
# </details>
#
# <details><summary>Loss curves differ after an update of DeepSpeed from 0.19.2 to 0.19.8. Where do you look first?</summary>
#
# At `gradient_clipping`: left out it was 0, and is 1.0.
# </details>
#
# <details><summary>With eight micro-batches a step, which of ZeRO 1 and 2 sends less?</summary>
#
# Stage 1: it keeps whole gradients, and reduces once. Stage 2 reduces after each micro-batch, unless the code says
# `engine.coalesce_grad_reduction()` (since 0.19.2), and then it keeps whole gradients, too.
# </details>
#
# <details><summary>You save `model.state_dict()` under ZeRO 3. What is in it?</summary>
#
# Empty tensors, for all parameters above the persistence threshold: each rank holds pieces of a flat buffer. Save by the engine and use `zero_to_fp32.py`, or set
# `stage3_gather_16bit_weights_on_model_save`.
# </details>
#
# ## Glossary
#
# {glossary}
#
# Next: chapter 16 asks what breaks, and how jobs survive.
