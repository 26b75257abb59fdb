"""What the checks of chapter 12 know, held against the models and the package, which compute it another way."""

from itertools import product

import pytest
import torch

from dtlearn.checks.ch12_tensor_parallel import block_bytes, fused_qkv
from dtlearn.grading import Case
from dtlearn.models import GPTConfig
from dtlearn.models.gpt import Attention
from dtlearn.tensor_parallel.arithmetic import traffic
from dtlearn.tensor_parallel.arithmetic.sizes import BlockSizes


def block_jobs():
    for t, *flags in product((1, 2, 4), *[(False, True)] * 3):
        job = {"b": 3, "s": 4 * t, "h": 8 * t, "t": t, "itemsize": 2, "m": 5}
        job |= dict(zip(block_bytes.WAYS, flags, strict=True))
        if job["sequence_parallel"] or not job["gather_again"]:
            yield job


def test_a_block_sends_what_the_package_says():
    for job in block_jobs():
        sizes, t, times = BlockSizes(job["b"], job["s"], job["h"], job["t"]), job["t"], job["itemsize"]
        options = {"sequence_parallel": job["sequence_parallel"], "gather_again": job["gather_again"]}
        calls = traffic.block_traffic(sizes, t, recompute="full" if job["recompute"] else "none", **options) * job["m"]
        sent = {phase: 0.0 for phase in ("forward", "recomputation", "backward")}
        for call in calls:
            sent[call.phase] += call.sent * times
        made = block_bytes.counts(**job)
        assert list(sent.values()) == [made["forward"], made["recomputed"], made["backward"]], job
        at_end = traffic.norm_traffic(job["h"], t, 1)  # with the 2 h of the final norm
        assert made["gradients"] == at_end.sent * 6 / 8 * times * job["sequence_parallel"]
        assert made["calls"] == (len(calls) + job["sequence_parallel"] if t > 1 else 0)


@pytest.mark.parametrize("num_ranks", [2, 4])
def test_attention_by_heads_is_that_of_the_models(num_ranks):
    case = Case("as many key heads as query heads", num_ranks, 1)
    given = fused_qkv.inputs(case)
    own = given[0]
    model = Attention(GPTConfig(num_heads=own["num_heads"], hidden_size=len(own["output"]))).double()
    names = ("query", "key", "value", "output")
    for name, weight in zip(names, (*own["qkv"].chunk(3), own["output"]), strict=True):
        getattr(model, name).weight.data.copy_(weight)
        torch.nn.init.zeros_(getattr(model, name).bias)
    x = own["xs"][0].clone().requires_grad_()
    y = model(x)
    y.backward(own["dys"][0])
    for place, made in enumerate(fused_qkv.expected(case, given)):
        torch.testing.assert_close(made["outputs"][0], y)
        torch.testing.assert_close(made["gradient of x"][0], x.grad)
        rows = [getattr(model, name).weight.grad.chunk(num_ranks)[place] for name in names[:3]]
        torch.testing.assert_close(made["gradients"]["qkv"], torch.cat(rows))
        columns = model.output.weight.grad.chunk(num_ranks, 1)[place]
        torch.testing.assert_close(made["gradients"]["output"], columns)
