import pytest
import torch

from dtlearn.production.checkpoints.format import CheckpointError, DamagedError, build_manifest
from dtlearn.production.checkpoints.pieces import (
    from_bytes,
    num_elements,
    read_object,
    read_pieces,
    to_bytes,
    write_rank_file,
)
from dtlearn.sharing.resharding import Piece, even_part, flat_piece, whole_piece

SHAPE = (512, 256)
WHOLE = torch.arange(512 * 256, dtype=torch.float32).view(SHAPE)


def taken(piece):
    """Its elements, flat, from the whole."""
    parts = [WHOLE[tuple(map(slice, box.start, box.stop))].flatten() for box in piece.boxes]
    return torch.cat(parts) if parts else WHOLE.new_empty(0)


def save(folder, pieces):
    return build_manifest(
        7, [write_rank_file(folder, rank, {"w": (piece, taken(piece))}, {}) for rank, piece in enumerate(pieces)]
    )


LAYOUTS = {
    "rows": [even_part(SHAPE, 0, 4, rank) for rank in range(4)],
    "columns": [even_part(SHAPE, 1, 2, rank) for rank in range(2)],
    "stretches": [flat_piece(SHAPE, n * 43_691, min((n + 1) * 43_691, WHOLE.numel())) for n in range(3)],
    "one": [whole_piece(SHAPE), Piece(SHAPE, ())],
}


@pytest.mark.parametrize("saved", LAYOUTS)
@pytest.mark.parametrize("wanted", LAYOUTS)
def test_any_layout_is_read_from_any_other_and_only_what_is_needed(saved, wanted, tmp_path):
    manifest = save(tmp_path, LAYOUTS[saved])
    total = 0
    for piece in LAYOUTS[wanted]:
        tensors, nbytes = read_pieces(tmp_path, manifest, {"w": piece})
        assert torch.equal(tensors["w"], taken(piece))
        assert nbytes <= WHOLE.nbytes and (nbytes > 0) == bool(piece.boxes)
        total += nbytes
    if wanted == "rows" and saved != "columns":
        assert total <= 2 * WHOLE.nbytes  # whole blocks: at most one more at each end of 64 KiB, here 2 of 128 KiB
    if wanted == saved:
        assert total == WHOLE.nbytes


def test_a_missing_tensor_another_shape_and_a_gap_are_named(tmp_path):
    manifest = save(tmp_path, LAYOUTS["rows"][:3])
    with pytest.raises(CheckpointError, match=r"has no v: it is of another model or optimizer\. It has w"):
        read_pieces(tmp_path, manifest, {"v": whole_piece(SHAPE)})
    with pytest.raises(CheckpointError, match=r"w is \(512, 255\) here, and \(512, 256\) in number 0"):
        read_pieces(tmp_path, manifest, {"w": whole_piece((512, 255))})
    with pytest.raises(CheckpointError, match=r"element \(384, 0\) of w is in none of the saved states"):
        read_pieces(tmp_path, manifest, {"w": whole_piece(SHAPE)})


def test_a_shard_that_is_not_its_piece_is_refused(tmp_path):
    with pytest.raises(CheckpointError, match="w is 3 elements of float32 for a piece of 4"):
        write_rank_file(tmp_path, 0, {"w": (whole_piece((4,)), torch.zeros(3))}, {})
    (tmp_path / "rank0.bin").unlink()
    with pytest.raises(CheckpointError, match="w is 4 elements of uint16"):
        write_rank_file(tmp_path, 0, {"w": (whole_piece((4,)), torch.zeros(4, dtype=torch.uint16))}, {})


def test_plain_values_go_there_and_back_and_code_does_not(tmp_path):
    value = {"lr": [0.1, 3], "state": (3, torch.arange(4), None), "text": "a"}
    file = write_rank_file(tmp_path, 0, {}, {"shared": to_bytes(value, "shared")})
    back = read_object(tmp_path, build_manifest(1, [file]), "shared")
    assert str(back) == str(value)
    with pytest.raises(CheckpointError, match="shared holds more than tensors and plain values"):
        to_bytes({"scheduler": CheckpointError("an object")}, "shared")
    with pytest.raises(DamagedError, match="shared cannot be read"):
        from_bytes(b"nonsense", "shared")


def test_elements_of_a_piece():
    assert num_elements(flat_piece((3, 4), 2, 9)) == 7 and num_elements(whole_piece(())) == 1
    assert num_elements(Piece((3,), ())) == 0
