import array
import sys
import types
from collections import deque

import numpy as np
import pytest
import torch

from dtlearn.memory.ledger.outside_torch import bytes_by_variable, names_of_module, outside_torch


class Keeps:
    def __init__(self, what):
        self.what = what


def closure(what):
    return lambda: what


VECTOR = torch.arange(20.0) + 0.5
KEPT = {
    "list": VECTOR.tolist(),
    "tuple": tuple(VECTOR.tolist()),
    "ndarray": np.array(VECTOR.tolist(), np.float32),
    "bytes": VECTOR.numpy().tobytes(),
    "array": array.array("f", VECTOR.tolist()),
    "numpy.ndarray": torch.from_numpy(np.zeros(20, np.float32)),
}


@pytest.mark.parametrize("where", [lambda what: what, Keeps, closure, lambda what: {"a": [what]}])
@pytest.mark.parametrize("kind", KEPT)
def test_numbers_are_found_wherever_they_are(kind, where):
    found = outside_torch(where(KEPT[kind]))
    assert (found.sizes[0], found.kind) == (20, kind) and found.floats == 20 * (kind in ("list", "tuple"))


def test_short_lists_are_added_up():
    short = deque(VECTOR[k : k + 4].tolist() for k in range(0, 20, 4))
    found = outside_torch(closure(short))
    assert found.sizes[:3] == [4, 4, 4] and found.floats == 20


def test_tensors_of_torch_and_names_of_other_modules_do_not_count():
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(100))], lr=0.1)
    assert outside_torch(VECTOR.clone(), lambda: KEPT).sizes[0] == 0
    assert outside_torch(closure(optimizer)).sizes[0] < 10
    assert any(value is KEPT for value in names_of_module(__name__))


PROGRAM = """
import numpy as np

at_module = [b"a" * 5_000]

class Keeper:
    shared = b"b" * 7_000

def inner(look):
    view = np.zeros(3_000).reshape(3, -1)[0]
    return look()

def outer(look, tensor):
    texts = [str(number) * 10 for number in range(1_000)]
    return inner(look)
"""


def test_bytes_by_the_variable_that_leads_to_them(monkeypatch):
    module = types.ModuleType("kept_by_names")
    module.__file__ = "kept_by_names.py"
    monkeypatch.setitem(sys.modules, module.__name__, module)
    exec(compile(PROGRAM, module.__file__, "exec"), vars(module))
    unseen = "c" * 50_000  # in a frame of another file
    sizes = module.outer(lambda: bytes_by_variable(sys._getframe(), module.__name__), torch.zeros(50_000))
    assert unseen and sizes.total() < 150_000
    assert 5_000 < sizes["at_module"] < 6_000 and 7_000 < sizes["Keeper"] < 12_000
    assert 24_000 < sizes["view"] < 25_000 and 50_000 < sizes["texts"] < 100_000
    assert sizes["tensor"] == 0
