"""Cross entropy of divided logits beside `F.cross_entropy` of whole ones."""

import math

import pytest
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn

import dtlearn
from dtlearn.memory import kept_tensors
from dtlearn.tensor_parallel.vocabulary import cross_entropy as module
from dtlearn.tensor_parallel.vocabulary.cross_entropy import vocabulary_parallel_cross_entropy
from dtlearn.tensor_parallel.vocabulary.rows import padded_vocabulary
from tests.data_parallel.runs import message_of
from tests.devices import run_ranks
from tests.sharing.groups import calls_of, in_groups

B, T = 2, 6
# V, the scale of the logits, and options. 10 and 5 are padded with 3 and 4 ranks; with 4 ranks and V = 5 one rank has
# nothing but padding.
CASES = {
    "plain": (12, 1, {}),
    "padded": (10, 1, {}),
    "rank of padding": (5, 1, {"label_smoothing": 0.2}),
    "smoothed": (12, 1, {"label_smoothing": 0.1}),
    "smoothed, padded": (10, 1, {"label_smoothing": 0.1}),
    "all smoothed": (10, 1, {"label_smoothing": 1.0}),
    "sum": (10, 1, {"reduction": "sum"}),
    "none": (10, 1, {"reduction": "none", "label_smoothing": 0.1}),
    "ignored": (10, 1, {"ignore_index": -1}),
    "ignored token": (10, 1, {"ignore_index": 3, "label_smoothing": 0.1, "reduction": "none"}),
    "large": (10, 1e5, {}),
    "huge": (10, 1e300, {"label_smoothing": 0.1}),
}
TOLERANCE = 1e-12  # of values about 1


def whole(vocab_size, scale, options, dtype=torch.float64):
    """Logits (B, T, V), the same on all ranks, and targets; a few of them are to be ignored."""
    generator = torch.Generator().manual_seed(vocab_size)
    logits = scale * torch.randn(B, T, vocab_size, dtype=torch.float64, generator=generator)
    targets = torch.randint(vocab_size, (B, T), generator=generator)
    targets[0, :2] = options.get("ignore_index", -100)
    return logits.to(dtlearn.device(), dtype), targets.to(dtlearn.device())


def local_part(logits, group):
    """This rank's columns; in the place of padding there are numbers that would win every softmax."""
    size, rank = dist.get_world_size(group), dist.get_rank(group)
    padding = padded_vocabulary(logits.shape[-1], size) - logits.shape[-1]
    return F.pad(logits, (0, padding), value=1e3).chunk(size, -1)[rank].clone().requires_grad_()


def torchs(logits, targets, **options):
    """Loss and gradient, both of the logits' shape."""
    logits = logits.clone().requires_grad_()
    loss = F.cross_entropy(logits.flatten(0, 1), targets.flatten(), **options)
    loss = loss.view_as(targets) if loss.ndim else loss
    (loss * weights_like(loss)).sum().backward()
    return loss.detach(), logits.grad


def weights_like(loss):
    """Gradients that differ by token."""
    return torch.linspace(1, 2, loss.numel(), dtype=loss.dtype, device=loss.device).view_as(loss)


def difference(function, vocab_size, scale, options, group, **more):
    """The larger one of the differences of loss and gradient, relative to the scale; padding has no gradient."""
    logits, targets = whole(vocab_size, scale, options)
    expected, expected_gradient = torchs(logits, targets, **options)
    local = local_part(logits, group)
    kept = local.detach().clone()
    loss = function(local, targets, group=group, **options, **({"num_classes": vocab_size} | more))
    (loss * weights_like(loss)).sum().backward()
    assert torch.equal(local, kept)
    size, rank = dist.get_world_size(group), dist.get_rank(group)
    padding = padded_vocabulary(vocab_size, size) - vocab_size
    expected_gradient = F.pad(expected_gradient, (0, padding)).chunk(size, -1)[rank]
    found = ((loss - expected) / scale).abs().max(), (local.grad - expected_gradient).abs().max()
    return max(x.nan_to_num(nan=math.inf).item() for x in found)


