"""Stages 1 and 3 on real ranks: saved by some, loaded by others, trained on as one process does."""

import functools

import torch
import torch.distributed as dist

from dtlearn.models import snapshot_parameters
from dtlearn.runtime.run import run_ranks
from dtlearn.zero.offload.optimizer import offloaded
from dtlearn.zero.pieces_of_stages import pieces_of_stage1, pieces_of_stage3
from dtlearn.zero.stages.zero1 import ZeroRedundancyOptimizer
from dtlearn.zero.stages.zero3 import FullyShardedDataParallel
from dtlearn.zero.state_dicts.reshard import reshard
from dtlearn.zero.state_dicts.sharded import ShardedParameters, load_sharded_state_dict, sharded_state_dict
from dtlearn.zero.state_dicts.whole import consolidate, model_state_dict
from tests.data_parallel.runs import MODELS, distance, loss_of
from tests.zero.stages.sharded_training import TOLERANCE, UNITS, batches_of, from_all_ranks

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
        with self.model.unsharded():
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


@functools.cache
def in_one_process(name, steps):
    """The whole parameters after a run, which each rank makes once."""
    return train(Plain(name, None, 0), name, batches_of(name, steps)).whole()


def saved_by(stage):
    """The states of all ranks of its group, on each of them."""
    own = sharded_state_dict(stage.sharded, stage.inner)
    return [own] if isinstance(stage, Plain) else from_all_ranks(own, stage.group)


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
        exact = in_one_process(name, 2 * STEPS)
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


def of_what_is_trained():
    """An optimizer that was not given what is frozen: a matrix that is not in row order, and whole numbers."""
    model = MODELS["frozen"]()
    model.layers[2].weight.data = model.layers[2].weight.data.T.contiguous().T
    model.register_parameter("scale", torch.nn.Parameter(torch.randint(9, (5,)), requires_grad=False))
    optimizer = ZeroRedundancyOptimizer([p for p in model.parameters() if p.requires_grad], torch.optim.SGD, lr=0.1)
    return model, optimizer, pieces_of_stage1(model, optimizer)


def frozen_parameters():
    """What is frozen is saved and loaded, too, whether the optimizer was given it or not."""
    batches, found = batches_of("frozen", STEPS), {}
    states = {"1": saved_by(train(Stage1("frozen", None, 0), "frozen", batches))}
    states["3"] = saved_by(train(third := Stage3("frozen", None, 0), "frozen", batches))
    exact = in_one_process("frozen", STEPS)
    for before, after in (("1", "3"), ("3", "1"), ("1", "1"), ("1", "1, offloaded")):
        other = MAKE[after]("frozen", None, 1)
        load_sharded_state_dict(reshard(states[before], other.sharded), other.sharded, other.inner)
        found[before, after] = distance([other.whole()], [exact])
        found["whole", before, after] = distance([model_state_dict(consolidate(saved_by(other)))], [exact])
    torch.manual_seed(0)
    model, optimizer, (sharded, inner) = of_what_is_trained()
    values, own = snapshot_parameters(model), sharded_state_dict(sharded, inner)
    loaded, _, (sharded, inner) = of_what_is_trained()
    load_sharded_state_dict(own, sharded, inner)
    found["not in the optimizer"] = float(any(not torch.equal(p, values[n]) for n, p in loaded.named_parameters()))
    found["scale"] = len(own["values"]["scale"])
    try:
        pieces_of_stage1(MODELS["frozen"](), optimizer)
    except ValueError as error:
        found["other model"] = str(error)
    try:
        load_sharded_state_dict(states["1"][dist.get_rank()], third.sharded, third.inner)
    except ValueError as error:
        found["other stage"] = str(error)
    return found


def test_frozen_parameters_and_what_does_not_fit():
    result = run_ranks(frozen_parameters, 2, device="cpu").values
    assert [found.pop("scale") for found in result] == [3, 2], "each of 5 elements is saved once"
    for found in result:
        assert "a parameter that this model does not have" in found.pop("other model")
        assert "saved by stage 1 on 2 ranks; this is stage 3 on 2" in found.pop("other stage")
        assert len(found) == 9 and max(found.values()) < TOLERANCE, found
