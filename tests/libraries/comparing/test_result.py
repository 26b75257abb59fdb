"""A result, to JSON and back."""

import json

from dtlearn.libraries.comparing.result import LibraryResult
from dtlearn.libraries.comparing.traffic import Traffic

ROW = Traffic("backward", "all_reduce", 2, "float32", "SUM", (16, 8))
RESULT = LibraryResult(
    "ddp", "torch DDP", (2.0, 1.5), ((ROW,), (ROW, ROW)), (10, 11), (20, 21), 0.5, {"torch": "2.13.0"}
)


def test_it_comes_back_from_json_as_it_was():
    assert LibraryResult.from_json(json.loads(json.dumps(RESULT.as_json()))) == RESULT


def test_ring_bytes_are_the_mean_of_the_ranks():
    assert RESULT.wire_bytes == (24 + 48) / 2
    assert RESULT.calls == (ROW,)
