"""Our blocks, loss and GPT beside torch's: `parallelize_module`, `SequenceParallel`, `loss_parallel`; in float64."""

import copy
from dataclasses import replace

import pytest
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Replicate, Shard
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    RowwiseParallel,
    SequenceParallel,
    loss_parallel,
    parallelize_module,
)

from dtlearn.bench.chapters.on_ranks.tensor_parallel_blocks import COUNTERPARTS, OPTIONS, our_block, torch_block
from dtlearn.models import GPT, GPTConfig, max_difference, next_token_loss
from dtlearn.models.gpt import Block
from dtlearn.runtime.record.training_steps import part
from dtlearn.runtime.recording.phases import phase
from dtlearn.runtime.run import run_ranks
from dtlearn.tensor_parallel import reduce_sequence_parallel_gradients, vocabulary_parallel_cross_entropy
from dtlearn.tensor_parallel.gpt import ParallelGPT
from tests.sharing.groups import in_groups
from tests.tensor_parallel.parity import difference, tensors

CONFIG = GPTConfig(num_layers=1, num_heads=12, hidden_size=24, context_length=12)
B, T, C, V = 2, 12, 24, 36
KINDS = ("tensor parallel", "sequence parallel", "gathered again")


def local(tensor):
    """This rank's part of a DTensor; what is still a partial sum there is summed, as an optimizer would."""
    if not isinstance(tensor, DTensor):
        return tensor
    is_partial = any(placement.is_partial() for placement in tensor.placements)
    return tensor.full_tensor() if is_partial else tensor.to_local()


def block_case(group):
    """By kind: the largest difference between ours and torch's of the output, the input's and each gradient."""
    t, rank = dist.get_world_size(group), dist.get_rank(group)
    mesh = DeviceMesh.from_group(group, "cpu")
    torch.manual_seed(3)
    whole = Block(CONFIG).double()
    x, gradient = tensors((B, T, C), (B, T, C))

    def results(name, block, by_tokens):
        own, of_own = (part.chunk(t, 1)[rank].clone() if by_tokens else part.clone() for part in (x, gradient))
        own.requires_grad_()
        with phase(f"{name}, {t}"):
            y = local(block(own))
            y.backward(of_own)
        if name in KINDS and by_tokens:
            reduce_sequence_parallel_gradients(block, group=group)
        gradients = {name: local(parameter.grad) for name, parameter in block.named_parameters()}
        return {"output": y.detach(), "input": own.grad, **gradients}

    found = {}
    for by_tokens, kinds in ((False, KINDS[:1]), (True, KINDS[1:])):
        name = COUNTERPARTS[kinds[0]]
        block = torch_block(copy.deepcopy(whole), mesh, sequence_parallel=by_tokens)
        theirs = results(name, block, by_tokens)
        for kind in kinds:
            block = our_block(copy.deepcopy(whole), group=group, **OPTIONS[kind])
            ours = results(kind, block, by_tokens)
            assert list(ours) == list(theirs)
            found[kind] = {name: difference(ours[name], theirs[name]) for name in ours}
    return found


def loss_case(group):
    """By way to reduce: the difference of the loss, and of the logits' gradient."""
    t, rank = dist.get_world_size(group), dist.get_rank(group)
    mesh = DeviceMesh.from_group(group, "cpu")
    (logits,) = tensors((B, T, V))
    logits, targets = 300 * logits.chunk(t, -1)[rank], torch.arange(B * T).view(B, T) % V  # exp() would overflow
    targets[0, :3] = -100
    found = {}
    for reduction in ("mean", "sum"):
        own = logits.clone().requires_grad_()
        loss = vocabulary_parallel_cross_entropy(own, targets, reduction=reduction, group=group)
        loss.backward()
        other = DTensor.from_local(logits.clone(), mesh, [Shard(2)]).requires_grad_()
        with loss_parallel():
            of_torch = F.cross_entropy(other.flatten(0, 1), targets.flatten(), reduction=reduction)
            of_torch.backward()
        found[reduction] = difference(loss, of_torch.full_tensor()), difference(own.grad, other.grad.to_local())
    return found


