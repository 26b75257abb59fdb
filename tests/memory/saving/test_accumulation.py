"""Accumulation: the gradient of the whole batch, and the activations of one micro-batch."""

from itertools import pairwise

import pytest
import torch
import torch.nn.functional as F

from dtlearn.data_parallel import DistributedDataParallel
from dtlearn.memory import StorageLedger
from dtlearn.memory.saving.accumulation import accumulate_gradients, accumulate_losses, microbatches
from dtlearn.models import MLP, max_difference, next_token_loss, snapshot_gradients
from dtlearn.runtime.run import run_ranks
from tests.memory.saving.runs import backward, gpt, tokens

WAYS = [accumulate_gradients, accumulate_losses]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("num_microbatches", [1, 2, 3, 8])  # 3 parts of 8 samples: 3, 3 and 2
def test_the_gradient_is_that_of_the_whole_batch(way, num_microbatches):
    reference, model, batch = gpt(torch.float64), gpt(torch.float64), tokens()
    loss = backward(reference, batch)
    found = way(model, batch, next_token_loss, num_microbatches)
    assert abs(found - loss) < 1e-12 and not found.requires_grad
    assert max_difference(snapshot_gradients(model), snapshot_gradients(reference)).value < 1e-12


@pytest.mark.parametrize("optimizer_class", [torch.optim.SGD, torch.optim.Adam])
def test_several_steps(optimizer_class):
    runs = []
    for num_microbatches in (1, 3):
        model = gpt(torch.float64)
        optimizer = optimizer_class(model.parameters(), lr=0.01)
        for seed in range(3):
            optimizer.zero_grad()
            accumulate_gradients(model, tokens(7, seed), next_token_loss, num_microbatches)
            optimizer.step()
        runs.append(dict(model.named_parameters()))
    assert max_difference(*runs).value < 1e-10


def test_it_adds_to_a_gradient_that_is_there():
    reference, model, batch = gpt(torch.float64), gpt(torch.float64), tokens()
    for _ in range(2):
        backward(reference, batch)
        accumulate_gradients(model, batch, next_token_loss, 4)
    assert max_difference(snapshot_gradients(model), snapshot_gradients(reference)).value < 1e-12


def live_at_each_loss(way, num_microbatches):
    """Bytes beyond model, batch and gradients when each micro-batch's loss is there."""
    live, model, batch = [], gpt(), tokens()
    backward(model, batch)  # the gradients are there

    def loss_fn(logits, targets):
        loss = next_token_loss(logits, targets)
        live.append(ledger.now)
        return loss

    with StorageLedger() as ledger:
        way(model, batch, loss_fn, num_microbatches)
    return live


def test_activations_are_those_of_one_micro_batch():
    (whole,) = live_at_each_loss(accumulate_gradients, 1)
    for k in (2, 4, 8):
        live = live_at_each_loss(accumulate_gradients, k)
        assert live == list(range(live[0], live[0] + 4 * k, 4))  # a micro-batch leaves the 4 bytes of its loss
        # The positions and cross entropy's count of terms do not get smaller with the batch.
        assert whole / k <= live[0] <= whole / k + 256


def test_losses_that_are_added_up_keep_their_graphs():
    (whole,) = live_at_each_loss(accumulate_gradients, 1)
    live = live_at_each_loss(accumulate_losses, 4)
    added = {after - before for before, after in pairwise(live)}
    assert len(added) == 1 and 0.95 * whole / 4 < added.pop() < whole / 4  # all but the logits
    assert live[-1] > 0.95 * whole


def peak(model, batch, num_microbatches):
    with StorageLedger() as ledger:
        accumulate_gradients(model, batch, lambda x, y: F.cross_entropy(x, y), num_microbatches)
    return ledger.peak


def test_the_peak_falls_with_many_activations_and_rises_with_few():
    def batch(size):
        return torch.ones(size, 64), torch.zeros(size, dtype=torch.long)

    assert peak(MLP(), batch(2048), 8) < 0.25 * peak(MLP(), batch(2048), 1)
    assert peak(MLP(), batch(8), 8) > 1.3 * peak(MLP(), batch(8), 1)


def test_a_mean_over_tokens_that_count():
    reference, model = gpt(torch.float64), gpt(torch.float64)
    inputs, targets = tokens()
    targets[0, 3:] = targets[5, 1:] = -100
    loss = backward(reference, (inputs, targets))

    def num_terms(targets):
        return int((targets != -100).sum())

    assert abs(accumulate_gradients(model, (inputs, targets), next_token_loss, 4, num_terms=num_terms) - loss) < 1e-12
    assert max_difference(snapshot_gradients(model), snapshot_gradients(reference)).value < 1e-12
    model.zero_grad()
    accumulate_gradients(model, (inputs, targets), next_token_loss, 4)  # the shares of samples: a mean of means
    assert max_difference(snapshot_gradients(model), snapshot_gradients(reference)).value > 1e-4


def under_ddp(num_microbatches):
    model = DistributedDataParallel(gpt(torch.float64))
    inputs, targets = tokens(8)
    rank = torch.distributed.get_rank()
    mine = inputs[4 * rank : 4 * rank + 4], targets[4 * rank : 4 * rank + 4]
    accumulate_gradients(model, mine, next_token_loss, num_microbatches)
    return snapshot_gradients(model.module)


def test_under_ddp_it_communicates_once():
    runs = [run_ranks(under_ddp, 2, k, device="cpu", record=True) for k in (1, 4)]
    assert runs[0].record.counts() == runs[1].record.counts()
    reference = gpt(torch.float64)
    backward(reference, tokens(8))
    for gradients in runs[1].values:
        assert max_difference(gradients, snapshot_gradients(reference)).value < 1e-12


def test_parts_are_views_whose_shares_add_up():
    inputs, targets = tokens(7)
    parts = list(microbatches((inputs, targets), 3))
    assert [len(x) for x, _, _ in parts] == [3, 2, 2]
    assert [share for _, _, share in parts] == [3 / 7, 2 / 7, 2 / 7]
    assert parts[0][0].data_ptr() == inputs.data_ptr()


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(
    ("batch", "num_microbatches", "message"),
    [
        (tokens(4), 5, "from 1 to the batch's 4 samples; got 5"),
        (tokens(4), 0, "got 0"),
        ((tokens(4)[0], tokens(3)[1]), 2, "inputs have 4 samples, targets 3"),
    ],
)
def test_parts_that_cannot_be(way, batch, num_microbatches, message):
    with pytest.raises(ValueError, match=message):
        way(gpt(), batch, next_token_loss, num_microbatches)


def test_a_part_without_terms_is_refused():
    inputs, targets = tokens(4)
    targets[2:] = -100
    with pytest.raises(ValueError, match="micro-batch 1 has no terms"):
        accumulate_gradients(
            gpt(), (inputs, targets), next_token_loss, 2, num_terms=lambda targets: int((targets != -100).sum())
        )
