"""Stages 1 and 3 on real ranks: saved by some, loaded by others, trained on as one process does."""

import torch
import torch.distributed as dist

from dtlearn.models import snapshot_parameters
from dtlearn.runtime import run_ranks
from dtlearn.zero.offload.optimizer import offloaded
from dtlearn.zero.stages.zero1 import ZeroRedundancyOptimizer
from dtlearn.zero.stages.zero3 import FullyShardedDataParallel
from dtlearn.zero.state_dicts.of_stages import pieces_of_stage1, pieces_of_stage3
from dtlearn.zero.state_dicts.reshard import reshard
from dtlearn.zero.state_dicts.sharded import ShardedParameters, load_sharded_state_dict, sharded_state_dict
from dtlearn.zero.state_dicts.whole import consolidate, model_state_dict
from tests.data_parallel.runs import MODELS, distance, loss_of
from tests.zero.stages.sharded_training import TOLERANCE, UNITS, batches_of

STEPS = 3
OPTIONS = {"lr": 0.01, "weight_decay": 0.1}


class Stage1:
    def __init__(self, name, group, seed, optimizer_class=torch.optim.AdamW, **options):
        torch.manual_seed(seed)
        self.model, self.group = MODELS[name](), group
        parameters = self.model.parameters()
        self.optimizer = ZeroRedundancyOptimizer(
            parameters, optimizer_class, process_group=group, gradients="local", **OPTIONS, **options
        )
        self.sharded, self.inner = pieces_of_stage1(self.model, self.optimizer)

    def whole(self):
        return snapshot_parameters(self.model)


class Stage3:
    def __init__(self, name, group, seed):
        torch.manual_seed(seed)
        self.model = FullyShardedDataParallel(MODELS[name](), units=UNITS[name], group=group)
        self.group = group
        self.optimizer = self.inner = torch.optim.AdamW(self.model.parameters(), **OPTIONS)
        self.sharded = pieces_of_stage3(self.model, group=group)

    def whole(self):
        with self.model.full_params():
            return snapshot_parameters(self.model.module)


class Plain:
    def __init__(self, name, group, seed):
        torch.manual_seed(seed)
        self.model, self.group = MODELS[name](), None
        self.optimizer = self.inner = torch.optim.AdamW(self.model.parameters(), **OPTIONS)
        self.sharded = ShardedParameters.of_module(self.model)

    def whole(self):
        return snapshot_parameters(self.model)


def offloaded_stage1(name, group, seed):
    return Stage1(name, group, seed, offloaded(torch.optim.AdamW))


def whole_tensors(name, group, seed):
    return Stage1(name, group, seed, layout="whole tensors")


MAKE = {"1": Stage1, "3": Stage3, "plain": Plain, "1, offloaded": offloaded_stage1, "1, whole tensors": whole_tensors}


def train(stage, name, batches):
    single = isinstance(stage, Plain)
    rank, size = (0, 1) if single else (dist.get_rank(stage.group), dist.get_world_size(stage.group))
    for inputs, targets in batches:
        stage.optimizer.zero_grad()
        loss_of(name)(stage.model(inputs[rank::size]), targets[rank::size]).backward()
        stage.optimizer.step()
    return stage


def saved_by(stage):
    """The states of all ranks of its group, on each of them."""
    own = sharded_state_dict(stage.sharded, stage.inner)
    if isinstance(stage, Plain):
        return [own]
    states = [own] * dist.get_world_size(stage.group)
    dist.all_gather_object(states, own, group=stage.group)
    return states


PAIRS = [
    ("mlp", "1", "3"),
    ("mlp", "3", "1"),
    ("tied", "plain", "3"),
    ("tied", "3", "plain"),
    ("tied", "3", "1, whole tensors"),
    ("tied", "1, whole tensors", "1"),
    ("tied", "3", "1, offloaded"),
    ("tied", "1, offloaded", "3"),
]


def every_pair():
    """Save on all ranks, load on the first two, or on all; the distance to one process."""
    rank, half, found = dist.get_rank(), dist.new_group([0, 1]), {}
    for name, before, after in PAIRS:
        batches = batches_of(name, 2 * STEPS)
        exact = train(Plain(name, None, 0), name, batches).whole()
        states = saved_by(train(MAKE[before](name, None, 0), name, batches[:STEPS]))
        for group in (None, half):
            if group is None or rank < 2:
                stage = MAKE[after](name, group, 1)
                load_sharded_state_dict(reshard(states, stage.sharded), stage.sharded, stage.inner)
                assert stage.optimizer.param_groups is stage.inner.param_groups
                whole = train(stage, name, batches[STEPS:]).whole()
                found[name, before, after, group is half] = distance([whole], [exact])
                put_together = model_state_dict(consolidate(saved_by(stage)))
                assert put_together.keys() == exact.keys() and distance([put_together], [exact]) < TOLERANCE
    return found


def test_any_stage_at_any_number_of_ranks_goes_on_as_one_process():
    for rank, found in enumerate(run_ranks(every_pair, 3, device="cpu", timeout=110)):
        assert len(found) == len(PAIRS) * (2 if rank < 2 else 1)
        assert max(found.values()) < TOLERANCE, found


def frozen_parameters():
    """What is frozen has pieces in stage 3, and none in stage 1."""
    batches = batches_of("frozen", STEPS)
    first = train(Stage1("frozen", None, 0), "frozen", batches)
    third = train(Stage3("frozen", None, 0), "frozen", batches)
    states, from_three = saved_by(first), saved_by(third)
    other = Stage1("frozen", None, 1)
    load_sharded_state_dict(reshard(from_three, other.sharded), other.sharded, other.inner)
    trained = {n: p.detach() for n, p in other.model.named_parameters() if p.requires_grad}
    found = {"from 3 to 1": distance([trained], [{n: first.whole()[n] for n in trained}])}
    found["names"] = set(first.whole()) - set(model_state_dict(consolidate(states)))
    try:
        reshard(states, third.sharded)
    except ValueError as error:
        found["error"] = str(error)
    try:
        pieces_of_stage1(MODELS["frozen"](), first.optimizer)
    except ValueError as error:
        found["other model"] = str(error)
    try:
        load_sharded_state_dict(states[dist.get_rank()], third.sharded, third.inner)
    except ValueError as error:
        found["other stage"] = str(error)
    return found


def test_frozen_parameters_and_what_does_not_fit():
    for found in run_ranks(frozen_parameters, 2, device="cpu"):
        assert found["from 3 to 1"] < TOLERANCE
        assert found["names"] == {"layers.2.weight", "layers.2.bias"}
        assert "of layers.2." in found["error"] and "frozen in stage 1 or 2" in found["error"]
        assert "a parameter that this model does not have" in found["other model"]
        assert "saved by stage 1 on 2 ranks; this is stage 3 on 2" in found["other stage"]
