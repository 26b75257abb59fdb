"""Draw images/<chapter>/*.svg from runs recorded now on this machine. The README shows some of them.

python tools/make_images.py              run, record, draw, write
python tools/make_images.py --only ch03  those whose names begin so
python tools/make_images.py --check      run nothing; verify that every image is there, described, and no other
"""

from __future__ import annotations

import argparse
import sys
import xml.etree.ElementTree as ET
from collections.abc import Callable
from functools import partial
from pathlib import Path

import torch
from image_texts import IN_WORDS
from matplotlib.figure import Figure
from torch.nn.parallel import DistributedDataParallel

from dtlearn.communication_scheduling import (
    LayerTimes,
    SchedulingPolicy,
    lower_bound,
    run_emulated,
    transfer_seconds,
)
from dtlearn.data_parallel.measure import Workload, fastest, record_on_rank
from dtlearn.data_parallel.samples.sampler import EvaluationSampler, shard_indices
from dtlearn.gradient_compression.comparing import compare
from dtlearn.hybrid_parallel.layout import MeshLayout
from dtlearn.libraries import RunDescription, load_stored_results
from dtlearn.memory import record_on_ranks
from dtlearn.mixed_precision import BF16, FP16
from dtlearn.mixed_precision.measure.gradients import gpt_gradients, log2_histogram
from dtlearn.models import GPT, MLP, GPTConfig, load_corpus, next_token_loss, num_parameters
from dtlearn.models.train_digits import train
from dtlearn.parameter_server import (
    ParameterServer,
    Shard,
    Synchronous,
    Worker,
    by_range,
    open_channels,
    ring_traffic,
    server_traffic,
    shapes_of,
    train_request_response,
)
from dtlearn.pipeline_parallel import make_schedule
from dtlearn.planner import find_accelerator, find_model, parse_cluster, planned_layouts
from dtlearn.production.fault_stories import load_stories
from dtlearn.production.goodput import JobTimes, goodput_by_interval
from dtlearn.runtime.errors import RanksDisagree
from dtlearn.runtime.link.link import Link
from dtlearn.runtime.rendezvous import record_rendezvous
from dtlearn.runtime.run import run_ranks
from dtlearn.tensor_parallel import ParallelGPT, reduce_sequence_parallel_gradients
from dtlearn.viz import (
    LayerRun,
    UnitRun,
    bucket_timeline,
    bytes_on_links,
    collective_steps,
    communication_lanes,
    detection_bars,
    draw_layer,
    draw_schedule,
    fabric_picture,
    goodput_curve,
    gradient_histograms,
    layout_front,
    layout_on_nodes,
    link_bytes,
    loss_over_cost,
    module_runs,
    rail_fabric,
    rendezvous,
    sample_grid,
    save_svg,
    shard_map,
    step_memory,
    step_timeline,
    timeline,
    unit_timeline,
)
from dtlearn.viz.libraries.sent_volumes import sent_volumes
from dtlearn.viz.network import circle, placed_figure
from dtlearn.viz.tensor_parallel.module_runs import ModuleRun
from dtlearn.zero import FullyShardedDataParallel, UnitEvent, plan_flat, plan_per_parameter, plan_whole_tensors

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / "images"


def training_steps() -> Figure:
    record = run_ranks(train, 4, device="cpu", record=True).record
    return step_timeline(record, {104_488: "gradients", 4: "loss"}, title="Two training steps on 4 ranks")


def finding_each_other() -> Figure:
    calls = record_rendezvous(4, late={3: 0.3})
    return rendezvous(calls, world_size=4, label="gloo on CPU, ranks meet through a file; rank 3 starts 0.3 s late")


def hang() -> Figure:
    try:
        run_ranks(_all_but_one, 4, device="cpu", record=True)
    except RanksDisagree as error:
        assert error.record is not None
        return timeline(error.record, title="Three ranks in a call that the fourth never made", ended=[1])
    raise AssertionError("a call that one rank does not make must not return")


