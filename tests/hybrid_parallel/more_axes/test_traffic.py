"""Bytes along cp and ep: the formula equals the record of real steps, to the byte; and by hand."""

import pytest
import torch
import torch.distributed as dist

from dtlearn.expert_parallel import mixtures
from dtlearn.hybrid_parallel import MeshLayout, recorded_bytes, step_bytes
from dtlearn.hybrid_parallel.more_axes.traffic import context_bytes, expert_bytes, routed_bytes
from tests.devices import run_ranks
from tests.hybrid_parallel.more_axes.runs import experts_config, make_experts
from tests.hybrid_parallel.runs import B, T, batches, config, make
from tests.hybrid_parallel.test_traffic import between_barriers

DENSE = [
    (MeshLayout(tp=2, cp=2), {"tied": True, "zero": 1}),
    (MeshLayout(tp=2, cp=2), {"context_method": "ulysses", "sequence_parallel": False}),
    (MeshLayout(dp=2, cp=2), {"context_method": "all-gather", "zero": 2}),
    (MeshLayout(dp=2, cp=2, order=("dp", "cp", "tp", "pp", "ep")), {"zero": 3}),
    (MeshLayout(pp=2, cp=2), {"context_method": "all-gather"}),  # cp's all-gathers look like dp's: no bytes of cp
]
EXPERTS = [
    (MeshLayout(ep=2, dp=2), {}),
    (MeshLayout(ep=2, tp=2), {"zero": 1}),
    (MeshLayout(ep=2, tp=2), {"sequence_parallel": False}),
    (MeshLayout(ep=2, pp=2), {"zero": 1}),
    (MeshLayout(ep=2, cp=2), {}),
    (MeshLayout(tp=2, cp=2), {"zero": 2}),
    (MeshLayout(ep=2, dp=2), {"sizes": {"top_k": 4}}),  # all experts: choices are even
]
KNOWN = ("zero", "sequence_parallel", "context_method")


def noted_loads(model):
    """A list that gets, in each forward pass of a mixture, the rows of this rank for each expert."""
    found = []
    for stage in model.stages.values():
        for mixture in mixtures(stage.module):
            mixture.register_forward_hook(lambda part, *_: found.append(part.routing.load()))
    return found


def gathered(loads, group):
    """The loads of all ranks of the group in each pass."""
    together = torch.stack(loads)  # (passes, E)
    parts = [torch.empty_like(together) for _ in range(dist.get_world_size(group))]
    dist.all_gather(parts, together, group=group)
    return torch.stack(parts, 1).tolist()


def on_ranks():
    """The formula's bytes for this rank, by case. Barriers mark the second of two steps: the first sends shapes too."""
    found = []
    for layout, options in [*DENSE, *EXPERTS]:
        has_experts = (layout, options) in EXPERTS
        model = (make_experts if has_experts else make)(layout, **options)
        batch = next(batches(1))
        model.step(*batch)
        loads = noted_loads(model)
        dist.barrier()
        model.step(*batch)
        dist.barrier()
        known = {name: value for name, value in options.items() if name in KNOWN}
        if layout.ep > 1 and "sizes" not in options:
            known["loads"] = gathered(loads, model.groups.ep)
        of_model = model.config, layout, model.schedule, model.boundaries, dist.get_rank()
        found.append(step_bytes(*of_model, global_batch=B, length=T, **known))
    return found


def test_the_record_has_the_bytes_of_the_formula():
    result = run_ranks(on_ranks, 4, device="cpu", record=True, timeout=300.0)
    for rank in range(4):
        steps = between_barriers(result.record, rank)
        for case, by_formula, events in zip([*DENSE, *EXPERTS], result[rank], steps, strict=True):
            assert recorded_bytes(events, case[0], rank) == pytest.approx(by_formula, abs=1e-6), (rank, case)
            axes = {axis for axis in ("cp", "ep") if case[0].sizes[axis] > 1}
            assert {axis for axis in by_formula if by_formula[axis] and axis in ("cp", "ep")} == (
                set() if case == DENSE[-1] else axes
            )


def test_by_hand():
    """On 2 ranks, rows of 8 tokens, C = 16: K and V of 4 tokens are sent in forward and backward, gradients twice."""
    key_value = 2 * 2 * 4 * 16 * 4
    ranks = {"tp": 1, "cp": 2, "element_bytes": 4}
    assert context_bytes(config(), 2, 8, method="ring", **ranks) == (1 + 1 + 2) * key_value
    assert context_bytes(config(), 2, 8, method="all-gather", **ranks) == 2 * key_value
    assert context_bytes(config(), 2, 8, method="ring", **ranks | {"tp": 2}) == 4 * key_value / 2
    sizes = experts_config(top_k=2)  # 8 tokens have 16 rows, half of them for the other rank; 2 counts of 8 bytes
    assert expert_bytes(sizes, 8, 2, element_bytes=4) == 4 * 8 * 16 * 4 + 2 * 8
    assert routed_bytes([[4] * 4] * 2, 0, 16, element_bytes=4) == 4 * 8 * 16 * 4 + 2 * 8
    assert routed_bytes([[8, 8, 0, 0]] * 2, 0, 16, element_bytes=4) == 2 * 16 * 16 * 4 + 2 * 8  # others' rows, and back