def torch_gpt(gpt, mesh, sequence_parallel):
    """A whole model by `parallelize_module`. Its logits are DTensors, divided by vocabulary."""
    between = Shard(1) if sequence_parallel else Replicate()
    ends = {
        "embedding.token": RowwiseParallel(input_layouts=Replicate(), output_layouts=between),
        "head.projection": ColwiseParallel(input_layouts=between, output_layouts=Shard(-1), use_local_output=False),
    }
    if sequence_parallel:
        # Divided by rows, positions too: the sum is scattered to the tokens' ranks.
        ends["embedding.position"] = RowwiseParallel(input_layouts=Replicate(), output_layouts=Shard(0))
        ends["head.norm"] = SequenceParallel()
    for block in gpt.blocks:
        torch_block(block, mesh, sequence_parallel=sequence_parallel)
    return parallelize_module(gpt, mesh, ends)


def training_case(group):
    """By kind: the largest difference of a loss, and of a parameter after two steps of Adam."""
    mesh = DeviceMesh.from_group(group, "cpu")
    torch.manual_seed(4)
    whole = GPT(replace(CONFIG, vocab_size=V)).double()
    tokens = torch.randint(V, (2, B, T + 1))
    found = {}
    for by_tokens in (False, True):
        ours = ParallelGPT.from_gpt(whole, group=group, sequence_parallel=by_tokens)
        theirs = torch_gpt(copy.deepcopy(whole), mesh, by_tokens)
        # torch's fused update of all parameters at once takes no mixture of DTensors and tensors.
        updates = [torch.optim.Adam(model.parameters(), lr=0.01, foreach=False) for model in (ours, theirs)]
        apart = 0.0
        for batch in tokens:
            inputs, targets = batch[:, :-1], batch[:, 1:]
            loss = ours.loss(inputs, targets)
            loss.backward()
            reduce_sequence_parallel_gradients(ours, group=group)
            with loss_parallel():
                of_torch = next_token_loss(theirs(inputs), targets)
                of_torch.backward()
            apart = max(apart, difference(loss, of_torch.full_tensor()))
            for update in updates:
                update.step()
                update.zero_grad()
        trained = {n: p.full_tensor() if isinstance(p, DTensor) else p for n, p in theirs.named_parameters()}
        found[by_tokens] = apart, max_difference(ours.full_params(), trained).value
    return found


def all_cases():
    return in_groups(block_case, (2, 3, 4)), in_groups(loss_case, (2, 3, 4)), in_groups(training_case, (4,))


@pytest.fixture(scope="module")
def run():
    return run_ranks(all_cases, 4, device="cpu", record=True)


@pytest.mark.parametrize("t", [2, 3, 4])
def test_blocks(run, t):
    for rank in range(t):
        for kind, apart in run[rank][0][t].items():
            assert len(apart) == 2 + 16 and max(apart.values()) < 1e-10, (kind, apart)


@pytest.mark.parametrize("t", [2, 3, 4])
def test_the_same_calls(run, t):
    """One all-reduce forward and one backward for each half of a block, in torch's way too."""
    tokens = 8 * B * T * C
    gather, scatter = ("all_gather_into_tensor", tokens // t), ("reduce_scatter_tensor", tokens)
    calls = {
        name: [(call.op, call.nbytes) for call in part(run.record, f"{name}, {t}").select(rank=0)]
        for name in (*KINDS, *COUNTERPARTS.values())
    }
    assert calls["tensor parallel"] == calls["parallelize_module"] == [("all_reduce", tokens)] * 4
    assert calls["sequence parallel"] == calls["SequenceParallel"] == [gather, scatter] * 4
    assert calls["gathered again"] == [gather, scatter] * 2 + [gather, gather, scatter] * 2


@pytest.mark.parametrize("t", [2, 3, 4])
def test_losses(run, t):
    for rank in range(t):
        for of_loss, of_logits in run[rank][1][t].values():
            assert of_loss < 1e-10 and of_logits < 1e-10


def test_training(run):
    for of_rank in run:
        for of_losses, of_parameters in of_rank[2][4].values():
            assert of_losses < 1e-10 and of_parameters < 1e-10