def _all_but_one() -> None:
    import torch
    import torch.distributed as dist

    if dist.get_rank() != 1:
        dist.all_reduce(torch.ones(1))


def ring_all_reduce() -> Figure:
    record = run_ranks(_all_reduce, 4, 1000, device="cpu", record=True).record
    phases = {"Reduce-scatter: the receiver adds": 3, "All-gather: the receiver replaces": 3}
    return placed_figure(collective_steps(record), circle(4), "Ring all-reduce on 4 ranks", phases)


def _all_reduce(elements: int) -> None:
    import torch

    from dtlearn.collectives import all_reduce

    all_reduce(torch.ones(elements))


def samples() -> Figure:
    n, ranks = 22, range(4)
    rows = {
        "padded (default)": [shard_indices(n, 4, rank) for rank in ranks],
        "drop_last=True": [shard_indices(n, 4, rank, drop_last=True) for rank in ranks],
        "for evaluation": [list(EvaluationSampler(n, 4, rank)) for rank in ranks],
        "shuffled, epoch 0": [shard_indices(n, 4, rank, shuffle=True, epoch=0) for rank in ranks],
        "shuffled, epoch 1": [shard_indices(n, 4, rank, shuffle=True, epoch=1) for rank in ranks],
    }
    label = "22 samples on 4 ranks, from the index functions of dtlearn.data_parallel.samples.sampler"
    return sample_grid(list(rows.values()), n, rows=list(rows), label=label)


def buckets() -> Figure:
    work, kinds = Workload(batch=144, bucket_cap_mb=4), ("naive", "ours")
    options = {"device": "cpu", "record": True, "link": Link.named("1 Gb/s")}
    record = run_ranks(record_on_rank, 2, work, kinds, 5, **options).record
    names = {"naive": "one by one", "ours": "in buckets"}
    title = "One training step: gradients averaged one by one, and in buckets"
    return bucket_timeline({names[kind]: fastest(record, kind) for kind in kinds}, title)


