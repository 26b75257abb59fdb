"""Beside `torch.distributed.checkpoint` (DCP): its checkpoints read into ours, and ours read by it.

Both know a tensor by name and whole shape, and a piece by where it lies in the whole; so each can read the other's:

    read_dcp(folder, wanted)                                       DCP's files: its reader, and a planner of ours
    dcp.load(state, storage_reader=DtlearnReader(step_folder))     ours: its planner, and a reader of ours
    export_dcp(step_folder, target)                                ours, written anew as DCP writes: no dtlearn needed

What is not possible. DCP's own `FileSystemReader` cannot open our files: it wants each piece as an archive of
`torch.save`, and its metadata as a pickle; hence the reader, or the export. A chunk of DCP is one box, so a stretch of
a matrix, up to 2n - 1 boxes here, is as many chunks there. Of a DCP checkpoint we read tensors only: its other values
are pickles, which may run code. And DCP has no pointer, lock or older steps: which folder to load, the caller must
know.

Source: `torch.distributed.checkpoint`'s `StorageReader`, `LoadPlanner` and `Metadata`.
"""

from __future__ import annotations

import io
import os
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.metadata import (
    BytesStorageMetadata,
    ChunkStorageMetadata,
    Metadata,
    MetadataIndex,
    TensorProperties,
    TensorStorageMetadata,
)
from torch.distributed.checkpoint.planner import LoadItemType
from torch.distributed.checkpoint.planner_helpers import create_read_items_for_chunk_list
from torch.futures import Future

from dtlearn.sharing.resharding import Box, Piece, Read, whole_piece

from .blocks import PieceReader
from .format import DTYPES, CheckpointError, Manifest
from .pieces import num_elements, read_object, read_pieces
from .store import read_manifest


class PiecePlanner(dcp.DefaultLoadPlanner):
    """Plans what DCP reads for pieces of ours: for each box the chunks that it overlaps.

    Args:
        wanted: by name in the DCP checkpoint.
    """

    def __init__(self, wanted: Mapping[str, Piece]) -> None:
        super().__init__(flatten_state_dict=False)
        self.wanted = wanted
        self.tensors: dict[str, torch.Tensor] = {}
        self._boxes: dict[MetadataIndex, Box] = {}

    def create_local_plan(self) -> dcp.LoadPlan:
        """The reads of all boxes."""
        items: list[dcp.ReadItem] = []
        assert self.metadata is not None
        for name, piece in self.wanted.items():
            stored = self.metadata.state_dict_metadata.get(name)
            if not isinstance(stored, TensorStorageMetadata) or tuple(stored.size) != piece.shape:
                there = tuple(stored.size) if isinstance(stored, TensorStorageMetadata) else "no tensor"
                raise CheckpointError(f"{name} is {piece.shape} here, and in the DCP checkpoint it is {there}")
            self.tensors[name] = torch.zeros(num_elements(piece), dtype=stored.properties.dtype)
            chunks = [ChunkStorageMetadata(torch.Size(box.start), torch.Size(box.shape)) for box in piece.boxes]
            self._boxes.update({MetadataIndex(name, box.start): box for box in piece.boxes})
            items += create_read_items_for_chunk_list(name, stored, chunks)
        return dcp.LoadPlan(items)

    def lookup_tensor(self, index: MetadataIndex) -> torch.Tensor:
        """The box that a read is for, as a view of the piece."""
        box = self._boxes[MetadataIndex(index.fqn, index.offset)]
        return _view(self.tensors[index.fqn], box)


def read_dcp(folder: Path | str, wanted: Mapping[str, Piece]) -> dict[str, torch.Tensor]:
    """Pieces of a checkpoint that `torch.distributed.checkpoint` has written, each as a flat tensor on the CPU.

    **Communication**: none. **Memory**: the pieces, and one chunk of a file at a time, whole: DCP reads no part of one.

    Args:
        folder: with its `.metadata`.
        wanted: by name there; nested state dicts have dots, "model.layers.0.weight".

    Raises:
        CheckpointError: there is no such tensor, or it has another shape.
    """
    planner = PiecePlanner(wanted)
    reader = dcp.FileSystemReader(folder)
    planner.set_up_planner({}, reader.read_metadata())
    reader.set_up_storage_reader(reader.read_metadata(), is_coordinator=True)
    reader.read_data(planner.create_local_plan(), planner).wait()
    return planner.tensors


