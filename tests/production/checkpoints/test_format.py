import json

import pytest

from dtlearn.production.checkpoints.format import (
    CheckpointError,
    DamagedError,
    Extent,
    RankFile,
    StoredFile,
    StoredPiece,
    StoredTensor,
    build_manifest,
    from_json,
    pieces_of,
    to_json,
)
from dtlearn.sharing.resharding import even_part


def written(rank, *, shape=(4, 6), dtype="float32"):
    boxes = even_part(shape, 0, 2, rank).boxes
    name = f"rank{rank}.bin"
    tensor = StoredTensor(dtype, shape, (StoredPiece(Extent(name, 64, 48), boxes),))
    return RankFile(name, StoredFile(112, (7, 8)), {"w": tensor}, {f"rank{rank}": Extent(name, 0, 5)})


def manifest():
    return build_manifest(12, [written(0), written(1)])


def test_it_is_read_as_it_was_written():
    assert from_json(to_json(manifest()), "manifest.json") == manifest()
    assert [piece.boxes for piece in pieces_of(manifest().tensors["w"])] == [
        even_part((4, 6), 0, 2, rank).boxes for rank in (0, 1)
    ]
    assert list(manifest().objects) == ["rank0", "rank1"] and manifest().num_ranks == 2


@pytest.mark.parametrize("other", [{"shape": (4, 8)}, {"dtype": "float64"}])
def test_two_tensors_of_one_name_are_refused(other):
    with pytest.raises(CheckpointError, match=r"w is .* on rank 1, and float32 \(4, 6\) on the ranks before it"):
        build_manifest(12, [written(0), written(1, **other)])


def test_a_torn_one_is_known_wherever_it_is_torn():
    text = to_json(manifest())
    for stop in range(0, len(text) - 1, 7):
        with pytest.raises(DamagedError, match=r"x/manifest.json is torn or was changed"):
            from_json(text[:stop], "x/manifest.json")
    with pytest.raises(DamagedError, match="its checksum is wrong"):
        from_json(text.replace("float32", "float64"), "manifest.json")


def test_a_newer_version_is_refused_and_not_called_damaged(monkeypatch):
    monkeypatch.setattr("dtlearn.production.checkpoints.format.FORMAT_VERSION", 2)
    text = to_json(manifest())
    monkeypatch.undo()
    with pytest.raises(
        CheckpointError, match=r"has format 2, and this version of dtlearn reads 1: load it with"
    ) as error:
        from_json(text, "manifest.json")
    assert not isinstance(error.value, DamagedError)


def test_for_an_older_version_no_update_helps(monkeypatch):
    monkeypatch.setattr("dtlearn.production.checkpoints.format.FORMAT_VERSION", 0)
    text = to_json(manifest())
    monkeypatch.undo()
    with pytest.raises(CheckpointError, match=r"reads 1: load it with the version that wrote it\. Nothing"):
        from_json(text, "manifest.json")


def test_a_person_can_read_it():
    data = json.loads(to_json(manifest()).splitlines()[0])
    assert data["tensors"]["w"][:2] == ["float32", [4, 6]] and data["files"]["rank0.bin"] == [112, [7, 8]]
