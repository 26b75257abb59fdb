"""Attention by heads beside the whole layer: outputs, gradients, calls; multi-head, grouped-query and multi-query."""

from collections import Counter

import pytest
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn

import dtlearn
from dtlearn.models import GPTConfig
from dtlearn.models.gpt import Attention
from dtlearn.tensor_parallel.attention import attention as module
from dtlearn.tensor_parallel.attention.attention import ParallelAttention
from dtlearn.tensor_parallel.attention.fused import QKV, fuse_qkv
from dtlearn.tensor_parallel.attention.heads import divide_heads
from dtlearn.tensor_parallel.random_states import tensor_parallel_manual_seed
from dtlearn.tensor_parallel.sequence_parallel import reduce_sequence_parallel_gradients
from tests.data_parallel.runs import message_of
from tests.devices import run_ranks
from tests.sharing.groups import in_groups

B, T, C, H = 2, 12, 24, 12
D = C // H
TOLERANCE = 1e-13  # of values below 1
OPTIONS = {
    "plain": {},
    "sequence": {"sequence_parallel": True},
    "gathered again": {"sequence_parallel": True, "gather_again": True},
    "overlap": {"overlap": True},
    "no bias": {"bias": False},
}


class Whole(nn.Module):
    """Grouped-query attention on one process, key-value heads repeated."""

    def __init__(self, num_kv_heads=H, bias=True):
        super().__init__()
        self.query, self.output = nn.Linear(C, C, bias), nn.Linear(C, C, bias)
        self.key, self.value = (nn.Linear(C, num_kv_heads * D, bias) for _ in range(2))
        self.repeats = H // num_kv_heads

    def forward(self, x):
        q, k, v = (
            layer(x).unflatten(-1, (-1, D)).transpose(1, 2).repeat_interleave(repeats, 1)
            for layer, repeats in ((self.query, 1), (self.key, self.repeats), (self.value, self.repeats))
        )
        return self.output(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2))


def whole_attention(num_kv_heads=H, bias=True):
    """The layer, its input and the gradient of its output."""
    torch.manual_seed(num_kv_heads)
    whole, tensors = Whole(num_kv_heads, bias).double(), torch.randn(2, B, T, C, dtype=torch.float64)
    return whole.to(dtlearn.device()), *tensors.to(dtlearn.device())


def fits(num_kv_heads, size):
    return not (num_kv_heads % size and size % num_kv_heads)


def cases(size):
    """(H_kv, name of the options)."""
    grid = [(num_kv_heads, name) for num_kv_heads in (1, 2, 3, 4, 12) for name in OPTIONS]
    return [(num_kv_heads, name) for num_kv_heads, name in grid if fits(num_kv_heads, size)]


def expected_parts(gradients, layer):
    """This rank's part of whole gradients."""
    heads, parts = layer.heads, {}
    for name, gradient in gradients.items():
        if name == "output.weight":
            parts[name] = gradient.chunk(layer.num_ranks, 1)[layer.rank]
        elif name == "output.bias":
            parts[name] = gradient
        else:
            size = (heads.query if name.startswith("query") else heads.key_value) * D
            rank = layer.rank if name.startswith("query") else layer.rank // heads.copies
            parts[name] = gradient[rank * size : (rank + 1) * size]
    return parts


def beside_the_whole(layer, whole, x, gradient):
    """The largest difference of output, input's gradient and parameters' gradients."""
    expected_x = x.clone().requires_grad_()
    expected = whole(expected_x)
    expected.backward(gradient)
    parts = expected_parts({name: p.grad for name, p in whole.named_parameters()}, layer)
    expected_gradient = expected_x.grad
    if layer.sequence_parallel:
        x, gradient, expected, expected_gradient = (
            y.chunk(layer.num_ranks, 1)[layer.rank] for y in (x, gradient, expected, expected_gradient)
        )
    own_x = x.clone().requires_grad_()
    out = layer(own_x)
    out.backward(gradient)
    found = [out - expected, own_x.grad - expected_gradient]
    if layer.sequence_parallel:
        reduce_sequence_parallel_gradients(layer, group=layer.group)
    own = dict(layer.named_parameters())
    assert own.keys() == parts.keys()
    found += [own[name].grad - parts[name] for name in parts]
    return max(difference.abs().max().item() for difference in found)


