"""The manifest of a checkpoint: which tensors there are, and where in which file each of their pieces lies, as data.

A checkpoint is a folder. Each rank writes one file, its pieces one after the other; the manifest is written last:

    step-00000012/
        rank0.bin  rank1.bin       pieces, and each rank's random numbers
        manifest.json              by tensor: dtype, whole shape, and of each piece the file, the place in it, the boxes

A tensor is known by name and whole shape, and a piece by the boxes of the whole that it has (`sharing.resharding`). So
nothing says which strategy has saved, and any other can load. It is JSON: a person reads it, and it runs no code.

Source: `torch.distributed.checkpoint`, whose `.metadata` keeps the same of each chunk, as a pickle.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import torch

from dtlearn.sharing.resharding import Box, Piece

FORMAT_VERSION = 1
BLOCK = 1 << 16  # bytes of a file that have one checksum
MANIFEST = "manifest.json"
DTYPES = {
    str(dtype).removeprefix("torch."): dtype
    for dtype in (
        *(torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.float8_e4m3fn, torch.float8_e5m2),
        *(torch.complex64, torch.complex128, torch.int64, torch.int32, torch.int16, torch.int8),
        *(torch.uint8, torch.bool),
    )
}


class CheckpointError(ValueError):
    """A checkpoint cannot be written or read: the message says which, why, and what to do. All ranks raise it."""


class DamagedError(CheckpointError):
    """Bytes of a checkpoint are missing or are not those that were written: an older one may be taken."""


class Extent(NamedTuple):
    """Bytes `offset` to `offset + nbytes` of a file of the checkpoint."""

    file: str
    offset: int
    nbytes: int


class StoredPiece(NamedTuple):
    """One rank's piece of a tensor: its bytes, and which boxes of the whole they are."""

    extent: Extent
    boxes: tuple[Box, ...]


class StoredTensor(NamedTuple):
    """A tensor of a checkpoint.

    Attributes:
        dtype: by name, such as "float32".
        shape: of the whole tensor.
        pieces: of the ranks that have some of it.
    """

    dtype: str
    shape: tuple[int, ...]
    pieces: tuple[StoredPiece, ...]


class StoredFile(NamedTuple):
    """A file of a checkpoint: its length in bytes, and the CRC-32 of each BLOCK bytes of it."""

    nbytes: int
    checksums: tuple[int, ...]


class RankFile(NamedTuple):
    """What a rank has written, which it tells rank 0."""

    name: str
    file: StoredFile
    tensors: dict[str, StoredTensor]
    objects: dict[str, Extent]


class Manifest(NamedTuple):
    """What a checkpoint holds.

    Attributes:
        step: updates made.
        num_ranks: that saved.
        files, tensors: by name.
        objects: plain values as bytes: "shared", and those of rank 3 as "rank3".
    """

    step: int
    num_ranks: int
    files: dict[str, StoredFile]
    tensors: dict[str, StoredTensor]
    objects: dict[str, Extent]


def build_manifest(step: int, written: list[RankFile]) -> Manifest:
    """Put together what the ranks have written, in the order of ranks.

    Raises:
        CheckpointError: two ranks have a tensor of one name, of other shapes or dtypes.
    """
    tensors: dict[str, StoredTensor] = {}
    objects: dict[str, Extent] = {}
    for rank, own in enumerate(written):
        objects.update(own.objects)
        for name, tensor in own.tensors.items():
            before = tensors.setdefault(name, tensor._replace(pieces=()))
            if (before.dtype, before.shape) != (tensor.dtype, tensor.shape):
                raise CheckpointError(
                    f"{name} is {tensor.dtype} {tensor.shape} on rank {rank}, and {before.dtype} {before.shape} on the "
                    "ranks before it: give the shape of the whole tensor on every rank, and one dtype"
                )
            tensors[name] = before._replace(pieces=before.pieces + tensor.pieces)
    return Manifest(step, len(written), {own.name: own.file for own in written}, tensors, objects)


def pieces_of(tensor: StoredTensor) -> list[Piece]:
    """The stored pieces of a tensor, as `plan_reads` takes them."""
    return [Piece(tensor.shape, piece.boxes) for piece in tensor.pieces]


def to_json(manifest: Manifest) -> str:
    """A manifest as text. Its last line is the checksum of the others, so that a torn one is known."""
    body = json.dumps(
        {
            "format": FORMAT_VERSION,
            "step": manifest.step,
            "num_ranks": manifest.num_ranks,
            "block": BLOCK,
            "files": manifest.files,
            "tensors": manifest.tensors,
            "objects": manifest.objects,
        }
    )
    return f"{body}\n{_checksum(body)}\n"


def from_json(text: str, place: str) -> Manifest:
    """What `to_json` wrote.

    Args:
        text: of the file.
        place: its name, for messages.

    Raises:
        DamagedError: it is torn, or no manifest.
        CheckpointError: it is of another version.
    """
    body, _, rest = text.partition("\n")
    if rest.strip() != _checksum(body):
        raise DamagedError(
            f"{place} is torn or was changed: its checksum is wrong. Take another step of the folder, or a copy of it"
        )
    data = json.loads(body)
    if data["format"] != FORMAT_VERSION:
        update = ", or update this one" if data["format"] > FORMAT_VERSION else ""
        raise CheckpointError(
            f"{place} has format {data['format']}, and this version of dtlearn reads {FORMAT_VERSION}: load it with "
            f"the version that wrote it{update}. Nothing was read or deleted"
        )
    return Manifest(
        step=data["step"],
        num_ranks=data["num_ranks"],
        files=_each(data["files"], lambda file: StoredFile(file[0], tuple(file[1]))),
        tensors=_each(data["tensors"], _tensor),
        objects=_each(data["objects"], lambda extent: Extent(*extent)),
    )


def _tensor(data: list[Any]) -> StoredTensor:
    dtype, shape, pieces = data
    boxes = [
        StoredPiece(Extent(*extent), tuple(Box(tuple(start), tuple(stop), offset) for start, stop, offset in own))
        for extent, own in pieces
    ]
    return StoredTensor(dtype, tuple(shape), tuple(boxes))


def _each(data: Mapping[str, Any], make: Callable[[Any], Any]) -> dict[str, Any]:
    return {name: make(value) for name, value in data.items()}


def _checksum(body: str) -> str:
    return f"crc32 {zlib.crc32(body.encode()):08x}"
