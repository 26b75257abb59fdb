"""The norm of a divided model's gradient beside torch's of the whole; and what it is if copies count more than once."""

import math

import pytest
import torch
import torch.distributed as dist

from dtlearn.models import GPT, GPTConfig, max_difference, next_token_loss, snapshot_gradients
from dtlearn.runtime.run import run_ranks
from dtlearn.tensor_parallel import clipping as module
from dtlearn.tensor_parallel.attention.attention import ParallelAttention
from dtlearn.tensor_parallel.clipping import clip_grad_norm_, gradient_norm, naive_gradient_norm
from dtlearn.tensor_parallel.gpt import ParallelGPT
from dtlearn.tensor_parallel.sequence_parallel import reduce_sequence_parallel_gradients
from tests.data_parallel.runs import message_of
from tests.sharing.groups import calls_of, in_groups

CONFIG = GPTConfig(vocab_size=13, context_length=12, num_layers=1, num_heads=12, hidden_size=24, tie_embeddings=True)
TOLERANCE = 1e-13


def whole_gradients():
    """A whole model with its gradients, and the batch."""
    torch.manual_seed(2)
    whole = GPT(CONFIG).double()
    tokens = torch.randint(13, (2, 13))
    batch = tokens[:, :-1], tokens[:, 1:]
    next_token_loss(whole(batch[0]), batch[1]).backward()
    return whole, batch


def clipped(group, max_norm, norm_type=2.0, **options):
    """The differences of the norm and of the clipped gradients from torch's on the whole model."""
    whole, batch = whole_gradients()
    model = ParallelGPT.from_gpt(whole, group=group, **options)
    model.loss(*batch).backward()
    if options:
        reduce_sequence_parallel_gradients(model, group=group)
    naive = naive_gradient_norm(model, group=group).item()
    expected = torch.nn.utils.clip_grad_norm_(whole.parameters(), max_norm, norm_type).item()
    norm = clip_grad_norm_(model, max_norm, norm_type, group=group).item()
    parts = {name: model.local_part(name, gradient) for name, gradient in snapshot_gradients(whole).items()}
    return abs(norm - expected), max_difference(snapshot_gradients(model), parts).value, naive / expected


def with_copies(group):
    """One key-value head, on all ranks: the norm with each copy counted once, and with all of them counted."""
    size = dist.get_world_size(group)
    generator = torch.Generator().manual_seed(3)
    layer = ParallelAttention(24, 12, num_kv_heads=1, generator=generator, dtype=torch.float64, group=group)
    x = torch.randn(2, 12, 24, dtype=torch.float64, generator=generator)
    layer(x).square().sum().backward()
    norm = gradient_norm(layer, group=group).item()
    for part in (layer.key, layer.value):
        assert part.num_copies == size
        part.num_copies = 1  # sabotage
    return norm, gradient_norm(layer, group=group).item()


def odd_values(group):
    layer = ParallelAttention(24, 12, group=group)
    found = [gradient_norm(layer, group=group).item()]  # no gradients
    assert gradient_norm(torch.nn.ReLU(), group=group) == 0  # no parameters
    layer.query.weight.grad = torch.zeros_like(layer.query.weight)
    if dist.get_rank(group) == dist.get_world_size(group) - 1:
        layer.query.weight.grad[0, 0] = math.inf  # on one rank
    found.append(clip_grad_norm_(layer, 1.0, group=group).item())
    strict = message_of(lambda: clip_grad_norm_(layer, 1.0, group=group, error_if_nonfinite=True))
    return found, strict, message_of(lambda: clip_grad_norm_(layer, 0.0, group=group))


def every_case():
    def case(group):
        return {
            "clipped": clipped(group, 0.01),
            "left": clipped(group, 100.0),
            "summed": clipped(group, 0.01, 1.0),
            "largest": clipped(group, 0.01, math.inf),
            "sequence": clipped(group, 0.01, sequence_parallel=True),
            "copies": with_copies(group),
            "odd": odd_values(group),
        }

    return in_groups(case)


@pytest.fixture(scope="module")
def ranks():
    return run_ranks(every_case, 4, device="cpu", record=True)


def test_norm_and_clipped_gradients_are_those_of_the_whole_model(ranks):
    for of_sizes in ranks:
        for found in of_sizes.values():
            for name in ("clipped", "left", "summed", "largest", "sequence"):
                assert max(found[name][:2]) < TOLERANCE, (name, found[name])
            assert found["copies"][0] == pytest.approx(ranks[0][1]["copies"][0], rel=1e-12)


def test_replicated_parameters_and_copies_that_count_on_every_rank_make_it_too_large(ranks):
    for of_sizes in ranks:
        for size, found in of_sizes.items():
            of_naive, of_copies = found["clipped"][2], found["copies"][1] / found["copies"][0]
            if size == 1:
                assert of_naive == pytest.approx(1) and of_copies == 1
            else:
                assert 1.01 < of_naive < size**0.5 and 1.01 < of_copies < size**0.5


def test_one_number_is_sent(ranks):
    events = [(op, nbytes) for op, nbytes in calls_of(ranks.record, 4) if nbytes == 8 and op == "all_reduce"]
    assert len(events) == 5 * 2 + 2  # a naive norm, and ours; those of copies
    assert [call for call in calls_of(ranks.record, 4) if call[1] == 4 and call[0] == "all_reduce"] == [
        ("all_reduce", 4)
    ] * 4  # float32: odd values


def test_no_gradients_and_values_that_are_not_finite(ranks):
    for of_sizes in ranks:
        for size, found in of_sizes.items():
            (nothing, infinite), strict, negative = found["odd"]
            assert nothing == 0.0 and not math.isfinite(infinite)  # on all ranks, though one has it
            whose = "of the gradients" if size == 1 else "of the gradients of all ranks"
            assert strict.startswith(f"RuntimeError: the norm {whose} is ")
            assert negative == "ValueError: max_norm must be positive; got 0.0"


def test_each_parameter_is_counted_once_by_identity():
    tied = torch.nn.Linear(2, 2, bias=False)
    assert len(list(module._held(torch.nn.Sequential(tied, tied)))) == 1
