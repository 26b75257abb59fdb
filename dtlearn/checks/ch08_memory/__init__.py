"""Checks of chapter 8."""

from ..own_work import forbids

READS = [forbids("dtlearn.memory")]  # rules on the text of every answer
# Codes of mistakes that only these exercises know; see `dtlearn.checks.meanings`.
MEANINGS = {
    "DTL-RULE-COPIED-AGAIN": "memory that is copied although a copy is there",
    "DTL-RULE-HELD": "activations that stay on the device though they were copied",
    "DTL-RULE-HOST-NOT-FREED": "copies on the host that are held after backward",
    "DTL-RULE-KEPT": "activations that are kept where they should be computed again",
    "DTL-RULE-NOT-FREED": "memory that is held after backward",
    "DTL-RULE-PARAMETERS": "parameters that were moved to the host",
    "DTL-RULE-RUNS": "a function that runs more or less often than once in forward and once in backward",
    "DTL-RULE-SMALL": "small tensors that were moved to the host",
    "DTL-RULE-STAYED": "activations that were not moved to the host",
    "DTL-VALUE-BUDGET": "a budget that is not the smallest of all ranks'",
    "DTL-VALUE-DIVISORS": "segments that must be equally long",
    "DTL-VALUE-FLOAT32": "bytes rounded to what a float32 can hold",
    "DTL-VALUE-GENERATOR": "a random generator that is left in another state",
    "DTL-VALUE-GRADIENT-TWICE": "gradients that count twice",
    "DTL-VALUE-INPUT-CHANGED": "a requires_grad that was changed",
    "DTL-VALUE-INPUT-GRADIENT": "the gradient of an input that is missing, or too much",
    "DTL-VALUE-K-ANYWAY": "a segment length although none fits",
    "DTL-VALUE-K-LARGEST": "the longest segments that fit, though others recompute less",
    "DTL-VALUE-K-LOWEST": "the lowest peak, though the budget allows to recompute less",
    "DTL-VALUE-K-NONE": "no segment length although one fits",
    "DTL-VALUE-K-ROOT": "the root of the number of layers",
    "DTL-VALUE-K-TIE": "of several that recompute as few layers, not the one with the lowest peak",
    "DTL-VALUE-NO-GRADIENTS": "parameters without gradients",
    "DTL-VALUE-NO-GRAPH": "a loss that backward cannot start from",
    "DTL-VALUE-NOT-FROZEN": "a graph where none is asked",
    "DTL-VALUE-ONE-RESULT": "gradients of one of several results",
    "DTL-VALUE-OTHER-NUMBER": "another number than the one that is asked",
    "DTL-VALUE-PEAK": "a peak of memory that is computed otherwise",
    "DTL-VALUE-REDRAWN": "other random numbers in the second run",
    "DTL-VALUE-SHORT-FIRST": "the shorter segment at the start",
    "DTL-VALUE-STALE-COPY": "the copy of another tensor",
    "DTL-VALUE-STRICT": "what needs exactly the budget taken for too large",
}