def without(name, replacement, group):
    """Sabotage: the difference with one name of the module replaced."""
    before = getattr(module, name)
    setattr(module, name, replacement(before))
    try:
        return difference(vocabulary_parallel_cross_entropy, *CASES["plain"], group)
    finally:
        setattr(module, name, before)


class Skips:
    """`torch.distributed` without one kind of all-reduce."""

    def __init__(self, op):
        self.op = op

    def __getattr__(self, name):
        return getattr(dist, name)

    def all_reduce(self, tensor, op=dist.ReduceOp.SUM, group=None):
        if op != self.op:
            dist.all_reduce(tensor, op, group=group)


def sabotages(group):
    def own_max(_):
        return Skips(dist.ReduceOp.MAX)

    def own_sum(_):
        return Skips(dist.ReduceOp.SUM)

    def unmasked(rows_of):
        return lambda *args: (rows_of(*args)[0], torch.ones_like(args[0], dtype=torch.bool))

    found = {
        "own maximum": without("dist", own_max, group),
        "own sum": without("dist", own_sum, group),
        "targets not masked": without("local_rows", unmasked, group),
    }
    vocab_size, scale, options = CASES["padded"]
    if vocab_size % dist.get_world_size(group):
        function = vocabulary_parallel_cross_entropy
        found["padding in the softmax"] = difference(function, vocab_size, scale, options, group, num_classes=None)
    return found


def odd_values(group):
    """Losses where there is nothing to count, or something that is not finite; and formats."""
    logits, targets = whole(12, 1, {})
    found = {}
    none_counts = torch.full_like(targets, -100)
    found["none counts"] = vocabulary_parallel_cross_entropy(local_part(logits, group), none_counts, group=group).item()
    broken = logits.clone()
    broken[1, 2, 11], targets[1, 2] = math.nan, 0
    by_token = vocabulary_parallel_cross_entropy(local_part(broken, group), targets, reduction="none", group=group)
    found["nan"] = by_token.isnan().nonzero().tolist()
    masked = logits.clone()
    masked[..., :4], targets[:] = -math.inf, 7
    targets[0, 0] = 2
    by_token = vocabulary_parallel_cross_entropy(local_part(masked, group), targets, reduction="none", group=group)
    reference = F.cross_entropy(masked.flatten(0, 1), targets.flatten(), reduction="none").view_as(targets)
    found["minus infinity"] = torch.allclose(by_token, reference, rtol=0, atol=1e-12), by_token[0, 0].item()
    for dtype in (torch.float32, torch.bfloat16):
        logits, targets = whole(12, 10, {}, dtype)
        expected, expected_gradient = torchs(logits.float(), targets)
        local = local_part(logits, group)
        loss = vocabulary_parallel_cross_entropy(local, targets, group=group)
        loss.backward()
        expected_gradient = expected_gradient.chunk(dist.get_world_size(group), -1)[dist.get_rank(group)]
        worst = (local.grad.float() - expected_gradient).abs().max().item()
        found[dtype] = loss.dtype, local.grad.dtype, abs(loss - expected).item(), worst
    return found


def kept(function, group):
    """Bytes from forward to backward, without the logits and targets."""
    logits, targets = whole(12, 1, {})
    local = local_part(logits, group)
    rows = kept_tensors(lambda: function(local, targets, group=group), nn.Module(), local, targets)
    return sum(row.bytes for row in rows)


def messages(group):
    logits, targets = whole(12, 1, {})
    local, function = local_part(logits, group), vocabulary_parallel_cross_entropy
    return [
        message_of(lambda: function(local, torch.where(targets == 5, 12, targets), group=group)),
        message_of(lambda: function(local, targets.double(), group=group)),
        message_of(lambda: function(local, targets[:1], group=group)),
        message_of(lambda: function(local, targets, group=group, num_classes=13)),
        message_of(lambda: function(local, targets, group=group, label_smoothing=1.5)),
        message_of(lambda: function(local, targets, group=group, reduction="average")),
    ], message_of(lambda: function(logits, targets, group=group, num_classes=12))


