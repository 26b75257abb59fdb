import pytest
import torch

from dtlearn.expert_parallel.experts import Experts
from dtlearn.expert_parallel.traffic import kept_elements
from dtlearn.models.gpt import FeedForward, GPTConfig

C = 8


def stacked_and_apart(num_experts=3):
    networks = [FeedForward(GPTConfig(hidden_size=C)) for _ in range(num_experts)]
    experts = Experts(num_experts, C, 4 * C)
    with torch.no_grad():
        for e, network in enumerate(networks):
            experts.up_weight[e], experts.up_bias[e] = network.up.weight, network.up.bias
            experts.down_weight[e], experts.down_bias[e] = network.down.weight, network.down.bias
    return experts.double(), [network.double() for network in networks]


@pytest.mark.parametrize("counts", [[2, 3, 1], [0, 4, 0], [0, 0, 0]])
def test_each_is_a_feed_forward_network(counts):
    experts, networks = stacked_and_apart()
    rows = torch.randn(sum(counts), C, dtype=torch.float64)
    out = experts(rows, counts)
    assert torch.equal(out, torch.cat([f(own) for f, own in zip(networks, rows.split(counts), strict=True)]))
    out.square().sum().backward()
    for e, (network, count) in enumerate(zip(networks, counts, strict=True)):
        network(rows.split(counts)[e]).square().sum().backward()
        torch.testing.assert_close(experts.up_weight.grad[e], network.up.weight.grad)
        torch.testing.assert_close(experts.down_bias.grad[e], network.down.bias.grad)
        assert (experts.up_weight.grad[e].abs().sum() > 0).item() is (count > 0)


@pytest.mark.parametrize("counts", [[2, 2], [2, 2, 1]])
def test_counts_of_other_rows_are_refused(counts):
    experts, _ = stacked_and_apart()
    with pytest.raises(ValueError, match="expected counts of 3 experts that add up to 4 rows"):
        experts(torch.randn(4, C, dtype=torch.float64), counts)


def test_what_is_kept_for_backward_is_the_formula():
    experts, _ = stacked_and_apart()
    rows = torch.randn(6, C, dtype=torch.float64, requires_grad=True)
    own, kept = {p.untyped_storage().data_ptr() for p in experts.parameters()}, {}

    def keep(tensor):
        if tensor.untyped_storage().data_ptr() not in own:
            kept[tensor.data_ptr()] = tensor.numel()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        out = experts(rows, [2, 3, 1])
    assert sum(kept.values()) == kept_elements(6, C) and out.shape == (6, C)
