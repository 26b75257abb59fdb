"""Norms on a rank's own tokens: marks, partial gradients and their sum; and the GPT, its bytes beside the formulae."""

import copy
import pickle
import time

import pytest
import torch
import torch.distributed as dist
from torch import nn

from dtlearn.memory import MemoryLedger, kept_tensors
from dtlearn.memory import checkpoint as checkpoint_of_memory
from dtlearn.models import GPTConfig
from dtlearn.runtime.record.training_steps import part
from dtlearn.runtime.recording.phases import phase
from dtlearn.runtime.run import run_ranks
from dtlearn.tensor_parallel import (
    BlockSizes,
    block_traffic,
    checkpoint,
    gpt_activations,
    mark_sequence_parallel,
    norm_traffic,
    reduce_sequence_parallel_gradients,
    reduce_sequence_parallel_pieces,
    sequence_parallel_parameters,
    table_bytes,
    tensor_parallel_manual_seed,
)
from dtlearn.tensor_parallel.gpt import ParallelGPT
from tests.sharing.groups import in_groups

B, T, C = 2, 12, 6


def marked_model(dtype=torch.float64):
    """Two norms, a layer whose bias alone is marked, and one that is not; one norm comes twice."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.LayerNorm(C), nn.Linear(C, C), nn.LayerNorm(C), nn.Linear(C, C)).to(dtype)
    model.append(model[2])
    mark_sequence_parallel(model[0])
    mark_sequence_parallel(model[1], "bias")
    mark_sequence_parallel(model[2])
    return model


MARKED = ["0.weight", "0.bias", "1.bias", "2.weight", "2.bias"]


def test_marks_stay_in_copies():
    """A mark on the parameter itself would be lost in the first two."""
    model = marked_model()
    on_meta = copy.deepcopy(model).to_empty(device="meta")
    for same in (copy.deepcopy(model), on_meta, pickle.loads(pickle.dumps(model)), model.float()):
        assert list(sequence_parallel_parameters(same)) == MARKED
    assert sequence_parallel_parameters(nn.LayerNorm(C)) == {}


def test_a_parameter_that_is_not_there():
    with pytest.raises(ValueError, match="LayerNorm has no parameter biass; it has: weight, bias"):
        mark_sequence_parallel(nn.LayerNorm(C), "biass")


def sums_on_rank():
    """The gradients by size of the group: of whole sequences, and of the rank's own tokens before and after the sum."""
    found = {}
    x, weight = torch.randn(2, B, T, C, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    for size in (1, 2, 3, 4):
        group = dist.new_group(list(range(size)))
        if (rank := dist.get_rank()) >= size:
            continue
        models = marked_model(), marked_model()
        models[1].append(nn.Linear(C, C, dtype=torch.float32))  # of another dtype, and frozen: nothing of it is sent
        models[1][5].requires_grad_(False)
        mark_sequence_parallel(models[1][5])
        whole, partial = models
        (whole(x) * weight).sum().backward()
        own = [tensor.chunk(size, dim=1)[rank] for tensor in (x, weight)]  # (B, T/t, C)
        (partial[:5](own[0]) * own[1]).sum().backward()
        before = {name: p.grad.clone() for name, p in partial.named_parameters() if p.grad is not None}
        reduce_sequence_parallel_gradients(partial, group=group)
        after = {name: p.grad for name, p in partial.named_parameters() if p.grad is not None}
        found[size] = {name: p.grad for name, p in whole.named_parameters()}, before, after
    return found


@pytest.fixture(scope="module")
def run():
    return run_ranks(sums_on_rank, 4, device="cpu", record=True)


@pytest.mark.parametrize("size", [1, 2, 3, 4])
def test_partial_gradients_are_summed_in_one_call(run, size):
    for rank in range(size):
        whole, before, after = run[rank][size]
        assert list(whole) == list(before)
        for name, gradient in after.items():
            apart = (gradient - whole[name]).abs().max().item()
            if name in MARKED:
                assert apart < 1e-12
                missing = (before[name] - whole[name]).abs().max().item()
                assert size == 1 or missing > 0.1  # sabotage: not summed
            else:
                assert torch.equal(gradient, before[name])
        group = ",".join(map(str, range(size)))
        calls = run.record.select(rank=rank, op="all_reduce", group=group)
        assert [call.nbytes for call in calls] == [8 * 5 * C]


# The GPT: with and without sequence parallelism, on 2 to 4 ranks.

OPTIONS = {
    "whole tokens": {},
    "own tokens": {"sequence_parallel": True},
    "gathered again": {"sequence_parallel": True, "gather_again": True},
}
LAYERS, VOCABULARY, P = 2, 26, 0.25
GPT_SIZES = BlockSizes(B, T, 24, 12)


def sums_of_pieces():
    """The gradients before and after the sum, in pieces as in ZeRO 2; a step and a forward pass follow."""
    model = marked_model()
    x = torch.randn(B, T, C, generator=torch.Generator().manual_seed(dist.get_rank()), dtype=torch.float64)
    model(x).sum().backward()
    pieces = {name: p.detach().flatten()[1:3].requires_grad_() for name, p in model.named_parameters()}
    for name, parameter in model.named_parameters():
        pieces[name].grad, parameter.grad = parameter.grad.flatten()[1:3].clone(), None
    own = {name: piece.grad.clone() for name, piece in pieces.items()}
    reduce_sequence_parallel_pieces(model, pieces)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(1.0)
    model(x)  # refused, if a parameter's own gradient were still known as a partial sum
    return own, {name: piece.grad for name, piece in pieces.items()}


def test_gradients_in_pieces_are_summed_too():
    result = run_ranks(sums_of_pieces, 2, device="cpu")
    for name in result[0][0]:
        own, summed = [rank[0][name] for rank in result], [rank[1][name] for rank in result]
        for rank in (0, 1):
            assert torch.equal(summed[rank], own[0] + own[1] if name in MARKED else own[rank])


def config_with(dropout):
    return GPTConfig(VOCABULARY, T, LAYERS, GPT_SIZES.heads, GPT_SIZES.hidden, dropout)


def batch():
    tokens = torch.randint(VOCABULARY, (B, T + 1), generator=torch.Generator().manual_seed(2))
    return tokens[:, :-1].contiguous(), tokens[:, 1:].contiguous()


def activations_in_ledger(model, expected):
    """Bytes that live at the end of the forward pass; a collective's thread may hold a buffer for a while."""
    with MemoryLedger(model, inputs=batch()) as ledger:
        loss = model.loss(*batch())
        for _ in range(200):
            record = ledger.record()
            found = sum(a.bytes for a in record.at(record.clock) if a.category == "activations")
            if found <= expected:
                break
            time.sleep(0.01)
    del loss
    return found


def gradients_with(run, group, options):
    """The gradients of the input and of both blocks of a model with dropout, each block called by `run(block, x)`."""
    tracker = tensor_parallel_manual_seed(6, group=group)
    model = ParallelGPT(config_with(P), seed=6, random_states=tracker, dtype=torch.float64, group=group, **options)
    torch.manual_seed(7)
    x = model.embedding(batch()[0]).detach().requires_grad_()
    start = x
    for block in model.blocks:
        x = run(block, x, tracker)
    x.square().sum().backward()
    return [start.grad, *(p.grad for p in model.blocks.parameters())]


def recomputed_gradients(group, options):
    """How far gradients are from those without recomputation, by the way to recompute."""
    expected = gradients_with(lambda block, x, _: block(x), group, options)
    ways = {
        "ours": lambda block, x, tracker: checkpoint(block, x, tracker=tracker),
        "without the tracker": lambda block, x, _: checkpoint_of_memory(block, x),
    }
    found = {way: gradients_with(run, group, options) for way, run in ways.items()}
    return {
        way: max((a - b).abs().max().item() for a, b in zip(gradients, expected, strict=True))
        for way, gradients in found.items()
    }


def gpt_case(group):
    """The bytes by the formula and counted, by option and dropout; and on 2 ranks `recomputed_gradients`."""
    t = dist.get_world_size(group)
    found = {}
    for name, options in OPTIONS.items():
        kept = []
        for dropout in (0.0, P):
            config = config_with(dropout)
            tracker = tensor_parallel_manual_seed(5, group=group)
            model = ParallelGPT(config, seed=5, random_states=tracker, group=group, **options)
            formula = table_bytes(gpt_activations(config, B, T, t), t, **options)
            tensors = kept_tensors(lambda m=model: m.loss(*batch()), model, *batch())
            counted = [sum(tensor.bytes for tensor in tensors)]
            if not dropout:  # it costs, and once is enough
                counted.append(activations_in_ledger(model, formula))
            kept.append((formula, counted))
            with phase(f"{name}, dropout {dropout}, recomputed, {t}"):
                x = torch.ones(B, T // t if options else T, GPT_SIZES.hidden, requires_grad=True)
                checkpoint(model.blocks[0], x, tracker=tracker).sum().backward()
        with phase(f"{name}, {t}"):
            model.loss(*batch()).backward()
            reduce_sequence_parallel_gradients(model, group=group)
        found[name] = kept, recomputed_gradients(group, options) if t == 2 else None
    return found


def gpt_on_ranks():
    return in_groups(gpt_case, (2, 3, 4))


@pytest.fixture(scope="module")
def of_gpt():
    return run_ranks(gpt_on_ranks, 4, device="cpu", record=True)


def calls(record, name, t, element_bytes=4):
    """(operation, elements of the whole tensor) of rank 0's calls in a phase."""
    found = []
    for call in part(record, f"{name}, {t}").select(rank=0):
        op = call.op.removesuffix("_tensor").removesuffix("_into")
        found.append((op, call.nbytes // element_bytes * (t if op == "all_gather" else 1)))
    return found


def calls_of_gpt(t, name):
    """The expected calls, (operation, elements): blocks, half a block at embedding and head, and the loss."""
    block = block_traffic(GPT_SIZES, t, **OPTIONS[name])
    forward, backward = ([(c.op, c.elements) for c in block if c.phase == phase] for phase in ("forward", "backward"))
    bsh, loss = GPT_SIZES.bsh, [("all_reduce", B * T), ("all_reduce", 2 * B * T)]
    if not OPTIONS[name]:
        return [("all_reduce", bsh), *forward * LAYERS, *loss, ("all_reduce", bsh), *backward * LAYERS]
    gather, scatter = ("all_gather", bsh), ("reduce_scatter", bsh)
    head = [gather, scatter] if name == "gathered again" else [scatter]
    return [scatter, *forward * LAYERS, gather, *loss, *head, *backward * LAYERS, gather]


@pytest.mark.parametrize("name", OPTIONS)
@pytest.mark.parametrize("t", [2, 3, 4])
def test_calls_are_those_of_the_formula(of_gpt, t, name):
    formula = calls_of_gpt(t, name)
    if OPTIONS[name]:
        marked = norm_traffic(GPT_SIZES.hidden, t, LAYERS)
        positions = T * GPT_SIZES.hidden  # the embedding of positions is marked, too
        formula.append((marked.op, marked.elements + positions))
    assert calls(of_gpt.record, name, t) == formula


@pytest.mark.parametrize("name", OPTIONS)
@pytest.mark.parametrize("t", [2, 3, 4])
def test_recomputation_repeats_what_backward_needs(of_gpt, t, name):
    """With dropout, all collectives of the forward pass run again; without it, the last one's result is not needed."""
    for dropout, recompute in ((0.0, "up to the last need"), (P, "full")):
        formula = block_traffic(GPT_SIZES, t, recompute=recompute, **OPTIONS[name])
        found = calls(of_gpt.record, f"{name}, dropout {dropout}, recomputed", t)
        assert found == [(c.op, c.elements) for c in formula]


@pytest.mark.parametrize("t", [2, 3, 4])
def test_activations_are_those_of_the_formula_to_the_byte(of_gpt, t):
    for rank in range(t):
        for name in OPTIONS:
            for formula, counted in of_gpt[rank][t][name][0]:
                assert set(counted) == {formula}, name
        by_option = [of_gpt[rank][t][name][0][0][0] for name in OPTIONS]
        assert by_option[0] > by_option[1] > by_option[2]


def test_recomputed_masks_are_those_of_the_first_pass(of_gpt):
    for rank in range(2):
        for name, (_, apart) in of_gpt[rank][2].items():
            assert apart["ours"] < 1e-12, name
            assert apart["without the tracker"] > 1e-3, name  # sabotage
