"""`torch.distributed.checkpoint` reads ours, and we read its; on ranks with DTensors, and in one process."""

import pytest
import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Shard, distribute_tensor

from dtlearn.production.checkpoints import Checkpointer, DtlearnReader, export_dcp, read_dcp, step_folder
from dtlearn.production.checkpoints.format import CheckpointError
from dtlearn.sharing.resharding import even_part, flat_piece, whole_piece
from tests.devices import run_ranks

SHAPE = (6, 8)
WHOLE = torch.arange(48.0).view(SHAPE)
ALONE = pytest.mark.filterwarnings("ignore:torch.distributed is disabled")  # which is what is wanted


def save_ours(folder):
    """Two ranks, stretches as ZeRO has them: three boxes each, of which a DCP chunk is one."""
    rank = dist.get_rank()
    bounds = (0, 19, 48)
    piece = flat_piece(SHAPE, bounds[rank], bounds[rank + 1])
    with Checkpointer(folder) as checkpointer:
        values = WHOLE.flatten()[bounds[rank] : bounds[rank + 1]]
        checkpointer.save(3, {"model.w": (piece, values)}, shared={"step": 3}, own={"rank": rank})


def load_with_dcp(checkpoint, dim):
    """On each rank: torch's `dcp.load` into a DTensor, of which the rank has a part along `dim`."""
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    state = {"model.w": distribute_tensor(torch.zeros(SHAPE), mesh, [Shard(dim)]), "objects.shared": None}
    dcp.load(state, storage_reader=DtlearnReader(checkpoint))
    return state["model.w"].to_local(), state["objects.shared"]


def save_with_dcp(folder):
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    weight = distribute_tensor(WHOLE, mesh, [Shard(1)])
    assert isinstance(weight, DTensor)
    dcp.save({"model": {"w": weight}, "step": 3}, checkpoint_id=folder)


@pytest.fixture(scope="module")
def ours(tmp_path_factory):
    folder = tmp_path_factory.mktemp("ours")
    run_ranks(save_ours, 2, str(folder), device="cpu")
    return step_folder(folder, 3)


@pytest.fixture(scope="module")
def theirs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("theirs")
    run_ranks(save_with_dcp, 2, str(folder), device="cpu")
    return folder


@pytest.mark.parametrize("dim", [0, 1])
def test_torch_reads_ours_into_dtensors(dim, ours):
    for rank, (local, shared) in enumerate(run_ranks(load_with_dcp, 2, str(ours), dim, device="cpu")):
        assert torch.equal(local, WHOLE.chunk(2, dim)[rank]) and shared == {"step": 3}


@ALONE
def test_torch_reads_ours_in_one_process_and_what_was_exported(ours, tmp_path):
    state = {"model.w": torch.zeros(SHAPE)}
    dcp.load(state, storage_reader=DtlearnReader(ours), no_dist=True)
    assert torch.equal(state["model.w"], WHOLE)
    export_dcp(ours, tmp_path / "dcp")
    again = {"model.w": torch.zeros(SHAPE), "objects.rank1": None}
    dcp.load(again, checkpoint_id=tmp_path / "dcp", no_dist=True)
    assert torch.equal(again["model.w"], WHOLE) and again["objects.rank1"] == {"rank": 1}


@ALONE
def test_a_flipped_bit_is_found_when_torch_reads_too(ours, tmp_path):
    import shutil

    copy = shutil.copytree(ours, tmp_path / "copy")
    data = bytearray((copy / "rank0.bin").read_bytes())
    data[8] ^= 1
    (copy / "rank0.bin").write_bytes(data)
    with pytest.raises(dcp.CheckpointException, match="checksum of bytes"):
        dcp.load({"model.w": torch.zeros(SHAPE)}, storage_reader=DtlearnReader(copy), no_dist=True)


@pytest.mark.parametrize("piece", [whole_piece(SHAPE), even_part(SHAPE, 0, 3, 1), flat_piece(SHAPE, 5, 30)])
def test_we_read_theirs(piece, theirs):
    values = read_dcp(theirs, {"model.w": piece})["model.w"]
    expected = [WHOLE[tuple(map(slice, box.start, box.stop))].flatten() for box in piece.boxes]
    assert torch.equal(values, torch.cat(expected))


def test_what_is_not_there_is_named(theirs):
    with pytest.raises(CheckpointError, match=r"w is \(6, 8\) here, and in the DCP checkpoint it is no tensor"):
        read_dcp(theirs, {"w": whole_piece(SHAPE)})
    with pytest.raises(CheckpointError, match=r"model.w is \(6, 9\) here, and in the DCP checkpoint it is \(6, 8\)"):
        read_dcp(theirs, {"model.w": whole_piece((6, 9))})
