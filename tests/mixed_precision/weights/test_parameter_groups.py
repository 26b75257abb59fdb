"""Parameters as an optimizer takes them; integers are refused with words."""

import pytest
import torch
from torch import nn

from dtlearn.mixed_precision import CompensatedUpdate, MasterWeights, RoundedUpdate, StochasticUpdate
from dtlearn.mixed_precision.weights.parameter_groups import checked_groups, update_dtype


def test_what_torch_takes():
    first, second = nn.Parameter(torch.ones(1)), nn.Parameter(torch.ones(2).half())
    assert checked_groups(p for p in [first, second])[0]["params"] == [first, second]
    groups = checked_groups([{"params": first, "lr": 1.0}, {"params": [second]}])
    assert [g["params"] for g in groups] == [[first], [second]] and groups[0]["lr"] == 1.0
    assert checked_groups([("weight", first)])[0]["param_names"] == ["weight"]
    with pytest.raises(ValueError, match="empty parameter list"):
        checked_groups([])


@pytest.mark.parametrize("optimizer", [MasterWeights, RoundedUpdate, StochasticUpdate, CompensatedUpdate])
def test_an_integer_parameter_is_refused(optimizer):
    whole = nn.Parameter(torch.ones(2, dtype=torch.int64), requires_grad=False)
    with pytest.raises(TypeError, match=r"parameter 1 is torch.int64, .* register it as a buffer"):
        optimizer([nn.Parameter(torch.ones(1)), whole], torch.optim.SGD, lr=1.0)
    with pytest.raises(TypeError, match=r"parameter steps is torch\.int64"):
        optimizer([("steps", whole)], torch.optim.SGD, lr=1.0)


def test_the_format_of_updates():
    formats = {torch.float16: torch.float32, torch.bfloat16: torch.float32, torch.float8_e4m3fn: torch.float32}
    for dtype, expected in {**formats, torch.float32: torch.float32, torch.float64: torch.float64}.items():
        assert update_dtype(torch.empty(1, dtype=dtype)) == expected
