"""Clipping over ranks: torch's on the whole gradient; and what is found if a rank counts too much, or only its own."""

import math

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

from dtlearn.models import max_difference, snapshot_parameters
from dtlearn.runtime.run import run_ranks
from dtlearn.sharing.host_memory import Host
from dtlearn.zero.clipping import clip_by_local_norm_, clip_grad_norm_, global_norm
from dtlearn.zero.offload.optimizer import offloaded
from dtlearn.zero.pieces_of_stages import pieces_of_stage3
from dtlearn.zero.stages.hybrid import HybridShardedDataParallel
from dtlearn.zero.stages.zero1 import ZeroRedundancyOptimizer
from dtlearn.zero.stages.zero2 import ShardedGradients
from dtlearn.zero.stages.zero3 import FullyShardedDataParallel
from dtlearn.zero.state_dicts.sharded import sharded_state_dict
from dtlearn.zero.state_dicts.whole import consolidate, model_state_dict
from tests.data_parallel.runs import MODELS, loss_of
from tests.zero.flat_pieces import pieces, put_together, whole
from tests.zero.stages.sharded_training import UNITS, batches_of, from_all_ranks

LIMITS = {"clipped": 1.5, "left": 100.0}
BIAS = (20.0, -10.0)


def own_pieces(group, dtype=torch.float64):
    return pieces(whole(dtype=dtype), dist.get_world_size(group), dist.get_rank(group))


def replicated_bias():
    bias = nn.Parameter(torch.zeros(2, dtype=torch.float64))
    bias.grad = torch.tensor(BIAS, dtype=torch.float64)
    return bias


def gradients(own):
    return {name: piece.grad for name, piece in own.items() if piece.grad is not None}


