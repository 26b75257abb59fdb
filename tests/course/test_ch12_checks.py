"""What the checks of chapter 12 know, held against the models and the package, which compute it another way."""

from itertools import product

import pytest
import torch

from dtlearn.checks.ch12_tensor_parallel import fused_qkv
from dtlearn.checks.ch12_tensor_parallel.ways.heads import Way, play, weights_of
from dtlearn.checks.ch12_tensor_parallel.ways.traffic import FLAGS, SAYS, count
from dtlearn.grading import Case
from dtlearn.models import GPTConfig
from dtlearn.models.gpt import Attention
from dtlearn.tensor_parallel.arithmetic import traffic
from dtlearn.tensor_parallel.arithmetic.sizes import BlockSizes


def block_jobs():
    for t, *flags in product((1, 2, 4), *[(False, True)] * 3):
        job = {"b": 3, "s": 4 * t, "h": 8 * t, "t": t, "itemsize": 2, "m": 5} | dict(zip(FLAGS, flags, strict=True))
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
        made = count(job)
        assert list(sent.values()) == [made["forward"], made["recomputed"], made["backward"]], job
        at_end = traffic.norm_traffic(job["h"], t, 1)  # with the 2 h of the final norm
        assert made["gradients"] == at_end.sent * 6 / 8 * times * job["sequence_parallel"]
        assert made["calls"] == (len(calls) + job["sequence_parallel"] if t > 1 else 0)


def test_each_mistake_of_a_count_shows():
    for mistake in SAYS:
        assert any(count(job, frozenset([mistake])) != count(job) for job in block_jobs()), mistake


@pytest.mark.parametrize("num_ranks", [1, 2, 4])
def test_attention_by_heads_is_that_of_the_models(num_ranks):
    torch.manual_seed(0)
    model = Attention(GPTConfig(num_heads=4, hidden_size=12)).double()
    for name in ("query", "key", "value", "output"):
        torch.nn.init.zeros_(getattr(model, name).bias)
    weights = [getattr(model, name).weight.detach() for name in ("query", "key", "value")]
    xs, dys = ([torch.randn(2, 5, 12).double()] for _ in range(2))
    job = {"num_heads": 4, "num_kv_heads": 4, "head_size": 3, "group": [*range(num_ranks)], "xs": xs, "dys": dys}
    job |= {"qkv": torch.cat(weights), "output": model.output.weight.detach()}
    x = xs[0].clone().requires_grad_()
    y = model(x)
    y.backward(dys[0])
    gradients = torch.cat([getattr(model, name).weight.grad for name in ("query", "key", "value")])
    for rank, made in play(job, Way()).items():
        torch.testing.assert_close(made["outputs"][0], y.detach())
        torch.testing.assert_close(made["dx"][0], x.grad)
        wanted = weights_of(job | {"qkv": gradients, "output": model.output.weight.grad}, rank, Way())
        torch.testing.assert_close((made["gradients"]["qkv"], made["gradients"]["output"]), wanted)


@pytest.mark.parametrize("size", [2, 4])
def test_each_mistake_with_heads_shows(size):
    jobs = [job for job in fused_qkv.inputs(Case("a case", size, 1))[-1]["jobs"] if job["fits"]]
    for _, text, way in fused_qkv.CUTS:
        pairs = [(weights_of(job, size - 1, way), weights_of(job, size - 1, Way())) for job in jobs]
        is_same = all(a.shape == b.shape and torch.equal(a, b) for one in pairs for a, b in zip(*one, strict=True))
        assert is_same == (way.cut == "job" and size == 2), text  # with two ranks, pairs are the whole job
    right = [play(job, Way())[size - 1] for job in jobs]
    for _, text, way in fused_qkv.RUNS:
        made = [play(job, way)[size - 1] for job in jobs]
        assert any(
            not torch.allclose(a, b, atol=1e-3)
            for key in ("outputs", "dx")
            for one, other in zip(made, right, strict=True)
            for a, b in zip(one[key], other[key], strict=True)
        ), text
