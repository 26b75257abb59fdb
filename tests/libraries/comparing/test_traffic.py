"""Rows of a record: phases, kinds, sizes in order, and what a ring makes of them."""

import pytest
import torch
import torch.distributed as dist

from dtlearn.libraries.comparing.traffic import Traffic, group_size, total_wire_bytes, traffic
from dtlearn.runtime.recording.phases import phase
from dtlearn.runtime.run import run_ranks


def two_steps():
    for number in range(2):
        with phase(f"step {number}"):
            with phase("backward"):
                dist.all_reduce(torch.ones(4))
                dist.all_reduce(torch.ones(2))
            with phase("update"), phase("step"):
                dist.all_gather_into_tensor(torch.empty(6), torch.ones(3))
            with phase("report"):
                dist.all_reduce(torch.ones(1))
    dist.barrier()


def test_a_step_is_a_row_for_each_kind():
    record = run_ranks(two_steps, 2, device="cpu", record=True).record
    rows = traffic(record, "step 1", 1)
    assert rows == (
        Traffic("backward", "all_reduce", 2, "float32", "SUM", (16, 8)),
        Traffic("update", "all_gather_into_tensor", 2, "float32", "", (12,)),
    )
    assert [row.calls for row in rows] == [2, 1] and rows[0].nbytes == 24
    with pytest.raises(ValueError, match="no phase 'step 2'"):
        traffic(record, "step 2", 1)


@pytest.mark.parametrize(
    ("op", "n", "payload", "sent"),
    [
        ("all_reduce", 4, 100, 150),
        ("reduce_scatter_tensor", 4, 100, 75),
        ("all_gather_into_tensor", 4, 25, 75),
        ("reduce", 4, 100, 75),
        ("isend", 2, 100, 100),
        ("irecv", 2, 100, 0),
        ("all_reduce", 1, 100, 0),
    ],
)
def test_bytes_in_a_ring(op, n, payload, sent):
    row = Traffic("", op, n, "float32", "", (payload,))
    assert row.wire_bytes == sent == total_wire_bytes([row])


def test_the_size_of_a_group():
    assert [group_size(group, 8) for group in ("world", "0,2", "3", "unknown")] == [8, 2, 1, 8]
