"""Tensors arrive where they are needed; shapes are told once; another shape later is an error that says where."""

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn

from dtlearn.pipeline_parallel import Action, make_schedule
from dtlearn.pipeline_parallel.runner.runner import PipelineRunner
from dtlearn.pipeline_parallel.runner.transfers import Transfers
from dtlearn.runtime.run import run_ranks
from tests.pipeline_parallel.runner.pipelines import pipeline
from tests.pipeline_parallel.runs import batches, message_of

P, M, ROWS, WIDTH_BYTES, ROUNDS = 3, 4, 10, 6 * 8, 2


def train_and_evaluate():
    """Two steps, then an evaluation of another size and a prediction."""
    runner = pipeline("sequential", "1f1b", P, M)
    for inputs, targets in batches("sequential", ROWS, ROUNDS):
        runner.step(inputs, targets)
    ((inputs, targets),) = batches("sequential", 5, 1)
    runner.evaluate(inputs, targets)
    runner.predict(inputs)


def sent(record, rank):
    return [(event.peer, event.nbytes) for event in record.select(rank=rank) if event.sends]


def test_messages_and_bytes_are_the_formula():
    record = run_ranks(train_and_evaluate, P, device="cpu", record=True).record
    batch, headers = ROWS * WIDTH_BYTES, M * 88
    for rank in range(P):
        to_next = [nbytes for peer, nbytes in sent(record, rank) if peer == rank + 1]
        back = [nbytes for peer, nbytes in sent(record, rank) if peer == rank - 1]
        assert len(to_next) == ((ROUNDS + 1 + 2 * 2) * M if rank < P - 1 else 0)  # each step, headers of the first, ...
        assert sum(to_next) == (ROUNDS * batch + headers + 2 * (5 * WIDTH_BYTES + headers) if rank < P - 1 else 0)
        assert (len(back), sum(back)) == ((ROUNDS * M, ROUNDS * batch) if rank else (0, 0))
    assert {event.op for event in record} == {"all_gather", "isend", "irecv", "send", "recv"}


class Grows(nn.Module):
    """Its third output has another shape."""

    def __init__(self):
        super().__init__()
        self.weight, self.calls = nn.Parameter(torch.ones(())), 0

    def forward(self, x):
        self.calls += 1
        return x.repeat(1, 2) * self.weight if self.calls == 4 else x * self.weight


def larger_batch():
    runner = pipeline("sequential", "gpipe", 2, 2)
    losses = []
    for rows in (4, 7):
        ((inputs, targets),) = batches("sequential", rows, 1)
        losses.append(runner.step(inputs, targets).loss)
        runner.forget_shapes()
    return losses


def test_a_stage_whose_output_changes_shape_is_named():
    message = run_ranks(changed_shape, 2, device="cpu", timeout=30).values[0]
    assert (
        "stage 0 made an output of (2, 6), torch.float32 for micro-batch 1; in the first step it was (2, 3)" in message
    )
    assert "rank 0 of the pipeline was in an exchange, in which it sends to rank 1 what 1F1 needs" in message


def changed_shape():
    """Rank 0 fails in its second step, while it sends; rank 1 receives by hand what comes before the error."""
    stages, x = [Grows(), nn.Linear(3, 3)], torch.ones(4, 3)
    runner = PipelineRunner(make_schedule("gpipe", 2, 2), stages, F.mse_loss)
    runner.step(x, x)
    if dist.get_rank() == 0:
        return message_of(lambda: runner.step(x, x))
    dist.recv(torch.empty(2, 3), 0)
    return None


def test_a_batch_of_another_size_after_the_shapes_are_forgotten():
    for losses in run_ranks(larger_batch, 2, device="cpu").values[1:]:
        assert all(torch.isfinite(loss) for loss in losses) and len(losses) == 2


def test_what_stays_on_a_rank_is_handed_over():
    transfers, action, tensor = Transfers(0, None, torch.device("cpu")), Action.parse("1F0"), torch.ones(2)
    transfers.put(action, tensor)
    assert transfers.take(action) is tensor
    transfers.put(action, tensor)
    transfers.drop()
    assert message_of(lambda: transfers.take(action)).startswith("KeyError")
