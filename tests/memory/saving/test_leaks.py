"""What a loop keeps: bytes per step by the ledger, nodes of the graph, and the same loops mended."""

import pytest
import torch

from dtlearn.memory import StorageLedger
from dtlearn.memory.saving.leaks import (
    LEAKS,
    MENDED,
    growth_by_line,
    growth_per_step,
    live_after_each,
    num_graph_nodes,
    train_step,
)
from dtlearn.models import next_token_loss
from tests.memory.saving.runs import gpt, same, tokens

BATCH = tokens()


def loop(step):
    """What is called once per step, and the list that outlives it."""
    model, kept = gpt(), []
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    return lambda: step(model, optimizer, BATCH, next_token_loss, kept), kept


def activations():
    """Bytes that live while the loss of one forward pass does."""
    model = gpt()
    with StorageLedger() as ledger:
        loss = next_token_loss(model(BATCH[0]), BATCH[1])
        before = ledger.now
        del loss
        return before - ledger.now


def growth(steps, name):
    call, _ = loop(steps[name])
    return growth_per_step(call)


def test_what_each_leak_adds():
    logits, kept = 8 * 16 * 32 * 4, activations()  # float32
    found = {name: growth(LEAKS, name) for name in LEAKS}
    assert found == {
        "the loss": 4.0,
        "the loss of a retained graph": kept,
        "the outputs": logits,
        "a validation loss": kept,
    }
    assert kept > 30 * logits


@pytest.mark.parametrize("name", LEAKS)
def test_mended_nothing_grows(name):
    assert growth(MENDED, name) == 0.0


def test_a_kept_loss_keeps_its_graph_also_after_backward():
    call, kept = loop(LEAKS["the loss"])
    call()
    call()
    assert num_graph_nodes(kept[0]) == num_graph_nodes(kept[1]) > 100
    assert num_graph_nodes(kept[0].detach()) == 0
    weight = torch.ones(1, requires_grad=True)
    assert num_graph_nodes((weight * 2 + weight).sum()) == 4  # sum, add, mul, and the weight's accumulator
    total = sum(kept)  # two graphs that share the weights' accumulators
    assert num_graph_nodes(kept[0]) < num_graph_nodes(total) < 2 * num_graph_nodes(kept[0]) + 2


def test_leaks_train_as_their_mended_loops():
    runs = []
    for steps in (LEAKS, MENDED):
        model = gpt()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for name in steps:
            steps[name](model, optimizer, BATCH, next_token_loss, [])
        runs.append(dict(model.named_parameters()))
    assert same(*runs)


def test_live_bytes_are_those_that_the_steps_made():
    before, kept = torch.ones(1000), []
    assert live_after_each(lambda: kept.append(torch.ones(10)), 3) == [40, 80, 120]
    assert growth_per_step(lambda: kept.append(before.view(10, 100)), 3) == 0.0
    assert growth_per_step(lambda: kept.append(before[:10].clone()), 3) == 40.0


def test_the_first_steps_do_not_count():
    model = gpt()
    optimizer = torch.optim.Adam(model.parameters())
    assert growth_per_step(lambda: train_step(model, optimizer, BATCH, next_token_loss)) == 0.0


@pytest.mark.parametrize("name", LEAKS)
def test_the_lines_that_made_what_stays(name):
    call, _ = loop(LEAKS[name])
    found = growth_by_line(call)
    assert sum(found.values()) == growth(LEAKS, name)
    assert list(found.values()) == sorted(found.values(), reverse=True)
    assert all("gpt.py:" in line for line in found)
    call, _ = loop(MENDED[name])
    assert growth_by_line(call) == {}


@pytest.mark.parametrize("measured", [growth_per_step, growth_by_line])
@pytest.mark.parametrize(("num_steps", "warm"), [(0, 2), (4, 0)])
def test_growth_needs_two_points(measured, num_steps, warm):
    with pytest.raises(ValueError, match="a step before and a step after"):
        measured(lambda: None, num_steps, warm)
