"""Checks of chapter 7."""

from ..own_work import forbids

READS = [forbids("dtlearn.mixed_precision")]  # rules on the text of every answer
# Codes of mistakes that only these exercises know; see `dtlearn.checks.meanings`.
MEANINGS = {
    "DTL-VALUE-BIAS": "another bias than 2^(exponent bits - 1) - 1",
    "DTL-VALUE-EPSILON": "another distance from 1 to the next number",
    "DTL-VALUE-HARD-CODED": "fixed numbers where arguments are meant",
    "DTL-VALUE-INFINITY": "infinity or NaN taken for a number, or the other way round",
    "DTL-VALUE-LARGEST": "another largest number",
    "DTL-VALUE-NORMAL": "another smallest normal number",
    "DTL-VALUE-SUBNORMAL": "subnormal numbers lost, or computed otherwise",
    "DTL-VALUE-SWAPPED": "exponent and mantissa taken for each other",
}
