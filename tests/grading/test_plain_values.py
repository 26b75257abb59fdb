import contextlib
import json
import struct

import numpy as np
import pytest
import torch

from dtlearn.grading import plain_values
from dtlearn.grading.on_rank.run_answer import same
from dtlearn.grading.plain_values import Malformed, dump, load


@pytest.mark.parametrize(
    "value",
    [
        None,
        True,
        0,
        -(2**62),
        1.5,
        float("inf"),
        float("nan"),
        "text é 中 \n\0",
        [],
        [1, [2.0, [None]]],
        {},
        {"a": 1, 3: [torch.tensor([1, 2])]},
        torch.tensor(3.5),
        torch.empty(0, 4),
        torch.tensor([[1.0, float("nan")], [float("-inf"), -0.0]]),
        torch.arange(6).reshape(2, 3).t(),  # not contiguous
        torch.tensor([1 + 2j]).conj(),
        torch.tensor([1 + 2j]).conj().imag,
        [torch.ones(2), torch.zeros(3, dtype=torch.int8), {"b": torch.ones(1, 1)}],
    ],
    ids=repr,
)
def test_what_goes_in_comes_out(value):
    back = load(dump(value))
    assert same(back, value) or (back != back and value != value)


@pytest.mark.parametrize("name", sorted(plain_values._DTYPES))
def test_every_dtype_travels(name):
    dtype = plain_values._DTYPES[name]
    value = torch.tensor([0, 1, 1]).to(dtype)
    assert same(load(dump(value)), value)


def test_tuples_become_lists_numpy_numbers_numbers_and_gradients_stay_behind():
    assert load(dump((1, (2,)))) == [1, [2]]
    assert load(dump(np.float32(0.5))) == 0.5
    back = load(dump(torch.nn.Parameter(torch.ones(2))))
    assert type(back) is torch.Tensor and not back.requires_grad


@pytest.mark.parametrize(
    ("value", "says"),
    [
        (object(), "the result is of type object"),
        ([1, {"a": {1, 2}}], "the result[1]['a'] is of type set"),
        ({(1, 2): 3}, "keys are not all texts or whole numbers"),
        (torch.eye(2).to_sparse(), "return a dense tensor"),
        (torch.empty(2, device="meta"), "return a dense tensor"),
        (2**64, "more than 64 bits"),
        (-(2**63), "more than 64 bits"),
    ],
)
def test_what_cannot_be_compared_is_refused_with_its_place(value, says):
    with pytest.raises(TypeError) as caught:
        dump(value)
    assert says in str(caught.value)


def test_endless_nesting_and_too_many_numbers_are_refused(monkeypatch):
    value: list = []
    value.append(value)
    with pytest.raises(TypeError, match="nested more than 20 deep"):
        dump(value)
    monkeypatch.setattr(plain_values, "_MAX_TEXT", 100)
    with pytest.raises(TypeError, match="too large"):
        dump(list(range(100)))
    monkeypatch.setattr(plain_values, "MAX_BYTES", 100)
    with pytest.raises(TypeError, match="too large"):
        dump(torch.zeros(100))


def packed(plain: object, raw: bytes = b"") -> bytes:
    text = plain if isinstance(plain, bytes) else json.dumps(plain).encode()
    return struct.pack("!Q", len(text)) + text + raw


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\0" * 7,
        struct.pack("!Q", 10) + b"[]",  # cut short
        struct.pack("!Q", 2**63) + b"[]",
        packed(b"\xff\xfe"),
        packed(b"[1, 2"),
        packed(b"[" * 100_000),
        packed(b"1" * 5000),  # Python itself limits the digits of a number
        packed({"x": 1}),
        packed({"f": "1", "d": []}),
        packed({"f": "one"}),
        packed({"f": None}),
        packed({"d": 5}),
        packed({"d": [[1]]}),
        packed({"d": [[{}, 1]]}),  # an unhashable key
        packed({"t": []}),
        packed({"t": ["float99", [1], 0, 4]}, b"\0" * 4),
        packed({"t": ["float32", [2], 0, 4]}, b"\0" * 4),
        packed({"t": ["float32", [1], 0, 4]}, b"\0" * 3),
        packed({"t": ["float32", [-1], 0, 4]}, b"\0" * 4),
        packed({"t": ["float32", [True], 0, 4]}, b"\0" * 4),
        packed({"t": ["float32", [1.0], 0, 4]}, b"\0" * 4),
        packed({"t": ["float32", "1", 0, 4]}, b"\0" * 4),
        packed({"t": ["float32", [1], -4, 4]}, b"\0" * 4),
        packed({"t": ["float32", [1], 4, 4]}, b"\0" * 8),
        packed({"t": ["float32", [0, 10**30], 0, 0]}),
        packed({"t": ["float32", [2**40], 0, 2**42]}, b"\0" * 4),
        packed([{"t": ["float32", [1], 0, 4]}] * 2, b"\0" * 4),  # the same bytes twice: a few could fill the memory
    ],
    ids=range(28),
)
def test_malformed_results_are_refused(data):
    with pytest.raises(Malformed):
        load(data)


def test_random_damage_never_gives_more_than_malformed():
    good = bytearray(dump({"a": torch.ones(3), "b": [1.5, "x", None]}))
    g = torch.Generator().manual_seed(0)
    loaded = []
    for _ in range(500):
        bad = bytearray(good)
        for at in torch.randint(len(good), (3,), generator=g).tolist():
            bad[at] = int(torch.randint(256, (1,), generator=g))
        with contextlib.suppress(Malformed):
            loaded.append(load(bytes(bad)))
    assert 0 < len(loaded) < 500  # other numbers or letters are values too, and as good as any
    assert all(same(load(dump(value)), value) for value in loaded)


def test_too_many_bytes_and_too_long_a_head_are_refused(monkeypatch):
    monkeypatch.setattr(plain_values, "_MAX_TEXT", 10)
    with pytest.raises(Malformed, match="head is too long"):
        load(packed(list(range(10))))
    monkeypatch.setattr(plain_values, "MAX_BYTES", 10)
    with pytest.raises(Malformed, match="are no result"):
        load(packed([]) + b"\0" * 10)
