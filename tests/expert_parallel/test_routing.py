import pytest
import torch

from dtlearn.expert_parallel.routing import count_choices, expert_capacity, places_in_line, route

LOGITS = torch.tensor([[3.0, 2.0, 0.0], [3.0, 1.0, 2.0], [3.0, 2.5, 0.0], [0.0, 1.0, 2.0]], dtype=torch.float64)


def test_top_k_with_weights_that_add_up_to_1_and_without():
    p = LOGITS.softmax(-1)
    plain, added_up = (route(LOGITS, 2, renormalise=renormalise) for renormalise in (False, True))
    assert plain.experts.tolist() == added_up.experts.tolist() == [[0, 1], [0, 2], [0, 1], [2, 1]]
    assert torch.equal(plain.weights, p.gather(1, plain.experts))
    torch.testing.assert_close(added_up.weights.sum(1), torch.ones(4, dtype=torch.float64))
    torch.testing.assert_close(
        added_up.weights[:, 0] / added_up.weights[:, 1], p.sort().values[:, 2] / p.sort().values[:, 1]
    )
    assert plain.kept.all() and plain.num_dropped == 0
    assert plain.load().tolist() == [3, 3, 2] and plain.num_experts == 3


def test_the_softmax_of_the_chosen_logits_is_the_renormalised_weight():
    torch.testing.assert_close(route(LOGITS, 2, renormalise=True).weights, LOGITS.topk(2).values.softmax(-1))


def test_first_choices_have_their_places_before_second_ones():
    experts = torch.tensor([[1, 0], [0, 1], [0, 1]])  # token 0's second choice is expert 0, after both first ones
    assert places_in_line(experts, 2).tolist() == [[0, 2], [0, 1], [1, 2]]


def test_over_capacity_the_later_choices_are_dropped():
    routing = route(LOGITS, 2, renormalise=True, capacity=2)
    assert routing.kept.tolist() == [[True, True], [True, True], [False, True], [True, False]]
    assert routing.num_dropped == 2
    assert routing.load().tolist() == [3, 3, 2] and routing.load(kept=True).tolist() == [2, 2, 2]


def test_places_are_those_of_a_loop():
    experts = torch.stack([torch.randperm(5)[:3] for _ in range(40)])
    taken, expected = [0] * 5, torch.empty_like(experts)
    for choice in range(3):
        for token in range(40):
            expert = experts[token, choice]
            expected[token, choice] = taken[expert]
            taken[expert] += 1
    assert torch.equal(places_in_line(experts, 5), expected)


@pytest.mark.parametrize(
    ("tokens", "experts", "top_k", "factor", "capacity"),
    [
        (8, 4, 1, 1.0, 2),
        (8, 4, 2, 1.0, 4),
        (10, 4, 1, 1.0, 3),
        (8, 4, 1, 1.25, 3),
        (10, 1, 1, 1.1, 11),
        (0, 4, 2, 1.0, 0),
    ],
)
def test_capacity(tokens, experts, top_k, factor, capacity):
    assert expert_capacity(tokens, experts, top_k, factor) == capacity


def test_a_selection_bias_changes_the_choice_and_no_weight():
    bias = torch.tensor([-1.0, 0.0, 0.0])
    routing = route(LOGITS, 1, renormalise=False, selection_bias=bias)
    assert routing.experts.flatten().tolist() == [1, 2, 1, 2]
    assert torch.equal(routing.weights, LOGITS.softmax(-1).gather(1, routing.experts))


def test_weights_have_a_gradient_and_renormalised_ones_of_one_choice_none():
    for top_k, renormalise, learns in ((1, False, True), (1, True, False), (2, True, True)):
        logits = LOGITS.clone().requires_grad_()
        route(logits, top_k, renormalise=renormalise).weights[:, 0].sum().backward()
        assert (logits.grad.abs().max().item() > 1e-3) is learns


def test_nothing_chosen_is_counted_too():
    assert count_choices(torch.tensor([[2, 0], [2, 1]]), 4).tolist() == [1, 1, 2, 0]
    assert count_choices(torch.empty(0, 2, dtype=torch.int64), 3).tolist() == [0, 0, 0]
