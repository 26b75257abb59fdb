"""Who keeps what: every element once, balanced as each way promises, and what is wrong with a placement is named."""

import re

import pytest
import torch

from dtlearn.models import GPT, GPTConfig
from dtlearn.parameter_server.placement import KeyRange, ServerPlacement, balanced, by_hash, by_range, shapes_of

SHAPES = {"a": (2, 3), "scalar": (), "empty": (0,), "b": (3,), "c": (5,)}  # 15 elements
HASHED = [0, 2, 0, 0, 0, 2, 1, 0, 1, 0, 1, 1]  # CRC-32 of the letters a to l, modulo 3
MODEL = shapes_of(dict(GPT(GPTConfig(64, 16, 2, 2, 32)).named_parameters()))


def tensors(shapes):
    numbers, at = {}, 0
    for key, shape in shapes.items():
        numbers[key] = torch.arange(at, at + torch.Size(shape).numel(), dtype=torch.float64).view(shape)
        at += numbers[key].numel()
    return numbers


@pytest.mark.parametrize("place", [by_range, by_hash, balanced])
@pytest.mark.parametrize("num_servers", [1, 2, 3])
def test_every_element_has_one_place(place, num_servers):
    placement = place(MODEL, num_servers)
    values = tensors(MODEL)
    parts = [torch.cat([p.reshape(-1) for p in placement.pieces(s, values).values()]) for s in range(num_servers)]
    assert [len(part) for part in parts] == placement.elements_per_server()
    assert [8 * len(part) for part in parts] == placement.bytes_per_server(8)
    together, offsets = torch.cat(parts), placement.offsets()
    for key, value in values.items():
        assert torch.equal(together[offsets[key] :][: value.numel()], value.view(-1))
    assert together.sort().values.tolist() == list(range(sum(map(torch.Tensor.numel, values.values()))))


def test_ranges_are_equal_but_for_one_element_and_in_order():
    placement = by_range(SHAPES, 4)
    assert sorted(placement.elements_per_server()) == [3, 4, 4, 4]
    parts = [list(placement.pieces(server, tensors(SHAPES))) for server in range(4)]
    assert parts == [["a[0:3]"], ["a[3:6]", "scalar"], ["b", "c[0:1]"], ["c[1:5]"]]


def test_balanced_keeps_to_grahams_bound_and_tensors_whole():
    for num_servers in (2, 3, 4):
        loads = balanced(MODEL, num_servers).elements_per_server()
        sizes = [torch.Size(shape).numel() for shape in MODEL.values()]
        best = max(sum(sizes) / num_servers, max(sizes))  # no division is better than that
        assert max(loads) <= (4 / 3 - 1 / (3 * num_servers)) * best
    pieces = balanced(MODEL, 2).pieces(0, tensors(MODEL))
    assert all(tuple(piece.shape) == MODEL[key] for key, piece in pieces.items())


def test_a_hash_is_the_same_in_every_process():
    """Python's own hash of a string is not."""
    placement = by_hash(dict.fromkeys("abcdefghijkl", (1,)), 3)
    assert [piece.server for piece in placement.ranges] == HASHED


def test_pieces_are_views():
    values = tensors(SHAPES)
    by_range(SHAPES, 2).pieces(0, values)["a"].fill_(-1)
    assert values["a"].eq(-1).all()


@pytest.mark.parametrize(
    ("ranges", "says"),
    [
        ([("a", 0, 4, 0)], "'a': elements 4 to 6 have no server"),
        ([("a", 1, 6, 0)], "'a': elements 0 to 1 have no server"),
        ([("a", 0, 4, 0), ("a", 3, 6, 1)], "'a': element 3 has two servers"),
        ([("a", 0, 7, 0)], "elements 0 to 7 of 'a' do not exist"),
        ([("z", 0, 1, 0)], "elements 0 to 1 of 'z' do not exist: None"),
        ([("a", 0, 6, 2)], "'a' is at server 2, and there are 2, from 0"),
        ([("a", 0, 6, 1)], "servers [0] keep nothing"),
        ([], "'a': elements 0 to 6 have no server"),
        ([("a", 3, 6, 0), ("a", 0, 3, 1)], "'a': its pieces have to follow each other, from server to server"),
    ],
)
def test_what_is_wrong_with_a_placement_is_named(ranges, says):
    with pytest.raises(ValueError, match=re.escape(says)):
        ServerPlacement({"a": (2, 3)}, 2, tuple(KeyRange(*piece) for piece in ranges))


def test_another_model_is_refused():
    placement = by_range(SHAPES, 2)
    with pytest.raises(ValueError, match=r"no server keeps \['z'\], and the placement has \['a'\]"):
        placement.require_same_keys(tensors({**{k: v for k, v in SHAPES.items() if k != "a"}, "z": (1,)}))
    with pytest.raises(ValueError, match=r"b has shape \(4,\), and in the placement \(3,\)"):
        placement.pieces(0, tensors({**SHAPES, "b": (4,)}))
