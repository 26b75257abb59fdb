"""The layer beside the whole one, by every method: outputs and gradients, alone and with heads divided over tp."""

import copy
import functools

import pytest
import torch
import torch.distributed as dist

import dtlearn
from dtlearn.context_parallel import (
    ContextParallelAttention,
    context_parallel_attention,
    own_tokens,
    reduce_context_parallel_gradients,
)
from dtlearn.models import GPTConfig
from dtlearn.models.gpt import Attention
from dtlearn.tensor_parallel import ParallelAttention, copy_to_tensor_parallel_region
from tests.data_parallel.runs import message_of
from tests.devices import run_ranks
from tests.sharing.groups import in_groups

B, T, C = 2, 16, 16
CONFIG = GPTConfig(num_heads=4, hidden_size=C, context_length=T)
CASES = [(method, layout) for method in ("ring", "all-gather", "ulysses") for layout in ("zigzag", "contiguous")]
TOLERANCE = 1e-13


def whole_layer():
    torch.manual_seed(4)
    x, gradient = torch.randn(2, B, T, C, dtype=torch.float64)
    return Attention(CONFIG).double().to(dtlearn.device()), x.to(dtlearn.device()), gradient.to(dtlearn.device())


def step(layer, x, gradient):
    inputs = x.clone().requires_grad_()
    out = layer(inputs)
    out.backward(gradient)
    return out.detach(), inputs.grad


def beside_the_whole(make, layout, group):
    """The largest difference; `make` is given the whole layer, and gradients of its result are summed over `group`."""
    whole, x, gradient = whole_layer()
    layer = make(copy.deepcopy(whole))
    expected = step(whole, x, gradient)
    part = functools.partial(own_tokens, layout=layout, group=group)
    found = [a - part(b) for a, b in zip(step(layer, part(x), part(gradient)), expected, strict=True)]
    reduce_context_parallel_gradients(layer, group=group)
    named = dict(whole.named_parameters())
    assert [name for name, _ in layer.named_parameters()] == list(named)
    for name, parameter in layer.named_parameters():
        gradient = named[name].grad
        if parameter.shape != gradient.shape:  # this rank's heads
            dim = 1 if name == "output.weight" else 0
            heads = parameter.shape[dim]
            index = dist.get_rank() // 2 if dist.get_world_size() == 4 else 0
            gradient = gradient.narrow(dim, index * heads, heads)
        found.append(parameter.grad - gradient)
    return max(x.abs().max().item() for x in found)


def parity():
    def case(group):
        return {
            (method, layout): beside_the_whole(
                functools.partial(ContextParallelAttention.from_attention, method=method, layout=layout, group=group),
                layout,
                group,
            )
            for method, layout in CASES
        }

    return in_groups(case, (1, 2, 4))


def with_split_heads(prepares=True):
    """tp = 2 outside, cp = 2 inside: ranks 0, 1 have the first heads, ranks 0 and 2 the first tokens."""
    cp = [dist.new_group(ranks) for ranks in ([0, 1], [2, 3])][dist.get_rank() // 2]
    tp = [dist.new_group(ranks) for ranks in ([0, 2], [1, 3])][dist.get_rank() % 2]

    def make(whole, method, layout):
        split = ParallelAttention.from_attention(whole, group=tp)
        layers = split.query, split.key, split.value, split.output
        prepare = functools.partial(copy_to_tensor_parallel_region, group=tp) if prepares else None
        options = {"head_size": split.head_size, "method": method, "layout": layout, "group": cp}
        return ContextParallelAttention(*layers, prepare=prepare, **options)

    return {
        case: beside_the_whole(functools.partial(make, method=case[0], layout=case[1]), case[1], cp) for case in CASES
    }


def test_it_is_the_whole_layer(device):
    for of_sizes in run_ranks(parity, 4, device=device):
        for size, found in of_sizes.items():
            assert len(found) == len(CASES) and max(found.values()) < TOLERANCE, (size, found)


def test_it_is_with_heads_divided_over_tp():
    for found in run_ranks(with_split_heads, 4, device="cpu"):
        assert len(found) == len(CASES) and max(found.values()) < TOLERANCE, found


def test_without_f_it_is_not():
    """Sabotage: each tp rank keeps its own term of the input's gradient."""
    assert min(min(found.values()) for found in run_ranks(with_split_heads, 4, False, device="cpu")) > 1e-2


def made():
    whole, x, _ = whole_layer()
    layer = ContextParallelAttention.from_attention(whole)
    copied = copy.deepcopy(layer)
    q = torch.ones(1, 2, 4, 4)
    return {
        "shared": layer.query is whole.query and copied.query is not whole.query,
        "copy": torch.equal(copied(x), layer(x)) and copied.group is layer.group,
        "repr": repr(layer).splitlines()[1].strip(),
        "method": message_of(lambda: ContextParallelAttention.from_attention(whole, method="striped")),
        "core": message_of(lambda: context_parallel_attention(q, q, q, method="striped")),
        "layout": message_of(lambda: ContextParallelAttention.from_attention(whole, layout="striped")),
        "dropout": message_of(lambda: ContextParallelAttention.from_attention(Attention(GPTConfig(dropout=0.1)))),
    }


def test_it_shares_the_layers_and_refuses_what_it_does_not_know():
    (found,) = run_ranks(made, 1, device="cpu")
    assert found["shared"] and found["copy"]
    assert found["repr"] == "method='ring', layout='zigzag', head_size=4"
    assert found["method"] == found["core"] == "ValueError: method is 'ring', 'all-gather', 'ulysses'; got 'striped'"
    assert found["layout"] == "ValueError: layout is 'contiguous' or 'zigzag'; got 'striped'"
    assert found["dropout"].startswith(
        "ValueError: dropout=0.1: a ring would have to draw the mask of each block again"
    )


@pytest.mark.parametrize("method", ["ring", "all-gather", "ulysses"])
def test_one_rank_sends_nothing(method):
    def alone():
        whole, x, gradient = whole_layer()
        step(ContextParallelAttention.from_attention(whole, method=method), x, gradient)

    assert not run_ranks(alone, 1, device="cpu", record=True).record.select()
