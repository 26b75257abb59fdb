"""The programs of the lab without their faults: of each, what stands in the place of what."""

from dtlearn.production.bug_lab import PROGRAMS

FIXES = {
    "sharded_save": {
        "        if rank == 0:\n            weights = whole(shard)\n": (
            "        weights = whole(shard)\n        if rank == 0:\n"
        ),
    },
    "detector_logs": {
        '    if boxes:\n        losses["box"] = torch.tensor(boxes).mean()\n': (
            '    losses["box"] = torch.tensor(boxes or [0.0]).mean()\n'
        ),
    },
    "codebook": {
        "dist.all_reduce(sums.contiguous())": "sums = sums.contiguous()\n    dist.all_reduce(sums)",
    },
    "cache_groups": {
        "    members = [2 * node, 2 * node + 1]\n    group = dist.new_group(members)\n": (
            "    groups = [dist.new_group([2 * k, 2 * k + 1]) for k in range(2)]\n    group = groups[node]\n"
        ),
    },
    "loss_log": {
        "            mean = loss / n\n            dist.all_reduce(mean)\n            total += mean.item()\n": (
            "            total += loss / n\n"
        ),
        "            log.append(total / 16)\n": (
            "            dist.all_reduce(total)\n            log.append(total.item() / 16)\n"
        ),
    },
    "checkpoint_thread": {"weight.detach().cpu()": "weight.detach().clone()"},
    "pipeline_pairs": {"neighbour = 1 - stage": "neighbour = dist.get_global_rank(pipeline, 1 - stage)"},
    "collected_scores": {
        "arrivals[-1].wait()\n": "[arrival.wait() for arrival in arrivals]\n",
        "    for arrival in arrivals[:-1]:\n        arrival.wait()\n": "",
    },
    "loss_metric": {
        "        parts = [torch.empty_like(losses) for _ in range(n)]\n        dist.all_gather(parts, losses)\n": (
            "        total = losses.mean() / n\n        dist.reduce(total, 0)\n"
        ),
        "mean = torch.cat(parts).mean()": "mean = total",
    },
    "resumed_dropout": {
        '    file: list[Any] = [{"step": 2, "generator": generator.get_state()}]\n': (
            "    states: list[Any] = [None] * dist.get_world_size()\n"
            "    dist.all_gather_object(states, generator.get_state())\n"
            '    file: list[Any] = [{"step": 2, "generator": states}]\n'
        ),
        'file[0]["generator"]': 'file[0]["generator"][rank]',
    },
}


def fixed(name: str) -> str:
    """The program without its fault."""
    text = PROGRAMS[name].text
    for old, new in FIXES[name].items():
        assert text.count(old) == 1, f"{name} has {old!r} {text.count(old)} times"
        text = text.replace(old, new)
    return text
