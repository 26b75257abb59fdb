"""Tensors of one rank, written to its file, and read from the files of others: no ranks are needed here.

RankFile                <- write_rank_file: pieces and plain values, one after the other
tensors, bytes read     <- read_pieces: what `plan_reads` says, of the files that it names, in blocks
"""

from __future__ import annotations

import io
import math
import pickle
from collections.abc import Mapping
from itertools import groupby
from pathlib import Path
from typing import Any

import torch

from dtlearn.sharing.resharding import Piece, plan_reads, read_into

from .blocks import BlockWriter, PieceReader
from .format import (
    DTYPES,
    CheckpointError,
    DamagedError,
    Manifest,
    RankFile,
    StoredPiece,
    StoredTensor,
    pieces_of,
)

Shards = Mapping[str, tuple[Piece, torch.Tensor]]  # by name: which elements of the whole, and these, flat
SHARED = "shared"


def num_elements(piece: Piece) -> int:
    """Elements that a flat tensor has for a piece, with gaps between its boxes, if it has some."""
    return max((box.offset + math.prod(box.shape) for box in piece.boxes), default=0)


def write_rank_file(folder: Path, rank: int, shards: Shards, objects: Mapping[str, bytes]) -> RankFile:
    """Write what one rank has, as `rank3.bin`, and force it to the disk.

    Args:
        folder: from `begin`.
        rank: 3.
        shards: on the CPU. Empty pieces are not written.
        objects: by name, from `to_bytes`.

    Raises:
        OSError: there is no room, say.
        CheckpointError: a tensor is not what its piece says.
    """
    path = folder / f"rank{rank}.bin"
    tensors, extents = {}, {}
    with BlockWriter(path) as file:
        for name, (piece, values) in shards.items():
            dtype = str(values.dtype).removeprefix("torch.")
            if dtype not in DTYPES or values.numel() < num_elements(piece):
                raise CheckpointError(
                    f"{name} is {values.numel()} elements of {dtype} for a piece of {num_elements(piece)}: expected as "
                    f"many, of one of {', '.join(DTYPES)}"
                )
            stored: tuple[StoredPiece, ...] = ()
            if piece.boxes:
                stored = (StoredPiece(file.write(values), piece.boxes),)
            tensors[name] = StoredTensor(dtype, piece.shape, stored)
        for name, data in objects.items():
            extents[name] = file.write(torch.frombuffer(bytearray(data), dtype=torch.uint8))
    return RankFile(path.name, file.stored, tensors, extents)


def read_pieces(
    checkpoint: Path, manifest: Manifest, wanted: Mapping[str, Piece]
) -> tuple[dict[str, torch.Tensor], int]:
    """The wanted pieces, each as a flat tensor on the CPU, and how many bytes were read for them.

    **Communication**: none. **Memory**: the wanted pieces, and of one stored piece what is read.

    Args:
        checkpoint: a folder such as `step-00000012`.
        manifest: of it.
        wanted: by name; `whole_piece(shape)`, say.

    Raises:
        DamagedError: a file is missing, torn or changed.
        CheckpointError: there is no such tensor, or it has another shape, or the ranks did not save all of it.
    """
    reader, tensors = PieceReader(checkpoint, manifest), {}
    for name, piece in wanted.items():
        if name not in manifest.tensors:
            raise CheckpointError(
                f"{checkpoint} has no {name}: it is of another model or optimizer. It has {_some(manifest.tensors)}"
            )
        stored = manifest.tensors[name]
        try:
            reads = plan_reads([{name: saved} for saved in pieces_of(stored)], {name: piece})[name]
        except ValueError as error:
            raise CheckpointError(f"{checkpoint}: {error}") from error
        if not stored.pieces and piece.boxes:
            raise CheckpointError(f"{checkpoint}: no rank has saved elements of {name}")
        values = torch.zeros(num_elements(piece), dtype=DTYPES[stored.dtype])
        for place, own in groupby(sorted(reads, key=lambda read: read.saved), key=lambda read: read.saved):
            own_reads = list(own)
            saved = reader.read(stored.pieces[place].extent, stored.dtype, own_reads)
            read_into(values, own_reads, {place: saved})
        tensors[name] = values
    return tensors, reader.bytes_read


def read_object(checkpoint: Path, manifest: Manifest, name: str) -> Any:
    """Plain values that were saved, such as "shared" or "rank3".

    Raises:
        DamagedError: as `read_pieces`.
    """
    return from_bytes(PieceReader(checkpoint, manifest).read(manifest.objects[name], "uint8").numpy().tobytes(), name)


def to_bytes(value: Any, name: str) -> bytes:
    """Plain values and tensors as bytes, which can be read without running code that they hold.

    Raises:
        CheckpointError: it holds something else, an object of some class, say. Better now than at the restart.
    """
    buffer = io.BytesIO()
    torch.save(value, buffer)
    try:
        torch.load(io.BytesIO(buffer.getbuffer()), weights_only=True)
    except pickle.UnpicklingError as error:
        raise CheckpointError(
            f"{name} holds more than tensors and plain values (numbers, strings, lists, dicts), and would not be read "
            "back: give its state_dict, or leave it out"
        ) from error
    return buffer.getvalue()


def from_bytes(data: bytes, name: str) -> Any:
    """What `to_bytes` was given.

    Raises:
        DamagedError: it is something else.
    """
    try:
        return torch.load(io.BytesIO(data), weights_only=True, map_location="cpu")
    except (pickle.UnpicklingError, RuntimeError, EOFError) as error:
        raise DamagedError(f"{name} cannot be read: {type(error).__name__}") from error


def _some(names: Mapping[str, object]) -> str:
    return ", ".join([*names][:3]) + (", ..." if len(names) > 3 else "")
