"""Which dims are divided, in a model of divided and of other layers; and its notation."""

import copy
import importlib
import inspect
import pickle
import pkgutil
from functools import partial

import pytest
import torch
import torch.distributed as dist
from torch import nn

from dtlearn import tensor_parallel
from dtlearn.models import GPTConfig
from dtlearn.models.gpt import FeedForward
from dtlearn.runtime.run import run_ranks
from dtlearn.tensor_parallel.attention.attention import ParallelAttention
from dtlearn.tensor_parallel.gpt import ParallelBlock, ParallelEmbedding, ParallelGPT, ParallelHead
from dtlearn.tensor_parallel.layers import naive
from dtlearn.tensor_parallel.layers.feed_forward import ParallelFeedForward
from dtlearn.tensor_parallel.layers.linear import ColumnParallelLinear, RowParallelLinear
from dtlearn.tensor_parallel.layers.parameters import ParallelModule, full_params, in_notation, load_full, split_dims
from dtlearn.tensor_parallel.layers.swiglu import FusedColumnParallelLinear, ParallelSwiGLU
from dtlearn.tensor_parallel.vocabulary.embedding import VocabularyParallelEmbedding
from tests.data_parallel.runs import message_of


def test_notation():
    assert in_notation("weight", ("out", "in"), 0) == "weight[out_t, in]"
    assert in_notation("bias", ("out",), None) == "bias[out]"


def model():
    up, down = ColumnParallelLinear(4, 6), RowParallelLinear(6, 4)
    again = ColumnParallelLinear(4, 6, bias=False)
    again.weight = up.weight  # tied
    return nn.Sequential(nn.LayerNorm(4), up, down, again)


def of_a_model():
    parallel = copy.deepcopy(model())  # what a layer says of itself is in its class: a copy has it too
    return split_dims(parallel), {name: tensor.shape for name, tensor in full_params(parallel).items()}


def test_dims_and_whole_parameters_by_name():
    dims, shapes = run_ranks(of_a_model, 2, device="cpu")[1]
    assert dims["0.weight"] is None and dims["2.bias"] is None
    assert dims["1.weight"] == dims["1.bias"] == dims["3.weight"] == 0 and dims["2.weight"] == 1
    assert shapes == {"0.weight": (4,), "0.bias": (4,)} | {
        "1.weight": (6, 4),
        "1.bias": (6,),
        "2.weight": (4, 6),
        "2.bias": (4,),
    }, "a tied one once"
    assert split_dims(nn.Linear(2, 2)) == {"weight": None, "bias": None}
    assert isinstance(shapes["1.weight"], torch.Size)


CONFIG = GPTConfig(vocab_size=13, context_length=8, num_layers=1, num_heads=2, hidden_size=8)  # 13 tokens: padding


def gpt(group):
    return ParallelGPT(CONFIG, group=group)


# Each parallel layer, drawn on the ranks of a group.
LAYERS = {
    ColumnParallelLinear: lambda group: ColumnParallelLinear(4, 8, group=group),
    RowParallelLinear: lambda group: RowParallelLinear(8, 4, group=group),
    ParallelFeedForward: lambda group: ParallelFeedForward(4, group=group),
    FusedColumnParallelLinear: lambda group: FusedColumnParallelLinear(4, 8, group=group),
    ParallelSwiGLU: lambda group: ParallelSwiGLU(4, 8, group=group),
    ParallelAttention: lambda group: ParallelAttention(8, 4, num_kv_heads=1, group=group),  # with copies
    VocabularyParallelEmbedding: lambda group: VocabularyParallelEmbedding(13, 4, group=group),
    ParallelEmbedding: lambda group: gpt(group).embedding,
    ParallelBlock: lambda group: gpt(group).blocks[0],
    ParallelHead: lambda group: gpt(group).head,
    ParallelGPT: gpt,
    naive.WeightGatheredLinear: lambda group: naive.WeightGatheredLinear(4, 8, group=group),
    naive.OutputGatheredFeedForward: lambda group: naive.OutputGatheredFeedForward.from_feed_forward(
        FeedForward(CONFIG), group=group
    ),
    naive.WeightGatheredFeedForward: lambda group: naive.WeightGatheredFeedForward.from_feed_forward(
        FeedForward(CONFIG), group=group
    ),
}


def layer_classes():
    """All public classes of the package that are modules of torch's."""
    names = [module.name for module in pkgutil.walk_packages(tensor_parallel.__path__, "dtlearn.tensor_parallel.")]
    for name in names:
        for class_name, kind in inspect.getmembers(importlib.import_module(name), inspect.isclass):
            if kind.__module__ == name and issubclass(kind, nn.Module) and not class_name.startswith("_"):
                yield kind


def test_every_layer_has_one_interface():
    whole = {"SwiGLU", "ParallelModule"}  # an undivided network; the interface
    parallel = {k for k in layer_classes() if k.__name__ not in whole and ".page_" not in k.__module__}
    assert parallel == set(LAYERS)
    for kind in parallel:
        for name in ("load_full", "full_params"):
            own, theirs = (inspect.signature(getattr(owner, name)) for owner in (kind, ParallelModule))
            assert own == theirs, (kind, name)