def parity():
    def case(group):
        return {name: difference(vocabulary_parallel_cross_entropy, *row, group) for name, row in CASES.items()}

    return in_groups(case)


def others():
    def case(group):
        return sabotages(group), odd_values(group), messages(group), kept(vocabulary_parallel_cross_entropy, group)

    return in_groups(case)


@pytest.fixture(scope="module")
def recorded():
    return run_ranks(parity, 4, device="cpu", record=True)


@pytest.fixture(scope="module")
def ranks():
    return run_ranks(others, 4, device="cpu")


def test_losses_and_gradients_on_another_device(other_device):
    test_losses_and_gradients(run_ranks(parity, 2, device=other_device))


def test_losses_and_gradients(recorded):
    for of_sizes in recorded:
        for size, found in of_sizes.items():
            assert len(found) == len(CASES)
            assert max(found.values()) < TOLERANCE, (size, found)


def test_three_numbers_a_token_and_never_the_logits(recorded):
    assert calls_of(recorded.record, 1) == []
    for size in (2, 3, 4):
        formula = []
        for _, _, options in CASES.values():
            sums = 3 if options.get("label_smoothing") else 2
            formula += [("all_reduce", B * T * 8), ("all_reduce", sums * B * T * 8)]
        assert calls_of(recorded.record, size) == formula


def test_each_fault_shows(ranks):
    for of_sizes in ranks:
        for size, (faults, *_) in of_sizes.items():
            if size > 1:
                assert len(faults) == 3 + (size > 2)
                assert min(faults.values()) > 1e-2, (size, faults)


def test_what_is_not_finite_and_other_formats(ranks):
    for of_sizes in ranks:
        for _, found, *_ in of_sizes.values():
            assert math.isnan(found["none counts"])  # as F.cross_entropy's
            assert found["nan"] == [[1, 2]]  # on every rank, though one has it
            assert found["minus infinity"] == (True, math.inf)
            loss_dtype, gradient_dtype, loss, gradient = found[torch.float32]
            assert (loss_dtype, gradient_dtype) == (torch.float32, torch.float32) and max(loss, gradient) < 1e-5
            loss_dtype, gradient_dtype, loss, gradient = found[torch.bfloat16]
            assert (loss_dtype, gradient_dtype) == (torch.float32, torch.bfloat16)
            assert loss < 1e-5 and gradient < 1e-3  # bfloat16 rounds the gradient


def test_what_is_kept_for_backward_is_divided_too(ranks):
    for of_sizes in ranks:
        for size, (*_, ours) in of_sizes.items():
            softmax, of_tokens = B * T * 12 * 8, B * T * (8 + 1 + 1)  # each target's row, whose it is, if it counts
            assert ours == softmax // size + of_tokens + 8  # and how many count


def test_bad_input(ranks):
    for of_sizes in ranks:
        for size, (_, _, (of_all, undivided), _) in of_sizes.items():
            target, kind, shape, classes, smoothing, reduction = of_all
            assert "target 12 is outside the vocabulary of 12 tokens: a target is from 0 to 11, or -100" in target
            assert "each target must be the number of a token" in kind
            assert "need one target for each row of V/t columns, (2, 6); got targets of shape (1, 6)" in shape
            assert f"{size} ranks with {12 // size} columns of logits each have 12 columns" in classes
            assert "vocabulary of 13" in classes
            assert "label_smoothing is from 0 to 1" in smoothing and "got 0.0 and 'average'" in reduction
            if size > 1:
                assert f"{size} ranks with 12 columns of logits each have {12 * size}" in undivided