def with_padding(own, group):
    """Sabotage: the shard with its padding in place of the pieces; what lies there is whatever memory had."""
    size = -(-sum(p.numel() for p in whole().values()) // dist.get_world_size(group))
    flat = torch.full((size,), 7.0, dtype=torch.float64)
    grads = torch.cat([p.grad if p.grad is not None else torch.zeros_like(p) for p in own.values()])
    flat[: len(grads)] = grads
    shard = nn.Parameter(torch.zeros_like(flat))
    shard.grad = flat
    return shard


def every_case(group):
    """(norm, gradients) by case, of this rank."""
    rank, size, found = dist.get_rank(group), dist.get_world_size(group), {}
    for name, limit in LIMITS.items():
        own = own_pieces(group)
        found[name] = clip_grad_norm_((p for p in own.values()), limit, group=group), gradients(own)
    own = own_pieces(group)
    found["largest"] = clip_grad_norm_(own.values(), 1.5, math.inf, group=group), gradients(own)
    own, bias = own_pieces(group), replicated_bias()
    norm = clip_grad_norm_([bias, *own.values()], 2.0, replicated=[bias], group=group)
    found["replicated"] = norm, gradients(own) | {"bias": bias.grad}
    own = own_pieces(group)
    found["tied"] = clip_grad_norm_([*own.values(), own["c"], own["a"]], 1.5, group=group), gradients(own)
    # sabotage
    own, bias = own_pieces(group), replicated_bias()
    found["bias on every rank"] = global_norm([bias, *own.values()], group=group), {}
    found["padding"] = global_norm([with_padding(own_pieces(group), group)], group=group), {}
    own = own_pieces(group)
    found["own norm"] = clip_by_local_norm_(own.values(), 1.5), gradients(own)
    own = own_pieces(group)
    found["torch's"] = nn.utils.clip_grad_norm_(own.values(), 1.5), gradients(own)
    # bad values
    broken = own_pieces(group)
    if rank == size - 1:
        broken["a" if rank == 0 else "c"].grad[-1] = math.inf
    found["infinite"] = clip_grad_norm_(list(broken.values())[::-1], 1.0, group=group), {}
    try:
        clip_grad_norm_(broken.values(), 1.0, group=group, error_if_nonfinite=True)
    except RuntimeError as error:
        found["error"] = str(error), {}
    found["one"] = global_norm(own_pieces(group)["a"], group=group), {}
    found["nothing"] = global_norm([], group=group), {}
    found["in float32"] = global_norm(own_pieces(group, torch.bfloat16).values(), group=group), {}
    return found


def every_size():
    """What `every_case` finds in groups of 1, 2, 3 and 4 ranks, by their number."""
    groups = {size: dist.new_group(list(range(size))) for size in (1, 2, 3, 4)}
    return {size: every_case(group) for size, group in groups.items() if dist.get_rank() < size}


def reference(limit, more=(), norm_type=2.0):
    parameters = whole()
    norm = nn.utils.clip_grad_norm_([*(p for p in parameters.values() if p.numel()), *more], limit, norm_type)
    return norm, {name: p.grad for name, p in parameters.items() if p.grad is not None}


def distance(per_rank, case, limit, more=(), norm_type=2.0):
    norm, exact = reference(limit, more, norm_type)
    apart = [abs(found[case][0] - norm).item() for found in per_rank]
    together = put_together([{n: g for n, g in found[case][1].items() if n != "bias"} for found in per_rank])
    apart += [(together[name] - grad).abs().max().item() for name, grad in exact.items() if grad.numel()]
    return max(apart)


@pytest.fixture(scope="module")
def results():
    """{number of ranks: (what every rank found, the record)}"""
    run = run_ranks(every_size, 4, device="cpu", record=True)
    return {size: ([run[rank][size] for rank in range(size)], run.record) for size in (1, 2, 3, 4)}


@pytest.mark.parametrize("size", [1, 2, 3, 4])
def test_pieces_are_clipped_as_the_whole(results, size):
    per_rank, _ = results[size]
    assert distance(per_rank, "clipped", LIMITS["clipped"]) < 1e-12
    assert distance(per_rank, "left", LIMITS["left"]) < 1e-12
    assert distance(per_rank, "tied", 1.5) < 1e-12
    assert distance(per_rank, "largest", 1.5, norm_type=math.inf) < 1e-12
    bias = replicated_bias()
    assert distance(per_rank, "replicated", 2.0, [bias]) < 1e-12
    for found in per_rank:
        assert torch.equal(found["clipped"][0], per_rank[0]["clipped"][0])  # to the last bit: one decision
        assert (found["replicated"][1]["bias"] - bias.grad).abs().max() < 1e-12
        assert found["nothing"][0].item() == 0.0
        assert found["one"][0].item() == pytest.approx(whole()["a"].grad.norm().item(), rel=1e-12)


@pytest.mark.parametrize("size", [2, 3, 4])
def test_a_norm_of_the_rank_alone_is_found(results, size):
    per_rank, _ = results[size]
    assert distance(per_rank, "own norm", 1.5) > 0.05
    assert distance(per_rank, "torch's", 1.5) == pytest.approx(distance(per_rank, "own norm", 1.5), abs=1e-12)
    # Not only too long: turned.
    _, exact = reference(1.5)
    clipped = put_together([found["own norm"][1] for found in per_rank])
    a, b = (torch.cat([g.flatten() for g in grads.values()]) for grads in (clipped, exact))
    assert torch.cosine_similarity(a, b, dim=0) < 0.995
    assert 1.5 * 1.1 < a.norm() <= 1.5 * math.sqrt(size) + 1e-9


@pytest.mark.parametrize("size", [2, 3, 4])
def test_a_parameter_counted_on_every_rank_and_padding_are_found(results, size):
    per_rank, _ = results[size]
    norm = reference(2.0, [replicated_bias()])[0]
    assert abs(per_rank[0]["bias on every rank"][0] - norm) > 1
    assert sum(parameter.numel() for parameter in whole().values()) % size  # so there is padding
    assert abs(per_rank[0]["padding"][0] - reference(1.5)[0]) > 0.5


@pytest.mark.parametrize("size", [1, 2, 3, 4])
def test_one_number_is_sent(results, size):
    _, record = results[size]
    group = ",".join(map(str, range(size)))
    for rank in range(size):
        calls = [call.nbytes for call in record.select(rank=rank, op="all_reduce") if call.group == group]
        # float64, then of no pieces and of 16-bit ones: their squares are added in float32
        assert calls == [8] * 10 + [4, 4]


@pytest.mark.parametrize("size", [1, 2, 3, 4])
def test_a_value_that_is_not_finite_is_the_business_of_all_ranks(results, size):
    for found in results[size][0]:
        assert found["infinite"][0].isinf()
        assert "the norm of the gradients of all ranks is" in found["error"][0]


def test_16_bit_gradients_are_added_up_in_float32(results):
    exact = torch.cat([p.grad.flatten().float() for p in whole(dtype=torch.bfloat16).values() if p.grad is not None])
    for size in (1, 2, 3, 4):
        for found in results[size][0]:
            norm = found["in float32"][0]
            assert norm.dtype == torch.float32 and norm.item() == pytest.approx(exact.norm().item(), rel=1e-6)


def test_a_limit_must_be_positive():
    for wrong in (0.0, -1.0, math.nan):
        with pytest.raises(ValueError, match="max_norm must be positive"):
            clip_grad_norm_([], wrong)


# In training, in each stage: the single-process run with torch's clipping, and `fully_shard` with it.

SHORT = 0.05  # gradients are longer in every step


def steps(name, model, optimizer, clip, group=None):
    rank, size = (0, 1) if group == "one process" else (dist.get_rank(group), dist.get_world_size(group))
    norms = []
    for inputs, targets in batches_of(name):
        optimizer.zero_grad()
        loss_of(name)(model(inputs[rank::size]), targets[rank::size]).backward()
        norms.append(float(clip()))
        optimizer.step()
    return norms


def model_of(name):
    torch.manual_seed(0)
    return MODELS[name]()


def stage_1(name, clip):
    model = model_of(name)
    optimizer = ZeroRedundancyOptimizer(model.parameters(), torch.optim.SGD, gradients="local", lr=0.5)

    def clipped():
        optimizer.shard_gradients()
        return clip(optimizer.pieces, SHORT)

    return steps(name, model, optimizer, clipped), snapshot_parameters(model)


def stage_2(name, clip):
    model = model_of(name)
    trained = [p for p in model.parameters() if p.requires_grad]
    optimizer = ZeroRedundancyOptimizer(trained, torch.optim.SGD, gradients="local", cap=100, lr=0.5)
    norms = steps(name, ShardedGradients(model, optimizer), optimizer, lambda: clip(optimizer.pieces, SHORT))
    return norms, snapshot_parameters(model)


def stage_3(name, clip):
    model = FullyShardedDataParallel(model_of(name), units=UNITS[name])
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    norms = steps(name, model, optimizer, lambda: clip(model.parameters(), SHORT))
    with model.unsharded():
        return norms, snapshot_parameters(model.module)


def stage_3_on_the_host(name, clip):
    host = Host()
    model = FullyShardedDataParallel(model_of(name), units=UNITS[name], offload=host)
    optimizer = offloaded(torch.optim.SGD)(model.parameters(), host=host, lr=0.5)
    norms = steps(name, model, optimizer, lambda: clip(model.parameters(), SHORT))
    with model.unsharded():
        return norms, snapshot_parameters(model.module)


def torchs(name, clip):
    model = model_of(name)
    for module in model.modules():
        if isinstance(module, UNITS[name]) and module is not model:
            fully_shard(module)
    fully_shard(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)

    def clipped():
        return nn.utils.clip_grad_norm_(model.parameters(), SHORT).full_tensor()

    norms = steps(name, model, optimizer, clipped)
    return norms, {n: p.detach().full_tensor() for n, p in model.named_parameters()}


def hybrid(name, clip, offload=None):
    """Two shard groups of two ranks: the norm is that over the shard group."""
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("replicate", "shard"))
    groups = {f"{axis}_group": mesh.get_group(axis) for axis in ("replicate", "shard")}
    model = HybridShardedDataParallel(model_of(name), units=UNITS[name], offload=offload, **groups)
    make = offloaded(torch.optim.SGD) if offload else torch.optim.SGD
    optimizer = make(model.parameters(), lr=0.5, **({"host": offload} if offload else {}))
    group = groups["shard_group"] if clip is clip_grad_norm_ else None
    norms = steps(name, model, optimizer, lambda: clip_grad_norm_(model.parameters(), SHORT, group=group))
    state = sharded_state_dict(pieces_of_stage3(model, group=groups["shard_group"]))
    return norms, model_state_dict(consolidate(from_all_ranks(state, groups["shard_group"])))


