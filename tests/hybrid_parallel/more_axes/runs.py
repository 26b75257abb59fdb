"""What the tests of cp and ep share: meshes of the same ranks in one start, and a GPT with mixtures in one process."""

from dataclasses import asdict

import torch
import torch.nn.functional as F

from dtlearn.expert_parallel import ExpertGPTConfig, expert_gpt
from dtlearn.hybrid_parallel import HybridGPT, whole_parameters
from dtlearn.models import max_difference, snapshot_parameters
from tests.devices import run_ranks
from tests.hybrid_parallel.runs import MAX_NORM, OPTIMIZERS, SIZES, B, batches, config, float64, make, trained

TOLERANCE = 1e-10
AUXILIARY = {"balance_coefficient": 0.1, "z_coefficient": 0.01}


def experts_config(**sizes):
    """Four experts; routers so unsure that routing is uneven."""
    return ExpertGPTConfig(**{**SIZES, **AUXILIARY, **sizes})


def make_experts(layout, optimizer="adamw", sizes=None, **options):
    """The model that `runs.make` gives, with mixtures."""
    optimizer_class, own = OPTIMIZERS[optimizer]
    arguments = {"num_microbatches": 2, "max_norm": MAX_NORM, "optimizer_class": optimizer_class, **own, **options}
    return HybridGPT(experts_config(**(sizes or {})), layout, **arguments)


def on_meshes(runs, with_experts=False):
    """Each (layout, options): its steps, and what the rank would save. All layouts have the same number of ranks."""
    with float64():
        return [trained((make_experts if with_experts else make)(layout, **options)) for layout, options in runs]


def rows_of_microbatches(num_replicas, num_microbatches):
    """Which rows of the global batch are in a micro-batch of any replica."""
    each = torch.arange(B).view(num_replicas, num_microbatches, -1)
    return [each[:, number].flatten() for number in range(num_microbatches)]


def experts_in_one_process(num_replicas, num_microbatches=2, optimizer="adamw", sizes=None):
    """Losses and norms of each step, and the parameters after all. Auxiliary losses are those of a micro-batch."""
    optimizer_class, options = OPTIMIZERS[optimizer]
    with float64():
        model = expert_gpt(experts_config(**(sizes or {})), seed=0)
        for block in model.blocks:
            block.feed_forward.auxiliary_scale = 1 / num_microbatches
        update, found = optimizer_class(model.parameters(), **options), []
        for tokens, targets in batches():
            update.zero_grad()
            count, total = targets.ne(-100).sum(), 0.0
            for rows in rows_of_microbatches(num_replicas, num_microbatches):
                logits = model(tokens[rows]).flatten(0, 1)
                loss = F.cross_entropy(logits, targets[rows].flatten(), reduction="sum") / count
                loss.backward()
                total += loss.item()
            norm = torch.nn.utils.clip_grad_norm_(model.parameters(), MAX_NORM)
            update.step()
            found.append((total, norm.item()))
    return found, snapshot_parameters(model)


def difference(found, expected):
    """The largest difference in any step's loss or norm."""
    return max(abs(a - b) for pair in zip(found, expected, strict=True) for a, b in zip(*pair, strict=True))


def compare(runs, expected, *, with_experts=False, device="cpu"):
    """Compare each run with (steps, parameters) of one process."""
    result = run_ranks(on_meshes, runs[0][0].world_size, runs, with_experts, device=device)
    for number, (run, (steps, parameters)) in enumerate(zip(runs, expected, strict=True)):
        states = [rank[number][1] for rank in result]
        assert max(difference(rank[number][0], steps) for rank in result) < TOLERANCE, run
        assert max_difference(whole_parameters(states), parameters).value < TOLERANCE, run
        assert states[0]["config"] == asdict(experts_config(**run[1].get("sizes", {})) if with_experts else own(run))


def own(run):
    """The config of a dense run."""
    return config(run[1].get("tied", False))
