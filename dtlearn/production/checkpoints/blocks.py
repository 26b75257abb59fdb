"""Files of pieces: written from first to last byte, with a checksum for each block, and read block by block.

Whoever wants 1/8 of a piece reads the blocks that it lies in, and knows that they are what was written. A checksum of
the whole file would have to read the whole file.

Each call of the operating system stands here as itself (`os.write`, `os.fsync`): what is on the disk after which of
them is what `store` is about.
"""

from __future__ import annotations

import contextlib
import itertools
import math
import os
import zlib
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Self

import numpy as np
import torch

from dtlearn.sharing.resharding import Read

from .format import BLOCK, DTYPES, DamagedError, Extent, Manifest, StoredFile

_ALIGNED = 64  # bytes: a piece begins at a multiple, which every dtype can be read at


@contextlib.contextmanager
def naming(path: Path) -> Iterator[None]:
    """Let an error of `os.write` or `os.fsync` name the file: the system knows only its descriptor."""
    try:
        yield
    except OSError as error:
        error.filename = error.filename or str(path)
        raise


class BlockWriter:
    """Writes a file, and counts checksums on the way.

        with BlockWriter(path) as file:
            extent = file.write(tensor)
        file.stored  # after the bytes are on the disk

    **Memory**: none beside the tensor.

    Attributes:
        stored: length and checksums.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.stored = StoredFile(0, ())
        self._descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)
        self._nbytes, self._sum, self._sums = 0, 0, list[int]()

    def write(self, values: torch.Tensor) -> Extent:
        """Add the elements of a tensor on the CPU, and say where they lie.

        Raises:
            OSError: the disk is full, say.
        """
        self._write(memoryview(bytes(-self._nbytes % _ALIGNED)))
        start = self._nbytes
        flat = values.detach().reshape(-1).contiguous()
        self._write(flat.view(torch.uint8).numpy().data)  # NumPy has no bfloat16, but bytes
        return Extent(self.path.name, start, self._nbytes - start)

    def _write(self, data: memoryview) -> None:
        while data:
            with naming(self.path):
                written = os.write(self._descriptor, data)  # may be less than all
            self._count(data[:written])
            data = data[written:]

    def _count(self, data: memoryview) -> None:
        while data:
            part = data[: BLOCK - self._nbytes % BLOCK]  # to the end of a block
            self._sum = zlib.crc32(part, self._sum)
            self._nbytes += len(part)
            if self._nbytes % BLOCK == 0:
                self._sums.append(self._sum)
                self._sum = 0
            data = data[len(part) :]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        try:
            if kind is None:
                with naming(self.path):
                    os.fsync(self._descriptor)
                if self._nbytes % BLOCK:
                    self._sums.append(self._sum)
                self.stored = StoredFile(self._nbytes, tuple(self._sums))
        finally:
            os.close(self._descriptor)


class PieceReader:
    """Reads pieces of a checkpoint, only the blocks that are asked for.

    Attributes:
        bytes_read: so far.
    """

    def __init__(self, folder: Path, manifest: Manifest) -> None:
        self.folder, self.manifest = folder, manifest
        self.bytes_read = 0

    def read(self, extent: Extent, dtype: str, reads: Sequence[Read] | None = None) -> torch.Tensor:
        """A stored piece, of which only the elements of `reads` are there; None: all.

        **Memory**: address space for the whole piece. Of it, what is never written takes no memory on Linux.

        Raises:
            DamagedError: the file is missing, torn, or changed.
        """
        size = DTYPES[dtype].itemsize
        first = extent.offset // BLOCK * BLOCK  # of the file: the buffer begins there
        stop = min(-(-(extent.offset + extent.nbytes) // BLOCK) * BLOCK, self.manifest.files[extent.file].nbytes)
        buffer = np.empty(max(stop - first, 0), np.uint8)
        runs: Iterable[tuple[int, int]] = [(0, extent.nbytes // size)]
        if reads is not None:
            runs = itertools.chain.from_iterable(map(contiguous_runs, reads))
        self._fill(buffer, extent, first, {(a, b) for a, b in runs if a < b}, size)
        at = extent.offset - first
        return torch.from_numpy(buffer[at : at + extent.nbytes]).view(DTYPES[dtype])

    def _fill(self, buffer: np.ndarray, extent: Extent, first: int, runs: set[tuple[int, int]], size: int) -> None:
        wanted = sorted(
            {
                block
                for start, stop in runs
                for block in range(
                    (extent.offset + start * size) // BLOCK, (extent.offset + stop * size - 1) // BLOCK + 1
                )
            }
        )
        if not wanted:
            return
        path, stored = self.folder / extent.file, self.manifest.files[extent.file]
        try:
            descriptor = os.open(path, os.O_RDONLY)
        except FileNotFoundError:
            raise DamagedError(
                f"{path} is missing, one of the {len(self.manifest.files)} files of this checkpoint: copy the whole "
                "folder, or take another step"
            ) from None
        try:
            for block in wanted:
                data = os.pread(descriptor, BLOCK, block * BLOCK)
                expected = min(BLOCK, stored.nbytes - block * BLOCK)
                if len(data) < expected:
                    raise DamagedError(f"{path} is torn: it has fewer than the {stored.nbytes} bytes that were saved")
                if zlib.crc32(data[:expected]) != stored.checksums[block]:
                    raise DamagedError(
                        f"{path} was changed since it was saved: the checksum of bytes {block * BLOCK} to "
                        f"{block * BLOCK + expected} is wrong. Take another step, or a copy of this one"
                    )
                at = block * BLOCK - first
                buffer[at : at + expected] = np.frombuffer(data, np.uint8, expected)
                self.bytes_read += expected
        finally:
            os.close(descriptor)


def contiguous_runs(read: Read) -> list[tuple[int, int]]:
    """The elements of a read as stretches of the stored piece: [(start, stop), ...].

    Args:
        read: from `plan_reads`.
    """
    shape = read.source.shape
    low = [start - first for start, first in zip(read.start, read.source.start, strict=True)]
    high = [stop - first for stop, first in zip(read.stop, read.source.start, strict=True)]
    inner = len(shape)  # dims from here on are read whole
    while inner and (low[inner - 1], high[inner - 1]) == (0, shape[inner - 1]):
        inner -= 1
    outer = max(inner - 1, 0)  # a stretch is a range of this dim
    strides = [math.prod(shape[dim + 1 :]) for dim in range(len(shape))]
    if not inner:
        return [(read.source.offset, read.source.offset + math.prod(shape))]
    rows = itertools.product(*(range(low[dim], high[dim]) for dim in range(outer)))
    starts = (
        read.source.offset + sum(place * stride for place, stride in zip(row, strides, strict=False)) for row in rows
    )
    return [(start + low[outer] * strides[outer], start + high[outer] * strides[outer]) for start in starts]
