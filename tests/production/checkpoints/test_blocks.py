import os

import pytest
import torch

from dtlearn.production.checkpoints.blocks import BlockWriter, PieceReader, contiguous_runs
from dtlearn.production.checkpoints.format import BLOCK, DTYPES, DamagedError, Manifest
from dtlearn.sharing.resharding import even_part, flat_piece, plan_reads, whole_piece

NUM = 3 * BLOCK // 4 + 5  # float32: three blocks and a bit


@pytest.fixture
def file(tmp_path):
    """One file of two tensors, and what reads it."""
    small, large = torch.arange(3, dtype=torch.uint8), torch.arange(NUM, dtype=torch.float32)
    with BlockWriter(tmp_path / "rank0.bin") as writer:
        extents = [writer.write(small), writer.write(large)]
    manifest = Manifest(1, 1, {"rank0.bin": writer.stored}, {}, {})
    return tmp_path / "rank0.bin", extents, PieceReader(tmp_path, manifest), (small, large)


def test_it_is_read_as_it_was_written(file):
    path, extents, reader, (small, large) = file
    assert torch.equal(reader.read(extents[0], "uint8"), small)
    assert torch.equal(reader.read(extents[1], "float32"), large)
    assert reader.manifest.files["rank0.bin"].nbytes == os.path.getsize(path) == 64 + 4 * NUM
    assert len(reader.manifest.files["rank0.bin"].checksums) == 4


@pytest.mark.parametrize("dtype", DTYPES)
def test_every_dtype_survives(dtype, tmp_path):
    values = torch.arange(100, dtype=torch.float32).to(DTYPES[dtype])
    with BlockWriter(tmp_path / "f") as writer:
        extent = writer.write(values)
    read = PieceReader(tmp_path, Manifest(1, 1, {"f": writer.stored}, {}, {})).read(extent, dtype)
    assert read.dtype == values.dtype and torch.equal(read.view(torch.uint8), values.view(torch.uint8))


def test_only_the_blocks_that_are_wanted_are_read(file):
    _, extents, reader, (_, large) = file
    wanted = {"w": flat_piece((NUM,), 10, 20)}
    reads = plan_reads([{"w": whole_piece((NUM,))}], wanted)["w"]
    values = reader.read(extents[1], "float32", reads)
    assert reader.bytes_read == BLOCK and torch.equal(values[10:20], large[10:20])
    last = plan_reads([{"w": whole_piece((NUM,))}], {"w": flat_piece((NUM,), NUM - 1, NUM)})["w"]
    assert reader.read(extents[1], "float32", last)[-1] == NUM - 1
    assert reader.bytes_read == BLOCK + 64 + 4 * NUM - 3 * BLOCK


@pytest.mark.parametrize("dim", [0, 1, 2])
def test_runs_are_exactly_the_elements_of_a_read(dim):
    shape = (4, 3, 6)
    [read] = plan_reads([{"w": whole_piece(shape)}], {"w": even_part(shape, dim, 3, 1)})["w"]
    chosen = torch.zeros(shape, dtype=torch.bool)
    chosen[tuple(slice(a, b) for a, b in zip(read.start, read.stop, strict=True))] = True
    runs = contiguous_runs(read)
    assert [n for start, stop in runs for n in range(start, stop)] == chosen.flatten().nonzero().flatten().tolist()
    assert len(runs) == (1, 4, 12)[dim]


def test_a_flipped_bit_is_found_where_it_is_read_and_not_elsewhere(file):
    path, extents, reader, _ = file
    data = bytearray(path.read_bytes())
    data[BLOCK + 77] ^= 1
    path.write_bytes(data)
    with pytest.raises(DamagedError, match=f"checksum of bytes {BLOCK} to {2 * BLOCK} is wrong"):
        reader.read(extents[1], "float32")
    first = plan_reads([{"w": whole_piece((NUM,))}], {"w": flat_piece((NUM,), 0, 5)})["w"]
    assert reader.read(extents[1], "float32", first)[:5].tolist() == [0, 1, 2, 3, 4]


def test_a_torn_file_and_a_missing_one_are_named(file):
    path, extents, reader, _ = file
    path.write_bytes(path.read_bytes()[: 2 * BLOCK])
    with pytest.raises(DamagedError, match=r"rank0.bin is torn: it has fewer than the \d+ bytes that were saved"):
        reader.read(extents[1], "float32")
    path.unlink()
    with pytest.raises(DamagedError, match=r"rank0.bin is missing, one of the 1 files"):
        reader.read(extents[1], "float32")


def test_a_partial_write_is_gone_on_with(monkeypatch, tmp_path):
    real = os.write
    monkeypatch.setattr(os, "write", lambda descriptor, data: real(descriptor, data[:1000]))
    with BlockWriter(tmp_path / "f") as writer:
        extent = writer.write(torch.arange(10_000))
    monkeypatch.undo()
    reader = PieceReader(tmp_path, Manifest(1, 1, {"f": writer.stored}, {}, {}))
    assert torch.equal(reader.read(extent, "int64"), torch.arange(10_000))
