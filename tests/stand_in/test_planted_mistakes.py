"""Mistakes that nothing finds on the CPU, planted in each package: the parity test on the stand-in fails with an error.

A tensor that is made on the CPU, `.numpy()` of a tensor on the device, a generator of the CPU for it.
"""

import importlib

import pytest

from dtlearn.hybrid_parallel import MeshLayout
from dtlearn.runtime.errors import RankError
from tests.devices import run_ranks
from tests.stand_in.plant import plant

# Package, text of one of its modules and what takes its place, the parity test's function and its arguments, and what
# the error says.
TWO_DEVICES, NOT_SENT = (
    "expected all tensors to be on the same device",
    "no backend type associated with device type cpu",
)
MISTAKES = {
    "models": (
        "dtlearn.models.gpt",
        "torch.arange(length, device=tokens.device)",
        "torch.arange(length)",
        ("tests.data_parallel.test_ddp:every_model", ["gpt"]),
        TWO_DEVICES,
    ),
    "collectives": (
        "dtlearn.collectives.primitives",
        "torch.empty(size * tensor.numel(), dtype=tensor.dtype, device=tensor.device)",
        "torch.empty(size * tensor.numel(), dtype=tensor.dtype)",
        ("tests.collectives.test_primitives:parity", None, [5]),
        NOT_SENT,
    ),
    "sharing": (
        "dtlearn.sharing.wrapping.replicas",
        "zlib.crc32(repr(described).encode())], device=device)",
        "zlib.crc32(repr(described).encode())])",
        ("tests.sharing.wrapping.test_replicas:made_one",),
        NOT_SENT,
    ),
    "data_parallel": (
        "dtlearn.data_parallel.bucketed",
        "members[0].new_zeros(sum(sizes))",
        "torch.zeros(sum(sizes), dtype=members[0].dtype)",
        ("tests.data_parallel.test_bucketed:dropped",),
        TWO_DEVICES,
    ),
    "zero": (
        "dtlearn.zero.stages.sharded_bucket",
        "torch.empty(self.bucket.numel, dtype=dtype, device=device)",
        "torch.empty(self.bucket.numel, dtype=dtype)",
        ("tests.zero.stages.test_zero3:parity", [("mlp", "sgd", "freed, prefetch 1")]),
        NOT_SENT,
    ),
    "pipeline_parallel": (
        "dtlearn.pipeline_parallel.runner.transfers",
        "torch.empty(shape, dtype=dtype, device=self._device)",
        "torch.empty(shape, dtype=dtype)",
        ("tests.pipeline_parallel.runner.test_runner:cases", [("gpt", "1f1b", 4, {})]),
        NOT_SENT,
    ),
    "tensor_parallel": (
        "dtlearn.tensor_parallel.gpt",
        "torch.arange(start, stop, device=tokens.device)",
        "torch.arange(start, stop)",
        ("tests.tensor_parallel.test_gpt:trained", "plain", "sgd", None),
        TWO_DEVICES,
    ),
    "context_parallel": (
        "dtlearn.context_parallel.gpt",
        "self.layout, device=tokens.device)",
        "self.layout)",
        ("tests.context_parallel.test_gpt:parity", [("ring", "zigzag", "sgd", False)]),
        TWO_DEVICES,
    ),
    "expert_parallel": (
        "dtlearn.expert_parallel.routing",
        "flat.new_zeros(num_experts)",
        "torch.zeros(num_experts, dtype=torch.int64)",
        ("tests.expert_parallel.runs:on_device",),
        TWO_DEVICES,
    ),
    "mixed_precision": (
        "dtlearn.mixed_precision.rounding",
        "torch.rand(x.shape, generator=generator,",
        "torch.rand(x.shape, generator=torch.Generator().manual_seed(0),",
        ("tests.mixed_precision.weights.test_stochastic_update:on_a_rank",),
        "expected a generator of 'standin', but found one of 'cpu'",
    ),
    "parameter_server": (
        "dtlearn.parameter_server.ranks.server",
        "self.shard.flat.new_empty(elements)",
        "torch.empty(elements, dtype=self.shard.flat.dtype)",
        ("tests.parameter_server.runs:train", 1, 2, "adam"),
        "assign a gradient with device type 'cpu'",
    ),
    "gradient_compression": (
        "dtlearn.gradient_compression.residuals",
        "torch.zeros(sum(sizes), dtype=dtype, device=gradient.device)",
        "torch.zeros(sum(sizes), dtype=dtype)",
        ("tests.gradient_compression.test_page_error_feedback:on_device",),
        TWO_DEVICES,
    ),
    "memory": (
        "dtlearn.memory.page_checkpoint",
        "            output = ctx.function(*inputs)\n",
        "            output = ctx.function(*inputs)\n            output.detach().numpy()\n",
        ("tests.memory.test_page_checkpoint:gpt_on_rank",),
        "numpy",
    ),
    "communication_scheduling": (
        "dtlearn.communication_scheduling.layers",
        "own[0].detach().new_zeros(sum(p.numel() for p in own))",
        "torch.zeros(sum(p.numel() for p in own), dtype=own[0].dtype)",
        ("tests.communication_scheduling.test_wrapper:parity", [("mlp", "sgd", "priority")], 1),
        "a gradient with device type 'cpu' to a tensor with device type 'standin'",
    ),
    "hybrid_parallel": (
        "dtlearn.hybrid_parallel.recipe",
        "torch.zeros((), dtype=torch.float64, device=device())",
        "torch.zeros((), dtype=torch.float64)",
        ("tests.hybrid_parallel.runs:on_mesh", MeshLayout(pp=2), [{}]),
        NOT_SENT,
    ),
    "production": (
        "dtlearn.production.serving.pipelined",
        "torch.empty(texts, dtype=torch.int64, device=self._like.device)",
        "torch.empty(texts, dtype=torch.int64)",
        ("tests.production.serving.test_pipelined:on_stages", (0, 3, 5), [2]),
        NOT_SENT,
    ),
    "train": (
        "dtlearn.train.step",
        "total = torch.zeros((), device=here.device)",
        "total = torch.zeros(())",
        ("dtlearn.train:train", "options"),
        TWO_DEVICES,
    ),
}


def with_mistake(module, old, new, function, *args):
    plant(module, old, new)
    return run_parity(function, *args)


def run_parity(function, *args):
    module, _, name = function.partition(":")
    if args == ("options",):
        from dtlearn.train import Options

        args = (Options(max_steps=2),)
    return getattr(importlib.import_module(module), name)(*args)


@pytest.mark.slow
@pytest.mark.parametrize("package", MISTAKES)
def test_the_parity_on_the_stand_in_finds_it(package):
    module, old, new, parity, message = MISTAKES[package]
    with pytest.raises(RankError) as error:
        run_ranks(with_mistake, 2, module, old, new, *parity, device="stand_in")
    assert message in str(error.value), str(error.value)[:2000]


@pytest.mark.every_device
@pytest.mark.parametrize("package", MISTAKES)
def test_on_the_cpu_nothing_does(package):
    module, old, new, parity, _ = MISTAKES[package]
    run_ranks(with_mistake, 2, module, old, new, *parity, device="cpu")
