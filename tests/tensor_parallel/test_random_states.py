"""Masks of replicated and of divided tensors, and both again when activations are computed a second time."""

import copy
import itertools

import pytest
import torch
import torch.distributed as dist
import torch.nn.functional as F
import torch.utils.checkpoint

from dtlearn.memory import checkpoint as checkpoint_of_memory
from dtlearn.runtime.run import run_ranks
from dtlearn.tensor_parallel import RandomStateTracker, checkpoint, tensor_parallel_manual_seed

P = 0.25


def mask(numel=2000):
    return F.dropout(torch.ones(numel), P) > 0


# One process.


def test_a_fork_draws_from_its_own_state_and_leaves_the_default_one():
    torch.manual_seed(5)
    expected = [mask(), mask()]
    torch.manual_seed(77)
    own = [mask(), mask()]
    torch.manual_seed(5)
    tracker = RandomStateTracker(77)
    found = [mask()]
    with tracker.fork():
        first = mask()
    found.append(mask())
    with tracker.fork():
        second = mask()
    for a, b in zip([*found, first, second], [*expected, *own], strict=True):
        assert torch.equal(a, b)


def test_an_error_in_a_fork_ends_it():
    torch.manual_seed(5)
    tracker = RandomStateTracker(77)
    before = torch.get_rng_state()
    with pytest.raises(ZeroDivisionError), tracker.fork():
        mask()
        raise ZeroDivisionError
    assert torch.equal(torch.get_rng_state(), before)
    with tracker.fork():  # and goes on where it ended
        second = mask()
    torch.manual_seed(77)
    assert torch.equal((mask(), mask())[1], second)


def test_a_state_is_saved_and_loaded():
    tracker = RandomStateTracker(77)
    with tracker.fork():
        mask()
    state = tracker.get_state()
    with tracker.fork():
        expected = mask()
    tracker = RandomStateTracker(0)
    tracker.set_state(state)
    state.zero_()  # a copy
    with tracker.fork():
        assert torch.equal(mask(), expected)
        with pytest.raises(RuntimeError, match=r"set_state\(\) inside fork\(\)"):
            tracker.set_state(state)
        with pytest.raises(RuntimeError, match=r"fork\(\) inside fork\(\)"), tracker.fork():
            pass


class Branch(torch.nn.Module):
    """A split region and a replicated one after it, as attention and what follows it."""

    def __init__(self, tracker):
        super().__init__()
        torch.manual_seed(1)
        self.layers = torch.nn.ModuleList(torch.nn.Linear(16, 16, dtype=torch.float64) for _ in range(2))
        self.tracker = tracker

    def forward(self, x):
        with self.tracker.fork():
            x = F.dropout(self.layers[0](x).sin(), 0.5)
        return F.dropout(self.layers[1](x).sin(), 0.5)


def gradients(run, backwards=1):
    """Gradients of two branches, one after the other, each called by `run(branch, x)`; and the states afterwards."""
    tracker = RandomStateTracker(77)
    branches = [Branch(tracker), Branch(tracker)]
    torch.manual_seed(5)
    x = start = torch.linspace(-1, 1, 128, dtype=torch.float64).view(8, 16).requires_grad_()
    for branch in branches:
        x = run(branch, x)
    loss = x.square().sum()
    for left in reversed(range(backwards)):
        loss.backward(retain_graph=left > 0)
    found = [start.grad, *(p.grad for branch in branches for p in branch.parameters())]
    return found, [tracker.get_state(), torch.get_rng_state()]


def apart(found, expected):
    return max((a - b).abs().max().item() for a, b in zip(found, expected, strict=True))


@pytest.mark.parametrize("backwards", [1, 2])
def test_computed_again_the_masks_are_those_of_the_first_pass(backwards):
    expected, after = gradients(lambda branch, x: branch(x), backwards)
    found, states = gradients(lambda branch, x: checkpoint(branch, x, tracker=branch.tracker), backwards)
    assert apart(found, expected) == 0.0
    assert all(torch.equal(a, b) for a, b in zip(states, after, strict=True))  # and the next step's masks are, too


