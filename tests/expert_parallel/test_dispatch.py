import torch

from dtlearn.expert_parallel.dispatch import RowExchange, combine, exchange_counts, plan_dispatch
from tests.devices import run_ranks

EXPERTS = torch.tensor([[3, 0], [0, 1], [2, 0]])


def test_a_plan_is_sorted_by_expert_then_by_token():
    plan = plan_dispatch(EXPERTS, torch.ones_like(EXPERTS, dtype=torch.bool), 4)
    assert plan.choices.tolist() == [1, 2, 5, 3, 4, 0]
    assert plan.tokens.tolist() == [0, 1, 2, 1, 2, 0]
    assert plan.load.tolist() == [3, 1, 1, 1]


def test_dropped_choices_have_no_row():
    kept = torch.tensor([[True, False], [True, True], [False, True]])
    plan = plan_dispatch(EXPERTS, kept, 4)
    assert plan.choices.tolist() == [2, 5, 3, 0] and plan.load.tolist() == [2, 1, 0, 1]
    weights = torch.tensor([[0.5, 0.5], [0.25, 0.75], [0.5, 0.5]])
    rows = torch.tensor([[1.0], [2.0], [4.0], [8.0]])
    assert combine(rows, plan, weights).tolist() == [[4.0], [3.25], [1.0]]


def test_each_token_gets_its_own_back():
    tokens = torch.arange(3.0).view(3, 1) + 1
    plan = plan_dispatch(EXPERTS, torch.ones_like(EXPERTS, dtype=torch.bool), 4)
    assert torch.equal(combine(tokens[plan.tokens], plan, torch.full((3, 2), 0.5)), tokens)


def test_sums_are_in_the_format_of_the_weights():
    experts = torch.zeros(1, 256, dtype=torch.int64)
    plan = plan_dispatch(experts, experts == 0, 1)
    rows = torch.full((256, 1), 1.0078125, dtype=torch.bfloat16)
    assert combine(rows, plan, torch.ones(1, 256)).item() == 258.0  # added up in bf16 it would be 256


def test_rows_by_rank_are_sorted_by_expert():
    exchange = RowExchange([], [], torch.tensor([[1, 2], [2, 0], [0, 1]]))  # from ranks 0, 1, 2 for two experts
    assert exchange.by_expert.tolist() == [0, 3, 4, 1, 2, 5]
    assert exchange.load == [3, 3]


def counts():
    load = torch.tensor([1, 2, 3, 4]) if torch.distributed.get_rank() == 0 else torch.tensor([0, 0, 0, 5])
    exchange = exchange_counts(load)
    return exchange.send, exchange.receive, exchange.load, exchange.arriving.tolist()


def test_counts_of_two_ranks():
    assert run_ranks(counts, 2, device="cpu").values == [
        ([3, 7], [3, 0], [1, 2], [[1, 2], [0, 0]]),
        ([0, 5], [7, 5], [3, 9], [[3, 4], [0, 5]]),
    ]
