"""A server's parameters, without a process: any optimizer, weights, learning rates, and a sparse table."""

import pytest
import torch

from dtlearn.parameter_server.progress import Push, ServerUpdate
from dtlearn.parameter_server.row_table import RowTable
from dtlearn.parameter_server.shard import Shard, ShardGradient, views, weight_shares

PIECES = {"w": torch.arange(6.0).view(2, 3), "b[0:2]": torch.ones(2)}


def update(gradients, weights=None, lr_factor=1.0):
    weights = weights or [1] * len(gradients)
    pushes = [Push(w, 0, 0, 0, g, weight) for w, (g, weight) in enumerate(zip(gradients, weights, strict=True))]
    return ServerUpdate(tuple(pushes), lr_factor)


def gradients(number, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return [ShardGradient(torch.randn(8, generator=generator)) for _ in range(number)]


@pytest.mark.parametrize("make", [lambda p: torch.optim.AdamW(p, lr=0.1), lambda p: torch.optim.SGD(p, 0.1, 0.9)])
def test_an_update_is_a_step_with_the_weighted_mean(make):
    shard, plain = Shard(PIECES, make), {name: torch.nn.Parameter(piece.clone()) for name, piece in PIECES.items()}
    optimizer = make(plain.values())
    for seed in range(3):
        pushed = gradients(2, seed)
        shard.apply(update(pushed, [3, 1]))
        mean = pushed[0].flat * 0.75 + pushed[1].flat * 0.25
        for name, gradient in views(mean, plain).items():
            plain[name].grad = gradient
        optimizer.step()
    assert all(torch.allclose(shard.parameters[name], plain[name], atol=1e-6) for name in plain)
    assert torch.equal(shard.flat, torch.cat([p.detach().view(-1) for p in shard.parameters.values()]))


def test_a_push_of_no_samples_counts_for_nothing():
    """Its gradient, a mean over nothing, is NaN."""
    shards = [Shard(PIECES, lambda p: torch.optim.SGD(p, lr=1.0)) for _ in range(2)]
    pushed = gradients(2)
    shards[0].apply(update([pushed[0], ShardGradient(torch.full((8,), torch.nan)), pushed[1]], [3, 0, 1]))
    shards[1].apply(update(pushed, [3, 1]))
    assert torch.equal(shards[0].flat, shards[1].flat)


@pytest.mark.parametrize("weights", [[0, 0], [-1, 1], [-1, 2]])
def test_a_step_without_samples_is_refused_with_the_workers(weights):
    shard = Shard(PIECES, lambda p: torch.optim.SGD(p, lr=1.0))
    before = shard.flat.clone()
    with pytest.raises(ValueError, match=rf"the workers pushed weights {{0: {weights[0]}, 1: {weights[1]}}}"):
        shard.apply(update(gradients(2), weights))
    assert torch.equal(shard.flat, before)


def test_the_initial_values_are_copied():
    shard = Shard(PIECES, lambda p: torch.optim.SGD(p, lr=1.0))
    shard.apply(update(gradients(1)))
    assert torch.equal(PIECES["b[0:2]"], torch.ones(2)) and not torch.equal(shard.flat[-2:], torch.ones(2))


@pytest.mark.parametrize("make", [lambda p: torch.optim.Adam(p, lr=0.1), lambda p: torch.optim.SGD(p, lr=0.1)])
def test_half_a_learning_rate_is_half_a_step(make):
    found = []
    for factor in (1.0, 0.5):
        shard = Shard(PIECES, make)
        before = shard.flat.clone()
        shard.apply(update(gradients(1), lr_factor=factor))
        found.append(shard.flat - before)
        assert [group["lr"] for group in shard.optimizer.param_groups] == [0.1]
    assert torch.allclose(found[0], 2 * found[1], atol=1e-6)


def test_the_table_steps_with_the_weighted_mean_of_its_rows():
    table = RowTable(torch.zeros(4, 1), lambda p: torch.optim.SGD(p, lr=1.0))
    shard = Shard(PIECES, lambda p: torch.optim.SGD(p, lr=1.0), table)
    first, second = (
        g._replace(rows=torch.tensor(rows), values=torch.ones(2, 1))
        for g, rows in zip(gradients(2), ([0, 1], [3, 1]), strict=True)
    )
    shard.apply(update([first, second], [1, 3], lr_factor=0.5))
    assert table.weight.view(-1).tolist() == [-0.125, -0.5, 0.0, -0.375]
    shard.apply(update(gradients(1)))  # nobody pushed a row
    assert table.weight.view(-1).tolist() == [-0.125, -0.5, 0.0, -0.375]


def test_shares_of_weights():
    assert weight_shares([7]) == [1.0] and weight_shares([1, 3]) == [0.25, 0.75]


@pytest.mark.parametrize("pieces", [{}, {"a": torch.ones(1), "b": torch.ones(1, dtype=torch.float64)}])
def test_one_dtype_and_at_least_one_tensor(pieces):
    with pytest.raises(ValueError, match="keeps tensors of one dtype on one device; got"):
        Shard(pieces, lambda p: torch.optim.SGD(p, lr=1.0))
