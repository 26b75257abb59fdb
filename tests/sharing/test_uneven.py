"""Rows arrive where they were sent to, gradients come back; beside torch's own, and with ranks that have nothing."""

import pytest
import torch
import torch.distributed as dist
from torch.distributed.nn.functional import all_to_all_single

import dtlearn
from dtlearn.sharing.uneven import all_to_all_rows, exchange_numbers
from tests.devices import run_ranks
from tests.sharing.groups import calls_of, in_groups

C = 3


def numbers(size):
    """Rows from i to j. Rank 1 has none, and rank 0 gets none of others but the last."""
    return torch.tensor(
        [[(2 * i + j) % 3 if i != 1 and j != 0 else int(i == size - 1 != 1) for j in range(size)] for i in range(size)]
    )


def exchanged(group):
    rank, size = dist.get_rank(group), dist.get_world_size(group)
    table = numbers(size)
    arriving = exchange_numbers(table[rank].to(dtlearn.device()), group=group)
    assert arriving.tolist() == table[:, rank].tolist()
    send, receive = table[rank].tolist(), arriving.tolist()
    # Row: who sends it, to whom, which one of them.
    rows = [[rank, to, which] for to in range(size) for which in range(send[to])]
    rows = torch.tensor(rows, dtype=torch.float64, device=dtlearn.device()).view(-1, C).requires_grad_()
    out = all_to_all_rows(rows, send, receive, group=group)
    expected = [[i, rank, which] for i in range(size) for which in range(receive[i])]
    assert out.tolist() == expected
    out.square().sum().backward()
    assert torch.equal(rows.grad, 2 * rows)  # each gradient came back to its own row
    return True


def test_rows_arrive_and_gradients_come_back(device):
    sizes = (1, 2, 3, 4) if device == "cpu" else (2,)
    run = run_ranks(in_groups, max(sizes), exchanged, sizes, device=device, record=True)
    assert all(run[0].values()) and set(run[0]) == set(sizes)
    for size in sizes[1:] if device == "cpu" else ():
        table = numbers(size)
        for rank in range(size):
            nbytes = [int(of) * C * 8 for of in (table[rank].sum(), table[:, rank].sum())]
            expected = [("all_to_all_single", amount) for amount in (8 * size, *nbytes)]
            assert calls_of(run.record, size, rank)[: len(expected)] == expected


def test_a_group_of_one_sends_nothing():
    run = run_ranks(in_groups, 1, exchanged, (1,), device="cpu", record=True)
    assert not run.record.select(op="all_to_all_single").events


def beside_torch():
    rank, size = dist.get_rank(), dist.get_world_size()
    send, receive = numbers(size)[rank].tolist(), numbers(size)[:, rank].tolist()
    found = []
    for way in ("ours", "torch's"):
        torch.manual_seed(rank)
        rows = torch.randn(sum(send), C, dtype=torch.float64, requires_grad=True)
        if way == "ours":
            out = all_to_all_rows(rows, send, receive)
        else:
            out = all_to_all_single(rows.new_empty(sum(receive), C), rows, receive, send)
        out.sin().sum().backward()
        found.append((out.detach(), rows.grad))
    return all(torch.equal(a, b) for a, b in zip(*found, strict=True))


def test_it_is_torchs():
    assert all(run_ranks(beside_torch, 3, device="cpu").values)


def differentiated_twice():
    send, receive = [1, 1], [1, 1]
    rows = torch.full((2, 1), 3.0, dtype=torch.float64, requires_grad=True)
    out = all_to_all_rows(rows, send, receive).pow(3).sum()
    (gradient,) = torch.autograd.grad(out, rows, create_graph=True)
    gradient.sum().backward()
    return rows.grad.flatten().tolist()


def test_a_gradient_can_be_differentiated_again():
    assert run_ranks(differentiated_twice, 2, device="cpu").values == [[18.0, 18.0]] * 2


def refused():
    rows = torch.zeros(3, C)
    with pytest.raises(ValueError, match=r"send=\[1, 1\] is 2 rows; there are 3"):
        all_to_all_rows(rows, [1, 1], [1, 1])
    with pytest.raises(ValueError, match="expected a number of rows for each of 2 ranks; got 3 to send, 2 to receive"):
        all_to_all_rows(rows, [1, 1, 1], [1, 1])
    with pytest.raises(ValueError, match="expected a row of numbers for each of 2 ranks; got 3 rows"):
        exchange_numbers(torch.zeros(3, 2, dtype=torch.int64))


def test_numbers_that_do_not_fit_are_refused():
    run_ranks(refused, 2, device="cpu")
