"""The core plays what the schedule says, and keeps nothing; a stage on the same rank gets what the one before made."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from dtlearn.pipeline_parallel import parse_schedule, with_communication
from dtlearn.pipeline_parallel.runner.microbatches import cut
from dtlearn.pipeline_parallel.runner.play import play
from dtlearn.pipeline_parallel.runner.stage import ForwardOnlyStage, PipelineStage
from dtlearn.pipeline_parallel.runner.transfers import Transfers

# Two stages on one rank, the second one's backward passes in two parts or not.
SCHEDULES = ["0F0 1F0 0F1 1F1 1B0 0B0 1B1 0B1", "0F0 0F1 1F1 1F0 1I1 1I0 1W0 0B0 0B1 1W1"]


def layers():
    torch.manual_seed(0)
    return [nn.Linear(3, 3), nn.Sequential(nn.Tanh(), nn.Linear(3, 2))]


def played(text, stages, x, y):
    schedule = parse_schedule(text, placement=(0, 0))
    transfers = Transfers(0, None, torch.device("cpu"))
    results = play(schedule, with_communication(schedule)[0], stages, transfers, cut(schedule, 0, x, y))
    return results, transfers


@pytest.mark.parametrize("text", SCHEDULES)
def test_gradients_are_those_of_the_mean_loss(text):
    x, y = torch.randn(5, 3), torch.randint(2, (5,))
    first, second = layers()
    F.cross_entropy(second(first(x)), y).backward()
    mine = layers()
    stages = {
        0: PipelineStage(mine[0], is_first=True),
        1: PipelineStage(mine[1], loss_fn=F.cross_entropy, splits_backward=True),
    }
    results, transfers = played(text, stages, x, y)
    for module, whole in zip(mine, (first, second), strict=True):
        for parameter, other in zip(module.parameters(), whole.parameters(), strict=True):
            assert torch.allclose(parameter.grad, other.grad, rtol=0, atol=1e-6)
    assert results.keys() == {0, 1} and not transfers._tensors and not any(stage.live for stage in stages.values())


def test_forward_passes_alone_give_losses_and_no_gradients():
    x, y = torch.randn(4, 3), torch.randint(2, (4,))
    mine = layers()
    stages = {n: ForwardOnlyStage(PipelineStage(m, loss_fn=F.cross_entropy if n else None)) for n, m in enumerate(mine)}
    results, _ = played("0F0 1F0 0F1 1F1", stages, x, y)
    expected = F.cross_entropy(mine[1](mine[0](x)), y)
    assert torch.allclose((results[0] + results[1]) / 2, expected) and mine[0].weight.grad is None


def test_an_error_says_in_which_action_it_came():
    class Fails(nn.Module):
        def forward(self, x):
            raise ValueError("no")

    stages = {0: PipelineStage(nn.Identity(), is_first=True), 1: PipelineStage(Fails())}
    with pytest.raises(ValueError, match="no") as error:
        played(SCHEDULES[0], stages, torch.randn(4, 3), torch.zeros(4))
    assert "rank 0 of the pipeline was in action 1F0: stage 1, micro-batch 0" in error.value.__notes__[0]