def hybrid_on_the_host(name, clip):
    return hybrid(name, clip, Host())


STAGES = {"1": stage_1, "2": stage_2, "3": stage_3, "3, host": stage_3_on_the_host, "torch": torchs}
HYBRID = {"hybrid": hybrid, "hybrid, host": hybrid_on_the_host}


def clipped_training(stages):
    """(how far norms are from the single-process run, and parameters), by model, stage and way of clipping."""
    found = {}
    for name in ("tied", "frozen"):
        model = model_of(name)
        optimizer = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=0.5)
        exact = steps(
            name, model, optimizer, lambda m=model: nn.utils.clip_grad_norm_(m.parameters(), SHORT), "one process"
        )
        assert min(exact) > SHORT
        for stage, train in stages.items():
            for clip in (clip_grad_norm_, clip_by_local_norm_):
                if clip is clip_grad_norm_ or (name == "tied" and stage != "torch"):
                    norms, parameters = train(name, clip)
                    apart = max(abs(a - b) for a, b in zip(norms, exact, strict=True))
                    found[name, stage, clip.__name__] = apart, distance_of(parameters, model)
    return found


def distance_of(parameters, model):
    return max_difference(parameters, snapshot_parameters(model)).value


@pytest.mark.parametrize(("world_size", "stages"), [(3, STAGES), (4, HYBRID)])
def test_clipped_training_in_each_stage_and_with_a_wrong_norm(world_size, stages):
    """The wrong one: the rank's own; under hybrid sharding, that over all ranks."""
    for found in run_ranks(clipped_training, world_size, stages, device="cpu", timeout=110):
        assert len(found) == 3 * len(stages) - ("torch" in stages)
        for (_, stage, clip), (norms, parameters) in found.items():
            if clip == "clip_grad_norm_":
                assert max(norms, parameters) < 1e-10, (stage, norms, parameters)
            else:  # sabotage
                assert min(norms, parameters) > 1e-3, (stage, norms, parameters)
