"""Printed figures are ours to the digits that are printed: the last one rounded or cut off."""

import math

import pytest

from dtlearn.zero.arithmetic.published import ZERO_OFFLOAD_TABLE_1, ZERO_TABLE_1


def decimals(number):
    return len(str(number).partition(".")[2]) if isinstance(number, float) else 0


@pytest.mark.parametrize("row", ZERO_TABLE_1)
def test_table_1_of_zero(row):
    for printed, ours in zip(row.printed, row.ours, strict=True):
        scale = 10 ** decimals(printed)
        assert round(printed * scale) in (math.floor(ours * scale), math.floor(ours * scale + 0.5))


def test_the_table_has_three_models_on_six_numbers_of_gpus():
    assert [(row.parameters, row.num_ranks) for row in ZERO_TABLE_1] == [
        (size * 10**8, n) for size in (75, 1280, 10000) for n in (1, 4, 16, 64, 256, 1024)
    ]


def test_table_1_of_zero_offload():
    assert [way.ours for way in ZERO_OFFLOAD_TABLE_1] == [16, 14, 4, 2]
    assert [round(16 / way.ours, 2) for way in ZERO_OFFLOAD_TABLE_1] == [way.reduction for way in ZERO_OFFLOAD_TABLE_1]
    differs = [way for way in ZERO_OFFLOAD_TABLE_1 if way.printed != way.ours]
    assert [(way.gradients, way.update, way.printed) for way in differs] == [("host", "host", 4)], "the misprint"