class DtlearnReader(dcp.StorageReader):
    """Lets `dcp.load` read one of our checkpoints, into plain tensors and `DTensor`s of any mesh.

    Names are ours ("model.layers.0.weight", "optimizer.layers.0.weight.exp_avg"), beside "objects.shared" and
    "objects.rank3" for plain values.

    Args:
        checkpoint: such as `job/step-00000012`.
    """

    def __init__(self, checkpoint: Path | str) -> None:
        self.checkpoint = Path(checkpoint)

    def reset(self, checkpoint_id: str | os.PathLike[str] | None = None) -> None:
        """Begin another load, perhaps of another folder."""
        if checkpoint_id is not None:
            self.checkpoint = Path(checkpoint_id)

    def read_metadata(self, *_: Any, **__: Any) -> Metadata:
        """Our manifest, as DCP's."""
        manifest = read_manifest(self.checkpoint)
        entries: dict[str, Any] = {f"objects.{name}": BytesStorageMetadata() for name in manifest.objects}
        for name, stored in manifest.tensors.items():
            boxes = [box for piece in stored.pieces for box in piece.boxes]
            chunks = [ChunkStorageMetadata(torch.Size(box.start), torch.Size(box.shape)) for box in boxes]
            properties = TensorProperties(dtype=DTYPES[stored.dtype])
            entries[name] = TensorStorageMetadata(properties, torch.Size(stored.shape), chunks)
        return Metadata(entries)

    def set_up_storage_reader(self, metadata: Metadata, is_coordinator: bool, *_: Any, **__: Any) -> None:
        """Open the manifest; each rank has its own reader."""
        self.manifest = read_manifest(self.checkpoint)

    def prepare_local_plan(self, plan: dcp.LoadPlan) -> dcp.LoadPlan:
        """The plan as it is."""
        return plan

    def prepare_global_plan(self, plans: list[dcp.LoadPlan]) -> list[dcp.LoadPlan]:
        """The plans as they are."""
        return plans

    def read_data(self, plan: dcp.LoadPlan, planner: dcp.LoadPlanner) -> Future[None]:
        """Read what the plan says, in blocks with checksums."""
        reader = PieceReader(self.checkpoint, self.manifest)
        for item in plan.items:
            if item.type is LoadItemType.BYTE_IO:
                name = item.storage_index.fqn.removeprefix("objects.")
                buffer = io.BytesIO()
                torch.save(read_object(self.checkpoint, self.manifest, name), buffer)
                buffer.seek(0)
                planner.load_bytes(item, buffer)
            else:
                target = planner.resolve_tensor(item).detach()
                target.copy_(_read_item(reader, self.manifest, item))
                planner.commit_tensor(item, target)
        done: Future[None] = Future()
        done.set_result(None)
        return done

    @classmethod
    def validate_checkpoint_id(cls, checkpoint_id: str | os.PathLike[str]) -> bool:
        """Whether it is a folder of ours."""
        return (Path(checkpoint_id) / "manifest.json").is_file()


def _read_item(reader: PieceReader, manifest: Manifest, item: dcp.ReadItem) -> torch.Tensor:
    """The box that one of DCP's items names: part of one of our boxes."""
    stored = manifest.tensors[item.storage_index.fqn]
    assert item.storage_index.offset is not None
    first = tuple(item.storage_index.offset)
    piece, box = next((p, b) for p in stored.pieces for b in p.boxes if b.start == first)
    start = tuple(a + b for a, b in zip(first, item.storage_offsets, strict=True))
    stop = tuple(a + b for a, b in zip(start, item.lengths, strict=True))
    saved = reader.read(piece.extent, stored.dtype, [Read("", 0, start, stop, box, box)])
    places = zip(start, stop, box.start, strict=True)
    return _view(saved, box)[tuple(slice(a - origin, b - origin) for a, b, origin in places)]


def _view(flat: torch.Tensor, box: Box) -> torch.Tensor:
    return flat[box.offset :][: torch.Size(box.shape).numel()].view(box.shape)


def export_dcp(checkpoint: Path | str, target: Path | str) -> None:
    """Write one of our checkpoints as `torch.distributed.checkpoint` does: any DCP can load it, without dtlearn.

    **Communication**: none; one process does it. **Memory**: all tensors, whole.

    Args:
        checkpoint: such as `job/step-00000012`.
        target: a new folder.

    Raises:
        CheckpointError: see `read_pieces`.
    """
    checkpoint = Path(checkpoint)
    manifest = read_manifest(checkpoint)
    wanted = {name: whole_piece(stored.shape) for name, stored in manifest.tensors.items()}
    tensors, _ = read_pieces(checkpoint, manifest, wanted)
    state: dict[str, Any] = {name: values.view(manifest.tensors[name].shape) for name, values in tensors.items()}
    state |= {f"objects.{name}": read_object(checkpoint, manifest, name) for name in manifest.objects}
    # Names as they are: DCP would flatten the plain values' dicts into names of their own.
    planner = dcp.DefaultSavePlanner(flatten_state_dict=False)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "torch.distributed is disabled")  # one process is what is wanted here
        dcp.save(state, storage_writer=dcp.FileSystemWriter(target), planner=planner, no_dist=True)