@pytest.mark.parametrize(
    "run",
    [
        lambda branch, x: torch.utils.checkpoint.checkpoint(branch, x, use_reentrant=False),
        lambda branch, x: torch.utils.checkpoint.checkpoint(branch, x, use_reentrant=True),
        checkpoint_of_memory,
    ],
)
def test_a_checkpoint_that_does_not_know_the_tracker_gives_wrong_gradients(run):
    """Sabotage: there is no error, but the masks in the split regions are others."""
    expected, after = gradients(lambda branch, x: branch(x))
    found, states = gradients(run)
    assert apart(found, expected) > 0.1
    assert torch.equal(states[1], after[1]) and not torch.equal(states[0], after[0])


@pytest.mark.gpu
def test_masks_on_a_gpu():
    torch.cuda.manual_seed(77)
    x = torch.ones(2000, device="cuda")
    own = [F.dropout(x, P) for _ in range(2)]
    torch.cuda.manual_seed(5)
    tracker, on_cpu = RandomStateTracker(77, "cuda"), torch.get_rng_state()
    default = torch.cuda.get_rng_state()
    for expected in own:
        with tracker.fork():
            assert torch.equal(F.dropout(x, P), expected)
    assert torch.equal(torch.cuda.get_rng_state(), default) and torch.equal(torch.get_rng_state(), on_cpu)


def test_keyword_arguments_and_no_gradient():
    tracker = RandomStateTracker(77)
    x = torch.ones(3)
    assert torch.equal(checkpoint(torch.mul, x, other=2 * x, tracker=tracker), 2 * x)


# Ranks.


def masks_on_rank():
    """This rank's masks, by size of the group and by kind."""
    found = {}
    groups = {size: dist.new_group(list(range(size))) for size in (1, 2, 3, 4)}
    for size, group in groups.items():
        if (rank := dist.get_rank()) >= size:
            continue
        torch.manual_seed(100 + rank)  # what was before does not matter
        tracker = tensor_parallel_manual_seed(5, group=group)
        with tracker.fork():
            split = mask()
            mask(10 * rank)  # heads may be divided unevenly: replicated masks stay equal
        replicated = mask()
        with tracker.fork():
            second = mask()
        # Sabotage: one seed for all, and a replicated tensor's mask drawn in a fork.
        equal_seeds = RandomStateTracker(5)
        with equal_seeds.fork():
            equal = mask()
        with tracker.fork():
            unequal_copies = mask()
        found[size] = {
            "split": split,
            "second": second,
            "replicated": replicated,
            "equal seeds": equal,
            "unequal copies": unequal_copies,
        }
    return found


@pytest.fixture(scope="module")
def masks():
    """{size of the group: the masks of each of its ranks}"""
    run = run_ranks(masks_on_rank, 4, device="cpu")
    return {size: [run[rank][size] for rank in range(size)] for size in (1, 2, 3, 4)}


def are_independent(a, b):
    """Two masks agree where both keep or both drop: in p² + (1 - p)² of the places, here 0.625."""
    return abs((a == b).double().mean().item() - (P**2 + (1 - P) ** 2)) < 0.06  # 5 standard deviations


def test_masks_of_replicated_tensors_are_equal_and_those_of_divided_ones_independent(masks):
    for per_rank in masks.values():
        assert all(torch.equal(own["replicated"], per_rank[0]["replicated"]) for own in per_rank)
        drawn = [own[kind] for own in per_rank for kind in ("split", "second")] + [per_rank[0]["replicated"]]
        assert all(are_independent(a, b) for a, b in itertools.combinations(drawn, 2))


def test_equal_seeds_and_unequal_copies_are_found(masks):
    for size in (2, 3, 4):
        own = [own["equal seeds"] for own in masks[size]]
        assert not any(are_independent(a, b) for a, b in itertools.combinations(own, 2))
        assert not torch.equal(masks[size][0]["unequal copies"], masks[size][1]["unequal copies"])


def test_a_rank_draws_the_same_whatever_the_size_of_its_group(masks):
    """The same draws then mask other elements of a divided tensor, so its masks are not those of one rank."""
    for per_rank in masks.values():
        for rank, own in enumerate(per_rank):
            assert torch.equal(own["split"], masks[4][rank]["split"])
            assert torch.equal(own["replicated"], masks[1][0]["replicated"])


def test_a_copied_model_draws_from_the_same_state():
    """A copied model shares the default state as well, so `checkpoint` with the original's tracker serves the copy."""
    tracker = RandomStateTracker(5)
    assert copy.deepcopy([tracker])[0] is tracker
