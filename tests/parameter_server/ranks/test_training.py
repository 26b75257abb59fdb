"""The two protocols: equal where a rule forbids staleness; what the pipelined one costs where it does not."""

import pytest
import torch
import torch.nn.functional as F

from dtlearn.parameter_server.consistency import Asynchronous, BoundedStaleness, Synchronous
from dtlearn.parameter_server.ranks.training import train_pipelined, train_request_response
from dtlearn.runtime.run import run_ranks
from tests.parameter_server.runs import TOLERANCE, batch, flat_of, make_model, reference, train

STEPS = 5
LOOPS = {"request-response": train_request_response, "pipelined": train_pipelined}


def run_loop(loop, rule, optimizer="sgd"):
    return train(1, STEPS, optimizer, rule, loop=LOOPS[loop])


@pytest.mark.parametrize("loop", LOOPS)
@pytest.mark.parametrize("rule", [Synchronous(), BoundedStaleness(0)])
def test_synchronous_is_the_large_batch_under_both(loop, rule):
    run = run_ranks(run_loop, 3, loop, rule, "adam")
    assert float((flat_of(run) - reference(2, STEPS, "adam")[-1]).abs().max()) < TOLERANCE
    assert all(entry.staleness == 0 for entry in run[0][1])


@pytest.mark.parametrize("rule", [Asynchronous(), BoundedStaleness(1)])
def test_a_pipelined_worker_lacks_its_own_last_update(rule):
    run = run_ranks(run_loop, 2, "pipelined", rule)
    assert [entry.staleness for entry in run[0][1]] == [0] + [1] * (STEPS - 1)
    expected = delayed(STEPS)
    assert float((flat_of(run) - expected).abs().max()) < TOLERANCE
    answered = run_ranks(run_loop, 2, "request-response", rule)
    assert torch.equal(flat_of(answered), reference(1, STEPS)[-1])


def delayed(steps):
    """SGD whose gradients are those of the parameters one update before."""
    model = make_model()
    flat = torch.cat([p.detach().view(-1) for p in model.parameters()])
    pulled = [flat, flat]
    for number in range(steps):
        torch.nn.utils.vector_to_parameters(pulled[number], model.parameters())
        model.zero_grad()
        x, y = batch(0, number)
        F.cross_entropy(model(x), y).backward()
        flat = flat - 0.1 * torch.cat([p.grad.view(-1) for p in model.parameters()])
        pulled.append(flat)
    return flat


def order_of_calls(loop):
    """What one worker does in the record: q asks, p has received parameters, g sends a gradient."""
    run = run_ranks(run_loop, 2, loop, Asynchronous(), record=True)
    assert run.advice == ()
    events = [e for e in run.record.select(rank=1) if e.is_p2p]
    text, size = "", max(e.nbytes for e in events)
    for event in sorted(events, key=lambda e: e.end_ns):
        if event.nbytes == size:
            text += "g" if event.sends else "p"
        elif event.sends:
            text += "h"
    return text.replace("hg", "g").replace("h", "q")


def test_only_the_order_differs():
    assert order_of_calls("request-response") == "qpg" * STEPS + "q"  # at the end it says that it is done
    assert order_of_calls("pipelined") == "qp" + "qgp" * (STEPS - 1) + "gq"


def computes_long(loop, store):
    """Worker 0 has its first gradient when worker 1 is done."""
    waits = {(0, 0): f"applied {STEPS}"}
    return train(1, STEPS, rule=Asynchronous(), loop=LOOPS[loop], store=store, waits=lambda *which: waits.get(which))


@pytest.mark.parametrize("loop", LOOPS)
def test_a_server_does_not_wait_for_a_worker_that_computes(loop, tmp_path):
    log = run_ranks(computes_long, 3, loop, f"{tmp_path}/store", timeout=60)[0][1]
    assert [entry.worker for entry in log] == [1] * STEPS + [0] * STEPS
