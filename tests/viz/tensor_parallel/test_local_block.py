import pytest
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard, distribute_tensor

from dtlearn import run_ranks
from dtlearn.viz.tensor_parallel.local_block import LocalBlock, check_fit, local_block


def blocks_of_three_ranks():
    """States of a matrix of 4 x 2; three ranks divide neither dim evenly."""
    mesh = init_device_mesh("cpu", (3,))
    whole = torch.arange(8.0).reshape(4, 2)
    rows = distribute_tensor(whole, mesh, [Shard(0)])
    partial = DTensor.from_local(whole, mesh, [Partial()])
    states = [rows, rows.redistribute(mesh, [Replicate()]), distribute_tensor(whole, mesh, [Shard(1)]), partial]
    with pytest.raises(ValueError, match="a matrix is drawn"):
        local_block(distribute_tensor(torch.ones(3), mesh, [Shard(0)]))
    return dist.get_rank(), [local_block(state) for state in states]


def test_blocks_are_where_torch_puts_them():
    values = run_ranks(blocks_of_three_ranks, 3).values
    rows, whole, columns, partial = zip(*(blocks for _, blocks in values), strict=True)
    assert [block.placements for block in (rows[0], whole[0], columns[0], partial[0])] == [
        ("Shard(0)",), ("Replicate()",), ("Shard(1)",), ("Partial()",)
    ]  # fmt: skip
    assert [(block.offset, block.rows) for block in rows] == [
        ((0, 0), ((0, 1), (2, 3))), ((2, 0), ((4, 5), (6, 7))), ((4, 0), ())
    ]  # fmt: skip
    assert [block.offset for block in columns] == [(0, 0), (0, 1), (0, 2)]
    assert columns[1].rows == ((1,), (3,), (5,), (7,))
    assert all(block.offset == (0, 0) and len(block.rows) == 4 for block in (*whole, *partial))
    assert partial[0].is_partial and not whole[0].is_partial
    assert rows[0].at_ns < partial[0].at_ns


def test_notation():
    def words(*placements, axes=("t",)):
        return LocalBlock(placements, axes, (4, 4), (0, 0), (), 0).notation()

    assert words("Shard(0)") == "Y[T_t, F]"
    assert words("Shard(1)") == "Y[T, F_t]"
    assert words("Partial()") == "Y[T, F] {U_t}"
    assert words("Shard(1)", "Partial()", axes=("x", "y")) == "Y[T, F_x] {U_y}"
    assert words("Shard(0)", "Shard(0)", axes=("x", "y")) == "Y[T_x_y, F]"


def test_ranks_need_the_same_states():
    block = LocalBlock(("Shard(0)",), ("t",), (4, 4), (0, 0), (), 0)
    with pytest.raises(ValueError, match="each rank needs a block of each state"):
        check_fit([[block], []])
    with pytest.raises(ValueError, match="each rank needs a block of each state"):
        check_fit([])
