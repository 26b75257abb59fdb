import torch

from dtlearn.mixed_precision import DtypeLog, autocast
from dtlearn.mixed_precision.casting.op_dtypes import OpDtypes, dtypes


def test_the_log_has_what_the_program_passes_and_gets():
    x = torch.ones(2, 2)
    for block in (autocast("cpu"), torch.autocast("cpu")):
        with block, DtypeLog() as log:
            y = torch.cat([x @ x, x])
            y.argmax()
        assert log.ops == [
            OpDtypes("matmul", ("float32", "float32"), ("bfloat16",)),
            OpDtypes("cat", ("bfloat16", "float32"), ("float32",)),
        ]


def test_dtypes_of_nested_values():
    assert dtypes(([torch.ones(1)], {"a": torch.ones(1).half(), "b": 1}, torch.ones(1).int())) == ("float32", "float16")
    assert dtypes("text") == ()
