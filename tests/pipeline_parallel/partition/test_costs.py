import pytest
import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from dtlearn.models import GPT, GPTConfig
from dtlearn.pipeline_parallel.partition import costs
from dtlearn.pipeline_parallel.partition.optimum import by_cost, by_stage_cost

CONFIG = GPTConfig(vocab_size=32, context_length=8, num_layers=3, num_heads=2, hidden_size=16)
TOKENS = torch.randint(32, (2, 8))  # (B, T)


def test_the_links_of_a_gpt_are_the_model():
    model = GPT(CONFIG)
    x = TOKENS
    for link in costs.gpt_links(model):
        x = link(x)
    assert torch.equal(x, model(TOKENS))
    counts = costs.parameter_counts(costs.gpt_links(model))
    assert sum(counts) == CONFIG.num_parameters and counts[0] == (32 + 8) * 16 and counts[1] == counts[2] == counts[3]
    assert counts[1] == 12 * 16**2 + 13 * 16


def test_a_tied_weight_counts_at_both_ends():
    tied = GPTConfig(**{**CONFIG.__dict__, "tie_embeddings": True})
    assert costs.parameter_counts(costs.gpt_links(GPT(tied))) == costs.parameter_counts(costs.gpt_links(GPT(CONFIG)))


@pytest.mark.parametrize("length", [8, 5])
def test_flops_are_those_that_torch_counts(length):
    model, tokens = GPT(CONFIG), torch.randint(32, (1, length))
    counted = []
    x = tokens
    for link in costs.gpt_links(model):
        with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH), FlopCounterMode(display=False) as mode:
            x = link(x)
        counted.append(mode.get_total_flops())
    assert costs.gpt_flops(CONFIG, length) == counted


def test_gpt_2_small_has_a_head_of_five_blocks():
    small = GPTConfig(vocab_size=50257, context_length=1024, num_layers=12, num_heads=12, hidden_size=768)
    flops = costs.gpt_flops(small)
    assert flops[0] == 0 and round(flops[-1] / flops[1], 1) == 4.5
    assert by_cost(flops, 4) == (0, 5, 9, 13, 14)


def test_bytes_that_are_kept_are_in_the_link_that_saves_them():
    links = [nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 2)]
    # The input for the first weight's gradient; tanh's output, which is the last layer's input too.
    assert costs.saved_bytes(links, torch.zeros(3, 4)) == [3 * 4 * 4, 3 * 8 * 4, 0]
    links = costs.gpt_links(GPT(CONFIG))
    one, two = (costs.saved_bytes(links, TOKENS[:rows]) for rows in (1, 2))
    assert len(one) == 5 and all(0 < a < b for a, b in zip(one, two, strict=True)) and one[1] == one[2] == one[3]


def test_memory_of_1f1b_makes_early_stages_shorter():
    state, saved = [16] * 8, [100] * 8
    cost = costs.stage_memory(state, saved, num_stages=4, num_microbatches=8)
    assert cost(0, 0, 1) == 16 + 4 * 100 and cost(3, 0, 2) == 2 * 16 + 2 * 100
    boundaries = by_stage_cost(cost, 8, 4)
    assert boundaries == (0, 1, 2, 4, 8)
    few = costs.stage_memory(state, saved, num_stages=4, num_microbatches=2)
    assert few(0, 0, 1) == 16 + 2 * 100


def test_seconds_grow_with_work_and_gradients_stay_as_they_are():
    torch.manual_seed(0)
    links = [nn.Embedding(16, 512), nn.Linear(512, 8), nn.Sequential(nn.Linear(8, 1024), nn.Linear(1024, 1024))]
    links[1].weight.grad = torch.ones(8, 512)
    seconds = costs.measure_seconds(links, torch.randint(16, (256,)), rounds=3)
    assert len(seconds.forward) == len(seconds.backward) == len(seconds.total) == 3
    assert all(value > 0 for value in (*seconds.forward, *seconds.backward))
    assert seconds.total[2] == seconds.forward[2] + seconds.backward[2] > seconds.total[1]
    assert torch.equal(links[1].weight.grad, torch.ones(8, 512)) and links[0].weight.grad is None