def difference(num_kv_heads, name, group):
    whole, x, gradient = whole_attention(num_kv_heads, OPTIONS[name].get("bias", True))
    options = {"num_kv_heads": num_kv_heads, "group": group, "dtype": torch.float64, **OPTIONS[name]}
    layer = ParallelAttention(C, H, device="meta", **options)
    layer.load_full(dict(whole.named_parameters()))
    return beside_the_whole(layer, whole, x, gradient)


def parity():
    def case(group):
        return {key: difference(*key, group) for key in cases(dist.get_world_size(group))}

    return in_groups(case)


@pytest.fixture(scope="module")
def recorded():
    return run_ranks(parity, 4, device="cpu", record=True)


def test_outputs_and_gradients_on_another_device(other_device):
    def on_device():
        return {key: difference(*key, None) for key in cases(2)[::2]}

    for found in run_ranks(on_device, 2, device=other_device):
        assert len(found) > 5 and max(found.values()) < TOLERANCE


def test_outputs_and_gradients(recorded):
    for of_sizes in recorded:
        for size, found in of_sizes.items():
            assert len(found) >= 3 * len(OPTIONS)
            assert max(found.values()) < TOLERANCE, (size, found)


def test_one_all_reduce_forward_one_backward_and_one_for_copies(recorded):
    whole, of_biases = B * T * C * 8, 8 * C
    expected = Counter()
    for size in (2, 3, 4):
        for num_kv_heads, name in cases(size):
            group = ",".join(map(str, range(size)))
            if name in ("sequence", "gathered again"):
                expected[group, "all_gather_into_tensor", whole // size] += 2 + (name == "gathered again")
                expected[group, "reduce_scatter_tensor", whole] += 2
                expected[group, "all_reduce", of_biases] += 1  # the output's bias, once a step
            else:
                expected[group, "all_reduce", whole] += 2
            if divide_heads(H, num_kv_heads, size).copies > 1:
                expected[group, "all_reduce", 2 * num_kv_heads * D * (C + (name != "no bias")) * 8] += 1
    events = [e for e in recorded.record.select(rank=0) if e.group not in ("world", "0")]
    assert Counter((e.group, e.op, e.nbytes) for e in events) == expected


def without(name, replacement, *args):
    """Sabotage: the difference with one name of the module replaced."""
    before = getattr(module, name)
    setattr(module, name, replacement)
    try:
        return difference(*args)
    finally:
        setattr(module, name, before)


def in_thirds(group):
    """A part of the fused weight, a third of it for q, k and v each."""
    whole, x, _ = whole_attention()
    layer = ParallelAttention.from_fused(fused(whole), whole.output, H, group=group)
    rank, size = dist.get_rank(group), dist.get_world_size(group)
    weight = fuse_qkv(QKV(whole.query.weight, whole.key.weight, whole.value.weight), H)
    with torch.no_grad():
        for own, third in zip((layer.query, layer.key, layer.value), weight.chunk(size)[rank].chunk(3), strict=True):
            own.weight.copy_(third)
    return (layer(x) - whole(x)).abs().max().item()


def fused(whole, layout="blocks"):
    """One layer for q, k and v."""
    layers, num_kv_heads = (whole.query, whole.key, whole.value), H // whole.repeats
    qkv = nn.Linear(C, sum(layer.out_features for layer in layers), device="meta")
    for name in ("weight", "bias"):
        parts = QKV(*(getattr(layer, name).detach() for layer in layers))
        setattr(qkv, name, nn.Parameter(fuse_qkv(parts, H, num_kv_heads=num_kv_heads, layout=layout)))
    return qkv


def built(group):
    """Layers made in other ways: what they show, the whole parameters again, and dropout."""
    found, size, rank = {}, dist.get_world_size(group), dist.get_rank(group)
    torch.manual_seed(3)
    undivided = Attention(GPTConfig(num_heads=H, hidden_size=C)).double()
    x, gradient = torch.randn(2, B, T, C, dtype=torch.float64)
    layer = ParallelAttention.from_attention(undivided, group=group)
    found["from_attention"] = beside_the_whole(layer, undivided, x, gradient)
    for layout in ("blocks", "groups"):
        num_kv_heads = 1 if size == 3 else 2
        whole, x, gradient = whole_attention(num_kv_heads)
        options = {"num_kv_heads": num_kv_heads, "layout": layout, "group": group}
        layer = ParallelAttention.from_fused(fused(whole, layout), whole.output, H, **options)
        found["fused", layout] = beside_the_whole(layer, whole, x, gradient)
        again = layer.full_params()
        found["whole again", layout] = all(torch.equal(p, again[name]) for name, p in whole.named_parameters())
    found["shown"] = repr(layer)
    torch.manual_seed(50 + rank)
    drawn = ParallelAttention(C, H, num_kv_heads=num_kv_heads if size == 3 else 1, group=group)
    found["drawn"] = drawn.full_params()
    found["storage"] = max(p.untyped_storage().nbytes() // p.nbytes for p in drawn.parameters())
    tracker = tensor_parallel_manual_seed(11, group=group)
    with_dropout = ParallelAttention.from_attention(undivided, random_states=tracker, group=group)
    with_dropout.dropout.p = 0.5
    found["dropout"] = with_dropout(x).detach()
    found["in thirds"] = in_thirds(group)
    return found


def faults(group):
    size, found = dist.get_world_size(group), {}
    if size > 1:
        found["f without all-reduce"] = without(
            "copy_to_tensor_parallel_region", lambda x, group: x, 12, "plain", group
        )
        copy = module.copy_to_tensor_parallel_region
        only_of_inputs = lambda x, group: copy(x, group=group) if x.ndim == 3 else x  # noqa: E731
        found["copies not summed"] = without("copy_to_tensor_parallel_region", only_of_inputs, 1, "plain", group)
    return found


def errors(group):
    whole, *_ = whole_attention(2)
    make = ParallelAttention
    return [
        message_of(lambda: make(C, 7, group=group)),
        message_of(lambda: make(30, 30, num_kv_heads=5, group=group)),
        message_of(lambda: make(C, H, overlap=True, sequence_parallel=True, group=group)),
        message_of(lambda: make(C, H, gather_again=True, group=group)),
        message_of(lambda: make(C, H, device="meta", group=group).load_full(dict(whole.named_parameters()))),
        message_of(lambda: make(C, H, device="meta", group=group).load_full({})),
    ]


def others():
    return in_groups(lambda group: (built(group), faults(group), errors(group)))


@pytest.fixture(scope="module")
def ranks():
    return run_ranks(others, 4, device="cpu")


def test_from_attention_from_fused_and_back(ranks):
    for of_sizes in ranks:
        for found, _, _ in of_sizes.values():
            assert found["from_attention"] < TOLERANCE
            assert max(found["fused", "blocks"], found["fused", "groups"]) < TOLERANCE
            assert found["whole again", "blocks"] and found["whole again", "groups"]
    assert "ParallelAttention(" in (shown := ranks[1][4][0]["shown"])
    assert "3 of 12 query heads, 1 of 2 key-value heads, one of 2 copies, rank 1 of t = 4" in shown


def test_initial_weights_do_not_depend_on_the_ranks(ranks):
    first = ranks[0][1][0]["drawn"]
    assert {name: tuple(p.shape) for name, p in first.items()}["key.weight"] == (D, C)
    for of_sizes in ranks:
        for found, _, _ in of_sizes.values():
            assert all(torch.equal(first[name], p) for name, p in found["drawn"].items())
            assert found["storage"] == 1


def test_masks_of_a_ranks_heads_are_its_own_and_those_of_the_output_are_shared(ranks):
    """The output is a sum over ranks, so it is the same on all ranks only if the output's mask is."""
    for size in (2, 3, 4):
        outputs = [ranks[rank][size][0]["dropout"] for rank in range(size)]
        assert all(torch.equal(out, outputs[0]) for out in outputs)
        assert 0.3 < (outputs[0] == 0).double().mean() < 0.7


def test_each_fault_shows(ranks):
    for of_sizes in ranks:
        for size, (found, of_size, _) in of_sizes.items():
            if size > 1:
                assert min(found["in thirds"], *of_size.values()) > 1e-2, (size, of_size)
    assert "copies not summed" in ranks[0][4][1]


def test_bad_input(ranks):
    for of_sizes in ranks:
        for size, (_, _, messages) in of_sizes.items():
            heads, kv_heads, options, again, shape, missing = messages
            assert "it needs sequence_parallel" in again
            assert "num_heads (7) must divide hidden_size (24)" in heads
            if size in (2, 3, 4):
                assert {2: "5 key-value", 3: "5 key-value", 4: "30 heads cannot"}[size] in kv_heads
            assert "leave out sequence_parallel" in options
            assert "key.weight is (24, 24) in the whole layer, with 12 query and 12 key-value heads" in shape
            assert "the whole ParallelAttention has 8 parameters; missing: ['key.bias', 'key.weight'" in missing
