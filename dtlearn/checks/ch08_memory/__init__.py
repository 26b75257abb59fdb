"""Checks of chapter 8."""

from ..own_work import forbids

READS = [forbids("dtlearn.memory")]  # rules on the text of every answer
# Codes of mistakes that only these exercises know; see `dtlearn.checks.meanings`.
MEANINGS = {
    "DTL-VALUE-BUDGET": "a budget that is not the smallest of all ranks'",
    "DTL-VALUE-DIVISORS": "segments that must be equally long",
    "DTL-VALUE-FLOAT32": "bytes rounded to what a float32 can hold",
    "DTL-VALUE-K-ANYWAY": "a segment length although none fits",
    "DTL-VALUE-K-LARGEST": "the longest segments that fit, though others recompute less",
    "DTL-VALUE-K-LOWEST": "the lowest peak, though the budget allows to recompute less",
    "DTL-VALUE-K-NONE": "no segment length although one fits",
    "DTL-VALUE-K-ROOT": "the root of the number of layers",
    "DTL-VALUE-K-TIE": "of several that recompute as few layers, not the one with the lowest peak",
    "DTL-VALUE-OTHER-NUMBER": "another number than the one that is asked",
    "DTL-VALUE-PEAK": "a peak of memory that is computed otherwise",
    "DTL-VALUE-SHORT-FIRST": "the shorter segment at the start",
    "DTL-VALUE-STRICT": "what needs exactly the budget taken for too large",
}
