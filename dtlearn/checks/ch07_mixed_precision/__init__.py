"""Checks of chapter 7."""

from ..own_work import forbids

READS = [forbids("dtlearn.mixed_precision")]  # rules on the text of every answer
# Codes of mistakes that only these exercises know; see `dtlearn.checks.meanings`.
MEANINGS = {
    "DTL-VALUE-ALL-RANKS": "a step skipped only if all ranks overflowed",
    "DTL-VALUE-ALWAYS": "a decision that is always yes",
    "DTL-VALUE-BIAS": "another bias than 2^(exponent bits - 1) - 1",
    "DTL-VALUE-CONVERTED": "numbers converted where their bits are meant",
    "DTL-VALUE-COUNTED": "a number of ranks compared with one",
    "DTL-VALUE-EPSILON": "another distance from 1 to the next number",
    "DTL-VALUE-FALSE-ALARM": "finite values taken for an overflow",
    "DTL-VALUE-HARD-CODED": "fixed numbers where arguments are meant",
    "DTL-VALUE-INFINITY": "infinity or NaN taken for a number, or the other way round",
    "DTL-VALUE-INVERTED": "a decision the wrong way round",
    "DTL-VALUE-KEPT-BITS": "another number of bits kept",
    "DTL-VALUE-LARGEST": "another largest number",
    "DTL-VALUE-MAJORITY": "a vote where one rank is enough",
    "DTL-VALUE-MINUS-ZERO": "zero with another sign",
    "DTL-VALUE-MISSED-INF": "infinity that is not noticed",
    "DTL-VALUE-MISSED-MINUS-INF": "minus infinity that is not noticed",
    "DTL-VALUE-MISSED-NAN": "NaN that is not noticed",
    "DTL-VALUE-NAN-LOST": "NaN that became a number",
    "DTL-VALUE-NEVER": "a decision that is always no",
    "DTL-VALUE-NORMAL": "another smallest normal number",
    "DTL-VALUE-ONE-DECIDES": "one rank that decides for all",
    "DTL-VALUE-ONE-GRADIENT": "one gradient that stands for all of a rank",
    "DTL-VALUE-OVERFLOW": "a number that should be infinity, or the other way round",
    "DTL-VALUE-OWN-OVERFLOW": "a decision by a rank's own gradients",
    "DTL-VALUE-SUBNORMAL": "subnormal numbers lost, or computed otherwise",
    "DTL-VALUE-SWAPPED": "exponent and mantissa taken for each other",
    "DTL-VALUE-TIES": "ties that do not go to the even neighbour",
    "DTL-VALUE-TRUNCATED": "bits cut off where they should be rounded",
}
