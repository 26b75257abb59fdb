"""The allocator's figures: from numbers on any machine, and beside the ledger on a GPU."""

import pytest
import torch

from dtlearn.memory import Allocation, MemoryLedger, MemoryRecord
from dtlearn.memory.ledger.on_gpu import AllocatorFigures, allocator_figures, figures_of, in_blocks
from dtlearn.models import GPT, next_token_loss

STATS = {
    "requested_bytes.all.current": 1_000,
    "allocated_bytes.all.current": 1_536,
    "reserved_bytes.all.current": 2_097_152,
    "inactive_split_bytes.all.current": 1_048_576,
    "allocated_bytes.all.peak": 4_096,
    "reserved_bytes.all.peak": 2_097_152,
}


def test_the_figures_of_torch():
    figures = figures_of(STATS)
    assert (figures.rounding, figures.cached, figures.fragmentation) == (536, 2_097_152 - 1_536, 0.5)
    assert AllocatorFigures(0, 0, 0, 0, 0, 0).fragmentation == 0


def test_requests_are_rounded_up_to_blocks():
    sizes = (1, 512, 513)
    allocations = tuple(Allocation(n, "inputs", "", "", "", "", 0, None) for n in sizes)
    assert in_blocks(MemoryRecord(allocations, (), 0), 0) == 512 + 512 + 1024


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_without_a_gpu_there_is_no_allocator():
    with pytest.raises(RuntimeError, match="no CUDA device"):
        allocator_figures()


@pytest.mark.gpu
def test_beside_the_ledger():
    torch.manual_seed(0)
    model = GPT().cuda()
    optimizer = torch.optim.Adam(model.parameters(), foreach=False)
    tokens = torch.randint(128, (4, 33), device="cuda")

    def step():
        next_token_loss(model(tokens[:, :-1]), tokens[:, 1:]).backward()
        optimizer.step()

    step()  # cuBLAS takes its workspace
    optimizer.zero_grad()
    torch.cuda.synchronize()
    with MemoryLedger(model, optimizer, inputs=tokens) as ledger:
        before = allocator_figures()
        assert before.requested <= before.allocated <= before.reserved
        start = in_blocks(ledger.record().on("cuda"), 0)
        step()  # also in the thread of autograd that works for the GPU
        record = ledger.record()
        grown = in_blocks(record.on("cuda"), record.clock) - start
        assert allocator_figures().allocated - before.allocated == grown > 0
    assert {a.device for a in record.allocations} == {"cuda:0", "cpu"}  # Adam counts its steps on the CPU
    gradients = [a for a in record.allocations if a.category == "gradients"]
    assert sum(a.bytes for a in gradients) == sum(p.nbytes for p in model.parameters())
    assert any(a.line.startswith("dtlearn/models/gpt.py") for a in gradients if a.operation == "aten::mm")
