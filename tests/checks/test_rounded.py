"""Tests of what is said of results that were rounded."""

from types import SimpleNamespace

import pytest
import torch

from dtlearn.checks.rounded import rounded, rounded_in_messages, rounded_to_float32
from dtlearn.grading import Finding

FOUND = Finding("DTL-VALUE", "12 of 12 elements are wrong", 1)
RIGHT = torch.tensor([1.48227, -3.30419, 0.127])


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_sixteen_bits_are_named(dtype):
    finding = rounded(FOUND, [{"a": RIGHT}] * 2, [{"a": RIGHT.to(dtype).float()}] * 2)
    assert (finding.code, finding.rank) == ("DTL-VALUE-ROUNDED", 1)
    assert "rounded to 16 bits" in finding.text
    assert finding.text.endswith(FOUND.text)


@pytest.mark.parametrize("got", [[2 * RIGHT, RIGHT], [RIGHT, None]])
def test_another_difference_on_one_rank_stays(got):
    assert rounded(FOUND, [RIGHT] * 2, got) is FOUND


def test_a_finding_that_names_a_mistake_stays():
    finding = Finding("DTL-VALUE-FACTOR", "exactly 2x", 0)
    assert rounded(finding, [RIGHT], [RIGHT.half().float()]) is finding


@pytest.mark.parametrize(
    ("dtypes", "code"), [(["float32", "bfloat16"], "DTL-VALUE-ROUNDED"), (["float32"], FOUND.code)]
)
def test_in_messages_only_where_one_had_sixteen_bits(dtypes, code):
    record = [SimpleNamespace(dtype=dtype) for dtype in dtypes]
    assert rounded_in_messages(FOUND, [RIGHT], [RIGHT.bfloat16().float()], record).code == code


def test_float64_with_the_digits_of_float32_is_named():
    right = [{"a": RIGHT, "b": [RIGHT.double() / 3]}] * 2
    assert rounded_to_float32(right, right) is None
    finding = rounded_to_float32(right, [right[0], {"a": RIGHT, "b": [(RIGHT.double() / 3).float().double()]}])
    assert (finding.code, finding.rank) == ("DTL-VALUE-DIGITS", 1)
    assert "right to about 7 digits" in finding.text