def there_and_back():
    """Each layer loaded into one that was drawn otherwise, copied and pickled; and the errors of what does not fit."""
    group = dist.new_group([0, 1])  # an explicit one
    results = {}
    for kind, make in LAYERS.items():
        torch.manual_seed(0)
        layer = make(group)
        torch.manual_seed(1)
        other = make(group)
        whole = layer.full_params()
        before = other.full_params()
        parameters = dict(other.named_parameters())
        other.load_full(whole)
        after = other.full_params()
        assert all(parameter is parameters[name] for name, parameter in other.named_parameters()), "an optimizer has it"
        copied = copy.deepcopy(layer)
        shared = [part.group is group for part in copied.modules() if isinstance(part, ParallelModule)]
        own = {id(p) for p in copied.parameters()} & {id(p) for p in layer.parameters()}
        ties = [len(list(m.parameters())) for m in (copied, layer)]
        changed = {name: full[..., :1] for name, full in whole.items()}
        results[kind.__name__] = {
            "differed": any(not torch.equal(full, before[name]) for name, full in whole.items() if full.ndim > 1),
            "loaded": after.keys() == whole.keys() and all(torch.equal(after[name], whole[name]) for name in whole),
            "named": whole.keys() == dict(layer.named_parameters()).keys(),
            "copied": all(shared) and not own and ties[0] == ties[1],
            "pickle": message_of(lambda layer=layer: pickle.dumps(layer)),
            "nothing": message_of(lambda layer=layer: layer.load_full({})),
            "too much": message_of(lambda layer=layer, whole=whole: layer.load_full({**whole, "x": torch.ones(1)})),
            "shapes": message_of(lambda layer=layer, changed=changed: layer.load_full(changed)),
        }
    everyones = ColumnParallelLinear(4, 8)
    assert torch.equal(pickle.loads(pickle.dumps(everyones)).weight, everyones.weight)
    return results


@pytest.fixture(scope="module")
def interface():
    return run_ranks(there_and_back, 2, device="cpu")


@pytest.mark.parametrize("name", [kind.__name__ for kind in LAYERS])
def test_whole_parameters_there_and_back(interface, name):
    for results in interface:
        facts = results[name]
        assert facts["differed"] and facts["loaded"] and facts["named"] and facts["copied"], facts
        assert f"{name} has a process group" in facts["pickle"] and "Save state_dict()" in facts["pickle"]
        assert f"the whole {name} has" in facts["nothing"] and "missing: ['" in facts["nothing"]
        assert "unknown: ['x']" in facts["too much"] and "missing: []" in facts["too much"]
        assert facts["shapes"].startswith("ValueError: ") and "; got (" in facts["shapes"]


def frozen_and_tied():
    feed_forward = FeedForward(CONFIG)
    feed_forward.up.requires_grad_(False)
    trainable = {n: p.requires_grad for n, p in ParallelFeedForward.from_feed_forward(feed_forward).named_parameters()}
    swiglu = tensor_parallel.SwiGLU(4, 8)
    swiglu.gate.requires_grad_(False)
    one = message_of(lambda: ParallelSwiGLU.from_swiglu(swiglu))
    swiglu.up.requires_grad_(False)
    both = ParallelSwiGLU.from_swiglu(swiglu).gate_up.weight.requires_grad
    attention = ParallelAttention(8, 4, num_kv_heads=1, device="meta")
    whole = nn.ParameterDict(
        {name.replace(".", "_"): full for name, full in ParallelAttention(8, 4, num_kv_heads=1).full_params().items()}
    ).requires_grad_(False)
    attention.load_full({name: whole[name.replace(".", "_")] for name, _ in attention.named_parameters()})
    untied = ParallelGPT(CONFIG).full_params()
    tied = ParallelGPT(GPTConfig(13, 8, 1, 2, 8, tie_embeddings=True))
    two = message_of(lambda: tied.load_full(untied))
    model = nn.Sequential(nn.LayerNorm(4), ColumnParallelLinear(4, 8))
    load_full(model, {name: torch.ones_like(full) for name, full in full_params(model).items()})
    ones = all((parameter == 1).all() for parameter in model.parameters())
    return trainable, one, both, [p.requires_grad for p in attention.parameters()], two, ones


def test_what_is_frozen_stays_so_and_what_is_tied_is_one():
    for trainable, one, both, of_attention, two, ones in run_ranks(frozen_and_tied, 2, device="cpu"):
        assert trainable == {"up.weight": False, "up.bias": False, "down.weight": True, "down.bias": True}
        assert "freeze both, or none" in one and both is False and not any(of_attention)
        assert "are one weight here, and differ in the whole model" in two and ones


def parametrized():
    layers = {
        "column": (ColumnParallelLinear(4, 4), torch.ones(2, 4)),
        "overlap": (ColumnParallelLinear(4, 4, overlap=True), torch.ones(2, 4)),
        "row": (RowParallelLinear(4, 4), torch.ones(2, 2)),
        "fused": (FusedColumnParallelLinear(4, 4), torch.ones(2, 4)),
        "embedding": (VocabularyParallelEmbedding(4, 4), torch.zeros(2, dtype=torch.int64)),
        "attention": (ParallelAttention(4, 2, overlap=True), torch.ones(1, 2, 4)),
    }
    results = {}
    for name, (layer, x) in layers.items():
        layer(x)
        torch.nn.utils.parametrizations.weight_norm(layer.key if name == "attention" else layer)
        actions = partial(layer, x), layer.full_params, partial(split_dims, layer)
        results[name] = [message_of(action) for action in actions]
    return results


def test_a_weight_that_each_rank_computes_from_its_part_is_refused():
    """Weight norm over a part of a row is another function, and the whole parameters would be parts of them."""
    for results in run_ranks(parametrized, 2, device="cpu"):
        for name, messages in results.items():
            for message in messages:
                assert "is computed from other parameters" in message, (name, message)
