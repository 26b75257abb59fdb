"""Rows by server, and optimizers that step on the rows of a batch: equal to the whole table under torch's own."""

import pytest
import torch

from dtlearn.parameter_server.row_table import RowPlacement, RowTable, RowwiseAdagrad

OPTIMIZERS = {
    "sgd": lambda p: torch.optim.SGD(p, lr=0.1),
    "adagrad": lambda p: torch.optim.Adagrad(p, lr=0.1),
    "adam": lambda p: torch.optim.SparseAdam(p, lr=0.1),
}


def steps(num=4, seed=0):
    """Rows and gradients of some steps, rows of 10."""
    generator = torch.Generator().manual_seed(seed)
    for _ in range(num):
        rows = torch.randperm(10, generator=generator)[:3]
        yield rows, torch.randn(3, 2, generator=generator, dtype=torch.float64)


def whole(seed=1):
    return torch.randn(10, 2, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_two_servers_are_one_table(optimizer):
    embedding = torch.nn.Embedding(10, 2, sparse=True, _weight=whole())
    reference = OPTIMIZERS[optimizer](embedding.parameters())
    placement = RowPlacement(10, 2, 2)
    tables = [RowTable(whole()[server::2].clone(), OPTIMIZERS[optimizer]) for server in (0, 1)]
    for rows, gradients in steps():
        with torch.sparse.check_sparse_tensor_invariants(False):
            embedding.zero_grad()
            (embedding(rows) * gradients).sum().backward()
            reference.step()
        for table, place in zip(tables, placement.split(rows), strict=True):
            table.step(rows[place] // 2, gradients[place])  # also where there is no row: Adam's count of steps goes on
    merged = torch.stack([table.weight for table in tables], 1).view(10, 2)
    assert torch.equal(merged, embedding.weight)


def test_rowwise_adagrad_is_adagrad_of_the_mean_square():
    table, weight, sums = RowTable(whole(), lambda p: RowwiseAdagrad(p, lr=0.1)), whole(), torch.zeros(10)
    for rows, gradients in steps():
        table.step(rows, gradients)
        for row, gradient in zip(rows.tolist(), gradients, strict=True):
            sums[row] += gradient.pow(2).mean().item()
            weight[row] -= 0.1 * gradient / sums[row].sqrt()
    assert torch.allclose(table.weight, weight, atol=1e-6, rtol=0)
    state = table.optimizer.state[table.weight]["sum"]
    assert state.shape == (10,) and table.weight.grad is None


def test_of_equal_rows_the_sum_counts_and_others_stay():
    table = RowTable(torch.zeros(4, 2), OPTIMIZERS["sgd"])
    table.step(torch.tensor([1, 3, 1]), torch.ones(3, 2), lr_factor=0.5)
    assert torch.allclose(table.weight, torch.tensor([[0.0], [-0.1], [0.0], [-0.05]]).expand(4, 2))


def test_every_row_has_a_server_and_a_place_there():
    placement = RowPlacement(7, 1, 3)
    assert [placement.rows_of(server) for server in range(3)] == [3, 2, 2]
    rows = torch.tensor([6, 1, 0, 4])
    assert [rows[place].tolist() for place in placement.split(rows)] == [[6, 0], [1, 4], []]


@pytest.mark.parametrize(
    ("rows", "says"), [([7], "rows are 0 to 6; got 7 to 7"), ([-1, 2], "got -1 to 2"), ([2, 2], "asked for twice")]
)
def test_rows_that_are_not_there_or_twice(rows, says):
    with pytest.raises(ValueError, match=says):
        RowPlacement(7, 1, 3).split(torch.tensor(rows))


def test_a_table_needs_a_row_for_each_server():
    with pytest.raises(ValueError, match="2 rows of 4 elements cannot be divided over 3 servers"):
        RowPlacement(2, 4, 3)