def hot_links() -> Figure:
    links, servers, formula = {}, {}, {}
    nbytes = 4 * num_parameters(MLP())
    for number in (1, 2, 4):
        name = f"{number} server{'s' * (number > 1)}"
        record = run_ranks(_train_with_servers, 4 + number, number, device="cpu", record=True).record
        links[name], servers[name] = bytes_on_links(record), number
        formula[name] = [rank.nbytes for rank in server_traffic([nbytes // number] * number, 4)]
    record = run_ranks(_all_reduce, 4, num_parameters(MLP()), device="cpu", record=True).record
    links["ring"], servers["ring"] = bytes_on_links(record), 0
    formula["ring"] = [rank.nbytes for rank in ring_traffic(nbytes, 4)]
    title = "One server has the hottest link; as many servers as workers have cooler ones than a ring"
    return link_bytes(links, servers, formula, title, "one recorded step of 4 workers, 26,122 parameters in fp32")


_EVERY_STEP = ["fp16", "QSGD", "random-k", "top-k", "sign", "sign, no feedback", "PowerSGD", "DGC"]
_RARELY = ["1-bit Adam", "local SGD", "post-local SGD", "DiLoCo", "streaming DiLoCo"]


def losses_of(task: str, methods: list[str], title: str) -> Figure:
    runs = compare(["no compression", *methods], task, 100, link=Link.named("100 Mb/s"))
    return loss_over_cost(runs, target={"digits": 0.5, "GPT": 3.0}[task], title=title)


def sends_by_priority() -> Figure:
    link = Link.named("100 Mb/s")
    times = LayerTimes((0.015,) * 6, (0.030,) * 6, (600 * 1024,) * 6)
    policies = {
        "first in, first out": SchedulingPolicy("fifo", credit_bytes=1, barrier=True),
        "priority, 200 KiB, one in flight": SchedulingPolicy("priority", 200 * 1024, credit_bytes=1),
    }
    runs = {name: run_emulated(times, policy, link, steps=5)[0] for name, policy in policies.items()}
    return communication_lanes(
        {name: min(steps, key=lambda step: step.makespan).spans for name, steps in runs.items()},
        bound=lower_bound(times, transfer_seconds(link, 2)),
        title="With priority, transfers hide behind the next forward pass, too",
        label=f"rank 0 of 2, recorded; {link.label}; emulated layer times",
    )


def _train_with_servers(num_servers: int) -> None:
    """One synchronous step."""
    import torch
    import torch.distributed as dist

    model = MLP()
    parameters = dict(model.named_parameters())
    placement = by_range(shapes_of(parameters), num_servers)
    channels = open_channels(num_servers, placement)
    if channels.roles.is_server(rank := dist.get_rank()):
        shard = Shard(placement.pieces(rank, parameters), lambda p: torch.optim.SGD(p, lr=0.1))
        ParameterServer(channels, shard, Synchronous()).serve()
        return
    worker = Worker(channels, parameters, placement)

    def compute(number: int) -> int:
        model(torch.ones(4, 64)).square().mean().backward()
        return 4

    train_request_response(worker, compute, 1)
    worker.close()


def gradients() -> Figure:
    found = gpt_gradients(num_microbatches=64).activations
    layers = {name: log2_histogram(g) for name, g in found.items() if name.startswith(("blocks.0", "head"))}
    title = "A loss scale moves the gradients into the range of fp16"
    label = "gradients of the outputs of linear layers: GPT of 4 blocks, first block and head; 64 x 1,024 tokens"
    return gradient_histograms(layers, FP16, ranges=(BF16, FP16), title=title, label=label)


def memory_of_a_step() -> Figure:
    ((x, y),) = load_corpus().batches(1, 16, 64)
    (record, _) = record_on_ranks(
        2,
        lambda: GPT(GPTConfig(hidden_size=128)),
        lambda parameters: torch.optim.AdamW(parameters, lr=1e-3),
        lambda rank: (x[rank::2].contiguous(), y[rank::2].contiguous()),
        next_token_loss,
        wrap=DistributedDataParallel,
    )
    label = "rank 0 of 2: GPT with 0.8 million parameters, 8 x 64 tokens, AdamW, fp32, DDP"
    return step_memory(record, title="Activations rise through forward, and the peak is early in backward", label=label)


def who_owns_what() -> Figure:
    layers = {"A.weight": (6, 4), "A.bias": (6,), "B.weight": (3, 6), "B.bias": (3,)}
    numels = [torch.Size(shape).numel() for shape in layers.values()]
    partitions = {
        "flat": plan_flat(numels, 4),
        "per parameter, by rows": plan_per_parameter(list(layers.values()), 4),
        "whole tensors, the largest first": plan_whole_tensors(numels, 4),
    }
    label = "two linear layers, 4 to 6 and 6 to 3 features, on 4 ranks"
    return shard_map(partitions, list(layers), "The same 51 elements, divided in three ways", label)


def gathered_units() -> Figure:
    options = {"device": "cpu", "record": True, "link": Link.named("1 Gb/s")}
    names = {f"{number}.0": str(number + 1) for number in range(4)}
    runs = {}
    for name, prefetch in (("no prefetch", 0), ("prefetch 1", 1)):
        run = run_ranks(_train_units, 2, prefetch, **options)
        runs[name] = UnitRun(run.record, run.values[0], dict.fromkeys(names, 4 * 769 * 768), names=names)
    return unit_timeline(runs, "Prefetch hides gathers behind computation, for the memory of one more unit")


def _train_units(prefetch: int) -> list[UnitEvent]:
    """Six steps of a chain of four linear layers, each a unit of stage 3; what happened to the units."""
    layers = [torch.nn.Sequential(torch.nn.Linear(768, 768), torch.nn.ReLU()) for _ in range(4)]
    model = FullyShardedDataParallel(torch.nn.Sequential(*layers), units=(torch.nn.Linear,), prefetch=prefetch)
    events = model.record_events()
    optimizer, x = torch.optim.SGD(model.parameters(), lr=0.01), torch.randn(256, 768)
    for _ in range(6):
        model(x).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
    return events


def two_schedules() -> Figure:
    return draw_schedule(
        {"GPipe": make_schedule("gpipe", 4, 8), "1F1B": make_schedule("1f1b", 4, 8)},
        title="GPipe and 1F1B: the same length, the same idle time",
        label="p = 4 ranks, m = 8 micro-batches; F takes 1, B takes 2",
    )


def smaller_bubbles() -> Figure:
    kinds = {"1F1B": "1f1b", "interleaved, two chunks on each rank": "interleaved", "ZB-H1": "zb_h1"}
    schedules = {title: make_schedule(kind, 4, 8) for title, kind in kinds.items()}
    return draw_schedule(
        schedules, "The same work, with smaller and smaller bubbles", "4 ranks, 8 micro-batches; F = I = W"
    )


def divided_block() -> Figure:
    runs = {}
    for name, sequence_parallel in (("tensor parallelism", False), ("and sequence parallelism", True)):
        run = run_ranks(_run_block, 2, sequence_parallel, device="cpu", record=True)
        runs[name] = LayerRun(run.record, run.values[0])
    return draw_layer(
        runs,
        "Where a divided block communicates: four all-reduces, or four pairs of their halves",
        "one block of a GPT on 2 ranks, recorded; shapes (B, T, features) on a rank; bytes that it sends",
        {"attention.output": "attention, each rank its own heads", "feed_forward.down": "GELU"},
    )


def _run_block(sequence_parallel: bool) -> list[ModuleRun]:
    """A forward and a backward pass of one block, fp32."""
    block = ParallelGPT(GPTConfig(), seed=0, sequence_parallel=sequence_parallel).blocks[0]
    x = torch.randn(4, 24 if sequence_parallel else 48, 64, requires_grad=True)
    with module_runs(block) as runs:
        block(x).square().mean().backward()
    reduce_sequence_parallel_gradients(block)
    return runs


# Name -> what draws it, and what it shows in words.
def bloom_on_its_nodes() -> Figure:
    title = "BLOOM on its 384 GPUs: a node has one stage of two copies"
    order = ("tp", "cp", "ep", "dp", "pp")  # DeepSpeed's PipeModelDataParallelTopology
    return layout_on_nodes(MeshLayout(tp=4, dp=8, pp=12, order=order), title=title)


def rails() -> Figure:
    title = "The i-th GPU of every node is on one leaf switch: a rail"
    return fabric_picture(rail_fabric(find_accelerator("H100")), title=title)


def layouts_of_bloom() -> Figure:
    return layout_front(planned_layouts(find_model("BLOOM 176B"), parse_cluster("384xA100-80GB"), 2048))


def volumes_of_libraries() -> Figure:
    """Draw the stored runs of the libraries: none of them is installed where images are drawn."""
    return sent_volumes(load_stored_results(), RunDescription().config.num_parameters)


def detections() -> Figure:
    """Draw the stored stories: under torchrun a scenario takes up to half a minute."""
    stored = load_stories()
    shown = [d for d in stored.detections if d.fault in ("kill", "hang", "memory", "node_lost")]
    return detection_bars(shown, label=f"run on {stored.date}, {stored.processors} cores")


def goodput_of_a_job() -> Figure:
    job = JobTimes(work=30 * 86400, save=60, restart=600, mtbf=3 * 3600)
    minutes = (2, 4, 8, 12, 19, 30, 45, 60, 90, 120)
    return goodput_curve(job, goodput_by_interval(job, [60 * m for m in minutes], range(5)))


_DRAWN_BY: dict[str, Callable[[], Figure]] = {
    "ch01_ranks/training_steps": training_steps,
    "ch01_ranks/rendezvous": finding_each_other,
    "ch01_ranks/hang": hang,
    "ch02_collectives/ring_all_reduce": ring_all_reduce,
    "ch03_data_parallel/sample_grid": samples,
    "ch03_data_parallel/bucket_timeline": buckets,
    "ch04_parameter_server/hot_links": hot_links,
    "ch05_gradient_compression/digits_every_step": partial(
        losses_of, "digits", _EVERY_STEP, "Digits: what is sent in every step, compressed"
    ),
    "ch05_gradient_compression/digits_rarely": partial(
        losses_of, "digits", _RARELY, "Digits: what is sent rarely, or as momentum"
    ),
    "ch05_gradient_compression/text_every_step": partial(
        losses_of, "GPT", _EVERY_STEP, "A GPT: what is sent in every step, compressed"
    ),
    "ch05_gradient_compression/text_rarely": partial(
        losses_of, "GPT", _RARELY, "A GPT: what is sent rarely, or as momentum"
    ),
    "ch06_communication_scheduling/lanes": sends_by_priority,
    "ch07_mixed_precision/gradients": gradients,
    "ch08_memory/step_memory": memory_of_a_step,
    "ch09_zero/shard_map": who_owns_what,
    "ch09_zero/unit_timeline": gathered_units,
    "ch10_pipeline_parallel/schedules": two_schedules,
    "ch11_pipeline_schedules/smaller_bubbles": smaller_bubbles,
    "ch12_tensor_parallel/block": divided_block,
    "ch14_hybrid_parallel/bloom_nodes": bloom_on_its_nodes,
    "ch14_hybrid_parallel/layout_front": layouts_of_bloom,
    "ch14_hybrid_parallel/rails": rails,
    "ch15_deepspeed/volumes": volumes_of_libraries,
    "ch16_production/detections": detections,
    "ch16_production/goodput": goodput_of_a_job,
}
IMAGES = {name: (draw, IN_WORDS[name]) for name, draw in _DRAWN_BY.items()}


def check(folder: Path) -> list[str]:
    """What is wrong with the images below a folder, a line each."""
    found = {path.relative_to(folder).with_suffix("").as_posix() for path in folder.glob("*/*.svg")}
    problems = [f"{name}.svg is missing: run tools/make_images.py" for name in sorted(set(IMAGES) - found)]
    problems += [f"{name}.svg is not drawn by tools/make_images.py" for name in sorted(found - set(IMAGES))]
    for name in sorted(found & set(IMAGES)):
        described = ET.parse(folder / f"{name}.svg").getroot().find("{http://www.w3.org/2000/svg}desc")
        if described is None or described.text != IMAGES[name][1]:
            problems.append(f"{name}.svg has another description than tools/make_images.py gives it")
    return problems


def main(argv: list[str] | None = None, folder: Path = FOLDER) -> int:
    parser = argparse.ArgumentParser(description="Draw the images of the chapters from recorded runs.")
    parser.add_argument("--check", action="store_true", help="run nothing; verify the images")
    parser.add_argument("--only", metavar="NAME", default="", help="draw only those whose names begin so, such as ch03")
    options = parser.parse_args(argv)
    if options.check:
        problems = check(folder)
        print("\n".join(problems) if problems else "images: all there")
        return 1 if problems else 0
    chosen = {name: image for name, image in IMAGES.items() if name.startswith(options.only)}
    if not chosen:
        parser.error(f"no image begins with {options.only!r}; there are {', '.join(IMAGES)}")
    for name, (draw, description) in chosen.items():
        path = folder / f"{name}.svg"
        path.parent.mkdir(parents=True, exist_ok=True)
        save_svg(draw(), path, title=path.stem.replace("_", " "), desc=description)
        print(f"images/{name}.svg")
    return 0


if __name__ == "__main__":
    sys.exit(main())
