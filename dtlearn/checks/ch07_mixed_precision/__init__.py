"""Checks of chapter 7."""

from ..own_work import forbids

READS = [forbids("dtlearn.mixed_precision")]  # rules on the text of every answer
# Codes of mistakes that only these exercises know; see `dtlearn.checks.meanings`.
MEANINGS = {
    "DTL-VALUE-BIAS": "another bias than 2^(exponent bits - 1) - 1",
    "DTL-VALUE-CONVERTED": "numbers converted where their bits are meant",
    "DTL-VALUE-EPSILON": "another distance from 1 to the next number",
    "DTL-VALUE-HARD-CODED": "fixed numbers where arguments are meant",
    "DTL-VALUE-INFINITY": "infinity or NaN taken for a number, or the other way round",
    "DTL-VALUE-KEPT-BITS": "another number of bits kept",
    "DTL-VALUE-LARGEST": "another largest number",
    "DTL-VALUE-MINUS-ZERO": "zero with another sign",
    "DTL-VALUE-NAN-LOST": "NaN that became a number",
    "DTL-VALUE-NORMAL": "another smallest normal number",
    "DTL-VALUE-OVERFLOW": "a number that should be infinity, or the other way round",
    "DTL-VALUE-SUBNORMAL": "subnormal numbers lost, or computed otherwise",
    "DTL-VALUE-SWAPPED": "exponent and mantissa taken for each other",
    "DTL-VALUE-TIES": "ties that do not go to the even neighbour",
    "DTL-VALUE-TRUNCATED": "bits cut off where they should be rounded",
}
